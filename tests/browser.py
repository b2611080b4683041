"""Real Chromium, for the tests that open a page. Without one they are skipped; in CI that is a failure."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, sync_playwright

# the microphone hears beeps, and nobody is asked whether it may
ARGUMENTS = ["--no-sandbox", "--use-fake-device-for-media-stream", "--use-fake-ui-for-media-stream"]
NAMES = ("chromium", "chromium-browser", "google-chrome")


@contextmanager
def chromium() -> Iterator[Browser]:
    path = next(filter(None, map(shutil.which, NAMES)), None)
    if path is None:
        missing = "no Chromium on this machine: apt-get install chromium"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path=path, args=ARGUMENTS)
        yield browser
        browser.close()


@dataclass
class Visit:
    """An open page, and all it asked for and complained of."""

    page: Page
    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)

    def run(self, script: str, argument: object = None) -> Any:
        return self.page.evaluate(script, argument)

    def settle(self) -> None:
        """Until what was asked for before this is on the screen."""
        self.run("() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done)))")


@contextmanager
def visit(
    browser: Browser, place: Path | str, *, width: int = 1280, height: int = 900, **options: Any
) -> Iterator[Visit]:
    """Open a file, or an address, in a browser without a past."""
    context = browser.new_context(viewport={"width": width, "height": height}, **options)
    yield opened_in(context.new_page(), place)
    context.close()


def opened_in(page: Page, place: Path | str) -> Visit:
    """Open a file, or an address, in a tab."""
    seen = Visit(page)
    page.on("request", lambda request: seen.requests.append(request.url))
    page.on("console", lambda message: seen.complaints.append(message.text))
    page.on("pageerror", lambda error: seen.complaints.append(str(error)))
    page.on("dialog", lambda dialog: (seen.complaints.append(dialog.message), dialog.dismiss()))
    page.goto(place.as_uri() if isinstance(place, Path) else place)
    return seen

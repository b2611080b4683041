"""The report of a search in a real browser: it asks for nothing, draws every chart, and obeys no text."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import chromium, visit
from playwright.sync_api import Browser

from regard.show.sweep_page import sweep_page

HOSTILE = "</script><img src=x onerror=alert(1)>$x$\u202e"


def facts(trials: int = 14) -> dict[str, Any]:
    random = np.random.default_rng(1)
    rows = []
    for number in range(trials):
        rate, kind = float(10 ** random.uniform(-4, -2)), str(random.choice(["lstm", HOSTILE]))
        value = None if number == trials - 1 else 30 + 4 * number / trials
        curve = [value - 5 / step for step in range(1, 9)] if value else []
        rows.append(
            {
                "name": f"{number:03}",
                "state": "finished" if value else "failed",
                "value": value,
                "settings": {"train.learning_rate": rate, "model.cell": f'"{kind}"', "model.hidden": 8 + number},
                "titles": {"train.learning_rate": f"{rate:.4g}", "model.cell": kind, "model.hidden": str(8 + number)},
                "seconds": 100.0 + number,
                "step": 800,
                "why": "" if value else f"the loss is not finite {HOSTILE}",
                "folder": f"runs/x/{number:03}",
                "curve": {"seconds": [12.5 * at for at, _ in enumerate(curve)],
                          "step": [100 * at for at, _ in enumerate(curve)], "value": curve},
            }
        )  # fmt: skip
    rows.sort(key=lambda row: -(row["value"] or 0))
    known = [trial for trial in rows if trial["value"]]
    means = [{"choice": "lstm", "trials": 6, "mean": 31.2}, {"choice": HOSTILE, "trials": 7, "mean": 32.1}]
    return {
        "title": f"Search for {HOSTILE}",
        "task": "translation",
        "made": {"date": "today", "version": "0", "command": f"regard sweep {HOSTILE}",
                 "machine": {"processor": "x", "cores": 2, "memory_gb": 8, "threads": 1, "jobs": 1, "torch": "2"}},
        "folder": "runs/x", "seed": 1,
        "metric": {"key": "bleu", "name": "BLEU", "unit": "", "better": "higher", "note": "nrefs:1"},
        "space": [{"key": "train.learning_rate", "low": 1e-4, "high": 1e-2, "log": True},
                  {"key": "model.cell", "choices": ["lstm", HOSTILE]},
                  {"key": "model.hidden", "low": 8, "high": 24, "log": False}],
        "trials": rows,
        "settings": [
            {"key": "train.learning_rate", "strength": 0.31, "direction": -0.31, "p": 0.3, "means": []},
            {"key": "model.cell", "strength": 0.2, "direction": None, "p": 0.5, "means": means},
            {"key": "model.hidden", "strength": 1.0, "direction": 1.0, "p": 0.0005, "means": []},
        ],
        "summary": [f"Trial {trial['name']} is the best: BLEU {trial['value']:.4g}." for trial in known[:1]],
    }  # fmt: skip


def opened(browser: Browser, page: Path, scheme: Any, width: int, *, charts: bool = True) -> list[str]:
    """Open a page and press every button; return the rows of its trials."""
    with visit(browser, page, width=width, color_scheme=scheme) as seen:
        seen.page.wait_for_selector("body[data-drawn]", state="attached")
        buttons = seen.page.locator(".choices button")
        for at in range(buttons.count()):
            buttons.nth(at).click()
            seen.settle()
        assert seen.complaints == [] and seen.requests == [page.as_uri()]
        drawn = seen.run("() => document.querySelectorAll('figure .main-svg').length")
        assert (drawn > 0) == charts == ("Curves" in seen.page.inner_text("main"))
        assert seen.run("() => document.documentElement.scrollWidth") <= width
        return seen.page.locator("#trials tbody tr").all_inner_texts()


@pytest.mark.parametrize("trials, scheme", [(14, "dark"), (1, "light")])  # the last one failed
def test_the_page_opens_offline_draws_every_chart_and_obeys_no_text(tmp_path: Path, trials: int, scheme: str) -> None:
    page = tmp_path / "page.html"
    page.write_text(sweep_page(facts(trials)), encoding="utf-8")
    with chromium() as browser:
        rows = opened(browser, page, scheme, 390, charts=trials > 1)
    assert len(rows) == trials and "failed" in rows[-1] and "failed" not in "".join(rows[:-1])

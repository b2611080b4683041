"""A real server in a process of its own, for the tests that ask it."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from urllib.request import Request, urlopen

from command import ENVIRONMENT, REGARD


@contextmanager
def serving(*arguments: object) -> Iterator[str]:
    """Start `regard serve` on a free port, and give its address, without a slash at its end."""
    command = [*REGARD, "serve", *map(str, arguments), "--port", "0"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=ENVIRONMENT) as process:
        assert process.stdout is not None
        try:
            line = process.stdout.readline()
            assert " at http://" in line, line
            yield line.split(" at ")[1].split()[0].rstrip("/")
        finally:
            process.terminate()
            process.wait(20)


def ask(address: str, path: str, **body: Any) -> Any:
    """Send a request as any program would: with a body a POST."""
    content = json.dumps(body).encode() if body else None
    with urlopen(Request(address + path, content, {"content-type": "application/json"}), timeout=30) as response:
        return json.load(response)

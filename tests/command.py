"""The command in a process of its own, for the tests that give it; the fixture `call` gives it in this one."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

REGARD = [sys.executable, "-m", "regard"]
# the hashes that a person trusts are not touched, nor those that an earlier test trained with
CONFIG = tempfile.TemporaryDirectory()
os.environ["XDG_CONFIG_HOME"] = CONFIG.name
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}


class Result(NamedTuple):
    code: int
    out: str
    err: str


Call = Callable[..., Result]


def run(*arguments: object, stdin: bytes = b"", cwd: Path | None = None) -> Result:
    """In a process of its own."""
    command = [*REGARD, *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, env=ENVIRONMENT, cwd=cwd, timeout=60)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())

"""Processes of a bench: a contender that waits while the others work, and how much memory a process takes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any


class Child:
    """A process that writes a line of JSON when it is ready, and another for each line that it is given."""

    def __init__(self, title: str, command: Sequence[str], *, log: Path, environment: Mapping[str, str]) -> None:
        self.title, self.log = title, log
        try:
            with log.open("w") as errors:
                self.process = subprocess.Popen(
                    command,
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=errors,
                    text=True,
                    env={**os.environ, "HF_HUB_OFFLINE": "1", **environment},
                    start_new_session=True,  # Ctrl-C is for the one who then ends them all
                )
        except FileNotFoundError:
            sys.exit(f"{title} needs {command[0]}, which is missing: make it with `make bench/.venv/ready`.")

    def ask(self, line: str) -> dict[str, Any]:
        assert self.process.stdin
        with suppress(BrokenPipeError):  # it has ended: its last words say why
            self.process.stdin.write(line + "\n")
            self.process.stdin.flush()
        return self.answer()

    def answer(self) -> dict[str, Any]:
        assert self.process.stdout
        line = self.process.stdout.readline()
        if not line:
            last = "\n".join(self.log.read_text().splitlines()[-15:])
            sys.exit(f"{self.title} ended before it answered; its last words:\n{last}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


def megabytes(process: int, what: str) -> float:
    """Return VmRSS or VmHWM of a process; 0 when it has ended."""
    try:
        found = re.search(rf"{what}:\s+(\d+)", Path(f"/proc/{process}/status").read_text())
    except FileNotFoundError:
        return 0.0
    return int(found[1]) / 1024 if found else 0.0

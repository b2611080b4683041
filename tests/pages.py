"""A page of docs/ as its reader meets it: the Python and the commands that it shows."""

from __future__ import annotations

import re
from pathlib import Path

ROOT = Path(__file__).parent.parent
DOCS = ROOT / "docs"


def python_in(page: str) -> list[str]:
    return _blocks(page, "python")


def commands_in(page: str) -> list[str]:
    return [line for block in _blocks(page, "sh") for line in block.replace("\\\n", " ").splitlines()]


def _blocks(page: str, language: str) -> list[str]:
    text = (DOCS / page).read_text(encoding="utf-8")
    return re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)

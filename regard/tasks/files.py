"""What tasks share whose inputs are files, pictures or recordings: answers name the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from regard.data.text import encodable, one_line


def file_of(raw: Any) -> str:
    """The file of an input, in characters that can be written; "" for one that has none."""
    path = getattr(raw, "path", raw)
    return encodable(str(path)) if isinstance(path, str | Path) else ""


def with_file(line: str, raw: Any) -> str:
    """A line of output, with the file of an input after it."""
    return line + (f"\t{one_line(file_of(raw))}" if file_of(raw) else "")


def entry_of(raw: Any, facts: dict[str, Any]) -> dict[str, Any]:
    """A line of JSON that begins with the file of an input, if it has one."""
    return {**({"file": file_of(raw)} if file_of(raw) else {}), **facts}

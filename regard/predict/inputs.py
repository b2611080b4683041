"""Raw inputs, a few at a time: lines from a file or from standard input, or a sentence as it is typed."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Literal, TypeVar

from regard.config import UserError
from regard.data.text import encodable, read_lines

AT_ONCE = 512  # inputs that are answered together

T = TypeVar("T")


def some_at_once(items: Iterable[T], count: int = AT_ONCE) -> Iterator[list[T]]:
    """As a stream: these and no others are held."""
    stream = iter(items)
    while some := list(islice(stream, count)):
        yield some


def text_lines(file: Path | None, errors: Literal["strict", "replace"] = "strict") -> Iterator[str]:
    return read_lines(file or sys.stdin.buffer, errors=errors)


def typed_text(text: str) -> list[str]:
    """The sentence itself, or the lines of the file of that name, those that are not blank."""
    if len(text) > 255 or "\0" in text or not Path(text).is_file():
        return [encodable(text)]
    lines = [line for line in read_lines(text) if line.strip()]
    if not lines:
        raise UserError(f"{text} has no sentence: give one with text in it.")
    return lines

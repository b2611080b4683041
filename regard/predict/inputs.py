"""Raw inputs, a few at a time: lines from a file or from standard input, or a text as it is typed.

One rule for every command: what exists is a file; what does not exist and has no space, but a slash or a file
extension, is a missing file; anything else is a text.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np

from regard.config import UserError
from regard.data.picture_files import PictureFile
from regard.data.text import encodable, read_lines, whole_lines

LIKE_A_FILE = re.compile(r"\S*(/\S*|\w\.[A-Za-z]\w{0,7})")
AT_ONCE = 512  # inputs that are predicted together
CHARACTERS = 1 << 22  # and no more characters, or bytes of pixels, than this, where a single one has not more

T = TypeVar("T")


def some_at_once(items: Iterable[T], count: int = AT_ONCE) -> Iterator[list[T]]:
    """Yield lists of at most `count` items, fewer where they are long; only one list is in memory."""
    some: list[T] = []
    room = CHARACTERS
    for item in items:
        some.append(item)
        room -= weight(item)
        if len(some) == count or room <= 0:
            yield some
            some, room = [], CHARACTERS
    if some:
        yield some


def weight(item: object) -> int:
    """The characters of an input, or the bytes of its pixels; of all parts of an example."""
    if isinstance(item, tuple):
        return sum(map(weight, item))
    if isinstance(item, np.ndarray | PictureFile):
        return item.nbytes
    return len(item) if isinstance(item, str) else 0


def text_lines(file: Path | None, errors: Literal["strict", "replace"] = "strict") -> Iterator[str]:
    return read_lines(file or sys.stdin.buffer, errors=errors, pipe=True)


def named_file(text: str) -> Path | None:
    """The file that this names; None: it is a text."""
    if os.path.exists(text):
        return Path(text)
    if LIKE_A_FILE.fullmatch(text):
        remedy = "check the spelling and the folder, or end it with a space if it is a text"
        raise UserError(f"{text} does not exist, and its name is a file's: {remedy}.")
    return None


def typed_text(text: str) -> list[str]:
    """The text itself, or the lines of the file of that name, those that are not blank."""
    if (file := named_file(text)) is None:
        return [encodable(text)]
    lines = [line for _, line in whole_lines(file) if line.strip()]
    if not lines:
        raise UserError(f"{text} holds only blank lines: give a file with text in it.")
    return lines

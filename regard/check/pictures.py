"""Pictures and their labels or captions: files that cannot be decoded, pictures of one colour."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from regard.check.faults import Checked
from regard.check.files import SPLITS, Checking, check_files
from regard.data.picture_cache import Size
from regard.data.picture_files import PictureFile, require_pillow
from regard.data.picture_sources import PICTURES, is_npz
from regard.data.pictures import pixels_in, size_of
from regard.data.sources import Split
from regard.data.tokens import TextTokens
from regard.recipe import Recipe

HASH = 16  # bytes
BLANK = "of one colour; remove such pictures"


class CheckingPictures(Checking):
    kind = PICTURES
    text = "caption"

    def __init__(self, split: Split, tokens: TextTokens | None, size: list[Size]) -> None:
        super().__init__(split, tokens)
        self.size = size  # of the first picture of all, once it is known

    def look(self, raw: Any, label: str) -> bytes:
        if not self.size:
            self.size.append(size_of(raw))
        pixels = pixels_in(raw, self.size[0])
        if pixels.min() == pixels.max():
            self.note(BLANK, raw.path if isinstance(raw, PictureFile) else f"picture {self.number}")
        return hashlib.blake2b(pixels.tobytes(), digest_size=HASH).digest()

    def add(self, number: int, raw: Any, label: str) -> None:
        if not self.size and isinstance(raw, PictureFile):
            require_pillow(raw.path)  # one sentence for all files
        super().add(number, raw, label)

    def report(self, file: str, line: int, wrong: str) -> None:
        if is_npz(Path(file)):
            self.broken.append(f"Picture {line} of {file} {wrong}: correct or remove it.")
        else:
            super().report(file, line, wrong)


def check_pictures(
    recipe: Recipe, write: Path | None, on_example: Callable[[], None] = lambda: None, *, labels: bool = True
) -> Checked:
    """Check pictures and their labels, or pictures with other answers."""
    tokens, size = None if labels else recipe.tokens, list[Size]()
    return check_files(recipe, write, on_example, [CheckingPictures(split, tokens, size) for split in SPLITS])

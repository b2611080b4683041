"""Pictures with captions: the built-in scenes, and the field of a caption.

A picture may have several captions. To learn from, each is an example of its own; to choose a checkpoint by and to
score, they are the references of one example, which BETWEEN separates.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar

from regard.config import Positive, between
from regard.data.fields import Array, TextField
from regard.data.sources import Line, Source, Split
from regard.data.text import BETWEEN, Report
from regard.data.world.captions import Language
from regard.data.world.scenes import MOST, Scene, scenes
from regard.interface import UserError


class CaptionField(TextField):
    """A caption as tokens; of several, the first."""

    def encode(self, raws: Sequence[str], *, continued: bool = False) -> list[Array]:
        return super().encode([raw.split(BETWEEN)[0] for raw in raws], continued=continued)


@dataclass(frozen=True)
class Scenes(Source):
    """Pictures of a few things and their captions, drawn by the built-in grammar."""

    has_test: ClassVar[bool] = True

    scenes: Positive = 10_000  # training pictures drawn by the grammar
    things: Annotated[int, between(1, MOST)] = 2  # most things in a picture
    side: Annotated[int, between(16, 256)] = 48  # height and width in pixels, a multiple of 8
    language: Language = "english"  # of the captions
    grammar_seed: int = 0  # random seed of the grammar: another seed gives other scenes
    valid: Positive = 500  # validation pictures
    test: Positive = 500  # test pictures

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.side % 8:
            raise ValueError(f"side = {self.side} is not a multiple of 8: give one.")

    def drawn(self, split: Split, *, held_out: bool | None = None) -> Iterator[Scene]:
        """The scenes of a split; held_out: only those with combinations that training never shows, or without."""
        count = {"train": self.scenes, "valid": self.valid, "test": self.test}[split]
        return islice(scenes(split, seed=self.grammar_seed, most=self.things, held_out=held_out), count)

    def example(self, scene: Scene) -> tuple[Array, str]:
        return scene.draw(self.side), self.caption(scene)

    def caption(self, scene: Scene) -> str:
        return " ".join(scene.english if self.language == "english" else scene.french)

    def lines(self, split: Split, folder: Path, report: Report | None = None) -> Iterator[Line]:
        return iter(_drawn(self, split))

    def fingerprint(self, folder: Path) -> str:
        digest = hashlib.sha256()
        for _, picture, caption in (*_drawn(self, "train")[:1000], *_drawn(self, "valid")[:100]):
            digest.update(picture.tobytes() + caption.encode())
        return digest.hexdigest()

    def reading(self, files: Sequence[Path]) -> Source:
        raise UserError("The built-in scenes are drawn, not read from files: leave the file out.")


@lru_cache(maxsize=3)  # a session reads its data several times, and drawing it again costs more than keeping it
def _drawn(data: Scenes, split: Split) -> list[Line]:
    return [(number, *data.example(scene)) for number, scene in enumerate(data.drawn(split), start=1)]

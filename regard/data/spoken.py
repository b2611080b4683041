"""The built-in utterances as recordings: a small synthesiser says digits and letters."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Annotated, ClassVar

from regard.config import Positive, between
from regard.data.frames import hop_of
from regard.data.recordings import Recording
from regard.data.sound_sources import Recordings, file_and_transcript
from regard.data.sounds import BANDS, FEWEST_BANDS, HIGHEST_RATE, MOST_BANDS
from regard.data.sources import Line, Source, Split, only
from regard.data.text import Report
from regard.data.world.speech import SHORTEST, Units, Utterance, utterances

LISTENED = 20  # utterances whose samples are part of the fingerprint


@dataclass(frozen=True)
class Spoken(Source):
    """Strings of digits and letters, spoken by the built-in synthesiser."""

    has_test: ClassVar[bool] = True

    utterances: Positive = 10_000  # training utterances
    units: Units = "digits"  # what a string is made of
    longest: Annotated[int, between(SHORTEST, 100)] = 7  # most units in a string
    rate: Annotated[int, between(8000, HIGHEST_RATE)] = 8000  # samples per second, a multiple of 100
    bands: Annotated[int, between(FEWEST_BANDS, MOST_BANDS)] = BANDS  # mel bands of a frame
    grammar_seed: int = 0  # random seed of the strings and voices: another seed gives others
    valid: Positive = 500  # validation utterances
    test: Positive = 500  # test utterances

    def __post_init__(self) -> None:
        super().__post_init__()
        hop_of(self.rate)

    @property
    def described(self) -> str:
        units = "digits and letters" if self.units == "both" else self.units
        return f"the built-in synthesiser, strings of at most {self.longest} {units}"

    def drawn(self, split: Split) -> Iterator[Utterance]:
        """The utterances of a split, which know when each unit is spoken."""
        count = {"train": self.utterances, "valid": self.valid, "test": self.test}[split]
        return islice(utterances(split, seed=self.grammar_seed, units=self.units, longest=self.longest), count)

    def example(self, utterance: Utterance) -> tuple[Recording, str]:
        held = utterance.samples(self.rate)
        return Recording(held=held, held_rate=self.rate, rate=self.rate, bands=self.bands), utterance.text

    def lines(self, split: Split, folder: Path, report: Report | None = None) -> Iterator[Line]:
        return ((number, *self.example(each)) for number, each in enumerate(_drawn(self, split), start=1))

    def fingerprint(self, folder: Path) -> str:
        digest = hashlib.sha256()
        for each in _drawn(self, "train")[:LISTENED]:
            digest.update(each.samples(self.rate).tobytes())
        for each in (*_drawn(self, "train")[:1000], *_drawn(self, "valid")[:100]):
            digest.update(repr(each).encode())
        return digest.hexdigest()

    def reading(self, files: Sequence[Path]) -> Source:
        """A table of files and transcripts."""
        (file,) = only(files)
        source, target = file_and_transcript(Path(file))
        return Recordings(train=file, valid=file, source=source, target=target, rate=self.rate, bands=self.bands)


@lru_cache(maxsize=3)  # a session reads its data several times
def _drawn(data: Spoken, split: Split) -> list[Utterance]:
    return list(data.drawn(split))

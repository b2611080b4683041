"""The options and the result of `score`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.predict.decoding import Decoding
from regard.score.alignment import Links


@dataclass(frozen=True)
class Options:
    how: Decoding | None = None  # settings of decoding; None: those of `predict`
    gold: Sequence[Links] | None = None  # gold alignments of the examples
    layer: int | None = None  # the attention layer to align by; None: the mean of all
    by_length: bool = False
    stride: int = 0  # tokens by which a window moves; 0: half of it
    on_answer: Callable[[str], None] | None = None  # is called with each answer, in order


@dataclass(frozen=True)
class Scored:
    lines: list[str]  # for people
    facts: dict[str, Any]  # for JSON

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __getitem__(self, name: str) -> Any:
        """Return a figure by its name: run.score(pairs)["bleu"]."""
        found = self.facts[name]
        return found["value"] if isinstance(found, dict) and "value" in found else found

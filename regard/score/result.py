"""What `score` was asked for, what a run answered, and what was found."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.predict.decoding import Decoding
from regard.score.alignment import Links


@dataclass(frozen=True)
class Options:
    how: Decoding | None = None  # to write; None: as `predict` does
    gold: Sequence[Links] | None = None  # alignments of the examples
    layer: int | None = None  # of several that attend, the one that is aligned by
    by_length: bool = False
    stride: int = 0  # tokens by which a window moves; 0: half of it
    told: Callable[[str], None] | None = None  # hears of each answer as it comes, in order


@dataclass(frozen=True)
class Scored:
    lines: list[str]  # for people
    facts: dict[str, Any]  # for JSON

    def __str__(self) -> str:
        return "\n".join(self.lines)

    def __getitem__(self, name: str) -> Any:
        """A figure by its name: run.score(pairs)["bleu"]."""
        found = self.facts[name]
        return found["value"] if isinstance(found, dict) and "value" in found else found

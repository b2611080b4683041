"""How to write: the settings of beam search and sampling; and what comes out."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from regard.config import Bound, Count, Positive, Settings, UserError, between

Temperature = Annotated[float, between(1e-6, 1e6)]
Power = Annotated[float, between(-10, 10)]
Few = Annotated[int, between(1, 1000)]
Tokens = Annotated[int, between(0, 1_000_000)]
Probability = Annotated[float, Bound("above 0 and at most 1", lambda value: 0 < value <= 1)]
Seed = Annotated[int, Bound("at least 0 and below 2⁶³", lambda value: 0 <= value < 1 << 63)]


@dataclass(frozen=True)
class Decoding(Settings):
    """How to write."""

    beam: Few = 1  # hypotheses kept per sentence; 1 is greedy
    sample: bool = False  # draw from the distribution instead of taking the likeliest
    temperature: Temperature = 1.0  # below 1 sharpens the distribution that is drawn from, above 1 flattens it
    top_k: Count = 0  # draw among the k likeliest tokens only; 0: all
    top_p: Probability = 1.0  # draw among the likeliest tokens that together hold this much probability
    n_best: Few = 1  # outputs per sentence
    length_penalty: Power = 1.0  # hypotheses compete by log-probability / length to this power
    min_length: Tokens = 0  # tokens before <eos> may come
    max_length: Tokens = 0  # tokens, <eos> included; 0: twice the source and ten, or 256 of a text
    no_repeat: Count = 0  # never write the same n tokens twice; 0: no limit
    seed: Seed = 0  # of the noise that samples; it depends on the line and the step only
    longest_source: Annotated[int, between(1, 1_000_000)] = 1000  # tokens of a line that are read; a longer line is cut
    batch_tokens: Positive = 4096  # tokens of all hypotheses that are read together, padding included
    replace_unknown: bool = False  # write the source word that an <unk> looks at most, in its place

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except ValueError as problem:
            raise UserError(str(problem)) from None
        if self.sample and self.beam > 1:
            raise UserError("sample and beam exclude each other: use n_best for several samples.")
        if not self.sample and self.n_best > self.beam:
            raise UserError(f"n_best = {self.n_best} needs at least as wide a beam (it is {self.beam}), or sample.")

    @property
    def width(self) -> int:
        return self.n_best if self.sample else self.beam


@dataclass(frozen=True)
class Prediction:
    text: str
    score: float  # log-probability of the whole output
    tokens: tuple[str, ...]
    alternatives: tuple[Prediction, ...] = ()  # the rest of the n-best list
    cut: bool = False  # the line was longer than the model or longest_source allows: only its beginning was read
    probabilities: dict[str, float] | None = None  # of every label, where there are labels

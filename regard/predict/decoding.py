"""How to write: the settings of beam search and sampling; and what comes out."""

from __future__ import annotations

from dataclasses import dataclass

from regard.config import NOT_NEGATIVE, Bound, UserError, between, out_of_bounds

BOUNDS = {
    "beam": between(1, 1000),
    "temperature": between(1e-6, 1e6),
    "top_k": NOT_NEGATIVE,
    "top_p": Bound("above 0 and at most 1", lambda value: 0 < value <= 1),
    "n_best": between(1, 1000),
    "length_penalty": between(-10, 10),
    "min_length": between(0, 1_000_000),
    "max_length": between(0, 1_000_000),
    "no_repeat": NOT_NEGATIVE,
    "longest_source": between(1, 1_000_000),
    "seed": Bound("at least 0 and below 2⁶³", lambda value: 0 <= value < 1 << 63),
}


@dataclass(frozen=True)
class Decoding:
    """How to write."""

    beam: int = 1  # hypotheses kept per sentence; 1 is greedy
    sample: bool = False  # draw from the distribution instead of taking the likeliest
    temperature: float = 1.0  # below 1 sharpens the distribution that is drawn from, above 1 flattens it
    top_k: int = 0  # draw among the k likeliest tokens only; 0: all
    top_p: float = 1.0  # draw among the likeliest tokens that together hold this much probability
    n_best: int = 1  # outputs per sentence
    length_penalty: float = 1.0  # hypotheses compete by log-probability / length to this power
    min_length: int = 0  # tokens before <eos> may come
    max_length: int = 0  # tokens, <eos> included; 0: twice the source and ten, or 256 of a text
    no_repeat: int = 0  # never write the same n tokens twice; 0: no limit
    seed: int = 0  # of the noise that samples; it depends on the line and the step only
    longest_source: int = 1000  # tokens of a line that are read; a longer line is cut
    replace_unknown: bool = False  # write the source word that an <unk> looks at most, in its place

    def __post_init__(self) -> None:
        for name, bound in BOUNDS.items():
            for _, value, allowed in out_of_bounds(self, bound, name):
                raise UserError(f"{name} = {value} is not possible: it must be {allowed}.")
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

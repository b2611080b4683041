"""The settings of greedy decoding, beam search and sampling, and the Prediction they give."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, NamedTuple

from regard.config import Bound, Count, Positive, Settings, UserError, between

Temperature = Annotated[float, between(1e-6, 1e6)]
Power = Annotated[float, between(-10, 10)]
Few = Annotated[int, between(1, 1000)]
Tokens = Annotated[int, between(0, 1_000_000)]
Probability = Annotated[float, Bound("above 0 and at most 1", lambda value: 0 < value <= 1)]
Seed = Annotated[int, Bound("at least 0 and below 2⁶³", lambda value: 0 <= value < 1 << 63)]


@dataclass(frozen=True)
class Decoding(Settings):
    """The settings of decoding."""

    beam: Few = 1  # beam size of beam search: hypotheses kept per sentence; 1: greedy decoding
    sample: bool = False  # sample from the distribution instead of searching for the most probable output
    temperature: Temperature = 1.0  # temperature of sampling: below 1 sharpens the distribution, above 1 flattens it
    top_k: Count = 0  # top-k sampling: sample from the k most probable tokens only; 0: from all
    top_p: Probability = 1.0  # top-p (nucleus) sampling: sample from the fewest tokens with this much probability
    n_best: Few = 1  # size of the n-best list: outputs per sentence
    length_penalty: Power = 1.0  # length penalty: hypotheses are ranked by log-probability / length to this power
    min_length: Tokens = 0  # fewest tokens before <eos>
    max_length: Tokens = 0  # most tokens, <eos> included; 0: twice the source plus ten, or 256 for a language model
    no_repeat: Count = 0  # never write the same n tokens twice; 0: no limit
    seed: Seed = 0  # random seed of sampling; the sample of a line does not depend on the other lines
    longest_source: Annotated[int, between(1, 1_000_000)] = 1000  # most tokens of an input line; a longer line is cut
    batch_tokens: Positive = 4096  # batch size: tokens of all hypotheses, padding included
    blank: str = (
        "[MASK]"  # what marks a blank in a text, for a model that fills blanks; elsewhere it is a text like others
    )
    shortlist: Count = (  # translation: vocabulary shortlist: only the k target types most associated with each source
        0  # type of the batch compete, and the k most frequent; scores are renormalised over them; 0: all types
    )
    lm_weight: Annotated[float, between(0, 10)] = 0.5  # speech, with a language model: β of shallow fusion
    length_reward: Annotated[float, between(-10, 10)] = 0.0  # speech: γ, added to the score of an output for each token
    ctc_weight: Annotated[float, between(0, 1)] = (
        0.3  # speech, by attention and CTC: share of CTC in the ranking; 1: CTC
    )
    replace_unknown: bool = False  # replace each <unk> by the source word with the highest attention weight

    def __post_init__(self) -> None:
        try:
            super().__post_init__()
        except ValueError as problem:
            raise UserError(str(problem)) from None
        if self.sample and self.beam > 1:
            raise UserError("sample and beam exclude each other: use n_best for several samples.")
        if not self.sample and self.n_best > self.beam:
            raise UserError(f"n_best = {self.n_best} is above beam = {self.beam}: raise beam, or turn on sampling.")

    @property
    def width(self) -> int:
        return self.n_best if self.sample else self.beam


class Timed(NamedTuple):
    """A word, and where it is in a recording, in seconds."""

    word: str
    start: float
    end: float


@dataclass(frozen=True)
class Prediction:
    text: str
    score: float  # log-probability of the whole output
    tokens: tuple[str, ...]
    alternatives: tuple[Prediction, ...] = ()  # the rest of the n-best list
    cut: bool = False  # whether the line was longer than the model or longest_source allows, and was cut
    probabilities: dict[str, float] | None = None  # of every label, for classification, or of every choice
    times: tuple[Timed, ...] | None = None  # of each word, for a recording
    place: tuple[int, int] | None = None  # where an answer starts and ends in its text, in characters

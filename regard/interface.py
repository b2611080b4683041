"""What the parts promise one another: Batch in, State along the way, Progress out.

Axes, one name each everywhere:
batch   examples                  rows    hypotheses: batch × width, those of an example side by side
source  positions in the source   target  positions in the target      time   positions, either side
width   hypotheses per example    heads, dim, hidden, vocab
Masks say True where one may look. Batch comes first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, runtime_checkable

import torch
from numpy.typing import NDArray
from torch import Tensor

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")

Tree = Any  # tensors inside tuples, dicts and dataclasses, as deep as a model likes


class UserError(Exception):
    """Something the person at the keyboard can mend: one sentence, shown without a traceback."""


def map_tensors(function: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """The same tree with `function` applied to every tensor; everything else is kept as it is."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, tuple):
        mapped = (map_tensors(function, branch) for branch in tree)
        return type(tree)(*mapped) if type(tree) is not tuple else tuple(mapped)
    if isinstance(tree, dict):
        return {name: map_tensors(function, branch) for name, branch in tree.items()}
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = {f.name: map_tensors(function, tree.__dict__[f.name]) for f in dataclasses.fields(tree)}
        return dataclasses.replace(tree, **fields)
    return tree


@dataclass(frozen=True)
class Batch:
    """Examples side by side, padded at the end."""

    source: Tensor  # (batch, source): each row ends in <eos>, then <pad>; (batch, 0) where only a text is read
    target: Tensor | None = None  # (batch, target): <bos> … <eos>, then <pad>; of a long text, a window
    state: Tree = None  # what was carried here from the window before; None: the text begins here
    spelling: Tensor | None = None  # (batch, source, bytes): 1 + the bytes of each word, 0 beyond its end

    @property
    def source_mask(self) -> Tensor:
        return self.source != PAD  # (batch, source)

    @property
    def size(self) -> int:
        return self.source.shape[0]

    @classmethod
    def of_text(cls, tokens: Tensor, state: Tree = None) -> Batch:
        """Texts alone, (batch, time): what a language model reads."""
        return cls(tokens.new_empty(tokens.shape[0], 0), tokens, state)

    def to(self, device: torch.device | str) -> Batch:
        moved: Batch = map_tensors(lambda tensor: tensor.to(device), self)
        return moved


def rows_of(examples: Tensor, width: int) -> Tensor:
    """The rows of all hypotheses of these examples."""
    return (examples[:, None] * width + torch.arange(width, device=examples.device)).flatten()


@dataclass(frozen=True)
class State:
    """Where generation stands, as a value.

    `memory` has one row per example and is never reordered; `carry` has one row per hypothesis. A model may write its
    next step into buffers it preallocated in `carry`, so stepping uses a state up; `pick` makes an independent copy.
    """

    memory: Tree
    carry: Tree
    width: int = 1

    def pick(self, parents: Tensor) -> State:
        """Row r goes on from what was row parents[r]."""
        carry = map_tensors(lambda tensor: tensor.index_select(0, parents), self.carry)
        return dataclasses.replace(self, carry=carry)

    def widen(self, width: int, examples: Tensor) -> State:
        """The one hypothesis of each example (0, 1, …) becomes `width` equal ones."""
        return dataclasses.replace(self.pick(examples.repeat_interleave(width)), width=width)

    def keep(self, examples: Tensor) -> State:
        """Only these examples, with all of their hypotheses."""
        rows = rows_of(examples, self.width)
        memory = map_tensors(lambda tensor: tensor.index_select(0, examples), self.memory)
        return dataclasses.replace(self.pick(rows), memory=memory)


class Texts(Protocol):
    """Many sequences of tokens in one flat array; sequence i is tokens[offsets[i] : offsets[i + 1]]."""

    tokens: NDArray[Any]
    offsets: NDArray[Any]


class Loss(NamedTuple):
    """Sums over the tokens of a batch; `objective` is what training lowers, `nll` what perplexity is made of."""

    objective: Tensor
    nll: Tensor
    tokens: int
    state: Tree = None  # what the next window of the same texts may go on from


@runtime_checkable
class Learns(Protocol):
    """Can be trained by gradient descent."""

    def loss(self, batch: Batch) -> Loss: ...


@runtime_checkable
class Carries(Protocol):
    """Can go on reading where it stopped: a batch's `state` is what its loss, or `begin` at first, gave."""

    def begin(self, rows: int) -> Tree: ...


@runtime_checkable
class Fits(Protocol):
    """Is made from a text in one go, by counting."""

    def fit(self, texts: Texts) -> None: ...

    def restore(self, tensors: dict[str, Tensor]) -> None: ...


@runtime_checkable
class Scores(Protocol):
    """Knows how likely a text is: ln p of target[:, 1:], (batch, target - 1), 0 at <pad>; and the state after it."""

    def log_probs(self, batch: Batch) -> tuple[Tensor, Tree]: ...


@runtime_checkable
class Generates(Protocol):
    """Can write, one token at a time. `batch.target`, where there is one, is what has been written already: `start`
    reads all but the last token of each row, which `step` is given first."""

    def start(self, batch: Batch) -> State: ...

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]: ...


@runtime_checkable
class Classifies(Protocol):
    """Names a sentence: ln P(label), (batch, labels), in the order of the label vocabulary."""

    def classify(self, batch: Batch) -> Tensor: ...


@runtime_checkable
class Tags(Protocol):
    """Names each word: ids of tags, (batch, source), <pad> where there is no word."""

    def tag(self, batch: Batch) -> Tensor: ...


@runtime_checkable
class Bounded(Protocol):
    """Has room for so many tokens on either side, padding and <eos> included; None: for any number."""

    longest: int | None


@runtime_checkable
class Windowed(Protocol):
    """Reads a long text in windows of so many tokens, and sees nothing before them; None: reads any number."""

    context: int | None


class Sample(NamedTuple):
    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Progress:
    """What a training loop has to say after a step; callers print, save and plot it."""

    step: int
    epoch: int
    loss: float  # objective per token, averaged since the last report; of what was counted, in validation
    perplexity: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    seconds: float  # of training so far, earlier attempts included
    tokens: int  # of targets, learnt from so far
    done: float  # the share of the budget that is used, in [0, 1]
    valid: dict[str, float] | None = None  # after a validation: its metrics
    samples: tuple[Sample, ...] = ()  # after a validation: a few outputs
    improved: bool = False
    finished: str | None = None  # why training ended, on the last report

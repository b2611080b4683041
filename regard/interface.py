"""What the parts promise one another: Batch in, State along the way, Progress out.

Axes, one name each everywhere:
batch   examples                  rows    hypotheses: batch × width, those of an example side by side
source  positions in the source   target  positions in the target      time   positions, either side
width   hypotheses per example    heads, dim, hidden, vocab
Masks say True where one may look. Batch comes first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.config import UserError as UserError

PAD, BOS, EOS, UNK = range(4)
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")

Tree = Any  # tensors inside tuples, lists, dicts and dataclasses, as deep as a model likes


def map_tensors(function: Callable[[Tensor], Tensor], tree: Tree) -> Tree:
    """The same tree with `function` applied to every tensor; everything else is kept as it is."""
    if isinstance(tree, Tensor):
        return function(tree)
    if isinstance(tree, tuple):
        mapped = (map_tensors(function, branch) for branch in tree)
        return type(tree)(*mapped) if type(tree) is not tuple else tuple(mapped)
    if isinstance(tree, list):
        return [map_tensors(function, branch) for branch in tree]
    if isinstance(tree, dict):
        return {name: map_tensors(function, branch) for name, branch in tree.items()}
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = {f.name: map_tensors(function, tree.__dict__[f.name]) for f in dataclasses.fields(tree)}
        return dataclasses.replace(tree, **fields)
    return tree


class Padded(NamedTuple):
    """One side of a batch, whatever it is made of, padded at the end."""

    values: Tensor  # (batch, time) ids, or (batch, time, width): rows of a picture, frames of sound
    mask: Tensor  # (batch, time), True where there is something

    @classmethod
    def of_ids(cls, ids: Tensor) -> Padded:
        """The one place where a mask is read off <pad>: (batch, time)."""
        return cls(ids, ids != PAD)

    @property
    def lengths(self) -> Tensor:
        return self.mask.sum(1)  # (batch,)

    def before(self) -> Padded:
        """All but the last column: what a decoder reads."""
        return Padded(self.values[:, :-1], self.mask[:, :-1])

    def after(self) -> Padded:
        """All but the first column: what a decoder is to predict."""
        return Padded(self.values[:, 1:], self.mask[:, 1:])

    def row(self, row: int) -> Padded:
        """One example, without its padding."""
        end = int(self.lengths[row])
        return Padded(self.values[row : row + 1, :end], self.mask[row : row + 1, :end])

    def but_end(self) -> Padded:
        """Without the last real place of each row, the <eos> of a source: True where there is a word."""
        return Padded(self.values, self.mask & nn.functional.pad(self.mask[:, 1:], (0, 1)))


@dataclass(frozen=True)
class Batch:
    """Examples side by side."""

    source: Padded | None = None  # of text: each row ends in <eos>; None where only a target is read
    target: Padded | None = None  # a text: <bos> … <eos>, or a window of a long one; a label, (batch, 1); tags
    beside: Mapping[str, Tensor] = field(default_factory=dict)  # (batch, source, …): spelling, by name
    state: Tree = None  # what was carried here from the window before; None: the text begins here

    @classmethod
    def of_text(cls, tokens: Tensor, state: Tree = None) -> Batch:
        """Texts alone, (batch, time): what a language model reads."""
        return cls(target=Padded.of_ids(tokens), state=state)

    @property
    def first(self) -> Padded:
        """The source, or where there is none the target."""
        side = self.target if self.source is None else self.source
        assert side is not None
        return side

    @property
    def size(self) -> int:
        return self.first.mask.shape[0]

    @property
    def device(self) -> torch.device:
        return self.first.mask.device

    def rows(self) -> Iterator[Batch]:
        """Each example alone, without its padding."""
        for row in range(self.size):
            source, target = (None if side is None else side.row(row) for side in (self.source, self.target))
            end = self.first.lengths[row]
            beside = {name: each[row : row + 1, :end] for name, each in self.beside.items()}
            yield dataclasses.replace(self, source=source, target=target, beside=beside, state=None)

    def to(self, device: torch.device | str) -> Batch:
        moved: Batch = map_tensors(lambda tensor: tensor.to(device), self)
        return moved


# --- what a side is made of: a model is built from these ----------------------------------------------------------


@dataclass(frozen=True)
class Numbered:
    """What stands for something else: a token, a name."""

    size: int  # different ones


class Ids(Numbered):
    """A sequence of ids, as many as there are tokens."""


class Label(Numbered):
    """One of so many names, for the whole example."""


class TagIds(Numbered):
    """One of so many names, for each place of the source."""


@dataclass(frozen=True)
class Picture:
    """Pixels from 0 to 1: `height` rows, (height, width · channels)."""

    height: int
    width: int
    channels: int


Shape = Numbered | Picture


@dataclass(frozen=True)
class Shapes:
    """What the sides of an example are made of."""

    source: Shape | None  # None where only a target is read
    target: Shape
    joint: bool = False  # both sides share one vocabulary


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
class CountsNGrams(Protocol):
    """Can hand out its n-grams, order by order, for other programs."""

    vocab: int
    order: int

    def tables(self) -> list[Any]: ...


@runtime_checkable
class Paced(Protocol):
    """A module whose own parameters learn at so many times the learning rate."""

    pace: float


@runtime_checkable
class Scores(Protocol):
    """Knows how likely a target is: ln p of target[:, 1:], (batch, target - 1), 0 at padding; and the state after."""

    def log_probs(self, batch: Batch) -> tuple[Tensor, Tree]: ...


@runtime_checkable
class Generates(Protocol):
    """Can write, one token at a time. `batch.target`, where there is one, is what has been written already: `start`
    reads all but the last token of each row, which `step` is given first."""

    def start(self, batch: Batch) -> State: ...

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]: ...


@runtime_checkable
class Encodes(Protocol):
    """Turns what it reads into states: (batch, time, dim), and which places are real."""

    def encode(self, batch: Batch) -> Padded: ...


@runtime_checkable
class Classifies(Protocol):
    """Names a sentence: ln P(label), (batch, labels), in the order of the label vocabulary."""

    def classify(self, batch: Batch) -> Tensor: ...


@runtime_checkable
class Weighs(Protocol):
    """Can weigh its labels' losses (class weights), by how often each occurs."""

    def weigh(self, counts: NDArray[Any]) -> None: ...


@runtime_checkable
class Tags(Protocol):
    """Names each word: numbers of tags, (batch, source); what stands where there is no word means nothing."""

    def tag(self, batch: Batch) -> Tensor: ...


@runtime_checkable
class Bounded(Protocol):
    """Has room for so many tokens on either side, padding and <eos> included; None: for any number."""

    longest: int | None


@runtime_checkable
class Windowed(Protocol):
    """Reads a long text in windows of so many tokens, and sees nothing before them."""

    context: int


# --- what can be seen in a model ---------------------------------------------------------------------------------

SideName = Literal["source", "target"]


class SeenAttention(NamedTuple):
    """An attention of a model: which side looks at which."""

    part: nn.Module  # what `watch` records
    kind: Literal["self", "cross", "pooling"]
    layer: int  # from 1, among those of its kind and side
    queries: SideName | None  # None: one learnt query, not a side
    keys: SideName
    extra: int = 0  # keys that stand before the side's own, such as a class token


class SeenRecurrence(NamedTuple):
    """A recurrent layer of a model: what it reads, in which direction."""

    part: nn.Module  # what `trace` records
    layer: int  # from 1, among those of its side and direction
    side: SideName
    backwards: bool  # it reads the side's last token first
    two_ways: bool = False  # another layer reads the same the other way round


@dataclass(frozen=True)
class Inside:
    """What a model tells of itself."""

    attentions: tuple[SeenAttention, ...] = ()
    recurrences: tuple[SeenRecurrence, ...] = ()
    reader: nn.Module | None = None  # turns what is read (the source, where there is one) into vectors
    vectors: nn.Module | None = None  # the table among them: an Embedding

    def of_kind(self, kind: str) -> list[SeenAttention]:
        return [seen for seen in self.attentions if seen.kind == kind]


@runtime_checkable
class Inspects(Protocol):
    """Says what can be seen in it; `look` and `compare` ask for nothing else."""

    def inspect(self) -> Inside: ...


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

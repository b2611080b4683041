"""The types and protocols that all modules share: a Batch goes in, a State is passed along, Progress comes out.

Axes, one name each everywhere:
batch   examples                  rows    hypotheses: batch × width, those of an example side by side
source  positions in the source   target  positions in the target      time   positions, either side
width   hypotheses per example    heads, dim, hidden, vocab
A mask is True where a position is real or may be attended to. The batch axis comes first.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple, Protocol, runtime_checkable

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.config import UserError as UserError

PAD, BOS, EOS, UNK = range(4)
BLANK = PAD  # of CTC: no token is emitted here
SPECIALS = ("<pad>", "<bos>", "<eos>", "<unk>")

Tree = Any  # tensors inside tuples, lists, dicts and dataclasses, as deep as a model likes


class Rows:
    """A part of a tree that selects its rows itself, and puts other rows after them."""

    def pick(self, rows: Tensor) -> Any:
        raise NotImplementedError

    def join(self, other: Any) -> Any:
        raise NotImplementedError

    def tensors(self) -> dict[str, Tensor]:
        """Return what it holds as tensors by name, without room for more: their shapes say the rest."""
        raise NotImplementedError

    def holding(self, tensors: dict[str, Tensor]) -> Any:
        """Return a part that holds these tensors and writes nothing in place."""
        raise NotImplementedError


def map_tensors(function: Callable[[Any], Any], tree: Tree, leaves: tuple[type, ...] = (Tensor,)) -> Tree:
    """Apply `function` to every tensor, or other leaf, of a tree; everything else is kept as it is."""
    if isinstance(tree, leaves):
        return function(tree)
    if isinstance(tree, tuple):
        mapped = (map_tensors(function, branch, leaves) for branch in tree)
        return type(tree)(*mapped) if type(tree) is not tuple else tuple(mapped)
    if isinstance(tree, list):
        return [map_tensors(function, branch, leaves) for branch in tree]
    if isinstance(tree, dict):
        return {name: map_tensors(function, branch, leaves) for name, branch in tree.items()}
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        fields = {f.name: map_tensors(function, tree.__dict__[f.name], leaves) for f in dataclasses.fields(tree)}
        return dataclasses.replace(tree, **fields)
    return tree


def picked(tree: Tree, rows: Tensor) -> Tree:
    """Select rows of every tensor of a tree."""

    def pick(leaf: Tensor | Rows) -> Any:
        return leaf.pick(rows) if isinstance(leaf, Rows) else leaf.index_select(0, rows)

    return map_tensors(pick, tree, (Tensor, Rows))


def joined(tree: Tree, other: Tree) -> Tree:
    """Put the rows of another tree of the same form after those of this one; the shorter of two axes is padded with 0,
    which in a mask is False."""
    if isinstance(tree, Rows):
        return tree.join(other)
    if isinstance(tree, Tensor):
        sizes = [max(pair) for pair in zip(tree.shape[1:], other.shape[1:], strict=True)]
        return torch.cat([padded_to(tree, sizes), padded_to(other, sizes)])
    if isinstance(tree, tuple):
        branches = (joined(*pair) for pair in zip(tree, other, strict=True))
        return type(tree)(*branches) if type(tree) is not tuple else tuple(branches)
    if isinstance(tree, list):
        return [joined(*pair) for pair in zip(tree, other, strict=True)]
    if isinstance(tree, dict):
        return {name: joined(branch, other[name]) for name, branch in tree.items()}
    if dataclasses.is_dataclass(tree) and not isinstance(tree, type):
        names = [each.name for each in dataclasses.fields(tree)]
        return dataclasses.replace(tree, **{name: joined(tree.__dict__[name], other.__dict__[name]) for name in names})
    assert tree == other
    return tree


def padded_to(tensor: Tensor, sizes: Sequence[int]) -> Tensor:
    """Pad the axes after the first with 0 to these sizes."""
    more = [size - have for size, have in zip(sizes, tensor.shape[1:], strict=True)]
    return nn.functional.pad(tensor, [end for each in reversed(more) for end in (0, each)]) if any(more) else tensor


class Padded(NamedTuple):
    """One side of a batch, such as token ids or pixels, padded at the end."""

    values: Tensor  # (batch, time) ids, or (batch, time, width): rows of a picture, frames of sound
    mask: Tensor  # (batch, time), True where there is something

    @classmethod
    def of_ids(cls, ids: Tensor) -> Padded:
        """Build the mask from the <pad> ids, (batch, time); no other code does."""
        return cls(ids, ids != PAD)

    @property
    def lengths(self) -> Tensor:
        return self.mask.sum(1)  # (batch,)

    def before(self) -> Padded:
        """Return all but the last column: what a decoder reads."""
        return Padded(self.values[:, :-1], self.mask[:, :-1])

    def after(self) -> Padded:
        """Return all but the first column: what a decoder predicts."""
        return Padded(self.values[:, 1:], self.mask[:, 1:])

    def led_by(self, token: int) -> Padded:
        """Put this token before each row."""
        pad = nn.functional.pad
        return Padded(pad(self.values, (1, 0), value=token), pad(self.mask, (1, 0), value=True))

    def row(self, row: int) -> Padded:
        """Return one example, without its padding."""
        end = int(self.lengths[row])
        return Padded(self.values[row : row + 1, :end], self.mask[row : row + 1, :end])

    def but_end(self) -> Padded:
        """Mask the last real position of each row too, the <eos> of a source: True is left where there is a word."""
        return Padded(self.values, self.mask & nn.functional.pad(self.mask[:, 1:], (0, 1)))


@dataclass(frozen=True)
class Batch:
    """Examples side by side."""

    source: Padded | None = None  # rows of text end in <eos>; None where only a target is read
    target: Padded | None = None  # a text: <bos> … <eos>, or a window of a long one; a label, (batch, 1); tags
    beside: Mapping[str, Tensor] = field(default_factory=dict)  # (batch, source, …): spelling, by name
    state: Tree = None  # the state carried over from the window before; None: the text begins here

    @classmethod
    def of_text(cls, tokens: Tensor, state: Tree = None) -> Batch:
        """Make a batch of texts alone, (batch, time), as a language model reads them."""
        return cls(target=Padded.of_ids(tokens), state=state)

    @property
    def first(self) -> Padded:
        """Return the source, or the target where there is no source."""
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
        """Yield each example as a batch of its own, without its padding."""
        for row in range(self.size):
            source, target = (None if side is None else side.row(row) for side in (self.source, self.target))
            end = self.first.lengths[row]
            beside = {name: each[row : row + 1, :end] for name, each in self.beside.items()}
            yield dataclasses.replace(self, source=source, target=target, beside=beside, state=None)

    def to(self, device: torch.device | str) -> Batch:
        moved: Batch = map_tensors(lambda tensor: tensor.to(device), self)
        return moved


# --- the contents of a side: a model is built from these -----------------------------------------------------------


@dataclass(frozen=True)
class Numbered:
    """An id that stands for a token or a label."""

    size: int  # how many different ids there are


class Ids(Numbered):
    """A sequence of token ids."""


class Label(Numbered):
    """One label for the whole example."""


class TagIds(Numbered):
    """One tag for each position of the source."""


@dataclass(frozen=True)
class Picture:
    """Pixels from 0 to 1: `height` rows, (height, width · channels)."""

    height: int
    width: int
    channels: int


@dataclass(frozen=True)
class Frames:
    """A recording, cut into overlapping windows of equal length: the energies of `width` frequency bands each."""

    width: int


@dataclass(frozen=True)
class Scalar:
    """One number for the whole example."""


@dataclass(frozen=True)
class Choice:
    """The number of the right one among the choices of an example."""


@dataclass(frozen=True)
class Span:
    """Where an answer begins and ends in the source."""


Shape = Numbered | Picture | Frames | Scalar | Choice | Span


@dataclass(frozen=True)
class Shapes:
    """The shapes of both sides of an example."""

    source: Shape | None  # None where only a target is read
    target: Shape
    joint: bool = False  # both sides share one vocabulary


def rows_of(examples: Tensor, width: int) -> Tensor:
    """Return the row numbers of all hypotheses of these examples."""
    return (examples[:, None] * width + torch.arange(width, device=examples.device)).flatten()


@dataclass(frozen=True)
class State:
    """The state of decoding, as a value.

    `memory` has one row per example and is never reordered; `carry` has one row per hypothesis. A model may write its
    next step into buffers that it preallocated in `carry`, so a state can be stepped once; `pick` makes a copy.
    """

    memory: Tree
    carry: Tree
    width: int = 1

    def pick(self, parents: Tensor) -> State:
        """Reorder the hypotheses: row r continues what was row parents[r]."""
        return dataclasses.replace(self, carry=picked(self.carry, parents))

    def widen(self, width: int, examples: Tensor) -> State:
        """Repeat the one hypothesis of each example (0, 1, …) `width` times."""
        return dataclasses.replace(self.pick(examples.repeat_interleave(width)), width=width)

    def keep(self, examples: Tensor) -> State:
        """Keep only these examples, with all of their hypotheses."""
        rows = rows_of(examples, self.width)
        return dataclasses.replace(self.pick(rows), memory=picked(self.memory, examples))

    def join(self, other: State) -> State:
        """Put the examples of another state, of the same width, after these: they continue together."""
        return State(joined(self.memory, other.memory), joined(self.carry, other.carry), self.width)


class Texts(Protocol):
    """Many sequences of tokens in one flat array; sequence i is tokens[offsets[i] : offsets[i + 1]]."""

    tokens: NDArray[Any]
    offsets: NDArray[Any]


class Loss(NamedTuple):
    """Sums over the tokens of a batch: training minimises `objective`; perplexity is computed from `nll`."""

    objective: Tensor
    nll: Tensor
    tokens: int
    state: Tree = None  # the state from which the next window of the same texts may continue


@runtime_checkable
class Learns(Protocol):
    """Can be trained by gradient descent."""

    def loss(self, batch: Batch) -> Loss: ...


@runtime_checkable
class Carries(Protocol):
    """Carries its hidden state from window to window: a batch's `state` is from `begin`, then from the loss before."""

    def begin(self, rows: int) -> Tree: ...


@runtime_checkable
class Fits(Protocol):
    """Is fitted to a text in one step, by counting."""

    def fit(self, texts: Texts) -> None: ...

    def restore(self, tensors: dict[str, Tensor]) -> None: ...


@runtime_checkable
class CountsNGrams(Protocol):
    """Can export its n-grams, order by order, for other programs."""

    vocab: int
    order: int

    def tables(self) -> list[Any]: ...


@runtime_checkable
class Paced(Protocol):
    """A module whose own parameters are trained at `pace` times the learning rate."""

    pace: float


@runtime_checkable
class Gathered(Protocol):
    """If `gathered`, a module whose weights only `forward` reads: where several processes share them out, they are put
    together when its forward pass begins and given up when it ends."""

    gathered: bool


@runtime_checkable
class Scores(Protocol):
    """Scores a target: ln p of target[:, 1:], (batch, target - 1), 0 at padding; and the state after it."""

    def log_probs(self, batch: Batch) -> tuple[Tensor, Tree]: ...


@runtime_checkable
class Generates(Protocol):
    """Generates text, one token at a time. `batch.target`, if present, is the text so far: `start` reads all but the
    last token of each row, and `step` is given that token first."""

    def start(self, batch: Batch) -> State: ...

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]: ...


@runtime_checkable
class Emits(Protocol):
    """Emits a token or BLANK at each step over the source: ln p, (batch, steps, vocab), with the mask of real steps. A
    text is what is left when repeats are merged and blanks removed (CTC)."""

    def emit(self, batch: Batch) -> Padded: ...


@runtime_checkable
class Fuses(Protocol):
    """Generates text by scores that are added up as they are: `step` returns them in the place of logits."""

    fused: bool


@runtime_checkable
class Narrows(Protocol):
    """Generates text of fewer types: `narrowed(ids)` is the same model with logits of these types only: (rows, ids)."""

    def narrowed(self, ids: Tensor) -> Generates: ...


@runtime_checkable
class Encodes(Protocol):
    """Encodes its input as hidden states, (batch, time, dim), with the mask of real positions."""

    def encode(self, batch: Batch) -> Padded: ...


@runtime_checkable
class Classifies(Protocol):
    """Classifies: ln P(label), (batch, labels), in the order of the label vocabulary."""

    def classify(self, batch: Batch) -> Tensor: ...


@runtime_checkable
class Weighs(Protocol):
    """Supports class weights: weighs each label's loss by how often the label occurs."""

    def weigh(self, counts: NDArray[Any]) -> None: ...


@runtime_checkable
class Tags(Protocol):
    """Tags each word: tag ids, (batch, source); values at positions without a word have no meaning."""

    def tag(self, batch: Batch) -> Tensor: ...


@runtime_checkable
class Estimates(Protocol):
    """Estimates a number: (batch,)."""

    def estimate(self, batch: Batch) -> Tensor: ...


@runtime_checkable
class Chooses(Protocol):
    """Chooses among several answers: ln P(choice), (batch, choices), -inf where an example has fewer."""

    def choose(self, batch: Batch) -> Tensor: ...


@runtime_checkable
class Points(Protocol):
    """Points at an answer in the source: ln P of its first and of its last token, (batch, 2, source)."""

    def point(self, batch: Batch) -> Tensor: ...


@runtime_checkable
class Fills(Protocol):
    """Fills in blanks: the logits of the hidden tokens, (hidden, vocab), where batch.target's mask is True."""

    def fill(self, batch: Batch) -> Tensor: ...


@runtime_checkable
class Bounded(Protocol):
    """Has a maximum length in tokens on either side, padding and <eos> included; None: no limit."""

    longest: int | None


@runtime_checkable
class Windowed(Protocol):
    """Has a limited context: it reads a long text in windows of `context` tokens and sees nothing before them."""

    context: int


# --- the inside of a model ---------------------------------------------------------------------------------------

SideName = Literal["source", "target"]


class SeenAttention(NamedTuple):
    """An attention of a model: which side attends to which."""

    part: nn.Module  # the module that `watch` records
    kind: Literal["self", "cross", "pooling"]
    layer: int  # from 1, among those of its kind and side
    queries: SideName | None  # None: one learned query, not a side
    keys: SideName
    extra: int = 0  # keys before the side's own, such as a class token
    lead: int = 0  # queries before the side's own


class SeenRecurrence(NamedTuple):
    """A recurrent layer of a model: what it reads, in which direction."""

    part: nn.Module  # the module that `trace` records
    layer: int  # from 1, among those of its side and direction
    side: SideName
    backwards: bool  # whether it reads from right to left
    two_ways: bool = False  # whether other layers read in the other direction


@dataclass(frozen=True)
class Inside:
    """The parts of a model that `look` can show."""

    attentions: tuple[SeenAttention, ...] = ()
    recurrences: tuple[SeenRecurrence, ...] = ()
    reader: nn.Module | None = None  # turns its input (the source, where there is one) into vectors
    vectors: nn.Module | None = None  # the Embedding inside the reader
    stride: int = 1  # source positions per state of the encoder, where neighbours are joined (subsampling)

    def of_kind(self, kind: str) -> list[SeenAttention]:
        return [seen for seen in self.attentions if seen.kind == kind]


@runtime_checkable
class Inspects(Protocol):
    """Describes its attentions, recurrent layers and embedding; `look` and `compare` use nothing else."""

    def inspect(self) -> Inside: ...


class Sample(NamedTuple):
    source: str
    reference: str
    output: str


@dataclass(frozen=True)
class Progress:
    """The report of a training loop after a step; callers print, save and plot it."""

    step: int
    epoch: int
    loss: float  # objective per token, averaged since the last report
    perplexity: float
    learning_rate: float
    gradient_norm: float
    tokens_per_second: float
    seconds: float  # training time so far, earlier sessions included
    tokens: int  # target tokens trained on so far
    done: float  # the share of the budget that is used, in [0, 1]
    valid: dict[str, float] | None = None  # after a validation: its metrics
    samples: tuple[Sample, ...] = ()  # after a validation: a few outputs
    improved: bool = False
    finished: str | None = None  # why training ended, on the last report

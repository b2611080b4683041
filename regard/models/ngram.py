"""ngram: n-gram counts with interpolated Kneser-Ney smoothing.

P(w | h) = (a(hw) − D(a(hw))) / Σᵥ a(hv) + γ(h) P(w | h′),   γ(h) = Σᵥ D(a(hv)) / Σᵥ a(hv),   P(w | no words) = 1/V
h are the n − 1 words before w, and h′ is h without the first of them. For the longest n-grams a counts how often they
occur; for shorter ones, how many different words stand before them (Kneser, Ney 1995): "Francisco" is frequent, but
follows little else than "San". No word precedes <bos>, so n-grams that begin with it keep their count. D is one
discount (Kneser, Ney 1995), or three, for counts of 1, 2 and more (Chen, Goodman 1998, section 4.1.6: "modified").
V are the types that can be predicted: not <pad>, not <bos>.

The saved model has what scoring needs, as an ARPA file: ln P(w | h) of the n-grams seen, and ln γ(h) of the contexts
seen; ln P(w | h) = ln γ(h) + ln P(w | h′) for all others, with γ = 1 if h was never seen.

An n-gram has a number: its place among those of its length. Its key is the number of its first n − 1 words × vocab +
its last word, and the keys are sorted, so a lookup is a binary search and the continuations of a context are a slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal, NamedTuple, cast

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.config import Depth, Settings
from regard.interface import BOS, EOS, PAD, UNK, Batch, Shapes, State, Texts, Tree, UserError
from regard.models.design import Design, size_of

Integers = NDArray[np.int64]
Floats = NDArray[np.float64]
Discounts = Literal["one", "three"]

# KenLM's discounts (lmplz --discount_fallback) for counts of 1, 2, 3 and more, if an order's own cannot be computed:
# nothing occurs just once (or twice, or three times), or a result is below 0 or above the count. A discount of exactly
# 0, which KenLM accepts, would leave some contexts without probability for words not seen with them.
FALLBACK = (0.5, 1.0, 1.5)


@dataclass(frozen=True)
class Config(Settings):
    order: Depth = 5  # length of the longest n-grams: a word is predicted from the order - 1 before it
    discounts: Discounts = "three"  # Kneser-Ney discounts: one, or three for counts of 1, 2, and 3 or more
    open: bool = True  # open vocabulary: <unk> has a probability even if it is not in the training text


# --- estimation ---


class Counted(NamedTuple):
    """The different n-grams of one length, by number."""

    keys: Integers
    times: Integers  # how often each occurs
    lower: Integers  # the number of the n-gram of its last n − 1 words
    begins: NDArray[np.bool_]  # whether it begins with <bos>


class Order(NamedTuple):
    """Probabilities and back-off weights of the n-grams of one length, by number."""

    keys: NDArray[np.int64]  # empty for n = 1: a word is its own number
    log_prob: NDArray[np.float32]
    log_backoff: NDArray[np.float32]  # ln γ of it as a context; empty for the longest, which are never a context


def stream_of(texts: Texts) -> tuple[Integers, Integers]:
    """Concatenate <bos> w₁ … wₖ <eos> of every text; also return each token's position in its text."""
    lengths = np.diff(texts.offsets)
    starts = texts.offsets[:-1] - texts.offsets[0] + 2 * np.arange(len(lengths))
    place = np.arange(int(lengths.sum()) + 2 * len(lengths)) - np.repeat(starts, lengths + 2)
    stream = np.full(len(place), EOS, dtype=np.int64)
    stream[starts] = BOS
    inside = (place > 0) & (place <= np.repeat(lengths, lengths + 2))
    stream[inside] = texts.tokens[texts.offsets[0] : texts.offsets[-1]]
    return stream, place


def count_ngrams(stream: Integers, place: Integers, *, vocab: int, order: int) -> Iterator[Counted]:
    """Count the n-grams of length 1, 2, …; those of length 1 are the whole vocabulary."""
    words = np.arange(vocab)
    yield Counted(words, np.bincount(stream, minlength=vocab), words, words == BOS)
    number = stream  # the n-gram that ends at each position
    for n in range(2, order + 1):
        ends = np.flatnonzero(place >= n - 1)
        keys = number[ends - 1] * vocab + stream[ends]
        keys, first, inverse, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        first = ends[first]  # the first occurrence of each
        yield Counted(keys, count, number[first], place[first] == n - 1)
        number = np.full(len(stream), -1, dtype=np.int64)
        number[ends] = inverse


def discounts_of(counts: Integers, kind: Discounts) -> Floats:
    """Compute D for counts of 0, 1, 2, and 3 or more, from how many n-grams have a count of 1, 2, 3 and 4."""
    n1, n2, n3, n4 = (float(np.count_nonzero(counts == c)) for c in (1, 2, 3, 4))
    y = n1 / (n1 + 2 * n2) if n1 else 0.0
    if kind == "one":
        return np.array([0.0, *[y if n1 and n2 else FALLBACK[0]] * 3])
    if n1 and n2 and n3:
        closed = np.array([0.0, y, 2 - 3 * y * n3 / n2, 3 - 4 * y * n4 / n3])
        if (closed[1:] > 0).all():  # none can be above its count
            return closed
    return np.array([0.0, *FALLBACK])


def estimate(texts: Texts, *, vocab: int, order: int, discounts: Discounts, open: bool) -> list[Order]:
    counted = list(count_ngrams(*stream_of(texts), vocab=vocab, order=order))
    uniform = np.ones(vocab)
    uniform[[PAD, BOS]] = 0
    if not open and not counted[0].times[UNK]:
        uniform[UNK] = 0
    below: Floats = uniform / uniform.sum()
    contexts = 1
    log_probs, log_backoffs = [], []
    for n, grams in enumerate(counted, start=1):
        counts = grams.times
        if n < order:
            before = np.bincount(counted[n].lower, minlength=len(counts))
            counts = np.where(grams.begins, counts, before)
        if n == 1:
            counts = np.where(grams.begins, 0, counts)  # <bos> is never predicted
        taken = discounts_of(counts, discounts)[np.minimum(counts, 3)]
        context = grams.keys // vocab
        total = np.bincount(context, counts, minlength=contexts)
        shared = np.bincount(context, taken, minlength=contexts)
        backoff = np.divide(shared, total, out=np.ones(contexts), where=total > 0)
        total = np.maximum(total, 1)  # the corpus may be empty
        below = (counts - taken) / total[context] + backoff[context] * below[grams.lower]
        log_probs.append(_log(np.minimum(below, 1)))
        log_backoffs.append(_log(backoff))
        contexts = len(grams.keys)
    none = np.empty(0, dtype=np.float32)
    keys = [np.empty(0, dtype=np.int64), *(grams.keys for grams in counted[1:])]
    return [Order(*each) for each in zip(keys, log_probs, [*log_backoffs[1:], none], strict=True)]


def _log(values: Floats) -> NDArray[np.float32]:
    with np.errstate(divide="ignore"):
        return np.log(values).astype(np.float32)


# --- the model ---


class Grams(nn.Module):
    """An Order as tensors."""

    keys: Tensor
    log_prob: Tensor
    log_backoff: Tensor

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("keys", torch.empty(0, dtype=torch.int64))
        self.register_buffer("log_prob", torch.empty(0))
        self.register_buffer("log_backoff", torch.empty(0))

    def put(self, keys: Tensor, log_prob: Tensor, log_backoff: Tensor) -> None:
        device = self.keys.device
        self.keys, self.log_prob, self.log_backoff = (each.to(device) for each in (keys, log_prob, log_backoff))

    def find(self, keys: Tensor) -> Tensor:
        """Look up the number of each; −1 if it does not exist."""
        if not len(self.keys):
            return torch.full_like(keys, -1)
        at = torch.searchsorted(self.keys, keys).clamp_(max=len(self.keys) - 1)
        return torch.where(self.keys[at] == keys, at, -1)


def value_of(values: Tensor, numbers: Tensor) -> Tensor:
    """Return ln γ of each n-gram; 0 if it does not exist."""
    if not len(values):
        return values.new_zeros(numbers.shape)
    return torch.where(numbers >= 0, values[numbers.clamp(min=0)], 0.0)


def shifted(numbers: Tensor) -> Tensor:
    """Shift the numbers by one position: each becomes the context of the next token; the first has none."""
    return nn.functional.pad(numbers, (1, 0), value=-1)[:, :-1]


class NGram(nn.Module):
    """The state, also during decoding, is the order − 1 ids before the next token."""

    def __init__(self, *, vocab: int, order: int, discounts: Discounts, open: bool) -> None:
        super().__init__()
        self.vocab = vocab
        self.order = order
        self.discounts: Discounts = discounts
        self.open = open
        self.orders = cast(Sequence[Grams], nn.ModuleList(Grams() for _ in range(order)))

    # --- fitting -----

    def fit(self, texts: Texts) -> None:
        """Count n-grams; texts have no <bos> and <eos>."""
        tokens = texts.tokens
        if len(tokens) and not (tokens.min() >= EOS and tokens.max() < self.vocab):
            raise ValueError(f"ids must be from {EOS} to {self.vocab - 1}, not {tokens.min()} to {tokens.max()}")
        self.put(estimate(texts, vocab=self.vocab, order=self.order, discounts=self.discounts, open=self.open))

    def put(self, orders: Sequence[Order]) -> None:
        for own, order in zip(self.orders, orders, strict=True):
            own.put(*(torch.from_numpy(values) for values in order))

    def tables(self) -> list[Order]:
        """Return the orders in the form that `put` takes."""
        return [Order(*(values.cpu().numpy() for values in own.buffers())) for own in self.orders]

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Load the tensors of a state_dict, whose number of n-grams may differ; everything else is checked."""
        for odd in self._misfits(tensors):
            raise UserError(f"The saved n-grams do not fit the model: {odd}; restore the run's own files.")
        for place, own in enumerate(self.orders):
            own.put(*(tensors[f"orders.{place}.{name}"] for name in Order._fields))

    def _misfits(self, tensors: dict[str, Tensor]) -> Iterator[str]:
        """Yield what is wrong with these tensors; later checks assume that the earlier ones passed."""
        own = self.state_dict()
        for name in sorted(own.keys() ^ tensors.keys()):
            yield f"{name!r} is in one of them only"
        for name, tensor in tensors.items():
            if tensor.dim() != 1:
                yield f"{name} has {tensor.dim()} axes, expected 1"
            if tensor.dtype != own[name].dtype:
                yield f"{name} is {tensor.dtype}, expected {own[name].dtype}"
        contexts = 1
        for place in range(self.order):
            names = [f"orders.{place}.{name}" for name in Order._fields]
            keys, log_prob, log_backoff = (tensors[name] for name in names)
            count = len(keys) if place else self.vocab
            expected = (count if place else 0, count, count if place < self.order - 1 else 0)
            for name, length in zip(names, expected, strict=True):
                if len(tensors[name]) != length:
                    yield f"{name} has {len(tensors[name])} values, expected {length}"
            words = keys % self.vocab if place else torch.arange(self.vocab, device=log_prob.device)
            right = {
                f"{names[0]} holds n-grams whose first words are not in the order below": (
                    (keys >= 0) & (keys < contexts * self.vocab)
                ),
                f"{names[0]} is not sorted": keys[1:] > keys[:-1],
                f"{names[1]} has values that are not logarithms of probabilities": log_prob <= 0,
                f"{names[1]} predicts <pad> or <bos>": log_prob[words <= BOS] == -torch.inf,
                f"{names[2]} has values that are not logarithms": log_backoff < torch.inf,
            }
            yield from (odd for odd, holds in right.items() if not bool(holds.all()))
            contexts = count

    # --- whole texts, or windows of them ---

    def begin(self, rows: int) -> Tensor:
        """Return the initial state."""
        return torch.full((rows, self.order - 1), PAD, device=self.orders[0].log_prob.device)

    def log_probs(self, batch: Batch) -> tuple[Tensor, Tree]:
        """Compute ln p of target[:, 1:], 0 at padding, and the state for the next window, whose first column is the
        last one here."""
        assert batch.target is not None
        tokens = self._joined(batch.state, batch.target.values)  # (batch, order - 1 + time)
        score = self.orders[0].log_prob[tokens]
        below, contexts = self.orders[0], shifted(tokens)
        for grams in self.orders[1:]:
            numbers = self._longer(grams, contexts, tokens)
            score = score + value_of(below.log_backoff, contexts)
            score = torch.where(numbers >= 0, value_of(grams.log_prob, numbers), score)
            below, contexts = grams, shifted(numbers)
        time, answers = batch.target.mask.shape[1], batch.target.after()
        after = tokens[:, time - 1 : time - 1 + self.order - 1]
        return torch.where(answers.mask, score[:, self.order :], 0.0), after  # (batch, time - 1)

    def _joined(self, state: Tensor | None, tokens: Tensor) -> Tensor:
        return torch.cat([self.begin(len(tokens)) if state is None else state, tokens], 1)

    def _longer(self, grams: Grams, contexts: Tensor, tokens: Tensor) -> Tensor:
        """Return the numbers of contexts extended by one token; a missing context gives a key below 0, of no n-gram."""
        return grams.find(contexts * self.vocab + tokens)

    # --- one token at a time ---

    def start(self, batch: Batch) -> State:
        """Read all but the last token of each row."""
        assert batch.target is not None
        tokens = self._joined(batch.state, batch.target.values)
        read = (batch.target.lengths[:, None] - 1).clamp(min=0)
        return State(None, tokens.gather(1, read + torch.arange(self.order - 1, device=tokens.device)))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Compute the log-probabilities of every type, (rows, vocab): longer n-grams overwrite the shorter ones."""
        tokens = self._joined(state.carry, tokens[:, None])  # (rows, order)
        logits, numbers = self.orders[0].log_prob.repeat(len(tokens), 1), tokens  # a word is its own number
        for n, (below, grams) in enumerate(pairwise(self.orders)):
            if n:
                numbers = self._longer(below, numbers[:, :-1], tokens[:, n:])  # <pad> begins no n-gram
            context = numbers[:, -1]
            logits += value_of(below.log_backoff, context)[:, None]
            self._lay_over(logits, grams, context)
        return logits, State(state.memory, tokens[:, 1:], state.width)

    def _lay_over(self, logits: Tensor, grams: Grams, context: Tensor) -> None:
        """Write the seen continuations of each row's context into its row; the context −1 has an empty slice."""
        first, end = torch.searchsorted(grams.keys, torch.stack([context, context + 1]) * self.vocab)
        count = end - first
        row = torch.arange(len(context), device=context.device).repeat_interleave(count)
        number = torch.arange(len(row), device=context.device) + (first + count - count.cumsum(0))[row]
        logits[row, grams.keys[number] % self.vocab] = grams.log_prob[number]


def build(config: Config, shapes: Shapes) -> NGram:
    return NGram(vocab=size_of(shapes.target), order=config.order, discounts=config.discounts, open=config.open)


DESIGN = Design(
    name="ngram",
    paper="Kneser, Ney: Improved backing-off for m-gram language modeling",
    year=1995,
    tasks=("language",),
    config=Config,
    build=build,
    path="none beyond its order",
    sizes=(Config(order=3), Config(order=4), Config(order=5), Config(order=5)),
)

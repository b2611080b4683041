"""ngram: counting, with interpolated Kneser-Ney smoothing.

P(w | h) = (a(hw) − D(a(hw))) / Σᵥ a(hv) + γ(h) P(w | h′),   γ(h) = Σᵥ D(a(hv)) / Σᵥ a(hv),   P(w | no words) = 1/V
h are the n − 1 words before w, and h′ is h without the first of them. For the longest n-grams a counts how often they
occur; for shorter ones, how many different words stand before them (Kneser, Ney 1995): "Francisco" is frequent, but
follows little else than "San". Nothing stands before <bos>, so n-grams that begin with it keep their count. D is one
discount (Kneser, Ney 1995), or three, for counts of 1, 2 and more (Chen, Goodman 1998, section 4.1.6: "modified").
V are the types that can be predicted: not <pad>, not <bos>.

Saved is what scoring needs, as in an ARPA file: ln P(w | h) of the n-grams met, and ln γ(h) of the contexts met;
ln P(w | h) = ln γ(h) + ln P(w | h′) for all others, with γ = 1 where h was never met.

An n-gram has a number: its place among those of its length. Its key is the number of its first n − 1 words × vocab +
its last word, and the keys are sorted, so that looking up is a binary search and what can follow a context is a slice.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
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

# Those of KenLM (lmplz --discount_fallback), for counts of 1, 2, 3 and more, where an order's own cannot be computed:
# nothing occurs just once (or twice, or three times), or a result is below 0 or above the count. One that is exactly 0,
# which KenLM lets pass, would leave some contexts without a share for words they were not met with.
FALLBACK = (0.5, 1.0, 1.5)


@dataclass(frozen=True)
class Config(Settings):
    order: Depth = 5  # words in the longest n-grams: each is predicted from order - 1 before it
    discounts: Discounts = "three"  # taken off a count: one for all, or three for counts of 1, 2, and 3 or more
    open: bool = True  # <unk> has a share of the probability even if training never met it


# --- estimation ---


class Counted(NamedTuple):
    """The different n-grams of one length, by number."""

    keys: Integers
    times: Integers  # it occurs
    lower: Integers  # the number of its last n − 1 words
    begins: NDArray[np.bool_]  # with <bos>


class Order(NamedTuple):
    """What is known of the n-grams of one length, by number."""

    keys: NDArray[np.int64]  # none where n = 1: a word is its own number
    log_prob: NDArray[np.float32]
    log_backoff: NDArray[np.float32]  # ln γ of it as a context; none for the longest, which are never one


def stream_of(texts: Texts) -> tuple[Integers, Integers]:
    """<bos> w₁ … wₖ <eos> of every text, one after the other; and each token's place in its text."""
    lengths = np.diff(texts.offsets)
    starts = texts.offsets[:-1] - texts.offsets[0] + 2 * np.arange(len(lengths))
    place = np.arange(int(lengths.sum()) + 2 * len(lengths)) - np.repeat(starts, lengths + 2)
    stream = np.full(len(place), EOS, dtype=np.int64)
    stream[starts] = BOS
    inside = (place > 0) & (place <= np.repeat(lengths, lengths + 2))
    stream[inside] = texts.tokens[texts.offsets[0] : texts.offsets[-1]]
    return stream, place


def count_ngrams(stream: Integers, place: Integers, *, vocab: int, order: int) -> Iterator[Counted]:
    """Of length 1, 2, …; those of length 1 are the whole vocabulary."""
    words = np.arange(vocab)
    yield Counted(words, np.bincount(stream, minlength=vocab), words, words == BOS)
    number = stream  # of the n-gram that ends at each place
    for n in range(2, order + 1):
        ends = np.flatnonzero(place >= n - 1)
        keys = number[ends - 1] * vocab + stream[ends]
        keys, first, inverse, count = np.unique(keys, return_index=True, return_inverse=True, return_counts=True)
        first = ends[first]  # where each is met first
        yield Counted(keys, count, number[first], place[first] == n - 1)
        number = np.full(len(stream), -1, dtype=np.int64)
        number[ends] = inverse


def discounts_of(counts: Integers, kind: Discounts) -> Floats:
    """D of 0, 1, 2, and 3 or more, from how many n-grams have a count of 1, 2, 3 and 4."""
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
        total = np.maximum(total, 1)  # of an empty corpus
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
        """The number of each; −1 where there is none."""
        if not len(self.keys):
            return torch.full_like(keys, -1)
        at = torch.searchsorted(self.keys, keys).clamp_(max=len(self.keys) - 1)
        return torch.where(self.keys[at] == keys, at, -1)


def value_of(values: Tensor, numbers: Tensor) -> Tensor:
    """Of each n-gram; 0 where there is none."""
    if not len(values):
        return values.new_zeros(numbers.shape)
    return torch.where(numbers >= 0, values[numbers.clamp(min=0)], 0.0)


def shifted(numbers: Tensor) -> Tensor:
    """What ended at each place ends before the next one; nothing does before the first."""
    return nn.functional.pad(numbers, (1, 0), value=-1)[:, :-1]


class NGram(nn.Module):
    """A state, and so the carry of generation, is the order − 1 ids before the token that is read next."""

    def __init__(self, *, vocab: int, order: int, discounts: Discounts, open: bool) -> None:
        super().__init__()
        self.vocab = vocab
        self.order = order
        self.discounts: Discounts = discounts
        self.open = open
        self.orders = cast(Sequence[Grams], nn.ModuleList(Grams() for _ in range(order)))

    # --- making it ---

    def fit(self, texts: Texts) -> None:
        """Count; texts are without <bos> and <eos>."""
        tokens = texts.tokens
        if len(tokens) and not (tokens.min() >= EOS and tokens.max() < self.vocab):
            raise ValueError(f"ids must be from {EOS} to {self.vocab - 1}, not {tokens.min()} to {tokens.max()}")
        self.put(estimate(texts, vocab=self.vocab, order=self.order, discounts=self.discounts, open=self.open))

    def put(self, orders: Sequence[Order]) -> None:
        for own, order in zip(self.orders, orders, strict=True):
            own.put(*(torch.from_numpy(values) for values in order))

    def tables(self) -> list[Order]:
        """What `put` takes."""
        return [Order(*(values.cpu().numpy() for values in own.buffers())) for own in self.orders]

    def restore(self, tensors: dict[str, Tensor]) -> None:
        """Put in what a state_dict held; how many n-grams there are is the file's to say, the rest is checked."""
        for odd in self._misfits(tensors):
            raise UserError(f"The saved n-grams do not fit the model: {odd}; restore the run's own files.")
        for place, own in enumerate(self.orders):
            own.put(*(tensors[f"orders.{place}.{name}"] for name in Order._fields))

    def _misfits(self, tensors: dict[str, Tensor]) -> Iterator[str]:
        """What is wrong with these; whatever is said second rests on the first being right."""
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
                f"{names[1]} holds what is no logarithm of a probability": log_prob <= 0,
                f"{names[1]} predicts <pad> or <bos>": log_prob[words <= BOS] == -torch.inf,
                f"{names[2]} holds what is no logarithm": log_backoff < torch.inf,
            }
            yield from (odd for odd, holds in right.items() if not bool(holds.all()))
            contexts = count

    # --- whole texts, or windows of them ---

    def begin(self, rows: int) -> Tensor:
        """The state before anything is read."""
        return torch.full((rows, self.order - 1), PAD, device=self.orders[0].log_prob.device)

    def log_probs(self, batch: Batch) -> tuple[Tensor, Tree]:
        """ln p of target[:, 1:], 0 at padding; and the state from which a window goes on whose first column is the last
        one here."""
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
        """The numbers of contexts with one more token; without a context the key is below 0, and so is no n-gram's."""
        return grams.find(contexts * self.vocab + tokens)

    # --- one token at a time ---

    def start(self, batch: Batch) -> State:
        """All but the last token of each row is read."""
        assert batch.target is not None
        tokens = self._joined(batch.state, batch.target.values)
        read = (batch.target.lengths[:, None] - 1).clamp(min=0)
        return State(None, tokens.gather(1, read + torch.arange(self.order - 1, device=tokens.device)))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """Log-probabilities of every type, (rows, vocab): the unigrams', and those of longer n-grams laid over them."""
        tokens = self._joined(state.carry, tokens[:, None])  # (rows, order)
        below, numbers = self.orders[0], tokens  # a word is its own number; <pad> begins no n-gram
        logits = below.log_prob.repeat(len(tokens), 1)
        for grams in self.orders[1:]:
            context = numbers[:, -1]
            logits += value_of(below.log_backoff, context)[:, None]
            self._lay_over(logits, grams, context)
            below, numbers = grams, self._longer(grams, shifted(numbers), tokens)
        return logits, State(state.memory, tokens[:, 1:], state.width)

    def _lay_over(self, logits: Tensor, grams: Grams, context: Tensor) -> None:
        """What was met after each row's context, into its row; the context −1 has an empty slice."""
        first = torch.searchsorted(grams.keys, context * self.vocab)
        count = torch.searchsorted(grams.keys, (context + 1) * self.vocab) - first
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

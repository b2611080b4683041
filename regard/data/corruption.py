"""Objectives: what is hidden of a text, for a model to restore.

masked     of 15 % of the tokens, 80 % become <mask>, 10 % another token, 10 % stay; the model is asked for all of them,
           and does not know which were changed                                                 Devlin 2019, section 3.1
pairs      next-sentence prediction: a text is cut in two, a <eos> b; in half of the cases b is a part of another text;
           the model is also asked whether b follows a                                          Devlin 2019, section 3.1
spans      span corruption: 15 % of the tokens, in spans of 3 on average, become one sentinel each; the target is
           sentinel, span, sentinel, span …                                                     Raffel 2020, section 3.1
infilling  30 % of the tokens, in spans of Poisson(3) tokens, become one <mask> each, and a span of none is one more;
           the sentences are permuted; the target is the whole text                             Lewis 2020, section 2.2

What is hidden is a function of (seed, epoch, index), so that every epoch hides other tokens (Liu 2019) and a training
that was interrupted continues with the same ones. <eos>, which ends a text, is never hidden.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator, Sequence
from functools import lru_cache, partial
from itertools import islice
from typing import Literal, Protocol

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Encoded, Integers, Stats, plan, stats
from regard.data.fields import Fields
from regard.data.tokens import Tokenizer
from regard.interface import EOS, SPECIALS, Batch, Padded, UserError

MASK = len(SPECIALS)  # the special token after the four that every tokenizer has
HIDDEN, BLANKED, CHANGED = 0.15, 0.8, 0.1
SENTINEL, SENTINELS = MASK + 1, 100  # the first of them, and how many there are
IN_SPANS, MEAN_SPAN = 0.15, 3
INFILLED = 0.3
SENTENCE_ENDS = tuple(".!?…。！？")

Noise = Literal["spans", "infilling"]
Corrupt = Callable[[Integers, np.random.Generator], tuple[Integers, Integers]]  # a text -> a source and a target


class Batches(Protocol):
    carries: int

    def count(self, epoch: int) -> int: ...

    def get(self, epoch: int, index: int) -> Batch: ...

    def stats(self) -> Stats: ...


# --- masked words ------------------------------------------------------------------------------------------------


def hide(batch: Batch, *, first: int, vocab: int, seed: Sequence[int], share: float = HIDDEN) -> Batch:
    """Hide a share of the source's tokens, at least one in each row; the target has them, with True where they were
    hidden. `first` is the first id that is a token of text, `vocab` the number of ids."""
    assert batch.source is not None
    random = np.random.default_rng(seed)
    ids = batch.source.values
    words = batch.source.mask & (ids != EOS)
    dice = torch.from_numpy(random.random((2, *ids.shape)))
    drawn = dice[0].masked_fill(~words, 2.0)
    hidden = (drawn < share) | (drawn == drawn.amin(1, keepdim=True)) & words
    other = torch.from_numpy(random.integers(first, max(vocab, first + 1), tuple(ids.shape)))
    blanked, changed = hidden & (dice[1] < BLANKED), hidden & (dice[1] >= 1 - CHANGED)
    read = torch.where(changed, other, ids.masked_fill(blanked, MASK))
    return dataclasses.replace(batch, source=Padded(read, batch.source.mask), target=Padded(ids, hidden))


def with_hidden(source: Padded, hidden: Tensor) -> Batch:
    """A batch in which these tokens of the source are hidden; the target has them."""
    read = Padded(source.values.masked_fill(hidden, MASK), source.mask)
    return Batch(read, Padded(source.values, hidden))


class Masked:
    """Batches of texts with hidden tokens."""

    def __init__(self, texts: Batches, *, first: int, vocab: int, seed: int, share: float = HIDDEN) -> None:
        self.texts, self.first, self.vocab, self.seed, self.share = texts, first, vocab, seed, share
        self.carries = 0

    def count(self, epoch: int) -> int:
        return self.texts.count(epoch)

    def get(self, epoch: int, index: int) -> Batch:
        batch = self.texts.get(epoch, index)
        return hide(batch, first=self.first, vocab=self.vocab, seed=(self.seed, epoch, index), share=self.share)

    def stats(self) -> Stats:
        return self.texts.stats()


# --- pairs -------------------------------------------------------------------------------------------------------


class Pairs:
    """Batches of next-sentence pairs, a <eos> b <eos>, of at most `window` tokens; beside["follows"] is 1 where b
    follows a in its text. A longer text is read in several stretches, cut elsewhere in each epoch."""

    carries = 0

    def __init__(self, fields: Fields, texts: Encoded, *, tokens: int, window: int, seed: int) -> None:
        self.fields, self.texts, self.tokens, self.seed = fields, texts, tokens, seed
        self.most = max(2, window - 2)  # beside two <eos>
        if texts.lengths.max(initial=0) < 2:
            raise UserError("Next-sentence pairs are texts cut in two, and no text has two tokens: give longer texts.")
        self.stretches = lru_cache(maxsize=1)(self._stretches)
        self.plan = lru_cache(maxsize=1)(self._plan)

    def _stretches(self, epoch: int) -> Integers:
        """(stretches, 3): the text, its first token and the number of tokens, two or more."""
        shifts = np.random.default_rng([self.seed, epoch]).integers(self.most, size=len(self.texts))
        found = []
        for text, (length, shift) in enumerate(zip(self.texts.lengths.tolist(), shifts.tolist(), strict=True)):
            begins = [0, *range(shift or self.most, length, self.most)] if length > self.most else [0]
            found += [(text, begin, end - begin) for begin, end in zip(begins, [*begins[1:], length], strict=True)]
        every: Integers = np.array(found)
        return every[every[:, 2] > 1]

    def _plan(self, epoch: int) -> list[Integers]:
        lengths = self.stretches(epoch)[:, 2] + 1
        return plan(lengths, lengths, tokens=self.tokens, seed=self.seed, epoch=epoch)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> Batch:
        random = np.random.default_rng([self.seed, epoch, index])
        chosen = self.stretches(epoch)[self.plan(epoch)[index]]
        follows = random.random(len(chosen)) < 0.5
        rows = [self._pair(row, bool(real), random) for row, real in zip(chosen.tolist(), follows, strict=True)]
        batch = self.fields.batch({"source": rows})
        return dataclasses.replace(batch, beside={"follows": torch.from_numpy(follows.astype(np.int64))[:, None]})

    def _pair(self, stretch: Sequence[int], follows: bool, random: np.random.Generator) -> Integers:
        text, begin, length = stretch
        whole = self.texts[text][begin : begin + length]
        cut = int(random.integers(1, length))
        second = whole[cut:] if follows else self._other(text, length - cut, random)
        return np.concatenate([whole[:cut], [EOS], second])

    def _other(self, text: int, length: int, random: np.random.Generator) -> Integers:
        """At most so many tokens of another text, or from anywhere if there is only one."""
        other = self.texts[(text + int(random.integers(1, max(2, len(self.texts))))) % len(self.texts)]
        begin = int(random.integers(max(1, len(other) - length + 1)))
        return other[begin : begin + length]

    def stats(self) -> Stats:
        lengths = self.stretches(0)[:, 2] + 1
        return stats(self.plan(0), lengths, lengths)


# --- noise, for models that write --------------------------------------------------------------------------------


def placed(lengths: Integers, words: int, random: np.random.Generator) -> Iterator[tuple[int, int]]:
    """Where spans of these lengths begin and end, anywhere among so many words, with at least one word between two."""
    gaps = np.sort(random.choice(words - int(lengths.sum()) + 1, len(lengths), replace=False))
    ends = gaps + lengths.cumsum()
    return zip((ends - lengths).tolist(), ends.tolist(), strict=True)


def pieces(ids: Integers, lengths: Integers, random: np.random.Generator) -> Iterator[tuple[int, int, bool]]:
    """Where spans of so many words are in a text, from left to right, and True; one that meets <eos> continues after
    it, with False."""
    places = np.flatnonzero(ids != EOS)
    for begin, end in placed(lengths, len(places), random):
        if begin == end:
            here = int(places[begin]) if begin < len(places) else len(ids)
            yield here, here, True
            continue
        for run in np.split(places[begin:end], np.flatnonzero(np.diff(places[begin:end]) > 1) + 1):
            yield int(run[0]), int(run[-1]) + 1, bool(run[0] == places[begin])


def span_lengths(words: int, random: np.random.Generator) -> Integers:
    """15 % of the words, at least one, in spans of 3 on average: every way to divide them is equally likely."""
    hidden = max(1, round(IN_SPANS * words))
    count = min(max(1, round(hidden / MEAN_SPAN)), SENTINELS)
    cuts = np.sort(random.choice(hidden - 1, count - 1, replace=False)) + 1
    lengths: Integers = np.diff(np.concatenate([[0], cuts, [hidden]]))
    return lengths


def corrupt_spans(ids: Integers, random: np.random.Generator) -> tuple[Integers, Integers]:
    """T5's objective: a text with a sentinel for each span, and the spans, each after its sentinel."""
    source, target, done = [], [], 0
    words = int((ids != EOS).sum())
    spans = pieces(ids, span_lengths(words, random), random) if words else ()
    for number, (begin, end, _) in enumerate(islice(spans, SENTINELS)):
        sentinel = [SENTINEL + number]
        source += [ids[done:begin], sentinel]
        target += [sentinel, ids[begin:end]]
        done = end
    return np.concatenate([*source, ids[done:]]), np.concatenate([*target, ids[:0]])


def infill(ids: Integers, random: np.random.Generator) -> Integers:
    """BART's infilling: each span of Poisson(3) tokens, together 30 % of all, becomes one <mask>."""
    words = int((ids != EOS).sum())
    wanted = round(INFILLED * words)
    lengths = random.poisson(MEAN_SPAN, size=wanted)
    before = lengths.cumsum() - lengths
    lengths = np.minimum(lengths, wanted - before)[before < wanted][: words - wanted + 1]
    empty = lengths == 0
    lengths = lengths[~empty | (empty.cumsum() <= lengths.sum() - (~empty).sum())]  # so that no text becomes longer
    kept, done = [], 0
    for begin, end, first in pieces(ids, lengths, random):
        kept += [ids[done:begin], *([[MASK]] if first else [])]
        done = end
    return np.concatenate([*kept, ids[done:]])


def sentences_of(ids: Integers, ends: Integers) -> list[Integers]:
    """A text in sentences; `ends` are the tokens that end one, as <eos> does, which may follow such a token."""
    last = np.isin(ids, ends) & ~np.append(ids[1:] == EOS, False) | (ids == EOS)
    return [part for part in np.split(ids, np.flatnonzero(last) + 1) if len(part)]


def permute(ids: Integers, ends: Integers, random: np.random.Generator) -> Integers:
    """BART's permutation of sentences."""
    parts = sentences_of(ids, ends)
    return np.concatenate([ids[:0], *(parts[place] for place in random.permutation(len(parts)))])


def infill_permuted(ids: Integers, random: np.random.Generator, *, ends: Integers) -> tuple[Integers, Integers]:
    return infill(permute(ids, ends, random), random), ids


def corruption(noise: Noise, tokenizer: Tokenizer) -> Corrupt:
    """What this noise makes of a text of this tokenizer's."""
    if noise == "spans":
        return corrupt_spans
    known = range(tokenizer.offset, tokenizer.size)
    ends = [token for token in known if tokenizer.show(token).rstrip().endswith(SENTENCE_ENDS)]
    return partial(infill_permuted, ends=np.array(ends, np.int64))


class Noisy:
    """Batches of corrupted texts with what is to be written for them."""

    carries = 0

    def __init__(self, texts: Batches, fields: Fields, *, noise: Noise, seed: int) -> None:
        self.texts, self.fields, self.seed = texts, fields, seed
        self.corrupt = corruption(noise, fields.tokenizer("source"))

    def count(self, epoch: int) -> int:
        return self.texts.count(epoch)

    def get(self, epoch: int, index: int) -> Batch:
        read = self.texts.get(epoch, index).source
        assert read is not None
        random = np.random.default_rng([self.seed, epoch, index])
        texts = (ids[: length - 1] for ids, length in zip(read.values.numpy(), read.lengths.tolist(), strict=True))
        sources, targets = zip(*(self.corrupt(ids, random) for ids in texts), strict=True)
        return self.fields.batch({"source": sources, "target": targets})

    def stats(self) -> Stats:
        return self.texts.stats()

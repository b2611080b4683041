"""Encoded examples in several files, a shard for each file of the data, read as one.

A batch has examples of one shard. In each epoch the shards are read in another order, and each of them as `Shuffled`
reads a single one; which examples meet is a function of (seed, epoch, index), and only the shard that is being read is
put in order.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np

from regard.data.batches import (
    ROWS_MULTIPLE,
    Encoded,
    Examples,
    Integers,
    Shuffled,
    Stats,
    batches_of,
    stats,
)
from regard.data.fields import MULTIPLE, rounded
from regard.data.files import writing
from regard.interface import Batch, UserError

# the files of a shard: what it was made from, and the tokens and offsets of each side
SHARD = re.compile(r"(?:train|valid)-(\d{5})(?:\.\w+\.(?:tokens|offsets)\.npy)?")


class Chain:
    """Arrays, one after the other, that are read as one array of which little is in memory."""

    ndim = 1

    def __init__(self, arrays: Sequence[Integers]) -> None:
        self.arrays = arrays
        self.dtype = arrays[0].dtype
        self.ends = np.cumsum([len(array) for array in arrays])
        self.starts = self.ends - [len(array) for array in arrays]

    def __len__(self) -> int:
        return int(self.ends[-1])

    def __getitem__(self, places: Any) -> Integers:
        """The values of a slice without a step, or at these places."""
        if isinstance(places, slice):
            start, stop, _ = places.indices(len(self))
            found = [
                array[max(start - first, 0) : max(stop - first, 0)]
                for first, array in zip(self.starts.tolist(), self.arrays, strict=True)
            ]
            return np.concatenate(found)
        places = np.asarray(places)
        places = np.where(places < 0, places + len(self), places)
        which = np.searchsorted(self.ends, places, side="right")
        values: Integers = np.empty(places.shape, self.dtype)
        for number in np.unique(which).tolist():
            here = which == number
            values[here] = self.arrays[number][places[here] - self.starts[number]]
        return values

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Integers:
        return np.concatenate(self.arrays).astype(dtype or self.dtype, copy=False)

    def min(self, initial: int | None = None) -> Any:
        least = [array.min() for array in self.arrays if len(array)]
        return min(least if initial is None else [initial, *least])

    def max(self, initial: int | None = None) -> Any:
        most = [array.max() for array in self.arrays if len(array)]
        return max(most if initial is None else [initial, *most])


class Shards(Encoded):
    """The sequences of several files, one file after the other. Lengths and offsets are in memory, tokens are not."""

    def __init__(self, parts: Sequence[Encoded]) -> None:
        self.several = tuple(parts)
        self.tokens = Chain([part.tokens for part in parts])
        self.lengths = np.concatenate([part.lengths for part in parts])
        self.offsets = np.concatenate([[0], np.cumsum(self.lengths)])
        self.ends = np.cumsum([len(part) for part in parts])
        for part, end in zip(parts, self.ends.tolist(), strict=True):
            part.lengths = self.lengths[end - len(part) : end]  # in memory once

    @property
    def parts(self) -> tuple[Encoded, ...]:
        return self.several

    def __getitem__(self, index: int) -> Integers:
        if not 0 <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        number = int(np.searchsorted(self.ends, index, side="right"))
        part = self.several[number]
        return part[index - int(self.ends[number]) + len(part)]


def shard_names(data: Path, split: str, side: str) -> list[str]:
    """The names of a split's files for a side: one, or those of its shards in their order."""
    end = f".{side}.offsets.npy"
    found = sorted(path.name.removesuffix(end) for path in data.glob(f"{split}-[0-9][0-9][0-9][0-9][0-9]{end}"))
    return found or [split]


def open_split(data: Path, split: str, side: str, count: int | None = None) -> Encoded:
    """A side of a split, which is one file or as many shards as there are, or `count`."""
    names = shard_names(data, split, side) if count is None else names_of(split, count)
    every = [Encoded.open(data, f"{name}.{side}") for name in names]
    return every[0] if len(every) == 1 else Shards(every)


def names_of(split: str, count: int) -> list[str]:
    """The names of so many shards: train-00000, train-00001 …; one has the name of the split."""
    return [split] if count == 1 else [f"{split}-{number:05}" for number in range(count)]


def remove_shards(data: Path, count: int) -> None:
    """Remove the files of shards that are left from other data: all beyond so many, and all if there is one file."""
    for path in data.glob("*-[0-9][0-9][0-9][0-9][0-9]*"):
        found = SHARD.fullmatch(path.name)
        if found and (count == 1 or int(found[1]) >= count):
            with writing(path):
                path.unlink()


def shuffled(examples: Examples, *, tokens: int, seed: int) -> Shuffled | ShuffledShards:
    """Training batches of these examples, which are in one file or in several."""
    several = len(next(iter(examples.encoded.values())).parts) > 1
    return (ShuffledShards if several else Shuffled)(examples, tokens=tokens, seed=seed)


class ShuffledShards:
    """Training batches from shards: which examples meet is a function of (seed, epoch, index)."""

    carries = 0

    def __init__(self, examples: Examples, *, tokens: int, seed: int) -> None:
        self.examples, self.tokens, self.seed = examples, tokens, seed
        sizes = {tuple(map(len, side.parts)) for side in examples.encoded.values()}
        if len(sizes) > 1:
            raise UserError("The sides of a shard have different numbers of examples: encode them again.")
        ends = list(accumulate(next(iter(sizes))))
        self.spans = list(zip([0, *ends], ends, strict=False))  # the first example of each shard, and the end
        self.lengths = examples.lengths
        self.counts = [batch_count(*self._lengths(shard), tokens=tokens) for shard in range(len(self.spans))]
        self.order = lru_cache(maxsize=1)(self._order)
        self.plan = lru_cache(maxsize=1)(self._plan)

    def _lengths(self, shard: int) -> tuple[Integers, Integers]:
        start, stop = self.spans[shard]
        source, target = self.lengths
        return source[start:stop], target[start:stop]

    def _order(self, epoch: int) -> tuple[list[int], Integers]:
        """The shards as this epoch reads them, and how many batches there are up to the end of each."""
        order = np.random.default_rng(np.random.SeedSequence([self.seed, epoch])).permutation(len(self.spans))
        return order.tolist(), np.cumsum(np.asarray(self.counts)[order])

    def _plan(self, epoch: int, shard: int) -> list[Integers]:
        """The batches of a shard in this epoch, as indices of all examples."""
        random = np.random.default_rng(np.random.SeedSequence([self.seed, epoch, 1 + shard]))
        batches = batches_of(*self._lengths(shard), tokens=self.tokens, random=random)
        return [self.spans[shard][0] + batch for batch in batches]

    def count(self, epoch: int) -> int:
        return sum(self.counts)

    def get(self, epoch: int, index: int) -> Batch:
        return self.examples.collate(self.indices(epoch, index))

    def indices(self, epoch: int, index: int) -> Integers:
        """The examples of a batch."""
        order, ends = self.order(epoch)
        place = int(np.searchsorted(ends, index, side="right"))
        shard = order[place]
        return self.plan(epoch, shard)[index - int(ends[place]) + self.counts[shard]]

    def stats(self) -> Stats:
        """All batches are counted; shapes and padding are those of the first shard that is read."""
        order, _ = self.order(0)
        shard = next(shard for shard in order if self.counts[shard])
        first = stats(self.plan(0, shard), *self.lengths)
        return first._replace(batches=self.count(0))


def batch_count(source: Integers, target: Integers, *, tokens: int, multiple: int = MULTIPLE) -> int:
    """How many batches `plan` makes of examples with these lengths, whatever their order: they are cut by the longer
    side alone, longest first."""
    if not len(source):
        return 0
    counts = np.bincount(np.maximum(rounded(source, multiple), rounded(target, multiple)))
    lengths = np.flatnonzero(counts)[::-1]
    batches = beyond = 0  # `beyond`: examples of these lengths that are in batches of longer ones
    for length, count in zip(lengths.tolist(), counts[lengths].tolist(), strict=True):
        rows = max(tokens // length, 1)
        if rows > ROWS_MULTIPLE:
            rows -= rows % ROWS_MULTIPLE
        left = count - beyond
        if left <= 0:
            beyond = -left
            continue
        more = -(-left // rows)
        batches += more
        beyond = more * rows - left
    return batches

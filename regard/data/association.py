"""Which target types belong to a source type: IBM model 1 on the encoded training pairs.

t(y | x) = c(x, y) / Σᵤ c(x, u),   c(x, y) = Σ over pairs with x and y of  t(y | x) / Σ over z in the source of t(y | z)
Brown et al. 1993, section 4.1; five rounds of expectation-maximisation, a type counted once in each sentence. A target
type that another source type explains better goes to that one, which plain co-occurrence does not know.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.interface import Texts

ROUNDS = 5
MOST = 1 << 24  # pairs of a source and a target token that are counted; of more, every second, third … sentence is read

Integers = NDArray[Any]


class Associations(NamedTuple):
    """The target types of source type i are types[offsets[i] : offsets[i + 1]], most probable first."""

    offsets: Integers  # (source types + 1,)
    types: Integers
    frequent: Integers  # every target type, most frequent first

    def fits(self, source_size: int, target_size: int) -> bool:
        """Return whether these arrays are associations of so many types."""
        offsets, types, frequent = self
        return bool(
            all(each.ndim == 1 and each.dtype.kind == "i" for each in self)
            and len(offsets) == source_size + 1
            and offsets[0] == 0
            and offsets[-1] == len(types)
            and (np.diff(offsets) >= 0).all()
            and types.min(initial=0) >= 0
            and types.max(initial=0) < target_size
            and np.array_equal(np.sort(frequent), np.arange(target_size))
        )

    def shortlist(self, source: Integers, k: int) -> Integers:
        """Return the k most frequent target types, and the k most probable of each of these source types; sorted."""
        found = np.unique(source)
        starts = self.offsets[found]
        counts = np.minimum(self.offsets[found + 1] - starts, k)
        kept = np.zeros(len(self.frequent), dtype=bool)
        kept[self.types[_ranges(starts, counts)]] = True
        kept[self.frequent[:k]] = True
        return np.flatnonzero(kept)


def associate(source: Texts, target: Texts, *, source_size: int, target_size: int) -> Associations:
    if len(source.offsets) != len(target.offsets):
        raise ValueError(f"{len(source.offsets) - 1} sources and {len(target.offsets) - 1} targets are no pairs")
    sizes = np.diff(source.offsets) * np.diff(target.offsets)
    rows = np.arange(0, len(sizes), max(1, -(-int(sizes.sum()) // MOST)))
    read, xs = _types(source, rows, source_size)
    written, ys = _types(target, rows, target_size)
    # a cell is a target type of a sentence beside a source type of that sentence
    counts = np.bincount(read, minlength=len(rows))
    each = counts[written]  # cells of each target type
    group = np.repeat(np.arange(len(ys), dtype=np.int32), each)
    keys = xs[_ranges((counts.cumsum() - counts)[written], each)] * target_size + ys[group]
    keys, cell = np.unique(keys, return_inverse=True)
    x, y = np.divmod(keys, target_size)
    share = np.ones(len(keys))
    for _ in range(ROUNDS):
        part = share[cell]
        part /= np.bincount(group, part, minlength=len(ys))[group]
        expected = np.bincount(cell, part, minlength=len(keys))
        share = expected / np.bincount(x, expected, minlength=source_size)[x]
    order = np.lexsort((-share, x))
    offsets = np.searchsorted(x, np.arange(source_size + 1))
    frequent = np.argsort(-np.bincount(ys, minlength=target_size), kind="stable")
    return Associations(offsets, y[order].astype(np.int32), frequent.astype(np.int32))


def _types(texts: Texts, rows: Integers, size: int) -> tuple[Integers, Integers]:
    """Return the different types of each of these sentences: the place of the sentence in `rows`, and the type."""
    lengths = texts.offsets[rows + 1] - texts.offsets[rows]
    tokens = texts.tokens[_ranges(texts.offsets[rows], lengths)].astype(np.int64)
    row, found = np.divmod(np.unique(np.repeat(np.arange(len(rows)), lengths) * size + tokens), size)
    return row, found


def _ranges(starts: Integers, counts: Integers) -> Integers:
    """Return start, start + 1, … of each range, one range after another."""
    places: Integers = np.arange(int(counts.sum())) + np.repeat(starts - counts.cumsum() + counts, counts)
    return places

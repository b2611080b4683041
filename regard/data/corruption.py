"""Objectives: what is hidden of a text, for a model to restore.

masked   of 15 % of the tokens, 80 % become <mask>, 10 % another token, 10 % stay; the model is asked for all of them,
         and does not know which were changed                                                   Devlin 2019, section 3.1
What is hidden is a function of (seed, epoch, index), so that every epoch hides other tokens (Liu 2019) and a training
that was interrupted continues with the same ones.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from regard.data.batches import Stats
from regard.interface import SPECIALS, Batch, Padded

MASK = len(SPECIALS)  # the special token after the four that every tokenizer has
HIDDEN, BLANKED, CHANGED = 0.15, 0.8, 0.1


class Batches(Protocol):
    carries: int

    def count(self, epoch: int) -> int: ...

    def get(self, epoch: int, index: int) -> Batch: ...

    def stats(self) -> Stats: ...


def hide(batch: Batch, *, first: int, vocab: int, seed: Sequence[int]) -> Batch:
    """Hide tokens of the source, at least one in each row; the target has them, with True where they were hidden.
    `first` is the first id that is a token of text, `vocab` the number of ids."""
    assert batch.source is not None
    random = np.random.default_rng(seed)
    ids, words = batch.source.values, batch.source.but_end().mask
    dice = torch.from_numpy(random.random((2, *ids.shape)))
    share = dice[0].masked_fill(~words, 2.0)
    hidden = (share < HIDDEN) | (share == share.amin(1, keepdim=True)) & words
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

    def __init__(self, texts: Batches, *, first: int, vocab: int, seed: int) -> None:
        self.texts, self.first, self.vocab, self.seed = texts, first, vocab, seed
        self.carries = 0

    def count(self, epoch: int) -> int:
        return self.texts.count(epoch)

    def get(self, epoch: int, index: int) -> Batch:
        batch = self.texts.get(epoch, index)
        return hide(batch, first=self.first, vocab=self.vocab, seed=(self.seed, epoch, index))

    def stats(self) -> Stats:
        return self.texts.stats()

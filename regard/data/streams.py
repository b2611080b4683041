"""Text in windows: one long text, from many positions side by side or from random ones; or many texts that are joined.

A window of w tokens to predict has w + 1 columns: all but the last are read, all but the first predicted.

Carried   The text is cut into as many stretches as there are rows; window i + 1 of a row continues where window i
          ended, so that a recurrent model carries its state over. Each epoch shifts the cuts.
Anywhere  Rows begin at random positions, for models that see one window and nothing before it.
Packed    Packing: texts are joined, <eos> after each, and cut into windows: none is too long, nothing is padding. Each
          epoch shifts the cuts, and the last window continues with the beginning, so that every token is read.

Which tokens meet in a batch is a function of (seed, epoch, index).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache

import numpy as np
import torch

from regard.data.batches import Encoded, Integers, Stats
from regard.interface import EOS, Batch, Padded


class Joined:
    """Texts as one stream, <eos> after each, of which places are read; after its end it begins again."""

    def __init__(self, texts: Encoded) -> None:
        self.tokens = texts.tokens
        self.ends = texts.offsets[1:] + np.arange(len(texts))  # where each <eos> is

    def __len__(self) -> int:
        return int(self.ends[-1]) + 1

    def __getitem__(self, places: Integers) -> Integers:
        places = places % len(self)
        text = np.searchsorted(self.ends, places)  # as many <eos> are before a place as texts
        ended = self.ends[text] == places
        found: Integers = np.where(ended, EOS, self.tokens[np.minimum(places - text, len(self.tokens) - 1)])
        return found


def windows_at(tokens: Integers | Joined, starts: Integers, width: int) -> Batch:
    """(rows, width + 1): from each start on."""
    return Batch.of_text(torch.from_numpy(tokens[starts[:, None] + np.arange(width + 1)].astype(np.int64)))


class Carried:
    def __init__(self, tokens: Integers | Joined, *, rows: int, window: int, seed: int | None) -> None:
        """With `seed` None nothing is shifted."""
        self.tokens = tokens
        self.rows = self.carries = max(1, min(rows, (len(tokens) - 1) // window))
        self.window = window
        self.seed = seed

    def _cuts(self, epoch: int) -> tuple[int, int]:
        """Where the first row starts, and how many tokens each row predicts."""
        shift = 0
        if self.seed is not None:
            most = min(self.window, (len(self.tokens) - 1) // 2, len(self.tokens) - 1 - self.rows)
            shift = int(np.random.default_rng([self.seed, epoch]).integers(most + 1))
        return shift, (len(self.tokens) - 1 - shift) // self.rows

    def count(self, epoch: int) -> int:
        return -(-self._cuts(epoch)[1] // self.window)

    def get(self, epoch: int, index: int) -> Batch:
        shift, span = self._cuts(epoch)
        done = index * self.window
        starts = shift + np.arange(self.rows) * span + done
        return windows_at(self.tokens, starts, min(self.window, span - done))

    def stats(self) -> Stats:
        return Stats(batches=self.count(0), shapes=1, real=1.0)


class Anywhere:
    carries = 0

    def __init__(self, tokens: Integers, *, rows: int, window: int, seed: int) -> None:
        self.tokens = tokens
        self.window = min(window, len(tokens) - 1)
        self.rows = rows
        self.seed = seed

    def count(self, epoch: int) -> int:
        return max(1, len(self.tokens) // (self.rows * self.window))

    def get(self, epoch: int, index: int) -> Batch:
        random = np.random.default_rng([self.seed, epoch, index])
        starts = random.integers(len(self.tokens) - self.window, size=self.rows)
        return windows_at(self.tokens, starts, self.window)

    def stats(self) -> Stats:
        return Stats(batches=self.count(0), shapes=1, real=1.0)


class Packed:
    carries = 0

    def __init__(self, texts: Encoded, *, tokens: int, window: int, seed: int | None, ahead: bool = False) -> None:
        """Batches of at most `tokens`. By default a window is a source: window - 1 tokens and <eos>. With `ahead` it is
        a target, with the token before it in front. With `seed` None nothing is shifted or shuffled."""
        self.stream, self.seed, self.ahead = Joined(texts), seed, ahead
        self.width = min(max(1, window - (not ahead)), len(self.stream))  # tokens of the stream in a window
        self.rows = max(1, tokens // window)
        self.windows = -(-len(self.stream) // self.width)
        self.starts = lru_cache(maxsize=1)(self._starts)

    def _starts(self, epoch: int) -> Integers:
        """Where each window starts, in the order in which they are read."""
        starts: Integers = np.arange(self.windows) * self.width
        if self.seed is None:
            return starts
        random = np.random.default_rng([self.seed, epoch])
        starts = random.permutation(starts) + random.integers(self.width)
        return starts

    def count(self, epoch: int) -> int:
        return -(-self.windows // self.rows)

    def get(self, epoch: int, index: int) -> Batch:
        starts = self.starts(epoch)[index * self.rows : (index + 1) * self.rows]
        if self.ahead:
            return windows_at(self.stream, starts - 1, self.width)
        ids = np.pad(self.stream[starts[:, None] + np.arange(self.width)], ((0, 0), (0, 1)), constant_values=EOS)
        return Batch(Padded.of_ids(torch.from_numpy(ids.astype(np.int64))))

    def stats(self) -> Stats:
        return Stats(batches=self.count(0), shapes=1, real=1.0)


def spans(predicted: int, longest: int, stride: int) -> Iterator[tuple[int, int, int]]:
    """Windows over a text of so many tokens to predict: where each begins to read, begins to count, and ends.

    Every token counts once, in the first window that reaches it, so that it has at least `longest - stride` tokens
    before it where the text has them.
    """
    counted = 0
    begin = 0
    while counted < predicted:
        end = min(predicted, begin + longest)
        yield begin, counted, end
        counted, begin = end, begin + stride

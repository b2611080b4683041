"""Encoded once, batched anew each epoch: the batches are a pure function of (seed, epoch).

A pair of lengths becomes a shape by counting <eos> and rounding up to a multiple. Examples are sorted by
shape, longest first, those of one shape in the epoch's own random order, and cut where a batch is full:

    rows = ⌊tokens / longer side⌋, rounded down to a multiple of 8 where it is more than 8

so that rows × padded length ≤ tokens, few shapes occur and little is padding. The batches then come in random
order. Only the last cut, of the shortest examples, may have fewer rows.
"""

from __future__ import annotations

import os
from array import array
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple, Protocol

import numpy as np
import torch
from numpy.lib import format as npy
from numpy.typing import NDArray
from torch import Tensor

from regard.interface import BOS, EOS, PAD, Batch, UserError

Integers = NDArray[Any]
MULTIPLE = 2  # lengths are rounded up to it
ROWS_MULTIPLE = 8


class Encoded:
    """Many sequences in one flat array, memory-mapped; sequence i is tokens[offsets[i] : offsets[i + 1]]."""

    def __init__(self, tokens: Integers, offsets: Integers) -> None:
        # plain views of the mapped files: slicing a np.memmap itself is slow
        self.tokens = np.asarray(tokens)
        self.offsets = np.asarray(offsets)
        self.lengths: Integers = np.diff(self.offsets)

    @classmethod
    def write(cls, folder: Path, name: str, sequences: Iterable[Sequence[int]]) -> Encoded:
        """Stream the sequences to disk."""
        with cls.writer(folder, name) as add:
            for sequence in sequences:
                add(sequence)
        return cls.open(folder, name)

    @classmethod
    @contextmanager
    def writer(cls, folder: Path, name: str) -> Iterator[Callable[..., None]]:
        """A function that adds a sequence, or with `continued=True` lengthens the latest. The offsets arrive last:
        where they are, the tokens are whole."""
        folder.mkdir(parents=True, exist_ok=True)
        tokens, offsets = _files(folder, name)
        unfinished = [path.with_name(f".{path.name}.{os.getpid()}") for path in (tokens, offsets)]
        ends = array("q", [0])
        try:
            with unfinished[0].open("wb") as file:
                _header(file, 0, np.int32)

                def add(sequence: Sequence[int], *, continued: bool = False) -> None:
                    file.write(np.asarray(sequence, dtype=np.int32).tobytes())
                    if not continued:
                        ends.append(ends[-1])
                    ends[-1] += len(sequence)

                yield add
                file.seek(0)
                _header(file, ends[-1], np.int32)  # as long as the first: the format leaves room for the count to grow
                _flush(file)
            with unfinished[1].open("wb") as file:
                _header(file, len(ends), np.int64)
                file.write(ends)
                _flush(file)
            offsets.unlink(missing_ok=True)
            unfinished[0].replace(tokens)
            unfinished[1].replace(offsets)
        finally:
            for path in unfinished:
                path.unlink(missing_ok=True)

    @classmethod
    def open(cls, folder: Path, name: str) -> Encoded:
        tokens, offsets = _files(folder, name)
        try:
            encoded = cls(np.load(tokens, mmap_mode="r"), np.load(offsets, mmap_mode="r"))
        except FileNotFoundError as error:
            raise UserError(f"{error.filename} does not exist; encode the text again.") from None
        except (ValueError, EOFError):
            raise UserError(f"{tokens} or {offsets.name} is damaged; delete both and encode the text again.") from None
        if encoded.offsets[-1] != len(encoded.tokens):
            raise UserError(f"{tokens} and {offsets.name} do not match; delete both and encode the text again.")
        return encoded

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Integers:
        if not 0 <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        sequence: Integers = self.tokens[self.offsets[index] : self.offsets[index + 1]]
        return sequence


def _files(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.tokens.npy", folder / f"{name}.offsets.npy"


def _flush(file: IO[bytes]) -> None:
    """To the disk, before the file takes its place."""
    file.flush()
    os.fsync(file.fileno())


def _header(file: IO[bytes], count: int, kind: type[np.integer[Any]]) -> None:
    descr = npy.dtype_to_descr(np.dtype(kind))
    npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": (count,)})


class Examples(Protocol):
    """What can be put together in batches; two lengths each, of the source and of the target."""

    def __len__(self) -> int: ...

    @property
    def lengths(self) -> tuple[Integers, Integers]: ...

    def collate(self, indices: Sequence[int] | Integers) -> Batch: ...


class Lines:
    """Texts of their own, for a language model; `most` is what it can read at once, padding included."""

    def __init__(self, texts: Encoded, *, most: int | None = None) -> None:
        self.texts = texts
        self.most = most

    def __len__(self) -> int:
        return len(self.texts)

    @property
    def lengths(self) -> tuple[Integers, Integers]:
        return self.texts.lengths, self.texts.lengths

    def collate(self, indices: Sequence[int] | Integers) -> Batch:
        rows = pad([self.texts[i] for i in indices], begin=True)  # (batch, time + 1)
        return Batch.of_text(rows if self.most is None else rows[:, : self.most + 1])


class Pairs:
    """Source and target side by side."""

    def __init__(self, source: Encoded, target: Encoded) -> None:
        if len(source) != len(target):
            raise UserError(f"the source has {len(source)} sequences but the target {len(target)}; encode both again.")
        self.source = source
        self.target = target

    def __len__(self) -> int:
        return len(self.source)

    @property
    def lengths(self) -> tuple[Integers, Integers]:
        return self.source.lengths, self.target.lengths

    def collate(self, indices: Sequence[int] | Integers, *, multiple: int = MULTIPLE) -> Batch:
        """These examples as one Batch, padded to the shape `plan` counted with."""
        source = [self.source[i] for i in indices]
        target = [self.target[i] for i in indices]
        return Batch(
            source=pad(source, multiple=multiple),  # (batch, source)
            target=pad(target, multiple=multiple, begin=True),  # (batch, target)
        )


SPELT = 16  # bytes of a word, at most; of a longer one the first and the last


def spelt(word: str) -> list[int]:
    """1 + each byte of a word, then 0."""
    letters = word.encode("utf-8", "surrogatepass")
    if len(letters) > SPELT:
        letters = letters[: SPELT // 2] + letters[-(SPELT // 2) :]
    return [1 + byte for byte in letters] + [0] * (SPELT - len(letters))


class Named:
    """Texts and their labels, one a text or one a word; with each word spelt out, where that is given."""

    def __init__(self, source: Encoded, target: Encoded, spelling: Encoded | None = None, *, per_word: bool) -> None:
        self.source, self.target, self.spelling = source, target, spelling
        self.per_word = per_word

    def __len__(self) -> int:
        return len(self.source)

    @property
    def lengths(self) -> tuple[Integers, Integers]:
        return self.source.lengths, self.source.lengths

    def collate(self, indices: Sequence[int] | Integers) -> Batch:
        source = pad([self.source[i] for i in indices])  # (batch, source)
        target = np.full((len(source), source.shape[1] if self.per_word else 1), PAD, np.int64)
        for row, i in zip(target, indices, strict=True):
            row[: len(self.target[i])] = self.target[i]
        letters = None
        if self.spelling is not None:
            letters = torch.zeros(*source.shape, SPELT, dtype=torch.long)
            for row, i in zip(letters, indices, strict=True):
                spelt_out = torch.from_numpy(self.spelling[i].astype(np.int64)).view(-1, SPELT)
                row[: len(spelt_out)] = spelt_out
        return Batch(source, torch.from_numpy(target), spelling=letters)


def pad(sequences: Sequence[Sequence[int] | Integers], *, multiple: int = MULTIPLE, begin: bool = False) -> Tensor:
    """Each sequence with <eos>, padded to a multiple; with `begin`, one more column in front holds <bos>.

    A decoder reads all but the last column and predicts all but the first: without <bos> the length is round.
    """
    front = int(begin)
    time = int(_rounded(max(len(sequence) for sequence in sequences), multiple))
    rows = np.full((len(sequences), front + time), PAD, dtype=np.int64)  # (batch, time)
    rows[:, :front] = BOS
    for row, sequence in zip(rows, sequences, strict=True):
        end = front + len(sequence)
        row[front:end] = sequence
        row[end] = EOS
    return torch.from_numpy(rows)


def _rounded(lengths: Any, multiple: int) -> Any:
    """Lengths with <eos>, rounded up."""
    return (lengths + multiple) // multiple * multiple


def _cut(order: Integers, longest: Integers, tokens: int) -> Iterator[Integers]:
    """Cut a list of examples that begins with the longest; `longest` is each one's longer rounded side."""
    start = 0
    while start < len(order):
        rows = max(tokens // int(longest[order[start]]), 1)
        if rows > ROWS_MULTIPLE:
            rows -= rows % ROWS_MULTIPLE
        yield order[start : start + rows]
        start += rows


def _sorted_by_shape(source: Integers, target: Integers, longest: Integers, ties: Integers) -> Integers:
    """`ties` reordered: longest first, then by target and by source, equals left as they were."""
    keys = (-source[ties], -target[ties], -longest[ties])  # the last is the first to sort by
    order: Integers = ties[np.lexsort(keys)]
    return order


def _batches(source: Integers, target: Integers, ties: Integers, tokens: int, multiple: int) -> list[Integers]:
    source, target = _rounded(np.asarray(source), multiple), _rounded(np.asarray(target), multiple)
    longest = np.maximum(source, target)
    return list(_cut(_sorted_by_shape(source, target, longest, ties), longest, tokens))


def plan(
    source_lengths: Integers,
    target_lengths: Integers,
    *,
    tokens: int,
    seed: int,
    epoch: int,
    multiple: int = MULTIPLE,
) -> list[Integers]:
    """The indices of each batch of this epoch: every example once, at most `tokens` a side with padding.

    An example longer than that is a batch of its own.
    """
    random = np.random.default_rng(np.random.SeedSequence([seed, epoch]))
    ties = random.permutation(len(source_lengths))
    batches = _batches(source_lengths, target_lengths, ties, tokens, multiple)
    return [batches[i] for i in random.permutation(len(batches))]


def validation_plan(
    source_lengths: Integers, target_lengths: Integers, *, tokens: int, multiple: int = MULTIPLE
) -> list[Integers]:
    """The same cut, nothing shuffled: longest first, so that what does not fit in memory fails at once."""
    return _batches(source_lengths, target_lengths, np.arange(len(source_lengths)), tokens, multiple)


class Shuffled:
    """Training batches: which examples meet is a function of (seed, epoch, index)."""

    carries = 0

    def __init__(self, examples: Examples, *, tokens: int, seed: int) -> None:
        self.examples = examples
        self.tokens = tokens
        self.seed = seed
        self.plan = lru_cache(maxsize=1)(self._plan)

    def _plan(self, epoch: int) -> list[Integers]:
        return plan(*self.examples.lengths, tokens=self.tokens, seed=self.seed, epoch=epoch)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> Batch:
        return self.examples.collate(self.plan(epoch)[index])

    def stats(self) -> Stats:
        return stats(self.plan(0), *self.examples.lengths)


class Stats(NamedTuple):
    """How well a plan fills its batches."""

    batches: int
    shapes: int  # distinct (rows, source, target)
    real: float  # share of positions, both sides, that are not padding


def stats(
    batches: Sequence[Integers],
    source_lengths: Integers,
    target_lengths: Integers,
    *,
    multiple: int = MULTIPLE,
) -> Stats:
    real, padded, shapes = 0, 0, set()
    for batch in batches:
        source, target = source_lengths[batch], target_lengths[batch]  # (batch,)
        shape = len(batch), int(_rounded(source.max(), multiple)), int(_rounded(target.max(), multiple))
        real += int(source.sum()) + int(target.sum()) + 2 * len(batch)  # each side ends in <eos>
        padded += shape[0] * (shape[1] + shape[2])
        shapes.add(shape)
    return Stats(batches=len(batches), shapes=len(shapes), real=real / max(padded, 1))

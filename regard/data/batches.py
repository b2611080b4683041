"""Examples are encoded once and batched again in each epoch: batches are a pure function of (seed, epoch).

A pair of lengths becomes a shape by counting <eos> and rounding up to a multiple. Examples are sorted by
shape, longest first, those of one shape in the epoch's own random order, and cut where a batch is full:

    rows = ⌊tokens / longer side⌋, rounded down to a multiple of 8 where it is more than 8

so that rows × padded length ≤ tokens, few shapes occur and little is padding. The batches then come in random
order. Only the last cut, of the shortest examples, may have fewer rows.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from regard.data.fields import MULTIPLE, Fields, rounded
from regard.data.files import flush_file, make_folder, new_file, own_file, reason, unfinished
from regard.interface import Batch, Padded, UserError

Integers = NDArray[Any]
ROWS_MULTIPLE = 8


class Encoded:
    """Many sequences in one flat array, memory-mapped; sequence i is tokens[offsets[i] : offsets[i + 1]]."""

    def __init__(self, tokens: Integers, offsets: Integers) -> None:
        # plain views of the mapped files: slicing a np.memmap itself is slow
        self.tokens: Any = np.asarray(tokens)
        self.offsets = np.asarray(offsets)
        lengths = np.diff(self.offsets)
        # lengths of a large corpus, and what is sorted by them, take most of the memory
        small = lengths.size and lengths.min() >= -1 << 31 and lengths.max() < 1 << 31
        self.lengths: Integers = lengths.astype(np.int32) if small else lengths

    @classmethod
    @contextmanager
    def writer(cls, folder: Path, name: str, dtype: Any = np.int32) -> Iterator[Callable[..., None]]:
        """A function that adds a sequence, or with `continued=True` lengthens the latest, if there is one. The
        offsets arrive last: where they are, the tokens are whole."""
        make_folder(folder)
        tokens, offsets = _files(folder, name)
        halves = [unfinished(path) for path in (tokens, offsets)]
        ends = array("q", [0])
        try:
            with new_file(halves[0]) as file:
                _header(file, 0, dtype)

                def add(sequence: Sequence[int], *, continued: bool = False) -> None:
                    file.write(np.asarray(sequence, dtype=dtype).tobytes())
                    if not continued or len(ends) == 1:
                        ends.append(ends[-1])
                    ends[-1] += len(sequence)

                yield add
                file.seek(0)
                _header(file, ends[-1], dtype)  # as long as the first: the format leaves room for the count to grow
                flush_file(file)
            with new_file(halves[1]) as file:
                _header(file, len(ends), np.int64)
                file.write(ends)
                flush_file(file)
            offsets.unlink(missing_ok=True)
            halves[0].replace(tokens)
            halves[1].replace(offsets)
        finally:
            for path in halves:
                path.unlink(missing_ok=True)

    @classmethod
    def open(cls, folder: Path, name: str) -> Encoded:
        tokens, offsets = _files(folder, name)
        try:
            both = [np.load(own_file(path), mmap_mode="r") for path in (tokens, offsets)]
            if any(
                one.offset + one.nbytes != path.stat().st_size
                for one, path in zip(both, (tokens, offsets), strict=True)
            ):
                raise ValueError("it has another size than its header says")
            encoded = cls(*both)
        except FileNotFoundError as error:
            raise UserError(f"{error.filename} does not exist; encode the text again.") from None
        except (ValueError, TypeError, EOFError, OSError) as problem:
            raise UserError(
                f"{tokens} or {offsets.name} is damaged ({reason(problem)}); delete both and encode the text again."
            ) from None
        if not encoded.consistent:
            raise UserError(f"{tokens} and {offsets.name} do not match; delete both and encode the text again.")
        return encoded

    @property
    def consistent(self) -> bool:
        """Whether the offsets cut all of the tokens into sequences."""
        flat = all(
            each.ndim == 1 and each.dtype.kind in kinds for each, kinds in ((self.tokens, "iuf"), (self.offsets, "iu"))
        )
        if not flat or not len(self.offsets) or self.lengths.min(initial=0) < 0:
            return False
        return bool(self.offsets[0] == 0 and self.offsets[-1] == len(self.tokens))

    @property
    def parts(self) -> tuple[Encoded, ...]:
        """The files that they are in."""
        return (self,)

    def __len__(self) -> int:
        return len(self.lengths)

    def __getitem__(self, index: int) -> Integers:
        if not 0 <= index < len(self):
            raise IndexError(f"sequence {index} of {len(self)}")
        sequence: Integers = self.tokens[self.offsets[index] : self.offsets[index + 1]]
        return sequence


def _files(folder: Path, name: str) -> tuple[Path, Path]:
    return folder / f"{name}.tokens.npy", folder / f"{name}.offsets.npy"


def _header(file: IO[bytes], count: int, kind: Any) -> None:
    descr = npy.dtype_to_descr(np.dtype(kind))
    npy.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": (count,)})


class Examples:
    """Encoded examples, side by side, that can be put together in batches. `most`: longest target."""

    def __init__(self, fields: Fields, encoded: Mapping[str, Encoded], *, most: int | None = None) -> None:
        self.fields, self.encoded, self.most = fields, encoded, most
        counts = {side: len(each) for side, each in encoded.items()}
        if len(set(counts.values())) > 1:
            raise UserError(f"The sides have different numbers of examples ({counts}): encode them again.")

    def __len__(self) -> int:
        return len(next(iter(self.encoded.values())))

    @property
    def lengths(self) -> tuple[Integers, Integers]:
        """Lengths of what is read and of the target, in positions."""
        first = next(iter(self.encoded))
        sides = (first, "target" if "target" in self.encoded else first)
        widths = (self.fields[side].width for side in sides)
        read, written = (
            self.encoded[side].lengths // width if width > 1 else self.encoded[side].lengths
            for side, width in zip(sides, widths, strict=True)
        )
        return read, written

    def collate(self, indices: Sequence[int] | Integers) -> Batch:
        """These examples as one Batch, padded to the shape `plan` counted with."""
        arrays = {side: [each[i] for i in indices] for side, each in self.encoded.items()}
        batch = self.fields.batch(arrays)
        if self.most is None or batch.target is None:
            return batch
        few = slice(self.most + 1)
        return replace(batch, target=Padded(batch.target.values[:, few], batch.target.mask[:, few]))


def _batches(source: Integers, target: Integers, ties: Integers, tokens: int, multiple: int) -> list[Integers]:
    """Examples of these lengths, sorted by shape and cut: longest first, then by target and by source, those of one
    shape as `ties` has them. Where all sources have one length, as pictures have, targets of all lengths meet in a
    batch: one with captions of a single length would teach that length."""
    source, target = rounded(np.asarray(source), multiple), rounded(np.asarray(target), multiple)
    longest = np.maximum(source, target)
    if len(source) and source.min() == source.max():
        target = longest
    order = ties[np.lexsort((-source[ties], -target[ties], -longest[ties]))]  # the last key is the first to sort by
    batches = []
    while len(order):
        rows = max(tokens // int(longest[order[0]]), 1)
        if rows > ROWS_MULTIPLE:
            rows -= rows % ROWS_MULTIPLE
        batches.append(order[:rows])
        order = order[rows:]
    return batches


def plan(
    source: Integers, target: Integers, *, tokens: int, seed: int, epoch: int, multiple: int = MULTIPLE
) -> list[Integers]:
    """The indices of each batch of this epoch, of examples with these lengths: every example once, at most `tokens` per
    side with padding. A longer example is a batch by itself."""
    random = np.random.default_rng(np.random.SeedSequence([seed, epoch]))
    return batches_of(source, target, tokens=tokens, random=random, multiple=multiple)


def batches_of(
    source: Integers, target: Integers, *, tokens: int, random: np.random.Generator, multiple: int = MULTIPLE
) -> list[Integers]:
    """The indices of each batch, in random order."""
    batches = _batches(source, target, random.permutation(len(source)), tokens, multiple)
    return [batches[i] for i in random.permutation(len(batches))]


def validation_plan(source: Integers, target: Integers, *, tokens: int, multiple: int = MULTIPLE) -> list[Integers]:
    """The same cut, nothing shuffled: longest first, so that what does not fit in memory fails early."""
    return _batches(source, target, np.arange(len(source)), tokens, multiple)


class Shuffled:
    """Training batches: which examples meet is a function of (seed, epoch, index)."""

    carries = 0

    def __init__(self, examples: Examples, *, tokens: int, seed: int) -> None:
        self.examples = examples
        self.plan = lru_cache(maxsize=1)(lambda epoch: plan(*examples.lengths, tokens=tokens, seed=seed, epoch=epoch))

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> Batch:
        return self.examples.collate(self.plan(epoch)[index])

    def stats(self) -> Stats:
        return stats(self.plan(0), *self.examples.lengths)


class Ordered(Shuffled):
    """Validation batches: the same in every epoch, longest first."""

    def __init__(self, examples: Examples, *, tokens: int) -> None:
        self.examples = examples
        self.plan = lru_cache(maxsize=1)(lambda epoch: validation_plan(*examples.lengths, tokens=tokens))


class Stats(NamedTuple):
    """How well a plan fills its batches."""

    batches: int
    shapes: int  # distinct (rows, source, target)
    real: float  # share of positions, both sides, that are not padding


def stats(batches: Sequence[Integers], source_lengths: Integers, target_lengths: Integers) -> Stats:
    real, padded, shapes = 0, 0, set()
    for batch in batches:
        source, target = source_lengths[batch], target_lengths[batch]  # (batch,)
        shape = len(batch), int(rounded(source.max())), int(rounded(target.max()))
        real += int(source.sum()) + int(target.sum()) + 2 * len(batch)  # each side ends in <eos>
        padded += shape[0] * (shape[1] + shape[2])
        shapes.add(shape)
    return Stats(batches=len(batches), shapes=len(shapes), real=real / max(padded, 1))

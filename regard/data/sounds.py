"""Recordings as numbers: their field.

On disk a recording is the log energies of its frames as they are, in half precision; they are standardised when a batch
is made. Computing them takes about 2 ms for a second of sound, less than it takes to read a picture, so nothing is kept
between attempts: an interrupted preparation starts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.data.fields import MULTIPLE, Array, Field, rounded
from regard.data.frames import Samples, hop_of, log_mel
from regard.data.recordings import RATE, Recording, recording_of
from regard.interface import Frames, Padded, UserError

BANDS = 40  # of a model whose data does not say
LEAST_SPREAD = 1e-3  # of a band that differs; one that does not is divided by 1
LOWEST_RATE, HIGHEST_RATE = 4000, 48_000
FEWEST_BANDS, MOST_BANDS = 8, 100


class SoundField(Field):
    """A recording as frames, standardised by the mean and the spread of each band over the training recordings."""

    kind = "sound"
    dtype = np.float16

    def __init__(self, rate: int, bands: int, mean: Sequence[float] | float, spread: Sequence[float] | float) -> None:
        self.rate, self.bands = rate, bands
        self.width = bands
        self.mean, self.spread = (np.broadcast_to(np.asarray(each, np.float32), bands) for each in (mean, spread))

    @classmethod
    def train(cls, raws: Iterable[Any]) -> SoundField:
        rate, bands, count = 0, 0, 0
        sums = np.zeros((2, 1))
        for raw in raws:
            if not count:
                rate, bands = asked_of(raw)
                sums = np.zeros((2, bands))
            frames = frames_of(raw, rate, bands).astype(np.float64)
            sums += frames.sum(0), np.square(frames).sum(0)
            count += len(frames)
        if not count:
            raise UserError("There are no recordings to learn from: give at least one.")
        mean, square = sums / count
        spread = np.sqrt(np.maximum(0, square - mean**2))
        return cls(rate, bands, mean.tolist(), np.where(spread < LEAST_SPREAD, 1.0, spread).tolist())

    @property
    def shape(self) -> Frames:
        return Frames(self.bands)

    def frames(self, raw: Any) -> Samples:
        """The log energies of a recording, (frames, bands), not standardised."""
        return frames_of(raw, self.rate, self.bands)

    def encode(self, raws: Sequence[Any], *, continued: bool = False) -> list[Array]:
        return [self.frames(raw).astype(self.dtype).reshape(-1) for raw in raws]

    def is_one(self, raw: Any) -> bool:
        return isinstance(raw, str | Path | Recording | np.ndarray | torch.Tensor)

    def pad(self, arrays: Sequence[Any], *, multiple: int = MULTIPLE) -> Padded:
        """(batch, time, bands), standardised; 0 at padding."""
        lengths = [len(array) // self.bands for array in arrays]
        time = int(rounded(max(lengths, default=0), multiple))
        values = np.zeros((len(arrays), time, self.bands), np.float32)
        mask = np.zeros((len(arrays), time), np.bool_)
        for row, real, array, length in zip(values, mask, arrays, lengths, strict=True):
            frames = np.asarray(array, np.float32).reshape(length, self.bands)
            row[:length] = (frames - self.mean) / self.spread
            real[:length] = True
        return Padded(torch.from_numpy(values), torch.from_numpy(mask))

    def to_json(self) -> dict[str, Any]:
        both = {"mean": self.mean.tolist(), "spread": self.spread.tolist()}
        return {"rate": self.rate, "bands": self.bands, **both}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> SoundField:
        rate, bands = saved.get("rate"), saved.get("bands")
        if type(rate) is not int or type(bands) is not int:
            raise ValueError("its recordings have no rate and bands")
        check_frames(rate, bands)
        both: list[Any] = [saved.get("mean"), saved.get("spread")]
        for each in both:
            if not (isinstance(each, list) and len(each) == bands):
                raise ValueError("its mean or spread is not one number for each band")
            if not all(type(number) in (int, float) and np.isfinite(np.float32(number)) for number in each):
                raise ValueError("its mean or spread is not a number")
        if min(both[1]) < LEAST_SPREAD:
            raise ValueError("its spread is not above 0")
        return cls(rate, bands, *both)


def check_frames(rate: int, bands: int) -> None:
    """Refuse a rate or a number of bands that no model has."""
    if not LOWEST_RATE <= rate <= HIGHEST_RATE:
        raise ValueError(f"rate = {rate} must be at least {LOWEST_RATE} and at most {HIGHEST_RATE}.")
    hop_of(rate)
    if not FEWEST_BANDS <= bands <= MOST_BANDS:
        raise ValueError(f"bands = {bands} must be at least {FEWEST_BANDS} and at most {MOST_BANDS}.")


def asked_of(raw: Any) -> tuple[int, int]:
    """The rate and the number of bands that a training recording asks for."""
    asked = raw if isinstance(raw, Recording) else Recording()
    return asked.rate or RATE, asked.bands or BANDS


def frames_of(raw: Any, rate: int, bands: int) -> Samples:
    return log_mel(recording_of(raw, rate).samples(rate), rate, bands)

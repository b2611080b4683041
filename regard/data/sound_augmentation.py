"""Data augmentation of recordings: training frames change, in another way in each epoch; validation ones never do.

speed   the tempo changes by at most this share: frames are interpolated along time
noise   ln(exp x + exp n): n is stationary, with the recording's mean spectrum, and has at most this share of its energy
mask    two stretches of bands and two of time are hidden, set to the mean (SpecAugment, Park 2019, section 2)

What is done is a function of (seed, epoch, index), and to a recording of its place in the batch and its own frames
alone. Frames are standardised: 0 is the mean of the training recordings, 1 their spread.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from regard.data.augmentation import Augmented
from regard.data.corruption import Batches
from regard.data.fields import rounded
from regard.data.sounds import SoundField
from regard.interface import Padded

MASKS = 2  # along frequency, and as many along time
BANDS_HIDDEN = 1 / 5  # most of the bands that one hides
TIME_HIDDEN = 1 / 20  # most of a recording's length that one hides
FRAMES_HIDDEN = 40  # and most frames
FLICKER = 0.3  # the spread of the noise's log energies around its mean spectrum


@dataclass(frozen=True)
class SoundAugmentation:
    """How recordings are changed, (frames, bands) each. `mean` and `spread` are the field's, (bands,)."""

    mask: bool = False
    speed: float = 0.0  # share
    noise: float = 0.0  # share
    mean: Tensor | None = None
    spread: Tensor | None = None

    def __bool__(self) -> bool:
        return self.mask or self.speed > 0 or self.noise > 0

    def __call__(self, side: Padded, random: np.random.Generator) -> Padded:
        rows = [
            self.changed(values[: int(length)], each)
            for values, length, each in zip(side.values, side.lengths, random.spawn(len(side.values)), strict=True)
        ]
        time = int(rounded(max(map(len, rows)))) if self.speed else side.values.shape[1]
        values = side.values.new_zeros(len(rows), time, side.values.shape[2])
        mask = side.mask.new_zeros(len(rows), time)
        for row, frames in enumerate(rows):
            values[row, : len(frames)] = frames
            mask[row, : len(frames)] = True
        return Padded(values, mask)

    def changed(self, frames: Tensor, random: np.random.Generator) -> Tensor:
        if self.speed:
            frames = at_tempo(frames, 1 + random.uniform(-self.speed, self.speed))
        if self.noise:
            assert self.mean is not None and self.spread is not None
            level = random.uniform(0, self.noise)
            flicker = torch.from_numpy(random.normal(0, FLICKER, frames.shape)).float()
            energies = with_noise(frames * self.spread + self.mean, level, flicker)
            frames = (energies - self.mean) / self.spread
        return masked(frames, random) if self.mask else frames


def at_tempo(frames: Tensor, tempo: float) -> Tensor:
    """Play frames at this tempo: 2 gives half as many."""
    count = max(1, round(len(frames) / tempo))
    places = torch.linspace(0, len(frames) - 1, count)
    before = places.long()
    after = (before + 1).clamp(max=len(frames) - 1)
    return torch.lerp(frames[before], frames[after], (places - before)[:, None])


def with_noise(energies: Tensor, level: float, flicker: Tensor) -> Tensor:
    """Add noise to log energies: this share of the mean energy of each band, flickering by so much."""
    if not level:
        return energies
    noise = torch.logsumexp(energies, 0) - np.log(len(energies)) + np.log(level)  # (bands,)
    return torch.logaddexp(energies, noise + flicker)


def masked(frames: Tensor, random: np.random.Generator) -> Tensor:
    """Hide stretches of time and of bands."""
    frames = frames.clone()
    length, bands = frames.shape
    most = min(FRAMES_HIDDEN, int(length * TIME_HIDDEN))
    for axis, size, widest in ((0, length, most), (1, bands, int(bands * BANDS_HIDDEN))):
        for _ in range(MASKS):
            width = int(random.integers(0, widest + 1))
            first = int(random.integers(0, size - width + 1))
            frames.narrow(axis, first, width).zero_()
    return frames


def augmented_sounds(sounds: Batches, how: SoundAugmentation, field: SoundField, seed: int) -> Batches:
    """Training batches with these changes; the batches themselves where there are none."""
    mean, spread = (torch.from_numpy(np.array(each)) for each in (field.mean, field.spread))
    known = SoundAugmentation(how.mask, how.speed, how.noise, mean, spread)
    return Augmented(sounds, known, seed=seed) if how else sounds

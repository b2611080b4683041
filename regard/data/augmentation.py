"""Data augmentation: training pictures are changed a little, in another way in each epoch; validation ones never are.

flip     half of the pictures are mirrored, left to right
crop     each is padded by so many pixels of the mean colour, and its size is cut out anywhere (He 2016, section 4.2)
colour   x ← c (x − m) + m + b   m the picture's mean, c = 1 ± share (contrast), b = ± share of the spread (brightness)

What is done is a function of (seed, epoch, index), so that a training that was interrupted continues with the same.
Pictures are standardised: 0 is the mean of the training pictures, 1 their spread.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor, nn

from regard.config import UserError
from regard.data.batches import Stats
from regard.data.corruption import Batches
from regard.interface import Batch, Padded


@dataclass(frozen=True)
class Augmentation:
    flip: bool = False
    crop: int = 0  # pixels
    colour: float = 0.0  # share

    def __bool__(self) -> bool:
        return self.flip or self.crop > 0 or self.colour > 0

    def __call__(self, pictures: Tensor, random: np.random.Generator) -> Tensor:
        """Change pictures (batch, height, width, channels)."""
        count = len(pictures)
        if self.flip:
            pictures = flipped(pictures, torch.from_numpy(random.random(count) < 0.5))
        if self.crop:
            places = torch.from_numpy(random.integers(0, 2 * self.crop + 1, (2, count)))
            pictures = cropped(pictures, places[0], places[1], self.crop)
        if self.colour:
            contrast, brightness = torch.from_numpy(random.uniform(-self.colour, self.colour, (2, count))).float()
            pictures = recoloured(pictures, 1 + contrast, brightness)
        return pictures


def flipped(pictures: Tensor, which: Tensor) -> Tensor:
    """Mirror some of the pictures, left to right."""
    return torch.where(which[:, None, None, None], pictures.flip(2), pictures)


def cropped(pictures: Tensor, top: Tensor, left: Tensor, pixels: int) -> Tensor:
    """Pad pictures by so many pixels on each side, and cut each out at its own place; `pixels` is where it was."""
    batch, height, width, _ = pictures.shape
    wide = nn.functional.pad(pictures, (0, 0, pixels, pixels, pixels, pixels))
    rows, columns = top[:, None] + torch.arange(height), left[:, None] + torch.arange(width)  # (batch, height), …
    return wide[torch.arange(batch)[:, None, None], rows[:, :, None], columns[:, None, :]]


def recoloured(pictures: Tensor, contrast: Tensor, brightness: Tensor) -> Tensor:
    mean = pictures.mean((1, 2, 3), keepdim=True)
    return contrast[:, None, None, None] * (pictures - mean) + mean + brightness[:, None, None, None]


class Augmented:
    """Batches whose source is changed: `how` is given it, and random numbers."""

    carries = 0

    def __init__(self, batches: Batches, how: Callable[[Padded, np.random.Generator], Padded], *, seed: int) -> None:
        self.batches, self.how, self.seed = batches, how, seed

    def count(self, epoch: int) -> int:
        return self.batches.count(epoch)

    def get(self, epoch: int, index: int) -> Batch:
        batch = self.batches.get(epoch, index)
        assert batch.source is not None
        return replace(batch, source=self.how(batch.source, np.random.default_rng([self.seed, epoch, index])))

    def stats(self) -> Stats:
        return self.batches.stats()


def augmented(pictures: Batches, how: Augmentation, size: tuple[int, int, int], seed: int) -> Batches:
    """Training batches with these changes; the batches themselves where there are none."""
    height, width, channels = size
    if how.crop >= min(height, width):
        raise UserError(
            f"data.crop = {how.crop} would move a picture of {height} x {width} pixels out of sight: make it smaller."
        )

    def change(side: Padded, random: np.random.Generator) -> Padded:
        pixels = side.values  # (batch, height, width · channels)
        changed = how(pixels.view(*pixels.shape[:2], -1, channels), random)
        return Padded(changed.reshape(pixels.shape), side.mask)

    return Augmented(pictures, change, seed=seed) if how else pictures

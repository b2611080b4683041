"""Data augmentation: training pictures are changed a little, in another way in each epoch; validation ones never are.

flip     half of the pictures are mirrored, left to right
crop     each is padded by so many pixels of the mean colour, and its size is cut out anywhere (He 2016, section 4.2)
colour   x ← c (x − m) + m + b   m the picture's mean, c = 1 ± share (contrast), b = ± share of the spread (brightness)

What is done is a function of (seed, epoch, index), so that a training that was interrupted continues with the same.
Pictures are standardised: 0 is the mean of the training pictures, 1 their spread.
"""

from __future__ import annotations

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
    """Batches of pictures that are changed."""

    carries = 0

    def __init__(self, pictures: Batches, how: Augmentation, *, channels: int, seed: int) -> None:
        self.pictures, self.how, self.channels, self.seed = pictures, how, channels, seed

    def count(self, epoch: int) -> int:
        return self.pictures.count(epoch)

    def get(self, epoch: int, index: int) -> Batch:
        batch = self.pictures.get(epoch, index)
        assert batch.source is not None
        values = batch.source.values  # (batch, height, width · channels)
        pictures = values.view(*values.shape[:2], -1, self.channels)
        changed = self.how(pictures, np.random.default_rng([self.seed, epoch, index]))
        return replace(batch, source=Padded(changed.reshape(values.shape), batch.source.mask))

    def stats(self) -> Stats:
        return self.pictures.stats()


def augmented(pictures: Batches, how: Augmentation, size: tuple[int, int, int], seed: int) -> Batches:
    """Training batches with these changes; the batches themselves where there are none."""
    height, width, channels = size
    if how.crop >= min(height, width):
        raise UserError(
            f"data.crop = {how.crop} would move a picture of {height} x {width} pixels out of sight: make it smaller."
        )
    return Augmented(pictures, how, channels=channels, seed=seed) if how else pictures

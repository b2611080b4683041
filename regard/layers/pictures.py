"""Encoders of pictures: a picture becomes one state for each place of a grid, row by row.

patches       xᵢ E, xᵢ the P × P pixels of patch i: a convolution of width and stride P       Dosovitskiy 2021, 3.1
positions     sinusoidal-2d: p(r, c) = [p(r); p(c)], half of the width for the row, half for the column
              learned ones fit another grid by bilinear interpolation                         Dosovitskiy 2021, 3.2
convolution   x ← x + W₂ ∗ relu(norm(W₁ ∗ relu(norm x))), W₁ and W₂ 3 × 3                     He 2016b, section 4
              norm: each group of channels by its own mean and variance in the picture        Wu & He 2018
"""

from __future__ import annotations

from collections.abc import Callable
from math import gcd, isqrt
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.interface import Padded, Picture, Shape
from regard.layers.attention import Linear
from regard.layers.encoders import Encoded, TransformerEncoder
from regard.layers.positions import PositionName, Positions, Sinusoidal
from regard.layers.transformer import Stack

Grid = tuple[int, int]  # rows and columns of places
PatchPositionName = Literal[PositionName, "sinusoidal-2d"]
GROUPS = 8  # of channels, in group normalisation
TABLE = "stack.positions.table.weight"  # the learned positions of a PatchEncoder, by its path in it


class GridPositions(Positions):
    """Sinusoidal codes of row and column, side by side. What is read before the grid has no position."""

    def __init__(self, *, dim: int, columns: int, lead: int = 0) -> None:
        super().__init__()
        self.columns, self.lead = columns, lead
        self.row, self.column = Sinusoidal(dim=dim - dim // 2), Sinusoidal(dim=dim // 2)

    def add(self, x: Tensor, places: Tensor) -> Tensor:
        own = places[..., self.lead :] - self.lead  # (places,)
        rows, columns = self.row.codes(own // self.columns, x), self.column.codes(own % self.columns, x)
        return x + functional.pad(torch.cat([rows, columns], -1), (0, 0, self.lead, 0)).to(x.dtype)


class PatchEncoder(TransformerEncoder):
    """Cuts a picture into patches and encodes them as a sequence; `grid` counts the rows and columns of patches."""

    def __init__(self, *, shape: Picture, patch: int, stack: Stack, first: nn.Parameter | None = None) -> None:
        embed = Linear(patch * patch * shape.channels, stack.dim)
        super().__init__(embed=embed, stack=stack, first=first)
        self.channels, self.patch = shape.channels, patch
        self.grid = (shape.height // patch, shape.width // patch)

    def forward(self, source: Padded, *beside: Tensor) -> Encoded:
        """Encode source (batch, height, width · channels) as one state per patch."""
        (down, across), side = self.grid, self.patch
        pixels = source.values.view(-1, down, side, across, side, self.channels)
        patches = pixels.transpose(2, 3).reshape(len(pixels), down * across, -1)  # (batch, patches, patch² · channels)
        return super().forward(Padded(patches, torch.ones_like(patches[..., 0], dtype=torch.bool)), *beside)


class Pixels(nn.Module):
    """(batch, height, width · channels) -> (batch, height · width, channels): one place for each pixel."""

    __call__: Callable[..., Tensor]

    def __init__(self, shape: Picture) -> None:
        super().__init__()
        self.shape = shape

    def forward(self, values: Tensor) -> Tensor:
        return values.view(len(values), self.shape.height * self.shape.width, self.shape.channels)


class ResidualBlock(nn.Module):
    """x + W₂ ∗ relu(norm(W₁ ∗ relu(norm x))). Where the size changes, a 1 × 1 convolution takes x along. Dropout is of
    whole channels between the two convolutions: neighbouring places know one another's values (Tompson 2015)."""

    def __init__(self, *, inputs: int, outputs: int, stride: int = 1, dropout: float = 0.0) -> None:
        super().__init__()
        self.first_norm, self.first = group_norm(inputs), convolution(inputs, outputs, 3, stride)
        self.second_norm, self.second = group_norm(outputs), convolution(outputs, outputs, 3)
        self.around = convolution(inputs, outputs, 1, stride) if inputs != outputs or stride > 1 else None
        self.dropout = nn.Dropout2d(dropout)

    def forward(self, x: Tensor) -> Tensor:
        """x (batch, inputs, rows, columns) -> (batch, outputs, ⌈rows / stride⌉, ⌈columns / stride⌉)."""
        read = torch.relu(self.first_norm(x))
        made: Tensor = self.second(self.dropout(torch.relu(self.second_norm(self.first(read)))))
        return made + (x if self.around is None else self.around(read))


def convolution(inputs: int, outputs: int, width: int, stride: int = 1) -> nn.Conv2d:
    """Build a convolution with He initialisation (He 2015); the norm that follows it has the bias."""
    made = nn.Conv2d(inputs, outputs, width, stride, padding=width // 2, bias=False)
    nn.init.kaiming_normal_(made.weight, nonlinearity="relu")
    return made


def group_norm(channels: int) -> nn.GroupNorm:
    return nn.GroupNorm(gcd(GROUPS, channels), channels)


class ResidualEncoder(nn.Module):
    """Stages of residual blocks; each stage halves height and width, and each but the first doubles the channels. `dim`
    is the width of a state, and `grid` counts the rows and columns of the last map. With `located`, each state knows
    its place: convolutions alone see what is there, hardly where."""

    def __init__(
        self, *, shape: Picture, width: int, stages: int, blocks: int, dropout: float = 0.0, located: bool = False
    ) -> None:
        super().__init__()
        self.shape, self.dim = shape, width * 2 ** (stages - 1)
        self.grid = (-(-shape.height // 2**stages), -(-shape.width // 2**stages))
        self.embed = Pixels(shape)
        self.enter = convolution(shape.channels, width, 3, stride=2)
        widths = [width * 2**stage for stage in range(stages) for _ in range(blocks)]
        self.blocks = nn.ModuleList(
            ResidualBlock(inputs=inputs, outputs=outputs, stride=1 if inputs == outputs else 2, dropout=dropout)
            for inputs, outputs in zip([width, *widths], widths, strict=False)
        )
        self.norm = group_norm(self.dim)
        self.positions = GridPositions(dim=self.dim, columns=self.grid[1]) if located else None

    def forward(self, source: Padded, *beside: Tensor) -> Encoded:
        """Encode source (batch, height, width · channels) as one state per place, (batch, rows · columns, dim)."""
        pixels = self.embed(source.values).view(-1, self.shape.height, self.shape.width, self.shape.channels)
        x = self.enter(pixels.permute(0, 3, 1, 2))  # (batch, width, ⌈height / 2⌉, ⌈width / 2⌉)
        x = x.contiguous(memory_format=torch.channels_last)  # a quarter faster on a CPU
        for block in self.blocks:
            x = block(x)
        states = torch.relu(self.norm(x)).flatten(2).transpose(1, 2).contiguous()  # decoders read it at every step
        if self.positions is not None:
            states = self.positions.add(states, torch.arange(states.shape[1], device=states.device))
        return Encoded(states, torch.ones_like(states[..., 0], dtype=torch.bool), (), states)


def interpolated(table: Tensor, old: Grid, new: Grid) -> Tensor:
    """Interpolate the vectors of an old grid's places, (rows · columns, dim), for those of a new grid."""
    if old == new:
        return table
    places = table.T.reshape(1, -1, *old)  # (1, dim, rows, columns)
    return functional.interpolate(places, size=new, mode="bilinear", align_corners=False).flatten(2)[0].T.contiguous()


def grid_of(picture: Picture, patches: int) -> Grid | None:
    """Return the grid of so many square patches; None if the picture cannot be cut into them."""
    side = isqrt(picture.height * picture.width // max(1, patches))
    rows, columns = picture.height // max(1, side), picture.width // max(1, side)
    return (rows, columns) if (rows * side, columns * side) == (picture.height, picture.width) else None


def refitted(model: nn.Module, name: str, weight: Tensor, source: Shape | None) -> Tensor:
    """Interpolate learned positions, of a model that read pictures of the shape `source`, for the grid of this model's
    encoder. Any other weight is returned as it is."""
    for path, part in model.named_modules():
        if not isinstance(part, PatchEncoder) or name != f"{path}.{TABLE}" or not isinstance(source, Picture):
            continue
        old = grid_of(source, len(weight) - part.extra)
        if old is not None and old[0] * old[1] == len(weight) - part.extra:
            return torch.cat([weight[: part.extra], interpolated(weight[part.extra :], old, part.grid)])
    return weight

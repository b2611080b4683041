"""Encoders of pictures: a picture becomes one state for each place of a grid, row by row.

patches       xᵢ E, xᵢ the P × P pixels of patch i: a convolution of width and stride P       Dosovitskiy 2021, 3.1
positions     sinusoidal-2d: p(r, c) = [p(r); p(c)], half of the width for the row, half for the column
              learned ones fit another grid by bilinear interpolation                         Dosovitskiy 2021, 3.2
"""

from __future__ import annotations

from math import isqrt
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

"""Laws of the models that read pictures: grids and their positions, convolutions, captions."""

from __future__ import annotations

import pytest
import torch

from regard.interface import Picture
from regard.layers.pictures import GridPositions, grid_of, interpolated, refitted
from regard.layers.positions import Sinusoidal

# positions on a grid


@pytest.mark.parametrize(("dim", "lead"), [(14, 0), (13, 1)])
def test_a_position_on_a_grid_is_the_code_of_its_row_and_then_of_its_column(dim: int, lead: int) -> None:
    rows, columns = 3, 5
    x = torch.zeros(2, lead + rows * columns, dim, dtype=torch.float64)
    codes = GridPositions(dim=dim, columns=columns, lead=lead)(x, torch.arange(x.shape[1]))
    line = torch.arange(max(rows, columns))
    by_row, by_column = (Sinusoidal(dim=half).codes(line, x) for half in (dim - dim // 2, dim // 2))
    for row in range(rows):
        for column in range(columns):
            wanted = torch.cat([by_row[row], by_column[column]])
            torch.testing.assert_close(codes[1, lead + row * columns + column], wanted)
    assert not codes[:, :lead].any()


def test_interpolation_keeps_the_same_grid_a_constant_and_a_slope() -> None:
    table = torch.randn(15, 7, generator=torch.Generator().manual_seed(1))
    assert torch.equal(interpolated(table, (3, 5), (3, 5)), table)
    constant = table[:1].expand(15, -1)
    torch.testing.assert_close(interpolated(constant, (3, 5), (7, 2)), table[:1].expand(14, -1))
    rows = torch.arange(4.0).repeat_interleave(2)[:, None]  # (4 · 2, 1): the number of the row
    finer = interpolated(rows, (4, 2), (8, 2)).view(8, 2)
    assert torch.equal(finer[:, 0], finer[:, 1])
    torch.testing.assert_close(finer[1:-1, 0].diff(), torch.full((5,), 0.5))


@pytest.mark.parametrize(
    ("picture", "patches", "grid"),
    [
        (Picture(12, 8, 3), 6, (3, 2)),
        (Picture(28, 28, 1), 16, (4, 4)),
        (Picture(28, 28, 1), 17, None),
        (Picture(12, 8, 3), 0, None),
        (Picture(2, 2, 1), 50, None),
    ],
)
def test_a_grid_follows_from_the_number_of_patches(picture: Picture, patches: int, grid: object) -> None:
    assert grid_of(picture, patches) == grid


def test_only_positions_on_a_grid_are_refitted() -> None:
    weight = torch.randn(7, 3)
    model = torch.nn.Linear(3, 7)
    assert refitted(model, "weight", weight, Picture(12, 8, 3)) is weight

"""Positions: the formula, the rotation it hides, where a learned table ends, and turning instead of adding."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from regard.interface import UserError
from regard.layers.positions import POSITIONS, Learned, Rotation, Sinusoidal, position

ROWS, TIME, DIM, LONGEST = 2, 5, 14, 11


def table(positions: Tensor, dim: int = DIM) -> Tensor:
    """P itself: what is added to nothing."""
    added: Tensor = Sinusoidal(dim=dim)(torch.zeros(1, len(positions), dim, dtype=torch.float64), positions)
    return added[0]


@pytest.mark.parametrize("dim", [14, 7])
def test_sinusoids_follow_the_interleaved_formula(dim: int) -> None:
    positions = torch.tensor([0, 1, 2, 97, 5003])
    for row, i in zip(table(positions, dim), positions.tolist(), strict=True):
        for column, value in enumerate(row.tolist()):
            angle = i / 10000 ** (2 * (column // 2) / dim)
            assert value == pytest.approx(math.cos(angle) if column % 2 else math.sin(angle), abs=1e-11)


@pytest.mark.parametrize("shift", [1, 3, 1009])
def test_a_shift_is_one_rotation_for_all_positions(shift: int) -> None:
    times = torch.arange(101)
    here, there = table(times), table(times + shift)
    rotation = torch.zeros(DIM, DIM, dtype=torch.float64)  # M_τ, the same for every t
    for j in range(0, DIM, 2):
        turn = shift / 10000 ** (j / DIM)
        rotation[j : j + 2, j : j + 2] = torch.tensor(
            [[math.cos(turn), math.sin(turn)], [-math.sin(turn), math.cos(turn)]], dtype=torch.float64
        )
    assert torch.allclose(there, here @ rotation.T, atol=1e-10)
    assert torch.allclose(rotation @ rotation.T, torch.eye(DIM, dtype=torch.float64))
    assert not torch.allclose(there, here, atol=1e-3)


@pytest.mark.parametrize("name", POSITIONS)
def test_positions_are_added_and_rows_may_stand_at_different_ones(name: str) -> None:
    part = position(name, dim=DIM, longest=LONGEST).double()
    x = torch.randn(ROWS, TIME, DIM, dtype=torch.float64)
    starts = torch.tensor([[3], [6]])
    together = part(x, starts + torch.arange(TIME))  # (rows, time)
    for row, start in enumerate((3, 6)):
        alone = part(x[row : row + 1], torch.arange(start, start + TIME))  # (time,)
        assert torch.equal(together[row : row + 1], alone)
    moved = together - x
    assert torch.allclose(moved[0, 3:], moved[1, :2])  # positions 6 and 7, in either row
    assert not torch.allclose(moved[0], moved[1])


def test_sinusoids_have_no_end_and_nothing_to_save() -> None:
    part = Sinusoidal(dim=DIM)
    assert not part.state_dict() and not list(part.parameters())
    far = part(torch.zeros(1, 1, DIM), torch.tensor([100_003]))
    assert torch.allclose(far[0].double(), table(torch.tensor([100_003])), atol=0.02)  # single precision's reach


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_sinusoids_follow_the_dtype_and_count_exactly_in_any(dtype: torch.dtype) -> None:
    positions = torch.tensor([2999, 3000, 3001])  # bfloat16 holds none of these but 3008
    added = Sinusoidal(dim=DIM)(torch.zeros(1, 3, DIM, dtype=dtype), positions)
    assert added.dtype == dtype
    assert torch.allclose(added[0].double(), table(positions), atol=1e-2)


def test_learned_positions_end_with_a_sentence() -> None:
    part = Learned(dim=DIM, longest=LONGEST)
    part(torch.zeros(1, LONGEST, DIM), torch.arange(LONGEST))
    with pytest.raises(UserError, match="12 tokens .* 11 learned positions"):
        part(torch.zeros(1, LONGEST + 1, DIM), torch.arange(LONGEST + 1))


def test_learned_positions_learn_only_where_they_are_used() -> None:
    part = Learned(dim=DIM, longest=LONGEST)
    part(torch.zeros(1, 2, DIM), torch.tensor([4, 7])).sum().backward()
    assert part.table.weight.grad is not None
    assert part.table.weight.grad.abs().sum(1).nonzero().flatten().tolist() == [4, 7]


def test_an_unknown_kind_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="'rotary'.*sinusoidal, learned"):
        position("rotary", dim=DIM, longest=LONGEST)


# rotary


def turned(x: Tensor, positions: Tensor) -> Tensor:
    return Rotation(dim=x.shape[-1]).at(positions, x)(x)


def test_turning_is_the_rotation_by_pairs_of_the_paper() -> None:
    x, positions = torch.randn(1, 3, TIME, DIM, dtype=torch.float64), torch.tensor([0, 1, 2, 97, 5003])
    out = turned(x, positions)
    for time, i in enumerate(positions.tolist()):
        for j in range(0, DIM, 2):
            angle = i / 10000 ** (j / DIM)
            turn = torch.tensor([[math.cos(angle), -math.sin(angle)], [math.sin(angle), math.cos(angle)]]).double()
            expected = x[0, :, time, j : j + 2] @ turn.T
            assert torch.allclose(out[0, :, time, j : j + 2], expected, atol=1e-6)
    assert torch.equal(out[:, :, 0], x[:, :, 0])  # at 0 nothing turns


def test_the_product_of_turned_vectors_depends_on_their_distance_alone() -> None:
    query, key = torch.randn(2, 1, 1, 1, DIM, dtype=torch.float64)
    places = torch.arange(23)
    products = turned(query.expand(-1, -1, 23, -1), places) @ turned(key.expand(-1, -1, 23, -1), places).mT
    for distance in range(-22, 23):
        along = products[0, 0].diagonal(distance)
        assert torch.allclose(along, along[:1].expand_as(along), atol=1e-10)
    first = products[0, 0, 0]
    assert len(first.round(decimals=6).unique()) == 23  # and distances do differ
    assert torch.allclose(products[0, 0, 0, 0], (query * key).sum())


def test_turning_keeps_norms_and_rows_may_stand_at_different_places() -> None:
    x = torch.randn(ROWS, 3, TIME, DIM, dtype=torch.float64)
    starts = torch.tensor([[3], [1009]])
    together = turned(x, starts + torch.arange(TIME))  # (rows, time)
    assert torch.allclose(together.norm(dim=-1), x.norm(dim=-1))
    for row, start in enumerate((3, 1009)):
        assert torch.equal(together[row : row + 1], turned(x[row : row + 1], torch.arange(start, start + TIME)))
    assert not torch.allclose(together[1:], turned(x[1:], torch.arange(3, 3 + TIME)))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_turning_follows_the_dtype_and_counts_exactly_in_any(dtype: torch.dtype) -> None:
    x, positions = torch.randn(1, 2, 3, DIM, dtype=torch.float64), torch.tensor([2999, 3000, 3001])
    out = turned(x.to(dtype), positions)
    assert out.dtype == dtype
    assert torch.allclose(out.double(), turned(x, positions), atol=0.05 if dtype == torch.bfloat16 else 1e-2)


def test_a_head_of_odd_width_cannot_be_turned() -> None:
    with pytest.raises(UserError, match="head of width 7 .* dim / heads is even"):
        Rotation(dim=7)


def test_gradients_pass_through_a_turn() -> None:
    x = torch.randn(ROWS, 1, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: turned(x, torch.tensor([0, 5, 97])), [x])


@pytest.mark.parametrize("name", POSITIONS)
def test_shapes_on_the_meta_device(name: str) -> None:
    with torch.device("meta"):
        heads = turned(torch.empty(ROWS, 3, TIME, DIM), torch.arange(TIME))
        out = position(name, dim=DIM, longest=LONGEST)(torch.empty(ROWS, TIME, DIM), torch.arange(TIME))
    assert out.is_meta and out.shape == (ROWS, TIME, DIM)
    assert heads.is_meta and heads.shape == (ROWS, 3, TIME, DIM)

"""Positions: what is added and the rotation it hides, what is turned, and the bias that a pair of places gets."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from regard.interface import UserError
from regard.layers.positions import POSITIONS, T5, ALiBi, Learned, Positions, Rotary, Sinusoidal, alibi_slopes, position

ROWS, TIME, DIM, LONGEST = 2, 5, 14, 11
ADDED = ("sinusoidal", "learned")


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


@pytest.mark.parametrize("name", ADDED)
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
    with pytest.raises(UserError, match="'circular'.*sinusoidal, sinusoidal-halves, learned, rotary, alibi, t5"):
        position("circular", dim=DIM, longest=LONGEST)


# rotary


def turned(x: Tensor, positions: Tensor) -> Tensor:
    return Rotary(dim=x.shape[-1]).turn(x, positions)(x)


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
        Rotary(dim=7)


def test_gradients_pass_through_a_turn() -> None:
    x = torch.randn(ROWS, 1, 3, 4, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda x: turned(x, torch.tensor([0, 5, 97])), [x])


# a bias for each pair of places

BIASES = {
    "alibi": lambda: ALiBi(heads=3),
    "t5, both ways": lambda: T5(heads=3, causal=False),
    "t5, causal": lambda: T5(heads=3, causal=True),
}
every_bias = pytest.mark.parametrize("kind", BIASES)


@every_bias
def test_a_bias_depends_on_the_distance_alone_and_rows_may_stand_at_different_places(kind: str) -> None:
    part, places = BIASES[kind]().double(), torch.arange(307)
    whole = part.bias(places, places)
    assert whole is not None and whole.shape == (1, 3, 307, 307)
    for distance in range(-306, 307):
        along = whole[0].diagonal(distance, 1, 2)
        assert (along == along[:, :1]).all()
    rows = part.bias(torch.tensor([[3, 4], [290, 291]]), places)
    assert torch.equal(rows, whole[0][:, [[3, 4], [290, 291]]].transpose(0, 1))
    assert torch.equal(part.bias(places + 5003, places + 5003), whole)


def test_alibi_falls_with_the_distance_either_way_at_a_rate_for_each_head() -> None:
    bias, places = ALiBi(heads=5).double().bias(torch.arange(TIME), torch.arange(7)), torch.arange(7)
    slopes = paper_slopes(5)
    for head in range(5):
        for i in range(TIME):
            expected = [-slopes[head] * abs(i - j) for j in places.tolist()]
            assert bias[0, head, i].tolist() == pytest.approx(expected, rel=1e-7)
    assert alibi_slopes(8) == [1 / 2**head for head in range(1, 9)]


def paper_slopes(heads: int) -> list[float]:
    """As in the code of Press 2022."""
    if math.log2(heads).is_integer():
        start = 2 ** (-(2 ** -(math.log2(heads) - 3)))
        return [start * start**i for i in range(heads)]
    closest = 2 ** math.floor(math.log2(heads))
    return paper_slopes(closest) + paper_slopes(2 * closest)[0::2][: heads - closest]


@pytest.mark.parametrize("heads", range(1, 35))
def test_the_slopes_of_alibi_are_those_of_the_paper(heads: int) -> None:
    assert alibi_slopes(heads) == pytest.approx(paper_slopes(heads))


def naive_bucket(distance: int, *, causal: bool, buckets: int, furthest: int) -> int:
    """Raffel 2020 by whole numbers: n is in bucket exact + b where (n / exact)^side ≥ (furthest / exact)^b."""
    side, first = (buckets, 0) if causal else (buckets // 2, buckets // 2 if distance > 0 else 0)
    apart = max(-distance, 0) if causal else abs(distance)
    exact = side // 2
    if apart < exact:
        return first + apart
    wider, further = side - exact, 0
    while further + 1 < wider and apart**wider * exact ** (further + 1) >= furthest ** (further + 1) * exact**wider:
        further += 1
    return first + exact + further


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("buckets, furthest", [(32, 128), (16, 60), (8, 20)])
def test_the_buckets_of_t5_are_those_of_the_paper(causal: bool, buckets: int, furthest: int) -> None:
    part, distances = T5(heads=1, causal=causal, buckets=buckets, furthest=furthest), range(-307, 308)
    expected = [naive_bucket(n, causal=causal, buckets=buckets, furthest=furthest) for n in distances]
    assert part.bucket(torch.tensor(distances)).tolist() == expected
    assert set(expected) == set(range(buckets)) - (set() if causal else {buckets // 2})  # ahead is at least 1 away


def test_t5_learns_in_each_head_the_buckets_that_it_met() -> None:
    part = T5(heads=3, causal=True)
    part.bias(torch.arange(2), torch.arange(2))[:, 1].sum().backward()
    assert part.table.grad is not None and part.table.grad.nonzero().tolist() == [[0, 1], [1, 1]]
    assert part.table.grad[:2, 1].tolist() == [3.0, 1.0]  # itself twice and what lies ahead; one before


def test_each_kind_does_one_thing_and_the_plain_one_nothing() -> None:
    x, places = torch.randn(ROWS, TIME, DIM), torch.arange(TIME)
    done = {}
    for name in ("", *POSITIONS):
        part = position(name, dim=DIM, heads=7, longest=LONGEST) if name else Positions()
        done[name] = (not torch.equal(part(x, places), x), bool(part.turn(x, places)), part.bias(places, places))
    assert [(added, turned, bias is not None) for added, turned, bias in done.values()] == [
        (False, False, False),
        (True, False, False),
        (True, False, False),
        (True, False, False),
        (False, True, False),
        (False, False, True),
        (False, False, True),
    ]


@pytest.mark.parametrize("name", POSITIONS)
def test_shapes_on_the_meta_device(name: str) -> None:
    with torch.device("meta"):
        part, places = position(name, dim=DIM, heads=7, longest=LONGEST), torch.arange(TIME)
        x = torch.empty(ROWS, TIME, DIM)
        out, turn, bias = part(x, places), part.turn(x, places), part.bias(places, torch.arange(3))
        heads = torch.empty(ROWS, 7, TIME, 2)
        heads = turn(heads) if turn else heads
    assert out.is_meta and out.shape == (ROWS, TIME, DIM)
    assert heads.is_meta and heads.shape == (ROWS, 7, TIME, 2)
    assert bias is None or (bias.is_meta and bias.shape == (1, 7, TIME, 3))

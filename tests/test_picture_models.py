"""Laws of the models that read pictures: grids and their positions, convolutions, captions."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from regard.interface import Batch, Ids, Label, Padded, Picture, Shapes, UserError
from regard.layers.pictures import GridPositions, Pixels, grid_of, interpolated, refitted
from regard.layers.positions import Sinusoidal
from regard.models import convnet

PICTURE = Picture(11, 7, 3)
LABELS, VOCAB = 5, 13


def pictures(count: int = 3, shape: Picture = PICTURE, seed: int = 2) -> Padded:
    random = torch.Generator().manual_seed(seed)
    values = torch.randn(count, shape.height, shape.width * shape.channels, dtype=torch.float64, generator=random)
    return Padded(values, torch.ones(count, shape.height, dtype=torch.bool))


def labelled(source: Padded) -> Batch:
    labels = torch.arange(len(source.mask))[:, None] % LABELS
    return Batch(source, Padded(labels, torch.ones_like(labels, dtype=torch.bool)))


def rows(side: Padded, places: list[int]) -> Padded:
    return Padded(side.values[places], side.mask[places])


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


# a convolutional network


def network(shape: Picture = PICTURE, **settings: Any) -> Any:
    torch.manual_seed(1)
    config = convnet.Config(**{"width": 3, "stages": 2, "dropout": 0.0, **settings})
    return convnet.build(config, Shapes(shape, Label(LABELS))).double().eval()


@pytest.mark.parametrize(("stages", "blocks", "grid"), [(1, 1, (6, 4)), (2, 1, (3, 2)), (3, 2, (2, 1)), (5, 1, (1, 1))])
def test_a_network_gives_one_state_for_each_place_of_its_last_map(stages: int, blocks: int, grid: Any) -> None:
    model = network(stages=stages, blocks=blocks)
    encoded = model.encoder(pictures())
    assert model.encoder.grid == grid and len(model.encoder.blocks) == stages * blocks
    assert encoded.states.shape == (3, grid[0] * grid[1], 3 * 2 ** (stages - 1)) and bool(encoded.mask.all())
    assert model.inspect().attentions == model.inspect().recurrences == ()


def test_its_states_are_ordered_row_by_row() -> None:
    """A change in the last pixel reaches the last place and not the first. Norms, which see all places, are removed."""
    model = network(Picture(44, 28, 3), stages=2).encoder
    for part in model.modules():
        for name, child in list(part.named_children()):
            if isinstance(child, torch.nn.GroupNorm):
                setattr(part, name, torch.nn.Identity())
    source = pictures(1, Picture(44, 28, 3))
    before = model(source).states[0].unflatten(0, (11, 7))
    source.values[0, -1, -3:] += 1
    moved = (model(source).states[0].unflatten(0, (11, 7)) != before).any(-1)
    assert moved[-1, -1] and not moved[:5].any() and not moved[:, :3].any()


def test_pictures_beside_it_change_nothing() -> None:
    model, source = network(), pictures(5)
    together = model.classify(labelled(source))
    turned = model.classify(labelled(rows(source, [3, 1, 4, 0, 2])))
    for place, row in enumerate([3, 1, 4, 0, 2]):
        alone = model.classify(labelled(rows(source, [row])))[0]
        torch.testing.assert_close(alone, together[row])
        torch.testing.assert_close(turned[place], together[row])
    torch.testing.assert_close(together.exp().sum(-1), torch.ones(5, dtype=torch.float64))


def test_a_block_that_adds_nothing_hands_its_input_on() -> None:
    model = network(stages=1, blocks=2).encoder
    source, seen = pictures(), []
    hook = model.enter.register_forward_hook(lambda part, given, made: seen.append(made))
    for block in model.blocks:
        torch.nn.init.zeros_(block.second.weight)
    states = model(source).states
    hook.remove()
    assert torch.equal(states, torch.relu(model.norm(seen[0])).flatten(2).transpose(1, 2))


def test_in_training_a_picture_is_moved_and_its_edge_repeated() -> None:
    shape, shift = Picture(5, 7, 2), 2
    read = Pixels(shape, shift=shift)
    source = pictures(50, shape).values
    assert torch.equal(read.eval()(source), source.view(50, 35, 2))
    moved = read.train()(source).view(50, 5, 7, 2)
    offsets = set()
    for before, after in zip(source.view(50, 5, 7, 2), moved, strict=True):
        found = [
            (down, across)
            for down in range(-shift, shift + 1)
            for across in range(-shift, shift + 1)
            if torch.equal(
                after, before[(torch.arange(5) + down).clamp(0, 4)][:, (torch.arange(7) + across).clamp(0, 6)]
            )
        ]
        assert len(found) == 1
        offsets.update(found)
    assert {down for down, _ in offsets} == {across for _, across in offsets} == set(range(-shift, shift + 1))


def test_a_network_refuses_what_is_not_a_picture() -> None:
    with pytest.raises(UserError, match="convnet reads pictures"):
        convnet.build(convnet.Config(), Shapes(Ids(VOCAB), Label(LABELS)))
    with pytest.raises(UserError, match="Label"):
        convnet.build(convnet.Config(), Shapes(PICTURE, Ids(VOCAB)))
    with pytest.raises(ValueError, match="stages"):
        convnet.Config(stages=9)

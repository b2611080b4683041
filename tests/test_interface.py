"""Laws of what the parts exchange: sides, batches, states."""

from __future__ import annotations

import torch
from made import pairs, side, source_of, tagged, text

from regard.interface import EOS, Padded, State


def test_a_side_but_its_end_is_its_words() -> None:
    read = side([[4, 5, 6, EOS], [7, EOS], [EOS]])
    assert read.but_end().mask.tolist() == [[True, True, True, False], [True, False, False, False], [False] * 4]
    assert torch.equal(read.but_end().values, read.values)
    assert torch.equal(read.but_end().lengths, read.lengths - 1)


def test_before_and_after_are_a_place_apart() -> None:
    read = side([[1, 4, 5, EOS], [1, EOS]])
    assert read.before().values.tolist() == [[1, 4, 5], [1, EOS, 0]]
    assert read.after().values.tolist() == [[4, 5, EOS], [EOS, 0, 0]]
    assert torch.equal(read.before().mask, read.mask[:, :-1])
    assert torch.equal(read.after().mask, read.mask[:, 1:])


def test_each_row_of_a_batch_is_what_it_would_be_alone() -> None:
    letters = torch.arange(2 * 3 * 5).view(2, 3, 5)
    batch = tagged([[4, 5, EOS], [6, EOS]], torch.tensor([[1, 2, 0], [3, 0, 0]]), spelling=letters)
    first, second = batch.rows()
    assert source_of(first).tolist() == [[4, 5, EOS]]
    assert source_of(second).tolist() == [[6, EOS]]
    assert second.target is not None
    assert second.target.values.tolist() == [[3]]
    assert torch.equal(second.beside["spelling"], letters[1:, :2])
    (alone,) = text([[1, 4, EOS]]).rows()
    assert alone.source is None
    both = list(pairs([[4, EOS], [5, 6, EOS]], [[1, 7, EOS], [1, EOS]]).rows())
    assert [row.first.values.shape[1] for row in both] == [2, 3]


def test_a_mask_moves_with_its_values() -> None:
    moved = tagged([[4, EOS]], torch.tensor([[1, 0]]), spelling=torch.ones(1, 2, 3)).to("meta")
    assert moved.device.type == "meta"
    assert moved.target is not None
    assert moved.target.mask.is_meta
    assert moved.beside["spelling"].is_meta


def test_whatever_a_carry_is_kept_in_is_reordered() -> None:
    rows = torch.arange(3)[:, None]
    carry = {"list": [rows, [rows]], "tuple": (rows,), "side": Padded(rows, rows > 0), "else": "kept"}
    picked = State(memory=[rows], carry=carry).pick(torch.tensor([2, 0, 0]))
    for found in (
        picked.carry["list"][0],
        picked.carry["list"][1][0],
        picked.carry["tuple"][0],
        picked.carry["side"][0],
    ):
        assert found.flatten().tolist() == [2, 0, 0]
    assert picked.carry["else"] == "kept"
    assert picked.memory[0] is rows
    assert picked.keep(torch.tensor([1])).memory[0].tolist() == [[1]]

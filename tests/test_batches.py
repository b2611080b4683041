"""Laws of batches: every example once, never over the budget, the same again for the same seed and epoch."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from made import on_disk, source_of, target_of

from regard.data.batches import Encoded, Examples, plan, stats, validation_plan
from regard.data.fields import MULTIPLE, Fields, TextField
from regard.data.text import read_pairs
from regard.data.tokens import Tokenizer
from regard.interface import BOS, EOS, PAD, UserError

SEQUENCES = [[5, 7, 11], [], [13], list(range(4, 41)), [], [17, 19]]

lengths = st.lists(st.tuples(st.integers(0, 61), st.integers(0, 61)), max_size=300)


TOKENIZER = Tokenizer.train("characters", ["ab"], size=None)
FIELDS = Fields({"source": TextField(TOKENIZER, begins=False), "target": TextField(TOKENIZER, begins=True)})


def poisson(examples: int, seed: int = 0) -> tuple[np.ndarray, np.ndarray]:
    random = np.random.default_rng(seed)
    source = random.poisson(13, examples)
    return source, np.maximum(source + random.integers(-3, 5, examples), 0)


def same(left: list[np.ndarray], right: list[np.ndarray]) -> bool:
    return len(left) == len(right) and all(map(np.array_equal, left, right))


# Encoded


def test_sequences_come_back(tmp_path):
    for encoded in (on_disk(tmp_path, "source", iter(SEQUENCES)), Encoded.open(tmp_path, "source")):
        assert len(encoded) == len(SEQUENCES)
        assert [sequence.tolist() for sequence in encoded] == SEQUENCES
        assert encoded.lengths.tolist() == [len(sequence) for sequence in SEQUENCES]
        with pytest.raises(IndexError):
            encoded[len(SEQUENCES)]
        with pytest.raises(IndexError):
            encoded[-1]


@pytest.mark.parametrize("sequences", [[], [[]], [[], []]])
def test_nothing_comes_back_as_nothing(tmp_path, sequences):
    encoded = on_disk(tmp_path, "source", sequences)
    assert [sequence.tolist() for sequence in encoded] == sequences


def test_what_is_written_is_plain_npy_and_mapped(tmp_path):
    encoded = on_disk(tmp_path / "new" / "folder", "source", SEQUENCES)
    tokens = np.load(tmp_path / "new" / "folder" / "source.tokens.npy")
    assert tokens.tolist() == sum(SEQUENCES, [])
    assert isinstance(encoded.tokens.base, np.memmap)
    assert np.shares_memory(encoded[3], encoded.tokens)
    assert not encoded[3].flags.writeable


def test_the_header_has_room_for_the_count(tmp_path):
    # the header is written twice, before and after the count is known, and must not move the data
    encoded = on_disk(tmp_path, "source", ([i, i + 1] for i in range(100_003)))
    assert encoded[0].tolist() == [0, 1]
    assert encoded[100_002].tolist() == [100_002, 100_003]


def interrupted() -> Iterator[list[int]]:
    yield [23]
    raise KeyboardInterrupt


def test_an_interrupted_write_leaves_what_was_there(tmp_path):
    on_disk(tmp_path, "source", SEQUENCES)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(KeyboardInterrupt):
        on_disk(tmp_path, "source", interrupted())
    assert sorted(tmp_path.iterdir()) == before
    assert [sequence.tolist() for sequence in Encoded.open(tmp_path, "source")] == SEQUENCES


def test_writing_again_replaces(tmp_path):
    on_disk(tmp_path, "source", SEQUENCES)
    on_disk(tmp_path, "source", [[29]])
    assert [sequence.tolist() for sequence in Encoded.open(tmp_path, "source")] == [[29]]


def test_where_offsets_are_the_tokens_are_whole(tmp_path):
    on_disk(tmp_path, "source", SEQUENCES)
    tokens = tmp_path / "source.tokens.npy"
    tokens.unlink()
    tokens.mkdir()  # nothing can be renamed onto a folder
    with pytest.raises(OSError):
        on_disk(tmp_path, "source", [[29]])
    assert list(tmp_path.iterdir()) == [tokens]


def test_half_or_damaged_files_are_sentences(tmp_path):
    with pytest.raises(UserError, match="does not exist"):
        Encoded.open(tmp_path, "source")
    on_disk(tmp_path, "source", SEQUENCES)
    on_disk(tmp_path, "other", [[29]])
    offsets = tmp_path / "source.offsets.npy"
    kept = offsets.read_bytes()
    offsets.write_bytes((tmp_path / "other.offsets.npy").read_bytes())
    with pytest.raises(UserError, match="do not match"):
        Encoded.open(tmp_path, "source")
    offsets.write_bytes(kept[:-3])
    with pytest.raises(UserError, match="damaged"):
        Encoded.open(tmp_path, "source")
    offsets.unlink()
    with pytest.raises(UserError, match="source.offsets.npy does not exist"):
        Encoded.open(tmp_path, "source")


# Examples


def test_a_batch_is_its_examples_and_padding(tmp_path):
    targets = [[31, 37], [41], [], [43, 47, 53], [59], [61] * 7]
    sides = {"source": on_disk(tmp_path, "s", SEQUENCES), "target": on_disk(tmp_path, "t", targets)}
    examples = Examples(FIELDS, sides)
    assert len(examples) == len(SEQUENCES)
    chosen = [5, 0, 1]
    batch = examples.collate(np.array(chosen))
    assert batch.source is not None
    assert source_of(batch).dtype == target_of(batch).dtype == torch.int64
    assert source_of(batch).shape == (3, 4)  # 3 tokens and <eos>
    assert target_of(batch).shape == (3, 9)  # <bos>, then 7 tokens and <eos>
    for row, i in enumerate(chosen):
        source, target = source_of(batch)[row].tolist(), target_of(batch)[row].tolist()
        assert source == [*SEQUENCES[i], EOS] + [PAD] * (3 - len(SEQUENCES[i]))
        assert target == [BOS, *targets[i], EOS] + [PAD] * (7 - len(targets[i]))
    assert batch.source.lengths.tolist() == [3, 4, 1]


@settings(deadline=None)
@given(st.lists(st.lists(st.integers(4, 97), max_size=31), min_size=1, max_size=7), st.integers(1, 11))
def test_padding_is_the_least_that_is_round(sequences, multiple):
    for begin in (False, True):
        rows = TextField(TOKENIZER, begins=begin).pad(sequences, multiple=multiple).values
        time = rows.shape[1] - begin
        assert time % multiple == 0
        assert 0 <= time - 1 - max(map(len, sequences)) < multiple
        assert (rows == EOS).sum(1).tolist() == [1] * len(sequences)


def test_unequal_sides_are_a_sentence(tmp_path):
    source = on_disk(tmp_path, "s", SEQUENCES)
    with pytest.raises(UserError, match="different numbers of examples .*'source': 6, 'target': 5"):
        Examples(FIELDS, {"source": source, "target": on_disk(tmp_path, "t", SEQUENCES[1:])})


# plan


@settings(deadline=None)
@given(lengths, st.integers(1, 700), st.sampled_from([1, 4, 7]))
def test_every_example_once_and_within_budget(pairs, tokens, multiple):
    source, target = np.array(pairs, dtype=int).reshape(-1, 2).T
    shuffled = plan(source, target, tokens=tokens, seed=3, epoch=5, multiple=multiple)
    ordered = validation_plan(source, target, tokens=tokens, multiple=multiple)
    for batches in (shuffled, ordered):
        assert sorted(i for batch in batches for i in batch) == list(range(len(pairs)))
        for batch in batches:
            longer = max(source[batch].max(), target[batch].max()) + 1
            padded = -(-longer // multiple) * multiple
            assert len(batch) * padded <= tokens or len(batch) == 1


def test_the_budget_is_that_of_the_tensors(tmp_path):
    source_lengths, target_lengths = poisson(997)
    source = on_disk(tmp_path, "s", ([5] * n for n in source_lengths))
    target = on_disk(tmp_path, "t", ([7] * n for n in target_lengths))
    examples = Examples(FIELDS, {"source": source, "target": target})
    batches = plan(source.lengths, target.lengths, tokens=503, seed=1, epoch=1)
    made = [examples.collate(batch) for batch in batches]
    sides = [(source_of(batch), target_of(batch)[:, 1:]) for batch in made]  # <bos> is read, never predicted
    shapes = {(*read.shape, written.shape[1]) for read, written in sides}
    assert all(rows * max(both) <= 503 for rows, *both in shapes)
    # and the figures reported are those of the tensors too
    real = sum(int((read != PAD).sum() + (written != PAD).sum()) for read, written in sides)
    size = sum(read.numel() + written.numel() for read, written in sides)
    figures = stats(batches, source.lengths, target.lengths)
    assert figures == (len(batches), len(shapes), pytest.approx(real / size))


def test_stats_count_what_is_there():
    lengths = np.array([3, 3, 3, 7])
    batches = [np.array([0, 1]), np.array([2]), np.array([3])]
    figures = stats(batches, lengths, lengths)
    assert figures.shapes == 3  # (2, 4, 4), (1, 4, 4), (1, 8, 8)
    assert figures == (3, 3, 1.0)
    assert stats([np.array([0, 3])], lengths, lengths) == (1, 1, (4 + 8) / (8 + 8))


def test_both_sides_are_tight_though_they_have_nothing_in_common():
    source, target = np.random.default_rng(0).integers(0, 61, (2, 20_011))
    assert stats(plan(source, target, tokens=1021, seed=1, epoch=1), source, target).real > 0.9


def test_captions_of_all_lengths_meet_in_a_batch_of_pictures():
    target = np.random.default_rng(0).integers(3, 31, 1009)
    batches = plan(np.full(1009, 48), target, tokens=1543, seed=1, epoch=1)
    assert sorted(np.concatenate(batches)) == list(range(1009))
    assert all(len({*target[batch]}) > 10 for batch in batches if len(batch) > 20)


def test_an_example_beyond_the_budget_is_alone():
    source, target = np.array([3, 101, 5]), np.array([2, 4, 6])
    batches = plan(source, target, tokens=53, seed=1, epoch=1)
    assert sorted(map(sorted, batches)) == [[0, 2], [1]]


def test_rows_follow_from_the_longest_and_are_round():
    source, target = poisson(9973)
    batches = plan(source, target, tokens=1021, seed=1, epoch=1)
    (shortest,) = validation_plan(source, target, tokens=1021)[-1:]  # the remainder
    rows_at: dict[int, set[int]] = {}
    for batch in batches:
        longer = int(max(source[batch].max(), target[batch].max()))
        if len(batch) != len(shortest):
            assert len(batch) <= 8 or len(batch) % 8 == 0
            rows_at.setdefault(longer // MULTIPLE, set()).add(len(batch))
    assert all(len(rows) == 1 for rows in rows_at.values())


def test_the_same_epoch_is_the_same_plan():
    source, target = poisson(1009)
    first = plan(source, target, tokens=211, seed=7, epoch=2)
    assert same(first, plan(source, target, tokens=211, seed=7, epoch=2))
    assert not same(first, plan(source, target, tokens=211, seed=7, epoch=3))
    assert not same(first, plan(source, target, tokens=211, seed=8, epoch=2))
    assert not same(first, plan(source, target, tokens=211, seed=2, epoch=7))


ELSEWHERE = """
import json, numpy, sys
from regard.data.batches import plan
source, target = map(numpy.array, json.load(sys.stdin))
print(json.dumps([batch.tolist() for batch in plan(source, target, tokens=211, seed=7, epoch=2)]))
"""


def test_the_plan_is_the_same_in_another_process():
    source, target = poisson(503)
    answer = subprocess.run(
        [sys.executable, "-c", ELSEWHERE],
        input=json.dumps([source.tolist(), target.tolist()]),
        env={**os.environ, "PYTHONHASHSEED": "101", "PYTHONPATH": str(Path(__file__).parents[1])},
        capture_output=True,
        text=True,
        check=True,
    )
    here = plan(source, target, tokens=211, seed=7, epoch=2)
    assert json.loads(answer.stdout) == [batch.tolist() for batch in here]


def test_batch_mates_differ_between_epochs():
    source, target = poisson(9973)

    def mates(epoch: int) -> set[tuple[int, int]]:
        batches = plan(source, target, tokens=509, seed=1, epoch=epoch)
        return {(i, j) for batch in batches for i in batch.tolist() for j in batch.tolist() if i < j}

    first, second = mates(1), mates(2)
    assert len(first & second) < 0.2 * len(first)


def test_batches_come_in_no_order_of_length():
    source, target = poisson(9973)
    longest = [int(source[batch].max()) for batch in plan(source, target, tokens=509, seed=1, epoch=1)]
    assert abs(np.corrcoef(np.arange(len(longest)), longest)[0, 1]) < 0.2


def test_validation_is_in_order_of_length():
    source, target = poisson(997)
    batches = validation_plan(source, target, tokens=509)
    longest = [int(np.maximum(source[batch], target[batch]).max()) // MULTIPLE for batch in batches]
    assert longest == sorted(longest, reverse=True)
    assert same(batches, validation_plan(source, target, tokens=509))


def test_nothing_to_plan():
    none = np.array([], dtype=int)
    assert plan(none, none, tokens=97, seed=1, epoch=1) == validation_plan(none, none, tokens=97) == []


def test_a_million_examples_make_few_shapes():
    source, target = poisson(1_000_003)
    batches = plan(source, target, tokens=4096, seed=1, epoch=1)
    figures = stats(batches, source, target)
    assert figures.real > 0.85
    assert figures.shapes < 300 < figures.batches


DATA = os.environ.get("REGARD_DATA")


@pytest.mark.skipif(DATA is None, reason="REGARD_DATA is not set: no real captions to batch")
def test_real_captions_fill_their_batches(record_property):
    folder = Path(DATA or "") / "multi30k"
    _, english, french = zip(*read_pairs(folder / "train.en.gz", folder / "train.fr.gz"), strict=True)
    tokenizer = Tokenizer.train("bpe", [*english, *french], size=8000)
    source, target = (np.array(list(map(len, tokenizer.encode_all(side)))) for side in (english, french))
    figures = stats(plan(source, target, tokens=4096, seed=1, epoch=1), source, target)
    record_property("multi30k en-fr, bpe 8000, 4096 tokens", str(figures))
    assert figures.real > 0.85
    assert figures.shapes < 100

"""Laws of streams: windows of one long text, each token once, in an order that (seed, epoch, index) decide."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from regard.data import sources
from regard.data.batches import Encoded
from regard.data.streams import Anywhere, Carried, Joined, Packed, spans
from regard.data.tokens import Tokenizer
from regard.interface import EOS, Batch

SEED = 7
lengths = st.integers(2, 97)
rows_asked = st.integers(1, 11)
windows = st.integers(1, 13)
seeds = st.sampled_from([None, 0, 7])
epochs = st.integers(0, 5)


def text(length: int) -> np.ndarray:
    """Every token another one, so that a token is its own place."""
    return np.arange(length, dtype=np.int32)


def places(batch: Batch) -> np.ndarray:
    """(rows, window + 1)"""
    assert batch.target is not None
    assert batch.source is None
    assert batch.state is None
    return batch.target.values.numpy()


def stretches(stream: Carried, epoch: int) -> np.ndarray:
    """What each row reads in an epoch, its windows put together: (rows, time)."""
    read = [places(stream.get(epoch, index)) for index in range(stream.count(epoch))]
    assert all((later[:, 0] == earlier[:, -1]).all() for earlier, later in zip(read, read[1:], strict=False))
    return np.concatenate([read[0][:, :1], *(window[:, 1:] for window in read)], 1)


# Carried


@given(length=lengths, rows=rows_asked, window=windows, seed=seeds, epoch=epochs)
def test_rows_read_on_and_together_predict_every_token_once(length, rows, window, seed, epoch):
    stream = Carried(text(length), rows=rows, window=window, seed=seed)
    read = stretches(stream, epoch)
    assert read.shape[0] == stream.rows == stream.carries <= rows
    assert read.shape[1] > 1  # there is something to predict, however short the text
    predicted = read[:, 1:].ravel()
    first = predicted[0]
    assert predicted.tolist() == list(range(first, first + predicted.size))  # in order, none twice
    shift = first - 1
    assert 0 <= shift <= (window if seed is not None else 0)
    assert length - 1 - shift - predicted.size < stream.rows  # what divides unevenly is left over at the end


@given(length=lengths, rows=rows_asked, window=windows, epoch=epochs)
def test_no_window_is_longer_than_asked_and_only_the_last_is_shorter(length, rows, window, epoch):
    stream = Carried(text(length), rows=rows, window=window, seed=SEED)
    widths = [places(stream.get(epoch, index)).shape[1] - 1 for index in range(stream.count(epoch))]
    assert all(width == window for width in widths[:-1])
    assert 0 < widths[-1] <= window


def test_epochs_cut_elsewhere():
    stream = Carried(text(97), rows=3, window=13, seed=SEED)
    assert len({int(places(stream.get(epoch, 0))[0, 0]) for epoch in range(20)}) > 5


def test_a_short_text_has_fewer_rows():
    assert Carried(text(14), rows=11, window=13, seed=None).rows == 1
    assert Carried(text(27), rows=11, window=13, seed=None).rows == 2
    assert places(Carried(text(2), rows=11, window=13, seed=SEED).get(3, 0)).tolist() == [[0, 1]]


# Anywhere


@given(length=lengths, rows=rows_asked, window=windows, epoch=epochs)
def test_anywhere_is_inside_the_text(length, rows, window, epoch):
    stream = Anywhere(text(length), rows=rows, window=window, seed=SEED)
    assert stream.count(epoch) >= 1
    read = places(stream.get(epoch, stream.count(epoch) - 1))
    assert read.shape == (rows, min(window, length - 1) + 1)
    assert (np.diff(read, axis=1) == 1).all()
    assert read.min() >= 0
    assert read.max() < length


def test_anywhere_is_everywhere():
    stream = Anywhere(text(23), rows=5, window=7, seed=SEED)
    starts = {int(start) for index in range(100) for start in places(stream.get(0, index))[:, 0]}
    assert starts == set(range(16))  # the last token is reached, and the first


# Packed

FIRST = 5  # no token of these texts is a special one
several = st.lists(st.integers(1, 17), min_size=1, max_size=9)


def made_of(lengths: list[int]) -> Encoded:
    return Encoded(FIRST + text(sum(lengths)), np.cumsum([0, *lengths]))


def joined(texts: Encoded) -> list[int]:
    return [token for place in range(len(texts)) for token in (*texts[place].tolist(), EOS)]


def windows_of(packed: Packed, epoch: int) -> np.ndarray:
    """All windows of an epoch, without the <eos> at the end of a source."""
    read = [packed.get(epoch, index) for index in range(packed.count(epoch))]
    assert all(batch.first.mask.all() and batch.size <= packed.rows for batch in read)  # nothing is padding
    if packed.ahead:
        return np.concatenate([places(batch) for batch in read])
    rows = np.concatenate([batch.first.values.numpy() for batch in read])
    assert (rows[:, -1] == EOS).all()
    return rows[:, :-1]


@given(lengths=several)
def test_joined_texts_are_one_stream_without_an_end(lengths):
    texts = made_of(lengths)
    stream, whole = Joined(texts), joined(texts)
    assert len(stream) == len(whole)
    assert stream[np.arange(-2, 2 * len(whole))].tolist() == [*whole, *whole, *whole][len(whole) - 2 :]


@given(lengths=several, window=st.integers(2, 40), seed=seeds, epoch=epochs, ahead=st.booleans())
def test_packed_windows_read_every_token_whatever_the_length_of_its_text(lengths, window, seed, epoch, ahead):
    texts = made_of(lengths)
    packed, whole = Packed(texts, tokens=3 * window, window=window, seed=seed, ahead=ahead), joined(texts)
    rows = windows_of(packed, epoch)
    twice = [*whole, *whole, *whole]
    assert all(any(twice[at : at + len(row)] == row for at in range(len(whole))) for row in rows.tolist())
    read = rows[:, 1:] if ahead else rows
    assert set(read.ravel().tolist()) == set(whole)
    assert read.size < len(whole) + read.shape[1]  # less than a window is read twice
    assert read.shape[1] <= window - (not ahead)


def test_each_epoch_packs_in_another_way_and_validation_in_one():
    texts = made_of([17, 3, 29, 8, 40])
    packed = Packed(texts, tokens=26, window=13, seed=SEED)
    assert len({str(np.sort(windows_of(packed, epoch), 0).tolist()) for epoch in range(6)}) > 3  # other cuts
    fixed = Packed(texts, tokens=26, window=13, seed=None)
    assert windows_of(fixed, 0).tolist() == windows_of(fixed, 3).tolist()
    assert windows_of(fixed, 0)[0].tolist() == joined(texts)[:12]


# Both


def ahead(tokens: np.ndarray, *, rows: int, window: int, seed: int) -> Packed:
    texts = Encoded(FIRST + tokens, np.array([0, 30, len(tokens)]))
    return Packed(texts, tokens=rows * window, window=window, seed=seed, ahead=True)


@pytest.mark.parametrize("kind", [Carried, Anywhere, ahead])
def test_batches_are_a_function_of_seed_epoch_and_index(kind):
    def all_of(stream: Carried | Anywhere | Packed, epoch: int) -> list[list[list[int]]]:
        return [places(stream.get(epoch, index)).tolist() for index in range(stream.count(epoch))]

    one, same, other = (kind(text(97), rows=3, window=11, seed=seed) for seed in (SEED, SEED, SEED + 1))
    first, second = all_of(one, 0), all_of(one, 1)
    assert first != second
    assert all_of(same, 1) == second  # also if epoch 0 was never asked for
    assert all_of(one, 0) == first
    assert any(all_of(other, epoch) != all_of(one, epoch) for epoch in range(3))
    assert places(same.get(1, 1)).tolist() == second[1]
    assert one.stats().batches == len(first)


# spans


@given(predicted=st.integers(0, 97), longest=st.integers(1, 13), data=st.data())
def test_spans_count_every_token_once_with_enough_before_it(predicted, longest, data):
    stride = data.draw(st.integers(1, longest))
    counted: list[int] = []
    for begin, first, end in spans(predicted, longest, stride):
        assert 0 <= begin <= first < end <= begin + longest
        assert begin == 0 or first - begin >= longest - stride
        counted += range(first, end)
    assert counted == list(range(predicted))


def test_the_longest_stride_reads_nothing_twice_and_the_shortest_gives_each_token_all_it_can():
    assert list(spans(17, 7, 7)) == [(0, 0, 7), (7, 7, 14), (14, 14, 17)]
    assert list(spans(9, 7, 1)) == [(0, 0, 7), (1, 7, 8), (2, 8, 9)]
    assert list(spans(0, 7, 3)) == []


@pytest.mark.parametrize("kind", ["words", "characters", "bpe"])
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(lines=st.lists(st.text("ab .'\t", max_size=9), min_size=1, max_size=40))
def test_a_file_in_pieces_has_the_tokens_of_the_whole(monkeypatch, tmp_path, kind, lines):
    monkeypatch.setattr(sources, "BLOCK", 11)
    whole = "".join(f"{line}\n" for line in lines)
    (tmp_path / "text").write_text(whole)
    pieces = list(sources.TEXTS["file"](tmp_path / "text"))
    assert "".join(pieces) == whole
    tokenizer = Tokenizer.train(kind, [whole, "aa bb ab' ba. \n\n a b"], size=290)
    (together,) = tokenizer.encode_all([whole], continued=True)
    assert [token for piece in tokenizer.encode_all(pieces, continued=True) for token in piece] == together


def test_a_long_file_comes_in_pieces(monkeypatch, tmp_path):
    monkeypatch.setattr(sources, "BLOCK", 11)
    (tmp_path / "text").write_text("a line of text\n" * 7)
    assert list(sources.TEXTS["file"](tmp_path / "text")) == ["a line of text\n"] * 7

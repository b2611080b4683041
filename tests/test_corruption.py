"""Laws of objectives: what noise hides of a text, how much of it, and that nothing is lost by it."""

from __future__ import annotations

import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from made import on_disk, source_of, target_of

from regard.data.batches import Encoded, Examples, Ordered
from regard.data.corruption import (
    IN_SPANS,
    INFILLED,
    MASK,
    MEAN_SPAN,
    SENTINEL,
    SENTINELS,
    Noisy,
    Pairs,
    corrupt_spans,
    corruption,
    hide,
    infill,
    permute,
    pieces,
    sentences_of,
    span_lengths,
)
from regard.data.fields import Fields, TextField
from regard.data.tokens import Tokenizer
from regard.interface import EOS, SPECIALS, Batch, Padded, UserError

FIRST, VOCAB = SENTINEL + SENTINELS, SENTINEL + SENTINELS + 50
words = st.integers(FIRST, VOCAB - 1)
texts = st.lists(st.one_of(words, words, words, st.just(EOS)), max_size=80).map(lambda ids: np.array(ids, np.int64))
seeds = st.integers(0, 10_000)


def rng(seed: int) -> np.random.Generator:
    return np.random.default_rng(seed)


def long_text(length: int, seed: int = 1) -> np.ndarray:
    return rng(seed).integers(FIRST, VOCAB, length)


# --- spans ---


def put_together(source: np.ndarray, target: np.ndarray) -> list[int]:
    """What a reader makes of the two: each sentinel of the source stands for what follows it in the target."""
    spans: dict[int, list[int]] = {}
    for token in target.tolist():
        if SENTINEL <= token < FIRST:
            assert token not in spans
            spans[token] = []
        else:
            spans[next(reversed(spans))].append(token)
    whole = [inner for token in source.tolist() for inner in spans.pop(token, [token])]
    assert not spans
    return whole


@given(texts, seeds)
def test_source_and_spans_restore_the_text(ids: np.ndarray, seed: int) -> None:
    source, target = corrupt_spans(ids, rng(seed))
    assert put_together(source, target) == ids.tolist()
    assert EOS not in target and (source == EOS).sum() == (ids == EOS).sum()
    numbers = target[(target >= SENTINEL) & (target < FIRST)] - SENTINEL
    assert numbers.tolist() == list(range(len(numbers)))  # in order, from the first
    assert len(target) > 1 or not (ids != EOS).any()  # something is hidden of every text


def test_of_a_hundred_tokens_fifteen_are_hidden_in_spans_of_three() -> None:
    ids = long_text(1000)
    hidden = np.zeros(1000)
    for seed in range(200):
        source, target = corrupt_spans(ids, rng(seed))
        assert len(target) - 50 == IN_SPANS * 1000 and len(source) - 50 == 850  # 50 spans, whatever the seed
        for begin, end, _ in pieces(ids, span_lengths(1000, rng(seed)), rng(seed)):
            hidden[begin:end] += 1
    assert IN_SPANS * 1000 / 50 == MEAN_SPAN
    ends, middle = (hidden[:30].mean() + hidden[-30:].mean()) / 2, hidden[30:-30].mean()
    assert middle == pytest.approx(200 * IN_SPANS, rel=0.05) and ends == pytest.approx(middle, rel=0.2)


def test_there_are_never_more_spans_than_sentinels() -> None:
    ids = long_text(20_000)
    ids[::7] = EOS  # which cuts spans in two
    source, target = corrupt_spans(ids, rng(0))
    assert ((source >= SENTINEL) & (source < FIRST)).sum() == SENTINELS
    assert put_together(source, target) == ids.tolist()


# --- infilling and permutation ---


def is_part(few: list[int], many: list[int]) -> bool:
    rest = iter(many)
    return all(token in rest for token in few)


@given(texts, seeds)
def test_infilling_keeps_the_others_in_their_order(ids: np.ndarray, seed: int) -> None:
    read = infill(ids, rng(seed))
    kept = read[read != MASK].tolist()
    assert is_part(kept, ids.tolist()) and kept.count(EOS) == ids.tolist().count(EOS)
    hidden, words = len(ids) - len(kept), int((ids != EOS).sum())
    assert hidden <= round(INFILLED * words) and len(read) <= len(ids)
    assert hidden == round(INFILLED * words) or words < 20  # few words cannot stand between many masks


def test_infilled_spans_have_a_poisson_length_and_may_be_empty() -> None:
    ids = np.arange(FIRST, FIRST + 20_000)
    read = infill(ids, rng(3))
    masks = np.flatnonzero(read == MASK)
    around = np.concatenate([[FIRST - 1], read, [FIRST + len(ids)]])
    lengths = around[masks + 2] - around[masks] - 1  # no two masks are neighbours
    assert lengths.sum() == INFILLED * len(ids)
    assert lengths.mean() == pytest.approx(MEAN_SPAN, abs=0.15)
    for length in range(6):
        poisson = MEAN_SPAN**length * math.exp(-MEAN_SPAN) / math.factorial(length)
        assert (lengths == length).mean() == pytest.approx(poisson, abs=0.03)


@given(texts, seeds)
def test_a_permutation_keeps_the_sentences(ids: np.ndarray, seed: int) -> None:
    ends = np.arange(FIRST, FIRST + 9)
    parts = sentences_of(ids, ends)
    assert [token for part in parts for token in part.tolist()] == ids.tolist()
    assert all(not np.isin(part[:-2], [*ends, EOS]).any() for part in parts)  # one ends within none
    read = permute(ids, ends, rng(seed))
    assert sorted(read.tolist()) == sorted(ids.tolist())
    for part in parts:
        windows = np.lib.stride_tricks.sliding_window_view(read, len(part))
        assert (windows == part).all(1).any()


def test_every_order_of_sentences_occurs() -> None:
    ids = np.array([60, 10, 61, 10, 62, 10])
    orders = Counter(tuple(permute(ids, np.array([10]), rng(seed))[::2].tolist()) for seed in range(600))
    assert len(orders) == 6 and min(orders.values()) > 60


@pytest.mark.parametrize("kind, size", [("words", 0), ("bpe", 420), ("given", 0), ("characters", 0)])
def test_sentences_end_where_their_signs_do(kind: str, size: int) -> None:
    lines = ["It rains. Does it?", "No!"]
    tokenizer = Tokenizer.train(kind, lines, size=size or None, specials=(*SPECIALS, "<mask>"))
    ids = np.array(tokenizer.encode(lines[0]))
    known = corruption("infilling", tokenizer)
    parts = sentences_of(ids, known.keywords["ends"])  # type: ignore[attr-defined]
    assert [tokenizer.decode(part.tolist()).strip() for part in parts] == ["It rains.", "Does it?"]


# --- batches of it ---


def two_sides(tokenizer: Tokenizer) -> Fields:
    return Fields({side: TextField(tokenizer, begins=side == "target") for side in ("source", "target")})


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    specials = (*SPECIALS, "<mask>", *(f"<extra_{number}>" for number in range(SENTINELS)))
    return Tokenizer.train("given", [" ".join(map(str, range(49))) + " ."], size=None, specials=specials)


def stored(folder: Path, lengths: list[int], seed: int = 1) -> Encoded:
    random = rng(seed)
    return on_disk(folder, "texts", [random.integers(FIRST, VOCAB, length).tolist() for length in lengths])


@pytest.mark.parametrize("noise", ["spans", "infilling"])
def test_noise_is_a_function_of_seed_epoch_and_index(tmp_path: Path, tokenizer: Tokenizer, noise: str) -> None:
    fields, texts = two_sides(tokenizer), stored(tmp_path, [40, 31, 12, 5, 9])
    plain = Ordered(Examples(fields, {"source": texts}), tokens=100)

    def read(seed: int, epoch: int, index: int) -> list[list[int]]:
        batch = Noisy(plain, fields, noise=noise, seed=seed).get(epoch, index)  # type: ignore[arg-type]
        return source_of(batch).tolist()

    assert read(1, 0, 0) == read(1, 0, 0)
    assert len({str(read(*place)) for place in ((1, 0, 0), (1, 1, 0), (2, 0, 0), (1, 0, 1))}) == 4


def test_the_target_of_infilling_is_the_text(tmp_path: Path, tokenizer: Tokenizer) -> None:
    fields, texts = two_sides(tokenizer), stored(tmp_path, [40, 31])
    batch = Noisy(Ordered(Examples(fields, {"source": texts}), tokens=100), fields, noise="infilling", seed=1).get(0, 0)
    for row, ids in zip(target_of(batch), (texts[0], texts[1]), strict=True):
        assert row[1 : len(ids) + 1].tolist() == ids.tolist() and row[len(ids) + 1] == EOS


def test_no_end_of_a_text_is_hidden() -> None:
    ids = torch.from_numpy(np.where(np.arange(300) % 3, long_text(300), EOS))[None]
    batch = hide(Batch(Padded.of_ids(ids)), first=FIRST, vocab=VOCAB, seed=(1,))
    assert batch.source is not None and batch.target is not None and batch.target.mask.any()
    assert torch.equal(batch.source.values[ids == EOS], ids[ids == EOS]) and not batch.target.mask[ids == EOS].any()


# --- pairs ---


@pytest.fixture
def some(tmp_path: Path) -> Encoded:
    """Texts of different tokens, so that a token is its own place."""
    lengths = [40, 3, 1, 25, 2, 77, 9, 30]
    begins = np.cumsum([FIRST, *lengths])
    return on_disk(tmp_path, "texts", [list(range(a, b)) for a, b in zip(begins, begins[1:], strict=False)])


def of_pairs(texts: Encoded, tokenizer: Tokenizer, epoch: int, seed: int = 5) -> list[tuple[list[int], list[int], int]]:
    """The first part, the second, and whether it follows, of every pair of an epoch."""
    batches = Pairs(text_fields_of(tokenizer), texts, tokens=64, window=16, seed=seed)
    found = []
    for index in range(batches.count(epoch)):
        batch = batches.get(epoch, index)
        assert batch.source is not None and batch.beside["follows"].shape == (batch.size, 1)
        assert batch.source.mask.shape[1] <= 16
        columns = batch.source.values, batch.source.lengths, batch.beside["follows"][:, 0]
        for ids, length, follows in zip(*(column.tolist() for column in columns), strict=True):
            first, second = ids[: ids.index(EOS)], ids[ids.index(EOS) + 1 : length - 1]
            assert ids[length - 1] == EOS and EOS not in second
            found.append((first, second, follows))
    return found


def text_fields_of(tokenizer: Tokenizer) -> Fields:
    return Fields({"source": TextField(tokenizer, begins=False)})


def test_a_pair_is_cut_from_a_text_or_made_of_two(some: Encoded, tokenizer: Tokenizer) -> None:
    text_of = {int(token): text for text in range(len(some)) for token in some[text]}
    labels = []
    for epoch in range(30):
        for first, second, follows in of_pairs(some, tokenizer, epoch):
            whole = first + second if follows else second
            assert first and second and whole == list(range(whole[0], whole[0] + len(whole)))
            assert {text_of[token] for token in first} != {text_of[token] for token in second} or follows
            labels.append(follows)
    assert np.mean(labels) == pytest.approx(0.5, abs=0.07)


def test_an_epoch_of_pairs_begins_in_every_text_and_another_cuts_elsewhere(some: Encoded, tokenizer: Tokenizer) -> None:
    firsts = [{first[0] for first, _, _ in of_pairs(some, tokenizer, epoch)} for epoch in range(2)]
    long_enough = {int(some[text][0]) for text in range(len(some)) if len(some[text]) > 1}
    assert len(long_enough - firsts[0]) <= 1 and firsts[0] != firsts[1]
    assert of_pairs(some, tokenizer, 1) == of_pairs(some, tokenizer, 1)
    assert of_pairs(some, tokenizer, 1) != of_pairs(some, tokenizer, 1, seed=6)


def test_one_text_makes_pairs_of_its_own_parts(tmp_path: Path, tokenizer: Tokenizer) -> None:
    alone = stored(tmp_path, [400])
    assert {follows for _, _, follows in of_pairs(alone, tokenizer, 0)} == {0, 1}


def test_texts_that_cannot_be_cut_in_two_are_refused(tmp_path: Path, tokenizer: Tokenizer) -> None:
    with pytest.raises(UserError, match="no text has two tokens"):
        of_pairs(stored(tmp_path, [1, 1, 1]), tokenizer, 0)

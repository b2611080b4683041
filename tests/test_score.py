"""Laws of scores of runs and of alignments: brute force says the same. The metrics' own are in test_metrics."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_train import recipe_in

from regard.interface import UserError
from regard.loading import load
from regard.predict.decoding import Decoding
from regard.score.alignment import diagonal_links, read_links, strongest_links
from regard.score.metrics import ALIGNMENT_ERROR, TRANSLATION_METRICS
from regard.score.result import Options
from regard.score.translation import attention_links, log_probabilities, translated
from regard.train.session import Session


@pytest.fixture(scope="module", params=["rnnsearch", "transformer"])
def run(request, tmp_path_factory):
    folder = tmp_path_factory.mktemp("score")
    session = Session(recipe_in(folder, model=request.param), folder / "run")
    for _ in session.steps():
        pass
    return load(folder / "run")


PAIRS = [("abc", "cba"), ("a", ""), ("edcba", "abcde"), ("bb", "b"), ("abcabc", "ddd")]


def test_a_probability_is_the_product_of_its_steps(run):
    """Stepwise decoding of each pair alone, summed, equals the batched teacher-forced figure."""
    found_for = zip(PAIRS, log_probabilities([run], PAIRS), strict=True)
    for (source, target), found in found_for:
        state = run.model.start(run.batch(source=[source], multiple=1))
        wanted, token = 0.0, 1
        for answer in [*run.tokenizer("target").encode(target), 2]:
            logits, state = run.model.step(torch.tensor([token]), state)
            wanted += logits[0].log_softmax(-1)[answer].item()
            token = answer
        assert found == pytest.approx(wanted, abs=1e-4)


def test_probabilities_of_all_short_targets_sum_below_one(run):
    targets = ["", *"abcde", *(a + b for a in "abcde" for b in "abcde")]
    total = sum(math.exp(value) for value in log_probabilities([run], [("abc", target) for target in targets]))
    assert 0 < total < 1


def test_batch_mates_do_not_matter(run):
    together, alone = log_probabilities([run], PAIRS), [log_probabilities([run], [pair])[0] for pair in PAIRS]
    assert together == pytest.approx(alone, abs=1e-4)
    assert attention_links(run, PAIRS) == [attention_links(run, [pair])[0] for pair in PAIRS]


def test_scores_are_those_of_the_outputs(run):
    sources, references = ["abc", "edc", "bb"], ["cba", "cde", "bb"]
    gold = [frozenset({(0, 0)})] * 3
    found = translated(run, sources, references, Options(gold=gold))
    assert found.outputs == [prediction.text for prediction in run.predict(sources, Decoding(beam=5))]
    for metric in TRANSLATION_METRICS:
        assert found.values[metric.key] == metric.of(found.outputs, references)
    assert found.diagonal_error == 0.0
    assert found.alignment_error is not None and 0 <= found.alignment_error <= 1


def test_unequal_counts_are_a_sentence(run):
    for sources, references, gold in ((["a"], [], None), ([], [], None), (["a"], ["a"], [])):
        with pytest.raises(UserError, match="give"):
            translated(run, sources, references, Options(gold=gold))


LINKS = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=11)


@given(st.lists(st.tuples(LINKS, LINKS), min_size=1, max_size=5))
def test_alignment_error_is_a_distance(pairs):
    found, gold = zip(*pairs, strict=True)
    error = ALIGNMENT_ERROR.of(found, gold)
    assert 0 <= error <= 1
    assert error == pytest.approx(ALIGNMENT_ERROR.of(gold, found))
    assert ALIGNMENT_ERROR.of(gold, gold) == 0
    if not any(a & b for a, b in pairs) and any(a or b for a, b in pairs):
        assert error == 1


@given(LINKS)
def test_links_read_as_written(links):
    assert read_links(" ".join(f"{s}-{t}" for s, t in links)) == links


@pytest.mark.parametrize("line", ["0", "0-", "a-b", "0-1-2", "0:1"])
def test_links_that_are_none(line):
    with pytest.raises(UserError, match="not an alignment"):
        read_links(line)


def test_alignment_error():
    gold = [frozenset({(0, 0), (1, 1), (2, 2)}), frozenset({(0, 1)})]
    assert ALIGNMENT_ERROR.of(gold, gold) == 0
    assert ALIGNMENT_ERROR.of([frozenset({(0, 1)}), frozenset({(1, 1)})], gold) == 1
    assert ALIGNMENT_ERROR.of([frozenset(), frozenset()], gold) == 1
    half = [frozenset({(0, 0), (1, 2)}), frozenset({(0, 1)})]  # two of three right, two of four found
    assert ALIGNMENT_ERROR.of(half, gold) == pytest.approx(1 - 2 * 2 / (3 + 4))
    assert ALIGNMENT_ERROR.of([frozenset()], [frozenset()]) == 0  # nothing to find, nothing found


def test_strongest_links_leave_out_the_end():
    weights = np.array([[0.7, 0.2, 0.1], [0.3, 0.4, 0.3], [0.1, 0.2, 0.7], [0.5, 0.0, 0.5]])
    assert strongest_links(weights) == {(0, 0), (1, 1), (0, 3)}
    assert strongest_links(np.zeros((0, 3))) == frozenset()


@given(words=st.integers(1, 20), others=st.integers(1, 20))
def test_the_diagonal(words, others):
    links = diagonal_links(words, others)
    assert sorted(target for _, target in links) == list(range(others))
    assert all(0 <= source < words for source, _ in links)
    by_target = [source for source, _ in sorted(links, key=lambda link: link[1])]
    assert by_target == sorted(by_target)
    assert diagonal_links(words, words) == {(place, place) for place in range(words)}

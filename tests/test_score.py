"""Laws of scores: what sacrebleu and brute force say is what we say."""

from __future__ import annotations

import math

import numpy as np
import pytest
import sacrebleu
import torch
from hypothesis import given
from hypothesis import strategies as st
from test_train import recipe_in

from regard.data.batches import pad
from regard.interface import Batch, UserError
from regard.predict.search import Decoding
from regard.run import load
from regard.score.translation import (
    alignment_error,
    attention_links,
    bleu,
    bleu_by_length,
    chrf,
    compare,
    diagonal_links,
    log_probabilities,
    read_links,
    score,
    strongest_links,
)
from regard.train.session import Session

SENTENCES = [" ".join(f"w{(i * k) % 17}" for i in range(3 + k)) for k in range(1, 53)]
WORSE = [sentence.replace("w1", "x1") for sentence in SENTENCES]


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
    found_for = zip(PAIRS, log_probabilities(run, PAIRS), strict=True)
    for (source, target), found in found_for:
        state = run.model.start(Batch(pad([run.tokenizers.source.encode(source)], multiple=1)))
        wanted, token = 0.0, 1
        for answer in [*run.tokenizers.target.encode(target), 2]:
            logits, state = run.model.step(torch.tensor([token]), state)
            wanted += logits[0].log_softmax(-1)[answer].item()
            token = answer
        assert found == pytest.approx(wanted, abs=1e-4)


def test_probabilities_of_all_short_targets_sum_below_one(run):
    targets = ["", *"abcde", *(a + b for a in "abcde" for b in "abcde")]
    total = sum(math.exp(value) for value in log_probabilities(run, [("abc", target) for target in targets]))
    assert 0 < total < 1


def test_batch_mates_do_not_matter(run):
    together, alone = log_probabilities(run, PAIRS), [log_probabilities(run, [pair])[0] for pair in PAIRS]
    assert together == pytest.approx(alone, abs=1e-4)
    assert attention_links(run, PAIRS) == [attention_links(run, [pair])[0] for pair in PAIRS]


def test_scores_are_those_of_the_outputs(run):
    sources, references = ["abc", "edc", "bb"], ["cba", "cde", "bb"]
    gold = [frozenset({(0, 0)})] * 3
    found = score(run, sources, references, gold=gold)
    assert found.outputs == [prediction.text for prediction in run.predict(sources, Decoding(beam=5))]
    assert found.bleu == bleu(found.outputs, references)
    assert found.chrf == chrf(found.outputs, references)
    assert found.diagonal_error == 0.0
    assert found.alignment_error is not None and 0 <= found.alignment_error <= 1


def test_unequal_counts_are_a_sentence(run):
    for sources, references, gold in ((["a"], [], None), ([], [], None), (["a"], ["a"], [])):
        with pytest.raises(UserError, match="give"):
            score(run, sources, references, gold=gold)


def test_bleu_is_cased_and_its_twin_is_not():
    upper = [sentence.upper() for sentence in SENTENCES]
    assert bleu(upper, SENTENCES).value < 1
    assert bleu(upper, SENTENCES, lowercase=True).value == pytest.approx(100)
    assert "case:mixed" in bleu(upper, SENTENCES).signature
    assert "case:lc" in bleu(upper, SENTENCES, lowercase=True).signature
    assert bleu(WORSE, SENTENCES).value == sacrebleu.corpus_bleu(WORSE, [SENTENCES]).score
    assert chrf(WORSE, SENTENCES).value == sacrebleu.corpus_chrf(WORSE, [SENTENCES]).score


def test_every_sentence_is_in_one_bucket():
    buckets = bleu_by_length(SENTENCES, WORSE, SENTENCES)
    assert sum(bucket.sentences for bucket in buckets) == len(SENTENCES)
    assert [(bucket.shortest, bucket.longest) for bucket in buckets] == [
        (1, 10),
        (11, 20),
        (21, 30),
        (31, 40),
        (41, None),
    ]
    first = [i for i, sentence in enumerate(SENTENCES) if len(sentence.split()) <= 10]
    assert buckets[0].bleu == bleu([WORSE[i] for i in first], [SENTENCES[i] for i in first]).value


def test_the_bootstrap_tells_a_difference_from_none():
    unlike = compare(SENTENCES, WORSE, SENTENCES)
    assert unlike.first == pytest.approx(100) and unlike.second == bleu(WORSE, SENTENCES).value
    assert unlike.p < 0.05 < compare(WORSE, list(WORSE), SENTENCES).p
    assert "bs:1000" in unlike.signature


LINKS = st.frozensets(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=11)


@given(st.lists(st.tuples(LINKS, LINKS), min_size=1, max_size=5))
def test_alignment_error_is_a_distance(pairs):
    found, gold = zip(*pairs, strict=True)
    error = alignment_error(found, gold)
    assert 0 <= error <= 1
    assert error == pytest.approx(alignment_error(gold, found))
    assert alignment_error(gold, gold) == 0
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
    assert alignment_error(gold, gold) == 0
    assert alignment_error([frozenset({(0, 1)}), frozenset({(1, 1)})], gold) == 1
    assert alignment_error([frozenset(), frozenset()], gold) == 1
    half = [frozenset({(0, 0), (1, 2)}), frozenset({(0, 1)})]  # two of three right, two of four found
    assert alignment_error(half, gold) == pytest.approx(1 - 2 * 2 / (3 + 4))
    assert alignment_error([frozenset()], [frozenset()]) == 0  # nothing to find, nothing found


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


def test_bleu():
    some = ["the cat sleeps on the mat .", "a dog sees the small cat ."]
    found = bleu(some, some)
    assert found.value == pytest.approx(100)
    assert "version" in found.signature
    assert bleu([line.upper() for line in some], some).value < 10

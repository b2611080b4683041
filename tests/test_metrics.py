"""Laws of metrics: sacreBLEU, scikit-learn and seqeval say the same; statistics add up; the bootstrap is fair."""

from __future__ import annotations

import random
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st
from sacrebleu.significance import PairedTest

from regard.score.bootstrap import RESAMPLES, confidence_interval, difference, paired_bootstrap, resample
from regard.score.captions import CAPTION_METRICS, POINTING
from regard.score.error_rates import RECOGNITION_METRICS, TIMING
from regard.score.metrics import (
    ACCURACY,
    ALIGNMENT_ERROR,
    ANSWER_METRICS,
    BLEU,
    BLEU_LOWERCASE,
    CHRF,
    LABEL_METRICS,
    LOSS,
    MACRO_F1,
    MATTHEWS,
    NUMBER_METRICS,
    PERPLEXITY,
    TAG_ACCURACY,
    TAG_F1,
    TAG_MATTHEWS,
    TAG_METRICS,
    TER,
    TOP_5,
    TRANSLATION_METRICS,
    Metric,
    by_length,
)
from regard.score.registry import METRICS

ALL = (LOSS, PERPLEXITY, *TRANSLATION_METRICS, *LABEL_METRICS, *TAG_METRICS, TAG_MATTHEWS, ALIGNMENT_ERROR)
PEERS: dict[str, Callable[[], Any]] = {
    "bleu": lambda: sacrebleu.BLEU(force=True),
    "bleu_lowercase": lambda: sacrebleu.BLEU(force=True, lowercase=True),
    "chrf": sacrebleu.CHRF,
    "ter": sacrebleu.TER,
}
LONG = "the cat sat on the mat and saw a dog ."

words = st.sampled_from(("the", "The", "cat", "Cat.", "sat", "on", "a", "mat", "."))
sentences = st.one_of(st.lists(words, max_size=12).map(" ".join), st.text(max_size=9), st.just(""), st.just(LONG))
texts = st.lists(st.tuples(sentences, sentences), min_size=1, max_size=8)
labels = st.lists(st.tuples(st.sampled_from("abcde"), st.sampled_from("abcd")), min_size=1, max_size=30)


def unzipped(pairs: list[tuple[Any, Any]]) -> tuple[list[Any], list[Any]]:
    return [one for one, _ in pairs], [other for _, other in pairs]


def corrupted(share: float, seed: int, count: int = 200) -> tuple[list[str], list[str]]:
    """Outputs in which this share of the words is wrong, others for each share, and references."""
    chance, error = random.Random(seed), random.Random(share)
    wanted = [[chance.choice("abcdefghij") for _ in range(chance.randint(4, 20))] for _ in range(count)]
    written = [["x" if error.random() < share else word for word in line] for line in wanted]
    return [" ".join(line) for line in written], [" ".join(line) for line in wanted]


# --- what others compute -----------------------------------------------------------------------------------------


@pytest.mark.parametrize("metric", TRANSLATION_METRICS, ids=lambda metric: metric.key)
@given(pairs=texts)
@settings(deadline=None)
def test_a_value_of_sums_is_sacrebleus_corpus_score(metric: Metric, pairs: list[tuple[str, str]]) -> None:
    outputs, references = unzipped(pairs)
    expected = PEERS[metric.key]().corpus_score(outputs, [references]).score
    assert metric.of(outputs, references) == pytest.approx(expected, abs=1e-9)


@pytest.mark.parametrize("metric", TRANSLATION_METRICS, ids=lambda metric: metric.key)
def test_the_note_is_sacrebleus_signature(metric: Metric) -> None:
    metric.statistics([], [])  # of no references: another number than of one each
    peer = PEERS[metric.key]()
    peer.corpus_score(["a"], [["a"]])
    assert metric.note() == str(peer.get_signature())


def test_only_one_bleu_is_case_sensitive() -> None:
    assert BLEU.of([LONG.upper()], [LONG]) < 10
    assert BLEU_LOWERCASE.of([LONG.upper()], [LONG]) == pytest.approx(100)


@given(labels)
@settings(deadline=None)
def test_labels_are_scored_as_by_scikit_learn(pairs: list[tuple[str, str]]) -> None:
    peer = pytest.importorskip("sklearn.metrics")
    said, gold = unzipped(pairs)
    assert ACCURACY.of(said, gold) == pytest.approx(100 * peer.accuracy_score(gold, said), abs=1e-9)
    expected = peer.f1_score(gold, said, average="macro", zero_division=0)
    assert MACRO_F1.of(said, gold) == pytest.approx(100 * expected, abs=1e-9)
    if len({*said, *gold}) > 1:  # otherwise scikit-learn warns, and says 0 as well
        assert MATTHEWS.of(said, gold) == pytest.approx(100 * peer.matthews_corrcoef(gold, said), abs=1e-9)


@given(st.lists(labels, min_size=1, max_size=5))
@settings(deadline=None)
def test_tags_that_mark_no_spans_are_scored_as_the_labels_of_all_words(sentences: list[list[tuple[str, str]]]) -> None:
    said, gold = ([" ".join(pair[side] for pair in each) for each in sentences] for side in (0, 1))
    flat = unzipped([pair for each in sentences for pair in each])
    for tags, one in ((TAG_ACCURACY, ACCURACY), (TAG_F1, MACRO_F1), (TAG_MATTHEWS, MATTHEWS)):
        assert tags.of(said, gold) == pytest.approx(one.of(*flat), abs=1e-9)
    assert TAG_F1.called(gold) == "macro F1"


@pytest.mark.parametrize("marks", ["BI", "BIES"])
def test_entity_f1_is_seqevals(marks: str) -> None:
    """For any tags at all, well formed or not."""
    peer = pytest.importorskip("seqeval.metrics")
    chance = random.Random(8)
    tags = ["O", *(f"{mark}-{kind}" for mark in marks for kind in ("per", "loc"))]
    for _ in range(200):
        gold = [[chance.choice(tags) for _ in range(chance.randint(1, 9))] for _ in range(5)] + [["O"]]
        said = [[tag if chance.random() < 0.7 else chance.choice(tags) for tag in one] for one in gold]
        outputs, references = ([" ".join(one) for one in each] for each in (said, gold))
        assert TAG_F1.of(outputs, references) == pytest.approx(100 * peer.f1_score(gold, said), abs=1e-9)
        assert TAG_F1.called(references) == "entity F1"


def test_a_label_may_have_spaces_and_a_missing_tag_is_wrong() -> None:
    assert ACCURACY.of(["very good"], ["very bad"]) == 0 and TAG_ACCURACY.of(["A B"], ["A C"]) == 50
    assert MACRO_F1.statistics(["very good"], ["very good"]).shape == (1, 3)
    assert TAG_ACCURACY.of(["A B", ""], ["A B", "A B"]) == 50


# --- what holds for every metric ---------------------------------------------------------------------------------


def examples(metric: Metric, seed: int) -> tuple[list[Any], list[Any]]:
    """Outputs and references such as this metric scores; every label occurs."""
    chance = random.Random(seed)
    if metric in (LOSS, PERPLEXITY):
        return [-np.array([chance.random() for _ in range(chance.randint(1, 5))]) for _ in range(7)], []
    if metric is ALIGNMENT_ERROR:
        return unzipped(
            [tuple(frozenset({(i, chance.randint(0, 3)) for i in range(3)}) for _ in "ab") for _ in range(7)]
        )
    if metric in TRANSLATION_METRICS:
        return corrupted(0.3, seed, 7)
    several = chance.randint(1, 3) if metric in (*TAG_METRICS, TAG_MATTHEWS) else 1
    gold = [" ".join(chance.choice("abc") for _ in range(several)) for _ in range(7)]
    return [*gold[1:], gold[0], *"abc"], [*gold, *"abc"]


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: f"{metric.key}-{metric.name}")
def test_statistics_of_two_sets_are_those_of_both(metric: Metric) -> None:
    (one, first), (other, second) = examples(metric, 1), examples(metric, 2)
    parts = metric.statistics(one, first), metric.statistics(other, second)
    np.testing.assert_array_equal(metric.statistics(one + other, first + second), np.concatenate(parts))
    both = metric.value(np.stack([part.sum(0) for part in parts]))  # many sums at once
    assert both.tolist() == pytest.approx([metric.of(one, first), metric.of(other, second)])
    assert metric.of([], []) == metric.of([], []) and metric.note()
    if metric not in (LOSS, PERPLEXITY):
        with pytest.raises(ValueError):
            metric.statistics(one, first[:-1])


@pytest.mark.parametrize("metric", ALL, ids=lambda metric: f"{metric.key}-{metric.name}")
def test_nothing_improves_on_the_references(metric: Metric) -> None:
    """Which holds only if `better` is the right way round."""
    outputs, references = examples(metric, 3)
    if metric in (LOSS, PERPLEXITY):
        perfect, found = metric.of([np.zeros(3)], []), metric.of(outputs, [])
    else:
        perfect, found = metric.of(references, references), metric.of(outputs, references)
    assert metric.improves(perfect, found) and not metric.improves(found, perfect)
    assert not metric.improves(perfect, perfect)
    assert metric.improves(found, None)


def test_metrics_are_found_by_key() -> None:
    every = (*ALL, *NUMBER_METRICS, *ANSWER_METRICS, *CAPTION_METRICS, *RECOGNITION_METRICS, POINTING, TIMING, TOP_5)
    assert set(METRICS) == {*(metric.key for metric in every)}
    assert all(METRICS[metric.key].better == metric.better for metric in every)
    assert {metric.key for metric in every if metric.better == "lower"} == {
        "loss", "perplexity", "ter", "alignment_error", "rmse", "wer", "cer"
    }  # fmt: skip
    assert METRICS["f1"].name == "F1" and METRICS["ter"] is TER


def test_loss_is_the_mean_over_tokens_and_perplexity_its_exponential() -> None:
    each = [np.log([0.5, 0.25]), np.log([0.125])]
    assert LOSS.of(each, ()) == pytest.approx(2 * np.log(2))
    assert PERPLEXITY.of(each, ()) == pytest.approx(4)
    impossible = [np.array([-np.inf]), *each]
    assert LOSS.of(impossible, ()) == np.inf and np.isfinite(PERPLEXITY.of(impossible, ()))


@pytest.mark.parametrize("metric", (BLEU, TER), ids=lambda metric: metric.key)
def test_every_sentence_is_in_one_bucket(metric: Metric) -> None:
    references = [" ".join(f"w{(i * k) % 17}" for i in range(3 + k)) for k in range(1, 53)]
    outputs = [sentence.replace("w1", "x1") for sentence in references]
    found = by_length(metric, references, outputs, references)
    assert sum(bucket.sentences for bucket in found) == len(references)
    assert [(bucket.shortest, bucket.longest) for bucket in found] == [
        (1, 10), (11, 20), (21, 30), (31, 40), (41, None)
    ]  # fmt: skip
    second = [i for i, sentence in enumerate(references) if 10 < len(sentence.split()) <= 20]
    assert found[1].value == metric.of([outputs[i] for i in second], [references[i] for i in second])
    assert [bucket.longest for bucket in by_length(metric, references[:9], outputs[:9], references[:9])] == [10, 20]


def test_metrics_need_no_torch_and_sacrebleu_only_when_used() -> None:
    code = "import sys, regard.score.bootstrap; print({'torch', 'sacrebleu'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout.strip() == "set()"


# --- the bootstrap -----------------------------------------------------------------------------------------------


def scores(mean: float, count: int, seeds: int, seed: int) -> list[Any]:
    """For each seed (sentences, 2): a score and 1, so that the value of accuracy is 100 times their mean."""
    chance = np.random.default_rng(seed)
    return [np.stack([mean + chance.normal(0, 1, count), np.ones(count)], 1) for _ in range(seeds)]


def test_resampling_is_deterministic_and_the_same_for_all_models() -> None:
    one = scores(0, 100, 1, seed=1)
    found = [resample({"a": one, "b": [one[0] + [[1, 0]]]}, ACCURACY) for _ in range(2)]
    np.testing.assert_array_equal(found[0]["a"].values, found[1]["a"].values)
    assert len(found[0]["a"].values) == RESAMPLES and np.ptp(found[0]["a"].values) > 1
    np.testing.assert_allclose(found[0]["b"].values - found[0]["a"].values, 100)


def test_a_confidence_interval_has_the_theoretical_width() -> None:
    found = resample({"one": scores(0, 2000, 1, seed=1)}, ACCURACY)["one"]
    low, high = confidence_interval(found.values)
    assert high - low == pytest.approx(2 * 1.96 * 100 / 2000**0.5, rel=0.1)
    assert low < found.mean < high


@pytest.mark.parametrize("metric", (*TRANSLATION_METRICS, TAG_F1, MATTHEWS), ids=lambda metric: metric.key)
def test_a_confidence_interval_contains_the_value(metric: Metric) -> None:
    outputs, references = corrupted(0.3, seed=5, count=100)
    if metric is MATTHEWS:
        outputs, references = (" ".join(lines).split()[:500] for lines in (outputs, references))
    facts = resample({"one": [metric.statistics(outputs, references)]}, metric)["one"].facts()
    assert facts["each"] == [facts["mean"]] == [metric.of(outputs, references)]
    assert facts["low"] < facts["mean"] < facts["high"]


def test_seeds_that_differ_widen_an_interval() -> None:
    same = scores(0, 500, 1, seed=1) * 3
    other = [seed + np.array([shift, 0.0]) for seed, shift in zip(same, (-0.5, 0.0, 0.5), strict=True)]
    found = resample({"same": same, "other": other}, ACCURACY)
    widths = {name: np.diff(confidence_interval(each.values))[0] for name, each in found.items()}
    assert widths["other"] > 2 * widths["same"]


def test_seeds_may_have_other_labels() -> None:
    gold = ["a", "b"] * 20
    seeds = [MACRO_F1.statistics(said, gold) for said in (gold, [*gold[:-1], "c"])]
    found = resample({"one": seeds}, MACRO_F1)["one"]
    assert seeds[0].shape != seeds[1].shape
    assert found.each == (100, MACRO_F1.of([*gold[:-1], "c"], gold))


def test_an_impossible_text_is_infinitely_unlikely_in_the_resamples_that_have_it() -> None:
    each = [np.array([-np.inf]), *[np.array([-1.0])] * 9]
    values = resample({"one": [PERPLEXITY.statistics(each, ())]}, PERPLEXITY)["one"].values
    assert set(np.log(values).round(6)) == {1, 700}


def test_identical_models_do_not_differ_significantly_and_others_do() -> None:
    outputs, references = corrupted(0.3, seed=2)
    assert paired_bootstrap(BLEU, outputs, list(outputs), references)[2] == (0, 0, 0, 1)
    one = scores(0, 500, 3, seed=1)
    found = resample({"a": one, "b": one, "c": [seed + np.array([1.0, 0]) for seed in one]}, ACCURACY)
    same, apart = difference(found["a"], found["b"]), difference(found["c"], found["a"])
    assert same.difference == 0 and same.low <= 0 <= same.high and same.p > 0.5
    assert apart.difference == pytest.approx(100) and apart.low > 0 and apart.p < 0.01
    back = difference(found["a"], found["c"])
    assert (back.difference, back.low, back.high) == pytest.approx((-apart.difference, -apart.high, -apart.low))
    assert back.p == apart.p


def test_the_bootstrap_rarely_calls_chance_a_difference() -> None:
    """Of two models that are equally good, one in twenty may be taken for better."""
    wrong = 0
    for trial in range(40):
        found = resample({"a": scores(0, 200, 1, trial), "b": scores(0, 200, 1, 100 + trial)}, ACCURACY)
        pair = difference(found["a"], found["b"])
        wrong += not pair.low <= 0 <= pair.high
    assert wrong <= 6


@pytest.mark.parametrize("metric", (BLEU, CHRF, TER), ids=lambda metric: metric.key)
def test_the_paired_bootstrap_agrees_with_sacrebleus(metric: Metric) -> None:
    """Roughly: ours is two-sided, and sacreBLEU's is the chance of one tail where a difference is clear."""
    compared = []
    for share in (0.30, 0.31, 0.32, 0.33, 0.34, 0.45):
        (first, references), (second, _) = corrupted(0.3, seed=3, count=60), corrupted(share, seed=3, count=60)
        one, other, apart = paired_bootstrap(metric, first, second, references)
        peer = PEERS[metric.key]()
        test = PairedTest([("a", first), ("b", second)], {"": peer}, [references], test_type="bs", n_samples=1000)
        _, results = test()[1].values()  # the names, and of each what was found
        assert (one.mean, other.mean) == pytest.approx([result.score for result in results])
        compared.append((apart.p, 1.0 if first == second else results[1].p_value))
    for ours, theirs in compared:
        assert theirs / 2 - 0.01 <= ours <= 4 * theirs + 0.01
    assert compared[0] == (1, 1) and compared[-1][0] < 0.01
    assert any(0.05 < ours < 1 for ours, _ in compared)

"""Laws of recognition's scores: jiwer computes the same, statistics add up, confusions are what was confused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.score.error_rates import (
    CER,
    EXACT_TRANSCRIPT,
    RECOGNITION_METRICS,
    TIMING,
    TIMING_DISTANCE,
    WER,
    align,
    distance,
    equally_spaced,
)
from regard.score.metrics import Metric
from regard.score.recognition import confusions, transcript_scores

texts = st.lists(st.sampled_from(("one", "two", "on", "too", "é", "a")), max_size=9).map(" ".join)
letters = st.text("abc", max_size=80)


def table(reference: str, output: str) -> int:
    """The distance, cell by cell."""
    row = list(range(len(output) + 1))
    for i, one in enumerate(reference, start=1):
        before, row = row, [i]
        for j, other in enumerate(output, start=1):
            row.append(min(before[j] + 1, row[-1] + 1, before[j - 1] + (one != other)))
    return row[-1]


@given(letters, letters)
@settings(deadline=None)
def test_the_distance_is_that_of_the_whole_table(reference: str, output: str) -> None:
    assert distance(reference, output) == table(reference, output)


@given(letters, letters)
@settings(deadline=None)
def test_an_alignment_keeps_both_texts_and_has_as_many_edits_as_the_distance(reference: str, output: str) -> None:
    pairs = align(reference, output)
    assert "".join(one for one, _ in pairs) == reference and "".join(other for _, other in pairs) == output
    assert ("", "") not in pairs
    assert sum(one != other for one, other in pairs) == distance(reference, output)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=6))
@settings(deadline=None)
def test_error_rates_are_jiwers(pairs: list[tuple[str, str]]) -> None:
    jiwer = pytest.importorskip("jiwer")
    outputs, references = ([pair[side] for pair in pairs] for side in range(2))
    words, characters = jiwer.process_words(references, outputs), jiwer.process_characters(references, outputs)
    kinds, _ = confusions(references, outputs)
    assert kinds == {kind: getattr(words, kind) for kind in ("substitutions", "deletions", "insertions")}
    if any(references):
        assert WER.of(outputs, references) == pytest.approx(100 * words.wer, abs=1e-9)
        assert CER.of(outputs, references) == pytest.approx(100 * characters.cer, abs=1e-9)


@given(st.lists(st.tuples(texts, texts), min_size=1, max_size=6))
@settings(deadline=None)
def test_the_statistics_of_examples_add_up_to_the_value_of_the_corpus(pairs: list[tuple[str, str]]) -> None:
    outputs, references = ([pair[side] for pair in pairs] for side in range(2))
    edits, words = WER.statistics(outputs, references).sum(0)
    assert words == len(" ".join(references).split())
    assert edits == sum(table(b.split(), a.split()) for a, b in pairs)  # type: ignore[arg-type]
    assert WER.of(outputs, references) == pytest.approx(100 * edits / max(words, 1))


@pytest.mark.parametrize("metric", RECOGNITION_METRICS, ids=lambda metric: metric.key)
def test_the_ends_of_the_scale(metric: Metric) -> None:
    references = ["one two", "three"]
    perfect, empty = (0, 100) if metric.better == "lower" else (100, 0)
    assert metric.of(references, references) == perfect and metric.of(["", ""], references) == empty
    assert metric.of([], []) == 0


def test_more_may_be_wrong_than_there_is() -> None:
    assert WER.of(["a b c d"], ["e"]) == 400
    assert WER.of(["one", "two"], ["", "two"]) == 100  # an insertion where nothing is, for one word in all
    assert WER.of(["one"], [""]) == 100 and WER.of([""], [""]) == 0
    assert WER.of(["  one   two "], ["one two"]) == 0 and WER.of(["One"], ["one"]) == 100
    assert CER.of(["onetwo"], ["one two"]) == pytest.approx(100 / 7)  # a space is a character
    assert EXACT_TRANSCRIPT.of(["one  two", "one"], ["one two", "two"]) == 50


def test_a_long_recording_is_aligned_at_once() -> None:
    random = np.random.default_rng(0)
    reference = [str(number) for number in random.integers(500, size=6000)]
    output = [word for word in reference if random.random() < 0.9]
    pairs = align(reference, output)
    assert sum(one != other for one, other in pairs) == distance(reference, output) == 6000 - len(output)


def test_what_was_confused_is_listed_with_the_most_frequent_first() -> None:
    references = ["one two three", "one two three", "two", "", "zero"]
    found = transcript_scores(references, ["one three three", "one three", "three", "four", "zero"])
    assert found["count"] == 5 and found["words"] == 8 and found["wer"] == 50
    assert (found["substitutions"], found["deletions"], found["insertions"]) == (2, 1, 1)
    assert found["confusions"] == [
        {"reference": "two", "recognised": "three", "times": 2},
        {"reference": "two", "recognised": "", "times": 1},
        {"reference": "", "recognised": "four", "times": 1},
    ]
    for line in ("  two -> three  2", "  two -> (nothing)  1", "  (nothing) -> four  1"):
        assert line in found.lines
    assert found["intervals"]["wer"][0] < 50 < found["intervals"]["wer"][1]
    assert len(transcript_scores([str(n) for n in range(50)], [""] * 50)["confusions"]) == 10
    assert not any("confusions" in line for line in transcript_scores(["a"], ["a"]).lines)


# --- times -------------------------------------------------------------------------------------------------------

SPANS = [[(0.1, 0.3), (0.3, 0.5)], [(1.0, 1.2)]]


def share_and_distance(times: list[Any]) -> tuple[float, float]:
    return TIMING.of(times, SPANS), TIMING_DISTANCE.of(times, SPANS)


def test_a_time_is_right_inside_its_span_and_60_ms_around_it() -> None:
    assert share_and_distance([[0.2, 0.4], [1.1]]) == (100, pytest.approx(0))
    assert share_and_distance([[0.04, 0.56], [1.26]]) == (100, pytest.approx(160))
    assert share_and_distance([[0.03, 0.4], [1.27]]) == (pytest.approx(100 / 3), pytest.approx(340 / 3))
    assert share_and_distance([np.array([0.2, 0.6]), np.array([1.1])])[0] == pytest.approx(200 / 3)


def test_every_unit_counts_alike() -> None:
    times = [[0.2, 0.9], [1.1]]
    assert TIMING.statistics(times, SPANS).sum(0) == pytest.approx([2, 3, 500])
    assert TIMING.of([[]], [[]]) == 0 and TIMING.statistics([], []).shape == (0, 3)
    with pytest.raises(ValueError, match="one time for each unit"):
        TIMING.of([[0.2], [1.1]], SPANS)


def test_equal_spacing_is_in_the_middle_of_equal_parts() -> None:
    assert equally_spaced(1.2, 3) == pytest.approx([0.2, 0.6, 1.0]) and equally_spaced(1.0, 0).size == 0

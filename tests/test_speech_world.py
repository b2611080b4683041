"""The built-in speech: units differ by the order of their sounds, times are right, splits share no string."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from functools import cache
from itertools import islice, pairwise
from typing import get_args

import numpy as np
import pytest
from numpy.typing import NDArray

from regard.data.frames import HOP, log_mel
from regard.data.world import Split
from regard.data.world.speech import PATTERNS, SOUNDS, UNITS, Units, Utterance, Voice, speak, utterances
from regard.score.error_rates import TIMING, WER, equally_spaced
from regard.score.nearest_spectrum import NearestSpectrum, spectra

RATE, BANDS = 8000, 40
SPLITS: tuple[Split, ...] = get_args(Split)
CLEAR = Voice(pitch=120, tract=1.0, tempo=0.9, loudness=0.8, noise=60, colour=0.0)
REVERSED = [
    (one, other) for one in PATTERNS for other in PATTERNS if one < other and PATTERNS[one] == PATTERNS[other][::-1]
]


@cache
def some(split: Split, count: int = 200, units: Units = "digits") -> tuple[Utterance, ...]:
    return tuple(islice(utterances(split, units=units), count))


def clearly(*words: str, seed: int = 1) -> Utterance:
    return replace(speak(words, seed), voice=CLEAR)


def energies(utterance: Utterance) -> NDArray[np.float64]:
    """The mean energy of each hundredth of a second."""
    samples = utterance.samples(RATE).astype(np.float64)
    return np.square(samples[: len(samples) // 80 * 80]).reshape(-1, 80).mean(1)


def test_every_unit_has_its_own_sequence_of_two_to_four_sounds() -> None:
    assert set(PATTERNS) == {*UNITS["both"]} == {*UNITS["digits"], *UNITS["letters"]} and len(PATTERNS) == 36
    assert len({*PATTERNS.values()}) == len(PATTERNS)
    assert {len(pattern) for pattern in PATTERNS.values()} == {2, 3, 4}
    assert {sound for pattern in PATTERNS.values() for sound in pattern} == {*SOUNDS}
    assert all(one != other for pattern in PATTERNS.values() for one, other in pairwise(pattern))


def test_most_units_have_another_one_of_the_same_sounds() -> None:
    for units in UNITS.values():
        kinds = ["".join(sorted(PATTERNS[word])) for word in units]
        assert sum(kinds.count(kind) > 1 for kind in kinds) >= 0.9 * len(units)


@pytest.mark.parametrize("split", SPLITS)
def test_utterances_are_a_function_of_split_seed_and_number(split: Split) -> None:
    again = list(islice(utterances(split), 20))
    assert again == list(some(split)[:20])
    assert all(
        np.array_equal(one.samples(RATE), other.samples(RATE)) for one, other in zip(again, some(split), strict=False)
    )
    assert list(islice(utterances(split, seed=1), 20)) != again


def test_another_process_makes_the_same_samples() -> None:
    code = (
        "import hashlib; from regard.data.world.speech import utterances; one = next(utterances('test'));"
        f"print(one.text, hashlib.sha256(one.samples({RATE}).tobytes()).hexdigest())"
    )
    seen = {subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout for _ in range(2)}
    assert len(seen) == 1 and seen.pop().startswith(some("test")[0].text + " ")


@pytest.mark.parametrize("units", UNITS)
def test_no_string_is_in_two_splits(units: Units) -> None:
    strings = [{each.words for each in some(split, 1500, units)} for split in SPLITS]
    for one, other in ((0, 1), (0, 2), (1, 2)):
        assert not strings[one] & strings[other]
    assert all({word for words in each for word in words} == {*UNITS[units]} for each in strings)
    assert all({len(words) for words in each} >= {2, 3, 4, 5, 6, 7} for each in strings)


def test_longest_limits_the_units_and_two_are_enough() -> None:
    for split in SPLITS:
        assert {len(each.words) for each in islice(utterances(split, longest=2), 50)} <= {1, 2}
    for wrong in ({"longest": 1}, {"units": "words"}):
        with pytest.raises(ValueError, match="choose"):
            utterances("train", **wrong)  # type: ignore[arg-type]


def test_spans_are_in_order_inside_the_recording_and_as_long_as_units_are() -> None:
    gaps = []
    for each in some("train"):
        edges = [time for times in each.edges for time in times]
        assert edges == sorted(edges) and edges[0] > 0 and edges[-1] < each.seconds
        assert len(each.samples(RATE)) == round(RATE * each.seconds)
        assert all(0.14 < end - start < 0.45 for start, end in each.spans)
        gaps += [later[0] - earlier[1] for earlier, later in pairwise(each.spans)]
    assert max(gaps) <= 0.6 and 0.15 < np.mean(np.array(gaps) == 0) < 0.35
    assert min(gap for gap in gaps if gap) >= 0.02 - 1e-9


def test_units_are_louder_than_what_is_around_them() -> None:
    for each in some("train", 50):
        energy, times = energies(each), (np.arange(len(energies(each))) + 0.5) * 0.01
        inside = [energy[(times > start + 0.03) & (times < end - 0.04)] for start, end in each.spans]
        outside = energy[np.all([(times < start - 0.02) | (times > end + 0.02) for start, end in each.spans], 0)]
        assert min(part.mean() for part in inside) > 4 * outside.mean()


def test_a_unit_fades_at_its_ends_even_without_a_gap() -> None:
    joined = clearly(
        "zero",
        "one",
        "one",
        seed=next(
            n
            for n in range(99)
            if np.ptp(gaps_of(clearly("zero", "one", "one", seed=n))) == 0
            and gaps_of(clearly("zero", "one", "one", seed=n))[0] == 0
        ),
    )
    energy = energies(joined)
    for end in [span[1] for span in joined.spans][:-1]:
        near = energy[round(end * 100) - 2 : round(end * 100) + 2].min()
        assert near < 0.1 * np.median(energy[energy > 0.01 * energy.max()])


def gaps_of(utterance: Utterance) -> list[float]:
    return [later[0] - earlier[1] for earlier, later in pairwise(utterance.spans)]


def test_samples_are_finite_and_as_loud_as_the_voice_at_any_rate() -> None:
    for rate in (8000, 11_025, 16_000, 44_100):
        for each in some("train", 5):
            samples = each.samples(rate)
            assert samples.dtype == np.float32 and len(samples) == round(rate * each.seconds)
            assert np.abs(samples).max() == pytest.approx(each.voice.loudness, rel=1e-5)


def test_the_voice_has_its_pitch() -> None:
    """The autocorrelation of a vowel is largest one period later."""
    for pitch in (100.0, 150.0, 230.0):
        each = replace(clearly("zero"), voice=replace(CLEAR, pitch=pitch))
        start, end = each.spans[0]
        part = each.samples(RATE)[int((start + 0.04) * RATE) : int((end - 0.05) * RATE)]
        along = np.correlate(part, part, "full")[len(part) - 1 :]
        assert RATE / (20 + along[20:140].argmax()) == pytest.approx(pitch, rel=0.1)


def spectra_of_halves(utterance: Utterance) -> NDArray[np.float64]:
    """The mean log-mel spectrum of each half of each unit, (units, 2, bands), less its mean."""
    frames = log_mel(utterance.samples(RATE), RATE, BANDS)
    units = [frames[round(start / HOP) : round(end / HOP)] for start, end in utterance.spans]
    means = np.array([[half.mean(0) for half in np.array_split(unit, 2)] for unit in units], np.float64)
    return means - means.mean(-1, keepdims=True)


def test_reversed_units_have_equal_mean_spectra_and_different_sequences() -> None:
    assert len(REVERSED) >= 15
    for one, other in REVERSED:
        each = clearly(*(one, other) * 24)
        whole = spectra(each, RATE, BANDS).reshape(24, 2, BANDS).mean(0)
        (first, last), (start, end) = spectra_of_halves(each).reshape(24, 2, 2, BANDS).mean(0)
        differs = np.abs(first - start).mean()
        assert np.abs(whole[0] - whole[1]).mean() < differs / 4, (one, other)
        assert np.abs(first - end).mean() < differs / 2 and np.abs(last - start).mean() < differs / 2, (one, other)


def test_the_nearest_mean_spectrum_fails_often_and_the_order_of_sounds_does_not() -> None:
    baseline = NearestSpectrum.fit(some("train", 300), rate=RATE, bands=BANDS)
    references = [each.text for each in some("test", 200)]
    assert 40 <= WER.of(baseline.recognise(some("test", 200)), references) <= 60


def test_equally_spaced_times_are_often_wrong() -> None:
    each = some("test")
    found = TIMING.of([equally_spaced(one.seconds, len(one.words)) for one in each], [one.spans for one in each])
    assert 20 < found < 90

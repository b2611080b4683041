"""Error rates of recognition, of words and of characters, and when a unit was found.

word error rate       100 · (substitutions + deletions + insertions) / words of the reference
character error rate  the same, of characters, spaces included

The edits are the fewest that turn the reference into the output (Levenshtein 1966). Words are what spaces separate;
case and punctuation count. A reference without words adds its insertions to the errors and nothing to the words.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from regard.score.metrics import Floats, Metric, Statistics, percentage

CLOSE = 0.06  # seconds: a unit is found if its time is at most so far from its span

# --- edits -------------------------------------------------------------------------------------------------------


def distance(reference: Sequence[str], output: Sequence[str]) -> int:
    """The fewest substitutions, deletions and insertions that turn the reference into the output."""
    up, down = (1 << len(reference)) - 1, 0
    for up, down in _columns(reference, output):  # noqa: B007
        pass
    return len(output) + up.bit_count() - down.bit_count()


def align(reference: Sequence[str], output: Sequence[str]) -> list[tuple[str, str]]:
    """Pairs of an item of the reference and one of the output, in order, for the fewest edits; "" where one lacks."""
    columns = list(_columns(reference, output))
    row, column, pairs = len(reference), len(output), list[tuple[str, str]]()
    while row and column:
        if columns[column - 1][0] >> (row - 1) & 1:  # one more error than without this item of the reference
            row -= 1
            pairs.append((reference[row], ""))
        elif column > 1 and columns[column - 2][1] >> (row - 1) & 1:
            column -= 1
            pairs.append(("", output[column]))
        else:
            row, column = row - 1, column - 1
            pairs.append((reference[row], output[column]))
    pairs += [("", item) for item in reversed(output[:column])]
    pairs += [(item, "") for item in reversed(reference[:row])]
    return pairs[::-1]


def _columns(reference: Sequence[str], output: Sequence[str]) -> Iterator[tuple[int, int]]:
    """For each start output[:j], the bits i at which d(reference[:i + 1], output[:j]) − d(reference[:i], output[:j]) is
    1, and those at which it is −1: a whole column of the table of distances in a few operations on long integers (Myers
    1999, in the form of Hyyrö 2003). At j = 0 all are 1."""
    every = (1 << len(reference)) - 1
    places: dict[str, int] = {}
    for place, item in enumerate(reference):
        places[item] = places.get(item, 0) | 1 << place
    up, down = every, 0
    for item in output:
        same = places.get(item, 0)
        diagonal = ((same & up) + up ^ up) | same | down  # where d(i, j) = d(i − 1, j − 1)
        right, left = down | ~(diagonal | up) & every, diagonal & up  # d(i, j) − d(i, j − 1) is 1, or −1
        right, left = right << 1 | 1, left << 1
        up, down = (left | ~(diagonal | right)) & every, right & diagonal & every
        yield up, down


# --- error rates -------------------------------------------------------------------------------------------------


def words_of(text: str) -> list[str]:
    return text.split()


def _characters(text: str) -> list[str]:
    return list(text.strip())


def _edits(units: Any) -> Statistics:
    """(examples, 2): edits, and the length of the reference in these units."""

    def statistics(outputs: Sequence[str], references: Sequence[str]) -> Floats:
        pairs = [(units(output), units(reference)) for output, reference in zip(outputs, references, strict=True)]
        return np.array([[distance(b, a), len(b)] for a, b in pairs], np.float64).reshape(-1, 2)

    return statistics


def _all_right(outputs: Sequence[str], references: Sequence[str]) -> Floats:
    """(examples, 2): whether all words are right; and 1."""
    pairs = zip(outputs, references, strict=True)
    return np.array([[words_of(a) == words_of(b), 1] for a, b in pairs], np.float64).reshape(-1, 2)


WER = Metric(
    "wer",
    "WER",
    "lower",
    _edits(words_of),
    percentage,
    lambda: "word error rate: substituted, deleted and inserted words per word of the reference",
    "%",
)
CER = Metric(
    "cer",
    "CER",
    "lower",
    _edits(_characters),
    percentage,
    lambda: "character error rate: substituted, deleted and inserted characters per character of the reference",
    "%",
)
EXACT_TRANSCRIPT = Metric(
    "exact_transcript",
    "exact match",
    "higher",
    _all_right,
    percentage,
    lambda: "share of recordings whose words are all right",
    "%",
)
RECOGNITION_METRICS = (WER, CER, EXACT_TRANSCRIPT)


# --- times -------------------------------------------------------------------------------------------------------


def _timing(times: Sequence[Any], spans: Sequence[Any]) -> Floats:
    """(examples, 3): units whose time is close to their span, units, and the sum of the distances to the middles of the
    spans in ms. times: (units,) seconds of each example; spans: (units, 2)."""
    rows = []
    for found, wanted in zip(times, spans, strict=True):
        at, (start, end) = np.asarray(found, np.float64), np.asarray(wanted, np.float64).reshape(-1, 2).T
        if at.shape != start.shape:
            raise ValueError(f"{at.shape} times were given for {len(start)} units: give one time for each unit.")
        outside = np.maximum(np.maximum(start - at, at - end), 0.0)
        rows.append([(outside <= CLOSE + 1e-9).sum(), len(at), 1000 * np.abs(at - (start + end) / 2).sum()])
    return np.array(rows, np.float64).reshape(-1, 3)


def _mean_distance(sums: Floats) -> Floats:
    values: Floats = sums[..., 2] / np.maximum(sums[..., 1], 1)
    return values


def equally_spaced(seconds: float, units: int) -> Floats:
    """The times of so many units of equal length, one after the other: what is known without a model."""
    return np.asarray((np.arange(units) + 0.5) * (seconds / max(1, units)), np.float64)


TIMING = Metric(
    "timing",
    f"units found within {1000 * CLOSE:.0f} ms",
    "higher",
    _timing,
    percentage,
    lambda: f"share of units whose time is inside their span, or at most {1000 * CLOSE:.0f} ms from it",
    "%",
)
TIMING_DISTANCE = Metric(
    "timing_distance",
    "mean distance in time",
    "lower",
    _timing,
    _mean_distance,
    lambda: "mean distance of a unit's time to the middle of its span",
    "ms",
)

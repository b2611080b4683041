"""Metrics of captions, each against one or several references, which BETWEEN separates.

CIDEr-D   10 · mean over n = 1 … 4 and over references of  e^(−Δ²/2σ²) · Σ_g min(hyp_g, ref_g) ref_g / (|hyp| |ref|)
          hyp_g, ref_g: how often n-gram g occurs × its inverse document frequency, ln(pictures / pictures with g);
          Δ: the difference of lengths, σ = 6                                     Vedantam 2015, section 4
Inverse document frequencies are those of the references that are scored, so a figure belongs to its test set.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from math import exp, log

import numpy as np
from numpy.typing import NDArray

from regard.data.text import BETWEEN
from regard.data.world.scenes import coverage
from regard.score.metrics import BLEU_OF_SEVERAL, CHRF_OF_SEVERAL, Floats, Metric, percentage

LONGEST, SIGMA, SCALE = 4, 6.0, 10.0
Gram = tuple[str, ...]
WORD = re.compile(r"[^\W_]+(?:['’][^\W_]+)*")


def words_of(caption: str) -> list[str]:
    """The words of a caption as they are compared: lower case, without punctuation."""
    return WORD.findall(caption.lower())


def grams_of(caption: str) -> list[Counter[Gram]]:
    """How often each n-gram occurs, for each n."""
    words = words_of(caption)
    starts = (range(len(words) - n) for n in range(LONGEST))
    return [Counter(tuple(words[at : at + n + 1]) for at in places) for n, places in enumerate(starts)]


class Cider:
    """CIDEr-D with the document frequencies of these references."""

    def __init__(self, references: Sequence[Sequence[str]]) -> None:
        self.pictures = len(references)
        self.frequency: Counter[Gram] = Counter()
        for captions in references:
            self.frequency.update({gram for caption in captions for counts in grams_of(caption) for gram in counts})

    def vectors(self, caption: str) -> list[dict[Gram, float]]:
        def rarity(gram: Gram) -> float:
            return log(max(1, self.pictures)) - log(max(1, self.frequency[gram]))

        return [{gram: count * rarity(gram) for gram, count in counts.items()} for counts in grams_of(caption)]

    def of(self, caption: str, references: Sequence[str]) -> float:
        written, length = self.vectors(caption), len(words_of(caption))
        total = 0.0
        for reference in references:
            apart = length - len(words_of(reference))
            close = exp(-(apart**2) / (2 * SIGMA**2))
            pairs = zip(written, self.vectors(reference), strict=True)
            total += close * sum(similarity(one, other) for one, other in pairs) / LONGEST
        return SCALE * total / max(1, len(references))


def similarity(one: dict[Gram, float], other: dict[Gram, float]) -> float:
    shared = sum(min(weight, other[gram]) * other[gram] for gram, weight in one.items() if gram in other)
    norms = (sum(weight**2 for weight in each.values()) ** 0.5 for each in (one, other))
    size = float(np.prod(list(norms)))
    return shared / size if size else 0.0


def _cider(outputs: Sequence[str], references: Sequence[str]) -> Floats:
    """(examples, 2): CIDEr-D of each caption, and 1."""
    several = [reference.split(BETWEEN) for reference in references]
    scorer = Cider(several)
    rows = [[scorer.of(output, captions), 1.0] for output, captions in zip(outputs, several, strict=True)]
    return np.array(rows, np.float64).reshape(-1, 2)


def _exact(outputs: Sequence[str], references: Sequence[str]) -> Floats:
    """(examples, 2): whether a caption is equal to a reference, but for case and punctuation; and 1."""
    several = ([words_of(caption) for caption in reference.split(BETWEEN)] for reference in references)
    rows = [[words_of(output) in captions, 1.0] for output, captions in zip(outputs, several, strict=True)]
    return np.array(rows, np.float64).reshape(-1, 2)


def _mean(sums: Floats) -> Floats:
    means: Floats = sums[..., 0] / np.maximum(sums[..., 1], 1)
    return means


CIDER = Metric(
    "cider", "CIDEr-D", "higher", _cider, _mean, lambda: "inverse document frequencies of these references, σ = 6"
)
EXACT_CAPTION = Metric(
    "exact_caption",
    "exact match",
    "higher",
    _exact,
    percentage,
    lambda: "share of captions equal to a reference, without case and punctuation",
    "%",
)


def _pointing(maps: Sequence[Floats], regions: Sequence[NDArray[np.bool_]]) -> Floats:
    """Pointing accuracy, (examples, 2): the shares of each word's weights inside its region, summed, and the number of
    words; maps are (words, rows, columns), regions (words, height, width)."""
    found = []
    for weights, wanted in zip(maps, regions, strict=True):
        inside = np.stack([coverage(region, *weights.shape[1:]) for region in wanted])
        shares = (weights * inside).sum((1, 2)) / np.maximum(weights.sum((1, 2)), 1e-9)
        found.append([float(shares.sum()), len(shares)])
    return np.array(found, np.float64).reshape(-1, 2)


POINTING = Metric(
    "pointing",
    "attention inside the word's region",
    "higher",
    _pointing,
    percentage,
    lambda: "share of the weights of each word of the reference on what the word is about",
    "%",
)
CAPTION_METRICS = (CHRF_OF_SEVERAL, BLEU_OF_SEVERAL, CIDER, EXACT_CAPTION)

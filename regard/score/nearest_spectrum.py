"""A baseline of recognition that ignores order: each unit is named after the nearest mean spectrum.

It is given the gold start and end of each unit, which a model is not.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from regard.data.frames import HOP, log_mel
from regard.data.world.speech import Utterance

Spectra = NDArray[np.float32]


class NearestSpectrum:
    def __init__(self, words: Sequence[str], means: Spectra, rate: int) -> None:
        self.words, self.means, self.rate = words, means, rate  # means: (words, bands)

    @classmethod
    def fit(cls, utterances: Iterable[Utterance], *, rate: int, bands: int) -> NearestSpectrum:
        """Learn the mean spectrum of each unit."""
        found: dict[str, list[Spectra]] = {}
        for utterance in utterances:
            for word, spectrum in zip(utterance.words, spectra(utterance, rate, bands), strict=True):
                found.setdefault(word, []).append(spectrum)
        means = np.stack([np.mean(each, 0) for each in found.values()])
        return cls(list(found), means, rate)

    def recognise(self, utterances: Iterable[Utterance]) -> list[str]:
        return [" ".join(self.nearest(spectra(each, self.rate, self.means.shape[1]))) for each in utterances]

    def nearest(self, units: Spectra) -> list[str]:
        """units: (units, bands)"""
        distances = np.square(units[:, None] - self.means).sum(-1)  # (units, words)
        return [self.words[place] for place in distances.argmin(1)]


def spectra(utterance: Utterance, rate: int, bands: int) -> Spectra:
    """The mean log-mel spectrum of each unit, (units, bands), less its mean, so that loudness does not matter."""
    frames = log_mel(utterance.samples(rate), rate, bands)
    means = np.stack([frames[round(start / HOP) : round(end / HOP)].mean(0) for start, end in utterance.spans])
    level: Spectra = means - means.mean(1, keepdims=True)
    return level

"""The bootstrap: how far a metric would move with other sentences and other seeds.

Sentences are resampled with replacement, the same ones for every model, and so are the seeds of each model. The mean
over the resampled seeds of v(Σᵢ sᵢ) is one possible value of the metric. A confidence interval holds 95 % of a
thousand such values, and two models differ if 0 is outside the interval of their difference (Efron 1979; Koehn 2004).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from regard.score.metrics import Floats, Metric

RESAMPLES = 1000
AT_ONCE = 100  # resamples whose counts are held in memory
MANY = 100_000  # sentences: with more, fewer resamples are held
CONFIDENCE = 95  # per cent
INFINITE = 1e300  # stands for ∞ in a sum, because 0 × ∞ is not a number


@dataclass(frozen=True)
class Resampled:
    each: tuple[float, ...]  # the value of each seed
    values: Floats  # (resamples,) the mean over seeds in each resample

    @property
    def mean(self) -> float:
        return float(np.mean(self.each))

    def facts(self) -> dict[str, Any]:
        low, high = confidence_interval(self.values)
        return {"each": list(self.each), "mean": self.mean, "low": low, "high": high}


class Difference(NamedTuple):
    difference: float  # first − second
    low: float
    high: float
    p: float  # two-sided p-value: twice the share of resamples in which the difference is 0 or has the other sign


def resample(statistics: Mapping[str, Sequence[Floats]], metric: Metric) -> dict[str, Resampled]:
    """Resample sentences and seeds. statistics[model] has an array (sentences, k) for each seed; k may differ between
    models."""
    sentences = len(next(iter(statistics.values()))[0])
    random, at_once = np.random.default_rng(0), AT_ONCE if sentences <= MANY else AT_ONCE // 10
    found: dict[str, list[Floats]] = {name: [] for name in statistics}
    for _ in range(RESAMPLES // at_once):
        counts = random.multinomial(sentences, np.full(sentences, 1 / sentences), size=at_once).astype(np.float64)
        for name, seeds in statistics.items():
            finite = (np.nan_to_num(seed, nan=np.nan, posinf=INFINITE) for seed in seeds)
            values = np.stack([metric.over(seed, counts) for seed in finite], 1)  # (resamples, seeds)
            chosen = random.integers(len(seeds), size=values.shape)
            found[name].append(np.take_along_axis(values, chosen, 1).mean(1))
    return {
        name: Resampled(tuple(float(metric.over(seed)) for seed in seeds), np.concatenate(found[name]))
        for name, seeds in statistics.items()
    }


def confidence_interval(values: Floats) -> tuple[float, float]:
    outside = (100 - CONFIDENCE) / 2
    low, high = np.percentile(values, [outside, 100 - outside])
    return float(low), float(high)


def interval(metric: Metric, outputs: Sequence[Any], references: Sequence[Any]) -> tuple[float, float]:
    """The confidence interval of one run's value."""
    return confidence_interval(resample({"": [metric.statistics(outputs, references)]}, metric)[""].values)


def difference(first: Resampled, second: Resampled) -> Difference:
    differences = first.values - second.values
    opposite = min((differences <= 0).sum(), (differences >= 0).sum())
    p = min(1.0, 2 * (int(opposite) + 1) / (len(differences) + 1))
    return Difference(first.mean - second.mean, *confidence_interval(differences), p)


def paired_bootstrap(
    metric: Metric, first: Sequence[Any], second: Sequence[Any], references: Sequence[Any]
) -> tuple[Resampled, Resampled, Difference]:
    """Compare two outputs for the same references."""
    statistics = {name: [metric.statistics(outputs, references)] for name, outputs in (("a", first), ("b", second))}
    one, other = resample(statistics, metric).values()
    return one, other, difference(one, other)

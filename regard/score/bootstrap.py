"""drawing: how far a figure would move with other sentences and other seeds.

A measure is a function of sums over sentences, v(Σᵢ sᵢ). Sentences are drawn anew, with replacement, the same ones for
every model, and each model's seeds by themselves; v of what was drawn, the mean over the seeds, is what might have been
found. An interval holds 95 % of a thousand draws, and two models differ if 0 is outside that of their difference
(Koehn 2004; Efron 1979).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sacrebleu
from numpy.typing import NDArray

Floats = NDArray[np.float64]
DRAWS = 1000
AT_ONCE = 100  # draws whose counts are held in memory
ORDER = 4  # of BLEU
CHARACTERS = 6  # the longest n-gram of chrF
RECALL = 2  # times as much as precision, in chrF
EDGE = 2.5  # per cent of the draws on either side of an interval


# --- measures ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Measure:
    """What is made of sums (…, statistics)."""

    key: str
    name: str
    better: str  # higher, lower
    value: Callable[[Floats], Floats]
    unit: str = ""


def bleu_statistics(outputs: Sequence[str], references: Sequence[str]) -> Floats:
    """(sentences, 10): the lengths of both, and of each order the n-grams that match and those there are."""
    metric = sacrebleu.BLEU(force=True)
    rows = []
    for output, reference in zip(outputs, references, strict=True):
        found = metric.corpus_score([output], [[reference]])
        rows.append([found.sys_len, found.ref_len, *found.counts, *found.totals])
    return np.array(rows, dtype=np.float64).reshape(-1, 2 + 2 * ORDER)


def bleu(sums: Floats) -> Floats:
    """As sacrebleu has it, with its exponential smoothing."""
    written, wanted = sums[..., 0], sums[..., 1]
    matches, there = sums[..., 2 : 2 + ORDER], sums[..., 2 + ORDER :]
    missing = (matches == 0) & (there > 0)
    halvings = 2.0 ** np.cumsum(missing, -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(missing, 1 / (halvings * there), matches / there)
        brevity = np.where(written < wanted, np.exp(1 - wanted / written), 1.0)
        values = 100 * brevity * np.exp(np.log(precision).mean(-1))
    fine = matches.any(-1) & (there > 0).all(-1)
    return np.where(fine, values, 0.0)


def chrf_statistics(outputs: Sequence[str], references: Sequence[str]) -> Floats:
    """(sentences, 18): of each order the n-grams of characters that are written, wanted, and both."""
    rows = []
    for pair in zip(outputs, references, strict=True):
        texts = ["".join(text.split()) for text in pair]
        row: list[int] = []
        for order in range(1, CHARACTERS + 1):
            written, wanted = (Counter(text[at : at + order] for at in range(len(text) - order + 1)) for text in texts)
            row += [written.total() if wanted else 0, wanted.total(), (written & wanted).total()]
        rows.append(row)
    return np.array(rows, dtype=np.float64).reshape(-1, 3 * CHARACTERS)


def chrf(sums: Floats) -> Floats:
    """As sacrebleu has it: the mean precision and the mean recall of the orders that are there."""
    written, wanted, both = (sums[..., place::3] for place in range(3))
    there = (written > 0) & (wanted > 0)
    orders = np.maximum(there.sum(-1), 1)
    precision, recall = (np.where(there, both / np.maximum(of, 1), 0).sum(-1) / orders for of in (written, wanted))
    weighed = np.maximum(RECALL**2 * precision + recall, 1e-16)
    values: Floats = 100 * (1 + RECALL**2) * precision * recall / weighed
    return values


def perplexity(sums: Floats) -> Floats:
    """Of (−ln p, tokens)."""
    values: Floats = np.exp(np.minimum(sums[..., 0] / np.maximum(sums[..., 1], 1), 700.0))
    return values


def share(sums: Floats) -> Floats:
    """Of (right, all), in per cent."""
    values: Floats = 100 * sums[..., 0] / np.maximum(sums[..., 1], 1)
    return values


def mean_f1(sums: Floats) -> Floats:
    """Of (right, said, there) of each label, the mean over the labels that are said or there, in per cent."""
    right, said, there = (sums[..., place::3] for place in range(3))
    met = said + there
    values: Floats = 100 * (2 * right / np.maximum(met, 1)).sum(-1) / np.maximum((met > 0).sum(-1), 1)
    return values


# --- draws -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Drawn:
    """A model's figure: of each seed, their mean, and what their mean might have been."""

    each: tuple[float, ...]
    draws: Floats

    @property
    def mean(self) -> float:
        return float(np.mean(self.each))

    def facts(self) -> dict[str, Any]:
        low, high = interval(self.draws)
        return {"each": list(self.each), "mean": self.mean, "low": low, "high": high}


def draw(statistics: Mapping[str, Sequence[Floats]], value: Callable[[Floats], Floats]) -> dict[str, Drawn]:
    """Of each model: statistics[model] has an array (sentences, statistics) for each of its seeds."""
    sentences = len(next(iter(statistics.values()))[0])
    random = np.random.default_rng(0)
    stacked = {name: np.stack(list(seeds)) for name, seeds in statistics.items()}  # (seeds, sentences, statistics)
    found: dict[str, list[Floats]] = {name: [] for name in statistics}
    for _ in range(DRAWS // AT_ONCE):
        counts = random.multinomial(sentences, np.full(sentences, 1 / sentences), size=AT_ONCE)  # (draws, sentences)
        for name, seeds in stacked.items():
            values = value(np.einsum("dn,snk->dsk", counts.astype(np.float64), seeds, optimize=True))  # (draws, seeds)
            chosen = random.integers(len(seeds), size=values.shape)
            found[name].append(np.take_along_axis(values, chosen, 1).mean(1))
    return {
        name: Drawn(tuple(float(value(seed.sum(0))) for seed in seeds), np.concatenate(found[name]))
        for name, seeds in stacked.items()
    }


def interval(draws: Floats) -> tuple[float, float]:
    low, high = np.percentile(draws, [EDGE, 100 - EDGE])
    return float(low), float(high)


def difference(first: Drawn, second: Drawn) -> dict[str, float]:
    """How much more the first has; p: how often a difference of the other sign, or none, was drawn (twice that)."""
    apart = first.draws - second.draws
    low, high = interval(apart)
    least = min((apart <= 0).sum(), (apart >= 0).sum())
    p = min(1.0, 2 * (int(least) + 1) / (len(apart) + 1))
    return {"difference": first.mean - second.mean, "low": low, "high": high, "p": p}

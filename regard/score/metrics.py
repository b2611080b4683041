"""Metrics: each is one object with its name, its direction (higher or lower is better) and its computation.

value = v(Σᵢ sᵢ)   sᵢ: the statistics of example i, k numbers that add up over examples
Ranks do not add up: there v is given all sᵢ, and how often each example counts.

Validation, early stopping, `score`, `runs` and `compare` share these objects, and the bootstrap resamples any of them.
A value has the unit in which it is shown: accuracy is 93.5 (%), not 0.935.
"""

from __future__ import annotations

import re
import string
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.spans import found_spans, mark_spans
from regard.data.text import BETWEEN

Floats = NDArray[np.float64]
Integers = NDArray[np.integer[Any]]
Statistics = Callable[[Sequence[Any], Sequence[Any]], Floats]
Value = Callable[[Floats], Floats]
Better = Literal["higher", "lower"]
Labels = Sequence[Sequence[str]]  # the labels of each example
ORDER = 4  # longest word n-gram of BLEU
RECALL = 2  # chrF weighs recall twice as much as precision
LARGEST = 700.0  # nats per token; exp of more would overflow
TOP = 5  # labels
FEWEST = 20  # examples for a figure to be of use
BUCKETS = (10, 20, 30, 40)  # longest source of each bucket, in words; one more bucket has the longer ones


class Floor(NamedTuple):
    """A value that needs no training."""

    value: Callable[[Integers, Integers], float]  # ids in the test's targets, how often training has each -> value
    meaning: str


@dataclass(frozen=True)
class Metric:
    key: str  # its name in recipes, logs and JSON
    name: str  # its name in reports
    better: Better
    statistics: Statistics  # outputs, references -> (examples, k)
    value: Value  # sums over examples (…, k) -> (…)
    note: Callable[[], str]  # how it is computed: sacreBLEU's signature, or a definition
    unit: str = ""
    name_for: Callable[[Sequence[Any]], str] | None = None  # references -> name, if the name depends on them
    floor: Floor | None = None  # what a model reaches without having learned anything
    ranked: Callable[[Floats, Floats], Floats] | None = None  # instead of `value`: counts (…, n) and statistics -> (…)

    def of(self, outputs: Sequence[Any], references: Sequence[Any]) -> float:
        return float(self.over(self.statistics(outputs, references)))

    def over(self, statistics: Floats, counts: Floats | None = None) -> Floats:
        """The value of examples with these statistics (examples, k), each of which counts so many times (…, examples),
        by default once."""
        if self.ranked is not None:
            return self.ranked(np.ones(len(statistics)) if counts is None else counts, statistics)
        return self.value(statistics.sum(0) if counts is None else counts @ statistics)

    def improves(self, new: float, old: float | None) -> bool:
        """Return whether `new` is better than `old`, the best value so far; None: there is none yet."""
        return old is None or (new > old if self.better == "higher" else new < old)

    def called(self, references: Sequence[Any]) -> str:
        return self.name_for(references) if self.name_for else self.name


# --- likelihood --------------------------------------------------------------------------------------------------


def _likelihoods(log_probs: Sequence[Any], _: Sequence[Any]) -> Floats:
    """(examples, 2): −Σ ln p and the number of tokens; log_probs has an array of ln p for each example."""
    return _table(([-float(np.sum(each)), len(each)] for each in log_probs), 2)


def _loss(sums: Floats) -> Floats:
    nats: Floats = sums[..., 0] / np.maximum(sums[..., 1], 1)
    return nats


def _perplexity(sums: Floats) -> Floats:
    values: Floats = np.exp(np.minimum(_loss(sums), LARGEST))
    return values


def _unigram(ids: Integers, counts: Integers) -> float:
    """The perplexity of token frequencies (add-one); where nothing was counted, the size of the vocabulary."""
    frequencies = (counts + 1) / (counts + 1).sum()
    return float(np.exp(-np.log(frequencies[ids]).mean()))


LOSS = Metric("loss", "loss", "lower", _likelihoods, _loss, lambda: "mean −ln p per token", unit="nats")
PERPLEXITY = Metric(
    "perplexity",
    "perplexity",
    "lower",
    _likelihoods,
    _perplexity,
    lambda: "exp of the mean −ln p",
    floor=Floor(_unigram, "what token frequencies alone give"),
)


# --- translations ------------------------------------------------------------------------------------------------


def _by_sacrebleu(
    key: str,
    name: str,
    value: Value,
    columns: int,
    make: Callable[[Any], Any],
    better: Better = "higher",
    several: bool = False,
) -> Metric:
    """Make a metric from sacreBLEU's statistics and signature (Post 2018). It is imported when first used. `several`:
    an output may have several references, which BETWEEN separates."""

    @cache
    def peer() -> Any:
        import sacrebleu

        return make(sacrebleu)

    def statistics(outputs: Sequence[str], references: Sequence[str]) -> Floats:
        each = (other.split(BETWEEN) if several else [other] for other in references)
        pairs = ((one, [[other] for other in others]) for one, others in zip(outputs, each, strict=True))
        return _table((peer()._extract_corpus_statistics([one], others)[0] for one, others in pairs), columns)

    def signature() -> str:
        peer().corpus_score([""], [[""]])  # the signature needs the number of references
        return str(peer().get_signature())

    return Metric(key, name, better, statistics, value, signature)


def _bleu(sums: Floats) -> Floats:
    """Geometric mean of n-gram precisions × brevity penalty, with exponential smoothing (Papineni 2002)."""
    length, wanted = sums[..., 0], sums[..., 1]
    matches, total = sums[..., 2 : 2 + ORDER], sums[..., 2 + ORDER :]
    missing = (matches == 0) & (total > 0)
    halvings = 2.0 ** np.cumsum(missing, -1)
    with np.errstate(divide="ignore", invalid="ignore"):
        precision = np.where(missing, 1 / (halvings * total), matches / total)
        brevity = np.where(length < wanted, np.exp(1 - wanted / length), 1.0)
        values = 100 * brevity * np.exp(np.log(precision).mean(-1))
    return np.where(matches.any(-1) & (total > 0).all(-1), values, 0.0)


def _chrf(sums: Floats) -> Floats:
    """F₂ of the mean precision and the mean recall of character n-grams (Popović 2015)."""
    written, wanted, both = _triples(sums)
    counted = (written > 0) & (wanted > 0)
    orders = np.maximum(counted.sum(-1), 1)
    precision, recall = (np.where(counted, both / np.maximum(of, 1), 0).sum(-1) / orders for of in (written, wanted))
    weighted = np.maximum(RECALL**2 * precision + recall, 1e-16)
    values: Floats = 100 * (1 + RECALL**2) * precision * recall / weighted
    return values


def _ter(sums: Floats) -> Floats:
    """Edits per reference word, where moving a phrase is one edit (Snover 2006)."""
    edits, words = sums[..., 0], sums[..., 1]
    return np.where(words > 0, 100 * edits / np.maximum(words, 1), 100.0 * (edits > 0))


# force: no warning that text with spaces before its full stops looks tokenized
BLEU = replace(
    _by_sacrebleu("bleu", "BLEU", _bleu, 2 + 2 * ORDER, lambda peer: peer.BLEU(force=True)),
    floor=Floor(lambda *_: 5.0, "less than any readable translation has"),
)
BLEU_LOWERCASE = _by_sacrebleu(
    "bleu_lowercase", "BLEU, lower-cased", _bleu, 2 + 2 * ORDER, lambda peer: peer.BLEU(force=True, lowercase=True)
)
CHRF = _by_sacrebleu("chrf", "chrF", _chrf, 18, lambda peer: peer.CHRF())
BLEU_OF_SEVERAL = _by_sacrebleu(  # without a floor: a right caption of three words has a BLEU of 0
    "bleu", "BLEU", _bleu, 2 + 2 * ORDER, lambda peer: peer.BLEU(force=True), several=True
)
CHRF_OF_SEVERAL = _by_sacrebleu("chrf", "chrF", _chrf, 18, lambda peer: peer.CHRF(), several=True)
TER = _by_sacrebleu("ter", "TER", _ter, 2, lambda peer: peer.TER(), "lower")
TRANSLATION_METRICS = (BLEU, BLEU_LOWERCASE, CHRF, TER)


# --- labels and tags ---------------------------------------------------------------------------------------------


def _of_labels(statistics: Callable[[Labels, Labels], Floats]) -> Statistics:
    """Adapt statistics to examples with one label each, which may contain spaces."""
    return lambda outputs, references: statistics([[label] for label in outputs], [[label] for label in references])


def _of_tags(statistics: Callable[[Labels, Labels], Floats]) -> Statistics:
    """Adapt statistics to examples with a tag for each word, separated by spaces."""
    return lambda outputs, references: statistics(_split(outputs), _split(references))


def _right(predicted: Labels, gold: Labels) -> Floats:
    """(examples, 2): the labels that are right, and those in the reference."""
    pairs = zip(predicted, gold, strict=True)
    return _table(([sum(map(str.__eq__, one, other)), len(other)] for one, other in pairs), 2)


def _span_counts(predicted: Labels, gold: Labels) -> Floats:
    """(sentences, 3): spans that are right, predicted and in the reference; counts of tags where they mark no spans."""
    if not mark_spans(tag for tags in gold for tag in tags):
        return _counts(predicted, gold)
    found = (found_spans(other, one).values() for one, other in zip(predicted, gold, strict=True))
    return _table((np.sum([(0, 0, 0), *kinds], axis=0) for kinds in found), 3)


def _counts(predicted: Labels, gold: Labels) -> Floats:
    """(examples, 3 × labels): how often each label is right, predicted and in the reference."""
    place = {each: 3 * i for i, each in enumerate(sorted({label for some in (*predicted, *gold) for label in some}))}
    counts = np.zeros((len(gold), 3 * len(place)))
    for row, one, other in zip(counts, predicted, gold, strict=True):
        right = [a for a, b in zip(one, other, strict=False) if a == b]
        for column, labels in enumerate((right, one, other)):
            for label in labels:
                row[place[label] + column] += 1
    return counts


def percentage(sums: Floats) -> Floats:
    values: Floats = 100 * sums[..., 0] / np.maximum(sums[..., 1], 1)
    return values


def _mean_f1(sums: Floats) -> Floats:
    """The mean of 2 P R / (P + R) = 2 right / (predicted + reference) over the labels that occur."""
    right, predicted, gold = _triples(sums)
    both = predicted + gold
    values: Floats = 100 * (2 * right / np.maximum(both, 1)).sum(-1) / np.maximum((both > 0).sum(-1), 1)
    return values


def _matthews(sums: Floats) -> Floats:
    """The correlation of two labellings (Matthews 1975; for more than two labels, Gorodkin 2004)."""
    right, predicted, gold = _triples(sums)
    square = gold.sum(-1) ** 2
    spread = (square - (predicted**2).sum(-1)) * (square - (gold**2).sum(-1))
    shared = right.sum(-1) * gold.sum(-1) - (predicted * gold).sum(-1)
    return np.where(spread > 0, 100 * shared / np.sqrt(np.maximum(spread, 1)), 0.0)


def _f1_name(references: Sequence[str]) -> str:
    return "entity F1" if mark_spans(tag for tags in _split(references) for tag in tags) else "macro F1"


def _split(tags: Sequence[str]) -> list[list[str]]:
    return [each.split() for each in tags]


ACCURACY = Metric(
    "accuracy",
    "accuracy",
    "higher",
    _of_labels(_right),
    percentage,
    lambda: "share of labels that are right",
    "%",
    floor=Floor(lambda ids, _: 100 * np.bincount(ids).max() / len(ids), "the share of the most frequent label"),
)
TAG_ACCURACY = replace(ACCURACY, statistics=_of_tags(_right), note=lambda: "share of words whose tag is right")
MACRO_F1 = Metric("f1", "macro F1", "higher", _of_labels(_counts), _mean_f1, lambda: "mean F1 of the labels", "%")
TAG_F1 = replace(
    MACRO_F1,
    name="F1",
    statistics=_of_tags(_span_counts),
    note=lambda: "spans whose start, end and type are right (Tjong Kim Sang 2003); macro F1 where tags mark no spans",
    name_for=_f1_name,
)
MATTHEWS = Metric(
    "matthews", "Matthews", "higher", _of_labels(_counts), _matthews, lambda: "100 × Matthews correlation coefficient"
)
TAG_MATTHEWS = replace(MATTHEWS, statistics=_of_tags(_counts))
LABEL_METRICS = (ACCURACY, MACRO_F1, MATTHEWS)
# its outputs are the TOP most probable labels of each example; of use where there are more labels than that
TOP_5 = Metric(
    "top_5",
    "top-5 accuracy",
    "higher",
    lambda outputs, references: _table(([b in a, 1] for a, b in zip(outputs, references, strict=True)), 2),
    percentage,
    lambda: "share of labels among the five most probable",
    "%",
)
TAG_METRICS = (TAG_F1, TAG_ACCURACY)


# --- numbers -----------------------------------------------------------------------------------------------------


def _numbers(outputs: Sequence[str], references: Sequence[str]) -> Floats:
    """(examples, 2): both numbers, less the mean of the references, so that no digits are lost in their squares."""
    found = _table(([float(one), float(other)] for one, other in zip(outputs, references, strict=True)), 2)
    shifted: Floats = found - found[:, 1].mean() if len(found) else found
    return shifted


def _moments(outputs: Sequence[str], references: Sequence[str]) -> Floats:
    """(examples, 6): 1, x, y, x², y² and xy."""
    x, y = _numbers(outputs, references).T
    return np.stack([np.ones_like(x), x, y, x * x, y * y, x * y], axis=1)


def _pearson(sums: Floats) -> Floats:
    count, x, y, xx, yy, xy = np.moveaxis(sums, -1, 0)
    spread_x, spread_y, shared = count * xx - x * x, count * yy - y * y, count * xy - x * y
    least = 1e-12 * count  # of what rounding leaves where all numbers are equal
    known = (spread_x > least * xx) & (spread_y > least * yy)
    return np.where(known, 100 * shared / np.sqrt(np.where(known, spread_x * spread_y, 1.0)), 0.0)


def _spearman(counts: Floats, statistics: Floats) -> Floats:
    """Pearson's correlation of the ranks in the sample where example i occurs counts[…, i] times (Spearman 1904)."""
    x, y = (_ranks(statistics[:, side], counts) for side in range(2))
    size = counts.sum(-1, keepdims=True)
    x, y = x - (size + 1) / 2, y - (size + 1) / 2  # the mean of all ranks is (n + 1) / 2
    moments = (np.ones_like(x), x, y, x * x, y * y, x * y)
    return _pearson(np.stack([(counts * moment).sum(-1) for moment in moments], axis=-1))


def _ranks(values: Floats, counts: Floats) -> Floats:
    """Ranks from 1; equal values, and copies of one value, have the mean of their ranks: (…, examples)."""
    order = np.argsort(values, kind="stable")
    ordered = values[order]
    first, last = (np.searchsorted(ordered, ordered, side=side) for side in ("left", "right"))
    up_to = np.concatenate([np.zeros_like(counts[..., :1]), np.cumsum(counts[..., order], -1)], axis=-1)
    ranks = np.empty_like(counts)
    ranks[..., order] = (up_to[..., first] + up_to[..., last] + 1) / 2
    return ranks


def _squared_errors(outputs: Sequence[str], references: Sequence[str]) -> Floats:
    x, y = _numbers(outputs, references).T
    return np.stack([(x - y) ** 2, np.ones_like(x)], axis=1)


def _root_mean(sums: Floats) -> Floats:
    values: Floats = np.sqrt(sums[..., 0] / np.maximum(sums[..., 1], 1))
    return values


PEARSON = Metric("pearson", "Pearson", "higher", _moments, _pearson, lambda: "100 × Pearson correlation coefficient")
SPEARMAN = Metric(
    "spearman",
    "Spearman",
    "higher",
    _numbers,
    _pearson,
    lambda: "100 × Spearman rank correlation; equal numbers have their mean rank",
    ranked=_spearman,
)
RMSE = Metric("rmse", "RMSE", "lower", _squared_errors, _root_mean, lambda: "root of the mean squared error")
NUMBER_METRICS = (PEARSON, SPEARMAN, RMSE)


# --- answers to questions ----------------------------------------------------------------------------------------


def normal_answer(text: str) -> list[str]:
    """The words of an answer as SQuAD compares them: lower case, no punctuation, no articles (Rajpurkar 2016)."""
    kept = "".join(character for character in text.lower() if character not in string.punctuation)
    return re.sub(r"\b(a|an|the)\b", " ", kept).split()


def _shared_words(one: list[str], other: list[str]) -> float:
    if not one or not other:
        return float(one == other)
    return 2 * (Counter(one) & Counter(other)).total() / (len(one) + len(other))


def _best_answer(compare: Callable[[list[str], list[str]], float]) -> Statistics:
    """(examples, 2): how well an answer fits the best of the right ones, which BETWEEN separates; and 1."""

    def statistics(outputs: Sequence[str], references: Sequence[str]) -> Floats:
        rows = []
        for output, reference in zip(outputs, references, strict=True):
            found = normal_answer(output)
            rows.append([max(compare(found, normal_answer(gold)) for gold in reference.split(BETWEEN)), 1])
        return _table(rows, 2)

    return statistics


EXACT_MATCH = Metric(
    "exact",
    "exact match",
    "higher",
    _best_answer(lambda one, other: float(one == other)),
    percentage,
    lambda: "share of answers equal to a right one, without case, punctuation and articles",
    "%",
)
ANSWER_F1 = Metric(
    "answer_f1",
    "answer F1",
    "higher",
    _best_answer(_shared_words),
    percentage,
    lambda: "mean F1 of the words of an answer and of the right one nearest to it",
    "%",
)
ANSWER_METRICS = (EXACT_MATCH, ANSWER_F1)


# --- alignments --------------------------------------------------------------------------------------------------


def _shared_links(found: Sequence[Any], gold: Sequence[Any]) -> Floats:
    """(sentences, 2): twice the links in common, and the links of both."""
    pairs = zip(found, gold, strict=True)
    return _table(([2 * len(one & other), len(one) + len(other)] for one, other in pairs), 2)


def _alignment_error(sums: Floats) -> Floats:
    """1 − 2 |A∩S| / (|A| + |S|) with all gold links sure (Och & Ney 2003); 0 if there are no links at all."""
    return np.where(sums[..., 1] > 0, 1 - sums[..., 0] / np.maximum(sums[..., 1], 1), 0.0)


ALIGNMENT_ERROR = Metric(
    "alignment_error",
    "alignment error",
    "lower",
    _shared_links,
    _alignment_error,
    lambda: "1 − 2 |A∩S| / (|A| + |S|), all gold links sure",
)


# --- by length ---------------------------------------------------------------------------------------------------


class Bucket(NamedTuple):
    shortest: int  # words of a source
    longest: int | None  # None: no limit
    sentences: int
    value: float


def buckets(
    sources: Sequence[str], edges: Sequence[int] = BUCKETS
) -> Iterator[tuple[int, int | None, NDArray[np.bool_]]]:
    """Yield the fewest and most words of each bucket, and which sources are in it."""
    lengths = np.array([len(source.split()) for source in sources])
    for low, high in zip((0, *edges), (*edges, None), strict=True):
        yield low + 1, high, (lengths > low) & (lengths <= (high or np.inf))


def by_length(
    metric: Metric, sources: Sequence[str], outputs: Sequence[Any], references: Sequence[Any]
) -> list[Bucket]:
    """Compute the value in each bucket that has sentences."""
    each = metric.statistics(outputs, references)
    return [
        Bucket(shortest, longest, int(inside.sum()), float(metric.over(each[inside])))
        for shortest, longest, inside in buckets(sources)
        if inside.any()
    ]


# --- arrays ------------------------------------------------------------------------------------------------------


def _table(rows: Any, columns: int) -> Floats:
    return np.array(list(rows), dtype=np.float64).reshape(-1, columns)


def _triples(sums: Floats) -> tuple[Floats, Floats, Floats]:
    return sums[..., 0::3], sums[..., 1::3], sums[..., 2::3]

"""Scores of answers: accuracy, F1, Matthews, the confusion matrix and entity F1 of labels and tags; correlation and
error of numbers; how often an answer is right. Each figure has its confidence interval."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from heapq import nlargest
from itertools import zip_longest
from operator import add
from typing import Any

import numpy as np

from regard.config import counted
from regard.data.spans import found_spans, mark_spans
from regard.interface import UserError
from regard.predict.decoding import Prediction
from regard.run import Run
from regard.score.bootstrap import CONFIDENCE, interval
from regard.score.metrics import ACCURACY, LABEL_METRICS, MACRO_F1, MATTHEWS, TAG_F1, TAG_METRICS, TOP, TOP_5, Metric
from regard.score.result import Options, Scored

NOTE = f"in brackets: {CONFIDENCE} % confidence intervals, by bootstrap"
MOST_LABELS = 12  # in a confusion matrix that fits a terminal
UNREAD = "(not read)"  # the tag of a word beyond the model's maximum length


@dataclass(frozen=True)
class LabelsScored:
    count: int  # labels, or words
    accuracy: float  # in per cent, as the others
    f1: float  # macro F1; entity F1 if the tags mark spans
    matthews: float
    confusion: dict[str, dict[str, int]]  # gold -> predicted -> times
    spans: dict[str, tuple[int, ...]]  # type -> counts of right, predicted and gold spans; empty if tags mark none


def label_scores(gold: Sequence[str], predicted: Sequence[str]) -> LabelsScored:
    return _scores(list(zip(gold, predicted, strict=True)), MACRO_F1.of(predicted, gold), {})


def tag_scores(gold: Sequence[str], predicted: Sequence[str]) -> LabelsScored:
    """Score tags: each string holds the tags of one sentence, with spaces between them; one that was cut has fewer."""
    marked = mark_spans(tag for tags in gold for tag in tags.split())
    pairs: list[tuple[str, str]] = []
    spans: dict[str, tuple[int, ...]] = {}
    for one, other in zip(gold, predicted, strict=True):
        wanted, tags = one.split(), other.split()
        pairs += zip_longest(wanted, tags, fillvalue=UNREAD)
        for kind, counts in found_spans(wanted, tags).items() if marked else ():
            spans[kind] = tuple(map(add, spans.get(kind, (0, 0, 0)), counts))
    return _scores(pairs, TAG_F1.of(predicted, gold), dict(sorted(spans.items())))


def _scores(pairs: list[tuple[str, str]], f1: float, spans: dict[str, tuple[int, ...]]) -> LabelsScored:
    gold, predicted = ([pair[side] for pair in pairs] for side in range(2))
    table = Counter(pairs)
    labels = sorted({*gold, *predicted})
    confusion = {one: {other: table[one, other] for other in labels if table[one, other]} for one in labels}
    accuracy, matthews = (metric.of(predicted, gold) for metric in (ACCURACY, MATTHEWS))
    return LabelsScored(len(gold), accuracy, f1, matthews, confusion, spans)


def score_labels(runs: Sequence[Run], examples: Sequence[tuple[str, str]], asked: Options) -> Scored:
    return _labels_shown(runs[0], *gold_and_answers(runs, examples, asked))


def score_top_labels(runs: Sequence[Run], examples: Sequence[tuple[Any, str]], asked: Options) -> Scored:
    """The same, and top-5 accuracy where there are more than five labels."""
    run, gold = runs[0], _gold(runs, examples)
    answers, best = list[str](), list[list[str]]()
    for _, answer in run.answers((source for source, _ in examples), None):
        answers.append(answer.text)
        best.append(top_labels(answer))
        if asked.on_answer is not None:
            asked.on_answer(answer.text)
    shown = _labels_shown(run, gold, answers)
    if len(run.fields.names()) > TOP:
        value, known = TOP_5.of(best, gold), interval(TOP_5, best, gold)
        shown.lines.insert(1, f"top-5      {value:7.2f}   {shown_interval(known)}")
        shown.facts[TOP_5.key] = value
        shown.facts["intervals"][TOP_5.key] = known
    return shown


def top_labels(answer: Prediction) -> list[str]:
    """The most probable labels, at most TOP of them."""
    shares = answer.probabilities or {answer.text: 1.0}
    return nlargest(TOP, shares, key=shares.__getitem__)


def _labels_shown(run: Run, gold: list[str], answers: list[str]) -> Scored:
    shown = _shown(label_scores(gold, answers), "example", intervals(LABEL_METRICS, gold, answers))
    known = set(run.fields.names())
    if (unknown := sorted({*gold} - known)) and known:
        rows = counted(sum(label not in known for label in gold), "example")
        some = f"{', '.join(unknown[:5])}{' …' if unknown[5:] else ''}"
        shown.lines.append(f"labels that the model does not know count as wrong: {some} ({rows})")
    return shown


def score_tags(runs: Sequence[Run], examples: Sequence[tuple[str, str]], asked: Options) -> Scored:
    for number, (source, target) in enumerate(examples, start=1):
        if (words := sum(map(bool, source.split(" ")))) != (tags := len(target.split())):
            raise UserError(f"Sentence {number} has {words:,} words and {tags:,} tags: give one tag for each word.")
    gold, answers = gold_and_answers(runs, examples, asked)
    return _shown(tag_scores(gold, answers), "word", intervals(TAG_METRICS, gold, answers))


def score_answers(runs: Sequence[Run], examples: Sequence[tuple[str, str]], asked: Options) -> Scored:
    """The value of each of the task's metrics."""
    gold, answers = gold_and_answers(runs, examples, asked)
    metrics = runs[0].task.metrics
    found, known = {metric.key: metric.of(answers, gold) for metric in metrics}, intervals(metrics, gold, answers)
    lines = []
    for metric in metrics:
        form = ".2f" if metric.better == "higher" else ".4g"  # per cent, or in the unit of the numbers
        lines.append(f"{metric.name:12} {found[metric.key]:8{form}}   {shown_interval(known[metric.key], form)}")
    lines.append(f"{counted(len(gold), runs[0].task.words.example)}; {NOTE}")
    return Scored(lines, {"count": len(gold), **found, "intervals": known})


def intervals(metrics: Sequence[Metric], gold: Sequence[str], answers: Sequence[str]) -> dict[str, tuple[float, float]]:
    return {metric.key: interval(metric, answers, gold) for metric in metrics}


def shown_interval(known: tuple[float, float], form: str = ".2f") -> str:
    return f"[{known[0]:{form}}, {known[1]:{form}}]"


def gold_and_answers(
    runs: Sequence[Run], examples: Sequence[tuple[str, str]], asked: Options
) -> tuple[list[str], list[str]]:
    gold = _gold(runs, examples)
    return gold, runs[0].texts([source for source, _ in examples], asked.how, asked.on_answer)


def _gold(runs: Sequence[Run], examples: Sequence[tuple[Any, str]]) -> list[str]:
    if len(runs) > 1:
        raise UserError(f"Answers are scored one run at a time, and there are {len(runs)}: give one run.")
    if odd := [example for example in examples if len(example) != 2]:
        raise UserError(f"{str(odd[0])[:80]!r} is not an input and its right answer: give two parts in each example.")
    return [gold for _, gold in examples]


def _shown(found: LabelsScored, unit: str, known: dict[str, tuple[float, float]]) -> Scored:
    between = {key: f"   {shown_interval(each)}" for key, each in known.items()}
    lines = [f"accuracy   {found.accuracy:7.2f}   {counted(found.count, unit)}{between['accuracy']}"]
    if found.spans:
        right, predicted, gold = np.sum(list(found.spans.values()), axis=0)
        lines.append(
            f"entity F1  {found.f1:7.2f}   {right:,} right of {predicted:,} predicted and {gold:,} gold{between['f1']}"
        )
        for kind, (right, predicted, gold) in found.spans.items():
            value = 200 * right / max(1, predicted + gold)
            lines.append(f"  {kind:20} F1 {value:7.2f}   {right:,} of {predicted:,} and {gold:,}")
    else:
        lines += [f"macro F1   {found.f1:7.2f}{between['f1']}"]
        lines += [f"Matthews   {found.matthews:7.2f}{between.get('matthews', '')}", *confusion_matrix(found)]
    return Scored([*lines, "", NOTE], {**asdict(found), "intervals": known})


def confusion_matrix(found: LabelsScored) -> list[str]:
    labels = list(found.confusion)
    if len(labels) > MOST_LABELS:
        return [f"{len(labels)} labels: --json has the whole confusion matrix."]
    wide = max(8, *(len(label) for label in labels))
    lines = ["", "confusion matrix: rows are gold, columns predicted"]
    lines.append(f"{'gold':{wide}} " + " ".join(f"{label:>{wide}}" for label in labels))
    for label in labels:
        lines.append(f"{label:{wide}} " + " ".join(f"{found.confusion[label].get(s, 0):{wide}}" for s in labels))
    return lines

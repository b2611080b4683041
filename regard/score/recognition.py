"""How well recordings are transcribed: error rates, and what was confused with what."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from regard.config import counted
from regard.run import Run
from regard.score.error_rates import RECOGNITION_METRICS, align, words_of
from regard.score.labels import NOTE, gold_and_answers, intervals, shown_interval
from regard.score.result import Options, Scored

MOST_CONFUSIONS = 10  # lines
NOTHING = "(nothing)"  # stands for the word that an insertion or a deletion lacks


def score_transcripts(runs: Sequence[Run], examples: Sequence[tuple[Any, str]], asked: Options) -> Scored:
    """Error rates, how many errors there are of each kind, and the most frequent confusions."""
    return transcript_scores(*gold_and_answers(runs, examples, asked))


def transcript_scores(references: Sequence[str], outputs: Sequence[str]) -> Scored:
    found = {metric.key: metric.of(outputs, references) for metric in RECOGNITION_METRICS}
    known = intervals(RECOGNITION_METRICS, references, outputs)
    kinds, confused = confusions(references, outputs)
    words = sum(len(words_of(reference)) for reference in references)
    lines = [
        f"{metric.name:12} {found[metric.key]:8.2f}   {shown_interval(known[metric.key])}"
        for metric in RECOGNITION_METRICS
    ]
    lines.append(f"errors: {', '.join(f'{kind} {count:,}' for kind, count in kinds.items())}; {counted(words, 'word')}")
    often = confused.most_common(MOST_CONFUSIONS)
    if often:
        lines += ["", "most frequent confusions: reference -> recognised, times"]
        lines += [f"  {a or NOTHING} -> {b or NOTHING}  {count:,}" for (a, b), count in often]
    lines += ["", f"{counted(len(references), 'recording')}; {NOTE}"]
    listed = [{"reference": a, "recognised": b, "times": count} for (a, b), count in often]
    return Scored(
        lines, {"count": len(references), "words": words, **found, "intervals": known, **kinds, "confusions": listed}
    )


def confusions(references: Sequence[str], outputs: Sequence[str]) -> tuple[dict[str, int], Counter[tuple[str, str]]]:
    """How many words were substituted, deleted and inserted; and how often each word of a reference, "" for an
    insertion, became which other one, "" for a deletion."""
    confused: Counter[tuple[str, str]] = Counter()
    for reference, output in zip(references, outputs, strict=True):
        confused.update(pair for pair in align(words_of(reference), words_of(output)) if pair[0] != pair[1])
    deleted = sum(count for (_, b), count in confused.items() if not b)
    inserted = sum(count for (a, _), count in confused.items() if not a)
    kinds = {"substitutions": confused.total() - deleted - inserted, "deletions": deleted, "insertions": inserted}
    return kinds, confused

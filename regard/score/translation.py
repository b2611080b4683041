"""Scores of translations: a run translates, and metrics compare its output with references."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch

from regard.data.batches import validation_plan
from regard.interface import Batch, UserError
from regard.look.weights import attends, forced_weights, merge, scores
from regard.predict.decoding import Decoding
from regard.predict.inputs import some_at_once
from regard.run import Run, mixture
from regard.score.alignment import Links, diagonal_links, spaced_words, strongest_links
from regard.score.gold import Gold
from regard.score.metrics import ALIGNMENT_ERROR, BLEU, TRANSLATION_METRICS, Bucket, by_length
from regard.score.result import Options, Scored

Pair = tuple[str, str]  # source, target
T = TypeVar("T")
TOKENS_AT_ONCE = 2048


@dataclass(frozen=True)
class Translated:
    """A run's translations with their metrics."""

    outputs: list[str]
    values: dict[str, float]  # metric key -> value
    by_length: list[Bucket]
    alignment_error: float | None  # None: no gold, or a model that does not attend
    diagonal_error: float | None


def of_each_pair(run: Run, pairs: Sequence[Pair], measure: Callable[[Sequence[Pair], Batch], Iterable[T]]) -> list[T]:
    """Apply `measure` to all pairs, in batches of similar length, and return its values in order."""
    sources, targets = ([pair[side] for pair in pairs] for side in range(2))
    encoded = run.fields.encode({"source": sources, "target": targets})
    lengths = [np.array([len(ids) for ids in encoded[side]]) for side in ("source", "target")]
    found: dict[int, T] = {}
    for indices in validation_plan(*lengths, tokens=TOKENS_AT_ONCE):
        few = {side: [arrays[i] for i in indices] for side, arrays in encoded.items()}
        values = measure([pairs[i] for i in indices], run.fields.batch(few).to(run.device))
        found.update(zip(indices.tolist(), values, strict=True))
    return [found[place] for place in range(len(pairs))]


def log_probabilities(runs: Sequence[Run], pairs: Sequence[Pair]) -> list[float]:
    """Compute ln p(target | source) of each pair, <eos> included."""
    run = mixture(runs)
    model = scores(run.model)
    with torch.inference_mode():
        return of_each_pair(run, pairs, lambda _, batch: model.log_probs(batch)[0].sum(-1).tolist())


def log_prob_of_each_pair(runs: Sequence[Run], pairs: Iterable[Pair], stride: int = 0) -> Iterator[float]:
    """Yield the same, a batch at a time."""
    run = mixture(runs)
    for some in some_at_once(pairs):
        yield from log_probabilities([run], some)


def attention_links(run: Run, pairs: Sequence[Pair], *, layer: int | None = None) -> list[Links]:
    """Align white-space words by the model's attention over each reference (teacher forcing)."""

    def links(some: Sequence[Pair], batch: Batch) -> Iterator[Links]:
        weights = forced_weights(run.model, batch, layer=layer).cpu().numpy()
        for (source, target), row in zip(some, weights, strict=True):
            read = spaced_words(source, run.tokenizer("source").pieces(source))
            written = spaced_words(target, run.tokenizer("target").pieces(target))
            yield strongest_links(merge(row, read, written))

    return of_each_pair(run, pairs, links)


def diagonal_of(pairs: Sequence[Pair]) -> list[Links]:
    return [diagonal_links(len(source.split()), len(target.split())) for source, target in pairs]


def gold_links(pairs: Sequence[Pair], links: Sequence[Links]) -> Gold:
    """Gold alignments of these pairs, beside the diagonal as a baseline."""
    diagonal = ALIGNMENT_ERROR.of(diagonal_of(pairs), links)
    return Gold(ALIGNMENT_ERROR, tuple(links), attention_links, diagonal, "diagonal baseline")


def translated(run: Run, sources: Sequence[str], references: Sequence[str], asked: Options) -> Translated:
    """Translate the sources and measure the outputs; with gold links, the attention over the references too."""
    if not sources or len(sources) != len(references):
        raise UserError(f"There are {len(sources)} sources and {len(references)} references: give as many of each.")
    outputs = run.texts(sources, asked.how, asked.on_answer)
    gold = asked.gold
    error = diagonal = None
    if gold is not None:
        if len(gold) != len(sources):
            raise UserError(f"{len(gold)} gold alignments do not fit {len(sources)} sources: give one line for each.")
        pairs = list(zip(sources, references, strict=True))
        diagonal = gold_links(pairs, gold).baseline
        if attends(run.model):
            error = ALIGNMENT_ERROR.of(attention_links(run, pairs, layer=asked.layer), gold)
    buckets = by_length(BLEU, sources, outputs, references)
    values = {metric.key: metric.of(outputs, references) for metric in TRANSLATION_METRICS}
    return Translated(outputs, values, buckets, error, diagonal)


def score_translations(runs: Sequence[Run], examples: Sequence[Pair], asked: Options) -> Scored:
    run = mixture(runs)
    sources, references = ([example[side] for example in examples] for side in range(2))
    found = translated(run, sources, references, asked)
    lines = [f"{metric.name:17} {found.values[metric.key]:6.2f}   {metric.note()}" for metric in TRANSLATION_METRICS]
    if asked.gold is not None:
        error = "does not attend" if found.alignment_error is None else f"{found.alignment_error:.3f}"
        lines.append(f"alignment error {error}   (diagonal baseline: {found.diagonal_error:.3f})")
    for bucket in found.by_length if asked.by_length else ():
        words = f"{bucket.shortest}-{bucket.longest}" if bucket.longest else f"{bucket.shortest} or more"
        lines.append(f"{words:>10} words   {bucket.sentences:6,} sentences   BLEU {bucket.value:6.2f}")
    facts: dict[str, Any] = {"beam": (asked.how or run.task.decoding or Decoding()).beam, "sentences": len(sources)}
    for metric in TRANSLATION_METRICS:
        facts[metric.key] = {"value": found.values[metric.key], "signature": metric.note()}
    facts |= {"alignment_error": found.alignment_error, "diagonal_error": found.diagonal_error}
    facts["by_length"] = [bucket._asdict() for bucket in found.by_length]
    return Scored(lines, facts)

"""naming: what sentences or their words are called, and how well.

accuracy    the share that is right              macro F1   the mean over labels of 2 P R / (P + R)
Matthews    the correlation of two labellings (Matthews 1975; for many labels, Gorodkin 2004)
entity F1   of spans: right if beginning, end and kind are all right (Tjong Kim Sang 2003)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import torch

from regard.data.batches import pad, spelt
from regard.data.sources import BETWEEN, Conll, Table
from regard.data.spans import found_spans, mark_spans
from regard.interface import PAD, Batch, Classifies, Tags, UserError
from regard.models.encoder_head import LABELS

if TYPE_CHECKING:
    from regard.recipe import Recipe
    from regard.run import Run

AT_ONCE = 64  # sentences


@dataclass(frozen=True)
class Name:
    """A label, or a tag for each word with spaces between them."""

    text: str
    probabilities: dict[str, float] | None = None  # of every label; None of tags


@dataclass(frozen=True)
class NamesScored:
    count: int  # labels, or words
    accuracy: float
    f1: float  # of labels the mean; of tags that mark spans, of whole spans
    matthews: float
    confusion: dict[str, dict[str, int]]  # gold -> said -> times
    spans: dict[str, tuple[int, int, int]]  # kind -> said and right, said, gold; empty where tags mark none


def names_of(run: Run, batch: Batch) -> list[Name]:
    names = run.tokenizers.target
    model = run.model
    if isinstance(model, Tags):
        tags = model.tag(batch)
        return [Name(" ".join(names.surface(row[row != PAD].tolist()))) for row in tags]
    assert isinstance(model, Classifies)
    labels = names.surface(range(LABELS, names.size))
    named = []
    for row in model.classify(batch).exp():
        named.append(Name(labels[int(row.argmax())], dict(zip(labels, row.tolist(), strict=True))))
    return named


def as_read(run: Run, line: str) -> str:
    """Two texts with a tab between them, where it was trained on two, as it read them."""
    two = isinstance(run.recipe.data, Table) and run.recipe.data.second
    return BETWEEN.join(part.strip(" ") for part in line.split("\t", 1)) if two else line


def name(run: Run, lines: Sequence[str]) -> list[Name]:
    """What each line, or each of its words, is called; an empty line has no name."""
    if not isinstance(run.model, Classifies | Tags):
        raise UserError(f"{run.recipe.model_name} gives no names: it is for {run.recipe.task}.")
    encoded = run.tokenizers.source.encode_all([as_read(run, line) for line in lines])
    order = sorted((i for i, ids in enumerate(encoded) if ids), key=lambda i: -len(encoded[i]))
    found = [Name("")] * len(lines)
    with torch.inference_mode():
        for start in range(0, len(order), AT_ONCE):
            some = order[start : start + AT_ONCE]
            source = pad([encoded[i] for i in some])
            letters = torch.zeros(*source.shape, len(spelt("")), dtype=torch.long)
            if isinstance(run.model, Tags):
                for row, i in zip(letters, some, strict=True):
                    words = [word for word in lines[i].split(" ") if word]
                    row[: len(words)] = torch.tensor([spelt(word) for word in words])
            batch = Batch(source, spelling=letters).to(run.device)
            for i, named in zip(some, names_of(run, batch), strict=True):
                found[i] = named
    return found


def named_in(recipe: Recipe, file: Path) -> Iterator[tuple[str, str]]:
    """The sentences of a file of the same form as the training data, with their names."""
    data: Conll | Table
    if recipe.task == "tagging":
        data = recipe.data if isinstance(recipe.data, Conll) else Conll(train="", valid=str(file))
    else:
        fields = Table(train="", source="1", target="2", valid=str(file))
        data = recipe.data if isinstance(recipe.data, Table) else fields
    data = replace(data, valid=str(file.absolute()), hold_out=0.0)
    return ((text, names) for _, text, names in data.lines("valid", Path.cwd()))


def score(gold: Sequence[str], said: Sequence[str], *, per_word: bool) -> NamesScored:
    if not per_word:
        return _scored(list(gold), list(said), {})
    words = [(one.split(), other.split()) for one, other in zip(gold, said, strict=True)]
    flat_gold = [tag for one, _ in words for tag in one]
    flat_said = [tag for _, other in words for tag in other]
    spans: dict[str, tuple[int, int, int]] = {}
    if mark_spans(flat_gold):
        for one, other in words:
            for kind, (right, guessed, there) in found_spans(one, other).items():
                before = spans.get(kind, (0, 0, 0))
                spans[kind] = (before[0] + right, before[1] + guessed, before[2] + there)
    return _scored(flat_gold, flat_said, spans)


def _scored(gold: list[str], said: list[str], spans: dict[str, tuple[int, int, int]]) -> NamesScored:
    table = Counter(zip(gold, said, strict=True))
    golds, saids = Counter(gold), Counter(said)
    labels = sorted(golds | saids)
    right = sum(table[label, label] for label in labels)
    macro = sum(f1(table[label, label], saids[label], golds[label]) for label in labels) / max(1, len(labels))
    confusion = {one: {other: table[one, other] for other in labels if table[one, other]} for one in labels}
    whole = f1(*(sum(kind[place] for kind in spans.values()) for place in range(3))) if spans else macro
    return NamesScored(
        len(gold),
        right / max(1, len(gold)),
        whole,
        _matthews(right, golds, saids),
        confusion,
        dict(sorted(spans.items())),
    )


def f1(right: int, said: int, gold: int) -> float:
    """2 P R / (P + R), P = right / said, R = right / gold; 0 where nothing is right."""
    if not right:
        return 0.0
    precision, recall = right / said, right / gold
    return 2 * precision * recall / (precision + recall)


def _matthews(right: int, golds: Counter[str], saids: Counter[str]) -> float:
    every = sum(golds.values())
    both = sum(golds[label] * saids[label] for label in golds)
    spread = [every**2 - sum(count**2 for count in counts.values()) for counts in (golds, saids)]
    return (right * every - both) / math.sqrt(spread[0] * spread[1]) if spread[0] and spread[1] else 0.0

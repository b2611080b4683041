"""A recipe for labelled examples: what classifiers and taggers of text, and of anything else, have in common."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

from regard.data.sources import every_line
from regard.data.text import is_jsonl, read_lines, read_rows
from regard.data.tokens import TextTokens
from regard.interface import UserError
from regard.models import MODELS
from regard.new.choices import Made, Reasons, Request, by_size, first_key, hold_out
from regard.train.training import TrainConfig

LOOKED_AT = 1000  # lines


def new_labelled(asked: Request, data: Any, tokens: Any, reasons: Reasons) -> Made:
    """A recipe for these examples. What depends on how many there are is chosen here: the share that `data` holds out,
    how often a word must occur to be one of `tokens`."""
    model = asked.model_name
    rows = [(size_of(source), target) for _, source, target in every_line(data, asked.folder)]
    path, noun = next(iter(data.names.values())), f"{asked.task.words.example}s"
    if not rows:
        raise UserError(f"{path} has no {noun}: give at least a few with their labels.")
    if data.hold_out:
        share = 0.1 if len(rows) < 20_000 else 0.05
        data = replace(data, hold_out=share)
        reasons["data.hold_out"] = hold_out(len(rows), share, noun)
    words = sum(count for count, _ in rows)
    kinds = Counter(name for _, target in rows for name in asked.task.fields["target"].cut(target))
    if len(kinds) < 2:
        raise UserError(f"{path} has one label only ({''.join(kinds)}): there is nothing to tell apart.")
    if isinstance(tokens, TextTokens):
        tokens = replace(tokens, at_least=2 if words > 20_000 else 1)
        reasons["tokens.at_least"] = "a word that occurs once teaches nothing of itself, and something of unknown ones."
    config = by_size(len(rows), *MODELS[model].sizes)
    batch_tokens = by_size(len(rows), 1024, 2048, 4096, 4096)
    epochs = min(40, max(4, round(3_000_000 / max(1, words))))
    an_epoch = max(1, words // batch_tokens)
    train = TrainConfig(
        epochs=epochs,
        batch_tokens=batch_tokens,
        learning_rate=1e-3,
        schedule="linear",
        warmup=min(200, max(1, an_epoch * epochs // 10)),
        validate_every=max(10, an_epoch // 2),
        metric=asked.task.metrics[0].key,
        patience=8,
        smooth=0.1,
    )
    most, times = kinds.most_common(1)[0]
    reasons |= {
        first_key(config): f"for {len(rows):,} {noun} of {words:,} {asked.task.words.units}, {len(kinds)} labels; "
        f"{most} is {times / sum(kinds.values()):.0%} of them.",
        "train.epochs": "as many as little data needs; patience ends it earlier.",
        "train.metric": "what is asked of it decides which checkpoint is the best.",
    }
    return asked.recipe(data, tokens, config, train), reasons


def size_of(raw: Any) -> int:
    """The words of a text, the rows of a picture."""
    return len(raw.split() if isinstance(raw, str) else raw)


def guess_fields(path: Path) -> tuple[str, str]:
    """Which field is the text and which the label: by how many different values they have in the first lines."""
    if is_jsonl(path):
        try:
            entries = [dict(json.loads(line)) for line in islice(read_lines(path), LOOKED_AT)]
            first = entries[0]
        except (ValueError, TypeError, IndexError, RecursionError):
            raise UserError(f"{path} is not JSONL: give one object a line, with texts in it.") from None
        names = [key for key in first if all(type(entry.get(key)) in (str, int) for entry in entries)]
        columns = {key: [str(entry[key]) for entry in entries] for key in names}
    else:
        rows = [row for _, row in islice(read_rows(path), LOOKED_AT)]
        width = min(map(len, rows), default=0)
        columns = {str(place + 1): [row[place] for row in rows] for place in range(width)}
    if len(columns) < 2:
        raise UserError(f"{path} has not two fields in each line: give a text and a label, as in text<tab>label.")
    different = {name: len(set(values)) for name, values in columns.items()}
    label = min(columns, key=lambda name: (different[name], sum(map(len, columns[name]))))
    text = max((name for name in columns if name != label), key=lambda name: sum(map(len, columns[name])))
    head = {name: values[0] for name, values in columns.items()}
    once = len(columns[label]) > 2 and columns[label].count(head[label]) == 1
    if label.isdecimal() and once and head[text].isidentifier():
        return head[text], head[label]  # the first line names the columns
    return text, label


def label_fields(asked: Request, file: Path) -> tuple[str, str, Reasons]:
    """The fields that were named, or those that look like a text and its label, and why."""
    if bool(asked.source) != bool(asked.target):
        raise UserError("Give both --source and --target, the fields of the text and of the label, or neither.")
    if asked.source and asked.target:
        return asked.source, asked.target, {}
    return *guess_fields(file), {
        "data.source": "the field that differs most from line to line is taken for the text.",
        "data.target": "the field with the fewest different values is taken for the label.",
    }

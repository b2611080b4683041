"""A recipe for labelled examples: what classifiers and taggers have in common."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from typing import Any

from regard.config import counted
from regard.data.fields import LabelField
from regard.data.sources import every_line
from regard.data.tokens import TextTokens
from regard.interface import UserError
from regard.models import MODELS
from regard.new.choices import Made, Reasons, Request, by_size, first_key, hold_out
from regard.train.training import TrainConfig


def new_labelled(asked: Request, data: Any, tokens: Any, reasons: Reasons) -> Made:
    """A recipe for these examples. What depends on how many there are is chosen here: the share that `data` holds out,
    how often a word must occur to be in the vocabulary."""
    model = asked.model_name
    rows = [(size_of(source), target) for _, source, target in every_line(data, asked.folder)]
    path, noun = next(iter(data.names.values())), asked.task.words.example
    if not rows:
        raise UserError(f"{path} has no {noun}s: give at least a few with their labels.")
    if data.hold_out:
        share = 0.1 if len(rows) < 20_000 else 0.05
        data = replace(data, hold_out=share)
        reasons["data.hold_out"] = hold_out(len(rows), share, noun)
    words = sum(count for count, _ in rows)
    target = asked.task.fields["target"]
    kinds = Counter(name for _, raw in rows for name in target.cut(raw)) if issubclass(target, LabelField) else None
    if kinds is not None and len(kinds) < 2:
        raise UserError(f"{path} has one label only ({''.join(kinds)}): add examples of another label.")
    if isinstance(tokens, TextTokens):
        tokens = replace(tokens, at_least=2 if words > 20_000 else 1)
        if tokens.at_least > 1:
            reasons["tokens.at_least"] = "words that occur once become <unk>, so that the model learns to read it."
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
    amount = f"{counted(len(rows), noun)} of {words:,} {asked.task.words.units}"
    if kinds:
        (most, times), all_labels = kinds.most_common(1)[0], sum(kinds.values())
        amount += f", {len(kinds)} labels; {most}, the most frequent, has {times / all_labels:.0%}"
    reasons |= {
        first_key(config): f"the size is for {amount}.",
        "train.epochs": "as many as little data needs; early stopping (train.patience) ends training sooner.",
        "train.metric": "the checkpoint that is best by the task's main metric is kept.",
    }
    return asked.recipe(data, tokens, config, train), reasons


def size_of(raw: Any) -> int:
    """The words of a text, the rows of a picture."""
    return len(raw.split() if isinstance(raw, str) else raw)

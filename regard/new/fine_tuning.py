"""Recipes for fine-tuning: the model, its settings and its tokens are those of a trained run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any, get_args

from regard.checkpoint import Folder
from regard.config import fields_of
from regard.data.fields import MULTIPLE
from regard.data.sources import Imported, every_line, find
from regard.data.tokens import TextTokens
from regard.interface import UserError
from regard.loading import read_recipe
from regard.models import design_of, models_for
from regard.new.choices import Made, Request, first_key, written
from regard.new.labelled import size_of
from regard.recipe import Recipe
from regard.train.training import TrainConfig

STEPS = 600  # which a new head on a trained body takes
FEW = 20_000  # words that make few steps of an ordinary batch
TOKENS_PER_WORD = 1.4  # pieces, <eos> and padding
VALIDATIONS = 12  # in all
# the widest model, and its learning rate: a bert of 128 was right on 69.3 % of SST-2 at 1e-3, on 65.7 % at 3e-4 (1,000
# labels, after 24 minutes of pre-training); wider ones get WIDE_RATE (Devlin 2019, A.3)
RATES = ((128, 1e-3), (256, 5e-4), (512, 2e-4))
WIDE_RATE = 5e-5
RECURRENT_RATE = 2e-3  # whatever the width; chosen with an elmo of 256 on SST-2's development set: 82.3 % right
UNTAUGHT = "masked tokens teach <cls> nothing about a whole text: mean pooling of all states says more."
# logistic regression on frozen states of a gpt, 100 labels of SST-2, development set: 60.5 % last state, 67.7 % mean
AHEAD = "the last state of a language model predicts the next token: mean pooling of all states says more."
LAYER_DECAY = 0.9  # Clark 2020, table 7: 0.8 to 0.9


def new_recipe(asked: Request) -> Made:
    """A recipe for what was asked, and the reasons for its values; where a run to start from is named, for
    fine-tuning it."""
    path = asked.base
    if not path:
        made: Made = asked.task.new(asked)
        return made
    base = recipe_of(path)
    if base.task in vars(asked.task).get("objectives", ()):
        asked = replace(asked, task=base.task)
    if asked.kind:
        raise UserError(f"The tokens are those of {path}, and {asked.kind} was given: leave the kind out.")
    if asked.model and asked.model != base.model_name:
        raise UserError(f"{path} is a run of {base.model_title}, not of {asked.model}: leave the model out.")
    if base.model_name not in models_for(asked.task.name):
        able = ", ".join(models_for(asked.task.name))
        raise UserError(
            f"{path} is a run of {base.model_title}, which is not for {asked.task.name}: give one of {able}, or "
            f"leave it out and train with train.from={path}, which loads the weights that fit."
        )
    same = base.task is asked.task
    unit = asked.unit or (vars(base.data).get("unit") if same else None)
    recipe, reasons = asked.task.new(replace(asked, model=base.model_name, unit=unit))
    windows = {key: vars(base.data)[key] for key in ("pack", "window") if same and key in vars(base.data)}
    config = base.model if same else for_task(base)
    tokens = tokens_of(recipe.tokens, base.tokens, config)
    train, why = training(recipe, config, new_head=not same)
    start = written(path, asked.folder)
    kept = {key: reason for key, reason in reasons.items() if not key.startswith(("model.", "tokens.", "train."))}
    reasons = kept | {
        first_key(config): f"the model and its settings are those of {path}.",
        **({"tokens.kind": f"the vocabulary is that of {path}."} if isinstance(tokens, TextTokens) else {}),
        "train.from": "its weights are where training starts.",
        **({"model.pool": why_pooled(base)} if vars(config).get("pool") != vars(base.model).get("pool") else {}),
        **why,
    }
    data: Any = replace(recipe.data, **windows)
    return replace(recipe, data=data, tokens=tokens, model=config, train=replace(train, from_=start)), reasons


def recipe_of(run: str | Path) -> Recipe:
    return read_recipe(Folder(find(str(run), Path.cwd())).must_exist().config)[0]


def for_task(base: Recipe) -> Any:
    """The settings of a run's model, without those that only its pre-training needs."""
    design = design_of(base.model_name)
    usual, own = design.config(), vars(base.model)
    back = {key: vars(usual)[key] for key in vars(design).get("objective", {})}
    taught = own.get("follows") or isinstance(base.data, Imported)  # <cls> has learnt to speak for a text
    untaught = base.task.fills and own.get("pool") == "first" and not taught
    if untaught or (own.get("pool") == "end" and base.task.decoding is not None):
        back["pool"] = "mean"
    return replace(base.model, **back)


def why_pooled(base: Recipe) -> str:
    return UNTAUGHT if base.task.fills else AHEAD


def tokens_of(own: Any, theirs: Any, config: Any) -> Any:
    """The settings of the run's tokens as the task has them, and no texts that are longer than the model reads."""
    if not isinstance(own, TextTokens):
        return own
    taken: dict[str, Any] = {key: vars(theirs)[key] for key in ("size", "at_least")}
    if theirs.kind in get_args(fields_of(type(own))["kind"]):
        taken["kind"] = theirs.kind
    places = vars(config).get("longest", vars(config).get("context"))
    most = own.longest if places is None else (places - 1) // MULTIPLE * MULTIPLE - 1  # beside <bos>, <eos> and padding
    return replace(own, **taken, longest=min(own.longest, most))


def training(recipe: Recipe, config: Any, *, new_head: bool = True) -> tuple[TrainConfig, dict[str, str]]:
    """Settings of training that keep what a trained model knows."""
    width = max(vars(config).get(key, 0) for key in ("dim", "hidden"))
    rate = min(recipe.train.learning_rate, next((rate for most, rate in RATES if width <= most), WIDE_RATE))
    low = f"the wider a trained model (here {width}), the lower, so that it forgets little."
    if new_head and "cell" in vars(config) and recipe.task.decoding is None:
        rate, low = RECURRENT_RATE, "recurrent layers under a new head learn at a high rate."
    train = replace(recipe.train, learning_rate=rate, schedule="linear")
    if recipe.task.decoding is not None:  # no new head: the whole model learns, at twice the rate
        return replace(train, learning_rate=min(2 * rate, recipe.train.learning_rate)), {"train.learning_rate": low}
    words = sum(size_of(source) for _, source, *_ in every_line(recipe.data, recipe.folder))
    batch_tokens = 256 if words < FEW else 1024
    an_epoch = max(1, round(TOKENS_PER_WORD * words / batch_tokens))
    epochs = min(30, max(3, round(STEPS / an_epoch)))
    train = replace(
        train,
        epochs=epochs,
        batch_tokens=batch_tokens,
        warmup=max(1, an_epoch * epochs // 10),
        validate_every=max(10, an_epoch * epochs // VALIDATIONS),
        layer_decay=LAYER_DECAY,
    )
    return train, {
        "train.learning_rate": low,
        "train.epochs": f"about {an_epoch * epochs:,} steps: a trained body needs few.",
        "train.warmup": "a tenth of the steps, since the head is new.",
        "train.layer_decay": "lower layers hold what is general already, and change less.",
        "train.patience": "early stopping ends training when validation stops improving.",
    }

"""A trained run, ready to use: `m = regard.load("runs/demo"); m.predict(["They are watching ."])`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from regard import machine
from regard.checkpoint import Folder, read_tensors
from regard.data.tokenizers import Tokenizers
from regard.interface import UserError
from regard.look import Look, look
from regard.models import MODELS
from regard.models.design import Vocabulary
from regard.predict import Decoding, Prediction, predict
from regard.recipe import Recipe, read_recipe
from regard.train.loop import load_weights


@dataclass(frozen=True)
class Run:
    """A model with its tokenizers."""

    recipe: Recipe
    tokenizers: Tokenizers
    model: nn.Module
    device: torch.device

    def predict(self, lines: Sequence[str], how: Decoding | None = None) -> list[Prediction]:
        """One Prediction per line."""
        return predict(self, lines, how)

    def look(self, source: str, target: str | None = None) -> Look:
        """What the model looks at while it writes its translation of `source`, or `target` if given."""
        return look(self, source, target)


def build_model(recipe: Recipe, tokenizers: Tokenizers) -> nn.Module:
    """A new model, its weights a function of the recipe's seed."""
    torch.manual_seed(recipe.seed)
    vocabulary = Vocabulary(tokenizers.source.size, tokenizers.target.size, tokenizers.joint)
    return MODELS[recipe.model_name].build(recipe.model, vocabulary)


def load(path: str | Path, *, device: str = "cpu") -> Run:
    """The best model of a run folder."""
    folder = Folder(path).must_exist()
    recipe, _ = read_recipe(folder.config)
    tokenizers = Tokenizers.read(folder.tokenizer)
    if not folder.best.exists():
        raise UserError(f"{folder.path} has no model yet: training stopped before its first validation; train on.")
    model = build_model(recipe, tokenizers)
    load_weights(model, read_tensors(folder.best)[0], origin=folder.best)
    place = machine.device(device)
    return Run(recipe, tokenizers, model.to(place).eval(), place)

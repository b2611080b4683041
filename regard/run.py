"""A trained run, ready to use: `m = regard.load("runs/demo"); m.predict(["They are watching ."])`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import nn

from regard import machine
from regard.checkpoint import Folder, read_tensors
from regard.data.sources import PlainText, Unit
from regard.data.tokenizers import Tokenizers
from regard.interface import BOS, UNK, Fits, UserError
from regard.look.attention import Look, look
from regard.models import design_of
from regard.models.design import Vocabulary
from regard.models.mixture import Mixture
from regard.predict.search import Decoding, Prediction, predict
from regard.recipe import Recipe, read_recipe, refuse_other_code
from regard.score.likelihood import check_alike
from regard.train.weights import load_weights


@dataclass(frozen=True)
class Run:
    """A model with its tokenizers."""

    recipe: Recipe
    tokenizers: Tokenizers
    model: nn.Module
    device: torch.device
    name: str = ""  # of its folder

    @property
    def unit(self) -> Unit:
        """What it takes for a text of its own."""
        return self.recipe.data.unit if isinstance(self.recipe.data, PlainText) else "line"

    @property
    def whole_file(self) -> bool:
        """Whether it was trained on one long text, whose line ends are tokens."""
        return self.unit == "file"

    @property
    def opening(self) -> list[int]:
        """What stands before a text: <bos>, or in one long text the end of the line before, where that is known."""
        line_end = self.tokenizers.target.encode_all(["\n"], continued=True)[0]
        return line_end if self.whole_file and line_end and UNK not in line_end else [BOS]

    def valid_texts(self) -> Iterator[str]:
        """The validation text that its recipe names."""
        if not isinstance(self.recipe.data, PlainText):
            raise UserError(f"{self.name} was trained on pairs, not on plain text.")
        return self.recipe.data.texts("valid", self.recipe.folder)

    def predict(self, lines: Sequence[str], how: Decoding | None = None) -> list[Prediction]:
        """One Prediction per line."""
        return predict(self, lines, how)

    def look(self, source: str, target: str | None = None) -> Look:
        """What the model looks at while it writes its translation of `source`, or `target` if given."""
        return look(self, source, target)


def build_model(recipe: Recipe, tokenizers: Tokenizers) -> nn.Module:
    """A new model, its weights a function of the recipe's seed."""
    torch.manual_seed(recipe.seed)
    per_word = recipe.task == "tagging"
    vocabulary = Vocabulary(tokenizers.source.size, tokenizers.target.size, tokenizers.joint, per_word)
    return design_of(recipe.model_name).build(recipe.model, vocabulary)


def load(path: str | Path, *, device: str = "cpu") -> Run:
    """The best model of a run folder."""
    folder = Folder(path).must_exist()
    recipe, _ = read_recipe(folder.config)
    refuse_other_code(recipe.code(), folder)
    tokenizers = Tokenizers.read(folder.tokenizer)
    if not folder.best.exists():
        raise UserError(f"{folder.path} has no model yet: training stopped before its first validation; train on.")
    model = build_model(recipe, tokenizers)
    saved = read_tensors(folder.best)[0]
    if isinstance(model, Fits):
        model.restore(saved)
    else:
        load_weights(model, saved, origin=folder.best)
    place = machine.device(device)
    return Run(recipe, tokenizers, model.to(place).eval(), place, str(path))


def mixture(runs: Sequence[Run], weights: Sequence[float] | None = None) -> Run:
    """Several runs as one, which writes as they do together; their weights, if none are given, are equal."""
    check_alike(runs)
    first = runs[0]
    if len(runs) == 1:
        return first
    model = Mixture([run.model for run in runs], weights).to(first.device).eval()
    return dataclasses.replace(first, model=model, name=" + ".join(run.name for run in runs))

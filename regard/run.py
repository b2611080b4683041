"""A trained run, ready to use: `m = regard.load("runs/demo"); m.predict("They are watching .")`."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, overload

import torch
from torch import nn

from regard.data.fields import Fields
from regard.data.tokens import Tokenizer
from regard.interface import BOS, UNK, Batch, UserError
from regard.models import design_of
from regard.models.mixture import Mixture
from regard.predict.decoding import Decoding, Prediction
from regard.predict.inputs import AT_ONCE, some_at_once
from regard.recipe import Recipe
from regard.tasks import Task


@dataclass(frozen=True)
class Run:
    """A model with its fields."""

    recipe: Recipe
    fields: Fields
    model: nn.Module
    device: torch.device
    name: str = ""  # of its folder

    @property
    def task(self) -> Task:
        return self.recipe.task

    @property
    def model_title(self) -> str:
        return self.recipe.model_title

    def tokenizer(self, side: str = "") -> Tokenizer:
        """Of a side that is text; of what is read where none is named."""
        return self.fields.tokenizer(side)

    def batch(self, *, multiple: int = 2, **raws: Sequence[Any]) -> Batch:
        """Raw sides, by name, as one Batch where the model is: run.batch(source=["They are watching ."])."""
        return self.fields.batch(self.fields.encode(raws), multiple=multiple).to(self.device)

    @property
    def whole_file(self) -> bool:
        """Whether it was trained on one long text, whose line ends are tokens."""
        return self.recipe.data.unit == "file"

    @property
    def opening(self) -> list[int]:
        """What stands before a text: <bos>, or in one long text the end of the line before, where that is known."""
        line_end = self.tokenizer("target").encode_all(["\n"], continued=True)[0]
        return line_end if self.whole_file and line_end and UNK not in line_end else [BOS]

    @overload
    def predict(self, raws: str, how: Decoding | None = None) -> Prediction: ...

    @overload
    def predict(self, raws: Iterable[Any], how: Decoding | None = None) -> list[Prediction]: ...

    def predict(self, raws: Any, how: Decoding | None = None) -> Any:
        """One Prediction for a text, a list of them for several."""
        if isinstance(raws, str):
            return self.task.answer(self, [raws], how)[0]
        return self.task.answer(self, list(raws), how)

    def answers(
        self, raws: Iterable[Any], how: Decoding | None, *, at_once: int = AT_ONCE
    ) -> Iterator[tuple[Any, Prediction]]:
        """Each raw input with the answer to it, as a stream."""
        done = 0
        for some in some_at_once(raws, at_once):
            yield from zip(some, self.task.answer(self, some, how, first_line=done), strict=True)
            done += len(some)

    def look(self, source: Any, target: str | None = None) -> Any:
        """What the model looks at while it makes its answer to `source`, or `target` if given."""
        return self.task.look(self, source, target)


def build_model(recipe: Recipe, fields: Fields) -> nn.Module:
    """A new model, its weights a function of the recipe's seed; the caller's random state is left as it was."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        return design_of(recipe.model_name).build(recipe.model, fields.shapes)


def mixture(runs: Sequence[Run], weights: Sequence[float] | None = None) -> Run:
    """Several runs as one, which writes as they do together; their weights, if none are given, are equal."""
    check_alike(runs)
    first = runs[0]
    if len(runs) == 1:
        return first
    model = Mixture([run.model for run in runs], weights).to(first.device).eval()
    return dataclasses.replace(first, model=model, name=" + ".join(run.name for run in runs))


def check_alike(runs: Sequence[Run]) -> None:
    """A mixture's runs must mean the same by a token, and by a text."""
    first = runs[0]
    for other in runs[1:]:
        if other.task is not first.task:
            raise UserError(f"{first.name} is for {first.task.name}, {other.name} for {other.task.name}.")
        if other.fields.to_json() != first.fields.to_json():
            raise UserError(
                f"{first.name} and {other.name} have different vocabularies: train one with train.from, or from the "
                "same text and [tokens], so that their probabilities are of the same things."
            )
        if other.whole_file != first.whole_file:
            raise UserError(f"Of {first.name} and {other.name} one was trained on a whole file, one on texts.")

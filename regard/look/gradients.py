"""reach: how far back a run's losses are felt, on its own validation text, before it was trained and after.

A language model reads windows of a whole file, or the beginnings of the longest lines or paragraphs: it never read
across them, so they are not joined. A translator reads the longest pairs. All in float64, without dropout: what has
vanished is then small, not 0.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple, TypeVar, cast

import numpy as np
import torch
from torch import nn

from regard.data.sources import examples
from regard.interface import Batch, Learns, Scores, UserError
from regard.look.gradient_flow import Felt, Flow, batch_flow, gradient_norm, layers_of
from regard.run import Run, build_model
from regard.score.likelihood import encoded, valid_texts
from regard.train.transfer import find_run, load_fitting

T = TypeVar("T")
ROWS = 32  # at most
FEWEST = 8  # rows that are taken although they are too short, where there are not enough long ones
LENGTH = 100  # tokens back


@dataclass(frozen=True)
class Stage:
    """A run at one time."""

    flow: Flow
    gradient: float  # its length, of the training objective over the same batch
    factor: float  # by which train.clip would shorten it, and with it all that is felt


@dataclass(frozen=True)
class Reach:
    model: str
    rows: int
    length: int  # tokens back, at most
    clip: float  # 0: no limit
    before: Stage
    after: Stage

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(felt.layer for felt in self.after.flow.felt))

    def lines(self, layer: str) -> Iterator[Line]:
        """All that is felt in a layer: before and after, as it is and, where clipping would shorten it, clipped."""
        for when, at in (("before", self.before), ("after", self.after)):
            for felt in at.flow.felt:
                if felt.layer == layer:
                    yield Line(felt, when, 1.0)
                    if at.factor < 1:
                        yield Line(replace(felt, norms=tuple(at.factor * norm for norm in felt.norms)), when, at.factor)


class Line(NamedTuple):
    felt: Felt
    when: str  # before or after
    factor: float  # of clipping; 1: as it is

    @property
    def name(self) -> str:
        return f"{self.felt.state}, {self.when}" + (", clipped" if self.factor < 1 else "")


def reach(run: Run, *, length: int = LENGTH) -> Reach:
    """Over at most so many tokens; over fewer where the text has not as many."""
    if length < 1:
        raise UserError(f"A length of {length} is not possible: it must be 1 or more.")
    model = recurrent(run)
    if not (isinstance(model, Scores) and isinstance(model, Learns)):
        raise UserError(f"Gradients are looked at in models that learn and score targets: {run.model_title} does not.")
    batch = longest_pairs(run, length) if "source" in run.fields else text_windows(run, length)
    clip = run.recipe.train.clip
    stages = [stage(of, batch, clip, length) for of in (untrained(run), model)]
    far = max(len(felt.norms) for felt in stages[1].flow.felt) - 1
    return Reach(run.model_title, batch.size, far, clip, *stages)


def recurrent(run: Run) -> nn.Module:
    """The run's model, if something in it recurs."""
    if layers_of(run.model):
        return run.model
    raise UserError(f"{run.model_title} does not recur: it carries no state that could be looked into.")


def untrained(run: Run) -> nn.Module:
    """The same model as its first step found it."""
    recipe, model = run.recipe, build_model(run.recipe, run.fields)
    if recipe.train.from_:
        teacher = find_run(recipe.train.from_, recipe.folder)
        load_fitting(model, recipe, run.fields, teacher, recipe.train.parts)
    return model.eval()


def stage(model: nn.Module, batch: Batch, clip: float, length: int) -> Stage:
    model = copy.deepcopy(model).cpu()
    norm = gradient_norm(cast(Learns, model), batch)
    return Stage(
        batch_flow(model.double(), batch, length=length), norm, min(1.0, clip / norm) if clip and norm else 1.0
    )


def text_windows(run: Run, length: int) -> Batch:
    """Rows of one length: length + 1 tokens are read, and one more is predicted."""
    width = length + 2
    texts = encoded(run, valid_texts(run))
    if run.whole_file:
        (text,) = texts
        rows = max(1, min(ROWS, len(text) // width))
        texts = [text[start : start + width] for start in np.linspace(0, max(0, len(text) - width), rows).astype(int)]
    texts = longest(texts, [len(text) for text in texts], width)
    width = min(width, min(map(len, texts), default=0))
    if width < 3:
        raise UserError("The validation text is too short: there must be at least 3 tokens to look back over.")
    return Batch.of_text(torch.from_numpy(np.stack([text[:width] for text in texts]).astype(np.int64)))


def longest_pairs(run: Run, length: int) -> Batch:
    """By their shorter side, among those that training would not leave out as too long."""
    recipe = run.recipe
    sources, targets = zip(*examples(recipe.data, "valid", recipe.folder), strict=True)
    encoded_sides = run.fields.encode({"source": sources, "target": targets})
    most = recipe.tokens.longest
    both = [
        (source, target)
        for source, target in zip(encoded_sides["source"], encoded_sides["target"], strict=True)
        if 0 < len(source) <= most and 0 < len(target) <= most
    ]
    if not both:
        raise UserError("The validation pairs are all empty or too long: there is nothing to look back over.")
    both = longest(both, [min(map(len, pair)) for pair in both], length)
    sides = {side: [pair[place] for pair in both] for place, side in enumerate(("source", "target"))}
    return run.fields.batch(sides, multiple=1)


def longest(texts: Sequence[T], lengths: Sequence[int], wanted: int) -> list[T]:
    """Texts as long as wanted, at most ROWS of them; with some that are shorter where these are fewer than FEWEST."""
    order = sorted(range(len(texts)), key=lambda place: -lengths[place])
    enough = sum(length >= wanted for length in lengths)
    return [texts[place] for place in order[: min(ROWS, max(enough, FEWEST))]]

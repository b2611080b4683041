"""Vanishing and exploding gradients: how far back the gradient of one token's loss reaches in recurrent layers.

L_T = −ln p of the last token alone;   gradient norm at distance d:  the mean over rows of ‖∂L_T/∂h_{T−d}‖, and for c
h_{t+1} = φ(W h_t + …) makes it a product of d Jacobians: it falls or grows about as σ(W)^d, a straight line on a
logarithmic scale (Bengio 1994; Pascanu 2013). Its slope is in ln per step. In a cell that
keeps its state, ∂Cₜ/∂Cₜ₋₁ = F + …, it falls with the gate. Gradient clipping scales the gradient and keeps its slope.

A run is measured on its own validation text, before and after training. A language model reads windows of a whole file,
or the beginnings of the longest lines or paragraphs, which are not joined, as in training. A translator reads the
longest pairs. All is computed in float64, without dropout, so that a vanished gradient is small, not 0.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor, nn

from regard.data.pictures import PictureField
from regard.data.sounds import SoundField
from regard.data.sources import examples
from regard.interface import Batch, Learns, Scores, SeenRecurrence, UserError
from regard.layers.recurrent import trace
from regard.look.weights import inside, scores
from regard.run import Run, build_model
from regard.score.likelihood import encoded, valid_texts
from regard.train.transfer import find_run, load_fitting

T = TypeVar("T")
STATES = ("h", "c")  # in the order of a cell's state
ROWS = 32  # most rows
FEWEST = 8  # fewest rows: shorter ones are used if there are not enough long ones
LENGTH = 100  # largest distance in tokens
NO_TEXT = {PictureField: "pictures", SoundField: "recordings"}  # what a source may be, along which nothing is shown


# --- one batch ---------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class GradientNorms:
    """The norms of the loss's gradient with respect to one state of one layer."""

    layer: str
    state: str  # h or c
    norms: tuple[float, ...]  # at distance 0, 1, …

    @property
    def slope(self) -> float:
        """Fit ln norm against distance by least squares: ln s if every step multiplies by s."""
        norms = np.array(self.norms)
        (distances,) = np.nonzero((norms > 0) & np.isfinite(norms))
        return float(np.polyfit(distances, np.log(norms[distances]), 1)[0]) if len(distances) > 1 else math.nan


@dataclass(frozen=True)
class Gate:
    """The mean value of one gate of one layer: 0 closed, 1 open."""

    layer: str
    gate: str
    means: tuple[float, ...]  # over rows and units, step by step

    @property
    def mean(self) -> float:
        return math.fsum(self.means) / len(self.means)


@dataclass(frozen=True)
class Spectrum:
    """The singular values of one square block of a layer's recurrent weights."""

    layer: str
    block: str
    largest: float
    median: float
    smallest: float


@dataclass(frozen=True)
class Flow:
    """The gradient norms, gates and singular values of one set of weights on one batch."""

    gradient_norms: tuple[GradientNorms, ...]
    gates: tuple[Gate, ...]
    spectra: tuple[Spectrum, ...]


Losses = Callable[[], Tensor]  # runs the model on rows of one length and returns the loss of each, (rows,)


def gradient_flow(model: nn.Module, *losses: Losses, length: int | None = None) -> Flow:
    """Compute the gradients of these losses in a model's cells, at most `length` steps back.

    Every number is a mean over all rows, up to the length of the shortest. The gradient in c includes the path through
    the h that is computed from it.
    """
    layers = layers_of(model)
    norms: dict[tuple[str, str], list[Tensor]] = {}  # layer and state -> (rows, distance) each
    gates: dict[tuple[str, str], list[Tensor]] = {}  # layer and gate -> (rows, time) each
    for some in losses:
        with torch.enable_grad(), trace(model) as kept:
            total = some().sum()
            every = {name: kept.states_of(seen.part) for name, seen in layers.items()}
            states = [state for afters in every.values() for after in afters for state in after]
            slopes = iter(torch.autograd.grad(total, states, allow_unused=True, materialize_grads=True))
        for name, afters in every.items():
            each = [[next(slopes).norm(dim=-1) for _ in after] for after in afters]  # (time, states) × (rows,)
            for state, sizes in zip(STATES, zip(*each, strict=True), strict=False):
                norms.setdefault((name, state), []).append(torch.stack(sizes[::-1], 1))
            steps = kept.gates_of(layers[name].part)
            for gate in steps[0] if afters else ():
                gates.setdefault((name, gate), []).append(torch.stack([step[gate].mean(-1) for step in steps], 1))
    far = None if length is None else length + 1
    return Flow(
        tuple(GradientNorms(*key, _over_rows(each, far)) for key, each in norms.items()),
        tuple(Gate(*key, _over_rows(each)) for key, each in gates.items()),
        tuple(spectra(model)),
    )


def _over_rows(parts: list[Tensor], most: int | None = None) -> tuple[float, ...]:
    """Average rows, (rows, ·) each, up to the length of the shortest."""
    shortest = min(part.shape[1] for part in parts)
    return tuple(torch.cat([part[:, :shortest].double() for part in parts]).mean(0)[:most].tolist())


def last_loss(model: nn.Module, batch: Batch) -> Tensor:
    """Compute −ln p of the last token of rows of one length, (rows,)."""
    losses: Tensor = -scores(model).log_probs(batch)[0][:, -1]
    return losses


def batch_flow(model: nn.Module, batch: Batch, *, length: int | None = None) -> Flow:
    """Compute the flow of each row's last loss. Pairs are read one by one, because padding would repeat states."""
    rows = [batch] if batch.source is None else list(batch.rows())
    return gradient_flow(model, *(partial(last_loss, model, row) for row in rows), length=length)


def gradient_norm(model: Any, batch: Batch) -> float:
    """Compute the norm of the training gradient of this batch: of the objective per token."""
    with torch.enable_grad():
        loss = model.loss(batch)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        slopes = torch.autograd.grad(loss.objective / loss.tokens, parameters, allow_unused=True)
    return float(torch.stack([slope.double().norm() for slope in slopes if slope is not None]).norm())


def spectra(model: nn.Module) -> Iterator[Spectrum]:
    """Yield the singular values of every square block of every recurrent layer's weights."""
    for name, seen in layers_of(model).items():
        cell: Any = seen.part
        blocks = recurrent_blocks(cell)
        numbered = tuple(f"block {number}" for number in range(1, len(blocks) + 1))
        named = cell.blocks if len(cell.blocks) == len(blocks) else numbered
        for block, called in zip(blocks, named, strict=True):
            values = torch.linalg.svdvals(block.detach().double().cpu())  # the largest first
            yield Spectrum(name, called, float(values[0]), float(values.median()), float(values[-1]))


def recurrent_blocks(cell: Any) -> list[Tensor]:
    """Return the hidden × hidden matrices of a cell that are not applied to its input."""
    matrices = [parameter for parameter in cell.parameters() if parameter.dim() == 2]
    with torch.enable_grad():
        made = cell.inputs(cell.place.new_zeros(1, cell.input_dim)).sum()
        reads = bool(matrices) and made.requires_grad
        used = torch.autograd.grad(made, matrices, allow_unused=True) if reads else [None] * len(matrices)
    return [
        block
        for matrix, slope in zip(matrices, used, strict=True)
        if slope is None and matrix.shape[1] == cell.hidden and matrix.shape[0] % cell.hidden == 0
        for block in torch.split(matrix, cell.hidden)
    ]


def layers_of(model: object) -> dict[str, SeenRecurrence]:
    """Return a model's recurrent layers by name, numbered from 1 on each side and in each direction: "encoder 1 ←"."""
    shown = inside(model)
    read = {*(seen.side for seen in shown.recurrences), *(seen.keys for seen in shown.attentions)}
    sides = {"source": "encoder", "target": "decoder" if "source" in read else "layer"}
    arrows = {True: " ←", False: " →"}
    return {
        f"{sides[seen.side]} {seen.layer}{arrows[seen.backwards] if seen.two_ways else ''}": seen
        for seen in shown.recurrences
    }


# --- a run --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Stage:
    """A run before or after training."""

    flow: Flow
    gradient: float  # norm of the training gradient over the same batch
    factor: float  # by which gradient clipping (train.clip) would scale it, and all norms with it


@dataclass(frozen=True)
class Reach:
    model: str
    rows: int
    length: int  # largest distance in tokens
    clip: float  # 0: no limit
    before: Stage
    after: Stage

    @property
    def stages(self) -> dict[str, Stage]:
        return {"before": self.before, "after": self.after}

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(each.layer for each in self.after.flow.gradient_norms))

    def lines(self, layer: str) -> Iterator[Line]:
        """Yield the norms of a layer: before and after training, unclipped and, if clipping has an effect, clipped."""
        for when, at in self.stages.items():
            for each in at.flow.gradient_norms:
                if each.layer == layer:
                    yield Line(each, when, 1.0)
                    if at.factor < 1:
                        yield Line(replace(each, norms=tuple(at.factor * norm for norm in each.norms)), when, at.factor)


class Line(NamedTuple):
    gradient_norms: GradientNorms
    when: str  # before or after
    factor: float  # of gradient clipping; 1: none

    @property
    def name(self) -> str:
        return f"{self.gradient_norms.state}, {self.when}" + (", clipped" if self.factor < 1 else "")


def reach(run: Run, *, length: int = LENGTH) -> Reach:
    """Measure how far back gradients reach, over at most `length` tokens, or fewer if the text is shorter."""
    if length < 1:
        raise UserError(f"A length of {length} is not possible: give 1 or more.")
    model = recurrent(run)
    if not (isinstance(model, Scores) and isinstance(model, Learns)):
        raise UserError(
            f"{run.model_title} does not score targets, so it has no gradients to show: choose another model."
        )
    batch = longest_pairs(run, length) if "source" in run.fields else text_windows(run, length)
    clip = run.recipe.train.clip
    stages = [stage(of, batch, clip, length) for of in (untrained(run), model)]
    far = max(len(each.norms) for each in stages[1].flow.gradient_norms) - 1
    return Reach(run.model_title, batch.size, far, clip, *stages)


def recurrent(run: Run) -> nn.Module:
    """Return the run's model if it is recurrent, and reads text."""
    if what := next((name for kind, name in NO_TEXT.items() if isinstance(run.fields.get("source"), kind)), None):
        raise UserError(
            f"{run.model_title} reads {what}, and states, gates and gradients are shown along a text: choose a "
            "recurrent model that reads text."
        )
    if layers_of(run.model):
        return run.model
    raise UserError(
        f"{run.model_title} is not recurrent and has no hidden state to look into: choose a recurrent model."
    )


def untrained(run: Run) -> nn.Module:
    """Rebuild the model as it was before its first training step."""
    recipe, model = run.recipe, build_model(run.recipe, run.fields)
    if recipe.train.from_:
        teacher = find_run(recipe.train.from_, recipe.folder)
        load_fitting(model, recipe, run.fields, teacher, recipe.train.parts)
    return model.eval()


def stage(model: nn.Module, batch: Batch, clip: float, length: int) -> Stage:
    model = copy.deepcopy(model).cpu()
    norm = gradient_norm(model, batch)
    factor = min(1.0, clip / norm) if clip and norm else 1.0
    return Stage(batch_flow(model.double(), batch, length=length), norm, factor)


def text_windows(run: Run, length: int) -> Batch:
    """Return rows of one length: length + 1 tokens are read, and one more is predicted."""
    width = length + 2
    texts = encoded(run, valid_texts(run))
    if run.whole_file:
        (text,) = texts
        rows = max(1, min(ROWS, len(text) // width))
        texts = [text[start : start + width] for start in np.linspace(0, max(0, len(text) - width), rows).astype(int)]
    texts = longest(texts, [len(text) for text in texts], width)
    width = min(width, min(map(len, texts), default=0))
    if width < 3:
        raise UserError("The validation text is too short: give one with at least 3 tokens.")
    return Batch.of_text(torch.from_numpy(np.stack([text[:width] for text in texts]).astype(np.int64)))


def longest_pairs(run: Run, length: int) -> Batch:
    """Return the longest validation pairs by their shorter side, without those that training leaves out as too long."""
    recipe, most = run.recipe, run.recipe.tokens.longest
    sources, targets = zip(*examples(recipe.data, "valid", recipe.folder), strict=True)
    encoded_sides = run.fields.encode({"source": sources, "target": targets})
    pairs = zip(encoded_sides["source"], encoded_sides["target"], strict=True)
    both = [pair for pair in pairs if all(0 < len(side) <= most for side in pair)]
    if not both:
        raise UserError("The validation pairs are all empty or too long: give at least one that training can use.")
    read, written = zip(*longest(both, [min(map(len, pair)) for pair in both], length), strict=True)
    return run.fields.batch({"source": list(read), "target": list(written)}, multiple=1)


def longest(texts: Sequence[T], lengths: Sequence[int], wanted: int) -> list[T]:
    """Return the texts of at least this length, at most ROWS; if there are fewer than FEWEST, shorter ones too."""
    order = sorted(range(len(texts)), key=lambda place: -lengths[place])
    enough = sum(length >= wanted for length in lengths)
    return [texts[place] for place in order[: min(ROWS, max(enough, FEWEST))]]

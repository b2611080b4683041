"""gradients: how far back the loss of one token is felt, through what the recurrent layers carry.

L_T = −ln p of the last token alone;   felt at distance d:  the mean over rows of ‖∂L_T/∂h_{T−d}‖, and so for c
h_{t+1} = φ(W h_t + …) makes it a product of d Jacobians: it falls or grows about as σ(W)^d, a straight line on a
logarithmic scale (Bengio 1994; Pascanu 2013). Its slope is in ln per step. A cell that keeps what it carries,
∂Cₜ/∂Cₜ₋₁ = F + …, falls as its gate says. Clipping shortens the whole gradient and leaves every slope as it is.

A run is looked into on its own validation text, before it was trained and after. A language model reads windows of a
whole file, or the beginnings of the longest lines or paragraphs: it never read across them, so they are not joined. A
translator reads the longest pairs. All in float64, without dropout: what has vanished is then small, not 0.
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

from regard.data.sources import examples
from regard.interface import Batch, Learns, Scores, SeenRecurrence, UserError
from regard.layers.recurrent import trace
from regard.look.weights import inside, scores
from regard.run import Run, build_model
from regard.score.likelihood import encoded, valid_texts
from regard.train.transfer import find_run, load_fitting

T = TypeVar("T")
STATES = ("h", "c")  # the order in which a cell carries them
ROWS = 32  # at most
FEWEST = 8  # rows that are taken although they are too short, where there are not enough long ones
LENGTH = 100  # tokens back


# --- of one batch ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Felt:
    """How much of the loss reaches one state of one layer."""

    layer: str
    state: str  # h or c
    norms: tuple[float, ...]  # at distance 0, 1, …

    @property
    def slope(self) -> float:
        """Of ln norm against distance, by least squares: ln s where every step multiplies by s."""
        norms = np.array(self.norms)
        (distances,) = np.nonzero((norms > 0) & np.isfinite(norms))
        return float(np.polyfit(distances, np.log(norms[distances]), 1)[0]) if len(distances) > 1 else math.nan


@dataclass(frozen=True)
class Gate:
    """How far one gate of one layer stands open: 0 shut, 1 open."""

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
    """What one set of weights does with one batch."""

    felt: tuple[Felt, ...]
    gates: tuple[Gate, ...]
    spectra: tuple[Spectrum, ...]


Losses = Callable[[], Tensor]  # runs the model on rows of one length: (rows,), each row's own loss


def gradient_flow(model: nn.Module, *losses: Losses, length: int | None = None) -> Flow:
    """What these losses make of a model's cells, at most `length` steps back.

    Every number is a mean over all rows; what is beyond the shortest of them is left out. In c is felt what comes
    through the h that is made of it, too.
    """
    layers = layers_of(model)
    norms: dict[tuple[str, str], list[Tensor]] = {}  # of a layer's state: (rows, distance) each
    gates: dict[tuple[str, str], list[Tensor]] = {}  # of a layer's gate: (rows, time) each
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
        tuple(Felt(*key, _over_rows(each, far)) for key, each in norms.items()),
        tuple(Gate(*key, _over_rows(each)) for key, each in gates.items()),
        tuple(spectra(model)),
    )


def _over_rows(parts: list[Tensor], most: int | None = None) -> tuple[float, ...]:
    """The mean of rows, (rows, ·) each, as far as all of them go."""
    shortest = min(part.shape[1] for part in parts)
    return tuple(torch.cat([part[:, :shortest].double() for part in parts]).mean(0)[:most].tolist())


def last_loss(model: nn.Module, batch: Batch) -> Tensor:
    """−ln p of the last token of rows of one length, (rows,)."""
    losses: Tensor = -scores(model).log_probs(batch)[0][:, -1]
    return losses


def batch_flow(model: nn.Module, batch: Batch, *, length: int | None = None) -> Flow:
    """The flow of each row's last loss. Pairs are read one by one: over padding a state would be held, not made."""
    rows = [batch] if batch.source is None else list(batch.rows())
    return gradient_flow(model, *(partial(last_loss, model, row) for row in rows), length=length)


def gradient_norm(model: Any, batch: Batch) -> float:
    """The length of the gradient that training would meet in this batch: of the objective, per token."""
    with torch.enable_grad():
        loss = model.loss(batch)
        parameters = [parameter for parameter in model.parameters() if parameter.requires_grad]
        slopes = torch.autograd.grad(loss.objective / loss.tokens, parameters, allow_unused=True)
    return float(torch.stack([slope.double().norm() for slope in slopes if slope is not None]).norm())


def spectra(model: nn.Module) -> Iterator[Spectrum]:
    """Of every square block of every recurrent layer's weights."""
    for name, seen in layers_of(model).items():
        cell: Any = seen.part
        blocks = recurrent_blocks(cell)
        numbered = tuple(f"block {number}" for number in range(1, len(blocks) + 1))
        named = cell.blocks if len(cell.blocks) == len(blocks) else numbered
        for block, called in zip(blocks, named, strict=True):
            values = torch.linalg.svdvals(block.detach().double().cpu())  # the largest first
            yield Spectrum(name, called, float(values[0]), float(values.median()), float(values[-1]))


def recurrent_blocks(cell: Any) -> list[Tensor]:
    """hidden × hidden each: the matrices of a cell that its inputs do not pass through."""
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
    """The recurrent layers of a model by name, numbered from 1 on each side and in each direction: "encoder 1 ←"."""
    shown = inside(model)
    read = {*(seen.side for seen in shown.recurrences), *(seen.keys for seen in shown.attentions)}
    sides = {"source": "encoder", "target": "decoder" if "source" in read else "layer"}
    arrows = {True: " ←", False: " →"}
    return {
        f"{sides[seen.side]} {seen.layer}{arrows[seen.backwards] if seen.two_ways else ''}": seen
        for seen in shown.recurrences
    }


# --- of a run -----------------------------------------------------------------------------------------------------


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
    def stages(self) -> dict[str, Stage]:
        return {"before": self.before, "after": self.after}

    @property
    def layers(self) -> tuple[str, ...]:
        return tuple(dict.fromkeys(felt.layer for felt in self.after.flow.felt))

    def lines(self, layer: str) -> Iterator[Line]:
        """All that is felt in a layer: before and after, as it is and, where clipping would shorten it, clipped."""
        for when, at in self.stages.items():
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
    norm = gradient_norm(model, batch)
    factor = min(1.0, clip / norm) if clip and norm else 1.0
    return Stage(batch_flow(model.double(), batch, length=length), norm, factor)


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
    recipe, most = run.recipe, run.recipe.tokens.longest
    sources, targets = zip(*examples(recipe.data, "valid", recipe.folder), strict=True)
    encoded_sides = run.fields.encode({"source": sources, "target": targets})
    pairs = zip(encoded_sides["source"], encoded_sides["target"], strict=True)
    both = [pair for pair in pairs if all(0 < len(side) <= most for side in pair)]
    if not both:
        raise UserError("The validation pairs are all empty or too long: there is nothing to look back over.")
    read, written = zip(*longest(both, [min(map(len, pair)) for pair in both], length), strict=True)
    return run.fields.batch({"source": list(read), "target": list(written)}, multiple=1)


def longest(texts: Sequence[T], lengths: Sequence[int], wanted: int) -> list[T]:
    """Texts as long as wanted, at most ROWS of them; with some that are shorter where these are fewer than FEWEST."""
    order = sorted(range(len(texts)), key=lambda place: -lengths[place])
    enough = sum(length >= wanted for length in lengths)
    return [texts[place] for place in order[: min(ROWS, max(enough, FEWEST))]]

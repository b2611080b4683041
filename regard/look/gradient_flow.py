"""flow: how far back the loss of one token is felt, through what the recurrent layers carry.

L_T = −ln p of the last token alone;   felt at distance d:  the mean over rows of ‖∂L_T/∂h_{T−d}‖, and so for c
h_{t+1} = φ(W h_t + …) makes it a product of d Jacobians: it falls or grows about as σ(W)^d, a straight line on a
logarithmic scale (Bengio 1994; Pascanu 2013). Its slope is in ln per step. A cell that keeps what it carries,
∂Cₜ/∂Cₜ₋₁ = F + …, falls as its gate says. Clipping shortens the whole gradient and leaves every slope as it is.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from regard.interface import Batch, Learns, SeenRecurrence
from regard.layers.recurrent import trace
from regard.look.weights import inside, scores

STATES = ("h", "c")  # the order in which a cell carries them


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
            slopes = iter(torch.autograd.grad(total, states, allow_unused=True))
        for name, afters in every.items():
            each = [[_norm(next(slopes), state) for state in after] for after in afters]  # (time, states) × (rows,)
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


def _norm(slope: Tensor | None, state: Tensor) -> Tensor:
    return state.new_zeros(len(state)) if slope is None else slope.norm(dim=-1)


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


def gradient_norm(model: Learns, batch: Batch) -> float:
    """The length of the gradient that training would meet in this batch: of the objective, per token."""
    assert isinstance(model, nn.Module)
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
    reads = any(seen.side == "source" for seen in shown.recurrences) or any(
        seen.keys == "source" for seen in shown.attentions
    )
    sides = {"source": "encoder", "target": "decoder" if reads else "layer"}
    arrows = {True: " ←", False: " →"}
    return {
        f"{sides[seen.side]} {seen.layer}{arrows[seen.backwards] if seen.two_ways else ''}": seen
        for seen in shown.recurrences
    }

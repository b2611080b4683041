"""Recurrent networks: any cell, unrolled over time, in stacked layers, in one direction or bidirectional.

Deep:           layer l + 1 reads layer l's outputs; H(x) is the recurrence, y its output
    none        y = H(x)
    residual    y = x + H(x)                                          He 2015; recurrent: Wu 2016, 3.1
    highway     y = g ⊙ H(x) + (1 − g) ⊙ x,  g = σ(x W_T + b_T)       Srivastava 2015
Bidirectional:  outputs [→hₜ ; ←hₜ] from two sets of weights          Schuster & Paliwal 1997

One loop unrolls every cell, also a user-defined one: one product computes the inputs of all steps, and one each
matrix's gradient. If PyTorch has a faster kernel for the cell, that runs instead with the same result. Padding is never
read: a row's state does not change after its last real token.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Literal, cast

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import cached

from regard.interface import UserError
from regard.layers.cells import Cell, State
from regard.layers.dropout import Dropout
from regard.layers.fast.switch import held, kernels_run
from regard.layers.fast.weight_gradients import gathered

States = tuple[State, ...]  # one per layer
Skip = Literal["none", "residual", "highway"]


class Highway(nn.Module):
    """y = g ⊙ H(x) + (1 − g) ⊙ x,  g = σ(x W_T + b_T)."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.gate = nn.Linear(dim, dim)
        nn.init.xavier_uniform_(self.gate.weight)
        nn.init.constant_(self.gate.bias, -1.0)  # at first most of x passes unchanged (section 2.2)

    def forward(self, x: Tensor, changed: Tensor) -> Tensor:
        g = torch.sigmoid(self.gate(x))
        return torch.lerp(x.to(g.dtype), changed.to(g.dtype), g)


class Residual(nn.Module):
    """y = x + H(x)."""

    def __init__(self, dim: int) -> None:
        super().__init__()

    def forward(self, x: Tensor, changed: Tensor) -> Tensor:
        return x + changed


SKIPS: dict[str, Callable[[int], nn.Module]] = {"residual": Residual, "highway": Highway}  # of dim


class Recurrent(nn.Module):
    """Recurrent layers of one cell."""

    def __init__(
        self,
        *,
        cell: Callable[..., Cell],  # called with input_dim= and hidden=, once per layer and direction
        input_dim: int,
        hidden: int,
        layers: int = 1,
        bidirectional: bool = False,
        dropout: float = 0.0,  # between layers
        skip: Skip = "none",  # skip connection around each layer, from the second on
        fused: bool = True,  # use PyTorch's kernel if there is one for the cell
        reverse: bool = False,  # read each row from its end; the outputs are in the order of x
    ) -> None:
        super().__init__()
        self.output_dim = 2 * hidden if bidirectional else hidden
        self.bidirectional = bidirectional
        self.fused = fused
        self.reverse = reverse
        self.dropout = Dropout(dropout)
        widths = [input_dim] + [self.output_dim] * (layers - 1)

        def cells(widths: Sequence[int]) -> Sequence[Cell]:
            return cast(Sequence[Cell], nn.ModuleList(cell(input_dim=width, hidden=hidden) for width in widths))

        self.forwards = cells(widths)
        self.backwards = cells(widths if bidirectional else [])
        self.skips = nn.ModuleList(SKIPS[skip](self.output_dim) for _ in widths[1:] if skip != "none")

    def start(self, rows: int) -> States:
        """Return the initial state of every layer."""
        starts = tuple(cell.start(rows) for cell in self.forwards)
        if not self.bidirectional:
            return starts
        return tuple(join(one, cell.start(rows)) for one, cell in zip(starts, self.backwards, strict=True))

    def forward(self, x: Tensor, mask: Tensor | None = None, state: States | None = None) -> tuple[Tensor, States]:
        """x (batch, time, input_dim), mask (batch, time) True = real, padded at the end
        -> outputs (batch, time, output_dim), zeros at padding; each layer's state after the last real token.
        """
        batch, time, _ = x.shape
        state = self.start(batch) if state is None else state
        if time == 0:
            return x.new_zeros(batch, 0, self.output_dim), state
        mask = None if mask is None else check(mask)
        if mask is not None:
            x = x.masked_fill(~mask[..., None], 0.0)
        if self.reverse:
            x = reverse(x, mask)

        def read(cell: Cell, x: Tensor, state: State) -> tuple[Tensor, State]:
            may = self.fused and kernels_run() and not _tracing.get()
            whole = cell.fused(x, state, mask) if may else None
            return unroll(cell, x, mask, state) if whole is None else whole

        finals = []
        for layer, before in enumerate(state):
            below = self.dropout(x) if layer else x
            if self.bidirectional:
                ahead, back = split(before)
                outputs, ahead = read(self.forwards[layer], below, ahead)
                reversed_outputs, back = read(self.backwards[layer], reverse(below, mask), back)
                changed = torch.cat((outputs, reverse(reversed_outputs, mask)), dim=-1)
                finals.append(join(ahead, back))
            else:
                changed, after = read(self.forwards[layer], below, before)
                finals.append(after)
            x = self._pass(layer, x, changed)
        return reverse(x, mask) if self.reverse else x, tuple(finals)

    def _pass(self, layer: int, x: Tensor, changed: Tensor) -> Tensor:
        """Return the output of a layer with input x and recurrence `changed`."""
        passed: Tensor = self.skips[layer - 1](x, changed) if layer and len(self.skips) else changed
        return passed

    def step(self, x: Tensor, state: States) -> tuple[Tensor, States]:
        """Run one step of every layer: x (rows, input_dim) -> output (rows, output_dim) and the next state."""
        if self.bidirectional or self.reverse:
            raise UserError("A network that reads backwards cannot run step by step: set bidirectional to false.")
        after = []
        for layer, (cell, before) in enumerate(zip(self.forwards, state, strict=True)):
            below = self.dropout(x) if layer else x
            projected = cell.inputs(below)
            after.append(cell.step(projected, before))
            note_step(cell, projected, before, after[-1])
            x = self._pass(layer, x, after[-1][0])
        return x, tuple(after)


def unroll(cell: Cell, x: Tensor, mask: Tensor | None, state: State) -> tuple[Tensor, State]:
    """Unroll a cell over time: x (batch, time, input_dim) -> outputs (batch, time, hidden), final state."""
    if torch.compiler.is_compiling():
        return scanned(cell, x, mask, state)
    outputs = []
    steps = cell.inputs(x).transpose(0, 1).contiguous().unbind()  # time × (batch, projected), each contiguous
    with gathered(cell), cached():  # a matrix with LoRA is computed once
        for t, projected in enumerate(steps):
            after = cell.step(projected, state)
            if mask is not None:
                real = mask[:, t, None]  # (batch, 1)
                after = tuple(torch.where(real, new, old) for new, old in zip(after, state, strict=True))
            note_step(cell, projected, state, after)
            state = after
            outputs.append(state[0])
    stacked = torch.stack(outputs, dim=1)  # (batch, time, hidden)
    return stacked if mask is None else stacked.masked_fill(~mask[..., None], 0.0), state


def scanned(cell: Cell, x: Tensor, mask: Tensor | None, state: State) -> tuple[Tensor, State]:
    """Unroll a cell, the same as `unroll`, as one operation of a graph that serves every length."""
    from torch._higher_order_ops.scan import scan  # not public yet: only who exports a model depends on it

    batch, time, _ = x.shape
    real = x.new_ones(batch, time, dtype=torch.bool) if mask is None else mask

    def step(before: State, now: tuple[Tensor, Tensor]) -> tuple[State, Tensor]:
        projected, there = now  # (batch, projected), (batch, 1)
        after = cell.step(projected, before)
        after = tuple(torch.where(there, new, old) for new, old in zip(after, before, strict=True))
        return after, torch.where(there, after[0], 0.0)

    steps = cell.inputs(x).transpose(0, 1), real.t()[..., None]
    final, outputs = scan(step, tuple(part.contiguous() for part in state), steps)
    return outputs.transpose(0, 1), final


class Trace:
    """The states and gates of a model's cells, step by step, by the path of the cell, in reading order."""

    def __init__(self, model: nn.Module) -> None:
        self.names: dict[nn.Module, str] = {
            part: path for path, part in model.named_modules() if isinstance(part, Cell)
        }
        self.states: dict[str, list[State]] = {path: [] for path in self.names.values()}  # after each step
        self.gates: dict[str, list[dict[str, Tensor]]] = {path: [] for path in self.names.values()}

    def states_of(self, cell: nn.Module) -> list[State]:
        return self.states[self.names[cell]]

    def gates_of(self, cell: nn.Module) -> list[dict[str, Tensor]]:
        return self.gates[self.names[cell]]


_tracing: ContextVar[tuple[Trace, ...]] = ContextVar("tracing", default=())


@contextmanager
def trace(model: nn.Module) -> Iterator[Trace]:
    """Record every state and gate while the model runs. The states are part of the gradient graph, so that gradients to
    them can be computed; PyTorch's kernels, which hide them, are not used."""
    kept = Trace(model)
    with held(_tracing, (*_tracing.get(), kept)):
        yield kept


def note_step(cell: Cell, projected: Tensor, before: State, after: State) -> None:
    """Record a step of a cell in the active traces."""
    for kept in _tracing.get():
        if cell in kept.names:
            kept.states[kept.names[cell]].append(after)
            with torch.no_grad():
                kept.gates[kept.names[cell]].append(cell.gates(projected, before))


def reverse(x: Tensor, mask: Tensor | None) -> Tensor:
    """Reverse each row within its own length; padding stays at the end. (batch, time, ·) -> the same."""
    if mask is None:
        return x.flip(1)
    batch, time, _ = x.shape
    positions = torch.arange(time, device=x.device)  # (time,)
    mirrored = mask.sum(dim=1, keepdim=True) - 1 - positions  # (batch, time), negative at padding
    rows = torch.where(mask, mirrored, positions) + time * torch.arange(batch, device=x.device)[:, None]
    return x.reshape(batch * time, -1).index_select(0, rows.flatten()).view_as(x)  # whole rows: much faster than gather


def check(mask: Tensor) -> Tensor | None:
    """Check that the mask pads at the end; None if there is no padding."""
    if mask.is_meta or torch.compiler.is_compiling():
        return mask  # no values to read
    if bool((mask[:, 1:] & ~mask[:, :-1]).any()):
        raise ValueError("a row of the mask turns True after it was False: pad at the end")
    return None if bool(mask.all()) else mask


def join(ahead: State, back: State) -> State:
    """Concatenate the states of two directions: 2 × (rows, hidden) -> (rows, 2·hidden)."""
    return tuple(torch.cat(parts, dim=-1) for parts in zip(ahead, back, strict=True))


def split(state: State) -> tuple[State, State]:
    """Split what `join` joined."""
    halves = [part.chunk(2, dim=-1) for part in state]
    return tuple(ahead for ahead, _ in halves), tuple(back for _, back in halves)

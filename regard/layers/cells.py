"""A cell is one step of a recurrence: the hidden state and the input give the next hidden state.

RNN        Hₜ = φ(Xₜ Wₓₕ + Hₜ₋₁ Wₕₕ + bₕ),  φ ∈ {tanh, σ, relu, identity}      Elman 1990; σ: Mikolov 2010
LSTM       I, F, O = σ(X Wₓ· + H Wₕ· + b·),  C̃ = tanh(X Wₓc + H Wₕc + b_c)     Hochreiter & Schmidhuber 1997;
           Cₜ = F ⊙ Cₜ₋₁ + I ⊙ C̃,  Hₜ = O ⊙ tanh(Cₜ)                           F: Gers 2000
gru        R, Z = σ(X Wₓ· + H Wₕ· + b·),  H̃ = tanh(X Wₓₕ + (R ⊙ H) Wₕₕ + bₕ)   Cho 2014, 2.3
           Hₜ = Z ⊙ Hₜ₋₁ + (1 − Z) ⊙ H̃
gru-after  the same, with H̃ = tanh(X Wₓₕ + bₓ + R ⊙ (H Wₕₕ + bₕ))              as PyTorch's kernel does
mut1       Z = σ(X Wₓz + b_z),  R = σ(X Wₓr + H Wₕr + b_r)                     Jozefowicz 2015
           Hₜ = Z ⊙ tanh((R ⊙ H) Wₕₕ + tanh(X) + bₕ) + (1 − Z) ⊙ Hₜ₋₁
mut2       Z = σ(X Wₓz + H Wₕz + b_z),  R = σ(X + H Wₕr + b_r)
           Hₜ = Z ⊙ tanh((R ⊙ H) Wₕₕ + X Wₓₕ + bₕ) + (1 − Z) ⊙ Hₜ₋₁
mut3       the same, with Z = σ(X Wₓz + tanh(H) Wₕz + b_z),  R = σ(X Wₓr + H Wₕr + b_r)
           mut1 and mut2 add X itself; only where it is not as wide as H, X Wₓ stands in its place.

`inputs` computes what depends on X alone, for all time steps together; `step` does the rest. A user-defined cell needs
these two methods and then works in every recurrent model; with `gates` it can be inspected as well.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard import usercode
from regard.layers.fast.gru import GatedPass
from regard.layers.fast.packed import Product, runs

# the hidden state: (h,) or (h, c), each (rows, hidden); the first is the output
State = tuple[Tensor, ...]
CellName = Literal["tanh", "sigmoid", "relu", "identity", "lstm", "gru", "gru-after", "mut1", "mut2", "mut3"]
Kernel = Callable[..., Any]  # a PyTorch function: a whole layer over all time steps
SHUT = 1e4  # large enough that σ is exactly 0 or 1, and within half precision


class Cell(nn.Module, ABC):
    """One step of a recurrence, as the paper writes it."""

    blocks: tuple[str, ...] = ()  # names of the hidden × hidden blocks of its recurrent weights, in order
    place: Tensor  # empty; it has the cell's device and dtype

    def __init__(self, *, input_dim: int, hidden: int) -> None:
        super().__init__()
        self.input_dim = input_dim
        self.hidden = hidden
        self.register_buffer("place", torch.empty(0), persistent=False)
        self.packed: dict[str, Product] = {}  # by the name of the matrix

    def pack(self, make: Callable[..., Product]) -> tuple[nn.Linear, ...]:
        own = self.named_parameters(recurse=False)  # a matrix with LoRA is not among them
        self.packed = {name: make(matrix) for name, matrix in own if matrix.dim() == 2}
        return ()

    def plus(self, bias: Tensor, x: Tensor, matrix: Tensor, name: str) -> Tensor:
        """Compute bias + x Wᵀ: (rows or 1, outputs), (…, inputs), (outputs, inputs), the matrix of that name."""
        packed = self.packed.get(name)
        if packed is not None and runs(x):
            return packed(x) + bias
        return torch.addmm(bias, x, matrix.t()) if x.dim() == 2 else functional.linear(x, matrix, bias)

    @abstractmethod
    def inputs(self, x: Tensor) -> Tensor:
        """Compute what depends on x only: (…, input_dim) -> (…, projected)."""

    @abstractmethod
    def step(self, projected: Tensor, state: State) -> State:
        """Compute the next state from (rows, projected) and the state before."""

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        """Return the gates by name ("kept"), from 0 (closed) to 1 (open): (rows, hidden) each."""
        return {}

    def start(self, rows: int) -> State:
        """Return the initial state: zeros on the cell's device."""
        return (self.place.new_zeros(rows, self.hidden),)

    def fused(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State] | None:
        """Run all time steps by PyTorch's kernel; None if there is none for this cell.

        x (batch, time, input_dim), zeros at padding, mask (batch, time) True = real, padded at the end
        -> outputs (batch, time, hidden), zeros at padding; the state after each row's last real token.
        """
        return None


class OneProduct(Cell):
    """A cell whose `blocks` come from one product with x and one with h: their weights are stacked."""

    def __init__(self, *, input_dim: int, hidden: int) -> None:
        super().__init__(input_dim=input_dim, hidden=hidden)
        self.weight_ih = stack_gates(nn.init.xavier_uniform_, len(self.blocks), hidden, input_dim)
        self.weight_hh = stack_gates(nn.init.orthogonal_, len(self.blocks), hidden, hidden)
        self.bias_ih = nn.Parameter(torch.zeros(len(self.blocks) * hidden))

    def inputs(self, x: Tensor) -> Tensor:
        return self.plus(self.bias_ih, x, self.weight_ih, "weight_ih")

    def run_kernel(
        self, kernel: Kernel, x: Tensor, state: State, mask: Tensor | None, at_padding: tuple[float, ...] | None
    ) -> tuple[Tensor, State]:
        """Run one layer of a PyTorch kernel, forwards in time; `at_padding` is added to each block at padding.

        The kernel also runs over the padding, and its results there are dropped. That is faster than packed sequences,
        whose backward pass on the CPU is quadratic in time. `at_padding` must keep c constant at padding.
        """
        weight_ih: Tensor = self.weight_ih
        if mask is not None and at_padding is not None:  # the mask becomes one more input
            column = x.new_tensor(at_padding).repeat_interleave(self.hidden)[:, None]  # (blocks·hidden, 1)
            weight_ih = torch.cat((weight_ih, column), dim=-1)
            x = torch.cat((x, ~mask[..., None]), dim=-1)  # (batch, time, input_dim + 1)
        weights = [weight_ih, self.weight_hh, self.bias_ih, torch.zeros_like(self.bias_ih)]
        before = [part[None] for part in state]  # (layers, batch, hidden)
        # biases, layers, dropout, train, bidirectional, batch first
        options = (True, 1, 0.0, torch.is_grad_enabled(), False, True)
        outputs, *after = kernel(x, before if len(before) > 1 else before[0], weights, *options)
        if mask is None:
            return outputs, tuple(part[0] for part in after)
        outputs = outputs.masked_fill(~mask[..., None], 0.0)  # (batch, time, hidden)
        lengths = mask.sum(dim=1)[:, None]  # (batch, 1)
        last = outputs.take_along_dim((lengths[..., None] - 1).clamp(min=0), dim=1)[:, 0]  # (batch, hidden)
        h = torch.where(lengths > 0, last, state[0])
        return outputs, (h, *(part[0] for part in after[1:]))


class Elman(OneProduct):
    """Hₜ = φ(Xₜ Wₓₕ + Hₜ₋₁ Wₕₕ + bₕ)."""

    blocks = ("state",)

    def __init__(
        self, *, input_dim: int, hidden: int, activate: Callable[[Tensor], Tensor], kernel: Kernel | None = None
    ) -> None:
        super().__init__(input_dim=input_dim, hidden=hidden)
        self.activate = activate
        self.kernel = kernel

    def step(self, projected: Tensor, state: State) -> State:
        (h,) = state
        return (self.activate(self.plus(projected, h, self.weight_hh, "weight_hh")),)

    def fused(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State] | None:
        if self.kernel is None:
            return None
        # at padding a relu is 0; otherwise its state could grow without bound, and a gradient of 0 times ∞ is NaN
        shut = (torch.finfo(torch.bfloat16).min,) if self.kernel is torch.rnn_relu else None
        return self.run_kernel(self.kernel, x, state, mask, shut)


class LSTM(OneProduct):
    """Cₜ = F ⊙ Cₜ₋₁ + I ⊙ C̃,  Hₜ = O ⊙ tanh(Cₜ). The weights' order is I, F, C̃, O."""

    blocks = ("written", "kept", "candidate", "revealed")

    def __init__(self, *, input_dim: int, hidden: int) -> None:
        super().__init__(input_dim=input_dim, hidden=hidden)
        # the forget gate F starts near 0.73, not at one half, so that the cell remembers (Jozefowicz 2015)
        nn.init.ones_(self.bias_ih[hidden : 2 * hidden])

    def step(self, projected: Tensor, state: State) -> State:
        _, c = state
        write, keep, candidate, show = self.parts(projected, state)
        c = torch.addcmul(keep * c, write, candidate)
        return show * c.tanh(), c

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        write, keep, _, show = self.parts(projected, state)
        return {"written": write, "kept": keep, "revealed": show}

    def parts(self, projected: Tensor, state: State) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return I, F, C̃, O, each (rows, hidden)."""
        write, keep, candidate, show = self.plus(projected, state[0], self.weight_hh, "weight_hh").chunk(4, dim=-1)
        return write.sigmoid(), keep.sigmoid(), candidate.tanh(), show.sigmoid()

    def start(self, rows: int) -> State:
        return self.place.new_zeros(rows, self.hidden), self.place.new_zeros(rows, self.hidden)

    def fused(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State] | None:
        # padding opens F and closes I, so the kernel keeps C
        return self.run_kernel(torch.lstm, x, state, mask, (-SHUT, SHUT, 0.0, 0.0))


class GRU(Cell):
    """H̃ = tanh(X Wₓₕ + (R ⊙ H) Wₕₕ + bₕ): reset before the product. The weights' order is R, Z, H̃."""

    blocks: tuple[str, ...] = ("reset", "kept", "candidate")

    def __init__(self, *, input_dim: int, hidden: int, from_input: int = 3, from_state: int = 2) -> None:
        """`from_input` counts the gates among R, Z and H̃ that read X by weights, `from_state` those among R and Z that
        read H."""
        super().__init__(input_dim=input_dim, hidden=hidden)
        self.weight_ih = stack_gates(nn.init.xavier_uniform_, from_input, hidden, input_dim)
        self.weight_gates = stack_gates(nn.init.orthogonal_, from_state, hidden, hidden)
        self.weight_candidate = stack_gates(nn.init.orthogonal_, 1, hidden, hidden)
        self.bias_ih = nn.Parameter(torch.zeros(3 * hidden))

    def inputs(self, x: Tensor) -> Tensor:
        return self.plus(self.bias_ih, x, self.weight_ih, "weight_ih")

    def step(self, projected: Tensor, state: State) -> State:
        (h,) = state
        reset, z, from_x = self.parts(projected, h)
        candidate = self.plus(from_x, reset * h, self.weight_candidate, "weight_candidate").tanh()
        return (self.mixed(h.to(candidate.dtype), candidate, z),)

    def mixed(self, h: Tensor, candidate: Tensor, z: Tensor) -> Tensor:
        return torch.lerp(candidate, h, z)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        reset, keep, _ = self.parts(projected, state[0])
        return {"reset": reset, "kept": keep}

    def parts(self, projected: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return R, Z and the part of H̃ that depends on X, each (rows, hidden)."""
        to_gates, from_x = torch.split(projected, [2 * self.hidden, self.hidden], dim=-1)
        reset, z = self.plus(to_gates, h, self.weight_gates, "weight_gates").sigmoid().chunk(2, dim=-1)
        return reset, z, from_x


class GRUAfter(OneProduct):
    """H̃ = tanh(X Wₓₕ + bₓ + R ⊙ (H Wₕₕ + bₕ)): reset after the product. The weights' order is R, Z, H̃."""

    blocks = ("reset", "kept", "candidate")

    def __init__(self, *, input_dim: int, hidden: int) -> None:
        super().__init__(input_dim=input_dim, hidden=hidden)
        self.bias_hh = nn.Parameter(torch.zeros(3 * hidden))

    def step(self, projected: Tensor, state: State) -> State:
        (h,) = state
        reset, keep, from_x, recalled = self.parts(projected, h)
        candidate = torch.addcmul(from_x, reset, recalled).tanh()
        return (torch.lerp(candidate, h.to(candidate.dtype), keep),)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        reset, keep, _, _ = self.parts(projected, state[0])
        return {"reset": reset, "kept": keep}

    def parts(self, projected: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return R, Z, X Wₓₕ + bₓ and H Wₕₕ + bₕ, each (rows, hidden)."""
        sizes = [2 * self.hidden, self.hidden]
        to_gates, from_x = torch.split(projected, sizes, dim=-1)
        from_gates, recalled = torch.split(self.plus(self.bias_hh, h, self.weight_hh, "weight_hh"), sizes, dim=-1)
        reset, keep = (to_gates + from_gates).sigmoid().chunk(2, dim=-1)
        return reset, keep, from_x, recalled

    def fused(self, x: Tensor, state: State, mask: Tensor | None) -> tuple[Tensor, State] | None:
        if x.is_meta:
            return None
        device = x.device.type
        weight: Tensor = self.weight_hh
        xs = self.inputs(x).transpose(0, 1).to(weight.dtype).contiguous()  # (time, batch, 3·hidden)
        if torch.is_autocast_enabled(device):
            weight = weight.to(torch.get_autocast_dtype(device))
        real = None if mask is None else mask.t()[..., None]  # (time, batch, 1)
        with torch.autocast(device, enabled=False):
            states = GatedPass.apply(xs, state[0].to(xs.dtype), weight, self.bias_hh, real)  # type: ignore[no-untyped-call]
        outputs = states.transpose(0, 1)
        return outputs if mask is None else outputs.masked_fill(~mask[..., None], 0.0), (states[-1],)


class MUT(GRU):
    """Hₜ = Z ⊙ tanh((R ⊙ H) Wₕₕ + …) + (1 − Z) ⊙ Hₜ₋₁: the three best cells of a search.

    The weights' order is R, Z, H̃, without the one that X itself replaces; the first variant's Z does not read H.
    """

    def __init__(self, *, input_dim: int, hidden: int, variant: Literal[1, 2, 3]) -> None:
        itself = {1: 2, 2: 0}.get(variant) if input_dim == hidden else None
        from_input, from_state = (3 if itself is None else 2), (1 if variant == 1 else 2)
        super().__init__(input_dim=input_dim, hidden=hidden, from_input=from_input, from_state=from_state)
        self.variant = variant
        self.itself = itself  # the index of X among R, Z, H̃
        if variant == 1:
            self.blocks = ("reset", "candidate")

    def inputs(self, x: Tensor) -> Tensor:
        if self.itself is None and self.variant != 1:
            return self.plus(self.bias_ih, x, self.weight_ih, "weight_ih")
        parts = list(torch.split(functional.linear(x, self.weight_ih), self.hidden, dim=-1))
        if self.itself is not None:
            parts.insert(self.itself, x.to(parts[0].dtype))
        if self.variant == 1:
            parts[2] = parts[2].tanh()
        return torch.cat(parts, dim=-1) + self.bias_ih.to(parts[0].dtype)

    def mixed(self, h: Tensor, candidate: Tensor, z: Tensor) -> Tensor:
        return torch.lerp(h, candidate, z)

    def gates(self, projected: Tensor, state: State) -> dict[str, Tensor]:
        reset, update, _ = self.parts(projected, state[0])
        return {"reset": reset, "kept": 1 - update}

    def parts(self, projected: Tensor, h: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        if self.variant == 2:
            return super().parts(projected, h)
        to_reset, to_update, from_x = projected.chunk(3, dim=-1)
        if self.variant == 3:
            to_update = torch.addmm(to_update, h.tanh(), self.weight_gates[self.hidden :].t())
        reset = torch.addmm(to_reset, h, self.weight_gates[: self.hidden].t())
        return reset.sigmoid(), to_update.sigmoid(), from_x


def stack_gates(init: Callable[[Tensor], Tensor], gates: int, hidden: int, columns: int) -> nn.Parameter:
    """Stack one matrix per gate, each initialised on its own."""
    stacked = torch.empty(gates * hidden, columns)
    for gate in stacked.chunk(gates):
        init(gate)
    return nn.Parameter(stacked)


CELLS: dict[CellName, Callable[..., Cell]] = {
    "tanh": partial(Elman, activate=torch.tanh, kernel=torch.rnn_tanh),
    "sigmoid": partial(Elman, activate=torch.sigmoid),
    "relu": partial(Elman, activate=torch.relu, kernel=torch.rnn_relu),
    "identity": partial(Elman, activate=torch.positive),  # the identity
    "lstm": LSTM,
    "gru": GRU,
    "gru-after": GRUAfter,
    "mut1": partial(MUT, variant=1),
    "mut2": partial(MUT, variant=2),
    "mut3": partial(MUT, variant=3),
}


def cell_named(name: str) -> Callable[..., Cell]:
    """Return the cell of this name, or a user-defined one: `my_cells.py:Leaky`."""
    return CELLS[name] if name in CELLS else partial(own_cell, name)


def own_cell(place: str, *, input_dim: int, hidden: int) -> Cell:
    """Build the user's cell and run one step on zeros, so that a wrong shape is reported here."""
    kind = usercode.part(place, Cell)  # type: ignore[type-abstract]
    rows, time = 2, 3
    sizes = f"input_dim={input_dim} and hidden={hidden}"
    with usercode.blamed(Path(usercode.split(place)[0]), f"{place} with {sizes} cannot run a step"):
        cell = kind(input_dim=input_dim, hidden=hidden)
        x, before = torch.zeros(rows, time, input_dim), cell.start(rows)
        projected = cell.inputs(x)
        if projected.shape[:-1] != x.shape[:-1]:
            raise ValueError(f"inputs must change the last axis alone, and made {shapes(projected)} of {shapes(x)}")
        after = cell.step(projected[:, 0], before)
        if shapes(after) != shapes(before) or not isinstance(after, tuple) or after[0].shape != (rows, hidden):
            wanted = f"a tuple like the state, whose first is (rows, hidden) = {rows, hidden}"
            raise ValueError(f"step must return {wanted}, and made {shapes(after)} of {shapes(before)}")
    return cell


def shapes(value: object) -> str:
    """Describe the shapes of a value in an error message."""
    if isinstance(value, Tensor):
        return str(tuple(value.shape))
    return f"({', '.join(map(shapes, value))},)" if isinstance(value, tuple) else type(value).__name__

"""One step of each cell is its paper's equation, and the equations' limits hold exactly."""

import copy
from collections.abc import Callable
from typing import get_args

import pytest
import torch
from torch import Tensor

from regard.layers.cells import CELLS, GRU, LSTM, MUT, SHUT, Cell, CellName, Elman, GRUAfter

ROWS, TIME, INPUT, HIDDEN = 5, 7, 3, 11
GRUS = ("gru", "gru-after")
MUTS = ("mut1", "mut2", "mut3")


def make(name: str, input_dim: int = INPUT) -> Cell:
    """A float64 cell none of whose parameters is zero, so that a forgotten bias shows."""
    torch.manual_seed(13)
    made = CELLS[name](input_dim=input_dim, hidden=HIDDEN).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return made


def random(*sizes: int) -> Tensor:
    return torch.randn(*sizes, dtype=torch.float64)


def gates_of(matrix: Tensor) -> tuple[Tensor, ...]:
    """(gates·hidden, columns) -> one (columns, hidden) per gate: the W of a row vector's X W."""
    return tuple(gate.t() for gate in torch.split(matrix.detach(), HIDDEN))


def hold_gate(made: GRU | GRUAfter | MUT, gate: int, bias: float) -> None:
    with torch.no_grad():
        made.bias_ih[gate * HIDDEN : (gate + 1) * HIDDEN] = bias


@pytest.mark.parametrize("name, phi", [("tanh", torch.tanh), ("sigmoid", torch.sigmoid), ("relu", torch.relu)])
def test_elman_is_its_equation(name: str, phi: Callable[[Tensor], Tensor]) -> None:
    made = make(name)
    assert isinstance(made, Elman)
    x, h = random(ROWS, INPUT), random(ROWS, HIDDEN)
    expected = phi(x @ made.weight_ih.t() + h @ made.weight_hh.t() + made.bias_ih)
    torch.testing.assert_close(made.step(made.inputs(x), (h,)), (expected,))


def test_two_products_are_one_product_of_the_joined() -> None:
    """X Wₓ + H Wₕ = [X H] [Wₓ; Wₕ]."""
    made = make("identity")
    assert isinstance(made, Elman)
    x, h = random(ROWS, INPUT), random(ROWS, HIDDEN)
    joined = torch.cat((x, h), dim=1) @ torch.cat((made.weight_ih.t(), made.weight_hh.t()))
    torch.testing.assert_close(made.step(made.inputs(x), (h,))[0], joined + made.bias_ih)


def test_lstm_is_its_equation() -> None:
    made = make("lstm")
    assert isinstance(made, LSTM)
    wx, wh, b = gates_of(made.weight_ih), gates_of(made.weight_hh), torch.split(made.bias_ih.detach(), HIDDEN)
    x, h, c = random(ROWS, TIME, INPUT), random(ROWS, HIDDEN), random(ROWS, HIDDEN)
    state: tuple[Tensor, ...] = (h, c)
    for t in range(TIME):
        state = made.step(made.inputs(x[:, t]), state)
        i, f, candidate, o = (x[:, t] @ wx[k] + h @ wh[k] + b[k] for k in range(4))
        c = f.sigmoid() * c + i.sigmoid() * candidate.tanh()
        h = o.sigmoid() * c.tanh()
        torch.testing.assert_close(state, (h, c))


@pytest.mark.parametrize("name", GRUS)
def test_gru_is_its_equation(name: str) -> None:
    made = make(name)
    assert isinstance(made, GRU | GRUAfter)
    wx, bx = gates_of(made.weight_ih), torch.split(made.bias_ih.detach(), HIDDEN)
    if isinstance(made, GRUAfter):
        wh, bh = gates_of(made.weight_hh), torch.split(made.bias_hh.detach(), HIDDEN)
    else:
        wh = gates_of(made.weight_gates) + gates_of(made.weight_candidate)
        bh = (torch.zeros(HIDDEN, dtype=torch.float64),) * 3
    x, h = random(ROWS, TIME, INPUT), random(ROWS, HIDDEN)
    state: tuple[Tensor, ...] = (h,)
    for t in range(TIME):
        state = made.step(made.inputs(x[:, t]), state)
        r, z = (torch.sigmoid(x[:, t] @ wx[k] + bx[k] + h @ wh[k] + bh[k]) for k in range(2))
        product = (r * h) @ wh[2] if name == "gru" else r * (h @ wh[2] + bh[2])
        h = z * h + (1 - z) * torch.tanh(x[:, t] @ wx[2] + bx[2] + product)
        torch.testing.assert_close(state, (h,))


@pytest.mark.parametrize("wide", [INPUT, HIDDEN])
@pytest.mark.parametrize("name", MUTS)
def test_mut_is_its_equation(name: str, wide: int) -> None:
    """Where X is as wide as H, mut1 and mut2 have X itself in place of one projection."""
    made = make(name, wide)
    assert isinstance(made, MUT)
    *wx, (br, bz, bh) = *gates_of(made.weight_ih), torch.split(made.bias_ih.detach(), HIDDEN)
    if wide == HIDDEN and name != "mut3":
        wx.insert({"mut1": 2, "mut2": 0}[name], torch.eye(HIDDEN, dtype=torch.float64))
    wxr, wxz, wxh = wx
    whr, *rest = gates_of(made.weight_gates)
    (whh,) = gates_of(made.weight_candidate)
    sigma, tanh = torch.sigmoid, torch.tanh
    xs, h = random(TIME, ROWS, wide), random(ROWS, HIDDEN)
    state: tuple[Tensor, ...] = (h,)
    for x in xs:
        state = made.step(made.inputs(x), state)
        if name == "mut1":
            assert not rest  # Z does not read H
            z, r = sigma(x @ wxz + bz), sigma(x @ wxr + h @ whr + br)
            h = tanh((r * h) @ whh + tanh(x @ wxh) + bh) * z + h * (1 - z)
        else:
            seen = h if name == "mut2" else tanh(h)
            z, r = sigma(x @ wxz + seen @ rest[0] + bz), sigma(x @ wxr + h @ whr + br)
            h = tanh((r * h) @ whh + x @ wxh + bh) * z + h * (1 - z)
        torch.testing.assert_close(state, (h,))


def test_mut2_is_not_the_gru() -> None:
    """Without any weights a GRU's reset gate knows nothing of X; mut2's reads X itself."""
    x, reset = random(ROWS, HIDDEN), {}
    for name in ("gru", "mut2"):
        made = make(name, HIDDEN)
        for parameter in made.parameters():
            torch.nn.init.zeros_(parameter)
        reset[name] = made.gates(made.inputs(x), made.start(ROWS))["reset"]
    torch.testing.assert_close(reset["gru"], torch.full_like(x, 0.5))
    torch.testing.assert_close(reset["mut2"], x.sigmoid())


@pytest.mark.parametrize("name", CELLS)
def test_gates_are_those_that_the_step_used(name: str) -> None:
    """From the gates and the candidate alone comes the state: what is kept of the old, and what is new."""
    made = make(name)
    x, before = random(ROWS, INPUT), tuple(random(ROWS, HIDDEN) for _ in made.start(ROWS))
    projected = made.inputs(x)
    found, after = made.gates(projected, before), made.step(projected, before)
    assert all(gate.shape == (ROWS, HIDDEN) and (gate > 0).all() and (gate < 1).all() for gate in found.values())
    h = before[0]
    if isinstance(made, LSTM):
        assert found.keys() == {"written", "kept", "revealed"}
        candidate = torch.tanh(x @ gates_of(made.weight_ih)[2] + h @ gates_of(made.weight_hh)[2] + bias_of(made, 2))
        c = found["kept"] * before[1] + found["written"] * candidate
        torch.testing.assert_close(after, (found["revealed"] * c.tanh(), c))
    elif isinstance(made, GRU | GRUAfter | MUT):
        assert found.keys() == {"reset", "kept"}
        told = x @ gates_of(made.weight_ih)[2]
        if isinstance(made, GRUAfter):
            inner = found["reset"] * (h @ gates_of(made.weight_hh)[2] + made.bias_hh[2 * HIDDEN :])
        else:
            inner = (found["reset"] * h) @ gates_of(made.weight_candidate)[0]
        candidate = torch.tanh((told.tanh() if name == "mut1" else told) + bias_of(made, 2) + inner)
        torch.testing.assert_close(after, (found["kept"] * h + (1 - found["kept"]) * candidate,))
    else:
        assert isinstance(made, Elman) and not found


def bias_of(made: LSTM | GRU | GRUAfter | MUT, gate: int) -> Tensor:
    return torch.split(made.bias_ih.detach(), HIDDEN)[gate]


def test_open_forget_gate_and_shut_input_gate_keep_the_cell_for_ever() -> None:
    made = make("lstm")
    assert isinstance(made, LSTM)
    with torch.no_grad():
        made.bias_ih[:HIDDEN] = -SHUT
        made.bias_ih[HIDDEN : 2 * HIDDEN] = SHUT
    c = random(ROWS, HIDDEN)
    state: tuple[Tensor, ...] = (random(ROWS, HIDDEN), c)
    for _ in range(101):
        state = made.step(made.inputs(random(ROWS, INPUT)), state)
    assert torch.equal(state[1], c)


def test_the_cell_path_passes_the_gradient_through_the_forget_gate_alone() -> None:
    """∂Cₜ/∂Cₜ₋₁ = F, and one cell's gradient never reaches another."""
    made = make("lstm")
    assert isinstance(made, LSTM)
    x, h, c = random(1, INPUT), random(1, HIDDEN), random(1, HIDDEN).requires_grad_()
    after = made.step(made.inputs(x), (h, c))[1][0]  # (hidden,)
    path = torch.cat([torch.autograd.grad(one, c, retain_graph=True)[0] for one in after])  # (hidden, hidden)
    forget = torch.sigmoid(made.inputs(x) + h @ made.weight_hh.t())[0, HIDDEN : 2 * HIDDEN]
    torch.testing.assert_close(path, torch.diag(forget), rtol=1e-14, atol=0.0)


@pytest.mark.parametrize("name", GRUS + MUTS)
def test_what_is_wholly_kept_is_copied(name: str) -> None:
    made = make(name)
    assert isinstance(made, GRU | GRUAfter | MUT)
    hold_gate(made, 1, SHUT if name in GRUS else -SHUT)  # Z = 1 keeps in a GRU, Z = 0 in a MUT
    h, projected = random(ROWS, HIDDEN), made.inputs(random(ROWS, INPUT))
    assert (made.gates(projected, (h,))["kept"] == 1).all()
    assert torch.equal(made.step(projected, (h,))[0], h)


@pytest.mark.parametrize("name", GRUS)
def test_a_gru_that_resets_nothing_and_keeps_nothing_is_the_tanh_rnn(name: str) -> None:
    made, plain = make(name), make("tanh")
    assert isinstance(made, GRU | GRUAfter) and isinstance(plain, Elman)
    hold_gate(made, 0, SHUT)  # R = 1
    hold_gate(made, 1, -SHUT)  # Z = 0
    with torch.no_grad():
        plain.weight_ih.copy_(made.weight_ih[2 * HIDDEN :])
        plain.bias_ih.copy_(made.bias_ih[2 * HIDDEN :])
        if isinstance(made, GRUAfter):
            plain.weight_hh.copy_(made.weight_hh[2 * HIDDEN :])
            plain.bias_ih.add_(made.bias_hh[2 * HIDDEN :])
        else:
            plain.weight_hh.copy_(made.weight_candidate)
    x, h = random(ROWS, INPUT), random(ROWS, HIDDEN)
    torch.testing.assert_close(made.step(made.inputs(x), (h,)), plain.step(plain.inputs(x), (h,)))


@pytest.mark.parametrize("name", CELLS)
def test_inputs_of_all_time_are_the_inputs_of_each_moment(name: str) -> None:
    made, x = make(name), random(ROWS, TIME, INPUT)
    torch.testing.assert_close(made.inputs(x)[:, 2], made.inputs(x[:, 2]))


@pytest.mark.parametrize("name", CELLS)
def test_start_is_zeros_where_the_parameters_live(name: str) -> None:
    for part in make(name).start(ROWS):
        assert part.dtype == torch.float64 and torch.equal(part, torch.zeros(ROWS, HIDDEN).double())
    assert all(part.is_meta for part in copy.deepcopy(make(name)).to("meta").start(ROWS))


@pytest.mark.parametrize("name", CELLS)
def test_recurrent_weights_begin_orthogonal_gate_by_gate(name: str) -> None:
    fresh = CELLS[name](input_dim=INPUT, hidden=HIDDEN)
    square = [p for p in fresh.parameters() if p.shape[-1] == HIDDEN and p.dim() == 2]
    assert square
    for gate in (gate for weight in square for gate in torch.split(weight, HIDDEN)):
        torch.testing.assert_close(gate @ gate.t(), torch.eye(HIDDEN), rtol=0.0, atol=1e-5)


def test_a_young_lstm_is_inclined_to_remember() -> None:
    fresh = CELLS["lstm"](input_dim=INPUT, hidden=HIDDEN)
    assert isinstance(fresh, LSTM)
    write, keep, candidate, show = torch.split(fresh.bias_ih, HIDDEN)
    assert (keep == 1).all() and not torch.cat((write, candidate, show)).any()


def test_exactly_the_cells_pytorch_has_a_kernel_for_are_fused() -> None:
    x = random(ROWS, TIME, INPUT)
    fused = {name for name in CELLS if (made := make(name)).fused(x, made.start(ROWS), None) is not None}
    assert fused == {"tanh", "relu", "lstm", "gru-after"}


def test_the_names_a_config_may_hold_are_the_names_there_are() -> None:
    assert get_args(CellName) == tuple(CELLS)

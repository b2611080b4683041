"""Recurrence is the same however it is computed: by loop, by kernel, step by step, alone or among others."""

import itertools
import math
from collections.abc import Callable
from functools import partial

import pytest
import torch
from made import pairs, target_of
from torch import Tensor, nn
from torch.func import functional_call
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from regard.interface import Ids, Shapes, UserError
from regard.layers.cells import CELLS, Cell, State
from regard.layers.recurrent import Highway, Recurrent, Residual, Skip, reverse, trace
from regard.models import MODELS, rnnsearch

BATCH, TIME, INPUT, HIDDEN, LAYERS = 5, 7, 3, 11, 2
LENGTHS = (4, 7, 1, 6, 2)
MASK = torch.arange(TIME) < torch.tensor(LENGTHS)[:, None]
FUSED = ("tanh", "relu", "lstm", "gru-after")
BOTH = pytest.mark.parametrize("bidirectional", [False, True])
EVERY_CELL = pytest.mark.parametrize("name", CELLS)
RAGGED = pytest.mark.parametrize("mask", [None, MASK], ids=["full", "ragged"])
SKIPS: tuple[Skip, ...] = ("residual", "highway")
EVERY_SKIP = pytest.mark.parametrize("skip", SKIPS)


def make(
    name: str | Callable[..., Cell],
    *,
    bidirectional: bool = False,
    layers: int = LAYERS,
    fused: bool = True,
    dropout: float = 0.0,
    skip: Skip = "none",
) -> Recurrent:
    """A float64 network none of whose parameters is zero."""
    torch.manual_seed(17)
    made = Recurrent(
        cell=CELLS[name] if isinstance(name, str) else name,
        input_dim=INPUT,
        hidden=HIDDEN,
        layers=layers,
        bidirectional=bidirectional,
        dropout=dropout,
        skip=skip,
        fused=fused,
    ).double()
    with torch.no_grad():
        for parameter in made.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    return made


def random_state(made: Recurrent, rows: int = BATCH) -> tuple[State, ...]:
    return tuple(tuple(torch.randn_like(part) for part in layer) for layer in made.start(rows))


def random_input() -> Tensor:
    return torch.randn(BATCH, TIME, INPUT, dtype=torch.float64)


def parts(state: tuple[State, ...]) -> list[Tensor]:
    return [part for layer in state for part in layer]


def naive_skip(made: Recurrent, layer: int, x: Tensor, changed: Tensor) -> Tensor:
    if not layer or not len(made.skips):
        return changed
    if isinstance(made.skips[layer - 1], Residual):
        return x + changed
    gate = made.skips[layer - 1].get_submodule("gate")
    g = 1 / (1 + torch.exp(-(x @ gate.get_parameter("weight").t() + gate.get_parameter("bias"))))
    return g * changed + (1 - g) * x


def naively(
    made: Recurrent, x: Tensor, mask: Tensor | None, state: tuple[State, ...]
) -> tuple[Tensor, tuple[State, ...]]:
    """The recurrence in one direction, moment by moment and nothing gathered."""
    finals = []
    for layer, (cell, carried) in enumerate(zip(made.forwards, state, strict=True)):
        seen = []
        for t in range(x.shape[1]):
            after = cell.step(cell.inputs(x[:, t]), carried)
            if mask is not None:
                real = mask[:, t, None]
                after = tuple(real * new + ~real * old for new, old in zip(after, carried, strict=True))
            carried = after
            seen.append(after[0])
        x = naive_skip(made, layer, x, torch.stack(seen, dim=1))
        finals.append(carried)
    return x if mask is None else x * mask[..., None], tuple(finals)


def with_gradients(
    made: Recurrent, read: Callable[..., tuple[Tensor, tuple[State, ...]]], mask: Tensor | None
) -> list[Tensor]:
    """Outputs, finals and the gradients of both, to the input, the first state and every parameter."""
    torch.manual_seed(31)
    x = random_input().requires_grad_()
    state = tuple(tuple(part.requires_grad_() for part in layer) for layer in random_state(made))
    outputs, finals = read(x, mask, state)
    seen = [outputs, *parts(finals)]
    loss = torch.stack([(part * torch.rand(part.shape)).sum() for part in seen]).sum()
    return seen + list(torch.autograd.grad(loss, [x, *parts(state), *made.parameters()]))


@RAGGED
@pytest.mark.parametrize("name, skip", [*((name, "none") for name in CELLS), *(("mut2", skip) for skip in SKIPS)])
def test_the_loop_is_the_naive_loop(name: str, skip: Skip, mask: Tensor | None) -> None:
    made = make(name, fused=False, skip=skip)
    expected = with_gradients(made, lambda *given: naively(made, *given), mask)
    torch.testing.assert_close(with_gradients(made, made, mask), expected, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("dtype, tolerance", [(torch.float32, 1e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("mask", [None, MASK], ids=["full", "ragged"])
@BOTH
@pytest.mark.parametrize("name", FUSED)
def test_kernel_equals_loop(
    name: str, bidirectional: bool, mask: Tensor | None, dtype: torch.dtype, tolerance: float
) -> None:
    """Outputs, finals and the gradients of both, to the input, the first state and every parameter."""
    made = make(name, bidirectional=bidirectional).to(dtype)
    x = random_input().to(dtype).requires_grad_()
    state = tuple(tuple(part.requires_grad_() for part in layer) for layer in random_state(made))
    found = []
    for fused in (True, False):
        made.fused = fused
        outputs, finals = made(x, mask, state)
        seen = [outputs, *parts(finals)]
        torch.manual_seed(19)
        loss = sum((part * torch.rand(part.shape)).mean() for part in seen)
        assert isinstance(loss, Tensor)
        found.append(seen + list(torch.autograd.grad(loss, [x, *parts(state), *made.parameters()])))
    torch.testing.assert_close(found[0], found[1], rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("fused", [True, False], ids=["kernel", "loop"])
@BOTH
@pytest.mark.parametrize(
    "name, theirs",
    [
        ("lstm", nn.LSTM),
        ("gru-after", nn.GRU),
        ("tanh", nn.RNN),
        ("relu", partial(nn.RNN, nonlinearity="relu")),
    ],
)
def test_equals_pytorch_on_packed_sequences(
    name: str, theirs: Callable[..., nn.Module], bidirectional: bool, fused: bool
) -> None:
    made = make(name, bidirectional=bidirectional, fused=fused)
    reference = theirs(
        input_size=INPUT, hidden_size=HIDDEN, num_layers=LAYERS, batch_first=True, bidirectional=bidirectional
    ).double()
    weights = {key: torch.zeros_like(value) for key, value in reference.state_dict().items()}
    for key, value in made.state_dict().items():
        direction, layer, parameter = key.split(".")
        weights[f"{parameter}_l{layer}" + ("_reverse" if direction == "backwards" else "")] = value
    reference.load_state_dict(weights)

    x, state = random_input(), random_state(made)
    stacked = [torch.stack(kind) for kind in zip(*state, strict=True)]  # each (layers, batch, output_dim)
    by_direction = [
        torch.stack(torch.split(kind, HIDDEN, dim=-1), dim=1).flatten(0, 1) for kind in stacked
    ]  # each (layers·directions, batch, hidden)
    packed = pack_padded_sequence(x, torch.tensor(LENGTHS), batch_first=True, enforce_sorted=False)
    data, finals = reference(packed, tuple(by_direction) if name == "lstm" else by_direction[0])
    expected, _ = pad_packed_sequence(data, batch_first=True)

    outputs, ours = made(x, MASK, state)
    torch.testing.assert_close(outputs, expected)
    directions = 2 if bidirectional else 1
    for kind, final in zip(zip(*ours, strict=True), finals if name == "lstm" else [finals], strict=True):
        joined = final.view(LAYERS, directions, BATCH, HIDDEN).transpose(1, 2).flatten(2)
        torch.testing.assert_close(torch.stack(kind), joined)


@pytest.mark.parametrize("fused", [True, False], ids=["kernel", "loop"])
@BOTH
@EVERY_CELL
def test_a_row_among_others_is_the_row_alone(name: str, bidirectional: bool, fused: bool) -> None:
    made, x = make(name, bidirectional=bidirectional, fused=fused), random_input()
    state = random_state(made)
    outputs, finals = made(x, MASK, state)
    for row, length in enumerate(LENGTHS):
        own = tuple(tuple(part[row : row + 1] for part in layer) for layer in state)
        alone, last = made(x[row : row + 1, :length], None, own)
        torch.testing.assert_close(outputs[row, :length], alone[0])
        torch.testing.assert_close([part[row] for part in parts(finals)], [part[0] for part in parts(last)])
        assert not outputs[row, length:].any()


@pytest.mark.parametrize("fused", [True, False], ids=["kernel", "loop"])
@pytest.mark.parametrize("rubbish", [1e6, math.nan])
@BOTH
@EVERY_CELL
def test_what_stands_at_padding_is_never_read(name: str, bidirectional: bool, rubbish: float, fused: bool) -> None:
    made, x = make(name, bidirectional=bidirectional, fused=fused), random_input()
    spoilt = x.masked_fill(~MASK[..., None], rubbish).requires_grad_()
    outputs, finals = made(spoilt, MASK)
    torch.testing.assert_close((outputs, finals), made(x, MASK), rtol=0.0, atol=0.0)
    loss = outputs.sum() + torch.stack(parts(finals)).sum()
    (gradient,) = torch.autograd.grad(loss, spoilt)
    assert gradient.isfinite().all() and not gradient[~MASK].any() and (gradient[MASK] != 0).any(-1).all()


@EVERY_CELL
def test_long_padding_changes_neither_state_nor_gradient(name: str) -> None:
    """Large weights would make an unbounded state infinite within 300 steps, and 0 · ∞ is NaN."""
    made, x = make(name, layers=1), random_input()
    with torch.no_grad():
        for path, weight in made.named_parameters():
            weight.mul_(1.0 if "ih" in path or "bias" in path else 1e3)
    found = []
    for padding in (0, 300):
        longer, mask = nn.functional.pad(x, (0, 0, 0, padding)), nn.functional.pad(MASK, (0, padding))
        outputs, finals = made(longer, mask)
        loss = outputs.sum() + torch.stack(parts(finals)).sum()
        found.append([outputs[:, :TIME], *parts(finals), *torch.autograd.grad(loss, list(made.parameters()))])
    torch.testing.assert_close(found[1], found[0])


@BOTH
@EVERY_CELL
def test_a_mask_that_hides_nothing_changes_nothing(name: str, bidirectional: bool) -> None:
    made, x = make(name, bidirectional=bidirectional), random_input()
    full = torch.ones(BATCH, TIME, dtype=torch.bool)
    torch.testing.assert_close(made(x, full), made(x), rtol=0.0, atol=0.0)


@EVERY_CELL
def test_stepping_equals_the_whole_pass(name: str) -> None:
    made, x = make(name), random_input()
    state = random_state(made)
    whole, finals = made(x, None, state)
    for t in range(TIME):
        output, state = made.step(x[:, t], state)
        torch.testing.assert_close(output, whole[:, t])
    torch.testing.assert_close(state, finals)


@EVERY_CELL
def test_a_pass_continues_where_the_last_one_stopped(name: str) -> None:
    made, x = make(name), random_input()
    first, state = made(x[:, :3])
    second, finals = made(x[:, 3:], None, state)
    torch.testing.assert_close((torch.cat((first, second), dim=1), finals), made(x))


@pytest.mark.parametrize("fused", [True, False], ids=["kernel", "loop"])
@BOTH
@EVERY_CELL
def test_a_row_with_nothing_to_read_keeps_its_state(name: str, bidirectional: bool, fused: bool) -> None:
    made = make(name, bidirectional=bidirectional, layers=1, fused=fused)
    state, mask = random_state(made), MASK.clone()
    mask[2] = False
    _, finals = made(random_input(), mask, state)
    torch.testing.assert_close([p[2] for p in parts(finals)], [p[2] for p in parts(state)], rtol=0.0, atol=0.0)
    outputs, finals = made(random_input()[:, :0], None, state)
    assert outputs.shape == (BATCH, 0, made.output_dim) and finals == state


class Leaky(Cell):
    """hₜ = a ⊙ hₜ₋₁ + (1 − a) ⊙ tanh(X W): somebody's own."""

    def __init__(self, *, input_dim: int, hidden: int) -> None:
        super().__init__(input_dim=input_dim, hidden=hidden)
        self.weight = nn.Parameter(torch.randn(hidden, input_dim))
        self.leak = nn.Parameter(torch.rand(hidden))

    def inputs(self, x: Tensor) -> Tensor:
        return torch.tanh(x @ self.weight.t())

    def step(self, projected: Tensor, state: State) -> State:
        return (torch.lerp(projected, state[0], self.leak),)


@pytest.mark.parametrize("cell", ["gru", "mut1", "mut3", "lstm", Leaky], ids=str)
def test_slopes_are_what_small_steps_find(cell: str | Callable[..., Cell]) -> None:
    torch.manual_seed(37)
    build = CELLS[cell] if isinstance(cell, str) else cell
    made = Recurrent(cell=build, input_dim=2, hidden=3, layers=2, skip="highway", fused=False).double()
    weights = dict(made.named_parameters())
    mask = torch.tensor([[True, True, True], [True, False, False]])

    def read(x: Tensor, *values: Tensor) -> tuple[Tensor, ...]:
        outputs, finals = functional_call(made, dict(zip(weights, values, strict=True)), (x, mask))
        return outputs, *parts(finals)

    x = torch.randn(2, 3, 2, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(read, (x, *weights.values()))


def test_a_user_defined_cell_is_stacked_reversed_and_masked() -> None:
    torch.manual_seed(23)
    made = Recurrent(cell=Leaky, input_dim=INPUT, hidden=HIDDEN, layers=LAYERS, bidirectional=True).double()
    x = random_input()
    outputs, finals = made(x, MASK)
    for row, length in enumerate(LENGTHS):
        below = x[row, :length]  # (length, ·)
        for layer in range(LAYERS):
            sides, last = [], []
            for cells, order in ((made.forwards, 1), (made.backwards, -1)):
                own, h, seen = cells[layer], torch.zeros(HIDDEN).double(), []
                assert isinstance(own, Leaky)
                for now in below.unbind()[::order]:
                    h = own.leak * h + (1 - own.leak) * torch.tanh(own.weight @ now)
                    seen.append(h)
                sides.append(torch.stack(seen[::order]))
                last.append(h)
            below = torch.cat(sides, dim=1)
            torch.testing.assert_close(finals[layer][0][row], torch.cat(last))
        torch.testing.assert_close(outputs[row, :length], below)


def test_reversing_mirrors_each_row_within_its_length_and_twice_is_nothing() -> None:
    x = random_input()
    mirrored = reverse(x, MASK)
    for row, length in enumerate(LENGTHS):
        assert torch.equal(mirrored[row, :length], x[row, :length].flip(0))
        assert torch.equal(mirrored[row, length:], x[row, length:])
    assert torch.equal(reverse(mirrored, MASK), x)


def test_dropout_falls_between_layers_only() -> None:
    x = random_input()
    assert torch.equal(make("lstm", layers=1, dropout=1.0)(x)[0], make("lstm", layers=1)(x)[0])
    made = make("lstm", dropout=1.0)
    upper = make("lstm", layers=1)
    upper.forwards = nn.ModuleList([made.forwards[1]])  # type: ignore[assignment]
    blind, _ = upper(torch.zeros(BATCH, TIME, HIDDEN).double())
    torch.testing.assert_close(made(x)[0], blind)
    torch.testing.assert_close(made.step(x[:, 0], made.start(BATCH))[0], blind[:, 0])
    assert torch.equal(made.eval()(x)[0], make("lstm")(x)[0])


@EVERY_CELL
def test_nothing_in_one_direction_reads_the_future(name: str) -> None:
    made, x = make(name), random_input()
    changed = x.clone()
    changed[:, 4] += 1.0
    before, after = made(x)[0], made(changed)[0]
    assert torch.equal(before[:, :4], after[:, :4]) and (before[:, 4:] != after[:, 4:]).any(-1).all()


def test_both_directions_at_once_refuse_to_step() -> None:
    made = make("lstm", bidirectional=True)
    with pytest.raises(UserError, match="cannot run step by step"):
        made.step(torch.zeros(BATCH, INPUT).double(), made.start(BATCH))


def test_padding_before_the_end_is_refused() -> None:
    with pytest.raises(ValueError, match="pad at the end"):
        make("gru")(random_input(), MASK.flip(1))


@pytest.mark.parametrize("masked", [False, True])
@BOTH
@EVERY_CELL
def test_no_tensor_is_made_on_a_device_of_its_own(name: str, bidirectional: bool, masked: bool) -> None:
    made = make(name, bidirectional=bidirectional).to("meta")
    x = torch.empty(BATCH, TIME, INPUT, dtype=torch.float64, device="meta")
    mask = torch.empty(BATCH, TIME, dtype=torch.bool, device="meta") if masked else None
    outputs, finals = made(x, mask)
    assert outputs.shape == (BATCH, TIME, made.output_dim) and outputs.is_meta
    assert all(part.shape == (BATCH, made.output_dim) and part.is_meta for part in parts(finals))


@pytest.mark.parametrize("scale", [0.9, 1.1])
def test_a_linear_recurrence_shrinks_or_grows_its_gradient_at_a_constant_rate(scale: float) -> None:
    """Wₕₕ = s·orthogonal: log ‖∂L_T/∂hₜ‖ has slope log s in T − t."""
    torch.manual_seed(29)
    made = CELLS["identity"](input_dim=INPUT, hidden=HIDDEN).double()
    with torch.no_grad():
        made.get_parameter("weight_hh").mul_(scale)
    states = [made.start(BATCH)]
    states[0][0].requires_grad_()
    for projected in made.inputs(random_input()).unbind(dim=1):
        states.append(made.step(projected, states[-1]))
    loss = (states[-1][0] * torch.randn(BATCH, HIDDEN)).sum()
    gradients = torch.autograd.grad(loss, [h for (h,) in states])
    norms = [gradient.norm().log().item() for gradient in gradients]  # t = 0 … T
    for earlier, later in itertools.pairwise(norms):
        assert earlier - later == pytest.approx(math.log(scale), abs=1e-4)


@pytest.mark.parametrize("ceiling", [0.5, 2.0])
def test_clipping_by_global_norm_keeps_the_direction(ceiling: float) -> None:
    """g ← min(1, θ/‖g‖) g."""
    made = make("gru")
    made(random_input())[0].square().mean().backward()
    whole = torch.cat([parameter.grad.flatten() for parameter in made.parameters() if parameter.grad is not None])
    norm = whole.norm().item()
    nn.utils.clip_grad_norm_(made.parameters(), ceiling * norm)
    clipped = torch.cat([p.grad.flatten() for p in made.parameters() if p.grad is not None])
    torch.testing.assert_close(clipped, min(1.0, ceiling) * whole, rtol=1e-4, atol=0.0)
    assert torch.dot(clipped, whole).item() == pytest.approx(clipped.norm().item() * norm)


@EVERY_SKIP
@RAGGED
@BOTH
@pytest.mark.parametrize("fused", [True, False], ids=["kernel", "loop"])
def test_a_skip_is_its_equation_around_every_layer_but_the_first(
    skip: Skip, mask: Tensor | None, bidirectional: bool, fused: bool
) -> None:
    """Three layers, of which each is computed alone by a network of one layer."""
    made = make("gru-after", layers=3, bidirectional=bidirectional, fused=fused, skip=skip)
    x, state = random_input(), random_state(made)
    outputs, finals = made(x, mask, state)
    below = x
    for layer in range(3):
        alone = make("gru-after", layers=1, bidirectional=bidirectional, fused=fused)
        alone.forwards = nn.ModuleList([made.forwards[layer]])  # type: ignore[assignment]
        alone.backwards = nn.ModuleList(made.backwards[layer : layer + 1])  # type: ignore[assignment]
        changed, (final,) = alone(below, mask, (state[layer],))
        torch.testing.assert_close(finals[layer], final)
        below = naive_skip(made, layer, below, changed)
    torch.testing.assert_close(outputs, below if mask is None else below * mask[..., None])
    if mask is not None:
        assert not outputs[~mask].any() and not finals[0][0].isnan().any()


@EVERY_SKIP
def test_stepping_with_a_skip_equals_the_whole_pass(skip: Skip) -> None:
    made, x = make("gru", layers=3, skip=skip), random_input()
    state = random_state(made)
    whole, finals = made(x, None, state)
    for t in range(TIME):
        output, state = made.step(x[:, t], state)
        torch.testing.assert_close(output, whole[:, t])
    torch.testing.assert_close(state, finals)


def test_a_shut_highway_copies_and_an_open_one_changes() -> None:
    highway = Highway(HIDDEN).double()
    x, changed = torch.randn(2, BATCH, TIME, HIDDEN, dtype=torch.float64)
    with torch.no_grad():
        assert (torch.sigmoid(highway.gate.bias) < 0.3).all()  # a young one lets most of x pass
        highway.gate.bias.fill_(-1e4)
        assert torch.equal(highway(x, changed), x)
        highway.gate.bias.fill_(1e4)
        assert torch.equal(highway(x, changed), changed)
    assert torch.equal(Residual(HIDDEN)(x, changed), x + changed)
    assert not list(Residual(HIDDEN).parameters())


@pytest.mark.parametrize("name", FUSED)
def test_traced_the_kernel_stands_aside_and_outputs_stay(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, x = make(name), random_input()
    plain = made(x, MASK)
    monkeypatch.setattr(type(made.forwards[0]), "fused", lambda *_: pytest.fail("the kernel ran"))
    with trace(made):
        torch.testing.assert_close(made(x, MASK), plain, rtol=0.0, atol=1e-12)


@BOTH
@EVERY_CELL
def test_a_trace_holds_the_states_that_the_outputs_are_made_of(name: str, bidirectional: bool) -> None:
    made, x = make(name, layers=1, bidirectional=bidirectional), random_input()
    with trace(made) as seen:
        outputs, ((h, *_),) = made(x, MASK)
    ahead = seen.states["forwards.0"]
    assert len(ahead) == TIME and list(seen.states) == ["forwards.0", "backwards.0"][: 1 + bidirectional]
    for t, (state, gates) in enumerate(zip(ahead, seen.gates["forwards.0"], strict=True)):
        assert torch.equal(state[0][MASK[:, t]], outputs[MASK[:, t], t, :HIDDEN])
        assert gates.keys() == made.forwards[0].gates(made.forwards[0].inputs(x[:, t]), state).keys()
        assert all(gate.shape == (BATCH, HIDDEN) and not gate.requires_grad for gate in gates.values())
    assert torch.equal(ahead[-1][0], h[:, :HIDDEN])
    if bidirectional:  # in the order in which it read: the last word first
        back = seen.states["backwards.0"]
        assert torch.equal(back[0][0], torch.stack([outputs[row, n - 1, HIDDEN:] for row, n in enumerate(LENGTHS)]))


def test_a_trace_ends_and_is_of_its_own_model_only() -> None:
    made, other = make("lstm"), make("gru")
    with trace(made) as seen, trace(other) as seen_of_other:
        made(random_input())
    made(random_input())
    assert [len(states) for states in seen.states.values()] == [TIME] * LAYERS
    assert not any(seen_of_other.states.values())


def test_one_steps_are_traced_like_the_whole_pass() -> None:
    made, x = make("gru", skip="highway"), random_input()
    with trace(made) as whole:
        made(x)
    state = made.start(BATCH)
    with trace(made) as steps:
        for t in range(TIME):
            _, state = made.step(x[:, t], state)
    torch.testing.assert_close((steps.states, steps.gates), (whole.states, whole.gates))


@pytest.mark.parametrize("name", ["lstm", "mut1"])
def test_gradients_to_traced_states_can_be_asked_for(name: str) -> None:
    """∂L/∂hₜ of the trace is that of a loss that reads hₜ through the steps after it."""
    made, x = make(name, layers=1), random_input()
    with trace(made) as seen:
        outputs, _ = made(x)
    states = [state[0] for state in seen.states["forwards.0"]]
    found = torch.autograd.grad(outputs[:, -1].square().sum(), states)
    torch.testing.assert_close(found[-1], 2 * outputs[:, -1])
    for t in (2, 5):
        middle = tuple(part.detach().requires_grad_() for part in seen.states["forwards.0"][t])
        rest, _ = naively(made, x[:, t + 1 :], None, (middle,))
        expected = torch.autograd.grad(rest[:, -1].square().sum(), middle)
        # h of an LSTM is read by the next step alone; what flows through c is c's
        torch.testing.assert_close(found[t], expected[0])


def test_the_cell_that_attends_is_traced_too() -> None:
    torch.manual_seed(41)
    config = rnnsearch.Config(embedding=5, hidden=7, layers=2, dropout=0.0, cell="lstm", skip="residual")
    model = MODELS["rnnsearch"].build(config, Shapes(Ids(11), Ids(13))).double()
    batch = pairs(torch.randint(4, 11, (3, 6)), torch.randint(4, 13, (3, 5)))
    plain = model.logits(batch)  # type: ignore[operator]
    with trace(model) as seen:
        torch.testing.assert_close(model.logits(batch), plain, rtol=0.0, atol=1e-12)  # type: ignore[operator]
        state = model.start(batch)  # type: ignore[operator]
    lengths = {path: len(states) for path, states in seen.states.items()}
    assert lengths.pop("decoder.cell") == lengths.pop("decoder.upper.forwards.0") == 4
    assert len(lengths) == 4 and set(lengths.values()) == {2 * 6}  # the encoder read for logits, and again for start
    with trace(model) as steps:
        for token in target_of(batch).unbind(1)[:-1]:
            _, state = model.step(token, state)  # type: ignore[operator]
    for path in ("decoder.cell", "decoder.upper.forwards.0"):
        torch.testing.assert_close(steps.states[path], seen.states[path])
        torch.testing.assert_close(steps.gates[path], seen.gates[path])


@pytest.mark.parametrize("mask", [None, MASK], ids=["full", "ragged"])
@pytest.mark.parametrize("name", sorted({*FUSED} - {"relu"}))  # where rounding moves a relu over its corner, it jumps
def test_in_half_precision_every_kernel_is_near_the_loop_in_float32(name: str, mask: Tensor | None) -> None:
    """Outputs, finals and gradients, to what eight bits can hold; states are carried in float32."""
    made = make(name, layers=1).float()
    x = random_input().float().requires_grad_()
    found = []
    for half in (True, False):
        made.fused = half
        with torch.autocast("cpu", torch.bfloat16, enabled=half):
            outputs, finals = made(x, mask)
        seen = [outputs.float(), *(part.float() for part in parts(finals))]
        torch.manual_seed(19)
        loss = sum((part * torch.rand(part.shape)).mean() for part in seen)
        assert isinstance(loss, Tensor)
        found.append(seen + list(torch.autograd.grad(loss, [x, *made.parameters()])))
    for near, exact in zip(*found, strict=True):
        assert (near - exact).norm() < 0.05 * exact.norm() + 1e-3

"""A gradient that is gathered is the gradient; only how it is computed differs."""

from collections.abc import Callable

import pytest
import torch
from made import pairs, target_of
from test_recurrent import BATCH, CELLS, HIDDEN, INPUT, MASK, RAGGED, TIME, make, naively, random_input
from torch import Tensor, nn
from torch.nn import functional

from regard.interface import Ids, Shapes
from regard.layers.cells import Cell, State
from regard.layers.fast.weight_gradients import gathered
from regard.layers.recurrent import Recurrent
from regard.models import MODELS, rnnsearch

Write = Callable[[Tensor, "Own"], Tensor]


class Own(Cell):
    """hₜ = tanh(x V + write(hₜ₋₁)): somebody's own, whose products with W are written in one way or another."""

    def __init__(self, *, input_dim: int, hidden: int, write: Write) -> None:
        super().__init__(input_dim=input_dim, hidden=hidden)
        self.V = nn.Parameter(torch.randn(input_dim, hidden))
        self.W = nn.Parameter(torch.randn(hidden, hidden) / hidden**0.5)
        self.b = nn.Parameter(torch.randn(hidden))
        self.dense = nn.Linear(hidden, hidden)
        self.write = write

    def inputs(self, x: Tensor) -> Tensor:
        return x @ self.V

    def step(self, projected: Tensor, state: State) -> State:
        return (torch.tanh(projected + self.write(state[0], self)),)


def aside(h: Tensor, own: Own) -> Tensor:
    """A product that learns nothing, before the same one that learns."""
    with torch.no_grad():
        scale = (h @ own.W).norm(dim=-1, keepdim=True)
    return h @ own.W / (1 + scale)


HALF = HIDDEN // 2
WAYS: dict[str, Write] = {
    "h @ W": lambda h, own: h @ own.W,
    "matmul": lambda h, own: torch.matmul(h, own.W) + h.matmul(own.W.t()),
    "mm": lambda h, own: torch.mm(h, own.W) + h.mm(own.W.t()),
    "by keyword": lambda h, own: torch.addmm(own.b, h, own.W, beta=0.5) + torch.matmul(h, other=own.W),
    "addmm, a bias for all rows": lambda h, own: torch.addmm(own.b, h, own.W),
    "linear": lambda h, own: functional.linear(h, own.W),
    "linear with a bias": lambda h, own: functional.linear(h, own.W, own.b),
    "a layer inside": lambda h, own: own.dense(h),
    "a slice": lambda h, own: functional.pad(h @ own.W[:HALF].t(), (0, HIDDEN - HALF)),
    "slices that overlap": lambda h, own: h[:, :7] @ own.W[:7] + h[:, 3:] @ own.W[3:],
    "twice": lambda h, own: torch.tanh(h @ own.W) @ own.W,
    "it and its transpose": lambda h, own: torch.tanh(h @ own.W) @ own.W.t(),
    "three axes": lambda h, own: (h[:, None].expand(-1, 3, -1) @ own.W).sum(1),
    "W first": lambda h, own: (own.W @ h.t()).t(),
    "W by W": lambda h, own: h @ (own.W @ own.W),
    "not a product alone": lambda h, own: h @ own.W + own.W.diagonal() * own.W.sum(),
    "held still": lambda h, own: h @ own.W.detach() + h @ own.W,
    "aside": aside,
}
every_way = pytest.mark.parametrize("way", WAYS)


def network(way: str, layers: int = 2) -> Recurrent:
    return make(lambda **sizes: Own(**sizes, write=WAYS[way]), layers=layers)


def grads(made: nn.Module) -> list[Tensor]:
    return [torch.zeros_like(p) if p.grad is None else p.grad for p in made.parameters()]


def unused(made: Recurrent) -> None:
    """Parameters that a way does not read have no gradient to ask for."""
    made(random_input())[0].sum().backward()
    for parameter in made.parameters():
        parameter.requires_grad_(parameter.grad is not None)
        parameter.grad = None


@RAGGED
@every_way
def test_however_a_cell_writes_its_products_the_gradient_is_right(way: str, mask: Tensor | None) -> None:
    made = network(way)
    unused(made)

    def asked(read: Callable[..., tuple[Tensor, tuple[State, ...]]]) -> list[Tensor]:
        made.zero_grad()
        torch.manual_seed(43)
        x = random_input().requires_grad_()
        outputs, finals = read(x, mask, made.start(BATCH))
        (outputs.sin().sum() + finals[-1][0].square().sum()).backward()
        assert x.grad is not None
        return [outputs, x.grad, *grads(made)]

    naive = asked(lambda *given: naively(made, *given))
    torch.testing.assert_close(asked(made), naive, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("way", ["h @ W", "a layer inside"])
def test_each_matrix_has_one_product_for_its_gradient_whatever_the_time(
    way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    made, x = network(way, layers=1), random_input()
    joined: list[int] = []
    cat = torch.cat
    monkeypatch.setattr(
        torch, "cat", lambda parts, *rest, **more: joined.append(len(parts)) or cat(parts, *rest, **more)
    )
    made(x)[0].sum().backward()
    assert joined == [TIME, TIME]  # what was read, and what came back


def test_twice_backward_over_a_kept_graph_is_twice_the_gradient() -> None:
    made = make("gru", fused=False)
    loss = made(random_input(), MASK)[0].square().sum()
    loss.backward(retain_graph=True)
    once = [grad.clone() for grad in grads(made)]
    loss.backward()
    torch.testing.assert_close(grads(made), [2 * grad for grad in once])


def test_a_gradient_to_the_input_alone_leaves_nothing_behind() -> None:
    made, x = make("mut3", fused=False), random_input().requires_grad_()
    loss = made(x, MASK)[0].square().sum()
    loss.backward(retain_graph=True)
    whole = [grad.clone() for grad in grads(made)]
    made.zero_grad()
    (alone,) = torch.autograd.grad(loss, x, retain_graph=True)
    torch.testing.assert_close(alone, x.grad)
    assert not any(left_in(loss))
    loss.backward()
    torch.testing.assert_close(grads(made), whole)


def left_in(loss: Tensor) -> list[dict[int, object]]:
    """What the products of a graph keep for a gradient that is to be made."""
    found, ahead, seen = [], [loss.grad_fn], set()
    while ahead:
        node = ahead.pop()
        if node is None or node in seen:
            continue
        seen.add(node)
        if type(node).__name__ == "_ProductBackward":
            found.append(node.left)  # type: ignore[attr-defined]
        ahead += [below for below, _ in node.next_functions]
    assert found
    return found


def test_a_gradient_to_one_matrix_alone_is_right() -> None:
    made = make("mut3", fused=False)
    loss = made(random_input(), MASK)[0].square().sum()
    every = torch.autograd.grad(loss, list(made.parameters()), retain_graph=True)
    for parameter, expected in zip(made.parameters(), every, strict=True):
        torch.testing.assert_close(torch.autograd.grad(loss, parameter, retain_graph=True)[0], expected)


def test_two_passes_before_one_backward_add_up() -> None:
    """The state goes from window to window; a matrix is used in both."""
    made, x = make("gru", fused=False), random_input()
    whole, _ = made(x)
    expected = torch.autograd.grad(whole.square().sum(), list(made.parameters()))
    first, state = made(x[:, :3])
    second, _ = made(x[:, 3:], None, state)
    found = torch.autograd.grad(first.square().sum() + second.square().sum(), list(made.parameters()))
    torch.testing.assert_close(found, expected)


@pytest.mark.parametrize("name", [*CELLS, "h @ W", "linear with a bias", "a slice", "aside"])
def test_in_bfloat16_it_is_near_float32(name: str) -> None:
    made = (make(name, fused=False) if name in CELLS else network(name)).float()
    x = random_input().float()
    exact = made(x, MASK)[0]
    wanted = torch.autograd.grad(exact.square().sum(), made.forwards[0].parameters(), allow_unused=True)
    with torch.autocast("cpu", torch.bfloat16):
        near = made(x, MASK)[0]
    found = torch.autograd.grad(near.float().square().sum(), made.forwards[0].parameters(), allow_unused=True)
    assert (near.float() - exact).norm() < 0.03 * exact.norm()
    for one, other in zip(found, wanted, strict=True):
        assert (one is None) == (other is None)
        if one is not None and other is not None:
            assert one.dtype == torch.float32 and (one - other).norm() < 0.1 * other.norm() + 1e-3


def test_a_step_that_leaves_bfloat16_for_a_moment_runs() -> None:
    def exact(h: Tensor, own: Own) -> Tensor:
        before = h @ own.W
        with torch.autocast("cpu", enabled=False):
            careful = h.float() @ own.W
        return before + careful

    made = make(lambda **sizes: Own(**sizes, write=exact)).float()
    with torch.autocast("cpu", torch.bfloat16):
        made(random_input().float())[0].float().sum().backward()
    assert all(cell.get_parameter("W").grad is not None for cell in made.forwards)


def test_dtypes_that_do_not_go_together_are_still_refused() -> None:
    cell = CELLS["tanh"](input_dim=INPUT, hidden=HIDDEN)
    with gathered(cell), pytest.raises(RuntimeError, match="dtype"):
        torch.randn(BATCH, HIDDEN).double() @ cell.get_parameter("weight_hh")


def test_without_gradients_and_for_other_matrices_nothing_is_gathered() -> None:
    cell, other = (CELLS["tanh"](input_dim=INPUT, hidden=HIDDEN) for _ in range(2))
    h, weight = torch.randn(BATCH, HIDDEN), cell.get_parameter("weight_hh")
    with torch.no_grad(), gathered(cell):
        assert (h @ weight).grad_fn is None
    with gathered(cell):
        assert left_in(h @ weight)
        assert type((h @ other.get_parameter("weight_hh")).grad_fn).__name__ == "MmBackward0"
        with torch.no_grad():
            assert (h @ weight).grad_fn is None
    assert type((h @ weight).grad_fn).__name__ == "MmBackward0"


@every_way
def test_on_a_device_without_values_it_runs(way: str) -> None:
    made = network(way).to("meta")
    x = torch.empty(BATCH, TIME, INPUT, dtype=torch.float64, device="meta")
    outputs, _ = made(x)
    assert outputs.is_meta and outputs.shape == (BATCH, TIME, HIDDEN)


@pytest.mark.parametrize("cell", ["gru", "lstm", "mut1"])
def test_an_attentive_decoder_has_the_gradient_of_its_single_steps(cell: str) -> None:
    """`forward` gathers over the whole target; `step` never does."""
    torch.manual_seed(47)
    config = rnnsearch.Config(embedding=5, hidden=7, dropout=0.0, cell=cell)
    model = MODELS["rnnsearch"].build(config, Shapes(Ids(11), Ids(13))).double()
    batch = pairs(torch.randint(4, 11, (3, 6)), torch.randint(4, 13, (3, 5)))
    whole = model.logits(batch)  # type: ignore[operator]
    expected = torch.autograd.grad(whole.sin().sum(), list(model.parameters()))
    state, steps = model.start(batch), []  # type: ignore[operator]
    for token in target_of(batch).unbind(1)[:-1]:
        logits, state = model.step(token, state)  # type: ignore[operator]
        steps.append(logits)
    found = torch.autograd.grad(torch.stack(steps, 1).sin().sum(), list(model.parameters()))
    torch.testing.assert_close(found, expected)

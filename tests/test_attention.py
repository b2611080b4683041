"""Attention's laws: what the weights sum to, where they are 0, and that watching changes nothing."""

from __future__ import annotations

import math
import threading

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from regard.interface import State, UserError
from regard.layers.attention import (
    KERNELS,
    MLP,
    SCORES,
    SHORT,
    SHORT_TO_LEARN,
    Additive,
    Attention,
    Bilinear,
    Boxcar,
    Dot,
    Epanechnikov,
    Gaussian,
    Kernel,
    Memory,
    MultiHead,
    Scaled,
    masked_softmax,
    score,
    watch,
)

BATCH, TARGET, SOURCE, DIM, VALUE, HIDDEN, HEADS = 2, 3, 5, 7, 11, 13, 3
NAMES = [*SCORES, *KERNELS]
FUSED = ["dot", "scaled"]


def made(name: str, dim: int = DIM) -> Attention:
    torch.manual_seed(0)
    return Attention(score=score(name, query_dim=dim, key_dim=dim, hidden=HIDDEN)).double()


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def ragged_mask() -> Tensor:
    return torch.arange(SOURCE) < torch.tensor([[SOURCE], [2]])  # (batch, source)


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(1)


# masked softmax


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 10_000), st.floats(0, 100))
def test_weights_are_a_distribution_over_what_may_be_seen(seed: int, spread: float) -> None:
    torch.manual_seed(seed)
    scores, mask = random(TARGET, SOURCE) * spread, torch.rand(TARGET, SOURCE) > 0.5
    weights = masked_softmax(scores, mask)
    assert (weights[~mask] == 0).all()
    assert torch.allclose(weights.sum(-1), mask.any(-1).double())
    for row, may in zip(range(TARGET), mask, strict=True):
        assert torch.allclose(weights[row, may], scores[row, may].softmax(-1))


def test_a_row_that_may_look_at_nothing_is_zero_and_so_is_its_gradient() -> None:
    scores = random(TARGET, SOURCE).requires_grad_()
    mask = torch.ones(TARGET, SOURCE, dtype=torch.bool)
    mask[1] = False
    with torch.autograd.set_detect_anomaly(True):  # no NaN on the way either
        weights = masked_softmax(scores, mask)
        weights.square().sum().backward()  # type: ignore[no-untyped-call]
    assert scores.grad is not None
    assert (weights[1] == 0).all() and (scores.grad[1] == 0).all()
    assert scores.grad.isfinite().all() and (scores.grad[0] != 0).all()


def test_even_scores_at_the_lowest_number_leave_the_masked_at_zero() -> None:
    scores = torch.full((1, SOURCE), torch.finfo(torch.float32).min)
    mask = torch.tensor([[True, False, True, False, False]])
    assert (masked_softmax(scores, mask) > 0).equal(mask)


# the four cases of pooling


def test_convex_weights_keep_the_context_in_the_hull_of_the_values() -> None:
    query, keys, values = random(BATCH, TARGET, DIM), random(BATCH, SOURCE, DIM), random(BATCH, SOURCE, VALUE)
    for name in NAMES:
        attention = made(name)
        weights = attention.score.weights(query, attention.score.prepare(keys), None)
        context = attention(query, attention.memory(keys, values))
        near = weights.sum(-1) > 0  # a kernel may have no key in range
        assert (weights >= 0).all() and torch.allclose(weights.sum(-1)[near], torch.ones(()).double())
        assert torch.allclose(context, weights @ values)
        low, high = values.min(1).values[:, None], values.max(1).values[:, None]
        inside = (context >= low - 1e-12) & (context <= high + 1e-12)
        assert inside[near].all()


@pytest.mark.parametrize("kernel", [Gaussian(), Boxcar(), Epanechnikov()])
def test_kernels_are_never_negative_so_pooling_stays_in_the_cone(kernel: Kernel) -> None:
    nearness = kernel(0.5 * random(BATCH, TARGET, DIM), 0.5 * random(BATCH, SOURCE, DIM))
    assert (nearness >= 0).all()
    assert (nearness @ random(BATCH, SOURCE, VALUE).abs() >= 0).all()


def test_one_weight_of_one_is_a_look_up() -> None:
    keys, values = 100 * torch.eye(SOURCE, dtype=torch.float64)[None], random(1, SOURCE, VALUE)
    attention = Attention(score=Dot())
    assert torch.equal(attention(keys, attention.memory(keys, values)), values)


@pytest.mark.parametrize("name", ["dot", "scaled", "bilinear"])
def test_a_query_of_zero_takes_the_mean(name: str) -> None:
    attention, values = made(name), random(BATCH, SOURCE, VALUE)
    memory = attention.memory(random(BATCH, SOURCE, DIM), values, ragged_mask())
    context = attention(torch.zeros(BATCH, 1, DIM).double(), memory)
    assert torch.allclose(context[0, 0], values[0].mean(0)) and torch.allclose(context[1, 0], values[1, :2].mean(0))


# scores


def test_every_score_is_its_formula() -> None:
    query, keys = random(TARGET, DIM), random(SOURCE, VALUE)  # widths differ
    square = random(SOURCE, DIM)
    bilinear = Bilinear(query_dim=DIM, key_dim=VALUE).double()
    additive = Additive(query_dim=DIM, key_dim=VALUE, hidden=HIDDEN).double()
    mlp = MLP(query_dim=DIM, key_dim=VALUE, hidden=HIDDEN).double()
    nn.init.normal_(mlp.keys.bias)
    nn.init.normal_(mlp.out.bias)
    first = torch.cat((mlp.query.weight, mlp.keys.weight), 1)  # W₁ of [q; k]
    for i, q in enumerate(query):
        for j, k in enumerate(keys):
            near = (q - square[j]).norm()
            expected = {
                Dot(): q @ square[j],
                Scaled(): q @ square[j] / math.sqrt(DIM),
                Gaussian(): (-0.5 * near**2).exp(),
                Boxcar(): (near <= 1).double(),
                Epanechnikov(): (1 - near).clamp(min=0),
            }
            for formula, value in expected.items():
                assert torch.allclose(formula(query, square)[i, j], value)
            for learned, value in {
                bilinear: q @ bilinear.keys.weight @ k,
                additive: additive.out.weight[0] @ (additive.query.weight @ q + additive.keys.weight @ k).tanh(),
                mlp: mlp.out.weight[0] @ (first @ torch.cat((q, k)) + mlp.keys.bias).relu() + mlp.out.bias[0],
            }.items():
                assert torch.allclose(learned(query, learned.prepare(keys))[i, j], value)


def test_the_scaled_score_has_variance_one_at_any_width() -> None:
    for dim in (2, 31, 509):
        query, keys = torch.randn(5000, 1, dim), torch.randn(5000, 1, dim)  # as many pairs, each by itself
        assert Scaled()(query, keys).var().item() == pytest.approx(1, abs=0.15)
        assert Dot()(query, keys).var().item() == pytest.approx(dim, rel=0.15)


def test_gaussian_pooling_is_softmax_of_dot_minus_half_the_squared_key() -> None:
    query, keys = random(BATCH, TARGET, DIM), random(BATCH, SOURCE, DIM)
    shares = Gaussian()(query, keys)
    law = (query @ keys.transpose(1, 2) - 0.5 * keys.square().sum(-1)[:, None]).softmax(-1)
    assert torch.allclose(Gaussian().weights(query, keys, None), law)
    assert torch.allclose(shares / shares.sum(-1, keepdim=True), law)


def test_gaussian_shares_survive_far_from_every_key() -> None:
    weights = Gaussian().weights(torch.tensor([[1000.0]]), torch.tensor([[0.0], [0.001]]), None)
    assert weights.sum().item() == pytest.approx(1) and weights[0, 1] > weights[0, 0] > 0


@pytest.mark.parametrize("kernel", [Boxcar(), Epanechnikov()])
def test_a_query_without_a_key_in_range_gets_zero_not_nan(kernel: Kernel) -> None:
    attention = Attention(score=kernel)
    query = torch.tensor([[[50.0, 0.0], [0.0, 0.0]]], requires_grad=True)
    keys = torch.tensor([[[0.0, 0.0], [0.0, 0.5], [9.0, 9.0]]], requires_grad=True)  # one right on the query
    values = torch.ones(1, 3, 2, requires_grad=True)
    context = attention(query, attention.memory(keys, values))
    (context * torch.tensor([2.0, 3.0])).sum().backward()
    assert context[0, 0].tolist() == [0, 0] and torch.allclose(context[0, 1], torch.ones(2))
    for tensor in (query, keys, values):
        assert tensor.grad is None or tensor.grad.isfinite().all()
    assert values.grad is not None and values.grad[0, 2].tolist() == [0, 0]


def test_the_boxcar_ends_at_one() -> None:
    keys = torch.tensor([[0.0], [0.95], [1.0], [1.05]])
    assert Boxcar()(torch.zeros(1, 1), keys).tolist() == [[1, 1, 1, 0]]


def test_an_unknown_score_names_the_known_ones() -> None:
    with pytest.raises(UserError, match="'cosine'.*dot, scaled, bilinear, additive, mlp, gaussian"):
        score("cosine", query_dim=DIM, key_dim=DIM, hidden=HIDDEN)


@pytest.mark.parametrize("name", ["dot", "scaled", *KERNELS])
def test_scores_that_compare_directly_refuse_two_widths(name: str) -> None:
    with pytest.raises(UserError, match="7 and 11"):
        score(name, query_dim=DIM, key_dim=VALUE, hidden=HIDDEN)


# attention


@pytest.mark.parametrize("name", NAMES)
def test_permuting_the_keys_with_their_mask_changes_nothing(name: str) -> None:
    attention, order = made(name), torch.tensor([3, 0, 4, 2, 1])
    query, keys = 0.3 * random(BATCH, TARGET, DIM), 0.3 * random(BATCH, SOURCE, DIM)
    values, mask = random(BATCH, SOURCE, VALUE), ragged_mask()
    context = attention(query, attention.memory(keys, values, mask))
    shuffled = attention(query, attention.memory(keys[:, order], values[:, order], mask[:, order]))
    assert context.shape == (BATCH, TARGET, VALUE) and context.abs().sum() > 0
    assert torch.allclose(context, shuffled, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_masked_keys_have_no_effect(name: str) -> None:
    attention, mask = made(name), ragged_mask()
    query, keys = 0.3 * random(BATCH, TARGET, DIM), 0.3 * random(BATCH, SOURCE, DIM)
    values = random(BATCH, SOURCE, VALUE)
    context = attention(query, attention.memory(keys, values, mask))
    keys[~mask], values[~mask] = 17.0, -1e6
    assert torch.allclose(context, attention(query, attention.memory(keys, values, mask)), atol=1e-12)
    alone = attention(query[1:], attention.memory(keys[1:, :2], values[1:, :2]))  # without the padding
    assert torch.allclose(context[1:], alone, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_a_mask_may_differ_between_queries(name: str) -> None:
    attention = made(name)
    query, keys = 0.3 * random(BATCH, SOURCE, DIM), 0.3 * random(BATCH, SOURCE, DIM)
    values = random(BATCH, SOURCE, VALUE)
    causal = torch.ones(1, SOURCE, SOURCE, dtype=torch.bool).tril()
    context = attention(query, attention.memory(keys, values, causal))
    for t in range(SOURCE):
        so_far = attention.memory(keys[:, : t + 1], values[:, : t + 1])
        assert torch.allclose(context[:, t : t + 1], attention(query[:, t : t + 1], so_far), atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dropout", [0.0, 0.5])
@pytest.mark.parametrize("grad", [False, True])  # both the fused and the plain path
def test_looking_at_nothing_gives_zero_with_finite_gradients(name: str, dropout: float, grad: bool) -> None:
    attention = made(name)
    attention.dropout = dropout
    query, keys, values = (
        (0.1 * random(BATCH, *shape)).requires_grad_() for shape in ((TARGET, DIM), (SOURCE, DIM), (SOURCE, VALUE))
    )
    mask = torch.ones(BATCH, TARGET, SOURCE, dtype=torch.bool)
    mask[0, 1], mask[1] = False, False
    with watch(attention, grad=grad):
        context = attention(query, attention.memory(keys, values, mask))
    assert (context[0, 1] == 0).all() and (context[1] == 0).all() and context[0, 0].abs().sum() > 0
    context.square().sum().backward()
    for tensor in (query, keys, values):
        if tensor.grad is not None:  # the boxcar is flat: its query and keys have none
            assert tensor.grad.isfinite().all() and (tensor.grad[1] == 0).all()


@pytest.mark.parametrize("name", NAMES)
def test_dropout_acts_in_training_only(name: str) -> None:
    attention = made(name)
    query, keys = 0.1 * random(BATCH, TARGET, DIM), 0.1 * random(BATCH, SOURCE, DIM)
    memory = attention.memory(keys, random(BATCH, SOURCE, VALUE))
    without = attention(query, memory)
    attention.dropout = 0.5
    assert not torch.allclose(attention(query, memory), without)
    assert torch.equal(attention.eval()(query, memory), without)


@pytest.mark.parametrize("name", ["bilinear", "additive", "mlp"])
def test_gradients_pass_through_the_in_place_arithmetic(name: str) -> None:
    attention = made(name)
    inputs = [random(1, *shape).requires_grad_() for shape in ((TARGET, DIM), (SOURCE, DIM), (SOURCE, VALUE))]
    assert torch.autograd.gradcheck(lambda q, k, v: attention(q, attention.memory(k, v)), inputs)


# several heads


@pytest.mark.parametrize("bias", [True, False])
@pytest.mark.parametrize("widths", [(None, None), (7, 11)])
def test_equals_the_multi_head_attention_of_pytorch(bias: bool, widths: tuple[int | None, int | None]) -> None:
    dim, (key_dim, value_dim) = 6, widths
    theirs = nn.MultiheadAttention(
        dim, HEADS, kdim=key_dim, vdim=value_dim, bias=bias, batch_first=True, dtype=torch.float64
    )
    ours = MultiHead(heads=HEADS, query_dim=dim, key_dim=key_dim, value_dim=value_dim, bias=bias).double()
    if key_dim is None:
        assert theirs.in_proj_weight is not None
        weights = theirs.in_proj_weight.chunk(3)
    else:
        weights = (theirs.q_proj_weight, theirs.k_proj_weight, theirs.v_proj_weight)
    with torch.no_grad():
        for part, weight in zip((ours.query, ours.key, ours.value), weights, strict=True):
            part.weight.copy_(weight)
        ours.out.weight.copy_(theirs.out_proj.weight)
        if bias:
            nn.init.normal_(theirs.in_proj_bias)
            for part, value in zip((ours.query, ours.key, ours.value), theirs.in_proj_bias.chunk(3), strict=True):
                part.bias.copy_(value)
            nn.init.normal_(theirs.out_proj.bias)
            ours.out.bias.copy_(theirs.out_proj.bias)
    query = random(BATCH, TARGET, dim)
    keys, values = random(BATCH, SOURCE, key_dim or dim), random(BATCH, SOURCE, value_dim or dim)
    mask = ragged_mask()
    with watch(ours) as seen:
        context = ours(query, ours.memory(keys, values, mask))
    expected, weights = theirs(query, keys, values, key_padding_mask=~mask, average_attn_weights=False)
    assert torch.allclose(context, expected, atol=1e-12)
    assert torch.allclose(seen["attention"][0], weights, atol=1e-12)


@pytest.mark.parametrize("name", NAMES)
def test_every_score_works_in_every_head_and_every_width_is_free(name: str) -> None:
    def build() -> MultiHead:
        return MultiHead(
            heads=HEADS,
            query_dim=7,
            key_dim=11,
            value_dim=13,
            head_dim=17,
            value_head_dim=19,
            out_dim=23,
            score=score(name, query_dim=17, key_dim=17, hidden=29),
        ).double()

    parts, query, mask = build(), 0.1 * random(BATCH, TARGET, 7), ragged_mask()
    keys, values = 0.1 * random(BATCH, SOURCE, 11), random(BATCH, SOURCE, 13)
    context = parts(query, parts.memory(keys, values, mask))
    assert context.shape == (BATCH, TARGET, 23)
    single, heads = parts.attention, []
    for h in range(HEADS):  # each head by itself
        narrow, wide = slice(17 * h, 17 * h + 17), slice(19 * h, 19 * h + 19)
        memory = single.memory(parts.key(keys)[..., narrow], parts.value(values)[..., wide], mask)
        heads.append(single(parts.query(query)[..., narrow], memory))
    assert torch.allclose(context, parts.out(torch.cat(heads, -1)), atol=1e-12)


def test_heads_that_do_not_divide_the_width_are_refused() -> None:
    with pytest.raises(UserError, match="3 heads .* 7"):
        MultiHead(heads=3, query_dim=7)


def test_self_attention_without_positions_is_permutation_equivariant() -> None:
    x, order = random(BATCH, SOURCE, 6), torch.tensor([3, 0, 4, 2, 1])
    for attention in (Attention(score=Dot()), MultiHead(heads=HEADS, query_dim=6).double()):

        def itself(x: Tensor, attention: Attention | MultiHead = attention) -> Tensor:
            out: Tensor = attention(x, attention.memory(x, x))
            return out

        assert torch.allclose(itself(x)[:, order], itself(x[:, order]), atol=1e-12)


def test_a_turn_acts_on_each_head_of_queries_and_keys_and_is_seen_in_the_weights() -> None:
    parts, states = MultiHead(heads=HEADS, query_dim=6).double(), random(BATCH, 5, 6)
    quarter = torch.tensor([[0.0, -1.0], [1.0, 0.0]], dtype=torch.float64)

    def turn(x: Tensor) -> Tensor:
        return x @ quarter

    plain, plain_memory = parts.within(states, ragged_mask())
    turned, turned_memory = parts.within(states, ragged_mask(), turn)
    assert torch.allclose(turned, plain @ quarter) and torch.allclose(turned_memory.keys, plain_memory.keys @ quarter)
    expected = parts.attend(plain, plain_memory)
    assert torch.allclose(parts(states, parts.memory(states, states, ragged_mask())), expected, atol=1e-12)
    with watch(parts) as seen:
        both, one = parts.attend(turned, turned_memory), parts.attend(plain, turned_memory)
    assert torch.allclose(both, expected, atol=1e-12)  # turned alike, they look alike
    assert not torch.allclose(one, expected)
    weights = masked_softmax(plain @ turned_memory.keys.mT / math.sqrt(2), ragged_mask()[:, None, None])
    assert torch.allclose(seen["attention"][1], weights, atol=1e-12)


@pytest.mark.parametrize("queries", [1, SHORT, SHORT + 1])  # few queries, as in decoding, and many
def test_few_queries_get_the_same_context_and_weights_as_many(queries: int) -> None:
    scaled, memory = Attention(score=Scaled()).double(), random(BATCH, HEADS, SOURCE, DIM)
    query, mask = random(BATCH, HEADS, queries, DIM), ragged_mask()[:, None, None]
    given = Memory(memory, memory, torch.cat([mask[:1], torch.zeros_like(mask[1:])]))  # the second sees nothing
    expected = masked_softmax(query @ memory.mT / math.sqrt(DIM), given.mask)
    with torch.no_grad(), watch(scaled) as seen:
        context = scaled(query, given)
    torch.testing.assert_close(seen[""][0], expected)
    torch.testing.assert_close(context, expected @ memory)
    assert not context[1].any()


@pytest.mark.parametrize("learnt", [False, True])  # a bias that learns is another kernel's work
@pytest.mark.parametrize("grad", [False, True])  # both the fused and the plain path
def test_numbers_as_a_mask_are_added_to_the_scores_of_each_head(learnt: bool, grad: bool) -> None:
    model, states = MultiHead(heads=HEADS, query_dim=6).double(), random(BATCH, SOURCE, 6).requires_grad_()
    may = ragged_mask()[:, None, None].repeat(1, 1, SOURCE, 1)  # (batch, 1, target, source)
    may[0, :, 1] = False
    bias = random(1, HEADS, SOURCE, SOURCE).requires_grad_(learnt)
    numbers = torch.where(may, bias, -torch.inf)
    with watch(model, grad=grad) as seen:
        out = model(states, model.memory(states, states, numbers))
    assert torch.equal(out[0, 1], model.out.bias)  # who may look at nothing brings nothing back
    (weights,) = seen["attention"]
    query, key = (model._split(part(states)) for part in (model.query, model.key))
    expected = masked_softmax(query @ key.mT / math.sqrt(2) + bias, may)
    assert torch.allclose(weights, expected) and (weights[~may.expand_as(weights)] == 0).all()
    context = (expected @ model._split(model.value(states))).transpose(1, 2).flatten(2)
    by_hand = model.out(context)
    assert torch.allclose(out, by_hand)
    wanted = [states, *([bias] if learnt else []), *model.parameters()]
    found, slopes = (torch.autograd.grad(made.sin().sum(), wanted, retain_graph=True) for made in (out, by_hand))
    torch.testing.assert_close(found, slopes)


def test_a_memory_follows_the_examples_that_are_kept() -> None:
    attention, query = MultiHead(heads=HEADS, query_dim=6).double(), random(BATCH, TARGET, 6)
    states = random(BATCH, SOURCE, 6)
    state = State(memory=attention.memory(states, states, ragged_mask()), carry=query)
    kept = state.keep(torch.tensor([1]))
    assert torch.allclose(attention(kept.carry, kept.memory), attention(query, state.memory)[1:])


@pytest.mark.parametrize("name", NAMES)
def test_shapes_on_the_meta_device(name: str) -> None:
    with torch.device("meta"):
        part = MultiHead(heads=HEADS, query_dim=6, score=score(name, query_dim=2, key_dim=2, hidden=HIDDEN))
        memory = part.memory(
            torch.empty(BATCH, SOURCE, 6),
            torch.empty(BATCH, SOURCE, 6),
            torch.ones(BATCH, SOURCE, dtype=torch.bool),
        )
        out = part(torch.empty(BATCH, TARGET, 6), memory)
    assert out.is_meta and out.shape == (BATCH, TARGET, 6)


# watching


class Two(nn.Module):
    """Looks at the memory by several heads, then by one."""

    def __init__(self, name: str, dropout: float) -> None:
        super().__init__()
        self.many = MultiHead(
            heads=HEADS, query_dim=6, score=score(name, query_dim=2, key_dim=2, hidden=5), dropout=dropout
        )
        self.single = Attention(score=score(name, query_dim=6, key_dim=6, hidden=5), dropout=dropout)

    def forward(self, query: Tensor, states: Tensor, mask: Tensor) -> Tensor:
        query = self.many(query, self.many.memory(states, states, mask))
        out: Tensor = self.single(query, self.single.memory(states, states, mask))
        return out


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_watching_changes_no_bit_of_output_or_gradient_with_dropout_too(name: str, dtype: torch.dtype) -> None:
    model = Two(name, dropout=0.4).to(dtype).train()
    query = torch.randn(BATCH, TARGET, 6, dtype=dtype)
    states = torch.randn(BATCH, SOURCE, 6, dtype=dtype, requires_grad=True)

    def run() -> tuple[Tensor, ...]:
        model.zero_grad()
        states.grad = None
        torch.manual_seed(7)
        out = model(query, states, ragged_mask())
        out.square().sum().backward()
        gradients = (p.grad for p in (states, *model.parameters()) if p.grad is not None)
        return out, *gradients, torch.rand(3)  # the noise drawn afterwards is the same as well

    plain = run()
    with watch(model) as seen:
        watched = run()
    assert all(torch.equal(a, b) for a, b in zip(plain, watched, strict=True))
    assert seen.paths() == ["many.attention", "single"]
    assert [w.shape for w in seen["many.attention"]] == [(BATCH, HEADS, TARGET, SOURCE)]
    assert [w.shape for w in seen["single"]] == [(BATCH, 1, TARGET, SOURCE)]
    for path in seen.paths():
        (weights,) = seen[path]
        assert not weights.requires_grad and (weights[1, ..., 2:] == 0).all()
        if name not in KERNELS:
            assert torch.allclose(weights.sum(-1), torch.ones((), dtype=dtype))  # before dropout


@pytest.mark.parametrize("name", FUSED)
def test_the_fused_kernel_equals_the_plain_form(name: str) -> None:
    attention = made(name)
    query, keys, values = random(BATCH, TARGET, DIM), random(BATCH, SOURCE, DIM), random(BATCH, SOURCE, VALUE)
    memory = attention.memory(keys, values, ragged_mask())
    fused = attention(query, memory)
    with watch(attention, grad=True) as seen:
        plain = attention(query, memory)
    assert torch.allclose(fused, plain, atol=1e-12)
    assert torch.equal(plain, seen[""][0][:, 0] @ values)


@pytest.mark.parametrize("name", NAMES)
def test_with_gradient_the_weights_take_part(name: str) -> None:
    model = Two(name, dropout=0.0).double()
    with watch(model, grad=True) as seen:
        out = model(random(BATCH, TARGET, 6), states := random(BATCH, SOURCE, 6).requires_grad_(), ragged_mask())
    (weights,) = seen["single"]
    if name == "boxcar":  # flat: there is no gradient to take part in
        assert not weights.requires_grad
        return
    (slope,) = torch.autograd.grad(out.sum(), weights)
    assert torch.allclose(slope[:, 0], states.sum(-1)[:, None].expand(BATCH, TARGET, SOURCE))


def test_watching_sees_calls_in_order_and_only_while_it_lasts() -> None:
    attention = Attention(score=Scaled())
    memory = attention.memory(random(BATCH, SOURCE, DIM), random(BATCH, SOURCE, VALUE))
    queries = [random(BATCH, target, DIM) for target in (1, 2, 3)]
    with watch(attention) as seen:
        for query in queries:
            attention(query, memory)
    attention(queries[0], memory)
    assert [weights.shape[2] for weights in seen[""]] == [1, 2, 3]
    assert torch.equal(seen[""][1][:, 0], Scaled().weights(queries[1], memory.keys, None))


def test_watching_ends_with_an_error_too() -> None:
    attention = Attention(score=Scaled())
    memory = attention.memory(random(BATCH, SOURCE, DIM), random(BATCH, SOURCE, VALUE))
    with pytest.raises(RuntimeError), watch(attention) as seen:
        raise RuntimeError
    attention(random(BATCH, TARGET, DIM), memory)
    assert seen[""] == []


def test_watchers_nest_and_keep_to_their_own_model() -> None:
    inner, outer_only, stranger = (Attention(score=Scaled()) for _ in range(3))
    whole = nn.ModuleDict({"inner": inner, "outer": outer_only})
    states = random(BATCH, SOURCE, DIM)
    with watch(whole) as all_seen, watch(inner, grad=True) as inner_seen:
        for part in (inner, outer_only, stranger):
            part(states, part.memory(states, states))
    assert all_seen.paths() == ["inner", "outer"] and inner_seen.paths() == [""]
    assert len(all_seen["inner"]) == len(all_seen["outer"]) == len(inner_seen[""]) == 1
    with pytest.raises(KeyError):
        inner_seen["outer"]


def test_another_thread_is_not_watched() -> None:
    attention, states = Attention(score=Scaled()), random(BATCH, SOURCE, DIM)
    with watch(attention) as seen:
        thread = threading.Thread(target=lambda: attention(states, attention.memory(states, states)))
        thread.start()
        thread.join()
        assert seen[""] == []


@pytest.mark.parametrize("kind", [torch.float32, torch.bfloat16])
def test_short_sequences_learn_by_plain_products_what_the_fused_kernel_learns(
    kind: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    attention, mask = Attention(score=Scaled()), torch.rand(2, 1, 7, 9) < 0.7
    mask[0, :, 3] = False  # a query that may look at nothing
    torch.manual_seed(1)
    sides = [torch.randn(2, 3, time, 4, dtype=kind, requires_grad=True) for time in (7, 9, 9)]
    outputs = []
    for most in (SHORT_TO_LEARN, 0):
        monkeypatch.setattr("regard.layers.attention.SHORT_TO_LEARN", most)
        with torch.autocast("cpu", torch.bfloat16, enabled=kind is torch.bfloat16):
            context = attention(sides[0], Memory(sides[1], sides[2], mask))
        outputs.append((context.float(), *torch.autograd.grad(context.float().square().sum(), sides)))
    tolerance = 1e-5 if kind is torch.float32 else 0.05
    for plain, fused in zip(*outputs, strict=True):
        torch.testing.assert_close(plain, fused, rtol=tolerance, atol=tolerance)
    assert (outputs[0][0][0, :, 3] == 0).all()


def test_learning_long_sequences_in_half_precision_attends_in_float32_and_gives_half_precision_gradients():
    """The CPU's fused kernel goes backwards several times slower in bf16: it must not be handed any."""
    attention = Attention(score=Scaled())
    half = [torch.randn(2, 3, SHORT_TO_LEARN + 1, 4).bfloat16().requires_grad_() for _ in range(3)]
    with torch.autocast("cpu", torch.bfloat16):
        context = attention(half[0], attention.memory(half[1], half[2]))
    assert context.dtype is torch.float32
    exact = [tensor.detach().float().requires_grad_() for tensor in half]
    expected = attention(exact[0], attention.memory(exact[1], exact[2]))
    assert torch.equal(context, expected)
    found, wanted = (torch.autograd.grad(out.square().sum(), of) for out, of in ((context, half), (expected, exact)))
    assert all(torch.equal(one, two.bfloat16()) for one, two in zip(found, wanted, strict=True))
    with torch.no_grad(), torch.autocast("cpu", torch.bfloat16):
        assert attention(half[0], attention.memory(half[1], half[2])).dtype is torch.bfloat16

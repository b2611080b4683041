"""The stack's laws: it is PyTorch's, its cache is its causal pass, padding changes nothing."""

from __future__ import annotations

import contextlib
import copy
from functools import partial
from typing import Literal

import pytest
import torch
from torch import Tensor, nn

from regard.interface import State, UserError
from regard.layers.attention import MultiHead, watch
from regard.layers.fast.switch import plain
from regard.layers.positions import POSITIONS, position
from regard.layers.transformer import (
    FIRST_CAPACITY,
    NORMS,
    BatchNorm,
    Block,
    Cache,
    FeedForward,
    LayerNorm,
    Residual,
    Stack,
    causal,
    norm_of,
    over_cache,
)

BATCH, TIME, SOURCE, HEADS, DIM, HIDDEN = 2, 7, 5, 3, 6, 11
Place = Literal["pre", "post"]
PLACES: list[Place] = ["pre", "post"]
LONGEST = 29
every_kind = pytest.mark.parametrize("kind", [None, *POSITIONS])
by_distance = pytest.mark.parametrize("kind", ["rotary", "alibi", "t5"])


@pytest.fixture(autouse=True)
def seed() -> None:
    torch.manual_seed(0)


def random(*shape: int) -> Tensor:
    return torch.randn(*shape, dtype=torch.float64)


def stack(
    *,
    norm: Place = "pre",
    cross: bool = False,
    dropout: float = 0.0,
    normalisation: str = "layer",
    activation: str = "relu",
    kind: str | None = None,  # of positions
    back: bool = True,  # whether they are told to look back only
) -> Stack:
    positions = position(kind, dim=DIM, heads=HEADS, longest=LONGEST, causal=back) if kind else None
    made = Stack(
        dim=DIM,
        heads=HEADS,
        hidden=HIDDEN,
        layers=2,
        dropout=dropout,
        norm=norm,
        normalisation=normalisation,
        activation=activation,
        cross=cross,
        positions=positions,
    ).double()
    with torch.no_grad():  # zeros and ones would hide a forgotten bias or gain
        for path, parameter in made.named_parameters():
            if parameter.dim() == 1 or path.startswith("positions"):
                parameter.add_(0.3 * torch.randn_like(parameter))
    return made.eval()


def real_tokens(*lengths: int) -> Tensor:
    return torch.arange(max(lengths)) < torch.tensor(lengths)[:, None]  # (batch, time)


# against PyTorch


def copy_linear(ours: nn.Linear, weight: Tensor, bias: Tensor) -> None:
    ours.weight.copy_(weight)
    ours.bias.copy_(bias)


def copy_attention(ours: MultiHead, theirs: nn.MultiheadAttention) -> None:
    nn.init.normal_(theirs.in_proj_bias, std=0.3)
    nn.init.normal_(theirs.out_proj.bias, std=0.3)
    parts = zip(
        (ours.query, ours.key, ours.value),
        theirs.in_proj_weight.chunk(3),
        theirs.in_proj_bias.chunk(3),
        strict=True,
    )
    for part, weight, bias in parts:
        copy_linear(part, weight, bias)
    copy_linear(ours.out, theirs.out_proj.weight, theirs.out_proj.bias)


def copy_norm(ours: nn.Module, theirs: nn.LayerNorm) -> None:
    assert isinstance(ours, LayerNorm)
    nn.init.normal_(theirs.weight, mean=1, std=0.3)
    nn.init.normal_(theirs.bias, std=0.3)
    ours.load_state_dict(theirs.state_dict())


def block(place: Place, activation: str, *, cross: bool) -> Block:
    def residual() -> Residual:
        return Residual(norm=norm_of("layer", DIM, 1e-5), dropout=0.0, pre=place == "pre")

    attention = partial(MultiHead, heads=HEADS, query_dim=DIM)
    feed_forward = partial(FeedForward, dim=DIM, hidden=HIDDEN, activation=activation)
    return Block(cross=cross, attention=attention, feed_forward=feed_forward, residual=residual).double()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("activation", ["relu", "gelu"])
def test_a_block_equals_the_encoder_layer_of_pytorch(place: Place, activation: str) -> None:
    theirs = nn.TransformerEncoderLayer(
        DIM, HEADS, HIDDEN, 0.0, activation, batch_first=True, norm_first=place == "pre", dtype=torch.float64
    )
    ours = block(place, activation, cross=False)
    with torch.no_grad():
        copy_attention(ours.self_attention, theirs.self_attn)
        copy_norm(ours.self_residual.norm, theirs.norm1)
        copy_norm(ours.feed_residual.norm, theirs.norm2)
        copy_linear(ours.feed_forward.widen, theirs.linear1.weight, theirs.linear1.bias)
        copy_linear(ours.feed_forward.narrow, theirs.linear2.weight, theirs.linear2.bias)
    x, real = random(BATCH, TIME, DIM), real_tokens(TIME, 3)
    out, _ = ours(x, mask=real, real=real, memory=None, cache=None)
    assert torch.allclose(out[real], theirs(x, src_key_padding_mask=~real)[real], atol=1e-12)


@pytest.mark.parametrize("place", PLACES)
def test_a_block_with_cross_attention_equals_the_decoder_layer_of_pytorch(place: Place) -> None:
    theirs = nn.TransformerDecoderLayer(
        DIM, HEADS, HIDDEN, 0.0, batch_first=True, norm_first=place == "pre", dtype=torch.float64
    )
    ours = block(place, "relu", cross=True)
    assert ours.cross_attention is not None
    with torch.no_grad():
        copy_attention(ours.self_attention, theirs.self_attn)
        copy_attention(ours.cross_attention, theirs.multihead_attn)
        copy_norm(ours.self_residual.norm, theirs.norm1)
        copy_norm(ours.cross_residual.norm, theirs.norm2)
        copy_norm(ours.feed_residual.norm, theirs.norm3)
        copy_linear(ours.feed_forward.widen, theirs.linear1.weight, theirs.linear1.bias)
        copy_linear(ours.feed_forward.narrow, theirs.linear2.weight, theirs.linear2.bias)
    x, states, seen = random(BATCH, TIME, DIM), random(BATCH, SOURCE, DIM), real_tokens(SOURCE, 2)
    memory = ours.cross_attention.memory(states, states, seen)
    out, _ = ours(x, mask=causal(TIME), real=None, memory=memory, cache=None)
    expected = theirs(x, states, tgt_mask=~causal(TIME)[0], memory_key_padding_mask=~seen)
    assert torch.allclose(out, expected, atol=1e-12)


def test_only_a_pre_norm_stack_ends_in_a_norm() -> None:
    x = random(BATCH, TIME, DIM)
    for place in PLACES:
        whole = stack(norm=place)
        by_hand = x
        for one in whole.blocks:
            by_hand, _ = one(by_hand, mask=None, real=None, memory=None, cache=None)
        if place == "pre":
            assert whole.norm is not None
            by_hand = whole.norm(by_hand)
        assert torch.equal(whole(x)[0], by_hand)
        assert (whole.norm is None) == (place == "post")


# masks


@pytest.mark.parametrize("place", PLACES)
@every_kind
def test_no_weight_and_no_change_reaches_back_from_the_future(place: Place, kind: str | None) -> None:
    model, x = stack(norm=place, kind=kind), random(BATCH, TIME, DIM)
    with watch(model) as seen:
        before, _ = model(x, mask=causal(TIME))
    for path in seen.paths():
        (weights,) = seen[path]
        assert (weights.triu(1) == 0).all() and (weights[..., -1, :] > 0).all()
    x[:, 4, 0] += 1  # of one feature: a norm does not see what is added to all
    after, _ = model(x, mask=causal(TIME))
    assert torch.equal(before[:, :4], after[:, :4])
    assert (before[:, 4:] != after[:, 4:]).any(-1).all()


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("normalisation", NORMS)
@pytest.mark.parametrize("training", [True, False])
@every_kind
def test_padding_changes_nothing(place: Place, normalisation: str, training: bool, kind: str | None) -> None:
    model = stack(norm=place, cross=True, normalisation=normalisation, kind=kind).train(training)
    saved = {name: value.clone() for name, value in model.state_dict().items()}
    x, states = random(BATCH, TIME, DIM), random(BATCH, SOURCE, DIM)
    real, seen = real_tokens(TIME, 3), real_tokens(SOURCE, 2)
    outs, measured = [], []
    for padding in (0.0, 9.0):
        model.load_state_dict(saved)
        padded = torch.where(real[..., None], x, padding)
        memories = model.memories(torch.where(seen[..., None], states, padding), seen)
        out, _ = model(padded, mask=causal(TIME) & real[:, None], real=real, memories=memories)
        outs.append(out[real])
        measured.append({name: value.clone() for name, value in model.state_dict().items()})
    assert torch.allclose(outs[0], outs[1], atol=1e-12)
    assert all(torch.allclose(measured[0][name], value, atol=1e-12) for name, value in measured[1].items())


@pytest.mark.parametrize("normalisation", NORMS)
@every_kind
def test_batch_mates_change_nothing_in_use(normalisation: str, kind: str | None) -> None:
    model, real = stack(cross=True, normalisation=normalisation, kind=kind), real_tokens(TIME, 3)
    x, states = random(BATCH, TIME, DIM), random(BATCH, SOURCE, DIM)
    memories = model.memories(states, real_tokens(SOURCE, 2))
    together, _ = model(x, mask=causal(TIME) & real[:, None], real=real, memories=memories)
    alone, _ = model(x[1:, :3], mask=causal(3), memories=model.memories(states[1:, :2], None))
    assert torch.allclose(together[1:, :3], alone, atol=1e-12)


@every_kind
def test_an_encoder_is_not_causal_and_padding_changes_nothing(kind: str | None) -> None:
    model, x, real = stack(kind=kind, back=False), random(BATCH, TIME, DIM), real_tokens(TIME, 3)
    together, _ = model(x, mask=real[:, None], real=real)
    assert torch.allclose(together[1:, :3], model(x[1:, :3])[0], atol=1e-12)
    x[:, 2, 0] += 1
    assert (model(x, mask=real[:, None], real=real)[0] != together).any(-1)[real].all()


def test_without_positions_the_stack_is_permutation_equivariant() -> None:
    model, x, order = stack(norm="post"), random(BATCH, TIME, DIM), torch.tensor([3, 0, 6, 4, 2, 5, 1])
    assert torch.allclose(model(x)[0][:, order], model(x[:, order])[0], atol=1e-12)


# positions


@by_distance
@pytest.mark.parametrize("back", [True, False])
def test_such_positions_tell_a_stack_distances_and_nothing_else(kind: str, back: bool) -> None:
    model, x, order = stack(kind=kind, back=back), random(BATCH, TIME, DIM), torch.tensor([3, 0, 6, 4, 2, 5, 1])
    assert not torch.allclose(model(x)[0][:, order], model(x[:, order])[0])  # it sees the order
    ahead = torch.cat((random(BATCH, 3, DIM), x), 1)
    hidden = torch.ones(1, TIME + 3, TIME + 3, dtype=torch.bool).tril()
    hidden[:, :, :3] = False  # nobody looks at what stands ahead, which only moves the rest on by 3
    assert torch.allclose(model(ahead, mask=hidden)[0][:, 3:], model(x, mask=causal(TIME))[0], atol=1e-12)


@by_distance
def test_such_positions_change_the_weights_of_self_attention_alone(kind: str) -> None:
    without, told = stack(cross=True), stack(cross=True, kind=kind)
    told.load_state_dict(without.state_dict(), strict=False)
    states = random(BATCH, SOURCE, DIM)
    x = random(BATCH, 1, DIM).expand(-1, TIME, -1)  # the same everywhere: only positions could tell apart
    seen = {}
    for name, model in (("without", without), ("told", told)):
        with watch(model) as watched:
            model(x, mask=causal(TIME), memories=model.memories(states, None))
        seen[name] = watched
    itself, across = "blocks.0.self_attention.attention", "blocks.0.cross_attention.attention"
    even = causal(TIME)[0].double() / torch.arange(1, TIME + 1)[:, None]
    assert torch.allclose(seen["without"][itself][0], even.expand(BATCH, HEADS, -1, -1))
    assert not torch.allclose(seen["told"][itself][0], even.expand(BATCH, HEADS, -1, -1), atol=1e-3)
    assert torch.allclose(seen["without"][across][0], seen["told"][across][0])  # values, and so x, stay as they are


@every_kind
def test_the_fused_and_the_plain_form_have_the_same_outputs_and_gradients(kind: str | None) -> None:
    model, x = stack(kind=kind), random(BATCH, TIME, DIM).requires_grad_()
    mask = causal(TIME) & real_tokens(TIME, 3)[:, None]
    mask[1, 1] = False  # a query that may look at nothing
    found = []
    for how in (contextlib.nullcontext, plain):
        with how():
            out, _ = model(x, mask=mask)
        found.append([out, *torch.autograd.grad(out.sin().sum(), [x, *model.parameters()])])
    torch.testing.assert_close(found[0], found[1], rtol=1e-9, atol=1e-12)
    with watch(model) as seen:
        model(x, mask=mask)
    assert all((seen[path][0][1, :, 1] == 0).all() for path in seen.paths())


@every_kind
def test_in_bfloat16_it_is_near_float32(kind: str | None) -> None:
    model, x = stack(kind=kind).float(), torch.randn(BATCH, TIME, DIM)
    half = copy.deepcopy(model).bfloat16()
    exact, _ = model(x, mask=causal(TIME))
    for grad in (False, True):
        with watch(model, grad=grad), watch(half, grad=grad):
            with torch.autocast("cpu", torch.bfloat16):
                near = [model(given, mask=causal(TIME))[0] for given in (x, x.bfloat16())]
            near[1].float().sum().backward()
            with torch.no_grad():
                near.append(half(x.bfloat16(), mask=causal(TIME))[0])
        assert near[2].dtype == torch.bfloat16
        assert all((out.float() - exact).norm() < 0.05 * exact.norm() for out in near)


def test_rotary_positions_need_heads_of_even_width() -> None:
    with pytest.raises(UserError, match="head of width 3"):
        position("rotary", dim=6, heads=2, longest=LONGEST)


# parts


def test_batch_norm_over_real_tokens_equals_pytorch_on_those_tokens_alone() -> None:
    ours, theirs = BatchNorm(DIM).double(), nn.BatchNorm1d(DIM, dtype=torch.float64)
    nn.init.normal_(theirs.weight)
    nn.init.normal_(theirs.bias)
    ours.load_state_dict(theirs.state_dict(), strict=False)
    real = real_tokens(TIME, 3)
    for _ in range(3):
        x = 5 + 2 * random(BATCH, TIME, DIM)
        assert torch.allclose(ours(x, real)[real], theirs(x[real]))
        assert torch.allclose(ours(x)[real], ours(x, torch.ones(BATCH, TIME, dtype=torch.bool))[real])
        ours.load_state_dict(theirs.state_dict(), strict=False)
    ours(x, real), theirs(x[real])
    assert torch.allclose(ours.running_var, theirs.running_var)  # type: ignore[arg-type]
    assert torch.allclose(ours.running_mean, theirs.running_mean)  # type: ignore[arg-type]
    assert torch.allclose(ours.eval()(x)[real], theirs.eval()(x[real]))


def test_batch_norm_of_one_token_or_none_is_finite() -> None:
    norm = BatchNorm(DIM).double()
    for real in (torch.zeros(1, 1, dtype=torch.bool), torch.ones(1, 1, dtype=torch.bool)):
        assert norm(random(1, 1, DIM), real).isfinite().all() and norm.running_var.isfinite().all()


def test_dropout_falls_after_the_activation() -> None:
    part = FeedForward(dim=DIM, hidden=997, dropout=0.5)
    x = torch.randn(1, 1, DIM)
    with torch.no_grad():
        part.narrow.weight.fill_(1.0)
        hidden = part.widen(x).relu().sum()
        samples = torch.stack([part(x)[0, 0, 0] for _ in range(50)])
    assert samples.std() > 0 and samples.mean().item() == pytest.approx(hidden.item(), rel=0.05)
    assert torch.equal(part.eval()(x), part(x))


def test_residual_dropout_falls_on_what_is_added() -> None:
    residual = Residual(norm=norm_of("layer", 101, 1e-5), dropout=0.5, pre=True)
    x, change = torch.full((1, 1, 101), 3.0), torch.ones(1, 1, 101)
    assert set(residual.add(x, change, None).flatten().tolist()) == {3.0, 5.0}
    assert torch.equal(residual.eval().add(x, change, None), x + change)


def test_dropout_acts_in_training_only() -> None:
    model, x = stack(dropout=0.5), random(BATCH, TIME, DIM)
    assert torch.equal(model(x)[0], model(x)[0])
    model.train()
    assert not torch.allclose(model(x)[0], model(x)[0])


@pytest.mark.parametrize("place", PLACES)
@every_kind
def test_watching_a_stack_in_training_changes_no_bit(place: Place, kind: str | None) -> None:
    model = stack(norm=place, cross=True, dropout=0.3, kind=kind).float().train()
    x, states = torch.randn(BATCH, TIME, DIM), torch.randn(BATCH, SOURCE, DIM)

    def run() -> Tensor:
        torch.manual_seed(3)
        memories = model.memories(states, real_tokens(SOURCE, 2))
        out: Tensor = model(x, mask=causal(TIME), memories=memories)[0]
        return out

    plain = run()
    with watch(model) as seen:
        assert torch.equal(plain, run())
    kinds = ("self_attention", "cross_attention")
    assert seen.paths() == [f"blocks.{layer}.{kind}.attention" for layer in range(2) for kind in kinds]
    assert seen["blocks.1.cross_attention.attention"][0].shape == (BATCH, HEADS, TIME, SOURCE)


@pytest.mark.parametrize("wrong", [{"norm": "middle"}, {"normalisation": "group"}, {"activation": "swish"}])
def test_unknown_choices_name_the_known_ones(wrong: dict[str, str]) -> None:
    with pytest.raises(UserError, match=f"'{next(iter(wrong.values()))}' does not exist: .*allowed are"):
        stack(**wrong)  # type: ignore[arg-type]


def test_cross_attention_without_memories_is_refused() -> None:
    with pytest.raises(ValueError, match="memories"):
        stack(cross=True)(random(BATCH, TIME, DIM))


# the cache


@pytest.mark.parametrize("place", PLACES)
@pytest.mark.parametrize("normalisation", NORMS)
@every_kind
@torch.no_grad()
def test_stepping_equals_one_causal_pass_for_rows_of_different_lengths(
    place: Place, normalisation: str, kind: str | None
) -> None:
    model = stack(norm=place, cross=True, normalisation=normalisation, kind=kind)
    prompts, steps = (2, 3, 5), 17
    assert max(prompts) + steps > FIRST_CAPACITY  # so that the cache has to grow
    x, states = random(3, max(prompts) + steps, DIM), random(3, SOURCE, DIM)
    memories = model.memories(states, real_tokens(SOURCE, 2, 4))
    whole, _ = model(x, mask=causal(x.shape[1]), memories=memories)

    real = real_tokens(*prompts)
    out, caches = model(x[:, :5], real=real, memories=memories, caches=model.caches(3))
    assert torch.allclose(out[real], whole[:, :5][real], atol=1e-10)
    rows = torch.arange(3)
    for step in range(steps):
        place_in_row = torch.tensor(prompts) + step
        out, caches = model(x[rows, place_in_row][:, None], memories=memories, caches=caches)
        assert torch.allclose(out[:, 0], whole[rows, place_in_row], atol=1e-10)
    assert caches[0].lengths.tolist() == [length + steps for length in prompts]
    assert caches[0].longest == 5 + steps


@every_kind
@torch.no_grad()
def test_a_prompt_may_come_in_pieces_and_bring_its_own_mask(kind: str | None) -> None:
    model, x = stack(kind=kind), random(3, TIME, DIM)
    whole, _ = model(x, mask=causal(TIME))
    real = real_tokens(2, 3, 1)
    _, caches = model(x[:, :3], mask=causal(3) & real[:, None], real=real, caches=model.caches(3))
    rest = torch.stack([x[row, start : start + 4] for row, start in enumerate((2, 3, 1))])
    out, _ = model(rest, mask=causal(4), caches=caches)
    for row, start in enumerate((2, 3, 1)):
        assert torch.allclose(out[row], whole[row, start : start + 4], atol=1e-10)


@torch.no_grad()
def test_the_mask_of_a_piece_decides_what_its_positions_see_of_one_another() -> None:
    model, x = stack(), random(BATCH, TIME, DIM)
    everything = torch.ones(1, 1, TIME, dtype=torch.bool)
    out, _ = model(x, mask=everything, caches=model.caches(BATCH))
    assert torch.allclose(out, model(x)[0], atol=1e-10)
    assert not torch.allclose(out, model(x, mask=causal(TIME))[0])


@torch.no_grad()
def test_the_cache_of_a_width_of_hypotheses_shares_one_memory() -> None:
    model, width, steps = stack(cross=True), 3, 4
    states, mask = random(BATCH, SOURCE, DIM), real_tokens(SOURCE, 2)
    x = random(BATCH * width, steps, DIM)
    shared = model.memories(states, mask)
    repeated = model.memories(states.repeat_interleave(width, 0), mask.repeat_interleave(width, 0))
    assert shared[0].keys.shape[0] == BATCH and repeated[0].keys.shape[0] == BATCH * width
    ours = model.caches(BATCH * width)
    theirs = model.caches(BATCH * width)
    for step in range(steps):
        out, ours = model(x[:, step : step + 1], memories=shared, caches=ours)
        expected, theirs = model(x[:, step : step + 1], memories=repeated, caches=theirs)
        assert torch.allclose(out, expected, atol=1e-12)
    whole, _ = model(x, mask=causal(steps), memories=shared)  # several positions at once, too
    assert torch.allclose(whole[:, -1:], out, atol=1e-10)


@torch.no_grad()
def test_caches_follow_the_hypotheses_picked_and_the_examples_kept() -> None:
    model, width = stack(cross=True), 3
    states, x = random(BATCH, SOURCE, DIM), random(BATCH * width, TIME, DIM)
    memories = model.memories(states, real_tokens(SOURCE, 2))
    real = real_tokens(2, 3, 1, 4, 4, 2)  # one prompt length per row
    _, caches = model(x[:, :4], real=real, memories=memories, caches=model.caches(BATCH * width))
    state = State(memory=memories, carry=caches, width=width)

    parents, new = torch.tensor([2, 0, 0, 5, 3, 3]), random(BATCH * width, 1, DIM)
    picked = state.pick(parents).keep(torch.tensor([1]))  # then only the second example
    out, after = model(new[3:], memories=picked.memory, caches=picked.carry)
    assert after[0].lengths.tolist() == [3, 5, 5]
    for row, parent in enumerate(parents[3:].tolist()):
        history = torch.cat((x[parent, : real[parent].sum()], new[3 + row]))[None]
        only = model.memories(states[1:, :2], None)
        whole, _ = model(history, mask=causal(history.shape[1]), memories=only)
        assert torch.allclose(out[row, -1], whole[0, -1], atol=1e-10)

    untouched, _ = model(new, memories=memories, caches=caches)  # what was picked from is as it was
    for row in range(BATCH * width):
        history = torch.cat((x[row, : real[row].sum()], new[row]))[None]
        seen = model.memories(states[row // width :][:1, : (SOURCE, 2)[row // width]], None)
        whole, _ = model(history, mask=causal(history.shape[1]), memories=seen)
        assert torch.allclose(untouched[row, -1], whole[0, -1], atol=1e-10)


def test_a_cache_writes_in_place_until_it_is_full() -> None:
    cache = stack().caches(BATCH)[0]
    assert cache.keys.shape == (BATCH, HEADS, FIRST_CAPACITY, DIM // HEADS)
    assert cache.keys.dtype == torch.float64 and cache.row_lengths().tolist() == [0] * BATCH
    written = []
    for step in range(FIRST_CAPACITY + 1):
        keys, values = random(BATCH, HEADS, 1, 2), random(BATCH, HEADS, 1, 2)
        written.append((keys, values))
        longer = cache.append(keys, values)
        in_place = longer.keys.data_ptr() == cache.keys.data_ptr()
        assert in_place == (step < FIRST_CAPACITY)
        cache = longer
    assert cache.keys.shape[2] == cache.values.shape[2] > FIRST_CAPACITY + 1
    assert torch.equal(cache.keys[:, :, : cache.longest], torch.cat([keys for keys, _ in written], 2))
    assert torch.equal(cache.values[:, :, : cache.longest], torch.cat([values for _, values in written], 2))
    many = random(BATCH, HEADS, 101, 2)
    longer = cache.append(many, many)
    assert torch.equal(longer.keys[:, :, cache.longest : longer.longest], many)


def test_rows_that_become_ragged_never_show_memory_that_was_not_written() -> None:
    """A masked position has a weight of 0, but 0 times NaN is NaN."""
    unwritten = torch.full((2, HEADS, 8, 2), torch.nan, dtype=torch.float64)
    cache = Cache(unwritten, unwritten.clone(), None, 0).append(random(2, HEADS, 3, 2), random(2, HEADS, 3, 2))
    real = torch.tensor([[True, True], [True, False]])
    cache = cache.append(random(2, HEADS, 2, 2), random(2, HEADS, 2, 2), real)
    cache = cache.append(random(2, HEADS, 1, 2), random(2, HEADS, 1, 2))
    assert cache.row_lengths().tolist() == [6, 5] and cache.longest == 6
    assert cache.keys[:, :, :6].isfinite().all() and cache.values[:, :, :6].isfinite().all()


def test_the_mask_of_a_cache_is_what_is_written() -> None:
    empty = torch.zeros(3, HEADS, 8, 2)
    cache = Cache(empty, empty.clone(), torch.tensor([2, 0, 4]), 4)
    ahead = over_cache(cache, causal(2))  # (rows, 2, 6)
    assert ahead.int().tolist() == [
        [[1, 1, 1, 0, 0, 0], [1, 1, 1, 1, 0, 0]],
        [[1, 0, 0, 0, 0, 0], [1, 1, 0, 0, 0, 0]],
        [[1, 1, 1, 1, 1, 0], [1, 1, 1, 1, 1, 1]],
    ]
    second_only = torch.tensor([[[False, True]]])  # what is cached is seen all the same
    assert over_cache(cache, second_only)[0].int().tolist() == [[1, 1, 0, 1, 0, 0]]
    one = torch.randn(3, HEADS, 1, 2)
    longer = cache.append(one, one)
    assert torch.equal(over_cache(cache, causal(1))[:, 0].sum(1), longer.row_lengths())
    assert longer.row_lengths().tolist() == [3, 1, 5] and longer.longest == 5


def test_rows_of_one_length_need_neither_lengths_nor_a_mask() -> None:
    model = stack()
    prompt, last = random(BATCH, TIME, DIM), random(BATCH, 1, DIM)
    real = torch.ones(BATCH, TIME, dtype=torch.bool)
    _, even = model(prompt, caches=model.caches(BATCH))
    _, counted = model(prompt, real=real, caches=model.caches(BATCH))
    assert even[0].lengths is None and counted[0].lengths is not None
    torch.testing.assert_close(model(last, caches=even)[0], model(last, caches=counted)[0])


def test_a_cache_picks_rows_of_what_is_written() -> None:
    rows = torch.tensor([2, 0, 2])
    for lengths in (None, torch.tensor([2, 1, 4])):
        cache = Cache(random(3, HEADS, 8, 2), random(3, HEADS, 8, 2), lengths, 4)
        picked = cache.pick(rows)
        assert torch.equal(picked.keys[:, :, :4], cache.keys[rows][:, :, :4])
        assert torch.equal(picked.values[:, :, :4], cache.values[rows][:, :, :4])
        assert picked.row_lengths().tolist() == cache.row_lengths()[rows].tolist()


@every_kind
def test_shapes_on_the_meta_device(kind: str | None) -> None:
    with torch.device("meta"):
        model = stack(cross=True, kind=kind)
        memories = model.memories(random(BATCH, SOURCE, DIM), real_tokens(SOURCE, 2))
        out, caches = model(random(2 * BATCH, TIME, DIM), memories=memories, caches=model.caches(2 * BATCH))
        step, caches = model(random(2 * BATCH, 1, DIM), memories=memories, caches=caches)
    assert out.is_meta and out.shape == (2 * BATCH, TIME, DIM) and step.shape == (2 * BATCH, 1, DIM)
    assert caches[1].keys.is_meta and caches[1].longest == TIME + 1


def test_caches_stand_where_the_parameters_do() -> None:
    model = stack().to(torch.bfloat16)
    assert {cache.keys.dtype for cache in model.caches(1)} == {torch.bfloat16}
    for cache in stack().to("meta").caches(1):
        assert cache.keys.is_meta and cache.values.is_meta and cache.row_lengths().is_meta

"""The Transformer's stack: layers of self-attention, cross-attention and feed-forward networks.

    pre    x + f(norm(x))       Xiong 2020, 3        post   norm(x + f(x))       Vaswani 2017, 3.1
    f      self-attention, cross-attention or FFN;   FFN(x) = relu(x W₁ + b₁) W₂ + b₂
    gated  FFN(x) = (gelu(x W₁) ⊙ x W₃) W₂              Shazeer 2020        rms   x / √mean(x²) · g    Zhang 2019

Training reads all positions together under a causal mask; decoding reads one at a time and keeps the keys and values of
earlier ones in a KV cache (`Cache`). Both give the same result. Positions enter self-attention alone; rotary positions
rotate a key before it is cached.
"""

from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal, cast

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import choose
from regard.interface import Rows
from regard.layers.attention import Linear, Memory, MultiHead, Turn, score
from regard.layers.dropout import Dropout
from regard.layers.fast.packed import Product, joined, runs
from regard.layers.fast.switch import kernels_run
from regard.layers.positions import Positions


def causal(time: int, device: torch.device | str | None = None) -> Tensor:
    """Build the causal mask: each position may attend to itself and to earlier ones, (1, time, time)."""
    return torch.ones(1, time, time, dtype=torch.bool, device=device).tril()


ActivationName = Literal["relu", "gelu", "gelu-tanh", "silu", "tanh"]  # gelu-tanh: approximated, as in GPT-2
ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "relu": F.relu,
    "gelu": F.gelu,
    "gelu-tanh": partial(F.gelu, approximate="tanh"),
    "silu": F.silu,
    "tanh": torch.tanh,
}


class FeedForward(nn.Module):
    """The feed-forward network: activation(x W₁ + b₁) W₂ + b₂, the same at every position."""

    def __init__(
        self,
        *,
        dim: int,
        hidden: int,
        dropout: float = 0.0,
        activation: str = "relu",
        gated: bool = False,
        bias: bool = True,
    ) -> None:
        super().__init__()
        self.widen = nn.Linear(dim, hidden, bias=bias)
        self.narrow = nn.Linear(hidden, dim, bias=bias)
        for linear in (self.widen, self.narrow):
            nn.init.xavier_uniform_(linear.weight)
            if bias:
                nn.init.zeros_(linear.bias)
        self.gate = Linear(dim, hidden, bias=bias) if gated else None
        self.activation = choose(ACTIVATIONS, activation, "The activation")
        self.dropout = Dropout(dropout)

    def forward(self, x: Tensor) -> Tensor:
        wide = self.activation(self.widen(x))
        out: Tensor = self.narrow(self.dropout(wide if self.gate is None else wide * self.gate(x)))
        return out


class LayerNorm(nn.LayerNorm):
    """Layer normalisation: each token by its own mean and variance, so padding has no effect."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return super().forward(x)


class RMSNorm(nn.RMSNorm):
    """Each token by the root of its mean square: no mean is subtracted, and there is no bias."""

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        return super().forward(x)


class BatchNorm(nn.Module):
    """Batch normalisation: each feature by its mean and variance over the real tokens of a batch; after training, by
    running averages."""

    running_mean: Tensor
    running_var: Tensor

    def __init__(self, dim: int, eps: float = 1e-5, *, momentum: float = 0.1) -> None:
        super().__init__()
        self.eps, self.momentum = eps, momentum
        self.weight = nn.Parameter(torch.ones(dim))
        self.bias = nn.Parameter(torch.zeros(dim))
        self.register_buffer("running_mean", torch.zeros(dim))
        self.register_buffer("running_var", torch.ones(dim))

    def forward(self, x: Tensor, real: Tensor | None = None) -> Tensor:
        """x (batch, time, dim), real (batch, time) True where there is a token -> (batch, time, dim)."""
        mean, var = self._measure(x, real) if self.training else (self.running_mean, self.running_var)
        return (x - mean) * (var + self.eps).rsqrt() * self.weight + self.bias

    def _measure(self, x: Tensor, real: Tensor | None) -> tuple[Tensor, Tensor]:
        real = x.new_ones(x.shape[:2]) if real is None else real.to(x.dtype)
        share = (real / real.sum().clamp(min=1))[..., None]  # (batch, time, 1): sums to 1
        mean = (x * share).sum((0, 1))
        var = ((x - mean).square() * share).sum((0, 1))
        with torch.no_grad():
            unbiased = var * real.sum() / (real.sum() - 1).clamp(min=1)
            self.running_mean.lerp_(mean, self.momentum)
            self.running_var.lerp_(unbiased, self.momentum)
        return mean, var


NORMS: dict[str, Callable[[int, float], nn.Module]] = {"layer": LayerNorm, "batch": BatchNorm, "rms": RMSNorm}


def norm_of(name: str, dim: int, epsilon: float) -> nn.Module:
    """Build the normalisation of that name; `epsilon` is added to the variance."""
    return choose(NORMS, name, "The normalisation")(dim, epsilon)


FIRST_CAPACITY = 16  # positions
FAR = 64  # positions from which on it does not matter how close rows lie
SPARE = 2  # positions beyond the longest row of a large cache: it is read twice as fast if its rows lie close together
SMALL = 1 << 18  # numbers of a cache, up to which it stays in the processor's own, and grows by more


@dataclass(frozen=True)
class Cache(Rows):
    """The KV cache: keys and values of the positions read so far. Rows may differ in length.

    The buffers are preallocated and written in place, so a cache can be appended to once.
    """

    keys: Tensor  # (rows, heads, capacity, dim)
    values: Tensor  # (rows, heads, capacity, dim)
    lengths: Tensor | None  # (rows,): positions in each row; None: all rows are as long as the longest
    longest: int  # the longest row, known without waiting for the device

    def append(self, keys: Tensor, values: Tensor, real: Tensor | None = None) -> Cache:
        """Append keys and values (rows, heads, time, dim) to the end of each row.

        With real (rows, time), padded at the end, only real ones count; the next append overwrites the rest.
        """
        if self.lengths is None and real is not None:
            return self._ragged().append(keys, values, real)
        rows, _, time, _ = keys.shape
        longest = self.longest + time
        grown = self._with_room_for(longest)
        if self.lengths is None:
            grown.keys[:, :, self.longest : longest] = keys
            grown.values[:, :, self.longest : longest] = values
            return Cache(grown.keys, grown.values, None, longest)
        row = torch.arange(rows, device=keys.device)[:, None]  # (rows, 1)
        before = self.row_lengths()
        place = before[:, None] + torch.arange(time, device=keys.device)  # (rows, time)
        grown.keys[row, :, place] = keys.transpose(1, 2)
        grown.values[row, :, place] = values.transpose(1, 2)
        lengths = before + (time if real is None else real.sum(1))
        return Cache(grown.keys, grown.values, lengths, longest)

    def pick(self, rows: Tensor) -> Cache:
        """Select rows; only what has been written is copied."""
        lengths, longest = self.lengths, self.longest
        if lengths is not None:
            lengths = lengths.index_select(0, rows)
            if len(rows) < len(self.keys):  # the longest may have left
                longest = int(lengths.max()) if len(rows) else 0
                lengths = None if bool((lengths == longest).all()) else lengths
        kept = Cache(self.keys[:, :, :longest], self.values[:, :, :longest], lengths, longest)
        return dataclasses.replace(kept, keys=kept._picked(kept.keys, rows), values=kept._picked(kept.values, rows))

    def tensors(self) -> dict[str, Tensor]:
        """Return the keys and values that have been written, where all rows have one length."""
        if self.lengths is not None:
            raise ValueError("rows of different lengths are not plain tensors")
        values = {"values": self.values[:, :, : self.longest]} if self.values.shape[3] else {}
        return {"keys": self.keys[:, :, : self.longest], **values}

    def holding(self, tensors: dict[str, Tensor]) -> Cache:
        keys = tensors["keys"]
        return ExactCache(keys, tensors.get("values", keys[..., :0]), None, keys.shape[2])

    def _picked(self, buffer: Tensor, rows: Tensor) -> Tensor:
        fresh = self._fresh(buffer, len(rows), self.longest)
        torch.index_select(buffer, 0, rows, out=fresh[:, :, : self.longest])
        return fresh

    def _fresh(self, like: Tensor, rows: int, longest: int) -> Tensor:
        """Create a buffer with room for a few positions more than the longest row has."""
        _, heads, _, dim = like.shape
        near = longest + SPARE
        capacity = near if rows * heads * near * dim > SMALL and near < FAR else near + longest // 2
        # Zeros where rows differ in length, since a weight of 0 times uninitialised memory might be NaN.
        return (like.new_empty if self.lengths is None else like.new_zeros)(rows, heads, capacity, dim)

    def join(self, other: Cache) -> Cache:
        longest = max(self.longest, other.longest)
        same = self.lengths is None and other.lengths is None and self.longest == other.longest
        lengths = None if same else torch.cat([self.row_lengths(), other.row_lengths()])
        keys, values = self._joined(self.keys, other, other.keys), self._joined(self.values, other, other.values)
        return Cache(keys, values, lengths, longest)

    def _joined(self, buffer: Tensor, other: Cache, below: Tensor) -> Tensor:
        rows, heads, capacity, dim = buffer.shape
        fresh = buffer.new_zeros(rows + len(below), heads, max(capacity, below.shape[2]), dim)
        fresh[:rows, :, : self.longest] = buffer[:, :, : self.longest]
        fresh[rows:, :, : other.longest] = below[:, :, : other.longest]
        return fresh

    def row_lengths(self) -> Tensor:
        """Return the positions in each row, (rows,)."""
        same = torch.full(self.keys.shape[:1], self.longest, device=self.keys.device)
        return same if self.lengths is None else self.lengths

    def _ragged(self) -> Cache:
        """The same cache, whose rows may differ in length from now on: without room, so that new room is zeros."""
        keys, values = self.keys[:, :, : self.longest], self.values[:, :, : self.longest]
        return Cache(keys, values, self.row_lengths(), self.longest)

    def _with_room_for(self, longest: int) -> Cache:
        if longest <= self.keys.shape[2]:
            return self
        keys, values = (self._fresh(buffer, len(buffer), longest) for buffer in (self.keys, self.values))
        keys[:, :, : self.longest] = self.keys[:, :, : self.longest]
        values[:, :, : self.longest] = self.values[:, :, : self.longest]
        return dataclasses.replace(self, keys=keys, values=values)


class ExactCache(Cache):
    """A cache without room for more: appending copies it. Nothing in it depends on a number that Python knows, so that
    a graph of it serves every length."""

    def append(self, keys: Tensor, values: Tensor, real: Tensor | None = None) -> Cache:
        if real is not None:
            raise ValueError("an ExactCache has rows of one length: append without `real`")
        longest = self.longest + keys.shape[2]
        return ExactCache(torch.cat([self.keys, keys], 2), torch.cat([self.values, values], 2), None, longest)


Memories = tuple[Memory, ...]  # one per layer
Caches = tuple[Cache, ...]


def over_cache(cache: Cache, mask: Tensor) -> Tensor:
    """Build the mask of new positions: they may attend to all cached ones, and to one another as `mask` allows.

    mask (rows or 1, 1 or time, time) -> (rows, 1 or time, cache.longest + time).
    """
    time = mask.shape[-1]
    lengths = cache.row_lengths()
    behind = torch.arange(cache.longest + time, device=mask.device) - lengths[:, None]
    behind = behind[:, None].expand(-1, mask.shape[1], -1)  # positions relative to the row's first new one
    among_new = mask.expand(len(lengths), -1, -1).gather(2, behind.clamp(0, time - 1))
    return (behind < 0) | (among_new & (behind < time))


def opened(memories: Memories) -> Memories:
    """Turn the mask that all memories share into numbers that are added to scores, once for all layers; into none if
    nothing is masked. Where a row is masked as a whole, it stays as it is."""
    mask = memories[0].mask
    known = mask is not None and mask.device.type == "cpu" and kernels_run() and not torch.is_grad_enabled()
    if mask is None or not known or mask.is_floating_point() or not bool(mask.any(-1).all()):
        return memories
    bias = None if bool(mask.all()) else torch.where(mask, 0.0, -torch.inf)
    return tuple(memory._replace(mask=bias, open=True) for memory in memories)


class Residual(nn.Module):
    """x + f(norm(x)) (pre) or norm(x + f(x)) (post), in two halves: the input of f, and the sum with its output."""

    def __init__(self, *, norm: nn.Module, dropout: float, pre: bool) -> None:
        super().__init__()
        self.norm = norm
        self.dropout = Dropout(dropout)
        self.pre = pre

    def read(self, x: Tensor, real: Tensor | None) -> Tensor:
        return self.norm(x, real) if self.pre else x

    def add(self, x: Tensor, change: Tensor, real: Tensor | None) -> Tensor:
        x = x + self.dropout(change)
        return x if self.pre else self.norm(x, real)


class Block(nn.Module):
    """Self-attention, cross-attention if there is a memory, and a feed-forward network."""

    def __init__(
        self,
        *,
        cross: bool,
        attention: Callable[[], MultiHead],
        feed_forward: Callable[[], FeedForward],
        residual: Callable[[], Residual],  # builds the residual connection around each part
    ) -> None:
        super().__init__()
        self.self_attention = attention()
        self.self_residual = residual()
        self.cross_attention: MultiHead | None = None
        if cross:
            self.cross_attention = attention()
            self.cross_residual = residual()
        self.feed_forward = feed_forward()
        self.feed_residual = residual()
        self.gathered = not cross  # a memory's keys and values are computed outside of `forward`

    def pack(self, make: Callable[..., Product]) -> tuple[nn.Linear, ...]:
        return self.self_attention.join(make)

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None,
        real: Tensor | None,
        memory: Memory | None,
        cache: Cache | None,
        turn: Turn | None = None,
    ) -> tuple[Tensor, Cache | None]:
        """x (rows, time, dim); mask over the keys of self-attention: the cache, if there is one, and x."""
        query, itself = self.self_attention.within(self.self_residual.read(x, real), mask, turn)
        if cache is not None:
            cache = cache.append(itself.keys, itself.values, real)
            written = slice(cache.longest)
            itself = itself._replace(keys=cache.keys[:, :, written], values=cache.values[:, :, written])
        x = self.self_residual.add(x, self.self_attention.attend(query, itself), real)

        if self.cross_attention is not None:
            if memory is None:
                raise ValueError("a Stack with cross=True needs memories: pass them")
            # An example's hypotheses are additional queries: its memory is shared, never copied.
            read = self.cross_residual.read(x, real)
            queries = read.reshape(memory.keys.shape[0], -1, x.shape[-1])  # (batch, width · time, dim)
            x = self.cross_residual.add(x, self.cross_attention(queries, memory).view_as(x), real)

        x = self.feed_residual.add(x, self.feed_forward(self.feed_residual.read(x, real)), real)
        return x, cache  # (rows, time, dim)


def twin(block: Block) -> Block:
    """A second block with the same parameters; its attention is its own, so that each layer can be watched."""
    second = copy.deepcopy(block)
    for path, parameter in block.named_parameters():
        place, _, name = path.rpartition(".")
        setattr(second.get_submodule(place), name, parameter)
    return second


class Stack(nn.Module):
    """Positions, a stack of blocks, and a final norm if they are pre-norm."""

    place: Tensor  # empty; it has the stack's device and dtype

    def __init__(
        self,
        *,
        dim: int,
        heads: int,
        hidden: int,
        layers: int,
        dropout: float,
        norm: Literal["pre", "post"],
        normalisation: str = "layer",
        activation: str = "relu",
        cross: bool,
        positions: Positions | None = None,  # None: the order of tokens has no effect
        epsilon: float = 1e-5,  # of the norms
        bias: bool = True,  # of every linear layer
        gated: bool = False,  # feed-forward layers have a gate
        head_dim: int = 0,  # width of an attention head; 0: dim / heads
        scaled: bool = True,  # attention scores are divided by √head_dim
        shared: bool = False,  # all layers have the same weights (Lan 2020)
        entry: bool = False,  # a norm before the first layer, after the positions
    ) -> None:
        super().__init__()
        self.dim, self.heads, self.head_dim = dim, heads, head_dim or dim // heads
        self.register_buffer("place", torch.empty(0), persistent=False)
        pre = choose({"pre": True, "post": False}, norm, "The place for the norm")

        def attention() -> MultiHead:
            dot = score("scaled" if scaled else "dot", query_dim=self.head_dim, key_dim=self.head_dim, hidden=0)
            return MultiHead(heads=heads, query_dim=dim, head_dim=head_dim or None, score=dot, bias=bias)

        def residual() -> Residual:
            return Residual(norm=norm_of(normalisation, dim, epsilon), dropout=dropout, pre=pre)

        wide = partial(FeedForward, dim=dim, hidden=hidden, dropout=dropout, activation=activation)
        feed_forward = partial(wide, gated=gated, bias=bias)
        block = partial(Block, cross=cross, attention=attention, feed_forward=feed_forward, residual=residual)
        blocks = [block() for _ in range(1 if shared else layers)]
        blocks += [twin(blocks[0]) for _ in range(layers - len(blocks))]
        self.blocks = cast(Sequence[Block], nn.ModuleList(blocks))
        self.norm = norm_of(normalisation, dim, epsilon) if pre else None
        self.entry = norm_of(normalisation, dim, epsilon) if entry else None
        self.positions = Positions() if positions is None else positions
        self.dropout = Dropout(dropout)
        self.together: Product | None = None  # keys and values of every layer's cross-attention in one packed product

    def crossings(self) -> list[MultiHead]:
        return [block.cross_attention for block in self.blocks if block.cross_attention is not None]

    def pack(self, make: Callable[..., Product]) -> tuple[nn.Linear, ...]:
        linears = tuple(linear for each in self.crossings() for linear in (each.key, each.value))
        self.together = joined(make, linears) if linears else None
        return linears

    def memories(self, states: Tensor, mask: Tensor | None) -> Memories:
        """Prepare each layer's cross-attention: states (batch, source, dim), mask (batch, source)."""
        crossings = self.crossings()
        if self.together is None or not runs(states):
            return tuple(each.memory(states, states, mask) for each in crossings)
        widths = [linear.out_features for each in crossings for linear in (each.key, each.value)]
        parts = torch.split(self.together(states), widths, -1)
        pairs = zip(parts[::2], parts[1::2], strict=True)
        return tuple(each.remember(keys, values, mask) for each, (keys, values) in zip(crossings, pairs, strict=True))

    def forward(
        self,
        x: Tensor,
        *,
        mask: Tensor | None = None,
        real: Tensor | None = None,
        memories: Memories | None = None,
        caches: Caches | None = None,
    ) -> tuple[Tensor, Caches | None]:
        """Run the stack on x (rows, time, dim), before positions are added; mask (rows or 1, 1 or time, time) among
        these positions; real (rows, time).

        With caches, x continues what they hold, and no mask means a causal one. Memories have one row per example;
        x may hold several hypotheses per example, side by side.
        """
        none = (None,) * len(self.blocks)
        places = keys = torch.arange(x.shape[1], device=x.device)  # (time,)
        if caches is not None:  # each row continues from its own length
            behind = caches[0]
            keys = torch.arange(behind.longest + x.shape[1], device=x.device)
            places = places + (behind.longest if behind.lengths is None else behind.lengths[:, None])
            if mask is not None or x.shape[1] > 1 or behind.lengths is not None:
                mask = over_cache(behind, causal(x.shape[1], x.device) if mask is None else mask)
            if memories:
                memories = opened(memories)
        x = self.positions.add(x, places)
        x = self.dropout(x if self.entry is None else self.entry(x, real))
        turn, bias = self.positions.turn(x, places), self.positions.bias(places, keys)
        if bias is not None:  # (rows or 1, heads, time, keys); at least in float32, as the fused kernel wants it
            bias = bias.to(torch.promote_types(x.dtype, torch.float32))
            mask = bias if mask is None else torch.where(mask[:, None], bias, -torch.inf)
        kept = []
        for block, memory, cache in zip(self.blocks, memories or none, caches or none, strict=True):
            x, cache = block(x, mask=mask, real=real, memory=memory, cache=cache, turn=turn)
            kept.append(cache)
        if self.norm is not None:
            x = self.norm(x, real)
        return x, None if caches is None else tuple(kept)  # (rows, time, dim)

    def caches(self, rows: int) -> Caches:
        """Create empty KV caches, one per layer."""
        empty = self.place.new_zeros(rows, self.heads, FIRST_CAPACITY, self.head_dim)
        return tuple(Cache(empty.clone(), empty.clone(), None, 0) for _ in self.blocks)

"""Positional encoding: added to a token's vector, rotating its query and key, or a bias for each pair of positions.

    sinusoidal   x + p(i),  p(i, 2j) = sin(i / 10000^(2j/d)),  p(i, 2j+1) = cos(i / 10000^(2j/d))    Vaswani 2017, 3.5
    learned      x + P[i], a table with one row per position                                         Gehring 2017, 3.1
    rotary       queries and keys are rotated by position: (M_i q)ᵀ (M_j k) = qᵀ M_(j−i) k           Su 2021, 3.2
    alibi        qᵀk − m_h |i − j|,  m_h = 2^(−8h/H) in head h of H                                  Press 2022, 3
    t5           qᵀk + b_h[bucket(j − i)]: learned, one bucket per small distance, then wider ones   Raffel 2020, 2.1
                 for larger distances; all layers of a stack share them

Moving by τ rotates each (sin, cos) pair by one angle: p(t + τ) = M_τ p(t) for every t. With the last three a weight
depends on the distance alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.config import choose
from regard.interface import UserError
from regard.layers.attention import Turn
from regard.layers.fast.switch import kernels_run

AddedName = Literal["sinusoidal", "learned"]  # only added to vectors, so they work without attention
PositionName = Literal["sinusoidal", "sinusoidal-halves", "learned", "rotary", "alibi", "t5"]
FURTHEST = 128  # distance from which all have one bucket
SHORTEST = 64  # places of a table that is kept for decoding
EXACT = 1e-9  # less than any two thresholds differ by


class Positions(nn.Module):
    """Gives a stack the positions of its tokens. This base does nothing; each kind overrides what it needs.

    Places are (time,), or (rows, time) where rows have different positions."""

    longest: int | None = None  # number of positions; None: no limit

    def add(self, x: Tensor, places: Tensor) -> Tensor:
        """Return x (rows, time, dim) with positions added: the same shape."""
        return x

    def turn(self, x: Tensor, places: Tensor) -> Turn | None:
        """Return the rotation of queries and keys, (rows, heads, time, head_dim), for x (rows, time, dim)."""
        return None

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor | None:
        """Return the bias added to the score of each pair: places (rows, target) or (target,), and (source,)
        -> (rows or 1, heads, target, source)."""
        return None

    def forward(self, x: Tensor, places: Tensor) -> Tensor:
        return self.add(x, places)


class Sinusoidal(Positions):
    """Any length, no parameters; computed on demand in x's device and dtype. Sines and cosines alternate, or with
    `halves` all sines come first, as in Marian."""

    def __init__(self, *, dim: int, halves: bool = False) -> None:
        super().__init__()
        self.dim, self.halves = dim, halves

    def add(self, x: Tensor, places: Tensor) -> Tensor:
        return x + self.codes(places, x).to(x.dtype)

    def codes(self, places: Tensor, like: Tensor) -> Tensor:
        """Return p(i) of each place, on the device of `like` and at least in float32: (…, time, dim)."""
        exact = torch.promote_types(like.dtype, torch.float32)
        if torch.is_grad_enabled() or places.device.type != "cpu" or not kernels_run() or not places.numel():
            return _waves(places, self.dim, self.halves, exact)
        last = int(places.max())  # decoding asks for one place at a time
        size = max(SHORTEST, 1 << last.bit_length())
        return functional.embedding(places, _table(size, self.dim, self.halves, exact))


def _waves(places: Tensor, dim: int, halves: bool, exact: torch.dtype) -> Tensor:
    angles = _angles(places, dim, exact)  # (…, time, ⌈dim / 2⌉)
    waves = torch.stack((angles.sin(), angles.cos()), -2 if halves else -1)
    return waves.flatten(-2)[..., :dim]


@lru_cache(maxsize=8)
def _table(size: int, dim: int, halves: bool, exact: torch.dtype) -> Tensor:
    """The codes of the first places, (size, dim)."""
    with torch.inference_mode(False):
        return _waves(torch.arange(size), dim, halves, exact)


class Learned(Positions):
    longest: int

    def __init__(self, *, dim: int, longest: int) -> None:
        super().__init__()
        self.longest = longest
        self.table = nn.Embedding(longest, dim)
        nn.init.normal_(self.table.weight, std=0.02)

    def add(self, x: Tensor, places: Tensor) -> Tensor:
        known = places.numel() and not places.is_meta and not torch.compiler.is_compiling()
        if known and (last := int(places.max())) >= self.longest:
            raise UserError(
                f"A text of {last + 1} tokens is longer than the {self.longest} learned positions: "
                "shorten it, or train with more positions or with sinusoidal ones."
            )
        table: Tensor = self.table(places)  # (…, time, dim)
        return x + table


class Rotary(Positions):
    """Rotates the pair (x₂ⱼ, x₂ⱼ₊₁) of a head's features at position i by i / 10000^(2j/dim)."""

    def __init__(self, *, dim: int) -> None:
        super().__init__()
        if dim % 2:
            raise UserError(
                f"Rotary positions rotate pairs of features, and a head of width {dim} is odd: "
                "choose dim and heads such that dim / heads is even."
            )
        self.dim = dim  # width of a head

    def turn(self, x: Tensor, places: Tensor) -> Turn:
        exact = torch.promote_types(x.dtype, torch.float32)  # half precision has no integers beyond 2048
        angles = _angles(places, self.dim, exact).unsqueeze(-3)  # ([rows,] 1, time, dim / 2)
        turns = torch.polar(torch.ones_like(angles), angles)  # with complex numbers a rotation is one product

        def turn(x: Tensor) -> Tensor:
            pairs = torch.view_as_complex(x.to(angles.dtype).reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)

        return turn


class ALiBi(Positions):
    """Attention with linear biases: the weight falls with distance, in each head at its own rate."""

    slopes: Tensor

    def __init__(self, *, heads: int) -> None:
        super().__init__()
        self.register_buffer("slopes", torch.tensor(alibi_slopes(heads)), persistent=False)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        return _distances(queries, keys).abs() * -self.slopes[:, None, None]


def alibi_slopes(heads: int) -> list[float]:
    """Compute 2^(−8h/H), h = 1 … H, for a power of two; other heads take every second slope of twice as many."""
    power = 2 ** (heads.bit_length() - 1)
    slopes = [2 ** (-8 * head / power) for head in range(1, power + 1)]
    between = [2 ** (-4 * head / power) for head in range(1, 2 * power + 1, 2)]
    return slopes + between[: heads - power]


class T5(Positions):
    """A bias for each head and bucket of distances; `causal`: all buckets are for earlier positions."""

    edges: Tensor  # the first distance of each bucket

    def __init__(self, *, heads: int, causal: bool, buckets: int = 32, furthest: int = FURTHEST) -> None:
        super().__init__()
        self.side = buckets if causal else buckets // 2  # buckets in each direction
        self.causal = causal
        near = self.side // 2  # distances with their own bucket; wider buckets follow up to `furthest`
        growth = (furthest / near) ** (1 / (self.side - near))
        wide = [math.ceil(near * growth**step - EXACT) for step in range(1, self.side - near)]
        self.register_buffer("edges", torch.tensor([*range(1, near + 1), *wide]), persistent=False)
        self.table = nn.Parameter(nn.init.normal_(torch.empty(buckets, heads), std=0.02))

    def bucket(self, distances: Tensor) -> Tensor:
        """Return the bucket of a distance, key minus query."""
        apart = (-distances).clamp(min=0) if self.causal else distances.abs()
        near_or_far = torch.bucketize(apart, self.edges, right=True)
        return near_or_far if self.causal else near_or_far + self.side * (distances > 0)

    def bias(self, queries: Tensor, keys: Tensor) -> Tensor:
        buckets = self.bucket(_distances(queries, keys))[:, 0]  # (rows or 1, target, source)
        return functional.embedding(buckets, self.table).permute(0, 3, 1, 2)


def _distances(queries: Tensor, keys: Tensor) -> Tensor:
    """Compute key minus query: (target,) or (rows, target), and (source,) -> (rows or 1, 1, target, source)."""
    return keys - queries.reshape(-1, 1, queries.shape[-1], 1)


def _angles(places: Tensor, dim: int, exact: torch.dtype) -> Tensor:
    """Compute i / 10000^(2j/dim): (…, time) -> (…, time, ⌈dim / 2⌉)."""
    pairs = torch.arange(0, dim, 2, device=places.device, dtype=exact)
    return places.to(exact)[..., None] / 10000 ** (pairs / dim)


POSITIONS: dict[str, Callable[[int, int, int, bool], Positions]] = {  # of dim, heads, longest, causal
    "sinusoidal": lambda dim, heads, longest, causal: Sinusoidal(dim=dim),
    "sinusoidal-halves": lambda dim, heads, longest, causal: Sinusoidal(dim=dim, halves=True),
    "learned": lambda dim, heads, longest, causal: Learned(dim=dim, longest=longest),
    "rotary": lambda dim, heads, longest, causal: Rotary(dim=dim // heads),
    "alibi": lambda dim, heads, longest, causal: ALiBi(heads=heads),
    "t5": lambda dim, heads, longest, causal: T5(heads=heads, causal=causal),
}


def position(name: str, *, dim: int, longest: int, heads: int = 1, causal: bool = False) -> Positions:
    """Build the positions of that name, for states of width dim; `longest` limits only learned ones."""
    return choose(POSITIONS, name, "The kind of positions")(dim, heads, longest, causal)

"""Where a token stands: added to what it is, x + P[position], or turned into how it looks and is seen.

    sinusoidal   p(i, 2j) = sin(i / 10000^(2j/d)),  p(i, 2j+1) = cos(i / 10000^(2j/d))    Vaswani 2017, 3.5
    learned      a table of vectors, as long as the longest text it was made for          Gehring 2017, 3.1

Moving by τ turns each (sin, cos) pair by one angle: P(t + τ) = M_τ P(t) for every t.

    rotary       queries and keys are turned by M_i themselves, and nothing is added:     Su 2021, 3.2
                 (M_i q)ᵀ (M_j k) = qᵀ M_(j−i) k, so a weight depends on the distance alone
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from regard.config import choose
from regard.interface import UserError

PositionName = Literal["sinusoidal", "learned"]  # those that are added; a Stack turns by rotary ones itself


class Positions(nn.Module):
    """Adds to each token where it stands."""

    longest: int | None = None  # how many positions there are; None: no end of them


class Sinusoidal(Positions):
    """Any length, no parameters: computed when asked for, so it is always of x's device and dtype."""

    def __init__(self, *, dim: int) -> None:
        super().__init__()
        self.dim = dim

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (rows, time, dim), positions (time,) or (rows, time) -> (rows, time, dim)."""
        angles = _angles(positions, self.dim, x)  # (…, time, ⌈dim / 2⌉)
        table = torch.stack((angles.sin(), angles.cos()), -1).flatten(-2)[..., : self.dim]  # (…, time, dim)
        return x + table.to(x.dtype)


class Learned(Positions):
    def __init__(self, *, dim: int, longest: int) -> None:
        super().__init__()
        self.longest = longest
        self.table = nn.Embedding(longest, dim)
        nn.init.normal_(self.table.weight, std=0.02)

    def forward(self, x: Tensor, positions: Tensor) -> Tensor:
        """x (rows, time, dim), positions (time,) or (rows, time) -> (rows, time, dim)."""
        if positions.numel() and not positions.is_meta and (last := int(positions.max())) >= self.table.num_embeddings:
            raise UserError(
                f"A text of {last + 1} tokens is longer than the {self.longest} learned positions: "
                "shorten it, or train with more positions or with sinusoidal ones."
            )
        table: Tensor = self.table(positions)  # (…, time, dim)
        return x + table


class Rotation:
    """Turns the pair (x₂ⱼ, x₂ⱼ₊₁) of a head's features at position i by i / 10000^(2j/dim)."""

    def __init__(self, *, dim: int) -> None:
        if dim % 2:
            raise UserError(
                f"Rotary positions turn features two by two, and a head of width {dim} leaves one over: "
                "choose dim and heads such that dim / heads is even."
            )
        self.dim = dim

    def at(self, positions: Tensor, like: Tensor) -> Callable[[Tensor], Tensor]:
        """The turn of (rows, heads, time, dim) at positions (time,) or (rows, time), with `like`'s precision."""
        angles = _angles(positions, self.dim, like).unsqueeze(-3)  # ([rows,] 1, time, dim / 2)
        turns = torch.polar(torch.ones_like(angles), angles)  # as complex numbers a turn is one product

        def turn(x: Tensor) -> Tensor:
            pairs = torch.view_as_complex(x.to(angles.dtype).reshape(*x.shape[:-1], -1, 2))
            return torch.view_as_real(pairs * turns).flatten(-2).to(x.dtype)

        return turn


def _angles(positions: Tensor, dim: int, like: Tensor) -> Tensor:
    """i / 10000^(2j/dim): (…, time) -> (…, time, ⌈dim / 2⌉)."""
    exact = torch.promote_types(like.dtype, torch.float32)  # half precision cannot count beyond 2048
    pairs = torch.arange(0, dim, 2, device=like.device, dtype=exact)
    return positions.to(exact)[..., None] / 10000 ** (pairs / dim)


POSITIONS: dict[str, Callable[[int, int], Positions]] = {  # of dim, longest
    "sinusoidal": lambda dim, longest: Sinusoidal(dim=dim),
    "learned": lambda dim, longest: Learned(dim=dim, longest=longest),
}


def position(name: str, *, dim: int, longest: int) -> Positions:
    """The positions of that name."""
    return choose(POSITIONS, name, "The kind of positions")(dim, longest)

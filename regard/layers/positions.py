"""Where a token stands, added to what it is: x + P[position].

    sinusoidal   p(i, 2j) = sin(i / 10000^(2j/d)),  p(i, 2j+1) = cos(i / 10000^(2j/d))    Vaswani 2017, 3.5
    learned      a table of vectors, as long as the longest text it was made for          Gehring 2017, 3.1

Moving by τ turns each (sin, cos) pair by one angle: P(t + τ) = M_τ P(t) for every t.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from regard.interface import UserError
from regard.layers.attention import choose

PositionName = Literal["sinusoidal", "learned"]


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
        exact = torch.promote_types(x.dtype, torch.float32)  # half precision cannot count beyond 2048
        pairs = torch.arange(0, self.dim, 2, device=x.device, dtype=exact)
        angles = positions.to(exact)[..., None] / 10000 ** (pairs / self.dim)  # (…, time, ⌈dim / 2⌉)
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


POSITIONS: dict[str, Callable[[int, int], Positions]] = {  # of dim, longest
    "sinusoidal": lambda dim, longest: Sinusoidal(dim=dim),
    "learned": lambda dim, longest: Learned(dim=dim, longest=longest),
}


def position(name: str, *, dim: int, longest: int) -> Positions:
    """The positions of that name."""
    return choose(POSITIONS, name, "kind of positions")(dim, longest)

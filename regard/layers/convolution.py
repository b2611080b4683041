"""Convolution over time: each token is combined with its neighbours.

relu    cᵢ = relu(W x + b), in windows x of several widths side by side         Kim 2014, section 2
gated   yᵢ = (A x + b) ⊙ σ(B x + c): a gate for each feature                    Dauphin 2016; Gehring 2017, 3.2
A window x = [xᵢ₋ᵦ; …; xᵢ₊ₐ] of w = b + 1 + a tokens is centred at its token (b = ⌊(w−1)/2⌋), or causal (a = 0).
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.layers.dropout import Dropout


def windows_of(x: Tensor, width: int) -> Tensor:
    """Return all windows of `width` consecutive tokens: (rows, time, dim) -> (rows, time − width + 1, width · dim)."""
    count = x.shape[1] - width + 1
    return torch.cat([x[:, first : first + count] for first in range(width)], -1)


def with_ends(x: Tensor, width: int) -> Tensor:
    """Pad x with width − 1 zeros in total at both ends, so that each token has a window around it."""
    before = (width - 1) // 2
    return functional.pad(x, (0, 0, before, width - 1 - before))


class Windows(nn.Module):
    """(batch, time, input_dim) -> (batch, time, filters · widths); what is beyond the ends, or padding, is 0."""

    def __init__(self, *, input_dim: int, filters: int, widths: Sequence[int]) -> None:
        super().__init__()
        self.widths = tuple(widths)
        self.output_dim = filters * len(self.widths)
        kernels = [nn.Linear(width * input_dim, filters) for width in self.widths]
        for kernel in kernels:
            nn.init.xavier_uniform_(kernel.weight)
            nn.init.zeros_(kernel.bias)
        self.kernels = nn.ModuleList(kernels)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        real = mask[..., None]
        x = x.masked_fill(~real, 0.0)
        seen = [
            torch.relu(kernel(windows_of(with_ends(x, width), width)))
            for width, kernel in zip(self.widths, self.kernels, strict=True)
        ]
        return torch.cat(seen, dim=-1).masked_fill(~real, 0.0)


def evenly(one: Tensor, other: Tensor) -> Tensor:
    """Compute √½ (x + y), which keeps the variance however many such sums follow (Gehring 2017, 3.4)."""
    return (one + other) * math.sqrt(0.5)


def steady(inputs: int, outputs: int, *, gain: float = 1.0) -> nn.Linear:
    """Build a linear layer whose output is initially √gain times as large as its input (Gehring 2017, 3.5)."""
    linear = nn.Linear(inputs, outputs)
    nn.init.normal_(linear.weight, std=math.sqrt(gain / inputs))
    nn.init.zeros_(linear.bias)
    return linear


class GatedConvolution(nn.Module):
    """(rows, time, dim) -> (rows, time − width + 1, dim), by the windows within x; dropout on the input.

    The caller pads x: with zeros around a source, with the tokens before in a target.
    """

    def __init__(self, *, dim: int, width: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dim, self.width = dim, width
        self.dropout = Dropout(dropout)
        # A gate passes at most half of the variance: with a gain of 2 no layer enlarges its input. The paper's gain of
        # 4 is for vectors near 0; deep stacks of larger ones overflow.
        self.kernel = steady(width * dim, 2 * dim, gain=2 * (1 - dropout))

    def forward(self, x: Tensor) -> Tensor:
        return functional.glu(self.kernel(windows_of(self.dropout(x), self.width)))

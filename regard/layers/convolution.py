"""Convolution over time: each token with its neighbours, in windows of several widths side by side.

cᵢ = relu(W x_{i − ⌊w/2⌋ : i + ⌈w/2⌉} + b), for windows of w tokens          Kim 2014, section 2
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn
from torch.nn import functional


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
        seen = []
        for width, kernel in zip(self.widths, self.kernels, strict=True):
            before = (width - 1) // 2
            padded = functional.pad(x, (0, 0, before, width - 1 - before))
            windows = padded.unfold(1, width, 1).transpose(2, 3).flatten(2)  # (batch, time, width · input_dim)
            seen.append(torch.relu(kernel(windows)))
        return torch.cat(seen, dim=-1).masked_fill(~real, 0.0)

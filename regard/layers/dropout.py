"""Dropout: each number is 0 with probability p, and the others grow so that the mean stays (Srivastava 2014, 4).

torch's own dropout samples a float for every number, on one core: a third of a small Transformer's training step. Here
one random byte decides, so p is rounded to the nearest 1/256 above 0, and the scale is that of the rounded p.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

CHANCES = 256  # values of a byte


class Dropout(nn.Dropout):
    def forward(self, x: Tensor) -> Tensor:
        if not self.training:
            return x
        if self.p in (0.0, 1.0) or x.device.type != "cpu":
            return super().forward(x)
        dropped = min(max(1, round(self.p * CHANCES)), CHANCES - 1)
        words = torch.empty(-(-x.numel() // 8), dtype=torch.int64).random_(-(2**63), None)
        bytes_ = words.view(torch.uint8)[: x.numel()].view(x.shape)
        return x * (bytes_ >= dropped).to(x.dtype).mul_(CHANCES / (CHANCES - dropped))

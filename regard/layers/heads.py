"""Heads: from hidden states to a distribution over the vocabulary, and the loss that trains it.

logits = h Wᵀ + b;   loss = −Σₜ [(1 − ε) log p(yₜ) + ε/V Σᵥ log p(v)]   (label smoothing ε: Szegedy 2016, section 7)
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.interface import PAD, Loss


class SoftmaxHead(nn.Module):
    """A linear layer over the vocabulary, its matrix its own or shared with an embedding."""

    def __init__(self, *, dim: int, vocab: int, tied: nn.Parameter | None = None, smoothing: float = 0.0) -> None:
        super().__init__()
        if tied is None:
            tied = nn.Parameter(torch.empty(vocab, dim))
            nn.init.xavier_uniform_(tied)
        self.weight = tied  # (vocab, dim)
        self.bias = nn.Parameter(torch.zeros(vocab))
        self.smoothing = smoothing

    def logits(self, hidden: Tensor) -> Tensor:
        return nn.functional.linear(hidden, self.weight, self.bias)  # (…, dim) -> (…, vocab)

    def loss(self, hidden: Tensor, targets: Tensor) -> Loss:
        """hidden (batch, target, dim), targets (batch, target); padding costs neither loss nor time."""
        real = targets != PAD
        targets = targets[real]
        log_probs = self.logits(hidden[real]).float().log_softmax(-1)  # (tokens, vocab)
        nll = -log_probs.gather(-1, targets[:, None]).sum()
        objective = nll
        if self.training and self.smoothing:
            objective = (1 - self.smoothing) * nll - self.smoothing * log_probs.mean(-1).sum()
        return Loss(objective, nll.detach(), targets.numel())

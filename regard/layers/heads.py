"""Heads: from hidden states to a distribution over the vocabulary, and the loss that trains it.

logits = h Wᵀ + b;   loss = −Σₜ [(1 − ε) log p(yₜ) + ε/V Σᵥ log p(v)]   (label smoothing ε: Szegedy 2016, section 7)
∂loss/∂logits = p − (1 − ε) onehot(y) − ε/V, so the gradient can be formed where the logits stand, a few rows at a time.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable

from regard.interface import PAD, Loss

ROWS_AT_ONCE = 2048  # tokens whose logits are in memory together


class _SoftmaxLoss(torch.autograd.Function):
    """Sums of the objective and of −log p(y); one array of logits, which becomes its own gradient."""

    @staticmethod
    def forward(
        ctx: Any, hidden: Tensor, weight: Tensor, bias: Tensor, targets: Tensor, smoothing: float
    ) -> tuple[Tensor, Tensor]:
        learning = any(ctx.needs_input_grad)
        exact = torch.promote_types(hidden.dtype, torch.float32)
        matrix = weight.to(hidden.dtype)  # under autocast the hidden states come in bf16
        objective = nll = torch.zeros((), dtype=exact, device=hidden.device)
        slopes, matrix_slope, bias_slope = [], torch.zeros_like(weight), torch.zeros_like(bias)
        for few, answers in zip(torch.split(hidden, ROWS_AT_ONCE), torch.split(targets, ROWS_AT_ONCE), strict=True):
            logits = nn.functional.linear(few, matrix).to(exact).add_(bias)  # (tokens, vocab)
            logits -= logits.logsumexp(-1, keepdim=True)
            few_nll = -logits.gather(-1, answers[:, None]).sum()
            spread = -logits.mean(-1).sum() if smoothing else few_nll
            nll = nll + few_nll
            objective = objective + (1 - smoothing) * few_nll + smoothing * spread
            if learning:
                slope = logits.exp_()
                slope[torch.arange(len(answers), device=answers.device), answers] -= 1 - smoothing
                if smoothing:
                    slope -= smoothing / slope.shape[-1]
                bias_slope += slope.sum(0)
                slope = slope.to(hidden.dtype)
                slopes.append(slope @ matrix)
                matrix_slope += slope.t() @ few
        if learning:
            ctx.save_for_backward(torch.cat(slopes), matrix_slope, bias_slope)
        ctx.mark_non_differentiable(nll)
        return objective, nll

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, share: Tensor, _: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        hidden, weight, bias = ctx.saved_tensors
        return hidden * share.to(hidden.dtype), weight * share, bias * share, None, None


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
        smoothing = self.smoothing if self.training else 0.0
        objective, nll = _SoftmaxLoss.apply(hidden[real], self.weight, self.bias, targets, smoothing)  # type: ignore[no-untyped-call]
        return Loss(objective, nll.detach(), targets.numel())

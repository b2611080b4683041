"""Optimisers: AdamW, and Muon, which trains the matrices of hidden layers by orthogonal updates.

adamw   θ ← θ − γ (m̂ / (√v̂ + ε) + λθ)                                                               Loshchilov 2019
muon    B ← μB + (1 − μ)g;   θ ← θ − γ (0.2 √max(rows, columns) · orthogonal(μB + (1 − μ)g) + λθ)        Jordan 2024
        orthogonal(U Σ Vᵀ) ≈ U Vᵀ, by five steps of a polynomial: X ← aX + (bA + cA²)X with A = XXᵀ
        the factor gives an update the size that AdamW's has, so that one learning rate serves both      Liu 2025, 2.2

A hidden layer is a linear layer, a convolution or a recurrent cell. Embeddings, biases, norms and matrices that are
narrow or long, such as output layers, learn by AdamW in either case.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from math import sqrt
from typing import Any, Literal

import torch
from torch import Tensor, nn

from regard.layers.inside import matrices_in

OptimiserName = Literal["adamw", "muon"]
ADAMW, MUON = ("step", "exp_avg", "exp_avg_sq"), ("momentum",)  # what each keeps of a parameter
MOMENTUM = 0.95
QUINTIC = (3.4445, -4.7750, 2.0315)  # a, b, c: small singular values grow fast, all end between 0.7 and 1.2
ROUNDS = 5
SIZE = 0.2  # root mean square of an update of AdamW, in learning rates
NARROW, LONG = 16, 16  # least width of a matrix, and how many times as long as wide it may be


def hidden_matrices(model: nn.Module) -> set[nn.Parameter]:
    """Return the matrices of hidden layers."""
    return {weight for *_, weight in matrices_in(model) if is_balanced(weight)}


def is_balanced(weight: Tensor) -> bool:
    """Whether a matrix is neither narrow nor long; a convolution's is read as (outputs, inputs · places)."""
    short, long = sorted((len(weight), weight.numel() // max(1, len(weight))))
    return short >= NARROW and long <= LONG * short


def orthogonal(matrices: Tensor) -> Tensor:
    """Return matrices with singular values of about 1: (count, rows, columns) -> (count, rows, columns)."""
    wide = matrices.shape[1] <= matrices.shape[2]
    x = matrices if wide else matrices.mT
    x = x / (torch.linalg.vector_norm(x, dim=(1, 2), keepdim=True) + 1e-7)
    a, b, c = QUINTIC
    for _ in range(ROUNDS):
        gram = x @ x.mT
        x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x if wide else x.mT


class Optimiser(torch.optim.AdamW):
    """AdamW; the groups of parameters with `muon` learn by Muon. Products are computed in `dtype`."""

    def __init__(self, groups: list[dict[str, Any]], *, lr: float, fused: bool, dtype: torch.dtype) -> None:
        super().__init__(groups, lr=lr, betas=(0.9, 0.98), eps=1e-9, fused=fused)
        self.dtype = dtype

    @torch.no_grad()
    def step(self, closure: Callable[[], float] | None = None) -> float | None:  # type: ignore[override]
        every = self.param_groups
        try:
            self.param_groups = [group for group in every if not group["muon"]]
            found: float | None = super().step(closure)
        finally:
            self.param_groups = every
        for group in every:
            alike = defaultdict[torch.Size, list[Tensor]](list)  # many small products are faster together
            for weight in group["params"] if group["muon"] else ():
                if weight.grad is not None:
                    alike[weight.shape].append(weight)
            for weights in alike.values():
                self._update(weights, group["lr"], group["weight_decay"])
        return found

    def _update(self, weights: list[Tensor], rate: float, decay: float) -> None:
        """Update matrices of one shape."""
        wanted = []
        for weight in weights:
            gradient, state = weight.grad, self.state[weight]
            assert gradient is not None
            momentum = state.setdefault("momentum", torch.zeros_like(weight)).lerp_(gradient, 1 - MOMENTUM)
            wanted.append(gradient.lerp(momentum, MOMENTUM).flatten(1))
        updates = orthogonal(torch.stack(wanted).to(self.dtype)).to(weights[0].dtype)
        for weight, update in zip(weights, updates, strict=True):
            size = SIZE * sqrt(max(update.shape))
            weight.mul_(1 - rate * decay).add_(update.reshape(weight.shape), alpha=-rate * size)

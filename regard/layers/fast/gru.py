"""gru-after over all time steps, with an explicit backward pass: faster than PyTorch's kernel, which computes the
gradient of the weights at each step and sums them.

    R, Z = σ(Xₜ + Hₜ₋₁ W + b),  U = Hₜ₋₁ Wₕₕ + bₕ,  H̃ = tanh(Xₕ + R ⊙ U),  Hₜ = Z ⊙ Hₜ₋₁ + (1 − Z) ⊙ H̃
    δH̃ = δHₜ ⊙ (1 − Z) ⊙ (1 − H̃²);   δR = δH̃ ⊙ U ⊙ R (1 − R);   δZ = δHₜ ⊙ (Hₜ₋₁ − H̃) ⊙ Z (1 − Z);   δU = δH̃ ⊙ R
    δHₜ₋₁ = δHₜ ⊙ Z + [δR δZ δU] Wᵀ;   δX = [δR δZ δH̃];   δW = Σₜ Hₜ₋₁ᵀ [δR δZ δU], one product for all steps
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable


def _times(x: Tensor, matrix: Tensor) -> Tensor:
    """Compute x @ matrix in the matrix's precision, and return it in that of x."""
    return x @ matrix if x.dtype == matrix.dtype else (x.to(matrix.dtype) @ matrix).to(x.dtype)


class GatedPass(torch.autograd.Function):
    """(time, rows, 3·hidden), (rows, hidden), weight (3·hidden, hidden), bias, real (time, rows, 1) or None
    -> states after each step (time, rows, hidden); at padding a row's state does not change.

    The weight may have a lower precision than the rest: only the products then have it too."""

    @staticmethod
    def forward(ctx: Any, inputs: Tensor, first: Tensor, weight: Tensor, bias: Tensor, real: Tensor | None) -> Tensor:
        time, rows, _ = inputs.shape
        hidden = first.shape[-1]
        states = inputs.new_empty(time + 1, rows, hidden)
        gates, candidates, recalled = (inputs.new_empty(time, rows, n * hidden) for n in (2, 1, 1))
        states[0] = first
        back = weight.t()
        for t in range(time):
            product = _times(states[t], back).add_(bias)
            torch.add(inputs[t, :, : 2 * hidden], product[:, : 2 * hidden], out=gates[t]).sigmoid_()
            recalled[t] = product[:, 2 * hidden :]
            torch.addcmul(inputs[t, :, 2 * hidden :], gates[t, :, :hidden], recalled[t], out=candidates[t]).tanh_()
            torch.lerp(candidates[t], states[t], gates[t, :, hidden:], out=states[t + 1])
            if real is not None:
                torch.where(real[t], states[t + 1], states[t], out=states[t + 1])
        ctx.save_for_backward(states, gates, candidates, recalled, weight, real)
        return states[1:]

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slopes: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, None]:
        states, gates, candidates, recalled, weight, real = ctx.saved_tensors
        time, rows, hidden = slopes.shape
        for_inputs, for_product = (slopes.new_empty(time, rows, 3 * hidden) for _ in range(2))
        down = slopes.new_zeros(rows, hidden)
        # factors that do not depend on the next step are computed for all steps together
        shut = gates * (1 - gates)  # σ' of R and Z
        past_tanh = (1 - gates[..., hidden:]).mul_(1 - candidates.square())
        to_keep = (states[:-1] - candidates).mul_(shut[..., hidden:])
        to_reset = recalled.mul(shut[..., :hidden])
        for t in reversed(range(time)):
            down = down + slopes[t]
            moved = down if real is None else down * real[t]
            candidate = torch.mul(moved, past_tanh[t], out=for_inputs[t, :, 2 * hidden :])
            torch.mul(candidate, to_reset[t], out=for_inputs[t, :, :hidden])
            torch.mul(moved, to_keep[t], out=for_inputs[t, :, hidden : 2 * hidden])
            for_product[t, :, : 2 * hidden] = for_inputs[t, :, : 2 * hidden]
            torch.mul(candidate, gates[t, :, :hidden], out=for_product[t, :, 2 * hidden :])
            kept = moved * gates[t, :, hidden:]
            kept = kept if real is None else torch.where(real[t], kept, down)
            down = kept.add_(_times(for_product[t], weight))
        flat = for_product.view(time * rows, -1)
        before = states[:-1].reshape(time * rows, hidden)
        for_weight = flat.to(weight.dtype).t() @ before.to(weight.dtype)
        return for_inputs, down, for_weight, flat.sum(0), None

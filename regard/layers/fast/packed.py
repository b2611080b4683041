"""Linear maps whose weights are packed once, in the layout that the processor's kernel reads: inference on a CPU.

    fp32   y = x Wᵀ + b
    bf16   the same, with x, W and y rounded to bfloat16
    int8   W ≈ s ⊙ Q, a scale for each output;  x ≈ t ⊙ P, a scale for each row;  y = t ⊙ s ⊙ (P Qᵀ) + b

The plain weights stay where they are, and compute where gradients are wanted. A row's result in int8 does not depend on
the rows beside it, since it has its own scale.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import partial
from typing import Literal, Protocol, Self, runtime_checkable

import torch
from torch import Tensor, nn
from torch.nn import functional

from regard.interface import UserError
from regard.layers.fast.switch import kernels_run

Precision = Literal["fp32", "bf16", "int8"]
Product = Callable[[Tensor], Tensor]  # (…, inputs) -> (…, outputs), both float32
LEAST = 64 * 64  # weights of a matrix that is packed; smaller ones gain nothing
ALONE = 1 << 20  # weights of a matrix that stays as it is for a single row: converting the row would take longer
LEVELS = 127  # of a number in int8, on either side of 0
SIGN = 128  # P + 128 has no sign: kernels read unsigned rows
TINY = 1e-30  # instead of the scale of a row of zeros


@runtime_checkable
class Packs(Protocol):
    """A module with weights of its own that it multiplies by, beside those of the linear layers inside it."""

    def pack(self, make: Callable[..., Product]) -> tuple[nn.Linear, ...]:
        """Make products of weights: make(weight, bias). Return the linear layers that need none of their own then."""
        ...


def pack(model: nn.Module, precision: Precision, *, least: int = LEAST, alone: int = ALONE) -> None:
    """Give every linear map of at least so many weights a packed product; the model is not trained any more. A matrix
    of at most `alone` weights multiplies a single row as it is."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        if precision == "fp32":
            return
        raise UserError(f"precision {precision} needs oneDNN, which this build of PyTorch lacks: choose fp32.")

    def make(weight: Tensor, bias: Tensor | None = None) -> Product:
        weight, bias = weight.detach(), None if bias is None else bias.detach()
        if weight.numel() < least or weight.dtype is not torch.float32:
            return partial(functional.linear, weight=weight, bias=bias)
        packed = KINDS[precision](weight, bias)
        return packed if weight.numel() > alone else Alone(weight, bias, packed)

    replaced = {linear for module in model.modules() if isinstance(module, Packs) for linear in module.pack(make)}
    for module in model.modules():
        if isinstance(module, nn.Linear) and module not in replaced:
            module.forward = Drop(module, make(module.weight, module.bias))  # type: ignore[method-assign, assignment]


def runs(x: Tensor) -> bool:
    """Return whether a packed product may run: nobody wants gradients or counts operations."""
    return not torch.is_grad_enabled() and x.dtype is torch.float32 and kernels_run()


class Drop:
    """The forward pass of a linear layer with a packed product beside its own."""

    def __init__(self, linear: nn.Linear, packed: Product) -> None:
        self.linear, self.packed = linear, packed

    def __call__(self, x: Tensor) -> Tensor:
        return self.packed(x) if runs(x) else functional.linear(x, self.linear.weight, self.linear.bias)


class Alone:
    """A product that leaves the weights as they are for a single row."""

    def __init__(self, weight: Tensor, bias: Tensor | None, packed: Product) -> None:
        self.weight, self.bias, self.packed = weight, bias, packed

    def __call__(self, x: Tensor) -> Tensor:
        one = x.numel() == self.weight.shape[1]
        return functional.linear(x, self.weight, self.bias) if one else self.packed(x)


class Packed:
    """Packed weights never change, and cannot be copied: a copy of the model shares them."""

    def __deepcopy__(self, memo: object) -> Self:
        return self


class Full(Packed):
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.weight, self.bias = torch.ops.mkldnn._reorder_linear_weight(weight.contiguous()), bias
        self.call = torch.ops.mkldnn._linear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = self.call(x, self.weight, self.bias, "none", [], "")
        return y


class Half(Full):
    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        super().__init__(weight.bfloat16(), None if bias is None else bias.bfloat16())

    def __call__(self, x: Tensor) -> Tensor:
        return super().__call__(x.bfloat16()).float()


class Byte(Packed):
    """The kernel computes s ⊙ ((P + 128) Qᵀ) + e, with e = −128 s ⊙ (sum of each row of Q)."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        self.scale = weight.abs().amax(1).clamp_(min=TINY) / LEVELS  # (outputs,)
        levels = (weight / self.scale[:, None]).round_()
        self.weight = torch.ops.onednn.qlinear_prepack(levels.to(torch.int8), None)
        self.zero = torch.zeros_like(self.scale, dtype=torch.int32)
        self.offset = -SIGN * levels.sum(1) * self.scale
        self.bias, self.least, self.sign = bias, torch.tensor(TINY), torch.tensor(-SIGN, dtype=torch.int8)
        self.call = torch.ops.onednn.qlinear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        scale = torch.add(self.least, x.abs().amax(-1, keepdim=True), alpha=1 / LEVELS)  # (…, 1)
        # by way of int8, to which PyTorch converts several numbers at once; the sign bit then becomes 128
        levels = (x / scale).round_().to(torch.int8).bitwise_xor_(self.sign).view(torch.uint8)
        levelled = (levels, 1.0, 0, self.weight, self.scale, self.zero, self.offset, 1.0, 0, torch.float32)
        y: Tensor = self.call(*levelled, "none", [], "")
        y.mul_(scale)
        return y if self.bias is None else y.add_(self.bias)


KINDS: dict[str, Callable[[Tensor, Tensor | None], Product]] = {"fp32": Full, "bf16": Half, "int8": Byte}


def joined(make: Callable[..., Product], linears: Iterable[nn.Linear]) -> Product:
    """Make one product of several linear maps of the same input; the outputs lie side by side."""
    every = list(linears)
    weights: list[Tensor] = [linear.weight for linear in every]
    biases: list[Tensor] = [linear.bias for linear in every if linear.bias is not None]
    return make(torch.cat(weights), torch.cat(biases) if biases else None)

"""Linear maps whose weights are packed once, in the layout that the processor's kernel reads: inference on a CPU.

    fp32   y = x Wᵀ + b
    bf16   the same, with x, W and y rounded to bfloat16
    int8   W ≈ s ⊙ Q, a scale for each output;  x ≈ t ⊙ P, a scale for each row;  y = t ⊙ s ⊙ (P Qᵀ) + b

In int8 the product that is fastest for so many rows and weights runs: for a few rows x stays in bfloat16, since reading
the weights is what takes time; where finding t would take longer than the product saves, the product is that of bf16.
The plain weights stay where they are, and compute where gradients are wanted.
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
SMALL = 600_000  # weights up to which many rows in int8 take longer than in bf16
LARGE = 1 << 20  # weights above which a few rows take the kernel of many, whose output is float32: output layers
FEW = 8  # rows
ALIGNED = 64  # inputs and outputs of a product of a few rows are a multiple of it: its kernel reads whole vectors
LEVELS = 127  # of a number in int8, on either side of 0
SIGN = 128  # P + 128 has no sign: kernels read unsigned rows
TINY = 1e-30  # instead of the scale of a row of zeros


@runtime_checkable
class Packs(Protocol):
    """A module with weights of its own that it multiplies by, beside those of the linear layers inside it."""

    def pack(self, make: Callable[..., Product]) -> tuple[nn.Linear, ...]:
        """Make products of weights: make(weight, bias); with exact=True, y is never rounded to bfloat16, in which
        logits that differ little would be equal. Return the linear layers that need none of their own then."""
        ...


def pack(
    model: nn.Module,
    precision: Precision,
    *,
    least: int = LEAST,
    small: int = SMALL,
    large: int = LARGE,
) -> None:
    """Give every linear map of at least so many weights a packed product; the model is not trained any more. The
    constants say what the other numbers are."""
    if not torch.backends.mkldnn.is_available():  # type: ignore[no-untyped-call]
        if precision == "fp32":
            return
        raise UserError(f"precision {precision} needs oneDNN, which this build of PyTorch lacks: choose fp32.")

    def make(weight: Tensor, bias: Tensor | None = None, *, exact: bool = False) -> Product:
        weight, bias = weight.detach(), None if bias is None else bias.detach()
        if weight.numel() < least or weight.dtype is not torch.float32:
            return partial(functional.linear, weight=weight, bias=bias)
        if exact and precision == "int8" and weight.numel() > small:
            return Byte(weight, bias)
        if exact or precision != "int8":
            return (Full if exact or precision == "fp32" else Half)(weight, bias)
        many = (Half if weight.numel() <= small else Byte)(weight, bias)
        fits = not any(size % ALIGNED for size in weight.shape) and weight.numel() <= large
        return ByRows(Few(weight, bias), many) if fits else many

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


class ByRows:
    """One product for a few rows, another for many."""

    def __init__(self, few: Few, many: Product) -> None:
        self.few, self.many, self.most = few, many, FEW * few.inputs

    def __call__(self, x: Tensor) -> Tensor:
        return self.few(x) if x.numel() <= self.most else self.many(x)


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
        self.scale, levels = levelled(weight)
        self.inputs, self.outputs = weight.shape[1], weight.shape[0]
        self.weight = torch.ops.onednn.qlinear_prepack(levels.to(torch.int8), None)
        self.zero = torch.zeros_like(self.scale, dtype=torch.int32)
        self.offset = -SIGN * levels.sum(1) * self.scale
        self.bias, self.least, self.sign = bias, torch.tensor(TINY), torch.tensor(-SIGN, dtype=torch.int8)
        self.call = torch.ops.onednn.qlinear_pointwise.default

    def __call__(self, x: Tensor) -> Tensor:
        rows = x.reshape(-1, self.inputs) if x.dim() > 2 else x
        scale = torch.add(self.least, rows.abs().amax(-1, keepdim=True), alpha=1 / LEVELS)  # (rows, 1)
        # by way of int8, to which PyTorch converts several numbers at once; the sign bit then becomes 128
        levels = (rows / scale).round_().to(torch.int8).bitwise_xor_(self.sign).view(torch.uint8)
        levelled = (levels, 1.0, 0, self.weight, self.scale, self.zero, self.offset, 1.0, 0, torch.float32)
        y: Tensor = self.call(*levelled, "none", [], "")
        y = y.mul_(scale) if self.bias is None else torch.addcmul(self.bias, y, scale)
        return y.view(*x.shape[:-1], self.outputs) if x.dim() > 2 else y


class Few(Packed):
    """A few rows by int8 weights: y = s ⊙ (x Qᵀ) + b, x in bfloat16. Reading the weights takes longest then."""

    def __init__(self, weight: Tensor, bias: Tensor | None) -> None:
        scale, levels = levelled(weight)
        self.scale, self.weight, self.bias = scale.bfloat16(), levels.to(torch.int8), bias
        self.inputs, self.outputs = weight.shape[1], weight.shape[0]

    def __call__(self, x: Tensor) -> Tensor:
        y = torch._weight_int8pack_mm(x.reshape(-1, self.inputs).bfloat16(), self.weight, self.scale)
        y = y.float() if self.bias is None else torch.add(self.bias, y)
        return y.view(*x.shape[:-1], self.outputs)


def levelled(weight: Tensor) -> tuple[Tensor, Tensor]:
    """Return the scale of each output, a number that bfloat16 has too, and the weights divided by it and rounded."""
    scale = (weight.abs().amax(1).clamp_(min=TINY) / LEVELS * (1 + 2**-7)).bfloat16().float()  # (outputs,)
    return scale, (weight / scale[:, None]).round_()


def joined(make: Callable[..., Product], linears: Iterable[nn.Linear]) -> Product:
    """Make one product of several linear maps of the same input; the outputs lie side by side."""
    every = list(linears)
    weights: list[Tensor] = [linear.weight for linear in every]
    biases: list[Tensor] = [linear.bias for linear in every if linear.bias is not None]
    return make(torch.cat(weights), torch.cat(biases) if biases else None)

"""Products with a weight that many steps share: its gradient comes from one product, not from one per step.

    dW = Σₜ xₜᵀ gₜ = [x₁; …; x_T]ᵀ [g₁; …; g_T]

Inside `gathered(module)`, x @ W, addmm(b, x, W) and linear(x, W) with a matrix of the module store (xₜ, gₜ) in
the backward pass; after the last of them, one large product computes W's gradient. The code of a step stays the same,
and so do its values. Second derivatives are not supported.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn import functional
from torch.overrides import TorchFunctionMode

Left = dict[int, list[tuple[Tensor, Tensor]]]  # backward pass -> input and output gradient of each product


class _Shared(torch.autograd.Function):
    """The identity on the matrix; its backward pass computes the matrix's gradient."""

    @staticmethod
    def forward(ctx: Any, matrix: Tensor, left: Left) -> Tensor:
        ctx.left = left
        ctx.set_materialize_grads(False)
        return matrix.view_as(matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor | None) -> tuple[Tensor | None, None]:
        read, got = zip(*ctx.left.pop(torch._C._current_graph_task_id(), [(None, None)]), strict=True)
        if read[0] is None:
            return slope, None
        gathered = torch.cat(read).t() @ torch.cat(got)
        return gathered if slope is None else gathered + slope, None


class _Product(torch.autograd.Function):
    """Computes x @ W + b and leaves W's gradient to `_Shared`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, matrix: Tensor, bias: Tensor | None, left: Left) -> Tensor:
        ctx.save_for_backward(x, matrix)
        ctx.left = left
        ctx.bias = None if bias is None else bias.shape
        return x @ matrix if bias is None else torch.addmm(bias, x, matrix)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, slope: Tensor) -> tuple[Tensor | None, None, Tensor | None, None]:
        x, matrix = ctx.saved_tensors
        if ctx.needs_input_grad[1] and torch._C._will_engine_execute_node(ctx.next_functions[1][0]):
            ctx.left.setdefault(torch._C._current_graph_task_id(), []).append((x, slope))
        to_bias = slope.sum_to_size(ctx.bias) if ctx.needs_input_grad[2] else None
        return slope @ matrix.t() if ctx.needs_input_grad[0] else None, None, to_bias, None


class _Gathering(TorchFunctionMode):
    def __init__(self, module: nn.Module) -> None:
        super().__init__()
        self.parameters = {id(parameter) for parameter in module.parameters() if parameter.requires_grad}
        self.shared: dict[tuple[Any, ...], tuple[Tensor, Left]] = {}

    def __torch_function__(
        self, func: Callable[..., Any], types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if func in PRODUCTS and not kwargs and torch.is_grad_enabled():
            given = dict(zip(PRODUCTS[func], args, strict=False))
            matrix = given["matrix"] if "matrix" in given else given["weight"].t()
            if isinstance(matrix, Tensor) and self.owns(matrix):
                return self.product(given["x"], matrix, given.get("bias"))
        return func(*args, **(kwargs or {}))

    def owns(self, matrix: Tensor) -> bool:
        base = matrix._base if matrix._is_view() else matrix
        return id(base) in self.parameters and matrix.dim() == 2 and not matrix.is_meta

    def product(self, x: Tensor, matrix: Tensor, bias: Tensor | None) -> Tensor:
        dtype = matrix.dtype
        if torch.is_autocast_enabled(x.device.type):
            dtype = torch.get_autocast_dtype(x.device.type)
            x, bias = x.to(dtype), None if bias is None else bias.to(dtype)
        key = (matrix.data_ptr(), matrix.shape, matrix.stride(), dtype)
        if key not in self.shared:
            left: Left = {}
            self.shared[key] = _Shared.apply(matrix.to(dtype), left), left  # type: ignore[no-untyped-call]
        rows = x.reshape(-1, x.shape[-1])
        made: Tensor = _Product.apply(rows, self.shared[key][0], bias, self.shared[key][1])  # type: ignore[no-untyped-call]
        return made.view(*x.shape[:-1], -1)


PRODUCTS: dict[Callable[..., Any], tuple[str, ...]] = {  # their arguments, in order
    functional.linear: ("x", "weight", "bias"),
    torch.addmm: ("bias", "x", "matrix"),
    torch.matmul: ("x", "matrix"),
    torch.mm: ("x", "matrix"),
    Tensor.matmul: ("x", "matrix"),
    Tensor.mm: ("x", "matrix"),
    Tensor.__matmul__: ("x", "matrix"),
}


@contextmanager
def gathered(module: nn.Module) -> Iterator[None]:
    """Collect the gradients of products with the module's matrices inside the block, if gradients are needed."""
    if not torch.is_grad_enabled():
        yield
        return
    with _Gathering(module):
        yield

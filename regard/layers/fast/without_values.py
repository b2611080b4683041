"""Build a model without values: its tensors have names, shapes and types, and take no memory.

They are on PyTorch's `meta` device, which computes the shape of a result in Python, and imports PyTorch's compiler
(torch._dynamo, sympy) to do so: more than a second and 70 MB, whenever a run is loaded. The few operations that models
are built with need none of this; any other is left to PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode


def sized(*size: Any, dtype: torch.dtype | None = None, **others: Any) -> Tensor:
    return torch.empty(*size, dtype=dtype, device="meta")


def like(x: Tensor, *size: Any, dtype: torch.dtype | None = None, **others: Any) -> Tensor:
    return sized(*size, dtype=dtype or x.dtype)


def product(bias: Tensor, x: Tensor, matrix: Tensor) -> Tensor:
    return sized(len(x), matrix.shape[1], dtype=x.dtype)


MADE: dict[Any, Callable[..., Tensor]] = {  # a function, and one that makes a tensor of the same shape
    torch.zeros: sized,
    torch.ones: sized,
    Tensor.new_zeros: like,
    torch.addmm: product,
}
FILLED = {  # functions that only change the values of their first argument
    *(nn.init.uniform_, nn.init.normal_, nn.init.kaiming_uniform_, nn.init.constant_),
    *(Tensor.uniform_, Tensor.normal_, Tensor.fill_, Tensor.zero_),
}


class Unfilled(TorchFunctionMode):
    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func in FILLED and (tensor := args[0] if args else kwargs["tensor"]).is_meta:
            return tensor
        return MADE.get(func, func)(*args, **kwargs)


@contextmanager
def without_values() -> Iterator[None]:
    """Within this block, new tensors have no values."""
    with torch.device("meta"), Unfilled():
        yield

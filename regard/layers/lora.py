"""LoRA: a matrix that keeps its values and learns a change of low rank.

W + (α/r) B A,   A (r, inputs) random, B (outputs, r) = 0, so that at first nothing changes      Hu 2021, section 4.1
The sum is computed where the matrix is read, so that every layer, a fused kernel too, has it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from regard.interface import UserError
from regard.layers.inside import matrices_in

ALPHA = 16.0  # so that another rank needs no other learning rate
PARTS = re.compile(r"parametrizations\.(\w+)\.(original|0\.a|0\.b)$")  # the names of W, A and B that are saved


class LowRank(nn.Module):
    def __init__(self, weight: Tensor, rank: int) -> None:
        super().__init__()
        outputs, inputs = weight.flatten(1).shape
        self.a = nn.Parameter(nn.init.normal_(torch.empty(rank, inputs), std=inputs**-0.5))
        self.b = nn.Parameter(torch.zeros(outputs, rank))

    def forward(self, weight: Tensor) -> Tensor:
        return added(weight, self.a, self.b)


def added(weight: Tensor, a: Tensor, b: Tensor) -> Tensor:
    return weight + (ALPHA / len(a)) * (b @ a).view_as(weight)


def add_low_rank(model: nn.Module, rank: int, wanted: Callable[[str], bool]) -> None:
    """Add a change of low rank to the matrices of every attention, feed-forward network, recurrence and convolution
    whose path is wanted."""
    found = [(module, name, weight) for path, module, name, weight in matrices_in(model) if wanted(path)]
    most = max((min(weight.flatten(1).shape) for _, _, weight in found), default=rank)
    if rank > most:
        raise UserError(f"train.rank = {rank} is above {most}, the highest rank of the matrices: choose a lower one.")
    for module, name, weight in found:
        register_parametrization(module, name, LowRank(weight, rank), unsafe=True)  # the shape needs no trial


def plain_name(name: str) -> str:
    """The name of a weight in a model without LoRA; that of W for A and B."""
    return PARTS.sub(r"\1", name)


def is_change(name: str) -> bool:
    """Whether a weight of this name is an A or a B."""
    part = PARTS.search(name)
    return part is not None and part[2] != "original"


def merged(weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The weights of a model without LoRA that computes the same."""
    found: dict[str, Tensor] = {}
    for name, tensor in weights.items():
        if (part := PARTS.search(name)) is None:
            found[name] = tensor
        elif part[2] == "original":
            low = name.removesuffix("original")
            a, b = (weights.get(f"{low}0.{part}", torch.empty(0)) for part in "ab")
            if not fits(tensor, a, b):
                raise UserError(f"{plain_name(name)} and what LoRA adds to it do not fit: restore the run's own files.")
            found[plain_name(name)] = added(tensor, a, b)
    return found


def fits(weight: Tensor, a: Tensor, b: Tensor) -> bool:
    """Whether B A has the size of W: a file may hold vectors whose product is larger than any memory."""
    if not weight.dim() or not a.dim() or not len(a) or not weight.dtype == a.dtype == b.dtype:
        return False
    return a.shape == (len(a), weight[:1].numel()) and b.shape == (len(weight), len(a))

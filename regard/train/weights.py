"""Tensors by their names: a model's weights, out of it and into it again, and the leaves of a tree."""

from __future__ import annotations

from itertools import count
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.interface import Fits, Tree, UserError, map_tensors

Weights = dict[str, Tensor]  # by name


def leaves(tree: Tree) -> list[Tensor]:
    """The tensors of a tree, in order."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, tree)
    return found


def restored(form: Tree, saved: Weights) -> Tree:
    """A tree of this form with these tensors, by their places, as its leaves."""
    places = count()
    return map_tensors(lambda own: saved[str(next(places))].to(own.device), form)


def taken(tensors: Weights, prefix: str) -> Weights:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def weights(model: nn.Module) -> Weights:
    """Parameters and buffers, each tensor once however many names it has."""
    seen: set[int] = set()
    named: Weights = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen or not tensor.numel():
            named[name] = tensor
        seen.add(tensor.data_ptr())
    return named


def learnt(model: nn.Module) -> Weights:
    """The weights that steps change: none, if all of the model is counted at once."""
    return {} if isinstance(model, Fits) else weights(model)


def misfit(expected: Weights, tensors: Weights) -> str:
    """How these differ in names, shapes or kinds; "" if they do not."""
    if expected.keys() != tensors.keys():
        return f"{sorted(expected.keys() ^ tensors.keys())[0]!r} is in one of them only"
    for name, tensor in tensors.items():
        own = expected[name]
        if own.shape != tensor.shape:
            return f"{name} is {tuple(tensor.shape)}, expected {tuple(own.shape)}"
        if own.dtype != tensor.dtype:
            return f"{name} is {tensor.dtype}, expected {own.dtype}"
    return ""


def load_weights(model: nn.Module, tensors: Weights, *, origin: str | Path = "memory") -> None:
    """Put saved weights into the model; every name, shape and kind must fit."""
    own = weights(model)
    if odd := misfit(own, tensors):
        raise UserError(f"The weights in {origin} do not fit the model: {odd}; restore the run's own files.")
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def mean_weights(snapshots: list[Weights]) -> Weights:
    return {
        name: torch.stack([snapshot[name].float() for snapshot in snapshots]).mean(0).to(tensor.dtype)
        for name, tensor in snapshots[0].items()
    }

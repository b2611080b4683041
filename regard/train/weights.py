"""Tensors by name: save and load a model's weights, and list the leaves of a tree."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import count
from pathlib import Path

import torch
from torch import Tensor, nn

from regard.interface import Fits, Tree, UserError, map_tensors

Weights = dict[str, Tensor]  # by name
TensorShapes = Mapping[str, tuple[int, ...]]  # of the tensors in a file, by name


def leaves(tree: Tree) -> list[Tensor]:
    """List the tensors of a tree, in order."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, tree)
    return found


def restored(form: Tree, saved: Weights) -> Tree:
    """Build a tree of this form with these tensors, by their places, as its leaves."""
    places = count()
    return map_tensors(lambda own: saved[str(next(places))].to(own.device), form)


def taken(tensors: Weights, prefix: str) -> Weights:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def weights(model: nn.Module) -> Weights:
    """Return parameters and buffers, each tensor once even if it has several names (weight tying)."""
    seen: set[int] = set()
    named: Weights = {}
    for name, tensor in model.state_dict(keep_vars=True).items():
        place = tensor.data_ptr() or id(tensor)  # one without values has no address
        if place not in seen:
            named[name] = tensor.detach()
        seen.add(place)
    return named


def learnt(model: nn.Module) -> Weights:
    """Return the weights that training steps change: none for a model that counts."""
    return {} if isinstance(model, Fits) else weights(model)


def misfit(expected: Weights, tensors: Weights) -> str:
    """Describe how these differ in names, shapes or types; "" if they do not."""
    if odd := misshapen(expected, {name: tuple(tensor.shape) for name, tensor in tensors.items()}):
        return odd
    others = (name for name in tensors if expected[name].dtype != tensors[name].dtype)
    return next((f"{name} is {tensors[name].dtype}, expected {expected[name].dtype}" for name in others), "")


def misshapen(expected: Weights, shapes: TensorShapes) -> str:
    """Describe how these differ in names or shapes; "" if they do not."""
    if expected.keys() != shapes.keys():
        return f"{sorted(expected.keys() ^ shapes.keys())[0]!r} is in one of them only"
    others = (name for name in shapes if tuple(expected[name].shape) != shapes[name])
    return next((f"{name} is {shapes[name]}, expected {tuple(expected[name].shape)}" for name in others), "")


def load_weights(model: nn.Module, tensors: Weights, *, origin: str | Path = "memory") -> None:
    """Load saved weights into the model; every name, shape and type must match."""
    own = weights(model)
    if odd := misfit(own, tensors):
        raise unfit(origin, odd)
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def unfit(origin: str | Path, odd: str) -> UserError:
    return UserError(
        f"The weights in {origin} do not fit the model: {odd}; restore the run's own files, or train again."
    )


def mean_weights(snapshots: list[Weights]) -> Weights:
    """Return the mean of each weight; one that is the same in all, as when it is frozen, stays so, bit for bit."""
    found: Weights = {}
    for name, first in snapshots[0].items():
        every = [snapshot[name] for snapshot in snapshots]
        same = all(torch.equal(first, other) for other in every)
        found[name] = first if same else torch.stack([each.float() for each in every]).mean(0).to(first.dtype)
    return found

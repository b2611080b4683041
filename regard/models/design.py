"""What a model's file tells the rest: its name, its paper, its settings and how to build it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from regard.interface import Ids, Label, Shape, Shapes, TagIds, UserError


@dataclass(frozen=True)
class Design:
    name: str
    paper: str
    year: int
    tasks: tuple[str, ...]
    config: type[Any]  # a frozen dataclass whose defaults are the model's preset
    build: Callable[[Any, Shapes], nn.Module]  # of the settings and what the sides are made of
    sizes: tuple[Any, ...] = ()  # settings for little, medium, much and very much text, where `regard new` chooses
    presets: Mapping[str, Any] = field(default_factory=dict)  # further named settings
    path: str = ""  # steps that a signal takes between two words n apart (Vaswani 2017, table 1)


def size_of(shape: Shape | None, kind: type[Ids | Label | TagIds] = Ids) -> int:
    """How many different ids, labels or tags there are, of a side that must be of this kind."""
    if not isinstance(shape, kind):
        raise UserError(f"This model is built for {kind.__name__} and got {shape}: choose another model or task.")
    return shape.size

"""What a model's file tells the rest: its name, its paper, its settings and how to build it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from torch import nn


class Vocabulary(NamedTuple):
    """Sizes of the two vocabularies; joint when they are one and the same."""

    source: int
    target: int
    joint: bool = False
    per_word: bool = False  # a target for each token of the source, not a text of its own


@dataclass(frozen=True)
class Design:
    name: str
    paper: str
    year: int
    tasks: tuple[str, ...]
    config: type[Any]  # a frozen dataclass whose defaults are the model's preset
    build: Callable[[Any, Vocabulary], nn.Module]
    sizes: tuple[Any, ...] = ()  # settings for little, medium, much and very much text, where `regard new` chooses
    presets: Mapping[str, Any] = field(default_factory=dict)  # further named settings
    path: str = ""  # steps that a signal takes between two words n apart (Vaswani 2017, table 1)

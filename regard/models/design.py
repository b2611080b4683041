"""The description of a model: its name, its paper, its settings and how to build it.

`own_design` reads it from a user's file and checks it.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from regard import usercode
from regard.config import fields_of, is_setting, shown
from regard.interface import Ids, Numbered, Picture, Shape, Shapes, UserError

# the tasks of every model that reads texts and has a head for what is asked of them
READING = ("classification", "regression", "tagging", "multiple-choice", "question-answering")


@dataclass(frozen=True)
class Design:
    name: str
    paper: str
    year: int
    tasks: tuple[str, ...]
    config: type[Any]  # a frozen dataclass whose defaults are the model's preset
    build: Callable[[Any, Shapes], nn.Module]  # settings and shapes of the sides -> the model
    sizes: tuple[Any, ...] = ()  # settings for four amounts of text, from which `regard new` chooses
    presets: Mapping[str, Any] = field(default_factory=dict)  # further named settings
    objective: Mapping[str, Any] = field(default_factory=dict)  # settings that pre-training changes
    path: str = ""  # path length between two words n apart (Vaswani 2017, table 1)


def size_of(shape: Shape | None, kind: type[Numbered] = Ids) -> int:
    """Return the number of different ids, labels or tags of a side that must be of this kind."""
    if not isinstance(shape, kind):
        raise UserError(f"This model is built for {kind.__name__} and got {shape}: choose another model or task.")
    return shape.size


def picture_of(shape: Shape | None, model: str) -> Picture:
    """Return the size of the pictures that a model reads."""
    if not isinstance(shape, Picture):
        raise UserError(f"{model} reads pictures and got {shape}: choose another model or task.")
    return shape


TYPES: dict[str, type] = {"paper": str, "year": int, "tasks": tuple, "presets": Mapping, "path": str}
TYPES["objective"] = Mapping
TAKEN = ("name", "preset")  # keys of [model] that are not settings of a model


def own_design(file: Path) -> Design:
    """Return the file's DESIGN after checking it; an error in its `build` becomes one sentence with the line."""
    there = vars(usercode.module(file))
    if "DESIGN" not in there:
        raise UserError(f"{file} has no DESIGN: end it with DESIGN = Design(…), as docs/models.md shows.")
    design = there["DESIGN"]
    if not isinstance(design, Design):
        raise UserError(f"DESIGN in {file} is {shown(design)}, and must be a Design, as docs/models.md shows.")
    for name, kind in TYPES.items():
        if not isinstance(value := vars(design)[name], kind):
            raise UserError(f"{name} in the DESIGN of {file} is {shown(value)}, and must be a {kind.__name__.lower()}.")
    if not inspect.isclass(design.config) or not dataclasses.is_dataclass(design.config):
        raise UserError(
            f"config in the DESIGN of {file} is {shown(design.config)}, and must be a dataclass: "
            "write @dataclass(frozen=True) above the class of its settings."
        )
    with usercode.blamed(file, f"The settings of {file} cannot be read"):
        kinds = fields_of(design.config)
    for key, kind in kinds.items():
        if key in TAKEN:
            raise UserError(f"{file} has a setting {key!r}, which a recipe needs itself: call it something else.")
        if not is_setting(kind):
            allowed = "a bool, int, float, str, Literal of texts, or a tuple of any number of one of these"
            raise UserError(f"The setting {key!r} of {file} is {shown(kind)}, and must be {allowed}.")
    return dataclasses.replace(design, build=partial(_built, design, file))


def _built(design: Design, file: Path, config: Any, shapes: Shapes) -> nn.Module:
    with usercode.blamed(file, f"The model in {file} cannot be built"):
        model = design.build(config, shapes)
    if not isinstance(model, nn.Module):
        raise UserError(f"build in {file} returned {shown(model)}, and must return a torch.nn.Module.")
    return model

"""A model in a file of one's own: what its DESIGN must say."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from torch import nn

from regard import usercode
from regard.config import fields_of, is_setting, shown
from regard.interface import Shapes, UserError
from regard.models.design import Design

SAID: dict[str, type] = {"paper": str, "year": int, "tasks": tuple, "presets": Mapping, "path": str}
TAKEN = ("name", "preset")  # what [model] says beside a model's settings


def own_design(file: Path) -> Design:
    """The file's DESIGN, seen to be one; what goes wrong in its `build` is a sentence that names the line."""
    there = vars(usercode.module(file))
    if "DESIGN" not in there:
        raise UserError(f"{file} has no DESIGN: end it with DESIGN = Design(…), as docs/models.md shows.")
    design = there["DESIGN"]
    if not isinstance(design, Design):
        raise UserError(f"DESIGN in {file} is {shown(design)}, and must be a Design, as docs/models.md shows.")
    for name, kind in SAID.items():
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

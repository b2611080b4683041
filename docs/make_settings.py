"""Writes docs/settings.md: every setting of every section and model, from the comments of the fields that hold them.

python docs/make_settings.py
"""

from __future__ import annotations

import dataclasses
import typing
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from regard.config import Names, fields_of, help_texts, key_of, to_toml
from regard.models import MODELS
from regard.predict.decoding import Decoding
from regard.tasks.registry import TASKS
from regard.train.training import TrainConfig

HEAD = """# Settings

Every setting that a recipe can have, its default, and what it does. Written by
`python docs/make_settings.py` from the comments in the code. `regard new` writes a recipe with all of them; any can be
changed on the command line, as in `regard train my.toml model.layers=4 train.epochs=30`.
"""


def kind_of(kind: Any) -> str:
    """A field's type, or the values that it may have."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind == Names:
        return "text, or list of text"
    if origin is typing.Literal:
        return ", ".join(f"`{value}`" for value in inner)
    if origin is typing.Union:
        return f"{kind_of(inner[0])}, or `file.py:Class`"
    if origin is tuple:
        return f"list of {kind_of(inner[0])}"
    return {bool: "true or false", int: "whole number", float: "number", str: "text"}[kind]


def table(config: type[Any]) -> Iterator[str]:
    kinds, helps = fields_of(config), help_texts(config)
    if not kinds:
        yield "It has no settings.\n"
        return
    yield "| setting | default | values | meaning |"
    yield "|---|---|---|---|"
    for field in dataclasses.fields(config):
        key = key_of(field.name)
        default = "required" if field.default is dataclasses.MISSING else f"`{to_toml(field.default)}`"
        meaning = helps.get(key, "").replace("|", "\\|")
        yield f"| `{key}` | {default} | {kind_of(kinds[key])} | {meaning} |"
    yield ""


def page() -> str:
    lines = [HEAD, "## [train]: how to train", *table(TrainConfig)]
    lines += ["## [data]: where the examples come from"]
    seen: dict[str, list[str]] = {}
    for task in TASKS.values():
        for name, source in task.sources.items():
            settings = f'`data.name = "{name}"`\n' + "\n".join(table(typing.cast(Any, source)))
            seen.setdefault(settings, []).append(task.name)
    lines += [f"### {', '.join(tasks)}: {settings}" for settings, tasks in seen.items()]
    lines += ["## [tokens]: how text is cut into tokens"]
    for task in TASKS.values():
        lines += [f"### {task.name}", *table(task.tokens)]
    lines += ["## [model]: every model"]
    for design in MODELS.values():
        lines += [f"### `{design.name}`", f"{design.paper} ({design.year}); for {', '.join(design.tasks)}.\n"]
        lines += table(design.config)
    lines += ["## Decoding: options of `regard predict`, arguments of `run.predict`", *table(Decoding)]
    return "\n".join(lines).rstrip() + "\n"


if __name__ == "__main__":
    (Path(__file__).parent / "settings.md").write_text(page(), encoding="utf-8")

"""models: list the models, or print the settings of one."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Union, get_args, get_origin

import typer

from regard.cli.options import Json
from regard.cli.shell import command, out, print_json, show_table
from regard.config import choose, fields_of, is_place, values_of, write_table


@command
def models(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]")] = None,  # show the settings of this model
    as_json: Json = False,
) -> None:
    """List the models, or print the settings of one with defaults."""
    from regard import usercode
    from regard.models import MODELS, abilities, design_of

    if name is not None:
        if is_place(name):
            usercode.trust(Path(name))
        design = design_of(name) if is_place(name) else choose(MODELS, name, "The model")
        if as_json:
            print_json(values_of(design.config()))
            return
        out.print(f"{design.name}: {design.paper} ({design.year}); for {', '.join(design.tasks)}.")
        if design.presets:
            out.print(f"Presets, as in model.preset={next(iter(design.presets))}: {', '.join(design.presets)}.")
        out.print(f"\n{write_table('model', design.config(), tag=design.name)}", end="")
        for key, kind in fields_of(design.config).items():
            one_of = get_args(kind)[0] if get_origin(kind) is Union else kind
            if get_origin(one_of) is Literal:
                own = "" if one_of is kind else ", or a class in a file of your own (file.py:Class)"
                out.print(f"# {key}: {', '.join(get_args(one_of))}{own}")
        return
    rows = []
    for model in MODELS.values():
        tasks, can = ", ".join(model.tasks), ", ".join(abilities(model))
        rows.append({"name": model.name, "year": str(model.year), "task": tasks, "can": can, "paper": model.paper})
    if as_json:
        print_json(rows)
    else:  # a task is what a model can do, in fewer words
        short = [{key: value for key, value in row.items() if key != "can"} for row in rows]
        show_table(short, wrapped=("task", "paper"))

"""models: what there is to train."""

from __future__ import annotations

from typing import Annotated

import typer

from regard.cli.options import Json
from regard.cli.shell import command, out, print_json, show_table
from regard.config import choose, is_place, values_of, write_table


@command
def models(
    name: Annotated[str | None, typer.Argument(metavar="[NAME]")] = None,  # show the settings of this model
    as_json: Json = False,
) -> None:
    """List the models, or print the settings of one with defaults."""
    from regard.models import MODELS, abilities, design_of

    if name is not None:
        design = design_of(name) if is_place(name) else choose(MODELS, name, "The model")
        if as_json:
            print_json(values_of(design.config()))
            return
        out.print(f"{design.name}: {design.paper} ({design.year}); for {', '.join(design.tasks)}.")
        if design.presets:
            out.print(f"Presets, as in model.preset={next(iter(design.presets))}: {', '.join(design.presets)}.")
        out.print(f"\n{write_table('model', design.config(), tag=design.name)}", end="")
        return
    rows = []
    for model in MODELS.values():
        tasks, can = ", ".join(model.tasks), ", ".join(abilities(model))
        rows.append({"name": model.name, "year": str(model.year), "task": tasks, "can": can, "paper": model.paper})
    if as_json:
        print_json(rows)
    else:
        show_table(rows)

"""runs: list the runs of a folder."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Json
from regard.cli.shell import command, out, print_json, show_table


@command
def runs(
    folder: Annotated[Path, typer.Argument()] = Path("runs"),  # the folder that holds runs
    as_json: Json = False,
) -> None:
    """List the runs in a folder: print model, score, size and state."""
    from regard.runs import runs as every_run

    found = [dataclasses.asdict(run) for run in every_run(folder)]
    if as_json:
        print_json(found)
    elif not found:
        out.print(f"There is no run in {folder} yet.")
    else:
        for run in found:
            run["MB"] = f"{run.pop('megabytes'):.1f}"
        show_table(found, wrapped=("name", "model", "score"))

"""runs: what has been trained."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.shell import Json, app, out, print_plain, show_table


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="The folder that holds runs.")] = Path("runs"), as_json: Json = False
) -> None:
    """List what has been trained: model, score, size, state."""
    from regard.runs import runs as every_run

    found = every_run(folder)
    if as_json:
        print_plain(json.dumps([dataclasses.asdict(run) for run in found]))
    elif not found:
        out.print(f"There is no run in {folder} yet.", markup=False)
    else:
        rows = [{**dataclasses.asdict(run), "MB": f"{run.megabytes:.1f}"} for run in found]
        show_table([{key: str(value) for key, value in row.items() if key != "megabytes"} for row in rows])

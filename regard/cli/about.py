"""What there is: runs, models and the machine."""

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
    """What has been trained: model, score, size, state."""
    from regard.runs import runs as every_run

    found = every_run(folder)
    if as_json:
        print_plain(json.dumps([dataclasses.asdict(run) for run in found]))
    elif not found:
        out.print(f"There is no run in {folder} yet.", markup=False)
    else:
        rows = [{**dataclasses.asdict(run), "MB": f"{run.megabytes:.1f}"} for run in found]
        show_table([{key: str(value) for key, value in row.items() if key != "megabytes"} for row in rows])


@app.command()
def models(as_json: Json = False) -> None:
    """The models there are: paper, year, what each can do."""
    from regard.models import MODELS, abilities

    rows = [
        {
            "name": d.name,
            "year": str(d.year),
            "task": ", ".join(d.tasks),
            "can": ", ".join(abilities(d)),
            "paper": d.paper,
        }
        for d in MODELS.values()
    ]
    if as_json:
        print_plain(json.dumps(rows, ensure_ascii=False))
        return
    show_table(rows)


@app.command()
def info(as_json: Json = False) -> None:
    """Versions, threads, processor, devices: to paste into a bug report."""
    from regard import machine

    gain = machine.bf16_gain()
    facts = {
        **machine.facts(),
        "bf16": f"{gain:.2f} × float32's matmul speed" if gain else "does not run here",
    }
    if as_json:
        print_plain(json.dumps(facts))
        return
    widest = max(map(len, facts))
    for name, value in facts.items():
        print_plain(f"{name:<{widest}}  {value}")

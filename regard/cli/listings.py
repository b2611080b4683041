"""runs, models and info: what has been trained, what there is to train, and the machine."""

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
    """List what has been trained: model, score, size, state."""
    from regard.runs import runs as every_run

    found = [dataclasses.asdict(run) for run in every_run(folder)]
    if as_json:
        print_json(found)
    elif not found:
        out.print(f"There is no run in {folder} yet.")
    else:
        for run in found:
            run["MB"] = f"{run.pop('megabytes'):.1f}"
        show_table(found)


@command
def models(as_json: Json = False) -> None:
    """The models there are: paper, year, what each can do."""
    from regard.models import MODELS, abilities

    rows = []
    for model in MODELS.values():
        tasks, can = ", ".join(model.tasks), ", ".join(abilities(model))
        rows.append({"name": model.name, "year": str(model.year), "task": tasks, "can": can, "paper": model.paper})
    if as_json:
        print_json(rows)
    else:
        show_table(rows)


@command
def info(as_json: Json = False) -> None:
    """Versions, threads, processor, devices: to paste into a bug report."""
    from regard import machine

    gain = machine.bf16_gain()
    speed = f"{gain:.2f} × float32's matmul speed" if gain else "does not run here"
    facts = {**machine.facts(), "bf16": speed}
    if as_json:
        print_json(facts)
        return
    widest = max(map(len, facts))
    for name, value in facts.items():
        out.print(f"{name:<{widest}}  {value}")

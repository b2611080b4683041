"""check: what is wrong with a recipe's data, before training on it."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Json, RecipeFile, Settings
from regard.cli.shell import command, err, out, print_json, recipe_with
from regard.config import counted

MOST_LABELS = 12  # that are listed


@command
def check(
    recipe: RecipeFile,
    settings: Settings = None,
    write: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    # write what passes, and a recipe of it, to a new folder
    as_json: Json = False,
) -> None:
    """Look at a recipe's data before training on it: errors (exit code 1), warnings and a summary."""
    read = recipe_with(recipe, settings)
    with err.status("Reading the data …"):
        checked = read.task.check(read, write)
    if as_json:
        print_json({"sound": checked.sound, **dataclasses.asdict(checked)})
        raise typer.Exit(not checked.sound)
    for finding in checked.findings:
        out.print(finding.severity, style="red" if finding.severity == "error" else "yellow", end=": ")
        out.print(finding.text)
    words = read.task.words
    for split, facts in checked.summary.items():
        passes = int(facts.passes * 10_000) / 100  # 100 only where all do
        several = f"; {facts.several:,} with {words.another}" if facts.several else ""
        out.print(f"{split}: {counted(facts.pairs, words.example)}, {passes} % pass{several}")
        for side, name in enumerate(words.sides[:1] if facts.labels else words.sides):
            if facts.words[side]:
                out.print(
                    f"  {name}: {counted(facts.words[side], 'word')}, {counted(facts.characters[side], 'character')}, "
                    f"{facts.distinct[side]:,} of them different; the median line has {facts.median[side]:,}, "
                    f"the longest {facts.longest[side]:,}"
                )
        if facts.labels:
            every = sum(facts.labels.values())
            shown = [f"{name} {times:,} ({times / every:.1%})" for name, times in facts.labels.items()]
            more = f", and {len(shown) - MOST_LABELS} more" if len(shown) > MOST_LABELS else ""
            out.print(f"  labels: {', '.join(shown[:MOST_LABELS])}{more}")
        if checked.written:
            dropped = ", ".join(f"{count:,} {kind}" for kind, count in checked.dropped[split].items())
            out.print(f"  left out: {dropped or 'nothing'}")
    if checked.written:
        out.print(f"What passes was written; next: regard train {checked.written}/recipe.toml")
    raise typer.Exit(not checked.sound)

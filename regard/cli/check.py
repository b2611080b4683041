"""check: report what is wrong with a recipe's data, before training on it."""

from __future__ import annotations

import dataclasses
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import typer

from regard.cli.options import Json, RecipeFile, Settings, TrustCode
from regard.cli.shell import command, err, out, print_json, recipe_with
from regard.config import UserError, counted

if TYPE_CHECKING:
    from regard.recipe import Recipe

MOST_LABELS = 12  # listed
SHOWN_EVERY = 1000  # examples between two updates of the bar


@command
def check(
    recipe: RecipeFile,
    settings: Settings = None,
    write: Annotated[Path | None, typer.Option(metavar="FOLDER")] = None,
    # write the examples that pass, and a recipe for them, to a new folder
    as_json: Json = False,
    trust_code: TrustCode = False,
) -> None:
    """Check a recipe's data: print errors, warnings and a summary.

    The exit code is 1 if there are errors. --write keeps the examples that pass.
    """
    from regard.data.fields import TextField
    from regard.show.progress import counting_bar

    read = recipe_with(recipe, settings, trust_code=trust_code)
    numbers = count(1)
    with counting_bar("Reading the data", examples_of(read) if err.is_terminal else None, err) as show:

        def on_example() -> None:
            if (number := next(numbers)) % SHOWN_EVERY == 0:
                show(completed=number)

        checked = read.task.check(read, write, on_example)
    if as_json:
        print_json({"sound": checked.sound, **dataclasses.asdict(checked)})
        raise typer.Exit(not checked.sound)
    for finding in checked.findings:
        out.print(finding.severity, style="red" if finding.severity == "error" else "yellow", end=": ")
        out.print(finding.text)
    words, written = read.task.words, issubclass(read.task.fields["target"], TextField)
    for split, facts in checked.summary.items():
        passes = int(facts.passes * 10_000) / 100  # 100 only where all do
        several = f"; {facts.several:,} with {words.another}" if facts.several else ""
        out.print(f"{split}: {counted(facts.pairs, words.example)}, {passes} % pass{several}")
        texts = [words.sides[side] for side in range(2 if written else 1)]
        for side, name in enumerate(texts):
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
            dropped = ", ".join(f"{times:,} {kind}" for kind, times in checked.dropped[split].items())
            out.print(f"  left out: {dropped or 'nothing'}")
    if checked.written:
        out.print(f"The examples that pass were written; next: regard train {checked.written}/recipe.toml")
    raise typer.Exit(not checked.sound)


def examples_of(recipe: Recipe) -> int | None:
    """Count the examples; None where some cannot be read, which the check reports."""
    splits: tuple[Literal["train", "valid"], ...] = ("train", "valid")
    try:
        return sum(1 for split in splits for _ in recipe.data.lines(split, recipe.folder, lambda *_: None))
    except UserError:
        return None

"""Before training: new and check."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.naming import MOST_LABELS
from regard.cli.shell import Json, RecipeFile, Settings, app, err, out, print_plain, recipe_with


@app.command()
def new(
    task: Annotated[
        Literal["translation", "language", "classification", "tagging"], typer.Argument(help="What the recipe is for.")
    ],
    text: Annotated[
        str | None, typer.Argument(help="The training text; of labelled sentences a table, of tagged words columns.")
    ] = None,
    source: Annotated[
        str | None,
        typer.Option(help="For translation: training text, source language; with --file or labels, the text's field."),
    ] = None,
    target: Annotated[
        str | None,
        typer.Option(help="For translation: training text, target language; with --file or labels, its field."),
    ] = None,
    valid: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SOURCE TARGET", help="Validation files; otherwise some training pairs are kept apart."),
    ] = None,
    file: Annotated[
        str | None, typer.Option(help="One .jsonl or .tsv file instead of two; fields are keys, columns or numbers.")
    ] = None,
    valid_file: Annotated[
        str | None, typer.Option(help="A validation file beside --file, or beside the training text.")
    ] = None,
    kind: Annotated[
        Literal["words", "characters", "bpe"] | None,
        typer.Option("--tokens", help="For language: what the text is cut into.", show_default=False),
    ] = None,
    unit: Annotated[
        Literal["line", "paragraph", "file"] | None,
        typer.Option(help="For language: what is a text of its own.", show_default=False),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option(
            help="Which model; `regard models` lists them. By default transformer; rnn_lm for language; else birnn."
        ),
    ] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--out", help="The recipe to write; by default the task's name and .toml.")
    ] = None,
) -> None:
    """Write a complete recipe for your own files, with values chosen from their size and this machine."""
    from regard.checkpoint import write_atomically
    from regard.interface import UserError
    from regard.new.recipes import data_of, new_language, new_names
    from regard.new.recipes import new as new_recipe

    output = output or Path(f"{task}.toml")
    if output.exists():
        raise UserError(f"{output} exists already: choose another name with -o, or remove it.")
    folder = output.absolute().parent.resolve()
    with err.status("Reading the data …"):
        if task == "language":
            if text is None or source or target or valid or file:
                raise UserError("For language give one text, as in: regard new language corpus.txt -o lm.toml.")
            recipe, reasons = new_language(
                text, valid=valid_file, folder=folder, model=model or "rnn_lm", kind=kind, unit=unit
            )
        elif task in ("classification", "tagging"):
            if text is None or valid or file or kind or unit or bool(source) != bool(target):
                raise UserError(f"For {task} give one file, as in: regard new {task} train.tsv -o names.toml.")
            fields = (source, target) if source and target else None
            recipe, reasons = new_names(
                task, text, valid=valid_file, folder=folder, model=model or "birnn", fields=fields
            )
        else:
            if source is None or target is None or text or kind or unit:
                raise UserError("For translation give --source and --target, two files or with --file two fields.")
            data_name, data = data_of(
                file=file, source=source, target=target, valid=valid, valid_file=valid_file, folder=folder
            )
            recipe, reasons = new_recipe(data_name, data, folder=folder, model=model or "transformer")
        written = recipe.to_toml(reasons=reasons)
    write_atomically(output, written)
    values = recipe.flat()
    for key, reason in reasons.items():
        out.print(f"{key} = {values[key]}: {reason}", markup=False)
    checking = f"regard check {output}, then " if task != "language" else ""
    out.print(f"\nWrote {output}. Next: {checking}regard train {output}", markup=False)


@app.command()
def check(
    recipe: RecipeFile,
    settings: Settings = None,
    write: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write what passes, and a recipe of it, to a new folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look at a recipe's data before training on it: errors (exit code 1), warnings and a summary."""
    from regard.check import check as look_over

    read = recipe_with(recipe, settings)
    with err.status("Reading the data …"):
        checked = look_over(read, write=write)
    if as_json:
        entry = {"sound": checked.sound, **dataclasses.asdict(checked)}
        print_plain(json.dumps(entry, ensure_ascii=False, default=str))
        raise typer.Exit(not checked.sound)
    for finding in checked.findings:
        out.print(finding.severity, style="red" if finding.severity == "error" else "yellow", end=": ")
        out.print(finding.text, markup=False)
    named = read.task in ("classification", "tagging")
    for split, facts in checked.summary.items():
        passes = int(facts.passes * 10_000) / 100  # 100 only where all do
        another = "other names for an earlier text" if named else "another target for an earlier source"
        several = f"; {facts.several:,} with {another}" if facts.several else ""
        out.print(f"{split}: {facts.pairs:,} {'sentences' if named else 'pairs'}, {passes} % pass{several}")
        for side, name in enumerate(("text",) if named else ("source", "target")):
            out.print(
                f"  {name}: {facts.words[side]:,} words, {facts.characters[side]:,} characters, "
                f"{facts.distinct[side]:,} of them different; the median line has {facts.median[side]:,}, "
                f"the longest {facts.longest[side]:,}"
            )
        if facts.labels:
            every = sum(facts.labels.values())
            shown = [f"{name} {times:,} ({times / every:.1%})" for name, times in facts.labels.items()]
            more = f", and {len(shown) - MOST_LABELS} more" if len(shown) > MOST_LABELS else ""
            out.print(f"  labels: {', '.join(shown[:MOST_LABELS])}{more}", markup=False)
        if checked.written:
            dropped = ", ".join(f"{count:,} {kind}" for kind, count in checked.dropped[split].items())
            out.print(f"  left out: {dropped or 'nothing'}")
    if checked.written:
        out.print(f"What passes was written; next: regard train {checked.written}/recipe.toml", markup=False)
    raise typer.Exit(not checked.sound)

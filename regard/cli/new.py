"""new: a recipe for a user's own files."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.shell import TaskName, app, err, out, the_task


@app.command()
def new(
    task: TaskName,
    files: Annotated[
        list[str] | None,
        typer.Argument(help="The training data: a text, a table of texts and labels, tagged words; see --source too."),
    ] = None,
    source: Annotated[
        str | None, typer.Option(help="Translation: file of sources. With one FILE: the field of the text.")
    ] = None,
    target: Annotated[
        str | None, typer.Option(help="Translation: file of targets. With one FILE: the field of the label or target.")
    ] = None,
    valid: Annotated[
        list[str] | None,
        typer.Option(metavar="A [B]", help="Validation file, or two; otherwise some training data is held out."),
    ] = None,
    file: Annotated[str | None, typer.Option(help="The same as FILES: one .jsonl or .tsv file.")] = None,
    kind: Annotated[
        Literal["words", "characters", "bpe"] | None,
        typer.Option("--tokens", help="Language: what the text is cut into.", show_default=False),
    ] = None,
    unit: Annotated[
        Literal["line", "paragraph", "file"] | None,
        typer.Option(help="Language: what is a text of its own.", show_default=False),
    ] = None,
    model: Annotated[str | None, typer.Option(help="Which model; `regard models` lists them.")] = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--out", help="The recipe to write; by default the task's name and .toml.")
    ] = None,
) -> None:
    """Write a complete recipe for your own files, with values chosen from their size and this machine."""
    from regard.checkpoint import write_atomically
    from regard.interface import UserError
    from regard.new.choices import Request

    chosen = the_task(task)
    output = output or Path(f"{task}.toml")
    if output.exists():
        raise UserError(f"{output} exists already: choose another name with -o, or remove it.")
    given = [*(files or []), *([file] if file else [])]
    asked = Request(
        task=chosen,
        files=tuple(given),
        folder=output.absolute().parent.resolve(),
        valid=tuple(valid or []),
        source=source,
        target=target,
        model=model,
        kind=kind,
        unit=unit,
    )
    with err.status("Reading the data …"):
        recipe, reasons = chosen.new(asked)
        written = recipe.to_toml(reasons=reasons)
    write_atomically(output, written)
    values = recipe.flat()
    for key, reason in reasons.items():
        out.print(f"{key} = {values[key]}: {reason}", markup=False)
    checking = f"regard check {output}, then " if chosen.checked else ""
    out.print(f"\nWrote {output}. Next: {checking}regard train {output}", markup=False)

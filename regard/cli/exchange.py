"""Models that come from elsewhere or go there: export and import."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.shell import RunFolder, app, err, out


@app.command()
def export(
    run: RunFolder,
    to: Annotated[Literal["arpa"], typer.Option(help="The form: arpa, for n-grams, as KenLM and SRILM read it.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--out", help="The file to write; by default RUN/model.arpa.")
    ] = None,
) -> None:
    """Write a run's model in a form that other programs read."""
    from regard.exchange.ngram_run import to_arpa

    path = output or run / "model.arpa"
    with err.status("Writing …"):
        to_arpa(run, path)
    out.print(f"Wrote {path}.", markup=False)


@app.command(name="import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE.arpa", help="An n-gram model as text; plain or gzip.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--out", help="The run folder; by default runs/<its name>.")
    ] = None,
) -> None:
    """Make a run of an n-gram model that another program wrote."""
    from regard.exchange.ngram_run import from_arpa

    folder = output or Path("runs") / file.name.removesuffix(".gz").removesuffix(".arpa")
    with err.status("Reading …"):
        from_arpa(file, folder)
    out.print(f'Wrote {folder}; try: regard predict {folder} --prompt ""', markup=False)

"""export: a run's model in another program's format."""

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
    from regard.exchange.arpa import export_run

    path = output or run / "model.arpa"
    with err.status("Writing …"):
        export_run(run, path)
    out.print(f"Wrote {path}.", markup=False)

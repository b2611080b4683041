"""export and import: models in the formats of other programs."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.options import Output, RunFolder
from regard.cli.shell import command, err, out


@command
def export(
    run: RunFolder,
    to: Literal["arpa"],  # the form: arpa, for n-grams, as KenLM and SRILM read it
    output: Output = None,  # the file to write; by default RUN/model.arpa
) -> None:
    """Write a run's model in a form that other programs read."""
    from regard.exchange.arpa import export_run

    path = output or run / "model.arpa"
    with err.status("Writing …"):
        export_run(run, path)
    out.print(f"Wrote {path}.")


@command
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE.arpa")],  # an n-gram model as text; plain or gzip
    output: Output = None,  # the run folder; by default runs/<its name>
) -> None:
    """Make a run of an n-gram model that another program wrote."""
    from regard.exchange.arpa import import_run

    folder = output or Path("runs") / file.name.removesuffix(".gz").removesuffix(".arpa")
    with err.status("Reading …"):
        import_run(file, folder)
    out.print(f'Wrote {folder}; try: regard predict {folder} --prompt ""')

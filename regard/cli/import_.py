"""import: a model that another program wrote becomes a run."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.shell import app, err, out


@app.command(name="import")
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE.arpa", help="An n-gram model as text; plain or gzip.")],
    output: Annotated[
        Path | None, typer.Option("-o", "--out", help="The run folder; by default runs/<its name>.")
    ] = None,
) -> None:
    """Make a run of an n-gram model that another program wrote."""
    from regard.exchange.arpa import import_run

    folder = output or Path("runs") / file.name.removesuffix(".gz").removesuffix(".arpa")
    with err.status("Reading …"):
        import_run(file, folder)
    out.print(f'Wrote {folder}; try: regard predict {folder} --prompt ""', markup=False)

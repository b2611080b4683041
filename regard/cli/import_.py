"""import: make a run from a model that another program wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Output
from regard.cli.shell import command, err, out


@command
def import_(
    file: Annotated[Path, typer.Argument(metavar="FILE.arpa")],  # an n-gram model in ARPA format, plain or gzip
    output: Output = None,  # the run folder; by default runs/<its name>
) -> None:
    """Import an ARPA file's n-gram model as a run folder."""
    from regard.exchange.arpa import import_run

    folder = output or Path("runs") / file.name.removesuffix(".gz").removesuffix(".arpa")
    with err.status("Reading …"):
        import_run(file, folder)
    out.print(f'Wrote {folder}; try: regard predict {folder} --prompt ""')

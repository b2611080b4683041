"""import: make a run from a model that another program wrote."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Output
from regard.cli.shell import command, err, out


@command
def import_(
    path: Annotated[Path, typer.Argument(metavar="FILE.arpa | FOLDER")],
    # an n-gram model in ARPA format, plain or gzip; or a Hugging Face folder, with its config.json
    output: Output = None,  # the run folder; by default runs/<its name>
) -> None:
    """Import an ARPA file or a Hugging Face folder as a run folder."""
    from regard.exchange.arpa import import_run
    from regard.exchange.hugging_face import import_folder

    folder = output or Path("runs") / path.resolve().name.removesuffix(".gz").removesuffix(".arpa")
    with err.status("Reading …"):
        if path.is_dir():
            remarks, trial = import_folder(path, folder)
        else:
            import_run(path, folder)
            remarks, trial = [], ' --prompt ""'
    for remark in remarks:
        err.print(remark)
    out.print(f"Wrote {folder}; try: regard predict {folder}{trial}")

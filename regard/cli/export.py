"""export: write a model in the format of another program."""

from __future__ import annotations

from typing import Literal

from regard.cli.options import Output, RunFolder, TrustCode
from regard.cli.shell import command, err, out


@command
def export(
    run: RunFolder,
    to: Literal["arpa"],  # the format: arpa, for n-gram models, as KenLM and SRILM read it
    output: Output = None,  # the file to write; by default RUN/model.arpa
    trust_code: TrustCode = False,
) -> None:
    """Export a run's n-gram model to an ARPA file."""
    from regard.exchange.arpa import export_run

    with err.status("Writing …"):
        path = export_run(run, output, trust_code=trust_code)
    out.print(f"Wrote {path}.")

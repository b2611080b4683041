"""export: write a model in the format of another program."""

from __future__ import annotations

from typing import Literal

from regard.cli.options import Output, RunFolder, TrustCode
from regard.cli.shell import command, err, out


@command
def export(
    run: RunFolder,
    to: Literal["arpa", "hf"],  # arpa: an n-gram model, as KenLM and SRILM read it; hf: a Hugging Face folder
    output: Output = None,  # the file or folder to write; by default RUN/model.arpa or RUN/hf
    trust_code: TrustCode = False,
) -> None:
    """Export a run's model to an ARPA file or a Hugging Face folder."""
    from regard.exchange.arpa import export_run
    from regard.exchange.hugging_face import export_folder

    with err.status("Writing …"):
        path = (export_run if to == "arpa" else export_folder)(run, output, trust_code=trust_code)
    out.print(f"Wrote {path}.")

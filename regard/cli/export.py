"""export: write a model in the format of another program."""

from __future__ import annotations

from typing import Literal

from regard.cli.options import Output, RunFolder, TrustCode
from regard.cli.shell import command, err, out


@command
def export(
    run: RunFolder,
    to: Literal["arpa", "hf", "ct2", "onnx"],
    # arpa: an n-gram model, as KenLM and SRILM read it; hf: a Hugging Face folder; ct2: a Transformer for CTranslate2;
    # onnx: two graphs, with which ONNX Runtime generates text
    output: Output = None,  # the file or folder to write; by default RUN/model.arpa, or a folder of the format's name
    trust_code: TrustCode = False,
) -> None:
    """Export a run's model to ARPA, Hugging Face, CTranslate2 or ONNX."""
    from regard.exchange.arpa import export_run
    from regard.exchange.ctranslate import export_spec
    from regard.exchange.hugging_face import export_folder
    from regard.exchange.onnx_graphs import export_graphs
    from regard.exchange.own_tokenizers import LISTED

    formats = {"arpa": export_run, "hf": export_folder, "ct2": export_spec, "onnx": export_graphs}
    with err.status("Writing …"):
        path = formats[to](run, output, trust_code=trust_code)
    for listed in sorted(path.glob(f"*/{LISTED}")):
        err.print(f"{listed} lists the tokens by id: the `tokenizers` library cannot split a text as this run does.")
    out.print(f"Wrote {path}.")

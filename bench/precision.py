"""What bf16 and int8 lose: BLEU of a trained translator, or perplexity of a language model, in each precision.

python bench/precision.py RUN TEST.source TEST.target [--beam 5]   a translator; CTranslate2 runs its weights, too, in
                                                                   float32 and int8, where they can be exported
python bench/precision.py RUN TEST.txt                             a language model: perplexity per token
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path

import torch

import regard
from regard import machine
from regard.data.text import read_lines
from regard.interface import UserError
from regard.predict.decoding import Decoding
from regard.score.metrics import BLEU

PRECISIONS = ("fp32", "bf16", "int8")


def by_ctranslate2(run: Path, sources: list[str], kind: str, beam: int) -> list[str]:
    import ctranslate2
    from tokenizers import Tokenizer

    from regard.exchange.ctranslate import export_spec

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "ct2"
        export_spec(run, folder)
        translator = ctranslate2.Translator(str(folder), compute_type=kind, intra_threads=torch.get_num_threads())
        source, target = (Tokenizer.from_file(str(folder / side / "tokenizer.json")) for side in ("source", "target"))
    tokens = [each.tokens for each in source.encode_batch(sources)]
    found = translator.translate_batch(tokens, beam_size=beam, patience=2, max_batch_size=32, length_penalty=1)
    return [target.decode([target.token_to_id(word) for word in each.hypotheses[0]]) for each in found]


def translation(given: argparse.Namespace) -> None:
    sources, references = (list(read_lines(path)) for path in given.test)
    shown = []
    for precision in PRECISIONS:
        run = regard.load(given.run, precision=precision)
        began = time.perf_counter()
        outputs = [each.text for each in run.predict(sources, Decoding(beam=given.beam))]
        shown.append((f"regard {precision}", outputs, time.perf_counter() - began))
    try:
        for kind in ("float32", "int8"):
            began = time.perf_counter()
            outputs = by_ctranslate2(given.run, sources, kind, given.beam)
            shown.append((f"CTranslate2 {kind}", outputs, time.perf_counter() - began))
    except UserError as error:
        print(error)
    first = shown[0][1]
    for name, outputs, seconds in shown:
        same = sum(a == b for a, b in zip(outputs, first, strict=True)) / len(first)
        bleu = BLEU.of(outputs, references)
        print(f"{name:20} BLEU {bleu:6.2f}   {same:6.1%} of the outputs as in fp32   {seconds:6.1f} s", flush=True)
    print(f"beam {given.beam}, {len(sources):,} lines, {BLEU.note()}")


def language(given: argparse.Namespace) -> None:
    for precision in PRECISIONS:
        run = regard.load(given.run, precision=precision)
        print(f"regard {precision:6} {run.score(given.test[0])}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("test", type=Path, nargs="+")
    parser.add_argument("--beam", type=int, default=5)
    given = parser.parse_args()
    machine.use_threads(0)
    (translation if len(given.test) == 2 else language)(given)


if __name__ == "__main__":
    main()

"""CTranslate2: python ctranslate2_decode.py COMPUTE_TYPE THREADS FOLDER, started by bench/decoding.py.

FOLDER is what `regard export --to ct2` wrote.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import ctranslate2
import turns


def main(compute_type: str, threads: str, folder: str) -> None:
    turns.tune_allocator()
    translator = ctranslate2.Translator(
        folder, device="cpu", compute_type=compute_type, inter_threads=1, intra_threads=int(threads)
    )
    words = json.loads((Path(folder) / "shared_vocabulary.json").read_text())
    ids = {word: number for number, word in enumerate(words)}

    def decode(inputs: turns.Rows, *, length: int, beam: int, sample: bool) -> turns.Rows:
        sources = [[words[token] for token in row] for row in inputs]
        limits = {"min_decoding_length": length, "max_decoding_length": length}
        found = translator.translate_batch(sources, beam_size=beam, sampling_topk=0 if sample else 1, **limits)
        return [[ids[word] for word in each.hypotheses[0]] for each in found]

    turns.serve(decode)


if __name__ == "__main__":
    main(*sys.argv[1:])

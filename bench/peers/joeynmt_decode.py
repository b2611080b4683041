"""JoeyNMT: python joeynmt_decode.py FOLDER SETTINGS, started by bench/decoding.py.

Its recurrent model with random weights, and its own `search`. FOLDER has vocabulary.txt; SETTINGS (JSON) are those of
regard's rnnsearch.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import torch
import turns
from joeynmt.batch import Batch
from joeynmt.config import parse_global_args
from joeynmt.model import build_model
from joeynmt.search import search
from joeynmt.vocabulary import build_vocab
from joeynmt_train import config


def main(folder: str, settings: str) -> None:
    turns.tune_allocator()
    torch.manual_seed(1)
    size = json.loads(settings)
    written = config(Path(folder), "rnnsearch", {"models": {"rnnsearch": size}, "batch_tokens": 4096})
    parse_global_args(written)  # fills in its special symbols
    source_words, target_words = build_vocab(written["data"])
    assert len(target_words) == size["vocabulary"]
    model = build_model(written["model"], source_words, target_words).eval()
    theirs = torch.arange(len(source_words))  # our ids -> theirs: only the specials, our first four, differ
    theirs[:4] = torch.tensor([model.pad_index, model.bos_index, model.eos_index, model.unk_index])

    def decode(inputs: turns.Rows, *, length: int, beam: int, sample: bool) -> turns.Rows:
        assert not sample
        batch = Batch(
            src=theirs[torch.tensor(inputs)],
            src_length=torch.tensor([len(row) for row in inputs]),
            src_prompt_mask=None,
            trg=None,
            trg_prompt_mask=None,
            indices=torch.arange(len(inputs)),
            device=torch.device("cpu"),
            pad_index=model.pad_index,
            eos_index=model.eos_index,
            is_train=False,
        )
        limits = {"max_output_length": length, "min_output_length": length}
        found, _, _ = search(model, batch, beam_size=beam, beam_alpha=1.0, **limits)
        rows: turns.Rows = found.tolist()
        return rows

    turns.serve(decode)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""MarianMT, GPT-2 (transformers): python transformers_decode.py DTYPE MODEL SETTINGS, started by bench/decoding.py.

The weights are random. MODEL and SETTINGS (JSON) are those of regard's model of the same shape.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import torch
import turns
from transformers import GPT2Config, GPT2LMHeadModel, MarianConfig, MarianMTModel

SPECIAL = dict(pad_token_id=turns.PAD, bos_token_id=turns.BOS, eos_token_id=turns.EOS)


def marian(size: dict[str, Any]) -> MarianMTModel:
    each_side = dict(layers=size["layers"], attention_heads=size["heads"], ffn_dim=size["feed_forward"])
    sides = {f"{side}_{name}": value for side in ("encoder", "decoder") for name, value in each_side.items()}
    whole = dict(vocab_size=size["vocabulary"], d_model=size["dim"], scale_embedding=True, activation_function="relu")
    special = dict(**SPECIAL, decoder_start_token_id=turns.BOS, forced_eos_token_id=None)
    return MarianMTModel(MarianConfig(**whole, **sides, **special, max_position_embeddings=size.get("longest", 512)))


def gpt2(size: dict[str, Any]) -> GPT2LMHeadModel:
    shape = dict(n_embd=size["dim"], n_layer=size["layers"], n_head=size["heads"], n_inner=size["feed_forward"])
    whole = dict(vocab_size=size["vocabulary"], n_positions=size["context"])
    return GPT2LMHeadModel(GPT2Config(**whole, **shape, **SPECIAL))


def main(dtype: str, name: str, settings: str) -> None:
    turns.tune_allocator()
    torch.manual_seed(1)
    build = {"transformer": marian, "gpt": gpt2}[name]
    model = build(json.loads(settings)).eval().to({"float32": torch.float32, "bfloat16": torch.bfloat16}[dtype])

    def decode(inputs: turns.Rows, *, length: int, beam: int, sample: bool) -> turns.Rows:
        ids = torch.tensor(inputs)
        how = dict(num_beams=beam, do_sample=sample, min_new_tokens=length, max_new_tokens=length)
        if sample:
            how["top_k"] = 0  # its default is 50; regard samples from all types
        found = model.generate(ids, attention_mask=torch.ones_like(ids), **how)
        return found[:, -length:].tolist()  # without <bos>, or the prompt

    turns.serve(decode)


if __name__ == "__main__":
    main(*sys.argv[1:])

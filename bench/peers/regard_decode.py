"""regard: python regard_decode.py PRECISION RUN, or PRECISION MODEL SETTINGS, started by bench/decoding.py.

A run, or a model with random weights. SETTINGS (JSON) are those of the model, and `vocabulary`.
"""

from __future__ import annotations

import json
import sys
from typing import Any

import turns

import regard
from regard import machine


def model_of(precision: str, name: str, settings: str | None = None) -> Any:
    if settings is None:
        return regard.load(name, precision=precision).model  # type: ignore[arg-type]
    import torch

    from regard.interface import Ids, Shapes
    from regard.layers.fast.packed import pack
    from regard.models import MODELS

    torch.manual_seed(1)
    design, given = MODELS[name], json.loads(settings)
    ids = Ids(given.pop("vocabulary"))
    shapes = Shapes(ids, ids, joint=True) if "translation" in design.tasks else Shapes(None, ids)
    model = design.build(design.config(**given), shapes).eval()
    pack(model, precision)  # type: ignore[arg-type]
    return model


def main(*arguments: str) -> None:
    machine.tune_allocator()
    import torch

    from regard.interface import Batch, Padded
    from regard.models.language_model import LanguageModel
    from regard.predict.search import Decoding, generate

    model = model_of(*arguments)

    def decode(inputs: turns.Rows, *, length: int, beam: int, sample: bool) -> turns.Rows:
        ids = torch.tensor(inputs)
        batch = Batch.of_text(ids) if isinstance(model, LanguageModel) else Batch(source=Padded.of_ids(ids))
        how = Decoding(beam=beam, sample=sample, min_length=length, max_length=length)
        found = generate(model, batch, how, limits=torch.full((len(inputs),), length))
        return [hypotheses[0].tokens for hypotheses in found]

    turns.serve(decode)


if __name__ == "__main__":
    main(*sys.argv[1:])

"""Target tokens a second while translating, in each precision of the products.

python bench/decoding.py [--rounds 3]

Transformers with random weights: sentences of 24 tokens, translations of exactly 32, 8,000 types. The rows take turns,
and each figure is the best of the rounds. `plain` has no packed weights.
"""

from __future__ import annotations

import argparse
import time
from typing import Any, get_args

import torch

from regard import machine
from regard.interface import Batch, Ids, Padded, Shapes
from regard.layers.fast.packed import Precision, pack
from regard.models import MODELS
from regard.predict.decoding import Decoding
from regard.predict.search import generate

VOCAB, SOURCE, TARGET = 8000, 24, 32
SIZES: dict[str, dict[str, Any]] = {
    "base, 6+6 layers, dim 512": {"dim": 512, "heads": 8, "feed_forward": 2048, "layers": 6},
    "3+3 layers, dim 256": {"dim": 256, "heads": 4, "feed_forward": 1024, "layers": 3},
}
WAYS = {"batch 32, greedy": (32, 1), "batch 32, beam 4": (32, 4), "batch 1, greedy": (1, 1)}


def model_of(size: str, precision: str) -> Any:
    torch.manual_seed(1)
    design = MODELS["transformer"]
    model = design.build(design.config(**SIZES[size]), Shapes(Ids(VOCAB), Ids(VOCAB), joint=True)).eval()
    if precision in get_args(Precision):
        pack(model, precision)  # type: ignore[arg-type]
    return model


def rate(model: Any, rows: int, beam: int) -> float:
    batch = Batch(source=Padded.of_ids(torch.randint(4, VOCAB, (rows, SOURCE))))
    how = Decoding(beam=beam, min_length=TARGET, max_length=TARGET)
    began = time.perf_counter()
    generate(model, batch, how, limits=torch.full((rows,), TARGET))
    return rows * TARGET / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    machine.use_threads(0)
    machine.tune_allocator()
    kinds = ("plain", *get_args(Precision))
    print(
        f"{machine.cpu_name()}, {torch.get_num_threads()} threads, float32 matmul {machine.matmul_gflops():.0f} GFLOPS"
    )
    for size in SIZES:
        models = {kind: model_of(size, kind) for kind in kinds}
        print(f"\n{size:26}" + "".join(f"{kind:>10}" for kind in kinds))
        for way, (rows, beam) in WAYS.items():
            best = dict.fromkeys(kinds, 0.0)
            for turn in range(given.rounds + 1):
                for kind, model in models.items():
                    found = rate(model, rows, beam)
                    best[kind] = max(best[kind], found if turn else 0.0)  # the first turn warms up
            print(f"{way:26}" + "".join(f"{best[kind]:10,.0f}" for kind in kinds), flush=True)


if __name__ == "__main__":
    main()

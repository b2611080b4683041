"""Where the time of a decoding step goes: products, attention, other operators, and Python between them.

python bench/step.py [--rows 32] [--beam 1] [--precision int8] [--size base|small]

A Transformer with random weights (base: 6+6 layers, dim 512; small: 3+3 layers, dim 256) translates sentences of 24
tokens into exactly 32, over 8,000 types. Operators are timed by PyTorch's profiler, the least of some rounds; `before
the steps` is the encoder, and keys and values of cross-attention; `Python and dispatch` is what is left of the time
without the profiler.
"""

from __future__ import annotations

import argparse
import time
from typing import Any

import torch
from decoding import SOURCE, TARGET, TRANSFORMERS, VOCAB
from torch.profiler import ProfilerActivity, profile

from regard import machine
from regard.interface import Batch, Ids, Padded, Shapes
from regard.layers.fast.packed import pack
from regard.models import MODELS
from regard.predict.decoding import Decoding
from regard.predict.search import generate

SIZES = dict(zip(("base", "small"), TRANSFORMERS.values(), strict=True))
KINDS = {  # the first that an operator's name contains
    "products": ("linear", "addmm", "int8pack"),
    "attention": ("bmm", "attention"),
    "softmax and norms": ("softmax", "layer_norm"),
    "copies and conversions": ("copy", "cat", "index", "fill", "gather"),
}
ROUNDS = 5


def kind_of(name: str) -> str:
    return next((kind for kind, parts in KINDS.items() if any(part in name for part in parts)), "other operators")


def profiled(run: Any) -> dict[str, float]:
    """Milliseconds of the operators of each kind, in the fastest of some rounds."""
    rounds = []
    for _ in range(ROUNDS):
        found = dict.fromkeys([*KINDS, "other operators"], 0.0)
        with profile(activities=[ProfilerActivity.CPU]) as seen:
            run()
        for event in seen.key_averages():
            if "::" in event.key:
                found[kind_of(event.key)] += event.self_cpu_time_total / 1e3
        rounds.append(found)
    return min(rounds, key=lambda found: sum(found.values()))


def seconds(run: Any) -> float:
    """Seconds of the fastest of some rounds, after one that warms up."""
    times = []
    for _ in range(ROUNDS + 1):
        began = time.perf_counter()
        run()
        times.append(time.perf_counter() - began)
    return min(times[1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=32)
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--precision", choices=("fp32", "bf16", "int8"), default="int8")
    parser.add_argument("--size", choices=tuple(SIZES), default="base")
    given = parser.parse_args()
    machine.use_threads(0)
    machine.tune_allocator()
    torch.manual_seed(1)
    design = MODELS["transformer"]
    model = design.build(design.config(**SIZES[given.size]), Shapes(Ids(VOCAB), Ids(VOCAB), joint=True)).eval()
    pack(model, given.precision)
    batch = Batch(source=Padded.of_ids(torch.randint(4, VOCAB, (given.rows, SOURCE))))
    how = Decoding(beam=given.beam, min_length=TARGET, max_length=TARGET)

    def decode() -> None:
        generate(model, batch, how, limits=torch.full((given.rows,), TARGET))

    @torch.inference_mode()
    def start() -> None:
        model.start(batch)

    first, whole = seconds(start) * 1e3, seconds(decode) * 1e3
    before, every = profiled(start), profiled(decode)
    parts = {kind: max(0.0, every[kind] - before[kind]) for kind in every}
    parts["Python and dispatch"] = max(0.0, whole - first - sum(parts.values()))
    print(
        f"{machine.cpu_name()}, {torch.get_num_threads()} threads; {given.size}, {given.precision}, beam {given.beam}"
    )
    rate = given.rows * TARGET / whole * 1e3
    print(f"{rate:,.0f} target tokens/s; {whole:.0f} ms, of which {first:.0f} before the steps")
    print(f"a step of {given.rows} sentences: {(whole - first) / TARGET:.2f} ms")
    for kind, spent in parts.items():
        print(f"  {kind:24} {spent / TARGET:6.2f} ms   {spent / (whole - first):4.0%}")


if __name__ == "__main__":
    main()

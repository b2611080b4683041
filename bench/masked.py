"""How fast BERT is pre-trained: beside a gpt of the same size, and beside `transformers` in a bare loop.

python bench/masked.py [--shape mini|deep] [--rounds 7] [--batches 4] [--json FILE]      needs transformers (`peers`)

mini    4 layers of dim 256 and 30,522 types: BERT-Mini of Turc 2019, 11 M parameters, most of them word vectors
deep    6 layers of dim 384 and 4,000 types: 12 M parameters, most of them in the layers
All read the same windows of 128 tokens, 8,192 a batch; the masked models are asked for the same 15 % of them. What is
counted is tokens read a second, whatever is asked for. regard trains in its own loop; transformers in a bare one, with
fused AdamW, gradient clipping and, since all share one process, regard's allocator settings. They take turns, round
after round; a ratio is of two turns in one round: in each precision, and as both are used without options (regard: the
faster precision).
"""

from __future__ import annotations

import argparse
import json
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import regard  # noqa: F401  # isort: skip  (sets how long threads spin, before torch is imported)
import torch
from torch import nn

from regard import machine
from regard.data.corruption import MASK, hide
from regard.interface import BOS, EOS, Batch, Ids, Padded, Shapes
from regard.models import MODELS
from regard.train.loop import train_steps
from regard.train.training import TrainConfig, Training

ROWS, WINDOW, FIRST = 64, 128, MASK + 1


@dataclass(frozen=True)
class Shape:
    """What all models have in common."""

    dim: int
    heads: int
    layers: int
    vocabulary: int

    @property
    def settings(self) -> dict[str, Any]:
        same = {"dim": self.dim, "heads": self.heads, "layers": self.layers}
        return {**same, "feed_forward": 4 * self.dim, "dropout": 0.1}


SHAPES = {
    "mini": Shape(dim=256, heads=4, layers=4, vocabulary=30522),
    "deep": Shape(dim=384, heads=6, layers=6, vocabulary=4000),
}
IGNORED = -100  # a label that transformers does not count
NEVER = 1_000_000_000
Turn = Callable[[], None]


class Fixed:
    """The same few batches, epoch after epoch."""

    carries = 0

    def __init__(self, batches: list[Batch]) -> None:
        self.batches = batches

    def count(self, epoch: int) -> int:
        return len(self.batches)

    def get(self, epoch: int, index: int) -> Batch:
        return self.batches[index]


def batches_of(vocabulary: int, count: int) -> tuple[list[Batch], list[Batch]]:
    """The same texts with hidden tokens, and to be read from left to right."""
    random = torch.Generator().manual_seed(0)
    ids = [torch.randint(FIRST, vocabulary, (ROWS, WINDOW - 1), generator=random) for _ in range(count)]
    ended = [nn.functional.pad(each, (0, 1), value=EOS) for each in ids]
    plain = [Batch(Padded.of_ids(each)) for each in ended]
    hidden = [hide(each, first=FIRST, vocab=vocabulary, seed=(number,)) for number, each in enumerate(plain)]
    return hidden, [Batch.of_text(nn.functional.pad(each, (1, 0), value=BOS)) for each in ended]


def ours(name: str, shape: Shape, batches: list[Batch], precision: str) -> tuple[Turn, int]:
    extra = {"longest": WINDOW + 1} if name == "bert" else {"context": WINDOW}
    shapes = Shapes(Ids(shape.vocabulary), Ids(shape.vocabulary), joint=True)
    design = MODELS[name]
    model = design.build(design.config(**shape.settings, **extra), shapes)
    config = TrainConfig(steps=NEVER, validate_every=NEVER, precision=precision)  # type: ignore[arg-type]
    steps = train_steps(Training(model, config), Fixed(batches), validate=lambda: ({}, ()), save_best=lambda: None)
    return lambda: [next(steps) for _ in batches] and None, sum(p.numel() for p in model.parameters())


def theirs(shape: Shape, batches: list[Batch], precision: str) -> tuple[Turn, int]:
    from transformers import BertConfig, BertForMaskedLM

    config = BertConfig(
        vocab_size=shape.vocabulary,
        hidden_size=shape.dim,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        intermediate_size=4 * shape.dim,
        max_position_embeddings=WINDOW + 1,
    )
    model = BertForMaskedLM(config).train()
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, fused=True)

    def turn() -> None:
        for batch in batches:
            assert batch.source and batch.target
            read, (values, hidden) = batch.source.led_by(BOS), batch.target
            labels = nn.functional.pad(values.masked_fill(~hidden, IGNORED), (1, 0), value=IGNORED)
            optimiser.zero_grad()
            with torch.autocast("cpu", torch.bfloat16, enabled=precision == "bfloat16"):
                loss = model(read.values, attention_mask=read.mask.long(), labels=labels).loss
            loss.backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimiser.step()

    return turn, sum(p.numel() for p in model.parameters())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shape", choices=SHAPES, default="mini")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--batches", type=int, default=4, help="batches of a turn")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    given = parser.parse_args()
    machine.tune_allocator()
    shape = SHAPES[given.shape]
    hidden, plain = batches_of(shape.vocabulary, given.batches)
    turns: dict[str, Turn] = {}
    for precision in ("float32", *(["bfloat16"] if machine.bf16_gain() > 1 else [])):
        made = {
            "regard bert": ours("bert", shape, hidden, precision),
            "regard gpt": ours("gpt", shape, plain, precision),
            "transformers bert": theirs(shape, hidden, precision),
        }
        for name, (turn, parameters) in made.items():
            turns[f"{name}, {precision}"] = turn
            print(f"{name:18} {precision:9} {parameters:,} parameters", flush=True)
            turn()  # warms up
    rates: dict[str, list[float]] = {name: [] for name in turns}
    for _ in range(given.rounds):
        for name, turn in turns.items():
            began = time.perf_counter()
            turn()
            rates[name].append(given.batches * ROWS * WINDOW / (time.perf_counter() - began))
    print(f"\n{machine.cpu_name()}, {torch.get_num_threads()} threads, load {os.getloadavg()[0]:.1f}")
    for name, each in rates.items():
        print(f"{name:28} {median(each):8,.0f} tokens/s ({min(each):,.0f}-{max(each):,.0f})")
    for precision in sorted({name.split(", ")[1] for name in rates}, reverse=True):
        own = rates[f"regard bert, {precision}"]
        for other in ("regard gpt", "transformers bert"):
            ratios = [a / b for a, b in zip(own, rates[f"{other}, {precision}"], strict=True)]
            print(f"regard bert / {other}, {precision}: {median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
    used = [
        rates[f"regard bert, {'bfloat16' if machine.bf16_gain() > 1.5 else 'float32'}"],
        rates["transformers bert, float32"],
    ]
    ratios = [a / b for a, b in zip(*used, strict=True)]
    print(f"as they are used without options: {median(ratios):.2f} ({min(ratios):.2f}-{max(ratios):.2f})")
    if given.json:
        given.json.write_text(json.dumps(rates, indent=2) + "\n")


if __name__ == "__main__":
    main()

"""Tokens a second while writing: what a token costs when 100 have been written, and when 1,000 have.

python bench/generation.py

Models of the given sizes with random weights, one text at a time, the likeliest token each time. A recurrent model's
state has one size, so a token should cost the same anywhere; a GPT's cache grows, and with it what there is to look at.
Figures are medians over the 50 tokens around the given length, the best of three runs.
"""

from __future__ import annotations

import time
from statistics import median

import torch

from regard import machine
from regard.interface import BOS, Batch, Ids, Shapes
from regard.models import MODELS
from regard.predict.decoding import Decoding
from regard.predict.search import generate

VOCAB = 10_000
LENGTHS = (100, 1000)
AROUND = 25
SIZES = {
    "rnn_lm, LSTM 512": ("rnn_lm", {"embedding": 512, "hidden": 512}),
    "rnn_lm, 2 x gru-after 512": ("rnn_lm", {"embedding": 512, "hidden": 512, "layers": 2, "cell": "gru-after"}),
    "gpt, dim 256, 4 layers, context 1,100": ("gpt", {"context": 1100}),
}


def moments(model: torch.nn.Module) -> list[float]:
    """When each token was chosen."""
    times: list[float] = []
    longest = max(LENGTHS) + AROUND
    how = Decoding(min_length=longest, max_length=longest)
    batch = Batch.of_text(torch.tensor([[BOS]]))
    generate(model, batch, how, limits=torch.tensor([longest]), on_token=lambda _: times.append(time.perf_counter()))
    return times


def main() -> None:
    machine.use_threads(0)
    print(f"matmul {machine.matmul_gflops():.0f} GFLOPS, {torch.get_num_threads()} threads")
    for name, (model_name, settings) in SIZES.items():
        torch.manual_seed(1)
        design = MODELS[model_name]
        model = design.build(design.config(**settings, dropout=0.0), Shapes(None, Ids(VOCAB))).eval()
        rates = dict.fromkeys(LENGTHS, 0.0)
        for _ in range(3):
            times = moments(model)
            steps = [after - before for before, after in zip(times, times[1:], strict=False)]
            for length in LENGTHS:
                near = steps[length - AROUND : length + AROUND]
                rates[length] = max(rates[length], 1 / median(near))
        shown = ", ".join(f"{rate:,.0f} tokens/s at {length:,}" for length, rate in rates.items())
        print(f"{name}: {shown}; ratio {rates[1000] / rates[100]:.2f}")


if __name__ == "__main__":
    main()

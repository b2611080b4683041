"""Language models on captions, one beside the other: from counting to GPT, on the same tokens.

REGARD_DATA=… python bench/language.py [-o FOLDER] [--minutes 7.8] [MODEL …]

Each trains for at most so many minutes on the training captions (the 10,000 most frequent types, the rest <unk>, the
end of each line predicted). Weights of mixtures are fitted on the validation captions; the test captions are read once
a model. Perplexities are per token, <eos> counted, with a paired bootstrap over the test lines: p is the share of
resamples in which the second is not better than the first. Then: how often a test line is likelier than itself with
its words shuffled, and with one word doubled. Training resumes and results are kept: the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import subprocess
import sys
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

import regard
from regard.checkpoint import Folder
from regard.data.files import write_atomically
from regard.data.tensors import read_tensors
from regard.data.text import read_lines
from regard.run import Run
from regard.score.likelihood import encoded, fitted_weights, mixed, scorer, token_log_probs

HERE = Path(__file__).parent
SLOWER = "train.learning_rate=0.001"
RECURRENT = ["model.name=rnn_lm", "model.tie=false", "model.head=adaptive", "model.embedding=256", "model.hidden=512"]
MODELS: dict[str, list[str]] = {
    "KN5": ["model.name=ngram", "model.order=5"],
    "neural_lm": ["model.name=neural_lm", "model.embedding=150", "model.hidden=400", "model.head=adaptive", SLOWER],
    "tanh": [*RECURRENT, "model.cell=tanh", SLOWER],
    "LSTM": [*RECURRENT, "model.cell=lstm"],
    "GRU": [*RECURRENT, "model.cell=gru-after"],
    "tanh, narrow": ["model.name=rnn_lm", "model.cell=tanh"],  # what the next one is without its features
    "tanh + MaxEnt": ["model.name=rnn_lm", "model.cell=tanh", "model.head=features"],
    "gpt": ["model.name=gpt", "model.layers=3", "model.context=128", "model.tie=false", "model.head=adaptive"],
}
MIXTURES = (("LSTM", "KN5"), ("gpt", "KN5"), tuple(MODELS))
PAIRS = (
    ("KN5", "LSTM"),
    ("LSTM", "LSTM + KN5"),
    ("KN5", "neural_lm"),
    ("tanh", "LSTM"),
    ("GRU", "LSTM"),
    ("tanh, narrow", "tanh + MaxEnt"),
    ("LSTM", "gpt"),
)
RESAMPLES = 2000
Floats = NDArray[np.float64]


def trained(folder: Path, name: str, minutes: float) -> Run:
    settings = [*MODELS[name], f"train.minutes={minutes}", "seed=1"]
    run = folder / name.replace(" ", "")
    command = [sys.executable, "-m", "regard", "train", str(HERE / "language.toml"), *settings, "-o", str(run)]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    return regard.load(run)


def line_scores(run: Run, lines: list[str]) -> list[Floats]:
    return token_log_probs(scorer(run), encoded(run, lines), device=run.device)


def better_than_spoilt(run: Run, lines: list[str]) -> tuple[float, float, int]:
    """The shares of lines that are likelier than their shuffle, and than themselves with a word doubled."""
    chance = random.Random(1)
    kept, shuffles, doubles = [], [], []
    for line in lines:
        words = line.split()
        if len(set(words)) < 2:
            continue
        shuffled = words
        while shuffled == words:
            shuffled = chance.sample(words, len(words))
        place = chance.randrange(len(words))
        kept.append(line)
        shuffles.append(" ".join(shuffled))
        doubles.append(" ".join([*words[: place + 1], *words[place:]]))
    own, shuffled_, doubled = (
        [values.sum() for values in line_scores(run, each)] for each in (kept, shuffles, doubles)
    )
    beats = [np.mean([a > b for a, b in zip(own, spoilt, strict=True)]) for spoilt in (shuffled_, doubled)]
    return float(beats[0]), float(beats[1]), len(kept)


def not_better(first: list[Floats], second: list[Floats]) -> float:
    """Paired bootstrap: how often, lines drawn again, the second is not the likelier."""
    gains = np.array([b.sum() - a.sum() for a, b in zip(first, second, strict=True)])
    draws = np.random.default_rng(1).integers(len(gains), size=(RESAMPLES, len(gains)))
    return float((gains[draws].sum(1) <= 0).mean())


def main() -> None:
    parser = argparse.ArgumentParser(description="Language models on captions")
    parser.add_argument("models", nargs="*", default=list(MODELS), metavar="MODEL", help=f"of {', '.join(MODELS)}")
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/language"))
    parser.add_argument("--minutes", type=float, default=7.8)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    data = Path(os.environ["REGARD_DATA"]) / "captions"
    valid, test = list(read_lines(data / "val.en.gz")), list(read_lines(data / "test.en.gz"))
    on_valid: dict[str, list[Floats]] = {}
    on_test: dict[str, list[Floats]] = {}
    print(f"{'model':14} {'parameters':>10} {'minutes':>8} {'valid':>8} {'test':>8}", flush=True)
    for name in given.models:
        run = trained(given.out, name, given.minutes)
        on_valid[name], on_test[name] = line_scores(run, valid), line_scores(run, test)
        folder = Folder(given.out / name.replace(" ", ""))
        minutes = read_tensors(folder.last)[1]["seconds"] / 60
        weights = sum(tensor.numel() for tensor in read_tensors(folder.best)[0].values())
        show(name, on_valid[name], on_test[name], f"{weights / 1e6:8.2f} M {minutes:8.2f}")
        beats = better_than_spoilt(run, test)
        kept = {"parameters": weights, "minutes": minutes, "beats": beats}
        write_atomically(given.out / f"{folder.path.name}.json", json.dumps(kept) + "\n")
        print(
            f"{'':14} beats its shuffle {beats[0]:.2%}, a doubled word {beats[1]:.2%} of {beats[2]} lines", flush=True
        )
    for names in MIXTURES:
        parts = [name for name in names if name in on_test]
        if len(parts) < 2 or len(parts) < min(3, len(names)):
            continue
        shares = fitted_weights(np.stack([np.concatenate(on_valid[name]) for name in parts]))
        name = " + ".join(parts) if len(parts) < 3 else "all"
        for scores in (on_valid, on_test):
            scores[name] = [mixed(np.stack(each), shares) for each in zip(*(scores[p] for p in parts), strict=True)]
        show(name, on_valid[name], on_test[name], " ".join(f"{p} {s:.2f}" for p, s in zip(parts, shares, strict=True)))
    tokens = sum(map(len, next(iter(on_test.values()))))
    print(f"{tokens:,} test tokens in {len(test):,} lines")
    for first, second in PAIRS:
        if first in on_test and second in on_test:
            print(f"{second} below {first}: p = {not_better(on_test[first], on_test[second]):.4f}")


def show(name: str, valid: list[Floats], test: list[Floats], more: str) -> None:
    perplexities = [math.exp(-np.concatenate(each).mean()) for each in (valid, test)]
    print(f"{name:14} {more} {perplexities[0]:8.3f} {perplexities[1]:8.3f}", flush=True)


if __name__ == "__main__":
    main()

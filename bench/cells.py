"""Recurrent cells, one beside the other: how fast they are, how well they model text, how long they remember.

python bench/cells.py speed    [--rounds 7]
python bench/cells.py language [--seeds 3] [--jobs 1] [-o FOLDER]
python bench/cells.py memory   [--seeds 3] [--jobs 1] [-o FOLDER] [--lengths 50 100 200]

speed     Forward and backward through one layer, turn by turn in one run. Each is counted with its own products:
          6 · batch · time · (numbers in its matrices) FLOP. `mine` is a cell such as a user writes, defined here.
          Ratios are of GFLOPS to those of nn.LSTM (and nn.GRU) in the same round: median, least, greatest.
language  rnn_lm on the characters of the built-in corpus, every cell with as many parameters as an LSTM of width 128,
          for as many steps: validation loss in nats a character.
memory    The adding problem (Hochreiter & Schmidhuber 1997): two columns of T numbers, one uniform in 0 … 1, the other
          marking two of them, one in each half; at the end their sum is asked for. Guessing 1 always has a squared
          error of 1/6 = 0.167. Every cell has as many parameters as an LSTM of width 64, and the same batches, steps
          and rate; it is asked every 100 steps, and an error below 0.01 is a solution, which ends its training.
Results of language and memory are kept in FOLDER: the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import mean, median
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

import regard
from regard import machine
from regard.checkpoint import Folder
from regard.data.files import write_atomically
from regard.data.tensors import read_tensors
from regard.interface import Batch, Loss
from regard.layers.cells import CELLS, Cell, State
from regard.layers.recurrent import Recurrent
from regard.train.loop import train_steps
from regard.train.training import TrainConfig, Training

SHAPES = {"hidden 512, batch 32, time 64": (512, 32, 64), "hidden 128, batch 16, time 64": (128, 16, 64)}
SECONDS = 1.0  # that a contender works in a round
LANGUAGE_WIDTH, MEMORY_WIDTH = 128, 64  # of the LSTM whose parameters all have
MEMORY_STEPS, MEMORY_ROWS, MEMORY_RATE, ASKED_EVERY = 2000, 64, 0.01, 100
SOLVED = 0.01
COMPARED = ("tanh", "relu", "sigmoid", "lstm", "gru", "gru-after", "mut1", "mut2", "mut3")
REMEMBERING = ("tanh", "lstm", "gru", "gru-after", "mut1", "mut2", "mut3")


# --- speed ---


class Mine(Cell):
    """h' = z ⊙ tanh(x W + h U) + (1 − z) ⊙ h,  z = σ(x V + h S): ten lines that somebody might write."""

    def __init__(self, *, input_dim: int, hidden: int) -> None:
        super().__init__(input_dim=input_dim, hidden=hidden)
        self.read = nn.Linear(input_dim, 2 * hidden)
        self.recall = nn.Linear(hidden, 2 * hidden, bias=False)

    def inputs(self, x: Tensor) -> Tensor:
        return self.read(x)

    def step(self, projected: Tensor, state: State) -> State:
        candidate, update = (projected + self.recall(state[0])).chunk(2, -1)
        return (torch.lerp(state[0], candidate.tanh(), update.sigmoid()),)


def contenders(hidden: int) -> dict[str, nn.Module]:
    theirs: dict[str, nn.Module] = {
        "nn.LSTM": nn.LSTM(hidden, hidden, batch_first=True),
        "nn.GRU": nn.GRU(hidden, hidden, batch_first=True),
    }
    ours = {**{name: CELLS[name] for name in COMPARED}, "mine": Mine}
    return theirs | {name: Recurrent(cell=cell, input_dim=hidden, hidden=hidden) for name, cell in ours.items()}


def gflops(model: nn.Module, x: Tensor) -> float:
    """Of its best pass in so many seconds."""
    work = 6 * x.shape[0] * x.shape[1] * sum(p.numel() for p in model.parameters() if p.dim() == 2)
    slope = torch.ones(*x.shape[:2], x.shape[2])
    best, until = float("inf"), time.perf_counter() + SECONDS
    while time.perf_counter() < until:
        began = time.perf_counter()
        model(x)[0].backward(slope)
        best = min(best, time.perf_counter() - began)
        model.zero_grad()
        x.grad = None
    return work / best / 1e9


def speed(rounds: int) -> None:
    machine.tune_allocator()
    print(f"{machine.cpu_name()}, {torch.get_num_threads()} threads, float32, forward and backward, {rounds} rounds")
    for shape, (hidden, rows, steps) in SHAPES.items():
        models = contenders(hidden)
        x = torch.randn(rows, steps, hidden, requires_grad=True)
        found: dict[str, list[float]] = {name: [] for name in models}
        for turn in range(rounds + 1):  # the first warms up
            for name, model in models.items():
                reached = gflops(model, x)
                if turn:
                    found[name].append(reached)
        print(f"\n{shape}\n{'':10} {'GFLOPS':>8} {'of nn.LSTM':>24} {'of nn.GRU':>24}")
        for name, values in found.items():
            ratios = [[a / b for a, b in zip(values, found[peer], strict=True)] for peer in ("nn.LSTM", "nn.GRU")]
            shown = " ".join(f"{f'{median(r):.2f} ({min(r):.2f}-{max(r):.2f})':>24}" for r in ratios)
            print(f"{name:10} {median(values):8.0f} {shown}", flush=True)


# --- equal parameters ---


def parameters(cell: Callable[..., nn.Module], **sizes: int) -> int:
    with torch.device("meta"):
        return sum(p.numel() for p in cell(**sizes).parameters())


def width_for(count: Callable[[int], int], wanted: int) -> int:
    """The width at which so many parameters are nearly reached."""
    return min(range(1, 1024), key=lambda width: abs(count(width) - wanted))


# --- language ---


def language_result(folder: Path, name: str, seed: int, threads: int) -> dict[str, Any]:
    wanted = parameters(CELLS["lstm"], input_dim=LANGUAGE_WIDTH, hidden=LANGUAGE_WIDTH)
    hidden = width_for(lambda width: parameters(CELLS[name], input_dim=LANGUAGE_WIDTH, hidden=width), wanted)
    run = folder / f"{name}-{seed}"
    recipe = Path(regard.__file__).parent / "recipes" / "demo-rnn_lm.toml"
    settings = [f"model.cell={name}", f"model.hidden={hidden}", f"model.embedding={LANGUAGE_WIDTH}", "model.tie=false"]
    settings += [f"seed={seed}", "train.learning_rate=0.003", "train.smooth=0.1"]
    command = [sys.executable, "-m", "regard", "train", str(recipe), *settings, "-o", str(run)]
    command += ["--threads", str(threads)] if threads else []
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    facts = read_tensors(Folder(run).last)[1]
    return {"width": hidden, "loss": facts["best"], "steps": facts["step"], "seconds": facts["seconds"]}


# --- memory ---


class Adder(nn.Module):
    """A recurrent layer and one number from its last state."""

    def __init__(self, cell: Callable[..., Cell], hidden: int) -> None:
        super().__init__()
        self.recurrent = Recurrent(cell=cell, input_dim=2, hidden=hidden)
        self.answer = nn.Linear(hidden, 1)

    def loss(self, batch: Batch) -> Loss:
        outputs, _ = self.recurrent(batch.source)
        error = (self.answer(outputs[:, -1]) - batch.target).square().sum()
        return Loss(error, error.detach(), batch.size)


class Sums:
    """Batches of the adding problem; each is a function of (seed, epoch, index)."""

    carries = 0

    def __init__(self, length: int, rows: int, seed: int) -> None:
        self.length, self.rows, self.seed = length, rows, seed

    def count(self, epoch: int) -> int:
        return 1000

    def get(self, epoch: int, index: int) -> Batch:
        random = np.random.default_rng([self.seed, epoch, index])
        numbers, marks = random.random((self.rows, self.length)), np.zeros((self.rows, self.length))
        half, every = self.length // 2, np.arange(self.rows)
        marks[every, random.integers(half, size=self.rows)] = 1
        marks[every, half + random.integers(self.length - half, size=self.rows)] = 1
        sums = (numbers * marks).sum(1, keepdims=True)
        return Batch(torch.tensor(np.stack([numbers, marks], -1)).float(), torch.tensor(sums).float())


def memory_result(name: str, length: int, seed: int) -> dict[str, Any]:
    wanted = parameters(CELLS["lstm"], input_dim=2, hidden=MEMORY_WIDTH)
    hidden = width_for(lambda width: parameters(CELLS[name], input_dim=2, hidden=width), wanted)
    torch.manual_seed(seed)
    model = Adder(CELLS[name], hidden)
    unseen = Sums(length, 1000, seed=1_000_003).get(0, 0)
    config = TrainConfig(
        steps=MEMORY_STEPS,
        learning_rate=MEMORY_RATE,
        schedule="linear",
        warmup=100,
        weight_decay=0.0,
        validate_every=ASKED_EVERY,
        precision="float32",
    )
    curve: list[float] = []

    def validate() -> tuple[dict[str, float], tuple[()]]:
        curve.append(float(model.loss(unseen).objective) / unseen.size)
        return {"loss": curve[-1]}, ()

    began = time.perf_counter()
    training = Training(model, config)
    for _ in train_steps(training, Sums(length, MEMORY_ROWS, seed), validate=validate, save_best=lambda: None):
        if curve and curve[-1] < SOLVED:
            break
    return {"width": hidden, "curve": curve, "seconds": time.perf_counter() - began}


# --- running and telling ---


def kept(place: Path, make: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """The result in that file, made now where it is not."""
    if not place.exists():
        write_atomically(place, json.dumps(make()) + "\n")
    found: dict[str, Any] = json.loads(place.read_text())
    return found


def in_process(arguments: list[str], place: Path, threads: int) -> None:
    """One result by a process of its own, so that several can be had side by side."""
    if not place.exists():
        command = [sys.executable, __file__, *arguments, "--one", str(place), "--threads", str(threads)]
        subprocess.run(command, check=True)


def tell_language(folder: Path, seeds: int, jobs: int) -> None:
    every = [(name, seed) for name in COMPARED for seed in range(1, seeds + 1)]
    threads = 1 if jobs > 1 else 0
    with ThreadPoolExecutor(jobs) as pool:
        results = list(
            pool.map(
                lambda one: kept(folder / f"{one[0]}-{one[1]}.json", lambda: language_result(folder, *one, threads)),
                every,
            )
        )
    print(
        f"{'cell':10} {'width':>6} {'steps':>6}   nats a character, each of {seeds} seeds, and their mean     seconds"
    )
    for name in COMPARED:
        mine = [result for (other, _), result in zip(every, results, strict=True) if other == name]
        losses = [result["loss"] for result in mine]
        shown = "  ".join(f"{loss:.4f}" for loss in losses)
        seconds = mean(result["seconds"] for result in mine)
        print(f"{name:10} {mine[0]['width']:6} {mine[0]['steps']:6}   {shown}   {mean(losses):.4f} {seconds:18.0f}")


def tell_memory(folder: Path, seeds: int, jobs: int, lengths: list[int]) -> None:
    every = [(name, length, seed) for length in lengths for name in REMEMBERING for seed in range(1, seeds + 1)]

    def place(name: str, length: int, seed: int) -> Path:
        return folder / f"{name}-{length}-{seed}.json"

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(lambda one: in_process(["memory"], place(*one), 1 if jobs > 1 else 0), every))
    print(
        f"adding problem: at most {MEMORY_STEPS} steps of {MEMORY_ROWS} rows, rate {MEMORY_RATE}; error on 1,000 "
        f"unseen rows (guessing: 0.167), of each of {seeds} seeds; steps until it was below {SOLVED}"
    )
    for length in lengths:
        columns = f"{'last error':{8 * seeds}} {'steps to it':{7 * seeds}} seconds"
        print(f"\n{length} steps\n{'cell':10} {'width':>6}   {columns}")
        for name in REMEMBERING:
            results = [json.loads(place(name, length, seed).read_text()) for seed in range(1, seeds + 1)]
            curves = [result["curve"] for result in results]
            errors = "  ".join(f"{curve[-1]:.4f}" for curve in curves)
            steps = "  ".join(f"{ASKED_EVERY * len(c) if c[-1] < SOLVED else 'never':>5}" for c in curves)
            seconds = mean(result["seconds"] for result in results)
            print(f"{name:10} {results[0]['width']:6}   {errors:{8 * seeds}} {steps:{7 * seeds}} {seconds:7.0f}")


def main() -> None:
    parser = argparse.ArgumentParser(description="Recurrent cells, one beside the other")
    parser.add_argument("what", choices=("speed", "language", "memory"))
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="models that train side by side, a thread each")
    parser.add_argument("--lengths", type=int, nargs="+", default=[50, 100, 200])
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/cells"))
    parser.add_argument("--one", type=Path, help=argparse.SUPPRESS)  # a process that makes this result only
    parser.add_argument("--threads", type=int, default=0, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.what == "speed":
        return speed(given.rounds)
    if given.one:
        machine.use_threads(given.threads)
        machine.tune_allocator()
        name, length, seed = given.one.stem.rsplit("-", 2)
        write_atomically(given.one, json.dumps(memory_result(name, int(length), int(seed))) + "\n")
        return None
    folder = given.out / given.what
    folder.mkdir(parents=True, exist_ok=True)
    if given.what == "language":
        return tell_language(folder, given.seeds, given.jobs)
    return tell_memory(folder, given.seeds, given.jobs, given.lengths)


if __name__ == "__main__":
    main()

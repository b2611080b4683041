"""Training throughput on Multi30k English-German: regard, JoeyNMT and MarianMT, turn by turn in one run.

REGARD_DATA=… python bench/train.py [--peers bench/.venv/bin/python] [--rounds 4] [--batches 8] [--json FILE]
REGARD_DATA=… python bench/train.py --against CHECKOUT [--rounds 9]      this tree beside another checkout of regard

What is counted is target tokens a second, with <eos> and without padding. All have the same pieces (regard's joint BPE)
and batches of at most 4,096 tokens a side, padding included.
as shipped      as its users run it. regard: a Session's own steps, batches and precision. JoeyNMT: the command
                `joeynmt train` with its own batches and optimiser. MarianMT: a bare loop on regard's padded batches.
like for like   regard's padded batches for all, in float32, one allocator tuning, one spin count, fused AdamW.

The machine's speed drifts, so the contenders take turns: each is a process that loads, warms up and waits, and the
rounds go A, B, C, A, B, C, … with one at work at a time. JoeyNMT's trainer too: it runs as it is, with a gate before
each of its training steps (peers/joeynmt_train.py). A ratio is of two neighbours in one round. One more contender
multiplies 1024 x 1024 matrices in float32, which says what the machine could do in that round.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import subprocess
import sys
import tempfile
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

from children import Child

HERE = Path(__file__).resolve().parent
PEERS = HERE / ".venv" / "bin" / "python"
ROWS = {"shipped": "as shipped", "like": "like for like"}
BATCH_TOKENS = 4096
MATRIX = 1024
# the settings of regard's models; the peers read them from setup.json. An embedding as wide as the hidden state gives
# regard's and JoeyNMT's recurrent models output matrices of one size
MODELS: dict[str, dict[str, Any]] = {
    "transformer": dict(dim=256, heads=4, feed_forward=1024, layers=3, dropout=0.3, label_smoothing=0.1),
    "rnnsearch": dict(embedding=512, hidden=512, layers=1, cell="gru-after", dropout=0.3, label_smoothing=0.1),
}


# --- regard's side, each in a process of its own; what needs torch is imported there ---


def open_session(folder: Path, model_name: str, row: str) -> Any:
    import regard.recipe
    from regard.tasks.registry import TASKS

    files = {"source": "train.en.gz", "target": "train.de.gz", "valid_source": "val.en.gz", "valid_target": "val.de.gz"}
    never = 1_000_000  # steps
    recipe = {
        "task": "translation",
        "data": {"name": "parallel", **{key: f"multi30k/{file}" for key, file in files.items()}},
        "tokens": {"kind": "bpe", "size": 8000, "joint": True},
        "model": {"name": model_name, "tie": True, **MODELS[model_name]},
        "train": {
            "steps": never,
            "validate_every": never,
            "batch_tokens": BATCH_TOKENS,
            "precision": "auto" if row == "shipped" else "float32",
        },
    }
    parsed = regard.recipe.parse_recipe(recipe, tasks=TASKS)
    return regard.Session(parsed, folder / f"regard-{model_name}-{row}")


def prepare(folder: Path, batches: str) -> None:
    """What the contenders read: the padded batches, the text in pieces, the vocabulary, the settings."""
    import numpy as np

    from regard import UserError, machine

    try:
        session = open_session(folder, "transformer", "prepare")
    except UserError as error:
        sys.exit(str(error))
    padded = [session.batches.get(0, index) for index in range(min(int(batches), session.batches.count(0)))]
    sides = {f"source_{i}": batch.source.values for i, batch in enumerate(padded)}
    sides |= {f"target_{i}": batch.target.values for i, batch in enumerate(padded)}
    np.savez(folder / "batches.npz", **{name: tensor.numpy() for name, tensor in sides.items()})

    tokenizer = session.run.tokenizer("target")
    specials = tokenizer.size - len(tokenizer.vocabulary)
    (folder / "vocabulary.txt").write_text("\n".join(tokenizer.vocabulary) + "\n", encoding="utf-8")
    for name, split in (("train", "train"), ("dev", "valid")):
        for language, side in zip(("en", "de"), session.encoded[split].values(), strict=True):
            lines = (" ".join(tokenizer.vocabulary[i - specials] for i in side[n]) for n in range(len(side)))
            (folder / f"{name}.{language}").write_text("\n".join(lines) + "\n", encoding="utf-8")
    setup = {
        "models": MODELS,
        "vocabulary": tokenizer.size,
        "batch_tokens": BATCH_TOKENS,
        "warm_up": len(padded),
        "processor": machine.cpu_name(),
        "plan": session.batches.stats()._asdict(),
    }
    (folder / "setup.json").write_text(json.dumps(setup))


class FixedBatches:
    """The same few batches, epoch after epoch."""

    carries = 0

    def __init__(self, batches: list[Any]) -> None:
        self.batches = batches

    def count(self, epoch: int) -> int:
        return len(self.batches)

    def get(self, epoch: int, index: int) -> Any:
        return self.batches[index]


def contend(folder: Path, model_name: str, row: str) -> None:
    """regard's own loop: over its own plan, or over the fixed batches."""
    session = open_session(folder, model_name, row)  # before torch is imported, as `regard train` does
    from peers import common

    from regard.interface import Batch, Padded
    from regard.train.loop import train_steps

    training, batches = session.training, session.batches
    if row == "like":
        batches = FixedBatches([Batch(*map(Padded.of_ids, pair)) for pair in common.read_batches(folder)])
    gate = common.Gate(common.read_setup(folder)["warm_up"])
    model = training.model
    gate.facts = common.size_of(model, lookup=None if model_name == "transformer" else model.encoder.embed)
    gate.facts["precision"] = training.config.precision
    validate = partial(session.corpus.validate, session.run, session.encoded["valid"])
    steps = train_steps(training, batches, validate=validate, save_best=session.save_best)
    while True:
        gate.wait()
        next(steps)
        if row == "like":
            gate.done += common.real_tokens(batches.get(training.epoch, training.index - 1).target.values)
        else:
            used = batches.plan(training.epoch)[training.index - 1]
            gate.done += int(session.encoded["train"]["target"].lengths[used].sum()) + len(used)  # each with its <eos>


def matmul(folder: Path) -> None:
    """What is done here is counted in GFLOP."""
    import torch
    from peers import common

    gate = common.Gate(3)
    a, b = torch.randn(MATRIX, MATRIX), torch.randn(MATRIX, MATRIX)
    while True:
        gate.wait()
        for _ in range(20):
            torch.mm(a, b)
        gate.done += 20 * 2 * MATRIX**3 / 1e9


# --- the run ---


@dataclass
class Contender:
    name: str
    row: str
    command: list[str]
    rates: list[float] = field(default_factory=list)  # one a round
    cores: list[float] = field(default_factory=list)  # that it had, on average, in each round
    facts: dict[str, Any] = field(default_factory=dict)
    environment: dict[str, str] = field(default_factory=dict)  # beside the usual one
    child: Child | None = None

    def start(self, folder: Path, threads: int) -> None:
        """Loads and warms up; returns when it waits."""
        environment = {"OMP_NUM_THREADS": str(threads), **self.environment}
        if self.row == "like":
            environment["GOMP_SPINCOUNT"] = "10000"  # regard/__init__.py sets it for regard
        title, log = f"{self.name} ({ROWS.get(self.row, self.row)})", folder / f"{self.name}-{self.row}.log"
        self.child = Child(title, self.command, log=log, environment=environment)
        self.facts = self.child.answer()

    def go(self, batches: int) -> None:
        assert self.child
        answer = self.child.ask(f"go {batches}")
        self.rates.append(answer["done"] / answer["seconds"])
        self.cores.append(answer["busy"] / answer["seconds"])

    def stop(self) -> None:
        if self.child:
            self.child.stop()


def contenders(folder: Path, model_name: str, peers: str) -> list[Contender]:
    """Those who meet over one model; neighbours are compared."""
    ours, place = [sys.executable, str(Path(__file__).resolve())], str(folder)
    found = [Contender("matmul", "float32", [*ours, "matmul", place])]
    scripts = {"JoeyNMT": "joeynmt_train.py"}
    if model_name == "transformer":
        scripts["MarianMT"] = "marian_train.py"
    for row in ROWS:
        found.append(Contender("regard", row, [*ours, "contend", place, model_name, row]))
        for name, script in scripts.items():
            found.append(Contender(name, row, [peers, str(HERE / "peers" / script), place, model_name, row]))
    return found


def meet(folder: Path, model_name: str, options: argparse.Namespace) -> list[dict[str, Any]]:
    every = contenders(folder, model_name, options.peers)
    try:
        for contender in every:
            print(f"{model_name}: {contender.name} ({contender.row}) warms up", file=sys.stderr, flush=True)
            contender.start(folder, options.threads)
        same = {contender.facts["done"] for contender in every if contender.row == "like"}
        assert len(same) == 1, f"like for like must be the same tokens, not {same}"
        for number in range(options.rounds):
            print(f"{model_name}: round {number + 1} of {options.rounds}", file=sys.stderr, flush=True)
            for contender in every:
                contender.go(options.batches)
    finally:
        for contender in every:
            contender.stop()
    return [measured(contender, every) for contender in every]


def measured(contender: Contender, every: list[Contender]) -> dict[str, Any]:
    facts = {"name": contender.name, "row": contender.row, "rates": contender.rates, "cores": contender.cores}
    facts["rate"] = median(contender.rates)
    if contender.name == "matmul":
        return facts
    (regard,) = (each for each in every if each.name == "regard" and each.row == contender.row)
    flops = 6 * contender.facts["matmul_parameters"] / 1e9  # GFLOP a token: forward 2, backward 4
    shares = [flops * rate / peak for rate, peak in zip(contender.rates, every[0].rates, strict=True)]
    return facts | {
        "parameters": contender.facts["parameters"],
        "precision": contender.facts.get("precision", "float32"),
        "ratios": [ours / theirs for ours, theirs in zip(regard.rates, contender.rates, strict=True)],
        "gflops": flops * facts["rate"],
        "share": median(shares),
    }


def table(model_name: str, rows: list[dict[str, Any]]) -> str:
    peak, *others = rows
    lines = [
        f"{model_name}; float32 matmul {peak['rate']:.0f} GFLOPS ({min(peak['rates']):.0f}-{max(peak['rates']):.0f})",
        "               contender  precision  target tokens/s  regard is faster by   parameters  GFLOPS  of matmul",
    ]
    for row in others:
        ratios = row["ratios"]
        faster = f"{median(ratios):.2f}x ({min(ratios):.2f}-{max(ratios):.2f})" if row["name"] != "regard" else ""
        lines.append(
            f"{ROWS[row['row']]:<15}{row['name']:<11}{row['precision']:<9}{row['rate']:>17,.0f}  {faster:<20}"
            f"{row['parameters']:>12,}{row['gflops']:>8.0f}{row['share']:>11.0%}"
        )
        if min(row["cores"]) < median(row["cores"]) / 2:
            had = ", ".join(f"{cores:.2f}" for cores in row["cores"])
            lines.append(f"  {row['name']} was kept from working in a round (cores it had: {had}): run it again")
    return "\n".join(lines)


def against(checkout: Path, options: argparse.Namespace) -> None:
    """This tree beside another checkout, each with its own scripts, turn by turn: a ratio for each round."""
    with tempfile.TemporaryDirectory(prefix="regard-bench-") as name:
        trees = {"this": HERE.parent, "other": checkout.resolve()}
        for model_name in options.models:
            every = []
            for title, tree in trees.items():
                place, script = Path(name) / title, str(tree / "bench" / "train.py")
                path = {"PYTHONPATH": str(tree)}
                if not place.exists():
                    place.mkdir()
                    prepare = [sys.executable, script, "prepare", str(place), str(options.batches)]
                    subprocess.run(prepare, check=True, env={**os.environ, **path})
                command = [sys.executable, script, "contend", str(place), model_name, "shipped"]
                every.append(Contender(title, "shipped", command, environment=path))
            try:
                for contender in every:
                    contender.start(Path(name), options.threads)
                for _ in range(options.rounds):
                    for contender in every:
                        contender.go(options.batches)
            finally:
                for contender in every:
                    contender.stop()
            ratios = [this / other for this, other in zip(every[0].rates, every[1].rates, strict=True)]
            rates = ", ".join(f"{each.name} {median(each.rates):,.0f}" for each in every)
            print(
                f"{model_name}: {rates} target tokens/s; this is {median(ratios):.3f} of the other "
                f"({min(ratios):.3f}-{max(ratios):.3f}), {options.rounds} rounds of {options.batches} batches",
                flush=True,
            )


def positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return int(text)


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--peers", default=str(PEERS), help="the Python that has the peers")
    parser.add_argument("--rounds", type=positive, default=4)
    parser.add_argument("--batches", type=positive, default=8, help="batches of a round, and of the warm-up")
    parser.add_argument("--models", nargs="+", choices=list(MODELS), default=list(MODELS))
    threads = os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))
    parser.add_argument("--threads", type=positive, default=positive(threads), help="of each contender")
    parser.add_argument("--json", type=Path, help="write everything measured to this file")
    parser.add_argument("--against", type=Path, metavar="CHECKOUT", help="another checkout of regard, instead of peers")
    options = parser.parse_args()
    if not os.environ.get("REGARD_DATA"):
        sys.exit("REGARD_DATA is not set: set it to the folder that holds multi30k/train.en.gz and its like.")
    if options.against:
        return options
    look = "import importlib.util as u, sys; sys.exit(not (u.find_spec('joeynmt') and u.find_spec('transformers')))"
    try:
        missing = subprocess.run([options.peers, "-c", look]).returncode
    except OSError:
        missing = 1
    if missing:
        sys.exit(
            f"{options.peers} does not have JoeyNMT and transformers: install them with "
            f"`python3 -m venv bench/.venv && bench/.venv/bin/pip install -r bench/requirements.txt`."
        )
    return options


def main() -> None:
    options = parse_options()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the children and the folder go too
    if options.against:
        against(options.against, options)
        return
    with tempfile.TemporaryDirectory(prefix="regard-bench-") as name:
        folder = Path(name)
        if code := subprocess.run([sys.executable, __file__, "prepare", name, str(options.batches)]).returncode:
            sys.exit(code)
        setup = json.loads((folder / "setup.json").read_text())
        plan = setup["plan"]
        print(
            f"{setup['processor']}, {options.threads} threads, load {os.getloadavg()[0]:.1f}; "
            f"{options.rounds} rounds of {options.batches} batches; {plan['batches']} batches an epoch in "
            f"{plan['shapes']} shapes, {plan['real']:.1%} of their positions real\n",
            flush=True,
        )
        results = {}
        for model_name in options.models:
            results[model_name] = meet(folder, model_name, options)
            print(table(model_name, results[model_name]) + "\n", flush=True)
    if options.json:
        options.json.write_text(json.dumps({**setup, "threads": options.threads, "results": results}, indent=2) + "\n")


if __name__ == "__main__":
    roles = {"prepare": prepare, "contend": contend, "matmul": matmul}
    if len(sys.argv) > 1 and sys.argv[1] in roles:
        roles[sys.argv[1]](Path(sys.argv[2]), *sys.argv[3:])
    else:
        main()

"""Decoding speed beside other programs, turn by turn in one run; weights are random, outputs have a fixed length.

python bench/decoding.py translation   a Transformer, 24 tokens to 32: regard, CTranslate2 (same weights), MarianMT
python bench/decoding.py recurrent     a GRU with additive attention, 24 tokens to 32: regard, JoeyNMT
python bench/decoding.py sampling      a language model, 200 tokens: regard, GPT-2 of transformers
python bench/decoding.py length        time per token as the output grows: regard, transformers
Options: [--rounds 3] [--only NAME …] [--threads N] [--peers bench/.venv/bin/python]

Each contender is a process of its own that waits, blocked, while another works: threads of two programs in one process
wait for each other by spinning, and slow both. The contenders take turns, round by round, after a round that warms
up; the figure is the best of the rounds.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import signal
import statistics
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from children import Child

import regard
from regard import machine

HERE = Path(__file__).resolve().parent
PEERS = HERE / ".venv" / "bin" / "python"
KEPT = HERE.parent / "runs" / "bench-decoding"  # what the translators load; a second call uses it again
SPECIALS, BOS, EOS = 4, 1, 2  # regard's special ids come first
VOCAB, SOURCE, TARGET, SAMPLED = 8000, 24, 32, 200
LENGTHS = (32, 128, 512, 2048)
NARROW = {"dim": 256, "heads": 4, "feed_forward": 1024, "layers": 3}
TRANSFORMERS = {
    "6+6 layers, dim 512": {"dim": 512, "heads": 8, "feed_forward": 2048, "layers": 6},
    "3+3 layers, dim 256": NARROW,
}
# as in bench/train.py: `gru-after` is PyTorch's GRU, and with it JoeyNMT's; its settings also name the rates of dropout
RECURRENT = {"embedding": 512, "hidden": 512, "layers": 1, "cell": "gru-after", "dropout": 0.3, "label_smoothing": 0.1}
GPT = {"dim": 384, "heads": 6, "feed_forward": 1536, "layers": 6, "context": 256}
PRECISIONS = ("fp32", "bf16", "int8")
DTYPES = ("float32", "bfloat16")
BEST = "best "

Request = dict[str, Any]  # what is asked of every contender: see peers/turns.py


@dataclass(frozen=True)
class Meeting:
    """Those who take turns at the same work, and what is shown of it."""

    title: str
    commands: dict[str, list[str]]  # of each contender
    ways: dict[str, Request]
    ratios: tuple[tuple[str, str], ...] = ()  # two contenders; "best " before a name: the fastest that it begins
    same: tuple[str, str] | None = None  # two contenders with the same weights: show how many tokens agree
    by_length: bool = False  # the ways are output lengths: show the time per token and how it grows


Results = dict[str, dict[str, float]]  # seconds by contender and way
Outputs = dict[str, dict[str, list[list[int]]]]  # the tokens of each row, by contender and way


# --- contenders ---


def script(name: str, *arguments: object, python: str = sys.executable) -> list[str]:
    return [python, str(HERE / "peers" / f"{name}_decode.py"), *map(str, arguments)]


def request(rows: int, length: int, beam: int = 1) -> Request:
    """Random sentences, the same for all; each ends in <eos>."""
    choose = random.Random(rows)
    inputs = [[*(choose.randrange(SPECIALS, VOCAB) for _ in range(SOURCE - 1)), EOS] for _ in range(rows)]
    return {"inputs": inputs, "length": length, "beam": beam, "sample": False}


def prompt(rows: int, length: int, *, sample: bool) -> Request:
    return {"inputs": [[BOS]] * rows, "length": length, "beam": 1, "sample": sample}


def words() -> list[str]:
    return [f"w{number}" for number in range(VOCAB - SPECIALS)]


def trained(size: dict[str, Any]) -> tuple[Path, Path]:
    """Return a run folder with weights that are all but random, after one step of training, and its export."""
    settings = {**size, "tie": False}  # a random model with tied matrices writes its input again, <bos> first
    run = KEPT / "-".join(f"{key}-{value}" for key, value in settings.items())
    if not (run / "ct2").exists():
        from regard.exchange.ctranslate import export_spec

        shuffled, at_once = random.Random(1).sample(words(), VOCAB - SPECIALS), SOURCE - 1
        lines = [" ".join(shuffled[start : start + at_once]) for start in range(0, len(shuffled), at_once)]
        pairs = list(zip(lines, lines, strict=True))
        recipe = {
            "task": "translation",
            "tokens": {"kind": "words", "size": VOCAB, "joint": True},
            "model": {"name": "transformer", **settings},
            "train": {"steps": 1, "validate_every": 1, "batch_tokens": 256},
        }
        regard.train(recipe, run, data=pairs, valid=pairs[:100], progress=False)
        export_spec(run, run / "ct2")
    return run, run / "ct2"


def translation(options: argparse.Namespace) -> Iterator[Meeting]:
    ways = {
        "batch 32, greedy": request(32, TARGET),
        "batch 32, beam 4": request(32, TARGET, beam=4),
        "batch 1, greedy": request(1, TARGET),
    }
    ratios = (
        ("regard int8", "CTranslate2 int8"),
        ("regard fp32", "CTranslate2 float32"),
        (f"{BEST}regard", f"{BEST}transformers"),
    )
    for title, size in TRANSFORMERS.items():
        run, export = trained(size)
        shape = json.dumps({**size, "vocabulary": VOCAB})
        commands = {f"regard {kind}": script("regard", kind, run) for kind in PRECISIONS}
        for kind in ("float32", "int8"):
            commands[f"CTranslate2 {kind}"] = script("ctranslate2", kind, options.threads, export)
        for kind in DTYPES:
            commands[f"transformers {kind}"] = script("transformers", kind, "transformer", shape)
        yield Meeting(title, commands, ways, ratios, same=("regard fp32", "CTranslate2 float32"))


def recurrent(options: argparse.Namespace) -> Iterator[Meeting]:
    ways = {
        f"batch {rows}, {name}": request(rows, TARGET, beam)
        for rows in (32, 1)
        for name, beam in (("greedy", 1), ("beam 5", 5))
    }
    KEPT.mkdir(parents=True, exist_ok=True)
    (KEPT / "vocabulary.txt").write_text("\n".join(words()) + "\n")
    shape = json.dumps({**RECURRENT, "vocabulary": VOCAB})
    commands = {f"regard {kind}": script("regard", kind, "rnnsearch", shape) for kind in ("fp32", "int8")}
    commands["JoeyNMT float32"] = script("joeynmt", KEPT, shape, python=options.peers)
    ratios = (("regard fp32", "JoeyNMT float32"), ("regard int8", "JoeyNMT float32"))
    title = f"GRU, {RECURRENT['layers']} layer, bidirectional encoder, {RECURRENT['hidden']} wide"
    yield Meeting(title, commands, ways, ratios)


def sampling(options: argparse.Namespace) -> Iterator[Meeting]:
    ways = {f"batch {rows}": prompt(rows, SAMPLED, sample=True) for rows in (1, 32)}
    ratios = (
        ("regard fp32", "transformers float32"),
        ("regard bf16", "transformers bfloat16"),
        (f"{BEST}regard", f"{BEST}transformers"),
    )
    for vocab in (VOCAB, 65):
        shape = json.dumps({**GPT, "vocabulary": vocab})
        commands = {f"regard {kind}": script("regard", kind, "gpt", shape) for kind in PRECISIONS}
        commands |= {f"transformers {kind}": script("transformers", kind, "gpt", shape) for kind in DTYPES}
        title = f"{GPT['layers']} layers, dim {GPT['dim']}, vocabulary {vocab:,}"
        yield Meeting(title, commands, ways, ratios)


def length(options: argparse.Namespace) -> Iterator[Meeting]:
    most = max(LENGTHS) + 1  # and <bos>
    for rows in (1, 8):
        for name, size, title in (
            ("transformer", {**NARROW, "longest": most}, "translator, 3+3 layers, dim 256"),
            ("gpt", {**GPT, "context": most}, f"gpt, {GPT['layers']} layers, dim {GPT['dim']}"),
        ):
            shape = json.dumps({**size, "vocabulary": VOCAB})
            commands = {
                "regard fp32": script("regard", "fp32", name, shape),
                "transformers float32": script("transformers", "float32", name, shape),
            }
            ask = request if name == "transformer" else lambda rows, many: prompt(rows, many, sample=False)
            ways = {str(many): ask(rows, many) for many in LENGTHS}
            yield Meeting(f"{title}, batch {rows}", commands, ways, by_length=True)


SECTIONS = {"translation": translation, "recurrent": recurrent, "sampling": sampling, "length": length}


# --- the run ---


def meet(meeting: Meeting, options: argparse.Namespace) -> None:
    """Let the contenders take turns, and print their figures."""
    chosen = [name for name in meeting.commands if not options.only or name.startswith(tuple(options.only))]
    if not chosen:
        sys.exit(f"--only {' '.join(options.only)} is none of {', '.join(meeting.commands)}.")
    # one spin count for all: regard/__init__.py sets it for regard
    environment = {"OMP_NUM_THREADS": str(options.threads), "GOMP_SPINCOUNT": "10000"}
    results: Results = {name: {} for name in chosen}
    outputs: Outputs = {name: {} for name in chosen}
    children: dict[str, Child] = {}
    with tempfile.TemporaryDirectory(prefix="regard-bench-") as folder:
        try:
            for name in chosen:
                log = Path(folder) / f"{name}.log"
                children[name] = Child(name, meeting.commands[name], log=log, environment=environment)
                children[name].answer()
            for way, asked in meeting.ways.items():
                seconds: dict[str, list[float]] = {name: [] for name in chosen}
                for turn in range(options.rounds + 1):
                    print(f"{meeting.title}: {way}, round {turn}", file=sys.stderr, flush=True)
                    for name, child in children.items():
                        answer = child.ask(json.dumps(asked))
                        found = {len(row) for row in answer["outputs"]}
                        if found != {asked["length"]} or len(answer["outputs"]) != len(asked["inputs"]):
                            sys.exit(f"{name} wrote {sorted(found)} tokens instead of {asked['length']}.")
                        seconds[name].append(answer["seconds"])
                        outputs[name][way] = answer["outputs"]
                for name in chosen:
                    results[name][way] = min(seconds[name][1:])  # the first round warms up
        finally:
            for child in children.values():
                child.stop()
    print("\n" + (by_length if meeting.by_length else table)(meeting, results, outputs), flush=True)


def table(meeting: Meeting, results: Results, outputs: Outputs) -> str:
    """Tokens a second, ratios of them, and how many tokens agree."""
    rates = {
        name: [len(asked["inputs"]) * asked["length"] / seconds[way] for way, asked in meeting.ways.items()]
        for name, seconds in results.items()
    }
    rows = {name: [f"{rate:,.0f}" for rate in each] for name, each in rates.items()}
    for pair in meeting.ratios:
        ours, theirs = (fastest(rates, name) for name in pair)
        if ours and theirs:
            rows[" / ".join(pair)] = [f"{a / b:.2f}" for a, b in zip(ours, theirs, strict=True)]
    if meeting.same and {*meeting.same} <= results.keys():
        ours, theirs = (outputs[name] for name in meeting.same)
        rows[" = ".join(meeting.same)] = [f"{agreement(ours[way], theirs[way]):.1%}" for way in meeting.ways]
    return aligned({meeting.title: list(meeting.ways), **rows})


def aligned(rows: dict[str, list[str]]) -> str:
    left, right = max(map(len, rows)), max(len(each) for row in rows.values() for each in row) + 2
    return "\n".join(f"{name:{left}}" + "".join(f"{each:>{right}}" for each in row) for name, row in rows.items())


def fastest(rates: dict[str, list[float]], name: str) -> list[float]:
    """Return the rates of a contender in each way, or the best of several; none if it was left out."""
    if not name.startswith(BEST):
        return rates.get(name, [])
    every = [row for other, row in rates.items() if other.startswith(name.removeprefix(BEST))]
    return [max(each) for each in zip(*every, strict=True)]


def by_length(meeting: Meeting, results: Results, outputs: Outputs) -> str:
    """Microseconds per token for each output length, and the slope of their logarithms."""
    rows = {f"{meeting.title}: µs per token": [*meeting.ways, "exponent"]}
    lengths = [math.log(asked["length"]) for asked in meeting.ways.values()]
    for name, seconds in results.items():
        times = [seconds[way] / len(asked["inputs"]) / asked["length"] for way, asked in meeting.ways.items()]
        slope, _ = statistics.linear_regression(lengths, [math.log(each) for each in times])
        rows[name] = [*(f"{1e6 * each:,.0f}" for each in times), f"{slope:.2f}"]
    return aligned(rows)


def agreement(ours: list[list[int]], theirs: list[list[int]]) -> float:
    """Return the share of places with the same token."""
    return statistics.mean(a == b for pair in zip(ours, theirs, strict=True) for a, b in zip(*pair, strict=True))


def positive(text: str) -> int:
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text} must be at least 1")
    return int(text)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("section", choices=list(SECTIONS))
    parser.add_argument("--rounds", type=positive, default=3, help="after the one that warms up")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="contenders whose names begin so")
    threads = os.environ.get("OMP_NUM_THREADS", str(os.cpu_count()))
    parser.add_argument("--threads", type=positive, default=positive(threads), help="of each contender")
    parser.add_argument("--peers", default=str(PEERS), help="the Python that has JoeyNMT")
    options = parser.parse_args()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the children go too
    machine.use_threads(options.threads)
    load, gflops = os.getloadavg()[0], machine.matmul_gflops()
    facts = f"{options.threads} threads, load {load:.1f}, float32 matmul {gflops:.0f} GFLOPS"
    print(f"{machine.cpu_name()}, {facts}; tokens/s unless it says otherwise, rounds: {options.rounds}", flush=True)
    try:
        for meeting in SECTIONS[options.section](options):
            meet(meeting, options)
    except regard.UserError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()

"""Training by several processes: how fast, what it survives, and what it would cost on other machines.

REGARD_DATA=… python bench/processes.py speed [--rounds 3] [--steps 60]   one process with two threads, and two with one
                                                      thread each, on Multi30k; turn by turn
python bench/processes.py faults [--kills 10]         kill -9 of a random process at random moments, under torchrun
                                                      --max-restarts 3; the end beside that of a straight run
python bench/processes.py table                       bytes that are exchanged per step, measured with gloo on this
                                                      machine, and modelled for networks between machines
Options: [-o FOLDER]

`apart` in speed is two trainings with half of the batch each, which exchange nothing: what is lost beside it is what
the exchange of gradients costs, and the last line says how long the exchange takes alone. Tokens per second are the
median of those in the log, after the first third.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import shutil
import signal
import statistics
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

import torch

from regard.data.tensors import read_tensors

HERE = Path(__file__).parent
RECIPES = HERE.parent / "regard" / "recipes"
REGARD = ("-m", "regard", "train")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node", "2")
BATCH = 4096
# the process that measures an exchange: all-reduces of so many bytes
EXCHANGE = """
import sys, time, torch, torch.distributed as dist
torch.set_num_threads(1)
dist.init_process_group("gloo")
for megabytes in map(float, sys.argv[1:]):
    gradients = torch.ones(int(megabytes * 250_000))
    dist.all_reduce(gradients)
    dist.barrier()
    rounds, began = 5, time.perf_counter()
    for _ in range(rounds):
        dist.all_reduce(gradients)
    if dist.get_rank() == 0:
        print(megabytes, (time.perf_counter() - began) / rounds, flush=True)
dist.destroy_process_group()
"""


def environment(threads: int = 0) -> dict[str, str]:
    more = {"OMP_NUM_THREADS": str(threads)} if threads else {}
    return {**os.environ, **more}


def started(command: Sequence[object], threads: int = 0) -> subprocess.Popen[bytes]:
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    whole = [sys.executable, *map(str, command)]
    return subprocess.Popen(whole, env=environment(threads), **quiet)  # type: ignore[call-overload]


def wait(processes: Sequence[subprocess.Popen[bytes]]) -> None:
    for process in processes:
        _, errors = process.communicate()
        if process.returncode:
            sys.exit(f"{process.args} ended with {process.returncode}: {errors.decode()[-2000:]}")


# --- speed ---


def speed(given: argparse.Namespace) -> None:
    budget = (f"train.steps={given.steps}", "train.minutes=0", "train.validate_every=1000000")
    recipe = (RECIPES / "multi30k.toml", *budget, "train.optimiser=adamw")

    def command(batch: int, *more: str, run: str) -> list[object]:
        return [*recipe, f"train.batch_tokens={batch}", *more, "-o", given.out / run, "--threads"]

    one = [*REGARD, *command(BATCH, run="one"), 2]
    two = [*TORCHRUN, *REGARD, *command(BATCH, run="two"), 1]
    narrow = [*TORCHRUN, *REGARD, *command(BATCH, "train.wire=bfloat16", run="narrow"), 1]
    shared = [*TORCHRUN, *REGARD, *command(BATCH, "train.shard=true", run="shared"), 1]
    apart = [[*REGARD, *command(BATCH // 2, run=f"apart-{each}"), 1] for each in "ab"]
    contenders = {
        "one process, two threads": ([one], 2),
        "two processes": ([two], 1),
        "two processes, gradients in bfloat16": ([narrow], 1),
        "two processes, weights shared out (FSDP)": ([shared], 1),
        "apart": (apart, 1),
    }
    found: dict[str, list[float]] = {name: [] for name in contenders}
    for place in range(given.rounds):
        for name, (commands, threads) in contenders.items():
            runs = [Path(str(each[each.index("-o") + 1])) for each in commands]
            for run in runs:
                shutil.rmtree(run, ignore_errors=True)
            wait([started(each, threads) for each in commands])
            found[name].append(sum(pace(run) for run in runs))
            print(f"  round {place + 1}: {name}: {found[name][-1]:,.0f} tokens/s", flush=True)
    first = found["one process, two threads"]
    for name, paces in found.items():
        ratios = [pace / alone for pace, alone in zip(paces, first, strict=True)]
        print(
            f"{name:42} {statistics.median(paces):8,.0f} tokens/s   {statistics.median(ratios):.2f} "
            f"({min(ratios):.2f} to {max(ratios):.2f})"
        )
    weights, _ = read_tensors(given.out / "one" / "model.safetensors")
    parameters = sum(tensor.numel() for tensor in weights.values())
    ((megabytes, seconds),) = exchanges([parameters * 4 / 1e6])
    step = statistics.median(found["apart"]), statistics.median(found["two processes"])
    tokens = tokens_per_step(given.out / "two")
    longer = tokens / step[1] - tokens / step[0]
    print(
        f"{megabytes:.1f} MB of gradients take {1000 * seconds:.0f} ms alone; a step of {tokens:,.0f} tokens takes "
        f"{1000 * tokens / step[1]:.0f} ms, {1000 * longer:.0f} ms longer than apart"
    )


def lines(run: Path) -> list[dict[str, float]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def pace(run: Path) -> float:
    every = [line["tokens_per_second"] for line in lines(run)]
    return statistics.median(every[len(every) // 3 :])


def tokens_per_step(run: Path) -> float:
    last = lines(run)[-1]
    return last["tokens"] / last["step"]


def exchanges(megabytes: Sequence[float]) -> list[tuple[float, float]]:
    """Seconds of an exchange of so many megabytes between two processes of this machine."""
    code = [*TORCHRUN, "--no-python", sys.executable, "-c", EXCHANGE, *map(str, megabytes)]
    done = subprocess.run([sys.executable, *code], env=environment(1), capture_output=True, text=True, check=True)
    rows = [line.split() for line in done.stdout.splitlines() if re.fullmatch(r"[\d.]+ [\d.e-]+", line)]
    return [(float(size), float(seconds)) for size, seconds in rows]


# --- faults ---


def faults(given: argparse.Namespace) -> None:
    small = ("model.dim=64", "model.heads=4", "model.feed_forward=64", "model.layers=1", "model.dropout=0.1")
    budget = ("data.sentences=5000", "train.steps=400", "train.validate_every=40", "train.minutes=0", "train.epochs=0")
    choose, killed, times = random.Random(given.seed), 0, 0

    def command(run: Path) -> list[object]:
        shutil.rmtree(run, ignore_errors=True)
        return [*TORCHRUN, "--max-restarts", 3, *REGARD, RECIPES / "demo-transformer.toml", *small, *budget, "-o", run]

    straight = given.out / "straight"
    began = time.perf_counter()
    wait([started(command(straight), 1)])
    whole = time.perf_counter() - began
    while killed < given.kills:
        run, now = given.out / f"killed-{times}", 0
        times += 1
        with subprocess.Popen(
            [sys.executable, *map(str, command(run))],
            env=environment(1),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
        ) as process:
            while now < min(3, given.kills - killed):
                time.sleep(choose.uniform(0.3, 0.9) * whole / 2)  # also while it starts
                if process.poll() is not None:
                    break
                workers = children(process.pid)
                if workers:
                    place = choose.randrange(len(workers))
                    os.kill(workers[place], signal.SIGKILL)
                    now += 1
                    print(f"  killed a process of {run.name} after {step_of(run)} steps", flush=True)
            assert process.stderr
            process.stderr.read()
        killed += now
        if process.returncode:
            sys.exit(f"{run} ended with {process.returncode}.")
        same = equal(straight, run)
        print(f"{run.name}: {now} kills, {'equal to' if same else 'NOT'} the straight run, bit for bit", flush=True)
    print(f"{killed} kills in {times} trainings")


def children(process: int) -> list[int]:
    found = Path(f"/proc/{process}/task/{process}/children").read_text().split()
    return [int(each) for each in found if b"regard" in Path(f"/proc/{each}/cmdline").read_bytes()]


def step_of(run: Path) -> int:
    file = run / "log.jsonl"
    return int(lines(run)[-1]["step"]) if file.exists() and file.read_text() else 0


def equal(one: Path, other: Path) -> bool:
    for file in ("model.safetensors", "last/state.safetensors"):
        first, second = (read_tensors(run / file)[0] for run in (one, other))
        if first.keys() != second.keys() or any(not torch.equal(first[name], second[name]) for name in first):
            return False
    return True


# --- table ---

MODELS = {"5 M, multi30k.toml": 5e6, "86 M, BERT base": 86e6, "350 M": 350e6, "1.3 B": 1.3e9, "7 B": 7e9}
LINKS = {"10 Gbit/s": 1.25e9, "100 Gbit/s": 12.5e9, "NVLink": 300e9}  # bytes a second in each direction
COMPUTES = 200e12  # operations a second of a device: two fifths of what a data-centre GPU has in bfloat16 on paper
DEVICES = 8
EXCHANGED = {"copies, float32": 2 * 4, "copies, bfloat16": 2 * 2, "shared out, float32": 3 * 4}  # bytes per parameter


def table(given: argparse.Namespace) -> None:
    print("All-reduce between two processes of this machine, gloo:")
    for megabytes, seconds in exchanges([1, 10, 20, 100]):
        print(f"  {megabytes:5.0f} MB  {1000 * seconds:7.1f} ms  {megabytes / 1000 / seconds:5.2f} GB/s")
    share = (DEVICES - 1) / DEVICES
    print(f"\nModelled, a ring of {DEVICES} devices: GB that each sends per step")
    print(f"{'':20}" + "".join(f"{way:>22}" for way in EXCHANGED))
    for model, parameters in MODELS.items():
        print(f"{model:20}" + "".join(f"{each * parameters * share / 1e9:22,.2f}" for each in EXCHANGED.values()))
    print(f"\nTokens per device and step at which sending takes as long as computing, {COMPUTES / 1e12:.0f} Tflop/s a")
    print("device, six operations per parameter and token; the same for every size of model")
    print(f"{'':20}" + "".join(f"{way:>22}" for way in EXCHANGED))
    for name, link in LINKS.items():
        print(f"{name:20}" + "".join(f"{each * share / link * COMPUTES / 6:22,.0f}" for each in EXCHANGED.values()))
    print(
        "\nMemory while training in float32: copies take 16 bytes per parameter on each device (weight, gradient, two"
    )
    print(f"moments); shared out, {16 / DEVICES:.0f} on {DEVICES} devices, and the weights of one block at a time.")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    kinds = {"speed": speed, "faults": faults, "table": table}
    parser.add_argument("what", choices=kinds)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=60)
    parser.add_argument("--kills", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/processes"))
    given = parser.parse_args()
    kinds[given.what](given)


if __name__ == "__main__":
    main()

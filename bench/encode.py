"""A large corpus of several files: encoded by one process and by two, killed and resumed; training starts from it.

python bench/encode.py [--megabytes 1000] [--files 20] [-o FOLDER]

The text is 50 MB of the built-in grammar's sentences, repeated in shuffled order. Memory is the greatest peak (VmHWM)
of any process of `regard encode`. The first step is that in the log of `regard train`.
"""

from __future__ import annotations

import argparse
import json
import random
import shutil
import subprocess
import sys
import time
from itertools import islice
from pathlib import Path

from children import megabytes

from regard.data.world import pairs

REGARD = (sys.executable, "-m", "regard")
POLL = 0.1  # seconds
REPEATED = 50_000_000  # bytes of different sentences
BUDGET = ("train.epochs=0", "train.steps=1", "train.validate_every=1000", "train.warmup=0")


def write_corpus(folder: Path, size: int, files: int) -> None:
    """Write the text in so many files of about the same size."""
    if len(list(folder.glob("*.txt"))) == files:
        return
    print(f"  writing {size / 1e6:,.0f} MB to {folder}", flush=True)
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    lines: list[str] = []
    written = 0
    for pair in pairs("train"):
        lines.append(" ".join(pair.source))
        written += len(lines[-1]) + 1
        if written >= min(REPEATED, size):
            break
    choose, place = random.Random(1), len(lines)
    for number in range(files):
        unfinished, written = folder / f"{number:03}.part", 0
        with unfinished.open("w") as text:
            while written < size / files:
                if place >= len(lines):
                    choose.shuffle(lines)
                    place = 0
                some = list(islice(lines, place, place + 10_000))
                place += len(some)
                written += text.write("\n".join(some) + "\n")
        unfinished.rename(folder / f"{number:03}.txt")


def processes_of(parent: int) -> list[int]:
    """A process and its children."""
    try:
        return [parent, *map(int, Path(f"/proc/{parent}/task/{parent}/children").read_text().split())]
    except FileNotFoundError:
        return []


def encode(recipe: Path, run: Path, processes: int, *, kill_after: int = 0) -> tuple[float, float]:
    """Encode; return the seconds and the greatest peak memory. `kill_after`: kill it once so many shards are there."""
    command = [*REGARD, "encode", str(recipe), "-o", str(run), "--processes", str(processes)]
    began, peak = time.perf_counter(), 0.0
    with subprocess.Popen(command, stdout=subprocess.DEVNULL) as child:
        while child.poll() is None:
            peak = max([peak, *(megabytes(each, "VmHWM") for each in processes_of(child.pid))])
            if kill_after and len(shards_of(run)) >= kill_after:
                child.kill()
            time.sleep(POLL)
    if child.returncode and not kill_after:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}.")
    return time.perf_counter() - began, peak


def shards_of(run: Path) -> dict[str, int]:
    """The shards that are complete, and when they were."""
    return {path.name: path.stat().st_mtime_ns for path in (run / "data").glob("train-[0-9][0-9][0-9][0-9][0-9]")}


def first_step(recipe: Path, run: Path) -> tuple[float, float]:
    """Train one step; return the seconds until its line in the log, and the peak memory."""
    command = [*REGARD, "train", str(recipe), *BUDGET, "-o", str(run)]
    began, peak, seconds = time.perf_counter(), 0.0, 0.0
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        for line in child.stdout:
            peak = max(peak, megabytes(child.pid, "VmHWM"))
            if not seconds and line.startswith("Training "):
                seconds = time.perf_counter() - began
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}.")
    entry = json.loads((run / "log.jsonl").read_text().splitlines()[0])
    return seconds + entry["seconds"], peak


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--megabytes", type=int, default=1000)
    parser.add_argument("--files", type=int, default=20)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/encode"))
    given = parser.parse_args()
    corpus, recipe = given.out / f"corpus-{given.megabytes}-{given.files}", given.out / "language.toml"
    write_corpus(corpus, given.megabytes * 1_000_000, given.files)
    recipe.unlink(missing_ok=True)
    files = [str(path) for path in sorted(corpus.glob("*.txt"))]
    subprocess.run([*REGARD, "new", "language", *files, "-o", str(recipe)], check=True, stdout=subprocess.DEVNULL)
    runs = {count: given.out / f"by-{count}" for count in (1, 2)}
    seconds: dict[int, float] = {}
    for count, run in runs.items():
        shutil.rmtree(run, ignore_errors=True)
        seconds[count], peak = encode(recipe, run, count)
        print(f"  {count} process(es): {seconds[count]:,.1f} s, peak memory of any {peak:,.0f} MB", flush=True)
    print(f"  two take {seconds[2] / seconds[1]:.2f} of the time of one")
    killed = given.out / "killed"
    shutil.rmtree(killed, ignore_errors=True)
    encode(recipe, killed, 2, kill_after=max(1, given.files // 2))
    before = shards_of(killed)
    again, _ = encode(recipe, killed, 2)
    kept = [name for name, changed in shards_of(killed).items() if before.get(name) == changed]
    same = all(
        path.read_bytes() == (runs[2] / "data" / path.name).read_bytes() for path in (killed / "data").glob("*.npy")
    )
    print(
        f"  killed at {len(before)} of {given.files} shards: {len(kept)} kept, {again:,.1f} s for the others; ", end=""
    )
    print("the same as straight" if same else "NOT the same as straight")
    took, peak = first_step(recipe, runs[2])
    print(f"  training: first step after {took:.1f} s, peak memory {peak:,.0f} MB (mapped files included)")


if __name__ == "__main__":
    main()

"""Memory of long work: predicting a million lines, and training on a text of two gigabytes.

python bench/memory.py predict [--lines 1000000]      a small translator: when its first line is written, and its memory
                                                      after each tenth of the lines
python bench/memory.py train [--megabytes 2000]       a small language model on a generated text of so many megabytes,
                                                      100 steps: seconds until the first step, peak memory
Options: [-o FOLDER]

Memory is the resident set of the process (VmRSS, and VmHWM for its peak), files that are mapped into it included.
"""

from __future__ import annotations

import argparse
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
POLL = 0.2  # seconds


def predict(given: argparse.Namespace) -> None:
    run, file, out = given.out / "translator", given.out / "lines.txt", given.out / "lines.out"
    if not run.exists():
        recipe = Path(__file__).parent.parent / "regard" / "recipes" / "demo-transformer.toml"
        small = ("model.dim=64", "model.heads=4", "model.feed_forward=64", "model.layers=1")
        budget = ("train.steps=1500", "train.validate_every=1500", "data.sentences=20000")
        command = [*REGARD, "train", str(recipe), *small, *budget, "-o", str(run)]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    few = [" ".join(pair.source) for pair in islice(pairs("test"), 2000)]
    short = [line for line in few if len(line.split()) <= 6]
    with file.open("w") as lines:
        choose = random.Random(1)
        lines.writelines(choose.choice(short) + "\n" for _ in range(given.lines))
    out.unlink(missing_ok=True)
    # plain output to a file is written line by line, unlike -o, which appears when all is done
    tenths: dict[int, float] = {}
    first: list[float] = []
    with out.open("w") as written:
        began = time.perf_counter()
        command = [*REGARD, "predict", str(run), str(file), "--beam", "1"]
        with subprocess.Popen(command, stdout=written, stderr=subprocess.DEVNULL) as child:
            count = place = 0
            with out.open("rb") as made:
                while child.poll() is None:
                    for block in iter(lambda: made.read(1 << 20), b""):
                        count += block.count(b"\n")
                    if count and not first:
                        first.append(time.perf_counter() - began)
                        print(f"  first line after {first[0]:.2f} s", flush=True)
                    if count * 10 // given.lines > place:
                        place = count * 10 // given.lines
                        tenths[place] = megabytes(child.pid, "VmRSS")
                        print(
                            f"  {count:9,} lines  {time.perf_counter() - began:6.0f} s  {tenths[place]:6.0f} MB",
                            flush=True,
                        )
                    time.sleep(0.02 if not first else POLL)
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}.")
    least, most = min(tenths.values()), max(tenths.values())
    print(f"memory between {least:.0f} and {most:.0f} MB, {100 * (most / least - 1):.1f} % apart")


def train(given: argparse.Namespace) -> None:
    file, run = given.out / f"text-{given.megabytes}.txt", given.out / "language"
    if not file.exists():
        print(f"  writing {file}", flush=True)
        lines = [" ".join(pair.source) for pair in islice(pairs("train"), 50_000)]
        choose, size = random.Random(1), 0
        with file.with_suffix(".part").open("w") as text:
            while size < given.megabytes * 1_000_000:
                choose.shuffle(lines)
                size += text.write("\n".join(lines) + "\n")
        file.with_suffix(".part").rename(file)
    shutil.rmtree(run, ignore_errors=True)
    recipe = given.out / "language.toml"
    recipe.unlink(missing_ok=True)
    subprocess.run([*REGARD, "new", "language", str(file), "-o", str(recipe)], check=True, stdout=subprocess.DEVNULL)
    budget = ("train.epochs=0", "train.steps=100", "train.validate_every=100")
    began, peak, logged = time.perf_counter(), 0.0, False
    command = [*REGARD, "train", str(recipe), *budget, "-o", str(run)]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as child:
        while child.poll() is None:
            peak = max(peak, megabytes(child.pid, "VmHWM"))
            if not logged and (run / "log.jsonl").exists() and (run / "log.jsonl").stat().st_size:
                logged = True
                print(f"  first line of the log after {time.perf_counter() - began:,.0f} s", flush=True)
            time.sleep(POLL)
    if child.returncode:
        sys.exit(f"{' '.join(command)} ended with {child.returncode}.")
    print(f"  {time.perf_counter() - began:,.0f} s in all, peak memory {peak:,.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("predict", "train"))
    parser.add_argument("--lines", type=int, default=1_000_000)
    parser.add_argument("--megabytes", type=int, default=2000)
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/memory"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    (predict if given.what == "predict" else train)(given)


if __name__ == "__main__":
    main()

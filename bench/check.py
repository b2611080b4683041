"""How long `regard check` takes over a million pairs, and how much memory.

python bench/check.py [PAIRS]

Two files of sentences with 8 to 16 words a side, drawn from 20,000 made-up words with Zipf's frequencies; the target's
have accents, so that hardly a line of it is ASCII. The seconds and the peak memory are of the whole command in a
process of its own, loading Python and torch included.
"""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

VALID = 2_000
TYPES = 20_000
AT_ONCE = 50_000
RECIPE = """task = "translation"
[data]
name = "parallel"
source = "train.source"
target = "train.target"
valid_source = "valid.source"
valid_target = "valid.target"
[model]
name = "transformer"
[train]
steps = 1
"""


def words(random: np.random.Generator, letters: str) -> list[str]:
    lengths = random.integers(2, 10, TYPES)
    return ["".join(random.choice(list(letters), length)) for length in lengths]


def write_side(path: Path, random: np.random.Generator, vocabulary: list[str], lines: int) -> None:
    odds = 1 / np.arange(1, TYPES + 1)
    odds /= odds.sum()
    with path.open("w", encoding="utf-8") as file:
        for at in range(0, lines, AT_ONCE):
            lengths = random.integers(8, 17, min(AT_ONCE, lines - at))
            drawn = iter(random.choice(TYPES, int(lengths.sum()), p=odds).tolist())
            file.writelines(" ".join(vocabulary[next(drawn)] for _ in range(length)) + " .\n" for length in lengths)


def write_data(folder: Path, pairs: int) -> None:
    random = np.random.default_rng(0)
    for side, letters in (("source", "abcdefghijklmnopqrstuvwxyz"), ("target", "abcdefghijklmnopqrstuvwxyzàéèêïôûç")):
        vocabulary = words(random, letters)
        for split, lines in (("train", pairs), ("valid", VALID)):
            write_side(folder / f"{split}.{side}", random, vocabulary, lines)
    (folder / "recipe.toml").write_text(RECIPE)


def main() -> None:
    pairs = int(sys.argv[1]) if len(sys.argv) > 1 else 1_000_000
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_data(folder, pairs)
        size = sum(file.stat().st_size for file in folder.iterdir()) / 2**20
        print(f"{pairs:,} pairs, {size:.0f} MiB; load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores", flush=True)
        for extra in ([], ["--write", str(folder / "clean")]):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            began = time.perf_counter()
            subprocess.run([sys.executable, "-m", "regard", "check", str(folder / "recipe.toml"), *extra], check=True)
            seconds = time.perf_counter() - began
            used = resource.getrusage(resource.RUSAGE_CHILDREN)  # its ru_maxrss is the largest child's so far
            busy = used.ru_utime + used.ru_stime - before.ru_utime - before.ru_stime
            peak = used.ru_maxrss / 2**10
            command = f"regard check{' --write' if extra else ''}"
            print(f"{command}: {seconds:.1f} s, {busy:.1f} s of a core, peak {peak:.0f} MiB\n", flush=True)


if __name__ == "__main__":
    main()

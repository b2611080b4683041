"""Seconds that a command takes from start to end, and `import torch` alone beside it.

python bench/startup.py [--run RUN] [--rounds 5]

Each command is a process of its own. They take turns; a figure is the median of the rounds, after one that is not
counted, in which Python writes its bytecode. By default a Transformer is trained for 20 steps first.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SENTENCE = "They are watching ."
REGARD = [sys.executable, "-m", "regard"]
# as on a user's machine: Python keeps its bytecode
ENVIRONMENT = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def trained(place: Path) -> Path:
    recipe = Path(__file__).parent.parent / "regard" / "recipes" / "demo-transformer.toml"
    seconds([*REGARD, "train", str(recipe), "train.steps=20", "data.sentences=2000", "-o", str(place / "demo")])
    return place / "demo"


def seconds(command: list[str]) -> float:
    began = time.perf_counter()
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)} failed: {done.stderr}")
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", type=Path)
    parser.add_argument("--rounds", type=int, default=5)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        run = given.run or trained(place)
        pair = place / "pair.tsv"
        pair.write_text(f"{SENTENCE}\tIls regardent .\n")
        commands = {
            "import torch": [sys.executable, "-c", "import torch"],
            "regard --help": [*REGARD, "--help"],
            "regard runs": [*REGARD, "runs", str(run.parent)],
            "regard predict RUN sentence": [*REGARD, "predict", str(run), SENTENCE],
            "regard score RUN pair.tsv": [*REGARD, "score", str(run), str(pair)],
            "regard look RUN sentence": [*REGARD, "look", str(run), SENTENCE],
        }
        rounds = [{name: seconds(command) for name, command in commands.items()} for _ in range(given.rounds + 1)]
    print(f"seconds, median of {given.rounds} (fastest)")
    for name in commands:
        counted = [each[name] for each in rounds[1:]]
        print(f"{name:30}{statistics.median(counted):6.2f}  ({min(counted):.2f})")


if __name__ == "__main__":
    main()

"""A search of two workers, one of which is killed (SIGKILL) at a random moment and started again: is every trial
finished, and none run twice?

python bench/sweep.py [--trials 12] [--seed N]
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

SPACE = ["model.dropout=0.0,0.1,0.3", "train.learning_rate=1e-3..3e-2", "model.hidden=16..48"]
BUDGET = ["data.sentences=500", "train.steps=60", "train.epochs=0", "train.minutes=0", "train.validate_every=10"]
SMALL = ["model.embedding=16", "model.hidden=16", "train.precision=float32"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--trials", type=int, default=12)
    parser.add_argument("--seed", type=int, default=random.randrange(1000))
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as place:
        judge(Path(place) / "search", given.trials, random.Random(given.seed), given.seed)


def judge(folder: Path, trials: int, chance: random.Random, seed: int) -> None:
    from regard.loading import shipped

    settings = [*BUDGET, *(one for one in SMALL if one.partition("=")[0] not in {s.partition("=")[0] for s in SPACE})]
    command = [sys.executable, "-m", "regard", "sweep", str(shipped("demo-rnnsearch")), *settings, *SPACE]
    command += ["--trials", str(trials), "-o", str(folder), "--threads", "1"]
    outputs = [folder.with_suffix(f".{number}") for number in range(3)]

    def start(output: Path) -> subprocess.Popen[bytes]:
        with output.open("wb") as file:
            return subprocess.Popen(command, stdout=file, stderr=subprocess.STDOUT)

    began = time.monotonic()
    one, other = start(outputs[0]), start(outputs[1])
    share = chance.uniform(0.1, 0.7)  # of the trials that have been started when the worker is killed
    while sum((folder / f"{number:03}" / "log.jsonl").exists() for number in range(trials)) < share * trials:
        time.sleep(0.05)
    time.sleep(chance.uniform(0, 3))
    one.send_signal(signal.SIGKILL)
    one.wait()
    print(f"seed {seed}: a worker was killed after {time.monotonic() - began:.1f} seconds, and started again")
    again = start(outputs[2])
    codes = [other.wait(), again.wait()]
    printed = "".join(output.read_text() for output in outputs)
    rows = json.loads((folder / "report.json").read_text())["trials"]
    finished = [row["name"] for row in rows if row["state"] == "finished"]
    recorded = [
        len(re.findall(rf"^Trial {name}: .* of {trials}\)$", printed, re.MULTILINE)) for name in sorted(finished)
    ]
    steps = [log_steps(folder / name) for name in sorted(finished)]
    resumed = printed.count("was left unfinished and is resumed")
    print(f"exit codes {codes}, trials resumed {resumed}, {time.monotonic() - began:.0f} seconds")
    if codes != [0, 0] or len(finished) != trials or len(rows) != trials:
        sys.exit(f"{len(finished)} of {trials} trials finished:\n{printed}")
    # a worker that was killed between recording a trial and printing it has not printed it
    if any(count > 1 for count in recorded) or any(each != sorted(set(each)) for each in steps):
        sys.exit(f"a trial was run twice: {recorded}\n{printed}")
    print(f"{trials} trials finished, none twice")
    done = subprocess.run(
        [sys.executable, "-m", "regard", "train", str(folder / "best.toml"), "-o", str(folder.with_name("best"))],
        capture_output=True,
        text=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )
    if done.returncode:
        sys.exit(f"best.toml does not train: {done.stderr}")
    best = min(entry["valid"]["loss"] for entry in log_of(folder.with_name("best")) if entry["valid"])
    print(f"best.toml trains to loss {best:.4f}; trial {rows[0]['name']} had {rows[0]['value']:.4f}")


def log_of(run: Path) -> list[dict[str, dict[str, float]]]:
    return [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]


def log_steps(run: Path) -> list[object]:
    return [entry["step"] for entry in log_of(run)]


if __name__ == "__main__":
    main()

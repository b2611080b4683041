"""docs/settings.md says what the code says; the commands of docs/results.md run, with tiny budgets and small files."""

from __future__ import annotations

import gzip
import os
import re
import runpy
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from command import Call
from pages import DOCS, ROOT

RESULTS = (DOCS / "results.md").read_text(encoding="utf-8")
COMMANDS = [" ".join(found.split()) for found in re.findall(r"`((?:regard|python) [^`]*)`", RESULTS)]
TINY = ["train.steps=2", "train.epochs=0", "train.minutes=0", "train.validate_every=1", "train.warmup=1"]
SMALL = ["tokens.size=300"]
# too long for any budget here, and run elsewhere: tests/test_demo.py and tests/test_compare.py
ELSEWHERE = ("regard demo", "regard compare --demo")


def test_the_page_of_settings_is_what_the_code_says() -> None:
    page = runpy.run_path(str(DOCS / "make_settings.py"))["page"]
    assert (DOCS / "settings.md").read_text(encoding="utf-8") == page(), "run: python docs/make_settings.py"


@pytest.fixture
def data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Small files with the names that the page's commands have."""
    folder = tmp_path / "data"
    numbers = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    lines = "".join(f"{a} {b} {c} cats .\n" for a in numbers for b in numbers for c in numbers)
    few = "".join(lines.splitlines(keepends=True)[:5])
    for split, text in (("train", lines), ("val", few), ("test_2016_flickr", few)):
        for language in ("en", "de", "fr"):
            write_gzip(folder / "multi30k" / f"{split}.{language}.gz", text)
    for split in ("train", "val", "test"):
        write_gzip(folder / "captions" / f"{split}.en.gz", lines if split == "train" else few)
    (folder / "shakespeare").mkdir()
    (folder / "shakespeare" / "input.txt").write_text(lines)
    (folder / "fashion").mkdir()
    random = np.random.default_rng(1)
    for split in ("train", "test"):
        pictures, labels = random.integers(0, 256, (40, 8, 8), np.uint8), np.arange(40) % 2
        np.savez(folder / "fashion" / f"{split}.npz", images=pictures, labels=labels)
    monkeypatch.setenv("REGARD_DATA", str(folder))
    monkeypatch.chdir(tmp_path)
    for name in ("recipes", "bench"):
        (tmp_path / name).symlink_to(ROOT / name)
    return folder


def write_gzip(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(gzip.compress(text.encode()))


@pytest.mark.slow
def test_every_command_of_the_results_runs(data: Path, call: Call) -> None:
    typed = 0
    for command in COMMANDS:
        if not command.startswith("regard ") or command.startswith(ELSEWHERE):
            continue
        line = command.replace("$REGARD_DATA", str(data)).replace("…", f"{data}/multi30k")
        line = line.replace(" RUN", " runs/multi30k" if " score" in line else " runs/shakespeare-rnn")
        line = line.replace("SETTINGS", "model.name=rnn_lm model.cell=tanh").replace("docs/", "")
        arguments = shlex.split(line.replace("--budget 10m", "--budget 300tok"))[1:]
        if arguments[0] == "train":
            known = [] if "fashion.toml" in arguments or "shakespeare" in line else SMALL
            arguments += [*TINY, *known, "--threads", "1"]
        elif arguments[0] == "compare":
            arguments += SMALL
        done = call(*arguments)
        assert done.code == 0, f"{command}\n{done.err}{done.out}"
        typed += 1
    assert typed >= 10


@pytest.mark.slow
@pytest.mark.parametrize("command", [each for each in COMMANDS if each.startswith("python bench/")])
def test_every_bench_of_the_results_knows_its_options(command: str) -> None:
    _, script, *arguments = shlex.split(command)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    asked = [sys.executable, ROOT / script, "--help"]
    done = subprocess.run(asked, env=environment, capture_output=True, text=True, check=True)
    assert all(word in done.stdout for word in arguments if not word.isdecimal())

"""Laws of training by several processes: it equals training by one, and where one of them ends nothing is lost."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import ENVIRONMENT, REGARD
from ranks import carry_out, ended, started, together

from regard.data.tensors import read_tensors
from regard.train.group import Group

WORLD = """
task = "{task}"
seed = 3
[data]
name = "world"
sentences = 600
longest = 12
valid = 20
test = 20
[tokens]
kind = "{kind}"
size = 0
[model]
name = "{model}"
dropout = 0.0
[train]
steps = 50
batch_tokens = 300
learning_rate = 0.003
warmup = 5
precision = "float32"
validate_every = 15
"""
SMALL = ("model.dim=12", "model.heads=2", "model.feed_forward=13", "model.layers=2")
CELLS = ("model.embedding=12", "model.hidden=12")
SHARED = "train.shard=true"
# a name: the task, the kind of its tokens, the model, and settings
TRAININGS: dict[str, tuple[str, str, str, tuple[str, ...]]] = {
    "transformer": ("translation", "words", "transformer", (*SMALL, "train.accumulate=2")),
    "transformer, shared out": ("translation", "words", "transformer", (*SMALL, "train.smooth=0.1", SHARED)),
    "rnnsearch, Muon": ("translation", "words", "rnnsearch", (*CELLS, "train.optimiser=muon", "train.steps=10")),
    "fewer rows than processes": ("translation", "words", "transformer", (*SMALL, "train.batch_tokens=6")),
    "rnn_lm": ("language", "words", "rnn_lm", (*CELLS, "train.smooth=0.1")),
    "rnn_lm, shared out": ("language", "words", "rnn_lm", (*CELLS, "train.smooth=0.1", SHARED)),
    "birnn": ("classification", "given", "birnn", CELLS),
    "encoder": ("classification", "given", "encoder", (*SMALL, SHARED)),
    "vit": ("pictures", "", "vit", (*SMALL, "model.patch=4")),
    "rnnsearch, gradients in bfloat16": ("translation", "words", "rnnsearch", (*CELLS, "train.wire=bfloat16")),
    "vit, shared out": ("pictures", "", "vit", (*SMALL, "model.patch=4", SHARED)),
}
FEW = ("transformer", "rnn_lm", "encoder", "vit")
TURNS = ("transformer", "transformer, shared out", "rnn_lm")


def recipe_in(place: Path, task: str, kind: str, model: str) -> Path:
    text = WORLD.format(task=task, kind=kind, model=model)
    if task == "pictures":
        random = np.random.default_rng(1)
        for split, count in (("train", 40), ("valid", 10)):
            pixels = random.integers(0, 255, (count, 8, 8), dtype=np.uint8)
            np.savez(place / f"{split}.npz", images=pixels, labels=np.arange(count) % 2, names=np.array(["a", "b"]))
        head, _, tail = text.partition("[data]")
        data = '[data]\nname = "npz"\ntrain = "train.npz"\nvalid = "valid.npz"\n'
        text = head + data + tail[tail.index("[model]") :]
    file = place / f"{task}-{model}.toml"
    file.write_text(text)
    return file


def jobs(place: Path, out: str, *names: str, settings: Sequence[str] = (), **more: Any) -> list[dict[str, Any]]:
    found = []
    for name in names:
        *kind, own = TRAININGS[name]
        recipe = recipe_in(place, *kind)
        found.append({"recipe": str(recipe), "settings": [*own, *settings], "out": str(place / out / name), **more})
    return found


def losses_in(place: Path, out: str, name: str) -> list[float]:
    found: list[float] = json.loads((place / out / name / "losses.json").read_text())
    return found


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("processes")


@pytest.fixture(scope="module")
def trained(place: Path) -> Path:
    """Some trainings by one process and by two, in double precision; and others that both take turns at."""
    carry_out(jobs(place, "one", *FEW, settings=["train.steps=12"], exact=True), Group())
    carry_out(jobs(place, "straight", *TURNS, stop=30), Group())
    carry_out(jobs(place, "one, two", *TURNS, stop=15), Group())
    plan = jobs(place, "two", *FEW, settings=["train.steps=12"], exact=True)
    plan += jobs(place, "one, two", *TURNS, stop=30) + jobs(place, "two, one", *TURNS, stop=15)
    together(plan, place)
    carry_out(jobs(place, "two, one", *TURNS, stop=30), Group())
    return place


@pytest.mark.parametrize("name", FEW)
def test_two_processes_learn_what_one_learns(trained: Path, name: str) -> None:
    one, two = losses_in(trained, "one", name), losses_in(trained, "two", name)
    assert len(one) == 13 and one[0] != one[-2]
    np.testing.assert_allclose(two, one, rtol=1e-9)


@pytest.mark.slow
def test_every_kind_of_training_is_the_same_by_two_processes(place: Path) -> None:
    together(jobs(place, "two, all", *TRAININGS, exact=True), place)
    carry_out(jobs(place, "one, all", *TRAININGS, exact=True), Group())
    for name in TRAININGS:
        one, two = losses_in(place, "one, all", name), losses_in(place, "two, all", name)
        assert len(one) > 10
        np.testing.assert_allclose(two, one, rtol=0.02 if "bfloat16" in name else 1e-9)
        assert ("bfloat16" in name) == (not np.allclose(two, one, rtol=1e-6))


@pytest.mark.parametrize("turns", ["one, two", "two, one"])
@pytest.mark.parametrize("name", TURNS)
def test_a_run_of_some_processes_is_resumed_by_others(trained: Path, name: str, turns: str) -> None:
    """Validations find what those of a straight run find, and the same one is the best. (The weights of a Transformer
    may differ: keys have biases without a gradient, of which AdamW follows the rounding errors.)"""
    straight, resumed = losses_in(trained, "straight", name), losses_in(trained, turns, name)
    np.testing.assert_allclose(resumed[-1], straight[-1], rtol=1e-5)
    best = [read_tensors(trained / out / name / "model.safetensors")[1]["step"] for out in ("straight", turns)]
    assert best[0] == best[1]


# --- the command ---


def training(place: Path, *settings: str, out: str) -> list[object]:
    recipe = recipe_in(place, "translation", "words", "transformer")
    return [*REGARD, "train", recipe, *SMALL, *settings, "-o", place / out]


def test_processes_with_other_recipes_are_refused_in_one_sentence(tmp_path: Path) -> None:
    first, second = (training(tmp_path, setting, out="run") for setting in ("seed=1", "seed=2"))
    (code, out, err), (other, *quiet) = ended(started([first, second]))
    assert (code, other) == (1, 1)
    assert out == "" and err.count("\n") == 1 and "Process 1 of this training has another recipe" in err
    assert quiet == ["", ""]
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_a_model_that_counts_is_refused(tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, "language", "words", "ngram")
    recipe.write_text(recipe.read_text().replace("dropout = 0.0\n", ""))
    command = [*REGARD, "train", recipe, "-o", tmp_path / "run"]
    (code, _, err), (other, *quiet) = ended(started([command] * 2))
    assert (code, other) == (1, 1) and "start it without torchrun" in err and quiet == ["", ""]


def logged(run: Path, processes: list[subprocess.Popen[bytes]], after: int = 0) -> None:
    """Wait until more lines than these are logged."""
    while not (run / "log.jsonl").exists() or (run / "log.jsonl").read_bytes().count(b"\n") <= after:
        assert all(process.poll() is None for process in processes)
        os.sched_yield()


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP])
def test_the_others_end_when_one_is_killed_or_hangs_and_the_run_is_resumed(tmp_path: Path, number: int) -> None:
    """Dropout's numbers are a function of the step, so the resumed run ends with the same weights, bit for bit."""
    settings = ("model.dropout=0.2", "train.steps=90", "train.validate_every=15")
    for process in started([training(tmp_path, *settings, out="straight")] * 2):
        assert process.wait(timeout=120) == 0
    command = [*training(tmp_path, *settings, out="run"), "--patience", 4]
    processes = started([command] * 2)
    logged(tmp_path / "run", processes, after=2)
    processes[1].send_signal(number)
    _, err = processes[0].communicate(timeout=60)
    assert processes[0].returncode == 1 and b"Process 1 of this training" in err and b"resumes" in err
    processes[1].kill()
    for code, _, err in ended(started([command] * 2)):
        assert code == 0, err
    one, two = (read_tensors(tmp_path / out / "last" / "state.safetensors")[0] for out in ("straight", "run"))
    assert all(torch.equal(one[name], two[name]) for name in one)


@pytest.mark.slow
def test_torchrun_trains_and_ctrl_c_saves(tmp_path: Path) -> None:
    settings = ("train.steps=100000", "train.validate_every=15")
    regard = [str(each) for each in training(tmp_path, *settings, out="run")][1:]
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node", "2", *regard]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        logged(tmp_path / "run", [process])
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=60)
    stopped = re.search(rb"Stopped at step (\d+) and saved", out)
    assert stopped and out.count(b"Training transformer") == 1
    assert read_tensors(tmp_path / "run" / "last" / "state.safetensors")[1]["step"] == int(stopped[1])

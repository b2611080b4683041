"""Runs that were trained once and kept (in tests/runs, by its make.py) load for ever and answer as they did."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import torch
from command import Call

import regard
from regard.tasks.registry import TASKS

HERE = Path(__file__).parent / "runs"
spec = importlib.util.spec_from_file_location("make", HERE / "make.py")
assert spec and spec.loader
make = importlib.util.module_from_spec(spec)
spec.loader.exec_module(make)
KEPT = sorted(make.RECIPES)
MOST = 60_000  # bytes of a run


@pytest.mark.parametrize("task", KEPT)
def test_a_kept_run_answers_as_it_did(task: str) -> None:
    run = regard.load(HERE / task)
    assert run.task is TASKS[task]
    expected = json.loads((HERE / task / "expected.json").read_text(encoding="utf-8"))
    found = make.answers(run, task)
    assert [(each["text"], each["tokens"]) for each in found] == [(each["text"], each["tokens"]) for each in expected]
    for mine, its in zip(found, expected, strict=True):  # another processor may add up in another order
        assert mine["score"] == pytest.approx(its["score"], rel=1e-4, abs=1e-5)
        assert mine["probabilities"] == pytest.approx(its["probabilities"], rel=1e-3, abs=1e-5)


@pytest.mark.parametrize("task", KEPT)
def test_the_command_answers_as_well(task: str, call: Call, tmp_path: Path) -> None:
    (tmp_path / "lines").write_text("".join(f"{line}\n" for line in make.INPUTS[task]), encoding="utf-8")
    said = call("predict", HERE / task, tmp_path / "lines")
    assert (said.code, said.err) == (0, "")
    assert said.out.count("\n") == len(make.INPUTS[task])


@pytest.mark.parametrize("task", KEPT)
def test_loading_leaves_the_random_state_as_it_was(task: str) -> None:
    torch.manual_seed(1234)
    before = torch.get_rng_state()
    regard.load(HERE / task)
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("task", KEPT)
def test_a_kept_run_is_small_and_names_no_place(task: str) -> None:
    files = {path.name: path.read_bytes() for path in (HERE / task).iterdir()}
    assert set(files) == {*make.FILES, "expected.json"}
    assert sum(map(len, files.values())) <= MOST
    assert b'folder = "."' in files["config.toml"]
    assert b"/" not in b"".join(line.split(b"#")[0] for line in files["config.toml"].splitlines())

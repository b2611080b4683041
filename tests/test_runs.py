"""`runs` tells the truth about every folder, also about those that were cut short."""

from __future__ import annotations

import shutil
from itertools import islice
from pathlib import Path

import pytest
from test_train import recipe_in

from regard.checkpoint import Folder
from regard.interface import UserError
from regard.runs import runs
from regard.train.session import Session


def states(folder: Path) -> dict[str, str]:
    return {run.name: run.state for run in runs(folder)}


@pytest.fixture
def place(tmp_path) -> Path:
    recipe = recipe_in(tmp_path)
    for _ in Session(recipe, tmp_path / "runs" / "whole").steps():
        pass
    stopped = Session(recipe, tmp_path / "runs" / "stopped")
    list(islice(stopped.steps(), 5))
    stopped.save()
    Session(recipe, tmp_path / "runs" / "opened")
    return tmp_path / "runs"


def test_each_state_is_told(place):
    assert states(place) == {"whole": "finished", "stopped": "stopped", "opened": "not started"}
    found = {run.name: run for run in runs(place)}
    assert (found["whole"].step, found["stopped"].step) == (7, 5)
    assert found["whole"].score.startswith("loss ") and found["opened"].score == ""
    assert found["whole"].megabytes > 0.001


def test_a_run_of_weights_alone_is_ready(place):
    shutil.rmtree(Folder(place / "whole").last.parent)
    assert states(place)["whole"] == "ready"


def test_a_run_in_use_is_told(place):
    with Folder(place / "stopped").only_writer():
        assert states(place)["stopped"] == "training"
    assert states(place)["stopped"] == "stopped"


def test_a_finished_run_that_was_given_more_steps_is_not_finished(place, tmp_path):
    longer = Session(recipe_in(tmp_path, "train.steps=11"), place / "whole")
    list(islice(longer.steps(), 1))
    longer.save()
    assert states(place)["whole"] == "stopped"


@pytest.mark.parametrize("content", [b"", b"\xff" * 8, b"\x10" + b"\0" * 7 + b"not json", bytes(100)])
def test_damage_is_told_and_hides_no_other_run(place, content):
    Folder(place / "whole").last.write_bytes(content)
    shutil.copytree(place / "stopped", place / "strange")
    (place / "strange" / "config.toml").write_bytes(content or b"[")
    assert states(place) == {
        "whole": "damaged",
        "stopped": "stopped",
        "opened": "not started",
        "strange": "damaged",
    }


def test_a_log_line_cut_short_is_passed_over(place):
    with Folder(place / "whole").log.open("a") as log:
        log.write('{"step": 9, "fini')
    assert states(place)["whole"] == "finished"


def aged(run: Path, content: str = "") -> Path:
    """As the version before wrote it: its recipe does not say of which format it is."""
    lines = Folder(run).config.read_text().splitlines(keepends=True)
    assert sum(line.startswith("format = ") for line in lines) == 1
    Folder(run).config.write_text("".join(content if line.startswith("format = ") else line for line in lines))
    return run


@pytest.mark.parametrize("content", ["", "format = 1\n", "format = 3\n", "format = '2'\n"])
def test_a_run_of_another_version_is_told_and_is_not_damaged(place, call, content):
    aged(place / "whole", content)
    (place / "whole" / "last" / "state.safetensors").unlink()  # nobody knows what the other version wrote
    assert states(place) == {"whole": "of another version", "stopped": "stopped", "opened": "not started"}
    found = {run.name: run for run in runs(place)}["whole"]
    assert (found.task, found.model, found.step) == ("translation", "rnnsearch", 7)
    said = call("runs", place)
    assert said.code == 0
    (row,) = (line for line in said.out.splitlines() if line.startswith("whole "))
    assert "of another version" in row and "translation" in row


def test_a_run_of_another_version_is_refused_in_one_sentence(place, tmp_path, call):
    old, fresh = aged(place / "whole"), tmp_path / "fresh"
    (tmp_path / "abc").write_text("abc\n")
    (old / "lock").touch()  # what earlier versions left
    before = {path: path.read_bytes() for path in old.rglob("*") if path.is_file()}
    for arguments in (
        ("predict", old, tmp_path / "abc"),
        ("predict", old, place / "stopped", tmp_path / "abc"),
        ("score", old, tmp_path / "valid.source", tmp_path / "valid.target"),
        ("look", old, "abc"),
        ("compare", old, "-o", tmp_path / "report.html"),
        ("compare", place / "stopped", old, "-o", tmp_path / "report.html"),
        ("train", tmp_path / "toy.toml", "-o", old),
        ("train", tmp_path / "toy.toml", "train.steps=11", "-o", old),
        ("train", old / "config.toml", "-o", fresh),
        ("train", tmp_path / "toy.toml", f"train.from={old}", "-o", fresh),
    ):
        said = call(*arguments)
        assert (said.code, said.out) == (1, ""), said
        sentence = "was trained by another version of regard (its format is 1, this version's is 2): train it again"
        assert said.err.startswith(f"regard: {old} {sentence}"), said.err
        assert said.err.endswith(".\n") and said.err.count("\n") == 1
    assert {path: path.read_bytes() for path in old.rglob("*") if path.is_file()} == before
    assert call("train", tmp_path / "toy.toml", "-o", fresh).code == 0  # as the sentence says
    assert states(tmp_path)["fresh"] == "finished"


def test_a_missing_folder_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match=r"does not exist: train a model"):
        runs(tmp_path / "none")

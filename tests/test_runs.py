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
    assert states(place) == {"whole": "finished", "stopped": "stopped", "opened": "not begun"}
    found = {run.name: run for run in runs(place)}
    assert (found["whole"].step, found["stopped"].step) == (7, 5)
    assert found["whole"].score.startswith("loss ") and found["opened"].score == ""
    assert found["whole"].megabytes > 0.001


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
        "opened": "not begun",
        "strange": "damaged",
    }


def test_a_log_line_cut_short_is_passed_over(place):
    with Folder(place / "whole").log.open("a") as log:
        log.write('{"step": 9, "fini')
    assert states(place)["whole"] == "finished"


def test_a_missing_folder_is_a_sentence(tmp_path):
    with pytest.raises(UserError, match=r"does not exist: train something"):
        runs(tmp_path / "none")

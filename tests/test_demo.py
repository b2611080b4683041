"""What `regard demo` shows after training, for every task that has a demo."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from command import Call

from regard.loading import load, read_recipe, shipped
from regard.models import models_for
from regard.tasks.registry import TASKS
from regard.train.session import Session

TINY = ["data.valid=5", "data.test=7", "train.steps=2", "train.validate_every=2"]
FEW = {"captioning": ["data.scenes=30", "data.side=16"], "speech": ["data.utterances=30", "data.longest=3"]}
DEMOS = [
    (task, name)
    for task in TASKS
    for name in (
        [f"demo-{task}"] if shipped(f"demo-{task}").exists() else [f"demo-{model}" for model in models_for(task)]
    )
    if shipped(name).exists()
]


@pytest.mark.parametrize("task, name", DEMOS)
def test_a_demo_measures_and_says_what_to_do_next(tmp_path: Path, task: str, name: str) -> None:
    folders = [tmp_path / name for name in ("run", *TASKS[task].stages)]
    for folder, stage in zip(folders, (name, *TASKS[task].stages), strict=True):
        tiny = [*TINY, *FEW.get(task, ["data.sentences=300"])]
        recipe, _ = read_recipe(shipped(stage), tiny)
        if recipe.train.from_:
            recipe, _ = read_recipe(shipped(stage), [*tiny, f"train.from={folders[0]}"])
        for _ in Session(recipe, folder).steps():
            pass
    said = "\n".join(map(str, TASKS[task].demo(*map(load, folders))))
    assert "7 unseen " in said and "Next:" in said and f"{tmp_path / 'run'}" in said


def test_every_task_but_pictures_and_sounds_has_a_demo() -> None:
    assert {task for task, _ in DEMOS} == TASKS.keys() - {"pictures", "sounds"}


def test_a_task_without_a_demo_says_so(call: Call) -> None:
    done = call("demo", "pictures")
    assert done.code == 1 and "There is no demo of pictures" in done.err


@pytest.mark.slow
def test_pretraining_helps_where_labels_are_few(call: Call, place: Path) -> None:
    done = call("demo", "pretraining")
    said = re.search(r"2000 unseen sentences, after 100 labelled ones:.*interval ([+-][\d.]+) to", done.out, re.DOTALL)
    assert done.code == 0 and said and float(said[1]) > 0, done.out

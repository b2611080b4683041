"""Train from Python: from a recipe, with data from memory or files, into a run folder, and return a Run."""

from __future__ import annotations

import tomllib
import warnings
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from regard import machine
from regard.checkpoint import Folder
from regard.config import choose
from regard.data.files import make_folder, writing
from regard.data.in_memory import rows_of
from regard.data.text import content_hash
from regard.interface import Progress, UserError
from regard.loading import load, read_recipe
from regard.new.choices import Request
from regard.new.fine_tuning import new_recipe
from regard.recipe import Recipe, parse_recipe
from regard.run import Run
from regard.tasks import Task
from regard.tasks.registry import TASKS
from regard.train.progress import training_bar
from regard.train.session import Session


def train(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    out: str | Path,
    *,
    data: Any = None,
    valid: Any = None,
    settings: Mapping[str, Any] | None = None,
    progress: bool | None = None,
    threads: int = 0,
    device: str = "cpu",
    trust_code: bool = False,
) -> Run:
    """Train a model, or resume training, and return the run with its best checkpoint.

    recipe: a recipe file, a recipe as a dictionary ({"task": "translation"} is enough where data is given; what is left
        out is chosen for the data), or a Recipe.
    out: the run folder. A folder that holds an earlier attempt is resumed.
    data, valid: examples instead of the recipe's files: a list or iterable of (source, target), (text, label),
        (words, tags) or (picture, label) pairs, of (first text, second text, label or number), (question, answers,
        right answer) or (question, text, answer), of texts for a language model, or a DataFrame with those columns.
        A picture is the name of a file, Pillow's Image or an array of uint8 (height, width[, channels]).
    settings: further settings by dotted key, such as {"train.minutes": 1}.
    progress: show a progress bar; by default in a terminal or a notebook.
    trust_code: execute the Python files that the recipe of a run names, even if you have not trained with them.
    """
    how: dict[str, Any] = {"threads": threads, "device": device, "trust_code": trust_code}
    steps = training(recipe, out, data=data, valid=valid, settings=settings, **how)
    with training_bar(progress) as show:
        for each in steps:
            show(each)
    return load(out, device=device)


def training(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    out: str | Path,
    *,
    data: Any = None,
    valid: Any = None,
    settings: Mapping[str, Any] | None = None,
    threads: int = 0,
    device: str = "cpu",
    trust_code: bool = False,
) -> Iterator[Progress]:
    """Train step by step: `for progress in regard.training(…)`. Leaving the loop saves a checkpoint.

    PyTorch's global random generator is restored between two steps.
    """
    folder = Folder(out)
    machine.use_threads(threads)
    with folder.only_writer():
        with torch.random.fork_rng(devices=[]):
            asked = recipe_for(recipe, folder, data, valid, settings or {}, trust_code=trust_code)
            session = Session(asked, out, device=device)
            random = torch.get_rng_state()
        if session.other_versions:
            warnings.warn(session.other_versions, stacklevel=2)
        if few := session.few_valid:
            more = "give more data, or valid=…"
            warnings.warn(f"The validation set has {few}, too few to measure anything: {more}.", stacklevel=2)
        if session.training.done(session.batches) >= 1:
            return
        steps = session.steps()
        try:
            while True:
                with torch.random.fork_rng(devices=[]):
                    torch.set_rng_state(random)
                    progress = next(steps, None)
                    random = torch.get_rng_state()
                if progress is None:
                    return
                yield progress
        except (GeneratorExit, KeyboardInterrupt):
            with torch.random.fork_rng(devices=[]):
                torch.set_rng_state(random)  # a checkpoint holds the state of training, not that of the caller
                session.save()
            raise


# settings of data that say how it is read, not where it is
KEPT = ("hold_out", "pack", "window", "noise", "side", "channels", "flip", "crop", "colour")


def recipe_for(
    given: str | Path | Mapping[str, Any] | Recipe,
    folder: Folder,
    data: Any,
    valid: Any,
    settings: Mapping[str, Any],
    *,
    trust_code: bool = False,
) -> Recipe:
    """Return the recipe that was given, with these settings and these examples as its data."""
    if isinstance(given, Recipe):
        table, place = tomllib.loads(given.to_toml()), given.folder
    elif isinstance(given, Mapping):
        table, place = (
            {key: dict(value) if isinstance(value, Mapping) else value for key, value in given.items()},
            Path(),
        )
    else:
        read, _ = read_recipe(given, trust_code=trust_code)
        if data is None and not settings:
            return read
        table, place = tomllib.loads(read.to_toml()), Path(given).parent.resolve()
    for key, value in settings.items():
        section, _, name = key.partition(".")
        if not name:
            table[section] = value
        else:
            table.setdefault(section, {})[name] = value
    if data is None:
        if valid is not None:
            raise UserError("valid was given without data: give both, or name validation data in the recipe.")
        return parse_recipe(table, tasks=TASKS, folder=place)
    task = choose(TASKS, table.get("task"), "The task")
    asked = keep(task, folder, data, valid)
    asked = replace(asked, model=table.get("model", {}).get("name"))
    if asked.model is None:  # it is that of the run to start from, if there is one
        asked = replace(asked, base=table.get("train", {}).get("from"))
    chosen, _ = new_recipe(asked)
    made = tomllib.loads(chosen.to_toml())
    own = {key: value for key, value in table.get("data", {}).items() if key in KEPT and key in made["data"]}
    table["data"] = made["data"] | own
    for key, value in settings.items():
        section, _, name = key.partition(".")
        if section == "data" and table["data"].get(name) != value:
            raise UserError(f"{key} = {value!r} does not go with examples that are given as data: leave it out.")
    for section in ("tokens", "model", "train"):
        wanted = table.get(section, {})
        table[section] = wanted if "preset" in wanted else made.get(section, {}) | wanted
    return parse_recipe(table, tasks=TASKS, folder=folder.path.resolve())


def keep(task: Task, folder: Folder, data: Any, valid: Any) -> Request:
    """Write examples to the run folder, the same as in an earlier attempt, and return the request for `new`."""
    place = folder.examples.resolve()
    kept, files = {}, {}
    with writing(place):
        make_folder(place)
        for split, examples in (("train", data), ("valid", valid)):
            if examples is None:
                continue
            kept = task.keep(rows_of(examples), place / f".{split}")
            unfinished = kept.pop("file")
            path = place / unfinished.name.removeprefix(".")
            if folder.is_run() and (not path.exists() or content_hash(path) != content_hash(unfinished)):
                unfinished.unlink()
                raise UserError(
                    f"The data has changed since {folder.path} was started: give the same data, or another out."
                )
            unfinished.replace(path)
            files[split] = str(path)
    return Request(
        task=task,
        files=(files["train"],),
        folder=folder.path.resolve(),
        valid=(files["valid"],) if "valid" in files else (),
        **kept,
    )

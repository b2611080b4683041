"""From a path to a recipe or a trained run: the door that knows every task."""

from __future__ import annotations

from collections.abc import Iterable
from importlib.resources import files
from pathlib import Path

from regard import recipe
from regard.checkpoint import Folder
from regard.config import UserError, unknown
from regard.models import models_for
from regard.recipe import Recipe
from regard.run import Run, open_run
from regard.tasks.registry import TASKS


def read_recipe(path: str | Path, settings: Iterable[str] = ()) -> tuple[Recipe, list[str]]:
    """The recipe in a file, with `section.key=value` settings laid over it; and what there is to say about them."""
    return recipe.read_recipe(path, settings, tasks=TASKS)


def load(path: str | Path, *, device: str = "cpu") -> Run:
    """The best model of a run folder."""
    folder = Folder(path).must_exist()
    return open_run(folder, read_recipe(folder.config)[0], device=device)


def shipped(name: str) -> Path:
    """A recipe that comes with the package."""
    return Path(str(files("regard") / "recipes" / f"{name}.toml"))


def demo_recipe(task: str, model: str) -> Recipe:
    """The recipe that ships for this model, or for this task with this model in it."""
    of_task = shipped(f"demo-{task}")
    known = [name for name in models_for(task) if of_task.exists() or shipped(f"demo-{name}").exists()]
    if not known:
        raise UserError(f"There is no demo of {task}: the built-in corpus has none of it.")
    if model not in known:
        raise unknown(model, known, f"The model of the {task} demo")
    if of_task.exists():
        return read_recipe(of_task, [] if model == TASKS[task].demo_model else [f"model.name={model}"])[0]
    return read_recipe(shipped(f"demo-{model}"))[0]

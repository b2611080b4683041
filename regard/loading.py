"""Read a recipe or a trained run from a path; this module knows every task."""

from __future__ import annotations

import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import replace
from importlib.resources import files
from pathlib import Path
from typing import Any

from regard import machine
from regard.checkpoint import Folder
from regard.config import override
from regard.data.fields import Fields
from regard.data.files import read_toml, reason
from regard.data.tensors import read_tensors, tensor_shapes
from regard.interface import Fits, UserError
from regard.layers.fast.packed import Precision, pack
from regard.models import models_for, no_such_model
from regard.predict.language_model import with_language_model
from regard.recipe import Recipe, parse_recipe, refuse_other_code
from regard.run import Run, build_saved
from regard.tasks.registry import TASKS
from regard.train.weights import load_weights


def read_recipe(
    path: str | Path, settings: Iterable[str] = (), *, trust_code: bool = False
) -> tuple[Recipe, list[str]]:
    """Read a recipe file, with `section.key=value` settings instead of its own; and return remarks about them.

    trust_code: execute the Python files that the recipe of a run names, even if you have not trained with them.
    """
    path = Path(path)
    if Folder(path).config.is_file():
        raise UserError(f"{path} is a run, not a recipe: give {Folder(path).config}, which is its recipe.")
    data = "" if path.suffix == ".toml" else f"; if it is your data, write a recipe with `regard new TASK {path}`"
    run = Folder(path.parent)
    of_run = run if path == run.config else None
    try:
        table = read_toml(path, own=bool(of_run and run.is_run()))
    except FileNotFoundError:
        remedy = "check the spelling and the folder, or write a recipe with `regard new`"
        raise UserError(f"The recipe {path} does not exist: {remedy}.") from None
    except OSError as problem:
        raise UserError(f"The recipe {path} cannot be read: {reason(problem)}; give a .toml file.") from None
    except UnicodeDecodeError:
        raise UserError(f"{path} is not a recipe: it is not UTF-8 text{data}.") from None
    except (ValueError, RecursionError) as problem:  # invalid, or with numbers or lists that Python refuses
        raise UserError(f"The recipe {path} is not valid TOML: {problem}{data}.") from None
    typed, remarks = apply_settings(table, settings)
    folder = path.parent.resolve()
    recipe = parse_recipe(table, tasks=TASKS, folder=folder, typed=typed, run=of_run, trust_code=trust_code)
    return recipe, remarks


def apply_settings(table: dict[str, Any], settings: Iterable[str]) -> tuple[set[str], list[str]]:
    """Put `section.key=value` settings in a recipe's tables; return their keys, and remarks about them. Another model,
    or preset, has none of the settings of the one before."""
    remarks = []
    typed = {setting.split("=")[0].strip(): setting for setting in settings}
    chosen = [typed[key] for key in ("model.name", "model.preset") if key in typed]
    if chosen and isinstance(table.get("model"), dict):
        if dropped := sorted(table["model"].keys() - {"name", "preset"}):
            remarks.append(f"{chosen[0]}: model.{', model.'.join(dropped)} are reset to that model's preset.")
        table["model"] = {key: value for key, value in table["model"].items() if key == "name"}
    for setting in (*chosen, *(setting for setting in typed.values() if setting not in chosen)):
        override(table, setting)
    return set(typed), remarks


def with_settings(recipe: Recipe, settings: Sequence[str]) -> Recipe:
    """Return a recipe with these settings instead of its own, as `read_recipe` reads them from a file."""
    table = tomllib.loads(recipe.to_toml())
    typed, _ = apply_settings(table, settings)
    read = parse_recipe(table, tasks=TASKS, folder=recipe.folder, typed=typed)
    return replace(read, task=recipe.task)  # pre-training stays what it is, whatever its model


def open_run(path: str | Path, *, trust_code: bool = False) -> tuple[Folder, Recipe, Fields]:
    """Read what is in a run folder beside its weights."""
    folder = Folder(path).must_exist()
    recipe, _ = read_recipe(folder.config, trust_code=trust_code)
    refuse_other_code(recipe.code(), folder)
    fields = Fields.read(folder.fields, recipe.task.fields)
    if not folder.best.exists():
        raise UserError(f"{folder.path} has no model yet: training stopped before its first validation; resume it.")
    return folder, recipe, fields


def load(
    path: str | Path,
    *,
    device: str = "cpu",
    precision: Precision = "fp32",
    trust_code: bool = False,
    lm: str | Path | None = None,
) -> Run:
    """Load the best checkpoint of a run folder.

    precision: of matrix products on a CPU; bf16 and int8 are faster and less exact.
    trust_code: execute the Python files that the run names, even if you have not trained with them.
    lm: a run of a language model, for a model of recordings: its transcripts are decoded with it (shallow fusion).
    """
    folder, recipe, fields = open_run(path, trust_code=trust_code)
    model = build_saved(recipe, fields, tensor_shapes(folder.best), folder.best)
    saved, _ = read_tensors(folder.best)
    if isinstance(model, Fits):
        model.restore(saved)
    else:
        load_weights(model, saved, origin=folder.best)
    place = machine.device(device)
    model = model.to(place).eval()
    if precision != "fp32" and place.type != "cpu":
        raise UserError(f"precision {precision} is for the CPU, and the device is {device}: leave one of them out.")
    if precision != "fp32" and machine.amx_faults():
        remedy = "choose fp32, or set ONEDNN_MAX_CPU_ISA=AVX512_CORE_BF16"
        raise UserError(f"precision {precision} cannot run: this processor faults where it advertises AMX; {remedy}.")
    if place.type == "cpu":
        pack(model, precision)
    run = Run(recipe, fields, model, place, str(folder.path), precision)
    return run if lm is None else with_language_model(run, load(lm, device=device, trust_code=trust_code))


def shipped(name: str) -> Path:
    """Return the path of a recipe that comes with the package."""
    return Path(str(files("regard") / "recipes" / f"{name}.toml"))


def demo_recipe(task: str, model: str) -> Recipe:
    """Read the demo's recipe for this model, or for this task with this model in it."""
    of_task = shipped(f"demo-{task}")
    known = [name for name in models_for(task) if of_task.exists() or shipped(f"demo-{name}").exists()]
    if TASKS[task].stages:
        known = [TASKS[task].demo_model]
    if not known:
        raise UserError(f"There is no demo of {task}: the built-in corpus has no data for it; choose another task.")
    if model not in known:
        raise no_such_model(model, task, f"The model of the {task} demo", known)
    if of_task.exists():
        return read_recipe(of_task, [] if model == TASKS[task].demo_model else [f"model.name={model}"])[0]
    return read_recipe(shipped(f"demo-{model}"))[0]

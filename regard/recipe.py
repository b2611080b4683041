"""A recipe: everything a run depends on, in one TOML file.

task, seed, [data], [tokens], [model], [train]. [data] and [model] are tagged unions: their `name` says which
settings they have, and a model's `preset` fills in what is not written. A model may be a user's Python file, which is
executed to read its settings; for the recipe of a run, only if the file has not changed since the run was started, and
the person has trained with it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Container, Mapping, Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, cast

from regard import usercode
from regard.checkpoint import FORMAT, Folder, refuse_another_version
from regard.config import choose, fields_of, is_place, parse, shown, to_toml, unknown, values_of, write_table
from regard.data.sources import Source, find
from regard.data.text import content_hash
from regard.interface import UserError
from regard.models import MODELS, design_of, models_for, no_such_model
from regard.models.design import Design
from regard.score.metrics import LOSS, Metric
from regard.tasks import Task
from regard.train.training import SOME_TASKS, TrainConfig

CONFIGS = ("data", "tokens", "model", "train")
KEYS = ("task", "seed", "format", "folder", *CONFIGS)
DESCRIBES = {"data.languages"}  # settings that describe a run, and do not affect what is trained


@dataclass(frozen=True)
class Recipe:
    task: Task
    seed: int
    data_name: str
    data: Source
    tokens: Any  # the settings of the task's tokenizer
    model_name: str  # or the absolute path of a user's file
    model: Any  # the Config of that model
    train: TrainConfig
    folder: Path = Path()  # relative paths in it start here

    @property
    def metric(self) -> Metric:
        """Return the metric that selects the best checkpoint."""
        return next(metric for metric in (LOSS, *self.task.metrics) if metric.key == self.train.metric)

    @property
    def model_title(self) -> str:
        """Return the model's name as it is shown."""
        return usercode.title(self.model_name)

    def to_toml(self, *, placed: bool = False, reasons: Mapping[str, str] | None = None) -> str:
        """Write the complete recipe with comments; reading it gives this recipe again.

        `placed` adds the folder where relative paths start, so that it can be read from anywhere. `reasons` explain
        the values of dotted keys.
        """
        head = f"task = {to_toml(self.task.name)}\nseed = {self.seed}\n"
        if placed:
            head += f"format = {FORMAT}  # of the run folder's files\n"
            head += f"folder = {to_toml(str(self.folder))}  # relative paths start here\n"
        tags = {"data": self.data_name, "model": self.model_name}
        tables = (write_table(name, vars(self)[name], tag=tags.get(name, ""), reasons=reasons) for name in CONFIGS)
        return "\n".join([head, *filter(None, tables)])

    def differences(self, other: Recipe) -> list[str]:
        """Return the dotted keys that differ, of those that affect what is trained."""
        ours, theirs = self.flat(), other.flat()
        keys = {**ours, **theirs}.keys() - DESCRIBES
        return sorted(key for key in keys if ours.get(key) != theirs.get(key))

    def flat(self) -> dict[str, Any]:
        """Return all settings as dotted key -> value."""
        head = {"task": self.task.name, "seed": self.seed, "data.name": self.data_name, "model.name": self.model_name}
        sections = ((name, values_of(vars(self)[name])) for name in CONFIGS)
        return head | {f"{name}.{key}": value for name, values in sections for key, value in values.items()}

    def code(self) -> dict[str, str]:
        """Return the user's Python files that the recipe names, with the hash of each."""
        files = {usercode.split(value)[0] for value in vars(self.model).values() if is_place(value)}
        if is_place(self.model_name):
            files.add(self.model_name)
        return {file: content_hash(file) for file in sorted(files)}


def parse_recipe(
    table: Mapping[str, Any],
    *,
    tasks: Mapping[str, Task],
    folder: Path = Path(),
    typed: Container[str] = (),
    run: Folder | None = None,
    trust_code: bool = False,
) -> Recipe:
    """Read a recipe from its tables. `typed` are the dotted keys set on the command line, whose paths start in the
    current folder. `run` is the run folder whose recipe this is, if it is one. Code is trusted if the person names it:
    in a recipe that is not a run's, on the command line, or by `trust_code`."""
    every = _every_key(table, tasks)
    for key in table:
        if key not in KEYS:
            raise unknown(key, KEYS, "The key", every)
    for section in CONFIGS:
        if not isinstance(table.get(section, {}), dict):
            raise UserError(f"{section} = {shown(table[section])} must be a section: write [{section}].")
    if "task" not in table:
        raise UserError(f"The recipe has no task: it must be one of {', '.join(tasks)}.")
    task = choose(tasks, table["task"], "The task")
    if task.objectives:
        task, table = _of_objective(task, table)
    seed = table.get("seed", 1)
    if type(seed) is not int or not 0 <= seed < 1 << 63:
        raise UserError(f"seed = {shown(seed)} must be a whole number, at least 0 and below 2⁶³.")
    refuse_another_version(table, folder)
    place = table.get("folder", str(folder))
    if not isinstance(place, str):
        raise UserError(f"folder = {shown(place)} must be a text in quotes.")
    data_name, data = _tagged(table, "data", list(task.sources))
    model_name, values = _tagged(table, "model", models_for(task.name), of_task=task.name)
    found = partial(_found, folder=folder / place, of_a_run="folder" in table, typed=typed)

    def trusted(key: str, file: str) -> str:
        if run and key not in typed:
            refuse_other_model(file, run, key)
        named = trust_code or key in typed or not (run or "folder" in table)
        (usercode.trust if named else usercode.refuse_unknown)(Path(file))
        return file

    if is_place(model_name):
        model_name = trusted("model.name", found("model.name", model_name, "the model"))
    design = design_of(model_name)
    if task.name not in design.tasks:
        raise UserError(
            f"The model in {model_name} is for {', '.join(map(str, design.tasks)) or 'nothing'}, not for {task.name}: "
            f"choose another, or add {task.name!r} to the tasks of its DESIGN."
        )
    model = _settings(design, model_name, values, every)
    places = {key: usercode.split(value) for key, value in vars(model).items() if is_place(value)}
    keys = {key: f"model.{key}" for key in places}
    cells = {k: f"{trusted(keys[k], found(keys[k], file, name))}:{name}" for k, (file, name) in places.items()}
    train = parse(TrainConfig, table.get("train", {}), where="train", also=every)
    choose({metric.key: metric for metric in (LOSS, *task.metrics)}, train.metric, f"For {task.name}, train.metric =")
    for key in SOME_TASKS:
        if vars(train)[key] and key not in task.train_settings:
            raise UserError(f"train.{key} does not apply to {task.name}: leave it out.")
    return Recipe(
        task=task,
        seed=seed,
        data_name=data_name,
        data=parse(cast(Any, task.sources[data_name]), data, where="data", also=every),
        tokens=parse(task.tokens, table.get("tokens", {}), where="tokens", also=every),
        model_name=model_name,
        model=dataclasses.replace(model, **cells) if cells else model,
        train=train,
        folder=folder / place,
    )


def objective_of(task: Task, model: object) -> Task:
    """Return the first of a task's objectives that a model is for; a user's model is for the first of all."""
    known = {model: each for each in reversed(task.objectives) for model in models_for(each.name)}
    if is_place(model):
        return task.objectives[0]
    if not isinstance(model, str) or model not in known:
        raise no_such_model(model, task.name, "model.name =", list(known))
    return known[model]


def _of_objective(task: Task, table: Mapping[str, Any]) -> tuple[Task, dict[str, Any]]:
    """Return the objective of the recipe's model, and the recipe for it: with what the objective changes in the model's
    settings, without settings of data that only other objectives have."""
    model, data = dict(table.get("model", {})), dict(table.get("data", {}))
    name = model.get("name", task.model)
    chosen = objective_of(task, name)
    sources = [each.sources.get(str(data.get("name"))) for each in task.objectives]
    every = {key for source in sources if source for key in fields_of(cast(Any, source))}
    source = chosen.sources.get(str(data.get("name")))
    others = every - fields_of(cast(Any, source)).keys() if source else set()
    changes = {} if is_place(name) else MODELS[name].objective
    own = {key: value for key, value in data.items() if key not in others}
    return chosen, {**table, "model": {**changes, **model}, "data": own}


def _every_key(table: Mapping[str, Any], tasks: Mapping[str, Task]) -> list[str]:
    """Return the dotted keys of every known section: a key may have been given without its section."""
    names = {key: value.get("name") for key, value in table.items() if isinstance(value, dict)}
    task, design = tasks.get(str(table.get("task"))), MODELS.get(str(names.get("model")))
    sections: dict[str, Any] = {"train": TrainConfig, "model": design and design.config}
    if task:
        sections |= {"data": task.sources.get(str(names.get("data"))), "tokens": task.tokens}
    return [f"{section}.{key}" for section, config in sections.items() if config for key in fields_of(config)]


def _settings(design: Design, model_name: str, values: dict[str, Any], every: Sequence[str]) -> Any:
    """Return the model's settings: the given ones override those of the preset."""
    in_user_code = usercode.blamed(Path(model_name), f"The settings of {model_name} cannot be created")
    with in_user_code if is_place(model_name) else nullcontext():
        what = f"The preset of {model_name}"
        base = choose(design.presets, values.pop("preset"), what) if "preset" in values else design.config()
        return parse(design.config, {**values_of(base), **values}, where="model", also=every)


def _found(key: str, path: str, holds: str, *, folder: Path, of_a_run: bool, typed: Container[str]) -> str:
    """Return the absolute path of a user's file.

    A run's recipe holds absolute paths; another path means that somebody changed the recipe to run their own code.
    """
    here = key in typed
    file = find(path, *([Path.cwd()] if here else []), folder)
    if not file.is_file():
        raise UserError(f"{key} = {path!r} is not a file: name the Python file that {holds} is in.")
    if of_a_run and not here and path != str(file):
        raise UserError(f"{key} = {path!r} must be an absolute path in the recipe of a run, such as {file}.")
    for each in file.parents:
        if Folder(each).is_run():
            raise UserError(
                f"{file} lies inside the run {each}, and code that comes with a run is never executed: "
                "if you trust it, move it elsewhere."
            )
    return str(file)


def refuse_other_model(file: str, run: Folder, key: str) -> None:
    """Refuse a user's file that has changed since the run was started, before it is executed."""
    if not run.environment.is_file():
        raise UserError(
            f"{run.config} has the name of a run's recipe, but no {run.environment.name} beside it has the hash "
            f"of {file}: give your own recipe another name."
        )
    refuse_other_code({file: content_hash(file)}, run, where=f"in another folder with {key}={file}")


def refuse_other_code(now: Mapping[str, str], run: Folder, *, where: str = "in another folder") -> None:
    """Refuse user's files that have changed since the run was started; they are compared before they are executed."""
    if not now:
        return
    before = run.facts().get("code")
    known = before if isinstance(before, dict) else {}
    changed = [file for file in now if now[file] != known.get(file)]
    if changed:
        raise run.changed("code", ", ".join(changed), where)


def _tagged(
    table: Mapping[str, Any], section: str, known: Sequence[str], *, of_task: str = ""
) -> tuple[str, dict[str, Any]]:
    """The name of a section and its other settings; `of_task`: it is a model of this task, or a user's file."""
    values = dict(table.get(section, {}))
    name = values.pop("name", None)
    if name is None:
        raise UserError(f"The recipe has no {section}.name: it must be one of {', '.join(known)}.")
    if not isinstance(name, str) or (name not in known and not (of_task and is_place(name))):
        what = f"{section}.name ="
        raise no_such_model(name, of_task, what) if of_task else unknown(name, known, what)
    return name, values

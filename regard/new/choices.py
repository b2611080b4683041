"""What all new recipes share: the request, sizes by amount of data, the time that training takes on this machine."""

from __future__ import annotations

import glob
import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard import machine
from regard.config import Names, counted
from regard.data.source_files import find, find_all
from regard.data.sources import UNDECIDED, Source, Unit
from regard.data.tokens import Kind
from regard.interface import Shapes, UserError
from regard.layers.fast.without_values import without_values
from regard.models import MODELS, models_for, no_such_model
from regard.recipe import Recipe
from regard.train.training import TrainConfig

Reasons = dict[str, str]  # why a dotted key has its value
SHARE_OF_PEAK = 0.5  # of the matmul peak that training reaches, as measured on two cores
SMALL, MEDIUM, LARGE = 10_000, 200_000, 2_000_000  # pairs


@dataclass(frozen=True)
class Request:
    """What `regard new` was asked for."""

    task: Any  # the Task
    files: tuple[str, ...]  # training data
    folder: Path  # of the recipe
    valid: tuple[str, ...] = ()  # validation files; none: some of the training data is held out
    source: str | None = None  # the file of sources, or the field of the text in a table
    target: str | None = None  # the file of targets, or the field of the label
    second: str | None = None  # the field of a second text
    model: str | None = None
    kind: Kind | None = None  # of tokens
    unit: Unit | None = None  # one text is a line, a paragraph or the whole file
    base: str | None = None  # fine-tuning: the run to start from, which gives the model and its tokens

    @property
    def model_name(self) -> str:
        """The model that was named, or the task's default."""
        name = self.model or self.task.model
        if name not in models_for(self.task.name):
            raise no_such_model(name, self.task.name, "The model")
        return str(name)

    def train_and_valid(self) -> dict[str, Any]:
        """The settings of data in training files, and in one validation file if there is one."""
        files, valid = list(self.files), list(self.valid)
        if not files and len(valid) == 2:  # --valid takes two names where two follow it
            files.append(valid.pop())
        if not files or len(set(files)) < len(files) or len(valid) > 1:
            given = f"{counted(len(files), 'training file')} and {counted(len(valid), 'validation file')} were given"
            raise UserError(
                f"For {self.task.name} {given}: give one file, as in regard new {self.task.name} "
                f"{self.task.words.file} -o my.toml, or several, each once, and at most one validation file."
            )
        return {
            "train": all_written(files, self.folder),
            "valid": written(valid[0], self.folder) if valid else "",
            "hold_out": 0.0 if valid else UNDECIDED,
        }

    def first_file(self, names: Names) -> Path:
        """The first of the training files, from which fields are guessed."""
        return find_all("train", names, self.folder)[0]

    def refuse(self, *names: str) -> None:
        """Refuse what does not apply to this task."""
        given = ["tokens" if name == "kind" else name for name in names if vars(self)[name]]
        if given:
            rest = ("does", "it") if len(given) == 1 else ("do", "them")
            raise UserError(f"{' and '.join(given)} {rest[0]} not apply to {self.task.name}: leave {rest[1]} out.")

    def recipe(self, data: Source, tokens: Any, config: Any, train: TrainConfig) -> Recipe:
        """The recipe of these settings, for the task and the model that were asked for."""
        if "second" not in vars(data):
            self.refuse("second")
        data_name = next(name for name, form in self.task.sources.items() if form is type(data))
        return Recipe(self.task, 1, data_name, data, tokens, self.model_name, config, train, self.folder)


Made = tuple[Recipe, Reasons]


def parameters_of(model: str, config: Any, shapes: Shapes) -> tuple[int, object]:
    """The number of parameters of a model of this size; and the model, without values."""
    with without_values():
        built = MODELS[model].build(config, shapes)
    return sum(parameter.numel() for parameter in built.parameters()), built


def first_key(config: Any) -> str:
    """The first setting of a model, which gets the reason for its size."""
    return f"model.{next(iter(vars(config)))}"


def hold_out(count: int, share: float, noun: str) -> str:
    kept = max(1, round(share * count))
    return f"there is no validation file: about {counted(kept, noun)} {'is' if kept == 1 else 'are'} held out."


def written(path: str, folder: Path) -> str:
    """A path from the current folder, as a recipe in `folder` must write it."""
    here = Path.cwd() / path
    if not here.exists() and glob.has_magic(path):
        found = find_all("train", path, Path.cwd())[0]
        if not glob.glob(str(here), recursive=True):
            return path
        place = here.parent.resolve() / here.name
    else:
        found = place = find(path, Path.cwd())
        if not here.exists():
            return path  # found through $REGARD_DATA, as the recipe will find it
    return os.path.relpath(place, folder) if found.is_relative_to(folder) else str(place)


def all_written(paths: Sequence[str], folder: Path) -> Names:
    """Several paths as a recipe must write them: as one pattern, if it matches these files and no others."""
    if len(paths) == 1:
        return written(paths[0], folder)
    ends = os.path.commonprefix([path[::-1] for path in paths])[::-1]
    begins = os.path.commonprefix(paths)
    pattern = f"{os.path.join(os.path.dirname(begins), '*')}{ends[ends.find('.') :] if '.' in ends else ''}"
    if sorted(paths) == sorted(glob.glob(pattern)) and {os.path.dirname(path) for path in paths} == {
        os.path.dirname(pattern)
    }:
        return written(pattern, folder)
    return tuple(written(path, folder) for path in paths)


def by_size(pairs: int, small: Any, medium: Any, large: Any, huge: Any) -> Any:
    return small if pairs < SMALL else medium if pairs < MEDIUM else large if pairs < LARGE else huge


def time_here(parameters: int, tokens: float) -> tuple[float, str]:
    """How long training on so many tokens takes on this machine: in seconds, and as a reason."""
    peak = machine.matmul_gflops()
    seconds = 6 * parameters * tokens / (SHARE_OF_PEAK * peak * 1e9)
    minutes = "a minute" if seconds < 90 else f"{math.ceil(seconds / 60)} minutes"
    shown = minutes if seconds < 5400 else f"{seconds / 3600:.1f} hours"
    return seconds, f"training takes about {shown} on this machine, at half of its {peak:.0f} GFLOPS."

"""runs: list the runs in a folder, without loading a model."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import safetensors
from safetensors import SafetensorError

from regard import usercode
from regard.checkpoint import SMALL, Folder, of_another_version
from regard.config import UserError
from regard.data.files import open_regular, own_file, read_toml, reason
from regard.data.text import LONGEST
from regard.score.metrics import LOSS
from regard.score.registry import METRICS

SHOWN = 60  # most characters of what a file says


@dataclass(frozen=True)
class Listed:
    name: str
    task: str
    model: str
    state: str  # training, finished, stopped, ready (weights that cannot be trained on), not started, damaged, of
    # another version
    step: int
    score: str  # the best validation, or what is damaged
    megabytes: float


def runs(path: str | Path = "runs") -> list[Listed]:
    """List every run in this folder, the latest first."""
    place = Path(path)
    if not place.is_dir():
        raise UserError(
            f"The folder {path} does not exist: train a model first, or give the folder that holds your runs."
        )
    folders = [Folder(each.parent) for each in place.glob("*/config.toml")]
    return [listed(folder) for folder in sorted(folders, key=changed, reverse=True)]


def facts_of(files: Iterable[Path]) -> Iterator[os.stat_result]:
    """Yield what the system knows of the files that exist and may be looked at."""
    for file in files:
        with suppress(OSError):
            yield file.lstat()


def changed(folder: Folder) -> float:
    return max((facts.st_mtime for facts in facts_of((folder.config, folder.log, folder.last))), default=0.0)


def listed(folder: Folder) -> Listed:
    """Describe a run; whatever is in its files, it takes a row."""
    size = sum(facts.st_size for facts in facts_of(folder.path.rglob("*")) if stat.S_ISREG(facts.st_mode))
    name, megabytes = folder.path.name, size / 1e6
    task = model = "?"
    file = folder.config
    try:
        recipe = read_toml(file, own=True)
        task, model = str(recipe["task"])[:SHOWN], usercode.title(str(recipe["model"]["name"]))[:SHOWN]
        file = folder.log
        entry: dict[str, Any] = {}  # the last one
        valid: dict[str, Any] = {}  # the best validation
        for entry in log_entries(folder):
            if entry.get("improved") and isinstance(entry.get("valid"), dict):
                valid = entry["valid"]
        step, score = whole(entry.get("step", 0)), best(valid)
        if of_another_version(recipe):
            return Listed(name, task, model, "of another version", step, "", megabytes)
        file, step = folder.last, 0
        if file.exists():
            with safetensors.safe_open(str(own_file(file)), framework="np") as opened:  # only its header is read
                facts = (opened.metadata() or {})["facts"]
            step = whole(json.loads(facts)["step"] if len(facts) < SMALL else None)
        file, training = folder.path, folder.in_use()
    except (ValueError, KeyError, TypeError, OverflowError, OSError, RecursionError, SafetensorError) as problem:
        why = f"{file.relative_to(folder.path)}: {reason(problem)}"
        return Listed(name, task, model, "damaged", 0, why[:SHOWN], megabytes)
    finished = bool(entry.get("finished") and entry.get("step") == step)
    unfinished = "stopped" if step else "ready" if folder.best.exists() else "not started"
    state = "finished" if finished else unfinished
    return Listed(name, task, model, "training" if training else state, step, score, megabytes)


def whole(number: Any) -> int:
    if type(number) is not int or not 0 <= number < 1 << 53:
        raise ValueError("its step is not a number of steps")
    return number


def log_entries(folder: Folder) -> Iterator[dict[str, Any]]:
    """Read the lines of the log; a line that a crash cut short, or that is too long for a log, is skipped."""
    if not folder.log.exists():
        return
    with open_regular(folder.log, own=True) as file:
        for line in iter(partial(file.readline, LONGEST), b""):
            try:
                entry = json.loads(line.decode(errors="replace"))
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict):
                yield entry


def best(valid: Mapping[str, Any]) -> str:
    if not all(isinstance(value, int | float) for value in valid.values()):
        raise ValueError("a metric is not a number")
    shown = [f"loss {valid['loss']:.3f}"] if "loss" in valid else []
    return ", ".join(shown + shown_metrics(valid)[:1])


def shown_metrics(metrics: Mapping[str, float]) -> list[str]:
    """List the metrics of a validation without its loss."""
    shown = {key: metric for key, metric in METRICS.items() if key in metrics and metric is not LOSS}
    return [f"{metric.name} {metrics[key]:.2f}" for key, metric in shown.items()]

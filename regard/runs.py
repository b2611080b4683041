"""runs: list the runs in a folder, without loading a model."""

from __future__ import annotations

import fcntl
import json
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import safetensors

from regard import usercode
from regard.checkpoint import Folder, of_another_version
from regard.interface import UserError
from regard.score.metrics import LOSS, METRICS


@dataclass(frozen=True)
class Listed:
    name: str
    task: str
    model: str
    state: str  # training, finished, stopped, not started, damaged, of another version
    step: int
    score: str  # the best validation
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


def changed(folder: Folder) -> float:
    return max(file.stat().st_mtime for file in (folder.config, folder.log, folder.last) if file.exists())


def listed(folder: Folder) -> Listed:
    size = sum(file.stat().st_size for file in folder.path.rglob("*") if file.is_file())
    name, megabytes = folder.path.name, size / 1e6
    try:
        recipe = tomllib.loads(folder.config.read_text(encoding="utf-8"))
        task, model = str(recipe["task"]), usercode.title(str(recipe["model"]["name"]))
        entries = list(log_entries(folder))
        if of_another_version(recipe):
            step = int(entries[-1].get("step", 0)) if entries else 0
            return Listed(name, task, model, "of another version", step, "", megabytes)
        step = 0
        if folder.last.exists():
            with safetensors.safe_open(str(folder.last), framework="np") as file:  # only its header is read
                step = int(json.loads((file.metadata() or {})["facts"])["step"])
    except (ValueError, KeyError, TypeError, OSError, RecursionError, safetensors.SafetensorError):
        return Listed(name, "?", "?", "damaged", 0, "", megabytes)
    finished = bool(entries and entries[-1].get("finished") and entries[-1].get("step") == step)
    state = "finished" if finished else "stopped" if step else "not started"
    return Listed(name, task, model, "training" if in_use(folder) else state, step, best(entries), megabytes)


def log_entries(folder: Folder) -> Iterator[dict[str, Any]]:
    """Read the lines of the log; a line that a crash cut short is skipped."""
    if not folder.log.exists():
        return
    with folder.log.open(encoding="utf-8", errors="replace") as file:
        for line in file:
            try:
                entry = json.loads(line)
            except (ValueError, RecursionError):
                continue
            if isinstance(entry, dict):
                yield entry


def best(entries: list[dict[str, Any]]) -> str:
    metrics = [entry["valid"] for entry in entries if entry.get("improved") and isinstance(entry.get("valid"), dict)]
    if not metrics:
        return ""
    shown = [f"loss {metrics[-1]['loss']:.3f}"] if "loss" in metrics[-1] else []
    return ", ".join(shown + shown_metrics(metrics[-1])[:1])


def shown_metrics(metrics: Mapping[str, float]) -> list[str]:
    """List the metrics of a validation without its loss."""
    shown = {key: metric for key, metric in METRICS.items() if key in metrics and metric is not LOSS}
    return [f"{metric.name} {metrics[key]:.2f}" for key, metric in shown.items()]


def in_use(folder: Folder) -> bool:
    """Return whether a process trains there, by trying to take the lock for an instant."""
    if not folder.lock.is_file():
        return False
    with folder.lock.open() as handle:
        try:
            fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except OSError:
            return True
    return False

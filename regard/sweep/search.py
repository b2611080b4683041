"""The folder of a search, which several workers share: who takes which trial, and what became of it.

recipe.toml (the recipe without the settings that are searched), search.json (the space, the seed, where the trials
are), trials.log (the journal, unless a database is used), a run folder for each trial, `locks/` with one folder each.
Two locks, which the system frees when their process ends, decide everything: whoever has that of the folder reads and
writes the storage; whoever has that of a trial trains it. A trial that is marked as running and whose lock is free was
left by a killed worker, and is taken up again.
"""

from __future__ import annotations

import json
import math
import uuid
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from regard.checkpoint import OCCUPIED, SMALL, Folder, InUse
from regard.compare.children import STOPPED
from regard.data.files import make_folder, read_own, write_atomically, writing
from regard.interface import UserError
from regard.loading import read_recipe
from regard.recipe import Recipe
from regard.runs import log_entries
from regard.sweep.space import Space, enough
from regard.sweep.study import Study, Trial

PATIENCE = 1200  # attempts, each of which takes 0.05 seconds, to take the lock of the folder, which is held briefly
STOPS = 3  # times that a trial is stopped from elsewhere, and resumed by one worker, before it counts as failed
HINTS = {"it was ended by SIGKILL": ", as the system does when memory runs out"}


@dataclass(frozen=True)
class Taken:
    """A trial that this worker trains, and its lock."""

    trial: Trial
    lock: ExitStack
    resumed: bool


@dataclass
class Search:
    folder: Path
    recipe: Recipe
    space: Space
    seed: int
    study: Study
    stops: dict[int, int] = field(default_factory=dict)  # by trial

    @property
    def recipe_file(self) -> Path:
        return self.folder / "recipe.toml"

    def run(self, trial: Trial) -> Folder:
        return Folder(self.folder / trial.name)

    def trials(self) -> list[Trial]:
        with locked(self.folder):
            return self._read()

    def _read(self) -> list[Trial]:
        """Read the trials. Settings that nobody asked for are refused: what they name might be executed."""
        trials = self.study.trials()
        for trial in trials:
            if not self.space.holds(trial.params):
                raise UserError(
                    f"Trial {trial.name} in the storage of {self.folder} has settings that are not in the space: "
                    "restore the storage, or start a new search in another folder."
                )
        return trials

    def take(self, most: int) -> Taken | None:
        """Take a trial that a killed worker left, or else a new one if there are fewer than `most`."""
        with locked(self.folder):
            trials = self._read()
            for trial in trials:
                if trial.state == "running" and (lock := self._lock(trial)):
                    return Taken(trial, lock, True)
            if len(trials) < most:
                trial = self.study.add(self.space, seed=self.seed)
                if lock := self._lock(trial):
                    return Taken(trial, lock, False)
        return None

    def _lock(self, trial: Trial) -> ExitStack | None:
        """Lock a trial; None if a worker has it, or if what a killed worker started is still saving."""
        stack = ExitStack()
        try:
            stack.enter_context(Folder(self.folder / "locks" / trial.name).only_writer(attempts=1))
        except InUse:
            return None
        if self.run(trial).in_use():
            stack.close()
            return None
        return stack

    def record(self, taken: Taken, why: str) -> Trial | None:
        """Record the end of a trial, which failed if there is a reason; None if it has not ended: its
        process was stopped, or met one that a killed worker had started and that trains there still."""
        trial = taken.trial
        with taken.lock, locked(self.folder):
            if why == STOPPED:
                self.stops[trial.number] = self.stops.get(trial.number, 0) + 1
            if OCCUPIED in why or (why == STOPPED and self.stops[trial.number] < STOPS):
                return None
            value = None if why else self._value(trial)
            if value is None:
                self.study.fail(trial, f"{why}{HINTS.get(why, '')}" or "its best validation is not a number")
            else:
                self.study.finish(trial, value)
            return self._read()[trial.number]

    def _value(self, trial: Trial) -> float | None:
        """Return the validation that chose the checkpoint."""
        key, best = self.recipe.metric.key, None
        for entry in log_entries(self.run(trial)):
            if entry.get("improved") and isinstance(entry.get("valid"), dict):
                best = entry["valid"].get(key)
        return float(best) if isinstance(best, int | float) and math.isfinite(best) else None


@contextmanager
def locked(folder: Path) -> Iterator[None]:
    """Wait for the lock of the search's folder."""
    with Folder(folder).only_writer(attempts=PATIENCE):
        yield


def open_search(
    folder: Path, recipe: Recipe, space: Space, *, trials: int, seed: int | None = None, storage: str = ""
) -> Search:
    """Start a search, or take part in the one that this folder holds, if it is the same one."""
    enough(space, trials)
    if trials < 1:
        raise UserError(f"--trials {trials} must be at least 1.")
    if Folder(folder).config.exists():
        raise UserError(f"{folder} is a run: give the search a folder of its own (-o on the command line).")
    seed = recipe.seed if seed is None else seed
    wanted = {"space": space.texts(), "seed": seed, "storage": place_of(storage)}
    with writing(folder):
        make_folder(folder)
    with locked(folder):
        known = _known(folder)
        if known is None:
            known = {"study": f"regard-{uuid.uuid4().hex}", **wanted}
            write_atomically(folder / "recipe.toml", recipe.to_toml(placed=True))
            write_atomically(folder / "search.json", json.dumps(known, indent=2) + "\n")
        elif changed := differences(known, wanted, read_recipe(folder / "recipe.toml")[0], recipe):
            raise UserError(
                f"{folder} holds another search, which differs in {'; '.join(changed)}: choose another folder (-o on "
                "the command line), or restore these; only --trials may grow."
            )
        study = Study(folder / "trials.log", storage, name=known["study"], better=recipe.metric.better)
        found = Search(folder, recipe, space, seed, study)
        if trials < (before := len(study.trials())):
            raise UserError(f"{folder} has {before} trials already, and --trials {trials} is less: it can only grow.")
    return found


def _known(folder: Path) -> dict[str, Any] | None:
    place = folder / "search.json"
    try:
        found = json.loads(read_own(place, most=SMALL))
        if not (isinstance(found, dict) and isinstance(found.get("study"), str)):
            raise ValueError
        if not isinstance(found.get("space"), dict):
            raise ValueError
        return found
    except FileNotFoundError:
        return None
    except (ValueError, RecursionError, OSError):
        raise UserError(f"{place} is damaged: restore it, or start a new search in another folder.") from None


def differences(was: Mapping[str, Any], now: Mapping[str, Any], before: Recipe, recipe: Recipe) -> list[str]:
    """List what differs between the search of a folder and the one that was asked for."""
    spaces = was["space"], now["space"]
    found = [
        f"{key} ({spaces[0].get(key, 'not searched')}, now {spaces[1].get(key, 'not searched')})"
        for key in {**spaces[0], **spaces[1]}
        if spaces[0].get(key) != spaces[1].get(key)
    ]
    found += [f"--{key} ({was.get(key)}, now {now[key]})" for key in ("seed", "storage") if was.get(key) != now[key]]
    ours, theirs = before.flat(), recipe.flat()
    return found + [
        f"{key} ({ours.get(key, 'none')}, now {theirs.get(key, 'none')})"
        for key in before.differences(recipe)
        if key not in {**spaces[0], **spaces[1]}
    ]


def place_of(storage: str) -> str:
    """Describe where the trials are, without a user's name and password."""
    if not storage:
        return "trials.log"
    parts = urlsplit(storage)
    if not parts.scheme or "://" not in storage:
        raise UserError(
            f"--storage {storage!r} is not the URL of a database: give one such as sqlite:///trials.db or "
            "postgresql://user@host/name, or leave it out for a file in the folder."
        )
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}{parts.path}"

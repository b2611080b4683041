"""A run is a folder: config.toml, fields.json, model.safetensors (best checkpoint), last/ (to resume from), log.jsonl.

Weights are safetensors with a checksum (data/tensors.py); nothing here can execute code. A run may come from somebody
else: its files are regular files of a sensible size, never links, whether they are read or written (data/files.py).
"""

from __future__ import annotations

import contextlib
import difflib
import fcntl
import json
import os
import re
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from regard.config import UserError
from regard.data.files import (
    LINK,
    append,
    make_folder,
    read_own,
    reason,
    write_atomically,
    writing,
)

SMALL = 8 << 20  # most bytes of a recipe or of the facts about a run
LARGE = 1 << 30  # most bytes of a log
LOOKERS, INSTANT = 4, 0.05  # attempts to take a run's lock, and the seconds between two of them
STEP = re.compile(rb"step (\d{1,15})\n")  # the first line of a sample
FORMAT = 2  # version of a run folder's files; other versions are refused
# temporary files that a killed process leaves: the name of a run's file between a dot and a number
UNFINISHED = re.compile(
    r"\.(?:config\.toml|fields\.json|environment\.json|encoding\.json|(?:model|state|shortlist)\.safetensors"
    r"|(?:train|valid)(?:-\d{5})?(?:\.\w+\.(?:tokens|offsets)\.npy)?)\.\d+"
)


OCCUPIED = "Another process is training in"


class InUse(UserError):
    """Another process has the lock of a folder."""


class Folder:
    """The files of one run."""

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.config = self.path / "config.toml"
        self.fields = self.path / "fields.json"
        self.best = self.path / "model.safetensors"
        self.last = self.path / "last" / "state.safetensors"
        self.log = self.path / "log.jsonl"
        self.samples = self.path / "samples.txt"
        self.environment = self.path / "environment.json"
        self.data = self.path / "data"
        self.shortlist = self.path / "shortlist.safetensors"  # what predict --shortlist learnt from the data
        self.examples = self.path / "examples"  # data given from Python
        self.tensorboard = self.path / "tensorboard"  # event files, if train.tensorboard

    def is_run(self) -> bool:
        """Return whether this is a run, and not a folder with a config.toml of something else."""
        return self.config.is_file() and (self.fields.is_file() or self.environment.is_file())

    def refuse_links(self) -> None:
        """Refuse a run whose recipe or inner folders are links, through which files elsewhere would be replaced."""
        for place in (self.config, self.last.parent, self.data, self.examples, self.tensorboard):
            if place.is_symlink():
                raise UserError(f"{place} cannot be used: {LINK}; put the file or folder itself there.")

    def must_exist(self) -> Folder:
        self.refuse_links()
        if self.config.is_file():
            return self
        path = self.path
        if path.is_file() and Folder(path.parent).is_run():
            raise UserError(f"{path} is a file of a run: give its folder, {path.parent}.")
        if path.is_file() and path.suffix == ".toml":
            raise UserError(
                f"{path} is a recipe, not a run: train it with `regard train {path}`, and give runs/{path.stem}."
            )
        what = "is not a run (it has no config.toml)" if path.exists() else "does not exist"
        raise UserError(
            f"The run {path} {what}: {self.near()}give the folder that `regard train` or `regard demo` wrote."
        )

    def near(self) -> str:
        """Which run may be meant: one that is inside, or one beside it or in runs/ with nearly the same name."""
        inside, *around = (
            {config.parent.name: config.parent for config in place.glob("*/config.toml")}
            for place in (self.path, Path("runs"), self.path.parent)
        )
        others = around[0] | around[1]
        close = sorted(inside) or difflib.get_close_matches(self.path.name, others, n=1)
        return f"did you mean {(others | inside)[close[0]]}? " if close else ""

    def sweep(self) -> None:
        """Remove the temporary files of killed processes; only the process that holds the lock may do this."""
        for place in (self.path, self.last.parent, self.data):
            for file in place.glob(".*"):
                if UNFINISHED.fullmatch(file.name):
                    with writing(file):
                        file.unlink()

    def facts(self) -> dict[str, Any]:
        """Read environment.json."""
        try:
            facts = json.loads(read_own(self.environment, most=SMALL))
            if not isinstance(facts, dict) or not isinstance(facts.get("data"), str):
                raise ValueError("the hash of the data is missing")
            if facts.get("precision") not in ("float32", "bfloat16"):
                raise ValueError("the precision is missing")
            if not isinstance(facts.get("new", []), list):
                raise ValueError("the names of new weights are not a list")
        except (ValueError, RecursionError, OSError) as problem:
            wrong = f"is damaged ({reason(problem)})"
            raise UserError(f"{self.environment} {wrong}: restore it, or start a new run in another folder.") from None
        return facts

    def changed(self, what: str, which: str, where: str = "in another folder") -> UserError:
        """Return the error for data or code that has changed since the run was started."""
        since = f"The {what} has changed since {self.path} was started"
        return UserError(f"{since} ({which}): restore it, or start a new run {where}.")

    def write_facts(self, facts: Mapping[str, Any]) -> None:
        write_atomically(self.environment, json.dumps(facts, indent=2) + "\n", own=True)

    def forget_after(self, step: int) -> None:
        """Drop what was logged after this step, from which the run is resumed: it will be logged again."""
        log, samples = _lines(self.log), _lines(self.samples)
        logged: dict[int, bytes] = {}  # earlier versions may have logged a step twice
        for line in log:
            with contextlib.suppress(ValueError, OverflowError, RecursionError, TypeError, KeyError):
                logged[int(json.loads(line)["step"])] = line
        if log != (kept := [line for at, line in logged.items() if at <= step]):
            write_atomically(self.log, b"".join(kept), own=True)
        later = (at for at, line in enumerate(samples) if (found := STEP.match(line)) and int(found[1]) > step)
        if (first := next(later, None)) is not None:
            write_atomically(self.samples, b"".join(samples[:first]), own=True)

    @contextlib.contextmanager
    def only_writer(self, attempts: int = LOOKERS) -> Iterator[None]:
        """Lock the folder, so that one process at a time trains here; the system frees the lock when it ends. InUse is
        raised if another process has the lock at each of these attempts."""
        self.refuse_links()
        with writing(self.path):
            make_folder(self.path)
            handle = self._lock(attempts)
        try:
            yield
        finally:
            os.close(handle)

    def _lock(self, attempts: int) -> int:
        """Take the lock; a process that only asks whether the folder is in use holds it for an instant."""
        for left in reversed(range(attempts)):
            try:
                return self._locked(fcntl.LOCK_EX)
            except BlockingIOError:
                if left:
                    time.sleep(INSTANT)
        raise InUse(f"{OCCUPIED} {self.path}, or encoding its data: wait for it, or choose another output folder.")

    def in_use(self) -> bool:
        """Return whether a process writes to the folder, by trying to take the lock for an instant."""
        try:
            os.close(self._locked(fcntl.LOCK_SH))
        except BlockingIOError:
            return True
        except OSError:  # it cannot be opened
            pass
        return False

    def _locked(self, kind: int) -> int:
        """Lock the folder itself, which cannot be removed while there is anything in it, and return its descriptor.

        NFS does not lock folders: there, a file in the folder is locked.
        """
        handle = os.open(self.path, os.O_RDONLY | os.O_DIRECTORY)
        try:
            try:
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
            except BlockingIOError:
                raise
            except OSError:
                create = os.O_CREAT if kind == fcntl.LOCK_EX else 0
                file = os.open("lock", os.O_RDWR | os.O_NOFOLLOW | create, 0o666, dir_fd=handle)
                os.dup2(file, handle, inheritable=False)
                os.close(file)
                fcntl.flock(handle, kind | fcntl.LOCK_NB)
        except BaseException:
            os.close(handle)
            raise
        return handle


def _lines(path: Path) -> list[bytes]:
    """Read the lines of a log; where there is none that can be read, appending to it will say why."""
    try:
        return read_own(path, most=LARGE).splitlines(keepends=True)
    except OSError:
        return []


def of_another_version(recipe: Mapping[str, Any]) -> bool:
    """Return whether this is the recipe of a run (it names its folder) in another format."""
    return "folder" in recipe and recipe.get("format") != FORMAT


def refuse_another_version(recipe: Mapping[str, Any], folder: Path) -> None:
    if of_another_version(recipe):
        raise UserError(
            f"{folder} was trained by another version of regard (its format is {str(recipe.get('format', 1))[:40]}, "
            f"this version's is {FORMAT}): train it again from your own recipe, in another folder."
        )


def append_log(path: Path, entry: Mapping[str, Any]) -> None:
    append(path, json.dumps(entry) + "\n")

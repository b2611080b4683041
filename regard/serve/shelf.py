"""The runs that a server answers with: those named on the command line, and those of one folder, each loaded when it is
first asked for and again when its weights have changed.

A request names a run by the name of its folder, which is looked up in a list: no request can reach another path.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from pathlib import Path
from typing import Any, cast

from regard.checkpoint import Folder
from regard.config import UserError, is_place, parse
from regard.data.files import read_toml
from regard.data.languages import Pair, pair_in
from regard.interface import Encodes, Frames, Generates, Picture, Shape
from regard.loading import load
from regard.look.weights import inside
from regard.run import Run
from regard.runs import listed
from regard.tasks import nothing
from regard.tasks.registry import TASKS

Stamp = tuple[int, int]  # when a file was written, and its size
NOT_YET: Stamp = (0, 0)


class NoSuchRun(UserError):
    """A request names a run that is not served."""


class Shelf:
    def __init__(
        self,
        given: Sequence[Path],
        folder: Path | None,
        *,
        loaded: Mapping[Path, Run] = {},
        opened: Callable[[Path], Run] = load,
        most: int = 8,
    ) -> None:
        """`opened` loads a run; at most so many (`most`) runs stay loaded beside those that were named."""
        self.given = {path.resolve().name: path for path in given}
        if len(self.given) < len(given):
            raise UserError(
                "Two of the runs have the same name, by which requests name them: rename one of the folders."
            )
        if folder is not None and not folder.is_dir():
            raise UserError(f"The folder {folder} does not exist: give the folder that holds your runs.")
        self.folder, self.opened, self.most = folder, opened, most
        self.lock, self.loading = threading.Lock(), threading.Lock()
        self.runs: OrderedDict[str, tuple[Stamp, Run]] = OrderedDict()  # the one used last comes last
        for path, run in loaded.items():
            self.runs[path.resolve().name] = (stamp(Folder(path).best), run)

    def paths(self) -> dict[str, Path]:
        """Return the folder of every run by its name: those that were named come first."""
        found = dict(self.given)
        if self.folder is not None:
            for config in sorted(self.folder.glob("*/config.toml")):
                if not config.parent.is_symlink():
                    found.setdefault(config.parent.name, config.parent)
        return found

    def path(self, name: str) -> Path:
        paths = self.paths()
        if name not in paths:
            raise NoSuchRun(f"There is no run {name[:80]!r} here: choose one of {', '.join(paths)[:400] or 'none'}.")
        return paths[name]

    def get(self, name: str) -> Run:
        """Return a run, ready to use. Code of the person's own runs only where the command line names the run."""
        path = self.path(name)
        now = stamp(Folder(path).best)
        if (kept := self.kept(name, now)) is not None:
            return kept
        with self.loading:  # one at a time, while other requests use what is loaded
            if (kept := self.kept(name, now)) is not None:
                return kept
            if name not in self.given:
                refuse_code(path)
            run = self.opened(path)
            with self.lock:
                self.runs[name] = now, run
                on_demand = [each for each in self.runs if each not in self.given]
                for each in on_demand[: -self.most]:
                    del self.runs[each]
        return run

    def kept(self, name: str, now: Stamp) -> Run | None:
        """Return a run that is loaded, if its weights are still the same."""
        with self.lock:
            was, run = self.runs.get(name, (NOT_YET, None))
            if run is None or was != now:
                return None
            self.runs.move_to_end(name)
            return run

    def list(self) -> Iterable[dict[str, Any]]:
        """Describe every run without loading any."""
        return (self._described(name, path) for name, path in self.paths().items())

    def described(self, name: str) -> dict[str, Any]:
        """Describe one run without loading it."""
        return self._described(name, self.path(name))

    def _described(self, name: str, path: Path) -> dict[str, Any]:
        return {**asdict(listed(Folder(path))), "name": name, "loaded": name in self.runs}


def stamp(file: Path) -> Stamp:
    """Return when a file was written; a run that has no weights yet is refused when it is loaded."""
    try:
        found = file.lstat()
    except OSError:
        return NOT_YET
    return found.st_mtime_ns, found.st_size


def languages_of(path: Path) -> Pair | None:
    """Return the languages that a run's recipe names, without loading it: it may be damaged, or not yet trained."""
    config = Folder(path).config
    return None if stamp(Folder(path).best) == NOT_YET else languages_in(config, stamp(config))


@lru_cache(maxsize=1024)
def languages_in(config: Path, written: Stamp) -> Pair | None:
    with suppress(UserError, OSError, ValueError, LookupError, TypeError, RecursionError):
        table = read_toml(config, own=True)
        settings = dict(table["data"])
        source = TASKS[table["task"]].sources[settings.pop("name")]
        pair = parse(cast(Any, source), settings, where="data").languages
        return pair_in(pair) if pair else None
    return None


def refuse_code(path: Path) -> None:
    """Refuse a run whose recipe names a user's Python file, before anything executes it."""
    try:
        model = read_toml(Folder(path).config, own=True).get("model")
    except (OSError, ValueError, RecursionError):
        raise UserError(f"{path.name} is damaged: its recipe cannot be read.") from None
    if isinstance(model, dict) and any(is_place(value) for value in model.values()):
        raise UserError(f"{path.name} uses code of your own, which only a run named on the command line may: name it.")


def abilities(run: Run) -> dict[str, Any]:
    """Describe what a run reads, and what can be asked of it."""
    task, model = run.task, run.model
    first = run.fields[next(iter(task.fields))]
    writes = task.decoding is not None and isinstance(model, Generates)
    seen = inside(model)
    reads = "pair" if run.recipe.data.paired else kind_of(first.shape)
    found = {
        "write": writes,
        "stream": writes and task.stream is not nothing,
        "look": task.look is not nothing and (bool(seen.attentions) or "source" in run.fields),
        "gates": bool(seen.recurrences) and reads in ("text", "pair"),
        "embed": isinstance(model, Encodes),
        "score": task.log_probs is not nothing,
    }
    return {
        "title": run.model_title,
        "precision": run.precision,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "reads": reads,
        "can": [name for name, is_able in found.items() if is_able],
        "decoding": asdict(task.decoding) if task.decoding is not None else None,
        "sides": list(task.words.sides),
    }


def kind_of(shape: Shape | None) -> str:
    """Return what a side of this shape is given as."""
    match shape:
        case Picture():
            return "picture"
        case Frames():
            return "recording"
    return "text"

"""Search over settings, from Python and from the command line, and write what was found."""

from __future__ import annotations

import json
import threading
from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard.checkpoint import Folder
from regard.compare.api import HEIGHT, setting_of
from regard.compare.measure import Facts
from regard.config import to_toml
from regard.data.files import write_atomically
from regard.data.text import one_line
from regard.interface import UserError
from regard.loading import with_settings
from regard.recipe import Recipe
from regard.show.markup import notebook_cell
from regard.show.progress import counting_bar
from regard.show.sweep_page import sweep_page
from regard.sweep.results import ranked, results
from regard.sweep.search import Search, locked, open_search
from regard.sweep.space import apart, read_space
from regard.sweep.study import Trial
from regard.sweep.workers import run_trials, threads_of_each
from regard.train.api import recipe_for


@dataclass(frozen=True)
class Sweep:
    """The result of a search: its trials, best first, and the recipe of the best one."""

    facts: Facts  # all of it, as JSON

    @property
    def summary(self) -> list[str]:
        """Which trial is the best, and which settings mattered, in sentences."""
        return [*self.facts["summary"]]

    @property
    def trials(self) -> list[Facts]:
        """The trials, best first: each with its state, value and settings."""
        return [*self.facts["trials"]]

    @property
    def best(self) -> Path:
        """The recipe of the best trial."""
        return Path(self.facts["folder"]) / "best.toml"

    def __str__(self) -> str:
        return "\n".join(self.summary)

    def _repr_html_(self) -> str:
        """Show the report in a notebook."""
        return notebook_cell(sweep_page(self.facts), self.facts["title"], HEIGHT)


def sweep(
    recipe: str | Path | Mapping[str, Any] | Recipe,
    space: Mapping[str, Any],
    out: str | Path,
    *,
    trials: int,
    seed: int | None = None,
    storage: str = "",
    jobs: int = 1,
    threads: int = 0,
    progress: bool | None = None,
    trust_code: bool = False,
) -> Sweep:
    """Train a recipe with different settings, and return the trials, best first. The same call continues a search that
    was interrupted, and takes part in one that another process runs in the same folder.

    recipe: a recipe file, a recipe as a dictionary, or a Recipe; its data is in files.
    space: settings by dotted key: a list of choices, a tuple (low, high), the same as text ("0.1,0.3", "1e-4..1e-2"),
        or one value for all trials.
    out: the folder of the search, with a run folder for each trial, best.toml and report.html.
    trials: how many trials the search has, also those of other processes.
    seed: of the sampler; by default the recipe's.
    storage: the URL of a database for the trials; by default they are in the file trials.log in the folder.
    jobs, threads: trials that train in parallel, and CPU threads of each; 0: all cores are shared between them.
    progress: show a progress bar; by default in a terminal or a notebook.
    trust_code: execute the Python files that the recipe of a run names, even if you have not trained with them.
    """
    each = threads_of_each(jobs, threads)
    fixed, searched = apart([f"{key}={_text(key, value)}" for key, value in space.items()])
    given = recipe_for(recipe, Folder(out), None, None, {}, trust_code=trust_code)
    base = with_settings(replace(given, folder=given.folder.resolve()), fixed)
    search = open_search(Path(out), base, read_space(searched, base, fixed), trials=trials, seed=seed, storage=storage)
    with counting_bar("Searching", trials, shown=progress) as show:
        ends = run_trials(
            search,
            trials=trials,
            jobs=jobs,
            threads=each,
            on_line=lambda entry, line: show(description=f"{entry.contender.name}: {line[:60]}"),
            on_event=lambda sentence: show(description=sentence[:60]),
            asked=threading.Event(),
            trust_code=trust_code,
        )
        with closing(ends):
            for _ in ends:
                show(completed=len(ended(search.trials())))
    return Sweep(written(search, command="regard.sweep(…)", jobs=jobs, threads=each))


def _text(key: str, value: Any) -> str:
    """Write a value of a space as the command line takes it."""
    if isinstance(value, str):
        return value
    if isinstance(value, tuple):
        if len(value) != 2 or not all(type(end) in (int, float) for end in value):
            raise UserError(f"{key} = {value!r} is not a range: give (low, high), or a list of choices.")
        return f"{value[0]!r}..{value[1]!r}"
    return ",".join(map(to_toml, value)) if isinstance(value, list) else to_toml(value)


def ended(trials: list[Trial]) -> list[Trial]:
    return [trial for trial in trials if trial.state != "running"]


def written(search: Search, *, command: str, jobs: int, threads: int) -> Facts:
    """Write best.toml, report.html and its data, report.json; return the data."""
    trials = search.trials()
    found = results(search, trials, command=command, setting=setting_of(jobs, threads))
    page = sweep_page(found)
    with locked(search.folder):
        if first := next((trial for trial in ranked(trials, search.recipe.metric) if trial.value is not None), None):
            best = with_settings(search.recipe, search.space.assignments(first.params))
            write_atomically(
                search.folder / "best.toml", f"# {one_line(found['summary'][0])}\n{best.to_toml(placed=True)}"
            )
        write_atomically(search.folder / "report.json", json.dumps(found, ensure_ascii=False, indent=1) + "\n")
        write_atomically(search.folder / "report.html", page)
    return found

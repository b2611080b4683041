"""Compare trained runs, from Python and from the command line, and return a Comparison."""

from __future__ import annotations

import json
import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from regard import machine
from regard.checkpoint import Folder
from regard.compare.comparison import Trained, comparison, measure_runs
from regard.compare.measure import Facts, Unseen
from regard.data.fields import MOST
from regard.data.files import read_own, write_atomically
from regard.interface import UserError
from regard.loading import load, read_recipe
from regard.recipe import Recipe
from regard.run import Run
from regard.show.markup import notebook_cell
from regard.show.progress import counting_bar
from regard.show.report_page import report_page

NOT_HERE = {"text": "as each was trained", "kind": "none", "amount": None}  # the budget of runs trained elsewhere
HEIGHT = 860  # pixels of a report in a notebook


@dataclass(frozen=True)
class Comparison:
    """The result of a comparison: what was measured, and what it means."""

    facts: Facts  # all of it, as JSON

    @property
    def summary(self) -> list[str]:
        """Which model is better, and by how much, in sentences."""
        return [*self.facts["summary"]]

    def __repr__(self) -> str:
        return f"Comparison({self.facts['title']})"

    def __str__(self) -> str:
        return "\n".join([*self.summary, *self.facts["warnings"]])

    def _repr_html_(self) -> str:
        """Show the report in a notebook."""
        return notebook_cell(report_page(self.facts), self.facts["title"], HEIGHT)

    def write(self, path: str | Path) -> None:
        """Write the report, one HTML file, with its data beside it as JSON."""
        place = report_place(path)
        page = report_page(self.facts)
        write_atomically(place.with_suffix(".json"), json.dumps(self.facts, ensure_ascii=False, indent=1) + "\n")
        write_atomically(place, page)


def compare(
    runs: str | Path | Run | Iterable[str | Path | Run],
    data: Any,
    out: str | Path | None = None,
    *,
    beam: int = 1,
    progress: bool | None = None,
    trust_code: bool = False,
) -> Comparison:
    """Compare trained runs on the same test examples.

    runs: run folders, or runs that were loaded. Runs whose recipes differ in nothing but the seed count as one model.
    data: the test examples: a list or a DataFrame, as run.score takes them, or a file like the training data.
    out: write the report here, an .html file with its data beside it as .json.
    beam: the beam size of beam search; 1 is greedy decoding.
    progress: show a progress bar; by default in a terminal or a notebook.
    trust_code: execute the Python files that the runs name, even if you have not trained with them.
    """
    if out is not None:
        report_place(out)
    several = [runs] if isinstance(runs, str | Path | Run) else list(runs)
    folders = [Path(run.name if isinstance(run, Run) else run) for run in several]
    recipe, trained = already_trained(folders, trust_code=trust_code)
    test = Unseen(tuple(whole_examples(load(trained[0].folder), data)))
    with counting_bar("Measuring", 1.0, shown=progress) as show:
        measured = measure_runs(
            trained, test, beam=beam, on_progress=lambda share, what: show(completed=share, description=what)
        )
        if failed := [run for run in measured if run.why]:
            raise UserError(f"{failed[0].folder}: {failed[0].why}")
        show(completed=1.0, description="intervals and mistakes")
        setting = setting_of(1, torch.get_num_threads())
        found = comparison(recipe, measured, test, budget=NOT_HERE, command="regard.compare(…)", setting=setting)
    made = Comparison(found)
    if out is not None:
        made.write(out)
    return made


def whole_examples(run: Run, data: Any) -> list[tuple[Any, ...]]:
    """Read raw examples and check that each has all of its sides."""
    rows = run.examples(data)
    sides = [side for side, field in run.fields.items() if field.shape is not None]
    for number, row in enumerate(rows, start=1):
        if len(row) != len(sides):
            wanted = f"{run.task.name} needs {len(sides)} ({', '.join(sides)})"
            raise UserError(f"Example {number}, {str(row)[:80]}, has {len(row)} parts, and {wanted}: correct it.")
    if not rows:
        raise UserError("The test data is empty: give at least one example.")
    return rows


def report_place(path: str | Path) -> Path:
    place = Path(path)
    if place.suffix != ".html":
        raise UserError(
            f"The report {path} must end in .html: it is one HTML page, and its data is written beside it as .json."
        )
    return place


def setting_of(jobs: int, threads: int) -> Facts:
    """Describe the machine, and how much of it each run used."""
    facts = machine.facts()
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9
    used = {"cores": os.cpu_count(), "memory_gb": memory, "threads": threads, "jobs": jobs}
    return {"processor": facts["processor"], "torch": facts["torch"], **used}


def already_trained(folders: Sequence[Path], *, trust_code: bool = False) -> tuple[Recipe, list[Trained]]:
    """Return the first run's recipe and all runs; runs whose recipes differ only in the seed count as one model."""
    if not folders:
        raise UserError("No run was given: give at least one run folder, or a run that was loaded.")
    configs = {folder: Folder(folder).must_exist().config for folder in folders}
    recipes = {folder: read_recipe(config, trust_code=trust_code)[0] for folder, config in configs.items()}
    first = recipes[folders[0]]
    if first.task.mixes and len({read_own(Folder(folder).fields, most=MOST) for folder in folders}) > 1:
        raise UserError(
            "These runs have different vocabularies, so perplexities cannot be compared: give runs that share one."
        )
    names: dict[Path, str] = {}
    for folder, recipe in recipes.items():
        if recipe.task is not first.task:
            raise UserError(
                f"{folders[0]} is for {first.task.name}, {folder} for {recipe.task.name}: give runs of one task."
            )
        alike = [other for other in names if set(recipe.differences(recipes[other])) <= {"seed"}]
        short = folder.name if [each.name for each in folders].count(folder.name) == 1 else str(folder)
        names[folder] = names[alike[0]] if alike else short
    return first, [
        Trained(name, recipe.seed, folder, f"regard train {folder}/config.toml", (f"model.name={recipe.model_name}",))
        for (folder, recipe), name in zip(recipes.items(), names.values(), strict=True)
    ]

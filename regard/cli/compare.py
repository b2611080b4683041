"""compare: measure several models on the same data, and write one report."""

from __future__ import annotations

import os
import shlex
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from signal import default_int_handler
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import OUT, Threads, TrustCode
from regard.cli.shell import command, err, out, the_task
from regard.cli.signals import INTERRUPTED, asked_first
from regard.cli.streams import go_on_unread
from regard.config import UserError
from regard.show.text import brief

if TYPE_CHECKING:
    from regard.compare.comparison import Trained
    from regard.compare.plan import Contender, Entry, Plan
    from regard.recipe import Recipe


MOST_SHOWN = 60  # characters beside a bar
PAUSE = 30.0  # seconds between two lines of progress, where there is no terminal


@command
def compare(
    what: Annotated[list[str] | None, typer.Argument(metavar="[RECIPE.toml [section.key=value …] | RUN …]")] = None,
    # a recipe, or trained runs
    demo: Annotated[str | None, typer.Option(metavar="TASK")] = None,
    # compare on the built-in corpus, without data of your own: translation, language or captioning
    models: str | None = None,  # names of models, separated by commas
    model: list[str] | None = None,  # a model with settings, as in "rnn_lm cell=tanh", or a model file of your own
    budget: str | None = None,  # training budget of each model: 10m, 2e6tok or 1e15flop; by default the recipe's
    seeds: int = 0,  # runs of each model, with a seed each; by default 3 for --demo, else 1
    test: list[Path]
    | None = None,  # the test file, in the format of the training data; if that is parallel, two files, source first
    align: Path | None = None,  # gold alignments of the test pairs, as in 0-0 1-2
    beam: int = 1,  # beam size for translation; 1: greedy decoding
    jobs: int = 0,  # models that train in parallel; by default 2 for --demo, else 1
    no_sentences: bool = False,  # leave the texts of the data out of the report
    output: Annotated[Path, OUT] = Path("report.html"),
    # the report; its data is written beside it as .json, its runs in .runs/
    threads: Threads = 0,
    trust_code: TrustCode = False,
) -> None:
    """Train models on one recipe, or take runs, and write a report.

    Every model gets the same data and the same budget. The report is one HTML page. The same command resumes a
    comparison that was interrupted.
    """
    from regard import machine
    from regard.compare.api import NOT_HERE, Comparison, already_trained, report_place, setting_of
    from regard.compare.comparison import comparison, measure_runs
    from regard.compare.measure import unseen_of
    from regard.compare.plan import JOBS, Budget, planned
    from regard.loading import read_recipe, shipped
    from regard.show.progress import counting_bar

    go_on_unread()
    given, report = what or [], now_and_then()
    if bool(demo) == bool(given):
        raise UserError("Give a recipe, or run folders, or --demo translation: one of these.")
    report_place(output)
    if jobs < 0 or seeds < 0:
        raise UserError("--jobs and --seeds must be at least 1.")
    folders = [Path(one) for one in given if Path(one).is_dir()]
    if folders and len(folders) < len(given):
        raise UserError("Give a recipe, or run folders, not both; and every folder must exist.")
    jobs = jobs or (JOBS if demo else 1)
    each = threads or max(1, (os.cpu_count() or 1) // jobs)
    allowed = NOT_HERE if folders else {**NOT_HERE, "text": "as the recipe says"}
    if folders:
        for name, value in {"models": models, "model": model, "budget": budget, "seeds": seeds}.items():
            if value:
                raise UserError(f"--{name} is for training: leave it out for runs that are trained already.")
        recipe, runs = already_trained(folders, trust_code=trust_code)
        tested = unseen_of(recipe, test or [], align)
    else:
        if demo and not the_task(demo).contest:
            raise UserError(f"There is no demo that compares models for {demo}: give a recipe.")
        path, settings = (shipped(f"compare-{demo}"), []) if demo else (Path(given[0]), given[1:])
        recipe, _ = read_recipe(path, settings, trust_code=trust_code)
        plan = planned(
            path,
            contenders_of(recipe, models, model, demo=bool(demo)),
            seeds=seeds or (3 if demo else 1),
            budget=Budget.read(budget) if budget else None,
            folder=output.with_suffix(".runs"),
            settings=settings,
            trust_code=trust_code,
        )
        tested = unseen_of(recipe, test or [], align)
        runs = train_plan(plan, jobs, each, report)
        allowed = plan.budget.facts() if plan.budget else allowed
    machine.use_threads(threads)
    with counting_bar("Measuring", 1.0, err) as show:

        def measuring(share: float, what: str) -> None:
            show(completed=share, description=f"Measuring {what}")
            report(f"Measuring {what}")

        runs = measure_runs(runs, tested, beam=beam, on_progress=measuring)
        typed = "regard " + shlex.join(sys.argv[1:])
        found = comparison(recipe, runs, tested, budget=allowed, command=typed, setting=setting_of(jobs, each))
    if no_sentences:
        found |= {"alignments": [], "mistakes": []}
        for compared in found["models"]:
            compared["samples"] = []
    Comparison(found).write(output)
    for sentence in [*found["summary"], *found["warnings"]]:
        out.print(sentence)
    out.print(f"\nThe report is {output}; its data is {output.with_suffix('.json')}.")
    if not any(run.facts for run in runs):
        raise UserError("Every model failed: see above.")


def contenders_of(recipe: Recipe, models: str | None, model: list[str] | None, *, demo: bool) -> list[Contender]:
    """Return the models that were named, or else those that the task compares."""
    from regard.compare.plan import Contender

    texts = [*(name.strip() for name in (models or "").split(",") if name.strip()), *(model or [])]
    if demo and not texts:
        return [Contender.read(text, name=name) for name, text in recipe.task.contest.items()]
    return [Contender.read(text, recipe) for text in texts or recipe.task.contenders]


def now_and_then() -> Callable[[str], None]:
    """Return a function that prints a line, unless it printed one recently or a terminal shows a bar."""
    latest = time.monotonic()

    def report(line: str) -> None:
        nonlocal latest
        if not err.is_terminal and time.monotonic() - latest >= PAUSE:
            latest = time.monotonic()
            err.print(line)

    return report


def train_plan(plan: Plan, jobs: int, threads: int, report: Callable[[str], None]) -> list[Trained]:
    """Train every run and return them in the plan's order; the bar shows the latest line of a process."""
    from regard.compare.children import command_of, train_all, was_interrupted
    from regard.compare.comparison import Trained
    from regard.show.progress import counting_bar

    why: dict[Entry, str] = {}
    with asked_first(default_int_handler, INTERRUPTED), counting_bar("Training", len(plan.entries), err) as show:

        def on_line(entry: Entry, line: str) -> None:
            words = f"{entry.title}: {line}"
            show(description=brief(words, MOST_SHOWN))
            report(words)

        with closing(train_all(plan, jobs=jobs, threads=threads, on_line=on_line)) as ended:
            for entry, problem in ended:
                why[entry] = problem
                show(advance=1)
                result = f"failed: {problem}" if problem else "trained"
                out.print(f"{entry.title}: {result} ({len(why)} of {len(plan.entries)})")
    return [
        Trained(
            entry.contender.name,
            entry.seed,
            entry.folder,
            "regard " + shlex.join(command_of(plan, entry, threads)),
            entry.contender.settings,
            why[entry],
            was_interrupted(entry.folder),
        )
        for entry in plan.entries
    ]

"""compare: several models on the same data, in one report."""

from __future__ import annotations

import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.shell import Threads, app, err, out, the_task

if TYPE_CHECKING:
    from regard.compare.comparison import Trained
    from regard.compare.measure import Unseen
    from regard.compare.plan import Entry, Plan
    from regard.recipe import Recipe


@app.command()
def compare(
    what: Annotated[
        list[str] | None,
        typer.Argument(metavar="[RECIPE.toml [section.key=value …] | RUN …]", help="A recipe, or trained runs."),
    ] = None,
    demo: Annotated[
        str | None, typer.Option(metavar="TASK", help="On the built-in corpus: translation or language, without data.")
    ] = None,
    models: Annotated[str | None, typer.Option(help="Names, with commas between them.")] = None,
    model: Annotated[
        list[str] | None, typer.Option(help='A model with settings, "rnn_lm cell=tanh", or a file of your own.')
    ] = None,
    budget: Annotated[
        str | None, typer.Option(help="For each model: 10m, 2e6tok or 1e15flop; by default what the recipe says.")
    ] = None,
    seeds: Annotated[int, typer.Option(help="Runs of each model; by default 3 for --demo, else 1.")] = 0,
    test: Annotated[
        list[Path] | None, typer.Option(help="The test file, of the data's form; of parallel files two, source first.")
    ] = None,
    align: Annotated[Path | None, typer.Option(help="Gold alignments of the test pairs, as in 0-0 1-2.")] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses kept when translating.")] = 1,
    jobs: Annotated[int, typer.Option(help="Models that train side by side; by default 2 for --demo, else 1.")] = 0,
    no_sentences: Annotated[
        bool, typer.Option("--no-sentences", help="No text of the data in the report: figures only.")
    ] = False,
    output: Annotated[
        Path, typer.Option("-o", "--out", help="The report; its data is beside it as .json, its runs in .runs/.")
    ] = Path("report.html"),
    threads: Threads = 0,
) -> None:
    """Train several models on the same data under the same budget, or take runs already trained, and write one report.

    The same command goes on where it was interrupted.
    """
    from regard import machine
    from regard.compare.comparison import comparison, measure_runs
    from regard.compare.plan import JOBS
    from regard.interface import UserError
    from regard.show.report_page import report_page

    given = what or []
    if bool(demo) == bool(given):
        raise UserError("Give a recipe, or run folders, or --demo translation; one of these.")
    if output.suffix != ".html":
        raise UserError(f"--out {output} must end in .html: its data goes beside it, as .json.")
    if jobs < 0 or seeds < 0:
        raise UserError("--jobs and --seeds must be at least 1.")
    folders = [Path(one) for one in given if Path(one).is_dir()]
    if folders and len(folders) < len(given):
        raise UserError("Give a recipe, or run folders, not both; and every folder must exist.")
    jobs = jobs or (JOBS if demo else 1)
    each = threads or max(1, (os.cpu_count() or 1) // jobs)
    if folders:
        refuse({"models": models, "model": model, "budget": budget, "seeds": seeds})
        runs, recipe = already_trained(folders), recipe_of_run(folders[0])
        told = {"text": "as each was trained", "kind": "none", "amount": None}
        tested = test_set(recipe, test, align)
    else:
        plan, recipe = planned_for(given, demo, models, model, budget, seeds or (3 if demo else 1), output)
        tested = test_set(recipe, test, align)
        runs = train_plan(plan, jobs, each)
        told = plan.budget.facts() if plan.budget else {"text": "as the recipe says", "kind": "none", "amount": None}
    machine.use_threads(threads)
    with err.status("Measuring …") as status:
        runs = measure_runs(
            runs, tested, beam=beam, tell=lambda run: status.update(f"Measuring {run.name}, {run.seed} …")
        )
        command = "regard " + shlex.join(sys.argv[1:])
        found = comparison(recipe, runs, tested, budget=told, command=command, setting=setting_of(jobs, each))
    write_report(output, found, report_page, no_sentences=no_sentences)
    for sentence in [*found["summary"], *found["warnings"]]:
        out.print(sentence, markup=False)
    out.print(f"\nThe report is {output}; its data is {output.with_suffix('.json')}.", markup=False)
    if not any(run.facts for run in runs):
        raise UserError("Every model failed: see above.")


def setting_of(jobs: int, threads: int) -> dict[str, Any]:
    """The machine, and how much of it each run had."""
    from regard import machine

    facts = machine.facts()
    return {
        "processor": facts["processor"],
        "cores": os.cpu_count(),
        "memory_gb": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") / 1e9,
        "torch": facts["torch"],
        "threads": threads,
        "jobs": jobs,
    }


def refuse(options: dict[str, object]) -> None:
    from regard.interface import UserError

    for name, value in options.items():
        if value:
            raise UserError(f"--{name} is for training: leave it out for runs that are trained already.")


def planned_for(
    given: list[str],
    demo: str | None,
    models: str | None,
    model: list[str] | None,
    budget: str | None,
    seeds: int,
    output: Path,
) -> tuple[Plan, Recipe]:
    from regard.compare.plan import Budget, Contender, planned
    from regard.interface import UserError
    from regard.loading import read_recipe, shipped

    if demo and not the_task(demo).contest:
        raise UserError(f"There is no demo that compares models for {demo}: give a recipe.")
    path, settings = (shipped(f"compare-{demo}"), []) if demo else (Path(given[0]), given[1:])
    recipe, _ = read_recipe(path, settings)
    texts = [*(name.strip() for name in (models or "").split(",") if name.strip()), *(model or [])]
    if demo and not texts:
        contenders = [Contender.read(text, name=name) for name, text in recipe.task.contest.items()]
    else:
        contenders = [Contender.read(text, recipe) for text in texts or recipe.task.contenders]
    limits = Budget.read(budget) if budget else None
    folder = output.with_suffix(".runs")
    return planned(path, contenders, seeds=seeds, budget=limits, folder=folder, settings=settings), recipe


def test_set(recipe: Recipe, files: list[Path] | None, align: Path | None) -> Unseen:
    from regard.compare.measure import unseen_of

    return unseen_of(recipe, files or [], align)


def train_plan(plan: Plan, jobs: int, threads: int) -> list[Trained]:
    """Every run, in the plan's order; what a process says last is on the screen while it works."""
    from regard.compare.children import command_of, train_all, was_interrupted
    from regard.compare.comparison import Trained

    latest: dict[str, str] = {}
    why: dict[Entry, str] = {}
    with err.status("Training …") as status:

        def tell(entry: Entry, line: str) -> None:
            latest[entry.title] = line
            status.update("\n".join(f"{title}: {said[:100]}" for title, said in latest.items()))

        for entry, problem in train_all(plan, jobs=jobs, threads=threads, tell=tell):
            latest.pop(entry.title, None)
            why[entry] = problem
            said = f"failed: {problem}" if problem else "trained"
            out.print(f"{entry.title}: {said} ({len(why)} of {len(plan.entries)})", markup=False)
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


def recipe_of_run(folder: Path) -> Recipe:
    from regard.checkpoint import Folder
    from regard.loading import read_recipe

    return read_recipe(Folder(folder).must_exist().config)[0]


def already_trained(folders: list[Path]) -> list[Trained]:
    """Runs whose recipes differ in nothing but the seed are one model's."""
    from regard.checkpoint import Folder
    from regard.compare.comparison import Trained
    from regard.data.text import content_hash
    from regard.interface import UserError

    recipes = {folder: recipe_of_run(folder) for folder in folders}
    words = {content_hash(Folder(folder).fields) for folder in folders}
    if len(words) > 1 and recipes[folders[0]].task.mixes:
        raise UserError("These runs have different vocabularies: their perplexities are of different things.")
    first = recipes[folders[0]]
    names: dict[Path, str] = {}
    for folder, recipe in recipes.items():
        if recipe.task is not first.task:
            raise UserError(
                f"{folders[0]} is for {first.task.name}, {folder} for {recipe.task.name}: compare like with like."
            )
        alike = [other for other in names if set(recipe.differences(recipes[other])) <= {"seed"}]
        short = folder.name if [each.name for each in folders].count(folder.name) == 1 else str(folder)
        names[folder] = names[alike[0]] if alike else short
    return [
        Trained(
            names[folder],
            recipe.seed,
            folder,
            f"regard train {folder}/config.toml",
            (f"model.name={recipe.model_name}",),
        )
        for folder, recipe in recipes.items()
    ]


def write_report(output: Path, found: dict[str, Any], page: Any, *, no_sentences: bool) -> None:
    import json

    from regard.checkpoint import write_atomically

    if no_sentences:
        found |= {"alignments": [], "mistakes": []}
        for model in found["models"]:
            model["samples"] = []
    written = page(found)
    write_atomically(output.with_suffix(".json"), json.dumps(found, ensure_ascii=False, indent=1) + "\n")
    write_atomically(output, written)

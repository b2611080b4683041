"""sweep: search over settings, with other processes and hosts if there are any."""

from __future__ import annotations

import shlex
import sys
import threading
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.compare import MOST_SHOWN, now_and_then
from regard.cli.options import Json, Output, RecipeFile, Threads, TrustCode
from regard.cli.shell import command, err, out, print_json, recipe_with, show_table
from regard.cli.signals import asked_first, exit_code
from regard.cli.streams import go_on_unread
from regard.config import UserError
from regard.show.text import brief, decimals, fixed

if TYPE_CHECKING:
    from regard.compare.measure import Facts
    from regard.compare.plan import Entry
    from regard.sweep.search import Search

LEFT = "Left without waiting; the same command continues from the last checkpoints."
SAVED = "Stopped; the trials that were running are saved, and the same command continues."


@command
def sweep(
    recipe: RecipeFile,
    settings: Annotated[
        list[str] | None, typer.Argument(metavar="section.key=a,b|low..high")
    ] = None,  # what is searched: lists of choices and ranges; and settings that replace the recipe's
    trials: int = 20,  # trials of the whole search, also those of other workers
    output: Output = None,  # the folder of the search; by default runs/<recipe's name>-sweep
    storage: str = "",  # URL of a database for the trials, such as sqlite:///trials.db; by default trials.log in it
    seed: int | None = None,  # seed of the sampler; by default the recipe's
    jobs: int = 1,  # trials that train in parallel in this process
    threads: Threads = 0,
    trust_code: TrustCode = False,
    as_json: Json = False,
) -> None:
    """Train a recipe with different settings, and find the best.

    The same command with the same folder, in another process or on another host, takes part in the search, and resumes
    one that was interrupted.
    """
    from regard.sweep.search import open_search
    from regard.sweep.space import apart, read_space
    from regard.sweep.workers import threads_of_each

    go_on_unread()
    each = threads_of_each(jobs, threads)
    fixed_settings, searched = apart(settings or [])
    base = recipe_with(recipe, fixed_settings, trust_code=trust_code)
    space = read_space(searched, base, fixed_settings)
    folder = output or Path("runs") / f"{recipe.stem}-sweep"
    search = open_search(folder, base, space, trials=trials, seed=seed, storage=storage)
    train_trials(search, trials, jobs, each, trust_code=trust_code, quiet=as_json)
    from regard.sweep.api import written

    found = written(search, command="regard " + shlex.join(sys.argv[1:]), jobs=jobs, threads=each)
    show_trials(found, as_json=as_json)
    if not any(trial["state"] == "finished" for trial in found["trials"]):
        raise UserError(f"All {len(found['trials'])} trials failed, the first because: {found['trials'][0]['why']}.")
    if not as_json:
        for sentence in found["summary"]:
            out.print(sentence)
        best = found["trials"][0]["folder"]
        out.print(f"\nThe best run is {best}, its recipe {folder}/best.toml; the report is {folder}/report.html.")


def train_trials(search: Search, trials: int, jobs: int, threads: int, *, trust_code: bool, quiet: bool) -> None:
    """Train until the search is complete; at the first signal, save what is running and end the process."""
    from regard.show.progress import counting_bar
    from regard.sweep.workers import run_trials

    asked, report, place = threading.Event(), now_and_then(), err if quiet else out
    with (
        asked_first(lambda *_: asked.set(), LEFT),
        counting_bar("Searching", trials, err) as show,
    ):

        def on_line(entry: Entry, line: str) -> None:
            words = f"{entry.contender.name}: {line}"
            show(description=brief(words, MOST_SHOWN))
            report(words)

        ends = run_trials(
            search,
            trials=trials,
            jobs=jobs,
            threads=threads,
            on_line=on_line,
            on_event=place.print,
            asked=asked,
            trust_code=trust_code,
        )
        metric = search.recipe.metric
        with closing(ends):
            for trial in ends:
                done = sum(one.state != "running" for one in search.trials())
                show(completed=done)
                result = f"failed: {trial.why}" if trial.value is None else f"{metric.name} {trial.value:.4g}"
                place.print(f"Trial {trial.name}: {result} ({done} of {trials})")
    if asked.is_set():
        err.print(SAVED)
        raise SystemExit(exit_code())


def show_trials(found: Facts, *, as_json: bool) -> None:
    if as_json:
        kept = ("name", "state", "value", "settings", "seconds", "step", "why", "folder")
        print_json([{key: trial[key] for key in kept} for trial in found["trials"]])
        return
    digits = decimals([trial["value"] for trial in found["trials"]])
    show_table(
        [
            {
                "trial": trial["name"],
                found["metric"]["name"]: fixed(trial["value"], digits),
                **trial["titles"],
                "minutes": fixed(None if trial["seconds"] is None else trial["seconds"] / 60, 1),
                "state": f"{trial['state']}: {trial['why']}" if trial["why"] else trial["state"],
            }
            for trial in found["trials"]
        ],
        wrapped=("state",),
        whole=True,
    )

"""Train the trials of a search, each by the command `regard train` in a process of its own, several side by side."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Generator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait

from regard.compare.children import Running, train_one
from regard.compare.plan import Contender, Entry, Plan
from regard.compare.summary import listed
from regard.interface import UserError
from regard.sweep.search import Search, Taken
from regard.sweep.study import Trial

POLL = 0.5  # seconds after which a worker looks again whether a trial became free
OnLine = Callable[[Entry, str], None]  # called with each line that a training prints
OnEvent = Callable[[str], None]  # called with a sentence about what happens beside trials that end here


def run_trials(
    search: Search,
    *,
    trials: int,
    jobs: int,
    threads: int,
    on_line: OnLine,
    on_event: OnEvent,
    asked: threading.Event,
    trust_code: bool = False,
) -> Generator[Trial, None, None]:
    """Train until all trials of the search have ended, here or elsewhere, or until this worker is asked to stop; yield
    each trial that ended here.

    While other workers train the last trials this one waits, since they may be killed. `on_line` is called from another
    thread.
    """
    plan = Plan(search.recipe_file, (), None, trust_code or bool(search.recipe.code()))
    running, busy = Running(), dict[Future[str], Taken]()
    pool = ThreadPoolExecutor(jobs)
    try:
        waiting = False
        while not asked.is_set():
            while len(busy) < jobs and (taken := search.take(trials)):
                entry = entry_of(search, taken.trial)
                if taken.resumed:
                    on_event(f"{entry.contender.name} was left unfinished and is resumed.")
                busy[pool.submit(train_one, plan, entry, threads, on_line, running)] = taken
            if not busy:
                if not (others := [each.name for each in search.trials() if each.state == "running"]):
                    return
                if not waiting:
                    on_event(f"Waiting for {listed(others)}, which other workers train.")
                waiting = True
                asked.wait(POLL)
                continue
            waiting = False
            done, _ = wait(busy, timeout=POLL, return_when=FIRST_COMPLETED)
            for each in done:
                if ended := search.record(busy.pop(each), each.result()):
                    yield ended
    finally:
        running.stop()
        pool.shutdown(cancel_futures=True)
        for taken in busy.values():
            taken.lock.close()


def threads_of_each(jobs: int, threads: int) -> int:
    """Return the CPU threads of each trial, of so many that train in parallel; 0: all cores are shared between them."""
    if jobs < 1:
        raise UserError(f"--jobs {jobs} must be at least 1.")
    return threads or max(1, (os.cpu_count() or 1) // jobs)


def entry_of(search: Search, trial: Trial) -> Entry:
    settings = search.space.assignments(trial.params)
    return Entry(Contender(f"Trial {trial.name}", settings), search.recipe.seed, search.folder / trial.name, settings)

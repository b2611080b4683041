"""Train the runs of a comparison, each by the command `regard train` in a process of its own.

A process that fails, or is killed because memory runs out, does not affect the others; one that was interrupted resumes
when the same command is run again.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path

from regard.checkpoint import Folder
from regard.compare.plan import Entry, Plan
from regard.data.files import make_folder
from regard.interface import UserError
from regard.loading import read_recipe
from regard.machine import PARENT
from regard.runs import listed, log_entries

STOPPED = "it was stopped before its budget was used"
PATIENCE = 60.0  # seconds that a process of an earlier attempt has to save and exit
OnLine = Callable[[Entry, str], None]  # called with each line that a process prints


def command_of(plan: Plan, entry: Entry, threads: int) -> list[str]:
    options = ["--trust-code"] if plan.trust_code else []
    return ["train", str(plan.recipe), *entry.settings, "-o", str(entry.folder), "--threads", str(threads), *options]


def train_all(plan: Plan, *, jobs: int, threads: int, on_line: OnLine) -> Generator[tuple[Entry, str], None, None]:
    """Train what is not trained yet, `jobs` at a time; yield each entry as it ends, and why it failed or "".

    `on_line` is called from another thread.
    """
    running = Running()
    pool = ThreadPoolExecutor(jobs)
    try:
        waiting = {pool.submit(train_one, plan, entry, threads, on_line, running): entry for entry in plan.entries}
        for done in as_completed(waiting):
            yield waiting[done], done.result()
    finally:
        pool.shutdown(wait=False, cancel_futures=True)
        running.stop()
        pool.shutdown()


class Running:
    """The processes that train; once stopped, each that is added later is stopped, too."""

    def __init__(self) -> None:
        self.processes: set[subprocess.Popen[str]] = set()
        self.stopped = threading.Event()
        self.lock = threading.Lock()  # a process gets one signal: at a second one it would not save

    def add(self, process: subprocess.Popen[str]) -> None:
        with self.lock:
            self.processes.add(process)
            if self.stopped.is_set():
                process.send_signal(signal.SIGTERM)

    def stop(self) -> None:
        with self.lock:
            self.stopped.set()
            for process in self.processes:
                process.send_signal(signal.SIGTERM)


def train_one(plan: Plan, entry: Entry, threads: int, on_line: OnLine, running: Running) -> str:
    """Train one run and return why it failed, or ""."""
    if is_trained(plan, entry):
        return ""
    make_folder(entry.folder.parent)
    await_others(entry.folder, running)
    command = [sys.executable, "-P", "-m", "regard", *command_of(plan, entry, threads)]
    environment = {**os.environ, PARENT: str(os.getpid())}
    with subprocess.Popen(  # in a process group of its own: Ctrl-C reaches it once, from here, and so it saves
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env=environment,
        process_group=0,
    ) as process:
        running.add(process)
        last = ""
        assert process.stdout is not None
        for line in process.stdout:
            if line.strip():
                last = line.strip()
                on_line(entry, last)
        process.wait()
        with running.lock:
            running.processes.discard(process)
    if process.returncode < 0:
        return f"it was ended by {signal.Signals(-process.returncode).name}"
    if process.returncode:
        return last.removeprefix("regard: ")
    return "" if is_trained(plan, entry) else STOPPED


def is_trained(plan: Plan, entry: Entry) -> bool:
    """Return whether the folder holds a finished run of the same recipe."""
    folder = Folder(entry.folder)
    if not folder.config.exists() or listed(folder).state != "finished":
        return False
    wanted, _ = read_recipe(plan.recipe, entry.settings)
    try:
        return not wanted.differences(read_recipe(folder.config)[0])
    except UserError:
        return False


def await_others(folder: Path, running: Running) -> None:
    """Wait until no process of an earlier attempt trains there: it may be about to stop."""
    until = time.monotonic() + PATIENCE
    while Folder(folder).in_use() and time.monotonic() < until and not running.stopped.wait(0.1):
        pass


def was_interrupted(folder: Path) -> bool:
    """Return whether more than one attempt has written to the log."""
    return len({entry.get("attempt") for entry in log_entries(Folder(folder))}) > 1

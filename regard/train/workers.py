"""Encode in several processes: each is `regard encode --worker`, which is given the numbers of shards, one after the
other, on its standard input, and answers with lines of JSON.

A shard is written whole or not at all, so a process may be killed at any moment: the same command then writes the
shards that are missing.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from queue import SimpleQueue
from typing import NamedTuple

from regard.checkpoint import Folder
from regard.data.fields import Fields
from regard.interface import UserError
from regard.machine import PARENT
from regard.recipe import Recipe
from regard.train.corpus import OnRead
from regard.train.encoding import Encoding, OnExamples, Shard
from regard.train.session import refuse_changes
from regard.train.stamps import fingerprint, refuse_changed_data
from regard.train.transfer import find_run

AGAIN = "run the same command again, which writes the shards that are missing"


class Report(NamedTuple):
    """What a process reports: so many more examples, a shard that is complete, or why it failed."""

    examples: int = 0
    done: Shard | None = None
    failed: str = ""


Reports = SimpleQueue[Report]


def opened(recipe: Recipe, out: Path, on_read: OnRead = lambda read, every: None) -> tuple[Encoding, Fields]:
    """What is encoded in a run folder, which may be that of a run that was started; and its fields, which are learnt
    where there are none. The caller has locked the folder."""
    folder = Folder(out)
    folder.sweep()
    corpus = recipe.task.corpus(recipe)
    corpus.keep_in(folder.data, on_read)
    encoding = Encoding(folder, corpus)
    if folder.config.exists():
        refuse_changes(recipe, folder)
        refuse_changed_data(recipe, folder, folder.facts()["data"], fingerprint(recipe, folder.data))
        return encoding, Fields.read(folder.fields, recipe.task.fields)
    base = recipe.train.from_
    return encoding, encoding.made_fields(find_run(base, recipe.folder) if base else None)


def encode_here(
    encoding: Encoding, shards: Sequence[Shard], fields: Fields, on_examples: OnExamples
) -> Iterator[Shard]:
    """Write these shards in this process; yield each that is complete."""
    for shard in shards:
        encoding.write(shard, fields, on_examples)
        yield shard


def encode_apart(
    shards: Sequence[Shard], command: Sequence[str], processes: int, on_examples: OnExamples
) -> Iterator[Shard]:
    """Write these shards in so many processes of this command, the largest first; yield each that is complete."""
    waiting = deque(sorted(shards, key=lambda shard: -shard.size))
    reports: Reports = SimpleQueue()
    children = [start(command) for _ in range(min(processes, len(shards)))]
    with ThreadPoolExecutor(max(1, len(children))) as pool:
        try:
            for child in children:
                pool.submit(employ, child, waiting, reports)
            left = len(shards)
            while left:
                report = reports.get()
                if report.failed:
                    raise UserError(report.failed)
                if report.done is None:
                    on_examples(report.examples)
                else:
                    left -= 1
                    yield report.done
        finally:
            waiting.clear()
            for child in children:
                child.terminate()


def start(command: Sequence[str]) -> subprocess.Popen[str]:
    """Start a process on one core, in a process group of its own; it ends when this one does."""
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "regard", *command],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        env={**os.environ, **threads(1), PARENT: str(os.getpid())},
        process_group=0,
    )


def threads(count: int) -> dict[str, str]:
    """The environment of a process that tokenizes on so many cores."""
    return {"RAYON_NUM_THREADS": str(count), "TOKENIZERS_PARALLELISM": "true" if count > 1 else "false"}


def employ(child: subprocess.Popen[str], waiting: deque[Shard], reports: Reports) -> None:
    """Give a process one shard after the other while there are any, and pass on what it reports."""
    assert child.stdin is not None and child.stdout is not None
    with child, suppress(IndexError):  # there are no more
        while True:
            shard = waiting.popleft()
            with suppress(BrokenPipeError):  # it has ended: what it wrote last says why
                child.stdin.write(f"{shard.number}\n")
                child.stdin.flush()
            last = ""
            for line in child.stdout:
                done, examples = answer_in(line)
                if done:
                    reports.put(Report(done=shard))
                    break
                if examples is None:
                    last = line.strip() or last
                else:
                    reports.put(Report(examples))
            else:
                code = child.wait()
                says = f"it was ended by {signal.Signals(-code).name}" if code < 0 else last.removeprefix("regard: ")
                which = ", ".join(Path(file).name for file in shard.sources)
                reports.put(Report(failed=f"A process that encoded {which} failed ({says.rstrip('.')}): {AGAIN}."))
                return


def answer_in(line: str) -> tuple[bool, int | None]:
    """Whether a line says that a shard is complete, and how many more examples are encoded; None where it is no
    answer."""
    try:
        answer = json.loads(line)
        return bool(answer.get("done")), int(answer.get("examples", 0))
    except (ValueError, TypeError, AttributeError):
        return False, None


def work(encoding: Encoding, fields: Fields, numbers: Iterable[str], answer: Callable[[str], None]) -> None:
    """Write the shards of these numbers, and answer with lines of JSON; the other side of `employ`."""
    shards = encoding.shards(fields)
    for number in numbers:
        encoding.write(shards[int(number)], fields, lambda count: answer(json.dumps({"examples": count})))
        answer(json.dumps({"done": True}))

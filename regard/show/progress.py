"""Progress bars in a terminal or a notebook; output to a file has none."""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from regard.interface import Progress as Trained

LINE, SAMPLE = 5.0, 10.0  # seconds of training between two validations, and two sample outputs, that are shown
PACE = 3600.0  # seconds of work that predict how long the rest takes


def watched(shown: bool | None, console: Console) -> bool:
    """Whether somebody watches, unless the caller has decided."""
    return console.is_terminal or console.is_jupyter if shown is None else shown


def on_stderr() -> Console:
    return Console(stderr=True, highlight=False, soft_wrap=True, markup=False, emoji=False)


@contextmanager
def counting_bar(
    words: str, total: float | None, console: Console | None = None, *, shown: bool | None = None
) -> Iterator[Callable[..., None]]:
    """A bar with the time left, and a function that takes what has changed: `advance=1`, `completed=…`,
    `description="…"`. What `console` prints meanwhile appears above the bar."""
    console = console or on_stderr()
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(
        *columns,
        console=console,
        disable=not watched(shown, console),
        transient=console.is_terminal,
        refresh_per_second=4,
        speed_estimate_period=PACE,
        redirect_stdout=sys.stdout.isatty(),  # what is piped goes to the pipe
    ) as bar:
        yield partial(bar.update, bar.add_task(words, total=total))


@contextmanager
def training_bar(
    shown: bool | None = None, on_line: Callable[[Trained], None] | None = None, console: Console | None = None
) -> Iterator[Callable[[Trained], None]]:
    """A function that shows a training's progress. `on_line` is called with the validations that are worth a line; by
    default they are printed above the bar."""
    place, worth_a_line = console or on_stderr(), Seldom()

    def line(progress: Trained) -> None:
        if watched(shown, place):
            found = (f"{name} {value:.4g}" for name, value in (progress.valid or {}).items() if name != "tokens")
            best = "   best so far" if progress.improved else ""
            place.print(f"{words(progress)}   validation: {'   '.join(found)}{best}")

    with counting_bar("preparing", 1.0, place, shown=shown) as move:

        def show(progress: Trained) -> None:
            for each in worth_a_line(progress):
                (on_line or line)(each)
            speed = f"{progress.tokens_per_second:,.0f} tokens/s"
            move(completed=progress.done, description=f"{words(progress)}   {speed}")

        yield show


def words(progress: Trained) -> str:
    return f"step {progress.step:,}   loss {progress.loss:.3f}"


class Seldom:
    """Choose the validations that are shown: the first, the last and the best; and between them one every LINE seconds,
    the best since the one before, or else the latest. A sample output is shown every SAMPLE seconds."""

    def __init__(self) -> None:
        self.line, self.sample = -math.inf, -math.inf  # when there was one last, in seconds of training
        self.best: Trained | None = None  # not shown yet

    def __call__(self, progress: Trained) -> Iterator[Trained]:
        if progress.valid is None:
            return
        if progress.improved:
            self.best = progress
        if progress.seconds - self.line < LINE and not progress.finished:
            return
        chosen = [self.best or progress]
        if progress.finished and chosen[0] is not progress:
            chosen.append(progress)
        self.line, self.best = progress.seconds, None
        for each in chosen:
            soon = each.seconds - self.sample < SAMPLE
            self.sample = self.sample if soon else each.seconds
            yield replace(each, samples=()) if soon else each

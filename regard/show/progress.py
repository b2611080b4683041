"""Progress bars in a terminal or a notebook; output to a file has none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from regard.show.terminal import Terminal

PACE = 3600.0  # seconds of work that predict how long the rest takes


def watched(shown: bool | None, console: Console) -> bool:
    """Whether somebody watches, unless the caller has decided."""
    return console.is_terminal or console.is_jupyter if shown is None else shown


@contextmanager
def counting_bar(
    words: str, total: float | None, console: Console | None = None, *, shown: bool | None = None
) -> Iterator[Callable[..., None]]:
    """A bar with the time left, and a function that takes what has changed: `advance=1`, `completed=…`,
    `description="…"`. What `console` prints meanwhile appears above the bar."""
    console = console or Terminal(stderr=True)
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
        task = bar.add_task(words, total=total)
        bar.update(task, advance=1e-9)  # the pace is measured from the first advance on
        yield partial(bar.update, task)

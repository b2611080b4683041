"""Progress bars: in a terminal or a notebook; where output goes to a file there are none."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from regard.interface import Progress as Trained


def bar_on(console: Console, *, shown: bool | None, transient: bool = False) -> Progress:
    """A bar with the time left; `shown` None: where somebody watches."""
    watched = console.is_terminal or console.is_jupyter if shown is None else shown
    columns = (
        TextColumn("{task.description}", markup=False),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    # what is printed meanwhile goes above the bar, unless it goes to a file
    redirected = sys.stdout.isatty()
    return Progress(*columns, console=console, disable=not watched, transient=transient, redirect_stdout=redirected)


@contextmanager
def counting_bar(
    words: str, total: int | None, console: Console, *, shown: bool | None = None
) -> Iterator[Callable[..., None]]:
    """A function that takes what has changed: `advance=1`, `description="…"`. The bar is gone when the work is done."""
    with bar_on(console, shown=shown, transient=True) as bar:
        yield partial(bar.update, bar.add_task(words, total=total))


@contextmanager
def training_bar(shown: bool | None = None) -> Iterator[Callable[[Trained], None]]:
    """A function that shows where training stands; `shown` None: where somebody watches."""
    with bar_on(Console(stderr=True), shown=shown) as bar:
        task = bar.add_task("preparing", total=1.0)

        def show(progress: Trained) -> None:
            words = f"step {progress.step:,}   loss {progress.loss:.3f}"
            if progress.valid is not None:
                metrics = "   ".join(
                    f"{name} {value:.4g}" for name, value in progress.valid.items() if name != "tokens"
                )
                bar.console.print(f"{words}   validation: {metrics}{'   best so far' if progress.improved else ''}")
            bar.update(task, completed=progress.done, description=words)

        yield show

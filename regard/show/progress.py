"""Progress bars: in a terminal or a notebook; where output goes to a file there are none."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from regard.interface import Progress as Trained


@contextmanager
def training_bar(shown: bool | None = None) -> Iterator[Callable[[Trained], None]]:
    """A function that shows where training stands; `shown` None: where somebody watches."""
    console = Console(stderr=True)
    watched = console.is_terminal or console.is_jupyter if shown is None else shown
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, disable=not watched) as bar:
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

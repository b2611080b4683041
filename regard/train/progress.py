"""The progress of a training: a bar, and the validations that are worth a line."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

from rich.console import Console

from regard.interface import Progress
from regard.show.progress import counting_bar, watched
from regard.show.terminal import Terminal

LINE, SAMPLE = 5.0, 10.0  # seconds of training between two validations, and two sample outputs, that are shown


@contextmanager
def training_bar(
    shown: bool | None = None,
    on_line: Callable[[Progress], None] | None = None,
    console: Console | None = None,
    counts: str = "tokens",
) -> Iterator[Callable[[Progress], None]]:
    """A function that shows a training's progress. `on_line` is called with the validations that are worth a line; by
    default they are printed above the bar. `counts`: what the training budget of the task counts."""
    place, worth_a_line = console or Terminal(stderr=True), Throttle()

    def line(progress: Progress) -> None:
        if watched(shown, place):
            found = (f"{name} {value:.4g}" for name, value in (progress.valid or {}).items() if name != "tokens")
            best = "   best so far" if progress.improved else ""
            place.print(f"{words(progress)}   validation: {'   '.join(found)}{best}")

    with counting_bar("preparing", 1.0, place, shown=shown) as move:

        def show(progress: Progress) -> None:
            for each in worth_a_line(progress):
                (on_line or line)(each)
            speed = f"{progress.tokens_per_second:,.0f} {counts}/s"
            move(completed=progress.done, description=f"{words(progress)}   {speed}")

        yield show


def words(progress: Progress) -> str:
    return f"step {progress.step:,}   loss {progress.loss:.3f}"


class Throttle:
    """Choose the validations that are shown: the first, the last and the best; and between them one every LINE seconds,
    the best since the one before, or else the latest. A sample output is shown every SAMPLE seconds."""

    def __init__(self) -> None:
        self.line, self.sample = -math.inf, -math.inf  # when there was one last, in seconds of training
        self.best: Progress | None = None  # not shown yet

    def __call__(self, progress: Progress) -> Iterator[Progress]:
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

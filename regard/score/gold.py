"""What attention should look at, where that is known of every test example: gold alignments, regions of words."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from regard.run import Run
from regard.score.metrics import Floats, Metric


@dataclass(frozen=True)
class Gold:
    metric: Metric  # how far a run's attention agrees with it
    each: tuple[Any, ...]  # what is known of each example
    looked: Callable[[Run, Sequence[Any]], Sequence[Any]]  # (run, examples) -> what its attention says of each
    baseline: float  # the metric's value without a model
    baseline_name: str

    def statistics(self, run: Run, examples: Sequence[Any]) -> Floats:
        return self.metric.statistics(self.looked(run, examples), self.each)

"""Learning-rate schedules: the share of the full learning rate that a step gets, after a linear warm-up.

inverse-sqrt  √(warm-up / step) (Vaswani 2017, 5.3);  linear  1 − done;  cosine  ½(1 + cos π·done);  constant  1
`done` is the share of the run's budget that is used, in [0, 1].
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Literal

ScheduleName = Literal["constant", "inverse-sqrt", "linear", "cosine"]

SCHEDULES: dict[ScheduleName, Callable[[int, int, float], float]] = {
    "constant": lambda step, warmup, done: 1.0,
    "inverse-sqrt": lambda step, warmup, done: math.sqrt(max(1, warmup) / max(1, warmup, step)),
    "linear": lambda step, warmup, done: 1.0 - done,
    "cosine": lambda step, warmup, done: 0.5 * (1 + math.cos(math.pi * done)),
}


def rate(name: ScheduleName, *, step: int, warmup: int, done: float) -> float:
    """Return the share of the full learning rate at this step (the first is 1)."""
    return min(1.0, step / max(1, warmup)) * SCHEDULES[name](step, warmup, min(1.0, done))

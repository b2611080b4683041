"""roberta: BERT trained for longer, with other words hidden in every epoch and without pairs of sentences.

The network is bert's without segments; what its paper added is in the training data.                     Liu 2019
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.config import Count
from regard.models import bert
from regard.models.bert import BASE, LARGE, SIZES, TASKS
from regard.models.design import Design
from regard.models.parts import Epsilon


@dataclass(frozen=True)
class Config(bert.Config):
    segments: Count = 0  # kinds of sentences in a pair, each with its own vector; 0: none
    epsilon: Epsilon = 1e-5  # added to the variance in layer normalisation


DESIGN = Design(
    name="roberta",
    paper="Liu et al.: RoBERTa: A robustly optimized BERT pretraining approach",
    year=2019,
    tasks=TASKS,
    config=Config,
    build=bert.build,
    path="1",
    sizes=tuple(Config(**size) for size in SIZES),
    presets={"base": Config(**BASE), "large": Config(**LARGE)},
)

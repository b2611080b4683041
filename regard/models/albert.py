"""albert: BERT whose layers share their weights, with embeddings narrower than its states.

h = f(f(… f(x W_e))), one block f for all layers; E has `embedding` columns.                              Lan 2020
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.config import Count
from regard.layers.transformer import ActivationName
from regard.models import bert
from regard.models.bert import BASE, LARGE, SIZES, TASKS
from regard.models.design import Design


@dataclass(frozen=True)
class Config(bert.Config):
    shared = True  # not a setting
    embedding: Count = 128  # width of the embeddings, before they are widened to dim; 0: they are as wide as dim
    activation: ActivationName = "gelu-tanh"  # inside the feed-forward layers and the head


DESIGN = Design(
    name="albert",
    paper="Lan et al.: ALBERT: A lite BERT for self-supervised learning of language representations",
    year=2020,
    tasks=TASKS,
    config=Config,
    build=bert.build,
    path="1",
    sizes=tuple(Config(**size, embedding=size["dim"] // 2) for size in SIZES),
    presets={"base": Config(**BASE), "large": Config(**LARGE)},
)

"""electra: BERT's encoder, trained to find the words that a small generator has put in the place of others.

P(wᵢ was replaced) = σ(w · gelu(W hᵢ + b) + c)                                                          Clark 2020
The generator is a small masked language model: its head predicts words, as bert's does.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch.nn.functional as F
from torch import Tensor, nn

from regard.config import Count
from regard.interface import Ids, Shapes
from regard.models import bert
from regard.models.bert import BASE, LARGE, SIZES, TASKS
from regard.models.design import Design
from regard.models.encoder_head import Classifier, Tagger
from regard.models.masked_model import MaskedModel


@dataclass(frozen=True)
class Config(bert.BodySettings):
    embedding: Count = 128  # width of the embeddings, before they are widened to dim; 0: they are as wide as dim
    head: Literal["words", "replaced", "none"] = "words"  # predicts hidden words, or which were replaced, or nothing
    pooler: Literal["tanh", "gelu", "relu"] = "gelu"  # for classification: activation of the layer above <cls>


class ReplacedHead(nn.Module):
    """The discriminator: ln P(replaced) − ln P(original) of each token."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.linear = nn.Linear(dim, dim)
        self.out = nn.Linear(dim, 1)

    def logits(self, states: Tensor) -> Tensor:
        logits: Tensor = self.out(F.gelu(self.linear(states)))
        return logits[..., 0]  # (…, dim) -> (…)


def build(config: Config, shapes: Shapes) -> MaskedModel | Classifier | Tagger:
    model = bert.build(config, shapes)
    if isinstance(shapes.target, Ids) and config.head == "replaced":
        assert isinstance(model, MaskedModel)
        model.head = ReplacedHead(config.dim)
    return model


DESIGN = Design(
    name="electra",
    paper="Clark et al.: ELECTRA: Pre-training text encoders as discriminators rather than generators",
    year=2020,
    tasks=TASKS,
    config=Config,
    build=build,
    path="1",
    sizes=tuple(Config(**size, embedding=size["dim"] // 2) for size in SIZES),
    presets={
        "small": Config(dim=256, heads=4, feed_forward=1024, layers=12),
        "base": Config(**BASE, embedding=0),
        "large": Config(**LARGE, embedding=0),
    },
)

"""neural_lm: the first neural language model, a feed-forward network over a window of words.

y = b + W x + U tanh(d + H x);   x = the vectors of the last n − 1 tokens, one after the other   (Bengio 2003, part 2)
W x are the direct connections. Similar words have similar vectors, so one sentence teaches about many.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

import torch
from torch import Tensor, nn

from regard.config import Settings, Share, Width, between
from regard.interface import Shapes
from regard.layers.dropout import Dropout
from regard.layers.encoders import Embedding
from regard.layers.heads import HeadName, head
from regard.models.design import Design, size_of
from regard.models.language_model import CarryingModel


@dataclass(frozen=True)
class Config(Settings):
    order: Annotated[int, between(2, 100)] = 5  # n of the n-grams: each token is predicted from the n − 1 before it
    embedding: Width = 100  # width of a token's vector
    hidden: Width = 300  # width of the hidden layer
    direct: bool = True  # also connect the vectors to the output directly
    head: HeadName = "softmax"  # output layer: softmax, or adaptive (adaptive softmax: cheaper for rare words)
    dropout: Share = 0.2  # on embeddings and before the output


class Window(nn.Module):
    """[tanh(d + H x); x], or its first half alone; x the latest vectors, zeros where there is none yet."""

    place: Tensor  # empty; it has the model's device and dtype

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.register_buffer("place", torch.empty(0), persistent=False)
        self.dim, self.reach, self.direct = config.embedding, config.order - 1, config.direct
        self.widen = nn.Linear(self.reach * self.dim, config.hidden)
        self.dropout = Dropout(config.dropout)
        self.output_dim = config.hidden + (self.reach * self.dim if self.direct else 0)

    def start(self, rows: int) -> Tensor:
        return self.place.new_zeros(rows, self.reach - 1, self.dim)

    def forward(self, x: Tensor, real: Tensor | None = None, state: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """x (batch, time, dim), real (batch, time) padded at the end -> (batch, time, output_dim), the last vectors."""
        rows, time, _ = x.shape
        joined = torch.cat([self.start(rows) if state is None else state, x], 1)
        windows = joined.unfold(1, self.reach, 1).transpose(2, 3).flatten(2)  # (batch, time, reach · dim)
        hidden = self.dropout(self.widen(windows).tanh())
        read = torch.full((rows, 1), time, device=x.device) if real is None else real.sum(1, keepdim=True)
        ends = read + torch.arange(self.reach - 1, device=x.device)
        after = joined.gather(1, ends[..., None].expand(-1, -1, self.dim))
        return torch.cat([hidden, windows], -1) if self.direct else hidden, after


def build(config: Config, shapes: Shapes) -> CarryingModel:
    vocab, body = size_of(shapes.target), Window(config)
    return CarryingModel(
        embed=Embedding(vocab=vocab, dim=config.embedding, dropout=config.dropout),
        body=body,
        head=head(config.head, dim=body.output_dim, vocab=vocab),
    )


DESIGN = Design(
    name="neural_lm",
    paper="Bengio et al.: A neural probabilistic language model",
    year=2003,
    tasks=("language",),
    config=Config,
    build=build,
    path="none beyond its order",
    sizes=(
        Config(embedding=60, hidden=100),
        Config(embedding=100, hidden=300),
        Config(embedding=150, hidden=500),
        Config(embedding=200, hidden=800),
    ),
)

"""rnn_lm: a recurrent language model, whose hidden state predicts the next token.

hₜ = f(xₜ, hₜ₋₁);   P(xₜ₊₁ | x₁ … xₜ) = softmax(W hₜ + b)
Any cell, any depth. Gradients are cut between windows (truncated backpropagation); the hidden state is carried over.
With head = "features", hashed n-gram features are added to the logits: + Σₖ table[hash(xₜ₋ₖ₊₁ … xₜ)]   (Mikolov 2011).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from regard.config import Share, Width, between
from regard.interface import Shapes
from regard.layers.encoders import Embedding
from regard.layers.heads import FeatureHead, Head, head
from regard.models.design import Design, size_of
from regard.models.language_model import CarryingModel
from regard.models.parts import RecurrentSettings, recurrent_of, refuse_tied


@dataclass(frozen=True)
class Config(RecurrentSettings):
    tie: bool = True  # weight tying: the output matrix is the embedding; needs embedding = hidden
    head: Literal["softmax", "adaptive", "features"] = "softmax"  # output layer; features: hashed n-grams
    reach: Annotated[int, between(1, 10)] = 2  # length of the longest hashed n-grams
    rows: Width = 1000  # rows of the table of hashed n-grams, for each length
    dropout: Share = 0.2  # on embeddings, between layers and before the output

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_tied(self.head, self.tie)
        if self.tie and self.embedding != self.hidden:
            raise ValueError(
                f"tie needs embedding = {self.embedding} and hidden = {self.hidden} to be equal: "
                "make them so, or set tie = false."
            )


def build(config: Config, shapes: Shapes) -> CarryingModel:
    vocab = size_of(shapes.target)
    embed = Embedding(vocab=vocab, dim=config.embedding, dropout=config.dropout)
    tied = embed.weight if config.tie else None
    predicts: Head
    if config.head == "features":
        predicts = FeatureHead(dim=config.hidden, vocab=vocab, reach=config.reach, rows=config.rows, tied=tied)
    else:
        predicts = head(config.head, dim=config.hidden, vocab=vocab, tied=tied)
    body = recurrent_of(config, config.embedding)
    return CarryingModel(embed=embed, body=body, head=predicts, dropout=config.dropout)


DESIGN = Design(
    name="rnn_lm",
    paper="Mikolov et al.: Recurrent neural network based language model",
    year=2010,
    tasks=("language",),
    config=Config,
    build=build,
    path="n",
    sizes=tuple(Config(embedding=width, hidden=width) for width in (128, 256, 512, 768)),
    presets={
        "mikolov": Config(embedding=200, hidden=200, cell="sigmoid", tie=False, dropout=0.0),
        "maxent": Config(embedding=200, hidden=200, cell="sigmoid", tie=False, dropout=0.0, head="features"),
    },
)

"""attentive_birnn: a bidirectional RNN with attention pooling; one learned query attends to all words.

αᵢ = softmax(score(q, hᵢ)), hᵢ = [→hᵢ ; ←hᵢ], q learned;  P(label) = softmax(W Σᵢ αᵢ hᵢ + b)      Yang 2016, section 2.2
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from regard.config import Share, Width
from regard.interface import Label, Shapes, Span, TagIds
from regard.layers.attention import ScoreName
from regard.layers.encoders import RecurrentEncoder
from regard.layers.pooling import Attentive
from regard.models.design import Design, size_of
from regard.models.encoder_head import EncoderWithHead, headed, reader
from regard.models.parts import RecurrentSettings, recurrent_of


@dataclass(frozen=True)
class Config(RecurrentSettings):
    embedding: Width = 128  # width of a word's vector
    hidden: Width = 128  # width of the recurrent state, in each direction
    score: ScoreName = "additive"  # attention score between the learned query and a word's state
    word_dropout: Share = 0.0  # word dropout: share of the words that are hidden in training
    dropout: Share = 0.3  # on embeddings, states and before the output


def build(config: Config, shapes: Shapes) -> EncoderWithHead:
    if isinstance(shapes.target, TagIds | Span):
        size_of(shapes.target, Label)  # there is nothing to pool
    read = reader(shapes, dim=config.embedding, dropout=config.dropout, word_dropout=config.word_dropout)
    recurrent = recurrent_of(config, config.embedding, bidirectional=True)
    encoder = RecurrentEncoder(embed=read, recurrent=recurrent, dropout=config.dropout)
    pool = partial(Attentive, name=config.score)
    return headed(encoder, shapes, dim=recurrent.output_dim, pool=pool, dropout=config.dropout)


DESIGN = Design(
    name="attentive_birnn",
    paper="Yang et al.: Hierarchical attention networks for document classification",
    year=2016,
    tasks=("classification", "regression", "multiple-choice", "sounds"),
    config=Config,
    build=build,
    path="n; 1 to the label",
    sizes=tuple(Config(embedding=width, hidden=width) for width in (64, 128, 256, 384)),
)

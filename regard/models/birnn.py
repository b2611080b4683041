"""birnn: a bidirectional RNN for classification and tagging.

→hₜ = f(xₜ, →hₜ₋₁);   ←hₜ = f(xₜ, ←hₜ₊₁);   P(label) = softmax(W pool([→h ; ←h]) + b)
"terribly exciting" needs both directions: at "terribly" only the next word decides between praise and blame. Tagging
uses [→hₜ ; ←hₜ] for word t; with head = "crf" neighbouring tags influence each other.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import Share, Width
from regard.interface import Shapes
from regard.layers.encoders import RecurrentEncoder
from regard.models.design import READING, Design
from regard.models.encoder_head import EncoderWithHead
from regard.models.parts import NamingSettings, RecurrentSettings, headed_of, reader_of, recurrent_of


@dataclass(frozen=True)
class Config(NamingSettings, RecurrentSettings):
    embedding: Width = 128  # width of a word's vector
    hidden: Width = 128  # width of the recurrent state, in each direction
    bidirectional: bool = True  # read in both directions; false: left to right only
    pool: Literal["last", "mean", "max"] = "max"  # for classification: pooling of the states
    dropout: Share = 0.3  # on embeddings, states and before the output


def build(config: Config, shapes: Shapes) -> EncoderWithHead:
    read = reader_of(config, shapes, dim=config.embedding, dropout=config.dropout)
    recurrent = recurrent_of(config, read.output_dim, bidirectional=config.bidirectional)
    encoder = RecurrentEncoder(embed=read, recurrent=recurrent, dropout=config.dropout)
    return headed_of(config, encoder, read, shapes, dim=recurrent.output_dim)


DESIGN = Design(
    name="birnn",
    paper="Schuster, Paliwal: Bidirectional recurrent neural networks",
    year=1997,
    tasks=(*READING, "sounds"),
    config=Config,
    build=build,
    path="n",
    sizes=tuple(Config(embedding=width, hidden=width) for width in (64, 128, 256, 384)),
)

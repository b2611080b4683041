"""birnn: a sentence read forwards and backwards, and then named.

→hₜ = f(xₜ, →hₜ₋₁);   ←hₜ = f(xₜ, ←hₜ₊₁);   P(label) = softmax(W pool([→h ; ←h]) + b)
"terribly exciting" needs both sides: at "terribly" only what comes later tells praise from blame. Tagging takes
[→hₜ ; ←hₜ] for word t; with head = "crf" neighbouring tags have a say in one another.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import DEPTH, NOT_NEGATIVE, SHARE, WIDTH, keep_within
from regard.layers.cells import CellName, cell_named
from regard.layers.encoders import RecurrentEncoder
from regard.layers.pooling import POOLS
from regard.layers.recurrent import Recurrent, Skip
from regard.models.design import Design, Vocabulary
from regard.models.encoder_head import Classifier, Tagger, headed, reader


@dataclass(frozen=True)
class Config:
    embedding: int = 128  # width of a word's vector
    hidden: int = 128  # width of the recurrent state, in each direction
    layers: int = 1  # recurrent layers
    cell: CellName | str = "lstm"  # the recurrent cell, or one of your own: my_cells.py:Name
    skip: Skip = "none"  # what a layer's input does beside it: none, residual (added), highway (through a gate)
    bidirectional: bool = True  # false: forwards only
    pool: Literal["last", "mean", "max"] = "max"  # of labels: how a sentence's states become one vector
    head: Literal["softmax", "crf"] = "crf"  # of tags: each word by itself, or the best chain
    letters: int = 0  # of tags: width of what a word's letters make beside its vector; 0: they are not read
    word_dropout: float = 0.0  # share of the words that are hidden in training
    dropout: float = 0.3  # on embeddings, states and before the output

    def __post_init__(self) -> None:
        keep_within(self, WIDTH, "embedding", "hidden")
        keep_within(self, DEPTH, "layers")
        keep_within(self, NOT_NEGATIVE, "letters")
        keep_within(self, SHARE, "word_dropout", "dropout")


def build(config: Config, vocabulary: Vocabulary) -> Classifier | Tagger:
    read = reader(
        vocabulary,
        dim=config.embedding,
        letters=config.letters,
        dropout=config.dropout,
        word_dropout=config.word_dropout,
    )
    recurrent = Recurrent(
        cell=cell_named(config.cell),
        input_dim=read.output_dim,
        hidden=config.hidden,
        layers=config.layers,
        bidirectional=config.bidirectional,
        dropout=config.dropout,
        skip=config.skip,
    )
    return headed(
        RecurrentEncoder(embed=read, recurrent=recurrent, dropout=config.dropout),
        vocabulary,
        dim=recurrent.output_dim,
        pool=POOLS[config.pool],
        chain=config.head == "crf",
        dropout=config.dropout,
    )


DESIGN = Design(
    name="birnn",
    paper="Schuster, Paliwal: Bidirectional recurrent neural networks",
    year=1997,
    tasks=("classification", "tagging"),
    config=Config,
    build=build,
    path="n",
    sizes=tuple(Config(embedding=width, hidden=width) for width in (64, 128, 256, 384)),
)

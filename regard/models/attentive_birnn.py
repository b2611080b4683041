"""attentive_birnn: which words decide? One learnt question looks at all of them.

αᵢ = softmax(score(q, hᵢ)), hᵢ = [→hᵢ ; ←hᵢ], q learnt;   P(label) = softmax(W Σᵢ αᵢ hᵢ + b)      Yang 2016, section 2.2
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.config import DEPTH, SHARE, WIDTH, keep_within
from regard.layers.attention import ScoreName
from regard.layers.cells import CellName, cell_named
from regard.layers.encoders import RecurrentEncoder
from regard.layers.pooling import Attentive
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
    score: ScoreName = "additive"  # how well the question and a word's state match
    word_dropout: float = 0.0  # share of the words that are hidden in training
    dropout: float = 0.3  # on embeddings, states and before the output

    def __post_init__(self) -> None:
        keep_within(self, WIDTH, "embedding", "hidden")
        keep_within(self, DEPTH, "layers")
        keep_within(self, SHARE, "word_dropout", "dropout")


def build(config: Config, vocabulary: Vocabulary) -> Classifier | Tagger:
    read = reader(vocabulary, dim=config.embedding, dropout=config.dropout, word_dropout=config.word_dropout)
    recurrent = Recurrent(
        cell=cell_named(config.cell),
        input_dim=config.embedding,
        hidden=config.hidden,
        layers=config.layers,
        bidirectional=True,
        dropout=config.dropout,
        skip=config.skip,
    )
    return headed(
        RecurrentEncoder(embed=read, recurrent=recurrent, dropout=config.dropout),
        vocabulary,
        dim=recurrent.output_dim,
        pool=lambda dim: Attentive(dim=dim, name=config.score),
        dropout=config.dropout,
    )


DESIGN = Design(
    name="attentive_birnn",
    paper="Yang et al.: Hierarchical attention networks for document classification",
    year=2016,
    tasks=("classification",),
    config=Config,
    build=build,
    path="n; 1 to the label",
    sizes=tuple(Config(embedding=width, hidden=width) for width in (64, 128, 256, 384)),
)

"""ctc: convolutions and a recurrent or self-attending encoder; at each step a token or nothing.

x = Subsampling(frames);   h = BiRNN(x), or Stack(x);   P(y | x) = Σ_π Πₜ P(πₜ | x), P(πₜ | x) = softmax(W hₜ + b),
over all paths π that collapse to y                                                            Graves 2006, section 3
Tokens are independent of one another given the recording, so there is no decoder: a language model may stand in for it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from torch import nn

from regard.config import Depth, Width
from regard.interface import Shapes
from regard.layers.cells import CellName
from regard.layers.ctc import CTCHead
from regard.layers.encoders import RecurrentEncoder
from regard.layers.sound import SubsampledEncoder
from regard.models.design import Design, size_of
from regard.models.listening import ListeningSettings, subsampled, transformer_encoder, width_of
from regard.models.parts import RecurrentSettings, recurrent_of
from regard.models.transcriber import Transcriber


@dataclass(frozen=True)
class Config(ListeningSettings):
    layers: Depth = 3  # encoder layers
    body: Literal["recurrent", "attention"] = "recurrent"  # bidirectional recurrent layers, or self-attention
    hidden: Width = 192  # width of the recurrent state, in each direction
    cell: CellName | str = "lstm"  # the recurrent cell, or a user-defined one: my_cells.py:Name


def encoder_of(config: Config, width: int) -> SubsampledEncoder:
    if config.body == "attention":
        return transformer_encoder(config, width)
    settings = RecurrentSettings(hidden=config.hidden, layers=config.layers, cell=config.cell, dropout=config.dropout)
    recurrent = recurrent_of(settings, config.dim, bidirectional=True)
    reads = RecurrentEncoder(embed=nn.Identity(), recurrent=recurrent, dropout=config.dropout)
    return subsampled(config, reads, width, dim=recurrent.output_dim)


def build(config: Config, shapes: Shapes) -> Transcriber:
    encoder = encoder_of(config, width_of(shapes.source, "ctc"))
    return Transcriber(encoder, CTCHead(dim=encoder.dim, vocab=size_of(shapes.target), dropout=config.dropout))


DESIGN = Design(
    name="ctc",
    paper="Graves, Fernández, Gomez, Schmidhuber: Connectionist temporal classification",
    year=2006,
    tasks=("speech",),
    config=Config,
    build=build,
    path="n",
    sizes=(
        Config(dim=96, hidden=96, layers=2),
        Config(dim=128, hidden=128),
        Config(),
        Config(dim=256, hidden=320, layers=4),
    ),
)

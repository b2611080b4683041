"""las: Listen, Attend and Spell; a pyramid of recurrent layers listens, and a recurrent decoder that attends to it
spells the text.

listener  hₜ of each layer reads [h₂ₜ ; h₂ₜ₊₁] of the layer below: there are few states to attend to   section 3.1
speller   eₜᵢ = score(sₜ₋₁, hᵢ);   αₜ = softmax(eₜ);   cₜ = Σᵢ αₜᵢ hᵢ;   sₜ = f(yₜ₋₁, sₜ₋₁, cₜ)        section 3.2
          p(yₜ) from [sₜ; cₜ; yₜ₋₁]
Chan, Jaitly, Le, Vinyals 2016. Here the listener learns by CTC, too (Kim, Hori, Watanabe 2017): attention alone needs
far more recordings before it finds where the words are.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import Depth, Share, Width
from regard.interface import Shapes
from regard.layers.attention import Attention, score
from regard.layers.cells import cell_named
from regard.layers.encoders import Embedding
from regard.layers.recurrent import Recurrent
from regard.layers.sound import PyramidalEncoder
from regard.models.design import Design, size_of
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.listening import Halvings, width_of
from regard.models.parts import RecurrentSettings, head_of
from regard.models.rnnsearch import AttentiveDecoder
from regard.models.transcriber import listening


@dataclass(frozen=True)
class Config(RecurrentSettings):
    layers: Depth = 3  # bidirectional recurrent layers of the listener
    halvings: Halvings = 2  # how many of these, from the first on, halve the number of states; 2: one for 40 ms
    hidden: Width = 192  # width of the recurrent state, in each direction
    score: Literal["additive", "bilinear", "mlp"] = "additive"  # attention score between a speller and a listener state
    ctc: Share = 0.3  # share of CTC in the loss, beside attention
    tie: bool = True  # weight tying: the output matrix is the embedding
    dropout: Share = 0.2  # on embeddings, states and before the output
    label_smoothing: Share = 0.1  # label smoothing: share of the target's probability spread over the vocabulary

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.halvings > self.layers:
            raise ValueError(f"halvings = {self.halvings} must be at most layers = {self.layers}.")


def listener(config: Config, width: int) -> PyramidalEncoder:
    cell = cell_named(config.cell)
    widths = [width] + [2 * config.hidden] * (config.layers - 1)
    layers = [
        Recurrent(
            cell=cell,
            input_dim=2 * inputs if layer < config.halvings else inputs,
            hidden=config.hidden,
            bidirectional=True,
        )
        for layer, inputs in enumerate(widths)
    ]
    return PyramidalEncoder(layers=layers, halvings=config.halvings, dropout=config.dropout)


def build(config: Config, shapes: Shapes) -> EncoderDecoder:
    encoder, vocab = listener(config, width_of(shapes.source, "las")), size_of(shapes.target)
    embed = Embedding(vocab=vocab, dim=config.embedding, dropout=config.dropout)
    heard = score(config.score, query_dim=config.hidden, key_dim=encoder.dim, hidden=config.hidden)
    decoder = AttentiveDecoder(
        embed=embed,
        cell=cell_named(config.cell)(input_dim=config.embedding, hidden=config.hidden),
        attention=Attention(score=heard),
        value_dim=encoder.dim,
        summary_dim=config.hidden,
        upper=None,
        head=head_of(config, embed),
        dropout=config.dropout,
    )
    return listening(encoder, decoder, vocab=vocab, share=config.ctc, dropout=config.dropout)


DESIGN = Design(
    name="las",
    paper="Chan, Jaitly, Le, Vinyals: Listen, attend and spell",
    year=2016,
    tasks=("speech",),
    config=Config,
    build=build,
    path="1 from target to source; n within a side",
    sizes=(
        Config(embedding=96, hidden=96, layers=2),
        Config(embedding=128, hidden=128),
        Config(),
        Config(embedding=256, hidden=320, layers=4),
    ),
)

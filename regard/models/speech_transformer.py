"""speech_transformer: convolutions make a recording shorter, a Transformer's encoder reads it, its decoder writes.

x = Subsampling(frames);   z = Stack(x + positions);   p(yₜ) = softmax(W Decoder(y₁ … yₜ₋₁, z))
Dong, Xu, Xu 2018; convolutions over time as in Radford 2023, section 2.2. The encoder may learn by CTC, too.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.config import Depth, Share
from regard.interface import Shapes
from regard.layers.encoders import Embedding
from regard.layers.positions import Sinusoidal
from regard.models.design import Design, size_of
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.listening import ListeningSettings, transformer_encoder, width_of
from regard.models.parts import head_of, stack_of
from regard.models.transcriber import listening
from regard.models.transformer import TransformerDecoder


@dataclass(frozen=True)
class Config(ListeningSettings):
    decoder_layers: Depth = 2  # decoder layers
    ctc: Share = 0.3  # share of CTC in the loss, beside attention
    tie: bool = True  # weight tying: the output matrix is the embedding
    label_smoothing: Share = 0.1  # label smoothing: share of the target's probability spread over the vocabulary


def build(config: Config, shapes: Shapes) -> EncoderDecoder:
    encoder = transformer_encoder(config, width_of(shapes.source, "speech_transformer"))
    vocab = size_of(shapes.target)
    embed = Embedding(vocab=vocab, dim=config.dim, dropout=config.dropout)
    places = Sinusoidal(dim=config.dim)  # of the tokens; a text may have any length
    stack = stack_of(replace(config, layers=config.decoder_layers), longest=0, cross=True, causal=True, places=places)
    decoder = TransformerDecoder(embed, stack, head_of(config, embed))
    return listening(encoder, decoder, vocab=vocab, share=config.ctc, dropout=config.dropout)


DESIGN = Design(
    name="speech_transformer",
    paper="Dong, Xu, Xu: Speech-Transformer: A no-recurrence sequence-to-sequence model for speech recognition",
    year=2018,
    tasks=("speech",),
    config=Config,
    build=build,
    path="1",
    sizes=(
        Config(dim=96, feed_forward=384, layers=3),
        Config(dim=128, feed_forward=512),
        Config(),
        Config(dim=256, feed_forward=1024, layers=8, decoder_layers=3),
    ),
)

"""captioner: a Vision Transformer reads a picture, and a Transformer decoder describes it; there is no recurrence.

z = Stack([x_class; x₁E; …; x_N E] + E_pos);   p(yₜ) = softmax(W Decoder(y₁ … yₜ₋₁, z)), which attends to every patch
Dosovitskiy 2021, section 3.1; Vaswani 2017, section 3; as one model for captions: Liu 2021.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from regard.config import Depth, Share
from regard.interface import Shapes
from regard.layers.encoders import Embedding
from regard.layers.positions import Sinusoidal
from regard.models.design import Design, picture_of, size_of
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.parts import head_of, stack_of
from regard.models.transformer import TransformerDecoder
from regard.models.vit import PatchSettings, patch_encoder


@dataclass(frozen=True)
class Config(PatchSettings):
    layers: Depth = 4  # encoder layers
    decoder_layers: Depth = 2  # decoder layers
    class_token: bool = True  # a learned vector before the patches, as vit has with pool = "first"
    tie: bool = True  # weight tying: the output matrix is the embedding
    label_smoothing: Share = 0.1  # label smoothing: share of the target's probability spread over the vocabulary


def build(config: Config, shapes: Shapes) -> EncoderDecoder:
    encoder = patch_encoder(config, picture_of(shapes.source, "captioner"), class_token=config.class_token)
    embed = Embedding(vocab=size_of(shapes.target), dim=config.dim)
    places = Sinusoidal(dim=config.dim)  # of the words; a caption may have any length
    stack = stack_of(replace(config, layers=config.decoder_layers), longest=0, cross=True, causal=True, places=places)
    return EncoderDecoder(encoder, TransformerDecoder(embed, stack, head_of(config, embed)))


DESIGN = Design(
    name="captioner",
    paper="Liu et al.: CPTR: Full Transformer network for image captioning",
    year=2021,
    tasks=("captioning",),
    config=Config,
    build=build,
    path="1",
    sizes=(
        Config(dim=64, feed_forward=128, layers=3),
        Config(),
        Config(dim=192, feed_forward=384, layers=5, decoder_layers=3),
        Config(dim=256, heads=8, feed_forward=512, layers=6, decoder_layers=4),
    ),
)

"""t5: an encoder-decoder for any task whose input and output are texts.

Normalisation by the root mean square before each part, no biases, scores qᵀk + b(distance) without 1/√d, one bias b per
head and bucket of distances for all layers; gated feed-forward layers in version 1.1.          Raffel 2020, section 2.1
For labels, numbers and tags, the encoder alone reads the text, under a head of its own.                        Ni 2022
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.config import Count, Share
from regard.interface import Ids, Shapes
from regard.layers.encoders import Embedding, TransformerEncoder
from regard.layers.pooling import POOLS
from regard.layers.transformer import ActivationName
from regard.models.design import READING, Design, size_of
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.encoder_head import EncoderWithHead, headed
from regard.models.parts import PAIR_SIZES, BlockSettings, Epsilon, head_of, stack_of
from regard.models.transformer import TransformerDecoder


@dataclass(frozen=True)
class Config(BlockSettings):
    # not settings
    normalisation = "rms"
    bias = False
    scaled_scores = False
    positions = "t5"

    head_dim: Count = 0  # width of an attention head; 0: dim / heads
    activation: ActivationName = "relu"  # inside the feed-forward layers
    gated: bool = False  # feed-forward layers have a gate
    epsilon: Epsilon = 1e-6  # added to the mean square in normalisation
    tie: bool = True  # the output matrix is the embedding
    head_bias: bool = False  # the output layer has a bias
    label_smoothing: Share = 0.0  # label smoothing: share of the target's probability spread over the vocabulary


def build(config: Config, shapes: Shapes) -> EncoderDecoder | EncoderWithHead:
    if not isinstance(shapes.target, Ids):
        read = Embedding(vocab=size_of(shapes.source), dim=config.dim)
        encoder = TransformerEncoder(embed=read, stack=stack_of(config, longest=0))
        return headed(encoder, shapes, dim=config.dim, pool=POOLS["mean"], dropout=config.dropout)
    target = Embedding(vocab=size_of(shapes.target), dim=config.dim)
    source = target if shapes.joint else Embedding(vocab=size_of(shapes.source), dim=config.dim)
    encoder = TransformerEncoder(embed=source, stack=stack_of(config, longest=0))
    head = head_of(config, target, biased=config.head_bias)
    return EncoderDecoder(
        encoder, TransformerDecoder(target, stack_of(config, longest=0, cross=True, causal=True), head)
    )


DESIGN = Design(
    name="t5",
    paper="Raffel et al.: Exploring the limits of transfer learning with a unified text-to-text Transformer",
    year=2020,
    tasks=("translation", "denoising", *READING),
    config=Config,
    build=build,
    path="1",
    sizes=tuple(Config(**size) for size in PAIR_SIZES),
    presets={
        "small": Config(**PAIR_SIZES[-1]),
        "base": Config(dim=768, heads=12, feed_forward=3072, layers=12),
        "v1.1-small": Config(
            dim=512, heads=6, head_dim=64, feed_forward=1024, layers=8, gated=True, activation="gelu-tanh", tie=False
        ),
    },
)

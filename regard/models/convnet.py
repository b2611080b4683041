"""convnet: a residual convolutional network, whose layers each add to what those before them have found in a picture.

x ← x + W₂ ∗ relu(norm(W₁ ∗ relu(norm x)));   aᵢ = relu(norm x) at place i;   P(label) = softmax(W norm(meanᵢ aᵢ) + b)
He et al. 2016b, section 4. Group normalisation (Wu & He 2018) in place of batch normalisation: the pictures beside it
in a batch change nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated

from torch import nn

from regard.config import Depth, Settings, Share, Width, between
from regard.interface import Label, Picture, Shapes
from regard.layers.pictures import ResidualEncoder
from regard.layers.pooling import POOLS
from regard.models.design import Design, picture_of, size_of
from regard.models.encoder_head import EncoderWithHead, headed


@dataclass(frozen=True)
class ResidualSettings(Settings):
    """The settings of a residual convolutional encoder."""

    width: Width = 32  # channels of the first stage; each further stage has twice as many as the one before
    stages: Annotated[int, between(1, 8)] = 3  # stages; each halves height and width
    blocks: Depth = 1  # residual blocks in each stage, of two convolutions each


@dataclass(frozen=True)
class Config(ResidualSettings):
    dropout: Share = 0.1  # of whole channels inside each block, and before the output


def residual_encoder(
    config: ResidualSettings, shape: Picture, *, dropout: float, located: bool = False
) -> ResidualEncoder:
    return ResidualEncoder(
        shape=shape,
        width=config.width,
        stages=config.stages,
        blocks=config.blocks,
        dropout=dropout,
        located=located,
    )


def pooled(dim: int) -> nn.Module:
    """Take the mean over places, and normalise it: the means of what a relu made differ little between pictures."""
    return nn.Sequential(POOLS["mean"](dim), nn.LayerNorm(dim))


def build(config: Config, shapes: Shapes) -> EncoderWithHead:
    encoder = residual_encoder(config, picture_of(shapes.source, "convnet"), dropout=config.dropout)
    size_of(shapes.target, Label)
    return headed(encoder, shapes, dim=encoder.dim, pool=pooled, dropout=config.dropout)


DESIGN = Design(
    name="convnet",
    paper="He, Zhang, Ren, Sun: Identity mappings in deep residual networks",
    year=2016,
    tasks=("pictures",),
    config=Config,
    build=build,
    path="log n",
    sizes=(Config(width=16), Config(), Config(blocks=2), Config(width=64, blocks=2)),
)

"""vit: the Vision Transformer, which reads a picture as a sequence of patches with a Transformer encoder.

z₀ = [x_class; x₁E; …; x_N E] + E_pos;   h = Stack(z₀);   P(label) = softmax(W h_class + b)       Dosovitskiy 2021, 3.1
xᵢ is patch i, a vector of P × P pixels; x E is a convolution of width and stride P.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import nn

from regard.config import Share, Width
from regard.interface import Label, Picture, Shapes, UserError
from regard.layers.pictures import GridPositions, PatchEncoder, PatchPositionName
from regard.layers.pooling import POOLS
from regard.layers.transformer import ActivationName
from regard.models.design import Design, picture_of, size_of
from regard.models.encoder_head import EncoderWithHead, headed
from regard.models.parts import BlockSettings, Epsilon, stack_of


@dataclass(frozen=True)
class PatchSettings(BlockSettings):
    """The settings of a Transformer encoder of patches."""

    activation: ActivationName = "gelu"  # inside the feed-forward layers
    patch: Width = 4  # pixels along the side of a patch
    dim: Width = 128  # width of a patch's vector, throughout
    feed_forward: Width = 256  # width inside the feed-forward layers
    positions: PatchPositionName = "learned"  # positional encoding; sinusoidal-2d: of row and column, each by itself
    epsilon: Epsilon = 1e-5  # added to the variance in layer normalisation


@dataclass(frozen=True)
class Config(PatchSettings):
    pool: Literal["first", "mean"] = "first"  # the state of a class token before the patches, or the mean of all states
    dropout: Share = 0.1  # on embeddings, inside the feed-forward layers, on each part's output and before the output


def patch_encoder(config: PatchSettings, shape: Picture, *, class_token: bool) -> PatchEncoder:
    """Build the encoder of patches; a class token is a learned vector before them."""
    if shape.height % config.patch or shape.width % config.patch:
        raise UserError(
            f"A picture of {shape.height} x {shape.width} pixels cannot be cut into patches of {config.patch} x "
            f"{config.patch}: set model.patch to a divisor of both."
        )
    rows, columns = shape.height // config.patch, shape.width // config.patch
    first = nn.Parameter(nn.init.normal_(torch.empty(config.dim), std=0.02)) if class_token else None
    places = None
    if config.positions == "sinusoidal-2d":
        places = GridPositions(dim=config.dim, columns=columns, lead=int(class_token))
    stack = stack_of(config, longest=rows * columns + class_token, places=places)
    return PatchEncoder(shape=shape, patch=config.patch, stack=stack, first=first)


def build(config: Config, shapes: Shapes) -> EncoderWithHead:
    shape = picture_of(shapes.source, "vit")
    encoder = patch_encoder(config, shape, class_token=config.pool == "first")
    size_of(shapes.target, Label)
    return headed(encoder, shapes, dim=config.dim, pool=POOLS[config.pool], dropout=config.dropout)


DESIGN = Design(
    name="vit",
    paper="Dosovitskiy et al.: An image is worth 16x16 words: Transformers for image recognition at scale",
    year=2021,
    tasks=("pictures",),
    config=Config,
    build=build,
    path="1",
    sizes=(
        Config(dim=64, feed_forward=128, layers=3),
        Config(),
        Config(dim=192, feed_forward=384, layers=5),
        Config(dim=256, heads=8, feed_forward=512, layers=6),
    ),
)

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
from regard.interface import Label, Padded, Picture, Shapes, UserError
from regard.layers.attention import Linear
from regard.layers.encoders import Encoded, TransformerEncoder
from regard.layers.pooling import POOLS
from regard.layers.positions import PositionName
from regard.layers.transformer import ActivationName
from regard.models.design import Design, size_of
from regard.models.encoder_head import EncoderWithHead, headed
from regard.models.parts import Epsilon, StackSettings, stack_of


@dataclass(frozen=True)
class Config(StackSettings):
    activation: ActivationName = "gelu"  # inside the feed-forward layers
    patch: Width = 4  # pixels along the side of a patch
    dim: Width = 128  # width of a patch's vector, throughout
    feed_forward: Width = 256  # width inside the feed-forward layers
    positions: PositionName = "learned"  # positional encoding
    epsilon: Epsilon = 1e-5  # added to the variance in layer normalisation
    pool: Literal["first", "mean"] = "first"  # the state of a class token before the patches, or the mean of all states
    dropout: Share = 0.1  # on embeddings, inside the feed-forward layers, on each part's output and before the output


class PatchEncoder(TransformerEncoder):
    """Cuts a picture into patches and encodes them as a sequence; `grid` counts the rows and columns of patches."""

    def __init__(self, config: Config, shape: Picture) -> None:
        side, grid = config.patch, (shape.height // config.patch, shape.width // config.patch)
        first = nn.Parameter(torch.randn(config.dim) * 0.02) if config.pool == "first" else None
        stack = stack_of(config, longest=grid[0] * grid[1] + (first is not None))
        embed = Linear(side * side * shape.channels, config.dim)
        super().__init__(embed=embed, stack=stack, first=first)
        self.channels, self.patch, self.grid = shape.channels, side, grid

    def forward(self, source: Padded, *beside: torch.Tensor) -> Encoded:
        """Encode source (batch, height, width · channels) as one state per patch."""
        (down, across), side = self.grid, self.patch
        pixels = source.values.view(-1, down, side, across, side, self.channels)
        patches = pixels.transpose(2, 3).reshape(len(pixels), down * across, -1)  # (batch, patches, patch² · channels)
        return super().forward(Padded(patches, torch.ones_like(patches[..., 0], dtype=torch.bool)), *beside)


def build(config: Config, shapes: Shapes) -> EncoderWithHead:
    shape = shapes.source
    if not isinstance(shape, Picture):
        raise UserError(f"vit reads pictures and got {shape}: choose another model or task.")
    if shape.height % config.patch or shape.width % config.patch:
        raise UserError(
            f"A picture of {shape.height} x {shape.width} pixels cannot be cut into patches of {config.patch} x "
            f"{config.patch}: set model.patch to a divisor of both."
        )
    size_of(shapes.target, Label)
    encoder = PatchEncoder(config, shape)
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

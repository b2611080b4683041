"""encoder: a Transformer encoder for classification, from a class token before the sentence, and for tagging.

h = Stack(x₁ … x_T); P(label) = softmax(W h_<cls> + b)           Vaswani 2017, 3.1; <cls>: Devlin 2019
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

import torch
from torch import nn

from regard.config import Depth, Share, Width, between
from regard.interface import Choice, Label, Scalar, Shapes
from regard.layers.encoders import TransformerEncoder
from regard.layers.positions import PositionName
from regard.models.design import READING, Design
from regard.models.encoder_head import EncoderWithHead
from regard.models.parts import NamingSettings, StackSettings, headed_of, reader_of, stack_of


@dataclass(frozen=True)
class Config(NamingSettings, StackSettings):
    dim: Width = 128  # width of a token's vector, throughout
    feed_forward: Width = 256  # width inside the feed-forward layers
    layers: Depth = 2  # blocks
    positions: PositionName = "sinusoidal"  # positional encoding
    longest: Annotated[int, between(3, 1_000_000)] = 512  # maximum length with learned positions, in tokens
    pool: Literal["first", "mean", "max"] = "first"  # for classification: pooling; first is a class token
    dropout: Share = 0.2  # on embeddings, inside the feed-forward layers, on each part's output and before the output


def build(config: Config, shapes: Shapes) -> EncoderWithHead:
    read = reader_of(config, shapes, dim=config.dim)
    stack = stack_of(config, longest=config.longest)
    before = config.pool == "first" and isinstance(shapes.target, Label | Scalar | Choice)
    encoder = TransformerEncoder(
        embed=read,
        enter=nn.Linear(read.output_dim, config.dim) if read.output_dim != config.dim else None,
        first=nn.Parameter(nn.init.normal_(torch.empty(config.dim))) if before else None,
        stack=stack,
    )
    longest = None if stack.positions.longest is None else stack.positions.longest - before
    return headed_of(config, encoder, read, shapes, dim=config.dim, longest=longest)


DESIGN = Design(
    name="encoder",
    paper="Devlin et al.: BERT (the encoder alone, without its pre-training)",
    year=2019,
    tasks=(*READING, "sounds"),
    config=Config,
    build=build,
    path="1",
    sizes=(
        Config(dim=64, feed_forward=128, layers=2),
        Config(dim=128, feed_forward=256, layers=2),
        Config(dim=256, feed_forward=1024, layers=4),
        Config(dim=512, heads=8, feed_forward=2048, layers=6),
    ),
)

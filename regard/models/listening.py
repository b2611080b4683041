"""Settings and encoders that several models of recordings share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from torch import nn

from regard.config import Depth, Share, Width, between
from regard.interface import Frames, Shape, UserError
from regard.layers.encoders import TransformerEncoder
from regard.layers.sound import SubsampledEncoder, Subsampling
from regard.layers.transformer import ActivationName
from regard.models.parts import BlockSettings, stack_of

Halvings = Annotated[int, between(0, 5)]


@dataclass(frozen=True)
class ListeningSettings(BlockSettings):
    """The settings of an encoder of subsampled frames."""

    dim: Width = 192  # width of a subsampled frame, and of a Transformer's states
    feed_forward: Width = 768  # width inside the feed-forward layers
    layers: Depth = 4  # encoder layers
    halvings: Halvings = 2  # convolutions that halve the number of frames; 2: a state covers 40 ms
    activation: ActivationName = "gelu"  # inside the feed-forward layers
    positions: Literal["sinusoidal", "rotary", "alibi", "t5"] = "sinusoidal"  # positional encoding
    dropout: Share = 0.2  # on subsampled frames, embeddings, inside the layers and before the output


def width_of(shape: Shape | None, model: str) -> int:
    """Return the numbers in a frame of the recordings that a model reads."""
    if not isinstance(shape, Frames):
        raise UserError(f"{model} reads recordings and got {shape}: choose another model or task.")
    return shape.width


def subsampled(config: ListeningSettings, encoder: nn.Module, width: int, *, dim: int) -> SubsampledEncoder:
    """Put convolutions before an encoder whose states are `dim` wide."""
    fewer = Subsampling(width=width, dim=config.dim, halvings=config.halvings, dropout=config.dropout)
    return SubsampledEncoder(subsampling=fewer, encoder=encoder, dim=dim)


def transformer_encoder(config: ListeningSettings, width: int) -> SubsampledEncoder:
    reads = TransformerEncoder(embed=nn.Identity(), stack=stack_of(config, longest=0))
    return subsampled(config, reads, width, dim=config.dim)

"""cnn: convolution over windows of a few words, then max pooling of each feature.

cᵢ = relu(W x_{i : i + w − 1} + b) for windows of w words;   P(label) = softmax(V max_i cᵢ + b)      Kim 2014
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import Depth, Share, Width
from regard.interface import Shapes
from regard.layers.convolution import Windows
from regard.layers.encoders import ConvolutionalEncoder
from regard.models.design import READING, Design
from regard.models.encoder_head import EncoderWithHead
from regard.models.parts import NamingSettings, headed_of, reader_of


@dataclass(frozen=True)
class Config(NamingSettings):
    embedding: Width = 300  # width of a word's vector
    filters: Width = 100  # features per window width
    widths: tuple[int, ...] = (3, 4, 5)  # words in a window
    layers: Depth = 1  # convolutional layers
    pool: Literal["max", "mean"] = "max"  # for classification: pooling of the states
    dropout: Share = 0.5  # on embeddings, between layers and before the output

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.widths or not all(1 <= width <= 100 for width in self.widths):
            raise ValueError(f"widths = {self.widths} must hold one or more numbers, each from 1 to 100.")


def build(config: Config, shapes: Shapes) -> EncoderWithHead:
    read = reader_of(config, shapes, dim=config.embedding, dropout=config.dropout)
    wide = config.filters * len(config.widths)
    widths = [read.output_dim] + [wide] * (config.layers - 1)
    windows = [Windows(input_dim=width, filters=config.filters, widths=config.widths) for width in widths]
    encoder = ConvolutionalEncoder(embed=read, windows=windows, dropout=config.dropout)
    return headed_of(config, encoder, read, shapes, dim=wide)


DESIGN = Design(
    name="cnn",
    paper="Kim: Convolutional neural networks for sentence classification",
    year=2014,
    tasks=READING,
    config=Config,
    build=build,
    path="1 within a window, none beyond its layers",
    sizes=tuple(
        Config(embedding=width, filters=filters) for width, filters in ((64, 64), (128, 100), (300, 100), (300, 200))
    ),
)

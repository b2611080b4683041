"""Parts that several papers' models are made of, built from the settings that these share."""

from __future__ import annotations

from typing import Any

from torch import nn

from regard.config import Settings
from regard.interface import Shapes
from regard.layers.cells import cell_named
from regard.layers.encoders import Embedding, WordReader
from regard.layers.heads import SoftmaxHead
from regard.layers.pooling import POOLS
from regard.layers.positions import position
from regard.layers.recurrent import Recurrent
from regard.layers.transformer import Stack
from regard.models.design import size_of
from regard.models.encoder_head import Classifier, Tagger, headed


def recurrent_of(config: Any, input_dim: int, *, layers: int = 0, bidirectional: bool = False) -> Recurrent:
    """By cell, hidden, layers (unless others are given), skip and dropout."""
    return Recurrent(
        cell=cell_named(config.cell),
        input_dim=input_dim,
        hidden=config.hidden,
        layers=layers or config.layers,
        bidirectional=bidirectional,
        dropout=config.dropout,
        skip=config.skip,
    )


def headed_of(
    config: Any, encoder: nn.Module, read: WordReader, shapes: Shapes, *, dim: int, longest: int | None = None
) -> Classifier | Tagger:
    """By pool, head and dropout: an encoder of the words that `read` reads, with the head that the target needs."""
    return headed(
        encoder,
        shapes,
        dim=dim,
        pool=POOLS[config.pool],
        chain=config.head == "crf",
        dropout=config.dropout,
        beside=read.beside,
        longest=longest,
    )


def embeddings_of(config: Any, shapes: Shapes, dim: int) -> tuple[Embedding, Embedding]:
    """Of the source and the target; the same one where the vocabulary is joint and `tie` says so."""
    target = Embedding(vocab=size_of(shapes.target), dim=dim)
    shared = config.tie and shapes.joint
    return target if shared else Embedding(vocab=size_of(shapes.source), dim=dim), target


def head_of(config: Any, embed: Embedding) -> SoftmaxHead:
    """By tie and label_smoothing: over the words that `embed` knows, from states as wide as its vectors."""
    tied = embed.weight if config.tie else None
    return SoftmaxHead(dim=embed.dim, vocab=len(embed.weight), tied=tied, smoothing=config.label_smoothing)


class StackSettings(Settings):
    """The base of a config from which `stack_of` makes a stack."""

    dim: int
    heads: int
    normalisation: str = "layer"  # these two are settings of few models
    activation: str = "relu"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.heads:
            raise ValueError(f"dim = {self.dim} must be a multiple of heads = {self.heads}.")


def stack_of(config: Any, *, longest: int, cross: bool = False, causal: bool = False) -> Stack:
    """By dim, heads, feed_forward, layers, norm, normalisation, activation, positions and dropout; `longest` limits
    learned positions."""
    places = position(config.positions, dim=config.dim, heads=config.heads, longest=longest, causal=causal)
    return Stack(
        dim=config.dim,
        heads=config.heads,
        hidden=config.feed_forward,
        layers=config.layers,
        dropout=config.dropout,
        norm=config.norm,
        normalisation=config.normalisation,
        activation=config.activation,
        cross=cross,
        positions=places,
    )

"""Parts that several papers' models are made of, built from the settings that these share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from torch import nn

from regard.config import Count, Depth, Settings, Share, Width
from regard.interface import Shapes
from regard.layers.cells import CellName, cell_named
from regard.layers.encoders import Embedding, WordReader
from regard.layers.heads import SoftmaxHead
from regard.layers.pooling import POOLS
from regard.layers.positions import PositionName, position
from regard.layers.recurrent import Recurrent, Skip
from regard.layers.transformer import Stack
from regard.models.design import size_of
from regard.models.encoder_head import Classifier, Tagger, headed, reader


@dataclass(frozen=True)
class RecurrentSettings(Settings):
    """What every recurrent model can be told."""

    embedding: Width = 256  # width of a token's vector
    hidden: Width = 256  # width of the recurrent state, in each direction
    layers: Depth = 1  # recurrent layers
    cell: CellName | str = "lstm"  # the recurrent cell, or one of your own: my_cells.py:Name
    skip: Skip = "none"  # what a layer's input does beside it: none, residual (added), highway (through a gate)
    dropout: Share = 0.1  # on embeddings, states and before the output


def recurrent_of(
    config: RecurrentSettings, input_dim: int, *, layers: int = 0, bidirectional: bool = False
) -> Recurrent:
    """With as many layers as the settings say, unless others are given."""
    return Recurrent(
        cell=cell_named(config.cell),
        input_dim=input_dim,
        hidden=config.hidden,
        layers=layers or config.layers,
        bidirectional=bidirectional,
        dropout=config.dropout,
        skip=config.skip,
    )


@dataclass(frozen=True)
class NamingSettings(Settings):
    """What every model can be told that names sentences or their words."""

    head: Literal["softmax", "crf"] = "crf"  # of tags: each word by itself, or the best chain
    letters: Count = 0  # of tags: width of what a word's letters make beside its vector; 0: they are not read
    word_dropout: Share = 0.0  # share of the words that are hidden in training


def reader_of(config: NamingSettings, shapes: Shapes, *, dim: int, dropout: float = 0.0) -> WordReader:
    return reader(shapes, dim=dim, letters=config.letters, dropout=dropout, word_dropout=config.word_dropout)


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


@dataclass(frozen=True)
class StackSettings(Settings):
    """What every model with a Transformer's stack can be told."""

    dim: Width = 256  # width of a token's vector, throughout
    heads: Width = 4  # looks at once; dim must be a multiple of it
    feed_forward: Width = 1024  # width inside the feed-forward layers
    layers: Depth = 4  # blocks
    norm: Literal["pre", "post"] = "pre"  # normalise before each part, or after adding it
    positions: PositionName = "learned"  # how a token knows where it stands
    dropout: Share = 0.1  # on embeddings, inside the feed-forward layers and on what each part adds

    # not settings, unless a model makes them so
    activation = "relu"
    normalisation = "layer"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.dim % self.heads:
            raise ValueError(f"dim = {self.dim} must be a multiple of heads = {self.heads}.")


def stack_of(config: StackSettings, *, longest: int, cross: bool = False, causal: bool = False) -> Stack:
    """`longest` limits learned positions."""
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

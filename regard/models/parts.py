"""Settings and parts that several models share."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any, Literal

from torch import nn

from regard.config import Count, Depth, Settings, Share, Width, between
from regard.interface import Shapes
from regard.layers.cells import CellName, cell_named
from regard.layers.encoders import Embedding, WordReader
from regard.layers.heads import SoftmaxHead
from regard.layers.pooling import POOLS
from regard.layers.positions import PositionName, Positions, position
from regard.layers.recurrent import Recurrent, Skip
from regard.layers.sound import FrameReader
from regard.layers.transformer import Stack
from regard.models.design import size_of
from regard.models.encoder_head import EncoderWithHead, headed, reader


@dataclass(frozen=True)
class RecurrentSettings(Settings):
    """The settings of every recurrent model."""

    embedding: Width = 256  # width of a token's vector
    hidden: Width = 256  # width of the recurrent state, in each direction
    layers: Depth = 1  # recurrent layers
    cell: CellName | str = "lstm"  # the recurrent cell, or a user-defined one: my_cells.py:Name
    skip: Skip = "none"  # skip connection around each layer: none, residual (added) or highway (through a gate)
    dropout: Share = 0.1  # on embeddings, states and before the output


def recurrent_of(
    config: RecurrentSettings, input_dim: int, *, layers: int = 0, bidirectional: bool = False
) -> Recurrent:
    """Build recurrent layers; `layers` overrides the number in the settings."""
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
    """The settings of every model for classification and tagging."""

    head: Literal["softmax", "crf"] = "crf"  # for tagging: one softmax per word, or a CRF over the tag sequence
    letters: Count = 0  # for tagging: width of the character features that are added to a word's vector; 0: none
    word_dropout: Share = 0.0  # word dropout: share of the words that are hidden in training


def reader_of(config: NamingSettings, shapes: Shapes, *, dim: int, dropout: float = 0.0) -> WordReader | FrameReader:
    return reader(shapes, dim=dim, letters=config.letters, dropout=dropout, word_dropout=config.word_dropout)


def headed_of(
    config: Any,
    encoder: nn.Module,
    read: WordReader | FrameReader,
    shapes: Shapes,
    *,
    dim: int,
    longest: int | None = None,
) -> EncoderWithHead:
    """Combine an encoder with the embedding `read` and the head that the target needs, by pool, head and dropout."""
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


def embeddings_of(config: Any, shapes: Shapes, dim: int, *, scaled: bool = True) -> tuple[Embedding, Embedding]:
    """Build the embeddings of source and target; they are shared if the vocabulary is joint and `tie` is true."""
    target = Embedding(vocab=size_of(shapes.target), dim=dim, scaled=scaled)
    shared = config.tie and shapes.joint
    return target if shared else Embedding(vocab=size_of(shapes.source), dim=dim, scaled=scaled), target


def head_of(config: Any, embed: Embedding, *, biased: bool = True) -> SoftmaxHead:
    """Build the output layer over the vocabulary of `embed`, by tie and label_smoothing."""
    tied = embed.weight if config.tie else None
    return SoftmaxHead(
        dim=embed.dim, vocab=len(embed.weight), tied=tied, smoothing=config.label_smoothing, biased=biased
    )


def refuse_tied(head: str, tie: bool) -> None:
    if tie and head == "adaptive":
        raise ValueError("the adaptive head has its own matrices: set tie = false, or choose another head.")


Epsilon = Annotated[float, between(0.0, 1.0)]
PAIR_SIZES: tuple[dict[str, Any], ...] = (  # of encoder-decoders with two stacks, for four amounts of text
    {"dim": 128, "heads": 4, "feed_forward": 512, "layers": 2},
    {"dim": 256, "heads": 4, "feed_forward": 1024, "layers": 3},
    {"dim": 384, "heads": 6, "feed_forward": 1536, "layers": 4},
    {"dim": 512, "heads": 8, "feed_forward": 2048, "layers": 6},
)


@dataclass(frozen=True)
class BlockSettings(Settings):
    """The settings of every Transformer's blocks."""

    dim: Width = 256  # width of a token's vector, throughout
    heads: Width = 4  # attention heads; dim must be a multiple of it
    feed_forward: Width = 1024  # width inside the feed-forward layers
    layers: Depth = 4  # blocks
    norm: Literal["pre", "post"] = "pre"  # pre-norm or post-norm: normalise before each part, or after adding it
    dropout: Share = 0.1  # on embeddings, inside the feed-forward layers and on each part's output

    # constants here, as in a Stack; a model may redefine them, also as settings
    activation = "relu"
    normalisation = "layer"
    epsilon = 1e-5
    bias = True
    gated = False
    head_dim = 0
    scaled_scores = True
    shared = False
    entry = False
    positions = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        if not self.head_dim and self.dim % self.heads:
            raise ValueError(f"dim = {self.dim} must be a multiple of heads = {self.heads}.")


@dataclass(frozen=True)
class StackSettings(BlockSettings):
    """The settings of a stack that has positions."""

    positions: PositionName = "learned"  # positional encoding


def stack_of(
    config: BlockSettings,
    *,
    longest: int,
    cross: bool = False,
    causal: bool = False,
    places: Positions | None = None,
) -> Stack:
    """Build a Stack; `longest` limits learned positions. `places` are used instead of the settings' own positions."""
    if places is None and config.positions != "none":
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
        epsilon=config.epsilon,
        bias=config.bias,
        gated=config.gated,
        head_dim=config.head_dim,
        scaled=config.scaled_scores,
        shared=config.shared,
        entry=config.entry,
        cross=cross,
        positions=places,
    )

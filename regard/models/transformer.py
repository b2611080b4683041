"""transformer: attention is all that carries information from one position to another.

x ← x + Attention(x), x ← x + FFN(x), layer upon layer, on both sides; the decoder's attention sees no future.
Vaswani et al. 2017, section 3. Any two positions are one step apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.config import DEPTH, SHARE, WIDTH, between, keep_within
from regard.interface import PAD
from regard.layers.attention import Attention, Memory
from regard.layers.dropout import Dropout
from regard.layers.encoders import Embedding, Encoded, TransformerEncoder
from regard.layers.heads import SoftmaxHead
from regard.layers.positions import PositionName, Positions, position
from regard.layers.transformer import Cache, Stack, causal
from regard.models.design import Design, Vocabulary
from regard.models.encoder_decoder import EncoderDecoder


@dataclass(frozen=True)
class Config:
    dim: int = 256  # width of every state
    heads: int = 4  # looks at once; dim must be a multiple of it
    feed_forward: int = 1024  # width inside the feed-forward layers
    layers: int = 3  # encoder layers, and as many decoder layers
    norm: Literal["pre", "post"] = "pre"  # normalise before each part, or after adding it
    normalisation: Literal["layer", "batch"] = "layer"  # over a token's features, or over the batch's real tokens
    positions: PositionName = "sinusoidal"  # how a token knows where it stands
    longest: int = 1024  # positions a learned table holds
    tie: bool = True  # the output matrix is the target embedding, and the source's too where the vocabulary is joint
    dropout: float = 0.1  # on embeddings and on what each part adds
    label_smoothing: float = 0.1  # share of the target's probability spread over the vocabulary

    def __post_init__(self) -> None:
        keep_within(self, WIDTH, "dim", "heads", "feed_forward")
        keep_within(self, DEPTH, "layers")
        keep_within(self, between(2, 1_000_000), "longest")  # a token and its <eos>
        keep_within(self, SHARE, "dropout", "label_smoothing")
        if self.dim % self.heads:
            raise ValueError(f"dim = {self.dim} must be a multiple of heads = {self.heads}.")


PRESETS = {
    "tiny": Config(dim=128, heads=4, feed_forward=256, layers=4, dropout=0.3),
    "base": Config(dim=512, heads=8, feed_forward=2048, layers=6, norm="post"),
    "big": Config(dim=1024, heads=16, feed_forward=4096, layers=6, norm="post", dropout=0.3),
}

SIZES = (
    Config(dim=128, heads=4, feed_forward=512, layers=2),
    Config(dim=256, heads=4, feed_forward=1024, layers=3),
    Config(dim=384, heads=6, feed_forward=1536, layers=4),
    Config(dim=512, heads=8, feed_forward=2048, layers=6),
)


class TransformerDecoder(nn.Module):
    def __init__(
        self, *, embed: nn.Module, positions: nn.Module, stack: Stack, head: SoftmaxHead, dropout: float
    ) -> None:
        super().__init__()
        self.embed = embed
        self.positions = positions
        self.dropout = Dropout(dropout)
        self.stack = stack
        self.head = head

    def looks_back(self) -> tuple[Attention, ...]:
        crossings = (block.cross_attention for block in self.stack.blocks)
        return tuple(crossing.attention for crossing in crossings if crossing)

    def place(self, tokens: Tensor, places: Tensor) -> Tensor:
        placed: Tensor = self.dropout(self.positions(self.embed(tokens), places))
        return placed  # (rows, time, dim)

    def forward(self, tokens: Tensor, encoded: Encoded) -> Tensor:
        time = tokens.shape[1]
        placed = self.place(tokens, torch.arange(time, device=tokens.device))
        memories = self.stack.memories(encoded.states, encoded.mask)
        states: Tensor
        states, _ = self.stack(placed, mask=causal(time, tokens.device), real=tokens != PAD, memories=memories)
        return states  # (batch, target, dim)

    def start(self, encoded: Encoded) -> tuple[tuple[Memory, ...], tuple[Cache, ...]]:
        memories = self.stack.memories(encoded.states, encoded.mask)
        return memories, self.stack.caches(encoded.mask.shape[0])

    def step(
        self, tokens: Tensor, memory: tuple[Memory, ...], carry: tuple[Cache, ...]
    ) -> tuple[Tensor, tuple[Cache, ...]]:
        placed = self.place(tokens[:, None], carry[0].lengths[:, None])
        states, caches = self.stack(placed, memories=memory, caches=carry)
        return states[:, 0], caches  # (rows, dim)


def build(config: Config, vocabulary: Vocabulary) -> EncoderDecoder:
    def embedding(vocab: int) -> Embedding:
        return Embedding(vocab=vocab, dim=config.dim)

    def positions() -> Positions:
        return position(config.positions, dim=config.dim, longest=config.longest)

    def stack(cross: bool) -> Stack:
        return Stack(
            dim=config.dim,
            heads=config.heads,
            hidden=config.feed_forward,
            layers=config.layers,
            dropout=config.dropout,
            norm=config.norm,
            normalisation=config.normalisation,
            cross=cross,
        )

    target = embedding(vocabulary.target)
    source = target if config.tie and vocabulary.joint else embedding(vocabulary.source)
    places = positions()
    encoder = TransformerEncoder(embed=source, positions=places, stack=stack(cross=False), dropout=config.dropout)
    head = SoftmaxHead(
        dim=config.dim,
        vocab=vocabulary.target,
        tied=target.weight if config.tie else None,
        smoothing=config.label_smoothing,
    )
    decoder = TransformerDecoder(
        embed=target, positions=positions(), stack=stack(cross=True), head=head, dropout=config.dropout
    )
    return EncoderDecoder(encoder, decoder, longest=places.longest)


DESIGN = Design(
    name="transformer",
    paper="Vaswani et al.: Attention is all you need",
    year=2017,
    tasks=("translation",),
    config=Config,
    build=build,
    path="1",
    sizes=SIZES,
    presets=PRESETS,
)

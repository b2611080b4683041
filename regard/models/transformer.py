"""transformer: an encoder-decoder in which only attention carries information between positions.

x ← x + Attention(x), x ← x + FFN(x) in each layer of both sides; the decoder's self-attention is causal.
Vaswani et al. 2017, section 3. Any two positions are one step apart.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.config import Depth, Length, Share
from regard.interface import Padded, Shapes
from regard.layers.attention import Attention
from regard.layers.encoders import Embedding, Encoded, TransformerEncoder
from regard.layers.heads import Head
from regard.layers.positions import PositionName
from regard.layers.transformer import ActivationName, Caches, Memories, Stack, causal
from regard.models.design import Design
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.parts import PAIR_SIZES, StackSettings, embeddings_of, head_of, stack_of


@dataclass(frozen=True)
class Config(StackSettings):
    layers: Depth = 3  # encoder layers, and as many decoder layers
    normalisation: Literal["layer", "batch"] = "layer"  # layer normalisation, or batch normalisation
    activation: ActivationName = "relu"  # inside the feed-forward layers
    positions: PositionName = "sinusoidal"  # positional encoding
    longest: Length = 1024  # positions a learned table holds
    tie: bool = True  # the output matrix is the target embedding, and the source's too where the vocabulary is joint
    label_smoothing: Share = 0.1  # label smoothing: share of the target's probability spread over the vocabulary


class TransformerDecoder(nn.Module):
    """Causal self-attention, and cross-attention to the source. `lead`: a token that it reads before every target."""

    def __init__(self, embed: Embedding, stack: Stack, head: Head, *, lead: int | None = None) -> None:
        super().__init__()
        self.embed = embed
        self.stack = stack
        self.head = head
        self.lead = lead

    def looks_back(self) -> tuple[Attention, ...]:
        crossings = (block.cross_attention for block in self.stack.blocks)
        return tuple(crossing.attention for crossing in crossings if crossing)

    def forward(self, target: Padded, encoded: Encoded) -> Tensor:
        memories = self.stack.memories(encoded.states, encoded.mask)
        if self.lead is not None:
            target = target.led_by(self.lead)
        mask = causal(target.mask.shape[1], target.mask.device)
        states: Tensor
        states, _ = self.stack(self.embed(target.values), mask=mask, real=target.mask, memories=memories)
        return states if self.lead is None else states[:, 1:]  # (batch, target, dim)

    def start(self, encoded: Encoded) -> tuple[Memories, Caches]:
        memories = self.stack.memories(encoded.states, encoded.mask)
        caches = self.stack.caches(encoded.mask.shape[0])
        if self.lead is not None:
            _, caches = self.step(torch.full_like(encoded.mask[:, 0], self.lead, dtype=torch.long), memories, caches)
        return memories, caches

    def step(self, tokens: Tensor, memory: Memories, carry: Caches) -> tuple[Tensor, Caches]:
        states, caches = self.stack(self.embed(tokens[:, None]), memories=memory, caches=carry)
        return states[:, 0], caches  # (rows, dim)


def build(config: Config, shapes: Shapes) -> EncoderDecoder:
    source, target = embeddings_of(config, shapes, config.dim)
    stack = stack_of(config, longest=config.longest)
    encoder = TransformerEncoder(embed=source, stack=stack)
    head = head_of(config, target)
    decoder = TransformerDecoder(target, stack_of(config, longest=config.longest, cross=True, causal=True), head)
    return EncoderDecoder(encoder, decoder, longest=stack.positions.longest)


DESIGN = Design(
    name="transformer",
    paper="Vaswani et al.: Attention is all you need",
    year=2017,
    tasks=("translation", "denoising"),
    config=Config,
    build=build,
    path="1",
    sizes=tuple(Config(**size) for size in PAIR_SIZES),
    presets={
        "tiny": Config(dim=128, heads=4, feed_forward=256, layers=4, dropout=0.3),
        "base": Config(**PAIR_SIZES[-1], norm="post"),
        "marian": Config(**PAIR_SIZES[-1], norm="post", positions="sinusoidal-halves", activation="silu"),
        "big": Config(dim=1024, heads=16, feed_forward=4096, layers=6, norm="post", dropout=0.3),
    },
)

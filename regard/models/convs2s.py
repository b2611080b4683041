"""convs2s: convolutions on both sides, with attention to the source in every decoder layer.

yᵢ = glu(A [hᵢ₋w₊₁; …; hᵢ] + b);   dᵢ = W yᵢ + b + gᵢ;   αᵢ = softmaxⱼ(dᵢᵀ zⱼ);   cᵢ = Σⱼ αᵢⱼ (zⱼ + eⱼ)
hᵢ ← hᵢ + yᵢ + C cᵢ in each layer            Gehring et al. 2017, section 3
e and g are the tokens' own vectors with their positions; z is the output of the encoder for e.

Each sum of two is multiplied by √½, and c by √m for m source tokens, so that the variance stays the same (3.4).
Vectors start with components of about 1, not 0.1: therefore dᵀz / √dim, and smaller weights before a gate than in 3.5.
All positions are computed in parallel; words n apart interact after n / (w − 1) layers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, NamedTuple, cast

import torch
from torch import Tensor, nn

from regard.config import Depth, Length, Settings, Share, Width, between
from regard.interface import Padded, Shapes
from regard.layers.attention import Attention, Memory, Scaled
from regard.layers.convolution import GatedConvolution, evenly, steady, with_ends
from regard.layers.dropout import Dropout
from regard.layers.encoders import Embedding, Encoded
from regard.layers.positions import AddedName, position
from regard.models.design import Design
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.parts import embeddings_of, head_of


@dataclass(frozen=True)
class Config(Settings):
    embedding: Width = 256  # width of a word's vector, and of the attention keys and values
    hidden: Width = 256  # width of every convolution's output
    layers: Depth = 6  # encoder layers, and as many decoder layers
    width: Annotated[int, between(2, 100)] = 3  # tokens in a window
    positions: AddedName = "learned"  # positional encoding
    longest: Length = 1024  # positions a learned table holds
    tie: bool = True  # the output matrix is the target embedding, and the source's too where the vocabulary is joint
    dropout: Share = 0.1  # on embeddings, on each convolution's input and before the output
    label_smoothing: Share = 0.1  # share of the target's probability spread over the vocabulary


class Side(nn.Module):
    """The input of both sides: embeddings with positions, and the projection to the convolutions' width."""

    def __init__(self, config: Config, embed: Embedding) -> None:
        super().__init__()
        self.embed = embed
        self.positions = position(config.positions, dim=config.embedding, longest=config.longest)
        self.enter = steady(config.embedding, config.hidden, gain=1 - config.dropout)
        self.dropout = Dropout(config.dropout)

    def vectors(self, tokens: Tensor, places: Tensor) -> Tensor:
        vectors: Tensor = self.dropout(self.positions(self.embed(tokens), places))
        return vectors  # (rows, time, embedding)


def convolution(config: Config) -> GatedConvolution:
    return GatedConvolution(dim=config.hidden, width=config.width, dropout=config.dropout)


class GatedEncoder(Side):
    """h ← √½ (h + glu(A h + b)), layer by layer; the attention keys are the last layer, z, and the values
    include the token itself, z + e (3.2 and 3.3)."""

    def __init__(self, config: Config, embed: Embedding) -> None:
        super().__init__(config, embed)
        convolutions = nn.ModuleList(convolution(config) for _ in range(config.layers))
        self.convolutions = cast(Sequence[GatedConvolution], convolutions)
        self.leave = steady(config.hidden, config.embedding)

    def forward(self, source: Padded) -> Encoded:
        mask = source.mask  # (batch, source)
        embedded = self.vectors(source.values, torch.arange(mask.shape[1], device=mask.device))
        x = self.enter(embedded)
        for convolution in self.convolutions:
            x = x.masked_fill(~mask[..., None], 0.0)
            x = evenly(x, convolution(with_ends(x, convolution.width)))
        states = self.leave(x)
        return Encoded(states, mask, (), evenly(states, embedded))


class Carry(NamedTuple):
    before: tuple[Tensor, ...]  # per layer, the last width − 1 vectors it read: (rows, width − 1, hidden)
    places: Tensor  # (rows,): position of the next token


class Layer(nn.Module):
    """A gated convolution over the target so far, and attention to the source."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.convolution = convolution(config)
        self.query = steady(config.hidden, config.embedding)
        self.attention = Attention(score=Scaled())
        self.told = steady(config.embedding, config.hidden)

    def start(self, states: Tensor) -> Tensor:
        return states.new_zeros(states.shape[0], self.convolution.width - 1, self.convolution.dim)

    def forward(self, x: Tensor, own: Tensor, memory: Memory, before: Tensor) -> tuple[Tensor, Tensor]:
        """x (rows, time, hidden), own (rows, time, embedding) -> (rows, time, hidden), and the last vectors read.

        An example's hypotheses are query positions of its memory.
        """
        read = torch.cat([before, x], 1)  # (rows, width − 1 + time, hidden)
        made = self.convolution(read)
        query = evenly(self.query(made), own)
        context = self.attention(query.view(memory.keys.shape[0], -1, own.shape[-1]), memory).view_as(own)
        return evenly(x, evenly(made, self.told(context))), read[:, x.shape[1] :]


class ConvolutionalDecoder(Side):
    def __init__(self, config: Config, embed: Embedding) -> None:
        super().__init__(config, embed)
        self.layers = cast(Sequence[Layer], nn.ModuleList(Layer(config) for _ in range(config.layers)))
        self.leave = steady(config.hidden, config.embedding)
        self.head = head_of(config, embed)

    def looks_back(self) -> tuple[Attention, ...]:
        return tuple(layer.attention for layer in self.layers)

    def start(self, encoded: Encoded) -> tuple[Memory, Carry]:
        """Prepare one memory, which all layers share."""
        length = encoded.mask.sum(1).to(encoded.values.dtype)
        values = encoded.values * length.sqrt()[:, None, None]
        memory = self.layers[0].attention.memory(encoded.states, values, encoded.mask)
        places = torch.zeros_like(length, dtype=torch.long)
        return memory, Carry(tuple(layer.start(encoded.states) for layer in self.layers), places)

    def read(self, tokens: Tensor, memory: Memory, carry: Carry) -> tuple[Tensor, Carry]:
        """(rows, time) -> (rows, time, embedding): whole targets, or the next token of each."""
        time = tokens.shape[1]
        places = carry.places[:, None] + torch.arange(time, device=tokens.device)
        own = self.vectors(tokens, places)
        x, after = self.enter(own), []
        for layer, before in zip(self.layers, carry.before, strict=True):
            x, last = layer(x, own, memory, before)
            after.append(last)
        return self.dropout(self.leave(x)), Carry(tuple(after), carry.places + time)

    def forward(self, target: Padded, encoded: Encoded) -> Tensor:
        return self.read(target.values, *self.start(encoded))[0]

    def step(self, tokens: Tensor, memory: Memory, carry: Carry) -> tuple[Tensor, Carry]:
        states, carry = self.read(tokens[:, None], memory, carry)
        return states[:, 0], carry


def build(config: Config, shapes: Shapes) -> EncoderDecoder:
    source, target = embeddings_of(config, shapes, config.embedding)
    encoder = GatedEncoder(config, source)
    return EncoderDecoder(encoder, ConvolutionalDecoder(config, target), longest=encoder.positions.longest)


DESIGN = Design(
    name="convs2s",
    paper="Gehring et al.: Convolutional sequence to sequence learning",
    year=2017,
    tasks=("translation",),
    config=Config,
    build=build,
    path="1 from target to source; n / (width − 1) within a side",
    sizes=tuple(
        Config(embedding=width, hidden=width, layers=layers)
        for width, layers in ((128, 4), (256, 6), (384, 8), (512, 12))
    ),
)

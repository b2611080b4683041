"""convs2s: windows upon windows on both sides, and every layer of the decoder looks back at the source.

yᵢ = glu(A [hᵢ₋w₊₁; …; hᵢ] + b);   dᵢ = W yᵢ + b + gᵢ;   αᵢ = softmaxⱼ(dᵢᵀ zⱼ);   cᵢ = Σⱼ αᵢⱼ (zⱼ + eⱼ)
hᵢ ← hᵢ + yᵢ + C cᵢ, layer upon layer        Gehring et al. 2017, section 3
e and g are the tokens' own vectors with their positions; z is what the encoder makes of e.

Each sum of two is multiplied by √½, and c by √m for m source tokens, so that depth and length enlarge nothing (3.4).
Vectors begin with components of about 1, not 0.1: therefore dᵀz / √dim, and smaller weights before a gate than in 3.5.
All positions are read at once; words n apart meet after n / (w − 1) layers.
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
from regard.layers.convolution import GatedConvolution, evenly, steady
from regard.layers.dropout import Dropout
from regard.layers.encoders import Embedding, Encoded, GatedEncoder
from regard.layers.heads import SoftmaxHead
from regard.layers.positions import AddedName, Positions, position
from regard.models.design import Design, size_of
from regard.models.encoder_decoder import EncoderDecoder


@dataclass(frozen=True)
class Config(Settings):
    embedding: Width = 256  # width of a word's vector, and of what the decoder looks at
    hidden: Width = 256  # width of every convolution's output
    layers: Depth = 6  # encoder layers, and as many decoder layers
    width: Annotated[int, between(2, 100)] = 3  # tokens in a window
    positions: AddedName = "learned"  # how a token knows where it stands
    longest: Length = 1024  # positions a learned table holds
    tie: bool = True  # the output matrix is the target embedding, and the source's too where the vocabulary is joint
    dropout: Share = 0.1  # on embeddings, on what each convolution reads and before the output
    label_smoothing: Share = 0.1  # share of the target's probability spread over the vocabulary


class Carry(NamedTuple):
    before: tuple[Tensor, ...]  # per layer, the last width − 1 vectors it read: (rows, width − 1, hidden)
    places: Tensor  # (rows,): of the next token


class Layer(nn.Module):
    """A gated convolution over the target so far, and a look at the source."""

    def __init__(self, *, embedding: int, hidden: int, width: int, dropout: float) -> None:
        super().__init__()
        self.convolution = GatedConvolution(dim=hidden, width=width, dropout=dropout)
        self.query = steady(hidden, embedding)
        self.attention = Attention(score=Scaled())
        self.told = steady(embedding, hidden)

    def start(self, states: Tensor) -> Tensor:
        return states.new_zeros(len(states), self.convolution.width - 1, self.convolution.dim)

    def forward(self, x: Tensor, own: Tensor, memory: Memory, before: Tensor) -> tuple[Tensor, Tensor]:
        """x (rows, time, hidden), own (rows, time, embedding) -> (rows, time, hidden), the last of what was read.

        An example's hypotheses are query positions of its memory.
        """
        read = torch.cat([before, x], 1)  # (rows, width − 1 + time, hidden)
        made = self.convolution(read)
        query = evenly(self.query(made), own)
        context = self.attention(query.view(memory.keys.shape[0], -1, own.shape[-1]), memory).view_as(own)
        return evenly(x, evenly(made, self.told(context))), read[:, x.shape[1] :]


class ConvolutionalDecoder(nn.Module):
    def __init__(
        self,
        *,
        embed: Embedding,
        positions: Positions,
        enter: nn.Linear,
        layers: Sequence[Layer],
        leave: nn.Linear,
        head: SoftmaxHead,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embed = embed
        self.positions = positions
        self.enter = enter
        self.layers = cast(Sequence[Layer], nn.ModuleList(layers))
        self.leave = leave
        self.head = head
        self.dropout = Dropout(dropout)

    def looks_back(self) -> tuple[Attention, ...]:
        return tuple(layer.attention for layer in self.layers)

    def start(self, encoded: Encoded) -> tuple[Memory, Carry]:
        """All layers look at one memory."""
        length = encoded.mask.sum(1).to(encoded.values.dtype)
        values = encoded.values * length.sqrt()[:, None, None]
        memory = self.layers[0].attention.memory(encoded.states, values, encoded.mask)
        places = torch.zeros_like(length, dtype=torch.long)
        return memory, Carry(tuple(layer.start(encoded.states) for layer in self.layers), places)

    def read(self, tokens: Tensor, memory: Memory, carry: Carry) -> tuple[Tensor, Carry]:
        """(rows, time) -> (rows, time, embedding): whole targets, or the next token of each."""
        time = tokens.shape[1]
        places = carry.places[:, None] + torch.arange(time, device=tokens.device)
        own = self.dropout(self.positions(self.embed(tokens), places))  # (rows, time, embedding)
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
    def embedding(vocab: int) -> Embedding:
        return Embedding(vocab=vocab, dim=config.embedding)

    def positions() -> Positions:
        return position(config.positions, dim=config.embedding, longest=config.longest)

    def enter() -> nn.Linear:
        return steady(config.embedding, config.hidden, gain=1 - config.dropout)

    def leave() -> nn.Linear:
        return steady(config.hidden, config.embedding)

    target = embedding(size_of(shapes.target))
    source = target if config.tie and shapes.joint else embedding(size_of(shapes.source))
    places = positions()
    encoder = GatedEncoder(
        embed=source,
        positions=places,
        enter=enter(),
        convolutions=[
            GatedConvolution(dim=config.hidden, width=config.width, dropout=config.dropout)
            for _ in range(config.layers)
        ],
        leave=leave(),
        dropout=config.dropout,
    )
    decoder = ConvolutionalDecoder(
        embed=target,
        positions=positions(),
        enter=enter(),
        layers=[
            Layer(
                embedding=config.embedding,
                hidden=config.hidden,
                width=config.width,
                dropout=config.dropout,
            )
            for _ in range(config.layers)
        ],
        leave=leave(),
        head=SoftmaxHead(
            dim=config.embedding,
            vocab=size_of(shapes.target),
            tied=target.weight if config.tie else None,
            smoothing=config.label_smoothing,
        ),
        dropout=config.dropout,
    )
    return EncoderDecoder(encoder, decoder, longest=places.longest)


DESIGN = Design(
    name="convs2s",
    paper="Gehring et al.: Convolutional sequence to sequence learning",
    year=2017,
    tasks=("translation",),
    config=Config,
    build=build,
    path="1 from what it writes to what it read; n / (width − 1) within a side",
    sizes=tuple(
        Config(embedding=width, hidden=width, layers=layers)
        for width, layers in ((128, 4), (256, 6), (384, 8), (512, 12))
    ),
)

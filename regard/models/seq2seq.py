"""seq2seq: a recurrent encoder-decoder with one fixed vector between encoder and decoder.

hₜ = f(xₜ, hₜ₋₁);   sₜ = g(yₜ₋₁, sₜ₋₁, c)
Three variants: c only as s₀ (Sutskever 2014, section 2), c at every step (Cho 2014, 2.2), c = the mean of the h's.
With `lexical`, Σᵢ xᵢ / √n, the sum of the word vectors, is a part of c at every step.
The decoder knows the sentence only through c, however long it is.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import torch
from torch import Tensor, nn

from regard.config import Depth, Share, Width
from regard.interface import Padded, Shapes, Tree
from regard.layers.attention import Attention
from regard.layers.dropout import Dropout
from regard.layers.encoders import Embedding, Encoded, RecurrentEncoder
from regard.layers.heads import SoftmaxHead
from regard.models.design import Design, size_of
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.parts import RecurrentSettings, recurrent_of

Rung = Literal["first", "every", "mean"]


@dataclass(frozen=True)
class Config(RecurrentSettings):
    hidden: Width = 384  # width of the hidden state, and of the fixed vector
    layers: Depth = 2  # recurrent layers on each side
    context: Rung = "first"  # where the fixed vector enters: first (as s₀), every (step), mean (of states, every step)
    reverse: bool = True  # read the source from right to left
    lexical: bool = False  # the sum of the word vectors is part of the fixed vector
    dropout: Share = 0.1  # on embeddings, between layers and before the output
    label_smoothing: Share = 0.0  # label smoothing: share of the target's probability spread over the vocabulary


def fixed_vector(rung: Rung, encoded: Encoded) -> Tensor | None:
    """Return the part of c that enters at every step, (batch, ·), or None if c enters only as s₀."""
    mask = encoded.mask[..., None]
    count = mask.sum(1)  # (batch, 1)
    parts = []
    if rung == "every":
        parts.append(encoded.final[-1][0])
    elif rung == "mean":
        parts.append((encoded.states * mask).sum(1) / count)
    own = encoded.values[..., : encoded.values.shape[-1] - encoded.states.shape[-1]]
    if own.shape[-1]:
        parts.append((own * mask).sum(1) / count.sqrt())
    return torch.cat(parts, -1) if parts else None


class FixedVectorDecoder(nn.Module):
    """A recurrent language model of the target that starts from c, or reads c at every step."""

    def __init__(self, config: Config, vocab: int) -> None:
        super().__init__()
        width = (0 if config.context == "first" else config.hidden) + (config.embedding if config.lexical else 0)
        self.embed = Embedding(vocab=vocab, dim=config.embedding, dropout=config.dropout)
        self.recurrent = recurrent_of(config, config.embedding + width)
        self.context: Rung = config.context
        self.dropout = Dropout(config.dropout)
        self.head = SoftmaxHead(dim=config.hidden, vocab=vocab, smoothing=config.label_smoothing)

    def looks_back(self) -> tuple[Attention, ...]:
        return ()

    def start(self, encoded: Encoded) -> tuple[Tree, Tree]:
        first = encoded.final
        if self.context == "mean":  # only the mean enters, not the final state as s₀
            first = self.recurrent.start(encoded.mask.shape[0])
        return fixed_vector(self.context, encoded), first

    def forward(self, target: Padded, encoded: Encoded) -> Tensor:
        vector, state = self.start(encoded)
        embedded = self.embed(target.values)  # (batch, target, embedding)
        if vector is not None:
            every_step = vector[:, None].expand(-1, embedded.shape[1], -1)
            embedded = torch.cat([embedded, every_step], -1)
        states, _ = self.recurrent(embedded, state=state)
        hidden: Tensor = self.dropout(states)
        return hidden  # (batch, target, hidden)

    def step(self, tokens: Tensor, memory: Tree, carry: Tree) -> tuple[Tensor, Tree]:
        embedded = self.embed(tokens)  # (rows, embedding)
        if memory is not None:
            width = tokens.shape[0] // memory.shape[0]
            embedded = torch.cat([embedded, memory.repeat_interleave(width, 0)], -1)
        return self.recurrent.step(embedded, carry)


def build(config: Config, shapes: Shapes) -> EncoderDecoder:
    encoder = RecurrentEncoder(
        embed=Embedding(vocab=size_of(shapes.source), dim=config.embedding, dropout=config.dropout),
        recurrent=recurrent_of(config, config.embedding),
        reverse=config.reverse,
        lexical=config.lexical,
    )
    return EncoderDecoder(encoder, FixedVectorDecoder(config, size_of(shapes.target)))


DESIGN = Design(
    name="seq2seq",
    paper="Sutskever, Vinyals, Le: Sequence to sequence learning with neural networks",
    year=2014,
    tasks=("translation",),
    config=Config,
    build=build,
    path="n, through one vector",
    sizes=tuple(Config(embedding=width, hidden=width, label_smoothing=0.1) for width in (128, 256, 384, 512)),
)

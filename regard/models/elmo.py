"""elmo: two recurrent language models, one for each direction; for other tasks, a learned mixture of their layers.

→hⱼ,ₜ = fⱼ(→hⱼ₋₁,ₜ, →hⱼ,ₜ₋₁),  ←hⱼ,ₜ = gⱼ(←hⱼ₋₁,ₜ, ←hⱼ,ₜ₊₁),  →h₀ = ←h₀ = x;  x and the softmax are shared by both
    objective  −Σₜ [ln P(xₜ₊₁ | →h_L,ₜ) + ln P(xₜ₋₁ | ←h_L,ₜ)]                                  Peters 2018, section 3.1
    for a task vₜ = γ Σⱼ softmax(s)ⱼ [→hⱼ,ₜ ; ←hⱼ,ₜ], s and γ learned                                        section 3.2
Each layer's output is narrowed to the width of x where that differs. Perplexity and generated text are those of the
forward model; both see windows of `context` tokens, the backward one from their end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, cast

import torch
from torch import Tensor, nn

from regard.config import Depth, Length
from regard.interface import Batch, Ids, Inside, Loss, Padded, Shapes, Tree
from regard.layers.cells import cell_named
from regard.layers.dropout import Dropout
from regard.layers.encoders import Embedding, Encoded
from regard.layers.heads import HeadName, head
from regard.layers.inside import inside_of, recurrences_in
from regard.layers.pooling import POOLS
from regard.layers.recurrent import SKIPS, Recurrent, Skip
from regard.models.design import READING, Design, size_of
from regard.models.encoder_head import EncoderWithHead, headed
from regard.models.language_model import WindowedModel
from regard.models.parts import RecurrentSettings, refuse_tied


@dataclass(frozen=True)
class Config(RecurrentSettings):
    layers: Depth = 2  # recurrent layers in each direction
    skip: Skip = "residual"  # skip connection around each layer: none, residual (added) or highway (through a gate)
    context: Length = 256  # window length in tokens
    tie: bool = True  # weight tying: the output matrix is the embedding
    head: HeadName = "softmax"  # output layer: softmax, or adaptive (adaptive softmax: cheaper for rare words)
    pool: Literal["attention", "mean", "max", "last"] = "attention"  # for classification: pooling of the states

    def __post_init__(self) -> None:
        super().__post_init__()
        refuse_tied(self.head, self.tie)


class Layer(nn.Module):
    """One recurrent layer in one direction, narrowed to the width of its input."""

    def __init__(self, config: Config, *, first: bool, reverse: bool) -> None:
        super().__init__()
        width, hidden = config.embedding, config.hidden
        self.recurrent = Recurrent(cell=cell_named(config.cell), input_dim=width, hidden=hidden, reverse=reverse)
        self.narrow = nn.Linear(hidden, width) if hidden != width else None
        self.skip = None if first or config.skip == "none" else SKIPS[config.skip](width)
        self.dropout = Dropout(0.0 if first else config.dropout)  # the embedding has its own

    def forward(self, x: Tensor, mask: Tensor | None = None, state: Tree = None) -> tuple[Tensor, Tree]:
        states, after = self.recurrent(self.dropout(x), mask, state)
        if self.narrow is not None:
            states = self.narrow(states)
        return states if self.skip is None else self.skip(x, states), after


class BothWays(nn.Module):
    """The layers of both directions. As the body of a language model it reads forwards."""

    def __init__(self, config: Config) -> None:
        super().__init__()

        def layers(reverse: bool) -> Sequence[Layer]:
            made = (Layer(config, first=layer == 0, reverse=reverse) for layer in range(config.layers))
            return cast(Sequence[Layer], nn.ModuleList(made))

        self.forwards, self.backwards = layers(False), layers(True)

    def start(self, rows: int) -> Tree:
        return tuple(layer.recurrent.start(rows) for layer in self.forwards)

    def forward(self, x: Tensor, real: Tensor | None = None, state: Tree = None) -> tuple[Tensor, Tree]:
        after = []
        for layer, before in zip(self.forwards, state or [None] * len(self.forwards), strict=True):
            x, final = layer(x, real, before)
            after.append(final)
        return x, tuple(after)


def outputs(layers: Sequence[Layer], x: Tensor, mask: Tensor) -> list[Tensor]:
    """Return x and the output of every layer: (batch, time, dim) each."""
    found = [x]
    for layer in layers:
        found.append(layer(found[-1], mask)[0])
    return found


class TwoWayModel(WindowedModel):
    """The language model: it learns both directions; it scores and generates with the forward one."""

    body: BothWays

    def loss(self, batch: Batch) -> Loss:
        assert batch.target is not None
        forwards, read = super().loss(batch), batch.target.after()
        states = self.dropout(outputs(self.body.backwards, self.embed(read.values), read.mask)[-1])
        before = Padded(batch.target.before().values, read.mask)  # what stands before each token that was read
        backwards = self.head.loss(states, before)
        return forwards._replace(objective=forwards.objective + backwards.objective)

    def encode(self, batch: Batch) -> Padded:
        """Encode each token by the states of both directions."""
        ahead, mask = super().encode(batch)
        assert batch.target is not None
        back = outputs(self.body.backwards, self.embed(batch.target.before().values), mask)[-1]
        return Padded(torch.cat([ahead, back], -1), mask)

    def inspect(self) -> Inside:
        return inside_of(self, (), recurrences_in(cast(nn.Module, self.body.forwards), "target"))


class Mixture(nn.Module):
    """γ Σⱼ softmax(s)ⱼ hⱼ."""

    def __init__(self, layers: int) -> None:
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(layers))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, layers: Sequence[Tensor]) -> Tensor:
        shares = (self.scale * self.scores.softmax(0)).to(layers[0].dtype)
        return torch.stack([share * states for share, states in zip(shares, layers, strict=True)]).sum(0)


class TwoWayEncoder(nn.Module):
    """The body under a head: one vector for each token, a mixture of all layers of both directions."""

    def __init__(self, embed: Embedding, body: BothWays, layers: int) -> None:
        super().__init__()
        self.embed = embed
        self.body = body
        self.mix = Mixture(1 + layers)

    def forward(self, source: Padded) -> Encoded:
        x, mask = self.embed(source.values), source.mask
        halves = (self.body.forwards, self.body.backwards)
        ahead, back = (self.mix(outputs(half, x, mask)) for half in halves)
        states = torch.cat([ahead, back], -1)  # (batch, source, 2 · embedding)
        ends = torch.arange(len(mask), device=mask.device), source.lengths - 1
        final = torch.cat([ahead[ends], back[:, 0]], -1)  # of each direction, after all tokens
        return Encoded(states, mask, ((final,),), states)


def build(config: Config, shapes: Shapes) -> TwoWayModel | EncoderWithHead:
    writes = isinstance(shapes.target, Ids)
    vocab = size_of(shapes.target if writes else shapes.source)
    embed = Embedding(vocab=vocab, dim=config.embedding, dropout=config.dropout)
    body = BothWays(config)
    if writes:
        words = head(config.head, dim=config.embedding, vocab=vocab, tied=embed.weight if config.tie else None)
        return TwoWayModel(embed=embed, body=body, head=words, context=config.context, dropout=config.dropout)
    encoder = TwoWayEncoder(embed, body, config.layers)
    pool = POOLS[config.pool]
    return headed(encoder, shapes, dim=2 * config.embedding, pool=pool, dropout=config.dropout)


DESIGN = Design(
    name="elmo",
    paper="Peters et al.: Deep contextualized word representations",
    year=2018,
    tasks=("language", *READING),
    config=Config,
    build=build,
    path="n",
    sizes=tuple(Config(embedding=width, hidden=width) for width in (128, 256, 512, 768)),
    presets={
        "small": Config(embedding=128, hidden=1024, tie=False),
        "original": Config(embedding=512, hidden=4096, tie=False),
    },
)

"""rnnsearch: a recurrent encoder-decoder with attention; the decoder attends to all source words at every step.

eₜᵢ = score(sₜ₋₁, hᵢ);   αₜ = softmax(eₜ);   cₜ = Σᵢ αₜᵢ hᵢ;   sₜ = f(yₜ₋₁, sₜ₋₁, cₜ);   s₀ = tanh(W ←h₁)
p(yₜ) from [sₜ; cₜ; yₜ₋₁]        Bahdanau, Cho, Bengio 2015, section 3.1 and A.1.2

lexical: cₜ = Σᵢ αₜᵢ [xᵢ; hᵢ], so that rare words reach the output unmixed (after Nguyen & Chiang 2018, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

from regard.config import Depth, Share, Width
from regard.interface import Padded, Shapes
from regard.layers.attention import ONE_WIDTH, Attention, Memory, MultiHead, ScoreName, score
from regard.layers.cells import Cell, CellName, cell_named
from regard.layers.cells import State as CellState
from regard.layers.dropout import Dropout
from regard.layers.encoders import Embedding, Encoded, RecurrentEncoder
from regard.layers.fast.weight_gradients import gathered
from regard.layers.heads import Head
from regard.layers.inside import attentions_in
from regard.layers.recurrent import Recurrent, note_step
from regard.models.design import Design, size_of
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.parts import RecurrentSettings, head_of, recurrent_of


@dataclass(frozen=True)
class Config(RecurrentSettings):
    layers: Depth = 1  # recurrent layers on each side; the first decoder layer attends
    cell: CellName | str = "gru"  # the recurrent cell, or a user-defined one: my_cells.py:Name
    score: ScoreName = "additive"  # attention score between a decoder state and a source state
    heads: Width = 1  # attention heads; more than 1 implies projections
    project: bool = False  # attend to learned projections of the source states; dot and scaled always do
    lexical: bool = False  # attention values include the word's own vector, not only its state
    tie: bool = True  # weight tying: the output matrix is the target embedding
    dropout: Share = 0.1  # on embeddings, source states and before the output
    label_smoothing: Share = 0.0  # label smoothing: share of the target's probability spread over the vocabulary

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.hidden % self.heads:
            raise ValueError(f"hidden = {self.hidden} must be a multiple of heads = {self.heads}.")

    @property
    def value_dim(self) -> int:
        """Return the width of the attention values."""
        return 2 * self.hidden + (self.embedding if self.lexical else 0)


Looks = tuple[Tensor, ...]  # the context of each query, and whatever else a decoder keeps of its attention


class Carry(NamedTuple):
    attending: CellState  # state of the layer that attends
    upper: tuple[CellState, ...]  # states of the layers above it


class AttentiveDecoder(nn.Module):
    """A recurrent layer that also reads the attention context of its previous state; plain layers above; a readout.
    A subclass may start from another vector (`summary`) and attend in another way (`look`)."""

    def __init__(
        self,
        *,
        embed: Embedding,
        cell: Cell,
        attention: nn.Module,  # an Attention or a MultiHead; with another one, `look` is a subclass's own
        value_dim: int,  # width of the context
        summary_dim: int,  # width of the vector from which the first state is computed
        started: int = 1,  # how many parts of the first state are; the others are 0
        upper: Recurrent | None,
        head: Head,
        dropout: float,
    ) -> None:
        super().__init__()
        self.embed, self.attention, self.cell = embed, attention, cell
        projected = cell.inputs(torch.zeros(1, embed.dim)).shape[-1]
        self.told = nn.Linear(value_dim, projected, bias=False)
        self.first = nn.Linear(summary_dim, started * cell.hidden)
        self.upper = upper
        self.readout = nn.Linear(cell.hidden + value_dim + embed.dim, embed.dim)
        self.head, self.dropout = head, Dropout(dropout)

    def looks_back(self) -> tuple[Attention, ...]:
        return tuple(attentions_in(self.attention))

    def summary(self, encoded: Encoded) -> Tensor:
        """Return the vector from which the first state is computed: ←h₁, which has read the whole sentence."""
        return encoded.states[:, 0, -self.cell.hidden :]

    def start(self, encoded: Encoded) -> tuple[Memory, Carry]:
        batch, begun = encoded.mask.shape[0], torch.tanh(self.first(self.summary(encoded)))
        given = begun.view(batch, -1, self.cell.hidden).unbind(1)
        carry = Carry((*given, *self.cell.start(batch)[len(given) :]), self.upper.start(batch) if self.upper else ())
        return self.attention.memory(encoded.states, encoded.values, encoded.mask), carry  # type: ignore[operator]

    def look(self, query: Tensor, memory: Memory) -> Looks:
        """Attend from the states (batch, width, hidden): the context, (batch, width, value_dim), comes first."""
        return (self.attention(query, memory),)

    def look_then_move(self, read: Tensor, memory: Memory, state: CellState) -> tuple[Looks, CellState]:
        """Compute cₜ, with what else `look` returns, and sₜ, from the projection of yₜ₋₁ (rows, projected) and sₜ₋₁.

        cₜ enters by its own matrix, W yₜ₋₁ + C cₜ (A.1.1), so W yₜ₋₁ can be computed for all steps together. An
        example's hypotheses are query positions of its memory.
        """
        query = state[0].view(memory.values.shape[0], -1, self.cell.hidden)  # (batch, width, hidden)
        looked = tuple(part.flatten(0, 1) for part in self.look(query, memory))  # (rows, ·) each
        projected = read + self.told(looked[0])
        after = self.cell.step(projected, state)
        note_step(self.cell, projected, state, after)
        return looked, after

    def hidden(self, states: Tensor, contexts: Tensor, embedded: Tensor) -> Tensor:
        read: Tensor = self.dropout(torch.tanh(self.readout(torch.cat([states, contexts, embedded], -1))))
        return read  # (…, embedding)

    def read(self, target: Padded, encoded: Encoded) -> tuple[Tensor, Looks]:
        """Return the hidden states, (batch, target, embedding), and what `look` returned, (batch, target, ·) each."""
        memory, carry = self.start(encoded)
        embedded = self.embed(target.values)  # (batch, target, embedding)
        state, seen, moved = carry.attending, [], []
        with gathered(self):
            for read in self.cell.inputs(embedded).unbind(1):
                looked, state = self.look_then_move(read, memory, state)
                seen.append(looked)
                moved.append(state[0])
        states = torch.stack(moved, 1)  # (batch, target, hidden)
        if self.upper:
            states, _ = self.upper(states, state=carry.upper)
        every = tuple(torch.stack(parts, 1) for parts in zip(*seen, strict=True))
        return self.hidden(states, every[0], embedded), every

    def forward(self, target: Padded, encoded: Encoded) -> Tensor:
        return self.read(target, encoded)[0]

    def step(self, tokens: Tensor, memory: Memory, carry: Carry) -> tuple[Tensor, Carry]:
        embedded = self.embed(tokens)  # (rows, embedding)
        (context, *_), attending = self.look_then_move(self.cell.inputs(embedded), memory, carry.attending)
        states, upper = self.upper.step(attending[0], carry.upper) if self.upper else (attending[0], ())
        return self.hidden(states, context, embedded), Carry(attending, upper)


def attention(config: Config) -> Attention | MultiHead:
    """Build the attention over the source states, 2·hidden wide: on the states themselves or on projections."""
    memory_dim = 2 * config.hidden
    if config.heads == 1 and not config.project and config.score not in ONE_WIDTH:
        plain = score(config.score, query_dim=config.hidden, key_dim=memory_dim, hidden=config.hidden)
        return Attention(score=plain)
    width = config.hidden // config.heads
    return MultiHead(
        heads=config.heads,
        query_dim=config.hidden,
        key_dim=memory_dim,
        value_dim=config.value_dim,
        value_head_dim=memory_dim // config.heads,
        out_dim=config.value_dim,
        score=score(config.score, query_dim=width, key_dim=width, hidden=width),
    )


def build(config: Config, shapes: Shapes) -> EncoderDecoder:
    encoder = RecurrentEncoder(
        embed=Embedding(vocab=size_of(shapes.source), dim=config.embedding, dropout=config.dropout),
        recurrent=recurrent_of(config, config.embedding, bidirectional=True),
        dropout=config.dropout,
        lexical=config.lexical,
    )
    upper = recurrent_of(config, config.hidden, layers=config.layers - 1) if config.layers > 1 else None
    embed = Embedding(vocab=size_of(shapes.target), dim=config.embedding, dropout=config.dropout)
    decoder = AttentiveDecoder(
        embed=embed,
        cell=cell_named(config.cell)(input_dim=config.embedding, hidden=config.hidden),
        attention=attention(config),
        value_dim=config.value_dim,
        summary_dim=config.hidden,
        upper=upper,
        head=head_of(config, embed),
        dropout=config.dropout,
    )
    return EncoderDecoder(encoder, decoder)


DESIGN = Design(
    name="rnnsearch",
    paper="Bahdanau, Cho, Bengio: Neural machine translation by jointly learning to align and translate",
    year=2015,
    tasks=("translation",),
    config=Config,
    build=build,
    path="1 from target to source; n within a side",
    sizes=tuple(Config(embedding=width, hidden=width, label_smoothing=0.1) for width in (128, 256, 384, 512)),
)

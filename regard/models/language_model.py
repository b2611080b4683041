"""The model behind every neural language model: embed, read, predict the next token.

P(x) = ∏ₜ P(xₜ | x₁ … xₜ₋₁). A body reads vectors from left to right; a head turns its states into distributions.
"""

from __future__ import annotations

from typing import Protocol

import torch
from torch import Tensor, nn

from regard.interface import PAD, Batch, Inside, Loss, Padded, State, Tree
from regard.layers.dropout import Dropout
from regard.layers.heads import Head, log_probs_of
from regard.layers.inside import attentions_in, inside_of, recurrences_in, seen


class Body(Protocol):
    """Reads any number of vectors at once, (batch, time, dim) -> (batch, time, hidden), from the beginning (state None)
    or continuing from a state.

    When it continues from a state, it may return fewer positions than it was given, if the last is among them.
    """

    def __call__(self, x: Tensor, real: Tensor | None = None, state: Tree = None) -> tuple[Tensor, Tree]: ...

    def start(self, rows: int) -> Tree: ...  # the initial state


class LanguageModel(nn.Module):
    place: Tensor  # empty; it is on the model's device

    def __init__(self, *, embed: nn.Module, body: Body, head: Head, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = embed
        self.body = body
        self.head = head
        self.dropout = Dropout(dropout)
        self.register_buffer("place", torch.empty(0), persistent=False)

    # --- whole texts, or windows of them ---

    def loss(self, batch: Batch) -> Loss:
        hidden, recent, answers, after = self._read(batch)
        return self.head.loss(hidden, answers, recent)._replace(state=after)

    def encode(self, batch: Batch) -> Padded:
        assert batch.target is not None
        return Padded(self._read(batch)[0], batch.target.but_end().before().mask)

    def logits(self, batch: Batch) -> Tensor:
        hidden, recent, _, _ = self._read(batch)
        return self.head.logits(hidden, recent)  # (batch, target - 1, vocab)

    def log_probs(self, batch: Batch) -> tuple[Tensor, Tree]:
        hidden, recent, answers, after = self._read(batch)
        return log_probs_of(self.head.logits(hidden, recent), answers), after  # (batch, target - 1)

    def _read(self, batch: Batch) -> tuple[Tensor, Tensor, Padded, Tree]:
        """Return hidden states, the latest tokens at each position, the targets, and the state after the last column.

        Padding is at the end, so predictions never depend on it; the state after padding has no meaning.
        """
        assert batch.target is not None
        tokens = batch.target.values[:, :-1]
        body, latest = (None, self._nothing_yet(len(tokens))) if batch.state is None else batch.state
        hidden, body = self.body(self.embed(tokens), None, body)
        recent, latest = _recent(latest, tokens)
        return self.dropout(hidden), recent, batch.target.after(), (body, latest)

    # --- one token at a time ---

    def start(self, batch: Batch) -> State:
        """Read all but the last token of each row."""
        assert batch.target is not None
        tokens, real = batch.target.but_end().before()  # (rows, time)
        body, latest = self.body.start(tokens.shape[0]), self._nothing_yet(tokens.shape[0])
        if tokens.shape[1]:
            _, body = self.body(self.embed(tokens), real, body)
            read = torch.cat([latest, tokens], 1)
            ends = real.sum(1, keepdim=True) + torch.arange(self.head.reach, device=tokens.device)
            latest = read.gather(1, ends)
        return State(None, (body, latest))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        body, latest = state.carry
        hidden, body = self.body(self.embed(tokens[:, None]), None, body)
        recent, latest = _recent(latest, tokens[:, None])
        logits = self.head.logits(self.dropout(hidden[:, -1:]), recent)[:, 0]
        return logits, State(state.memory, (body, latest), state.width)

    def _nothing_yet(self, rows: int) -> Tensor:
        """Return the latest tokens before the first one: (rows, reach)."""
        return torch.full((rows, self.head.reach), PAD, device=self.place.device)

    def inspect(self) -> Inside:
        attentions = seen(attentions_in(self), "self", "target", "target")
        return inside_of(self, attentions, recurrences_in(self, "target"))


class CarryingModel(LanguageModel):
    """Carries its hidden state from window to window, however long the text (`Carries`)."""

    def begin(self, rows: int) -> Tree:
        """Return the initial state: the body's, and the latest tokens for the head."""
        return self.body.start(rows), self._nothing_yet(rows)


class WindowedModel(LanguageModel):
    """Has a context of `context` tokens and sees nothing before them (`Windowed`)."""

    def __init__(self, *, embed: nn.Module, body: Body, head: Head, context: int, dropout: float = 0.0) -> None:
        super().__init__(embed=embed, body=body, head=head, dropout=dropout)
        self.context = context


def _recent(latest: Tensor, tokens: Tensor) -> tuple[Tensor, Tensor]:
    """Return the last `reach` tokens at each position, its own included, (rows, time, reach), and at the end."""
    reach, time = latest.shape[1], tokens.shape[1]
    if not reach:
        return tokens.new_empty(*tokens.shape, 0), latest
    joined = torch.cat([latest, tokens], 1)
    return joined.unfold(1, reach, 1)[:, 1 : time + 1], joined[:, time:]

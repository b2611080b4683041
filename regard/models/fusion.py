"""Shallow fusion: an encoder-decoder, and a language model beside it that knows which texts are likely.

score(y) = log P(y | x) + β log P_LM(y) + γ |y|, token by token: the same search as without it
Gulcehre et al. 2015, section 4.1; the reward γ of a token keeps outputs from becoming short.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from regard.interface import EOS, Batch, Bounded, Generates, State


class LanguageModel(nn.Module):
    """A language model that scores the tokens of another model: token i there is token ids[i] here."""

    ids: Tensor

    def __init__(self, model: nn.Module, *, ids: Sequence[int], opening: Sequence[int]) -> None:
        super().__init__()
        self.model = model
        self.opening = tuple(opening)  # the ids that stand before a text
        self.register_buffer("ids", torch.tensor(ids))

    def begin(self, rows: int) -> State:
        """Return the state before the last token of the opening, which stands for <bos>."""
        tokens = torch.tensor([self.opening], device=self.ids.device).expand(rows, -1)
        return cast(Generates, self.model).start(Batch.of_text(tokens))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        """ln P of every token of the other model after these: (rows, vocab)."""
        logits, after = cast(Generates, self.model).step(self.ids[tokens], state)
        return logits.float().log_softmax(-1)[:, self.ids], after


class Fused(nn.Module):
    fused = True

    def __init__(self, model: nn.Module, lm: LanguageModel, *, weight: float, reward: float) -> None:
        super().__init__()
        self.model, self.lm = model, lm
        self.weight, self.reward = weight, reward
        self.longest = model.longest if isinstance(model, Bounded) else None

    def start(self, batch: Batch) -> State:
        state, beside = cast(Generates, self.model).start(batch), self.lm.begin(batch.size)
        return State((state.memory, beside.memory), (state.carry, beside.carry))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        (memory, beside), (carry, carried) = state.memory, state.carry
        logits, after = cast(Generates, self.model).step(tokens, State(memory, carry, state.width))
        likely, read = self.lm.step(tokens, State(beside, carried, state.width))
        scores = logits.float().log_softmax(-1) + self.weight * likely
        scores[:, :EOS] += self.reward
        scores[:, EOS + 1 :] += self.reward
        return scores, State(state.memory, (after.carry, read.carry), state.width)

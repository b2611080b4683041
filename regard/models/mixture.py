"""Interpolation of several models: P(x) = Σₖ wₖ Pₖ(x), token by token.

An n-gram model with a neural network, or an ensemble of translators: all models that start and step can be mixed, if
they share one vocabulary.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import cast

import torch
from torch import Tensor, nn

from regard.interface import Batch, Bounded, Carries, Generates, Scores, State, Tree, Windowed


class Mixture(nn.Module):
    weights: Tensor

    def __init__(self, models: Sequence[nn.Module], weights: Sequence[float] | None = None) -> None:
        super().__init__()
        self.models = nn.ModuleList(models)
        shares = torch.tensor(weights or [1.0] * len(models), dtype=torch.float64)
        self.register_buffer("weights", shares / shares.sum())  # (models,)
        rooms = [model.longest for model in models if isinstance(model, Bounded)]
        self.longest = min((room for room in rooms if room is not None), default=None)
        if sights := [model.context for model in models if isinstance(model, Windowed)]:
            self.context = min(sights)  # `Windowed` if one of them is
        if all(isinstance(model, Carries) for model in models):
            self.begin = self._begin  # `Carries` if all of them do

    def _begin(self, rows: int) -> Tree:
        return tuple(cast(Carries, model).begin(rows) for model in self.models)

    def start(self, batch: Batch) -> State:
        states = [cast(Generates, model).start(batch) for model in self.models]
        return State(tuple(state.memory for state in states), tuple(state.carry for state in states))

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        each, carries = [], []
        for model, memory, carry in zip(self.models, state.memory, state.carry, strict=True):
            logits, after = cast(Generates, model).step(tokens, State(memory, carry, state.width))
            each.append(logits.double().log_softmax(-1))
            carries.append(after.carry)
        return self._mixed(torch.stack(each)).float(), State(state.memory, tuple(carries), state.width)

    def log_probs(self, batch: Batch) -> tuple[Tensor, Tree]:
        each, after = [], []
        for model, state in zip(self.models, batch.state or [None] * len(self.models), strict=True):
            scored, state = cast(Scores, model).log_probs(dataclasses.replace(batch, state=state))
            each.append(scored.double())
            after.append(state)
        return self._mixed(torch.stack(each)), tuple(after)

    def _mixed(self, log_probs: Tensor) -> Tensor:
        """(models, …) -> (…)"""
        shares = self.weights.log().view(-1, *[1] * (log_probs.dim() - 1))
        return (log_probs + shares).logsumexp(0)

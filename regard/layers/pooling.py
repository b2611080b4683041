"""Pooling: one vector for a whole sentence, from the hidden states of its tokens.

last        [→h_T ; ←h₁], the final state of each direction
mean, max   over the real tokens, each feature by itself
first       the state of the token before the sentence (<cls>: Devlin 2019)
end         the state of the last token, which has read all others (the extract token: Radford 2018, section 3.3)
attention   Σᵢ αᵢ hᵢ, α = softmax(score(q, hᵢ)), q learned: which words decide      Yang 2016, section 2.2
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn

from regard.layers.attention import Attention, ScoreName, score
from regard.layers.encoders import Encoded


class Last(nn.Module):
    def forward(self, encoded: Encoded) -> Tensor:
        return encoded.final[-1][0]  # (batch, dim)


class Mean(nn.Module):
    def forward(self, encoded: Encoded) -> Tensor:
        real = encoded.mask[..., None].to(encoded.states.dtype)  # (batch, source, 1)
        return (encoded.states * real).sum(1) / real.sum(1)


class Max(nn.Module):
    def forward(self, encoded: Encoded) -> Tensor:
        return encoded.states.masked_fill(~encoded.mask[..., None], -torch.inf).amax(1)


class First(nn.Module):
    def forward(self, encoded: Encoded) -> Tensor:
        return encoded.states[:, 0]


class End(nn.Module):
    def forward(self, encoded: Encoded) -> Tensor:
        rows = torch.arange(len(encoded.mask), device=encoded.mask.device)
        return encoded.states[rows, encoded.mask.sum(1) - 1]  # (batch, dim)


class Attentive(nn.Module):
    """One learned query attends to every token."""

    def __init__(self, dim: int, *, name: ScoreName = "additive") -> None:
        super().__init__()
        self.query = nn.Parameter(nn.init.normal_(torch.empty(dim), std=dim**-0.5))
        self.attention = Attention(score=score(name, query_dim=dim, key_dim=dim, hidden=dim))

    def forward(self, encoded: Encoded) -> Tensor:
        memory = self.attention.memory(encoded.states, encoded.states, encoded.mask)
        query = self.query.to(encoded.states.dtype).expand(len(encoded.states), 1, -1)  # (batch, 1, dim)
        pooled: Tensor = self.attention(query, memory)
        return pooled[:, 0]  # (batch, dim)


POOLS: dict[str, Callable[[int], nn.Module]] = {  # of dim
    "last": lambda dim: Last(),
    "mean": lambda dim: Mean(),
    "max": lambda dim: Max(),
    "first": lambda dim: First(),
    "end": lambda dim: End(),
    "attention": Attentive,
}

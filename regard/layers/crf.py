"""A linear-chain conditional random field: a score for each tag at each word, and for each tag after each tag.

    s(x, y) = Σₜ eₜ[yₜ] + Σₜ A[yₜ₋₁, yₜ] + b[y₁] + f[y_T];   p(y | x) = exp s(x, y) / Σ_y' exp s(x, y')
                                                                        Lafferty 2001; Lample 2016, section 2.2
The forward algorithm sums over all tag sequences, the Viterbi algorithm finds the best one, both in O(T · tags²).
"""

from __future__ import annotations

import torch
from torch import Tensor, nn


class CRF(nn.Module):
    """The transition scores between tags."""

    def __init__(self, tags: int) -> None:
        super().__init__()
        self.after = nn.Parameter(torch.zeros(tags, tags))  # [before, after]
        self.first = nn.Parameter(torch.zeros(tags))
        self.last = nn.Parameter(torch.zeros(tags))

    def score(self, emissions: Tensor, tags: Tensor, mask: Tensor) -> Tensor:
        """s(x, y): emissions (batch, time, tags); tags and mask (batch, time), padded at the end -> (batch,)."""
        tags = tags.masked_fill(~mask, 0)
        here = emissions.gather(-1, tags[..., None])[..., 0] * mask  # (batch, time)
        moves = self.after[tags[:, :-1], tags[:, 1:]] * mask[:, 1:]
        ends = tags.gather(1, mask.sum(1, keepdim=True) - 1)[:, 0]
        return here.sum(1) + moves.sum(1) + self.first[tags[:, 0]] + self.last[ends]

    def log_total(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """ln Σ_y exp s(x, y) -> (batch,)."""
        alpha = self.first + emissions[:, 0]  # (batch, tags)
        for now, real in zip(emissions.unbind(1)[1:], mask.unbind(1)[1:], strict=True):
            moved = torch.logsumexp(alpha[:, :, None] + self.after, dim=1) + now
            alpha = torch.where(real[:, None], moved, alpha)
        return torch.logsumexp(alpha + self.last, dim=1)

    def best(self, emissions: Tensor, mask: Tensor) -> Tensor:
        """Return the most probable tag sequence: (batch, time), 0 at padding."""
        alpha = self.first + emissions[:, 0]
        parents = []
        for now, real in zip(emissions.unbind(1)[1:], mask.unbind(1)[1:], strict=True):
            moved, parent = (alpha[:, :, None] + self.after).max(dim=1)  # (batch, tags)
            stay = torch.arange(alpha.shape[1], device=alpha.device).expand_as(parent)
            parents.append(torch.where(real[:, None], parent, stay))
            alpha = torch.where(real[:, None], moved + now, alpha)
        tag = (alpha + self.last).argmax(1)
        path = [tag]
        for parent in reversed(parents):
            tag = parent.gather(1, tag[:, None])[:, 0]
            path.append(tag)
        return torch.stack(path[::-1], 1) * mask

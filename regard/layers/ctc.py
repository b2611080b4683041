"""Connectionist temporal classification (CTC): a text from steps over time, without knowing which step is which token.

P(y | x) = Σ_π Πₜ P(πₜ | x), over all paths π of tokens and blanks that collapse to y: repeats are merged, then blanks
removed.  Graves 2006, section 3. The blank is BLANK, the id of <pad>, which no text contains.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import groupby

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from regard.interface import BLANK, BOS, EOS, Loss, Padded
from regard.layers.attention import Linear
from regard.layers.dropout import Dropout

IMPOSSIBLE = float("-inf")
LEAST = -1e4  # in training: its exponential is 0, and its gradient a number


class CTCHead(nn.Module):
    """ln P of each token, or BLANK, at each state. <bos> and <eos> are not emitted."""

    def __init__(self, *, dim: int, vocab: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.linear = Linear(dim, vocab)

    def forward(self, states: Padded, least: float = IMPOSSIBLE) -> Padded:
        """(batch, steps, dim) -> (batch, steps, vocab), at least in float32; `least` is what is not emitted."""
        logits = self.linear(self.dropout(states.values))
        exact = logits.to(torch.promote_types(logits.dtype, torch.float32)).clone()
        exact[..., BOS : EOS + 1] = least
        return Padded(exact.log_softmax(-1), states.mask)

    def loss(self, states: Padded, target: Padded) -> Loss:
        """−ln P of each text, <bos> … <eos>. One with more tokens than there are steps, whose probability is 0, has no
        gradient: speed augmentation may shorten a recording too far."""
        nll = -total(self(states, LEAST), target, zero_infinity=True).sum()
        return Loss(nll, nll.detach(), int(target.after().mask.sum()))


def total(log_probs: Padded, target: Padded, *, zero_infinity: bool = False) -> Tensor:
    """Return ln P of each text, <bos> … <eos>, given ln P of tokens at each step, (batch,); of an impossible one −∞,
    or 0 without a gradient."""
    words = target.after().but_end()  # without <bos> and <eos>
    nll = functional.ctc_loss(
        log_probs.values.transpose(0, 1),
        words.values,
        log_probs.lengths,
        words.lengths,
        blank=BLANK,
        reduction="none",
        zero_infinity=zero_infinity,
    )
    return -nll


def collapsed(path: Sequence[int]) -> list[int]:
    """Return the text of a path: repeats are merged, blanks removed."""
    return [token for token, _ in groupby(path) if token != BLANK]


def aligned(log_probs: Tensor, tokens: Sequence[int]) -> list[tuple[int, int]]:
    """Return the first and the last step of each token on the most probable path of this text, from ln P (steps,
    vocab). There is none if the text is longer than the steps allow: the tokens are then spread evenly."""
    scores: NDArray[np.float64] = log_probs.detach().cpu().double().numpy()
    states = [BLANK]
    for token in tokens:
        states += [token, BLANK]
    emitted = scores[:, states]  # (steps, states): blank, first token, blank, second token, …
    may_skip = np.array([place > 1 and each not in (BLANK, states[place - 2]) for place, each in enumerate(states)])
    best = np.full(len(states), IMPOSSIBLE)
    best[: min(2, len(states))] = emitted[0, :2] if len(scores) else IMPOSSIBLE
    came = np.zeros(emitted.shape, np.int64)  # how many states back the best path was a step before
    for step in range(1, len(emitted)):
        back = np.full((3, len(states)), IMPOSSIBLE)
        back[0], back[1, 1:] = best, best[:-1]
        back[2, 2:] = np.where(may_skip[2:], best[:-2], IMPOSSIBLE)
        came[step] = back.argmax(0)
        best = back.max(0) + emitted[step]
    last = len(states) - 1
    if last and best[last - 1] > best[last]:
        last -= 1
    if not len(scores) or best[last] == IMPOSSIBLE:
        return _spread(len(tokens), len(scores))
    path = [last]
    for step in range(len(emitted) - 1, 0, -1):
        path.append(path[-1] - int(came[step, path[-1]]))
    steps = np.array(path[::-1])
    found = (np.nonzero(steps == 2 * place + 1)[0] for place in range(len(tokens)))
    return [(int(some[0]), int(some[-1])) for some in found]


def _spread(tokens: int, steps: int) -> list[tuple[int, int]]:
    edges = np.linspace(0, max(1, steps), tokens + 1).astype(int)
    return [(int(start), max(int(start), int(end) - 1)) for start, end in zip(edges, edges[1:], strict=False)]

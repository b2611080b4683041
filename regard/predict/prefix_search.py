"""Decoding by CTC: the best path, or prefix beam search with a language model beside it.

A text's probability is the sum over its paths. Prefix beam search adds up, for each prefix of a text, the paths that
end in a blank (b) and in its last token (n), step by step:
    b' = (b + n) P(blank)      n' = n P(last token)      and for the prefix with one token c more:
    n' = (b + n) P(c), or b P(c) if c is the last token again: a repeat needs a blank before it
Hannun 2014, section 3. A prefix is ranked by  log P(prefix | x) + β log P_LM(prefix) + γ |prefix|.
A token is left out where its probability is below 10⁻⁶ of the largest of its step: most steps are blank, and then fast.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.interface import BLANK, BOS, EOS
from regard.layers.ctc import IMPOSSIBLE, collapsed
from regard.models.fusion import LanguageModel
from regard.predict.decoding import Decoding
from regard.predict.search import Hypothesis

LEAST = -13.8  # ln 10⁻⁶, of a token's probability, against the largest of its step
Floats = NDArray[np.float64]
Prefix = tuple[int, ...]


def best_path(log_probs: Tensor) -> Hypothesis:
    """Return the text of the most probable path (steps, vocab), with ln P of this path alone."""
    best = log_probs.max(-1)
    return Hypothesis(tuple(collapsed(best.indices.tolist())), float(best.values.sum()), finished=True)


@dataclass
class Beam:
    """Prefixes with ln P of their paths; with a language model, what it makes of each."""

    prefixes: list[Prefix] = field(default_factory=lambda: [()])
    blank: Floats = field(default_factory=lambda: np.zeros(1))  # b
    token: Floats = field(default_factory=lambda: np.full(1, IMPOSSIBLE))  # n
    likely: Floats = field(default_factory=lambda: np.zeros(1))  # ln P_LM of each prefix

    @property
    def total(self) -> Floats:
        both: Floats = np.logaddexp(self.blank, self.token)
        return both


class Memory:
    """The language model's state after each prefix of a beam, and ln P of the token that comes next: a row for each."""

    def __init__(self, lm: LanguageModel) -> None:
        self.lm = lm
        self.next, self.state = lm.step(torch.tensor([BOS], device=lm.ids.device), lm.begin(1))

    def grow(self, kept: Sequence[int], parents: Sequence[int], tokens: Sequence[int]) -> None:
        """Keep these rows, followed by new ones: each continues a row with a token."""
        rows = torch.tensor(kept, dtype=torch.long, device=self.next.device)
        after, state = self.next[rows], self.state.keep(rows)
        if parents:
            each = torch.tensor(parents, device=self.next.device)
            more, read = self.lm.step(torch.tensor(tokens, device=self.next.device), self.state.keep(each))
            after = torch.cat([after, more]) if kept else more
            state = state.join(read) if kept else read
        self.next, self.state = after, state

    def of(self, tokens: NDArray[np.int64]) -> Floats:
        """ln P of these tokens after each prefix: (prefixes, tokens)."""
        found: Floats = self.next[:, torch.from_numpy(tokens).to(self.next.device)].double().cpu().numpy()
        return found


@torch.inference_mode()
def prefix_search(log_probs: Tensor, how: Decoding, lm: LanguageModel | None = None) -> list[Hypothesis]:
    """Return the texts of a beam, best first, from ln P of tokens at each step, (steps, vocab)."""
    scores: Floats = log_probs.double().cpu().numpy()
    beam, memory = Beam(), Memory(lm) if lm else None
    for step in scores:
        beam = advanced(beam, step, how, memory)
    likely = beam.likely + (memory.of(np.array([EOS]))[:, 0] if memory else 0.0)
    ranks = ranked(beam.total, likely, beam.prefixes, how)
    order = np.argsort(-ranks, kind="stable")
    return [Hypothesis(beam.prefixes[place], float(ranks[place]), finished=True) for place in order]


def ranked(total: Floats, likely: Floats, prefixes: Sequence[Prefix], how: Decoding) -> Floats:
    lengths = np.array([len(prefix) for prefix in prefixes], np.float64)
    ranks: Floats = total + how.lm_weight * likely + how.length_reward * lengths
    return ranks


def advanced(beam: Beam, step: Floats, how: Decoding, memory: Memory | None) -> Beam:
    """Read one step, ln P (vocab,), and keep the best `how.beam` prefixes."""
    place = {prefix: row for row, prefix in enumerate(beam.prefixes)}
    last = np.array([prefix[-1] if prefix else BLANK for prefix in beam.prefixes])
    total = beam.total
    stays_blank = total + step[BLANK]
    stays_token = np.where(last == BLANK, IMPOSSIBLE, beam.token + step[last])
    tokens = candidates(step, how.beam)
    if not len(tokens):
        return replace(beam, blank=stays_blank, token=stays_token)
    grown = total[:, None] + step[tokens]  # (prefixes, tokens)
    again = last[:, None] == tokens
    grown = np.where(again, beam.blank[:, None] + step[tokens], grown)  # a repeat needs a blank before it
    after = memory.of(tokens) if memory else np.zeros(grown.shape)
    parents, columns = np.nonzero(grown > IMPOSSIBLE)
    fresh_parents, fresh_tokens, fresh_scores, fresh_likely = [], [], [], []
    for parent, column in zip(parents.tolist(), columns.tolist(), strict=True):
        prefix = (*beam.prefixes[parent], int(tokens[column]))
        row = place.get(prefix)
        if row is not None:
            stays_token[row] = np.logaddexp(stays_token[row], grown[parent, column])
            continue
        fresh_parents.append(parent)
        fresh_tokens.append(int(tokens[column]))
        fresh_scores.append(grown[parent, column])
        fresh_likely.append(beam.likely[parent] + after[parent, column])
    prefixes = [*beam.prefixes, *((*beam.prefixes[p], t) for p, t in zip(fresh_parents, fresh_tokens, strict=True))]
    none = np.full(len(fresh_scores), IMPOSSIBLE)
    blank, token = np.concatenate([stays_blank, none]), np.concatenate([stays_token, fresh_scores])
    likely = np.concatenate([beam.likely, fresh_likely])
    ranks = ranked(np.logaddexp(blank, token), likely, prefixes, how)
    best = np.sort(np.argsort(-ranks, kind="stable")[: how.beam])
    old = len(beam.prefixes)
    if memory:
        new = [place - old for place in best.tolist() if place >= old]
        kept = [place for place in best.tolist() if place < old]
        memory.grow(kept, [fresh_parents[each] for each in new], [fresh_tokens[each] for each in new])
    return Beam([prefixes[place] for place in best.tolist()], blank[best], token[best], likely[best])


def candidates(step: Floats, width: int) -> NDArray[np.int64]:
    """Return the most probable tokens of a step, at most `width`, without the blank and what is hardly possible."""
    order = np.argsort(-step, kind="stable")
    tokens: NDArray[np.int64] = order[order != BLANK][:width]
    possible: NDArray[np.int64] = tokens[step[tokens] > step.max() + LEAST]
    return possible

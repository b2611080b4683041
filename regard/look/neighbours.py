"""Nearest neighbours: the tokens with the most similar embeddings.

cos(u, v) = u·v / (‖u‖ ‖v‖), over the rows of the model's input embedding.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.data.tokens import Tokenizer
from regard.interface import UNK, UserError
from regard.look.weights import inside
from regard.run import Run

COUNT = 10
INSIDE = "…"  # marks a sub-word inside a word


@dataclass(frozen=True)
class Neighbour:
    word: str
    cosine: float


@dataclass(frozen=True)
class Neighbours:
    word: str
    nearest: tuple[Neighbour, ...]  # the nearest first


def neighbours(run: Run, word: str, *, count: int = COUNT) -> Neighbours:
    """Find the nearest neighbours of a token; the embedding is that of the source if there are two."""
    if count < 1:
        raise UserError(f"A count of {count} is not possible: give 1 or more.")
    vectors: Any = inside(run.model).vectors
    if vectors is None:
        raise UserError(f"{run.model_title} has no word embedding and so no neighbours: choose another model.")
    tokenizer = run.tokenizer()
    own = token_of(tokenizer, word)
    table = vectors.weight.detach().double().cpu()[tokenizer.offset :]  # (vocab, dim)
    if len(table) == 1:
        raise UserError(f"{word!r} is the only token of the vocabulary and has no neighbours: choose another run.")
    near = nearest(table, own - tokenizer.offset, count)
    names = shown(tokenizer, [own, *(tokenizer.offset + place for place, _ in near)])
    return Neighbours(names[0], tuple(Neighbour(n, cosine) for n, (_, cosine) in zip(names[1:], near, strict=True)))


def nearest(table: Tensor, own: int, count: int) -> list[tuple[int, float]]:
    """Return the rows of (vocab, dim) nearest to one of them, without itself."""
    cosines = torch.nn.functional.cosine_similarity(table, table[own], dim=-1)
    cosines[own] = -torch.inf
    best = cosines.topk(min(count, len(table) - 1))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def token_of(tokenizer: Tokenizer, word: str) -> int:
    """Return the token with this text, at the beginning of a word or else inside one."""
    for ids in (tokenizer.encode(word), tokenizer.encode_all([word], continued=True)[0]):
        if len(ids) == 1 and ids[0] != UNK:
            return ids[0]
    known = tokenizer.surface(range(tokenizer.offset, tokenizer.size))
    close = difflib.get_close_matches(word, dict.fromkeys(known), n=5, cutoff=0.5)
    nearest = f"try one of {', '.join(close)}." if close else "it has no similar spelling: give another word."
    raise UserError(f"{word!r} is not one token of the vocabulary ({tokenizer.kind}): {nearest}")


def shown(tokenizer: Tokenizer, tokens: list[int]) -> list[str]:
    """Return readable names; sub-words inside a word start with a mark."""
    names = zip(tokenizer.surface(tokens), tokens, strict=True)
    return [INSIDE + name if tokenizer.continues(token) else name for name, token in names]

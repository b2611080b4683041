"""neighbours: the tokens whose vectors point the same way.

cos(u, v) = u·v / (‖u‖ ‖v‖), over the table that the model reads its tokens with.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from regard.data.tokens import BytePairs, Tokenizer
from regard.interface import UNK, UserError
from regard.look.weights import inside
from regard.run import Run

COUNT = 10
INSIDE = "…"  # before a piece that goes on within a word


@dataclass(frozen=True)
class Neighbour:
    word: str
    cosine: float


@dataclass(frozen=True)
class Neighbours:
    word: str
    nearest: tuple[Neighbour, ...]  # the nearest first


def neighbours(run: Run, word: str, *, count: int = COUNT) -> Neighbours:
    """Of a token of the source side, where there are two."""
    if count < 1:
        raise UserError(f"A count of {count} is not possible: it must be 1 or more.")
    vectors: Any = inside(run.model).vectors
    if vectors is None:
        raise UserError(f"{run.model_title} has no vectors of words: it has no neighbours to show.")
    tokenizer = run.tokenizer()
    own = token_of(tokenizer, word)
    table = vectors.weight.detach().double().cpu()[tokenizer.offset :]  # (vocab, dim)
    near = nearest(table, own - tokenizer.offset, count)
    names = shown(tokenizer, [own, *(tokenizer.offset + place for place, _ in near)])
    return Neighbours(names[0], tuple(Neighbour(n, cosine) for n, (_, cosine) in zip(names[1:], near, strict=True)))


def nearest(table: Tensor, own: int, count: int) -> list[tuple[int, float]]:
    """The rows of (vocab, dim) nearest to one of them, itself left out."""
    cosines = torch.nn.functional.cosine_similarity(table, table[own], dim=-1)
    cosines[own] = -torch.inf
    best = cosines.topk(min(count, len(table) - 1))
    return list(zip(best.indices.tolist(), best.values.tolist(), strict=True))


def token_of(tokenizer: Tokenizer, word: str) -> int:
    """The one token that is this text, at the beginning of a word or else within one."""
    for ids in (tokenizer.encode(word), tokenizer.encode_all([word], continued=True)[0]):
        if len(ids) == 1 and ids[0] != UNK:
            return ids[0]
    known = tokenizer.surface(range(tokenizer.offset, tokenizer.size))
    close = difflib.get_close_matches(word, dict.fromkeys(known), n=5, cutoff=0.5)
    nearest = f"the nearest spellings are {', '.join(close)}." if close else "nothing in it is spelt like that."
    raise UserError(f"{word!r} is not one token of the vocabulary ({tokenizer.kind}): {nearest}")


def shown(tokenizer: Tokenizer, tokens: list[int]) -> list[str]:
    """As they can be read; sub-words that stand within a word have a sign before them."""
    names = tokenizer.surface(tokens)
    if not isinstance(tokenizer, BytePairs):
        return names
    pieces = [tokenizer.bytes[token - tokenizer.offset] for token in tokens]
    return [n if piece[:1].isspace() else INSIDE + n for n, piece in zip(names, pieces, strict=True)]

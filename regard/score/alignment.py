"""Word alignments: links between the words of a source and of its translation."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.data.tokens import Piece
from regard.interface import UserError

Links = frozenset[tuple[int, int]]  # (source word, target word)


def strongest_links(weights: NDArray[np.floating]) -> Links:
    """Link each target word to the source word with the highest weight; to none where that is <eos>, the last column.

    weights (target words, source words + <eos>)
    """
    best = weights.argmax(1)
    return frozenset((int(source), target) for target, source in enumerate(best) if source < weights.shape[1] - 1)


def diagonal_links(source_words: int, target_words: int) -> Links:
    """Compute the baseline: link each target word to the source word at the same relative position."""
    return frozenset((min(source_words - 1, t * source_words // target_words), t) for t in range(target_words))


def read_links(line: str) -> Links:
    """Read links such as "0-0 1-2": source word - target word, counted from 0, as word aligners write them."""
    try:
        return frozenset((int(s), int(t)) for s, t in (link.split("-") for link in line.split()))
    except ValueError:
        raise UserError(f"{line[:80]!r} is not an alignment: write pairs of word numbers, as in 0-0 1-2.") from None


def spaced_words(text: str, pieces: Sequence[Piece]) -> list[int]:
    """Return the index of the white-space word of the text that each piece belongs to."""
    return [len(text[: piece.start + 1].split()) - 1 for piece in pieces]

"""score: one function a metric."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
import sacrebleu
from numpy.typing import NDArray

Links = frozenset[tuple[int, int]]  # (source word, target word)


class Score(NamedTuple):
    value: float
    signature: str  # how it was computed, so that others can check it


def bleu(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Corpus BLEU, by sacrebleu: cased, its own 13a tokens."""
    metric = sacrebleu.BLEU(force=True)  # no warning that text set with spaces before its stops is not our language
    value = metric.corpus_score(list(outputs), [list(references)]).score
    return Score(value, str(metric.get_signature()))


def strongest_links(weights: NDArray[np.floating]) -> Links:
    """Each target word with the source word it weighs most; none where that is <eos>, the last column.

    weights (target words, source words + <eos>)
    """
    best = weights.argmax(1)
    return frozenset((int(source), target) for target, source in enumerate(best) if source < weights.shape[1] - 1)


def diagonal_links(source_words: int, target_words: int) -> Links:
    """What someone who looks at nothing would say: the word at the same share of the sentence."""
    return frozenset((min(source_words - 1, t * source_words // target_words), t) for t in range(target_words))


def alignment_error(found: Iterable[Links], gold: Iterable[Links]) -> float:
    """1 − 2|A∩S| / (|A| + |S|) over all sentences (Och & Ney 2003, with all gold links sure); 0 if there are none."""
    common = total = 0
    for links, truth in zip(found, gold, strict=True):
        common += len(links & truth)
        total += len(links) + len(truth)
    return 1 - 2 * common / total if total else 0.0

"""score: one function a metric, and `score`, which has a run translate and measures what it wrote."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import sacrebleu
import torch
from numpy.typing import NDArray
from sacrebleu.significance import PairedTest

from regard.data.batches import pad, validation_plan
from regard.data.tokens import Piece
from regard.interface import Batch, UserError
from regard.look.attention import forced_weights, merge
from regard.models.encoder_decoder import EncoderDecoder
from regard.predict.search import Decoding

if TYPE_CHECKING:
    from regard.run import Run

Booleans = NDArray[np.bool_]
Links = frozenset[tuple[int, int]]  # (source word, target word)
BUCKETS = (10, 20, 30, 40)  # words of a source, at most; longer ones are the last bucket
TOKENS_AT_ONCE = 2048
RESAMPLES = 1000


class Score(NamedTuple):
    value: float
    signature: str  # how it was computed, so that others can check it


# --- of texts ----------------------------------------------------------------------------------------------------


def bleu(outputs: Sequence[str], references: Sequence[str], *, lowercase: bool = False) -> Score:
    """Corpus BLEU, by sacrebleu, its own 13a tokens; cased, or lower-cased as many papers have it."""
    # force: no warning that text set with spaces before its stops is not our language
    metric = sacrebleu.BLEU(force=True, lowercase=lowercase)
    value = metric.corpus_score(list(outputs), [list(references)]).score
    return Score(value, str(metric.get_signature()))


def chrf(outputs: Sequence[str], references: Sequence[str]) -> Score:
    """Character n-gram F-score (Popović 2015), by sacrebleu."""
    metric = sacrebleu.CHRF()
    value = metric.corpus_score(list(outputs), [list(references)]).score
    return Score(value, str(metric.get_signature()))


class Bucket(NamedTuple):
    shortest: int
    longest: int | None  # None: no limit
    sentences: int
    bleu: float


def by_length(sources: Sequence[str], edges: Sequence[int] = BUCKETS) -> Iterator[tuple[int, int | None, Booleans]]:
    """Buckets of up to 10, 20, … words: the fewest and most words of each, and which sources are in it."""
    lengths = np.array([len(source.split()) for source in sources])
    for low, high in zip((0, *edges), (*edges, None), strict=True):
        yield low + 1, high, (lengths > low) & (lengths <= (high or np.inf))


def bleu_by_length(
    sources: Sequence[str],
    outputs: Sequence[str],
    references: Sequence[str],
    *,
    edges: Sequence[int] = BUCKETS,
) -> list[Bucket]:
    """BLEU of the sentences in each bucket; those that hold none are left out."""
    buckets = []
    for shortest, longest, where in by_length(sources, edges):
        if inside := np.flatnonzero(where).tolist():
            value = bleu([outputs[i] for i in inside], [references[i] for i in inside]).value
            buckets.append(Bucket(shortest, longest, len(inside), value))
    return buckets


class Comparison(NamedTuple):
    first: float
    second: float
    p: float  # how often a difference at least as large would show by chance
    signature: str


def compare(first: Sequence[str], second: Sequence[str], references: Sequence[str]) -> Comparison:
    """BLEU of two outputs, and a paired bootstrap of their difference (Koehn 2004), by sacrebleu."""
    systems: list[tuple[str, Sequence[str]]] = [("first", list(first)), ("second", list(second))]
    metrics = {"BLEU": sacrebleu.BLEU(force=True, references=[list(references)])}
    test = PairedTest(systems, metrics, None, test_type="bs", n_samples=RESAMPLES)
    signatures, results = test()
    one, other = results["BLEU"]
    assert not isinstance(one, str) and not isinstance(other, str)
    # sacrebleu counts resamples that differ by more, and of equal texts none does
    p = 1.0 if list(first) == list(second) else float(other.p_value or 0.0)
    return Comparison(one.score, other.score, p, str(signatures["BLEU"]))


# --- of alignments -----------------------------------------------------------------------------------------------


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
    each = agreement(found, gold)
    total = sum(both for _, both in each)
    return 1 - sum(common for common, _ in each) / total if total else 0.0


def agreement(found: Iterable[Links], gold: Iterable[Links]) -> list[tuple[int, int]]:
    """Of each sentence, twice the links in common, and the links of both."""
    return [(2 * len(one & other), len(one) + len(other)) for one, other in zip(found, gold, strict=True)]


def read_links(line: str) -> Links:
    """ "0-0 1-2": source word - target word, from 0, as word aligners write it."""
    try:
        return frozenset((int(s), int(t)) for s, t in (link.split("-") for link in line.split()))
    except ValueError:
        raise UserError(f"{line[:80]!r} is not an alignment: write pairs of word numbers, as in 0-0 1-2.") from None


# --- of a run ----------------------------------------------------------------------------------------------------


def batches(run: Run, pairs: Sequence[tuple[str, str]]) -> Iterator[tuple[list[int], Batch]]:
    """The pairs as batches of like lengths, with their places."""
    encoded = [[t.encode(text) for t, text in zip(run.tokenizers, pair, strict=True)] for pair in pairs]
    lengths = np.array([[len(ids) for ids in pair] for pair in encoded]).reshape(-1, 2)
    for indices in validation_plan(lengths[:, 0], lengths[:, 1], tokens=TOKENS_AT_ONCE):
        few = [encoded[i] for i in indices]
        batch = Batch(pad([source for source, _ in few]), pad([target for _, target in few], begin=True))
        yield [int(i) for i in indices], batch.to(run.device)


def log_probabilities(run: Run, pairs: Sequence[tuple[str, str]]) -> list[float]:
    """ln p(target | source) of each pair, <eos> included."""
    model = translator(run)
    found = [0.0] * len(pairs)
    for places, batch in batches(run, pairs):
        with torch.inference_mode():
            sums = model.log_probs(batch)[0].sum(-1)
        for place, value in zip(places, sums.tolist(), strict=True):
            found[place] = value
    return found


def attention_links(run: Run, pairs: Sequence[tuple[str, str]], *, layer: int | None = None) -> list[Links]:
    """The links between white-space words that the model's attention shows while it reads each reference."""
    model = translator(run)
    found: list[Links] = [frozenset()] * len(pairs)
    for places, batch in batches(run, pairs):
        weights = forced_weights(model, batch, layer=layer).cpu().numpy()
        for place, row in zip(places, weights, strict=True):
            words = (
                spaced_words(text, tokenizer.pieces(text))
                for text, tokenizer in zip(pairs[place], run.tokenizers, strict=True)
            )
            found[place] = strongest_links(merge(row, *words))
    return found


def spaced_words(text: str, pieces: list[Piece]) -> list[int]:
    """Which white-space word of the text each piece belongs to."""
    return [len(text[: piece.start + 1].split()) - 1 for piece in pieces]


def translator(run: Run) -> EncoderDecoder:
    if not isinstance(run.model, EncoderDecoder):
        raise UserError(f"{run.recipe.model_name} does not translate: it cannot be scored on pairs.")
    return run.model


@dataclass(frozen=True)
class Scored:
    outputs: list[str]
    bleu: Score
    bleu_lowercase: Score
    chrf: Score
    by_length: list[Bucket]
    alignment_error: float | None  # None: no gold, or a model that does not attend
    diagonal_error: float | None


def score(
    run: Run,
    sources: Sequence[str],
    references: Sequence[str],
    *,
    how: Decoding | None = None,
    gold: Sequence[Links] | None = None,
    layer: int | None = None,
) -> Scored:
    """Translate the sources and measure the outputs; with gold links, the attention over the references too."""
    if run.recipe.task != "translation":
        raise UserError(f"{run.recipe.model_name} does not translate: give a text FILE to score it.")
    if not sources or len(sources) != len(references):
        raise UserError(f"{len(sources)} sources and {len(references)} references: give as many of each.")
    outputs = [prediction.text for prediction in run.predict(sources, how or Decoding(beam=5))]
    error = diagonal = None
    if gold is not None:
        if len(gold) != len(sources):
            raise UserError(f"{len(gold)} gold alignments for {len(sources)} sources: give one line for each.")
        spaced = zip(sources, references, strict=True)
        diagonal = alignment_error([diagonal_links(len(s.split()), len(r.split())) for s, r in spaced], gold)
        if translator(run).decoder.looks_back():
            pairs = list(zip(sources, references, strict=True))
            error = alignment_error(attention_links(run, pairs, layer=layer), gold)
    return Scored(
        outputs=outputs,
        bleu=bleu(outputs, references),
        bleu_lowercase=bleu(outputs, references, lowercase=True),
        chrf=chrf(outputs, references),
        by_length=bleu_by_length(sources, outputs, references),
        alignment_error=error,
        diagonal_error=diagonal,
    )

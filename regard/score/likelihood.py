"""The likelihood of texts, token by token, under any model that Scores: perplexity and bits per character.

perplexity = exp(−Σ ln p / tokens);   bits per character = −Σ log₂ p / characters
A model that carries its hidden state reads a long text in windows and gives the same values as in one pass. For a model
with a limited context each token counts once, with at least context − stride tokens before it if the text has them.
A mixture's p is Σₖ wₖ pₖ; the weights that maximise the likelihood of a text are found by expectation-maximisation.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import torch

from regard.data.batches import Integers
from regard.data.sources import examples
from regard.data.streams import spans
from regard.data.text import Cut
from regard.interface import EOS, PAD, UNK, Batch, Scores, UserError, Windowed
from regard.predict.inputs import AT_ONCE, some_at_once
from regard.run import Run, check_alike
from regard.score.metrics import LARGEST, Floats
from regard.score.result import Options, Scored

TOKENS_AT_ONCE = 4096
WINDOW = 1024  # tokens of a long text in one pass
ROUNDS = 100  # iterations of expectation-maximisation


@dataclass(frozen=True)
class Likelihood:
    """Sums over texts, and the metrics computed from them."""

    log_prob: float  # natural logarithm
    tokens: int  # predicted tokens, <eos> included
    unknown: int  # how many of them are <unk>
    ends: int  # how many of them are <eos>
    words: int  # separated by white space
    characters: int  # line ends included
    context: int | None  # the model's context in tokens; None: no limit
    stride: int | None  # tokens by which its window moves

    @property
    def per_token(self) -> float:
        return perplexity(self.log_prob, self.tokens)

    @property
    def per_word(self) -> float:
        """Return the perplexity per word, ends of texts included, as papers count."""
        return perplexity(self.log_prob, self.words + self.ends)

    @property
    def bits_per_character(self) -> float:
        return -self.log_prob / math.log(2) / max(1, self.characters)


def perplexity(log_prob: float, count: int) -> float:
    return math.exp(min(LARGEST, -log_prob / max(1, count)))


# --- tokens ------------------------------------------------------------------------------------------------------


def token_log_probs(model: Scores, texts: Sequence[Integers], *, device: torch.device, stride: int = 0) -> list[Floats]:
    """Return ln p of every token of each text except the first, which is given. `stride` 0: half of the context."""
    context, stride = seen_at_once(model, stride)
    found = [np.zeros(max(0, len(text) - 1)) for text in texts]
    longest = context or WINDOW
    pieces = []
    for number, text in enumerate(texts):
        predicted = len(text) - 1
        if context is None and predicted > longest:
            found[number] = carried_log_probs(model, text[None], device=device)[0]
        else:
            pieces += [(number, *span) for span in spans(predicted, longest, stride)]
    pieces.sort(key=lambda piece: piece[1] - piece[3])  # the longest first
    while pieces:
        _, begin, _, end = pieces[0]
        count = max(1, TOKENS_AT_ONCE // (end - begin))
        together, pieces = pieces[:count], pieces[count:]
        rows = np.full((len(together), end - begin + 1), PAD, dtype=np.int64)
        for row, (number, first, _, last) in zip(rows, together, strict=True):
            row[: last - first + 1] = texts[number][first : last + 1]
        with torch.inference_mode():
            scored, _ = model.log_probs(Batch.of_text(torch.from_numpy(rows).to(device)))
        for values, (number, first, counted, last) in zip(scored.double().cpu().numpy(), together, strict=True):
            found[number][counted:last] = values[counted - first : last - first]
    return found


def seen_at_once(model: Scores, stride: int = 0) -> tuple[int | None, int]:
    """Return the context of a model in tokens (None: no limit) and the stride of its window."""
    if stride < 0:
        raise UserError(f"stride = {stride} is not possible: give 0 or more.")
    context = model.context if isinstance(model, Windowed) else None
    return context, min(stride or max(1, context // 2), context) if context else WINDOW


def carried_log_probs(model: Scores, rows: Integers, *, device: torch.device, window: int = WINDOW) -> Floats:
    """Return the same for rows (rows, time) of one length, read in windows, with the hidden state carried over."""
    state: Any = None
    scored = []
    with torch.inference_mode():
        for begin in range(0, rows.shape[1] - 1, window):
            few = torch.from_numpy(rows[:, begin : begin + window + 1].astype(np.int64)).to(device)
            values, state = model.log_probs(Batch.of_text(few, state))
            scored.append(values.double().cpu())
    found: Floats = torch.cat(scored, 1).numpy()
    return found


# --- runs --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ScoredTexts:
    likelihood: Likelihood
    each: list[Floats]  # ln p of the tokens of each text
    weights: tuple[float, ...]  # the mixture weight of each run


def score_texts(
    runs: Sequence[Run], texts: Sequence[str], *, stride: int = 0, weights: Sequence[float] | None = None
) -> ScoredTexts:
    """Score texts under a run, or under a mixture of several, whose weights are equal unless they are given.

    If the runs were trained on a whole file, the texts are the pieces of one file.
    """
    check_alike(runs)
    shares = tuple(weights or [1 / len(runs)] * len(runs))
    ids = encoded(runs[0], texts)
    each = [mixed(np.stack(those), shares) for those in zip(*by_run(runs, ids, stride), strict=True)]
    answers = np.concatenate([text[1:] for text in ids]) if ids else np.zeros(0)
    windows = [seen_at_once(scorer(one), stride) for one in runs]
    context, moved = min((window for window in windows if window[0]), default=(None, None))
    ends = 0 if runs[0].whole_file else len(ids)
    found = Likelihood(
        log_prob=float(sum(values.sum() for values in each)),
        tokens=len(answers),
        unknown=int((answers == UNK).sum()),
        ends=ends,
        words=sum(len(text.split()) for text in texts),
        characters=sum(map(len, texts)) + ends,
        context=context,
        stride=moved,
    )
    return ScoredTexts(found, each, shares)


def by_run(runs: Sequence[Run], ids: Sequence[Integers], stride: int) -> list[list[Floats]]:
    return [token_log_probs(scorer(run), ids, device=run.device, stride=stride) for run in runs]


def scorer(run: Run) -> Scores:
    if "source" in run.fields:
        raise UserError(f"{run.model_title} is not a language model: give pairs of a source and a target.")
    if not isinstance(run.model, Scores):
        raise UserError(f"{run.model_title} does not score texts (it has no log_probs): give a run of another model.")
    return run.model


def encoded(run: Run, texts: Sequence[str]) -> list[Integers]:
    """Encode each text with its opening and, where texts end, its <eos>. The pieces of a whole file are one text."""
    pieces = run.tokenizer("target").encode_all(texts, continued=run.whole_file)
    if run.whole_file:
        return [np.array([*run.opening, *(token for piece in pieces for token in piece)], dtype=np.int64)]
    return [np.array([*run.opening, *ids, EOS], dtype=np.int64) for ids in pieces]


def mixed(log_probs: Floats, weights: Sequence[float]) -> Floats:
    """Compute ln Σₖ wₖ pₖ, log_probs (runs, tokens) -> (tokens,)."""
    with np.errstate(divide="ignore"):
        weighted = log_probs + np.log(np.asarray(weights))[:, None]
    total: Floats = np.logaddexp.reduce(weighted, axis=0)
    return total


def fitted_weights(log_probs: Floats) -> tuple[float, ...]:
    """Return the weights that maximise the likelihood of these tokens, (runs, tokens); tokens that are impossible for
    all runs are left out."""
    log_probs = log_probs[:, (log_probs > -np.inf).any(0)]
    weights = np.full(len(log_probs), 1 / len(log_probs))
    for _ in range(ROUNDS if log_probs.size else 0):
        with np.errstate(divide="ignore"):
            joint = log_probs + np.log(weights)[:, None]
        weights = np.exp(joint - np.logaddexp.reduce(joint, axis=0)).mean(1)
    return tuple(float(weight) for weight in weights / weights.sum())


def fit_weights(runs: Sequence[Run], *, stride: int = 0) -> tuple[float, ...]:
    """Fit the mixture weights on the validation text of the first run's recipe; a single run has weight 1."""
    check_alike(runs)
    if len(runs) == 1:
        return (1.0,)
    every = by_run(runs, encoded(runs[0], valid_texts(runs[0])), stride)
    return fitted_weights(np.stack([np.concatenate(each) for each in every]))


def valid_texts(run: Run) -> list[str]:
    """Read the validation text of the run's recipe."""
    return [text for (text,) in examples(run.recipe.data, "valid", run.recipe.folder) if not isinstance(text, Cut)]


# --- for `score` -------------------------------------------------------------------------------------------------


def log_prob_of_each(runs: Sequence[Run], texts: Iterable[tuple[str]], stride: int = 0) -> Iterator[float]:
    """Yield ln p of each text; line by line, also for a model trained on a whole file."""
    weights = fit_weights(runs, stride=stride)
    for some in some_at_once((text for (text,) in texts), 1 if runs[0].whole_file else AT_ONCE):
        yield from (float(values.sum()) for values in score_texts(runs, some, stride=stride, weights=weights).each)


def listed_weights(runs: Sequence[Run], weights: Sequence[float]) -> str:
    return ", ".join(f"{run.name} {weight:.3f}" for run, weight in zip(runs, weights, strict=True)) + "."


def score_language(runs: Sequence[Run], texts: Sequence[tuple[str]], asked: Options) -> Scored:
    weights = fit_weights(runs, stride=asked.stride)
    scored = score_texts(runs, [text for (text,) in texts], stride=asked.stride, weights=weights)
    found = scored.likelihood
    if not found.tokens:
        raise UserError("The text is empty: give at least one line.")
    ends = f", {found.ends:,} of them <eos>" if found.ends else ""
    with_ends = f" and {found.ends:,} ends" if found.ends else ""
    seen = f"{found.context} tokens, stride {found.stride}" if found.context else "everything before it in its text"
    lines = [
        f"perplexity per token {found.per_token:10.3f}   {found.tokens:,} tokens{ends}, {found.unknown:,} <unk>",
        f"perplexity per word  {found.per_word:10.3f}   {found.words:,} words{with_ends}",
        f"bits per character   {found.bits_per_character:10.4f}   {found.characters:,} characters",
        f"context              {seen}",
    ]
    if len(runs) > 1:
        lines.insert(0, f"weights, fitted on validation: {listed_weights(runs, weights)}")
    facts = {
        "perplexity_per_token": found.per_token,
        "perplexity_per_word": found.per_word,
        "bits_per_character": found.bits_per_character,
        **asdict(found),
        "weights": {run.name: weight for run, weight in zip(runs, weights, strict=True)},
    }
    return Scored(lines, facts)

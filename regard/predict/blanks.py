"""Masked language models: fill in the blanks of a text, and score a text by hiding one token after another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import torch

from regard.data.corruption import MASK, with_hidden
from regard.interface import Fills, UserError
from regard.predict.decoding import Decoding, Prediction
from regard.predict.inputs import AT_ONCE, some_at_once
from regard.predict.text import Line, batches, most_read
from regard.run import Run
from regard.score.metrics import Floats

TOKENS_AT_ONCE = 4096


def filler(run: Run) -> Fills:
    if not isinstance(run.model, Fills):
        raise UserError(f"{run.model_title} does not fill in blanks: give a run of a masked language model.")
    return run.model


def with_blanks(run: Run, text: str, blank: str) -> list[int]:
    """The ids of a text, with <mask> where the blank is written."""
    tokenizer = run.tokenizer()
    *before, last = text.split(blank) if blank else [text]
    ids: list[int] = []
    for place, part in enumerate((*(each.rstrip() for each in before), last)):
        ids += [MASK] * (place > 0) + tokenizer.encode_all([part], continued=place > 0)[0]
    return ids


def fill_in(run: Run, texts: Sequence[str], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    """Fill the blanks of each text with the most probable tokens, each blank by itself; a text without one is left as
    it is. With n_best there are further texts, by the product of their probabilities."""
    how = how or Decoding()
    model, most = filler(run), most_read(run.model, how)
    if texts and not first_line and not any(how.blank and how.blank in text for text in texts):
        raise UserError(f"There is no blank in {texts[0][:80]!r}: write {how.blank or 'one'} where a word is missing.")
    lines = []
    for number, text in enumerate(texts):
        ids = with_blanks(run, text, how.blank)
        lines.append(Line(number, text, ids[:most], len(ids) > most))
    found = [Prediction(line.text, 0.0, (), cut=line.cut) for line in lines]
    with torch.inference_mode():
        blanked = sorted((line for line in lines if MASK in line.ids), key=lambda line: -len(line.ids))
        for together in batches(blanked, how):
            source = run.fields["source"].pad([line.ids for line in together])
            batch = with_hidden(source, source.values == MASK).to(run.device)
            log_probs = model.fill(batch).float().log_softmax(-1)
            likely = log_probs.topk(min(how.n_best, log_probs.shape[-1]))
            blanks = iter(zip(likely.values.tolist(), likely.indices.tolist(), strict=True))
            for line in together:
                few = [next(blanks) for _ in range(line.ids.count(MASK))]
                found[line.number] = filled(run, line, few, how)
    return found


def filled(run: Run, line: Line, blanks: Sequence[tuple[list[float], list[int]]], how: Decoding) -> Prediction:
    """The text with the most probable tokens, and with the next best choices of all blanks together."""
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for scores, tokens in blanks:
        longer = [
            (sum_ + score, (*chosen, token))
            for sum_, chosen in best
            for score, token in zip(scores, tokens, strict=True)
        ]
        best = sorted(longer, key=lambda each: -each[0])[: how.n_best]
    made = []
    for score, chosen in best:
        words = run.tokenizer().surface(chosen)
        parts = line.text.split(how.blank)
        text = "".join(part + word for part, word in zip(parts, (*words, *[how.blank] * len(parts)), strict=False))
        made.append(Prediction(text.removesuffix(how.blank), score, tuple(words), cut=line.cut))
    return Prediction(made[0].text, made[0].score, made[0].tokens, tuple(made[1:]), line.cut)


def pseudo_log_probs(run: Run, texts: Iterable[str]) -> Iterator[Floats]:
    """ln P of each token of each text, while only that token is hidden (Salazar 2020)."""
    model, most = filler(run), most_read(run.model)
    for text in texts:
        ids = run.tokenizer().encode(text)[:most]
        found = np.zeros(len(ids))
        at_once = max(1, TOKENS_AT_ONCE // (len(ids) + 1))
        for first in range(0, len(ids), at_once):
            count = min(at_once, len(ids) - first)
            source = run.fields["source"].pad([ids] * count)
            places = torch.arange(first, first + count)
            hidden = torch.zeros_like(source.mask).scatter_(1, places[:, None], True)
            batch = with_hidden(source, hidden).to(run.device)
            with torch.inference_mode():
                log_probs = model.fill(batch).float().log_softmax(-1)
            answers = torch.tensor(ids[first : first + count], device=run.device)
            found[first : first + count] = log_probs.gather(1, answers[:, None])[:, 0].double().cpu().numpy()
        yield found


def log_prob_of_each(runs: Sequence[Run], texts: Iterable[tuple[str]], stride: int = 0) -> Iterator[float]:
    """The pseudo-log-likelihood of each text."""
    (run,) = runs
    for some in some_at_once((text for (text,) in texts), AT_ONCE):
        yield from (float(values.sum()) for values in pseudo_log_probs(run, some))

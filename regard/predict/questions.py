"""Answers to questions: the best of several, or a stretch of the text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from regard.config import counted
from regard.data.fields import TextField
from regard.data.questions import FEWEST, MOST
from regard.data.text import BETWEEN
from regard.interface import Chooses, Points, UserError
from regard.predict.decoding import Decoding, Prediction
from regard.predict.labels import in_batches
from regard.predict.text import NO_ANSWER, Line
from regard.run import Run

LONGEST = 30  # most tokens of an answer


def choose(run: Run, lines: Sequence[str], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    """Choose among the answers of each question, with the probability of each."""
    if not isinstance(run.model, Chooses):
        raise UserError(f"{run.model_title} does not choose answers: give a run trained for multiple-choice.")
    found = [NO_ANSWER] * len(lines)
    for number, text in enumerate(lines, start=first_line + 1):
        count = len(text.split(BETWEEN)) - 1
        if text.strip() and not FEWEST <= count <= MOST:
            wanted = f"a question and {FEWEST} to {MOST} answers, with tabs between them"
            raise UserError(f"Line {number} has {counted(count, 'answer')}: give {wanted}.")
    with torch.inference_mode():
        for together, batch in in_batches(run, lines, how or Decoding()):
            for line, row in zip(together, run.model.choose(batch).tolist(), strict=True):
                choices = lines[line.number].split(BETWEEN)[1:]
                log_probs = torch.tensor(row[: len(choices)])
                best = int(log_probs.argmax())
                shares = dict(zip(choices, log_probs.exp().tolist(), strict=True))
                found[line.number] = Prediction(
                    choices[best], float(log_probs[best]), (), cut=line.cut, probabilities=shares
                )
    return found


def point(run: Run, lines: Sequence[str], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    """Find the answer to each question in its text; with n_best, the most probable ones."""
    if not isinstance(run.model, Points):
        raise UserError(f"{run.model_title} does not find answers: give a run trained for question-answering.")
    how, found = how or Decoding(), [NO_ANSWER] * len(lines)
    for number, text in enumerate(lines, start=first_line + 1):
        if text.strip() and not text.partition(BETWEEN)[2].strip():
            raise UserError(f"Line {number} has no text: give a question and a text, with a tab between.")
    with torch.inference_mode():
        for together, batch in in_batches(run, lines, how):
            for line, log_probs in zip(together, run.model.point(batch).cpu(), strict=True):
                best, *others = answers_in(run, line, log_probs, how.n_best)
                found[line.number] = replace(best, alternatives=tuple(others))
    return found


def answers_in(run: Run, line: Line, log_probs: Tensor, count: int) -> list[Prediction]:
    """The most probable answers, from ln P of their first and last tokens: (2, source)."""
    field = run.fields["source"]
    assert isinstance(field, TextField)
    every = field.pieces(line.text)
    pieces = [every[place] for place in field.kept([piece.id for piece in every], len(line.ids))]
    before = len(line.text.partition(BETWEEN)[0]) + len(BETWEEN)
    found = []
    for score, start, end in best_spans(log_probs[:, : len(pieces)], count):
        begin, stop = pieces[start].start, pieces[end].end
        place = (begin - before, stop - before)
        found.append(Prediction(line.text[begin:stop], score, (), cut=line.cut, place=place))
    return found or [NO_ANSWER]


def best_spans(log_probs: Tensor, count: int = 1) -> list[tuple[float, int, int]]:
    """ln P, start and end of the most probable spans with start ≤ end < start + LONGEST: (2, source) -> count."""
    ends = torch.nn.functional.pad(log_probs[1], (0, LONGEST - 1), value=-torch.inf).unfold(0, LONGEST, 1)
    flat = (log_probs[0][:, None] + ends).flatten()  # (start, end − start)
    best = flat.topk(min(count, len(flat)))
    spans = ((score, *divmod(place, LONGEST)) for score, place in zip(*map(Tensor.tolist, best), strict=True))
    return [(score, start, start + more) for score, start, more in spans if score > -torch.inf]

"""Labels and numbers for texts, and tags for their words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import numpy as np
import torch

from regard.data.fields import NumberField
from regard.interface import Batch, Classifies, Estimates, Tags, UserError
from regard.predict.decoding import Decoding, Prediction
from regard.predict.text import NO_ANSWER, Line, batches, readable
from regard.run import Run


def in_batches(run: Run, lines: Sequence[str], how: Decoding) -> Iterator[tuple[list[Line], Batch]]:
    """Yield lines of similar length as batches; every side is cut to the tokens that are read."""
    for together in batches(readable(run, lines, how), how):
        sides = run.fields.encode({"source": [line.text for line in together]})
        for side, field in run.fields.items():
            if side in sides:
                each = zip(sides[side], together, strict=True)
                sides[side] = [field.up_to(array, len(line.ids)) for array, line in each]
        sides["source"] = [np.array(line.ids, np.int32) for line in together]
        yield together, run.fields.batch(sides).to(run.device)


def tag(run: Run, lines: Sequence[str], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    """Tag each word; a prediction's text is the tags with spaces between them, and an empty line has none."""
    if not isinstance(run.model, Tags):
        raise UserError(f"{run.model_title} does not tag words: give a run trained for tagging.")
    names = run.fields.names()
    found = [NO_ANSWER] * len(lines)
    with torch.inference_mode():
        for together, batch in in_batches(run, lines, how or Decoding()):
            firsts = batch.beside.get("firsts")
            words = [len(line.ids) for line in together] if firsts is None else (firsts > 0).sum(1).tolist()
            for line, row, many in zip(together, run.model.tag(batch).tolist(), words, strict=True):
                tags = tuple(names[number] for number in row[:many])
                found[line.number] = Prediction(" ".join(tags), 0.0, tags, cut=line.cut)
    return found


def classify(run: Run, lines: Sequence[str], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    """Classify each text, with the probability of every label; an empty line has none."""
    found = [NO_ANSWER] * len(lines)
    for together, batch in in_batches(run, lines, how or Decoding()):
        for line, label in zip(together, labels_of(run, batch), strict=True):
            found[line.number] = replace(label, cut=line.cut)
    return found


def estimate(run: Run, lines: Sequence[str], how: Decoding | None = None) -> list[Prediction]:
    """Estimate a number for each text, in the unit of the data; an empty line has the mean of the training numbers."""
    field = run.fields["target"]
    if not isinstance(run.model, Estimates) or not isinstance(field, NumberField):
        raise UserError(f"{run.model_title} does not give numbers: give a run trained for regression.")
    found = [replace(NO_ANSWER, text=field.text(0.0))] * len(lines)
    with torch.inference_mode():
        for together, batch in in_batches(run, lines, how or Decoding()):
            for line, number in zip(together, run.model.estimate(batch).tolist(), strict=True):
                found[line.number] = Prediction(field.text(number), 0.0, (), cut=line.cut)
    return found


@torch.inference_mode()
def labels_of(run: Run, batch: Batch) -> list[Prediction]:
    """Return the most probable label of each example of a batch."""
    if not isinstance(run.model, Classifies):
        raise UserError(f"{run.model_title} does not give labels: give a run trained for classification.")
    names = run.fields.names()
    found = []
    for log_probs in run.model.classify(batch):
        best = int(log_probs.argmax())
        shares = dict(zip(names, log_probs.exp().tolist(), strict=True))
        found.append(Prediction(names[best], float(log_probs[best]), (), probabilities=shares))
    return found

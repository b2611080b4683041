"""Classification and tagging: labels for examples, and tags for their words."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

import torch

from regard.interface import Batch, Classifies, Tags, UserError
from regard.predict.decoding import Decoding, Prediction
from regard.predict.text import NO_ANSWER, Line, batches, readable
from regard.run import Run


def read(run: Run, lines: Sequence[str], how: Decoding) -> Iterator[tuple[list[Line], Batch]]:
    """Yield lines of similar length as batches; every side is cut to the tokens that are read."""
    for together in batches(readable(run, lines, how), how):
        sides = run.fields.encode({"source": [line.text for line in together]})
        for side in sides:
            width = run.fields[side].width
            sides[side] = [array[: len(line.ids) * width] for array, line in zip(sides[side], together, strict=True)]
        yield together, run.fields.batch(sides).to(run.device)


def tag(run: Run, lines: Sequence[str], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    """Tag each word; a prediction's text is the tags with spaces between them, and an empty line has none."""
    if not isinstance(run.model, Tags):
        raise UserError(f"{run.model_title} does not tag words: give a run trained for tagging.")
    names = run.fields.names()
    found = [NO_ANSWER] * len(lines)
    with torch.inference_mode():
        for together, batch in read(run, lines, how or Decoding()):
            for line, row in zip(together, run.model.tag(batch).tolist(), strict=True):
                tags = tuple(names[number] for number in row[: len(line.ids)])
                found[line.number] = Prediction(" ".join(tags), 0.0, tags, cut=line.cut)
    return found


def classify(run: Run, lines: Sequence[str], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    """Classify each text, with the probability of every label; an empty line has none."""
    found = [NO_ANSWER] * len(lines)
    for together, batch in read(run, lines, how or Decoding()):
        for line, label in zip(together, labels_of(run, batch), strict=True):
            found[line.number] = replace(label, cut=line.cut)
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

"""Labels for examples, and tags for their words."""

from __future__ import annotations

from collections.abc import Sequence

import torch

from regard.interface import Batch, Classifies, Tags, UserError
from regard.predict.decoding import Decoding, Prediction
from regard.predict.text import BATCH_TOKENS, Line, batches, readable
from regard.run import Run


def as_batch(run: Run, lines: Sequence[Line]) -> Batch:
    """What is read of these lines, and what is made of it beside, no more of it than is read."""
    sides = run.fields.encode({"source": [line.text for line in lines]})
    for side in sides:
        width = run.fields[side].width
        sides[side] = [array[: len(line.ids) * width] for array, line in zip(sides[side], lines, strict=True)]
    return run.fields.batch(sides).to(run.device)


def tag(
    run: Run,
    lines: Sequence[str],
    how: Decoding | None = None,
    *,
    batch_tokens: int = BATCH_TOKENS,
    first_line: int = 0,
) -> list[Prediction]:
    """A tag for each word, with spaces between them; an empty line has none."""
    if not isinstance(run.model, Tags):
        raise UserError(f"{run.model_title} does not tag words.")
    names = run.fields.names()
    found = [Prediction("", 0.0, ())] * len(lines)
    with torch.inference_mode():
        for together in batches(readable(run, lines, how), tokens=batch_tokens):
            batch = as_batch(run, together)
            for line, row in zip(together, run.model.tag(batch).tolist(), strict=True):
                tags = tuple(names[number] for number in row[: len(line.ids)])
                found[line.number] = Prediction(" ".join(tags), 0.0, tags, cut=line.cut)
    return found


def classify(
    run: Run,
    lines: Sequence[str],
    how: Decoding | None = None,
    *,
    batch_tokens: int = BATCH_TOKENS,
    first_line: int = 0,
) -> list[Prediction]:
    """A label for each text, with the probability of every label; an empty line has none."""
    found = [Prediction("", 0.0, ())] * len(lines)
    for together in batches(readable(run, lines, how), tokens=batch_tokens):
        batch = as_batch(run, together)
        for line, label in zip(together, labels_of(run, batch, [line.cut for line in together]), strict=True):
            found[line.number] = label
    return found


@torch.inference_mode()
def labels_of(run: Run, batch: Batch, cut: Sequence[bool] = ()) -> list[Prediction]:
    """The likeliest label of each example of a batch."""
    if not isinstance(run.model, Classifies):
        raise UserError(f"{run.model_title} does not give labels.")
    names = run.fields.names()
    found = []
    for place, log_probs in enumerate(run.model.classify(batch)):
        best = int(log_probs.argmax())
        shares = dict(zip(names, log_probs.exp().tolist(), strict=True))
        cut_off = bool(cut and cut[place])
        found.append(Prediction(names[best], float(log_probs[best]), (), cut=cut_off, probabilities=shares))
    return found

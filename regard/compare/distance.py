"""How a model copes with distance: gradient norms by distance in tokens, and time by length.

‖∂ ln p(target) / ∂x‖ against the distance of x: for a translator, tokens between x and the end of the source, where a
fixed vector would be taken; for a language model, tokens between x and the last token that is predicted.
"""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from regard.data.fields import TextField
from regard.interface import BOS, UNK, Batch, Generates, Scores, State, Windowed
from regard.look.weights import inside, reading, use
from regard.predict.search import room
from regard.run import Run

ROWS = 32  # texts over which gradients are averaged
FAR = 60  # tokens: the greatest distance
FEWEST = 4  # texts that are long enough for a distance to have a mean
LENGTHS = (8, 16, 32, 64, 128, 256)
REPEATS = 3


def gradients(run: Run, examples: Sequence[tuple[Any, ...]]) -> list[tuple[int, float]]:
    """Return (distance, mean gradient norm of the embeddings); nothing for a model that does not score, counts
    or reads no text."""
    model, shown = run.model, inside(run.model)
    read = run.fields.get("source")
    if not isinstance(model, Scores) or shown.reader is None or not (read is None or isinstance(read, TextField)):
        return []
    longest = sorted(examples, key=lambda sides: -len(sides[0].split()))[: 4 * ROWS : 4]
    sides = [side for side in run.fields if run.fields[side].shape is not None]
    raws = {side: [example[place] for example in longest] for place, side in enumerate(sides)}
    encoded = {side: [array[:FAR] for array in arrays] for side, arrays in run.fields.encode(raws).items()}
    if "source" in encoded:
        batch = run.fields.batch(encoded).to(run.device)
    else:
        texts = encoded["target"]
        context = model.context if isinstance(model, Windowed) else FAR
        width = min(FAR, context, *(len(ids) for ids in texts)) if texts else 0
        if width < 2:
            return []
        batch = Batch.of_text(torch.tensor([[BOS, *ids[:width]] for ids in texts])).to(run.device)
    with torch.enable_grad(), reading(run.model) as embedded:
        log_probs = model.log_probs(batch)[0]
        predicted = log_probs[:, -1] if batch.source is None else log_probs
        (slopes,) = torch.autograd.grad(predicted.sum(), embedded[0])
    real = torch.ones_like(log_probs, dtype=torch.bool) if batch.source is None else batch.source.mask
    slopes = slopes[:, -real.shape[1] :]  # without what an encoder reads before the source
    readers = [seen for seen in shown.recurrences if seen.side == "source"]
    ends_first = bool(readers) and all(seen.backwards for seen in readers)  # the source is read last word first
    return _by_distance(slopes.norm(dim=-1), real, backwards=not ends_first)


def _by_distance(norms: Tensor, real: Tensor, *, backwards: bool) -> list[tuple[int, float]]:
    """Average over rows (rows, time) at each distance from the last real token, or from the first."""
    places = torch.arange(norms.shape[1], device=norms.device)
    distances = real.sum(1, keepdim=True) - 1 - places if backwards else places.expand_as(norms)
    found = []
    for distance in range(int(distances.max()) + 1):
        here = (distances == distance) & real
        if here.sum() >= min(FEWEST, len(norms)):
            found.append((distance, float(norms[here].mean())))
    return found


def times(run: Run) -> list[tuple[int, float]]:
    """Return (tokens, seconds) to read that many and, where a model generates, to write as many, one text at a time and
    the fastest of a few repetitions. Return nothing for a model that does not read text."""
    model, first = run.model, run.fields[next(iter(run.fields))]
    if not isinstance(first, TextField):
        return []
    bounds = (room(model), model.context if isinstance(model, Windowed) else None)
    most = min(bound or math.inf for bound in bounds)
    found = []
    with torch.inference_mode():
        for length in LENGTHS:
            if length + 2 <= most:
                _once(run, 8)
                found.append((length, min(_once(run, length) for _ in range(REPEATS))))
    return found


def _once(run: Run, length: int) -> float:
    model, fields = run.model, run.fields
    read = [side for side in fields if side == "source" or fields[side].shape is None]
    sides = {side: [np.full(length * fields[side].width, UNK)] for side in read}
    batch = fields.batch(sides).to(run.device) if "source" in fields else Batch.of_text(torch.full((1, 1), BOS))
    began = time.perf_counter()
    if isinstance(model, Generates):
        tokens = torch.full((1,), UNK, device=run.device)
        state: State = model.start(batch.to(run.device))
        for _ in range(length):
            _, state = model.step(tokens, state)
    else:
        use(model, batch)
    return time.perf_counter() - began

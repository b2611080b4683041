"""How fast a run is in use."""

from __future__ import annotations

import time
from collections.abc import Sequence
from functools import partial

from regard.interface import Generates, UserError
from regard.predict.decoding import Decoding, Prediction
from regard.run import Run

NO_LIMIT = 1 << 62  # tokens in a batch: how many lines go together is said in lines


def speed(run: Run, raws: Sequence[str], *, rows: int) -> float:
    """Tokens per second when `rows` inputs are worked on at a time, from raw input to answer.

    A translator writes, greedily, the translations of the lines; a language model samples `rows` texts at a time that
    go on from one of them, every `rows`-th; <eos> is not counted. What gives labels reads, and the tokens are the
    input's.
    """
    if rows < 1 or not raws:
        raise UserError(f"Speed needs at least 1 line and 1 row at a time, and got {len(raws)} and {rows}.")
    raws = sorted(raws, key=len, reverse=True)  # like to like, as files are predicted
    how = run.task.decoding and (run.task.decoding if run.task.decoding.sample else Decoding())
    if "source" in run.fields:
        together = [raws[start : start + rows] for start in range(0, len(raws), rows)]
    else:
        together = [[raw] * rows for raw in raws[::rows]]

    answer = partial(run.task.answer, run, how=how, batch_tokens=NO_LIMIT)
    answer(together[0])  # what is done once is not timed
    began = time.perf_counter()
    answers: list[Prediction] = [each for some in together for each in answer(some)]
    seconds = time.perf_counter() - began
    if isinstance(run.model, Generates):
        return sum(len(answer.tokens) for answer in answers) / seconds
    field = run.fields["source"]
    read = field.encode([raw for some in together for raw in some])
    return sum(len(array) // field.width for array in read) / seconds

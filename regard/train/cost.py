"""What a model costs: operations to train it, and time to use it.

training FLOPs = flops_per_token · target tokens seen           counted, where Vaswani 2017 (Table 2) estimates them
"""

from __future__ import annotations

import copy
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeVar

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from regard.interface import Batch, Fits, Generates, Learns, UserError
from regard.layers.kernels import plain
from regard.predict.search import predict
from regard.score.labels import as_read, name

if TYPE_CHECKING:
    from regard.run import Run
    from regard.train.training import Batches

Made = TypeVar("Made")
COUNTED = 8  # batches
NO_LIMIT = 1 << 62  # tokens in a batch: how many lines go together is said in lines


def flops_per_token(model: nn.Module, batches: Iterable[Batch]) -> float:
    """Of training, for each target token of these batches: a token of a text, a sentence's label or a word's tag."""
    operations, tokens = 0, 0
    for batch in batches:
        more, predicted = flops(model, batch)
        operations, tokens = operations + more, tokens + predicted
    return operations / max(1, tokens)


def first_batches(batches: Batches, device: torch.device) -> Iterator[Batch]:
    """Enough of the training data to know what a token costs."""
    return (batches.get(0, index).to(device) for index in range(min(COUNTED, batches.count(0))))


def flops(model: nn.Module, batch: Batch) -> tuple[int, int]:
    """Floating-point operations of one training step, the loss of this batch and its gradient; and its target tokens.

    Products of matrices are counted, a multiplication and an addition as two, padding included where it is computed;
    elementwise operations, softmax, distances, table look-ups and the optimiser's own are not. The model is left as it
    was. One that is made by counting costs 0.
    """
    if isinstance(model, Fits):
        return 0, 0
    if not isinstance(model, Learns):
        raise UserError("This model does not learn by gradient descent: it has no loss whose operations to count.")
    learner = copy.deepcopy(model).train()  # whose gradients and running means are nobody's
    device = batch.source.device
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        torch.enable_grad(),
        plain(),
        FlopCounterMode(display=False) as counter,
    ):
        loss = learner.loss(batch)
        loss.objective.backward()  # type: ignore[no-untyped-call]
    return counter.get_total_flops(), loss.tokens


def speed(run: Run, lines: Sequence[str], *, rows: int) -> float:
    """Tokens per second when `rows` lines are worked on at a time, text in and text out.

    A translator writes, greedily, the translations of the lines; a language model draws `rows` texts at a time that go
    on from one of them, every `rows`-th; <eos> is not counted. What gives names reads, and the tokens are the lines'.
    """
    if rows < 1 or not lines:
        raise UserError(f"Speed needs at least 1 line and 1 row at a time, and got {len(lines)} and {rows}.")
    lines = sorted(lines, key=len, reverse=True)  # like to like, as files are predicted
    if run.recipe.task == "language":
        together = [[line] * rows for line in lines[::rows]]
    else:
        together = [lines[start : start + rows] for start in range(0, len(lines), rows)]
    if isinstance(run.model, Generates):
        seconds, written = _timed(lambda some: predict(run, some, batch_tokens=NO_LIMIT), together)
        return sum(len(prediction.tokens) for some in written for prediction in some) / seconds
    seconds, _ = _timed(lambda some: name(run, some), together)
    return sum(map(len, run.tokenizers.source.encode_all([as_read(run, line) for line in lines]))) / seconds


def _timed(use: Callable[[list[str]], Made], together: Sequence[list[str]]) -> tuple[float, list[Made]]:
    """Seconds for all of them, after a warm-up; and what was made of each."""
    use(together[0])
    began = time.perf_counter()
    made = [use(some) for some in together]
    return time.perf_counter() - began, made

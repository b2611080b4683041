"""The cost of training a model, in floating-point operations (FLOPs).

training FLOPs = flops_per_token · target tokens seen           counted, where Vaswani 2017 (Table 2) estimates them
"""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator

import torch
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from regard.interface import Batch, Fits, Learns, UserError
from regard.layers.fast.switch import plain
from regard.train.training import Batches

COUNTED = 8  # batches whose operations are counted


def flops_per_token(model: nn.Module, batches: Iterable[Batch]) -> float:
    """Count training FLOPs per target token of these batches: a token of a text, a sentence's label or a word's tag."""
    counted = [flops(model, batch) for batch in batches]
    return sum(operations for operations, _ in counted) / max(1, sum(tokens for _, tokens in counted))


def first_batches(batches: Batches, device: torch.device) -> Iterator[Batch]:
    """Take enough of the training data to measure the cost of a token."""
    return (batches.get(0, index).to(device) for index in range(min(COUNTED, batches.count(0))))


def flops(model: nn.Module, batch: Batch) -> tuple[int, int]:
    """Count the FLOPs of one training step, the loss of this batch and its gradient; and its target tokens.

    Products of matrices are counted, a multiplication and an addition as two, padding included where it is computed;
    elementwise operations, softmax, distances, table look-ups and the optimiser's own are not. The model does not
    change. A model that is fitted by counting costs 0.
    """
    if isinstance(model, Fits):
        return 0, 0
    if not isinstance(model, Learns):
        raise UserError("This model does not learn by gradient descent, since it has no loss: give it a method loss.")
    learner = copy.deepcopy(model).train()  # so that gradients and running means of the model do not change
    device = batch.device
    with (
        torch.random.fork_rng([device] if device.type == "cuda" else []),
        torch.enable_grad(),
        plain(),
        FlopCounterMode(display=False) as counter,
    ):
        loss = learner.loss(batch)
        loss.objective.backward()  # type: ignore[no-untyped-call]
    return counter.get_total_flops(), loss.tokens

"""The processes that train one model: one, unless `torchrun` has started several (train/processes.py).

Each of several processes computes a part of the rows of every batch (data parallelism). Gradients, losses and numbers
of tokens are sums over rows, so they are added up over the processes, and a step is the one that a single process takes
with the whole batch. Process 0 leads: it alone prepares the data, validates, saves, logs and measures time, and the
others follow what it decides.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn

from regard.interface import Batch, Learns, Loss, map_tensors
from regard.train.weights import Weights

Wire = Literal["float32", "bfloat16"]
# adds the gradients of a batch, with this weight; True: it is the last one before the weights change
Step = Callable[[Batch, float, bool], Loss]


class Sums(NamedTuple):
    """What all processes have computed of a step, added up."""

    objective: float
    nll: float
    tokens: int
    seconds: float  # of the process that leads
    odd: bool  # the loss of a process was not finite


class Computed(nn.Module):
    """A model as a module that computes the loss of a batch, in mixed precision if so configured."""

    def __init__(self, model: nn.Module, device: torch.device, *, mixed: bool) -> None:
        super().__init__()
        self.model, self.kind, self.mixed = model, device.type, mixed

    def forward(self, batch: Batch) -> Loss:
        model = self.model
        assert isinstance(model, Learns)
        with torch.autocast(self.kind, torch.bfloat16, enabled=self.mixed):
            objective, nll, tokens, state = model.loss(batch)
        return Loss(objective, nll.detach(), tokens, map_tensors(kept, state))


def kept(tensor: Tensor) -> Tensor:
    """Detach a carried state, and return it in the precision of a model's initial state."""
    return tensor.detach().float() if tensor.dtype is torch.bfloat16 else tensor.detach()


class Group:
    """A process that trains alone; subclasses are several."""

    rank = 0  # the number of this process
    size = 1  # how many there are

    def __init__(self) -> None:
        self._asked = False

    @property
    def leads(self) -> bool:
        return self.rank == 0

    # --- opening ---

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        """Let the leading process execute this block first, and the others after it."""
        yield

    def agree(self, facts: Callable[[], dict[str, str]]) -> None:
        """Refuse to train where processes differ in these facts."""

    def sharded(self, model: nn.Module, *, wire: Wire) -> nn.Module:
        """Return a copy of the model of whose weights each process keeps a part."""
        return model

    # --- stepping ---

    def step(self, computed: Computed, *, wire: Wire) -> Step:
        """Return a function that adds the gradients of this process's part of a batch to those of all."""

        def step(batch: Batch, weight: float, last: bool) -> Loss:
            loss: Loss = computed(batch)
            loss.objective.backward()  # type: ignore[no-untyped-call]
            return loss

        return step

    def part(self, batch: Batch) -> tuple[Batch, float]:
        """Return the rows of a batch that this process computes, and their weight: 0 where there are fewer rows than
        processes, and this one repeats what another computes."""
        return batch, 1.0

    def seed(self, seed: int, step: int) -> None:
        """Choose the random numbers of a step, of which nothing is saved."""

    def sums(self, sums: Sums) -> Sums:
        return sums

    def decided(self, values: Sequence[float]) -> list[float]:
        """Return the values that the leading process gives."""
        return list(values)

    # --- stopping ---

    def ask(self) -> None:
        """Ask all processes to stop after a step."""
        self._asked = True

    @property
    def asked(self) -> bool:
        """Whether a process was asked to stop; all know it after the same step."""
        return self._asked

    # --- saving and loading ---

    def whole(self, tensors: Weights) -> Weights:
        """Return tensors of which the processes keep parts, put together."""
        return tensors

    def placed(self, tensor: Tensor, like: Tensor) -> Tensor:
        """Return what this process keeps of a whole tensor, as it does of another one."""
        return tensor

    def whole_rows(self, own: Tensor, rows: int) -> Tensor:
        """Return a tensor of so many rows, of which each process has those that it computes."""
        return own

    def own_rows(self, every: Tensor) -> Tensor:
        """Return the rows that this process computes."""
        return every

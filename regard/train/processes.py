"""Several processes that train one model together, as PyTorch's `torchrun` starts them, on one host or many.

rows      process r of n computes rows r, r + n, r + 2n … of every batch
weights   each process has all of them, and DistributedDataParallel adds the gradients up during the backward pass;
          with train.shard each keeps a part of the weights, gradients and moments (FSDP2), and gathers a block's
          when it is computed
random    dropout's numbers are a function of (seed, step, process), so that nothing random is saved for each process

A process that has died closes its connections, which ends the others at their next exchange. One that hangs closes
nothing: each process reports every second that it lives, and the others end when one has been silent for too long.
"""

from __future__ import annotations

import copy
import datetime
import hashlib
import os
import threading
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed import PrefixStore, TCPStore  # type: ignore[attr-defined]
from torch.nn.parallel import DistributedDataParallel

from regard.config import AgreedError, UserError
from regard.interface import Batch, Gathered, Loss, picked
from regard.train.group import Computed, Group, Step, Sums, Wire
from regard.train.weights import Weights

BEAT = 1.0  # seconds between two signs of life
COLLECTIVE = datetime.timedelta(hours=6)  # the longest that one process may work while others wait for it
MEGABYTES = 8  # of gradients that are sent together; the next are computed meanwhile
UNREACHED = ("gloo", "NCCL", "Connection closed", "Connection reset", "Broken pipe", "Socket")
# what PyTorch remarks on, and nobody needs to change: a newer name, a layout of gradients, outputs that are views
REMARKS = ("`broadcast_buffers` is deprecated", "Grad strides do not match", "FSDP2-wrapped module")
RESUME = "the same command resumes from the last checkpoint"
OnLost = Callable[[str], None]


@contextmanager
def joined(*, device: str, patience: float, on_lost: OnLost) -> Iterator[Processes]:
    """Within this block, join the other processes that `torchrun` has started for one training.

    `on_lost` is called, from another thread, with a sentence when one of them has been silent for `patience` seconds;
    it must end this process.
    """
    kinds = "cpu:gloo,cuda:nccl" if device == "cuda" else "gloo"
    dist.init_process_group(kinds, timeout=COLLECTIVE)
    watch = Watch(dist.get_rank(), dist.get_world_size(), patience, on_lost)
    try:
        with warnings.catch_warnings():
            for message in REMARKS:
                warnings.filterwarnings("ignore", message)
            yield Processes(watch, device)
    except RuntimeError as problem:
        if not any(each in str(problem) for each in UNREACHED):
            raise
        watch.ended.wait(6 * BEAT)  # one that has ended is then silent for longer than one that is only busy
        who = listed(watch.silent(4 * BEAT)) or "Another process"
        raise UserError(f"{who} of this training has ended or cannot be reached; {RESUME}.") from None
    finally:
        watch.close()
        dist.destroy_process_group()


def listed(ranks: Sequence[int]) -> str:
    """Name processes: "Process 1", "Processes 1 and 3"."""
    names = " and ".join(map(str, ranks))
    return f"Process{'es' * (len(ranks) > 1)} {names}" if ranks else ""


class Watch:
    """Shows the other processes that this one lives, and notices when another one is silent."""

    def __init__(self, rank: int, size: int, patience: float, on_lost: OnLost) -> None:
        place = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
        store = TCPStore(*place, is_master=False, timeout=datetime.timedelta(minutes=5))
        attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
        self.store = PrefixStore(f"regard/{attempt}", store)  # used by the thread alone
        self.rank, self.size, self.patience, self.on_lost = rank, size, patience, on_lost
        self.others = [other for other in range(size) if other != rank] if rank == 0 else [0]
        self.heard: dict[int, tuple[bytes, float]] = {}  # the latest sign of life of each, and when it came
        self.ended = threading.Event()
        self.store.set(str(rank), "0")
        for other in self.others:  # waits for it
            self.heard[other] = self.store.get(str(other)), time.monotonic()
        self.thread = threading.Thread(target=self._beat, daemon=True)
        self.thread.start()

    def _beat(self) -> None:
        beats = 0
        while not self.ended.wait(BEAT):
            beats += 1
            try:
                self.store.set(str(self.rank), str(beats))
                for other in self.others:
                    sign = self.store.get(str(other))
                    if sign == b"end" or sign != self.heard[other][0]:
                        self.heard[other] = sign, time.monotonic()
            except RuntimeError:  # the host of the store has gone: an exchange will say so
                return
            if lost := self.silent(self.patience):
                seconds = f"{self.patience:g} seconds"
                self.on_lost(f"{listed(lost)} of this training gave no sign of life for {seconds}; {RESUME}.")

    def silent(self, patience: float) -> list[int]:
        """Return the processes that have been silent for so many seconds."""
        now = time.monotonic()
        return [other for other, (sign, at) in self.heard.items() if sign != b"end" and now - at > patience]

    def close(self) -> None:
        self.ended.set()
        self.thread.join()
        with suppress(RuntimeError):
            self.store.set(str(self.rank), "end")


class Processes(Group):
    """One of several processes."""

    def __init__(self, watch: Watch, device: str) -> None:
        super().__init__()
        self.rank, self.size, self.patience = watch.rank, watch.size, watch.patience
        self.device = device
        self._all_asked = False

    # --- opening ---

    @contextmanager
    def in_turn(self) -> Iterator[None]:
        if not self.leads:
            self.decided([0.0])
        yield
        if self.leads:
            self.decided([0.0])
        dist.monitored_barrier(timeout=COLLECTIVE)

    def agree(self, facts: Callable[[], dict[str, str]]) -> None:
        found = facts()
        own = torch.stack([digest(fact) for fact in found.values()])  # (facts, bytes)
        every = [torch.empty_like(own) for _ in range(self.size)]
        dist.all_gather(every, own)
        for name, *each in zip(found, *every, strict=True):
            odd = [rank for rank, other in enumerate(each) if not torch.equal(other, each[0])]
            if odd:
                raise AgreedError(
                    f"{listed(odd)} of this training has another {name} than process 0: all need the same versions, "
                    "recipe, files and code."
                )

    def sharded(self, model: nn.Module, *, wire: Wire) -> nn.Module:
        from torch.distributed.device_mesh import init_device_mesh
        from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard, register_fsdp_forward_method

        mesh = init_device_mesh(self.device, (self.size,))
        policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16 if wire == "bfloat16" else None)
        learner = copy.deepcopy(model)
        for module in [each for each in learner.modules() if isinstance(each, Gathered) and each.gathered]:
            fully_shard(module, mesh=mesh, mp_policy=policy)
        fully_shard(learner, mesh=mesh, mp_policy=policy)
        register_fsdp_forward_method(learner, "loss")
        return learner

    # --- stepping ---

    def step(self, computed: Computed, *, wire: Wire) -> Step:
        from torch.distributed.fsdp import FSDPModule

        model = computed.model
        if isinstance(model, FSDPModule):

            def gather(batch: Batch, weight: float, last: bool) -> Loss:
                model.set_requires_gradient_sync(last)
                return self._added(computed(batch), weight)

            return gather
        learner = DistributedDataParallel(
            computed, bucket_cap_mb=MEGABYTES, broadcast_buffers=False, find_unused_parameters=True
        )
        if wire == "bfloat16":
            learner.register_comm_hook(None, lambda _, bucket: averaged_in_bfloat16(bucket.buffer()))

        def step(batch: Batch, weight: float, last: bool) -> Loss:
            with nullcontext() if last else learner.no_sync():
                return self._added(learner(batch), weight)

        return step

    def _added(self, loss: Loss, weight: float) -> Loss:
        """Add gradients. Those of the processes are averaged, and a step wants their sum."""
        (loss.objective * (weight * self.size)).backward()  # type: ignore[no-untyped-call]
        return Loss(loss.objective * weight, loss.nll * weight, int(loss.tokens * weight), loss.state)

    def part(self, batch: Batch) -> tuple[Batch, float]:
        idle = self.rank >= batch.size
        rows = torch.arange(0 if idle else self.rank, batch.size, batch.size if idle else self.size)
        own: Batch = picked(batch, rows.to(batch.device))
        return own, 0.0 if idle else 1.0

    def seed(self, seed: int, step: int) -> None:
        numbers = f"{seed} {step} {self.rank}".encode()
        torch.manual_seed(int.from_bytes(hashlib.sha256(numbers).digest()[:7]))

    def sums(self, sums: Sums) -> Sums:
        seconds = sums.seconds if self.leads else 0.0
        row = torch.tensor([*sums[:3], seconds, float(sums.odd), float(self._asked)], dtype=torch.float64)
        dist.all_reduce(row)
        objective, nll, tokens, seconds, odd, asked = row.tolist()
        self._all_asked |= asked > 0
        return Sums(objective, nll, int(tokens), seconds, odd > 0)

    def decided(self, values: Sequence[float]) -> list[float]:
        row = torch.tensor(values, dtype=torch.float64)
        dist.broadcast(row, 0)
        found: list[float] = row.tolist()
        return found

    @property
    def asked(self) -> bool:
        return self._all_asked

    # --- saving and loading ---

    def whole(self, tensors: Weights) -> Weights:
        from torch.distributed.tensor import DTensor

        return {
            name: tensor.full_tensor() if isinstance(tensor, DTensor) else tensor for name, tensor in tensors.items()
        }

    def placed(self, tensor: Tensor, like: Tensor) -> Tensor:
        from torch.distributed.tensor import DTensor, distribute_tensor

        if not isinstance(like, DTensor) or tensor.dim() == 0:
            return tensor
        return distribute_tensor(tensor, like.device_mesh, like.placements)

    def whole_rows(self, own: Tensor, rows: int) -> Tensor:
        every = own.new_zeros(rows, *own.shape[1:])
        if self.rank < rows:
            every[self.rank :: self.size] = own
        dist.all_reduce(every)
        return every

    def own_rows(self, every: Tensor) -> Tensor:
        return every[self.rank :: self.size] if self.rank < len(every) else every[:1]


def averaged_in_bfloat16(gradients: Tensor) -> torch.futures.Future[Tensor]:
    """Average gradients over the processes, sent in bfloat16. (PyTorch's own way refuses to on CPUs.)"""
    sent = (gradients / dist.get_world_size()).bfloat16()

    def received(done: torch.futures.Future[Any]) -> Tensor:
        return gradients.copy_(sent)

    work = dist.all_reduce(sent, async_op=True)
    assert work is not None
    average: torch.futures.Future[Tensor] = work.get_future().then(received)
    return average


def digest(fact: str) -> Tensor:
    return torch.tensor(list(hashlib.sha256(fact.encode()).digest()), dtype=torch.uint8)

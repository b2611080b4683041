"""What the contenders of bench/train.py share. It needs torch, numpy and nothing else.

A contender is a process. It loads, warms up, writes a line of JSON, {"done": target tokens, "seconds": ..., ...}, and
waits. At each line "go K" on its standard input it works through its next K batches and writes such a line again.
"""

from __future__ import annotations

import itertools
import json
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

PAD, BOS, EOS = range(3)  # regard's special ids; the fourth is <unk>, which its BPE does not need


class Gate:
    """Stands before each batch: lets as many through as were asked for, then reports and waits to be asked again."""

    def __init__(self, warm_up: int) -> None:
        self.left = warm_up
        self.facts: dict[str, Any] = {}
        self.channel = os.fdopen(os.dup(1), "w")
        os.dup2(2, 1)  # whatever a library prints is kept out of the conversation
        self._start()

    def _start(self) -> None:
        self.done = 0.0  # target tokens with <eos> and without padding
        self.began, self.busy = time.perf_counter(), time.process_time()

    def wait(self) -> None:
        if self.left == 0:
            seconds, busy = time.perf_counter() - self.began, time.process_time() - self.busy
            spent = {"done": self.done, "seconds": seconds, "busy": busy}  # busy: of all its threads
            print(json.dumps({**self.facts, **spent}), file=self.channel, flush=True)
            asked = sys.stdin.readline()
            if not asked:  # nobody is there any more
                os._exit(0)
            self.left = int(asked.removeprefix("go "))
            self._start()
        self.left -= 1


def read_setup(folder: Path) -> dict[str, Any]:
    setup: dict[str, Any] = json.loads((folder / "setup.json").read_text())
    return setup


def read_batches(folder: Path) -> list[tuple[Tensor, Tensor]]:
    """The padded batches: source (batch, source), target (batch, target) with <bos> in front."""
    with np.load(folder / "batches.npz") as file:
        count = len(file.files) // 2
        return [tuple(torch.from_numpy(file[f"{side}_{i}"]) for side in ("source", "target")) for i in range(count)]  # type: ignore[misc]


def real_tokens(target: Tensor) -> int:
    return int((target[:, 1:] != PAD).sum())


def size_of(model: nn.Module, *, lookup: nn.Module | None) -> dict[str, int]:
    """Parameters, and those of them that are in matrix products; `lookup` is an embedding that is only looked up."""
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    matrices = sum(parameter.numel() for parameter in trained if parameter.dim() > 1)
    looked_up = sum(parameter.numel() for parameter in lookup.parameters()) if lookup else 0
    return {"parameters": sum(parameter.numel() for parameter in trained), "matmul_parameters": matrices - looked_up}


def bare_loop(
    gate: Gate, model: nn.Module, batches: Sequence[tuple[Any, int]], loss_of: Callable[[Any], Tensor]
) -> None:
    """loss, backward, clip, fused AdamW, over (batch, target tokens) again and again."""
    optimiser = torch.optim.AdamW(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
    model.train()
    for batch, tokens in itertools.cycle(batches):
        gate.wait()
        optimiser.zero_grad()
        loss_of(batch).backward()  # type: ignore[no-untyped-call]
        nn.utils.clip_grad_norm_(model.parameters(), 1.0, foreach=True)
        optimiser.step()
        gate.done += tokens

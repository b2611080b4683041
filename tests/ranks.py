"""Processes that train together: started with the variables that torchrun gives them, and what they do in tests.

As a program, `python tests/ranks.py PLAN.json`, it carries out a plan, a list of trainings, in one process group.
"""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import torch
from command import ENVIRONMENT

from regard.checkpoint import Folder
from regard.interface import Batch, map_tensors
from regard.loading import read_recipe
from regard.train.group import Group
from regard.train.loop import train_steps
from regard.train.session import Session
from regard.train.training import Batches, Training

HERE = Path(__file__)
QUIET = {"TORCH_CPP_LOG_LEVEL": "ERROR"}  # as regard/__init__.py sets it, which a test may import after torch


def started(commands: Sequence[Sequence[object]]) -> list[subprocess.Popen[bytes]]:
    """Start one process for each command, as torchrun does."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    place = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": str(len(commands)), **QUIET}
    found = []
    for rank, command in enumerate(commands):
        variables = {**ENVIRONMENT, **place, "RANK": str(rank), "LOCAL_RANK": str(rank)}
        pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
        found.append(subprocess.Popen([*map(str, command)], env=variables, **pipes))  # type: ignore[call-overload]
    return found


def ended(processes: Sequence[subprocess.Popen[bytes]]) -> list[tuple[int, str, str]]:
    """Wait for the processes: exit code, standard output and standard error of each."""
    found = []
    for process in processes:
        out, err = process.communicate(timeout=120)
        found.append((process.returncode, out.decode(), err.decode()))
    return found


def together(plan: Sequence[Mapping[str, Any]], place: Path, count: int = 2) -> None:
    """Carry out a plan in several processes."""
    file = place / f"plan-{len(list(place.glob('plan-*')))}.json"
    file.write_text(json.dumps(plan))
    for code, _, err in ended(started([[sys.executable, HERE, file]] * count)):
        assert code == 0, err


class Exact:
    """Batches in double precision."""

    def __init__(self, batches: Batches) -> None:
        self.batches, self.carries = batches, batches.carries

    def count(self, epoch: int) -> int:
        return self.batches.count(epoch)

    def get(self, epoch: int, index: int) -> Batch:
        batch: Batch = map_tensors(lambda x: x.double() if x.is_floating_point() else x, self.batches.get(epoch, index))
        return batch


def carry_out(plan: Sequence[Mapping[str, Any]], group: Group) -> None:
    for job in plan:
        recipe, _ = read_recipe(job["recipe"], job["settings"])
        out = Path(job["out"])
        with ExitStack() as stack:
            with group.in_turn():
                if group.leads:
                    stack.enter_context(Folder(out).only_writer())
                session = Session(recipe, out, follows=not group.leads)
            losses = exact_losses(session, group) if job.get("exact") else trained(session, group, job["stop"])
            if group.leads:
                (out / "losses.json").write_text(json.dumps(losses))


def exact_losses(session: Session, group: Group) -> list[float]:
    """Train in double precision, without validations: each step's loss, and at last the squared size of all weights."""
    model, rows = session.training.model.double(), session.batches.carries
    training = Training(model, session.training.config, seed=session.recipe.seed).spread(group, rows=rows)
    steps = train_steps(training, Exact(session.batches), validate=lambda: ({"loss": 1.0}, ()), save_best=lambda: None)
    losses = [training.lately[-1][0] / training.lately[-1][2] for _ in steps]
    weights = group.whole({name: weight.detach() for name, weight in training.parameters.items()})
    return [*losses, sum(float(weight.square().sum()) for weight in weights.values())]


def trained(session: Session, group: Group, stop: int) -> list[float]:
    """Train up to this step, and save: the losses of validations, of which all processes hear."""
    session.join(group)
    losses = []
    for progress in session.steps():
        if progress.valid:
            losses.append(progress.valid["loss"])
        if progress.step == stop:
            break
    session.save()
    every = group.whole_rows(torch.tensor([losses], dtype=torch.float64), group.size)
    assert torch.equal(every[0], every[-1])
    return losses


if __name__ == "__main__":
    from regard.train.processes import joined

    def lost(sentence: str) -> None:
        os.write(2, sentence.encode())
        os._exit(3)

    torch.set_num_threads(1)
    with joined(device="cpu", patience=60, on_lost=lost) as group:
        carry_out(json.loads(Path(sys.argv[1]).read_text()), group)

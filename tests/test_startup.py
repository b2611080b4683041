"""A command imports what it needs, and a run is loaded without PyTorch's compiler."""

from __future__ import annotations

import re
import subprocess
import sys
from itertools import product
from pathlib import Path

import pytest
import test_contract as contract
import torch
from command import ENVIRONMENT
from torch import nn

from regard.layers.fast.without_values import without_values
from regard.train.tuning import adapted
from regard.train.weights import weights

RUNS = Path(__file__).parent / "runs"
# for compiling, drawing, scoring by others' programs, event files: each takes long to import
HEAVY = {"sympy", "torch._dynamo", "torch._inductor", "torch.distributed.fsdp", "torch.utils.tensorboard"}
HEAVY |= {
    "plotly",
    "matplotlib",
    "PIL",
    "sklearn",
    "scipy",
    "pandas",
    "tensorboard",
    "transformers",
    "IPython",
    "optuna",
}
SCORING = {"sacrebleu"}
NUMBERS = {"torch", "tokenizers"}
COMMANDS: dict[str, tuple[list[object], set[str]]] = {  # and what it may not import
    "help": (["--help"], HEAVY | SCORING | NUMBERS | {"numpy"}),
    "help of predict": (["predict", "--help"], HEAVY | SCORING | NUMBERS | {"numpy"}),
    "version": (["--version"], HEAVY | SCORING | NUMBERS | {"numpy"}),
    "runs": (["runs", RUNS], HEAVY | SCORING | NUMBERS),
    "models": (["models"], HEAVY | SCORING),
    "predict translation": (["predict", RUNS / "translation", "a b"], HEAVY | SCORING),
    "predict language": (["predict", RUNS / "language", "a b", "--max-length", "3"], HEAVY | SCORING),
    "predict classification": (["predict", RUNS / "classification", "a b"], HEAVY | SCORING),
    "predict tagging": (["predict", RUNS / "tagging", "a b"], HEAVY | SCORING),
    "score language": (["score", RUNS / "language", "a b"], HEAVY | SCORING),
    "look translation": (["look", RUNS / "translation", "a b"], HEAVY | SCORING),
}
TUNED, TUNES = ("bert labels tanh 5", "rnnsearch additive"), ("lora", "prompt")
BUILD = f"""
import test_contract as contract
from regard.layers.fast.without_values import without_values
from regard.train.tuning import adapted
with without_values():
    for name in contract.CASES:
        contract.build(name)
    for name in {TUNED}:
        for tune in {TUNES}:
            adapted(contract.build(name), tune, contract.CASES[name][2], rank=2, prompt=3)
"""


def imported(*arguments: object) -> set[str]:
    """The modules that a process of Python imports."""
    command = [sys.executable, "-X", "importtime", *map(str, arguments)]
    here = {**ENVIRONMENT, "PYTHONPATH": ":".join(filter(None, sys.path))}
    done = subprocess.run(command, capture_output=True, text=True, env=here, timeout=120)
    assert done.returncode == 0, done.stderr[-2000:]
    return set(re.findall(r"^import time: .*\| +(\S+)$", done.stderr, re.MULTILINE))


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_imports_nothing_that_it_does_not_need(name: str) -> None:
    arguments, never = COMMANDS[name]
    found = imported("-m", "regard", *arguments)
    assert "regard.cli" in found
    assert found & never == set()


def test_no_model_needs_the_compiler_to_be_built_without_values() -> None:
    found = imported("-c", BUILD)
    assert "torch" in found
    assert found & {"sympy", "torch._dynamo"} == set()


def described(model: nn.Module) -> dict[str, tuple[object, ...]]:
    """What a model is made of, without values; tied weights are listed once."""
    own = weights(model)
    learns = {name for name, parameter in model.named_parameters() if parameter.requires_grad}
    return {name: (tuple(tensor.shape), tensor.dtype, name in learns) for name, tensor in own.items()}


@pytest.mark.parametrize(("name", "tune"), [*((name, "all") for name in contract.CASES), *product(TUNED, TUNES)])
def test_a_model_without_values_is_the_same_otherwise(name: str, tune: str) -> None:
    shapes = contract.CASES[name][2]
    real = adapted(contract.build(name), tune, shapes, rank=2, prompt=3)  # type: ignore[arg-type]
    with without_values():
        plan = adapted(contract.build(name), tune, shapes, rank=2, prompt=3)  # type: ignore[arg-type]
    assert described(plan) == described(real)
    assert all(tensor.is_meta for tensor in [*plan.parameters(), *plan.buffers()])


def test_within_the_block_only_new_tensors_have_no_values() -> None:
    old = torch.ones(3)
    with without_values():
        old.fill_(2.0)
        made = [torch.zeros(2, 3), torch.randn(2, 3) * 2, torch.eye(2), torch.zeros((2,), dtype=torch.int64)]
    assert old.tolist() == [2.0, 2.0, 2.0]
    assert all(each.is_meta for each in made)
    assert [tuple(each.shape) for each in made] == [(2, 3), (2, 3), (2, 2), (2,)]
    assert [each.dtype for each in made] == [torch.float32, torch.float32, torch.float32, torch.int64]
    assert torch.zeros(2).tolist() == [0.0, 0.0]

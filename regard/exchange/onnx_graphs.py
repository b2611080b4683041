"""ONNX: a model as two graphs, with which another program decodes step by step.

    encoder.onnx   source (batch, source), ids that end in <eos>; mask (batch, source), True where there is a token
                   -> the state of decoding before the first step: memory.… and carry.…
    start.onnx     the same for a language model: tokens (batch,), of which only the number counts
    step.onnx      tokens (batch,), the last of each row, at first <bos>; the state by the same names
                   -> logits (batch, vocab), and the carry after the step: next.carry.…

A memory never changes; a carry is replaced by its next.…. Batch, source and the length of a KV cache may have any size.
docs/export.md decodes with these graphs in a few lines.
"""

from __future__ import annotations

import contextlib
import dataclasses
import logging
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from regard import machine
from regard.data.fields import Fields, TextField
from regard.data.files import reason, refuse_to_overwrite, whole_folder
from regard.exchange.own_tokenizers import write_sides
from regard.interface import BOS, UNK, Batch, Fits, Generates, Padded, Rows, State, Tree, UserError, map_tensors
from regard.loading import load
from regard.run import Run

ROWS, SOURCE, STEPS = (3, 4), (5, 7), (2, 3)  # two sizes of each axis; what differs between them is an axis of any size
Named = dict[str, Tensor]
Axes = dict[str, dict[int, str]]  # name of a tensor -> its axes of any size


def named(tree: Tree, name: str) -> Iterator[tuple[str, Tensor]]:
    """Yield the tensors of a state by name, in the order in which `map_tensors` visits them."""
    if isinstance(tree, Tensor):
        yield name, tree
        return
    if isinstance(tree, Rows):
        branches: Any = tree.tensors().items()
    elif isinstance(tree, dict):
        branches = tree.items()
    elif dataclasses.is_dataclass(tree):
        branches = vars(tree).items()
    elif type(tree) in (tuple, list):
        branches = enumerate(tree)
    elif isinstance(tree, tuple):
        branches = tree._asdict().items()  # type: ignore[attr-defined]
    else:
        return
    for part, branch in branches:
        yield from named(branch, f"{name}.{part}")


def held(form: Tree, tensors: Iterator[Tensor]) -> Tree:
    """Build a tree of this form that holds these tensors."""

    def leaf(own: Any) -> Any:
        if isinstance(own, Tensor):
            return next(tensors)
        return own.holding({name: next(tensors) for name in own.tensors()})

    return map_tensors(leaf, form, (Tensor, Rows))


class Parts:
    """The tensors of a state: each part of the memory once, even where several layers share it."""

    def __init__(self, state: State) -> None:
        self.state = state
        self.shared: dict[str, str] = {}  # name of a part of the memory -> the first one that is the same
        first: dict[Any, str] = {}
        for name, tensor in named(state.memory, "memory"):
            self.shared[name] = first.setdefault((tensor.data_ptr(), tensor.shape, tensor.stride()), name)

    def tensors(self, state: State) -> Named:
        memory = {name: tensor for name, tensor in named(state.memory, "memory") if self.shared[name] == name}
        return {**memory, **dict(named(state.carry, "carry"))}

    def state_of(self, tensors: Named) -> State:
        memory = held(self.state.memory, (tensors[self.shared[name]] for name in self.shared))
        carry = held(self.state.carry, (tensors[name] for name, _ in named(self.state.carry, "carry")))
        return State(memory, carry)


class Start(nn.Module):
    """The first graph: from a source, or for a language model from one token of each row, to a state."""

    def __init__(self, model: nn.Module, batch: Batch, parts: Parts) -> None:
        super().__init__()
        self.model, self.batch, self.parts = model, batch, parts

    def forward(self, first: Tensor, mask: Tensor | None = None) -> tuple[Tensor, ...]:
        read = Batch.of_text(first[:, None])
        if mask is not None:
            read = dataclasses.replace(self.batch, source=Padded(first, mask))
        assert isinstance(self.model, Generates)
        return tuple(self.parts.tensors(self.model.start(read)).values())


class Step(nn.Module):
    def __init__(self, model: nn.Module, names: tuple[str, ...], parts: Parts) -> None:
        super().__init__()
        self.model, self.names, self.parts = model, names, parts

    def forward(self, tokens: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
        assert isinstance(self.model, Generates)
        before = self.parts.state_of(dict(zip(self.names, state, strict=True)))
        logits, after = self.model.step(tokens, before)
        return logits, *(tensor for _, tensor in named(after.carry, "carry"))


def export_graphs(run: Path, output: Path | None = None, *, trust_code: bool = False) -> Path:
    """Write a run's model as two ONNX graphs with its tokenizers, by default in the folder onnx of the run. Return the
    folder."""
    folder = output or run / "onnx"
    refuse_to_overwrite(folder)
    machine.require("onnxscript", "export --to onnx")
    loaded = load(run, trust_code=trust_code)
    model = generating(loaded)
    with torch.no_grad(), quiet():
        state = after_steps(model, loaded.fields, ROWS[0], SOURCE[0], STEPS[0])
        parts = Parts(state)
        axes = free_axes(model, loaded.fields, parts)
        batch = first_batch(loaded.fields, ROWS[0], SOURCE[0])
        tensors = parts.tensors(state)
        names = tuple(tensors)
        with whole_folder(folder) as beside, refused(loaded):
            rows = {0: "batch"}
            if batch.source is None:
                start, inputs = "start.onnx", {"tokens": torch.full((ROWS[0],), BOS)}
                sizes: Any = (rows,)
            else:
                start, inputs = "encoder.onnx", {"source": batch.source.values, "mask": batch.source.mask}
                sizes = ({**rows, 1: "source"},) * 2
            first = Start(model, batch, parts)
            write(beside / start, first, tuple(inputs.values()), sizes, tuple(inputs), names)
            carried = [name for name in names if name.startswith("carry")]
            step, given = Step(model, names, parts), (torch.full((ROWS[0],), BOS), tuple(tensors.values()))
            sizes = (rows, tuple(axes[name] for name in names))
            after = ("logits", *(f"next.{name}" for name in carried))
            write(beside / "step.onnx", step, given, sizes, ("tokens", *names), after)
            write_sides(loaded, beside)
    return folder


def generating(run: Run) -> nn.Module:
    """The model of a run that generates text by computing with tensors."""
    if isinstance(run.model, Fits) or not isinstance(run.model, Generates):
        wrong = "does not generate text step by step with a network"
        raise UserError(
            f"{run.name} is a run of {run.model_title}, which {wrong}: export a translator or a language model."
        )
    if not all(isinstance(field, TextField) for field in run.fields.values()):
        raise UserError(f"{run.name} reads pictures: --to onnx exports models that read and write text.")
    return run.model


def first_batch(fields: Fields, rows: int, source: int) -> Batch:
    """Rows of any tokens, which are all as long."""
    if "source" in fields:
        return fields.batch({"source": [[UNK] * (source - 1)] * rows}, multiple=1)
    return Batch.of_text(torch.full((rows, 1), BOS))


def after_steps(model: nn.Module, fields: Fields, rows: int, source: int, steps: int) -> State:
    assert isinstance(model, Generates)
    state = model.start(first_batch(fields, rows, source))
    for _ in range(steps):
        _, state = model.step(torch.full((rows,), BOS), state)
    return state


def free_axes(model: nn.Module, fields: Fields, parts: Parts) -> Axes:
    """Find the axes of each tensor of the state whose size is that of the batch, the source or the text so far."""
    sizes = {"batch": (ROWS[1], SOURCE[0], STEPS[0]), "source": (ROWS[0], SOURCE[1], STEPS[0])}
    sizes["length"] = (ROWS[0], SOURCE[0], STEPS[1])
    axes: Axes = {name: {} for name in parts.tensors(parts.state)}
    for axis, size in sizes.items():
        other = parts.tensors(after_steps(model, fields, *size))
        for name, tensor in parts.tensors(parts.state).items():
            both = zip(tensor.shape, other[name].shape, strict=True)
            axes[name] |= {place: axis for place, (one, two) in enumerate(both) if one != two}
    return axes


def write(
    path: Path, graph: nn.Module, given: tuple[Any, ...], sizes: Any, inputs: tuple[str, ...], outputs: tuple[str, ...]
) -> None:
    # the exporter that traces with torch.export: the older one would unroll a recurrence for the length it has seen
    torch.onnx.export(
        graph.eval(), given, path, dynamo=True, dynamic_shapes=sizes, input_names=inputs, output_names=outputs,
        external_data=False, verbose=False,
    )  # fmt: skip


@contextlib.contextmanager
def quiet() -> Iterator[None]:
    """Keep the exporter from warning about packages and names that do not concern the model."""
    levels = {logger: logger.level for logger in map(logging.getLogger, ("torch.onnx", "onnxscript", "onnx_ir"))}
    for logger in levels:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(action="ignore"):
            yield
    finally:
        for logger, level in levels.items():
            logger.setLevel(level)


@contextlib.contextmanager
def refused(run: Run) -> Iterator[None]:
    try:
        yield
    except torch.onnx.OnnxExporterError as problem:
        cause = problem.__cause__ or problem
        wrong = f"{run.model_title} with these settings cannot be written as an ONNX graph ({reason(cause)})"
        raise UserError(f"{wrong}: export another model.") from None

"""The loop: for everything that Learns. It yields Progress; callers print, save and plot.

Each step: gradients of −Σ log p / tokens over `accumulate` batches;  g ← min(1, θ/‖g‖) g;  AdamW (Loshchilov 2019).
Everything the next step depends on is in `Training`, so a run that is saved and loaded goes on as if it had never
stopped.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, replace
from itertools import count
from pathlib import Path
from typing import Any, Literal, Protocol

import torch
from torch import Tensor, nn

from regard.config import ABOVE_0, NOT_NEGATIVE, SHARE, keep_within
from regard.interface import (
    Batch,
    Carries,
    Fits,
    Learns,
    Loss,
    Progress,
    Sample,
    Texts,
    Tree,
    UserError,
    map_tensors,
)
from regard.train.schedule import ScheduleName, rate

MOMENTS = ("step", "exp_avg", "exp_avg_sq")  # AdamW's own names for what it keeps of each parameter

Precision = Literal["auto", "float32", "bfloat16"]


@dataclass(frozen=True)
class TrainConfig:
    steps: int = 0  # stop after so many steps; 0: no limit
    epochs: int = 0  # stop after so many passes over the data; 0: no limit
    minutes: float = 0.0  # stop after so many minutes; 0: no limit
    batch_tokens: int = 4096  # tokens in a batch, padding included, on the longer side
    accumulate: int = 1  # batches whose gradients make one step
    learning_rate: float = 1e-3  # the highest, reached after warm-up
    schedule: ScheduleName = "inverse-sqrt"  # how it falls after warm-up: constant, inverse-sqrt, linear, cosine
    warmup: int = 400  # steps of linear rise
    weight_decay: float = 0.01  # of matrices, per step and learning rate
    clip: float = 1.0  # the longest gradient; 0: no limit
    precision: Precision = "auto"  # auto: bfloat16 where it is much faster here
    validate_every: int = 500  # steps between validations
    metric: Literal["loss", "bleu"] = "loss"  # what makes a checkpoint the best one
    patience: int = 0  # stop after so many validations without a better one; 0: never
    average: int = 1  # validate and keep the mean of the weights at this many validations
    smooth: float = 0.0  # the weights are a running mean over about this share of the steps so far; 0: the latest
    from_: str = ""  # a run whose weights and vocabulary to begin with; "": begin anew

    def __post_init__(self) -> None:
        if not (self.steps or self.epochs or self.minutes):
            raise ValueError("training would never end: set steps, epochs or minutes.")
        keep_within(self, ABOVE_0, "batch_tokens", "accumulate", "learning_rate", "validate_every", "average")
        keep_within(self, SHARE, "smooth")
        keep_within(self, NOT_NEGATIVE, "steps", "epochs", "minutes", "warmup", "weight_decay", "clip", "patience")


class Batches(Protocol):
    """The data, in an order that is a function of the epoch and the place in it."""

    @property
    def carries(self) -> int: ...  # rows of a batch that go on where those of the one before ended; 0: none do

    def count(self, epoch: int) -> int: ...

    def get(self, epoch: int, index: int) -> Batch: ...


class Validation(Protocol):
    """Looks at the model, in evaluation mode, and returns metrics (with "loss" among them) and a few outputs."""

    def __call__(self) -> tuple[dict[str, float], tuple[Sample, ...]]: ...


@dataclass
class Training:
    """A model on its way: everything that the next step depends on."""

    model: nn.Module
    config: TrainConfig
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    step: int = 0
    epoch: int = 0
    index: int = 0  # batches of this epoch that were used
    seconds: float = 0.0
    best: float | None = None  # the best validation so far; higher is better for BLEU, lower for loss
    stale: int = 0  # validations since then
    snapshots: list[dict[str, Tensor]] = field(default_factory=list)  # the weights that are averaged, oldest first
    carry: Tree = None  # what a model that reads one long text goes on from; None: the next batch begins anew

    def __post_init__(self) -> None:
        named = [(n, p) for n, p in self.model.named_parameters() if p.requires_grad]
        matrices = [p for _, p in named if p.dim() > 1]
        vectors = [p for _, p in named if p.dim() <= 1]
        groups = [
            {"params": matrices, "weight_decay": self.config.weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ]
        self.names = [n for n, p in named if p.dim() > 1] + [n for n, p in named if p.dim() <= 1]
        self.optimiser = torch.optim.AdamW(
            groups, lr=self.config.learning_rate, betas=(0.9, 0.98), eps=1e-9, fused=self.device.type != "mps"
        )
        self.smoothed = {n: p.detach().clone() for n, p in named} if self.config.smooth else {}

    @torch.no_grad()
    def smooth(self) -> None:
        """Take the weights of this step into their running mean, whose memory grows as training does."""
        if self.smoothed:
            own = dict(self.model.named_parameters())
            forgotten = min(1.0, 1 / (self.config.smooth * self.step))
            torch._foreach_lerp_(list(self.smoothed.values()), [own[name] for name in self.smoothed], forgotten)

    # --- saving and loading ---

    def tensors(self) -> dict[str, Tensor]:
        """Weights, moments, snapshots and random state, by name."""
        tensors = {f"model.{name}": tensor for name, tensor in learnt(self.model).items()}
        for name, parameter in zip(self.names, self._parameters(), strict=True):
            for kind, value in self.optimiser.state[parameter].items():
                tensors[f"optimiser.{kind}.{name}"] = value
        for age, snapshot in enumerate(self.snapshots):
            tensors |= {f"snapshot.{age}.{name}": tensor for name, tensor in snapshot.items()}
        tensors |= {f"smoothed.{name}": tensor for name, tensor in self.smoothed.items()}
        tensors |= {f"carry.{place}": tensor for place, tensor in enumerate(leaves(self.carry))}
        tensors["random"] = torch.get_rng_state()
        return tensors

    def facts(self) -> dict[str, Any]:
        names = ("step", "epoch", "index", "seconds", "best", "stale")
        counts = {"snapshots": len(self.snapshots), "carried": len(leaves(self.carry))}
        return {name: self.__dict__[name] for name in names} | counts

    def load(
        self, tensors: dict[str, Tensor], facts: dict[str, Any], *, rows: int = 0, origin: str | Path = "memory"
    ) -> None:
        """Go on from there; `rows` is how many carry a state. Refused, with nothing changed, where a fact or a tensor
        is not what `tensors` and `facts` would have saved."""
        form = self.model.begin(rows) if rows and isinstance(self.model, Carries) else None
        odd = (
            self._odd(facts, len(leaves(form)))
            or misfit(self._expected(tensors, facts, leaves(form)), tensors)
            or not_random(tensors["random"])
        )
        if odd:
            raise UserError(f"The state in {origin} does not fit the run: {odd}; restore it, or start anew with -o.")
        if not isinstance(self.model, Fits):
            load_weights(self.model, taken(tensors, "model."))
        for name, parameter in zip(self.names, self._parameters(), strict=True):
            if f"optimiser.step.{name}" in tensors:
                self.optimiser.state[parameter] = {kind: tensors[f"optimiser.{kind}.{name}"] for kind in MOMENTS}
        self.snapshots = [taken(tensors, f"snapshot.{age}.") for age in range(facts["snapshots"])]
        self.smoothed = taken(tensors, "smoothed.")
        self.carry = restored(form, taken(tensors, "carry.")) if facts["carried"] else None
        for name in ("step", "epoch", "index", "seconds", "best", "stale"):
            setattr(self, name, facts[name])
        torch.set_rng_state(tensors["random"])

    def _odd(self, facts: dict[str, Any], carried: int) -> str:
        """The first fact that cannot be; "" if they all can."""
        if facts.keys() != self.facts().keys():
            return f"{sorted(facts.keys() ^ self.facts().keys())[0]!r} is in one of them only"
        for name in ("step", "epoch", "index", "stale", "snapshots", "carried"):
            most = {"snapshots": self.config.average, "carried": carried}.get(name, 1 << 53)
            if type(facts[name]) is not int or not 0 <= facts[name] <= most:
                return f"its {name} cannot be {str(facts[name])[:40]}"
        for name in ("seconds", "best"):
            unknown = name == "best" and facts[name] is None
            if not unknown and (type(facts[name]) is not float or not math.isfinite(facts[name])):
                return f"its {name} cannot be {str(facts[name])[:40]}"
        return ""

    def _expected(self, tensors: dict[str, Tensor], facts: dict[str, Any], carried: list[Tensor]) -> dict[str, Tensor]:
        """Tensors of the names, shapes and kinds that these should have. Only what got a gradient has moments."""
        own = learnt(self.model)
        expected = {f"model.{name}": tensor for name, tensor in own.items()}
        for age in range(facts["snapshots"]):
            expected |= {f"snapshot.{age}.{name}": tensor for name, tensor in own.items()}
        expected |= {f"smoothed.{name}": tensor for name, tensor in self.smoothed.items()}
        for name, parameter in zip(self.names, self._parameters(), strict=True):
            if any(f"optimiser.{kind}.{name}" in tensors for kind in MOMENTS):
                expected |= {f"optimiser.{kind}.{name}": parameter for kind in MOMENTS}
                expected[f"optimiser.step.{name}"] = torch.tensor(0.0)
        if facts["carried"]:
            expected |= {f"carry.{place}": tensor for place, tensor in enumerate(carried)}
        return expected | {"random": torch.get_rng_state()}

    def _parameters(self) -> list[nn.Parameter]:
        return [parameter for group in self.optimiser.param_groups for parameter in group["params"]]

    # --- budget ---

    def done(self, batches: Batches) -> float:
        """The share of the budget that is used; all of it where patience has run out."""
        config = self.config
        if isinstance(self.model, Fits):
            return float(self.step > 0)
        if config.patience and self.stale >= config.patience:
            return 1.0
        epochs = self.epoch + self.index / max(1, batches.count(self.epoch))
        used = ((self.step, config.steps), (epochs, config.epochs), (self.seconds / 60, config.minutes))
        return min(1.0, max(amount / limit for amount, limit in used if limit))

    def better(self, metrics: dict[str, float]) -> bool:
        value = metrics[self.config.metric]
        sign = 1 if self.config.metric == "bleu" else -1
        return self.best is None or sign * value > sign * self.best


def leaves(tree: Tree) -> list[Tensor]:
    """The tensors of a tree, in order."""
    found: list[Tensor] = []

    def note(tensor: Tensor) -> Tensor:
        found.append(tensor)
        return tensor

    map_tensors(note, tree)
    return found


def restored(form: Tree, saved: dict[str, Tensor]) -> Tree:
    """A tree of this form with these tensors, by their places, as its leaves."""
    places = count()
    return map_tensors(lambda own: saved[str(next(places))].to(own.device), form)


def kept(tensor: Tensor) -> Tensor:
    """Without its history, and as exact as the state that a model begins with."""
    return tensor.detach().float() if tensor.dtype is torch.bfloat16 else tensor.detach()


def taken(tensors: dict[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def weights(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and buffers, each tensor once however many names it has."""
    seen: set[int] = set()
    named = {}
    for name, tensor in model.state_dict().items():
        if tensor.data_ptr() not in seen or not tensor.numel():
            named[name] = tensor
        seen.add(tensor.data_ptr())
    return named


def learnt(model: nn.Module) -> dict[str, Tensor]:
    """The weights that steps change: none, if all of the model is counted at once."""
    return {} if isinstance(model, Fits) else weights(model)


def misfit(expected: dict[str, Tensor], tensors: dict[str, Tensor]) -> str:
    """How these differ in names, shapes or kinds; "" if they do not."""
    if expected.keys() != tensors.keys():
        return f"{sorted(expected.keys() ^ tensors.keys())[0]!r} is in one of them only"
    for name, tensor in tensors.items():
        own = expected[name]
        if own.shape != tensor.shape:
            return f"{name} is {tuple(tensor.shape)}, expected {tuple(own.shape)}"
        if own.dtype != tensor.dtype:
            return f"{name} is {tensor.dtype}, expected {own.dtype}"
    return ""


def not_random(state: Tensor) -> str:
    try:
        torch.Generator().set_state(state)
    except RuntimeError:
        return "its random state is none"
    return ""


def load_weights(model: nn.Module, tensors: dict[str, Tensor], *, origin: str | Path = "memory") -> None:
    """Put saved weights into the model; every name, shape and kind must fit."""
    own = weights(model)
    if odd := misfit(own, tensors):
        raise UserError(f"The weights in {origin} do not fit the model: {odd}; restore the run's own files.")
    for name, tensor in tensors.items():
        own[name].copy_(tensor)


def mean_weights(snapshots: list[dict[str, Tensor]]) -> dict[str, Tensor]:
    return {
        name: torch.stack([snapshot[name].float() for snapshot in snapshots]).mean(0).to(tensor.dtype)
        for name, tensor in snapshots[0].items()
    }


@contextlib.contextmanager
def averaged(training: Training) -> Iterator[None]:
    """While this lasts, the model has the mean of the snapshots' weights, and is in evaluation mode. A snapshot is of
    the smoothed weights, where training smooths."""
    own = {name: tensor.clone() for name, tensor in weights(training.model).items()}
    was_random = torch.get_rng_state()
    if len(training.snapshots) > 1 or training.smoothed:
        load_weights(training.model, mean_weights(training.snapshots))
    training.model.eval()
    try:
        yield
    finally:
        load_weights(training.model, own)
        training.model.train()
        torch.set_rng_state(was_random)  # validating must not change what training does next


def train_steps(
    training: Training, batches: Batches, *, validate: Validation, save_best: Callable[[], None]
) -> Iterator[Progress]:
    """Steps until the budget is used. A caller that stops early, at any Progress, may save and go on later.

    `save_best` is called, with the best weights in the model, whenever a validation was the best so far.
    """
    if not isinstance(training.model, Learns):
        raise UserError("This model does not learn by gradient descent: it has no loss.")
    config, model = training.config, training.model
    parameters = training._parameters()
    model.train()
    lately: list[tuple[float, float, int, float]] = []  # objective, nll, tokens, seconds of the latest steps
    while (done := training.done(batches)) < 1:
        began = time.perf_counter()
        learning_rate = config.learning_rate * rate(
            config.schedule, step=training.step + 1, warmup=config.warmup, done=done
        )
        for group in training.optimiser.param_groups:
            group["lr"] = learning_rate
        objective, nll, tokens = 0.0, 0.0, 0
        training.optimiser.zero_grad()
        for _ in range(config.accumulate):
            if training.index >= batches.count(training.epoch):
                training.epoch, training.index, training.carry = training.epoch + 1, 0, None
            batch = batches.get(training.epoch, training.index).to(training.device)
            if batches.carries:
                batch = replace(batch, state=training.carry)
            training.index += 1
            random = torch.get_rng_state()
            loss = loss_of(model, batch, config, training.device)
            if not math.isfinite(float(loss.objective.detach())):
                raise not_finite(training, batch, random, "loss")
            loss.objective.backward()  # type: ignore[no-untyped-call]
            if batches.carries:
                training.carry = map_tensors(kept, loss.state)
            objective += float(loss.objective.detach())
            nll, tokens = nll + float(loss.nll), tokens + loss.tokens
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        torch._foreach_div_(gradients, float(tokens))
        norm = float(nn.utils.clip_grad_norm_(parameters, config.clip or math.inf, foreach=True))
        if not math.isfinite(norm):
            raise not_finite(training, batch, random, "gradient")
        training.optimiser.step()
        training.step += 1
        training.smooth()
        seconds = time.perf_counter() - began
        training.seconds += seconds
        lately = [*lately[-19:], (objective, nll, tokens, seconds)]
        recent = [sum(column) for column in zip(*lately, strict=True)]
        progress = Progress(
            step=training.step,
            epoch=training.epoch,
            loss=recent[0] / recent[2],
            perplexity=math.exp(min(700.0, recent[1] / recent[2])),
            learning_rate=learning_rate,
            gradient_norm=norm,
            tokens_per_second=recent[2] / recent[3],
            seconds=training.seconds,
            done=training.done(batches),
        )
        if training.step % config.validate_every == 0 or progress.done >= 1:
            progress = validated(training, progress, validate, save_best)
        if progress.done >= 1:
            progress = replace(progress, finished="the budget is used")
        elif config.patience and training.stale >= config.patience:
            progress = replace(progress, finished=f"{training.stale} validations without a better one")
        yield progress
        if progress.finished:
            return


def fit_steps(
    training: Training, texts: Texts, *, validate: Validation, save_best: Callable[[], None]
) -> Iterator[Progress]:
    """The one step of a model that counts."""
    model = training.model
    assert isinstance(model, Fits)
    if training.step:
        return
    began = time.perf_counter()
    model.fit(texts)
    model.eval()
    training.step += 1
    counted = time.perf_counter() - began
    metrics, samples = validate()
    training.best = metrics["loss"]
    save_best()
    training.seconds += time.perf_counter() - began
    yield Progress(
        step=training.step,
        epoch=1,
        loss=metrics["loss"],
        perplexity=math.exp(min(700.0, metrics["loss"])),
        learning_rate=0.0,
        gradient_norm=0.0,
        tokens_per_second=len(texts.tokens) / max(counted, 1e-9),
        seconds=training.seconds,
        done=1.0,
        valid=metrics,
        samples=samples,
        improved=True,
        finished="everything is counted",
    )


def loss_of(model: Learns, batch: Batch, config: TrainConfig, device: torch.device) -> Loss:
    with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
        return model.loss(batch)


def validated(training: Training, progress: Progress, validate: Validation, save_best: Callable[[], None]) -> Progress:
    began = time.perf_counter()
    snapshot = {name: training.smoothed.get(name, own).clone() for name, own in weights(training.model).items()}
    training.snapshots = [*training.snapshots, snapshot][-training.config.average :]
    with averaged(training), torch.inference_mode():
        metrics, samples = validate()
        if not math.isfinite(metrics["loss"]):
            raise UserError(f"The validation loss was not finite at step {training.step}: lower train.learning_rate.")
        improved = training.better(metrics)
        if improved:
            training.best, training.stale = metrics[training.config.metric], 0
            save_best()
        else:
            training.stale += 1
    training.seconds += time.perf_counter() - began
    return replace(progress, valid=metrics, samples=samples, improved=improved, seconds=training.seconds)


def not_finite(training: Training, batch: Batch, random: Tensor, what: str) -> UserError:
    """The sentence for a loss or gradient that is not finite: it names the first module where that shows."""
    culprit = first_not_finite(training, batch, random)
    return UserError(
        f"The {what} was not finite at step {training.step + 1}, first in {culprit}: "
        "lower train.learning_rate or train.clip, or train in float32; the last checkpoint is kept."
    )


def first_not_finite(training: Training, batch: Batch, random: Tensor) -> str:
    """Run the step again and watch: outputs in forward order, then gradients from the loss backwards."""
    found: list[str] = []

    def watching(name: str) -> Callable[[nn.Module, Any, Any], None]:
        def hook(module: nn.Module, inputs: Any, output: Any) -> None:
            if isinstance(output, Tensor) and not bool(output.isfinite().all()):
                found.append(f"the output of {name or 'the model'}")

        return hook

    model = training.model
    hooks = [module.register_forward_hook(watching(name)) for name, module in model.named_modules()]
    torch.set_rng_state(random)
    try:
        training.optimiser.zero_grad()
        loss = loss_of(model, batch, training.config, training.device)  # type: ignore[arg-type]
        if not found:
            loss.objective.backward()  # type: ignore[no-untyped-call]
    finally:
        for hook in hooks:
            hook.remove()
    if found:
        return found[0]
    for name, parameter in model.named_parameters():
        if not bool(parameter.isfinite().all()):
            return f"the weights of {name}"
    for name, parameter in reversed(list(model.named_parameters())):
        if parameter.grad is not None and not bool(parameter.grad.isfinite().all()):
            return f"the gradient of {name}"
    return "the loss itself"

"""The training loop, for every model that Learns. It yields Progress; callers print, save and plot.

Each step: gradients of −Σ log p / tokens over `accumulate` batches;  g ← min(1, θ/‖g‖) g;  `Optimiser`.
Everything the next step depends on is in `Training`.
"""

from __future__ import annotations

import contextlib
import math
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from regard.interface import Batch, Fits, Learns, Loss, Progress, Sample, Texts, UserError, map_tensors
from regard.train.schedule import rate
from regard.train.training import LATELY, Batches, TrainConfig, Training
from regard.train.weights import load_weights, mean_weights, weights

# Validates the model, in evaluation mode, and returns metrics (with "loss" among them) and a few outputs.
Validation = Callable[[], tuple[dict[str, float], tuple[Sample, ...]]]


def kept(tensor: Tensor) -> Tensor:
    """Detach a carried state, and return it in the precision of a model's initial state."""
    return tensor.detach().float() if tensor.dtype is torch.bfloat16 else tensor.detach()


@contextlib.contextmanager
def averaged(training: Training) -> Iterator[None]:
    """Within this block, the model has the mean weights of the snapshots and is in evaluation mode. Snapshots are taken
    from the moving average of weights, where there is one."""
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
    """Train until the budget is used. A caller may stop at any Progress, save and resume later.

    `save_best` is called, with the best weights in the model, whenever a validation is the best so far.
    """
    if not isinstance(training.model, Learns):
        raise UserError("This model does not learn by gradient descent, since it has no loss: give it a method loss.")
    config, model = training.config, training.model
    parameters = list(training.parameters.values())
    model.train()
    paces: list[tuple[int, float]] = []  # tokens and seconds of the latest steps
    while (done := training.done(batches)) < 1:
        began = time.perf_counter()
        learning_rate = config.learning_rate * rate(
            config.schedule, step=training.step + 1, warmup=config.warmup, done=done
        )
        for group in training.optimiser.param_groups:
            group["lr"] = learning_rate * group["pace"]
        objective, nll, tokens = 0.0, 0.0, 0
        training.optimiser.zero_grad()
        for _ in range(config.accumulate):
            if training.index >= batches.count(training.epoch):
                training.epoch, training.index, training.carry = training.epoch + 1, 0, None
                training.thaw()
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
        training.tokens += tokens
        training.smooth()
        seconds = time.perf_counter() - began
        training.seconds += seconds
        training.lately = [*training.lately, [objective, nll, tokens]][-LATELY:]
        paces = [*paces, (tokens, seconds)][-LATELY:]
        recent = [sum(column) for column in zip(*training.lately, strict=True)]
        pace = [sum(column) for column in zip(*paces, strict=True)]
        found: dict[str, Any] = {}
        if training.step % config.validate_every == 0 or training.done(batches) >= 1:
            found = validated(training, validate, save_best)
        done = training.done(batches)  # validation takes time, too
        finished = "the budget is used" if done >= 1 else None
        if training.stopped_early:
            finished = f"early stopping, {training.stale} validations without a better {training.metric.name}"
        yield Progress(
            step=training.step,
            epoch=training.epoch,
            loss=recent[0] / recent[2],
            perplexity=math.exp(min(700.0, recent[1] / recent[2])),
            learning_rate=learning_rate,
            gradient_norm=norm,
            tokens_per_second=pace[0] / pace[1],
            seconds=training.seconds,
            tokens=training.tokens,
            done=done,
            finished=finished,
            **found,
        )


def fit_steps(
    training: Training, texts: Texts, *, validate: Validation, save_best: Callable[[], None]
) -> Iterator[Progress]:
    """Train a model that counts, in one step."""
    model = training.model
    assert isinstance(model, Fits)
    if training.step:
        return
    began = time.perf_counter()
    model.fit(texts)
    model.eval()
    training.step += 1
    training.tokens = len(texts.tokens)
    counted = time.perf_counter() - began
    metrics, samples = validate()
    training.best = training.best_loss = metrics["loss"]
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
        tokens=training.tokens,
        done=1.0,
        valid=metrics,
        samples=samples,
        improved=True,
        finished="everything is counted",
    )


def loss_of(model: Learns, batch: Batch, config: TrainConfig, device: torch.device) -> Loss:
    with torch.autocast(device.type, torch.bfloat16, enabled=config.precision == "bfloat16"):
        return model.loss(batch)


def validated(training: Training, validate: Validation, save_best: Callable[[], None]) -> dict[str, Any]:
    """Validate and return what that adds to Progress."""
    began = time.perf_counter()
    snapshot = {name: training.smoothed.get(name, own).clone() for name, own in weights(training.model).items()}
    training.snapshots = [*training.snapshots, snapshot][-training.config.average :]
    with averaged(training), torch.inference_mode():
        metrics, samples = validate()
        if not math.isfinite(metrics["loss"]):
            raise UserError(f"The validation loss was not finite at step {training.step}: lower train.learning_rate.")
        improved = training.better(metrics)
        if improved:
            save_best()
    training.seconds += time.perf_counter() - began
    return {"valid": metrics, "samples": samples, "improved": improved}


def not_finite(training: Training, batch: Batch, random: Tensor, what: str) -> UserError:
    """Return the error for a loss or gradient that is not finite; it names the first module where that shows."""
    culprit = first_not_finite(training, batch, random)
    return UserError(
        f"The {what} was not finite at step {training.step + 1}, first in {culprit}: "
        "lower train.learning_rate or train.clip, or train in float32; the last checkpoint is kept."
    )


def first_not_finite(training: Training, batch: Batch, random: Tensor) -> str:
    """Run the step again and watch: outputs in forward order, then gradients from the loss backwards."""
    found: list[str] = []

    def note(what: str, tensor: Any) -> None:
        if isinstance(tensor, Tensor) and not bool(tensor.isfinite().all()):
            found.append(what)

    def watch(name: str, module: nn.Module, inputs: Any, output: Any) -> None:
        note(f"the output of {name or 'the model'}", output)

    model = training.model
    hooks = [module.register_forward_hook(partial(watch, name)) for name, module in model.named_modules()]
    torch.set_rng_state(random)
    try:
        training.optimiser.zero_grad()
        loss = loss_of(model, batch, training.config, training.device)  # type: ignore[arg-type]
        if not found:
            loss.objective.backward()  # type: ignore[no-untyped-call]
    finally:
        for hook in hooks:
            hook.remove()
    for name, parameter in model.named_parameters():
        note(f"the weights of {name}", parameter)
    for name, parameter in reversed(list(model.named_parameters())):
        note(f"the gradient of {name}", parameter.grad)
    return found[0] if found else "the loss itself"

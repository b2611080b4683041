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

from regard.interface import Batch, Fits, Learns, Progress, Sample, Texts, UserError
from regard.score.metrics import LOSS
from regard.train.group import Computed, Sums
from regard.train.schedule import rate
from regard.train.training import LATELY, Batches, Training
from regard.train.weights import load_weights, mean_weights, weights

# Validates the model, in evaluation mode, and returns metrics (with "loss" among them) and a few outputs.
Validation = Callable[[], tuple[dict[str, float], tuple[Sample, ...]]]


@contextlib.contextmanager
def averaged(training: Training) -> Iterator[None]:
    """Within this block, the model has the mean weights of the snapshots and is in evaluation mode. Snapshots are taken
    from the moving average of weights, where there is one."""
    model = training.whole or training.model
    own = {name: tensor.clone() for name, tensor in weights(model).items()}
    was_random = torch.get_rng_state()
    if len(training.snapshots) > 1 or training.smoothed or training.whole:
        load_weights(model, mean_weights(training.snapshots))
    model.eval()
    try:
        yield
    finally:
        load_weights(model, own)
        model.train()
        torch.set_rng_state(was_random)  # validating must not change what training does next


def train_steps(
    training: Training, batches: Batches, *, validate: Validation, save_best: Callable[[], None]
) -> Iterator[Progress]:
    """Train until the budget is used. A caller may stop at any Progress, save and resume later.

    `save_best` is called, with the best weights in the model, whenever a validation is the best so far.
    """
    if not isinstance(training.model, Learns):
        raise UserError("This model does not learn by gradient descent, since it has no loss: give it a method loss.")
    config, model, group = training.config, training.model, training.group
    computed = Computed(model, training.device, mixed=config.precision == "bfloat16")
    add_gradients = group.step(computed, wire=config.wire)
    parameters = list(training.parameters.values())
    training.rows = batches.carries
    model.train()
    paces: list[tuple[int, float]] = []  # tokens and seconds of the latest steps
    rest = 0.0  # seconds of the step before, after its sums
    while (done := training.done(batches)) < 1:
        began = time.perf_counter() - rest
        learning_rate = config.learning_rate * rate(
            config.schedule, step=training.step + 1, warmup=config.warmup, done=done
        )
        for each in training.optimiser.param_groups:
            each["lr"] = learning_rate * each["pace"]
        objective, nll, tokens = 0.0, 0.0, 0
        latest: tuple[Batch, Tensor]  # the batch, or else the first one with an odd loss, and the random state before
        odd = False
        training.optimiser.zero_grad()
        group.seed(training.seed, training.step)
        for left in reversed(range(config.accumulate)):
            if training.index >= batches.count(training.epoch):
                training.epoch, training.index, training.carry = training.epoch + 1, 0, None
                if training.thaw():
                    add_gradients = group.step(computed, wire=config.wire)
            batch, weight = group.part(batches.get(training.epoch, training.index))
            batch = batch.to(training.device)
            if batches.carries:
                batch = replace(batch, state=training.carry)
            training.index += 1
            if not odd:
                latest = batch, torch.get_rng_state()
            loss = add_gradients(batch, weight, not left)
            odd |= not math.isfinite(float(loss.objective.detach()))
            if batches.carries:
                training.carry = loss.state
            objective += float(loss.objective.detach())
            nll, tokens = nll + float(loss.nll), tokens + loss.tokens
        sums = group.sums(Sums(objective, nll, tokens, training.seconds + time.perf_counter() - began, odd))
        if sums.odd:
            raise not_finite(training, *latest, "loss")
        gradients = [parameter.grad for parameter in parameters if parameter.grad is not None]
        torch._foreach_div_(gradients, float(sums.tokens))
        total = nn.utils.clip_grad_norm_(parameters, config.clip or math.inf, foreach=True)
        norm = float(group.whole({"norm": total})["norm"])
        if not math.isfinite(norm):
            raise not_finite(training, *latest, "gradient")
        training.optimiser.step()
        training.step += 1
        training.tokens += sums.tokens
        training.smooth()
        seconds, training.seconds = sums.seconds - training.seconds, sums.seconds
        rest = time.perf_counter() - began - seconds
        training.lately = [*training.lately, [*sums[:3]]][-LATELY:]
        paces = [*paces, (sums.tokens, seconds)][-LATELY:]
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


def validated(training: Training, validate: Validation, save_best: Callable[[], None]) -> dict[str, Any]:
    """Validate and return what that adds to Progress. The leading process does it, and gives the others the outcome."""
    began, group = time.perf_counter(), training.group
    metrics, samples, improved = {LOSS.key: math.nan}, tuple[Sample, ...](), False
    latest = group.whole({name: training.smoothed.get(name, own) for name, own in weights(training.model).items()})
    if group.leads:
        snapshot = {name: tensor.clone() for name, tensor in latest.items()}
        training.snapshots = [*training.snapshots, snapshot][-training.config.average :]
        with averaged(training), torch.inference_mode():
            metrics, samples = validate()
            if not math.isfinite(metrics[LOSS.key]):
                raise UserError(
                    f"The validation loss was not finite at step {training.step}: lower train.learning_rate."
                )
            improved = training.better(metrics)
            if improved:
                save_best()
        training.seconds += time.perf_counter() - began
    decided = group.decided([metrics[LOSS.key], float(improved), training.seconds, *training.judged()])
    if not group.leads:
        metrics, improved, training.seconds = {LOSS.key: decided[0]}, bool(decided[1]), decided[2]
        training.judge(decided[3:])
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
        loss = Computed(model, training.device, mixed=training.config.precision == "bfloat16")(batch)
        if not found:
            loss.objective.backward()
    finally:
        for hook in hooks:
            hook.remove()
    for name, parameter in model.named_parameters():
        note(f"the weights of {name}", parameter)
    for name, parameter in reversed(list(model.named_parameters())):
        note(f"the gradient of {name}", parameter.grad)
    return found[0] if found else "the loss itself"

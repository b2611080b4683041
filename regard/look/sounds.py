"""Which moments of a recording decide its label: the saliency |∂ ln P(label)/∂xₜ| of each frame, and at each step the
weight of the pooling that attends, or attention rollout. Each sums to 1."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import torch

from regard.interface import Classifies, Padded, UserError
from regard.layers.attention import watch
from regard.look.recordings import Heard
from regard.look.weights import NOT_ATTENTION, Weights, inside, rollout
from regard.run import Run
from regard.show.sound_map import SoundMap
from regard.show.sound_page import Moments, Transcribed, Wave

SALIENCY = "saliency"


def look_at_label_of(run: Run, heard: Heard, label: str | None = None, layer: int | None = None) -> SoundMap:
    """For `label`, or for the predicted one, the weight of each step of a recording."""
    if layer is not None:
        raise UserError(f"layer = {layer}: what decides a label is shown for all layers together; leave it out.")
    name, views = decisive(run, heard, label)
    named = {view.name: view.weights[0, 0] for view in views}
    named[SALIENCY] = in_steps(named[SALIENCY], heard.stride)
    rows = tuple(each.split()[-1] for each in named)  # a row's name is one word
    return SoundMap(
        spectrogram=heard.frames,
        seconds=heard.seconds,
        words=rows,
        weights=np.stack([*named.values()]),
        stride=heard.stride,
        kind=" and ".join(named) if len(named) > 1 else NOT_ATTENTION,
        answer=name,
        hertz=heard.hertz,
        note=heard.note,
        near=lambda: shown(heard, name, views),
    )


def label_of_recording_closely(run: Run, heard: Heard, label: str | None = None) -> Transcribed:
    """The same with the sound, for a page."""
    return shown(heard, *decisive(run, heard, label))


def shown(heard: Heard, name: str, views: list[Moments]) -> Transcribed:
    return Transcribed(
        title=name,
        seconds=heard.seconds,
        spectrogram=heard.frames,
        words=(name,),
        views=tuple(views),
        hertz=heard.hertz,
        wave=Wave(heard.piece.samples(heard.rate), heard.rate),
        note=heard.note,
    )


def decisive(run: Run, heard: Heard, label: str | None) -> tuple[str, list[Moments]]:
    """Return a label, by default the predicted one, and its weights, saliency last."""
    names, model = run.fields.names(), run.model
    if not isinstance(model, Classifies):
        raise UserError(f"{run.model_title} does not give labels: give a run trained for classification.")
    if label is not None and label not in names:
        raise UserError(f"{label!r} is not a label of this model: choose one of {', '.join(names)[:200]}.")
    batch = run.batch(source=[heard.piece], multiple=1)
    assert batch.source is not None
    frames = batch.source.values.detach().requires_grad_()
    with torch.enable_grad(), watch(model) as seen:
        log_probs = model.classify(replace(batch, source=Padded(frames, batch.source.mask)))[0]
        chosen = int(log_probs.argmax()) if label is None else names.index(label)
        (slope,) = torch.autograd.grad(log_probs[chosen], frames)
    found: dict[str, tuple[Any, int]] = {}
    pooling = inside(model).of_kind("pooling")
    if pooling:
        found["attention"] = (
            seen.of(pooling[0].part)[0][0, 0, ..., pooling[0].extra :].detach().reshape(-1),
            heard.stride,
        )
    elif (rolled := rollout(model, batch)) is not None:
        found["attention rollout"] = rolled[0], heard.stride
    found[SALIENCY] = slope[0].norm(dim=-1), 1
    views = []
    for kind, (weights, stride) in found.items():
        count = -(-len(heard.frames) // stride)  # without the padding of a batch
        shares = weights[:count].float().cpu().numpy()
        views.append(Moments(kind, (shares / max(float(shares.sum()), 1e-30))[None, None], stride))
    return names[chosen], views


def in_steps(weights: Weights, stride: int) -> Weights:
    """Return the sum of each step's frames."""
    return np.add.reduceat(weights, np.arange(0, len(weights), stride))

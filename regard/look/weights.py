"""The importance of each input token: attention weights, saliency and attention rollout.

attention   the weights of the cross-attentions, from target to source, while the target is read (teacher forcing)
saliency    |∂ ln p(yₜ)/∂xᵢ|, xᵢ the vector of source token i, each row over its sum; for a label |∂ ln P(label)/∂xᵢ|
rollout     Ā_L ⋯ Ā₁, Ā = ½ (A + I) with each row over its sum, A the mean of a layer's heads   Abnar & Zuidema 2020
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import reduce
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.corruption import with_hidden
from regard.data.fields import NumberField
from regard.interface import (
    Batch,
    Chooses,
    Classifies,
    Estimates,
    Fills,
    Inside,
    Inspects,
    Points,
    Scores,
    SeenAttention,
    UserError,
)
from regard.layers.attention import watch
from regard.run import Run

Weights = NDArray[np.floating]
NOT_ATTENTION = "saliency (gradient), not attention"


def inside(model: object) -> Inside:
    """Return a model's Inside; an empty one if it has no `inspect`."""
    return model.inspect() if isinstance(model, Inspects) else Inside()


def attends(model: object) -> bool:
    """Return whether the model has cross-attention."""
    return bool(inside(model).of_kind("cross"))


def scores(model: object) -> Any:
    if not isinstance(model, Scores):
        raise UserError("This model does not score targets (it has no log_probs): choose another model.")
    return model


def use(model: Any, batch: Batch) -> None:
    """Run the model once, by the protocol that it implements."""
    if isinstance(model, Scores):
        model.log_probs(batch)
    elif isinstance(model, Classifies):
        model.classify(batch)
    elif isinstance(model, Estimates):
        model.estimate(batch)
    elif isinstance(model, Chooses):
        model.choose(batch)
    elif isinstance(model, Points):
        model.point(batch)
    elif isinstance(model, Fills):
        assert batch.source is not None
        model.fill(with_hidden(batch.source, batch.source.but_end().mask))
    else:
        model.tag(batch)


def attention_weights(model: nn.Module, batch: Batch, attentions: Sequence[SeenAttention]) -> list[Tensor]:
    """Return the weights of these attentions while the target is read: (batch, heads, places, places) each, those
    before the side's own included."""
    with torch.no_grad(), watch(model) as seen:
        scores(model).log_probs(batch)
    # a recurrent decoder attends once per step, a Transformer for all steps together: both join along the target
    return [torch.cat(seen.of(each.part), 2) for each in attentions]


def cross_attention(model: nn.Module, batch: Batch) -> Tensor:
    """Return the weights of every cross-attention: (batch, layers, heads, target - 1, source). What is read before
    either side is left out."""
    crossings = inside(model).of_kind("cross")
    found = zip(crossings, attention_weights(model, batch, crossings), strict=True)
    return torch.stack([weights[:, :, each.lead :, each.extra :] for each, weights in found], 1)


@contextmanager
def reading(model: nn.Module) -> Iterator[list[Tensor]]:
    """Record the embedded input tokens (the source's, if there is one), so that gradients to them can be computed."""
    embedded: list[Tensor] = []

    def keep(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        if embedded:  # a shared embedding also reads the target, after the source
            return output
        embedded.append(output.detach().requires_grad_())
        return embedded[0]

    reader = inside(model).reader
    if reader is None:
        raise UserError(
            "This model does not name its embedding: for saliency, it needs an inspect() that returns Inside(reader=…)."
        )
    hook = reader.register_forward_hook(keep)
    try:
        yield embedded
    finally:
        hook.remove()


def gradient_weights(model: nn.Module, batch: Batch) -> Tensor:
    """Compute the saliency, (batch, target - 1, source); each row sums to 1."""
    return torch.stack(list(gradient_rows(model, batch)), 1)


def gradient_rows(model: nn.Module, batch: Batch) -> Iterator[Tensor]:
    """Yield the saliency of each target token in turn, (batch, source): a backward pass for each."""
    with torch.enable_grad():
        with reading(model) as embedded:
            chosen = scores(model).log_probs(batch)[0]  # (batch, target - 1)
        each = chosen.sum(0).unbind()
    for log_prob in each:
        (slope,) = torch.autograd.grad(log_prob, embedded[0], retain_graph=True)
        sizes = sizes_of(slope, batch)  # (batch, source)
        yield sizes / sizes.sum(-1, keepdim=True).clamp_min(torch.finfo(sizes.dtype).tiny)


def sizes_of(slope: Tensor, batch: Batch) -> Tensor:
    """Return the norm of the gradient at each real position, (batch, source), without what is read before a text; or
    at each place of a picture, which has no padding."""
    sizes: Tensor = slope.norm(dim=-1)
    values, mask = batch.first
    return sizes if values.dim() > 2 else sizes[:, -mask.shape[1] :] * mask


def forced_weights(model: nn.Module, batch: Batch, *, layer: int | None = None) -> Tensor:
    """Return the attention, (batch, target - 1, source), averaged over heads, and over layers unless one is given; or
    the saliency if the model has no cross-attention."""
    if not attends(model):
        return gradient_weights(model, batch)
    weights = cross_attention(model, batch).mean(2)  # (batch, layers, target - 1, source)
    if layer is None:
        return weights.mean(1)
    layers = weights.shape[1]
    if not 1 <= layer <= layers:
        raise UserError(f"Layer {layer} does not exist: choose one of the attention layers 1 to {layers}.")
    return weights[:, layer - 1]


def label_gradient(run: Run, batch: Batch, label: str | None) -> tuple[str, Tensor]:
    """Return a label, by default the predicted one, or the number that is estimated, and the saliency of each position,
    (1, places), with sum 1."""
    model, labels, number = run.model, run.fields.names(), run.fields["target"]
    if isinstance(model, Estimates) and isinstance(number, NumberField):
        if label is not None:
            raise UserError(f"{label!r} was given as the target, and a number has no others beside it: leave it out.")
        with torch.enable_grad(), reading(run.model) as embedded:
            estimated = model.estimate(batch)[0]
            (slope,) = torch.autograd.grad(estimated, embedded[0])
        return number.text(float(estimated.detach())), shares_of(slope, batch)
    if not isinstance(model, Classifies):
        raise UserError(f"{run.model_title} does not give labels: give a run trained for classification.")
    if label is not None and label not in labels:
        raise UserError(f"{label!r} is not a label of this model: choose one of {', '.join(labels)[:200]}.")
    with torch.enable_grad(), reading(run.model) as embedded:
        log_probs = model.classify(batch)[0]
        chosen = int(log_probs.argmax()) if label is None else labels.index(label)
        (slope,) = torch.autograd.grad(log_probs[chosen], embedded[0])
    return labels[chosen], shares_of(slope, batch)


def shares_of(slope: Tensor, batch: Batch) -> Tensor:
    sizes = sizes_of(slope, batch)
    shares: Tensor = sizes / sizes.sum().clamp_min(1e-30)
    return shares


def rollout(model: nn.Module, batch: Batch) -> Tensor | None:
    """Compute attention rollout, (batch, places): the share of each position in the first state, or in the mean of all
    states. None if the source has no self-attention."""
    layers = [each for each in inside(model).of_kind("self") if each.keys == "source"]
    if not layers:
        return None
    with torch.no_grad(), watch(model) as seen:
        use(model, batch)
    mixed = []
    for each in layers:
        (weights,) = seen.of(each.part)  # (batch, heads, places, places)
        here = (weights.mean(1) + torch.eye(weights.shape[-1], device=weights.device)) / 2
        mixed.append(here / here.sum(-1, keepdim=True))
    together = reduce(lambda below, above: above @ below, mixed)
    extra = layers[0].extra
    shares = (together[:, 0] if extra else together.mean(1))[:, extra:]
    return shares / shares.sum(-1, keepdim=True)


def merge(weights: Weights, source_words: list[int], target_words: list[int]) -> Weights:
    """Turn sub-word weights into word weights: sum over a source word's pieces, average over a target word's.

    weights (target pieces [+ <eos>], source pieces + <eos>) -> (target words, source words + <eos>)
    """
    last = max(source_words, default=-1) + 1
    columns = np.equal.outer([*source_words, last], np.arange(last + 1)).astype(float)
    rows = np.equal.outer(np.arange(max(target_words, default=-1) + 1), target_words).astype(float)
    rows /= np.maximum(rows.sum(1, keepdims=True), 1)
    merged: Weights = rows @ weights[: len(target_words), : len(source_words) + 1] @ columns
    return merged

"""Attention rollout: how much of each place of the source is in the state that the answer is made of.

Ā = ½ (A + I), each row over its sum;   rollout = Ā_L ⋯ Ā₁        Abnar & Zuidema 2020; A the mean of a layer's heads
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from regard.interface import Batch
from regard.layers.attention import watch
from regard.look.weights import inside


def rollout(model: nn.Module, batch: Batch, use: Any) -> Tensor | None:
    """(batch, places): what the first state, or the mean of all, has in it of each place, over their sum; `use` runs
    the model. None where nothing attends within the source."""
    layers = [seen for seen in inside(model).attentions if seen.kind == "self" and seen.keys == "source"]
    if not layers:
        return None
    with torch.no_grad(), watch(model) as seen:
        use(batch)
    together: Tensor | None = None
    for each in layers:
        (weights,) = seen.of(each.part)  # (batch, heads, places, places)
        here = (weights.mean(1) + torch.eye(weights.shape[-1], device=weights.device)) / 2
        here = here / here.sum(-1, keepdim=True)
        together = here if together is None else here @ together
    assert together is not None
    extra = layers[0].extra
    shares = (together[:, 0] if extra else together.mean(1))[:, extra:]
    return shares / shares.sum(-1, keepdim=True)

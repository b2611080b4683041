"""Ways of fine-tuning: which weights learn, and at which share of the learning rate.

all      every weight                                  frozen   the head, and whatever the other run does not have
gradual  in epoch e, from 0, the head and the e layers below it                                      Howard 2018, 3.3
lora     W + (α/r) B A: the head, and A and B of each matrix of the body                                     Hu 2021
prompt   the head, and learnt vectors before the input                                                  Lester 2021
Layers   ηˡ⁻¹ = layer_decay · ηˡ, the head is the highest layer and the embedding the lowest         Howard 2018, 3.2
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from torch import nn

from regard.interface import Bounded, Ids, Inspects, Shapes, UserError
from regard.layers.encoders import add_prompt
from regard.layers.lora import add_low_rank, plain_name

Tune = Literal["all", "frozen", "gradual", "lora", "prompt"]
HEADS = {"head", "words", "prompt"}  # parts that serve the task, or its auxiliary language model: they always learn
LOWEST = {"embed", "positions", "segments", "first", "enter", "entry"}  # parts that read the input


def is_head(path: str) -> bool:
    return not HEADS.isdisjoint(path.split("."))


def layer_of(name: str) -> int | None:
    """The layer of a weight: 0 for those that read the input, else the first number in its name, counted from 1; None
    where there is no number, as in the norm above a stack."""
    parts = plain_name(name).split(".")
    if not LOWEST.isdisjoint(parts):
        return 0
    return next((1 + int(part) for part in parts if part.isdecimal()), None)


def depths(names: Iterable[str]) -> dict[str, int]:
    """The depth of each weight: 0 for embeddings, then its layer; those of a decoder are above those of the encoder,
    and the head is above all."""
    found: dict[str, int] = {}
    below, every = 0, list(names)
    for decodes in (False, True):
        own = {n: layer_of(n) for n in every if not is_head(n) and n.startswith("decoder.") is decodes}
        top = max((layer or 0 for layer in own.values()), default=0)
        found |= {name: layer and below + layer if layer is not None else below + top for name, layer in own.items()}
        below += top
    return {name: found.get(name, below + 1) for name in every}


@dataclass(frozen=True)
class Tuning:
    """Which weights learn."""

    way: Tune = "all"
    layer_decay: float = 1.0
    new: frozenset[str] = frozenset()  # weights that do not come from the run to start from

    def shares(self, names: Iterable[str]) -> dict[str, float]:
        """The share of the learning rate of each weight that ever learns."""
        depth = depths(names)
        top = max(depth.values(), default=0)
        ever = {name for name in depth if self.way in ("all", "gradual") or name in self.new or is_head(name)}
        return {name: self.layer_decay ** (top - depth[name]) for name in depth if name in ever}

    def thawed(self, names: Iterable[str], epoch: int) -> set[str]:
        """Those of the weights that ever learn that do in this epoch, from 0."""
        depth = depths(names)
        least = max(depth.values(), default=0) - epoch if self.way == "gradual" else 0
        return {name for name in depth if depth[name] >= least or name in self.new}


def adapted(model: nn.Module, way: Tune, shapes: Shapes, *, rank: int, prompt: int) -> nn.Module:
    """Add what a way of fine-tuning adds to a model."""
    if way == "frozen" and isinstance(shapes.target, Ids):
        raise UserError('train.tune = "frozen" trains a new head, and this model has none: choose gradual or lora.')
    if way == "lora":
        add_low_rank(model, rank, lambda path: not is_head(path))
    if way == "prompt":
        encoder = dict(model.named_children()).get("encoder")
        vectors = model.inspect().vectors if isinstance(model, Inspects) else None
        if encoder is None or vectors is None:
            raise UserError(
                'train.tune = "prompt" puts vectors before what an encoder reads as tokens, and this model has none: '
                "choose another way, such as lora."
            )
        add_prompt(encoder, vectors, prompt)
        if isinstance(model, Bounded) and model.longest is not None:
            model.longest -= prompt
            if model.longest < 2:
                raise UserError(f"train.prompt = {prompt} leaves no room for a text: choose fewer vectors.")
    return model

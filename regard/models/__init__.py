"""One file per paper. `MODELS` lists them; the shells they fill are `encoder_decoder` and its siblings."""

from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard.config import is_place
from regard.interface import (
    Classifies,
    Fits,
    Generates,
    Ids,
    Inspects,
    Label,
    Learns,
    Picture,
    Scores,
    Shape,
    Shapes,
    TagIds,
    Tags,
    UserError,
)
from regard.models import (
    attentive_birnn,
    birnn,
    cnn,
    convs2s,
    encoder,
    gpt,
    neural_lm,
    ngram,
    rnn_lm,
    rnnsearch,
    seq2seq,
    transformer,
    vit,
)
from regard.models.design import Design
from regard.models.user_model import own_design

MODELS: dict[str, Design] = {
    module.DESIGN.name: module.DESIGN
    for module in (  # as they came into the world
        ngram,
        birnn,
        neural_lm,
        rnn_lm,
        cnn,
        seq2seq,
        rnnsearch,
        attentive_birnn,
        convs2s,
        transformer,
        gpt,
        encoder,
        vit,
    )  # fmt: skip
}


def design_of(name: str) -> Design:
    """Of the model of this name, or of the one in a file of one's own, which is executed."""
    return own_design(Path(name)) if is_place(name) else MODELS[name]


def models_for(task: str) -> list[str]:
    """The names of those that a task has."""
    return [name for name, design in MODELS.items() if task in design.tasks]


def abilities(design: Design) -> list[str]:
    """What a model can do, read off the promises of what it builds: for a text, for a label, for tags."""
    built: list[nn.Module] = []
    sources: tuple[Shape, ...] = (Ids(11), Picture(16, 16, 1))
    targets: tuple[Shape, ...] = (Ids(13), Label(5), TagIds(5))
    for source, target in product(sources, targets):
        with torch.device("meta"), suppress(UserError):  # a model refuses sides that are not its own
            built.append(design.build(design.config(), Shapes(source, target)))
    inside = [model.inspect() for model in built if isinstance(model, Inspects)]

    def promised(promise: Any) -> bool:
        return any(isinstance(model, promise) for model in built)

    can = {
        "train": promised(Learns | Fits),
        "generate": promised(Generates),
        "score": promised(Scores),
        "attend": any(each.of_kind("cross") or each.of_kind("pooling") for each in inside),
        "classify": promised(Classifies),
        "tag": promised(Tags),
    }
    return [ability for ability, holds in can.items() if holds]

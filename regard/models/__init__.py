"""The models, one file per paper. `MODELS` lists them; `encoder_decoder` and its siblings are the classes they fill."""

from collections.abc import Sequence
from contextlib import suppress
from itertools import product
from pathlib import Path
from typing import Any

from torch import nn

from regard import interface
from regard.config import is_place, unknown
from regard.layers.fast.without_values import without_values
from regard.models import (
    albert,
    attentive_birnn,
    bart,
    bert,
    birnn,
    captioner,
    cnn,
    convnet,
    convs2s,
    ctc,
    electra,
    elmo,
    encoder,
    gpt,
    las,
    neural_lm,
    ngram,
    rnn_lm,
    rnnsearch,
    roberta,
    seq2seq,
    show_attend_tell,
    speech_transformer,
    t5,
    transformer,
    vit,
)
from regard.models.design import Design, own_design

NAMING = (attentive_birnn, birnn, cnn, convnet, encoder, vit)
TRANSLATING = (bart, convs2s, rnnsearch, seq2seq, t5, transformer)
DESCRIBING = (captioner, show_attend_tell)
TRANSCRIBING = (ctc, las, speech_transformer)
WRITING = (elmo, gpt, neural_lm, ngram, rnn_lm)
FILLING = (albert, bert, electra, roberta)
DESIGNS = [module.DESIGN for module in (*NAMING, *TRANSLATING, *DESCRIBING, *TRANSCRIBING, *WRITING, *FILLING)]
MODELS: dict[str, Design] = {design.name: design for design in sorted(DESIGNS, key=lambda design: design.year)}


def design_of(name: str) -> Design:
    """Return the Design of a model by name, or of a user-defined model by its file, which is executed."""
    return own_design(Path(name)) if is_place(name) else MODELS[name]


def models_for(task: str) -> list[str]:
    """Return the names of a task's models."""
    return [name for name, design in MODELS.items() if task in design.tasks]


def no_such_model(name: object, task: str, what: str, known: Sequence[str] = ()) -> interface.UserError:
    """The error for a model that is not one of a task's, or of these few of them: another task may have it."""
    known = known or models_for(task)
    if isinstance(name, str) and name in MODELS and task not in MODELS[name].tasks:
        tasks = ", ".join(MODELS[name].tasks)
        return interface.UserError(f"{what} {name!r} is for {tasks}, not for {task}: choose {', '.join(known)}.")
    return unknown(name, known, what)


def abilities(design: Design) -> list[str]:
    """List what a model can do, from the protocols of the models it builds for every kind of target."""
    built: list[nn.Module] = []
    sources: tuple[interface.Shape, ...] = (interface.Ids(11), interface.Picture(16, 16, 1), interface.Frames(5))
    one = (interface.Label(5), interface.Scalar(), interface.Choice())  # answer for each example
    targets: tuple[interface.Shape, ...] = (interface.Ids(13), *one, interface.TagIds(5), interface.Span())
    for source, target in product(sources, targets):
        with without_values(), suppress(interface.UserError):  # a model refuses sides that are not its own
            built.append(design.build(design.config(), interface.Shapes(source, target)))
    inside = [model.inspect() for model in built if isinstance(model, interface.Inspects)]

    def promised(promise: Any) -> bool:
        return any(isinstance(model, promise) for model in built)

    can = {
        "train": promised(interface.Learns | interface.Fits),
        "generate": promised(interface.Generates),
        "emit": promised(interface.Emits),
        "score": promised(interface.Scores),
        "attend": any(each.of_kind("cross") or each.of_kind("pooling") for each in inside),
        "classify": promised(interface.Classifies),
        "estimate": promised(interface.Estimates),
        "tag": promised(interface.Tags),
        "choose": promised(interface.Chooses),
        "point": promised(interface.Points),
        "fill": promised(interface.Fills),
    }
    return [ability for ability, holds in can.items() if holds]

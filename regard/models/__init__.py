"""One file per paper. `MODELS` lists them; the shells they fill are `encoder_decoder` and its siblings."""

from pathlib import Path

import torch

from regard.config import is_place
from regard.interface import Classifies, Fits, Generates, Learns, Scores
from regard.layers.pooling import Attentive
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
)
from regard.models.design import Design, Vocabulary
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.encoder_head import Classifier
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
    )  # fmt: skip
}


def design_of(name: str) -> Design:
    """Of the model of this name, or of the one in a file of one's own, which is executed."""
    return own_design(Path(name)) if is_place(name) else MODELS[name]


def abilities(design: Design) -> list[str]:
    """What a model can do, read off its promises."""
    with torch.device("meta"):
        model = design.build(design.config(), Vocabulary(11, 13))
    can = {
        "train": isinstance(model, Learns | Fits),
        "generate": isinstance(model, Generates),
        "score": isinstance(model, Scores),
        "attend": (isinstance(model, EncoderDecoder) and bool(model.decoder.looks_back()))
        or (isinstance(model, Classifier) and isinstance(model.head.pool, Attentive)),
        "classify": "classification" in design.tasks and isinstance(model, Classifies),
        "tag": "tagging" in design.tasks,
    }
    return [ability for ability, holds in can.items() if holds]

"""vectors: word vectors that somebody else has made, as text: a word and its numbers a line (GloVe), perhaps after a
line with two counts (word2vec)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from torch import nn

from regard.data.text import read_lines
from regard.data.tokens import OFFSET, Tokenizer
from regard.interface import UserError
from regard.layers.encoders import Embedding
from regard.layers.reading import Reader
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.encoder_head import EncoderWithHead
from regard.models.language_model import LanguageModel


def read_with(model: nn.Module) -> nn.Module | None:
    """What turns a model's tokens, its source's where there is one, into vectors."""
    if not isinstance(model, EncoderWithHead | EncoderDecoder | LanguageModel):
        return None
    return (model if isinstance(model, LanguageModel) else model.encoder).get_submodule("embed")


def embedding_of(model: nn.Module) -> Embedding | None:
    """Its table."""
    embed = read_with(model)
    if isinstance(embed, Reader):
        return embed.embed
    return embed if isinstance(embed, Embedding) else None


def begin_with(model: nn.Module, tokenizer: Tokenizer, path: Path) -> int:
    """Put the vectors of known words into the model, as it will read them; how many there were."""
    embed = embedding_of(model)
    if embed is None:
        raise UserError("This model reads no vectors of words: leave train.vectors out.")
    wide = embed.weight.shape[1]
    places = {word: place for place, word in enumerate(tokenizer.surface(range(OFFSET, tokenizer.size)), start=OFFSET)}
    found = set()
    for number, line in enumerate(read_lines(path), start=1):
        word, *numbers = line.rstrip().split(" ")
        if number == 1 and len(numbers) == 1:
            continue  # counts
        if len(numbers) != wide:
            raise UserError(
                f"{path}, line {number}: {len(numbers)} numbers, but the model's vectors have {wide}: "
                f"set the model's width to {len(numbers)}."
            )
        place = places.get(word)
        if place is None or word in found:
            continue
        try:
            vector = torch.from_numpy(np.array(numbers, dtype=np.float32))
        except ValueError:
            raise UserError(f"{path}, line {number}: not a word and {wide} numbers.") from None
        with torch.no_grad():
            embed.weight[place] = vector / wide**0.5  # it is read as √dim times that
        found.add(word)
    if not found:
        raise UserError(f"{path} has none of the {len(places):,} words of the training text.")
    return len(found)

"""vectors: word vectors that somebody else has made, as text: a word and its numbers a line (GloVe), perhaps after a
line with two counts (word2vec)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.data.text import read_lines
from regard.data.tokens import Tokenizer
from regard.interface import UserError
from regard.look.weights import inside


def begin_with(model: nn.Module, tokenizer: Tokenizer, path: Path) -> int:
    """Put the vectors of known words into the model, as it will read them; how many there were."""
    vectors: Any = inside(model).vectors
    if vectors is None:
        raise UserError("This model reads no vectors of words: leave train.vectors out.")
    wide, first = vectors.dim, tokenizer.offset
    places = {word: place for place, word in enumerate(tokenizer.surface(range(first, tokenizer.size)), start=first)}
    known = len(places)
    for number, line in enumerate(read_lines(path), start=1):
        word, *numbers = line.rstrip().split(" ")
        if number == 1 and len(numbers) == 1:
            continue  # counts
        if len(numbers) != wide:
            raise UserError(
                f"{path}, line {number}: {len(numbers)} numbers, but the model's vectors have {wide}: "
                f"set the model's width to {len(numbers)}."
            )
        place = places.pop(word, None)  # a word that comes again is passed over
        if place is None:
            continue
        try:
            vector = torch.from_numpy(np.array(numbers, dtype=np.float32))
        except ValueError:
            raise UserError(f"{path}, line {number}: not a word and {wide} numbers.") from None
        vectors.put(place, vector)
    if len(places) == known:
        raise UserError(f"{path} has none of the {known:,} words of the training text.")
    return known - len(places)

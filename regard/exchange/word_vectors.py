"""Pre-trained word vectors as text: a word and its numbers per line (GloVe), optionally after a line with two counts
(word2vec)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from regard.data.text import whole_lines
from regard.data.tokens import Tokenizer
from regard.interface import UserError
from regard.look.weights import inside


def load_word_vectors(model: nn.Module, tokenizer: Tokenizer, path: Path) -> int:
    """Copy the vectors of known words into the model's embedding; return how many there were."""
    vectors: Any = inside(model).vectors
    if vectors is None:
        raise UserError("This model has no word embedding: leave train.vectors out.")
    wide, first = vectors.dim, tokenizer.offset
    places = {word: place for place, word in enumerate(tokenizer.surface(range(first, tokenizer.size)), start=first)}
    known, as_wide = len(places), False  # whether an earlier line is as wide as the model
    for number, line in whole_lines(path):
        word, *numbers = line.rstrip().split(" ")
        if number == 1 and len(numbers) == 1:
            continue  # counts
        if len(numbers) != wide:
            remedy = "fix or remove the line" if as_wide else f"set the model's width to {len(numbers)}"
            raise UserError(
                f"{path}, line {number}, has {len(numbers)} numbers, but the model's vectors have {wide}: {remedy}."
            )
        as_wide = True
        place = places.pop(word, None)  # a repeated word is skipped
        if place is None:
            continue
        try:
            with np.errstate(over="ignore"):  # it becomes inf
                vector = torch.from_numpy(np.array(numbers, dtype=np.float32))
            if not bool(vector.isfinite().all()):
                raise ValueError("nan or inf")
        except ValueError:
            raise UserError(
                f"{path}, line {number}, is not a word and {wide} finite numbers: fix or remove it."
            ) from None
        vectors.put(place, vector)
    if len(places) == known:
        raise UserError(f"{path} has none of the {known:,} words of the training text: give vectors of its language.")
    return known - len(places)

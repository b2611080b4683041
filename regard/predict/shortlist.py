"""A vocabulary shortlist: only those target types compete that may belong to a source type of the batch.

The output matrix has a row for each type; with a shortlist of ids its product has only those rows. The decoding loop
sees a model with a smaller vocabulary: 0, 1, … stand for ids[0], ids[1], …, and special ids for themselves. So the
log-probabilities are those of the model, given that one of the types of the shortlist is written.

What belongs to what is learnt from the run's encoded training data, once, and kept in the run folder.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.checkpoint import Folder
from regard.data.association import Associations, associate
from regard.data.batches import Encoded
from regard.data.files import own_file, reason
from regard.data.shards import open_split
from regard.data.tensors import read_tensors, write_tensors
from regard.data.text import content_hash
from regard.interface import SPECIALS, Batch, Narrows, State, UserError
from regard.models.design import size_of
from regard.predict.search import Hypothesis, room
from regard.run import Run


class Shortlisted:
    """A model that writes types of a shortlist only, numbered by their place in it."""

    def __init__(self, model: Narrows, ids: Tensor) -> None:
        self.model, self.ids, self.longest = model.narrowed(ids), ids, room(model)

    def start(self, batch: Batch) -> State:
        return self.model.start(batch)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        return self.model.step(self.ids[tokens], state)

    def original(self, hypothesis: Hypothesis) -> Hypothesis:
        """Return a hypothesis with the ids of the whole vocabulary."""
        return replace(hypothesis, tokens=tuple(self.ids[list(hypothesis.tokens)].tolist()))


def shortlisted(run: Run, associations: Associations, batch: Batch, k: int) -> Shortlisted:
    """Restrict a run's translator to the shortlist of a batch."""
    assert isinstance(run.model, Narrows) and batch.source is not None
    found = associations.shortlist(batch.source.values.cpu().numpy(), k)
    ids = np.union1d(np.arange(len(SPECIALS)), found)
    return Shortlisted(run.model, torch.from_numpy(ids).to(run.device))


def associations_of(run: Run) -> Associations:
    """Return which target types belong to a source type: kept in the run folder, or learnt from its training data."""
    if not isinstance(run.model, Narrows):
        remedy = "give one run of an encoder-decoder, or leave it out"
        raise UserError(f"shortlist needs a model that can narrow its vocabulary, which {run.name} cannot: {remedy}.")
    folder, shapes = Folder(run.name), run.fields.shapes
    data = folder.facts()["data"]
    try:
        bound = f"{content_hash(own_file(folder.fields))} {data}"
    except OSError as problem:
        raise UserError(f"{folder.fields} cannot be read ({reason(problem)}): restore it.") from None
    return _associations(run.name, size_of(shapes.source), size_of(shapes.target), bound)


@lru_cache(maxsize=2)
def _associations(path: str, source_size: int, target_size: int, bound: str) -> Associations:
    """Read or learn them; `bound` has the hashes of the tokenizers and of the data that they must come from."""
    folder = Folder(path)
    with suppress(UserError, TypeError):  # it is missing, damaged, or holds numbers that NumPy does not have
        tensors, facts = read_tensors(folder.shortlist)
        if facts.get("bound") == bound and tensors.keys() == set(Associations._fields):
            kept = Associations(**{name: tensor.numpy() for name, tensor in tensors.items()})
            if kept.fits(source_size, target_size):
                return kept
    source, target = _encoded(folder, source=source_size, target=target_size)
    found = associate(source, target, source_size=source_size, target_size=target_size)
    with suppress(UserError):  # where the folder cannot be written to, they are learnt again next time
        arrays = {name: torch.from_numpy(array) for name, array in found._asdict().items()}
        write_tensors(folder.shortlist, arrays, {"bound": bound})
    return found


def _encoded(folder: Folder, **sizes: int) -> list[Encoded]:
    """Open the sides of the encoded training data, whose ids are below these sizes."""
    with suppress(UserError):
        sides = [open_split(folder.data, "train", side) for side in sizes]
        pairs = len({len(side) for side in sides}) == 1
        if pairs and all(_below(side.tokens, size) for side, size in zip(sides, sizes.values(), strict=True)):
            return sides
    raise UserError(
        f"shortlist needs the encoded training data, which is missing or damaged in {folder.data}: use the folder in "
        "which the run was trained, or leave it out."
    )


def _below(ids: NDArray[Any], size: int) -> bool:
    """Return whether these are ids of a vocabulary of this size."""
    return ids.dtype.kind == "i" and bool(ids.min(initial=0) >= 0 and ids.max(initial=0) < size)

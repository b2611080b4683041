"""Batches made by hand: ids in, the sides of a batch out; and sequences on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from regard.data.batches import Encoded
from regard.data.fields import Fields, TextField
from regard.data.tokens import PairTokens
from regard.interface import PAD, Batch, Padded, Tree

Rows = Tensor | Sequence[Sequence[int]]  # lists may differ in length


def side(rows: Rows) -> Padded:
    if not isinstance(rows, Tensor):
        longest = max(map(len, rows))
        rows = torch.tensor([[*row, *[PAD] * (longest - len(row))] for row in rows])
    return Padded.of_ids(rows)


def text(ids: Rows, state: Tree = None) -> Batch:
    """For a language model: <bos> … <eos>."""
    return Batch(target=side(ids), state=state)


def pairs(source: Rows, target: Rows | None = None, **beside: Tensor) -> Batch:
    """For a translator: … <eos> and <bos> … <eos>."""
    return Batch(side(source), None if target is None else side(target), beside)


def labelled(source: Rows, labels: Sequence[int] | Tensor, **beside: Tensor) -> Batch:
    """For a classifier: one number for each row."""
    numbers = torch.as_tensor(labels)[:, None]
    return Batch(side(source), Padded(numbers, torch.ones_like(numbers, dtype=torch.bool)), beside)


def tagged(source: Rows, tags: Tensor, **beside: Tensor) -> Batch:
    """For a tagger: a number for each word, (batch, source); what stands elsewhere does not count."""
    read = side(source)
    return Batch(read, Padded(tags, read.but_end().mask), beside)


def target_of(batch: Batch) -> Tensor:
    assert batch.target is not None
    return batch.target.values


def source_of(batch: Batch) -> Tensor:
    assert batch.source is not None
    return batch.source.values


def text_fields(
    examples: Callable[[], Iterable[Sequence[str]]], *sides: str, joint: bool = True, **tokens: Any
) -> Fields:
    """Fields of these sides, all texts, learnt from these examples."""
    return Fields.learn(dict.fromkeys(sides, TextField), examples, PairTokens(joint=joint, **tokens))


def on_disk(folder: Path, name: str, sequences: Iterable[Sequence[int]]) -> Encoded:
    """These sequences, streamed to the disk."""
    with Encoded.writer(folder, name) as add:
        for sequence in sequences:
            add(sequence)
    return Encoded.open(folder, name)

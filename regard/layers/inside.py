"""Finds the attentions, recurrent layers, embeddings and matrices of a module."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from typing import Literal

from torch import nn

from regard.interface import Inside, SeenAttention, SeenRecurrence, SideName
from regard.layers.attention import Attention
from regard.layers.cells import Cell
from regard.layers.encoders import Embedding, RecurrentEncoder, SoundEncoder
from regard.layers.recurrent import Recurrent


def attentions_in(module: nn.Module) -> list[Attention]:
    """List them in module order, so the first layer first."""
    return [part for part in module.modules() if isinstance(part, Attention)]


def matrices_in(module: nn.Module) -> Iterator[tuple[str, nn.Module, str, nn.Parameter]]:
    """Yield the matrices of linear layers, convolutions and recurrent cells: the path of the layer, the layer, the name
    and the weight. A convolution's is (outputs, inputs, …)."""
    for path, part in module.named_modules():
        if isinstance(part, nn.Linear | nn.Conv1d | nn.Conv2d | Cell):
            yield from ((path, part, name, own) for name, own in part.named_parameters(recurse=False) if own.dim() > 1)


def seen(
    parts: Iterable[Attention],
    kind: Literal["self", "cross", "pooling"],
    queries: SideName | None,
    keys: SideName,
    extra: int = 0,
    lead: int = 0,
) -> tuple[SeenAttention, ...]:
    """Number the attentions of one kind."""
    layers = enumerate(parts, start=1)
    return tuple(SeenAttention(part, kind, layer, queries, keys, extra, lead) for layer, part in layers)


def recurrences_in(module: nn.Module, side: SideName) -> tuple[SeenRecurrence, ...]:
    """List the recurrent layers of a module, numbered in each direction."""
    layers: Counter[bool] = Counter()
    found = []
    for cell, backwards in cells_in(module):
        layers[backwards] += 1
        found.append(SeenRecurrence(cell, layers[backwards], side, backwards))
    return tuple(seen._replace(two_ways=len(layers) == 2) for seen in found)


def cells_in(module: nn.Module, flipped: bool = False) -> Iterator[tuple[Cell, bool]]:
    """Yield each cell and whether it reads backwards. `flipped`: the input of the module has been reversed. A cell
    inside a cell is not a layer."""
    if isinstance(module, Cell):
        yield module, flipped
    elif isinstance(module, SoundEncoder):
        return  # its steps are moments, not tokens
    elif isinstance(module, Recurrent):
        flipped ^= module.reverse
        yield from ((cell, flipped) for cell in module.forwards)
        yield from ((cell, not flipped) for cell in module.backwards)
    else:
        flipped ^= isinstance(module, RecurrentEncoder) and module.reverse
        for part in module.children():
            yield from cells_in(part, flipped)


def inside_of(
    reads: nn.Module, attentions: tuple[SeenAttention, ...], recurrences: tuple[SeenRecurrence, ...]
) -> Inside:
    """Build an Inside with the `embed` of the reader, if it has one, and the Embedding in it."""
    reader = dict(reads.named_children()).get("embed")
    table = reader if reader is None else dict(reader.named_children()).get("embed", reader)
    stride = reads.stride if isinstance(reads, SoundEncoder) else 1
    return Inside(attentions, recurrences, reader, table if isinstance(table, Embedding) else None, stride)

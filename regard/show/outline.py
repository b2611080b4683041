"""A tree as indented text."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence


def outline(parents: Sequence[int | None], words: Sequence[str], ends: Mapping[int, str]) -> Iterator[str]:
    """Yield a line for each stretch of a tree without branches, below what it continues and further to the right, with
    what there is to read at its end. Parents stand before their children; that of a root is None."""
    children: dict[int | None, list[int]] = {}
    for node, parent in enumerate(parents):
        children.setdefault(parent, []).append(node)
    waiting = [(0, root) for root in reversed(children[None])]
    while waiting:
        depth, node = waiting.pop()
        stretch = [words[node]]
        while len(below := children.get(node, [])) == 1:
            (node,) = below
            stretch.append(words[node])
        yield f"{'  ' * depth}{' '.join(stretch)}   {ends[node]}".rstrip()
        waiting += [(depth + 1, child) for child in reversed(below)]

"""Write what passes: a new folder with files and a recipe that trains on them, complete or not at all."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import compress
from pathlib import Path
from typing import TextIO

import numpy as np

from regard.check.characters import CODE_POINTS, Array
from regard.check.faults import BIT, FAULTS, LEFT_OUT
from regard.check.scan import Reports, Scan, chunks, coded, hashes_of, known_characters, lines_at
from regard.data.files import flush_file, whole_folder
from regard.data.sources import Parallel, Split
from regard.interface import UserError
from regard.recipe import Recipe

FILES = Parallel(source="train.source", target="train.target", valid_source="valid.source", valid_target="valid.target")
CHANGED = "The data changed while it was being read: check it again when no program writes to it."


def write_clean(
    recipe: Recipe, folder: Path, scans: Mapping[Split, Scan], reports: Reports
) -> dict[Split, dict[str, int]]:
    """Write the pairs that pass; how many were left out, and why."""
    dropped: dict[Split, dict[str, int]] = {}
    known: Array | None = None
    with whole_folder(folder) as beside:
        for split, scan in scans.items():
            seen = np.zeros((2, CODE_POINTS), np.bool_)  # (side, code point)
            written = 0
            with synced(beside / f"{split}.source") as source, synced(beside / f"{split}.target") as target:
                for pairs in passing(recipe, split, scan, seen, known):
                    source.writelines(f"{line}\n" for line, _ in pairs)
                    target.writelines(f"{line}\n" for _, line in pairs)
                    written += len(pairs)
            if not written:
                raise UserError(f"Nothing was written to {folder}: no pair of {split} passes.")
            dropped[split] = reasons(scan, split, reports, written)
            known = known_characters(seen, recipe.tokens)
        with synced(beside / "recipe.toml") as file:
            file.write(moved(recipe, folder).to_toml())
    return dropped


def passing(
    recipe: Recipe, split: Split, scan: Scan, seen: Array, known: Array | None
) -> Iterator[list[tuple[str, str]]]:
    """The pairs that pass, trimmed, some at a time. `seen` collects their characters (side, code point); with
    `known` they have no others, which may be fewer than those of all of train."""
    keep, at = scan.free_of(LEFT_OUT[split]), 0
    for chunk in chunks(recipe.data.lines(split, recipe.folder, lambda *_: None)):
        now = slice(at, at + len(chunk))
        at = now.stop
        pairs = [(source.strip(), target.strip()) for _, source, target in compress(chunk, keep[now])]
        source, target = (coded([pair[side] for pair in pairs]) for side in range(2))
        hashes = hashes_of(zip(source.lines, target.lines, strict=True), len(pairs))
        if at > len(keep) or not np.array_equal(hashes, scan.pairs[now][keep[now]]):
            raise UserError(CHANGED)
        fine = np.ones(len(pairs), np.bool_)
        for place, side in enumerate((source, target)):
            seen[place, side.codes] = True
            if known is not None:
                fine[lines_at(np.flatnonzero(~known[place][side.codes]), side.starts)] = False
        yield list(compress(pairs, fine))
    if at < len(keep):
        raise UserError(CHANGED)


def reasons(scan: Scan, split: Split, reports: Reports, written: int) -> dict[str, int]:
    """How many pairs were not written, by the first of their faults."""
    faults = (scan.faults[:, 0] | scan.faults[:, 1]) & np.uint32(LEFT_OUT[split])
    lowest = faults & (~faults + np.uint32(1))
    counts = {kind: int(np.count_nonzero(lowest == BIT[kind])) for kind in FAULTS}
    counts["row"] = sum(count for key, count in reports.counts.items() if (key.split, key.kind) == (split, "row"))
    counts["unseen"] += int(np.count_nonzero(faults == 0)) - written  # not in what is left of train
    return {kind: count for kind, count in counts.items() if count}


def moved(recipe: Recipe, folder: Path) -> Recipe:
    """The recipe for the files that were written."""
    train = recipe.train
    if train.from_ and (start := recipe.folder / train.from_).is_dir():
        train = dataclasses.replace(train, from_=str(start.resolve()))
    return dataclasses.replace(recipe, data_name="parallel", data=FILES, train=train, folder=folder)


@contextmanager
def synced(path: Path) -> Iterator[TextIO]:
    with path.open("w", encoding="utf-8", newline="\n") as file:
        yield file
        flush_file(file)

"""The files that a recipe names: one, several in a list, or all that a pattern such as corpus/*.txt matches."""

from __future__ import annotations

import glob
import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from regard.config import Names, UserError, shown

LINES = 40  # bits of an example's number that count in its file; the file's place is above them
COMPRESSED = {".gz", ".xz", ".bz2"}
# of files with columns or keys; a file of text may end in anything
FORMATS = {".jsonl": "JSONL", ".ndjson": "JSONL", ".json": "JSON", ".csv": "CSV", ".tsv": "TSV", ".conllu": "CoNLL-U"}


def find(path: str, *folders: Path) -> Path:
    """A recipe's path: absolute as it is, else from the recipe's folder, else from $REGARD_DATA."""
    tries = [folder / path for folder in _places(folders)]
    for candidate in tries:
        if candidate.exists():  # what a link to a pipe points to has no path
            return candidate.absolute() if candidate.is_fifo() else candidate.resolve()
    looked = " and ".join(str(candidate) for candidate in dict.fromkeys(tries))
    raise UserError(f"The file {path!r} was not found: looked at {looked}; set REGARD_DATA, or correct the path.")


def find_all(key: str, names: Names, *folders: Path) -> list[Path]:
    """The files that a setting of [data] names: those of a list in its order, those of a pattern sorted by name."""
    every = [names] if isinstance(names, str) else names
    found = [file for name in every for file in _matches(key, name, folders)]
    formats = {_format(file): file.name for file in found}
    if len(formats) > 1:
        several = " and ".join(f"{name} is {form or 'text'}" for form, name in formats.items())
        raise UserError(f"data.{key} = {shown(names)} names files of several formats ({several}): give one format.")
    return found


def _matches(key: str, name: str, folders: Sequence[Path]) -> list[Path]:
    """The files of one name; what exists is no pattern, whatever its name."""
    places = _places(folders)
    if not glob.has_magic(name) or any((place / name).exists() for place in places):
        return [find(name, *folders)]
    for place in places:
        matched = (place / each for each in sorted(glob.glob(name, root_dir=place, recursive=True)))
        if files := [each.resolve() for each in matched if each.is_file()]:
            return files
    looked = " and ".join(str(place) for place in dict.fromkeys(places))
    raise UserError(
        f"data.{key} = {name!r} matches no file: looked from {looked}; correct the pattern, or set REGARD_DATA."
    )


def _places(folders: Sequence[Path]) -> list[Path]:
    root = os.environ.get("REGARD_DATA")
    return [*folders, *([Path(root)] if root else [])]


def _format(file: Path) -> str:
    """The format of a table by its name; "" for plain text."""
    suffixes = [suffix.lower() for suffix in file.suffixes if suffix.lower() not in COMPRESSED]
    return FORMATS.get(suffixes[-1], "") if suffixes else ""


def parted(files: Iterable[Iterable[tuple[Any, ...]]]) -> Iterator[tuple[Any, ...]]:
    """The examples of several files, one after the other; their numbers say which file they are in, too."""
    for place, examples in enumerate(files):
        above = place << LINES
        if above:
            yield from ((above | number, *sides) for number, *sides in examples)
        else:
            yield from examples


def place_of(number: int) -> tuple[int, int]:
    """The place of an example's file among several, from 0, and its number there."""
    return number >> LINES, number & ((1 << LINES) - 1)

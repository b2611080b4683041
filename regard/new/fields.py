"""Guess from its first lines which fields of a table hold the source and the target, and say why."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from statistics import mode
from typing import Any

from regard.config import counted
from regard.data.fields import is_number
from regard.data.text import is_jsonl, read_rows, whole_lines
from regard.interface import UserError
from regard.new.choices import Reasons, Request

LOOKED_AT = 1000  # lines

SAME = 10  # times that a text occurs, on average, at most
WORDS = 3  # in a field of text, on average, at least
LIKE_A_TARGET = ("score", "target", "label", "rating", "similarity", "number", "value", "y")  # names of numbers

Columns = dict[str, list[str]]
Target = tuple[str, bool, str]  # its field, whether the first line names the fields, and why it was chosen
Guess = tuple[str, str, Reasons]  # the fields of the source and of the target


def named_fields(asked: Request, file: Path, guess: Callable[[Path], Guess]) -> Guess:
    """The fields that were named; otherwise those that `guess` finds."""
    if bool(asked.source) != bool(asked.target):
        raise UserError("Only one of source and target was given: give both, the two fields of the table, or neither.")
    return (asked.source, asked.target, {}) if asked.source and asked.target else guess(file)


def columns_of(path: Path) -> dict[str, list[str]]:
    """Field -> its values in the first lines; a field is a key of JSONL, or the number of a column."""
    if is_jsonl(path):
        try:
            entries = [dict(json.loads(line)) for _, line in islice(whole_lines(path), LOOKED_AT)]
            first = entries[0]
        except (ValueError, TypeError, IndexError, RecursionError):
            raise UserError(f"{path} is not JSONL: give one object per line, with texts in it.") from None
        names = [key for key in first if all(type(entry.get(key)) in (str, int, float) for entry in entries)]
        return {key: [str(entry[key]) for entry in entries] for key in names}
    rows = [row for _, row in islice(read_rows(path), LOOKED_AT)]
    if not rows:
        raise UserError(f"{path} is empty: give at least a few lines.")
    width = mode(map(len, rows))  # a row that has fewer is refused, with its number, when it is read
    return {str(place + 1): [row[place] for row in rows if len(row) >= width] for place in range(width)}


def keys_of(path: Path, usual: Sequence[str], *, form: str = "JSONL") -> list[str]:
    """The fields of a table: keys of JSONL, names in the first line where one of them is usual, otherwise numbers."""
    if is_jsonl(path):
        try:
            return list(dict(json.loads(next(whole_lines(path), (0, ""))[1])))
        except (ValueError, TypeError, RecursionError):
            raise UserError(f"{path} is not {form}: give one object per line.") from None
    first = next(read_rows(path), (0, list[str]()))[1]
    named = any(cell.strip().lower() in usual for cell in first)
    return first if named else [str(place) for place in range(1, len(first) + 1)]


def texts_and_target(
    asked: Request, file: Path, guess: Callable[[Columns, Path], Target]
) -> tuple[dict[str, Any], Reasons]:
    """The fields source, target and, where there is one, second: those that were named, otherwise those found."""
    if asked.source and asked.target:
        named = {"source": asked.source, "target": asked.target, "second": asked.second or ""}
        return {key: name for key, name in named.items() if name}, {}
    if asked.source or asked.target or asked.second:
        raise UserError(
            "Only one of source and target was given: give both, fields of the table, and second with them if there "
            "are two texts, or none of them."
        )
    columns = columns_of(file)
    if len(columns) < 2:
        raise UserError(
            f"{file} does not have two fields in each line: give a text and what is to be learnt, with a tab between "
            "them (.tsv), a comma or a semicolon (.csv), or as JSON objects (.jsonl)."
        )
    target, named_in_first_line, why = guess(columns, file)
    long = {name: sum(map(len, values)) for name, values in columns.items() if name != target}
    text = max(long, key=long.__getitem__)
    texts = [name for name in long if name == text or is_text(columns[name])]
    found = {"source": text, "target": target}
    reasons = {"data.source": "the longest field of the others is used as the text.", "data.target": why}
    if len(texts) == 2:
        found = {"source": texts[0], "target": target, "second": texts[1]}
        reasons["data.source"] = "the first of two fields of text; the second is read after it (data.second)."
    head = {name: columns[name][0] for name in found.values()}
    if target.isdecimal() and named_in_first_line and all(head[name].isidentifier() for name in found.values()):
        found = {key: head[name] for key, name in found.items()}
    return found, reasons


def is_text(values: Sequence[str]) -> bool:
    """Whether a field holds texts, and not names, dates or kinds: some words each, and many of them different."""
    words = sum(len(value.split()) for value in values)
    return words >= WORDS * len(values) and SAME * len(set(values)) > len(values)


def label_among(columns: Columns, path: Path) -> Target:
    """The label is the field with the fewest different values."""
    different = {name: len(set(values)) for name, values in columns.items()}
    label = min(columns, key=lambda name: (different[name], sum(map(len, columns[name]))))
    once = len(columns[label]) > 2 and columns[label].count(columns[label][0]) == 1
    return label, once, "the field with the fewest different values is used as the label."


def number_among(columns: Columns, path: Path) -> Target:
    """The number is the field of numbers that is called like one, or has fractions; otherwise the last."""
    below = {name: values[1:] or values for name, values in columns.items()}
    numbers = [name for name, each in below.items() if all(map(is_number, each))]  # or most: reading names the others
    numbers = numbers or [name for name, each in below.items() if 2 * sum(map(is_number, each)) >= len(each)]
    if not numbers:
        raise UserError(f"{path} has no field of numbers: give a text and a number in each line, or name the target.")

    def likely(name: str) -> tuple[bool, bool]:
        called = {name.lower(), columns[name][0].lower()}
        return bool(called & {*LIKE_A_TARGET}), any("." in value for value in columns[name])

    target = max(reversed(numbers), key=likely)
    return target, not is_number(columns[target][0]), "the field of numbers is used as the target."


def pair_of_texts(path: Path) -> Guess:
    """The two fields that are more than numbers, in their order."""
    columns = {
        name: values
        for name, values in columns_of(path).items()
        if not all(value.strip().isdecimal() for value in values[1:] or values)
    }
    if len(columns) != 2:
        found = f"{counted(len(columns), 'field')} of text in each line"
        raise UserError(
            f"{path} has {found}, and a pair has two: name two fields, or two parallel files, as source and target."
        )
    (source, heads), (target, tails) = columns.items()
    words = [all(map(str.isidentifier, pair)) for pair in zip(heads, tails, strict=True)]
    if not is_jsonl(path) and words[0] and 2 * sum(words) < len(words):  # the first line names the columns
        source, target = heads[0], tails[0]
    reasons = {
        "data.source": "the first of the two fields of text is the source; swap them for the other direction.",
        "data.target": "the second of the two fields of text is the target.",
    }
    return source, target, reasons

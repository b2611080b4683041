"""Guess from its first lines which fields of a table hold the source and the target, and say why."""

from __future__ import annotations

import json
from collections.abc import Callable
from itertools import islice
from pathlib import Path
from statistics import mode

from regard.config import counted
from regard.data.text import is_jsonl, read_rows, whole_lines
from regard.interface import UserError
from regard.new.choices import Reasons, Request

LOOKED_AT = 1000  # lines

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
        names = [key for key in first if all(type(entry.get(key)) in (str, int) for entry in entries)]
        return {key: [str(entry[key]) for entry in entries] for key in names}
    rows = [row for _, row in islice(read_rows(path), LOOKED_AT)]
    if not rows:
        raise UserError(f"{path} is empty: give at least a few lines.")
    width = mode(map(len, rows))  # a row that has fewer is refused, with its number, when it is read
    return {str(place + 1): [row[place] for row in rows if len(row) >= width] for place in range(width)}


def text_and_label(path: Path) -> Guess:
    """The label is the field with the fewest different values; the text is the longest of the others."""
    columns = columns_of(path)
    if len(columns) < 2:
        raise UserError(
            f"{path} does not have two fields in each line: give a text and a label, with a tab between them (.tsv), "
            "a comma or a semicolon (.csv), or as JSON objects (.jsonl)."
        )
    different = {name: len(set(values)) for name, values in columns.items()}
    label = min(columns, key=lambda name: (different[name], sum(map(len, columns[name]))))
    text = max((name for name in columns if name != label), key=lambda name: sum(map(len, columns[name])))
    head = {name: values[0] for name, values in columns.items()}
    once = len(columns[label]) > 2 and columns[label].count(head[label]) == 1
    if label.isdecimal() and once and head[text].isidentifier():
        text, label = head[text], head[label]  # the first line names the columns
    reasons = {
        "data.source": "the longest field besides the label is used as the text.",
        "data.target": "the field with the fewest different values is used as the label.",
    }
    return text, label, reasons


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

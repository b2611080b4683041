"""Examples that a Python program holds, written as files that a recipe can name: a run then depends on nothing that is
gone when the program ends, and can be resumed, checked and scored from its folder."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from io import TextIOWrapper
from numbers import Integral
from pathlib import Path
from typing import Any

import numpy as np

from regard.config import UserError, counted
from regard.data.files import new_file, write_atomically
from regard.data.picture_files import is_pillow, png_of
from regard.data.recordings import recording_of, wav_of

FIELDS = ("source", "target")  # of a line of JSONL
FILE, LABEL, CAPTION, TRANSCRIPT = "file", "label", "caption", "transcript"  # of a line of JSONL about files
PICTURES, RECORDINGS = "pictures", "recordings"  # the folders of those that had no file
Kept = dict[str, Any]  # the arguments of `new` for what was written: its file, its fields


def rows_of(data: Any) -> Iterator[Any]:
    """Tuples, dictionaries, a dictionary of columns, or a DataFrame (pandas, polars), one example after another."""
    if isinstance(data, str | bytes):
        raise UserError(
            "Data is a list of examples, and a text was given: put it in a list, or give a file to a recipe."
        )
    if isinstance(data, Mapping):
        return zip(*data.values(), strict=True)
    if hasattr(data, "itertuples"):
        rows: Iterator[Any] = data.itertuples(index=False, name=None)
        return rows
    if hasattr(data, "iter_rows"):
        rows = data.iter_rows()
        return rows
    return (tuple(row.values()) if isinstance(row, Mapping) else row for row in data)


def pairs_in(rows: Iterable[Any], first: int = 1) -> Iterator[tuple[Any, Any]]:
    for number, row in enumerate(rows, start=first):
        if isinstance(row, str | bytes) or not isinstance(row, Sequence) or len(row) != 2:
            raise UserError(f"Example {number} is {str(row)[:80]!r}, and must have two parts: an input and its target.")
        yield row[0], row[1]


def keep_pairs(rows: Iterable[Any], place: Path) -> Kept:
    """Two texts, or a text and its label, per line of JSONL."""
    path = place.with_suffix(".jsonl")
    with TextIOWrapper(new_file(path), "utf-8", newline="\n") as file:
        for pair in pairs_in(rows):
            entry = dict(zip(FIELDS, map(str, pair), strict=True))
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
    return {"file": path, "source": FIELDS[0], "target": FIELDS[1]}


def keep_labelled(rows: Iterable[Any], place: Path) -> Kept:
    """A text, or two, and what is to be learnt of them: (text, label), ((first, second), label) or (first, second,
    label), per line of JSONL."""
    path, names = place.with_suffix(".jsonl"), (FIELDS[0], "second", FIELDS[1])
    paired = None
    with TextIOWrapper(new_file(path), "utf-8", newline="\n") as file:
        for number, row in enumerate(rows, start=1):
            three = isinstance(row, Sequence) and not isinstance(row, str | bytes) and len(row) == 3
            (texts, target), *_ = pairs_in([(row[:2], row[2]) if three else row], number)
            several = [*texts] if isinstance(texts, list | tuple) else [texts]
            if not 1 <= len(several) <= 2 or paired not in (None, len(several) == 2):
                raise UserError(
                    f"Example {number} is {str(row)[:80]!r}: give one text in every example, or two in every."
                )
            paired = len(several) == 2
            entry = dict(zip(names if paired else FIELDS, map(str, (*several, target)), strict=True))
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
    return {"file": path, "source": FIELDS[0], "target": FIELDS[1], **({"second": "second"} if paired else {})}


def keep_choices(rows: Iterable[Any], place: Path) -> Kept:
    """(question, answers, right answer), or ((question, answers), right answer): its text, or its place in the list."""
    return _kept((_chosen(number, *parts) for number, parts in enumerate(_triples(rows), start=1)), place, "choices")


def _chosen(number: int, question: Any, answers: Any, right: Any) -> tuple[Any, list[Any], Any]:
    if isinstance(answers, str | bytes) or not isinstance(answers, Iterable):
        raise UserError(f"Example {number} has {str(answers)[:80]!r} as its answers: give a list of them.")
    answers = [*answers]
    if not isinstance(right, Integral):
        return question, answers, right
    if int(right) not in range(len(answers)):
        has = f"has {counted(len(answers), 'answer')}, from 0 on, and {right} is given as the right one"
        raise UserError(f"Example {number} {has}: give the place of one, or its text.")
    return question, answers, answers[int(right)]


def keep_questions(rows: Iterable[Any], place: Path) -> Kept:
    """(question, text, answer), or ((question, text), answer): a text, or several."""
    several = ((q, text, [a] if isinstance(a, str) else a) for q, text, a in _triples(rows))
    return _kept(several, place, "context")


def _triples(rows: Iterable[Any]) -> Iterator[tuple[Any, Any, Any]]:
    for number, row in enumerate(rows, start=1):
        whole = row if isinstance(row, Sequence) and not isinstance(row, str | bytes) else ()
        parts = (*whole[0], whole[1]) if len(whole) == 2 and isinstance(whole[0], list | tuple) else tuple(whole)
        if len(parts) != 3:
            wanted = "a question, what it is asked about, and the answer"
            raise UserError(f"Example {number} is {str(row)[:80]!r}, and must have three parts: {wanted}.")
        yield parts[0], parts[1], parts[2]


def _kept(triples: Iterable[tuple[Any, Any, Any]], place: Path, second: str) -> Kept:
    path = place.with_suffix(".jsonl")
    with TextIOWrapper(new_file(path), "utf-8", newline="\n") as file:
        for triple in triples:
            entry = dict(zip(("question", second, "answer"), triple, strict=True))
            file.write(json.dumps(entry, ensure_ascii=False) + "\n")
    return {"file": path}


def keep_tagged(rows: Iterable[Any], place: Path) -> Kept:
    """Words and their tags, as lists or with spaces between them, in CoNLL's columns."""
    path = place.with_suffix(".conll")
    with TextIOWrapper(new_file(path), "utf-8", newline="\n") as file:
        for number, pair in enumerate(pairs_in(rows), start=1):
            words, tags = (part.split() if isinstance(part, str) else [str(each) for each in part] for part in pair)
            if len(words) != len(tags):
                amounts = f"{counted(len(words), 'word')} and {counted(len(tags), 'tag')}"
                raise UserError(f"Example {number} has {amounts}: give one tag for each word.")
            file.write("".join(f"{word}\t{tag}\n" for word, tag in zip(words, tags, strict=True)) + "\n")
    return {"file": path}


def keep_texts(rows: Iterable[Any], place: Path) -> Kept:
    """One text per line; where a text has several lines, each text is a paragraph, with a blank line between them."""
    path = place.with_suffix(".txt")
    texts = [str(row[0] if isinstance(row, tuple) else row) for row in rows]
    several = any("\n" in text.strip("\n") for text in texts)
    with TextIOWrapper(new_file(path), "utf-8", newline="\n") as file:
        for text in texts:
            lines = [line for line in text.splitlines() if line.strip()]
            file.write("\n".join(lines) + ("\n\n" if several else "\n"))
    return {"file": path, "unit": "paragraph" if several else "line"}


def keep_pictures(rows: Iterable[Any], place: Path) -> Kept:
    """Arrays of uint8 (height, width[, channels]) of one size and a label each, as one .npz; otherwise files, Pillow's
    pictures and arrays, as a table of files and labels: what has no file yet gets one."""
    pairs = [(given if is_file(given) else np.asarray(given), label) for given, label in pairs_in(rows)]
    shapes = {None if is_file(picture) else picture.shape for picture, _ in pairs}
    if len(shapes) == 1 and None not in shapes:
        images, labels = zip(*pairs, strict=True)
        path = place.with_suffix(".npz")
        with new_file(path) as file:
            np.savez(file, images=np.stack(images), labels=np.array([str(name) for name in labels]))
        return {"file": path}
    return _table_of_files(((picture, str(label)) for picture, label in pairs), place, LABEL, _picture_file)


def keep_captions(rows: Iterable[Any], place: Path) -> Kept:
    """Pictures, as files, Pillow's or arrays, and a caption each, or several: a table of files and captions."""
    several = ((picture, [each] if isinstance(each, str) else list(map(str, each))) for picture, each in pairs_in(rows))
    return _table_of_files(several, place, CAPTION, _picture_file)


def keep_recordings(rows: Iterable[Any], place: Path) -> Kept:
    """Recordings, as files or arrays of samples, and a label or a transcript each: a table of files and texts."""
    return _table_of_files(((sound, str(text)) for sound, text in pairs_in(rows)), place, TRANSCRIPT, _sound_file)


def _table_of_files(
    pairs: Iterable[tuple[Any, Any]], place: Path, target: str, file_of: Callable[[Any, Path, int], Path]
) -> Kept:
    path = place.with_suffix(".jsonl")
    with TextIOWrapper(new_file(path), "utf-8", newline="\n") as file:
        for number, (raw, answer) in enumerate(pairs, start=1):
            name = str(Path(raw).absolute() if isinstance(raw, str | Path) else file_of(raw, place, number))
            file.write(json.dumps({FILE: name, target: answer}, ensure_ascii=False) + "\n")
    return {"file": path, "source": FILE, "target": target}


def is_file(picture: Any) -> bool:
    """Whether a picture is a file, or can be written as one: everything else is an array."""
    return isinstance(picture, str | Path) or is_pillow(picture)


# Files are named by what they hold, so that other data replaces none.


def _picture_file(picture: Any, place: Path, number: int) -> Path:
    if isinstance(picture, np.ndarray) and picture.dtype != np.uint8:
        given = f"Picture {number} is an array of {picture.dtype}"
        raise UserError(f"{given}: give the name of a file, Pillow's Image, or whole numbers from 0 to 255 (uint8).")
    content = png_of(picture)
    file = place.with_name(PICTURES) / f"{hashlib.blake2b(content, digest_size=16).hexdigest()}.png"
    if not file.exists():
        write_atomically(file, content, own=True)
    return file


def _sound_file(sound: Any, place: Path, number: int) -> Path:
    recording = recording_of(sound)
    if recording.path is not None and recording.end is None and not recording.start:
        return recording.path.absolute()
    file = place.with_name(RECORDINGS) / f"{recording.digest.hex()}.wav"
    if not file.exists():
        write_atomically(file, wav_of(recording.samples(recording.own_rate), recording.own_rate), own=True)
    return file

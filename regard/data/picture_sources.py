"""Where pictures come from: a folder of class folders, a table of files and labels, or an .npz file."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, NoReturn

from regard.config import Count, Share, between
from regard.data.augmentation import Augmentation
from regard.data.files import reason
from regard.data.picture_cache import Size
from regard.data.picture_files import SUFFIXES, PictureFile
from regard.data.pictures import read_pictures
from regard.data.sources import Line, Source, TrainAndValid, only
from regard.data.text import Report, content_hash, encodable, is_jsonl, read_fields, read_rows, whole_lines
from regard.interface import UserError

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")  # endings, perhaps before .gz
LOOKED_AT = 1000  # rows of a table
EMPTY = "has an empty label"
LABELLED = "put each picture into a folder that is named as its label"


def is_npz(path: Path) -> bool:
    return path.suffix.lower() == ".npz"


def is_table(path: Path) -> bool:
    return any(suffix.lower() in TABLES for suffix in path.suffixes)


def is_picture(name: str) -> bool:
    """Whether this is the name of a picture; hidden files are none."""
    return name.lower().endswith(SUFFIXES) and not os.path.basename(name).startswith(".")


def pictures_below(folder: Path) -> Iterator[Path]:
    """The pictures in a folder and in those inside it, in the order of their names."""
    yield from (path for path in files_below(folder) if is_picture(path.name))


def files_below(folder: Path) -> Iterator[Path]:
    """The files in a folder and in those inside it that are not hidden, in the order of their names."""
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place) / name for name in sorted(names) if not name.startswith("."))


def _refuse(problem: OSError) -> NoReturn:
    """Refuse a folder that cannot be listed: without its pictures, a model would learn something else."""
    raise UserError(f"{problem.filename} cannot be read ({reason(problem)}): change its permissions.") from None


def picture_files(path: Path) -> list[PictureFile]:
    """The pictures that a file or a folder names, whatever their labels: itself, those in it, those of a table."""
    if not path.exists():
        raise UserError(f"{path} does not exist; check the spelling and the folder.")
    if path.is_dir():
        found = [PictureFile(file) for file in pictures_below(path)]
    elif is_table(path):
        columns, header = columns_of(path)
        field = file_field(columns, path)
        rows = read_fields(path, [header.get(field, field)])
        found = [PictureFile(path.parent / name) for _, (name,) in rows]
    else:
        return [PictureFile(path)]
    if not found:
        raise UserError(f"{path} has no pictures: give files that end in {', '.join(SUFFIXES[:4])} …")
    return found


def class_folders(folder: Path) -> list[Path]:
    """The folders whose names are labels."""
    try:
        inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
    except OSError as problem:
        _refuse(problem)
    found = [each for each in inside if each.is_dir()]
    loose = [each.name for each in inside if is_picture(each.name) and not each.is_dir()]
    if loose or not found:
        has = f"{loose[0]} beside its folders" if loose and found else loose[0] if loose else "no folders"
        raise UserError(f"{folder} has {has}, and pictures need labels: {LABELLED}, as in {folder}/cat/1.jpg.")
    return found


def file_and_label(path: Path) -> tuple[str, str]:
    """The fields of a table that hold the names of pictures and their labels, by their values: names end as pictures
    do, and of the others labels have the fewest different values."""
    columns, header = columns_of(path)
    file = file_field(columns, path)
    others = {name: len(set(values)) for name, values in columns.items() if name != file}
    if not others:
        raise UserError(f"{path} has no field beside the names of pictures: add one with their labels.")
    label = min(others, key=others.__getitem__)
    return header.get(file, file), header.get(label, label)


def file_field(columns: dict[str, list[str]], path: Path) -> str:
    likely = {name: sum(map(is_picture, values)) for name, values in columns.items()}
    if not columns:
        raise UserError(f"{path} has no rows to read: give lines with the name of a picture, and its label or caption.")
    if not any(likely.values()):
        raise UserError(f"{path} has no field with names of pictures ({', '.join(SUFFIXES[:4])} …): add one.")
    return max(likely, key=likely.__getitem__)


def columns_of(path: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
    """Field -> its values in the first rows; and field -> its name, where the first row has names."""
    columns: dict[str, list[str]] = {}
    if path.is_dir() or is_npz(path) or is_picture(path.name):
        kind = "a folder" if path.is_dir() else "an .npz file" if is_npz(path) else "a picture"
        remedy = "give one with the name of a picture and its label or caption on each line"
        raise UserError(f"{path} is {kind}, not a table: {remedy}.")
    if is_jsonl(path):
        for _, line in islice(whole_lines(path), LOOKED_AT):
            with suppress(ValueError, TypeError, RecursionError):  # reading reports it, with its number
                for key, value in dict(json.loads(line)).items():
                    columns.setdefault(key, []).append(str(value))
        return columns, {}
    first: list[str] = []
    for number, (_, row) in enumerate(islice(read_rows(path), LOOKED_AT)):
        first = first or row
        if number or any(map(is_picture, row)):
            for place, cell in enumerate(row, start=1):
                columns.setdefault(str(place), []).append(cell)
    named = bool(first) and not any(map(is_picture, first))
    return columns, {str(place): name for place, name in enumerate(first, start=1)} if named else {}


def names_in(path: Path) -> set[str]:
    """The fields of a table: their names, or their numbers where they have none."""
    columns, header = columns_of(path)
    return set(header.values() or columns)


@dataclass(frozen=True, kw_only=True)
class Npz(TrainAndValid):
    """One .npz file of pictures and their labels."""

    flip: bool = False  # augmentation: mirror half of the training pictures, left to right, other ones in each epoch
    crop: Count = 0  # augmentation: pad training pictures by so many pixels, and crop them at random
    colour: Share = 0.0  # augmentation: change brightness and contrast of training pictures by at most this share

    @property
    def augmentation(self) -> Augmentation:
        return Augmentation(flip=self.flip, crop=self.crop, colour=self.colour)

    def read(self, path: Path, report: Report | None) -> Iterator[Line]:
        for number, picture, label in self.labelled(path, report):
            if label.strip():
                yield number, picture, label
            elif report is None:
                raise UserError(f"Picture {number} of {path} {EMPTY}: give it a label, or remove it.")
            else:
                report(str(path), number, EMPTY)

    def labelled(self, path: Path, report: Report | None) -> Iterator[tuple[int, Any, str]]:
        """A number, a picture and its label, whatever the form of the data."""
        if is_npz(path):
            for number, (pixels, label) in enumerate(read_pictures(path), start=1):
                yield number, pixels, label
        elif path.is_dir():
            every = (
                (file, encodable(folder.name)) for folder in class_folders(path) for file in pictures_below(folder)
            )
            for number, (file, label) in enumerate(every, start=1):
                yield number, PictureFile(file, self.size), label
        else:
            for number, (name, label) in read_fields(path, self.fields_in(path), report=report):
                yield number, PictureFile(path.parent / name, self.size), label

    @property
    def size(self) -> Size | None:
        """The size of the pixels of a file; None: that of the model."""
        return None

    def fields_in(self, path: Path) -> tuple[str, str]:
        """The fields of a table that hold the name of a picture and its label."""
        return file_and_label(path)

    def fingerprint(self, folder: Path) -> str:
        return " ".join(self.content_of(path) for path in self.files(folder).values())

    def content_of(self, path: Path) -> str:
        """Changes when one of the pictures, its label or their order changes."""
        if is_npz(path):
            return content_hash(path)
        digest = hashlib.sha256()
        for _, picture, label in self.labelled(path, None):
            digest.update(picture.digest + label.encode() + b"\0")
        return digest.hexdigest()


def check_channels(channels: int) -> None:
    if channels == 2:
        raise ValueError("channels = 2 must be 1 (grey) or 3 (colours).")


@dataclass(frozen=True, kw_only=True)
class Pictures(Npz):
    """Picture files and their labels: a folder of class folders, or a table (JSONL, TSV or CSV) of files and labels."""

    train: str  # training pictures: a folder with a folder for each label, or a table; its files are relative to it
    valid: str = ""  # validation pictures, in the same form; "": hold out some of the training pictures
    source: str = ""  # the field of a picture's file in a table: key (JSONL), column number from 1, or column name
    target: str = ""  # the field of the label in a table
    side: Annotated[int, between(1, 1024)] = 64  # every picture becomes side x side pixels: a square from its middle
    channels: Annotated[int, between(1, 3)] = 3  # 3: colours; 1: grey

    def __post_init__(self) -> None:
        check_channels(self.channels)
        if bool(self.source) != bool(self.target):
            raise ValueError("source and target must be named together: the fields of the file and of the label.")
        super().__post_init__()

    @property
    def size(self) -> Size:
        return self.side, self.side, self.channels

    def fields_in(self, path: Path) -> tuple[str, str]:
        return (self.source, self.target) if self.source else file_and_label(path)

    def reading(self, files: Sequence[Path]) -> Source:
        """Another table may have other fields than the training data."""
        (file,) = only(files)
        kept = is_table(Path(file)) and {self.source, self.target} <= names_in(Path(file))
        return replace(self if kept else replace(self, source="", target=""), train=file, valid=file, hold_out=0.0)

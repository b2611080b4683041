"""Files of a kind, pictures or recordings, and what belongs to each: in a folder of class folders, or in a table."""

from __future__ import annotations

import hashlib
import json
import os
from abc import abstractmethod
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, ClassVar, NoReturn

from regard.data.files import reason
from regard.data.sources import Line, Source, TrainAndValid
from regard.data.text import Report, encodable, is_jsonl, read_fields, read_rows, whole_lines
from regard.interface import UserError

TABLES = (".csv", ".tsv", ".jsonl", ".ndjson", ".json")  # endings, perhaps before .gz
LOOKED_AT = 1000  # rows of a table
EMPTY = "has an empty label"


@dataclass(frozen=True)
class FileKind:
    """What files of a kind are called, and how their names end."""

    noun: str
    suffixes: tuple[str, ...]
    beside: str  # what a table has beside their names
    example: str  # a file in a class folder

    def has(self, name: str) -> bool:
        """Whether this is the name of such a file; hidden files are none."""
        return name.lower().endswith(self.suffixes) and not os.path.basename(name).startswith(".")

    @property
    def endings(self) -> str:
        return f"{', '.join(self.suffixes[:4])} …"

    def below(self, folder: Path) -> Iterator[Path]:
        """The files in a folder and in those inside it, in the order of their names."""
        yield from (path for path in files_below(folder) if self.has(path.name))

    def files_in(self, path: Path) -> list[Path]:
        """The files that a file or a folder names, whatever their labels: itself, those in it, those of a table."""
        if not path.exists():
            raise UserError(f"{path} does not exist; check the spelling and the folder.")
        if path.is_dir():
            found = [*self.below(path)]
        elif is_table(path):
            columns, header = self.columns_of(path)
            field = self.file_field(columns, path)
            found = [path.parent / name for _, (name,) in read_fields(path, [header.get(field, field)])]
        else:
            return [path]
        if not found:
            raise UserError(f"{path} has no {self.noun}s: give files that end in {self.endings}")
        return found

    def class_folders(self, folder: Path) -> list[Path]:
        """The folders whose names are labels."""
        try:
            inside = sorted(each for each in folder.iterdir() if not each.name.startswith("."))
        except OSError as problem:
            _refuse(problem)
        found = [each for each in inside if each.is_dir()]
        loose = [each.name for each in inside if self.has(each.name) and not each.is_dir()]
        if loose or not found:
            has = f"{loose[0]} beside its folders" if loose and found else loose[0] if loose else "no folders"
            remedy = f"put each {self.noun} into a folder that is named as its label, as in {folder}/{self.example}"
            raise UserError(f"{folder} has {has}, and {self.noun}s need labels: {remedy}.")
        return found

    def file_and_label(self, path: Path) -> tuple[str, str]:
        """The fields of a table that hold the names of files and their labels, by their values: names end as files of
        this kind do, and of the others labels have the fewest different values."""
        columns, header = self.columns_of(path)
        file = self.file_field(columns, path)
        others = {name: len(set(values)) for name, values in columns.items() if name != file}
        if not others:
            raise UserError(f"{path} has no field beside the names of {self.noun}s: add one with their labels.")
        label = min(others, key=others.__getitem__)
        return header.get(file, file), header.get(label, label)

    def file_and_text(self, path: Path) -> tuple[str, str]:
        """The fields of a table that hold the names of files and texts about them: the field with the most words."""
        columns, header = self.columns_of(path)
        file = self.file_field(columns, path)
        text = self.text_field(columns, file, path)
        return header.get(file, file), header.get(text, text)

    def text_field(self, columns: dict[str, list[str]], file: str, path: Path) -> str:
        words = {name: sum(len(value.split()) for value in values) for name, values in columns.items() if name != file}
        if not words:
            text = self.beside.rpartition(" ")[2]
            raise UserError(f"{path} has no field beside the names of {self.noun}s: add one with {text}s.")
        return max(words, key=words.__getitem__)

    def file_field(self, columns: dict[str, list[str]], path: Path) -> str:
        likely = {name: sum(map(self.has, values)) for name, values in columns.items()}
        if not columns:
            remedy = f"give lines with the name of a {self.noun}, and its {self.beside}"
            raise UserError(f"{path} has no rows to read: {remedy}.")
        if not any(likely.values()):
            raise UserError(f"{path} has no field with names of {self.noun}s ({self.endings}): add one.")
        return max(likely, key=likely.__getitem__)

    def columns_of(self, path: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
        """Field -> its values in the first rows; and field -> its name, where the first row has names."""
        columns: dict[str, list[str]] = {}
        if path.is_dir() or self.has(path.name):
            self.refuse_as_table(path, "a folder" if path.is_dir() else f"a {self.noun}")
        if is_jsonl(path):
            for _, line in islice(whole_lines(path), LOOKED_AT):
                with suppress(ValueError, TypeError, RecursionError):  # reading reports it, with its number
                    for key, value in dict(json.loads(line)).items():
                        columns.setdefault(key, []).append(str(value))
            return columns, {}
        first: list[str] = []
        for number, (_, row) in enumerate(islice(read_rows(path), LOOKED_AT)):
            first = first or row
            if number or any(map(self.has, row)):
                for place, cell in enumerate(row, start=1):
                    columns.setdefault(str(place), []).append(cell)
        named = bool(first) and not any(map(self.has, first))
        return columns, {str(place): name for place, name in enumerate(first, start=1)} if named else {}

    def refuse_as_table(self, path: Path, what: str) -> NoReturn:
        remedy = f"give one with the name of a {self.noun} and its {self.beside} on each line"
        raise UserError(f"{path} is {what}, not a table: {remedy}.")

    def names_in(self, path: Path) -> set[str]:
        """The fields of a table: their names, or their numbers where they have none."""
        columns, header = self.columns_of(path)
        return set(header.values() or columns)


def is_table(path: Path) -> bool:
    return any(suffix.lower() in TABLES for suffix in path.suffixes)


def files_below(folder: Path) -> Iterator[Path]:
    """The files in a folder and in those inside it that are not hidden, in the order of their names."""
    for place, folders, names in os.walk(folder, onerror=_refuse):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        yield from (Path(place) / name for name in sorted(names) if not name.startswith("."))


def _refuse(problem: OSError) -> NoReturn:
    """Refuse a folder that cannot be listed: without its files, a model would learn something else."""
    raise UserError(f"{problem.filename} cannot be read ({reason(problem)}): change its permissions.") from None


def hash_of(items: Iterable[tuple[int, Any, str]]) -> str:
    """Changes when one of the files, what belongs to it or their order changes."""
    digest = hashlib.sha256()
    for _, item, label in items:
        digest.update(item.digest + label.encode() + b"\0")
    return digest.hexdigest()


@dataclass(frozen=True, kw_only=True)
class LabelledFiles(TrainAndValid):
    """Files of a kind and their labels."""

    kind: ClassVar[FileKind]

    @abstractmethod
    def item(self, path: Path) -> Any:
        """The raw input that a file is."""

    @abstractmethod
    def fields_in(self, path: Path) -> tuple[str, str]:
        """The fields of a table that hold the name of a file and its label."""

    def parts(self, folder: Path) -> list[Source]:
        """All files together, since a folder or a table is small beside what it names."""
        return [self]

    def read(self, path: Path, report: Report | None) -> Iterator[Line]:
        for number, item, label in self.labelled(path, report):
            if label.strip():
                yield number, item, label
            elif report is None:
                which = f"{self.kind.noun.capitalize()} {number} of {path}"
                raise UserError(f"{which} {EMPTY}: give it a label, or remove it.")
            else:
                report(str(path), number, EMPTY)

    def labelled(self, path: Path, report: Report | None) -> Iterator[tuple[int, Any, str]]:
        """A number, an input and its label, whatever the form of the data."""
        if path.is_dir():
            folders = self.kind.class_folders(path)
            every = ((file, encodable(folder.name)) for folder in folders for file in self.kind.below(folder))
            for number, (file, label) in enumerate(every, start=1):
                yield number, self.item(file), label
        else:
            for number, (name, label) in read_fields(path, self.fields_in(path), report=report):
                yield number, self.item(path.parent / name), label

    def fingerprint(self, folder: Path) -> str:
        return " ".join(self.content_of(path) for path in self.files(folder).values())

    def content_of(self, path: Path) -> str:
        return hash_of(self.labelled(path, None))

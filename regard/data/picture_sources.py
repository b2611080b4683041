"""Where pictures come from: a folder of class folders, a table of files and labels, or an .npz file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, Any, ClassVar

from regard.config import Count, Share, between
from regard.data.augmentation import Augmentation
from regard.data.labelled_files import FileKind, LabelledFiles, is_table
from regard.data.picture_cache import Size
from regard.data.picture_files import SUFFIXES, PictureFile
from regard.data.pictures import read_pictures
from regard.data.sources import Source, only
from regard.data.text import Report, content_hash


class PictureKind(FileKind):
    """Picture files; pictures may be in an .npz file, too, which is no table."""

    def columns_of(self, path: Path) -> tuple[dict[str, list[str]], dict[str, str]]:
        if is_npz(path):
            self.refuse_as_table(path, "an .npz file")
        return super().columns_of(path)


PICTURES = PictureKind("picture", SUFFIXES, "label or caption", "cat/1.jpg")


def is_npz(path: Path) -> bool:
    return path.suffix.lower() == ".npz"


def is_picture(name: str) -> bool:
    """Whether this is the name of a picture; hidden files are none."""
    return PICTURES.has(name)


def picture_files(path: Path) -> list[PictureFile]:
    """The pictures that a file or a folder names, whatever their labels: itself, those in it, those of a table."""
    return [PictureFile(file) for file in PICTURES.files_in(path)]


def file_and_label(path: Path) -> tuple[str, str]:
    """The fields of a table that hold the names of pictures and their labels."""
    return PICTURES.file_and_label(path)


@dataclass(frozen=True, kw_only=True)
class Npz(LabelledFiles):
    """One .npz file of pictures and their labels."""

    kind: ClassVar[FileKind] = PICTURES

    flip: bool = False  # augmentation: mirror half of the training pictures, left to right, other ones in each epoch
    crop: Count = 0  # augmentation: pad training pictures by so many pixels, and crop them at random
    colour: Share = 0.0  # augmentation: change brightness and contrast of training pictures by at most this share

    @property
    def augmentation(self) -> Augmentation:
        return Augmentation(flip=self.flip, crop=self.crop, colour=self.colour)

    def labelled(self, path: Path, report: Report | None) -> Iterator[tuple[int, Any, str]]:
        if is_npz(path):
            return ((number, *pair) for number, pair in enumerate(read_pictures(path), start=1))
        return super().labelled(path, report)

    def item(self, path: Path) -> PictureFile:
        return PictureFile(path, self.size)

    @property
    def size(self) -> Size | None:
        """The size of the pixels of a file; None: that of the model."""
        return None

    def fields_in(self, path: Path) -> tuple[str, str]:
        return file_and_label(path)

    def content_of(self, path: Path) -> str:
        return content_hash(path) if is_npz(path) else super().content_of(path)


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
        kept = is_table(Path(file)) and {self.source, self.target} <= PICTURES.names_in(Path(file))
        return replace(self if kept else replace(self, source="", target=""), train=file, valid=file, hold_out=0.0)

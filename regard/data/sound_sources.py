"""Where recordings come from: a table of files and transcripts; a folder of class folders, or a table of labels."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Annotated, ClassVar

from regard.config import Share, between
from regard.data.frames import hop_of
from regard.data.labelled_files import FileKind, LabelledFiles, is_table
from regard.data.recordings import RATE, SUFFIXES, Recording
from regard.data.sound_augmentation import SoundAugmentation
from regard.data.sounds import BANDS, FEWEST_BANDS, HIGHEST_RATE, LOWEST_RATE, MOST_BANDS
from regard.data.sources import Line, Source, only
from regard.data.text import Report, read_fields, refuse_line
from regard.interface import UserError

SOUNDS = FileKind("recording", SUFFIXES, "label or transcript", "yes/1.wav")


def is_sound(name: str) -> bool:
    """Whether this is the name of a recording; hidden files are none."""
    return SOUNDS.has(name)


def sound_files(path: Path) -> list[Recording]:
    """The recordings that a file or a folder names, whatever their labels: itself, those in it, those of a table."""
    return [Recording(file) for file in SOUNDS.files_in(path)]


def file_and_transcript(path: Path) -> tuple[str, str]:
    """The fields of a table that hold the names of recordings and their transcripts."""
    return SOUNDS.file_and_text(path)


@dataclass(frozen=True, kw_only=True)
class LabelledSounds(LabelledFiles):
    """Recordings and their labels: a folder of class folders, or a table (JSONL, TSV or CSV) of files and labels."""

    kind: ClassVar[FileKind] = SOUNDS

    train: str  # training recordings: a folder with a folder for each label, or a table; its files are relative to it
    valid: str = ""  # validation recordings, in the same form; "": hold out some of the training recordings
    source: str = ""  # the field of a recording's file in a table: key (JSONL), column number from 1, or column name
    target: str = ""  # the field of the label in a table
    rate: Annotated[int, between(LOWEST_RATE, HIGHEST_RATE)] = RATE  # samples per second; a multiple of 100
    bands: Annotated[int, between(FEWEST_BANDS, MOST_BANDS)] = BANDS  # frequency bands of a frame
    mask: bool = False  # augmentation: hide stretches of time and of bands of training recordings (SpecAugment)
    speed: Share = 0.0  # augmentation: change the tempo of training recordings by at most this share
    noise: Share = 0.0  # augmentation: add noise of at most this share of a training recording's energy

    def __post_init__(self) -> None:
        super().__post_init__()
        hop_of(self.rate)
        self.check_fields()

    def check_fields(self) -> None:
        if bool(self.source) != bool(self.target):
            raise ValueError("source and target must be named together: the fields of the file and of the label.")

    @property
    def augmentation(self) -> SoundAugmentation:
        return SoundAugmentation(self.mask, self.speed, self.noise)

    def item(self, path: Path) -> Recording:
        return Recording(path, rate=self.rate, bands=self.bands)

    def fields_in(self, path: Path) -> tuple[str, str]:
        return (self.source, self.target) if self.source else self.found_in(path)

    @staticmethod
    def found_in(path: Path) -> tuple[str, str]:
        """The fields of a table whose fields are not named."""
        return SOUNDS.file_and_label(path)

    def reading(self, files: Sequence[Path]) -> Source:
        """Another table may have other fields than the training data."""
        (file,) = only(files)
        path = Path(file)
        source = target = ""
        if is_table(path):
            kept = {self.source, self.target} <= SOUNDS.names_in(path)
            source, target = (self.source, self.target) if kept else self.found_in(path)
        return replace(self, train=file, valid=file, hold_out=0.0, source=source, target=target)


@dataclass(frozen=True, kw_only=True)
class Recordings(LabelledSounds):
    """Recordings and their transcripts: a table (JSONL, TSV or CSV) of files and transcripts."""

    train: str  # training recordings: a table of files and transcripts; its files are relative to it
    valid: str = ""  # validation recordings, in the same form; "": hold out some of the training recordings
    source: str = ""  # the field of a recording's file: key (JSONL), column number from 1, or column name
    target: str = ""  # the field of the transcript

    def check_fields(self) -> None:
        if not (self.source and self.target):
            raise ValueError("source and target must each name a field: the file's and the transcript's.")

    @staticmethod
    def found_in(path: Path) -> tuple[str, str]:
        return file_and_transcript(path)

    def read(self, path: Path, report: Report | None) -> Iterator[Line]:
        """Recordings and transcripts without tabs."""
        refuse_unless_table(path)
        for number, (name, text) in read_fields(path, self.fields_in(path), report=report):
            if not text.strip():
                refuse_line(report, str(path), number, "an empty transcript", "write one, or delete the line")
                continue
            yield number, self.item(path.parent / name), " ".join(text.split("\t"))

    def reading(self, files: Sequence[Path]) -> Source:
        for file in files:
            refuse_unless_table(Path(file))
        return super().reading(files)


def refuse_unless_table(path: Path) -> None:
    """Transcripts stand in a table: neither a folder nor one recording has any."""
    if not is_table(path):
        SOUNDS.columns_of(path)  # which says what it is instead
        raise UserError(f"{path} is not a table by its ending: name it .tsv, .csv or .jsonl.")

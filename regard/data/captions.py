"""Pictures with captions: files and their captions in a table, and the built-in scenes.

A picture may have several captions. To learn from, each is an example of its own; to choose a checkpoint by and to
score, they are the references of one example, which BETWEEN separates.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Annotated, Any, ClassVar

from regard.config import Positive, between
from regard.data.fields import Array, TextField
from regard.data.picture_files import PictureFile
from regard.data.picture_sources import PICTURES, Pictures, check_channels, is_picture
from regard.data.pictures import read_images
from regard.data.sources import Line, Source, Split, check_hold_out, only
from regard.data.text import BETWEEN, Report, content_hash, encodable, is_jsonl, read_fields, refuse_line, whole_lines
from regard.data.world.captions import Language
from regard.data.world.scenes import MOST, Scene, scenes
from regard.interface import UserError


class CaptionField(TextField):
    """A caption as tokens; of several, the first."""

    def encode(self, raws: Sequence[str], *, continued: bool = False) -> list[Array]:
        return super().encode([raw.split(BETWEEN)[0] for raw in raws], continued=continued)


@dataclass(frozen=True, kw_only=True)
class Captions(Pictures):
    """Pictures and their captions: a table (JSONL, TSV or CSV) of files and captions, or of captions whose pictures are
    in an .npz file of the same name beside it, in the same order."""

    train: str  # training captions: a table; its files are relative to it
    valid: str = ""  # validation captions, in the same form; "": hold out some of the training pictures
    source: str = ""  # the field of a picture's file: key (JSONL), column number from 1, or column name; "": .npz
    target: str = ""  # the field of the caption; in JSONL it may hold a list of captions
    flip: bool = False  # augmentation: mirror half of the training pictures; not if captions have left and right

    def __post_init__(self) -> None:
        if not self.target:
            raise ValueError("target must name the field of the caption.")
        Source.__post_init__(self)
        check_channels(self.channels)
        check_hold_out(self.valid, self.hold_out)

    def labelled(self, path: Path, report: Report | None) -> Iterator[tuple[int, Any, str]]:
        """A number, a picture and its captions; those of one file are put together, wherever the table has them."""
        if self.source:
            together: dict[str, tuple[int, list[str]]] = {}
            for number, name, captions in self.rows(path, report):
                if captions:
                    together.setdefault(name, (number, []))[1].extend(captions)
            for name, (number, captions) in together.items():
                yield number, PictureFile(path.parent / name, self.size), BETWEEN.join(captions)
            return
        pictures = read_images(images_beside(path))
        for number, _, captions in self.rows(path, report):
            picture = next(pictures, None)
            if picture is None:
                raise UserError(f"{images_beside(path)} has fewer pictures than {path} has lines: give as many.")
            if captions:
                yield number, picture, BETWEEN.join(captions)
        if next(pictures, None) is not None:
            raise UserError(f"{images_beside(path)} has more pictures than {path} has lines: give as many.")

    def rows(self, path: Path, report: Report | None) -> Iterator[tuple[int, str, list[str]]]:
        """A number, the name of a file ("" for an .npz) and captions without tabs; none where a line was reported."""
        for number, name, captions in self.written(path, report):
            if not all(map(str.strip, captions)):
                refuse_line(report, str(path), number, "an empty caption", "write one, or delete it")
                captions = []
            yield number, name, [caption.replace("\t", " ") for caption in captions]

    def written(self, path: Path, report: Report | None) -> Iterator[tuple[int, str, list[str]]]:
        """The same, as the table has them."""
        fields = [*([self.source] if self.source else []), self.target]
        if not is_jsonl(path):
            for number, (*name, caption) in read_fields(path, fields, report=report):
                yield number, "".join(name), [caption]
            return
        for number, line in whole_lines(path, report):
            try:
                *name, found = (json.loads(line)[field] for field in fields)
                captions = [found] if isinstance(found, str) else found
                if not (captions and all(isinstance(each, str) for each in (*name, *captions))):
                    raise TypeError
            except (ValueError, KeyError, TypeError, RecursionError):
                wrong = f"not a JSON object with texts for {' and '.join(fields)}"
                refuse_line(report, str(path), number, wrong, "correct or delete it")
                yield number, "", []  # the picture of an .npz that belongs to this line is left out too
                continue
            yield number, "".join(name), [encodable(each) for each in captions]

    def lines(self, split: Split, folder: Path, report: Report | None = None) -> Iterator[Line]:
        for number, picture, captions in super().lines(split, folder, report):
            for caption in captions.split(BETWEEN) if split == "train" else [captions]:
                yield number, picture, caption

    def content_of(self, path: Path) -> str:
        table = content_hash(path)
        return super().content_of(path) if self.source else f"{table} {content_hash(images_beside(path))}"

    def reading(self, files: Sequence[Path]) -> Source:
        """Another table may have other fields than the training data."""
        (file,) = only(files)
        path, named = Path(file), {self.source, self.target} - {""} <= PICTURES.names_in(Path(file))
        kept = named and bool(self.source or images_beside(path).is_file())
        source, target = (self.source, self.target) if kept else caption_fields(path)
        return replace(self, train=file, valid=file, hold_out=0.0, source=source, target=target)


def images_beside(path: Path) -> Path:
    """The .npz file with the pictures of a table's lines: train.npz for train.jsonl or train.jsonl.gz."""
    return path.with_name(path.name.split(".")[0] + ".npz")


def caption_fields(path: Path) -> tuple[str, str]:
    """The fields of a table that hold the names of pictures, "" where an .npz file has them, and the captions: the
    field with the most words."""
    columns, header = PICTURES.columns_of(path)
    named = any(is_picture(value) for values in columns.values() for value in values)
    file = "" if images_beside(path).is_file() and not named else PICTURES.file_field(columns, path)
    caption = PICTURES.text_field(columns, file, path)
    return header.get(file, file), header.get(caption, caption)


@dataclass(frozen=True)
class Scenes(Source):
    """Pictures of a few things and their captions, drawn by the built-in grammar."""

    has_test: ClassVar[bool] = True

    scenes: Positive = 10_000  # training pictures drawn by the grammar
    things: Annotated[int, between(1, MOST)] = 2  # most things in a picture
    side: Annotated[int, between(16, 256)] = 48  # height and width in pixels, a multiple of 8
    language: Language = "english"  # of the captions
    grammar_seed: int = 0  # random seed of the grammar: another seed gives other scenes
    valid: Positive = 500  # validation pictures
    test: Positive = 500  # test pictures

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.side % 8:
            raise ValueError(f"side = {self.side} is not a multiple of 8: give one.")

    @property
    def described(self) -> str:
        return f"built-in scenes of at most {self.things} things"

    def drawn(self, split: Split, *, held_out: bool | None = None) -> Iterator[Scene]:
        """The scenes of a split; held_out: only those with combinations that training never shows, or without."""
        count = {"train": self.scenes, "valid": self.valid, "test": self.test}[split]
        return islice(scenes(split, seed=self.grammar_seed, most=self.things, held_out=held_out), count)

    def example(self, scene: Scene) -> tuple[Array, str]:
        return scene.draw(self.side), self.caption(scene)

    def caption(self, scene: Scene) -> str:
        return " ".join(scene.english if self.language == "english" else scene.french)

    def lines(self, split: Split, folder: Path, report: Report | None = None) -> Iterator[Line]:
        return iter(_drawn(self, split))

    def fingerprint(self, folder: Path) -> str:
        digest = hashlib.sha256()
        for _, picture, caption in (*_drawn(self, "train")[:1000], *_drawn(self, "valid")[:100]):
            digest.update(picture.tobytes() + caption.encode())
        return digest.hexdigest()

    def reading(self, files: Sequence[Path]) -> Source:
        (file,) = only(files)
        source, target = caption_fields(Path(file))
        return Captions(train=file, valid=file, source=source, target=target, side=self.side)


@lru_cache(maxsize=3)  # a session reads its data several times, and drawing it again costs more than keeping it
def _drawn(data: Scenes, split: Split) -> list[Line]:
    return [(number, *data.example(scene)) for number, scene in enumerate(data.drawn(split), start=1)]

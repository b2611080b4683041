"""Pictures and their labels: files that cannot be decoded, blank and repeated pictures, labels.

Pictures are read one after another, as a stream; the hash of each is kept.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from regard.check.examples import LONG
from regard.check.faults import Checked, Finding, Summary
from regard.check.scan import too_long
from regard.config import counted
from regard.data.labelled_files import files_below
from regard.data.picture_cache import Size
from regard.data.picture_files import PictureFile, require_pillow
from regard.data.picture_sources import is_npz, is_picture
from regard.data.pictures import pixels_in, size_of
from regard.data.sources import Line, Split
from regard.data.tokens import TextTokens
from regard.interface import UserError
from regard.recipe import Recipe

SPLITS: tuple[Split, Split] = ("train", "valid")
NAMED = 20  # files of a split that are named one by one, at most
SHOWN = 3  # names in a list
HASH = 16  # bytes


class Checking:
    """What was found in a split so far."""

    def __init__(self, split: Split, tokens: TextTokens | None) -> None:
        self.split = split
        self.tokens = tokens  # of the answers, where they are texts
        self.named = tokens is None  # whether the answers are labels, of which there are few
        self.too_long = too_long(tokens) if tokens else lambda label: False
        self.long = 0  # texts that training leaves out
        self.labels = Counter[str]()
        self.seen = Counter[bytes]()  # the hash of each picture
        self.blank = 0  # of one colour
        self.broken: list[str] = []  # a sentence for each example that cannot be read
        self.number = 0  # of the example before
        self.several = 0  # further answers to the picture before

    def report(self, file: str, line: int, wrong: str) -> None:
        example = f"Picture {line} of {file} {wrong}" if is_npz(Path(file)) else f"{file}, line {line}: {wrong}"
        self.broken.append(f"{example}: correct or remove it.")

    def lines(self, recipe: Recipe) -> Iterator[Line]:
        """The examples, as far as the files can be read."""
        try:
            yield from recipe.data.lines(self.split, recipe.folder, self.report)
        except UserError as problem:
            self.broken.append(str(problem))

    def add(self, number: int, picture: Any, label: str, size: Size) -> None:
        self.labels[label] += 1
        self.long += int(self.too_long(label))
        if number == self.number:
            self.several += 1
            return
        self.number = number
        try:
            pixels = pixels_in(picture, size)
        except UserError as problem:
            self.broken.append(str(problem))
            return
        self.blank += int(pixels.min() == pixels.max())
        self.seen[hashlib.blake2b(pixels.tobytes(), digest_size=HASH).digest()] += 1

    def findings(self, train: Checking) -> Iterator[Finding]:
        for sentence in self.broken[:NAMED]:
            yield Finding("error", "pictures", f"{self.split}: {sentence}", self.split, 1)
        if rest := len(self.broken[NAMED:]):
            text = (
                f"{self.split}: {counted(rest, 'more picture')} cannot be used: correct these first, and check again."
            )
            yield Finding("error", "pictures", text, self.split, rest)
        shared = 0 if self is train else len(self.seen.keys() & train.seen.keys())
        counts = {
            "of one colour; remove such pictures": self.blank,
            "in it more than once": self.seen.total() - len(self.seen),
            "in train too, which raises the scores": shared,
        }
        for what, count in counts.items():
            if count:
                text = f"{self.split}: {counted(count, 'picture')} {'is' if count == 1 else 'are'} {what}."
                yield Finding("warning", "pictures", text, self.split, count)
        if self.tokens and self.long:
            more = LONG[self.tokens.kind].format(longest=self.tokens.longest)
            has = f"{counted(self.long, 'caption')} {'has' if self.long == 1 else 'have'} {more}"
            text = f"{self.split}: {has}, and training leaves that out: shorten it, or raise tokens.longest."
            yield Finding("warning", "long", text, self.split, self.long)
        if not self.labels:
            text = f"{self.split} has no pictures: give at least one, or change data.hold_out if none was held out."
            yield Finding("error", "pictures", text, self.split)
            return
        if not self.named:
            return
        if self is train and len(self.labels) < 2:
            text = f"{self.split} has fewer than two labels: add pictures of another."
            yield Finding("error", "labels", text, self.split)
        if unknown := sorted(self.labels.keys() - train.labels.keys()):
            names = f"{', '.join(unknown[:SHOWN])}{' …' if unknown[SHOWN:] else ''}"
            text = f"{self.split} has labels that train does not have ({names}): add such pictures, or remove them."
            yield Finding("error", "labels", text, self.split)

    @property
    def summary(self) -> Summary:
        every = self.labels.total()
        passes = 1 - min(every, self.blank + len(self.broken)) / every if every else 0.0
        return Summary(every, passes, self.several, labels=dict(self.labels.most_common()) if self.named else {})


def check_pictures(
    recipe: Recipe, write: Path | None, on_example: Callable[[], None] = lambda: None, *, labels: bool = True
) -> Checked:
    """Check pictures and their labels, or pictures with other answers."""
    if write is not None:
        raise UserError("A clean copy can be written for translation only: correct the files of pictures yourself.")
    findings: list[Finding] = []
    size: Size | None = None
    known = set[str]()  # a table from which some pictures are held out is read twice
    splits = [Checking(split, None if labels else recipe.tokens) for split in SPLITS]
    for each in splits:
        for number, picture, label in each.lines(recipe):
            if size is None:
                size = size_of(picture)
                if isinstance(picture, PictureFile):
                    require_pillow(picture.path)  # one sentence for all files
            each.add(number, picture, label, size)
            on_example()
        each.broken = [sentence for sentence in each.broken if sentence not in known]
        known = {*each.broken}
        findings += each.findings(splits[0])
    findings += left_out(recipe)
    findings.sort(key=lambda finding: finding.severity != "error")
    return Checked(tuple(findings), {each.split: each.summary for each in splits}, {}, None)


def left_out(recipe: Recipe) -> Iterator[Finding]:
    """Files in the folders of pictures that are none by their names."""
    try:
        folders = [path for path in recipe.data.files(recipe.folder).values() if path.is_dir()]
        for folder in folders:
            others = [path.name for path in files_below(folder) if not is_picture(path.name)]
            if others:
                names = f"{', '.join(others[:SHOWN])}{' …' if others[SHOWN:] else ''}"
                what = f"{counted(len(others), 'file')} with other endings than a picture's ({names})"
                yield Finding("warning", "files", f"{folder} has {what}, which training leaves out.", str(folder))
    except UserError:
        return  # which was reported when its pictures were read

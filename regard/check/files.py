"""Files of a kind, pictures or recordings, and what belongs to each: those that cannot be decoded or teach nothing,
those that are repeated, labels and texts.

Files are read one after another, as a stream; the hash of each is kept.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Any, ClassVar

from regard.check.examples import LONG
from regard.check.faults import Checked, Finding, Summary
from regard.check.scan import too_long
from regard.config import counted
from regard.data.labelled_files import FileKind, files_below
from regard.data.sources import Line, Split
from regard.data.tokens import TextTokens
from regard.interface import UserError
from regard.recipe import Recipe

SPLITS: tuple[Split, Split] = ("train", "valid")
NAMED = 20  # files of a split that are named one by one, at most
SHOWN = 3  # names in a list


class Checking(ABC):
    """What was found in a split so far."""

    kind: ClassVar[FileKind]
    text: ClassVar[str] = "text"  # what a text beside a file is called

    def __init__(self, split: Split, tokens: TextTokens | None) -> None:
        self.split = split
        self.tokens = tokens  # of the answers, where they are texts
        self.named = tokens is None  # whether the answers are labels, of which there are few
        self.too_long = too_long(tokens) if tokens else lambda label: False
        self.long = 0  # texts that training leaves out
        self.labels = Counter[str]()
        self.seen = Counter[bytes]()  # the hash of each file's content
        self.faulty: dict[str, list[str]] = {}  # what is wrong, which follows "is" or "are" -> the names of files
        self.broken: list[str] = []  # a sentence for each example that cannot be read
        self.number = 0  # of the example before
        self.several = 0  # further answers to the file before

    @abstractmethod
    def look(self, raw: Any, label: str) -> bytes:
        """Decode a file and note what is wrong with it; return the hash of its content."""

    def note(self, wrong: str, name: object) -> None:
        self.faulty.setdefault(wrong, []).append(str(name))

    def report(self, file: str, line: int, wrong: str) -> None:
        self.broken.append(f"{file}, line {line}: {wrong}: correct or remove it.")

    def lines(self, recipe: Recipe) -> Iterator[Line]:
        """The examples, as far as the files can be read."""
        try:
            yield from recipe.data.lines(self.split, recipe.folder, self.report)
        except UserError as problem:
            self.broken.append(str(problem))

    def add(self, number: int, raw: Any, label: str) -> None:
        self.labels[label] += 1
        self.long += int(self.too_long(label))
        if number == self.number:
            self.several += 1
            return
        self.number = number
        try:
            self.seen[self.look(raw, label)] += 1
        except UserError as problem:
            self.broken.append(str(problem))

    def findings(self, train: Checking) -> Iterator[Finding]:
        noun = self.kind.noun
        for sentence in self.broken[:NAMED]:
            yield Finding("error", f"{noun}s", f"{self.split}: {sentence}", self.split, 1)
        if rest := len(self.broken[NAMED:]):
            text = (
                f"{self.split}: {counted(rest, f'more {noun}')} cannot be used: correct these first, and check again."
            )
            yield Finding("error", f"{noun}s", text, self.split, rest)
        shared = 0 if self is train else len(self.seen.keys() & train.seen.keys())
        for what, names in self.faulty.items():
            text = (
                f"{self.split}: {counted(len(names), noun)} {'is' if len(names) == 1 else 'are'} {what}: {few(names)}."
            )
            yield Finding("warning", f"{noun}s", text, self.split, len(names))
        counts = {
            "in it more than once": self.seen.total() - len(self.seen),
            "in train too, which raises the scores": shared,
        }
        for what, count in counts.items():
            if count:
                text = f"{self.split}: {counted(count, noun)} {'is' if count == 1 else 'are'} {what}."
                yield Finding("warning", f"{noun}s", text, self.split, count)
        if self.tokens and self.long:
            more = LONG[self.tokens.kind].format(longest=self.tokens.longest)
            has = f"{counted(self.long, self.text)} {'has' if self.long == 1 else 'have'} {more}"
            text = f"{self.split}: {has}, and training leaves that out: shorten it, or raise tokens.longest."
            yield Finding("warning", "long", text, self.split, self.long)
        if not self.labels:
            text = f"{self.split} has no {noun}s: give at least one, or change data.hold_out if none was held out."
            yield Finding("error", f"{noun}s", text, self.split)
        elif self.named:
            yield from self.label_findings(train)

    def label_findings(self, train: Checking) -> Iterator[Finding]:
        noun = self.kind.noun
        if self is train and len(self.labels) < 2:
            text = f"{self.split} has fewer than two labels: add {noun}s of another."
            yield Finding("error", "labels", text, self.split)
        if unknown := sorted(self.labels.keys() - train.labels.keys()):
            text = (
                f"{self.split} has labels that train does not have ({few(unknown)}): add such {noun}s, or remove them."
            )
            yield Finding("error", "labels", text, self.split)

    @property
    def summary(self) -> Summary:
        every = self.labels.total()
        wrong = sum(map(len, self.faulty.values())) + len(self.broken)
        passes = 1 - min(every, wrong) / every if every else 0.0
        return Summary(every, passes, self.several, labels=dict(self.labels.most_common()) if self.named else {})


def check_files(recipe: Recipe, write: Any, on_example: Callable[[], None], splits: Sequence[Checking]) -> Checked:
    """Check files and their labels, or files with other answers."""
    kind = splits[0].kind
    if write is not None:
        raise UserError(f"A clean copy can be written for translation only: correct the {kind.noun}s yourself.")
    findings: list[Finding] = []
    known = set[str]()  # a table from which some files are held out is read twice
    for each in splits:
        for number, raw, label in each.lines(recipe):
            each.add(number, raw, label)
            on_example()
        each.broken = [sentence for sentence in each.broken if sentence not in known]
        known = {*each.broken}
        findings += each.findings(splits[0])
    findings += left_out(recipe, kind)
    findings.sort(key=lambda finding: finding.severity != "error")
    return Checked(tuple(findings), {each.split: each.summary for each in splits}, {}, None)


def left_out(recipe: Recipe, kind: FileKind) -> Iterator[Finding]:
    """Files in the folders of the data that are none of this kind by their names."""
    try:
        folders = [path for path in recipe.data.files(recipe.folder).values() if path.is_dir()]
        for folder in folders:
            others = [path.name for path in files_below(folder) if not kind.has(path.name)]
            if others:
                what = f"{counted(len(others), 'file')} with other endings than a {kind.noun}'s ({few(others)})"
                yield Finding("warning", "files", f"{folder} has {what}, which training leaves out.", str(folder))
    except UserError:
        return  # which was reported when its files were read


def few(names: Sequence[str]) -> str:
    return f"{', '.join(names[:SHOWN])}{' …' if names[SHOWN:] else ''}"

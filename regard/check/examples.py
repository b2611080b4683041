"""Examples with two sides that are text: pairs, labelled texts, tagged words.

The text is read once, as a stream. Some 40 bytes are kept of a pair: its line number, two hashes, two lengths, two
scripts and a bit for each fault. What needs all of the data (repeated pairs, the usual script, the usual ratio of
lengths, what train and valid share) is computed from those arrays afterwards, so that counts do not depend on the order
of the lines.

Writing what passes reads the text once more. One law: a check of what was written finds nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np

from regard.check.characters import NAMES, Array
from regard.check.clean import write_clean
from regard.check.faults import BIT, FAULTS, LABELLED, LEAKS, LEFT_OUT, NOT_SOUND, Checked, Finding, Summary
from regard.check.scan import NAMED, Reports, Scan, known_characters
from regard.check.unusual import RATIO, Usual, compare, swapped
from regard.config import counted
from regard.data.fields import LabelField, TextField
from regard.data.files import refuse_to_overwrite
from regard.data.source_files import place_of
from regard.data.sources import Line, Split
from regard.data.text import encodable
from regard.interface import UserError
from regard.recipe import Recipe

SPLITS: tuple[Split, Split] = ("train", "valid")
SIDES = ("source", "target")
SHOWN = 8  # characters or labels that a finding shows
UNEVEN = 10  # times as many of one label as of another: worth a warning
LONG = {
    "characters": "more than {longest} characters",
    "words": "more than {longest} tokens (words, punctuation and joins)",
    "bpe": "more than {longest} tokens, at the lowest estimate",
    "given": "more than {longest} words",
}
UNKNOWN = {
    "characters": "each of them becomes <unk>",
    "words": "a word that has one becomes <unk>",
    "given": "a word that has one becomes <unk>",
    "bpe": "they are split into bytes, which the model has not learnt to read",
}


def check_examples(recipe: Recipe, write: Path | None, on_example: Callable[[], None] = lambda: None) -> Checked:
    """Check a recipe's data. `write`: a new folder for what passes and a recipe for it. `on_example` is called for each
    example that was read."""
    kind = recipe.task.fields["target"]
    names = kind if issubclass(kind, LabelField) else None
    beside = not issubclass(kind, TextField)  # the target is no text
    if write is not None:
        if beside:
            raise UserError(
                f"A clean copy can be written for translation only: correct the files for {recipe.task.name} yourself."
            )
        refuse_to_overwrite(write)
    reports, problems = Reports(), dict[str, None]()  # problems of single lines, and of files
    labels = {split: Counter[str]() for split in SPLITS}

    def readable(split: Split) -> Iterator[Line]:
        """The lines of a split, as far as the files can be read; where they have labels, they are counted."""
        reports.begin(split)
        try:
            for line in recipe.data.lines(split, recipe.folder, reports):
                if names:
                    labels[split].update(names.cut(line[2]))
                if recipe.task.words.line != "line":
                    reports.recent.clear()  # its examples are not numbered by line
                on_example()
                yield line
        except UserError as problem:
            problems[str(problem)] = None

    train = Scan(readable("train"), recipe.tokens, reports)
    known = known_characters(train.seen, recipe.tokens)
    whole = len(train.numbers) > 0 and not problems  # else much of what valid has would seem new
    valid = Scan(readable("valid"), recipe.tokens, reports, known if whole else None)
    usual = compare(train, valid)
    scans: dict[Split, Scan] = {"train": train, "valid": valid}
    for split, scan in scans.items():
        if beside:
            scan.faults &= np.array(LABELLED, np.uint32)
        if not (problems or scan.free_of(NOT_SOUND | BIT["long"]).any()):
            least = f"at least one with text on both sides, of at most {recipe.tokens.longest} tokens"
            problems[f"There is no pair to use in the {split} data: give {least}."] = None
    wording = Wording(recipe, writable=not beside)
    if not beside and swapped(train, valid):
        why = "each has the letters of the other side of train; swap them"
        problems[f"{wording.where('valid', None)}: source and target seem to be in swapped order, since {why}."] = None
    dropped: dict[Split, dict[str, int]] = {}
    if write is not None:
        try:
            if problems:
                raise UserError(f"Nothing was written to {write}: correct the errors of the files first.")
            dropped = write_clean(recipe, write, scans, reports)
        except UserError as problem:
            problems[str(problem)] = None
    findings = [Finding("error", "files", encodable(problem)) for problem in problems]
    findings += wording.reported(reports)
    for split, scan in scans.items():
        findings += wording.marked(scan, split, details(recipe, usual, valid, known))
    if names:
        findings += unlike(labels["train"], labels["valid"], weighable="balance" in recipe.task.train_settings)
    findings.sort(key=lambda finding: finding.severity != "error")  # otherwise in this order
    summary = {split: summary_of(scan, split, labels[split]) for split, scan in scans.items()}
    return Checked(tuple(findings), summary, dropped, write if dropped else None)


def unlike(train: Counter[str], valid: Counter[str], *, weighable: bool) -> Iterator[Finding]:
    """Findings about label counts; `weighable`: the task has class weights."""
    if unknown := [label for label in valid if label not in train]:
        named = ", ".join(encodable(label) for label in unknown[:SHOWN])
        text = f"valid has labels that train never has ({named}): correct them, or add such lines to train."
        yield Finding("error", "labels", text)
    if len(train) == 1:
        yield Finding("error", "labels", "train has one label only: add examples of another label.")
    if weighable and len(train) > 1:
        (most, often), (least, rarely) = train.most_common()[0], train.most_common()[-1]
        if often >= UNEVEN * rarely:
            both = f"{encodable(most)!r} {counted(often, 'time')} and {encodable(least)!r} {counted(rarely, 'time')}"
            text = f"train has {both}: set train.balance = true (class weights), and read macro F1 beside accuracy."
            yield Finding("warning", "labels", text)


def details(recipe: Recipe, usual: Usual, valid: Scan, known: Array) -> dict[str, tuple[str, str]]:
    """The {detail} of each fault for this data: for the source (or the pair) and for the target."""
    kind, longest = recipe.tokens.kind, recipe.tokens.longest
    new = [f"{shown(valid.seen[side] & ~known[side])}: {UNKNOWN[kind]}" for side in range(2)]
    return {
        "long": (LONG[kind].format(longest=longest),) * 2,
        "script": (NAMES[usual.source - 1], NAMES[usual.target - 1]),
        "ratio": (f"lengths over {RATIO} times off the usual {usual.ratio:.2f} target characters to one", ""),
        "unseen": (new[0], new[1]),
    }


def shown(characters: Array) -> str:
    """The first of these (code point,) that are True."""
    found = [chr(code) for code in np.flatnonzero(characters)]
    texts = [c if c.isprintable() and not c.isspace() else f"U+{ord(c):04X}" for c in found[:SHOWN]]
    return " ".join(texts) + (" …" if len(found) > SHOWN else "")


def summary_of(scan: Scan, split: Split, labels: Counter[str]) -> Summary:
    count = len(scan.numbers)
    different = scan.free_of(NOT_SOUND | BIT["duplicate"])
    middle = np.median(scan.lengths, axis=0) if count else (0, 0)
    longest = scan.lengths.max(0, initial=0)
    return Summary(
        pairs=count,
        passes=float(scan.free_of(LEFT_OUT[split]).mean()) if count else 0.0,
        several=int(different.sum()) - len(np.unique(scan.sources[different])),
        words=(scan.words[0], scan.words[1]),
        characters=(scan.characters[0], scan.characters[1]),
        median=(int(middle[0]), int(middle[1])),
        longest=(int(longest[0]), int(longest[1])),
        distinct=(int(scan.seen[0].sum()), int(scan.seen[1].sum())),
        labels=dict(labels.most_common()),
    )


class Wording:
    """Findings in words; the files of a recipe go by their names alone where that is unambiguous."""

    def __init__(self, recipe: Recipe, *, writable: bool) -> None:
        """`writable`: --write can leave out what is found."""
        try:
            self.files = recipe.data.files(recipe.folder)
        except UserError:  # one is missing, which reading it will report
            self.files = {}
        self.words, self.writable = recipe.task.words, writable
        paths = set(self.files.values())
        self.short = len({path.name for path in paths}) == len(paths)

    def reported(self, reports: Reports) -> Iterator[Finding]:
        """What the readers reported."""
        for key, count in reports.counts.items():
            where, (lines, wrongs) = self.name(Path(key.file)), zip(*reports.first[key], strict=True)
            noun = self.words.line if key.kind == "tags" else "line"
            yield self.finding(key.kind, where, count, lines, amount=counted(count, noun), detail=wrongs[0])

    def marked(self, scan: Scan, split: Split, details: dict[str, tuple[str, str]]) -> Iterator[Finding]:
        """The faults that were marked in a split."""
        for kind, fault in FAULTS.items():
            if kind == "encoding" or (split == "train" and BIT[kind] & LEAKS):
                continue  # reported already, file by file; reported for the lines of valid
            for side in range(1 if fault.pair else 2):
                lines = scan.numbers[(scan.faults[:, side] & BIT[kind]) != 0]
                if len(lines):
                    where, first = self.where(split, None if fault.pair else side), tuple(map(int, lines[:NAMED]))
                    amount = f"{len(lines):,} of {counted(len(scan.numbers), self.words.line)}"
                    detail = details.get(kind, ("", ""))[side]
                    yield self.finding(kind, where, len(lines), first, amount=amount, detail=detail)

    def finding(
        self, kind: str, where: str, count: int, lines: tuple[int, ...], *, amount: str, detail: str
    ) -> Finding:
        """A fault in so many lines, of which these are the first."""
        fault, one = FAULTS[kind], count == 1
        forms = {"is": "is" if one else "are", "has": "has" if one else "have", "them": "it" if one else "them"}
        numbers = ", ".join(map(self.line, lines)) + (", …" if count > len(lines) else "")
        remedies = (fault.remedy, fault.write) if self.writable else (fault.remedy or "remove {them}",)
        remedy = ", or ".join(part for part in remedies if part)
        says = f"{fault.says}; {remedy}.".format(**forms, detail=detail)
        own = tuple(place_of(line)[1] for line in lines)
        return Finding(fault.severity, kind, f"{where}: {amount} ({numbers}) {says}", where, count, own)

    def line(self, number: int) -> str:
        """The number of a line; of several files, with the name of its file."""
        file, line = place_of(number)
        several = [path for key, path in self.files.items() if key.startswith(("train[", "source["))]
        return f"{self.name(several[file])}: {line}" if several[file:] else str(line)

    def name(self, path: Path) -> str:
        return encodable(path.name if self.short else str(path))

    def of(self, split: Split, side: str) -> str:
        """The file that has this side of this split; "" where there are no files."""
        own = (f"valid_{side}", "valid") if split == "valid" else ()
        found = [self.files[key] for key in (*own, side, "train") if key in self.files]
        return self.name(found[0]) if found else ""

    def where(self, split: Split, side: int | None) -> str:
        """A side's lines, or the pairs."""
        source, target = (self.of(split, side) for side in SIDES)
        others = {self.of(other, side) for other in SPLITS if other != split for side in SIDES}
        shared = f"{split} lines of " if source in others else ""
        if source != target:
            return shared + (f"{source} and {target}" if side is None else (source, target)[side])
        name = shared + source if source else split
        return name if side is None else f"{name}, {self.words.sides[side]}"

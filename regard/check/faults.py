"""What can be wrong with a line, and how it is reported."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from regard.data.sources import Split

Severity = Literal["error", "warning"]


@dataclass(frozen=True)
class Fault:
    """{is}, {has} and {them} agree with the number of lines; {detail} is filled in where the fault is found."""

    severity: Severity
    says: str
    remedy: str = ""
    write: str = "--write leaves {them} out"
    pair: bool = False  # it is about both sides together


FAULTS = {
    "encoding": Fault("error", "{is} not UTF-8", "convert the file (iconv -f LATIN1 -t UTF-8)"),
    "row": Fault("error", "cannot be read ({detail})", "correct {them}"),
    "tags": Fault("warning", "{has} tags that are corrected when read ({detail})", "correct {them}", write=""),
    "binary": Fault("error", "{has} NUL bytes, which no text has", "convert the file to UTF-8"),
    "nothing": Fault("warning", "{is} empty on both sides", "delete {them}", pair=True),
    "empty": Fault("warning", "{is} empty on this side only", "fill {them} in"),
    "blank": Fault("warning", "{has} white space and nothing else", "fill {them} in"),
    "long": Fault("warning", "{has} {detail}, and training leaves {them} out", "split {them}, or raise tokens.longest"),
    "broken": Fault("warning", "{has} U+FFFD, which replaces a lost character", "export the file again"),
    "control": Fault("warning", "{has} control characters or line ends inside", "remove those"),
    "mojibake": Fault("warning", "{has} UTF-8 that was once read as Latin-1, like Ã© for é", "correct {them}"),
    "markup": Fault("warning", "{has} HTML tags or entities", "strip and unescape {them}"),
    "script": Fault("warning", "{is} mostly not in {detail} script, unlike the others", "translate {them}"),
    "equal": Fault("warning", "{has} a target equal to the source", "translate {them}", pair=True),
    "ratio": Fault("warning", "{has} {detail}", "see whether the sides translate each other", pair=True),
    "duplicate": Fault("warning", "{has} the pair of an earlier line", "keep {them} if that is intended", pair=True),
    "leaked": Fault(
        "warning", "{is} in train too, which raises the scores", write="--write takes {them} out of train", pair=True
    ),
    "leaked source": Fault(
        "warning", "{has} a source that is in train too", write="--write takes it out of train", pair=True
    ),
    "unseen": Fault("warning", "{has} characters that train never has ({detail})", "add such lines to train"),
    "edges": Fault("warning", "{has} white space at an end, which training would learn", write="--write trims {them}"),
}  # fmt: skip
BIT = {name: 1 << place for place, name in enumerate(FAULTS)}
EVERY = sum(BIT.values())
NOT_SOUND = sum(BIT[name] for name in ("encoding", "binary", "nothing", "empty", "blank"))  # nothing to compare
# what a text beside its label can have, and what a label can have
LABELLED = (
    EVERY - BIT["equal"] - BIT["ratio"],
    sum(BIT[name] for name in ("empty", "blank", "binary", "control", "edges")),
)
LEAKS = BIT["leaked"] | BIT["leaked source"]
# what --write leaves out: white space it trims, and what train and valid share stays in valid
LEFT_OUT: dict[Split, int] = {"train": EVERY - BIT["edges"]}
LEFT_OUT["valid"] = LEFT_OUT["train"] - LEAKS


@dataclass(frozen=True)
class Finding:
    severity: Severity
    kind: str  # a fault's name, or "files"
    text: str  # what, how many, where and the remedy, in a sentence
    where: str = ""  # the file or files
    count: int = 0  # number of lines; 0: it is about the files
    lines: tuple[int, ...] = ()  # the first few


@dataclass(frozen=True)
class Summary:
    """Figures of a split; those in pairs are for its source and its target."""

    pairs: int
    passes: float  # share of the pairs without findings
    several: int = 0  # examples whose source has another target before
    words: tuple[int, int] = (0, 0)
    characters: tuple[int, int] = (0, 0)
    median: tuple[int, int] = (0, 0)  # characters of a line
    longest: tuple[int, int] = (0, 0)
    distinct: tuple[int, int] = (0, 0)  # distinct characters
    labels: dict[str, int] = field(default_factory=dict)  # label counts, most frequent first; empty for pairs


@dataclass(frozen=True)
class Checked:
    findings: tuple[Finding, ...]  # errors first
    summary: dict[Split, Summary]
    dropped: dict[Split, dict[str, int]]  # pairs that were not written, by the first of their faults
    written: Path | None  # the folder, where one was written

    @property
    def sound(self) -> bool:
        """Whether it can be trained on: there are no errors."""
        return all(finding.severity != "error" for finding in self.findings)

"""Where examples come from: the built-in grammar, two parallel files, a table, plain text, tagged words."""

from __future__ import annotations

import hashlib
import json
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import groupby, islice
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from regard.config import Names, Positive, Settings, between, counted
from regard.data import world
from regard.data.languages import pair_in
from regard.data.source_files import find as find
from regard.data.source_files import find_all, parted, place_of
from regard.data.spans import mark_ends, mark_spans, spans_of, tags_of
from regard.data.text import BETWEEN as BETWEEN
from regard.data.text import (
    LONGEST,
    TOO_LONG,
    Cut,
    Report,
    content_hash,
    is_cut,
    is_jsonl,
    read_columns,
    read_fields,
    read_lines,
    read_pairs,
    read_rows,
    whole_lines,
)
from regard.interface import UserError

Split = Literal["train", "valid", "test"]
Unit = Literal["line", "paragraph", "file"]
BAD_TAGS = "breaks the rules of BIO"  # the end of a report of tags that were corrected
UNDECIDED = 0.5  # hold_out before the data has been counted
BLOCK = 1 << 16  # characters of a long text that are read together, then up to the end of the line
BEFORE_A_SPACE = re.compile(r"(?s:.*)\S(?= \S)")  # up to the last single space

Line = tuple[Any, ...]  # a number to find it by, then the raw value of each side


class Source(Settings, ABC):
    """Gives the examples of a split, the same ones each time; with `report`, bad ones are reported, not raised."""

    FILES: ClassVar[tuple[str, ...]] = ()  # the settings that name files
    has_test: ClassVar[bool] = False  # there is a test split beside training and validation
    unit: Unit = "line"  # what one example is; "file": there is one text, which comes in pieces
    window: int = 1  # tokens of a whole file that a recurrent model reads per step
    pack: bool = False  # texts are joined and cut into windows
    hold_out: float = 0.0  # share of the training examples held out for validation
    languages: str = ""  # of the source and the target of translations, such as en:de

    @abstractmethod
    def lines(self, split: Split, folder: Path, report: Report | None = None) -> Iterator[Line]: ...

    @abstractmethod
    def reading(self, files: Sequence[Path]) -> Source:
        """The same form, read from these files for every split."""

    @property
    def paired(self) -> bool:
        """Whether an input is two texts, with a tab between them."""
        return False

    @property
    def names(self) -> dict[str, str]:
        """The settings that name files, with their values; of a list, the first and how many there are."""
        given = {key: vars(self)[key] for key in self.FILES}
        return {
            key: name if isinstance(name, str) else f"{name[0]} and {counted(len(name) - 1, 'other file')}"
            for key, name in given.items()
            if name
        }

    @property
    def described(self) -> str:
        """What it is, for a report."""
        return ", ".join(Path(name).name for name in self.names.values())

    def files(self, folder: Path) -> dict[str, Path]:
        """The files that settings name; where one names several, train[0], train[1] …"""
        found = {key: find_all(key, vars(self)[key], folder) for key in self.names}
        return {
            f"{key}[{place}]" if len(files) > 1 else key: file
            for key, files in found.items()
            for place, file in enumerate(files)
        }

    def parts(self, folder: Path) -> list[Source]:
        """The same data, apart for each of several training files; their examples, one after the other, are its."""
        return [self]

    def fingerprint(self, folder: Path) -> str:
        """Changes when the data changes."""
        return " ".join(content_hash(file) for file in self.files(folder).values())


def examples(data: Source, split: Split, folder: Path, *, whole: bool = False) -> Iterator[tuple[Any, ...]]:
    """The examples of a split, without their numbers; `whole`: one that is too long to be held is refused."""
    for line in data.lines(split, folder):
        if whole and is_cut(line):
            file, number = place_of(line[0])
            where = f"{split} data" + (f" (file {file + 1})" if file else "")
            raise UserError(f"In {data.unit} {number} of the {where} {TOO_LONG}: split it or leave it out.")
        yield line[1:]


def every_line(data: Source, folder: Path) -> Iterator[Line]:
    """All training lines, including those that will be held out."""
    yield from data.lines("train", folder)
    if data.hold_out:
        yield from data.lines("valid", folder)


def only(files: Sequence[Path], count: int = 1) -> list[str]:
    """These files' absolute paths, if there are as many as this form of data needs."""
    if len(files) != count:
        wanted = "two files, a source and a target" if count == 2 else "one file, in the form of the training data"
        given = f"{len(files)} {'was' if len(files) == 1 else 'were'} given"
        raise UserError(f"This data is read from {wanted}, and {given}: give {'both' if count == 2 else 'that one'}.")
    for file in files:
        if not file.exists():
            raise UserError(f"{file} does not exist; check the spelling and the folder.")
    return [str(file.absolute()) for file in files]


@dataclass(frozen=True, kw_only=True)
class TrainAndValid(Source):
    """Training files, and a validation file of the same form or a share that is held out."""

    FILES: ClassVar[tuple[str, ...]] = ("train", "valid")

    train: Names  # training file, or several: a pattern (corpus/*.txt) or a list
    valid: str = ""  # validation file, in the same form; "": hold out some of the training data
    hold_out: float = 0.0  # validation split: share held out if there is no validation file (the end of a whole file)

    def __post_init__(self) -> None:
        super().__post_init__()
        check_hold_out(self.valid, self.hold_out)

    @abstractmethod
    def read(self, path: Path, report: Report | None) -> Iterator[Line]:
        """The examples of one file."""

    def lines(self, split: Split, folder: Path, report: Report | None = None) -> Iterator[Line]:
        if split == "valid" and self.valid:
            return self.read(find(self.valid, folder), report)
        return parted(self.held(file, split, report) for file in find_all("train", self.train, folder))

    def held(self, file: Path, split: Split, report: Report | None) -> Iterator[Line]:
        """The examples of a training file that belong to this split."""
        return _side(self.read(file, report), split, self.hold_out)

    def parts(self, folder: Path) -> list[Source]:
        files = find_all("train", self.train, folder)
        return [replace(self, train=str(file)) for file in files] if len(files) > 1 else [self]

    def reading(self, files: Sequence[Path]) -> Source:
        (file,) = only(files)
        return replace(self, train=file, valid=file, hold_out=0.0)


@dataclass(frozen=True)
class World(Source):
    """The built-in grammar; each task defines what an example is made of."""

    has_test: ClassVar[bool] = True
    form: ClassVar[Source]  # how a file of such examples is read

    sentences: Positive = 100_000  # training sentences generated by the grammar
    longest: Annotated[int, between(world.SHORTEST, 1000)] = 50  # most words in a sentence
    grammar_seed: int = 0  # random seed of the grammar: another seed gives other sentences
    valid: Positive = 500  # validation sentences
    test: Positive = 500  # test sentences

    @staticmethod
    @abstractmethod
    def sides(pair: Any) -> tuple[str, ...]:
        """The raw sides of an example."""

    write: ClassVar[Callable[..., Iterator[Any]]] = world.pairs  # what the grammar writes of a split

    @property
    def described(self) -> str:
        return f"the built-in corpus, sentences of at most {self.longest} words"

    def pairs(self, split: Split) -> Iterator[Any]:
        count = {"train": self.sentences, "valid": self.valid, "test": self.test}[split]
        return islice(type(self).write(split, seed=self.grammar_seed, longest=self.longest), count)

    def lines(self, split: Split, folder: Path, report: Report | None = None) -> Iterator[Line]:
        return iter(_generated(self, split))

    def fingerprint(self, folder: Path) -> str:
        some = [*islice(examples(self, "train", folder), 1000), *islice(examples(self, "valid", folder), 100)]
        return hashlib.sha256(str(some).encode()).hexdigest()

    def reading(self, files: Sequence[Path]) -> Source:
        return self.form.reading(files)


@lru_cache(maxsize=3)  # a session reads its text several times, and generating it again costs more than keeping it
def _generated(data: World, split: Split) -> list[Line]:
    return [(number, *data.sides(pair)) for number, pair in enumerate(data.pairs(split), start=1)]


@dataclass(frozen=True)
class Parallel(Source):
    """A parallel corpus: text files, line by line translations of each other; plain or compressed."""

    FILES: ClassVar[tuple[str, ...]] = ("source", "target", "valid_source", "valid_target")

    source: Names  # training file, source language; or several: a pattern (corpus/*.en) or a list
    target: Names  # training file, target language; as many, in the same order
    valid_source: str = ""  # validation file, source language; "": hold out some of the training pairs
    valid_target: str = ""  # validation file, target language
    hold_out: float = 0.0  # validation split: share of the training pairs held out if there are no validation files
    languages: str = ""  # codes of the source and the target language, such as en:de, for the API of `regard serve`

    def __post_init__(self) -> None:
        if bool(self.valid_source) != bool(self.valid_target):
            raise ValueError("valid_source and valid_target must be named together.")
        check_hold_out(self.valid_source, self.hold_out)
        check_languages(self.languages)

    def lines(self, split: Split, folder: Path, report: Report | None = None) -> Iterator[Line]:
        if split == "valid" and self.valid_source:
            return read_pairs(find(self.valid_source, folder), find(self.valid_target, folder), report=report)
        pairs = self.paired_files(folder)
        return parted(_side(read_pairs(*pair, report=report), split, self.hold_out) for pair in pairs)

    def paired_files(self, folder: Path) -> list[tuple[Path, Path]]:
        """The training files of both sides, paired in their order."""
        sides = [find_all(key, vars(self)[key], folder) for key in ("source", "target")]
        if len(sides[0]) != len(sides[1]):
            raise UserError(
                f"data.source = {self.names['source']} names {counted(len(sides[0]), 'file')} and data.target = "
                f"{self.names['target']} names {len(sides[1])}: they are paired in order, so give as many."
            )
        return list(zip(*sides, strict=True))

    def parts(self, folder: Path) -> list[Source]:
        pairs = self.paired_files(folder)
        several = [replace(self, source=str(source), target=str(target)) for source, target in pairs]
        return list(several) if len(several) > 1 else [self]

    def reading(self, files: Sequence[Path]) -> Source:
        """Two files, or one table of pairs."""
        if len(files) != 1:
            return parallel(files)
        (file,) = only(files)
        source, target = pair_fields(Path(file))
        return PairTable(train=file, valid=file, source=source, target=target)


def parallel(files: Sequence[Path]) -> Parallel:
    """Two files, for every split."""
    source, target = only(files, 2)
    return Parallel(source, target, source, target)


@dataclass(frozen=True, kw_only=True)
class Table(TrainAndValid):
    """One file with both sides in each line: JSONL, TSV or CSV; plain or compressed."""

    source: str  # the source's key (JSONL), column number from 1, or column name in the first line
    target: str  # the target's key, column number or column name

    def __post_init__(self) -> None:
        if not (self.source and self.target):
            raise ValueError("source and target must each name a field.")
        super().__post_init__()

    def read(self, path: Path, report: Report | None) -> Iterator[Line]:
        rows = read_fields(path, (*self.texts, self.target), report=report)
        return ((number, BETWEEN.join(sides), target) for number, (*sides, target) in rows)

    @property
    def texts(self) -> tuple[str, ...]:
        """The fields that are read, one after the other."""
        return (self.source,)


@dataclass(frozen=True, kw_only=True)
class PairTable(Table):
    """One file with a text and its translation in each line: JSONL, TSV or CSV; plain or compressed."""

    languages: str = ""  # codes of the source and the target language, such as en:de, for the API of `regard serve`

    def __post_init__(self) -> None:
        super().__post_init__()
        check_languages(self.languages)


@dataclass(frozen=True)
class Text(TrainAndValid):
    """One file of plain text, for a language model; plain or compressed."""

    unit: Unit = "line"  # one text is a line, a paragraph (blank lines between them) or the whole file
    window: Positive = 128  # tokens read at once, of packed texts or by a recurrent model (truncated backpropagation)
    pack: bool = False  # join texts, <eos> between them, and cut windows as long as model.context, or else data.window

    def read(self, path: Path, report: Report | None) -> Iterator[Line]:
        return enumerate(TEXTS[self.unit](path), start=1)

    def held(self, file: Path, split: Split, report: Report | None) -> Iterator[Line]:
        if self.hold_out and self.unit == "file":
            return enumerate(_one_end(file, split, self.hold_out), start=1)
        return super().held(file, split, report)


@dataclass(frozen=True)
class Conll(TrainAndValid):
    """One file of words and their tags (CoNLL, CoNLL-U), one word per line, a blank line between sentences; plain or
    compressed."""

    word: int = 1  # column of the words, from 1, or from the end if negative; 2 (FORM) in CoNLL-U
    tag: int = -1  # column of the tags, counted likewise; 4 (UPOS) in CoNLL-U

    def __post_init__(self) -> None:
        if not self.word or not self.tag:
            raise ValueError("word and tag must each be a column, counted from 1, or from the end if negative.")
        super().__post_init__()

    def read(self, path: Path, report: Report | None) -> Iterator[Line]:
        """Sentences, numbered. Tags that break the rules of BIO or BIOES are corrected as they are read."""
        sentences = partial(read_columns, path, word=self.word, tag=self.tag)
        names = {tag for sentence in sentences(report=lambda *_: None) for _, tag in sentence}
        spans, ends = mark_spans(names), mark_ends(names)
        for number, sentence in enumerate(sentences(report=report), start=1):
            tags = [tag for _, tag in sentence]
            if spans and (right := tags_of(spans_of(tags), len(tags), ends=ends)) != tags:
                if report:
                    wrong = next(f"{was} is read as {now}" for was, now in zip(tags, right, strict=True) if was != now)
                    report(str(path), number, f"{wrong}, since it {BAD_TAGS}")
                tags = right
            yield number, " ".join(word for word, _ in sentence), " ".join(tags)


@dataclass(frozen=True)
class Imported(Source):
    """A model from another program, without its training data; each task defines how its examples are read."""

    form: ClassVar[Source]  # how a file of such examples is read

    origin: str  # what it was imported from

    def lines(self, split: Split, folder: Path, report: Report | None = None) -> Iterator[Line]:
        raise UserError(
            f"This model was imported from {self.origin} without data: name yours in a recipe with train.from."
        )

    def reading(self, files: Sequence[Path]) -> Source:
        return self.form.reading(files)


@dataclass(frozen=True, kw_only=True)
class Arpa(Source):
    """An n-gram model from another program, without its training text."""

    FILES: ClassVar[tuple[str, ...]] = ("file",)

    file: str  # ARPA file that it was imported from

    def lines(self, split: Split, folder: Path, report: Report | None = None) -> Iterator[Line]:
        raise UserError(f"This model was imported from {self.file}: there is no text to train or to validate on.")

    def reading(self, files: Sequence[Path]) -> Text:
        (file,) = only(files)
        return Text(train=file, valid=file)


def pair_fields(path: Path) -> tuple[str, str]:
    """The fields of a table of pairs: columns 1 and 2; in JSONL source and target, or the first two texts."""
    first: dict[str, Any] = {}
    if is_jsonl(path):
        with suppress(ValueError, TypeError, RecursionError):
            first = dict(json.loads(next(whole_lines(path), (0, ""))[1]))
    else:
        first = {str(place): cell for place, cell in enumerate(next(read_rows(path), (0, []))[1], start=1)}
    texts = [key for key, value in first.items() if isinstance(value, str)]
    if {"source", "target"} <= {*texts}:
        return "source", "target"
    if len(texts) < 2:
        raise UserError(
            f"{path} is not a table of pairs: give one (.tsv, .jsonl), or two files, a source and a target."
        )
    return texts[0], texts[1]


def _paragraphs(path: Path) -> Iterator[str]:
    for blank, lines in groupby(read_lines(path), key=lambda line: not line.strip()):
        if not blank:
            some = list(_at_most(LONGEST, lines))
            text = "\n".join(some)
            yield Cut(text) if is_cut(some) or len(text) > LONGEST else text


def _at_most(size: int, lines: Iterable[str]) -> Iterator[str]:
    """Lines of so many characters in all, and one more."""
    for line in lines:
        yield line
        size -= len(line) + 1
        if size < 0:
            return


def _blocks(path: Path) -> Iterator[str]:
    """Cut where a single line end stands between two other characters: every tokenizer cuts there, too."""
    gathered: list[str] = []
    size = 0
    before = ""
    for piece in _pieces(path):
        spaced = (before[-2:-1] or " ").isspace() or piece[:1].isspace()
        if size >= BLOCK and not (spaced and before.endswith("\n")):
            yield "".join(gathered)
            gathered, size = [], 0
        gathered.append(piece)
        size += len(piece)
        before = piece
    if gathered:
        yield "".join(gathered)


def _pieces(path: Path) -> Iterator[str]:
    """Lines with their ends. One that is too long to be held comes in pieces: cut before a single space if it has any,
    as all tokenizers but the one for words do; that one may see the space."""
    rest = ""
    for line in read_lines(path, whole=True):
        rest += line
        if not isinstance(line, Cut):
            yield rest + "\n"
            rest = ""
        while len(rest) > BLOCK:
            found = BEFORE_A_SPACE.match(rest, 0, BLOCK)
            place = found.end() if found else BLOCK
            yield rest[:place]
            rest = rest[place:]


# the texts of a file; a whole file comes in pieces that each end with a line, if that can be, and together are the file
TEXTS: dict[Unit, Callable[[Path], Iterator[str]]] = {"line": read_lines, "paragraph": _paragraphs, "file": _blocks}


def _one_end(path: Path, split: Split, share: float) -> Iterator[str]:
    """The last characters of the file, this share of all, or those before them."""
    cut = int(sum(map(len, _blocks(path))) * (1 - share))
    place = 0
    for block in _blocks(path):
        here = min(max(cut - place, 0), len(block))
        part = block[:here] if split == "train" else block[here:]
        place += len(block)
        if part:
            yield part


def check_hold_out(valid: str, share: float) -> None:
    if valid and share:
        raise ValueError("hold_out is for training without a validation file: set it to 0.")
    if not valid and not 0 < share < 1:
        raise ValueError(f"without a validation file, hold_out = {share} must be above 0 and below 1, such as 0.02.")


def check_languages(pair: str) -> None:
    if pair:
        pair_in(pair)


def _side(every: Iterator[Line], split: Split, share: float) -> Iterator[Line]:
    """The held-out lines or the others, chosen by their source so that a repeated sentence is in one split only."""
    if split == "test":
        raise UserError("The recipe names no test files: give some to the command.")
    if not share:
        return every
    return (line for line in every if _held_out(line[1], share) == (split == "valid"))


def _held_out(raw: Any, share: float) -> bool:
    content = raw.encode("utf-8", "surrogatepass") if isinstance(raw, str) else raw.tobytes()
    digest = hashlib.blake2b(content, digest_size=8).digest()
    return int.from_bytes(digest) < share * 2**64

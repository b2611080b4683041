"""Lines, pairs of lines and fields of tables, from plain and compressed files (gzip, xz, bzip2).

A line ends at "\\n" and nowhere else, so that line n of the source is line n of the target whatever stands
inside them: U+2028, U+0085 and form feeds are text. Files are read as a stream and never held whole, and neither are
lines: one that is longer than LONGEST is cut, and its beginning is a `Cut`.
"""

from __future__ import annotations

import bz2
import csv
import gzip
import hashlib
import json
import lzma
import re
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE, utf_8_decode
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from io import BufferedReader
from itertools import chain, islice, zip_longest
from pathlib import Path
from typing import Any, BinaryIO, Literal, cast

from regard.config import UserError, counted
from regard.data.files import open_regular

LONGEST = 1 << 20  # most bytes of a line, and most characters of a row of CSV, a sentence of CoNLL or a paragraph
BETWEEN = " \t "  # between texts that are read one after the other: no field of a table holds a tab
TOO_LONG = "it has more than 1 MiB"  # what is wrong with a longer one
# the first bytes of a compressed file, the name of its format and what opens it
COMPRESSED: dict[bytes, tuple[str, Callable[[BinaryIO], Any]]] = {
    b"\x1f\x8b": ("gzip", lambda raw: gzip.GzipFile(fileobj=raw)),
    b"\xfd7zXZ\0": ("xz", lzma.LZMAFile),
    **{b"BZh%d%s" % (level, more): ("bzip2", bz2.BZ2File) for level in range(1, 10) for more in (b"1AY&", b"\x17rE8")},
}
# the first bytes of files that hold no text, and what they are
NOT_TEXT = {
    b"PK\3\4": "a zip archive, not text; unpack it and name a text file from inside it",
    b"\x28\xb5\x2f\xfd": "compressed with zstd; decompress it (zstd -d)",
    b"\xd0\xcf\x11\xe0": "an Office file, not text; save it as CSV (UTF-8)",
    b"PAR1\x15": "a Parquet file, not text; convert it to JSONL",
    **dict.fromkeys(
        (b"\x89PNG", b"\xff\xd8\xff", b"GIF87a", b"GIF89a"), "a picture, not text; name a text file or a table"
    ),
    b"%PDF-": "a PDF file, not text; extract its text (pdftotext)",
    BOM_UTF16_LE: "UTF-16, not UTF-8; convert it with: iconv -f UTF-16 -t UTF-8",
    BOM_UTF16_BE: "UTF-16, not UTF-8; convert it with: iconv -f UTF-16 -t UTF-8",
}
SPREADSHEETS = (".xlsx", ".ods")  # zip archives, recognised by their names
DELIMITERS = ",;\t|"  # of CSV; the first one where several fit equally well
FIRST_LINES = 50  # lines of a CSV file, which show its delimiter
CONLLU = ("ID", "FORM", "LEMMA", "UPOS", "XPOS", "FEATS", "HEAD", "DEPREL", "DEPS", "MISC")  # its columns
NOT_A_WORD = re.compile(r"#|\d+[-.]\d+\t")  # in CoNLL-U: a comment, a multi-word range (1-2), an empty node (1.1)
# every character that ends a line for some reader (str.splitlines knows them all), as JSON escapes it
ESCAPES = {ord(end): json.dumps(end)[1:-1] for end in "\n\r\v\f\x1c\x1d\x1e\x85\u2028\u2029"}
SURROGATE = re.compile("[\ud800-\udfff]")
JSON_SUFFIXES = (".jsonl", ".ndjson", ".json")
REFUSALS: dict[type[OSError], str] = {
    FileNotFoundError: "does not exist; check the spelling and the folder",
    IsADirectoryError: "is a folder; name a text file inside it",
    PermissionError: "may not be read by you; change its permissions (chmod u+r)",
}
REPLACE = ' or set errors = "replace" (--errors replace on the command line)'
NOT_UTF8 = "is not UTF-8"  # the end of a report of bytes that do not decode


@contextmanager
def _content(path: Path, *, pipe: bool = False) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed where that is needed; errors become a UserError. `pipe`: a pipe will do."""
    kind = ""
    try:
        with open_regular(path, pipe=pipe) as opened:
            raw = cast(BufferedReader, opened)
            start = raw.peek(10)
            magic = next((magic for magic in COMPRESSED if start.startswith(magic)), None)
            if magic:
                kind, unpack = COMPRESSED[magic]
                with unpack(raw) as unpacked:
                    yield unpacked
            else:
                yield raw
    except (EOFError, OSError, lzma.LZMAError, zlib.error) as error:
        if isinstance(error, OSError) and (error.errno or not kind):
            says = REFUSALS.get(type(error), f"cannot be read: {error.strerror or error}; give a text file")
        else:
            says = f"is a damaged {kind} file ({error}); copy or download it again"
        raise UserError(f"{path} {says}.") from None


Report = Callable[[str, int, str], None]  # called with a file, a line number and what is wrong with the line


class Cut(str):
    """The beginning of a line that is too long to be held."""


def is_cut(sides: Iterable[Any]) -> bool:
    """Whether a side of an example was too long to be held."""
    return any(isinstance(side, Cut) for side in sides)


def read_lines(
    path: Path | str | BinaryIO,
    *,
    errors: Literal["strict", "replace"] | None = None,
    report: Report | None = None,
    whole: bool = False,
    pipe: bool = False,
) -> Iterator[str]:
    """The lines of a UTF-8 file, or of an open stream, without their ends; `errors="replace"` turns invalid bytes
    into U+FFFD, and None is strict where there is no such choice. With `report` a line that is not UTF-8 is reported,
    decoded with U+FFFD and passed on. A line that is too long is cut, and its beginning is a Cut; with `whole` the
    rest follows in pieces, all of them a Cut but the last. With `pipe` the path may be that of a pipe."""
    opened: AbstractContextManager[BinaryIO]
    if isinstance(path, (str, Path)):
        opened, name = _content(Path(path), pipe=pipe), str(path)
    else:
        opened, name = nullcontext(path), "standard input"
    with opened as stream:
        number, before, rest = 0, 0, b""  # `before`: bytes of this line that came before
        while raw := rest if rest.endswith(b"\n") else rest + stream.readline(LONGEST + 2):
            number += not before
            if number == 1 and not before:
                what = next((what for magic, what in NOT_TEXT.items() if raw.startswith(magic)), "")
                if what:
                    sheet = name.lower().endswith(SPREADSHEETS)
                    raise UserError(f"{name} is {'a spreadsheet; save it as CSV (UTF-8)' if sheet else what}.")
                raw = raw.removeprefix(BOM_UTF8)
            line = raw[:-2] if raw.endswith(b"\r\n") else raw.removesuffix(b"\n")
            cut = len(line) > LONGEST
            try:
                text, read = utf_8_decode(line[:LONGEST], errors or "strict", not cut)
            except UnicodeDecodeError as error:
                wrong = f"byte {before + error.start + 1} ({line[error.start]:#04x}) {NOT_UTF8}"
                remedy = "convert the file (iconv -f LATIN1 -t UTF-8)" + (REPLACE if errors else "")
                refuse_line(report, name, number, wrong, remedy)
                text, read = utf_8_decode(line[:LONGEST], "replace", not cut)
            yield Cut(text) if cut else text
            before, rest = (before + read, raw[read:]) if cut and whole else (0, b"")
            while cut and not whole and not raw.endswith(b"\n") and raw:
                raw = stream.readline(LONGEST)


def whole_lines(path: Path | str, report: Report | None = None) -> Iterator[tuple[int, str]]:
    """The lines of a file where part of a line is of no use, with their numbers: one that is too long is refused."""
    for number, line in enumerate(read_lines(path, report=report), start=1):
        if isinstance(line, Cut):
            refuse_line(report, str(path), number, TOO_LONG, "split or delete it")
            continue
        yield number, line


def refuse_line(report: Report | None, name: str, number: int, wrong: str, remedy: str) -> None:
    """Report what is wrong with a line, or raise it."""
    if report is None:
        raise UserError(f"{name}, line {number}: {wrong}; {remedy}.")
    report(name, number, wrong)


def encodable(text: str) -> str:
    """The text with U+FFFD for each half of a surrogate pair, which JSON and file names can hold but UTF-8 cannot."""
    return text if text.isascii() else SURROGATE.sub("\ufffd", text)


def one_line(text: str) -> str:
    """The text with its line ends escaped, so that it is one line for every reader."""
    return text.translate(ESCAPES)


def read_pairs(
    source: Path | str, target: Path | str, *, report: Report | None = None
) -> Iterator[tuple[int, str, str]]:
    """The number n, line n of the source and line n of the target."""
    sources, targets = read_lines(source, report=report), read_lines(target, report=report)
    for number, (left, right) in enumerate(zip_longest(sources, targets), start=1):
        if left is None or right is None:
            shorter, longer = number - 1, number + sum(1 for _ in (targets if left is None else sources))
            counts = (shorter, longer) if left is None else (longer, shorter)
            raise UserError(
                f"{source} has {counted(counts[0], 'line')} but {target} has {counts[1]}; "
                "parallel files need the same number, line n of one translating line n of the other."
            )
        yield number, left, right


def read_fields(
    path: Path | str, fields: Sequence[str], *, report: Report | None = None
) -> Iterator[tuple[int, list[str]]]:
    """The fields of each line of a table, with the line's number.

    In JSONL, recognised by the file's name, a field is a key. Elsewhere it is a column's number from 1, or its name in
    the first line; columns stand between tabs, or in CSV, recognised by the file's name, between commas or semicolons.
    """
    if is_jsonl(path):
        for number, line in whole_lines(path, report):
            try:
                entry = json.loads(line)
                values = [entry[field] for field in fields]
                if type(values[-1]) in (int, float):  # a label, or a number
                    values[-1] = str(values[-1])
                if not all(isinstance(value, str) for value in values):
                    raise TypeError
            except (ValueError, KeyError, TypeError, RecursionError):
                names = ", ".join(fields)
                refuse_line(
                    report, str(path), number, f"not a JSON object with texts for {names}", "correct or delete it"
                )
                continue
            yield number, [encodable(value) for value in values]
        return
    rows = read_rows(path, report)
    if all(field.isdecimal() and int(field) for field in fields):
        columns = [int(field) - 1 for field in fields]
    else:
        header = next(rows, (0, list[str]()))[1]
        if not header:
            raise UserError(
                f"{path} is empty: give a first line with the names {', '.join(fields)}, and lines below it."
            )
        for field in fields:
            if field not in header:
                shown = ", ".join(header)[:200]
                raise UserError(f"{path} has no column {field!r}: give a number, or one of its first line, {shown}.")
        columns = [header.index(field) for field in fields]
    for number, cells in rows:
        if max(columns) >= len(cells):
            wrong = f"{counted(len(cells), 'column')}, but column {max(columns) + 1} is asked for"
            refuse_line(report, str(path), number, wrong, "correct or delete it")
            continue
        yield number, [cells[column] for column in columns]


def read_json(path: Path | str) -> Any:
    """The one value that a JSON file holds; None where it holds none, or several, as JSONL does."""
    with _content(Path(path)) as stream, suppress(ValueError, RecursionError):
        return json.loads(stream.read().decode("utf-8-sig"))


def is_jsonl(path: Path | str) -> bool:
    return any(suffix in JSON_SUFFIXES for suffix in Path(path).suffixes)


def read_rows(path: Path | str, report: Report | None = None) -> Iterator[tuple[int, list[str]]]:
    """The columns of each line of a table, with its number."""
    if ".csv" in Path(path).suffixes:
        return _read_csv(path, report)
    return ((number, line.split("\t")) for number, line in whole_lines(path, report))


def _read_csv(path: Path | str, report: Report | None) -> Iterator[tuple[int, list[str]]]:
    """A quoted field may span several lines: its line ends become spaces."""
    room = LONGEST  # characters that the row may still have

    def bounded(lines: Iterable[str]) -> Iterator[str]:
        nonlocal room
        for line in lines:
            room -= len(line) + 1
            if room < 0 or isinstance(line, Cut):
                raise csv.Error("a row has more than 1 MiB")
            yield line + "\n"

    lines = read_lines(path, report=report)
    head = list(_first(lines))
    delimiter = max(DELIMITERS, key=lambda each: _divides(each, head))
    reader = csv.reader(bounded(chain(head, lines)), delimiter=delimiter, strict=True)
    try:
        for row in reader:
            yield reader.line_num, [" ".join(cell.splitlines()) for cell in row]
            room = LONGEST
    except csv.Error as problem:
        raise UserError(f"{path}, line {reader.line_num}: it is not CSV ({problem}); correct it.") from None


def _first(lines: Iterator[str]) -> Iterator[str]:
    """The first lines, which show what divides columns."""
    size = 0
    for line in islice(lines, FIRST_LINES):
        yield line
        size += len(line)
        if size > LONGEST:
            return


def _divides(delimiter: str, lines: Sequence[str]) -> tuple[float, int]:
    """How well this delimiter fits CSV: the share of the rows with as many columns as the first, if it has two or more;
    then how few of their cells begin with a space, as a clause after a comma does."""
    rows: list[list[str]] = []
    with suppress(csv.Error):  # a quoted field may continue beyond these lines
        for row in csv.reader(lines, delimiter=delimiter, strict=True):
            rows.append(row)
    if not rows or len(rows[0]) < 2:
        return 0.0, 0
    as_first = [row for row in rows if len(row) == len(rows[0])]
    return len(as_first) / len(rows), -sum(cell.startswith(" ") for row in as_first for cell in row)


def read_columns(
    path: Path | str, *, word: int, tag: int, report: Report | None = None
) -> Iterator[list[tuple[str, str]]]:
    """The sentences of a CoNLL file, which a blank line ends: (word, tag) from these columns, counted from 1, or from
    the end if negative. Columns stand between tabs, or where there are no tabs between spaces. In CoNLL-U,
    comments, multi-word ranges and empty nodes are left out."""
    conllu = is_conllu(path)
    if conllu and word in (1, -len(CONLLU)):
        raise UserError(
            f"{path} is CoNLL-U, and data.word = {word} is its ID: set data.word = 2 (FORM) and data.tag = 4 (UPOS), "
            "or write those two columns to another file."
        )
    sentence: list[tuple[str, str]] = []
    room = LONGEST  # characters that the sentence may still have
    for number, line in enumerate(chain(read_lines(path, report=report), [""]), start=1):
        if not line.strip() or line.startswith("-DOCSTART-"):
            if sentence:
                yield sentence
            sentence, room = [], LONGEST
            continue
        if room <= 0:
            continue  # reported already
        room -= len(line)
        if room <= 0 or isinstance(line, Cut):
            room = 0
            refuse_line(report, str(path), number, f"in this sentence {TOO_LONG}", "end sentences with a blank line")
            sentence = []
            continue
        if conllu and NOT_A_WORD.match(line):
            continue
        cells = line.split("\t") if "\t" in line else line.split()
        try:
            found = [cells[column - (column > 0)].strip() for column in (word, tag)]
        except IndexError:
            wanted = max(word, tag, key=abs)
            wrong = f"{counted(len(cells), 'column')}, but column {wanted} is asked for"
            refuse_line(report, str(path), number, wrong, "correct it, or set data.word and data.tag")
            continue
        sentence.append(("_".join(found[0].split()) or "_", "_".join(found[1].split()) or "O"))


def is_conllu(path: Path | str) -> bool:
    """Whether the first line that is no comment has the ten columns of CoNLL-U, with a number in the first."""
    lines = read_lines(path, errors="replace")
    first = next((line for line in lines if line.strip() and not line.startswith("#")), "")
    return first[:1].isdecimal() and first.count("\t") == len(CONLLU) - 1


def content_hash(path: Path | str) -> str:
    """SHA-256 of the content; a file and its compressed copy have the same one."""
    with _content(Path(path)) as stream:
        return hashlib.file_digest(cast(Any, stream), "sha256").hexdigest()

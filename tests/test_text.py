"""Laws of reading: a line ends at "\\n" only, gzip is seen by its content, every failure is a sentence."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import lzma
import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard.data.text import NOT_UTF8, content_hash, read_fields, read_lines, read_pairs
from regard.interface import UserError

LINES = ["un", "", "deux\u2028trois\x85quatre\x0ccinq\x0bsix", "  sept\t", "😀 huit\rneuf"]


def written(path: Path, content: bytes) -> Path:
    path.write_bytes(content)
    return path


def joined(lines: list[str], end: str = "\n") -> bytes:
    return "".join(line + end for line in lines).encode()


@pytest.mark.parametrize("end", ["\n", "\r\n"])
@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
@pytest.mark.parametrize("bom", [b"", b"\xef\xbb\xbf"])
def test_lines_end_at_newline_only(tmp_path, end, pack, bom):
    path = written(tmp_path / "text", pack(bom + joined(LINES, end)))
    assert list(read_lines(path)) == LINES
    assert list(read_lines(str(path))) == LINES


@settings(deadline=None)
@given(st.lists(st.text(st.characters(exclude_characters="\n", exclude_categories=["Cs"]))))
def test_any_lines_come_back(tmp_path_factory, lines):
    path = written(tmp_path_factory.getbasetemp() / "any", joined(["first", *lines]))
    # the one thing a line cannot keep is a "\r" at its very end
    assert list(read_lines(path)) == ["first", *(line.removesuffix("\r") for line in lines)]


def test_only_the_first_bom_is_dropped(tmp_path):
    path = written(tmp_path / "text", "\ufeff\ufeffa\n\ufeffb\n".encode())
    assert list(read_lines(path)) == ["\ufeffa", "\ufeffb"]


def test_only_the_carriage_return_of_the_line_end_is_dropped(tmp_path):
    path = written(tmp_path / "text", b"one\r\r\ntwo\rthree\nfour\r")
    assert list(read_lines(path)) == ["one\r", "two\rthree", "four\r"]


def test_a_last_line_needs_no_newline(tmp_path):
    assert list(read_lines(written(tmp_path / "a", b"one\ntwo"))) == ["one", "two"]
    assert list(read_lines(written(tmp_path / "b", b""))) == []
    assert list(read_lines(written(tmp_path / "c", b"\n\n"))) == ["", ""]
    assert list(read_lines(written(tmp_path / "d", gzip.compress(b"")))) == []


def test_gzip_members_follow_one_another(tmp_path):
    path = written(tmp_path / "text.txt", gzip.compress(b"one\ntw") + gzip.compress(b"o\nthree\n"))
    assert list(read_lines(path)) == ["one", "two", "three"]


def test_a_name_does_not_make_gzip(tmp_path):
    assert list(read_lines(written(tmp_path / "plain.gz", b"one\n"))) == ["one"]


def test_reading_is_a_stream(tmp_path):
    path = written(tmp_path / "text", b"good\n" * 3 + b"\xff\n")
    lines = read_lines(path)
    assert [next(lines) for _ in range(3)] == ["good"] * 3
    with pytest.raises(UserError):
        next(lines)


def test_invalid_utf8_names_file_line_and_remedy(tmp_path):
    path = written(tmp_path / "latin.txt", "bon\nétéà\n".encode("latin-1"))
    with pytest.raises(UserError, match=r"latin\.txt, line 2: byte 1 \(0xe9\).*iconv -f LATIN1 -t UTF-8\)\.$"):
        list(read_lines(path))
    with pytest.raises(UserError, match=r"iconv.* or set errors = .*--errors replace on the command line\)\.$"):
        list(read_lines(path, errors="strict"))
    assert list(read_lines(path, errors="replace")) == ["bon", "�t��"]


def truncated(content: bytes) -> bytes:
    return gzip.compress(content, mtime=0)[:-11]


def corrupted(content: bytes) -> bytes:
    packed = bytearray(gzip.compress(content, mtime=0))
    packed[13:17] = b"\xff\xff\xff\xff"
    return bytes(packed)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("one\n".encode("utf-16"), "UTF-16.*iconv"),
        (truncated(b"one\n" * 1009), "damaged gzip.*again"),
        (corrupted(b"one two three\n"), "damaged gzip.*again"),
        (gzip.compress(b"one\n", mtime=0) + b"litter", "damaged gzip.*again"),
    ],
    ids=["UTF-16", "truncated", "corrupted", "litter"],  # what is packed says when
)
def test_what_is_not_text_is_a_sentence(tmp_path, content, says):
    path = written(tmp_path / "odd.txt", content)
    with pytest.raises(UserError, match=rf"odd\.txt.*{says}"):
        list(read_lines(path))


def test_what_cannot_be_opened_is_a_sentence(tmp_path):
    for read in (lambda path: list(read_lines(path)), content_hash):
        with pytest.raises(UserError, match="nowhere.txt does not exist"):
            read(tmp_path / "nowhere.txt")
        with pytest.raises(UserError, match="is a folder"):
            read(tmp_path)
        with pytest.raises(UserError, match="cannot be read"):
            read(written(tmp_path / "file", b"one\n") / "below")


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read everything")
def test_a_forbidden_file_is_a_sentence(tmp_path):
    path = written(tmp_path / "secret.txt", b"one\n")
    path.chmod(0)
    with pytest.raises(UserError, match="secret.txt may not be read"):
        list(read_lines(path))


def test_pairs_stand_side_by_side(tmp_path):
    source = written(tmp_path / "source", b"a\n\nc\n")
    target = written(tmp_path / "target", gzip.compress(b"A\nB\n\n"))
    assert list(read_pairs(source, target)) == [(1, "a", "A"), (2, "", "B"), (3, "c", "")]


@pytest.mark.parametrize("counts", [(3, 7), (7, 3), (0, 5), (5, 0)])
def test_unequal_files_give_both_counts(tmp_path, counts):
    source, target = (written(tmp_path / name, b"x\n" * count) for name, count in zip("st", counts, strict=True))
    with pytest.raises(UserError, match=rf"s has {counts[0]} lines but .*t has {counts[1]}"):
        list(read_pairs(source, target))


def test_a_reported_line_is_decoded_and_passed_on(tmp_path):
    source = written(tmp_path / "s", b"one\n\xfftwo\nthree\n")
    target = written(tmp_path / "t", b"1\n2\n\xc3\n")
    told = []
    read = list(read_pairs(source, target, report=lambda *what: told.append(what)))
    assert read == [(1, "one", "1"), (2, "\ufffdtwo", "2"), (3, "three", "\ufffd")]
    assert [(name[-1], number) for name, number, _ in told] == [("s", 2), ("t", 3)]
    assert all(wrong.endswith(NOT_UTF8) for _, _, wrong in told)


COLUMNS = "id\ten\tde\n1\ta dog\tein Hund\n2\t\teine Katze\n"
OBJECTS = '{"de": "ein Hund", "en": "a dog"}\n{"en": "", "de": "eine Katze", "id": 2}\n'


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
@pytest.mark.parametrize(
    ("name", "content", "fields", "first"),
    [
        ("t.tsv", COLUMNS, ("en", "de"), 2),
        ("t.tsv", COLUMNS.partition("\n")[2], ("2", "3"), 1),
        ("t.jsonl", OBJECTS, ("en", "de"), 1),
    ],
)
def test_a_table_gives_the_fields_by_name_or_number(tmp_path, pack, name, content, fields, first):
    path = written(tmp_path / name, pack(content.encode()))
    rows = [(first, ["a dog", "ein Hund"]), (first + 1, ["", "eine Katze"])]
    assert list(read_fields(path, fields)) == rows


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("t.tsv", "a\tb\nx\n", "line 2: 1 column, but column 2"),
        ("t.tsv", "a\tc\nx\ty\n", "no column 'b'.*a, c"),
        ("t.tsv", "", "is empty: give a first line with the names a, b"),
        ("t.jsonl", '{"a": "x", "b": "y"}\n{"a": "x"}\n', "line 2: not a JSON object with texts for a, b"),
        ("t.jsonl", '{"a": 7, "b": "x"}\n', "line 1: not a JSON"),
        ("t.jsonl", '["a", "b"]\n', "line 1: not a JSON"),
        ("t.jsonl", "x\n", "line 1: not a JSON"),
        ("t.jsonl", "[" * 100_000 + "\n", "line 1: not a JSON"),
    ],
)
def test_a_bad_row_is_a_sentence(tmp_path, name, content, says):
    path = written(tmp_path / name, content.encode())
    with pytest.raises(UserError, match=says):
        list(read_fields(path, ("a", "b")))


def test_the_hash_is_of_the_content(tmp_path):
    content = b"one\r\n\xff\0two" * 200_003  # more than one chunk
    plain = written(tmp_path / "plain", content)
    packed = written(tmp_path / "packed", gzip.compress(content, 1))
    changed = written(tmp_path / "changed", content[:-1] + b"O")
    assert content_hash(plain) == content_hash(packed) == hashlib.sha256(content).hexdigest()
    assert content_hash(changed) != content_hash(plain)
    with pytest.raises(UserError, match="damaged gzip"):
        content_hash(written(tmp_path / "cut", truncated(content)))

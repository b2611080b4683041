"""The first hour with data of one's own: CoNLL-U, CSV with semicolons, compressed files, tables of pairs, swapped
files, labels that are missing. Each ends in the right recipe or in one sentence that names the remedy."""

from __future__ import annotations

import bz2
import json
import lzma
import os
import re
import zipfile
from collections.abc import Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import Call, Result

from regard.data import world
from regard.data.in_memory import keep_tagged
from regard.data.sources import examples
from regard.data.text import read_columns, read_fields
from regard.interface import UserError
from regard.loading import read_recipe

ONE_OF_SEVERAL = re.compile(
    r"(?<![\d.,])1 (pair|sentence|word|line|column|character|picture|token|step|label|tag|field)s\b"
)


def made(call: Call, *arguments: object) -> Result:
    """`regard new …` that succeeds."""
    done = call("new", *arguments, "-o", "my.toml")
    assert done.code == 0, done.err
    return done


def refused(call: Call, *arguments: object) -> str:
    """The one sentence with which `regard …` ends."""
    done = call(*arguments)
    assert done.code == 1 and done.err.startswith("regard: ") and done.err.count("\n") == 1
    return done.err


def train_examples(recipe: str = "my.toml") -> list[tuple[Any, ...]]:
    """All that the recipe reads to train and to validate on."""
    read, _ = read_recipe(recipe)
    splits = ("train", "valid") if read.data.hold_out else ("train",)
    return [each for split in splits for each in examples(read.data, split, read.folder)]  # type: ignore[arg-type]


# --- CoNLL-U -----------------------------------------------------------------------------------------------------

UD = """\
# newdoc id = a-{0}
# sent_id = {0}
# text = I don't know #{0} .
1\tI\tI\tPRON\tPRP\tCase=Nom\t4\tnsubj\t4:nsubj\t_
2-3\tdon't\t_\t_\t_\t_\t_\t_\t_\t_
2\tdo\tdo\tAUX\tVBP\t_\t4\taux\t4:aux\t_
3\tn't\tnot\tPART\tRB\t_\t4\tadvmod\t4:advmod\t_
4\tknow\tknow\tVERB\tVB\t_\t0\troot\t0:root\t_
4.1\tit\tit\tPRON\tPRP\t_\t_\t_\t4:obj\t_
5\t#{0}\t#{0}\tSYM\tADD\t_\t4\tobj\t4:obj\t_
6\t.\t.\tPUNCT\t.\t_\t4\tpunct\t4:punct\tSpaceAfter=No

"""


@pytest.fixture
def treebank(place: Path) -> str:
    Path("ud.conllu").write_text("".join(UD.format(number) for number in range(20)))
    return "ud.conllu"


def test_conllu_is_recognised_and_form_and_upos_are_chosen(call: Call, treebank: str) -> None:
    out = made(call, "tagging", treebank).out
    assert "data.train = ud.conllu: CoNLL-U: its comments, multi-word ranges and empty nodes are left out." in out
    assert "data.word = 2: column 2 of CoNLL-U is FORM." in out and "data.tag = 4: column 4 of CoNLL-U is UPOS." in out
    found = train_examples()
    assert len(found) == 20 and ("I do n't know #7 .", "PRON AUX PART VERB SYM PUNCT") in found
    done = call("check", "my.toml")
    assert done.code == 0 and "PRON" in done.out and "sent_id" not in done.out and "SpaceAfter" not in done.out


@pytest.mark.parametrize(
    ("options", "words", "tags"),
    [
        (["--source", "FORM", "--target", "UPOS"], "I do n't know #7 .", "PRON AUX PART VERB SYM PUNCT"),
        (["--target", "XPOS"], "I do n't know #7 .", "PRP VBP RB VB ADD ."),
        (["--source", "lemma"], "I do not know #7 .", "PRON AUX PART VERB SYM PUNCT"),
        (["--source", "2", "--target", "8"], "I do n't know #7 .", "nsubj aux advmod root obj punct"),
        (["--target", "-3"], "I do n't know #7 .", "nsubj aux advmod root obj punct"),
    ],
)
def test_columns_of_conllu_are_chosen_by_name_or_number(
    call: Call, treebank: str, options: list[str], words: str, tags: str
) -> None:
    made(call, "tagging", treebank, *options)
    assert (words, tags) in train_examples()


def test_columns_of_plain_conll_are_chosen_by_number(call: Call, place: Path) -> None:
    Path("a.conll").write_text("".join(f"{n} #tag{n} NN B-x\n{n} of IN O\n\n" for n in range(9)))
    made(call, "tagging", "a.conll", "--source", 2, "--target", 3)
    assert ("#tag3 of", "NN IN") in train_examples()  # a hash is a word here


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (["--target", "POS"], "The CoNLL-U column 'POS' does not exist: did you mean 'XPOS'? allowed are ID, FORM"),
        (["--target", "12"], "10 columns, but column 12 is asked for"),
        (["--source", "ID"], "set data.word = 2 (FORM) and data.tag = 4 (UPOS)"),
        (["--unit", "line"], "unit does not apply to tagging"),
    ],
)
def test_columns_that_conllu_does_not_have_are_refused(
    call: Call, treebank: str, options: list[str], says: str
) -> None:
    assert says in refused(call, "new", "tagging", treebank, *options)


def test_conllu_is_not_read_with_the_columns_of_another_file(call: Call, treebank: str) -> None:
    made(call, "tagging", treebank)
    done = call("check", "my.toml", "data.word=1", "data.tag=-1")
    assert done.code == 1 and "ud.conllu is CoNLL-U, and data.word = 1 is its ID: set data.word = 2" in done.out


def test_a_real_treebank_has_its_words_and_no_others() -> None:
    file = Path(os.environ.get("REGARD_DATA", "")) / "ud_ewt" / "dev.conllu.gz"
    if not file.is_file():
        pytest.skip("needs ud_ewt under REGARD_DATA")
    sentences = list(read_columns(file, word=2, tag=4))
    assert (len(sentences), sum(map(len, sentences))) == (2001, 25147)  # as the treebank says
    tags = {tag for sentence in sentences for _, tag in sentence}
    assert {"NOUN", "VERB", "PUNCT"} < tags and len(tags) <= 18 and all(tag.isupper() or tag == "_" for tag in tags)


# --- CSV and compressed files ------------------------------------------------------------------------------------

TEXTS = ["a lovely film, really", "a poor one; and long", "fine", "no", "great songs, great people", "awful"]
LABELS = ["pos", "neg"] * 3


def quoted(cell: str, delimiter: str) -> str:
    return f'"{cell}"' if delimiter in cell else cell


@pytest.mark.parametrize("delimiter", [",", ";", "\t", "|"])
@pytest.mark.parametrize("header", [True, False])
def test_the_delimiter_of_csv_is_recognised(call: Call, place: Path, delimiter: str, header: bool) -> None:
    rows = [["text", "label"]] * header + [list(row) for row in zip(TEXTS, LABELS, strict=True)] * 4
    Path("r.csv").write_text("".join(delimiter.join(quoted(cell, delimiter) for cell in row) + "\n" for row in rows))
    made(call, "classification", "r.csv")
    recipe, _ = read_recipe("my.toml")
    fields = (recipe.data.source, recipe.data.target)  # type: ignore[attr-defined]
    assert fields == (("text", "label") if header else ("1", "2"))
    assert sorted(set(train_examples())) == sorted(zip(TEXTS, LABELS, strict=True))


def test_commas_of_prose_do_not_divide_columns(place: Path) -> None:
    """Each line has one comma and one semicolon, and no header says which of them divides it."""
    Path("r.csv").write_text("good, very good;pos\nbad, very bad;neg\n")
    assert [row for _, row in read_fields("r.csv", ["1", "2"])] == [
        ["good, very good", "pos"],
        ["bad, very bad", "neg"],
    ]


@pytest.mark.parametrize("name", ["r.csv", "r.tsv"])
def test_a_table_of_one_column_is_refused_with_the_forms_that_are_read(call: Call, place: Path, name: str) -> None:
    Path(name).write_text("good\nbad\n" * 5)
    said = refused(call, "new", "classification", name)
    assert "two fields" in said and "(.tsv)" in said and "semicolon (.csv)" in said


@pytest.mark.parametrize(("suffix", "pack"), [("xz", lzma.compress), ("bz2", bz2.compress)])
def test_compressed_files_are_read_by_every_task(call: Call, treebank: str, suffix: str, pack: Any) -> None:
    for task, name, content in (
        ("tagging", "ud.conllu", Path(treebank).read_bytes()),
        ("classification", "r.csv", b"text;label\n" + b"a film, yes;pos\nno;neg\n" * 9),
        ("translation", "p.jsonl", b'{"en": "a dog", "de": "ein Hund"}\n' * 9),
        ("language", "t.txt", b"a dog.\n" * 9),
    ):
        Path(f"{name}.{suffix}").write_bytes(pack(content))
        assert call("new", task, f"{name}.{suffix}", "-o", f"{task}.toml").code == 0
    assert ("I do n't know #7 .", "PRON AUX PART VERB SYM PUNCT") in train_examples("tagging.toml")
    Path("torn").write_bytes(pack(bytes(range(32, 127)) * 99)[:-20])
    kind = {"xz": "xz", "bz2": "bzip2"}[suffix]
    assert f"torn is a damaged {kind} file" in refused(call, "new", "language", "torn", "-o", "torn.toml")


def zipped(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("xl/workbook.xml", "<workbook/>")


def test_files_that_are_not_text_are_called_what_they_are(call: Call, place: Path) -> None:
    starts = {
        "a.parquet": b"PAR1\x15\x04",
        "a.pdf": b"%PDF-1.7\n",
        "a.zst": b"\x28\xb5\x2f\xfd\0",
        "a.xls": b"\xd0\xcf\x11\xe0",
        "a.png": b"\x89PNG\r\n",
        "a.jpg": b"\xff\xd8\xff\xe0",
    }
    for name, content in starts.items():
        Path(name).write_bytes(content + b"\xff" * 9)
    zipped(Path("reviews.zip"))
    zipped(Path("reviews.xlsx"))
    says = {
        "reviews.zip": "is a zip archive, not text; unpack it",
        "reviews.xlsx": "is a spreadsheet; save it as CSV",
        "a.parquet": "is a Parquet file",
        "a.pdf": "is a PDF file",
        "a.zst": "is compressed with zstd; decompress it",
        "a.xls": "is an Office file",
        "a.png": "is a picture, not text",
        "a.jpg": "is a picture, not text",
    }
    for name, what in says.items():
        said = refused(call, "new", "classification", name)
        assert f"{name} {what}" in said and "iconv" not in said


# --- pairs in one table ------------------------------------------------------------------------------------------

PAIRS = [(f"the dog number {n} sleeps", f"der Hund Nummer {n} schläft") for n in range(30)]


def table(rows: Sequence[Sequence[object]], delimiter: str = "\t") -> str:
    return "".join(delimiter.join(map(str, row)) + "\n" for row in rows)


@pytest.mark.parametrize(
    ("name", "content", "fields"),
    [
        ("p.tsv", table(PAIRS), ("1", "2")),
        ("p.tsv", table([("en", "de"), *PAIRS]), ("en", "de")),
        ("p.tsv", table([(n, *pair) for n, pair in enumerate(PAIRS)]), ("2", "3")),
        ("p.csv", table([("en", "de"), *PAIRS], ";"), ("en", "de")),
        ("p.jsonl", "".join(json.dumps({"id": 7, "en": a, "de": b}) + "\n" for a, b in PAIRS), ("en", "de")),
    ],
)
def test_the_fields_of_a_table_of_pairs_are_guessed(
    call: Call, place: Path, name: str, content: str, fields: tuple[str, str]
) -> None:
    Path(name).write_text(content)
    out = made(call, "translation", name).out
    assert f"data.source = {fields[0]}: the first of the two fields of text" in out
    assert f"data.target = {fields[1]}: the second of the two" in out
    assert sorted(train_examples()) == sorted(PAIRS)


def test_word_pairs_have_no_header(call: Call, place: Path) -> None:
    words = [("dog", "Hund"), ("cat", "Katze"), ("cow", "Kuh")]
    Path("p.tsv").write_text(table(words))
    made(call, "translation", "p.tsv")
    assert sorted(train_examples()) == sorted(words)


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (table([(*pair, "a note") for pair in PAIRS]), "has 3 fields of text"),
        (table([pair[:1] for pair in PAIRS]), "has 1 field of text"),
        ("", "is empty"),
        (table(PAIRS) + "\n", "line 31: 1 column, but column 2 is asked for"),
    ],
)
def test_a_table_without_two_fields_of_text_is_refused(call: Call, place: Path, content: str, says: str) -> None:
    Path("p.tsv").write_text(content)
    assert says in refused(call, "new", "translation", "p.tsv")


@pytest.mark.parametrize(
    "arguments",
    [
        "p.tsv --valid v.tsv -o y.toml",
        "--valid v.tsv -o y.toml p.tsv",
        "--valid v.tsv p.tsv -o y.toml",
        "p.tsv -o y.toml --valid v.tsv",
    ],
)
def test_the_option_after_a_validation_file_is_not_swallowed(call: Call, place: Path, arguments: str) -> None:
    Path("p.tsv").write_text(table(PAIRS))
    Path("v.tsv").write_text(table(PAIRS[:7]))
    done = call("new", "translation", *arguments.split())
    assert done.code == 0, done.err
    assert read_recipe("y.toml")[0].data.names == {"train": "p.tsv", "valid": "v.tsv"}
    assert "--valid is followed by -o" in refused(call, "new", "translation", "p.tsv", "--valid", "-o", "z.toml")


# --- check -------------------------------------------------------------------------------------------------------


@pytest.fixture
def parallel(place: Path) -> Path:
    """English and French sentences of the built-in grammar; and Greek letters in the place of the French ones."""
    for split, count in (("train", 300), ("valid", 40)):
        pairs = [
            tuple(map(" ".join, (p.source, p.target))) for p in islice(world.pairs(split, seed=0, longest=20), count)
        ]  # type: ignore[arg-type]
        greek = {ord(latin): chr(ord("α") + n % 24) for n, latin in enumerate("abcdefghijklmnopqrstuvwxyz")}
        sides = {
            "en": [a for a, _ in pairs],
            "fr": [b for _, b in pairs],
            "el": [b.lower().translate(greek) for _, b in pairs],
        }
        for name, lines in sides.items():
            Path(f"{split}.{name}").write_text(table([[line] for line in lines]))
        Path(f"{split}.tsv").write_text(table(pairs))
    Path("exchanged.tsv").write_text(
        table([line.split("\t")[::-1] for line in Path("valid.tsv").read_text().splitlines()])
    )
    return place


@pytest.mark.parametrize("other", ["fr", "el"])
def test_validation_files_in_swapped_order_are_noticed(call: Call, parallel: Path, other: str) -> None:
    files = ["--source", "train.en", "--target", f"train.{other}", "--valid"]
    made(call, "translation", *files, "valid.en", f"valid.{other}")
    done = call("check", "my.toml")
    assert done.code == 0 and "swapped" not in done.out
    Path("my.toml").unlink()
    made(call, "translation", *files, f"valid.{other}", "valid.en")
    done = call("check", "my.toml", "--write", "clean")
    where = f"valid.{other} and valid.en: source and target seem to be in swapped order"
    assert done.code == 1 and done.out.startswith(f"error: {where}") and "swap them" in done.out
    assert not Path("clean").exists()


def test_validation_columns_in_swapped_order_are_noticed(call: Call, parallel: Path) -> None:
    made(call, "translation", "train.tsv", "--valid", "exchanged.tsv")
    done = call("check", "my.toml")
    assert done.code == 1 and "exchanged.tsv: source and target seem to be in swapped order" in done.out
    assert "swapped" not in call("check", "my.toml", "data.valid=valid.tsv").out


# --- pictures and plurals ----------------------------------------------------------------------------------------


def test_a_picture_with_an_empty_label_is_refused(call: Call, place: Path) -> None:
    images = np.random.default_rng(1).integers(0, 255, (8, 8, 8), np.uint8)
    np.savez("good.npz", images=images, labels=np.array(["cat", "dog"] * 4))
    np.savez("bad.npz", images=images, labels=np.array(["cat", "dog", ""] + ["dog"] * 5))
    made(call, "pictures", "good.npz", "--valid", "good.npz")
    for command in (("new", "pictures", "bad.npz"), ("train", "my.toml", "data.valid=bad.npz")):
        said = refused(call, *command)
        assert "Picture 3 of " in said and "bad.npz has an empty label: give it a label, or remove it." in said
    done = call("check", "my.toml", "data.valid=bad.npz")
    assert done.code == 1 and "Picture 3 of " in done.out and "bad.npz has an empty label: correct or" in done.out


def test_one_example_is_not_written_as_several(call: Call, place: Path) -> None:
    Path("p.tsv").write_text("a\tb\n")
    Path("c.tsv").write_text("a\tx\nb\ty\n")
    Path("a.conll").write_text("a\tB-x\nb\tO\n")
    images = np.zeros((2, 8, 8), np.uint8)
    images[1, 0, 0] = 9
    np.savez("p.npz", images=images, labels=np.array([0, 1]))
    said = []
    for task, file in (
        ("translation", "p.tsv"),
        ("classification", "c.tsv"),
        ("tagging", "a.conll"),
        ("pictures", "p.npz"),
    ):
        for command in (
            ("new", task, file, "--valid", file, "-o", f"{task}.toml"),
            ("new", task, file, "-o", f"{task}2.toml"),
        ):
            done = call(*command)
            said += [done.out, done.err]
            assert done.code == 0, done.err
        done = call("check", f"{task}.toml")
        said += [done.out, done.err]
    with pytest.raises(UserError, match="has 1 word and 2 tags"):
        keep_tagged([("a", "x y")], place / "kept")
    found = [line for text in said for line in text.splitlines() if ONE_OF_SEVERAL.search(line)]
    assert not found
    assert any("1 pair," in text for text in said) and any("1 picture is of one colour" in text for text in said)
    assert any("about 1 sentence is held out" in text for text in said)

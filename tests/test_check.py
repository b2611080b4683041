"""Laws of looking at data: each fault is found where it is and nowhere else, and what was written has none."""

from __future__ import annotations

import dataclasses
import gzip
import json
import os
import random
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from regard import recipe as recipes
from regard.check.characters import NAMES, classes, main_script, scripts_of
from regard.check.clean import moved
from regard.check.faults import FAULTS, Checked, Finding
from regard.check.scan import Reports, Scan, coded, too_long
from regard.cli import main
from regard.data import world
from regard.data.tokens import PairTokens, Tokenizer
from regard.interface import UserError
from regard.loading import read_recipe
from regard.recipe import Recipe
from regard.tasks.registry import TASKS
from regard.tasks.translation import WorldPairs

Pair = tuple[str, str]
TRAIN, VALID = 101, 23
PLACE = 11  # of the line that is spoilt; its number is one more


def some_pairs(split: world.Split, count: int) -> list[Pair]:
    """Different sentences of the built-in corpus."""
    found: dict[str, str] = {}
    for pair in world.pairs(split, longest=13):
        found.setdefault(" ".join(pair.source), " ".join(pair.target))
        if len(found) == count:
            return list(found.items())
    raise AssertionError


CLEAN: dict[str, list[Pair]] = {"train": some_pairs("train", TRAIN), "valid": some_pairs("valid", VALID)}


def parse_recipe(table: dict[str, Any], folder: Path) -> Recipe:
    return recipes.parse_recipe(table, tasks=TASKS, folder=folder)


def check(recipe: Recipe, write: Path | None = None) -> Checked:
    return recipe.task.check(recipe, write)


def joined(lines: Sequence[str | bytes]) -> bytes:
    return b"".join((line if isinstance(line, bytes) else line.encode()) + b"\n" for line in lines)


def recipe_of(folder: Path, data: dict[str, object] | None = None, **tokens: object) -> Recipe:
    files = {"source": "a.en", "target": "a.fr", "valid_source": "v.en", "valid_target": "v.fr"}
    table = {
        "task": "translation",
        "data": data or {"name": "parallel", **files},
        "tokens": {"kind": "characters", **tokens},
        "model": {"name": "rnnsearch"},
        "train": {"steps": 1},
    }
    return parse_recipe(table, folder=folder)


def written(
    folder: Path, train: Sequence[tuple[str | bytes, str | bytes]], valid: Sequence[tuple[str | bytes, str | bytes]]
) -> Recipe:
    """Two parallel files a split, and their recipe."""
    folder.mkdir(exist_ok=True)
    for name, pairs in (("a", train), ("v", valid)):
        for side, language in enumerate(("en", "fr")):
            (folder / f"{name}.{language}").write_bytes(joined([pair[side] for pair in pairs]))
    return recipe_of(folder)


def counts(checked: Checked) -> dict[tuple[str, str], int]:
    return {(finding.kind, finding.where): finding.count for finding in checked.findings}


def kinds(checked: Checked) -> set[str]:
    return {finding.kind for finding in checked.findings}


# One fault at a time


def test_clean_text_has_no_fault(tmp_path):
    assert len(set(CLEAN["train"])) == TRAIN and not set(dict(CLEAN["train"])) & set(dict(CLEAN["valid"]))
    checked = check(written(tmp_path, CLEAN["train"], CLEAN["valid"]))
    assert checked.findings == () and checked.sound
    train, valid = checked.summary["train"], checked.summary["valid"]
    assert (train.pairs, train.passes, train.several, valid.pairs) == (TRAIN, 1.0, 0, VALID)
    for side in range(2):
        lines = [pair[side] for pair in CLEAN["train"]]
        assert train.words[side] == sum(len(line.split()) for line in lines)
        assert train.characters[side] == sum(map(len, lines))
        assert train.median[side] == sorted(map(len, lines))[TRAIN // 2]
        assert train.longest[side] == max(map(len, lines))
        assert train.distinct[side] == len(set("".join(lines)))


LONG = " ".join(f"word{number}" for number in range(60))
SPOIL: dict[str, tuple[str, Callable[[Pair, Pair], tuple[str | bytes, str | bytes]], str]] = {
    # fault: the split, a pair (and a pair of train, far from it) spoilt, where it is said to be
    "encoding": ("train", lambda pair, _: (pair[0], "café .".encode("latin-1")), "a.fr"),
    "binary": ("train", lambda pair, _: (pair[0], pair[1] + "\0"), "a.fr"),
    "nothing": ("train", lambda *_: ("", ""), "a.en and a.fr"),
    "empty": ("train", lambda pair, _: ("", pair[1]), "a.en"),
    "blank": ("train", lambda pair, _: (pair[0], " \t\u3000"), "a.fr"),
    "long": ("train", lambda pair, _: (LONG, pair[1] * 6), "a.en"),
    "broken": ("train", lambda pair, _: (pair[0] + " \ufffd", pair[1]), "a.en"),
    "control": ("train", lambda pair, _: (pair[0] + " \x07 .", pair[1]), "a.en"),
    "mojibake": ("train", lambda pair, _: (pair[0], pair[1] + " Ã©tÃ©"), "a.fr"),
    "markup": ("train", lambda pair, _: (pair[0] + " &amp; <b>more</b>", pair[1]), "a.en"),
    "script": ("train", lambda pair, _: ("кот не спит на столе", pair[1]), "a.en"),
    "equal": ("train", lambda pair, _: (pair[0], pair[0]), "a.en and a.fr"),
    "ratio": ("train", lambda pair, _: (pair[0], " ".join([pair[1]] * 5)), "a.en and a.fr"),
    "duplicate": ("train", lambda _, other: other, "a.en and a.fr"),
    "leaked": ("valid", lambda _, other: other, "v.en and v.fr"),
    "leaked source": ("valid", lambda pair, other: (other[0], pair[1]), "v.en and v.fr"),
    "unseen": ("valid", lambda pair, _: (pair[0] + " ½ ½", pair[1]), "v.en"),
    "edges": ("train", lambda pair, _: (pair[0], f" {pair[1]}\u2003"), "a.fr"),
}


def test_every_fault_of_a_line_is_tried():
    assert SPOIL.keys() | {"row", "tags"} == FAULTS.keys()  # a row is a table's, tags are columns'


def spoilt(folder: Path, fault: str) -> tuple[Recipe, str]:
    split, spoil, where = SPOIL[fault]
    pairs: dict[str, list[tuple[str | bytes, str | bytes]]] = {name: [*clean] for name, clean in CLEAN.items()}
    pairs[split][PLACE] = spoil(CLEAN[split][PLACE], CLEAN["train"][3])
    recipe = written(folder, pairs["train"], pairs["valid"])
    if fault == "long":  # both sides are longer than the others, and one is too long
        longest = len(LONG) - 1
        recipe = recipe_of(folder, longest=longest)
        assert len(CLEAN["train"][PLACE][1] * 6) <= longest
    return recipe, where


@pytest.mark.parametrize("fault", SPOIL)
def test_a_fault_is_found_where_it_is(tmp_path, fault):
    recipe, where = spoilt(tmp_path, fault)
    checked = check(recipe)
    (finding,) = checked.findings
    assert (finding.kind, finding.where, finding.count, finding.lines) == (fault, where, 1, (PLACE + 1,))
    assert finding.severity == FAULTS[fault].severity
    assert finding.text.startswith(f"{where}: 1 ") and f"({PLACE + 1})" in finding.text and "--write" in finding.text
    assert "{" not in finding.text and finding.text.endswith(".")
    assert checked.sound == (finding.severity == "warning")


@pytest.mark.parametrize("fault", SPOIL)
def test_what_was_written_lacks_that_line_and_no_other(tmp_path, fault):
    recipe, _ = spoilt(tmp_path / "data", fault)
    clean = tmp_path / "clean"
    checked = check(recipe, write=clean)
    assert checked.written == clean
    split = SPOIL[fault][0]
    kept = {name: list(pairs) for name, pairs in CLEAN.items()}
    if fault in ("leaked", "leaked source"):  # validation keeps what training must not see
        del kept["train"][3]
        kept["valid"] = None
    elif fault != "edges":
        del kept[split][PLACE]
    for name, pairs in kept.items():
        for side, suffix in enumerate(("source", "target")):
            if pairs is not None:
                assert (clean / f"{name}.{suffix}").read_bytes() == joined([pair[side] for pair in pairs])
    lost = {name: sum(reasons.values()) for name, reasons in checked.dropped.items()}
    assert lost == {name: len(CLEAN[name]) - len(pairs or CLEAN[name]) for name, pairs in kept.items()}
    again = check(read_recipe(clean / "recipe.toml")[0])
    assert again.findings == () and again.summary["train"].passes == 1.0


@pytest.mark.parametrize(
    ("kind", "says"), [("characters", "becomes <unk>"), ("words", "a word that has one"), ("bpe", "split into bytes")]
)
def test_what_an_unseen_character_does_depends_on_the_tokens(tmp_path, kind, says):
    spoilt(tmp_path, "unseen")
    (finding,) = check(recipe_of(tmp_path, kind=kind, size=300)).findings
    assert "½" in finding.text and says in finding.text


def test_a_joint_vocabulary_knows_the_characters_of_both_sides(tmp_path):
    pairs = {name: [*clean] for name, clean in CLEAN.items()}
    pairs["train"][PLACE] = (CLEAN["train"][PLACE][0] + " ½", CLEAN["train"][PLACE][1])
    pairs["valid"][PLACE] = (CLEAN["valid"][PLACE][0], CLEAN["valid"][PLACE][1] + " ½")
    written(tmp_path, pairs["train"], pairs["valid"])
    assert not check(recipe_of(tmp_path, joint=True)).findings
    assert kinds(check(recipe_of(tmp_path, joint=False))) == {"unseen"}


def test_only_the_first_few_lines_are_named(tmp_path):
    pairs = [(source, "" if place % 2 else target) for place, (source, target) in enumerate(CLEAN["train"])]
    (finding,) = check(written(tmp_path, pairs, CLEAN["valid"])).findings
    assert (finding.count, finding.lines) == (TRAIN // 2, (2, 4, 6, 8, 10))
    assert "50 of 101 lines (2, 4, 6, 8, 10, …) are empty on this side" in finding.text


@pytest.mark.parametrize(
    "text",
    [
        "NÃO É AMANHÃ\u00a0!",
        "R&D; a < b & c > d",
        "3 <= 4 => 5",
        "à l’été – «Â»",
        "tab\tinside",
        "🙂 👩‍🚀 ½ €",
        "ﬁn de l’eﬀort",
    ],
)
def test_what_only_looks_odd_is_no_fault(tmp_path, text):
    assert check(written(tmp_path, [*CLEAN["train"], (f"{text} .", f". {text}")], CLEAN["valid"])).findings == ()


def test_valid_is_judged_by_what_is_usual_in_train(tmp_path):
    pairs = [*CLEAN["valid"]]
    pairs[3] = ("кот " * (len(pairs[3][1]) // 4), pairs[3][1])
    pairs[7] = (pairs[7][0] * 5, pairs[7][1])
    lines = {f.kind: f.lines for f in check(written(tmp_path, CLEAN["train"], pairs)).findings if f.where[:4] == "v.en"}
    assert lines == {"script": (4,), "unseen": (4,), "edges": (4,), "ratio": (8,)}


def test_what_is_usual_is_asked_again_when_lines_were_left_out(tmp_path):
    """Without the longest targets the median falls from 2 to 1, and then others are too long."""
    ratios = [1.0] * 50 + [2.0] * 12 + [3.5] * 30 + [7.0] * 30
    pairs = [(f"{n:04}" + "x" * 28, f"{n:04}" + "y" * int(32 * ratio - 4)) for n, ratio in enumerate(ratios)]
    recipe = written(tmp_path, pairs, [("98765xxxxx", "43210yyyyy")])
    (finding,) = check(recipe, write=tmp_path / "clean").findings
    assert (finding.kind, finding.count) == ("ratio", 60)
    assert check(read_recipe(tmp_path / "clean" / "recipe.toml")[0]).findings == ()


def test_short_lines_have_no_usual_ratio(tmp_path):
    pairs = [*CLEAN["train"], ("No .", "Non , pas du tout !"), ("Not in the least , thank you .", "Non .")]
    (finding,) = check(written(tmp_path, pairs, CLEAN["valid"])).findings
    assert (finding.kind, finding.lines) == ("ratio", (TRAIN + 2,))


def test_white_space_and_form_do_not_make_another_pair(tmp_path):
    source, target = CLEAN["train"][5]
    pairs = [*CLEAN["train"], (f" {source}", target), ("cafe\u0301 .", "x y z"), ("café .", "x y z")]
    found = counts(check(written(tmp_path, pairs, CLEAN["valid"])))
    assert found[("duplicate", "a.en and a.fr")] == 2


def test_other_targets_of_a_source_are_counted_and_no_fault(tmp_path):
    (one, first), (_, other), (_, third) = CLEAN["train"][:3]
    pairs = [*CLEAN["train"], (one, other), (one, third), (one, first)]
    checked = check(written(tmp_path, pairs, CLEAN["valid"]))
    assert checked.summary["train"].several == 2
    assert kinds(checked) <= {"duplicate", "ratio"}


# Files as a whole


@pytest.mark.parametrize("surplus", [("a.en", 7), ("a.fr", 5), ("v.en", 3)])
def test_unequal_files_are_an_error_with_both_counts(tmp_path, surplus):
    recipe = written(tmp_path, CLEAN["train"], CLEAN["valid"])
    name, lines = surplus
    before = TRAIN if name.startswith("a") else VALID
    with (tmp_path / name).open("ab") as file:
        file.write(b"more \xff\n" * lines)
    checked = check(recipe, write=tmp_path / "clean")
    texts = [finding.text for finding in checked.findings if finding.kind == "files"]
    assert len(texts) == 2 and str(before) in texts[0] and str(before + lines) in texts[0]
    assert "correct the errors" in texts[1]
    assert not (tmp_path / "clean").exists() and not checked.sound and checked.written is None
    assert counts(checked)[("encoding", name)] == lines
    assert len(checked.findings) == 3  # lines of valid are not blamed for train's


def test_lines_of_valid_are_not_blamed_for_those_of_train(tmp_path):
    recipe = written(tmp_path, [], CLEAN["valid"])
    (tmp_path / "a.en").write_bytes(b"more \xff\n" * 7)
    checked = check(recipe)
    assert [(finding.kind, finding.lines) for finding in checked.findings] == [
        ("files", ()),
        ("encoding", (1, 2, 3, 4, 5)),
    ]
    assert checked.summary["valid"].passes == 1.0


@pytest.mark.parametrize("split", ["train", "valid"])
@pytest.mark.parametrize(
    "pair", [None, ("", "un"), ("\0", "un"), (" ", "un"), (b"\xff", "un"), ("a " * 200, "b " * 200)]
)
def test_a_split_without_a_pair_to_use_is_an_error(tmp_path, split, pair):
    pairs = {**CLEAN, split: [pair] * 3 if pair else []}
    checked = check(written(tmp_path, pairs["train"], pairs["valid"]))
    assert any(finding.kind == "files" and f"in the {split} data" in finding.text for finding in checked.findings)
    assert not checked.sound and checked.findings[0].severity == "error"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (None, "was not found"),
        (gzip.compress(joined([pair[0] for pair in CLEAN["train"]]), mtime=0)[:-9], "damaged gzip"),
        ("one\n".encode("utf-16"), "UTF-16"),
    ],
)
def test_a_file_that_cannot_be_read_is_an_error(tmp_path, content, says):
    recipe = written(tmp_path, CLEAN["train"], CLEAN["valid"])
    (tmp_path / "a.en").unlink()
    if content is not None:
        (tmp_path / "a.en").write_bytes(content)
    checked = check(recipe)
    assert not checked.sound
    assert [finding.kind for finding in checked.findings if finding.severity == "error"] == ["files"]
    assert says in checked.findings[0].text


def test_where_nothing_passes_nothing_is_written(tmp_path):
    recipe = written(tmp_path, [("same .", "same ."), ("too .", "too .")], CLEAN["valid"])
    checked = check(recipe, write=tmp_path / "clean")
    assert [f.text for f in checked.findings if f.severity == "error"] == [
        f"Nothing was written to {tmp_path / 'clean'}: no pair of train passes."
    ]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.en", "a.fr", "v.en", "v.fr"]


# Other sources


def rows(folder: Path, suffix: str, lines: list[str]) -> Recipe:
    (folder / f"t{suffix}").write_text("".join(f"{line}\n" for line in lines))
    fields = ("1", "2") if suffix == ".tsv" else ("en", "fr")
    data = {"name": "table", "train": f"t{suffix}", "source": fields[0], "target": fields[1], "hold_out": 0.3}
    return recipe_of(folder, data)


def without_unseen(checked: Checked) -> list[Finding]:
    """Held-out lines of little text may well have a letter that the others lack."""
    return [finding for finding in checked.findings if finding.kind != "unseen"]


@pytest.mark.parametrize("suffix", [".tsv", ".jsonl"])
def test_rows_that_cannot_be_read_are_an_error_told_once(tmp_path, suffix):
    form: Callable[[Pair], str] = "\t".join if suffix == ".tsv" else lambda p: json.dumps({"en": p[0], "fr": p[1]})
    lines = [form(pair) for pair in CLEAN["train"]]
    assert without_unseen(check(rows(tmp_path, suffix, lines))) == []
    lines[PLACE:PLACE] = ["one field"]
    lines[30:30] = ["another"] * 3
    checked = check(rows(tmp_path, suffix, lines), write=tmp_path / "clean")
    (finding,) = without_unseen(checked)
    assert (finding.kind, finding.severity, finding.where) == ("row", "error", f"t{suffix}")
    assert (finding.count, finding.lines) == (4, (PLACE + 1, 31, 32, 33))
    assert checked.dropped["train"] == {"row": 4} and checked.dropped["valid"].keys() <= {"unseen"}
    assert sum(summary.pairs for summary in checked.summary.values()) == TRAIN
    assert check(read_recipe(tmp_path / "clean" / "recipe.toml")[0]).findings == ()


def test_a_line_end_or_half_a_character_inside_json_is_a_fault(tmp_path):
    lines = [json.dumps({"en": source, "fr": target}) for source, target in CLEAN["train"]]
    lines += ['{"en": "one\\ntwo .", "fr": "un\\u2028deux ."}', '{"en": "half \\ud83d .", "fr": "demi ."}']
    checked = check(rows(tmp_path, ".jsonl", lines), write=tmp_path / "clean")
    assert {finding.kind for finding in without_unseen(checked)} == {"control", "broken"}
    assert check(read_recipe(tmp_path / "clean" / "recipe.toml")[0]).findings == ()


def test_held_out_lines_are_told_from_the_others(tmp_path):
    written(tmp_path, [*CLEAN["train"], *((source, "") for source, _ in CLEAN["valid"])], [])
    data = {"name": "parallel", "source": "a.en", "target": "a.fr", "hold_out": 0.4}
    found = without_unseen(check(recipe_of(tmp_path, data)))
    assert [(f.kind, f.where) for f in found] == [("empty", "train lines of a.fr"), ("empty", "valid lines of a.fr")]
    assert sum(finding.count for finding in found) == VALID
    assert all(line > TRAIN for finding in found for line in finding.lines)


def test_the_built_in_corpus_can_be_checked_and_written(tmp_path):
    recipe = recipe_of(tmp_path, {"name": "world", "sentences": 503, "valid": 19}, longest=997)
    checked = check(recipe, write=tmp_path / "clean")
    assert kinds(checked) <= {"duplicate", "ratio"} and checked.sound
    assert check(read_recipe(tmp_path / "clean" / "recipe.toml")[0]).findings == ()


# Laws over all sorts of text

BASE = [*CLEAN["train"][:61]]
ODD: list[tuple[str | bytes, str | bytes]] = [
    ("", ""),
    ("", "seul"),
    ("   ", "\u2003"),
    (" spaced out here .", "espacé ici \r"),
    ("x" * 97, "y"),
    ("y", "x" * 41),
    ("кот не спит на столе", "le chat ne dort pas sur la table"),
    ("猫はテーブルの上で寝ません。", "这只猫不在桌子上睡觉。"),
    ("half кот не", "demi"),
    ("same thing", "same thing"),
    ("a \x07 bell", "une \x1b cloche"),
    ("&quot;said&quot;", "<i>dit</i>"),
    ("Ã©tÃ©", "\ufffd"),
    ("\ufeffmark", "marque"),
    ("only here ½", "seulement ici ¾"),
    ("cafe\u0301", "café"),
    ("nul \0", "nul"),
    (b"\xff\xfe bad", "mal"),
    (b"good", b"\xe9"),
    ("tab\tinside", "tab\tdedans"),
    ("." * 35, "!" * 12),
    ("word " * 60, "mot " * 60),
]


@st.composite
def corpora(draw: st.DrawFn) -> tuple[list[tuple[str | bytes, str | bytes]], list[tuple[str | bytes, str | bytes]]]:
    """Enough ordinary lines to say what is usual, or not, among odd ones in any number and order."""
    shuffle = random.Random(draw(st.integers(0, 2**32)))
    odd = draw(st.lists(st.sampled_from(ODD), max_size=90))
    base = BASE[: draw(st.sampled_from([7, 47, 61]))] + draw(st.lists(st.sampled_from(BASE), max_size=7))
    train = [*base, *odd]
    valid = [*CLEAN["valid"][:5], *draw(st.lists(st.sampled_from([*ODD, *BASE]), max_size=11))]
    shuffle.shuffle(train)
    shuffle.shuffle(valid)
    return train, valid


@settings(deadline=None, max_examples=60)
@given(corpora(), st.sampled_from(["characters", "words", "bpe"]), st.booleans())
def test_of_what_was_written_there_is_nothing_left_to_say(tmp_path_factory, corpus, kind, joint):
    folder = tmp_path_factory.mktemp("law")
    written(folder, *corpus)
    checked = check(recipe_of(folder, kind=kind, joint=joint, longest=101), write=folder / "clean")
    for split, summary in checked.summary.items():
        read = summary.pairs
        if checked.written:
            lines = (folder / "clean" / f"{split}.source").read_bytes().count(b"\n")
            assert lines == (folder / "clean" / f"{split}.target").read_bytes().count(b"\n")
            assert read - lines == sum(checked.dropped[split].values())
    if checked.written:
        again = check(read_recipe(folder / "clean" / "recipe.toml")[0])
        assert again.findings == ()
        assert all(summary.passes == 1.0 for summary in again.summary.values())


@settings(deadline=None, max_examples=40)
@given(corpora(), st.randoms(use_true_random=False))
def test_the_order_of_the_lines_changes_no_count(tmp_path_factory, corpus, shuffler):
    folder = tmp_path_factory.mktemp("order")
    first = BASE[:1]  # stays first: of a file's first line, a BOM is no part
    train, valid = ([*pairs] for pairs in corpus)
    before = check(written(folder, [*first, *train], [*first, *valid]))
    shuffler.shuffle(train)
    shuffler.shuffle(valid)
    after = check(written(folder, [*first, *train], [*first, *valid]))
    assert counts(before) == counts(after) and before.summary == after.summary


LINE = st.one_of(st.binary(max_size=40), st.text(max_size=20).map(lambda text: text.encode("utf-8", "replace")))
BYTES = st.lists(LINE, max_size=6).map(b"\n".join)


@settings(deadline=None, max_examples=80)
@given(
    BYTES.flatmap(lambda one: st.tuples(st.just(one), st.one_of(st.just(one), BYTES))),
    st.sampled_from(["characters", "words", "bpe"]),
    st.sampled_from(["", ".tsv", ".jsonl"]),
)
def test_no_bytes_surprise_it(tmp_path_factory, content, kind, suffix):
    folder = tmp_path_factory.mktemp("bytes")
    written(folder, CLEAN["train"][:3], CLEAN["valid"][:3])
    for name, part in zip(("a.en", "a.fr"), content, strict=True):
        (folder / name).write_bytes(part)
    data = None
    if suffix:
        (folder / f"t{suffix}").write_bytes(content[0])
        fields = {"source": "1", "target": "2"} if suffix == ".tsv" else {"source": "a", "target": "b"}
        data = {"name": "table", "train": f"t{suffix}", "hold_out": 0.5, **fields}
    recipe = recipe_of(folder, data, kind=kind, longest=7)
    checked = check(recipe, write=folder / "clean")
    assert bool(checked.written) == (folder / "clean").exists()
    assert checked.sound or any(finding.severity == "error" for finding in checked.findings)
    if checked.written:
        assert check(read_recipe(folder / "clean" / "recipe.toml")[0]).findings == ()


def test_little_is_kept_of_a_pair(tmp_path):
    scan = Scan(((n, "source " * 50, "target " * 50) for n in range(5003)), PairTokens(), Reports())
    kept = (scan.numbers, scan.sources, scan.pairs, scan.lengths, scan.scripts, scan.faults)
    assert sum(column.nbytes for column in kept) <= 48 * 5003


def test_real_captions_raise_no_false_alarm(tmp_path):
    data = Path(os.environ.get("REGARD_DATA", "")) / "multi30k"
    if not data.is_dir():
        pytest.skip("needs Multi30k under REGARD_DATA")
    names = {"source": "train.en", "target": "train.de", "valid_source": "val.en", "valid_target": "val.de"}
    files = {key: str(data / f"{name}.gz") for key, name in names.items()}
    checked = check(recipe_of(tmp_path, {"name": "parallel", **files}, kind="bpe", size=8000))
    assert kinds(checked) == {"markup", "ratio", "duplicate", "edges", "leaked source"}
    assert checked.summary["train"].passes > 0.999


# Tokens and scripts

WORDS = st.lists(
    st.sampled_from(["a", "l'homme", "don't", "3.5", "...", "été", "हिन्दी", "Straße,", "  ", "x-y"]), max_size=30
)


@settings(deadline=None)
@given(WORDS.map(" ".join), st.integers(1, 40))
def test_a_line_is_too_long_just_when_training_finds_it_so(text, longest):
    for kind in ("characters", "words"):
        tokens = Tokenizer.train(kind, [text, "a  b\tc d."], size=None).encode(text)
        assert too_long(PairTokens(kind=kind, longest=longest))(coded([text]).lines[0]) == (len(tokens) > longest)


@settings(deadline=None)
@given(WORDS.map(" ".join), st.integers(1, 40))
def test_sub_words_are_never_fewer_than_was_said(text, longest):
    tokenizer = Tokenizer.train("bpe", [text] * 20, size=900)
    if too_long(PairTokens(kind="bpe", longest=longest))(coded([text]).lines[0]):
        assert len(tokenizer.encode(text)) > longest


def test_words_that_touch_are_more_tokens_than_characters(tmp_path):
    pairs = [*CLEAN["train"], ("x-" * 12 + "x", "y-" * 12 + "y")]  # 25 words and 24 joins
    written(tmp_path, pairs, CLEAN["valid"])
    assert kinds(check(recipe_of(tmp_path, kind="words", longest=48))) == {"long"}
    assert kinds(check(recipe_of(tmp_path, kind="words", longest=49))) == set()


def test_words_and_signs_are_sub_words_at_least():
    text = "word, sign. " * 10  # each 4 and the last space
    assert too_long(PairTokens(kind="bpe", longest=39))(text.strip())
    assert not too_long(PairTokens(kind="bpe", longest=40))(text.strip())


def test_text_without_spaces_is_long_too():
    long = too_long(PairTokens(kind="bpe", longest=100))
    assert long("猫は寝ません" * 40) and not long("猫は寝ません" * 20)


def scripts(*lines: str) -> list[str]:
    whole = coded(lines)
    return [["none", *NAMES][code] for code in scripts_of(classes()[whole.codes], whole.starts)]


def test_a_line_is_in_the_script_of_most_of_its_letters():
    cases = {
        "the cat sleeps": "Latin",
        "кот Tom не спит": "Cyrillic",
        "η γάτα κοιμάται": "Greek",
        "القطة نائمة الآن": "Arabic",
        "החתול ישן עכשיו": "Hebrew",
        "बिल्ली सो रही है": "Devanagari",
        "猫不在桌子上": "Han",
        "猫は寝ません": "Japanese",
        "Microsoft の猫は寝ません": "Japanese",
        "고양이는 자지 않는다": "Hangul",
        "": "none",
        "1 + 1 = 2": "none",
        "IBM": "none",
        "half and кот спит": "none",
    }
    assert scripts(*cases) == list(cases.values())


@pytest.mark.parametrize(
    ("usual", "fine", "wrong"),
    [
        ("猫は机の上で寝ません", "東京大学", "고양이는 자지 않는다"),
        ("猫不在桌子上睡觉", "一九九四年", "猫は机の上で寝ません"),
        ("кот не спит на столе", "IBM 360", "the cat sleeps there"),
        ("the cat sleeps there", "π ≈ 3.14", "кот не спит на столе"),
    ],
)
def test_another_script_is_wrong_and_han_among_kana_is_not(tmp_path, usual, fine, wrong):
    pairs = [(f"{usual} {number}", target) for number, (_, target) in enumerate(CLEAN["train"])]
    assert "script" not in kinds(check(written(tmp_path, [*pairs, (fine, "rien du tout")], pairs[:1])))
    (finding,) = (
        f for f in check(written(tmp_path, [(wrong, "rien"), *pairs], pairs[:1])).findings if f.kind == "script"
    )
    assert (finding.where, finding.lines) == ("a.en", (1,))


def test_lines_that_do_not_agree_have_no_usual_script():
    assert main_script(np.array([1] * 60 + [3] * 40, np.uint8)) == 0
    assert main_script(np.array([1] * 90 + [3] * 10 + [0] * 400, np.uint8)) == 1
    assert main_script(np.array([1] * 9, np.uint8)) == 0  # too few to say


def test_han_and_kana_agree_on_what_most_of_the_lines_are():
    han, japanese = (1 + NAMES.index(name) for name in ("Han", "Japanese"))
    assert main_script(np.array([japanese] * 37 + [han] * 31, np.uint8)) == japanese
    assert main_script(np.array([japanese] * 31 + [han] * 37, np.uint8)) == han


# Writing


def test_a_folder_with_something_in_it_is_left_alone(tmp_path):
    recipe = written(tmp_path / "data", CLEAN["train"], CLEAN["valid"])
    taken = tmp_path / "taken"
    taken.mkdir()
    (taken / "mine").write_text("dear")
    with pytest.raises(UserError, match="is not empty: name a new"):
        check(recipe, write=taken)
    with pytest.raises(UserError, match="is a file: name a new"):
        check(recipe, write=taken / "mine")
    assert [path.name for path in taken.iterdir()] == ["mine"] and (taken / "mine").read_text() == "dear"
    (taken / "mine").unlink()
    assert check(recipe, write=taken).written == taken
    assert check(recipe, write=tmp_path / "new" / "deep").sound
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "new", "taken"]


def test_a_place_that_cannot_be_written_is_a_sentence(tmp_path):
    recipe = written(tmp_path, CLEAN["train"], CLEAN["valid"])
    checked = check(recipe, write=tmp_path / "a.en" / "below")
    assert "cannot be written" in checked.findings[0].text and not checked.sound


def test_the_written_recipe_is_the_same_but_for_its_data(tmp_path):
    recipe = written(tmp_path / "data", CLEAN["train"], CLEAN["valid"])
    (tmp_path / "data" / "other").mkdir()
    before = parse_recipe({**TABLE, "train": {"steps": 7, "from": "other"}}, folder=recipe.folder)
    after = moved(before, tmp_path)
    assert {key.partition(".")[0] for key in after.differences(before)} == {"data", "train"}
    assert after.train.from_ == str(tmp_path / "data" / "other")
    check(recipe, write=tmp_path / "clean")
    assert all(
        key.startswith("data.") for key in read_recipe(tmp_path / "clean" / "recipe.toml")[0].differences(recipe)
    )


TABLE = {
    "task": "translation",
    "data": {"name": "parallel", "source": "a.en", "target": "a.fr", "valid_source": "v.en", "valid_target": "v.fr"},
    "model": {"name": "transformer"},
}

KILLED = """
import os, signal, sys
from dataclasses import dataclass, replace
from pathlib import Path
from regard.data.sources import Parallel
from regard.loading import read_recipe

class Deadly(Parallel):
    def lines(self, split, folder, report=None):
        passes.append(split)
        for line in super().lines(split, folder, report):
            yield line
            if passes == sys.argv[3].split() and line[0] > 5:
                assert any(name.startswith(".clean.") for name in os.listdir(Path(sys.argv[2]).parent))
                os.kill(os.getpid(), signal.SIGKILL)

passes = []
recipe = read_recipe(sys.argv[1])[0]
recipe = replace(recipe, data=Deadly(**recipe.data.__dict__))
recipe.task.check(recipe, Path(sys.argv[2]))
"""


@pytest.mark.parametrize("passes", ["train valid train", "train valid train valid"])
def test_a_run_that_is_killed_while_it_writes_leaves_no_folder(tmp_path, passes):
    recipe = written(tmp_path / "data", CLEAN["train"], CLEAN["valid"])
    (tmp_path / "data" / "recipe.toml").write_text(recipe.to_toml())
    command = [sys.executable, "-c", KILLED, str(tmp_path / "data" / "recipe.toml"), str(tmp_path / "clean"), passes]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.returncode == -signal.SIGKILL, done.stderr
    (left,) = set(tmp_path.iterdir()) - {tmp_path / "data"}
    assert left.name.startswith(".clean.") and not (left / "recipe.toml").exists()
    assert check(recipe, write=tmp_path / "clean").sound  # and the next one sweeps
    assert sorted(path.name for path in tmp_path.iterdir()) == ["clean", "data"]


class Changing(WorldPairs):
    """Whose lines are others when they are read to be written."""

    reads = 0

    def lines(self, split, folder, report=None) -> Iterator[tuple[int, str, str]]:
        Changing.reads += 1
        for number, source, target in super().lines(split, folder, report):
            yield number, source, target + (" !" if Changing.reads > 2 and number == 7 else "")


def test_data_that_changes_meanwhile_is_not_written(tmp_path):
    recipe = dataclasses.replace(recipe_of(tmp_path), data=Changing(sentences=53, valid=19))
    checked = check(recipe, write=tmp_path / "clean")
    assert "The data changed while it was being read" in checked.findings[0].text
    assert not (tmp_path / "clean").exists()


# The command


@pytest.fixture
def command(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def called(*arguments: object) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["regard", "check", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        said = capfd.readouterr()
        return int(ended.value.code or 0), said.out, said.err

    return called


def test_the_command_tells_errors_first_and_ends_with_1(tmp_path, command):
    recipe = written(tmp_path, [*CLEAN["train"], ("", "x"), (b"\xff", "y")], CLEAN["valid"])
    file = tmp_path / "my.toml"
    file.write_text(recipe.to_toml())
    code, out, _ = command(file, "--write", tmp_path / "clean")
    lines = out.splitlines()
    assert code == 1
    assert lines[0].startswith("error: a.en: 1 line (103) is not UTF-8") and lines[1].startswith(
        "warning: a.en: 1 of 103"
    )
    assert "train: 103 pairs, 98.05 % pass" in out and "left out: 1 encoding, 1 empty" in out
    assert f"regard train {tmp_path}/clean/recipe.toml" in out
    code, out, _ = command(tmp_path / "clean" / "recipe.toml")
    assert code == 0 and "error" not in out and "warning" not in out and "101 pairs, 100.0 % pass" in out


def test_json_says_the_same(tmp_path, command):
    recipe = written(tmp_path, [*CLEAN["train"], ("", "x")], CLEAN["valid"])
    file = tmp_path / "my.toml"
    file.write_text(recipe.to_toml())
    code, out, _ = command(file, "tokens.longest=11", "--json")
    said = json.loads(out)
    checked = check(read_recipe(file, ["tokens.longest=11"])[0])
    assert code == 1 and said["sound"] is checked.sound is False
    assert [finding["text"] for finding in said["findings"]] == [finding.text for finding in checked.findings]
    assert said["summary"]["train"]["pairs"] == TRAIN + 1 and said["written"] is None
    assert command(file, "--json", "--write", file)[0] == 1

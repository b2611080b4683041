"""Data in several files: encoded in shards by several processes, read as one; `regard encode`."""

from __future__ import annotations

import json
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command import ENVIRONMENT, REGARD, Call
from hypothesis import given, settings
from hypothesis import strategies as st
from made import on_disk

from regard.checkpoint import Folder
from regard.data import tokens
from regard.data.batches import Encoded, Examples, Shuffled, plan
from regard.data.fields import Fields, LabelField
from regard.data.shards import Chain, Shards, ShuffledShards, batch_count, open_split, shuffled
from regard.data.source_files import find_all
from regard.data.streams import Anywhere, Carried, Joined, Packed
from regard.data.tokens import Tokenizer
from regard.data.world import pairs
from regard.interface import UserError
from regard.loading import read_recipe
from regard.recipe import Recipe
from regard.train.encoding import Encoding, Sides

TINY = ["train.epochs=0", "train.steps=2", "train.validate_every=2", "train.precision=float32", "train.warmup=0"]
FEW = [(" ".join(pair.source), " ".join(pair.target)) for pair in islice(pairs("train"), 240)]
ENGLISH, FRENCH = [source for source, _ in FEW], [target for _, target in FEW]
ALONE = ["--processes", "1"]  # in this process, which has torch already
CUTS = ((0, 70), (70, 71), (71, 200))  # the lines of each file; the others are for validation


def write(path: Path, lines: list[str]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def in_parts(folder: Path, name: str, lines: list[str], head: str = "") -> None:
    """The lines in three files, and in one."""
    for number, (start, stop) in enumerate(CUTS):
        write(folder / "parts" / f"{number}.{name}", [*([head] if head else []), *lines[start:stop]])
    write(folder / f"all.{name}", [*([head] if head else []), *lines[:200]])
    write(folder / f"valid.{name}", [*([head] if head else []), *lines[200:]])


def recipe_of(folder: Path, name: str, *lines: str) -> Recipe:
    """A small recipe with these lines of [data], after the task."""
    task, *data = lines
    models = {
        "language": ("rnn_lm", "embedding = 8\nhidden = 8"),
        "translation": ("seq2seq", "embedding = 8\nhidden = 8"),
    }
    model, sizes = models.get(task, ("cnn", "embedding = 8"))
    path = folder / f"{name}.toml"
    body = "\n".join(
        [
            f'task = "{task}"',
            "[data]",
            *data,
            "[tokens]",
            "size = 400",
            "[model]",
            f'name = "{model}"',
            sizes,
            "[train]",
        ]
    )
    path.write_text(f"{body}\nbatch_tokens = 256\n")
    return read_recipe(path, TINY)[0]


def encoded(recipe: Recipe, out: Path, fields: Fields | None = None) -> tuple[Fields, dict[str, Sides], dict[str, int]]:
    encoding = Encoding(Folder(out), recipe.task.corpus(recipe))
    fields = fields or encoding.made_fields(None)
    sides, left_out = encoding.encoded(fields, known=False)
    return fields, sides, left_out


SPLIT = 'name = "text"\nhold_out = 0.2'
KINDS = {  # the file's ending, [data] for several files, for one file, and for both
    "lines": ("txt", 'train = "parts/*.txt"', 'train = "all.txt"', SPLIT),
    "packed": ("txt", 'train = "parts/*.txt"', 'train = "all.txt"', f"{SPLIT}\npack = true"),
    "one file": (
        "txt",
        'train = "parts/*.txt"',
        'train = "all.txt"',
        'name = "text"\nunit = "file"\nvalid = "valid.txt"',
    ),
    "parallel": (
        "en",
        'source = "parts/*.en"\ntarget = ["parts/0.fr", "parts/1.fr", "parts/2.fr"]',
        'source = "all.en"\ntarget = "all.fr"',
        'name = "parallel"\nhold_out = 0.2',
    ),
    "pairs": (
        "tsv",
        'train = "parts/*.tsv"',
        'train = "all.tsv"',
        'name = "table"\nsource = "1"\ntarget = "2"\nvalid = "valid.tsv"',
    ),
    "labels": (
        "tsv",
        'train = "parts/*.tsv"',
        'train = "all.tsv"',
        'name = "table"\nsource = "text"\ntarget = "label"\nhold_out = 0.2',
    ),
}


def recipes(folder: Path, kind: str) -> tuple[Recipe, Recipe]:
    """The recipe for several files, and for the same lines in one."""
    end, several, one, more = KINDS[kind]
    task = {"parallel": "translation", "pairs": "translation", "labels": "classification"}.get(kind, "language")
    if kind == "labels":
        in_parts(folder, end, [f"{line}\t{len(line) % 3}" for line in ENGLISH], head="text\tlabel")
    elif kind == "pairs":
        in_parts(folder, end, [f"{source}\t{target}" for source, target in FEW])
    else:
        in_parts(folder, end, ENGLISH)
        in_parts(folder, "fr", FRENCH)
    return recipe_of(folder, "several", task, several, more), recipe_of(folder, "one", task, one, more)


@pytest.mark.parametrize("kind", KINDS)
def test_several_files_are_the_same_lines_in_one(place: Path, kind: str) -> None:
    several, one = recipes(place, kind)
    fields, parts, left_out = encoded(several, place / "several")
    same = fields if kind == "one file" else None  # a vocabulary is learnt from its pieces, of which there are others
    others, whole, left_out_of_one = encoded(one, place / "one", same)
    assert fields.to_json() == others.to_json() and left_out == left_out_of_one
    for side in fields:
        assert isinstance(parts["train"][side], Shards) and len(parts["train"][side].parts) == len(CUTS)
        for split in ("train", "valid"):
            np.testing.assert_array_equal(parts[split][side].tokens[:], whole[split][side].tokens[:])
            if kind != "one file":
                np.testing.assert_array_equal(parts[split][side].offsets, whole[split][side].offsets)
    assert not isinstance(parts["valid"][next(iter(fields))], Shards)


def test_a_shard_is_its_file_encoded_alone(place: Path) -> None:
    several, _ = recipes(place, "lines")
    fields, parts, _ = encoded(several, place / "several")
    for number, part in enumerate(parts["train"]["target"].parts):
        alone = replace(several, data=replace(several.data, train=f"parts/{number}.txt"))  # type: ignore[type-var]
        if number == 1 and not len(part):
            continue  # its only line is held out
        held = Encoding(Folder(place / f"{number}"), alone.task.corpus(alone))
        assert held.count == 1
        held.data.mkdir(parents=True)
        left = [ids for ids in map(part.__getitem__, range(len(part)))]
        wanted = fields["target"].encode([text for (text,) in held.corpus.examples("train")])
        assert all(map(np.array_equal, left, wanted)) and len(left) == len(wanted)


def test_the_end_of_each_whole_file_is_held_out(place: Path) -> None:
    write(place / "a.txt", ["abcdefgh"] * 10)
    write(place / "b.txt", ["ijklmnop"] * 10)
    more = ['name = "text"', 'unit = "file"', "hold_out = 0.2"]
    recipe = recipe_of(place, "r", "language", 'train = ["a.txt", "b.txt"]', *more)
    corpus = recipe.task.corpus(recipe)
    train, valid = ("".join(text for (text,) in corpus.examples(split)) for split in ("train", "valid"))
    assert train == "abcdefgh\n" * 8 + "ijklmnop\n" * 8 and valid == "abcdefgh\n" * 2 + "ijklmnop\n" * 2


# --- reading ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def three(tmp_path: Path) -> tuple[Shards, Encoded]:
    """Sequences in three shards, one of them empty, and in one file."""
    choose = np.random.default_rng(3)
    every = [choose.integers(4, 50, size=size).tolist() for size in choose.integers(1, 30, size=150)]
    cuts = [every[:40], [], every[40:]]
    shards = Shards([on_disk(tmp_path, f"train-{number:05}.target", part) for number, part in enumerate(cuts)])
    return shards, on_disk(tmp_path, "train.target", every)


def test_shards_are_read_as_one_file(three: tuple[Shards, Encoded], tmp_path: Path) -> None:
    shards, one = three
    assert len(shards) == len(one) and len(shards.tokens) == len(one.tokens)
    np.testing.assert_array_equal(shards.offsets, one.offsets)
    np.testing.assert_array_equal(shards.lengths, one.lengths)
    assert all(np.array_equal(shards[index], one[index]) for index in range(len(one)))
    for wrong in (-1, len(one)):
        with pytest.raises(IndexError):
            shards[wrong]
    assert (shards.tokens.min(), shards.tokens.max()) == (one.tokens.min(), one.tokens.max())
    np.testing.assert_array_equal(np.bincount(shards.tokens), np.bincount(one.tokens))
    np.testing.assert_array_equal(open_split(tmp_path, "train", "target").tokens[:], one.tokens)


@given(st.lists(st.lists(st.integers(0, 9), max_size=5), min_size=1, max_size=4), st.data())
def test_a_chain_is_read_as_its_arrays_joined(arrays: list[list[int]], data: st.DataObject) -> None:
    chain = Chain([np.array(array, np.int32) for array in arrays])
    whole = np.concatenate([np.array(array, np.int32) for array in arrays])
    assert len(chain) == len(whole)
    place = st.integers(-25, 25) | st.none()
    some = slice(data.draw(place), data.draw(place))
    np.testing.assert_array_equal(chain[some], whole[some])
    if len(whole):
        places = np.array(data.draw(st.lists(st.integers(-len(whole), len(whole) - 1), max_size=8)), int)
        np.testing.assert_array_equal(chain[places], whole[places])
        np.testing.assert_array_equal(chain[places[None]], whole[places[None]])


def test_streams_of_shards_are_those_of_one_file(three: tuple[Shards, Encoded]) -> None:
    for shards, one in zip(*map(streams, three), strict=True):
        assert shards.count(1) == one.count(1) and shards.stats() == one.stats()
        for index in range(one.count(1)):
            mine, theirs = shards.get(1, index), one.get(1, index)
            for side in ("source", "target"):
                values = [vars(batch)[side] for batch in (mine, theirs) if vars(batch)[side] is not None]
                assert not values or np.array_equal(values[0].values, values[1].values)


def streams(texts: Encoded) -> Iterator[Any]:
    yield Carried(texts.tokens, rows=3, window=7, seed=1)
    yield Carried(Joined(texts), rows=3, window=7, seed=1)
    yield Anywhere(texts.tokens, rows=3, window=7, seed=1)
    yield Packed(texts, tokens=32, window=8, seed=1)
    yield Packed(texts, tokens=32, window=8, seed=1, ahead=True)


def batches_over(encoded: Encoded, seed: int = 5) -> Any:
    return shuffled(Examples(Fields({"target": LabelField(["x"])}), {"target": encoded}), tokens=64, seed=seed)


def test_every_example_occurs_once_in_an_epoch_and_a_batch_is_of_one_shard(three: tuple[Shards, Encoded]) -> None:
    batches = batches_over(three[0])
    assert isinstance(batches, ShuffledShards)
    for epoch in range(3):
        every = [batches.indices(epoch, index) for index in range(batches.count(epoch))]
        assert sorted(np.concatenate(every).tolist()) == list(range(150))
        assert all(len({index < 40 for index in batch.tolist()}) == 1 for batch in every)
    assert batches.stats().batches == batches.count(0) and 0 < batches.stats().real <= 1


def test_the_order_is_a_function_of_seed_epoch_and_index(three: tuple[Shards, Encoded]) -> None:
    def order(seed: int, epoch: int, backwards: bool = False) -> list[list[int]]:
        batches = batches_over(three[0], seed)
        places = range(batches.count(epoch))
        found = {index: batches.indices(epoch, index).tolist() for index in (reversed(places) if backwards else places)}
        return [found[index] for index in places]

    assert order(5, 1) == order(5, 1, backwards=True)
    assert len({str(order(seed, epoch)) for seed in (5, 6) for epoch in (0, 1)}) == 4
    firsts = {order(5, epoch)[0][0] < 40 for epoch in range(8)}
    assert firsts == {True, False}  # another shard is the first in another epoch


def test_a_single_file_keeps_its_order(three: tuple[Shards, Encoded]) -> None:
    _, one = three
    batches = batches_over(one)
    assert isinstance(batches, Shuffled)
    wanted = plan(one.lengths, one.lengths, tokens=64, seed=5, epoch=2)
    assert [batch.tolist() for batch in batches.plan(2)] == [batch.tolist() for batch in wanted]


@settings(max_examples=60)
@given(st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), max_size=60), st.integers(1, 300), st.booleans())
def test_batches_are_counted_without_making_them(lengths: list[tuple[int, int]], tokens: int, same: bool) -> None:
    source, target = (np.array([pair[side] for pair in lengths], int) for side in range(2))
    source = np.full_like(source, 9) if same else source
    made = plan(source, target, tokens=tokens, seed=1, epoch=0)
    assert batch_count(source, target, tokens=tokens) == len(made)


# --- tokens ----------------------------------------------------------------------------------------------------------

BYTE_PAIRS = Tokenizer.train("bpe", [*ENGLISH, *FRENCH, "don't 3.5 l'homme"], size=500)
WORDS = [
    "the",
    "cat",
    "don't",
    "l'",
    "homme",
    "3.5",
    "...",
    "!?",
    "é",
    "e\u0301",
    "日本語",
    "a" * 40,
    "İ",
    "\ufffd",
    "x",
]
SPACES = [" ", " ", " ", "\n", "\n", "  ", " \n", "\t", "\r\n", "\u00a0", "\u3000", "\u2028", "\x1c", "\x85", ""]
TEXTS = st.lists(st.sampled_from(WORDS) | st.sampled_from(SPACES) | st.text(max_size=3), max_size=20).map("".join)


@settings(max_examples=300)
@given(st.lists(TEXTS, max_size=4), st.booleans())
def test_pieces_that_are_known_give_the_same_ids_as_the_whole_text(texts: list[str], continued: bool) -> None:
    wanted = BYTE_PAIRS.encode_all(texts, continued=continued)
    for _ in range(2):  # at first none is known, then all are
        found = BYTE_PAIRS.arrays(texts, continued=continued)
        assert [ids.tolist() for ids in found] == wanted and all(ids.dtype == np.int32 for ids in found)


def test_pieces_are_forgotten_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokens, "MOST_KNOWN", 20)
    for line in ENGLISH:
        assert BYTE_PAIRS.arrays([line])[0].tolist() == BYTE_PAIRS.encode(line)
        assert isinstance(BYTE_PAIRS, tokens.BytePairs) and len(BYTE_PAIRS.known) < 20 + len(line.split()) + 1


# --- the command -----------------------------------------------------------------------------------------------------


@pytest.fixture
def corpus(place: Path) -> Path:
    """Eight files of text, and a recipe for them."""
    lines = ENGLISH * 10
    random.Random(1).shuffle(lines)
    for number in range(8):
        write(place / "corpus" / f"{number}.txt", lines[number * 300 : (number + 1) * 300])
    more = ['train = "corpus/*.txt"', 'name = "text"', "hold_out = 0.1"]
    recipe_of(place, "several", "language", *more)
    return place / "several.toml"


def arrays_in(run: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted((run / "data").glob("*.npy"))}


def changes(run: Path) -> dict[str, int]:
    """When each encoded file was written."""
    return {path.name: path.stat().st_mtime_ns for path in sorted((run / "data").glob("*-0*.npy"))}


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [*REGARD, *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=ENVIRONMENT)


def until(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    assert any(word in line for line in process.stdout), f"{word} was not printed"


def test_a_killed_encode_is_continued_with_what_is_missing(corpus: Path, call: Call) -> None:
    for file in Path("corpus").iterdir():
        file.write_text(file.read_text() * 10)
    assert call("encode", corpus, *TINY, *ALONE, "-o", "straight").code == 0
    with start("encode", corpus, *TINY, "-o", "killed", "--processes", 2) as process:
        until(process, "train-0000")
        process.kill()
    run = Path("killed")
    complete = {path.name for path in (run / "data").iterdir() if path.name.startswith("train-") and not path.suffix}
    before = changes(run)
    assert 0 < len(complete) < 8
    done = call("encode", corpus, *TINY, "-o", "killed", "--processes", 2)
    assert done.code == 0, done.err
    after = changes(run)
    kept = {name for name in before if name.partition(".")[0].replace("valid", "train") in complete}
    assert kept and all(after[name] == before[name] for name in kept)
    assert f"{len(complete)} shards of 8 are complete already" in done.out or len(complete) == 1
    assert arrays_in(run) == arrays_in(Path("straight"))
    assert not [path for path in (run / "data").iterdir() if path.name.startswith(".")]


@pytest.mark.skipif(not Path("/proc/self/task").is_dir(), reason="the children of a process are listed on Linux only")
def test_a_killed_child_is_reported_in_a_sentence(corpus: Path) -> None:
    with start("encode", corpus, *TINY, "-o", "run", "--processes", 2) as process:
        until(process, "train-0000")
        listed = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        for child in listed:
            os.kill(int(child), signal.SIGKILL)
        assert process.stdout is not None
        said = process.stdout.read()
    assert listed and process.returncode == 1
    assert "SIGKILL" in said and "run the same command again" in said and "Traceback" not in said


def test_another_process_in_the_same_folder_is_refused(corpus: Path, call: Call) -> None:
    with Folder("run").only_writer():
        done = call("encode", corpus, *TINY, "-o", "run")
    assert done.code == 1 and "Another process is training in run, or encoding its data" in done.err


def test_training_starts_from_the_shards(corpus: Path, call: Call) -> None:
    assert call("encode", corpus, *TINY, *ALONE, "-o", "apart").code == 0
    before, fields = changes(Path("apart")), Path("apart/fields.json").stat().st_mtime_ns
    for run in ("apart", "alone"):
        done = call("train", corpus, *TINY, "-o", run)
        assert done.code == 0, done.err
        assert "encoded again" not in done.out
    assert changes(Path("apart")) == before and Path("apart/fields.json").stat().st_mtime_ns == fields
    assert arrays_in(Path("apart")) == arrays_in(Path("alone"))
    assert Path("apart/model.safetensors").read_bytes() == Path("alone/model.safetensors").read_bytes()


def test_training_from_shards_is_resumed_exactly(corpus: Path, call: Call) -> None:
    longer = [*TINY, "train.steps=6", "train.validate_every=3"]
    assert call("train", corpus, *longer, "-o", "straight").code == 0
    assert call("train", corpus, *longer, "train.steps=3", "-o", "resumed").code == 0
    assert call("train", corpus, *longer, "-o", "resumed").code == 0
    assert Path("straight/model.safetensors").read_bytes() == Path("resumed/model.safetensors").read_bytes()


def test_one_file_is_encoded_as_training_does(place: Path, call: Call) -> None:
    write(place / "all.txt", ENGLISH)
    recipe_of(place, "one", "language", 'train = "all.txt"', 'name = "text"', "hold_out = 0.2")
    done = call("encode", "one.toml", *TINY, "-o", "apart")
    assert done.code == 0, done.err
    before = {path: path.stat().st_mtime_ns for path in Path("apart/data").glob("*.npy")}
    for run in ("apart", "alone"):
        assert call("train", "one.toml", *TINY, "-o", run).code == 0
    assert {path: path.stat().st_mtime_ns for path in Path("apart/data").glob("*.npy")} == before
    assert arrays_in(Path("apart")) == arrays_in(Path("alone"))
    assert Path("apart/model.safetensors").read_bytes() == Path("alone/model.safetensors").read_bytes()


def touched(file: Path) -> None:
    file.touch()


def reordered(file: Path) -> None:
    file.write_text("".join(reversed(file.read_text().splitlines(keepends=True))))


@pytest.mark.parametrize(("change", "again"), [(touched, 0), (reordered, 1)])
def test_what_has_changed_is_encoded_again(
    corpus: Path, call: Call, change: Callable[[Path], None], again: int
) -> None:
    assert call("encode", corpus, *TINY, "tokens.kind=characters", *ALONE, "-o", "run").code == 0
    before = changes(Path("run"))
    change(Path("corpus/3.txt"))
    assert call("encode", corpus, *TINY, "tokens.kind=characters", *ALONE, "-o", "run").code == 0
    after = changes(Path("run"))
    assert {name.partition(".")[0][-1] for name in after if after[name] != before[name]} == set("3" * again)


def test_training_on_other_data_than_was_encoded_says_so(corpus: Path, call: Call) -> None:
    assert call("encode", corpus, *TINY, *ALONE, "-o", "run").code == 0
    reordered(Path("corpus/3.txt"))
    done = call("train", corpus, *TINY, "-o", "run")
    assert done.code == 0 and "encoded again" in done.out
    refused = Path("corpus/5.txt")
    reordered(refused)
    for verb in ("train", "encode"):
        done = call(verb, corpus, *TINY, "train.steps=4", "-o", "run")
        assert done.code == 1 and str(refused) in done.err and "has changed since" in done.err


def test_a_copied_run_needs_no_encoding(corpus: Path, call: Call) -> None:
    assert call("train", corpus, *TINY, "-o", "run").code == 0
    shutil.copytree("run", "copy", copy_function=shutil.copyfile)
    before = changes(Path("copy"))
    assert call("train", corpus, *TINY, "train.steps=4", "-o", "copy").code == 0
    assert changes(Path("copy")) == before
    tokens = Path("copy/data/train-00002.target.tokens.npy")
    content = bytearray(tokens.read_bytes())
    content[-1] ^= 1
    tokens.write_bytes(content)  # a damaged one is written again
    assert call("train", corpus, *TINY, "train.steps=6", "-o", "copy").code == 0
    assert arrays_in(Path("copy")) == arrays_in(Path("run"))


def test_shards_of_other_data_are_removed(corpus: Path, call: Call) -> None:
    assert call("encode", corpus, *TINY, *ALONE, "-o", "run").code == 0
    assert call("encode", corpus, *TINY, "data.train=corpus/[01].txt", *ALONE, "-o", "run").code == 0
    assert {name[6:11] for name in changes(Path("run"))} == {"00000", "00001"}
    assert call("encode", corpus, *TINY, "data.train=corpus/1.txt", "-o", "run").code == 0
    assert changes(Path("run")) == {}


# --- the files of a recipe -------------------------------------------------------------------------------------------

WRONG = {
    'data.train="nothing/*.txt"': ("nothing/*.txt", "matches no file"),
    'data.train=["all.txt","missing.txt"]': ("missing.txt", "was not found"),
    'data.train=["all.txt","all.csv"]': ("several formats", "all.csv is CSV"),
    "data.train=[]": ("data.train", "at least one"),
    'data.train=["parts/0.txt","broken.txt"]': ("broken.txt, line 2", "UTF-8"),
}


@pytest.mark.parametrize("setting", WRONG)
def test_files_that_cannot_be_read_are_one_sentence(place: Path, call: Call, setting: str) -> None:
    recipes(place, "lines")
    write(place / "all.csv", ["a,b"])
    (place / "broken.txt").write_bytes(b"fine\nnot \xff\n")
    for verb in ("train", "encode"):
        done = call(verb, "several.toml", *TINY, setting, "-o", "run")
        assert done.code == 1 and all(part in done.err for part in WRONG[setting]), done.err
        assert len(done.err.strip().splitlines()) == 1


def test_parallel_files_are_as_many_on_both_sides(place: Path, call: Call) -> None:
    recipes(place, "parallel")
    done = call("train", "several.toml", *TINY, 'data.target=["parts/0.fr","parts/1.fr"]')
    assert done.code == 1 and "3 files" in done.err and "2" in done.err and "paired" in done.err


def test_a_file_with_the_name_of_a_pattern_is_itself(place: Path) -> None:
    for name in ("a[1].txt", "a1.txt", "b.txt"):
        write(place / name, ["x"])
    assert [path.name for path in find_all("train", "a[1].txt", place)] == ["a[1].txt"]
    assert [path.name for path in find_all("train", "*.txt", place)] == ["a1.txt", "a[1].txt", "b.txt"]
    assert [path.name for path in find_all("train", ("b.txt", "a1*"), place)] == ["b.txt", "a1.txt"]
    with pytest.raises(UserError, match="matches no file"):
        find_all("train", "c[1].txt", place)


def test_patterns_are_found_below_the_folder_of_data(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write(place / "data" / "corpus" / "a.txt", ["x"])
    monkeypatch.setenv("REGARD_DATA", str(place / "data"))
    assert [path.name for path in find_all("train", "corpus/*.txt", place)] == ["a.txt"]


NEW = {  # what follows `regard new language`, and what the recipe names
    "parts/0.txt parts/1.txt parts/2.txt": "parts/*.txt",
    "parts/*.txt": "parts/*.txt",
    "parts/0.txt parts/2.txt": ("parts/0.txt", "parts/2.txt"),
    "all.txt parts/1.txt": ("all.txt", "parts/1.txt"),
    "all.txt": "all.txt",
}


@pytest.mark.parametrize("files", NEW)
def test_new_writes_the_files_that_it_was_given(place: Path, call: Call, files: str) -> None:
    recipes(place, "lines")
    done = call("new", "language", *files.split(), "-o", "new.toml")
    assert done.code == 0, done.err
    data: Any = read_recipe(place / "new.toml")[0].data
    assert data.train == NEW[files]
    (place / "below").mkdir()
    assert call("new", "language", *files.split(), "-o", "below/new.toml").code == 0
    below, here = read_recipe(place / "below" / "new.toml")[0], read_recipe(place / "new.toml")[0]
    assert list(below.data.files(below.folder).values()) == list(here.data.files(here.folder).values())


def test_check_names_the_file_of_a_line(place: Path, call: Call) -> None:
    recipes(place, "parallel")
    for side in ("en", "fr"):
        lines = (place / "parts" / f"2.{side}").read_text().splitlines()
        write(place / "parts" / f"2.{side}", [*lines[:4], "bad\u0000line" if side == "en" else "x", *lines[4:]])
    done = call("check", "several.toml", *TINY)
    assert "2.en: 5" in done.out + done.err, done.out + done.err


def test_a_vocabulary_is_learnt_from_the_first_lines_of_each_file(place: Path) -> None:
    for number, word in enumerate(("one", "two")):
        write(place / "parts" / f"{number}.txt", [f"{word} {number} {line}" for line in range(60_000)])
    more = ['train = "parts/*.txt"', 'name = "text"', "hold_out = 0.01"]
    recipe = recipe_of(place, "r", "language", *more)
    few, every = (
        [text for (text,) in corpus.sample()]
        for corpus in (
            recipe.task.corpus(replace(recipe, tokens=replace(recipe.tokens, sample=size))) for size in (1, 0)
        )
    )
    assert 990_000 < sum(map(len, few)) < 1_010_000 and {text.split()[0] for text in few} == {"one", "two"}
    assert len(every) > len(few) and set(few) < set(every)


def test_the_record_of_a_run_is_not_believed_where_it_is_wrong(corpus: Path, call: Call) -> None:
    assert call("encode", corpus, *TINY, *ALONE, "-o", "run").code == 0
    record = Path("run/data/encoding.json")
    right = arrays_in(Path("run"))
    for wrong in ("", "[]", "{}", json.dumps({**json.loads(record.read_text()), "sources": {"x": 1}})):
        record.write_text(wrong)
        shard = Path("run/data/train-00001")
        shard.write_text(wrong)
        assert call("encode", corpus, *TINY, *ALONE, "-o", "run").code == 0
        assert arrays_in(Path("run")) == right

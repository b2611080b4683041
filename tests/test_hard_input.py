"""Hard input: one line out for every line in, whatever stands in it; one sentence, never a traceback, for the rest."""

from __future__ import annotations

import contextlib
import faulthandler
import gzip
import json
import math
import os
import shlex
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple, Union, get_args, get_origin

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import regard
from regard import cli
from regard.checkpoint import Folder
from regard.config import Names, fields_of, to_toml
from regard.data.tensors import read_tensors, write_tensors
from regard.data.text import one_line
from regard.interface import EOS, UNK
from regard.loading import read_recipe
from regard.models import MODELS
from regard.predict.decoding import Decoding, Prediction
from regard.tasks.registry import TASKS
from regard.train.training import TrainConfig

REGARD = [sys.executable, "-m", "regard"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
ENOUGH = 300  # seconds after which a command hangs
TERMINAL = [2]  # where to say so: the standard error that pytest was started with

KINDS = ("words", "characters", "bpe")
SIZES = {
    "rnnsearch": "embedding = 5\nhidden = 7",
    "seq2seq": "embedding = 5\nhidden = 7\nlayers = 1",
    "transformer": "dim = 6\nheads = 2\nfeed_forward = 11\nlayers = 1",
}
RUNS = [f"{model}-{kind}" for model, kind in product(SIZES, KINDS)]
TEXT = ["the cat sleeps .", "l'été\r, « un » chien !", "a dog\u2028sees\x0b the cat.", "👩‍👩‍👧 שלום\u0301 日本"]

RECIPE = """
task = "translation"
seed = 3
[data]
name = "parallel"
source = "text.source"
target = "text.target"
hold_out = 0.3
[tokens]
kind = "{kind}"
size = 300
[model]
name = "{model}"
{sizes}
[train]
steps = 11
batch_tokens = 128
warmup = 1
learning_rate = 0.03
precision = "float32"
"""


class Result(NamedTuple):
    code: int
    out: str
    err: str


def call(*arguments: object, stdin: bytes = b"") -> Result:
    """A command as `main` runs it, in this process, which has torch already; one that hangs ends the tests."""
    with contextlib.ExitStack() as stack:
        files = [
            stack.enter_context(tempfile.TemporaryFile("w+", encoding="utf-8", newline="", errors=errors))
            for errors in ("strict", "strict", "backslashreplace")  # as Python opens its own three
        ]
        files[0].buffer.write(stdin)
        files[0].seek(0)
        kept = sys.argv, sys.stdin, sys.stdout, sys.stderr
        sys.argv = ["regard", *map(str, arguments)]
        sys.stdin, sys.stdout, sys.stderr = files
        faulthandler.dump_traceback_later(ENOUGH, exit=True, file=TERMINAL[0])
        try:
            with pytest.raises(SystemExit) as ended:
                cli.main()
        finally:
            faulthandler.cancel_dump_traceback_later()
            sys.argv, sys.stdin, sys.stdout, sys.stderr = kept
        said = []
        for file in files[1:]:
            file.seek(0)
            said.append(file.read())
    return Result(int(ended.value.code or 0), *said)


def process(*arguments: object, stdin: bytes = b"") -> Result:
    """The same in a process of its own."""
    command = [*REGARD, *map(str, arguments)]
    done = subprocess.run(command, input=stdin, capture_output=True, env=ENVIRONMENT, timeout=ENOUGH)
    return Result(done.returncode, done.stdout.decode(), done.stderr.decode())


def assert_refused(result: Result, *words: str) -> None:
    """Exit code 1 and, after what there may be to remark, one sentence."""
    assert result.code == 1, result
    *remarks, last = result.err.splitlines()
    assert last.startswith("regard: ") and last.endswith(".")
    assert not any(line.startswith("regard: ") for line in remarks)
    assert "an unexpected" not in last and "Traceback" not in result.err
    for word in words:
        assert word in last


@pytest.fixture(scope="module", autouse=True)
def terminal(request: pytest.FixtureRequest) -> Iterator[None]:
    """Where a command that hangs is told of."""
    with request.config.pluginmanager.getplugin("capturemanager").global_and_fixture_disabled():
        TERMINAL[0] = os.dup(2)
    yield
    os.close(TERMINAL[0])


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Every model with every kind of token, trained for a moment."""
    folder = tmp_path_factory.mktemp("kitchen")
    some = [f"{line} {number}" for number in range(13) for line in TEXT]
    (folder / "text.source").write_bytes("".join(f"{line}\n" for line in some).encode())
    (folder / "text.target").write_bytes("".join(f"{line.upper()}\n" for line in some).encode())
    for model, kind in product(SIZES, KINDS):
        recipe = folder / f"{model}-{kind}.toml"
        recipe.write_text(RECIPE.format(model=model, kind=kind, sizes=SIZES[model]))
        trained = call("train", recipe, "-o", folder / recipe.stem)
        assert trained.code == 0, trained
    return folder


# One line in, one line out

HARD = [
    "the cat sleeps .",
    "",
    "   ",
    "\t",
    "👩‍👩‍👧‍👦 🇩🇪🇫🇷 👍🏽 ❤️",
    "the \0 cat \0",
    "\0",
    "\x1b[31mthe cat\x1b[0m",
    "the\x0bcat\x0csleeps\x1c\x1d\x1e\x1f.",
    "\x0b",
    "\x85",
    "the\x85cat",
    "the\u2028cat\u2029sleeps",
    "\u2028",
    "\ufeffthe cat",
    "<eos>",
    "<pad> <bos> <eos> <unk>",
    "the <eos> cat",
    "the\rcat",
    "\rthe cat",
    "e\u0301\u0301\u0301\u0316 q\u0303\u0323",
    "\u0301the cat",
    "שלום \u202eעולם\u202c مرحبا",
    "\u0378 \U000e0fff \uffff \U0010ffff",
    "a dog\u2028sees\x0b the cat.",
    "日本語のテキスト。",
    "ﷺ ﬃ Å ᄀ\u1161\u11a8",
    "cat " * 50,
    "the cat sleeps .",
]


def lines_of(text: str) -> list[str]:
    """As every tool counts them: `wc -l` and `paste` by "\\n", Python by a good deal more."""
    assert text == "" or text.endswith("\n")
    lines = text.split("\n")[:-1]
    assert text.splitlines() == lines
    return lines


BRIEF, SHORT = ["--min-length", "3", "--max-length", "7"], Decoding(beam=5, min_length=3, max_length=7)
every_run = pytest.mark.parametrize("name", RUNS)


@every_run
def test_a_file_standard_input_and_the_library_give_the_same_lines(kitchen, tmp_path, name):
    (tmp_path / "text").write_bytes("\n".join(HARD).encode())
    from_file = call("predict", kitchen / name, tmp_path / "text", *BRIEF)
    from_stdin = call("predict", kitchen / name, *BRIEF, stdin="\r\n".join(HARD).encode() + b"\r\n")
    assert (from_file.code, from_file.err) == (0, "")
    assert from_file == from_stdin
    predicted = regard.load(kitchen / name).predict(HARD, SHORT)
    assert lines_of(from_file.out) == [one_line(prediction.text) for prediction in predicted]
    for line, prediction in zip(HARD, predicted, strict=True):
        assert bool(line.strip()) or prediction == Prediction("", 0.0, ())
    as_json = call("predict", kitchen / name, tmp_path / "text", *BRIEF, "--json")
    entries = [json.loads(line) for line in lines_of(as_json.out)]
    assert [entry["line"] for entry in entries] == list(range(1, len(HARD) + 1))
    assert [(entry["text"], entry["cut"]) for entry in entries] == [(p.text, False) for p in predicted]


@every_run
def test_a_line_does_not_depend_on_the_lines_around_it(kitchen, name):
    run = regard.load(kitchen / name)
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in run.model.parameters():
            parameter.normal_(generator=random)  # strong opinions, so that different lines read differently
    together = run.predict(HARD, SHORT)
    for others in ([run.predict([line], SHORT)[0] for line in HARD], run.predict(HARD[::-1], SHORT)[::-1]):
        assert [prediction.text for prediction in others] == [prediction.text for prediction in together]
        assert [prediction.score for prediction in others] == pytest.approx([p.score for p in together], abs=1e-3)
    assert len({round(prediction.score, 2) for prediction in together}) > 9


@every_run
def test_lines_that_are_too_long_are_cut_and_named(kitchen, tmp_path, name):
    long = ["the cat", "cat " * 5000, "x" * 1_000_000, " " * 200_000 + "cat", "e" + "\u0301\u0316" * 500_000]
    (tmp_path / "text").write_text("\n".join(long))
    result = call("predict", kitchen / name, tmp_path / "text", "--max-length", 3, "--json")
    assert result.code == 0
    entries = [json.loads(line) for line in lines_of(result.out)]
    assert [entry["cut"] for entry in entries] == [False, True, True, True, True]
    assert [line.partition(":")[0] for line in lines_of(result.err)] == [f"Line {n} is too long" for n in (2, 3, 4, 5)]
    assert "at most 1000 tokens" in result.err
    alone = regard.load(kitchen / name).predict(long[:1], Decoding(beam=5, max_length=3))
    assert entries[0]["text"] == alone[0].text


def test_a_special_token_that_is_typed_is_text(kitchen):
    for kind in KINDS:
        source = regard.load(kitchen / f"rnnsearch-{kind}").tokenizer("source")
        for special in ("<pad>", "<bos>", "<eos>"):
            ids = source.encode(special)
            assert len(ids) > 1 and all(token >= UNK for token in ids)


@pytest.mark.parametrize(
    ("content", "count"),
    [
        (b"", 0),
        (b"\n", 1),
        (b"\n\n\n", 3),
        (b"a", 1),
        (b"a\n", 1),
        (b"a\n\n", 2),
        (b"\r\n", 1),
        (b"\r", 1),
        (b"\xef\xbb\xbf", 1),
    ],
)
def test_as_many_lines_as_line_ends_and_what_follows_the_last(kitchen, tmp_path, content, count):
    (tmp_path / "text").write_bytes(content)
    from_file = call("predict", kitchen / "seq2seq-words", tmp_path / "text", "--max-length", 2)
    assert (from_file.code, len(lines_of(from_file.out)), from_file.err) == (0, count, "")
    assert call("predict", kitchen / "seq2seq-words", "--max-length", 2, stdin=content) == from_file


def writer(run: Path, copy: Path, text: str) -> Path:
    """A copy of a run that writes this token and nothing else, and never ends."""
    shutil.copytree(run, copy)
    tokenizer = regard.load(run).tokenizer("target")
    (token,) = [token for token in range(tokenizer.offset, tokenizer.size) if tokenizer.decode([token]) == text]
    tensors, facts = read_tensors(Folder(copy).best)
    tensors["decoder.head.bias"][token] = 1000.0
    tensors["decoder.head.bias"][EOS] = -math.inf
    write_tensors(Folder(copy).best, tensors, facts)
    return copy


@pytest.mark.parametrize(
    ("name", "end", "escaped"),
    [
        ("transformer-bpe", "\n", r"\n"),
        ("seq2seq-bpe", "\r", r"\r"),
        ("rnnsearch-characters", "\r", r"\r"),
        ("transformer-characters", "\u2028", r"\u2028"),
        ("seq2seq-characters", "\x0b", r"\u000b"),
        ("rnnsearch-words", "\u2028", r"\u2028"),
        ("rnnsearch-bpe", "\t", "\t"),
    ],
)
def test_line_ends_in_an_output_are_escaped(kitchen, tmp_path, name, end, escaped):
    run = writer(kitchen / name, tmp_path / "run", end)
    options = ["predict", run, "--max-length", 3]
    assert call(*options, stdin=b"the cat\n\nthe dog\n").out == f"{escaped * 3}\n\n{escaped * 3}\n"
    (entry,) = map(json.loads, lines_of(call(*options, "--json", stdin=b"the cat\n").out))
    assert entry["text"] == end * 3
    ranked = lines_of(call(*options, "--beam", 2, "--n-best", 2, stdin=b"the cat\n").out)
    assert [line.split("\t")[:2] for line in ranked] == [["1", "1"], ["1", "2"]]
    assert all(line.count("\t") == 3 for line in ranked)
    seen = call("look", run, "the cat", "--json").out
    assert len(lines_of(seen)) == 1 and json.loads(seen)["target"]
    call("predict", run, "--max-length", 3, "-o", tmp_path / "out", stdin=b"the cat\n" * 5)
    assert (tmp_path / "out").read_bytes().count(b"\n") == len((tmp_path / "out").read_text().splitlines()) == 5


def test_bytes_that_are_not_utf8_are_named_and_nothing_is_written(kitchen, tmp_path):
    content = b"the cat\n\nthe \xe9t\xe9\nthe dog\n"
    (tmp_path / "text").write_bytes(content)
    (tmp_path / "out").write_text("before")
    for arguments, stdin in (([tmp_path / "text"], b""), ([], content)):
        refused = call("predict", kitchen / "rnnsearch-bpe", *arguments, "-o", tmp_path / "out", stdin=stdin)
        assert_refused(refused, "line 3", "byte 5 (0xe9)", "--errors replace")
        assert (tmp_path / "out").read_text() == "before"
    assert {path.name for path in tmp_path.iterdir()} == {"text", "out"}
    replaced = call("predict", kitchen / "rnnsearch-bpe", tmp_path / "text", "--errors", "replace")
    assert (replaced.code, replaced.err) == (0, "")
    (tmp_path / "text").write_text(content.decode("utf-8", "replace"))
    assert call("predict", kitchen / "rnnsearch-bpe", tmp_path / "text") == replaced
    assert len(lines_of(replaced.out)) == 4


# Where a model ends

POSITIONS = 11


@pytest.fixture(scope="module")
def short(kitchen: Path) -> Path:
    """A model with few positions, which never ends a sentence of its own accord."""
    places = ["model.positions=learned", f"model.longest={POSITIONS}", "tokens.longest=9"]
    recipe = kitchen / "transformer-words.toml"
    trained = call("train", recipe, *places, "-o", kitchen / "short")
    assert trained.code == 0, trained  # its validation writes more than there is room for
    tensors, facts = read_tensors(Folder(kitchen / "short").best)
    tensors["decoder.head.bias"][EOS] = -1000.0
    write_tensors(Folder(kitchen / "short").best, tensors, facts)
    return kitchen / "short"


@pytest.mark.parametrize(
    "how", [Decoding(), Decoding(beam=3), Decoding(sample=True, n_best=2), Decoding(max_length=99)]
)
def test_learned_positions_end_an_output_and_cut_a_source(short, how):
    run = regard.load(short)
    assert run.model.longest == POSITIONS
    fits, cut = " ".join(["cat"] * 9), " ".join(["cat"] * 10)
    together = run.predict([fits, cut, "the", ""], how)
    assert [len(prediction.tokens) for prediction in together] == [POSITIONS] * 3 + [0]
    assert [prediction.cut for prediction in together] == [False, True, False, False]
    assert together[0].text == together[1].text or how.sample


def test_the_warning_names_what_the_model_has_room_for(short):
    result = call("predict", short, stdin=b"the cat\n" + b"cat " * 5000)
    assert (result.code, len(lines_of(result.out))) == (0, 2)
    assert result.err == "Line 2 is too long: only its beginning was read, at most 9 tokens.\n"
    assert_refused(call("look", short, "cat " * 5000), "tokens", "at most 9")
    assert_refused(call("look", short, "cat", "--target", "cat " * 10), "translation", "at most 9")


# Real processes


def test_standard_input_of_a_real_process(kitchen):
    content = "\n".join(HARD).encode()
    result = process("predict", kitchen / "transformer-bpe", *BRIEF, stdin=content)
    assert result == call("predict", kitchen / "transformer-bpe", *BRIEF, stdin=content)


def test_the_reader_of_a_pipe_may_leave(kitchen, tmp_path):
    (tmp_path / "text").write_text("the cat .\n" * 3000)
    command = shlex.join([*REGARD, "predict", str(kitchen / "seq2seq-words"), str(tmp_path / "text")])
    piped = ["bash", "-o", "pipefail", "-c", f"{command} --max-length 3 | head -1"]
    done = subprocess.run(piped, capture_output=True, env=ENVIRONMENT, timeout=ENOUGH)
    assert (done.returncode, done.stdout.count(b"\n"), done.stderr) == (128 + signal.SIGPIPE, 1, b"")


def test_an_interrupted_prediction_says_so_in_a_word(kitchen, tmp_path):
    (tmp_path / "text").write_text("the cat .\n" * 200_000)
    command = [*REGARD, "predict", str(kitchen / "rnnsearch-bpe"), str(tmp_path / "text")]
    with subprocess.Popen(command, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as child:
        assert child.stdout is not None and child.stderr is not None
        child.stdout.readline()
        child.send_signal(signal.SIGINT)
        child.stdout.read()
        assert child.stderr.read().split() == [b"Interrupted."]
    assert child.returncode == 130


# What cannot be done

REFUSED: dict[str, tuple[list[str], list[str]]] = {
    "no run": (["{tmp}/nowhere"], ["nowhere does not exist"]),
    "an empty run": (["{tmp}/empty"], ["is not a run"]),
    "a file as a run": (["{tmp}/text"], ["is not a run"]),
    "a run without a model": (["{tmp}/half"], ["has no model yet", "resume it"]),
    "a run without words": (["{tmp}/wordless"], ["fields.json"]),
    # before anything is read
    "a folder as output": (["{run}", "{tmp}/torn.gz", "-o", "{tmp}/empty"], ["empty", "folder"]),
    "output in no folder": (["{run}", "{tmp}/torn.gz", "-o", "{tmp}/nowhere/out"], ["nowhere/out"]),
    "output below a file": (["{run}", "{tmp}/torn.gz", "-o", "{tmp}/text/out"], ["text/out"]),
    "output where nobody may write": (["{run}", "{tmp}/torn.gz", "-o", "/proc/out"], ["/proc/out"]),
    "a folder as input": (["{run}", "{tmp}/empty"], ["is not a run"]),
    "no input": (["{run}", "{tmp}/nowhere"], ["nowhere does not exist"]),
    "UTF-16": (["{run}", "{tmp}/utf-16"], ["UTF-16", "iconv"]),
    "a torn gzip file": (["{run}", "{tmp}/torn.gz"], ["damaged gzip"]),
    "a beam too wide": (["{run}", "--beam", "1001"], ["--beam 1001", "at most 1000"]),
    "an endless length": (["{run}", "--max-length", "9" * 30], ["--max-length 999"]),
    "an endless temperature": (["{run}", "--sample", "--temperature", "inf"], ["--temperature inf", "finite"]),
    "no length penalty": (["{run}", "--length-penalty", "nan"], ["--length-penalty nan"]),
    "a steep length penalty": (["{run}", "--length-penalty", "1e300"], ["--length-penalty 1e+300"]),
    "no threads": (["{run}", "--threads", "-1"], ["threads = -1"]),
    "too many threads": (["{run}", "--threads", "1000000000"], ["threads = 1000000000"]),
}


@pytest.mark.parametrize("what", REFUSED)
def test_what_cannot_be_done_is_told_in_one_sentence(kitchen, tmp_path, what):
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("the cat\n")
    (tmp_path / "utf-16").write_bytes("the cat\n".encode("utf-16"))
    (tmp_path / "torn.gz").write_bytes(gzip.compress(b"the cat\n" * 99)[:-9])
    shutil.copytree(kitchen / "seq2seq-words", tmp_path / "half")
    Folder(tmp_path / "half").best.unlink()
    shutil.copytree(kitchen / "seq2seq-words", tmp_path / "wordless")
    Folder(tmp_path / "wordless").fields.unlink()
    arguments, words = REFUSED[what]
    filled = [argument.format(tmp=tmp_path, run=kitchen / "seq2seq-words") for argument in arguments]
    refused = call("predict", *filled, stdin=b"the cat\n")
    assert refused.out == ""
    assert_refused(refused, *words)
    assert (tmp_path / "text").read_text() == "the cat\n"


NEVER = {
    "model.hidden=-1": "hidden = -1 must be at least 1",
    "model.embedding=0": "embedding = 0 must be at least 1",
    "model.hidden=9223372036854775808": "below 2⁶³",
    "model.layers=0": "layers = 0 must be at least 1",
    "model.heads=0": "heads = 0 must be at least 1",
    "model.dropout=1.5": "dropout = 1.5 must be at least 0 and below 1",
    "model.label_smoothing=nan": "label_smoothing = nan",
    "tokens.size=-1": "size = -1",
    "tokens.size=1000000000": "at most 10000000",
    "tokens.at_least=-3": "at_least = -3 must be above 0",
    "tokens.longest=0": "longest = 0 must be above 0",
    "train.learning_rate=nan": "learning_rate = nan must be above 0 and finite",
    "train.learning_rate=inf": "learning_rate = inf must be above 0 and finite",
    "train.weight_decay=-0.1": "weight_decay = -0.1 must be 0 or more",
    "train.clip=inf": "clip = inf must be 0 or more and finite",
    "train.batch_tokens=0": "batch_tokens = 0 must be above 0",
    f"train.batch_tokens=0x{'f' * 5000}": "train.batch_tokens = … must be a number below 2⁶³",
    "train.learning_rate=1e300": "not finite",
    "model.name=[1]": "does not exist",
    "model.preset={a=1}": "allowed are none",
    f"train.schedule={'x' * 10_000}": "xxx…",
}


@pytest.mark.parametrize("setting", NEVER, ids=lambda setting: setting[:30])
def test_what_can_never_be_right_is_refused(kitchen, tmp_path, setting):
    refused = call("train", kitchen / "rnnsearch-words.toml", setting, "-o", tmp_path / "run")
    assert_refused(refused, NEVER[setting])
    assert len(refused.err) < 1000
    assert not Folder(tmp_path / "run").best.exists()


def test_a_precision_that_the_processor_lacks_is_a_sentence(kitchen, tmp_path):
    result = call("train", kitchen / "rnnsearch-words.toml", "train.precision=bfloat16", "-o", tmp_path / "run")
    if not assert_told(result):
        assert_refused(result, "bfloat16", "float32")


def test_a_model_of_no_numbers_is_never_the_best(kitchen, tmp_path):
    shutil.copy(kitchen / "text.source", tmp_path)
    shutil.copy(kitchen / "text.target", tmp_path)
    for side in ("source", "target"):
        (tmp_path / f"valid.{side}").write_text("\n\n\nthe cat\n")  # what is translated while it trains is empty
    recipe = (kitchen / "seq2seq-words.toml").read_text()
    valid = 'valid_source = "valid.source"\nvalid_target = "valid.target"'
    (tmp_path / "recipe.toml").write_text(recipe.replace("hold_out = 0.3", valid))
    settings = ["train.learning_rate=1e300", "train.steps=1"]
    refused = call("train", tmp_path / "recipe.toml", *settings, "-o", tmp_path / "run")
    assert_refused(refused, "validation loss was not finite", "train.learning_rate")
    assert not Folder(tmp_path / "run").best.exists()


def test_the_built_in_corpus_has_no_endless_sentences(tmp_path):
    (tmp_path / "recipe.toml").write_text(f'task = "translation"\n[data]\n{WORLD}\n[model]\nname = "seq2seq"\n')
    settings = ["data.longest=1000000000", "train.steps=1"]
    assert_refused(
        call("train", tmp_path / "recipe.toml", *settings, "-o", tmp_path / "run"), "longest", "at most 1000"
    )


def test_half_a_surrogate_pair_is_no_text(kitchen, tmp_path):
    row = r'{"1": "the \ud800 cat \udfff", "2": "\ud800"}'
    (tmp_path / "text.jsonl").write_text(f"{row}\n" * 9)
    table = ["data.name=table", "data.train=text.jsonl", 'data.source="1"', 'data.target="2"', "data.valid=text.jsonl"]
    recipe = (kitchen / "seq2seq-words.toml").read_text()
    (tmp_path / "recipe.toml").write_text(recipe[: recipe.index("[data]")] + recipe[recipe.index("[tokens]") :])
    trained = call("train", tmp_path / "recipe.toml", *table, "-o", tmp_path / "run")
    assert trained.code == 0, trained
    assert "the \ufffd cat \ufffd" in Folder(tmp_path / "run").samples.read_text()
    assert call("look", tmp_path / "run", "the \ud800", "--json").code == 0


def test_a_hundred_thousand_marks_on_one_letter_are_read_in_time(kitchen, tmp_path):
    for side in ("source", "target"):
        shutil.copy(kitchen / f"text.{side}", tmp_path)
        with (tmp_path / f"text.{side}").open("a") as file:
            file.write("e" + "\u0301\u0316" * 150_000 + "\n")  # in quadratic time, some minutes
    shutil.copy(kitchen / "seq2seq-words.toml", tmp_path)
    assert call("train", tmp_path / "seq2seq-words.toml", "-o", tmp_path / "run").code == 0


def test_a_folder_whose_name_is_not_utf8(kitchen, tmp_path):
    odd = tmp_path / os.fsdecode(b"\xff")
    shutil.copytree(kitchen / "seq2seq-words", odd / "run")
    assert_refused(call("predict", odd / "run", stdin=b"the cat\n"), "UTF-8")
    for name in ("seq2seq-words.toml", "text.source", "text.target"):
        shutil.copy(kitchen / name, odd)
    assert_refused(call("train", odd / "seq2seq-words.toml", "-o", tmp_path / "new"), "not UTF-8", "rename")
    assert call("train", kitchen / "seq2seq-words.toml", "-o", odd / "new").code == 0


@pytest.mark.parametrize(
    "arguments", [["predict"], ["predict", "--nope"], ["frobnicate"], ["predict", "x", "--beam", "wide"]]
)
def test_a_wrong_command_shows_the_right_ones(arguments):
    result = call(*arguments)
    assert (result.code, result.out) == (2, "")
    assert "Usage:" in result.err and "unexpected" not in result.err


def test_weights_that_are_not_numbers_are_a_sentence(kitchen, tmp_path):
    run = tmp_path / "run"
    shutil.copytree(kitchen / "rnnsearch-words", run)
    tensors, facts = read_tensors(Folder(run).best)
    tensors["decoder.head.bias"][:] = math.nan
    write_tensors(Folder(run).best, tensors, facts)
    for options in ([], ["--beam", 2], ["--sample"]):
        assert_refused(call("predict", run, *options, stdin=b"the cat\n"), "not numbers", "train")


def test_nothing_to_score_is_a_sentence(kitchen, tmp_path):
    empty = tmp_path / "empty"
    empty.touch()
    assert_refused(call("score", "--target", empty, "--system", empty, empty), "is empty")
    assert_refused(call("score", kitchen / "seq2seq-words", "--target", empty, "--source", empty), "is empty")


def test_what_an_output_may_be_besides_a_file(kitchen, tmp_path):
    (tmp_path / "link").symlink_to(tmp_path / "out")
    written = call("predict", kitchen / "seq2seq-words", "-o", tmp_path / "link", stdin=b"the cat\n")
    assert (written.code, written.out) == (0, "")
    assert (tmp_path / "link").is_symlink() and (tmp_path / "out").read_text().count("\n") == 1
    assert call("predict", kitchen / "seq2seq-words", "-o", os.devnull, stdin=b"the cat\n") == Result(0, "", "")
    assert Path(os.devnull).is_char_device()


# Generated: 500 inputs a command

generated = settings(
    max_examples=500, derandomize=True, database=None, deadline=None, suppress_health_check=list(HealthCheck)
)

PLAIN = [
    b"the cat",
    b"the cat sleeps .",
    b"a dog",
    "l'été".encode(),
    b"un chien dort",
    b"oui , 3.5 !",
    b"no",
    b"a b c d e",
]
NASTY = [
    *(line.encode() for line in HARD),
    *(
        b"\xff\xfe",
        b"\xef\xbb\xbf",
        b"\x1f\x8b\x08",
        b"\x80",
        b"\xc3",
        b"\xed\xa0\x80",
        b"\xf4\x90\x80\x80",
        b"\xc0\xaf",
    ),
    *(b"x" * 3000, b"cat " * 1100, b"!?" * 300, "e\u0301\u0316".encode() * 300, b'{"1": "\\ud800", "b": "x"}'),
    *(b"a\tb", b"\t\t\t", b'{"1": 1}', b"[" * 3000, b"'''", b"&lt;br&gt;", b"\\ud800"),
]
plain = st.sampled_from(PLAIN)
text = st.text(max_size=9).map(lambda drawn: drawn.encode("utf-8", "replace"))
hard = st.sampled_from(NASTY) | text | st.binary(max_size=9)
line = plain | plain | hard


def torn(content: bytes) -> bytes:
    return gzip.compress(content)[:-5]


def utf16(content: bytes) -> bytes:
    return content.decode("utf-8", "replace").encode("utf-16")


ODD_WRAPS = [gzip.compress, torn, utf16, b"\xef\xbb\xbf".__add__, b"\x1f\x8b".__add__]
wraps = st.sampled_from([bytes] * 20 + ODD_WRAPS)
ends = st.sampled_from([b"\n", b"\n", b"\n", b"\r\n", b"\r"])


@st.composite
def files(draw: st.DrawFn) -> bytes:
    """Lines, half of them good; some ends, some wrappings."""
    end = draw(ends)
    return draw(wraps)(end.join(draw(st.lists(line, max_size=9))) + draw(st.sampled_from([end, b""])))


class Corpus(NamedTuple):
    files: dict[str, bytes]
    recipe: str  # its [data]
    options: list[str]  # of `new`


@st.composite
def corpora(draw: st.DrawFn) -> Corpus:
    """Two files or a table, mostly such as can be trained on."""
    sure = 7 if draw(st.integers(0, 2)) else 0
    lines = line if draw(st.booleans()) else plain
    pairs = [(PLAIN[i], PLAIN[-i]) for i in range(sure)] + draw(st.lists(st.tuples(lines, lines), max_size=5))
    form = draw(st.sampled_from(["text.jsonl", "text.tsv", "two", "two", "two", "two"]))
    wrap, hold_out = draw(wraps), 'name = "table"\nhold_out = 0.3'
    if form == "two":
        content = {name: b"".join(pair[side] + b"\n" for pair in pairs) for side, name in enumerate("st")}
        content["s"] = wrap(content["s"] + draw(st.sampled_from([b""] * 9 + [b"more\n"])))
        recipe, options = (
            'name = "parallel"\nhold_out = 0.3\nsource = "s"\ntarget = "t"',
            ["--source", "s", "--target", "t"],
        )
        if draw(st.booleans()):
            content |= {"vs": b"a cat\nno\n", "vt": draw(wraps)(b"un chat\n" + draw(line))}
            recipe = recipe.replace("hold_out = 0.3", 'valid_source = "vs"\nvalid_target = "vt"')
            options += ["--valid", "vs", "vt"]
        return Corpus(content, recipe, options)
    if form == "text.tsv":
        rows = [b"%s\t%s\n" % pair for pair in pairs]
    else:
        rows = [b'{"1": "%s", "2": "%s"}\n' % pair for pair in pairs]
    column = draw(st.sampled_from(["1"] * 8 + ["the cat", ""]))
    recipe = f'{hold_out}\ntrain = "{form}"\nsource = "{column}"\ntarget = "2"'
    return Corpus({form: wrap(b"".join(rows))}, recipe, ["--file", form, "--source", column, "--target", "2"])


@contextlib.contextmanager
def laid_out(corpus: Corpus) -> Iterator[Path]:
    """A folder with these files, to be in."""
    with tempfile.TemporaryDirectory() as folder, contextlib.chdir(folder):
        for name, content in corpus.files.items():
            Path(name).write_bytes(content)
        yield Path(folder)


def assert_told(result: Result) -> bool:
    """Whether it succeeded; if not, it says in one sentence why not."""
    if result.code:
        assert_refused(result)
    assert "Traceback" not in result.err
    return result.code == 0


OPTIONS = [
    [],
    ["--json"],
    ["--errors", "replace"],
    ["--errors", "replace", "--json", "--beam", "3", "--n-best", "2"],
    ["--sample", "--top-k", "3", "--top-p", "0.5", "--temperature", "0.01"],
    ["--no-repeat", "1", "--min-length", "2"],
]


@generated
@given(files(), st.sampled_from(RUNS), st.sampled_from(OPTIONS), st.booleans())
def test_predict_lives_through_anything(kitchen, content, name, options, from_file):
    with tempfile.NamedTemporaryFile() as file:
        file.write(content)
        file.flush()
        where, stdin = ([file.name], b"") if from_file else ([], content)
        result = call("predict", kitchen / name, *where, "--max-length", 4, *options, stdin=stdin)
    if assert_told(result):
        read = gzip.decompress(content) if from_file and content.startswith(b"\x1f\x8b") else content
        assert len(lines_of(result.out)) == read.count(b"\n") + (not read.endswith(b"\n") and read != b"")
    elif "--errors" in options:
        assert any(kind in result.err for kind in ("UTF-16", "gzip", "zstd"))


@generated
@given(corpora(), st.sampled_from(list(SIZES)))
def test_new_lives_through_anything(corpus, model):
    with laid_out(corpus) as folder:
        if assert_told(call("new", "translation", *corpus.options, "--model", model, "-o", "new.toml")):
            read_recipe(folder / "new.toml")
        else:
            assert not (folder / "new.toml").exists()
            assert {file.name for file in folder.iterdir()} == set(corpus.files)


@generated
@given(corpora(), st.sampled_from(KINDS), st.booleans(), st.booleans())
def test_check_lives_through_anything(corpus, kind, write, as_json):
    with laid_out(corpus) as folder:
        rest = RECIPE.format(model="seq2seq", kind=kind, sizes=SIZES["seq2seq"]).partition("[tokens]")[2]
        (folder / "recipe.toml").write_text(f'task = "translation"\n[data]\n{corpus.recipe}\n[tokens]{rest}')
        options = [*(["--write", "clean"] if write else []), *(["--json"] if as_json else [])]
        result = call("check", "recipe.toml", *options)
        if result.code and not result.err:  # the data has faults, and it tells which
            assert json.loads(result.out)["sound"] is False if as_json else result.out.startswith("error: ")
        elif assert_told(result) and write:
            read_recipe(folder / "clean" / "recipe.toml")


# Recipes: any value, absurd ones too, for any key; only what would be right and take for ever is left out

ENDLESS = ["1_000_001", "1000000000000", "9223372036854775807"]
VALUES = {
    int: ["-1", "0", "1", "2", "3", "7", "300", *ENDLESS, "-9223372036854775808"],
    float: ["-0.5", "0.0", "0.1", "0.5", "1.0", "1.5", "nan", "inf", "-inf", "1e300", "1e-300", "1e-9", "3"],
    bool: ["true", "false"],
    str: ['""', '"s"', '"t"', '"1"', '"."', '"run"', '"a\\u0000b"', '"/dev/null"', f'"{"x" * 300}"', '"../../.."'],
}
ODD = ["[]", "[1]", "{a=1}", "[[[]]]", "1979-05-27", "9223372036854775808", "0x" + "f" * 5000, "9" * 5000, "[" * 5000]
ODD += ["'", "= 3", f'"{"x" * 5000}"', *(value for values in VALUES.values() for value in values)]
FOR_EVER = {
    "train.steps": ["0", "300", *ENDLESS],
    "train.accumulate": ["300", *ENDLESS],
    "model.layers": ["300"],
    **dict.fromkeys(["tokens.longest", "data.sentences", "data.valid", "data.test"], ENDLESS),
}
STRANGE_KEYS = ["model.name", "model.preset", "data.name", "task", "seed", "folder", "model.hiden", "zzz", "a.b.c"]
WORLD = 'name = "world"\nlongest = 5\nsentences = 9\nvalid = 3\ntest = 3'


def texts_for(kind: Any) -> list[str]:
    """Values of this type as TOML writes them."""
    if kind == Names:
        return [*texts_for(str), *texts_for(tuple[str, ...])]
    if get_origin(kind) is Union:  # one of a few, or a class in somebody's own file
        return [*texts_for(get_args(kind)[0]), '"missing.py:Cell"', '"recipe.toml:Cell"', '"mine.py"']
    if get_origin(kind) is tuple:
        return ["[]", *(f"[{one}, {other}]" for one, other in product(texts_for(get_args(kind)[0])[:3], repeat=2))]
    literals = [to_toml(value) for value in get_args(kind)]
    return literals or VALUES[kind]


def table_of(recipe: str) -> dict[str, str]:
    """Dotted key -> value, as TOML writes it."""
    section, values = "", {}
    for text in recipe.splitlines():
        if text.startswith("["):
            section = text.strip("[]") + "."
        elif text:
            key, _, value = text.partition(" = ")
            values[section + key] = value
    return values


@st.composite
def recipes(draw: st.DrawFn) -> tuple[Corpus, bytes, list[str]]:
    """Files, a recipe for them, and settings over it."""
    corpus, model, kind = draw(corpora()), draw(st.sampled_from(list(SIZES))), draw(st.sampled_from(KINDS))
    values = table_of(RECIPE.format(model=model, kind=kind, sizes=SIZES[model]).replace("steps = 11", "steps = 2"))
    values = {key: value for key, value in values.items() if not key.startswith("data.")}
    values |= table_of("[data]\n" + (corpus.recipe if draw(st.integers(0, 5)) else WORLD))
    task = TASKS["translation"]
    configs = {"data": task.sources[values["data.name"].strip('"')], "tokens": task.tokens, "train": TrainConfig}
    configs["model"] = MODELS[model].config
    kinds = {f"{where}.{key}": kind for where, config in configs.items() for key, kind in fields_of(config).items()}
    over = {}
    for key in draw(st.lists(st.sampled_from(list(kinds) * 3 + STRANGE_KEYS), max_size=3)):
        fitting = st.sampled_from(texts_for(kinds[key]) if key in kinds else ODD)
        value = draw(fitting | fitting | fitting | st.sampled_from(ODD))
        if value not in FOR_EVER.get(key, []):
            (over if draw(st.booleans()) else values)[key] = value
    content = "".join(f"{key} = {value}\n" for key, value in values.items()).encode()
    if draw(st.integers(0, 9)) == 0:
        content = draw(files()) if draw(st.booleans()) else draw(wraps)(content)
    return corpus, content, [f"{key}={value}" for key, value in over.items()]


@generated
@given(recipes())
def test_train_lives_through_anything(drawn):
    corpus, recipe, settings = drawn
    with laid_out(corpus) as folder:
        (folder / "recipe.toml").write_bytes(recipe)
        if assert_told(call("train", "recipe.toml", *settings, "-o", "run")):
            assert Folder("run").best.exists()

"""Laws of outputs: `predict -o` and `score -o` hold a few lines at a time, and a file is whole or not there."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from command import ENVIRONMENT, REGARD, Call, Result

from regard import Prediction, Run, Session, read_recipe
from regard.predict.inputs import AT_ONCE

WORDS = {"a": "an-article-with-a-long-name", "cat": "a-noun-whose-name-is-as-long"}
SENTENCE = "a cat a cat a cat a cat"
TAGGED = "".join(f"{word}\t{WORDS[word]}\n" for word in SENTENCE.split()) + "\n"
RECIPES = {
    "tagger": """
task = "tagging"
[data]
name = "conll"
train = "few.conll"
valid = "few.conll"
[model]
name = "cnn"
embedding = 3
filters = 4
layers = 1
""",
    "language": """
task = "language"
[data]
name = "text"
train = "few.txt"
valid = "few.txt"
[tokens]
kind = "words"
size = 0
[model]
name = "ngram"
order = 2
""",
    "translator": """
task = "translation"
[data]
name = "parallel"
source = "few.txt"
target = "few.txt"
valid_source = "few.txt"
valid_target = "few.txt"
[tokens]
kind = "words"
size = 0
[model]
name = "seq2seq"
embedding = 3
hidden = 5
layers = 1
""",
}
TRAIN = '[train]\nsteps = 1\nprecision = "float32"\n'
FEW, MANY = 5_000, 200_000
ROOM = 8 * 1024  # kilobytes that a command may grow by; a list of so many lines takes three times as much


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run of each task that writes, and files of few lines and of many."""
    folder = tmp_path_factory.mktemp("kitchen")
    (folder / "few.txt").write_text(f"{SENTENCE}\ncat a\n" * 20)
    (folder / "few.conll").write_text(TAGGED * 20)
    for name, recipe in RECIPES.items():
        (folder / f"{name}.toml").write_text(recipe + TRAIN)
        *_, end = Session(read_recipe(folder / f"{name}.toml")[0], folder / name).steps()
        assert end.finished
    return folder


@pytest.fixture(autouse=True)
def in_the_kitchen(monkeypatch: pytest.MonkeyPatch, kitchen: Path) -> Iterator[None]:
    monkeypatch.chdir(kitchen)
    yield
    assert not [path for path in kitchen.iterdir() if path.name.startswith(".")]  # whatever happened


# What is held

STREAMING = {
    "predict": ["predict", "tagger", "{lines}"],
    "predict --json": ["predict", "tagger", "{lines}", "--json"],
    "score --each": ["score", "language", "{lines}", "--each"],
}


# VmHWM is of the program itself; what the system tells of a child includes the process that it was forked from
MEASURED = """
import re, sys
from pathlib import Path
from regard.cli import main
try:
    main()
finally:
    print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
"""


def peak(*arguments: object) -> int:
    """The most memory, in kilobytes, that a command had."""
    command = [sys.executable, "-c", MEASURED, *map(str, arguments)]
    done = subprocess.run(command, env=ENVIRONMENT, capture_output=True, text=True, check=True)
    return int(done.stdout)


@pytest.mark.parametrize("command", ["predict", "score --each"])
def test_many_lines_take_no_more_memory_than_few(tmp_path, command):
    peaks = []
    for count in (FEW, MANY):
        lines = tmp_path / "lines"
        lines.write_text(f"{SENTENCE}\n" * count)
        arguments = [argument.format(lines=lines) for argument in STREAMING[command]]
        peaks.append(peak(*arguments, "-o", tmp_path / "out"))
        with (tmp_path / "out").open() as written:
            assert sum(1 for _ in written) == count
    assert peaks[1] - peaks[0] < ROOM, peaks


# As they come

WRITING = {
    **STREAMING,
    "score": ["score", "tagger", "{conll}"],
    "score --source --target": ["score", "translator", "--source", "{lines}", "--target", "{lines}", "--beam", "1"],
    "score --source --target --each": ["score", "translator", "--source", "{lines}", "--target", "{lines}", "--each"],
}
every_way = pytest.mark.parametrize("command", WRITING)


def filled(command: str, tmp_path: Path, count: int) -> list[str]:
    """The command's arguments; its input has so many lines."""
    (tmp_path / "in.txt").write_text(f"{SENTENCE}\n" * count)
    (tmp_path / "in.conll").write_text(TAGGED * (count if command == "score" else 0))
    return [word.format(lines=tmp_path / "in.txt", conll=tmp_path / "in.conll") for word in WRITING[command]]


def begun(folder: Path, writing: subprocess.Popen[bytes]) -> Path:
    """The file that is being written beside its place, when there is something in it."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        assert writing.poll() is None, "it ended before any of its lines could be seen"
        for file in folder.glob(".out.*"):
            if file.stat().st_size:
                return file
        time.sleep(0.01)
    raise AssertionError("no line was written in a minute")


@pytest.mark.parametrize(
    ("command", "ending"), [("predict", signal.SIGTERM), *((command, signal.SIGINT) for command in WRITING)]
)
def test_lines_are_written_as_they_come_and_an_interrupted_command_leaves_nothing(tmp_path, command, ending):
    """The hidden file fills while the work goes on; what was there before stays as it was."""
    out = tmp_path / "made" / "out"
    out.parent.mkdir()
    if ending == signal.SIGTERM:
        out.write_text("dear")
    count = MANY if command in STREAMING else 30_000  # references are read before there are answers
    arguments = [*REGARD, *filled(command, tmp_path, count), "-o", str(out)]
    with subprocess.Popen(arguments, env=ENVIRONMENT, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as writing:
        assert writing.stdout is not None and writing.stderr is not None
        try:
            beside = begun(out.parent, writing)
            before = beside.stat().st_size
            while beside.stat().st_size == before:  # it grows
                assert writing.poll() is None
                time.sleep(0.01)
            assert out.exists() == (ending == signal.SIGTERM)
            writing.send_signal(ending)
            assert writing.wait(60) == 128 + ending
            assert (writing.stdout.read(), writing.stderr.read().split()) == (b"", [b"Interrupted."])
        finally:
            writing.kill()
    assert [path.name for path in out.parent.iterdir()] == (["out"] if ending == signal.SIGTERM else [])
    assert ending == signal.SIGINT or out.read_text() == "dear"


def test_answers_are_told_before_the_next_are_made():
    events: list[str] = []

    def answer(run: object, raws: list[str], how: object, *, first_line: int) -> list[Prediction]:
        events.append(f"asked for {len(raws)} from {first_line}")
        return [Prediction(raw.upper(), 0.0, ()) for raw in raws]

    def asked() -> Iterator[str]:
        for number in range(AT_ONCE + 3):
            events.append("read")
            yield f"line {number}"

    asking: Any = SimpleNamespace(task=SimpleNamespace(answer=answer))
    asking.answers = partial(Run.answers, asking)
    found = Run.texts(asking, asked(), None, events.append)
    assert found == [f"LINE {number}" for number in range(AT_ONCE + 3)]
    once = ["read"] * AT_ONCE + [f"asked for {AT_ONCE} from 0"] + found[:AT_ONCE]
    assert events == [*once, *["read"] * 3, f"asked for 3 from {AT_ONCE}", *found[AT_ONCE:]]


@every_way
def test_a_whole_file_has_a_line_for_each_and_nothing_is_left_beside_it(tmp_path, call, command):
    (tmp_path / "out").write_text("of another time")
    done = call(*filled(command, tmp_path, 1031), "-o", tmp_path / "out")  # more than are answered together
    assert done.code == 0, done
    assert len((tmp_path / "out").read_text().splitlines()) == 1031
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in.conll", "in.txt", "out"]


@pytest.mark.parametrize("command", ["predict", "predict --json", "score --each", "score --source --target --each"])
def test_a_file_holds_what_would_be_printed(tmp_path, call, command):
    arguments = filled(command, tmp_path, 523)
    printed = call(*arguments)
    written = call(*arguments, "-o", tmp_path / "out")
    assert (printed.code, written.code, written.out) == (0, 0, "")
    assert (tmp_path / "out").read_text() == printed.out
    assert len(printed.out.splitlines()) == 523


def test_score_writes_what_predict_writes(tmp_path, call):
    lines = [f"{SENTENCE} {'cat ' * (number % 7)}".strip() for number in range(1031)]
    (tmp_path / "in.txt").write_text("".join(f"{line}\n" for line in lines))
    pairs = ["--source", tmp_path / "in.txt", "--target", tmp_path / "in.txt"]
    assert call("predict", "translator", tmp_path / "in.txt", "-o", tmp_path / "predicted").code == 0
    scored = call("score", "translator", *pairs, "-o", tmp_path / "scored")
    assert scored.code == 0 and "BLEU" in scored.out
    assert (tmp_path / "scored").read_bytes() == (tmp_path / "predicted").read_bytes()
    assert call("score", "translator", *pairs).out == scored.out


def test_where_a_file_cannot_be_is_told_before_the_work(tmp_path, call, monkeypatch):
    def worked(*_: object, **__: object) -> None:
        raise AssertionError("it worked first")

    monkeypatch.setattr(Run, "texts", worked)
    (tmp_path / "in.conll").write_text(TAGGED)
    refused: list[Result] = [
        call("score", "tagger", tmp_path / "in.conll", "-o", tmp_path / "nowhere" / "out"),
        call("score", "tagger", tmp_path / "in.conll", "-o", tmp_path),
        call("score", "language", "few.txt", "--each", "-o", tmp_path / "in.conll" / "out"),
    ]
    for said in refused:
        assert (said.code, said.out) == (1, "")
        assert said.err.startswith("regard: ") and said.err.count("\n") == 1 and "cannot be written" in said.err


def test_a_language_model_answers_nothing_that_could_be_written(tmp_path, call: Call):
    said = call("score", "language", "few.txt", "-o", tmp_path / "out")
    assert (said.code, said.out) == (1, "")
    assert said.err == "regard: -o writes answers, and language has none: give it with --each, or leave it out.\n"
    assert not (tmp_path / "out").exists()


def test_a_word_without_a_tag_is_told_by_its_sentence(tmp_path, call):
    (tmp_path / "words").write_text("a cat\na cat a\ncat\n")
    (tmp_path / "tags").write_text(f"{WORDS['a']} {WORDS['cat']}\n{WORDS['a']}\n{WORDS['cat']}\n")
    said = call("score", "tagger", "--source", tmp_path / "words", "--target", tmp_path / "tags")
    assert said.code == 1
    assert said.err == "regard: Sentence 2 has 3 words and 1 tags: give one tag for each word.\n"

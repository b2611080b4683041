"""Laws of bounds: whatever a file holds, a command needs little memory, waits for nothing and shows plain text."""

from __future__ import annotations

import bz2
import gzip
import json
import lzma
import os
import pty
import re
import resource
import shutil
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
import sacrebleu  # noqa: F401
import safetensors.numpy
from command import Result

import regard
import regard.train.session  # what is imported here, processes have at once
from regard import cli
from regard.data.sources import Text, examples
from regard.data.text import LONGEST, Cut, read_lines

KEPT = Path(__file__).parent / "runs"
regard.load(KEPT / "translation")  # what building a model imports, processes then have at once, too
HUGE = 64 << 20  # bytes of a line
ROOM = 80 << 20  # bytes of memory that a command may take beside what Python and torch have; the line does not fit

Bounded = Callable[..., Result]


def memory(what: str) -> int:
    """Bytes of memory of this process: VmSize, VmRSS, or VmHWM, the most that VmRSS was."""
    found = re.search(rf"{what}:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert found
    return int(found[1]) << 10


@pytest.fixture
def bounded(tmp_path: Path) -> Bounded:
    """The command in a process of its own, which has torch already and may take so much more memory."""

    def called(*arguments: object, stdin: Path | int | None = None, room: int = ROOM) -> Result:
        said, grown = [tmp_path / ".out", tmp_path / ".err"], tmp_path / ".grown"
        sys.stdout.flush()
        sys.stderr.flush()
        if child := os.fork():
            _, status = os.waitpid(child, 0)
            result = Result(os.waitstatus_to_exitcode(status), *(file.read_text() for file in said))
            assert int(grown.read_text()) < room, result
            return result
        try:
            before = memory("VmRSS")
            Path("/proc/self/clear_refs").write_text("5")  # VmHWM starts again
            resource.setrlimit(resource.RLIMIT_AS, (memory("VmSize") + (3 << 30),) * 2)
            resource.setrlimit(resource.RLIMIT_CPU, (100, 100))
            for number, file in enumerate(said, start=1):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            os.dup2(stdin if isinstance(stdin, int) else os.open(stdin or os.devnull, os.O_RDONLY), 0)
            sys.stdin, sys.stdout = open(0, closefd=False), open(1, "w", closefd=False)  # noqa: SIM115
            sys.stderr = open(2, "w", closefd=False)  # noqa: SIM115
            sys.argv = ["regard", *map(str, arguments)]
            cli.main()
        except SystemExit as ended:
            sys.stdout.flush()
            sys.stderr.flush()
            grown.write_text(str(memory("VmHWM") - before))
            os._exit(int(ended.code or 0))
        finally:
            os._exit(99)

    return called


def one_sentence(said: Result, *words: str) -> None:
    assert (said.code, said.out) == (1, ""), said
    assert said.err.startswith("regard: ") and said.err.count("\n") == 1 and said.err.endswith(".\n"), said.err
    assert len(said.err) < 600 and "unexpected" not in said.err and "ran out of memory" not in said.err, said.err
    for word in words:
        assert word in said.err, said.err


# One line


@pytest.fixture(scope="module")
def zeros(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A file of one line that is longer than the memory of a command; the file takes no room on the disk."""
    file = tmp_path_factory.mktemp("zeros") / "zeros.txt"
    file.touch()
    os.truncate(file, HUGE)
    return file


@pytest.fixture(scope="module")
def lines(zeros: Path) -> Path:
    """The same line between two short ones, compressed to little."""
    part = gzip.compress(b"a" * (1 << 20), compresslevel=1)
    file = zeros.with_name("lines.txt.gz")
    file.write_bytes(gzip.compress(b"a cat\n") + part * (HUGE >> 20) + gzip.compress(b"\na cat\n"))
    assert file.stat().st_size < 2 << 20
    return file


@pytest.mark.parametrize("task", ["translation", "language", "classification", "tagging"])
def test_predict_answers_each_line_and_says_which_was_cut(task, lines, bounded):
    said = bounded("predict", KEPT / task, lines, *(["--temperature", "0.1"] if task == "language" else []))
    assert said.code == 0, said
    assert said.out.count("\n") == 3
    part = "end of its first 1 MiB" if task == "language" else "beginning"
    assert said.err.startswith(f"Line 2 is too long: only its {part} was read, at most "), said.err
    assert said.err.count("\n") == 1
    first, second, third = said.out.splitlines()
    assert task == "language" or (first == third and len(second) < LONGEST)


def test_predict_reads_such_a_line_from_standard_input(zeros, bounded):
    said = bounded("predict", KEPT / "classification", stdin=zeros)
    assert (said.code, said.out.count("\n")) == (0, 1)
    assert said.err.startswith("Line 1 is too long: only its beginning was read")


def test_a_line_of_white_space_is_named_too(tmp_path, call):
    (tmp_path / "text").write_text(" " * LONGEST + "cat\na cat\n")
    said = call("predict", KEPT / "classification", tmp_path / "text")
    assert (said.code, said.out.count("\n")) == (0, 2)
    assert said.err.startswith("Line 1 is too long: only its beginning was read")


RECIPE = """
task = "{task}"
[data]
{data}
[tokens]
kind = "{kind}"
size = {size}
[model]
{model}
[train]
steps = 1
precision = "float32"
"""
NGRAM = 'name = "ngram"\norder = 2'
SMALL = 'name = "seq2seq"\nembedding = 3\nhidden = 5\nlayers = 1'


def recipe_in(folder: Path, task: str, model: str, kind: str = "characters", size: int = 0, **data: str) -> Path:
    named = "\n".join(f'{key} = "{value}"' for key, value in data.items())
    (folder / "recipe.toml").write_text(RECIPE.format(task=task, data=named, kind=kind, size=size, model=model))
    return folder / "recipe.toml"


@pytest.fixture
def pairs(tmp_path: Path, lines: Path) -> Path:
    """A recipe whose sources are three, of which one is too long."""
    (tmp_path / "short").write_text("a cat\nle chat\na cat\n")
    files = {"source": str(lines), "target": "short", "valid_source": "short", "valid_target": "short"}
    return recipe_in(tmp_path, "translation", SMALL, name="parallel", **files)


slow = pytest.mark.slow


@pytest.mark.parametrize("kind", ["words", pytest.param("characters", marks=slow), pytest.param("bpe", marks=slow)])
def test_train_leaves_it_out(pairs, tmp_path, bounded, kind):
    settings = [f"tokens.kind={kind}", f"tokens.size={300 if kind == 'bpe' else 0}"]
    said = bounded("train", pairs, *settings, "-o", tmp_path / "run", room=200 << 20)
    assert said.code == 0, said
    assert "2 pairs (1 left out" in " ".join(said.out.split()), said.out


def test_check_finds_it(pairs, bounded):
    said = bounded("check", pairs)
    assert said.code == 0, said
    assert "lines.txt.gz: 1 of 3 lines (2) has more than 256 characters, and training leaves it out" in said.out


def test_check_finds_a_long_word_of_sub_words_too(pairs, bounded):
    said = bounded("check", pairs, "tokens.kind=bpe", "tokens.size=300")
    assert "lines.txt.gz: 1 of 3 lines (2) has more than" in said.out


@slow
def test_a_text_without_line_ends_is_learnt_whole(tmp_path, bounded):
    """A whole file may be one line: nothing of it is lost, and it takes the memory that it takes in short lines."""
    (tmp_path / "short").write_text("abcd efgh ")
    recipe = recipe_in(tmp_path, "language", NGRAM, name="text", train="text", valid="short", unit="file")
    size, grown = 4_000_000, []
    for line in (b"abcd efgh ", b"abcd efgh\n"):
        (tmp_path / "text").write_bytes(line * (size // 10))
        said = bounded("train", recipe, "-o", tmp_path / f"run{len(grown)}", room=2 << 30)
        assert said.code == 0 and f"{size + line.endswith(b' '):,} tokens" in said.out, said
        grown.append(int((tmp_path / ".grown").read_text()))
    assert grown[0] < 1.2 * grown[1], grown


@pytest.mark.parametrize("text", ["ab é\u0301 " * 300_000, "é" * 1_500_000, "x" * LONGEST + "\r\ny\n", " " * 2_000_000])
def test_pieces_of_a_text_are_the_text(tmp_path, text):
    (tmp_path / "text").write_text(text, newline="")
    data = Text(train="text", hold_out=0.25, unit="file")
    blocks = {split: [block for (block,) in examples(data, split, tmp_path)] for split in ("train", "valid")}
    every = [*blocks["train"], *blocks["valid"]]
    assert "".join(every) == text.replace("\r\n", "\n") + "\n" * (not text.endswith("\n"))
    assert max(map(len, every)) <= LONGEST + 1
    if text.startswith("ab"):  # cut where every tokenizer cuts
        assert all(block.startswith(" ") for block in blocks["train"][1:])


@pytest.mark.parametrize("end", ["", "\n", "\r\n"])
@pytest.mark.parametrize("over", [-1, 0, 1, 2, 3])
def test_the_longest_line_is_whole_and_a_longer_one_is_cut(tmp_path, over, end):
    (tmp_path / "text").write_text("x" * (LONGEST + over) + end + "\u00e9" * LONGEST + "\nlast", newline="")
    first, *rest = read_lines(tmp_path / "text")
    if end:
        assert (len(first), isinstance(first, Cut)) == (min(LONGEST + over, LONGEST), over > 0)
        assert (rest[0], rest[1]) == ("\u00e9" * (LONGEST // 2), "last") and isinstance(rest[0], Cut)
    pieces = list(read_lines(tmp_path / "text", whole=True))
    joined = "".join(piece + "\n" * (not isinstance(piece, Cut)) for piece in pieces)
    assert joined == "x" * (LONGEST + over) + end[-1:] + "\u00e9" * LONGEST + "\nlast\n"


def test_half_a_character_at_the_end_of_a_piece_is_no_error_but_at_the_end_of_the_line(tmp_path):
    (tmp_path / "text").write_bytes(b"x" + "é".encode() * LONGEST + b"\xc3\n")
    (cut,) = read_lines(tmp_path / "text")
    assert cut == "x" + "é" * ((LONGEST - 1) // 2)
    with pytest.raises(Exception, match=rf"line 1: byte {2 * LONGEST + 2} \(0xc3\) is not UTF-8"):
        list(read_lines(tmp_path / "text", whole=True))


NEW = ("new", "-o", "{folder}/new.toml")
PAIRS = ("{translation}", "--source", "{few}", "--target", "{few}")
ENDLESS = {  # what goes on and on: the beginning, what is repeated, and the command that reads it
    "rows.csv": (b'text,label\na,1\n"', b"one more line\n", (*NEW, "classification", "{file}")),
    "columns.csv": (b"text,label\na,1\n", b'"b\nc",', (*NEW, "classification", "{file}")),
    "rows.tsv": (b"a\t1\nb\t2\n", b"b", (*NEW, "classification", "{file}")),
    "objects.jsonl": (b'{"text": "a", "label": "1"}\n{"text": "', b"b", (*NEW, "classification", "{file}")),
    "deep.jsonl": (b'{"text": "a", "label": "1"}\n', b"[", (*NEW, "classification", "{file}")),
    "words.conll": (b"a\tX\n\n", b"bbbbbbbbbb\tYYYYYY\n", (*NEW, "tagging", "{file}")),
    "one.conll": (b"a\tX\nb\t", b"Y", (*NEW, "tagging", "{file}")),
    "model.arpa": (b"\\data\\\nngram 1=", b"1", ("import", "{file}", "-o", "{folder}/imported")),
    "comment.arpa": (b"", b"x", ("import", "{file}", "-o", "{folder}/imported")),
    "gold.align": (b"0-0 ", b"1-1 ", ("score", *PAIRS, "--align", "{file}")),
    "target": (b"a cat\n", b"a", ("score", "{translation}", "--source", "{few}", "--target", "{file}")),
    "text": (b"a cat\n", b"a", ("score", "{language}", "{file}")),
    "each": (b"a cat\n", b"a", ("score", "{language}", "{file}", "--each")),
    "system": (b"a cat\n", b"a", ("score", "--system", "{file}", "{few}", "--target", "{few}")),
    "look": (b"", b"a", ("look", "{translation}", "{file}")),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDLESS)
def test_what_never_ends_is_refused_in_one_sentence(tmp_path, bounded, name):
    beginning, repeated, arguments = ENDLESS[name]
    part = repeated * ((1 << 20) // len(repeated))
    with gzip.open(tmp_path / f"{name}.gz", "wb", compresslevel=1) as file:
        file.write(beginning)
        for _ in range(5 if repeated.endswith(b"\n") else 40):
            file.write(part)
    (tmp_path / "few").write_text("a cat\na cat\n")
    places = {"file": tmp_path / f"{name}.gz", "folder": tmp_path, "few": tmp_path / "few"}
    places |= {task: KEPT / task for task in ("translation", "language")}
    said = bounded(*(word.format(**places) for word in arguments), room=(40 if name == "words.conll" else 60) << 20)
    if name == "each":
        assert said.out.count("\n") <= 1
        said = said._replace(out="")
    one_sentence(said, "more than 1 MiB" if "csv" not in name else "is not CSV")


@slow
def test_word_vectors_have_no_endless_line(tmp_path, zeros, bounded):
    (tmp_path / "short").write_text("a cat\nle chat\na cat\n")
    files = dict.fromkeys(("source", "target", "valid_source", "valid_target"), "short")
    recipe = recipe_in(tmp_path, "translation", SMALL, "words", name="parallel", **files)
    said = bounded("train", recipe, f"train.vectors={zeros}", "-o", tmp_path / "run", room=200 << 20)
    one_sentence(said, f"{zeros}, line 1: it has more than 1 MiB")


@pytest.mark.slow
@pytest.mark.parametrize("source", ["pipe", "gzip"])
def test_three_gigabytes_are_one_line(tmp_path, bounded, source):
    """As in the report: 3 GB of /dev/zero, and a gzip of 2.9 MB."""
    file = tmp_path / "three"
    if source == "gzip":
        os.system(f"head -c 3G /dev/zero | gzip -1 > {file}")
    else:
        os.mkfifo(file)
        os.system(f"head -c 3G /dev/zero > {file} &")
    said = bounded("predict", KEPT / "translation", file)
    assert (said.code, said.out.count("\n")) == (0, 1), said
    assert said.err.startswith("Line 1 is too long")


# Recipes

WORST = {  # what makes a reader of TOML take much memory or time, or its error long
    "dots": "a" + ".a" * 60_000 + " = 1\n",
    "100,000 dots": "a" + ".a" * 100_000 + " = 1\n",
    "table": "[a" + ".a" * 60_000 + "]\n",
    "inline": "a = {a" + ".a" * 60_000 + " = 1}\n",
    "deep list": "a = " + "[" * 60_000,
    "deep table": "a = " + "{a = " * 20_000,
    "integer": "seed = " + "9" * 100_000 + "\n",
    "hexadecimal": "seed = 0x" + "f" * 100_000 + "\n",
    "name": f'task = "{"x" * 100_000}"\n',
    "key": f"{'x' * 100_000} = 1\n",
    "long": "# comment\n" * 100_000,
}


@pytest.mark.parametrize("name", WORST)
def test_a_recipe_takes_little_memory_and_one_sentence(tmp_path, bounded, name):
    (tmp_path / "recipe.toml").write_text(WORST[name])
    one_sentence(bounded("train", tmp_path / "recipe.toml", "-o", tmp_path / "run", room=150 << 20))


@slow
def test_a_recipe_of_keys_as_deep_as_allowed_takes_little_memory(tmp_path, bounded):
    parts = ".".join("a" * 190)
    lines = "".join(f"k{number}.{parts} = 1\n" for number in range(300))
    (tmp_path / "recipe.toml").write_text(f"[{parts}]\n{lines}")
    one_sentence(bounded("train", tmp_path / "recipe.toml", "-o", tmp_path / "run", room=250 << 20))


# Pipes and devices

REFUSED = {
    "check": ("check", "{recipe}", "data.source={pipe}"),
    "train": ("train", "{recipe}", "data.source={pipe}", "-o", "{folder}/run"),
    "new": ("new", "language", "{pipe}"),
    "new classification": ("new", "classification", "{pipe}"),
    "new pictures": ("new", "pictures", "{pipe}.npz"),
    "score": ("score", "{run}", "--source", "{pipe}", "--target", "{few}"),
    "score --target": ("score", "{run}", "--source", "{few}", "--target", "{pipe}"),
    "score --align": ("score", "{run}", "--source", "{few}", "--target", "{few}", "--align", "{pipe}"),
    "score --system": ("score", "--system", "{few}", "{pipe}", "--target", "{few}"),
    "import": ("import", "{pipe}", "-o", "{folder}/run"),
    "vectors": ("train", "{recipe}", "train.vectors={pipe}", "-o", "{folder}/run"),
    "recipe": ("train", "{pipe}", "-o", "{folder}/run"),
    "recipe of a run": ("predict", "{folder}/waits", "{few}"),
    "look": ("look", "{run}", "{pipe}"),
}


@pytest.mark.parametrize("name", [pytest.param(name, marks=[slow] * (name == "vectors")) for name in REFUSED])
@pytest.mark.parametrize("kind", ["pipe", "device"])
def test_what_is_no_regular_file_is_refused_and_not_waited_for(tmp_path, call, name, kind):
    place = tmp_path / "endless"
    for file in (place, place.with_suffix(".npz")):
        if kind == "pipe":
            os.mkfifo(file)
        else:
            file.symlink_to("/dev/zero")
    (tmp_path / "few").write_text("a cat\nle chat\na cat\n")
    (tmp_path / "waits").mkdir()
    os.mkfifo(tmp_path / "waits" / "config.toml")
    files = dict.fromkeys(("source", "target", "valid_source", "valid_target"), "few")
    recipe = recipe_in(tmp_path, "translation", SMALL, "words", name="parallel", **files)
    places = {"pipe": place, "few": tmp_path / "few", "run": KEPT / "translation", "recipe": recipe, "folder": tmp_path}
    said = call(*(word.format(**places) for word in REFUSED[name]))
    where = "endless" if kind == "pipe" else "zero"
    if name == "check":
        assert said.code == 1 and f"{where} cannot be read: it is a pipe or a device" in said.out
    elif name == "recipe of a run":
        one_sentence(said, "waits")
    else:
        one_sentence(said, "it is a pipe or a device, not a regular file")


@pytest.mark.parametrize("pack", [bytes, gzip.compress, lzma.compress, bz2.compress])
@pytest.mark.parametrize("way", ["a named pipe", "/dev/stdin"])
def test_predict_reads_a_pipe_compressed_or_not(tmp_path, bounded, pack, way):
    content = pack(b"a cat\nthe cat\n")
    if way == "/dev/stdin":
        end, beginning = os.pipe()
        with open(beginning, "wb") as file:
            file.write(content)
        said = bounded("predict", KEPT / "classification", way, stdin=end)
        os.close(end)
    else:
        os.mkfifo(tmp_path / "pipe")
        writer = threading.Thread(target=(tmp_path / "pipe").write_bytes, args=(content,))
        writer.start()
        said = bounded("predict", KEPT / "classification", tmp_path / "pipe")
        writer.join()
    assert (said.code, said.out.count("\n"), said.err) == (0, 2, "")


def test_predict_reads_no_device_that_never_ends(bounded):
    one_sentence(bounded("predict", KEPT / "classification", "/dev/zero"), "/dev/zero cannot be read")


# Every run is listed

HARM: dict[str, Callable[[Path], object]] = {
    "recipe of garbage": lambda run: (run / "config.toml").write_bytes(b"\xff\0[["),
    "recipe that is a pipe": lambda run: again(run / "config.toml", os.mkfifo),
    "recipe that is a folder": lambda run: again(run / "config.toml", os.mkdir),
    "recipe that is a device": lambda run: again(run / "config.toml", lambda file: file.symlink_to("/dev/zero")),
    "recipe of dots": lambda run: (run / "config.toml").write_text(WORST["dots"]),
    "recipe of lists": lambda run: (run / "config.toml").write_text("task = []\nmodel = []"),
    "recipe of names": lambda run: (run / "config.toml").write_text(
        'task = "[/b]\\u001b[31m\\n\\u202e"\n[model]\nname = "[bold]:smile:' + "x" * 50_000 + '"'
    ),
    "log of garbage": lambda run: (run / "log.jsonl").write_bytes(bytes(range(256)) * 9),
    "log that is a pipe": lambda run: again(run / "log.jsonl", os.mkfifo),
    "log of one line": lambda run: again(run / "log.jsonl", lambda file: (file.touch(), os.truncate(file, HUGE))),
    "log of deep lists": lambda run: (run / "log.jsonl").write_bytes(b"[" * 300_000 + b"\n" + b'{"a":' * 100_000),
    "log of empty lines": lambda run: (run / "log.jsonl").write_bytes(b"{}\n" * 200_000),
    "log of infinity": lambda run: logged(run, '{"step": Infinity, "finished": "x"}'),
    "log of a large number": lambda run: logged(run, f'{{"step": {"9" * 4000}}}'),
    "log of a larger number": lambda run: logged(run, f'{{"step": {"9" * 5000}}}'),
    "log of text": lambda run: logged(run, '{"step": "[/b]", "improved": true, "valid": {"loss": "[/b]\\u001b[2J"}}'),
    "log of lists": lambda run: logged(run, '{"step": [1], "improved": [1], "valid": {"loss": [1], "bleu": {}}}'),
    "log of NaN": lambda run: logged(run, '{"step": 1, "improved": true, "valid": {"loss": NaN, "bleu": -Infinity}}'),
    "log of nothing": lambda run: logged(run, '{"step": null, "improved": true, "valid": {"loss": null}}'),
    "log of a huge loss": lambda run: logged(run, f'{{"improved": 1, "valid": {{"loss": 1{"0" * 400}}}}}'),
    "last of garbage": lambda run: last_of(run).write_bytes(b"\xff" * 1000),
    "last that is a pipe": lambda run: os.mkfifo(last_of(run)),
    "last that is a folder": lambda run: last_of(run).mkdir(),
    "last of infinity": lambda run: safetensors.numpy.save_file({}, last_of(run), {"facts": '{"step": Infinity}'}),
    "last of a list": lambda run: safetensors.numpy.save_file({}, last_of(run), {"facts": "[" * 100_000}),
    "lock that is a pipe": lambda run: os.mkfifo(run / "lock"),
    "links that lead nowhere": lambda run: [(run / name).symlink_to(name) for name in ("log.jsonl", "lock", "a")],
    "[bold]\x1b[31m:smile:\n\u202e": lambda run: None,
}


def again(file: Path, make: Callable[[Path], object]) -> None:
    file.unlink(missing_ok=True)
    make(file)


def logged(run: Path, line: str) -> None:
    (run / "log.jsonl").write_text(f'{{"step": 3, "improved": true, "valid": {{"loss": 1.5}}}}\n{line}\n')


def last_of(run: Path) -> Path:
    (run / "last").mkdir()
    return run / "last" / "state.safetensors"


def test_runs_lists_every_run_whatever_stands_beside_it(tmp_path, bounded):
    for name, harm in HARM.items():
        run = Path(shutil.copytree(KEPT / "language", tmp_path / "runs" / name))
        harm(run)
    whole = Path(shutil.copytree(KEPT / "language", tmp_path / "runs" / "whole"))
    logged(whole, '{"step": 5, "improved": true, "valid": {"loss": 0.25}}')
    listed = bounded("runs", tmp_path / "runs", "--json", room=60 << 20)
    assert (listed.code, listed.err) == (0, ""), listed.err
    found = {run["name"]: run for run in json.loads(listed.out)}
    assert set(found) == {*HARM, "whole"}
    assert (found["whole"]["state"], found["whole"]["score"]) == ("ready", "loss 0.250")
    for name, run in found.items():
        assert run["score"] or run["state"] == "ready", run
        assert max(map(len, map(str, run.values()))) <= 100, name
    said = bounded("runs", tmp_path / "runs", room=60 << 20)
    assert (said.code, said.err) == (0, ""), said.err
    assert "loss 0.250" in said.out
    assert not re.search("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]", said.out)
    assert "[/b]" in said.out and ":smile:" in said.out


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every folder")
def test_runs_lists_the_others_beside_a_folder_that_may_not_be_read(tmp_path, call):
    for name in ("closed", "whole"):
        shutil.copytree(KEPT / "language", tmp_path / "runs" / name)
    for mode in (0o000, 0o400, 0o100):
        (tmp_path / "runs" / "closed").chmod(mode)
        said = call("runs", tmp_path / "runs")
        (tmp_path / "runs" / "closed").chmod(0o700)
        assert said.code == 0 and "whole" in said.out


# Words are not commands

EVIL = "\x1b]0;owned\x07\x9b31m\u202e[/b][bold]:smile:"


def on_terminal(*arguments: object) -> str:
    """What a terminal is sent by the command."""
    child, terminal = pty.fork()
    if not child:
        try:
            sys.stdin, sys.stdout = open(0), open(1, "w")  # noqa: SIM115
            sys.stderr = open(2, "w")  # noqa: SIM115
            sys.argv = ["regard", *map(str, arguments)]
            cli.main()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    sent = b""
    with suppress(OSError):  # its way of saying that the other end is closed
        while some := os.read(terminal, 1 << 16):
            sent += some
    os.close(terminal)
    os.waitpid(child, 0)
    return sent.decode()


def obeyed(sent: str) -> list[str]:
    """What a terminal would do besides what Rich asks of it: colours, cursor, lines."""
    controls = r"[\x00-\x08\x0b\x0c\x0e-\x1a\x1c-\x1f\x7f-\x9f\u202a-\u202e]"
    return re.findall(rf"\x1b(?!\[[0-9;?]*[A-Zhlm])|\x1b\[31m|{controls}", sent)


def labelled(folder: Path) -> Path:
    """A run whose labels want to be commands."""
    run = Path(shutil.copytree(KEPT / "classification", folder / "run"))
    saved = json.loads((run / "fields.json").read_text())
    names = saved["sides"]["target"]["names"]
    saved["sides"]["target"]["names"] = [f"{EVIL}{name}" for name in names]
    (run / "fields.json").write_text(json.dumps(saved))
    return run


def test_predictions_are_exact_in_a_pipe_and_plain_on_a_terminal(tmp_path, call):
    run = labelled(tmp_path)
    piped = call("predict", run, "a cat").out
    assert piped.startswith(EVIL)
    for sent in (on_terminal("predict", run, "a cat"), on_terminal("predict", run, "a cat", "--json")):
        assert "\\u001b]0;owned\\u0007\\u009b31m\\u202e[/b][bold]:smile:" in sent
        assert not obeyed(sent)
    assert json.loads(on_terminal("predict", run, "a cat", "--json"))["label"] == piped.split("\t")[0]


def test_nothing_from_a_file_commands_a_terminal(tmp_path, call):
    run, table = labelled(tmp_path), tmp_path / f"{EVIL.replace('/', '')}.tsv"
    names = json.loads((run / "fields.json").read_text())["sides"]["target"]["names"]
    table.write_text("".join(f"{number} cats or dogs by the door\t{names[number % 2]}\n" for number in range(60)))
    (tmp_path / "runs" / table.stem).mkdir(parents=True)
    (tmp_path / "runs" / table.stem / "config.toml").write_text(f"task = {json.dumps(EVIL)}\n[model]\nname = '[/b]'")
    recipe = tmp_path / "recipe.toml"
    assert call("new", "classification", table, "-o", recipe).code == 0
    commands = {
        "check": ("check", recipe),
        "runs": ("runs", tmp_path / "runs"),
        "missing": ("predict", KEPT / "language", table.with_suffix(".txt")),
        "usage": ("predict", KEPT / "language", f"--{EVIL}"),
        "neighbours": ("look", KEPT / "language", "--neighbours", EVIL),
        "score": ("score", run, table),
    }
    for name, arguments in commands.items():
        sent, said = on_terminal(*arguments), call(*arguments)
        for shown in (sent, said.out + said.err):
            assert "bol" in shown and not obeyed(shown), (
                name,
                shown,
            )  # a narrow column may be folded in the middle of it
            assert "unexpected" not in shown and "Traceback" not in shown, (name, shown)


def test_samples_and_tokens_while_training_are_plain(tmp_path):
    (tmp_path / "text").write_text(f"a {EVIL} cat\n" * 40)
    recipe = recipe_in(tmp_path, "language", NGRAM, "given", name="text", train="text", valid="text")
    sent = on_terminal("train", recipe, "-o", tmp_path / "run")
    assert "owned" in sent and not obeyed(sent), sent

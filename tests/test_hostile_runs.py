"""A run folder that somebody sends is data: no verb leaves the folder through it, executes what it names or is
filled by it. First what a sender would try, one by one; then hundreds of tamperings that a generator makes."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import pickle
import random
import re
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import IO, Any, NamedTuple

import numpy as np
import pytest
import safetensors.torch
import torch
from command import Call

import regard
from regard import cli, machine, usercode
from regard.data.tensors import write_tensors
from regard.interface import UserError

TEXTS = ["the cat sat on the mat", "a dog ran", "the dog sat"] * 20
SMALL = {"train.steps": 2, "train.precision": "float32", "train.validate_every": 1}
LONGEST = 20  # seconds that a command may take
MOST = 1024.0  # megabytes that it may take
MODELS = {
    "rnn": {"name": "rnn_lm", "embedding": 8, "hidden": 8},
    "gpt": {"name": "gpt", "dim": 8, "heads": 2, "feed_forward": 8, "layers": 1, "context": 32},
    "ngram": {"name": "ngram", "order": 2},
}


@pytest.fixture(scope="module")
def trained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with a whole run of each model."""
    place = tmp_path_factory.mktemp("trained")
    for name, model in MODELS.items():
        recipe = {"task": "language", "model": model}
        regard.train(recipe, place / name, data=TEXTS, valid=TEXTS[:24], settings=SMALL, progress=False)
    return place


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Somebody's files, which no run may change."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".bashrc").write_text("export MINE=1\n")
    return tmp_path / "home"


Snapshot = dict[str, tuple[int, int, bytes]]


def snapshot(place: Path) -> Snapshot:
    """All that is in a folder: kinds, times and contents."""
    found = {}
    for path in sorted(place.rglob("*")):
        stat = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(place))] = (stat.st_mode, stat.st_mtime_ns, content)
    return found


class Outcome(NamedTuple):
    code: int  # negative: a signal ended it
    said: str
    err: str
    megabytes: float  # that it took beyond what it began with


def forked(*arguments: object) -> Outcome:
    """The command in a process of its own, which has torch already, may take 20 seconds and has 4 GB to grow by."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        before = resident()
        child = os.fork()
        if not child:
            try:
                alone(out, err, *map(str, arguments))
            finally:
                os._exit(99)
        _, status, used = os.wait4(child, 0)
        out.seek(0)
        err.seek(0)
        grown = max(0.0, used.ru_maxrss / 1024 - before)
        return Outcome(os.waitstatus_to_exitcode(status), out.read(), err.read(), grown)


def resident() -> float:
    """The memory of this process in megabytes."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE") / (1 << 20)


def alone(out: IO[str], err: IO[str], *arguments: str) -> None:
    signal.signal(signal.SIGALRM, signal.SIG_DFL)
    signal.alarm(LONGEST)
    size = int(Path("/proc/self/statm").read_text().split()[0]) * os.sysconf("SC_PAGE_SIZE")
    resource.setrlimit(resource.RLIMIT_AS, (size + (4 << 30),) * 2)
    with open(os.devnull) as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(out.fileno(), 1)
    os.dup2(err.fileno(), 2)
    sys.stdout, sys.stderr = open(1, "w", closefd=False), open(2, "w", closefd=False)  # noqa: SIM115
    sys.argv = ["regard", *arguments]
    code = 98
    try:
        cli.main()
    except SystemExit as ended:
        code = int(ended.code or 0)
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def sent(trained: Path, name: str, to: Path) -> Path:
    return Path(shutil.copytree(trained / name, to))


VERBS: dict[str, Callable[[Path], list[object]]] = {
    "predict": lambda run: ["predict", run, "the cat"],
    "score": lambda run: ["score", run, run.parent / "lines.txt"],
    "look": lambda run: ["look", run, "--neighbours", "c"],
    "compare": lambda run: ["compare", run, "--test", run.parent / "lines.txt", "-o", run.parent / "report.html"],
    "resume": lambda run: ["train", run / "config.toml", "train.steps=3", "-o", run],
    "again": lambda run: ["train", run / "config.toml", "-o", run.parent / "again"],
    "from": lambda run: ["train", run.parent / "mine.toml", f"train.from={run}", "-o", run.parent / "again"],
    "export": lambda run: ["export", run, "--to", "arpa"],
    "runs": lambda run: ["runs", run.parent],
}
LINKS = {  # what a link takes the place of, and the verbs that meet it
    "config.toml": ("predict", "score", "resume", "again", "compare"),
    "fields.json": ("predict", "compare", "resume"),
    "environment.json": ("resume",),
    "model.safetensors": ("predict", "score", "compare", "resume"),
    "last/state.safetensors": ("resume",),
    "log.jsonl": ("resume",),
    "samples.txt": ("resume",),
    "last": ("resume", "predict"),
    "data": ("resume", "compare"),
    "examples": ("resume", "predict"),
    "tensorboard": ("resume", "predict"),
}


@pytest.mark.parametrize(("what", "verb"), [(what, verb) for what, verbs in LINKS.items() for verb in verbs])
def test_a_link_inside_a_run_is_not_followed(what: str, verb: str, trained: Path, home: Path, call: Call) -> None:
    """It is refused even where it leads to the very file that was there: to any file, then."""
    run = sent(trained, "rnn", home.parent / "run")
    (home.parent / "lines.txt").write_text("the cat\n")
    place, target = run / what, home / Path(what).name
    if place.exists():
        place.rename(target)
    else:
        target.mkdir()
    place.symlink_to(target)
    before = snapshot(home)
    said = call(*VERBS[verb](run))
    assert said.code == 1
    assert "link" in said.out + said.err
    assert said.err.count("\n") == 1
    assert snapshot(home) == before


def test_what_is_made_again_takes_the_place_of_a_link(trained: Path, home: Path, call: Call) -> None:
    """The encoded data, which follows from the text, is written again and its links are replaced."""
    run = sent(trained, "rnn", home.parent / "run")
    for file in ("train.target.tokens.npy", "valid"):
        (run / "data" / file).rename(home / file)
        (run / "data" / file).symlink_to(home / file)
    before = snapshot(home)
    assert "link" in call(*VERBS["resume"](run)).err  # its list of hashes is a file that is written
    (run / "data" / "valid").unlink()
    assert call(*VERBS["resume"](run)).code == 0
    assert not (run / "data" / "train.target.tokens.npy").is_symlink()
    assert snapshot(home) == before


def test_export_writes_through_no_link_but_where_it_is_told_to(trained: Path, home: Path, call: Call) -> None:
    run = sent(trained, "ngram", home.parent / "run")
    (run / "model.arpa").symlink_to(home / ".bashrc")
    before = snapshot(home)
    said = call(*VERBS["export"](run))
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "link" in said.err
    assert snapshot(home) == before
    assert call(*VERBS["export"](run), "-o", run / "model.arpa").code == 0
    assert (home / ".bashrc").read_text().startswith("\\data\\")


def test_what_compare_keeps_beside_a_run_is_written_through_no_link(trained: Path, home: Path, call: Call) -> None:
    run = sent(trained, "rnn", home.parent / "run")
    (home.parent / "lines.txt").write_text("the cat\n" * 3)
    (home.parent / "run.json").symlink_to(home / ".bashrc")
    before = snapshot(home)
    assert "link" in "".join(call(*VERBS["compare"](run))[1:])
    assert snapshot(home) == before


def test_a_temporary_file_that_was_waiting_is_not_written_through(trained: Path, home: Path, call: Call) -> None:
    """A sender may guess the number of a process, and so the name of its temporary files."""
    run = sent(trained, "rnn", home.parent / "run")
    shutil.rmtree(run / "data")
    (run / "data").mkdir()
    names = ["model.safetensors", "config.toml", "last/state.safetensors", "data/train", "data/train.target.tokens.npy"]
    planted = [(run / name).with_name(f".{Path(name).name}.{os.getpid()}") for name in names]
    planted += [run / "examples" / ".train.txt"]
    for path in planted:
        path.symlink_to(home / ".bashrc")
    before = snapshot(home)
    assert call(*VERBS["resume"](run)).code == 0
    longer = {**SMALL, "train.steps": 4}
    recipe = {"task": "language", "model": MODELS["rnn"]}
    regard.train(recipe, run, data=TEXTS, valid=TEXTS[:24], settings=longer, progress=False)
    assert snapshot(home) == before
    assert not any(path.is_symlink() for path in planted)


def test_a_log_with_a_second_name_is_not_appended_to(trained: Path, home: Path, call: Call) -> None:
    run = sent(trained, "rnn", home.parent / "run")
    (run / "samples.txt").unlink()
    os.link(home / ".bashrc", run / "samples.txt")
    before = snapshot(home)
    assert "hard link" in call(*VERBS["resume"](run)).err
    assert snapshot(home) == before


def test_a_saved_copy_holds_nothing_that_a_link_leads_to(trained: Path, home: Path) -> None:
    run = sent(trained, "rnn", home.parent / "run")
    (run / "notes.txt").symlink_to(home / ".bashrc")
    os.mkfifo(run / "pipe")
    saved = Path(regard.load(run).save(home.parent / "copy").name)
    names = {"config.toml", "environment.json", "fields.json", "log.jsonl", "model.safetensors"}
    assert {path.name for path in saved.iterdir()} == names
    assert regard.load(saved).predict("the cat")


def test_a_linked_run_folder_is_used(trained: Path, home: Path, call: Call) -> None:
    run = sent(trained, "rnn", home / "run")
    (home.parent / "latest").symlink_to(run)
    assert call(*VERBS["resume"](home.parent / "latest")).code == 0
    assert call(*VERBS["predict"](home.parent / "latest")).code == 0


# --- code ---------------------------------------------------------------------------------------------------------

CELL = """# {mark}
from regard.layers.cells import GRUAfter

open({canary!r}, "a").close()

class Own(GRUAfter):
    pass
"""


def cell_in(place: Path, mark: str) -> Path:
    """A user's file that is like no other, and whose execution leaves a trace: `place`/ran."""
    place.mkdir(exist_ok=True)
    (place / "cells.py").write_text(CELL.format(mark=f"{mark} {place}", canary=str(place / "ran")))
    return place / "cells.py"


def naming(run: Path, file: Path) -> Path:
    """Write into a run that its cell is in this file, and the file's hash, as a sender would."""
    config = (run / "config.toml").read_text()
    (run / "config.toml").write_text(re.sub(r'cell = "[^"]*"', lambda _: f'cell = "{file}:Own"', config))
    facts = json.loads((run / "environment.json").read_text())
    facts["code"] = {str(file): hashlib.sha256(file.read_bytes()).hexdigest()}
    (run / "environment.json").write_text(json.dumps(facts))
    return run


@pytest.fixture
def with_cell(trained: Path, home: Path) -> tuple[Path, Path]:
    """A run that was trained with a cell, and the cell's file in place of which the sender names another."""
    own = cell_in(home, "mine")
    model = {**MODELS["rnn"], "cell": f"{own}:Own"}
    recipe = {"task": "language", "model": model}
    regard.train(recipe, home.parent / "run", data=TEXTS, valid=TEXTS[:24], settings=SMALL, progress=False)
    (home.parent / "lines.txt").write_text("the cat\n" * 3)
    file = cell_in(home.parent / "theirs", "\x1b[2J\u202enever seen")
    return naming(home.parent / "run", file), file


@pytest.mark.parametrize("verb", ["predict", "score", "look", "compare", "resume", "again", "export", "check"])
def test_a_run_executes_nothing_that_its_user_has_not_trained_with(
    verb: str, with_cell: tuple[Path, Path], call: Call
) -> None:
    """Whatever path and whatever hash the run holds; who trusts it says so."""
    run, file = with_cell
    command = ["check", run / "config.toml"] if verb == "check" else VERBS[verb](run)
    said = call(*command)
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert f"have not trained with, {file}, which begins with '# [2Jnever seen" in said.err
    assert "--trust-code" in said.err
    assert "\x1b" not in said.err
    assert not (file.parent / "ran").exists()
    said = call(*command, "--trust-code")
    assert "--trust-code" not in said.err
    assert (file.parent / "ran").exists() or verb == "check"  # which builds no model


def test_from_python_it_is_the_same(with_cell: tuple[Path, Path]) -> None:
    run, file = with_cell
    with pytest.raises(UserError, match="trust_code=True"):
        regard.load(run)
    with pytest.raises(UserError, match="trust_code=True"):
        regard.train(run / "config.toml", run)
    with pytest.raises(UserError, match="trust_code=True"):
        regard.compare(run, TEXTS)
    assert not (file.parent / "ran").exists()
    assert regard.load(run, trust_code=True).predict("the cat")
    assert (file.parent / "ran").exists()


@pytest.mark.parametrize("key", ["cell", "name"])
def test_pythons_own_library_is_executed_for_no_run(key: str, trained: Path, home: Path, call: Call) -> None:
    spec = importlib.util.find_spec("this")
    assert spec and spec.origin and "this" not in sys.modules
    run = naming(sent(trained, "rnn", home.parent / "run"), Path(spec.origin))
    if key == "name":
        config = (run / "config.toml").read_text()
        (run / "config.toml").write_text(config.replace('name = "rnn_lm"', f'name = "{spec.origin}"'))
    said = call(*VERBS["predict"](run))
    assert (said.code, said.out, said.err.count("\n")) == (1, "", 1)
    assert f"{spec.origin}, which begins with" in said.err


def test_what_was_trained_with_is_remembered_outside_the_run(trained: Path, home: Path, call: Call) -> None:
    file, trusted = cell_in(home, "mine"), usercode.trusted_file()
    start = ["train", trained / "rnn" / "config.toml", f"model.cell={file}:Own", "train.steps=1"]
    assert forked(*start, "-o", home / "run").code == 0  # another process than the one that uses it
    assert f'{hashlib.sha256(file.read_bytes()).hexdigest()}  "{file}"\n' in trusted.read_text()
    assert call(*VERBS["predict"](home / "run")).code == 0
    lines = trusted.read_text()
    assert call("train", home / "run" / "config.toml", "train.steps=2", "-o", home / "run").code == 0
    assert trusted.read_text() == lines
    file.write_text(file.read_text() + "# more\n")
    naming(home / "run", file)
    assert "have not trained with" in call(*VERBS["predict"](home / "run")).err


def test_training_goes_on_where_nothing_can_be_remembered(
    trained: Path, home: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home / ".bashrc"))
    cell = f"model.cell={cell_in(home, 'mine')}:Own"
    said = call("train", trained / "rnn" / "config.toml", cell, "-o", home / "run")
    assert said.code == 0
    assert said.out.count("--trust-code") == 1
    assert call(*VERBS["predict"](home / "run")).code == 0  # this process trained with it


def test_the_bytes_that_are_checked_are_those_that_are_executed(home: Path) -> None:
    file = cell_in(home, "first")
    usercode.trust(file)
    file.write_text(file.read_text() + "# changed\n")
    with pytest.raises(UserError, match="have not trained with"):
        usercode.module(file)
    assert not (home / "ran").exists()


@pytest.mark.slow
def test_a_process_that_is_started_imports_nothing_from_the_current_folder(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (home / "torch.py").write_text(f"open({str(home / 'ran')!r}, 'w')\n")
    monkeypatch.chdir(home)
    machine.probe_bf16.cache_clear()
    assert machine.probe_bf16().wait() == 0
    machine.probe_bf16.cache_clear()
    assert not (home / "ran").exists()


# --- memory -------------------------------------------------------------------------------------------------------

GREEDY = {  # settings that ask for much more than the weights hold
    "gpt": ["dim = 12000", "dim = 1000000", "layers = 1000", "feed_forward = 1000000", "context = 1000000"],
    "rnn": ["hidden = 12000\nembedding = 12000", "hidden = 1000000\nembedding = 1000000", "layers = 1000"],
    "ngram": ["order = 1000000"],
}


def with_settings(run: Path, settings: str) -> Path:
    """Write these settings of the model into the run's recipe in place of its own."""
    config = run / "config.toml"
    for setting in settings.splitlines():
        key = setting.split(" = ")[0]
        config.write_text(re.sub(rf"^{key} +=.*", setting, config.read_text(), flags=re.MULTILINE))
    return run


@pytest.mark.parametrize("verb", ["predict", "resume"])
@pytest.mark.parametrize(("name", "settings"), [(name, each) for name, some in GREEDY.items() for each in some])
def test_a_model_is_built_only_if_its_weights_are_there(
    name: str, settings: str, verb: str, trained: Path, home: Path
) -> None:
    run = with_settings(sent(trained, name, home.parent / "run"), settings)
    said = forked(*VERBS[verb](run))
    assert (said.code, said.err.count("\n")) == (1, 1)
    assert "An unexpected" not in said.err
    assert said.megabytes < 100


# --- hundreds of tamperings ---------------------------------------------------------------------------------------

FILES = ["config.toml", "fields.json", "environment.json", "model.safetensors", "last/state.safetensors", "log.jsonl"]
FILES += ["samples.txt", "data/train", "data/valid", "data/train.target.tokens.npy", "data/train.target.offsets.npy"]
FILES += ["data/valid.target.tokens.npy", "examples/train.txt", "lock", "model.arpa", "../run.json"]
FOLDERS = ["last", "data", "examples", "tensorboard"]
DEEP = "a list in a list in a list …"  # which is written as one
Draw = random.Random


class Canary:
    """What unpickling it would do."""

    def __init__(self, place: Path) -> None:
        self.place = place

    def __reduce__(self) -> Any:
        return Path.touch, (self.place,)


def nonsense(draw: Draw) -> Any:
    """A value that stands nowhere in a run."""
    numbers = [0, -1, 1, 1 << 31, 1 << 62, 1 << 63, 10**30, 1e308, -1e308, float("nan"), float("inf"), 0.5]
    texts = [
        "",
        "x",
        "\x1b[2J\x07",
        "[/b][red]",
        "a\nb\r\u2028",
        "\0",
        "../../..",
        "/dev/zero",
        "\ud800",
        "w" * 100_000,
    ]
    others = [None, True, [], {}, [[]], {"a": {}}, [None] * 1000, ["a", "a"], {"tokenizer": "source"}, DEEP]
    return draw.choice([*numbers, *texts, *others])


def somewhere(draw: Draw, tree: Any) -> Any:
    """The tree with nonsense at a random place in it, or without what was there."""
    if isinstance(tree, dict) and tree and draw.random() < 0.9:
        key = draw.choice(list(tree))
        if draw.random() < 0.15:
            return {other: value for other, value in tree.items() if other != key}
        return {**tree, key: somewhere(draw, tree[key])}
    if isinstance(tree, list) and tree and draw.random() < 0.9:
        place = draw.randrange(len(tree))
        return [*tree[:place], somewhere(draw, tree[place]), *tree[place + 1 :]]
    return nonsense(draw)


def rewrite(path: Path, content: bytes) -> None:
    path.parent.mkdir(exist_ok=True)
    path.unlink(missing_ok=True)
    path.write_bytes(content)


def as_json(value: Any) -> bytes:
    return json.dumps(value).replace(json.dumps(DEEP), "[" * 50_000 + "]" * 50_000).encode()


def a_link(draw: Draw, run: Path, home: Path) -> None:
    place = run / draw.choice(FILES + FOLDERS)
    targets = [home / ".bashrc", home, home / "nowhere", Path("/dev/zero"), Path("/etc/passwd"), place, Path("..")]
    if place.is_dir():
        shutil.rmtree(place)
    place.unlink(missing_ok=True)
    place.parent.mkdir(exist_ok=True)
    place.symlink_to(draw.choice(targets))


def a_pipe_or_a_folder(draw: Draw, run: Path, home: Path) -> None:
    place = run / draw.choice(FILES)
    place.unlink(missing_ok=True)
    draw.choice([os.mkfifo, os.mkdir])(place)


def a_hard_link(draw: Draw, run: Path, home: Path) -> None:
    place = run / draw.choice(FILES)
    place.unlink(missing_ok=True)
    os.link(home / ".bashrc", place)


def other_bytes(draw: Draw, run: Path, home: Path) -> None:
    place = run / draw.choice([file for file in FILES if (run / file).exists()])
    content = bytearray(place.read_bytes())
    at = draw.randrange(len(content) + 1)
    content[at : at + draw.choice([0, 1, 8, 1000])] = draw.choice(
        [b"", b"\0", b"\xff" * 9, draw.randbytes(64), b"[" * 9999]
    )
    rewrite(place, bytes(content))


def another_length(draw: Draw, run: Path, home: Path) -> None:
    place = run / draw.choice([file for file in FILES if (run / file).exists()])
    os.truncate(place, draw.choice([0, 1, 7, 8, place.stat().st_size // 2, 1 << 20, 1 << 31, 1 << 40]))


def a_swap(draw: Draw, run: Path, home: Path) -> None:
    here = [file for file in FILES if (run / file).exists()]
    source = Path(os.environ["TRAINED"]) / draw.choice(list(MODELS)) / draw.choice(here)
    rewrite(run / draw.choice(here), source.read_bytes() if source.exists() else b"")


def a_setting(draw: Draw, run: Path, home: Path) -> None:
    """Another value of a setting, a setting that is gone or one that is nowhere."""
    lines = (run / "config.toml").read_text().splitlines()
    at = draw.choice([number for number, line in enumerate(lines) if " = " in line])
    key = lines[at].split("=")[0]
    file = cell_in(home.parent / "theirs", "theirs")
    paths = [
        home / ".bashrc",
        file,
        f"{file}:Own",
        run,
        home,
        "/dev/zero",
        "/proc/self/mem",
        "..",
        "gru",
        "lstm",
        "gpt",
    ]
    values = [
        0,
        -1,
        1,
        3,
        1000,
        12_000,
        10**6,
        1 << 40,
        10**30,
        "1e400",
        "nan",
        "inf",
        "true",
        "0.5",
        '"\\u001b[2J"',
        "[]",
    ]
    values += [
        f'"{draw.choice(paths)}"',
        f'"{draw.choice(paths)}"',
        "[" * 3000,
        "{a = 1}",
        "1979-05-27",
        '"""',
        '["a"]',
    ]
    line = f"{key} = {draw.choice(values)}"
    deep = ".".join("a" * 3000) + " = 1"
    lines[at : at + 1] = draw.choice(
        [[line], [line], [line], [line], [], [lines[at], line], [deep], [f"[{deep[:-4]}]"]]
    )
    (run / "config.toml").write_text("\n".join(lines))


def in_json(draw: Draw, run: Path, home: Path) -> None:
    place = run / draw.choice(["fields.json", "fields.json", "environment.json", "../run.json"])
    rewrite(place, as_json(somewhere(draw, json.loads(place.read_text()))))


def in_the_log(draw: Draw, run: Path, home: Path) -> None:
    entries = [json.loads(line) for line in (run / "log.jsonl").read_text().splitlines()]
    entries += [somewhere(draw, draw.choice(entries)) for _ in range(draw.choice([1, 5]))]
    rewrite(run / "log.jsonl", b"\n".join(map(as_json, entries)) + draw.choice([b"", b"\n", b"\xff", b"\0" * 99]))


def a_header(draw: Draw, run: Path, home: Path) -> None:
    """The header of a file of weights says something else."""
    place = run / draw.choice(["model.safetensors", "last/state.safetensors"])
    content = place.read_bytes()
    size = int.from_bytes(content[:8], "little")
    header = as_json(somewhere(draw, json.loads(content[8 : 8 + size])))
    said = draw.choice([len(header)] * 4 + [0, size, 1 << 40, (1 << 64) - 1])
    rewrite(place, said.to_bytes(8, "little") + header + content[8 + size :])


def other_tensors(draw: Draw, run: Path, home: Path) -> None:
    """Other weights or facts, under a checksum that is right."""
    place = run / draw.choice(["model.safetensors", "last/state.safetensors"])
    tensors = safetensors.torch.load_file(place)
    with safetensors.safe_open(str(place), framework="pt") as file:
        facts = json.loads(file.metadata()["facts"])
    name = draw.choice(sorted(tensors))
    tensor = tensors[name]
    changes: list[Callable[[], Any]] = [
        lambda: tensors.pop(name),
        lambda: tensors.update({name: torch.full_like(tensor, 7)}),
        lambda: tensors.update({name: torch.full_like(tensor.float(), float("nan"))}),
        lambda: tensors.update({name: tensor.double()}),
        lambda: tensors.update({name: tensor.flatten()[: draw.choice([0, 1, 3])]}),
        lambda: tensors.update({f"{name}\x1b[2J": tensor.clone()}),
        lambda: tensors.update({name: torch.zeros(0, 1 << 40)}),
        lambda: tensors.update({name: -tensor if tensor.dtype.is_floating_point else tensor.roll(1)}),
    ]
    if draw.random() < 0.4:
        facts = somewhere(draw, facts)
    else:
        draw.choice(changes)()
    place.unlink()
    write_tensors(place, tensors, facts)


def other_arrays(draw: Draw, run: Path, home: Path) -> None:
    """Other encoded data, under hashes that are right."""
    split, part = draw.choice(["train", "valid"]), draw.choice(["tokens", "offsets"])
    place = run / "data" / f"{split}.target.{part}.npy"
    array = np.load(place)
    canary: Any = np.array([Canary(home.parent / "theirs" / "ran")], dtype=object)
    huge = array.astype(np.int64) + (1 << 40)
    kinds = [
        array.astype(float),
        array[:0],
        array[None],
        array[::-1],
        -array,
        array * 100,
        huge,
        array.astype("S3"),
        canary,
    ]
    np.save(place, draw.choice(kinds), allow_pickle=True)
    if draw.random() < 0.2:
        rewrite(place, pickle.dumps(Canary(home.parent / "theirs" / "ran")))
    files = sorted((run / "data").glob(f"{split}.*.npy"))
    hashes = [hashlib.sha256(file.read_bytes()).hexdigest() for file in files]
    (run / "data" / split).write_text(" ".join([draw.choice(["0", "0", "-1", "x", str(10**30)]), *hashes]))


def code_of_the_sender(draw: Draw, run: Path, home: Path) -> None:
    """A cell or a model in the sender's file, with its right hash."""
    file = cell_in(draw.choice([home.parent / "theirs", run, run / "data"]), "theirs")
    config = (run / "config.toml").read_text()
    if draw.random() < 0.5:
        config = re.sub(r'^name = "[^"]*"(?=[^\[]*\bdropout)', f'name = "{file}"', config, flags=re.MULTILINE)
    else:
        config = re.sub(r'cell += +"[^"]*"', f'cell = "{file}:Own"', config)
    (run / "config.toml").write_text(config)
    facts = json.loads((run / "environment.json").read_text())
    facts["code"] = {str(file): hashlib.sha256(file.read_bytes()).hexdigest()}
    (run / "environment.json").write_text(json.dumps(facts))


TAMPERINGS = [
    a_link,
    a_pipe_or_a_folder,
    a_hard_link,
    other_bytes,
    another_length,
    a_swap,
    a_setting,
    a_setting,
    a_setting,
]
TAMPERINGS += [in_json, in_json, in_the_log, a_header, other_tensors, other_arrays, a_link, a_link, code_of_the_sender]


def tampered(number: int, trained: Path, place: Path) -> tuple[Path, str]:
    """Run folder number so-and-so that somebody sends, and how it was made."""
    draw = Draw(number)
    name = draw.choice(list(MODELS))
    run = sent(trained, name, place / "run")
    shutil.copy(trained / "rnn.json", place / "run.json")
    some = [draw.choice(TAMPERINGS) for _ in range(draw.choice([1, 1, 1, 2]))]
    for tamper in some:
        try:
            tamper(draw, run, place / "home")
        except (OSError, ValueError):  # an earlier one has taken its file away
            continue
    return run, f"{number}: {name}, {', '.join(tamper.__name__ for tamper in some)}"


@pytest.fixture
def measured(trained: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Runs, beside one of which is what compare has kept."""
    (trained / "lines.txt").write_text("the cat\n" * 3)
    if not (trained / "rnn.json").exists():
        assert forked(*VERBS["compare"](trained / "rnn")).code == 0
    monkeypatch.setenv("TRAINED", str(trained))
    return trained


def faults(number: int, verbs: Sequence[str], trained: Path, place: Path) -> list[str]:
    """What is wrong with how these verbs take this folder."""
    (place / "home").mkdir(parents=True)
    (place / "home" / ".bashrc").write_text("export MINE=1\n")
    (place / "lines.txt").write_text("the cat\n" * 3)
    shutil.copy(trained / "rnn" / "config.toml", place / "mine.toml")
    run, how = tampered(number, trained, place)
    before = snapshot(place / "home")
    found = []
    for verb in verbs:
        said = forked(*VERBS[verb](run))
        last = said.err.rstrip("\n").rpartition("\n")[2]
        wrong = {
            "it changed a file outside": snapshot(place / "home") != before,
            "it executed code": any(place.rglob("ran")),
            f"it took {said.megabytes:.0f} MB": said.megabytes > MOST,
            f"it ended with {said.code}": said.code not in (0, 1),
            "it is no sentence": said.code == 1 and not (last.startswith("regard: ") and last.endswith((".", "?"))),
            "it was not expected": "An unexpected" in said.err or "Traceback" in said.err,
        }
        found += [f"{how}, {verb}: {what}: {said.err[-300:]}" for what, holds in wrong.items() if holds]
    shutil.rmtree(place)
    return found


EVERY = list(VERBS)


@pytest.mark.parametrize("part", range(4))
def test_no_tampering_gets_out_or_gets_much(part: int, measured: Path, tmp_path: Path) -> None:
    numbers = range(12 * part, 12 * part + 12)
    assert not [fault for n in numbers for fault in faults(n, [EVERY[n % len(EVERY)]], measured, tmp_path / str(n))]


@pytest.mark.slow
@pytest.mark.parametrize("part", range(50))
def test_none_of_500_tamperings_gets_out_or_gets_much(part: int, measured: Path, tmp_path: Path) -> None:
    """Each of them through every verb, one after another, beginning with another one each time."""
    numbers = range(10 * part, 10 * part + 10)
    verbs = {n: EVERY[n % len(EVERY) :] + EVERY[: n % len(EVERY)] for n in numbers}
    assert not [fault for n in numbers for fault in faults(n, verbs[n], measured, tmp_path / str(n))]

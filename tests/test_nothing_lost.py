"""Laws of endings: a signal ends every command, a screen that is gone ends nothing that is worth keeping, and what was
cut off can be repeated.

Commands run in real processes, forked from one that has torch already. Started as a program, this file is that process.
"""

from __future__ import annotations

import errno
import fcntl
import gc
import json
import os
import resource
import select
import shlex
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import pytest
import safetensors.torch
import torch
from command import ENVIRONMENT, REGARD

import regard
from regard.checkpoint import Folder
from regard.data.tensors import read_tensors, write_tensors
from regard.interface import UserError
from regard.recipe import parse_recipe
from regard.tasks.registry import TASKS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes and pipes are as Linux has them")
RUNS = Path(__file__).parent / "runs"
flock = fcntl.flock
LONGEST = 60.0  # seconds that a child may take
PROMPT = 2.0  # seconds in which a signal ends a command
STUCK = 20.0  # seconds that a library takes, for which the main thread handles no signal

ARPA = """
\\data\\
ngram 1=4
ngram 2=2

\\1-grams:
-1 <s> -0.5
-0.5 </s>
-0.6 cat -0.2
-0.7 a -0.3

\\2-grams:
-0.3 <s> a
-0.2 a cat

\\end\\
"""
RECIPE = """
task = "translation"
seed = 28
[data]
name = "parallel"
source = "text"
target = "text"
valid_source = "text"
valid_target = "text"
[tokens]
kind = "words"
size = 0
[model]
name = "seq2seq"
embedding = 3
hidden = 5
layers = 1
dropout = 0.1
[train]
steps = 4
validate_every = 1
precision = "float32"
"""


# --- The process that forks processes ----------------------------------------------------------------------------


class Ended(NamedTuple):
    code: int
    out: str
    err: str
    calls: int  # that the main thread made
    seconds: float  # since the signal


def serve() -> None:
    """Run a command in a child for each line of standard input; tell how it ended in a line of standard output."""
    import typer.main

    from regard import cli

    for name in (
        "train.session",
        "compare.api",
        "compare.children",
        "exchange.arpa",
        "look.attention",
        "show.report_page",
    ):
        import_module(f"regard.{name}")
    cli.app = typer.main.get_command(cli.app)
    weight = torch.nn.Parameter(torch.ones(2, 3))
    optimiser = torch.optim.AdamW([weight], fused=True)  # the first one imports half of torch
    weight.sum().backward()
    optimiser.step()
    gc.collect()
    gc.freeze()
    for line in sys.stdin:
        request = json.loads(line)
        pipes = [os.pipe() for _ in range(4)]
        number = os.fork()
        if number == 0:
            be_child(request, pipes)
        for _, write in pipes:
            os.close(write)
        for stream in request["unread"]:
            os.close(pipes[stream][0])
        child = os.pidfd_open(number)
        if not select.select([child], [], [], LONGEST)[0]:
            os.kill(number, signal.SIGKILL)
        status = os.waitpid(number, 0)[1]
        ended = time.monotonic()
        os.close(child)
        said = ["", *("" if each in request["unread"] else os.fdopen(pipes[each][0]).read() for each in (1, 2))]
        calls, sent = json.loads(os.fdopen(pipes[3][0]).read() or "[0, 0]")
        seconds = ended - sent if sent else 0.0
        sys.stdout.write(json.dumps([os.waitstatus_to_exitcode(status), said[1], said[2], calls, seconds]) + "\n")
        sys.stdout.flush()


def be_child(request: dict[str, Any], pipes: list[tuple[int, int]]) -> None:
    from regard import cli

    for read, _ in pipes:
        os.close(read)
    reports = pipes[3][1]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.dup2(pipes[1][1], 1)
    os.dup2(pipes[2][1], 2)
    for _, write in pipes[:3]:
        os.close(write)
    os.chdir(request["folder"])
    os.environ.update(request["environment"])
    for stream, name in ((0, "stdin"), (1, "stdout"), (2, "stderr")):
        if stream in request["closed"]:  # as Python finds it at its start
            os.close(stream)
            setattr(sys, name, None)
            setattr(sys, f"__{name}__", None)
    if request["full"]:
        os.dup2(os.open("/dev/full", os.O_WRONLY), 1)
    sys.argv = ["regard", *request["arguments"]]
    counted = [0]

    def hook(frame: FrameType, event: str, called: Any) -> None:
        if event == "call":
            counted[0] += 1
            if counted[0] == request["at"]:
                os.write(reports, json.dumps([counted[0], time.monotonic()]).encode())
                os.kill(os.getpid(), request["signal"])
                threading.Event().wait(STUCK)  # as in a library that takes long

    if request["at"]:
        sys.setprofile(hook)
    try:
        cli.main()
    except SystemExit as ended:
        sys.setprofile(None)
        if request["at"] < 0:
            os.write(reports, json.dumps([counted[0], 0]).encode())
        if request["whole"]:
            raise
        os._exit(int(ended.code or 0))


class Nursery:
    """`regard` commands, each in a process of its own."""

    def __init__(self) -> None:
        self.server = subprocess.Popen(
            [sys.executable, __file__], env=ENVIRONMENT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __call__(
        self,
        *arguments: object,
        folder: Path,
        at: int = 0,  # before this call of a function (-1: none, they are counted), the process gets ...
        number: int = signal.SIGTERM,
        closed: tuple[int, ...] = (),  # streams that are closed, ...
        unread: tuple[int, ...] = (),  # or whose reader is gone
        full: bool = False,  # standard output is a disk without room
        whole: bool = False,  # Python ends as it ends, which takes long where there is torch
        **environment: str,
    ) -> Ended:
        request = {
            "arguments": [str(argument) for argument in arguments],
            "folder": str(folder),
            "at": at,
            "signal": number,
            "closed": closed,
            "unread": unread,
            "full": full,
            "whole": whole,
            "environment": environment,
        }
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return Ended(*json.loads(self.server.stdout.readline()))


@pytest.fixture(scope="module")
def regard_() -> Iterator[Nursery]:
    nursery = Nursery()
    yield nursery
    assert nursery.server.stdin is not None
    nursery.server.stdin.close()
    nursery.server.wait()


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """A folder with something for every command."""
    (tmp_path / "text").write_text("a cat\ncat a cat\n" * 30)
    (tmp_path / "model.arpa").write_text(ARPA)
    (tmp_path / "toy.toml").write_text(RECIPE)
    shutil.copytree(RUNS / "translation", tmp_path / "runs" / "one")
    shutil.copytree(RUNS / "translation", tmp_path / "runs" / "two")
    return tmp_path


COMMANDS = {  # each of them prints, and some write
    "train": ["train", "toy.toml"],
    "demo": ["demo", "tagging"],
    "predict": ["predict", "runs/one", "text", "-o", "out"],
    "score": ["score", "runs/one", "--source", "text", "--target", "text", "-o", "out"],
    "look": ["look", "runs/one", "a cat", "-o", "out.svg"],
    "check": ["check", "toy.toml", "--write", "clean"],
    "new": ["new", "translation", "--source", "text", "--target", "text"],
    "compare": ["compare", "runs/one", "runs/two", "--test", "text", "--test", "text"],
    "import": ["import", "model.arpa"],
    "export": ["export", "runs/model", "--to", "arpa", "-o", "out.arpa"],
    "runs": ["runs"],
}


def prepared(regard_: Nursery, home: Path, name: str) -> list[str]:
    if name == "export":
        assert regard_(*COMMANDS["import"], folder=home).code == 0
    return COMMANDS[name]


def left_over(folder: Path) -> list[str]:
    return [path.name for path in folder.rglob(".*")]


# --- Signals -----------------------------------------------------------------------------------------------------

STREAMS: list[dict[str, Any]] = [{}, {"unread": (2,)}, {"closed": (0, 1, 2)}]


@pytest.mark.parametrize(("place", "name"), [*enumerate(COMMANDS)])
def test_a_signal_ends_every_command_at_once(regard_, home, place, name):
    """Also where the main thread is inside a library, and whether standard error is read, unread or closed."""
    arguments = prepared(regard_, home, name)
    if name == "train":  # nearly all of it is opening, then
        arguments = [*arguments, "train.steps=1"]
    copy = shutil.copytree(home, home.parent / f"{home.name}-copy")
    calls = 100_000 if name == "demo" else regard_(*arguments, folder=copy, at=-1).calls
    how, number = STREAMS[place % 3], (signal.SIGTERM, signal.SIGINT)[place % 2]
    ended = regard_(*arguments, folder=home, at=int(calls * 0.4), number=number, **how)
    assert (ended.code, ended.out.count("\n")) == (128 + number, name == "demo")  # which names its data first
    assert ended.seconds < PROMPT
    assert ended.err.count("\n") == (not how) and "Traceback" not in ended.err
    assert not left_over(home)
    again = regard_(*arguments, folder=home) if name == "import" else None
    assert again is None or again.code == 0


# --- Standard streams --------------------------------------------------------------------------------------------


GOES_ON = {"train": "runs/toy/model.safetensors", "compare": "report.html"}
WRITES = {**GOES_ON, "import": "runs/model/config.toml", "export": "out.arpa", "new": "translation.toml"}


QUICK = [name for name in COMMANDS if name not in ("demo", "compare", "new")]
OTHERS = [pytest.param(name, marks=pytest.mark.slow) for name in ("compare", "new")]


@pytest.mark.parametrize("name", [*QUICK, *OTHERS])
def test_without_a_reader_a_command_ends_quietly_and_training_goes_on(regard_, home, name):
    arguments = prepared(regard_, home, name)
    copy = shutil.copytree(home, home.parent / f"{home.name}-copy")
    unread = regard_(*arguments, folder=home, unread=(1, 2), whole=name == "runs")
    closing = (0, 1) if [*COMMANDS].index(name) % 2 else (0, 1, 2)
    prints = name not in GOES_ON and name not in ("predict", "look")
    assert unread.code == (128 + signal.SIGPIPE if prints else 0)
    closed = regard_(*arguments, folder=copy, closed=closing, whole=name == "runs")
    assert (closed.code, "Traceback" in closed.err) == (int(name == "check"), False)  # its data repeats itself
    for folder in (home, copy):
        assert name not in WRITES or (folder / WRITES[name]).stat().st_size
        assert not left_over(folder)


def test_a_screen_that_is_full_is_told_in_a_sentence(regard_, home):
    ended = regard_("models", folder=home, full=True)
    assert ended.code == 1
    assert ended.err == "regard: Standard output cannot be written: No space left on device; send it elsewhere.\n"
    assert regard_("train", "toy.toml", folder=home, full=True).code == 0


def test_shells_get_what_they_expect(home):
    """True pipes of a true shell."""
    command = shlex.join(REGARD)
    script = f"{command} --help | true; echo ${{PIPESTATUS[0]}}; {command} --version >&- 2>&- <&-; echo $?"
    done = subprocess.run(["bash", "-c", script], cwd=home, env=ENVIRONMENT, capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("141\n0\n", "")


# --- What was cut off ----------------------------------------------------------------------------------------------


def test_an_import_that_was_cut_off_anywhere_can_be_repeated(place, call, monkeypatch):
    (place / "model.arpa").write_text(ARPA)
    assert call("import", "model.arpa", "-o", "straight").code == 0
    whole = Path("straight")
    files = ("environment.json", "fields.json", "model.safetensors", "last/state.safetensors")
    for count in (0, 2, 3, 4):  # the third is the model
        folder = Path(f"cut-{count}")
        for name in files[:count]:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(whole / name, folder / name)
        folder.mkdir(exist_ok=True)
        (folder / ".model.safetensors.123").write_text("half of it")
        assert call("import", "model.arpa", "-o", folder).code == 0
        assert {path.name for path in folder.iterdir()} == {path.name for path in whole.iterdir()}
        assert (folder / "fields.json").read_bytes() == (whole / "fields.json").read_bytes()
    again = call("import", "model.arpa", "-o", whole)
    assert (again.code, again.err) == (1, "regard: straight is a run already: choose another folder.\n")
    (whole / "config.toml").unlink()  # what a person has trained is never replaced
    facts = json.loads((whole / "environment.json").read_text())
    (whole / "environment.json").write_text(json.dumps({**facts, "imported": False}))
    assert call("import", "model.arpa", "-o", whole).code == 1


def test_import_takes_the_lock(place, call):
    (place / "model.arpa").write_text(ARPA)
    with Folder("run").only_writer():
        refused = call("import", "model.arpa", "-o", "run")
    assert refused.code == 1 and "Another process is training in run" in refused.err
    assert not [*Path("run").iterdir()]


def refuse_folders(handle: int, kind: int) -> None:
    """As on NFS, where a folder cannot be locked, since that needs a descriptor that may write."""
    if Path(f"/proc/self/fd/{handle}").resolve().is_dir():
        raise OSError(errno.EBADF, os.strerror(errno.EBADF))
    flock(handle, kind)


@pytest.mark.parametrize("nfs", [False, True])
def test_nothing_that_can_be_removed_lets_a_second_trainer_in(place, monkeypatch, nfs):
    if nfs:
        monkeypatch.setattr(fcntl, "flock", refuse_folders)
    folder = Folder("run")
    with folder.only_writer():
        assert [path.name for path in Path("run").iterdir()] == ["lock"] * nfs
        assert Folder("run").in_use()
        if not nfs:
            (place / "run" / "lock").touch()
            (place / "run" / "lock").unlink()
        with pytest.raises(UserError, match="Another process is training in run"), Folder("run").only_writer():
            pass
    assert not folder.in_use()
    assert not Folder("none").in_use()


def test_a_figure_is_printed_though_its_answers_cannot_be_written(home, call, monkeypatch):
    monkeypatch.chdir(home)
    (home / "text").write_text("the cat sees a dog .\n" * 500)
    scored = ("score", "runs/one", "--source", "text", "--target", "text", "--beam", "1")
    straight = call(*scored)
    _, most = before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (4000, most))
    try:
        cut = call(*scored, "-o", "out")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
    assert (straight.code, cut.code) == (0, 1)
    assert cut.out == straight.out != ""
    assert cut.err.startswith("regard: out cannot be written: File too large; raise the limit")
    assert not (home / "out").exists() and not left_over(home)


EMPTY = [
    *(["train", "toy.toml", "-o", ""], ["demo", "-o", ""], ["predict", "runs/one", "text", "-o", ""]),
    *(["score", "runs/one", "text", "text", "-o", ""], ["look", "runs/one", "a", "-o", ""]),
    *(
        ["look", "runs/one", "a", "--html="],
        ["check", "toy.toml", "--write", ""],
        ["new", "language", "text", "-o", ""],
    ),
    *(["compare", "runs/one", "-o", ""], ["compare", "runs/one", "--test", ""], ["import", "model.arpa", "--out="]),
    *(["export", "runs/one", "--to", "arpa", "-o", ""], ["new", "language", "text", "-o", ""]),
]


def test_an_empty_name_is_refused(home, call, monkeypatch):
    monkeypatch.chdir(home)
    before = sorted(home.rglob("*"))
    for arguments in EMPTY:
        refused = call(*arguments)
        assert refused.code == 1 and "The name of a file or folder after an option is empty" in refused.err, arguments
    assert sorted(home.rglob("*")) == before


# --- The same again ------------------------------------------------------------------------------------------------


def test_the_same_weights_are_the_same_bytes(tmp_path):
    kinds = (torch.float32, torch.int64, torch.uint8, torch.bfloat16, torch.bool, torch.float64)
    tensors = {f"é{place}": torch.arange(place + 1).to(kind) for place, kind in enumerate(kinds)}
    tensors |= {"scalar": torch.tensor(2.0), "empty": torch.zeros(3, 0)}
    written = set()
    for _ in range(40):
        write_tensors(tmp_path / "file", tensors, {"step": 1, "text": "é\n"})
        written.add((tmp_path / "file").read_bytes())
    assert len(written) == 1
    packed = safetensors.torch.load_file(tmp_path / "file")  # as safetensors itself reads it
    assert packed.keys() == tensors.keys()
    assert all(torch.equal(packed[name], tensor) for name, tensor in tensors.items())
    assert read_tensors(tmp_path / "file")[1] == {"step": 1, "text": "é\n"}


TIMES = ("seconds", "tokens_per_second", "attempt", "memory")


def logged(folder: Path) -> list[dict[str, Any]]:
    entries = [json.loads(line) for line in (folder / "log.jsonl").read_text().splitlines()]
    return [{name: value for name, value in entry.items() if name not in TIMES} for entry in entries]


def test_the_log_of_a_resumed_run_is_that_of_a_straight_one(home, call, monkeypatch):
    monkeypatch.chdir(home)
    longer = ("toy.toml", "train.steps=8", "train.validate_every=2")
    assert call("train", *longer, "-o", "straight").code == 0
    assert call("train", *longer, "train.steps=5", "-o", "cut").code == 0
    cut = home / "cut"
    early = {file: (cut / file).read_bytes() for file in ("last/state.safetensors", "model.safetensors")}
    assert call("train", *longer, "-o", "cut").code == 0
    for file, content in early.items():  # as if it had been killed after its last validation, before it was saved
        (cut / file).write_bytes(content)
    with (cut / "log.jsonl").open("a") as file:
        file.write('{"step": 9, "los')
    again = call("train", *longer, "-o", "cut")
    assert (again.code, again.err) == (0, "")
    kept = [entry for entry in logged(cut) if entry["step"] != 5]  # which ended the shorter training
    both = logged(home / "straight"), kept
    assert [[entry["step"] for entry in entries] for entries in both] == [[2, 4, 6, 8]] * 2
    for one, other in zip(*both, strict=True):
        assert {**one, "done": 0, "finished": 0} == {**other, "done": 0, "finished": 0}
    samples = [(folder / "samples.txt").read_text() for folder in (home / "straight", cut)]
    assert samples[0].count("step 8\n") == samples[1].count("step 8\n") > 0
    weights = [(folder / "model.safetensors").read_bytes() for folder in (home / "straight", cut)]
    assert len(weights[0]) == len(weights[1])


def test_other_versions_are_told_once(home, call, monkeypatch):
    monkeypatch.chdir(home)
    assert call("train", "toy.toml", "train.steps=1", "-o", "run").code == 0
    facts = json.loads((home / "run" / "environment.json").read_text())
    (home / "run" / "environment.json").write_text(json.dumps({**facts, "torch": "1.0", "regard": "0.0.1"}))
    said = call("train", "toy.toml", "train.steps=2", "-o", "run")
    assert said.code == 0
    assert said.err == (
        f"run was started with regard 0.0.1, now {facts['regard']} and torch 1.0, now {facts['torch']}: "
        "its weights may come out differently.\n"
    )
    with pytest.warns(UserWarning, match="run was started with regard 0.0.1"):
        regard.train("toy.toml", "run", settings={"train.steps": 3})


# --- Worlds in which something is missing ----------------------------------------------------------------------------


def in_shell(folder: Path, before: str, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    command = f"{before} exec {shlex.join([*REGARD, *arguments])}"
    all_of_it = {**ENVIRONMENT, **environment}
    return subprocess.run(["bash", "-c", command], cwd=folder, env=all_of_it, capture_output=True, text=True)


def test_torch_that_cannot_be_loaded_is_told_in_a_sentence(home):
    (home / "broken" / "torch").mkdir(parents=True)
    (home / "broken" / "torch" / "__init__.py").write_text(
        'raise OSError("libgone.so: cannot open shared object file")'
    )
    path = os.pathsep.join([str(home / "broken"), str(Path(regard.__file__).parent.parent)])
    done = in_shell(home, "", "predict", "runs/one", "text", PYTHONPATH=path)
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "regard: A library cannot be loaded (libgone.so: cannot open shared object file): "
        "install regard and torch again, with pip.\n"
    )


def test_a_removed_folder_and_too_little_memory_are_told_in_a_sentence(home):
    (home / "gone").mkdir()
    done = in_shell(home / "gone", 'rmdir "$PWD";', "runs")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == "regard: The current folder was removed: change to another one (cd) and try again.\n"
    done = in_shell(home, "ulimit -v 600000;", "predict", "runs/one", "text")
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr == (
        "regard: The memory of a process is limited to 614 MB, and torch needs 1000 MB: raise the limit (ulimit -v).\n"
    )


def test_no_temporary_folder_is_needed(regard_, home):
    done = regard_("train", "toy.toml", folder=home, TMPDIR="/nonexistent", TEMP="/nonexistent", TMP="/nonexistent")
    assert (done.code, done.err) == (0, "")


VECTORS = {
    "dog nan 1 2\n": "line 1, is not a word and 3 finite numbers: fix or remove it.",
    "3 3\ncat 1 1e99 2\n": "line 2, is not a word and 3 finite numbers: fix or remove it.",
    "dog 1 2\n": "line 1, has 2 numbers, but the model's vectors have 3: set the model's width to 2.",
    "dog 1 2 3\ncat 1 2\n": "line 2, has 2 numbers, but the model's vectors have 3: fix or remove the line.",
}


@pytest.mark.parametrize("vectors", VECTORS)
def test_vectors_that_cannot_be_are_told_in_a_sentence(home, call, monkeypatch, vectors):
    monkeypatch.chdir(home)
    (home / "toy.tsv").write_text("a cat\tx\na dog\ty\n" * 10)
    (home / "vectors").write_text(vectors)
    data = {"name": "table", "train": "toy.tsv", "valid": "toy.tsv", "source": "1", "target": "2"}
    table = {"task": "classification", "data": data, "model": {"name": "birnn", "embedding": 3, "hidden": 4}}
    recipe = parse_recipe({**table, "train": {"steps": 1, "vectors": "vectors"}}, tasks=TASKS, folder=home)
    (home / "labels.toml").write_text(recipe.to_toml())
    refused = call("train", "labels.toml", "-o", "run")
    assert refused.code == 1
    assert refused.err == f"regard: {home / 'vectors'}, {VECTORS[vectors]}\n"


def test_a_vocabulary_of_one_is_enough(home, call, monkeypatch):
    monkeypatch.chdir(home)
    (home / "text").write_text("a\n" * 40)
    data = {"name": "text", "train": "text", "valid": "text"}
    for model in ("ngram", "gpt"):
        table = {"task": "language", "data": data, "tokens": {"kind": "words"}, "model": {"name": model}}
        recipe = parse_recipe({**table, "train": {"steps": 1, "precision": "float32"}}, tasks=TASKS, folder=home)
        (home / "one.toml").write_text(recipe.to_toml())
        assert call("train", "one.toml", "-o", model).code == 0
        assert call("predict", model, "--prompt", "a", "--max-length", "3").code == 0
        assert call("score", model, "text").code == 0
    alone = call("look", "gpt", "--neighbours", "a")
    assert alone.code == 1
    assert alone.err == "regard: 'a' is the only token of the vocabulary and has no neighbours: choose another run.\n"


if __name__ == "__main__":
    serve()

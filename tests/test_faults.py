"""Laws of misfortune: killed, interrupted, out of room or fed with rubbish, a run is whole and goes on to the same end.

The runs are real processes that train: forked from one that has torch already, and killed for good. Started as a
program, this file is that process (`serve`).
"""

from __future__ import annotations

import contextlib
import gc
import io
import json
import os
import pickle
import posix
import random
import resource
import select
import shutil
import signal
import struct
import subprocess
import sys
import tempfile
import time
import tomllib
import traceback
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, suppress
from importlib import import_module
from pathlib import Path
from types import FrameType
from typing import IO, Any, NamedTuple

import numpy as np
import pytest
import safetensors.torch
import torch
import typer.main
from made import on_disk, text_fields
from torch import Tensor

import regard.train.session  # noqa: F401
from regard import cli
from regard.checkpoint import UNFINISHED, Folder, append_log
from regard.data.fields import Fields
from regard.data.files import append, write_atomically
from regard.data.tensors import read_tensors, write_tensors
from regard.interface import UserError
from regard.loading import load
from regard.recipe import parse_recipe
from regard.runs import log_entries
from regard.tasks.registry import TASKS

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="processes and mounts are as Linux has them")
REGARD = [sys.executable, "-m", "regard"]
ENVIRONMENT = {**os.environ, "OMP_NUM_THREADS": "1"}
LONGEST = 60  # seconds that a child may take
IN_MEMORY = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None  # where flushing costs nothing

# Every part of the state matters: dropout, averaging, accumulation, patience, a schedule, several epochs.
RECIPE = """
task = "translation"
seed = 28
[data]
name = "parallel"
source = "train.source"
target = "train.target"
valid_source = "valid.source"
valid_target = "valid.target"
[tokens]
kind = "characters"
size = 0
[model]
name = "rnnsearch"
embedding = 5
hidden = 7
dropout = 0.3
[train]
steps = 40
batch_tokens = 32
accumulate = 2
average = 3
learning_rate = 0.5
warmup = 3
precision = "float32"
validate_every = 2
patience = 2
"""
SLOW = ("train.steps=4", "train.validate_every=1", "train.patience=0", "train.accumulate=37")  # its steps can be met
BRIEF = ("train.steps=4", "train.validate_every=1", "train.patience=0")  # a run of a few hundredths of a second


# --- The process that forks processes ----------------------------------------------------------------------------


class Ended(NamedTuple):
    code: int  # as subprocess has it: below 0, the signal that ended it
    out: str
    err: str
    calls: int  # those that were counted
    seconds: float


def serve() -> None:
    """Run a command in a child for each line of standard input; tell how it ended in a line of standard output."""
    warm_up()
    for line in sys.stdin:
        request = json.loads(line)
        pipes = [os.pipe() for _ in range(3)]
        began = time.perf_counter()
        number = os.fork()
        if number == 0:
            be_child(request, [write for _, write in pipes])
        for _, write in pipes:
            os.close(write)
        child = os.pidfd_open(number)
        if not select.select([child], [], [], request["seconds"] or LONGEST)[0]:
            os.kill(number, signal.SIGKILL)
        status = os.waitpid(number, 0)[1]
        seconds = time.perf_counter() - began
        os.close(child)
        said = []
        for read, _ in pipes:
            with open(read, encoding="utf-8") as stream:
                said.append(stream.read())
        ended = Ended(os.waitstatus_to_exitcode(status), said[0], said[1], int(said[2] or 0), seconds)
        sys.stdout.write(json.dumps(ended) + "\n")
        sys.stdout.flush()


def warm_up() -> None:
    """What takes long the first time; the first optimiser imports half of torch."""
    cli.app = typer.main.get_command(cli.app)
    sys.argv = ["regard", "train", os.devnull]
    with suppress(SystemExit), redirect_stderr(io.StringIO()):
        cli.main()
    import_module("rich.live")
    parse_recipe(tomllib.loads(RECIPE), tasks=TASKS).to_toml()
    weight = torch.nn.Parameter(torch.ones(2, 3))
    optimiser = torch.optim.AdamW([weight], fused=True)
    weight.sum().backward()
    optimiser.step()
    gc.collect()
    gc.freeze()  # a child then shares more of its memory for longer


def be_child(request: dict[str, Any], pipes: list[int]) -> None:
    code = 70
    try:
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(pipes[0], 1)
        os.dup2(pipes[1], 2)
        os.chdir(request["folder"])
        if request["most_bytes"] is not None:
            resource.setrlimit(resource.RLIMIT_FSIZE, (request["most_bytes"],) * 2)
        sys.argv = ["regard", *request["arguments"]]
        counted = count_calls(request["counted"], request["at"], request["signals"])
        try:
            cli.main()
        except SystemExit as ended:
            code = int(ended.code or 0)
        sys.setprofile(None)
        os.write(pipes[2], str(counted[0]).encode())
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def count_calls(which: str, at: int, numbers: Sequence[int]) -> list[int]:
    """Count the calls that this process makes, and send it signals before one of them."""
    counted = [0]
    kind, counts = COUNTED.get(which, ("", is_call))

    def hook(frame: FrameType, event: str, called: Any) -> None:
        if event == kind and counts(frame, called):
            counted[0] += 1
            if counted[0] == at:
                for number in numbers:
                    os.kill(os.getpid(), number)

    if which:
        sys.setprofile(hook)
    return counted


def is_call(frame: FrameType, called: Any) -> bool:
    return True


def is_write(frame: FrameType | None, called: Any) -> bool:
    """A call that changes the disk."""
    if called.__name__ == "flush":
        return isinstance(called.__self__, io.BufferedWriter)
    return called.__self__ is posix and called.__name__ in ("mkdir", "write", "fsync", "replace", "unlink")


def is_save(frame: FrameType | None, called: Any) -> bool:
    """A write of weights that are not in their place yet."""
    if not (called.__name__ in ("flush", "fsync", "replace") and is_write(frame, called)):
        return False
    names = []
    while frame is not None:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    return "write_tensors" in names and "flush_folder" not in names


COUNTED = {"calls": ("call", is_call), "writes": ("c_call", is_write), "saves": ("c_call", is_save)}


class Nursery:
    """`regard` commands, each in a process of its own."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.server = subprocess.Popen(
            [sys.executable, __file__], env=ENVIRONMENT, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )

    def __call__(
        self,
        *arguments: object,
        seconds: float | None = None,  # kill it then
        counted: str = "",  # "calls", "writes" or "saves", ...
        at: int = 0,  # and before this one it gets ...
        number: int = signal.SIGKILL,
        again: Sequence[int] = (),  # and at once these, too
        most_bytes: int | None = None,  # in a file
    ) -> Ended:
        request = {
            "arguments": [str(argument) for argument in arguments],
            "folder": str(self.home),
            "seconds": seconds,
            "counted": counted,
            "at": at,
            "signals": [number, *again],
            "most_bytes": most_bytes,
        }
        assert self.server.stdin is not None and self.server.stdout is not None
        self.server.stdin.write(json.dumps(request) + "\n")
        self.server.stdin.flush()
        return Ended(*json.loads(self.server.stdout.readline()))

    def close(self) -> None:
        assert self.server.stdin is not None
        self.server.stdin.close()
        self.server.wait()


# --- Runs to be unlucky with -------------------------------------------------------------------------------------


def write_task(folder: Path) -> None:
    """Write the letters backwards."""
    chance = random.Random(1)
    for split, count in (("train", 61), ("valid", 11)):
        lines = ["".join(chance.choices("abcde", k=chance.randint(1, 4))) for _ in range(count)]
        (folder / f"{split}.source").write_text("".join(f"{line}\n" for line in lines))
        (folder / f"{split}.target").write_text("".join(f"{line[::-1]}\n" for line in lines))
    (folder / "toy.toml").write_text(RECIPE)


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        write_task(Path(folder))
        yield Path(folder)


@pytest.fixture
def tmp_path() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir=IN_MEMORY) as folder:
        yield Path(folder)


@pytest.fixture(scope="module")
def regard_(home: Path) -> Iterator[Nursery]:
    nursery = Nursery(home)
    yield nursery
    nursery.close()


class Straight(NamedTuple):
    """A run that nothing happened to."""

    settings: tuple[str, ...]
    end: dict[str, object]
    validations: dict[int, dict[str, float]]
    log: list[dict[str, Any]]
    seconds: float


def trained(regard_: Nursery, folder: Path, *settings: str) -> Straight:
    ended = regard_("train", "toy.toml", *settings, "-o", folder)
    assert (ended.code, ended.err) == (0, "")
    return Straight(settings, ending(folder), validations(folder), logged(folder), ended.seconds)


@pytest.fixture(scope="module")
def straight(regard_: Nursery, home: Path) -> Straight:
    return trained(regard_, home / "straight")


@pytest.fixture(scope="module")
def brief(regard_: Nursery, home: Path) -> Straight:
    return trained(regard_, home / "brief", *BRIEF)


@pytest.fixture(scope="module")
def slow(regard_: Nursery, home: Path) -> Straight:
    return trained(regard_, home / "slow", *SLOW)


Moments = dict[str, range]  # where a run may be killed


@pytest.fixture(scope="module")
def moments(regard_: Nursery) -> Moments:
    """Numbers of calls: those made after the opening; of writes and saves, all."""
    ends = {which: regard_("train", "toy.toml", "-o", which, counted=which).calls for which in COUNTED}
    opened = regard_("train", "toy.toml", "-o", "calls", counted="calls").calls  # a finished run is only opened
    return {which: range(opened if which == "calls" else 1, end) for which, end in ends.items()}


@pytest.fixture(scope="module")
def half(regard_: Nursery, home: Path) -> Path:
    """The brief run after two of its four steps."""
    folder = home / "half"
    assert regard_("train", "toy.toml", *BRIEF, "train.steps=2", "-o", folder).code == 0
    return folder


def ending(folder: Path) -> dict[str, object]:
    """All that a run ends with, comparable; the seconds aside."""
    end: dict[str, object] = {}
    for file in ("model.safetensors", "last/state.safetensors"):
        tensors, facts = read_tensors(folder / file)
        end |= {f"{file} {name}": tensor.numpy().tobytes() for name, tensor in tensors.items()}
        end |= {f"{file} {name}": fact for name, fact in facts.items() if name != "seconds"}
    return end


def validations(folder: Path) -> dict[int, dict[str, float]]:
    """What the log says of each step that was validated."""
    return {entry["step"]: entry["valid"] for entry in log_entries(Folder(folder))}


def logged(folder: Path) -> list[dict[str, Any]]:
    """The log, but for times and budgets."""
    varies = {"seconds", "tokens_per_second", "attempt", "memory", "done", "finished"}
    return [{key: entry[key] for key in entry.keys() - varies} for entry in log_entries(Folder(folder))]


def assert_loads(folder: Path) -> None:
    """As soon as there is a model it can be used; until then it is said that there is none."""
    if (folder / "model.safetensors").exists():
        assert len(load(folder).predict(["abc"])) == 1
    else:
        with pytest.raises(UserError, match="no model yet|is not a run|does not exist"):
            load(folder)


def assert_goes_on(regard_: Nursery, folder: Path, straight: Straight) -> None:
    """The same command ends where the run that nothing happened to ended."""
    ended = regard_("train", "toy.toml", *straight.settings, "-o", folder)
    assert (ended.code, ended.err) == (0, "")
    assert "The best model is in" in ended.out
    assert ending(folder) == straight.end
    assert logged(folder) == straight.log
    assert not list(unfinished(folder))


def unfinished(folder: Path) -> Iterator[Path]:
    return (file for file in folder.rglob(".*") if UNFINISHED.fullmatch(file.name))


def contents(folder: Path) -> dict[str, Any]:
    """Every file, byte for byte."""
    return {
        str(path.relative_to(folder)): path.read_bytes() if path.is_file() else path.is_dir()
        for path in sorted(folder.rglob("*"))
    }


def test_the_run_that_is_compared_with_uses_all_its_state(straight, home):
    """Its patience ended it, after a validation that was no better and one that was; its snapshots are three."""
    facts = read_tensors(home / "straight" / "last" / "state.safetensors")[1]
    assert facts["stale"] == 2
    assert facts["snapshots"] == 3
    assert facts["epoch"] > 1
    assert facts["step"] == max(straight.validations) < 40
    improved = "".join("-+"[entry["improved"]] for entry in log_entries(Folder(home / "straight")))
    assert "-+" in improved
    assert improved.endswith("+--")
    assert read_tensors(home / "straight" / "model.safetensors")[1]["step"] == facts["step"] - 4


# --- kill -9 -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kills", [20, pytest.param(200, marks=pytest.mark.slow)])
def test_killed_at_any_moment_it_goes_on_to_the_same_end(regard_, straight, moments, tmp_path, kills):
    """By the clock, by the calls made in training, between two writes, and in the midst of saving, in turn."""
    chance = random.Random(kills)
    met = set()
    for kill in range(kills):
        folder = tmp_path / str(kill)
        if kill % 4 == 0:
            killed = regard_("train", "toy.toml", "-o", folder, seconds=chance.uniform(0, straight.seconds))
            assert killed.code in (-signal.SIGKILL, 0)
        else:
            which = ("calls", "writes", "saves")[kill % 4 - 1]
            killed = regard_("train", "toy.toml", "-o", folder, counted=which, at=chance.choice(moments[which]))
            assert killed.code == -signal.SIGKILL
        begun = (folder / "config.toml").exists()
        met.add(("saving" if any(unfinished(folder)) else "training") if begun else "opening")
        assert_loads(folder)
        assert_goes_on(regard_, folder, straight)
        shutil.rmtree(folder)
    assert met == {"opening", "training", "saving"}


@pytest.mark.parametrize("seed", [5, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(7, 27))])
def test_killed_again_and_again_it_gets_there_all_the_same(regard_, straight, moments, tmp_path, seed):
    chance = random.Random(seed)
    folder = tmp_path / "run"
    killed, steps = 0, [0]
    while steps[-1] < max(straight.validations):
        which = ("writes", "calls")[killed % 2]
        some = moments[which][: len(moments[which]) // 5]  # not so many that it gets to the end
        ended = regard_("train", "toy.toml", "-o", folder, counted=which, at=chance.choice(some))
        killed += ended.code == -signal.SIGKILL
        assert ended.code in (-signal.SIGKILL, 0), ended.err
        if (folder / "config.toml").exists():
            steps.append(read_tensors(folder / "last" / "state.safetensors")[1]["step"])
        assert_loads(folder)
    assert killed >= 3
    assert steps == sorted(steps)  # what was reached is never lost
    assert_goes_on(regard_, folder, straight)


def test_killed_before_any_write_of_a_save_it_goes_on_to_the_same_end(regard_, half, brief, tmp_path):
    """From its opening until the next step is saved: best model, log, samples, state."""
    at, step = 0, 2
    while step == 2:
        at += 1
        folder = Path(shutil.copytree(half, tmp_path / str(at)))
        killed = regard_("train", "toy.toml", *BRIEF, "-o", folder, counted="writes", at=at)
        assert killed.code == -signal.SIGKILL
        assert_loads(folder)
        step = read_tensors(folder / "last" / "state.safetensors")[1]["step"]
        assert_goes_on(regard_, folder, brief)
    assert at > 12


@pytest.mark.slow
def test_killed_before_any_write_of_a_whole_run_it_goes_on_to_the_same_end(regard_, brief, tmp_path):
    writes = regard_("train", "toy.toml", *BRIEF, "-o", tmp_path / "counted", counted="writes").calls
    assert writes > 100
    for at in range(1, writes + 1):
        folder = tmp_path / str(at)
        assert regard_("train", "toy.toml", *BRIEF, "-o", folder, counted="writes", at=at).code == -signal.SIGKILL
        assert_loads(folder)
        assert_goes_on(regard_, folder, brief)


def test_opening_may_be_killed_before_any_write(regard_, brief, tmp_path):
    """Each attempt finds what all those before it left."""
    folder = tmp_path / "run"
    at = 1
    while not (folder / "config.toml").exists():
        assert regard_("train", "toy.toml", *BRIEF, "-o", folder, counted="writes", at=at).code == -signal.SIGKILL
        assert not (folder / "model.safetensors").exists()
        at += 5
    assert at > 50
    assert_goes_on(regard_, folder, brief)


OTHER_TASKS = {
    "language": """
task = "language"
data = {name = "text", train = "train.source", valid = "valid.source"}
tokens = {kind = "characters", size = 0}
model = {name = "rnn_lm", embedding = 5, hidden = 7, tie = false}
train = {steps = 2, validate_every = 1, precision = "float32"}
""",
    "tagging": """
task = "tagging"
data = {name = "world", sentences = 23, valid = 7}
tokens = {size = 0}
model = {name = "birnn", embedding = 5, hidden = 7, letters = 3}
train = {steps = 2, validate_every = 1, precision = "float32"}
""",
}


@pytest.mark.parametrize("task", OTHER_TASKS)
def test_half_written_files_of_every_side_are_swept(regard_, home, tmp_path, task):
    """Killed while any file of its data is written, a run leaves half of it, and the next attempt removes that."""
    (home / f"{task}.toml").write_text(OTHER_TASKS[task])
    straight = regard_("train", f"{task}.toml", "-o", tmp_path / "straight")
    assert (straight.code, straight.err) == (0, "")
    sides = {"language": ("target",), "tagging": ("source", "target", "spelling")}[task]
    wanted = {f"{split}.{side}" for split in ("train", "valid") for side in sides}
    met: set[str] = set()
    folder, at = tmp_path / "run", 0
    while met < wanted:
        at += 5
        assert regard_("train", f"{task}.toml", "-o", folder, counted="writes", at=at).code == -signal.SIGKILL
        half = {file.name for file in (folder / "data").glob(".*.npy.*")}
        met |= {".".join(name.split(".")[1:3]) for name in half}
    assert half
    ended = regard_("train", f"{task}.toml", "-o", folder)
    assert (ended.code, ended.err) == (0, "")
    assert not list(folder.rglob(".*"))
    assert ending(folder) == ending(tmp_path / "straight")


def test_without_the_random_state_it_would_end_elsewhere(regard_, straight, moments, tmp_path):
    """The comparison can fail."""
    folder = tmp_path / "run"
    middle = moments["calls"][len(moments["calls"]) // 2]
    assert regard_("train", "toy.toml", "-o", folder, counted="calls", at=middle).code == -signal.SIGKILL
    state = folder / "last" / "state.safetensors"
    tensors, facts = read_tensors(state)
    assert 0 < facts["step"] < max(straight.validations)
    write_tensors(state, {**tensors, "random": torch.Generator().manual_seed(1234).get_state()}, facts)
    assert regard_("train", "toy.toml", "-o", folder).code == 0
    assert ending(folder) != straight.end
    assert validations(folder) != straight.validations


# --- Signals -----------------------------------------------------------------------------------------------------


@contextmanager
def started(home: Path, *arguments: object) -> Iterator[subprocess.Popen[str]]:
    """A true `regard` process."""
    command = [*REGARD, *map(str, arguments)]
    pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen(command, cwd=home, env=ENVIRONMENT, text=True, **pipes) as child:
        try:
            yield child
        finally:
            child.kill()


def read_until(stream: IO[str] | None, beginning: str) -> None:
    assert stream is not None
    for line in stream:
        if line.startswith(beginning):
            return
    raise AssertionError(f"{beginning!r} was never said")


def test_asked_once_it_finishes_the_step_and_saves(regard_, slow, home, tmp_path):
    folder = tmp_path / "run"
    with started(home, "train", "toy.toml", *SLOW, "-o", folder) as child:
        read_until(child.stdout, "step 1 ")
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=LONGEST)
    assert (child.returncode, err) == (0, "")
    step = read_tensors(folder / "last" / "state.safetensors")[1]["step"]
    assert 1 <= step < 4
    assert f"Stopped at step {step} and saved; the same command resumes." in out
    assert_goes_on(regard_, folder, slow)


def test_asked_twice_it_leaves_at_once(regard_, slow, tmp_path):
    calls = regard_("train", "toy.toml", *SLOW, "-o", tmp_path / "counted", counted="calls").calls
    opened = regard_("train", "toy.toml", *SLOW, "-o", tmp_path / "counted", counted="calls").calls
    folder = tmp_path / "run"
    in_step_2 = opened + 3 * (calls - opened) // 8
    asked = {"number": signal.SIGINT, "again": [signal.SIGTERM]}
    ended = regard_("train", "toy.toml", *SLOW, "-o", folder, counted="calls", at=in_step_2, **asked)
    assert ended.code == 128 + signal.SIGTERM
    assert ended.err == "Left without saving; the same command resumes from the last checkpoint.\n"
    assert read_tensors(folder / "last" / "state.safetensors")[1]["step"] == 1
    assert_loads(folder)
    assert_goes_on(regard_, folder, slow)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_at_any_moment_of_training_it_saves(regard_, straight, moments, tmp_path, number):
    chance = random.Random(number)
    for attempt in range(2):
        folder = tmp_path / str(attempt)
        at = chance.choice(moments["calls"][len(moments["calls"]) // 2 :])
        ended = regard_("train", "toy.toml", "-o", folder, counted="calls", at=at, number=number)
        assert (ended.code, ended.err) == (0, "")
        step = read_tensors(folder / "last" / "state.safetensors")[1]["step"]
        assert f"Stopped at step {step} and saved" in ended.out or step == max(straight.validations)
        assert_goes_on(regard_, folder, straight)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_asked_while_the_data_is_prepared_it_leaves_at_once(regard_, brief, tmp_path, number):
    folder = tmp_path / "run"
    for at in (5, 23, 41):  # writes of its opening
        ended = regard_("train", "toy.toml", *BRIEF, "-o", folder, counted="writes", at=at, number=number)
        assert ended.code == 128 + number
        assert (ended.out, ended.err) == ("", "Interrupted before the first step; the same command starts again.\n")
        assert not (folder / "config.toml").exists()
    assert_goes_on(regard_, folder, brief)


@pytest.fixture
def waiting(home: Path, tmp_path: Path) -> Iterator[Path]:
    """A folder as home, in which the training text never comes to its end."""
    folder = Path(shutil.copytree(home, tmp_path / "home", ignore=lambda place, names: {*names} - TASK))
    os.truncate(folder / "train.source", 1 << 40)  # zeros that take no room on the disk
    yield folder


TASK = {"toy.toml", "train.source", "train.target", "valid.source", "valid.target"}


def wait_until_read(file: Path, reader: subprocess.Popen[str]) -> None:
    handles = Path(f"/proc/{reader.pid}/fd")
    ended = os.pidfd_open(reader.pid)
    try:
        while not select.select([ended], [], [], 0.01)[0]:
            with contextlib.suppress(OSError):  # a handle was closed meanwhile
                if file.resolve() in [handle.readlink() for handle in handles.iterdir()]:
                    return
    finally:
        os.close(ended)
    raise AssertionError(reader.communicate())


def test_two_do_not_train_in_one_folder_until_the_first_is_gone(regard_, brief, waiting, tmp_path):
    folder = tmp_path / "run"
    with started(waiting, "train", "toy.toml", *BRIEF, "-o", folder) as child:
        wait_until_read(waiting / "train.source", child)
        second = regard_("train", "toy.toml", *BRIEF, "-o", folder)
        assert_refused(second, "Another process is training in", "another output folder")
        child.send_signal(signal.SIGKILL)
        child.communicate(timeout=LONGEST)
    assert_goes_on(regard_, folder, brief)


@pytest.mark.slow
def test_a_true_process_that_reads_may_be_asked_too(regard_, brief, home, waiting, tmp_path):
    with started(waiting, "train", "toy.toml", *BRIEF, "-o", tmp_path / "run") as child:
        wait_until_read(waiting / "train.source", child)
        child.send_signal(signal.SIGTERM)
        out, err = child.communicate(timeout=LONGEST)
    assert child.returncode == 128 + signal.SIGTERM
    assert (out, err) == ("", "Interrupted before the first step; the same command starts again.\n")
    assert_goes_on(regard_, tmp_path / "run", brief)


# --- The end, and going on from it -------------------------------------------------------------------------------


def test_a_run_that_early_stopping_ended_goes_on_with_more_patience(regard_, straight, home, tmp_path):
    """As if it had had it from the start."""
    patient = trained(regard_, tmp_path / "patient", "train.patience=4")
    assert max(patient.validations) > max(straight.validations)
    folder = Path(shutil.copytree(home / "straight", tmp_path / "run"))
    said = regard_("train", "toy.toml", "-o", folder)
    assert (said.code, said.err) == (0, "")
    assert "This run is finished, by early stopping: raise train.patience to continue." in said.out
    assert ending(folder) == straight.end
    assert_goes_on(regard_, folder, patient)


# --- Room and permission -----------------------------------------------------------------------------------------


def assert_refused(ended: Ended, *words: str, began: bool = False) -> None:
    """One sentence, a code that is not 0 and, unless it began to train, nothing else."""
    assert ended.code == 1, ended
    assert ended.err.startswith("regard: "), ended
    assert ended.err.endswith(".\n"), ended
    assert ended.err.count("\n") == 1
    assert "unexpected" not in ended.err
    assert began or not ended.out
    for word in words:
        assert word in ended.err


def test_a_limit_on_the_size_of_files_costs_nothing(regard_, brief, half, tmp_path):
    met = set()
    for most in (0, 300, 2000, 9000, 20_000, 100_000):
        folder = tmp_path / str(most)
        ended = regard_("train", "toy.toml", *BRIEF, "-o", folder, most_bytes=most)
        if ended.code == 0:
            break
        assert_refused(ended, "cannot be written: File too large", "ulimit -f", "are intact", began=True)
        met.add(refused_file(ended, folder))
        assert not list(unfinished(folder))
        assert_loads(folder)
        assert_goes_on(regard_, folder, brief)
    assert ended.code == 0
    assert met == {"fields.json", "data", "state.safetensors"}
    shutil.copytree(half, tmp_path / "long")
    with (tmp_path / "long" / "samples.txt").open("a") as log:
        log.write("\n" * 99_990)
    ended = regard_("train", "toy.toml", *BRIEF, "-o", tmp_path / "long", most_bytes=100_000)
    assert_refused(ended, "samples.txt cannot be written: File too large", began=True)
    assert_goes_on(regard_, tmp_path / "long", brief)


def refused_file(ended: Ended, folder: Path) -> str:
    return Path(ended.err.removeprefix("regard: ").split(" cannot be written")[0]).relative_to(folder).name


@contextmanager
def mounted(*arguments: object) -> Iterator[None]:
    """What `mount` does, undone in the end; skipped where it is not permitted."""
    done = subprocess.run(["mount", *map(str, arguments)], capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"mounting is not permitted here: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(arguments[-1])], check=True)


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A very small one."""
    (tmp_path / "disk").mkdir()
    with mounted("-t", "tmpfs", "-o", "size=1m", "none", tmp_path / "disk"):
        yield tmp_path / "disk"


def fill(disk: Path, leave: int) -> None:
    """Leave so many blocks."""
    room = os.statvfs(disk)
    (disk / "ballast").write_bytes(bytes((room.f_bavail - leave) * room.f_bsize))
    assert os.statvfs(disk).f_bavail == leave


def test_a_full_disk_costs_nothing(regard_, brief, half, disk):
    met = set()
    for blocks in (0, 1, 2, 5, 11, 14, 17, 20, 23, 31, 100):
        folder = disk / "run"
        fill(disk, blocks)
        ended = regard_("train", "toy.toml", *BRIEF, "-o", folder)
        if ended.code == 0:
            break
        assert_refused(ended, "cannot be written: No space left on device; make room", "are intact", began=True)
        met.add(refused_file(ended, folder))
        assert not list(unfinished(folder))
        assert_loads(folder)
        (disk / "ballast").unlink()
        assert_goes_on(regard_, folder, brief)
        shutil.rmtree(folder)
    assert ended.code == 0
    assert {"environment.json", "fields.json", "data", "model.safetensors", "state.safetensors"} <= met


def test_a_disk_that_is_full_when_a_run_is_resumed_costs_nothing(regard_, brief, half, disk):
    for blocks in (0, 1, 2, 5, 11):
        folder = Path(shutil.copytree(half, disk / "run"))
        before = contents(folder)
        fill(disk, blocks)
        ended = regard_("train", "toy.toml", *BRIEF, "-o", folder)
        assert_refused(ended, "No space left on device; make room", "are intact", began=True)
        after = contents(folder)
        assert before.keys() == after.keys()
        kept = {name for name, content in before.items() if after[name] == content}
        assert kept >= {"last/state.safetensors", "fields.json", "environment.json", "data/train"}
        assert all(after[name][: len(before[name])] == before[name] for name in ("log.jsonl", "samples.txt"))
        assert_loads(folder)
        (disk / "ballast").unlink()
        assert_goes_on(regard_, folder, brief)
        shutil.rmtree(folder)


@contextmanager
def read_only(folder: Path) -> Iterator[None]:
    """For root too, whom permissions do not stop."""
    if os.geteuid() == 0:
        with mounted("--bind", folder, folder):
            subprocess.run(["mount", "-o", "remount,ro,bind", str(folder)], check=True)
            yield
        return
    modes = {path: path.stat().st_mode for path in (folder, *folder.rglob("*"))}
    for path, mode in modes.items():
        path.chmod(mode & ~0o222)
    try:
        yield
    finally:
        for path, mode in modes.items():
            path.chmod(mode)


def test_a_folder_that_may_only_be_read(regard_, brief, half, tmp_path):
    folder = Path(shutil.copytree(half, tmp_path / "place" / "run"))
    before = contents(folder)
    with read_only(folder.parent):
        for place in (folder, folder.parent / "new", folder.parent / "new" / "run"):
            assert_refused(
                regard_("train", "toy.toml", *BRIEF, "-o", place), "cannot be written", "writable", "another output"
            )
        assert regard_("predict", folder, "valid.source").code == 0
        assert_refused(regard_("predict", folder, "valid.source", "-o", folder / "out"), "cannot be written")
    assert contents(folder) == before
    assert_goes_on(regard_, folder, brief)


# --- Files that are not what they should be ----------------------------------------------------------------------

Damage = Callable[[Path], object]


def assert_costs_nothing(regard_: Nursery, half: Path, spot: Path, file: str, damage: Damage, *words: str) -> None:
    """Whoever needs the file refuses it, nothing else has changed, and nothing was executed."""
    folder = Path(shutil.copytree(half, spot / "run", symlinks=True))
    damage(folder / file)
    damaged = contents(folder)
    if file != "model.safetensors":
        assert_refused(regard_("train", "toy.toml", *BRIEF, "-o", folder), *words)
    if file in ("model.safetensors", "config.toml", "fields.json"):
        with pytest.raises(UserError) as refused:
            load(folder)
        assert_refused(Ended(1, "", f"regard: {refused.value}\n", 0, 0), *words)
    assert contents(folder) == damaged
    assert not (regard_.home / "sprung").exists()
    assert not Path("sprung").exists()
    remove(folder / file)
    shutil.copy(half / file, folder / file)
    assert contents(folder) == contents(half)  # and from there it is known to go on


def remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def becomes(content: bytes) -> Damage:
    return lambda path: path.write_bytes(content)


def altered(change: Callable[[bytes], bytes]) -> Damage:
    return lambda path: path.write_bytes(change(path.read_bytes()))


def missing(path: Path) -> None:
    path.unlink()


def a_folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


def a_link_to_nothing(path: Path) -> None:
    path.unlink()
    path.symlink_to("nowhere")


class Trap:
    """Springs when it is unpickled."""

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mkdir, ("sprung",)


def a_zip(path: Path) -> None:
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("data.pkl", pickle.dumps(Trap()))


def raw(header: Any, data: bytes = bytes(4)) -> bytes:
    """A safetensors file with this header."""
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def one(shape: list[int], data_offsets: list[int], dtype: str = "F32") -> dict[str, Any]:
    return {"dtype": dtype, "shape": shape, "data_offsets": data_offsets}


def head(whole: bytes) -> int:
    return 8 + int.from_bytes(whole[:8], "little")


def with_facts(text: str | None) -> Damage:
    """The same tensors with other words beside them, as another program would write them."""

    def damage(path: Path) -> None:
        metadata = None if text is None else {"facts": text}
        path.write_bytes(safetensors.torch.save(safetensors.torch.load(path.read_bytes()), metadata))

    return damage


def rewritten(change: Callable[[dict[str, Tensor], dict[str, Any]], object]) -> Damage:
    """As `regard` itself would write it, checksum and all."""

    def damage(path: Path) -> None:
        tensors, facts = read_tensors(path)
        change(tensors, facts)
        write_tensors(path, tensors, facts)

    return damage


def first(tensors: dict[str, Tensor]) -> str:
    return next(name for name in sorted(tensors) if tensors[name].dim() > 1)


UNREADABLE: dict[str, Damage] = {
    "missing": missing,
    "nothing": becomes(b""),
    "a byte": altered(lambda whole: whole[:1]),
    "less than the length of its header": altered(lambda whole: whole[:7]),
    "the length of its header": altered(lambda whole: whole[:8]),
    "half its header": altered(lambda whole: whole[: head(whole) // 2]),
    "its header": altered(lambda whole: whole[: head(whole)]),
    "all but a byte": altered(lambda whole: whole[:-1]),
    "a byte too many": altered(lambda whole: whole + b"\0"),
    "another bit in a tensor": altered(lambda whole: whole[:-1] + bytes([whole[-1] ^ 1])),
    "another bit in its facts": altered(lambda whole: whole.replace(b'\\"step\\": 2', b'\\"step\\": 3')),
    "a pickle": becomes(pickle.dumps(Trap())),
    "a torch file": lambda path: torch.save({"trap": Trap()}, path),
    "a zip file": a_zip,
    "text": becomes(b"Once upon a time there were weights.\n" * 11),
    "a header of 2^60 bytes": becomes(struct.pack("<Q", 1 << 60) + b"{}"),
    "a header of 2^64 - 1 bytes": becomes(b"\xff" * 8 + b"{}"),
    "a header that is no JSON": becomes(raw(b"{x}")),
    "a header that is no UTF-8": becomes(raw(b'{"\xff": 1}')),
    "a header that is a list": becomes(raw([])),
    "a deep header": becomes(raw(b"[" * 100_000)),
    "a tensor of 2^64 bytes": becomes(raw({"x": one([1 << 62, 4], [0, 4])})),
    "a tensor that ends beyond the file": becomes(raw({"x": one([1 << 38], [0, 1 << 40])})),
    "two tensors in one place": becomes(raw({"x": one([1], [0, 4]), "y": one([1], [0, 4])})),
    "numbers of a kind that is none": becomes(raw({"x": one([1], [0, 4], "F9")})),
    "numbers of a kind that torch lacks": becomes(raw({"x": one([8], [0, 4], "F4")})),
    "no facts": with_facts(None),
    "facts that are no JSON": with_facts("{"),
    "facts that are a list": with_facts("[]"),
    "deep facts": with_facts("[" * 100_000),
    "a folder": a_folder,
    "a link to nothing": a_link_to_nothing,
}


@pytest.mark.parametrize("file", ["last/state.safetensors", "model.safetensors"])
@pytest.mark.parametrize("damage", UNREADABLE)
def test_a_file_of_weights_that_cannot_be_read(regard_, half, tmp_path, file, damage):
    gone = file == "model.safetensors" and damage in ("missing", "a link to nothing")
    words = ["has no model yet"] if gone else [Path(file).name, "train again"]
    assert_costs_nothing(regard_, half, tmp_path, file, UNREADABLE[damage], *words)


MISFITS: dict[str, tuple[str, Damage]] = {
    "an extra tensor": ("'odd' is in one", rewritten(lambda t, f: t.update(odd=torch.ones(3)))),
    "a missing tensor": ("is in one", rewritten(lambda t, f: t.pop(first(t)))),
    "another shape": ("expected (", rewritten(lambda t, f: t.update({first(t): t[first(t)].t().contiguous()[1:]}))),
    "another kind": ("expected torch.float32", rewritten(lambda t, f: t.update({first(t): t[first(t)].double()}))),
}


@pytest.mark.parametrize("file", ["last/state.safetensors", "model.safetensors"])
@pytest.mark.parametrize("damage", MISFITS)
def test_weights_that_are_not_the_models(regard_, half, tmp_path, file, damage):
    word, damages = MISFITS[damage]
    assert_costs_nothing(regard_, half, tmp_path, file, damages, file, word, "restore")


def moment(tensors: dict[str, Tensor]) -> str:
    return next(name for name in sorted(tensors) if name.startswith("optimiser.exp_avg_sq."))


def says(name: str, fact: object) -> Damage:
    return rewritten(lambda tensors, facts: facts.update({name: fact}))


ODD_STATES: dict[str, tuple[str, Damage]] = {
    "no random state": ("'random'", rewritten(lambda t, f: t.pop("random"))),
    "half a random state": ("random is (", rewritten(lambda t, f: t.update(random=t["random"][:99]))),
    "a random state of reals": ("torch.float32", rewritten(lambda t, f: t.update(random=t["random"].float()))),
    "a random state of ones": ("random state", rewritten(lambda t, f: t.update(random=torch.ones_like(t["random"])))),
    "half of what the optimiser knows": ("'optimiser.exp_avg_sq", rewritten(lambda t, f: t.pop(moment(t)))),
    "no facts at all": ("'best'", rewritten(lambda t, f: f.clear())),
    "a fact too many": ("'odd'", says("odd", 1)),
    "no step": ("'step'", rewritten(lambda t, f: f.pop("step"))),
    "a step that is text": ("step cannot be", says("step", "2")),
    "a step that is no number": ("step cannot be nan", says("step", float("nan"))),
    "half a step": ("step cannot be 2.5", says("step", 2.5)),
    "a step that is true": ("step cannot be True", says("step", True)),
    "a step before the first": ("step cannot be -1", says("step", -1)),
    "a step without end": ("step cannot be 1000", says("step", 10**400)),
    "an epoch that is a list": ("epoch cannot be", says("epoch", [1])),
    "no number of seconds": ("seconds cannot be inf", says("seconds", float("inf"))),
    "a best that is no number": ("best cannot be nan", says("best", float("nan"))),
    "a best that is text": ("best cannot be", says("best", "1.5")),
    "a billion snapshots": ("snapshots cannot be", says("snapshots", 10**9)),
    "fewer snapshots than there are": ("'snapshot.1", says("snapshots", 1)),
}


@pytest.mark.parametrize("damage", ODD_STATES)
def test_a_state_that_cannot_be(regard_, half, tmp_path, damage):
    word, damages = ODD_STATES[damage]
    file = "last/state.safetensors"
    assert_costs_nothing(regard_, half, tmp_path, file, damages, file, word, "restore")


def test_of_weights_every_beginning_and_every_changed_byte_is_refused(half, tmp_path):
    path = tmp_path / "x.safetensors"
    whole = (half / "model.safetensors").read_bytes()
    chance = random.Random(1)
    beginnings = [whole[:length] for length in (*range(0, head(whole), 5), *range(head(whole), len(whole), 97))]
    spots = (*range(0, head(whole), 3), *range(head(whole), len(whole), 53))
    changed = [whole[:at] + bytes([whole[at] ^ (1 << chance.randrange(8))]) + whole[at + 1 :] for at in spots]
    for content in (*beginnings, *changed):
        path.write_bytes(content)
        with pytest.raises(UserError, match="x.safetensors") as refused:
            read_tensors(path)
        assert "\n" not in str(refused.value)
    path.write_bytes(whole)
    assert read_tensors(path)[1] == {"step": 2}


def edited(change: Callable[[Any], object]) -> Damage:
    """JSON in which something was changed."""

    def damage(path: Path) -> None:
        saved = json.loads(path.read_bytes())
        change(saved)
        path.write_text(json.dumps(saved))

    return damage


def side(change: Callable[[dict[str, Any]], object]) -> Damage:
    return edited(lambda saved: change(saved["sides"]))


def tokenizer(change: Callable[[dict[str, Any]], object]) -> Damage:
    return side(lambda sides: change(sides["source"]["tokenizer"]))


NO_JSON: dict[str, Damage] = {
    "missing": missing,
    "nothing": becomes(b""),
    "half": altered(lambda whole: whole[: len(whole) // 2]),
    "a pickle": becomes(pickle.dumps(Trap())),
    "no UTF-8": becomes(b'{"data": "\xff"}'),
    "a list": becomes(b"[]"),
    "a number": becomes(b"1"),
    "other things": becomes(b'{"version": "1.0", "model": {"type": "BPE", "vocab": {}}}'),
    "depth": becomes(b"[" * 100_000),
    "a long number": becomes(b"1" * 10_000),
    "a folder": a_folder,
    "a link to nothing": a_link_to_nothing,
}
ENVIRONMENTS = {
    **NO_JSON,
    "no data": edited(lambda saved: saved.pop("data")),
    "data of another type": edited(lambda saved: saved.update(data=[1])),
    "no precision": edited(lambda saved: saved.pop("precision")),
    "an unknown precision": edited(lambda saved: saved.update(precision="float8")),
}
FIELDS = {
    **NO_JSON,
    "no sides": edited(lambda saved: saved.pop("sides")),
    "sides that are a list": edited(lambda saved: saved.update(sides=["source", "target"])),
    "no source": side(lambda sides: sides.pop("source")),
    "a source that is a list": side(lambda sides: sides.update(source=[])),
    "a side too many": side(lambda sides: sides.update(spelling={"kind": "spelling"})),
    "a source of labels": side(lambda sides: sides.update(source={"kind": "label", "names": ["a"]})),
    "a source that begins": side(lambda sides: sides["source"].update(begins=True)),
    "a target that begins perhaps": side(lambda sides: sides["target"].update(begins="perhaps")),
    "a target that does not begin": side(lambda sides: sides["target"].pop("begins")),
    "no target": side(lambda sides: sides["target"].pop("tokenizer")),
    "a target that is something": side(lambda sides: sides["target"].update(tokenizer="something")),
    "no vocabulary": tokenizer(lambda saved: saved.pop("vocabulary")),
    "a vocabulary of numbers": tokenizer(lambda saved: saved.update(vocabulary=[1, 2])),
    "a vocabulary of lists": tokenizer(lambda saved: saved.update(vocabulary=[["a"]])),
    "a vocabulary that is text": tokenizer(lambda saved: saved.update(vocabulary="abcde")),
    "a type twice": tokenizer(lambda saved: saved.update(vocabulary=["a", "a"])),
    "half a character": tokenizer(lambda saved: saved.update(vocabulary=["a", "\ud800"])),
    "no kind": tokenizer(lambda saved: saved.pop("kind")),
    "a kind that is a list": tokenizer(lambda saved: saved.update(kind=["words"])),
    "an unknown kind": tokenizer(lambda saved: saved.update(kind="wordpiece")),
    "bpe without bytes": tokenizer(lambda saved: saved.update(kind="bpe", merges=[])),
}
MANY = [chr(0x4E00 + i // 1000) + str(i % 1000) for i in range(300_000)]
RECIPES: dict[str, Damage] = {
    "nothing": becomes(b""),
    "a third": altered(lambda whole: whole[: len(whole) // 3]),
    "a pickle": becomes(pickle.dumps(Trap())),
    "no UTF-8": becomes(b"\xff\xfe"),
    "other things": becomes(b'[project]\nname = "x"\n'),
    "depth": becomes(b"task = " + b"[" * 10_000),
    "an unknown key": altered(lambda whole: whole.replace(b"dropout", b"drop_out")),
    "a folder": a_folder,
}


@pytest.mark.parametrize("damage", ENVIRONMENTS)
def test_an_environment_that_is_damaged(regard_, half, tmp_path, damage):
    words = "environment.json is damaged", "restore", "another folder"
    assert_costs_nothing(regard_, half, tmp_path, "environment.json", ENVIRONMENTS[damage], *words)


@pytest.mark.parametrize("damage", FIELDS)
def test_fields_that_are_damaged(regard_, half, tmp_path, damage):
    assert_costs_nothing(regard_, half, tmp_path, "fields.json", FIELDS[damage], "fields.json")


def test_fields_that_are_another_ones(regard_, half, tmp_path):
    huge = tokenizer(lambda saved: saved.update(vocabulary=MANY))
    assert_costs_nothing(regard_, half, tmp_path, "fields.json", huge, "expected (300004,", "restore")


@pytest.mark.parametrize("damage", RECIPES)
def test_a_runs_recipe_that_is_damaged(regard_, half, tmp_path, damage):
    assert_costs_nothing(regard_, half, tmp_path, "config.toml", RECIPES[damage])


def test_bytes_merged_wrongly_are_refused():
    kinds = TASKS["translation"].fields
    fields = text_fields(lambda: [("ab ab", "ab")], "source", "target", kind="bpe", size=270)
    saved = json.loads(fields.to_json())
    assert fields.joint and saved["sides"]["target"]["tokenizer"] == "source"
    again = Fields.from_json(json.dumps(saved), kinds)
    assert again.joint and again.tokenizer("source").encode("ab ab") == fields.tokenizer("source").encode("ab ab")
    tokenizer = saved["sides"]["source"]["tokenizer"]
    assert tokenizer["merges"]
    wrong: tuple[Any, ...] = ("ab", ["ab"], [["a"]], [["a", 1]], [["a", "ab"]], [["é", "b"]], [[["a"], "b"]])
    for merges in wrong:
        tokenizer["merges"] = merges
        with pytest.raises(UserError, match="fields.json is damaged"):
            Fields.from_json(json.dumps(saved), kinds)


# The encoded text is made again: it holds nothing that the text and the tokenizer do not say.

TOKENS, OFFSETS = "data/train.source.tokens.npy", "data/valid.target.offsets.npy"
CACHES: dict[str, tuple[str, Damage]] = {
    "no file": (TOKENS, missing),
    "nothing": (TOKENS, becomes(b"")),
    "half the tokens": (TOKENS, altered(lambda whole: whole[: len(whole) // 2])),
    "other tokens": (TOKENS, altered(lambda whole: whole[:-4] + bytes([7, 0, 0, 0]))),
    "more tokens": (TOKENS, altered(lambda whole: whole + bytes(4))),
    "tokens of another kind": (TOKENS, lambda path: np.save(path, np.load(path).astype(np.float64))),
    "a pickle": (TOKENS, lambda path: np.save(path, np.array([Trap()], dtype=object), allow_pickle=True)),
    "fewer offsets": (OFFSETS, lambda path: np.save(path, np.load(path)[:-1])),
    "offsets in disorder": (OFFSETS, lambda path: np.save(path, np.load(path)[::-1].copy())),
    "another's list": ("data/valid", becomes(b"3")),
    "no list": ("data/valid", missing),
    "bytes for a list": ("data/train", becomes(b"\xff\xfe")),
    "a link to nothing": (TOKENS, a_link_to_nothing),
}


@pytest.mark.parametrize("damage", CACHES)
def test_encoded_text_that_is_damaged_is_made_again(regard_, half, tmp_path, damage):
    folder = Path(shutil.copytree(half, tmp_path / "run"))
    file, damages = CACHES[damage]
    damages(folder / file)
    assert contents(folder) != contents(half)
    ended = regard_("train", "toy.toml", *BRIEF, "train.steps=2", "-o", folder)
    assert (ended.code, ended.err) == (0, "")
    assert contents(folder) == contents(half)
    assert not (regard_.home / "sprung").exists()


def test_a_folder_where_encoded_text_should_be(regard_, brief, half, tmp_path):
    folder = Path(shutil.copytree(half, tmp_path / "run"))
    a_folder(folder / TOKENS)
    assert_refused(
        regard_("train", "toy.toml", *BRIEF, "-o", folder), "data cannot be written", "move", "another output"
    )
    (folder / TOKENS).rmdir()
    assert_goes_on(regard_, folder, brief)


# --- Things in the wrong place -----------------------------------------------------------------------------------


def test_a_changed_recipe_is_refused_by_its_keys(regard_, half, tmp_path):
    before = contents(half)
    changed = ["train.clip=0.5", "model.dropout=0.1", "tokens.at_least=2"]
    refused = regard_("train", "toy.toml", *BRIEF, *changed, "-o", half)
    assert_refused(refused, "model.dropout, tokens.at_least, train.clip", "-o")
    assert_refused(regard_("train", "toy.toml", *BRIEF, "train.steps=1", "-o", half), "train.steps = 2, and 1 is less")
    assert contents(half) == before


def test_text_that_changed_or_is_gone_is_named(regard_, brief, half, tmp_path):
    home = Path(shutil.copytree(regard_.home, tmp_path / "home", ignore=lambda place, names: {*names} - TASK))
    folder = Path(shutil.copytree(half, tmp_path / "run"))
    train = ("train", home / "toy.toml", *BRIEF, "-o", folder)
    for name in sorted(TASK - {"toy.toml"}):
        file, text = home / name, (home / name).read_bytes()
        file.write_bytes(text.replace(b"a", b"b", 1))
        assert_refused(regard_(*train), "The data has changed", name, "restore", "another folder")
        file.unlink()
        assert_refused(regard_(*train), name, "was not found")
        file.mkdir()
        assert_refused(regard_(*train), name, "is a folder")
        file.rmdir()
        file.write_bytes(text)
    assert contents(folder) == contents(half)
    ended = regard_(*train)
    assert (ended.code, ended.err) == (0, "")
    assert ending(folder) == brief.end


def a_file(path: Path) -> None:
    path.parent.mkdir(exist_ok=True)
    path.write_text("mine\n")


def some_folder(path: Path) -> None:
    path.mkdir(parents=True)


IN_THE_WAY: dict[str, tuple[str, Damage, str]] = {
    "a file as the run folder": (".", a_file, "run cannot be written: File exists; move"),
    "a link to nothing as the run folder": (".", lambda path: path.symlink_to("nowhere"), "run cannot be written"),
    "a link to itself as the run folder": (".", lambda path: path.symlink_to(path.name), "run cannot be written"),
    "a folder as the environment": ("environment.json", some_folder, "environment.json cannot be written"),
    "a folder as the fields": ("fields.json", some_folder, "fields.json cannot be written"),
    "a file as a folder": ("last", a_file, "state.safetensors cannot be written"),
    "a file as the folder of the data": ("data", a_file, "data cannot be written"),
    "a model without a recipe": ("model.safetensors", a_file, "model.safetensors exists without the config.toml"),
}


@pytest.mark.parametrize("thing", IN_THE_WAY)
def test_what_is_in_the_way_is_left_alone(regard_, brief, tmp_path, thing):
    name, put, words = IN_THE_WAY[thing]
    folder = tmp_path / "run"
    put(folder / name)
    assert_refused(regard_("train", "toy.toml", *BRIEF, "-o", folder), words, "another")
    assert put is not a_file or (folder / name).read_text() == "mine\n"
    remove(folder / name)
    assert_goes_on(regard_, folder, brief)


@pytest.mark.parametrize("name", ["log.jsonl", "samples.txt"])
def test_a_folder_where_the_log_should_be(regard_, brief, half, tmp_path, name):
    folder = Path(shutil.copytree(half, tmp_path / "run"))
    a_folder(folder / name)
    refused = regard_("train", "toy.toml", *BRIEF, "-o", folder)
    assert_refused(refused, f"{name} cannot be written", "move", began=True)
    (folder / name).rmdir()
    shutil.copy(half / name, folder / name)
    assert_goes_on(regard_, folder, brief)


def test_an_empty_folder_and_a_link_to_one_do(regard_, brief, tmp_path):
    (tmp_path / "empty").mkdir()
    (tmp_path / "link").symlink_to("empty")
    assert_goes_on(regard_, tmp_path / "link", brief)
    assert (tmp_path / "link").is_symlink()
    for run in (tmp_path, tmp_path / "nowhere"):
        assert_refused(regard_("predict", run, "valid.source"), "give the folder")


def test_a_runs_teacher_may_go_once_it_has_begun(regard_, half, tmp_path):
    teacher = Path(shutil.copytree(half, tmp_path / "teacher"))
    learn = ("train", "toy.toml", *BRIEF, f"train.from={teacher}", "-o")
    assert regard_(*learn, tmp_path / "straight").code == 0
    assert regard_(*learn, tmp_path / "run", counted="writes", at=100).code == -signal.SIGKILL
    assert (tmp_path / "run" / "config.toml").exists()
    shutil.rmtree(teacher)
    assert regard_(*learn, tmp_path / "run").code == 0
    assert ending(tmp_path / "run") == ending(tmp_path / "straight")


@pytest.mark.slow
def test_a_true_process_says_the_same(regard_, half, home, tmp_path):
    folder = Path(shutil.copytree(half, tmp_path / "run"))
    (folder / "last" / "state.safetensors").write_bytes(pickle.dumps(Trap()))
    command = ("train", "toy.toml", *BRIEF, "-o", folder)
    with started(home, *command) as child:
        out, err = child.communicate(timeout=LONGEST)
    assert_refused(Ended(child.returncode, out, err, 0, 0), "state.safetensors cannot be read")
    again = regard_(*command)
    assert (again.code, again.out, again.err) == (child.returncode, out, err)


# --- How it is written -------------------------------------------------------------------------------------------


def writes_of(work: Callable[[], object]) -> list[str]:
    """The calls that change the disk, in order."""
    made: list[str] = []

    def hook(frame: FrameType, event: str, called: Any) -> None:
        if event == "c_call" and is_write(frame, called):
            made.append(called.__name__)

    sys.setprofile(hook)
    try:
        work()
    finally:
        sys.setprofile(None)
    return made


def test_what_is_written_is_on_the_disk(tmp_path):
    """A new name is flushed in its folder, and a content before it gets a name."""
    in_folder = ["mkdir", "fsync"]
    content = ["unlink", "flush", "fsync", "replace", "unlink", "fsync"]  # at first what had its temporary name
    path = tmp_path / "new" / "deeper" / "file"
    assert writes_of(lambda: write_atomically(path, "text")) == [*in_folder, *in_folder, *content]
    assert writes_of(lambda: write_atomically(path, "other")) == content
    assert writes_of(lambda: append(tmp_path / "log", "line\n")) == ["write", "fsync"]
    two_files = [*["unlink", "flush", "fsync"] * 2, "unlink", "replace", "replace", "unlink", "unlink"]
    assert writes_of(lambda: on_disk(tmp_path / "data", "text", [[5, 7]])) == [*in_folder, *two_files]


def test_a_link_stays_and_a_device_is_left_alone(tmp_path):
    (tmp_path / "file").write_text("old")
    (tmp_path / "link").symlink_to("file")
    write_atomically(tmp_path / "link", "new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "file").read_text() == "new"
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UserError, match="pipe cannot be written: there is a folder or a device"):
        write_atomically(tmp_path / "pipe", "new")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.parametrize("torn", [b"", b'{"step": 1}\n', b'{"step": 1}\n{"st', b'{"step": 1}\n"\xc3'])
def test_a_torn_line_harms_no_other(tmp_path, torn):
    folder = Folder(tmp_path)
    folder.log.write_bytes(torn)
    for step in (2, 3):
        append_log(folder.log, {"step": step, "text": "é\n"})
    steps = [entry["step"] for entry in log_entries(folder)]
    assert steps == [1, 2, 3][3 - len(steps) :]
    assert len(steps) == 2 + torn.startswith(b"{")
    assert folder.log.read_bytes().startswith(torn)


def test_a_run_with_torn_logs_goes_on(regard_, brief, half, tmp_path):
    folder = Path(shutil.copytree(half, tmp_path / "run"))
    for name in ("log.jsonl", "samples.txt"):
        with (folder / name).open("ab") as file:
            file.write(b'{"step": 3, "loss": 1.\xc3')
    assert_goes_on(regard_, folder, brief)
    samples = (folder / "samples.txt").read_bytes()
    assert samples.startswith((half / "samples.txt").read_bytes() + b'{"step": 3, "loss": 1.\xc3\nstep 3\n')


def test_only_what_a_killed_writer_left_is_swept(tmp_path):
    folder = Folder(tmp_path)
    left = ["last/.state.safetensors.12", ".config.toml.3", "data/.train.source.tokens.npy.45", "data/.valid.6"]
    left += [".fields.json.5", "data/.train.target.tokens.npy.123", "data/.valid.spelling.offsets.npy.7"]
    kept = [".notes.2024", ".state.safetensors", "data/.train.csv.7", "last/state.safetensors.8", "data/train.9"]
    for name in (*left, *kept):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    folder.sweep()
    assert sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file()) == sorted(kept)


if __name__ == "__main__":
    serve()

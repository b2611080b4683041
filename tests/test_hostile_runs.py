"""A run folder that somebody sends is data: no verb leaves the folder through it, executes what it names or is
filled by it. First what a sender would try, one by one; then hundreds of tamperings that a generator makes."""

from __future__ import annotations

import hashlib
import importlib.util
import json
import os
import re
import resource
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import IO, NamedTuple

import pytest
from command import Call

import regard
from regard import cli, machine, usercode
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
        regard.train(recipe, place / name, data=TEXTS, valid=TEXTS[:12], settings=SMALL, progress=False)
    return place


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Somebody's files, which no run may change."""
    (tmp_path / "home").mkdir()
    (tmp_path / "home" / ".bashrc").write_text("export MINE=1\n")
    return tmp_path / "home"


Snapshot = dict[str, tuple[int, int, int, bytes]]


def snapshot(place: Path) -> Snapshot:
    """All that is in a folder: kinds, times and contents."""
    found = {}
    for path in sorted(place.rglob("*")):
        stat = path.lstat()
        content = path.read_bytes() if path.is_file() and not path.is_symlink() else b""
        found[str(path.relative_to(place))] = (stat.st_mode, stat.st_mtime_ns, stat.st_nlink, content)
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
    regard.train(recipe, run, data=TEXTS, valid=TEXTS[:12], settings=longer, progress=False)
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
    regard.train(recipe, home.parent / "run", data=TEXTS, valid=TEXTS[:12], settings=SMALL, progress=False)
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

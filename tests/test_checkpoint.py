"""Laws of a run folder: a file is whole or not there, nothing in it can execute, and one process writes at a time."""

from __future__ import annotations

import json
import os
import resource
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from regard.checkpoint import Folder, append_log
from regard.data.files import write_atomically
from regard.data.tensors import read_tensors, write_tensors
from regard.data.tokens import PairTokens
from regard.interface import UserError
from regard.loading import load
from regard.recipe import parse_recipe
from regard.run import build_model
from regard.tasks.registry import TASKS
from regard.train.weights import load_weights, weights


@contextmanager
def child(work: Callable[[], None]) -> Iterator[int]:
    """Another process that does this, and is killed in the end if it still lives."""
    number = os.fork()
    if number == 0:
        try:
            work()
        finally:
            os._exit(0)
    try:
        yield number
    finally:
        os.kill(number, signal.SIGKILL)
        os.waitpid(number, 0)


# Atomic writes


def test_whenever_the_writer_is_killed_the_file_is_whole(tmp_path):
    path, size = tmp_path / "file", 300_007
    path.write_bytes(b"." * size)

    def write_for_ever() -> None:
        while True:
            for letter in b"ab":
                write_atomically(path, bytes([letter]) * size)

    seen = set()
    for reads in (1, 2, 3, 5, 7, 11, 13, 17):
        with child(write_for_ever):
            began = path.read_bytes()[:1]
            while path.read_bytes()[:1] == began:  # until it is at work
                pass
            for _ in range(reads):
                content = path.read_bytes()
                assert len(content) == size
                assert len(set(content)) == 1
        content = path.read_bytes()  # what the killed one left
        assert len(content) == size
        assert len(set(content)) == 1
        seen.add(content[:1])
    assert seen <= {b"a", b"b"}


def test_a_disk_that_is_full_costs_nothing(tmp_path):
    path = tmp_path / "file"
    write_atomically(path, "old")

    def write_too_much() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
        try:
            write_atomically(path, "new" * 1000)
        except UserError:
            (tmp_path / "refused").touch()

    number = os.fork()
    if number == 0:
        try:
            write_too_much()
        finally:
            os._exit(0)
    os.waitpid(number, 0)
    assert (tmp_path / "refused").exists()
    assert path.read_text() == "old"
    assert sorted(entry.name for entry in tmp_path.iterdir()) == ["file", "refused"]  # nothing half-written beside it


def test_a_write_makes_its_folder_and_leaves_nothing_beside(tmp_path):
    write_atomically(tmp_path / "new" / "folder" / "file", "é\n")
    write_atomically(tmp_path / "new" / "folder" / "file", b"\xff")
    assert (tmp_path / "new" / "folder" / "file").read_bytes() == b"\xff"
    assert len(list((tmp_path / "new" / "folder").iterdir())) == 1


# Tensors


def test_tensors_and_facts_come_back_bit_for_bit(tmp_path):
    tensors = {
        "plain": torch.randn(3, 5),
        "exact": torch.randn(7, dtype=torch.float64),
        "half": torch.randn(2, 3).bfloat16(),
        "whole": torch.tensor([2**62]),
        "bytes": torch.get_rng_state(),
        "turned": torch.randn(3, 5).t(),
        "number": torch.tensor(11.0),
        "none": torch.zeros(0, 3),
        "learnt": nn.Parameter(torch.randn(2)),
    }
    facts = {"step": 5, "best": None, "seconds": 0.1 + 0.2, "name": "é"}
    write_tensors(tmp_path / "x.safetensors", tensors, facts)
    back, said = read_tensors(tmp_path / "x.safetensors")
    assert said == facts
    assert back.keys() == tensors.keys()
    for name, tensor in tensors.items():
        assert back[name].dtype == tensor.dtype
        assert torch.equal(back[name], tensor)


def spoilt(path: Path, how: str) -> None:
    whole = path.read_bytes()
    if how == "pickle":
        torch.save({"weight": torch.ones(3)}, path)
    elif how == "truncated":
        path.write_bytes(whole[:-5])
    elif how == "header only":
        path.write_bytes(whole[:20])
    elif how == "garbage":
        path.write_bytes(bytes(range(256)) * 11)
    elif how == "empty":
        path.write_bytes(b"")
    elif how == "folder":
        path.unlink()
        path.mkdir()
    else:
        path.unlink()


SPOILT = ["pickle", "truncated", "header only", "garbage", "empty", "folder", "missing"]


@pytest.mark.parametrize("how", SPOILT)
def test_what_is_no_weights_file_is_refused_by_name(tmp_path, how):
    path = tmp_path / "x.safetensors"
    write_tensors(path, {"weight": torch.ones(3, 5)})
    spoilt(path, how)
    with pytest.raises(UserError, match="x.safetensors") as refused:
        read_tensors(path)
    assert "\n" not in str(refused.value)
    assert "train" in str(refused.value)


def test_weights_that_do_not_fit_are_named():
    model = nn.Linear(3, 5)
    before = {name: tensor.clone() for name, tensor in weights(model).items()}
    for wrong, sentence in (
        ({"weight": torch.ones(5, 3)}, "'bias' is in one of them only"),
        ({"weight": torch.ones(5, 3), "bias": torch.ones(5), "odd": torch.ones(1)}, "'odd' is in one of them only"),
        ({"weight": torch.ones(5, 3), "bias": torch.ones(7)}, r"bias is \(7,\), expected \(5,\)"),
    ):
        with pytest.raises(UserError, match=sentence):
            load_weights(model, wrong)
        assert all(torch.equal(tensor, before[name]) for name, tensor in weights(model).items())


def test_a_tensor_with_two_names_is_saved_once():
    model = nn.ModuleDict({"one": nn.Linear(3, 5), "other": nn.Linear(3, 5)})
    model["other"].weight = model["one"].weight
    saved: dict[str, Tensor] = weights(model)
    assert sorted(saved) == ["one.bias", "one.weight", "other.bias"]


# A whole run


def small_run(path: Path) -> Folder:
    folder = Folder(path)
    recipe = parse_recipe(
        {
            "task": "translation",
            "data": {"name": "world"},
            "model": {"name": "rnnsearch", "embedding": 5, "hidden": 7},
            "train": {"steps": 1},
        },
        tasks=TASKS,
    )
    fields = TASKS["translation"].learn(lambda: [("ab c", "d e")], PairTokens(kind="words", size=0, joint=False))
    write_atomically(folder.config, recipe.to_toml(placed=True))
    write_atomically(folder.fields, fields.to_json())
    write_tensors(folder.best, weights(build_model(recipe, fields)))
    return folder


def test_a_run_loads(tmp_path):
    folder = small_run(tmp_path / "run")
    loaded = load(folder.path)
    kept = read_tensors(folder.best)[0]
    assert all(torch.equal(tensor, kept[name]) for name, tensor in weights(loaded.model).items())
    assert loaded.tokenizer("source").encode("ab c") != []
    assert not loaded.model.training


def test_loading_leaves_the_random_state_as_it_was(tmp_path):
    folder = small_run(tmp_path / "run")
    torch.manual_seed(1234)
    before = torch.get_rng_state()
    load(folder.path)
    assert torch.equal(torch.get_rng_state(), before)


NO_TOKENIZER = b'{"format": 2, "sides": {"source": {"kind": "text"}, "target": {"kind": "text"}}}'


@pytest.mark.parametrize(
    "file, content, sentence",
    [
        ("config.toml", None, r"is not a run \(it has no config.toml\)"),
        ("config.toml", b"task", "not valid TOML"),
        ("fields.json", None, "fields.json is missing"),
        ("fields.json", b"{", "fields.json is damaged"),
        ("fields.json", b"[]", "fields.json is damaged"),
        ("fields.json", b"\xff", "fields.json is damaged"),
        (
            "fields.json",
            b'{"format": 2, "sides": {"source": {"kind": "text"}}}',
            "its sides are source, not source, target",
        ),
        ("fields.json", NO_TOKENIZER, "fields.json is damaged"),
        ("model.safetensors", None, "has no model yet"),
        ("model.safetensors", b"x", "cannot be read"),
    ],
)
def test_a_run_that_lost_a_file_says_which(tmp_path, file, content, sentence):
    folder = small_run(tmp_path / "run")
    (folder.path / file).unlink()
    if content is not None:
        (folder.path / file).write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        load(folder.path)


def test_a_run_that_is_not_there(tmp_path):
    with pytest.raises(UserError, match="nowhere does not exist"):
        load(tmp_path / "nowhere")


def test_the_log_is_a_line_of_json_each(tmp_path):
    entries = [{"step": 1, "text": "two\nlines"}, {"step": 2, "loss": None}]
    for entry in entries:
        append_log(tmp_path / "log.jsonl", entry)
    lines = (tmp_path / "log.jsonl").read_text().splitlines()
    assert [json.loads(line) for line in lines] == entries


# The lock


def test_a_second_process_is_refused_until_the_first_is_gone_however_it_ends(tmp_path):
    folder = Folder(tmp_path / "run")
    ready, told = os.pipe()

    def hold() -> None:
        with folder.only_writer():
            os.write(told, b"!")
            signal.pause()

    with child(hold):
        assert os.read(ready, 1) == b"!"
        with pytest.raises(UserError, match="Another process is training in .*-o"), folder.only_writer():
            pass
    with folder.only_writer():  # the child was killed with SIGKILL
        with pytest.raises(UserError), Folder(tmp_path / "run").only_writer():
            pass
        with Folder(tmp_path / "other").only_writer():
            pass
    with folder.only_writer():
        pass
    os.close(ready)
    os.close(told)

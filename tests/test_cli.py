"""The command line as someone meets it: lines in, lines out, one sentence when something is wrong, nothing lost."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from command import ENVIRONMENT, REGARD, Result, run

from regard.checkpoint import Folder
from regard.cli.options import task_names
from regard.cli.shell import out
from regard.data.tensors import read_tensors
from regard.loading import read_recipe
from regard.models import MODELS
from regard.tasks.registry import TASKS

SENTENCES = ["the cat sleeps .", "a dog sees the cat .", "the dog sleeps .", "a cat sees a dog ."]

RECIPE = """
task = "translation"
seed = 3
[data]
name = "parallel"
source = "text.source"
target = "text.target"
valid_source = "text.source"
valid_target = "text.target"
[tokens]
kind = "words"
size = 0
joint = false
[model]
name = "rnnsearch"
embedding = 11
hidden = 13
[train]
steps = 30
batch_tokens = 128
warmup = 1
learning_rate = 0.02
precision = "float32"
validate_every = 5
"""


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, a recipe and a trained run."""
    folder = tmp_path_factory.mktemp("kitchen")
    some = SENTENCES * 13
    (folder / "text.source").write_text("".join(f"{line}\n" for line in some))
    (folder / "text.target").write_text("".join(f"{' '.join(reversed(line.split()))}\n" for line in some))
    (folder / "toy.toml").write_text(RECIPE)
    trained = run("train", "toy.toml", cwd=folder)
    assert trained.code == 0, trained.err
    assert "Finished: the budget is used." in trained.out
    assert "\x1b" not in trained.out + trained.err
    return folder


@pytest.fixture
def trained(kitchen: Path) -> Path:
    return kitchen / "runs" / "toy"


# Finding one's way


def test_help_does_without_torch():
    command = [sys.executable, "-X", "importtime", *REGARD[1:], "--help"]
    done = subprocess.run(command, capture_output=True, text=True, env=ENVIRONMENT, timeout=60)
    assert done.returncode == 0
    assert all(verb in done.stdout for verb in ("train", "demo", "predict", "look", "models", "info"))
    imported = {line.rpartition("|")[2].strip() for line in done.stderr.splitlines()}
    assert "typer" in imported
    assert not imported & {"torch", "numpy", "tokenizers", "sacrebleu"}


def test_models_are_listed(call):
    plain, as_json = call("models"), call("models", "--json")
    listed = json.loads(as_json.out)
    assert [row["name"] for row in listed] == list(MODELS)
    can = {row["name"]: row["can"] for row in listed}
    assert can["seq2seq"] == "train, generate, score"
    assert can["rnnsearch"] == can["transformer"] == "train, generate, score, attend"
    assert all(name in plain.out for name in MODELS)


def test_info_tells_what_a_bug_report_needs(call):
    facts = json.loads(call("info", "--json").out)
    assert facts["torch"] == torch.__version__
    assert {"regard", "python", "system", "processor", "cores", "threads", "devices", "bf16"} <= facts.keys()


def test_texts_are_printed_as_they_are(capfd):
    out.print("[bold] is a :cat: [/]")
    assert capfd.readouterr().out == "[bold] is a :cat: [/]\n"


# Training


def test_what_a_run_leaves(kitchen, trained):
    names = {path.name for path in trained.iterdir()}
    assert {"config.toml", "fields.json", "model.safetensors", "last", "log.jsonl", "samples.txt"} <= names
    assert read_recipe(trained / "config.toml")[0].differences(read_recipe(kitchen / "toy.toml")[0]) == []
    steps = [json.loads(line)["step"] for line in (trained / "log.jsonl").read_text().splitlines()]
    assert steps == [5, 10, 15, 20, 25, 30]


def test_a_finished_run_says_so(kitchen, trained, call):
    again = call("train", kitchen / "toy.toml", "-o", trained)
    assert again.code == 0
    assert "This run is finished" in again.out


def test_interrupted_it_saves_and_the_same_command_ends_where_the_straight_run_did(kitchen, trained):
    command = [*REGARD, "train", "toy.toml", "-o", "again"]
    with subprocess.Popen(
        command, cwd=kitchen, env=ENVIRONMENT, text=True, stdout=subprocess.PIPE, stderr=subprocess.PIPE
    ) as child:
        assert child.stdout is not None and child.stderr is not None
        for line in child.stdout:
            if line.startswith("step 5 "):
                break
        child.send_signal(signal.SIGINT)
        rest, complaints = child.stdout.read(), child.stderr.read()
    assert child.returncode == 0
    assert complaints == ""
    stopped = read_tensors(kitchen / "again" / "last" / "state.safetensors")[1]["step"]
    assert 5 <= stopped < 30
    assert f"Stopped at step {stopped} and saved; the same command resumes." in rest
    resumed = run("train", "toy.toml", "-o", "again", cwd=kitchen)
    assert resumed.code == 0
    assert f"from step {stopped}." in resumed.out
    for file in ("last/state.safetensors", "model.safetensors"):
        straight, facts = read_tensors(trained / file)
        again, its_facts = read_tensors(kitchen / "again" / file)
        assert straight.keys() == again.keys()
        assert all(torch.equal(straight[name], again[name]) for name in straight)
        assert facts["step"] == its_facts["step"]


def test_a_folder_that_is_trained_in_is_refused(kitchen, trained, call):
    with Folder(trained).only_writer():
        refused = call("train", kitchen / "toy.toml", "-o", trained)
    assert refused.code == 1
    assert "Another process is training in" in refused.err


def test_another_models_settings_go_back_to_its_preset_and_it_says_so(kitchen, tmp_path, call):
    settings = ["model.name=seq2seq", "model.hidden=5", "model.layers=1", "train.steps=1"]
    result = call("train", kitchen / "toy.toml", *settings, "-o", tmp_path / "run")
    assert result.code == 0
    assert "model.embedding, model.hidden are reset to that model's preset" in result.err
    kept = read_recipe(tmp_path / "run" / "config.toml")[0]
    assert (kept.model_name, kept.model.hidden, kept.model.embedding) == ("seq2seq", 5, 256)


# Predicting

INPUT = (
    "the cat sleeps .\n\n the dog sleeps .\r\n\u2028\nthe\u2028cat . \u0085 .\n   \nunheard words !\na cat sees a dog ."
)


def test_one_line_in_one_line_out_from_standard_input(trained):
    lines = INPUT.split("\n")
    result = run("predict", trained, stdin=INPUT.encode())
    assert result.code == 0, result.err
    assert result.err == ""
    assert "\x1b" not in result.out
    assert result.out.endswith("\n")
    assert len(result.out.removesuffix("\n").split("\n")) == len(lines) == 8


def test_standard_input_and_a_file_give_the_same(trained, tmp_path, call):
    (tmp_path / "text").write_bytes(INPUT.encode())
    plain = call("predict", trained, tmp_path / "text", "--beam", 1)
    outputs = plain.out.removesuffix("\n").split("\n")
    assert [output == "" for output in outputs] == [not line.strip() for line in INPUT.split("\n")]
    written = call("predict", trained, tmp_path / "text", "--beam", 1, "-o", tmp_path / "out")
    assert (written.code, written.out) == (0, "")
    assert (tmp_path / "out").read_text() == plain.out
    as_json = call("predict", trained, tmp_path / "text", "--beam", 1, "--json")
    entries = [json.loads(line) for line in as_json.out.removesuffix("\n").split("\n")]
    assert [entry["text"] for entry in entries] == outputs
    assert [entry["line"] for entry in entries] == list(range(1, 9))
    assert all(entry["score"] <= 0 and entry["cut"] is False for entry in entries)


def test_n_best_lists(trained, tmp_path, call):
    (tmp_path / "text").write_text("the cat sleeps .\na dog sees the cat .\n")
    result = call("predict", trained, tmp_path / "text", "--beam", 3, "--n-best", 3, "--length-penalty", 0)
    rows = [line.split("\t") for line in result.out.splitlines()]
    assert [(int(line), int(rank)) for line, rank, _, _ in rows] == [(n, rank) for n in (1, 2) for rank in (1, 2, 3)]
    for at in (0, 3):
        scores = [float(score) for _, _, score, _ in rows[at : at + 3]]
        assert scores == sorted(scores, reverse=True)
        assert len({text for *_, text in rows[at : at + 3]}) == 3


def test_samples_depend_on_the_seed_alone(trained, tmp_path, call):
    (tmp_path / "text").write_text("the cat sleeps .\n" * 5)
    options = ["predict", trained, tmp_path / "text", "--sample", "--temperature", "2", "--seed"]
    first, again, other = (call(*options, seed).out for seed in (1, 1, 2))
    assert first == again != other
    assert len(set(first.splitlines())) > 1


def test_a_line_that_is_too_long_is_named(trained, tmp_path, call):
    (tmp_path / "text").write_text("the cat .\n" + "cat " * 1001 + ".\n")
    result = call("predict", trained, tmp_path / "text", "--max-length", 3)
    assert result.code == 0
    assert "Line 2 is too long" in result.err
    assert len(result.out.splitlines()) == 2


def test_bytes_that_are_not_utf8_are_named_or_replaced(trained, tmp_path, call):
    (tmp_path / "text").write_bytes(b"the cat .\nthe \xff dog .\na cat .\n")
    refused = call("predict", trained, tmp_path / "text", "-o", tmp_path / "out")
    assert_refused(refused, "line 2")
    assert not (tmp_path / "out").exists()
    replaced = call("predict", trained, tmp_path / "text", "--errors", "replace")
    assert (replaced.code, replaced.err) == (0, "")
    assert len(replaced.out.splitlines()) == 3


def test_a_reader_who_has_seen_enough_ends_it_quietly(trained):
    with subprocess.Popen(
        [*REGARD, "predict", str(trained)], env=ENVIRONMENT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=-1
    ) as child:
        assert child.stdin is not None and child.stdout is not None and child.stderr is not None
        child.stdout.close()
        child.stdin.write(b"the cat .\n" * 2000)
        child.stdin.close()
        assert child.stderr.read() == b""
    assert child.returncode == 128 + signal.SIGPIPE


# Looking


def test_look_shows_every_word(trained, call):
    shown = call("look", trained, "the cat sleeps .", "--target", "a dog sees !")
    assert shown.code == 0
    assert "\x1b" not in shown.out
    assert all(word in shown.out for word in ["the", "cat", "sleeps", ".", "<eos>", "a", "dog", "sees", "!"])
    assert "attention:" in shown.out
    seen = json.loads(call("look", trained, "the cat sleeps .", "--target", "a dog sees !", "--json").out)
    assert seen["source"] == ["the", "cat", "sleeps", ".", "<eos>"]
    assert [sum(row) for row in seen["weights"]] == pytest.approx([1] * 4, abs=1e-4)


def test_look_draws_a_picture(trained, tmp_path, call):
    drawn = call("look", trained, "the cat sleeps .", "-o", tmp_path / "x.svg")
    assert (drawn.code, drawn.err) == (0, f"Wrote {tmp_path / 'x.svg'}: open it in a browser.\n")
    words = [text.text for text in ElementTree.parse(tmp_path / "x.svg").iter("{http://www.w3.org/2000/svg}text")]
    assert {"the", "cat", "sleeps", "."} <= set(words)


def test_look_writes_a_page_of_a_sentence_or_of_a_file(trained, tmp_path, call):
    (tmp_path / "some.txt").write_text("the cat sleeps .\n\na dog sees the cat .\n")
    for what, count in (("the cat sleeps .", 1), (tmp_path / "some.txt", 2)):
        drawn = call("look", trained, what, "--html", tmp_path / "x.html")
        assert (drawn.code, drawn.out) == (0, "")
        assert drawn.err.startswith(f"Wrote {tmp_path / 'x.html'}: open it in a browser")
        assert (tmp_path / "x.html").read_text().count('"weights": "') == count


# Scoring and listing


def test_score_tells_every_figure(kitchen, trained, tmp_path, call):
    files = ("--source", kitchen / "text.source", "--target", kitchen / "text.target")
    lines = (kitchen / "text.target").read_text().splitlines()
    (tmp_path / "gold").write_text("0-0\n" * len(lines))
    options = ("--by-length", "--align", tmp_path / "gold", "-o", tmp_path / "outputs")
    shown = call("score", trained, *files, *options)
    assert shown.code == 0
    for word in ("case:mixed", "case:lc", "chrF", "TER", "tok:tercom", "alignment error", "1-10 words"):
        assert word in shown.out
    entry = json.loads(call("score", trained, *files, *options, "--json").out)
    assert entry["sentences"] == len(lines) and 0 <= entry["alignment_error"] <= 1
    for name, key in (("BLEU", "bleu"), ("BLEU, lower-cased", "bleu_lowercase"), ("chrF", "chrf"), ("TER", "ter")):
        line = f"{name:17} {entry[key]['value']:6.2f}   {entry[key]['signature']}\n"
        assert line in shown.out
    assert sum(bucket["sentences"] for bucket in entry["by_length"]) == len(lines)
    assert f"BLEU {entry['by_length'][0]['value']:6.2f}" in shown.out
    each = call("score", trained, *files, "--each").out.split()
    assert len(each) == len(lines) and all(float(value) < 0 for value in each)
    system = ("--system", kitchen / "text.target", tmp_path / "outputs")
    compared = call("score", "--target", kitchen / "text.target", *system).out
    found = json.loads(call("score", "--target", kitchen / "text.target", *system, "--json").out)
    assert "BLEU 100.00" in compared and f"p = {found['p']:.4f}   paired bootstrap, 1,000 resamples" in compared
    assert found["difference"] == found["first"] - found["second"] and found["low"] <= found["high"]


def test_runs_lists_what_was_trained(kitchen, call):
    (listed,) = json.loads(call("runs", kitchen / "runs", "--json").out)
    assert (listed["name"], listed["model"], listed["state"], listed["step"]) == ("toy", "rnnsearch", "finished", 30)
    assert "finished" in call("runs", kitchen / "runs").out


# What goes wrong


def assert_refused(result: Result, *words: str) -> None:
    """Exit code 1, nothing on standard output, one line that says what to do."""
    assert result.code == 1
    assert result.out == ""
    assert result.err.startswith("regard: ")
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err and "unexpected" not in result.err
    assert "\x1b" not in result.err
    for word in words:
        assert word in result.err


def test_a_run_that_does_not_exist(tmp_path):
    assert_refused(run("predict", tmp_path / "nowhere"), "nowhere does not exist", "regard train")


BAD: dict[str, tuple[list[str], list[str]]] = {
    "a folder that is no run": (["predict", "{tmp}", "{text}"], ["is not a run"]),
    "a missing file": (["predict", "{run}", "{tmp}/missing"], ["missing does not exist"]),
    "a folder as a file": (["predict", "{run}", "{tmp}"], ["is not a run"]),
    "more than the beam holds": (
        ["predict", "{run}", "{text}", "--beam", "2", "--n-best", "3"],
        ["--n-best 3", "is above --beam 2"],
    ),
    "a temperature of 0": (["predict", "{run}", "{text}", "--sample", "--temperature", "0"], ["--temperature"]),
    "a negative seed": (["predict", "{run}", "{text}", "--sample", "--seed", "-1"], ["--seed -1"]),
    "a device that is not there": (["predict", "{run}", "{text}", "--device", "tpu"], ["'tpu'", "cpu"]),
    "an output in no folder": (["look", "{run}", "the cat", "-o", "{text}/x.svg"], ["text"]),
    "nothing to look at": (["look", "{run}", ""], ["empty"]),
    "a layer that is not there": (["look", "{run}", "the cat", "--layer", "2"], ["Layer 2", "1 to 1"]),
    "a missing recipe": (["train", "{tmp}/missing.toml"], ["missing.toml does not exist"]),
    "a folder as a recipe": (["train", "{tmp}"], ["cannot be read"]),
    "text as a recipe": (["train", "{text}"], ["not valid TOML"]),
    "an unknown key": (["train", "{toy}", "model.hiden=5", "-o", "{tmp}/new"], ["model.hiden", "'model.hidden'"]),
    "a wrong value": (["train", "{toy}", "train.steps=many", "-o", "{tmp}/new"], ["train.steps = 'many'", "whole"]),
    "no setting": (["train", "{toy}", "train.steps", "-o", "{tmp}/new"], ["section.key=value"]),
    "another recipe in the run": (["train", "{toy}", "model.hidden=5", "-o", "{run}"], ["model.hidden", "-o"]),
    "data that is not there": (["train", "{toy}", "data.source=gone", "-o", "{tmp}/new"], ["'gone'", "REGARD_DATA"]),
    "a model that is not there": (["train", "{toy}", "model.name=rnsearch", "-o", "{tmp}/new"], ["'rnnsearch'"]),
    "a file as a run folder": (["train", "{toy}", "-o", "{text}"], ["text"]),
}


@pytest.mark.parametrize("what", BAD)
def test_what_goes_wrong_is_told_in_one_sentence(what, kitchen, trained, tmp_path, call):
    (tmp_path / "text").write_text("the cat sleeps .\n")
    places = {"run": trained, "tmp": tmp_path, "text": tmp_path / "text", "toy": kitchen / "toy.toml"}
    arguments, words = BAD[what]
    assert_refused(call(*(argument.format(**places) for argument in arguments)), *words)
    assert (tmp_path / "text").read_text() == "the cat sleeps .\n"


def test_help_names_every_task_as_it_is_typed() -> None:
    assert task_names() == sorted(TASKS)

"""Training and comparison in the first hour: which checkpoint is kept, what is printed, what small numbers mean."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import shutil
import sys
import threading
from itertools import islice, pairwise
from pathlib import Path
from typing import Any

import pytest
import torch
from command import Call, Result

import regard
from regard.checkpoint import Folder
from regard.cli.shell import err, out
from regard.compare.api import already_trained
from regard.compare.comparison import measure_runs
from regard.compare.measure import Unseen
from regard.data.tensors import read_tensors
from regard.interface import Progress, Sample
from regard.runs import log_entries
from regard.train.progress import LINE, SAMPLE, Throttle
from regard.train.session import Session

KEPT = Path(__file__).parent / "runs"
WORDS = {"good": "praise", "nice": "praise", "bad": "blame", "poor": "blame"}
RECIPE = """task = "classification"
[data]
name = "table"
train = "train.tsv"
valid = "valid.tsv"
source = "1"
target = "2"
[tokens]
kind = "words"
size = 0
[model]
name = "birnn"
embedding = 8
hidden = 8
dropout = 0.0
[train]
steps = 40
batch_tokens = 64
learning_rate = 0.05
warmup = 1
validate_every = 1
metric = "accuracy"
precision = "float32"
"""


def recipe_in(folder: Path, valid: int = 4) -> Path:
    """A classifier that knows its few words after some steps, and only gets surer of them afterwards."""
    lines = [f"a {word} film number {n}\t{label}\n" for n in range(8) for word, label in WORDS.items()]
    (folder / "train.tsv").write_text("".join(lines))
    (folder / "valid.tsv").write_text("".join(lines[:valid]))
    (folder / "my.toml").write_text(RECIPE)
    return folder / "my.toml"


# --- the kept checkpoint -----------------------------------------------------------------------------------------


def best_step(folder: Path) -> int:
    return int(read_tensors(Folder(folder).best)[1]["step"])


def test_between_checkpoints_of_equal_accuracy_the_lower_loss_is_kept_and_resuming_knows_it(place: Path) -> None:
    recipe, _ = regard.read_recipe(recipe_in(place), ["train.steps=25"])
    for _ in Session(recipe, "straight").steps():
        pass
    found = {entry["step"]: entry["valid"] for entry in log_entries(Folder("straight"))}
    most = max(valid["accuracy"] for valid in found.values())
    equal = {step: valid["loss"] for step, valid in found.items() if valid["accuracy"] == most}
    assert len(equal) > 5 and min(equal, key=equal.__getitem__) != min(equal)
    assert best_step(place / "straight") == min(equal, key=equal.__getitem__)
    for stop in (3, 9, 99):
        session = Session(recipe, "again")
        for _ in islice(session.steps(), stop):
            pass
    assert best_step(place / "again") == best_step(place / "straight")
    for fact in ("best", "best_loss", "stale"):
        assert session.training.facts()[fact] == read_tensors(Folder("straight").last)[1][fact]


def test_early_stopping_counts_the_metric_alone(place: Path) -> None:
    recipe, _ = regard.read_recipe(recipe_in(place), ["train.patience=3"])
    *_, last = Session(recipe, "run").steps()
    assert last.finished == "early stopping, 3 validations without a better accuracy"
    improved = [entry["step"] for entry in log_entries(Folder("run")) if entry["improved"]]
    assert improved[-1] > last.step - 3  # though its loss went on falling


# --- few examples, many lines ------------------------------------------------------------------------------------


def test_a_perfect_score_on_few_examples_is_called_meaningless(call: Call, place: Path) -> None:
    done = call("train", recipe_in(place), "-o", "run", "--threads", 1)
    assert done.code == 0, done.err
    plan, _, end = done.out.partition("Finished: the budget is used.")
    assert "The validation set has fewer than 20 sentences (4), too few to measure anything: " in plan
    assert "accuracy 100.00 on fewer than 20 sentences (4) measures nothing: " in end
    assert plan.count("--valid") == end.count("--valid") == 1


def test_a_short_training_prints_its_first_best_and_last_validation(call: Call, place: Path) -> None:
    done = call("train", recipe_in(place, valid=20), "-o", "run", "--threads", 1)
    assert done.code == 0, done.err
    assert "20 sentences" not in done.out  # enough to validate on
    steps = [int(step) for step in re.findall(r"(?m)^step (\d+) .* valid ", done.out)]
    assert len(steps) <= 3 < len(list(log_entries(Folder("run")))) == 40
    assert {1, 40, best_step(place / "run")} == set(steps)
    assert done.out.count("→ ") == 1  # one sample output


def reports(seconds: float, count: int) -> list[Progress]:
    """Validations of a training that gets better until it is three quarters through."""
    return [
        Progress(
            step=step,
            epoch=0,
            loss=1.0,
            perplexity=1.0,
            learning_rate=1.0,
            gradient_norm=1.0,
            tokens_per_second=1.0,
            seconds=seconds * step / count,
            tokens=step,
            done=step / count,
            valid={"loss": 1.0},
            samples=(Sample("a", "b", "c"),),
            improved=step <= 0.75 * count,
            finished="the budget is used" if step == count else None,
        )
        for step in range(1, count + 1)
    ]


def test_a_line_every_few_seconds_and_none_of_them_loses_the_best() -> None:
    choose = Throttle()
    shown = [each for report in reports(29.0, 160) for each in choose(report)]
    steps = [each.step for each in shown]
    assert steps[0] == 1 and steps[-1] == 160 and 120 in steps and len(steps) <= 29 / LINE + 3
    assert steps == sorted(set(steps))
    samples = [each.seconds for each in shown if each.samples]
    assert len(samples) == 3 and all(later - earlier >= SAMPLE for earlier, later in pairwise(samples))
    slow = reports(3600.0, 160)
    choose = Throttle()
    assert [each for report in slow for each in choose(report)] == slow  # those that are far apart are all shown


CONSOLES = {"stdout": out, "stderr": err}


def in_a_terminal(call: Call, streams: tuple[str, ...], *arguments: object) -> tuple[Result, str]:
    """The command with these streams in a terminal: what it wrote to the others, and to the terminal."""
    near, far = pty.openpty()
    shown: list[bytes] = []

    def read() -> None:
        with contextlib.suppress(OSError):  # how Linux says that nobody has the other end any more
            while some := os.read(near, 1 << 16):
                shown.append(some)

    reader = threading.Thread(target=read)
    reader.start()
    with open(far, "w", encoding="utf-8") as terminal, pytest.MonkeyPatch.context() as patch:
        patch.setenv("TERM", "xterm")
        for stream in streams:
            patch.setattr(sys, stream, terminal)
            patch.setattr(CONSOLES[stream], "is_interactive", True)  # which it finds out when it is made
        done = call(*arguments)
    reader.join()
    os.close(near)
    return done, b"".join(shown).decode()


def test_a_terminal_has_a_bar_with_the_time_left_and_a_pipe_the_lines(call: Call, place: Path) -> None:
    command = ("train", recipe_in(place), "train.steps=20", "-o", "run", "--threads", 1)
    done, bar = in_a_terminal(call, ("stderr",), *command)
    assert done.code == 0 and "\x1b" not in done.out
    assert "Finished: the budget is used." in done.out and "Finished" not in bar
    assert "step 20 " in bar and " left " in bar and "labels/s" in bar


def test_in_a_terminal_lines_stand_above_the_bar(call: Call, place: Path) -> None:
    command = ("train", recipe_in(place), "train.steps=20", "-o", "run", "--threads", 1)
    done, written = in_a_terminal(call, ("stdout", "stderr"), *command)
    assert done.code == 0 and " left " in written
    visible = [re.sub(r"\x1b\[[\d;?]*[A-Za-z]", "", line.rpartition("\x1b[2K")[2]) for line in written.split("\r\n")]
    assert any(re.match(r"step 1   0:0\d   loss .* valid accuracy ", line) for line in visible)
    assert "Finished: the budget is used." in visible


# --- TensorBoard -------------------------------------------------------------------------------------------------


def test_tensorboard_has_each_step_once_though_training_was_interrupted(place: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    recipe, _ = regard.read_recipe(
        recipe_in(place), ["train.tensorboard=true", "train.steps=9", "train.validate_every=4"]
    )
    for _ in islice(Session(recipe, "run").steps(), 7):  # saved at step 4, where it was validated, and then lost
        pass
    for _ in Session(recipe, "run").steps():
        pass
    seen = EventAccumulator("run/tensorboard").Reload()
    for name in ("train/loss", "train/learning_rate"):
        assert [event.step for event in seen.Scalars(name)] == list(range(1, 10))
    logged = {entry["step"]: entry["valid"]["accuracy"] for entry in log_entries(Folder("run"))}
    assert {event.step: event.value for event in seen.Scalars("valid/accuracy")} == pytest.approx(logged)
    assert list(logged) == [4, 8, 9]
    # a run goes on whether it is watched or not
    longer, _ = regard.read_recipe(recipe_in(place), ["train.steps=11", "train.validate_every=4"])
    assert [progress.step for progress in Session(longer, "run").steps()] == [10, 11]


def test_without_tensorboard_one_sentence_says_how_to_install_it(
    call: Call, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "tensorboard", None)
    done = call("train", recipe_in(place), "train.tensorboard=true", "-o", "run")
    assert done.code == 1 and "pip install tensorboard" in done.err and done.err.count("\n") == 1
    assert not Path("run/config.toml").exists()


# --- comparisons -------------------------------------------------------------------------------------------------

UNTRAINED = "No model has learnt the task yet: the best "
FLOORS = {
    "translation": "5.00 is less than any readable translation has",
    "language": "is what token frequencies alone give",
    "classification": "50.00 is the share of the most frequent label",
    "tagging": "50.00 is the share of the most frequent label",
}
EXAMPLES: dict[str, tuple[list[Any], list[Any]]] = {  # for each task, what its kept run knows, and what it does not
    "translation": (
        [("The book was good .", "Le livre était bon ."), ("The book was boring .", "Le livre était ennuyeux .")],
        [("The book was good .", "das ist ein gutes Buch"), ("The book was boring .", "wie langweilig es doch ist")],
    ),
    "language": (["The man is good .", "The man was bad ."], ["qxz jvk wqx zzqj", "vvkq xjjz qqw"]),
    "classification": (
        [("The wine was disgusting .", "negative"), ("The soup is excellent .", "positive")],
        [("The wine was disgusting .", "positive"), ("The soup is excellent .", "negative")],
    ),
    "tagging": (
        [("I am", "PRON VERB"), ("I am", "PRON VERB")],
        [("I am", "VERB PRON"), ("I am", "VERB PRON")],
    ),
}


@pytest.fixture
def kept(place: Path) -> Any:
    """A copy of a kept run: what is measured is written beside it."""

    def copied(task: str, name: str = "run", *, rate: str = "0.01") -> Path:
        folder = Path(shutil.copytree(KEPT / task, place / name))
        config = folder / "config.toml"
        config.write_text(config.read_text().replace("learning_rate = 0.01", f"learning_rate = {rate}"))
        return folder

    return copied


@pytest.mark.parametrize("task", FLOORS)
def test_models_that_have_learnt_nothing_are_called_that_before_one_of_them_wins(task: str, kept: Any) -> None:
    run = kept(task)
    known, unknown = (regard.compare(run, examples) for examples in EXAMPLES[task])
    assert not any(UNTRAINED in sentence for sentence in known.summary)
    assert unknown.summary[0].startswith(UNTRAINED) and FLOORS[task] in unknown.summary[0]
    assert unknown.summary[1].startswith("run has ")


@pytest.mark.parametrize(
    "task, examples",
    [
        ("translation", [("The book .", "Le livre .")]),  # BLEU counts four words, and is 0 here for everybody
        ("classification", [("The soup is excellent .", "negative")]),  # whoever always gives this label is perfect
        ("classification", [("The soup is excellent .", "unheard of")]),
    ],
)
def test_no_such_claim_where_the_measure_cannot_tell(task: str, examples: list[Any], kept: Any) -> None:
    found = regard.compare(kept(task), examples)
    assert found.summary[0].startswith("run has ")


def test_the_command_and_the_report_say_so_too(call: Call, kept: Any, place: Path) -> None:
    Path("test.tsv").write_text("".join(f"{text}\t{label}\n" for text, label in EXAMPLES["classification"][1]))
    done = call("compare", kept("classification"), "--test", "test.tsv", "-o", "r.html", "--threads", 1)
    assert done.code == 0, done.err
    assert done.out.startswith(UNTRAINED)
    assert Path("r.html").read_text().count(UNTRAINED) == 1


def test_compare_from_python(kept: Any, place: Path) -> None:
    pairs, _ = EXAMPLES["translation"]
    one, other = kept("translation", "one"), kept("translation", "other", rate="0.02")
    random = torch.get_rng_state()
    found = regard.compare([regard.load(one), str(other)], pairs, out="both.html", beam=2)
    assert torch.equal(torch.get_rng_state(), random)
    assert [model["name"] for model in found.facts["models"]] == ["one", "other"]
    assert "one has the highest BLEU" in str(found) and found.summary == str(found).splitlines()[: len(found.summary)]
    assert repr(found) == "Comparison(one and other on the built-in corpus)"
    assert found._repr_html_().startswith("<iframe title=") and "one and other" in found._repr_html_()
    found.write("again.html")
    assert Path("again.html").read_text() == Path("both.html").read_text()
    assert json.loads(Path("both.json").read_text()) == json.loads(json.dumps(found.facts))
    assert "compare" in dir(regard) and callable(regard.compare)


@pytest.mark.parametrize(
    "arguments, said",
    [
        (([], [("a", "b")]), "give at least one run"),
        (("nowhere", [("a", "b")]), "nowhere does not exist"),
        ((KEPT / "translation", []), "give at least one example"),
        ((KEPT / "translation", ["The book was good ."]), "Example 1, .* has 1 parts, and translation needs 2"),
        ((KEPT / "translation", [("a", "b")], "report.pdf"), "must end in .html"),
        (([KEPT / "translation", KEPT / "tagging"], [("a", "b")]), "give runs of one task"),
    ],
)
def test_a_comparison_that_cannot_be_is_one_sentence(arguments: Any, said: str) -> None:
    with pytest.raises(regard.UserError, match=said):
        regard.compare(*arguments)


def test_whoever_measures_can_show_how_far_it_is(kept: Any) -> None:
    _, runs = already_trained([kept("classification", "one"), kept("classification", "other", rate="0.02")])
    heard: list[tuple[float, str]] = []
    measure_runs(
        runs, Unseen(tuple(EXAMPLES["classification"][0])), beam=1, on_progress=lambda *each: heard.append(each)
    )
    shares = [share for share, _ in heard]
    assert shares == sorted(shares) and shares[0] == 0 and 0.5 < shares[-1] < 1
    assert heard[0][1].startswith("one, seed 1 (1 of 2): ") and heard[-1][1].startswith("other, seed 1 (2 of 2): ")

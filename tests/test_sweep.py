"""A search takes every trial once, whoever is killed; its space means what it says; its report holds every number."""

from __future__ import annotations

import json
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import chromium
from command import ENVIRONMENT, REGARD, Call
from hypothesis import given
from hypothesis import strategies as some
from pages import commands_in, python_in
from test_compare import recipe_in
from test_sweep_page import opened

import regard
from regard.checkpoint import Folder
from regard.compare.children import STOPPED
from regard.config import parse_value, to_toml
from regard.interface import UserError
from regard.loading import read_recipe
from regard.score.metrics import LOSS
from regard.sweep import workers
from regard.sweep.results import ranked, strength
from regard.sweep.search import Search, open_search
from regard.sweep.space import Choices, Range, Space, apart, listed, read_space
from regard.sweep.study import Study, Trial
from regard.train.session import Session

NUMBERS = some.integers(-1000, 1000) | some.floats(-1e6, 1e6)
CHOICES = some.lists(NUMBERS | some.booleans() | some.text() | some.lists(some.text()), min_size=2, unique_by=to_toml)
SEARCHED = ["model.dropout=0.1,0.3", "train.learning_rate=1e-3..1e-1", "model.hidden=8..16"]


# --- the space ---------------------------------------------------------------------------------------------------


@given(CHOICES)
def test_a_list_of_choices_is_read_as_it_was_written(choices: list[Any]) -> None:
    parts = listed(",".join(map(to_toml, choices)))
    assert [parse_value(part) for part in parts] == choices


def test_a_list_and_a_range_are_searched_and_one_value_is_not() -> None:
    fixed = ["model.name=gpt", "data.source=../a..b", 'train.parts=["a","b"]', 'data.x="a,b"', "data.y=l'homme"]
    searched = ["model.dropout=0.1,0.3", "model.dim=8..64", "train.learning_rate=1e-4..1e-2", "data.z=l'un,l'autre"]
    assert apart([*fixed, *searched]) == (fixed, searched)


@pytest.fixture
def recipe(tmp_path: Path) -> regard.Recipe:
    return read_recipe(recipe_in(tmp_path, "translation", "rnnsearch"))[0]


def test_the_kind_of_a_range_follows_from_its_ends_and_its_setting(recipe: regard.Recipe) -> None:
    def only(text: str) -> Range:
        (setting,) = read_space([text], recipe).settings
        assert isinstance(setting, Range)
        return setting

    whole = only("model.hidden=8..512")
    assert whole.whole and not whole.log and whole.probes == ("8", "512")
    assert only("train.learning_rate=1..2") == Range("train.learning_rate", 1.0, 2.0)
    assert not only("train.learning_rate=1..2").whole and not only("train.learning_rate=1..2").log
    assert only("train.learning_rate=1e-3..1e-2").log and not only("model.dropout=0.0..0.5").log


def test_what_cannot_be_searched_is_refused_in_a_sentence(recipe: regard.Recipe) -> None:
    cases = {
        "model.hiden=8,16": "did you mean 'model.hidden'",
        "model.hidden=8,many": "must be a whole number",
        "model.hidden=0.5..8": "must be a whole number",
        "model.hidden=0..8": "at least 1",  # each end must be possible
        "model.dropout=0.1..1.5": "below 1",
        "model.dropout=0.1,,0.3": "empty choice",
        "model.dropout=0.1,0.10": "more than once",
        "model.dropout=0.3..0.1": "lower end first",
        "model.name=rnnsearch,gpt": "gpt",
        "train.metric=loss,bleu": "all trials need one metric",
        "train.schedule=1..2": "1",
    }
    for text, words in cases.items():
        with pytest.raises(UserError, match=words):
            read_space([text], recipe)
    with pytest.raises(UserError, match="more than once"):
        read_space(["model.dropout=0.1,0.2", "model.dropout=0.3,0.4"], recipe)
    with pytest.raises(UserError, match="nothing to search"):
        read_space([], recipe)


def test_a_value_is_possible_if_it_is_with_some_of_the_others(recipe: regard.Recipe) -> None:
    """rnnsearch has no heads, and a Transformer of 12 heads needs a width that 12 divides."""
    space = read_space(["model.name=transformer,rnnsearch", "model.dropout=0.1,0.2"], recipe, ["train.steps=3"])
    assert space.assignments({"model.name": '"transformer"', "model.dropout": "0.2"})[0] == "train.steps=3"
    read_space(["model.heads=4,12", "model.dim=64,96"], read_recipe(recipe_of(recipe, "transformer"))[0])
    with pytest.raises(UserError, match="heads"):
        read_space(["model.heads=4,7", "model.dim=64,96"], read_recipe(recipe_of(recipe, "transformer"))[0])


def recipe_of(recipe: regard.Recipe, model: str) -> Path:
    file = recipe.folder / f"{model}.toml"
    text = recipe.to_toml()
    begin, end = text.index("[model]"), text.index("[train]")
    file.write_text(f'{text[:begin]}[model]\nname = "{model}"\n{text[end:]}')
    return file


# --- proposals ---------------------------------------------------------------------------------------------------


def a_study(folder: Path, url: str = "") -> Study:
    folder.mkdir(exist_ok=True)
    return Study(folder / "trials.log", url, name="one", better="lower")


SPACE = Space((Choices("a", ("1", "2", "3")), Range("b", 1e-4, 1e-1), Range("c", 2, 5)))


@pytest.mark.parametrize("database", [False, True])
def test_what_is_proposed_follows_from_the_seed_and_the_results_also_after_a_restart(
    tmp_path: Path, database: bool
) -> None:
    many = 5 if database else 13  # the sampler learns from the eleventh on

    def params(name: str, seed: int, *, again: bool) -> list[Any]:
        url = f"sqlite:///{tmp_path / name}.db" if database else ""
        study = a_study(tmp_path / name, url)
        for number in range(many):
            study = a_study(tmp_path / name, url) if again and number % 4 == 3 else study
            trial = study.add(SPACE, seed=seed)
            assert trial.number == number and SPACE.holds(trial.params)
            study.finish(trial, float(trial.params["b"]))
        return [dict(trial.params) for trial in study.trials()]

    straight = params("straight", 1, again=False)
    assert straight == params("restarted", 1, again=True)
    assert straight != params("other", 2, again=False)
    assert len({tuple(each.values()) for each in straight}) == many


def test_a_finite_space_is_searched_without_repetition(tmp_path: Path) -> None:
    space = Space((Choices("a", ("1", "2")), Range("c", 2, 4)))
    study = a_study(tmp_path / "s")
    for _ in range(int(space.size())):
        study.fail(study.add(space, seed=1), "no")
    assert sorted(tuple(trial.params.values()) for trial in study.trials()) == sorted(
        tuple(each.values()) for each in space.every()
    )
    assert {(trial.state, trial.why) for trial in study.trials()} == {("failed", "no")}


def test_what_a_worker_that_was_killed_while_it_wrote_has_left_harms_nobody(tmp_path: Path) -> None:
    study = a_study(tmp_path / "s")
    study.add(SPACE, seed=1)
    journal = tmp_path / "s" / "trials.log"
    whole = journal.read_bytes()
    journal.write_bytes(whole + b'{"op_code": 4, "wor')
    (tmp_path / "s" / "trials.log.lock").symlink_to("trials.log")  # Optuna's lock
    study.add(SPACE, seed=1)
    assert [trial.number for trial in a_study(tmp_path / "s").trials()] == [0, 1]
    assert journal.read_bytes().startswith(whole) and journal.read_bytes().endswith(b"}\n")
    journal.write_bytes(whole + b"not JSON\n" + whole)
    with pytest.raises(UserError, match="cannot be used"):
        a_study(tmp_path / "s").trials()


# --- who takes which trial ---------------------------------------------------------------------------------------


@pytest.fixture
def search(recipe: regard.Recipe, tmp_path: Path) -> Search:
    return open_search(tmp_path / "s", recipe, read_space(SEARCHED, recipe), trials=3)


def test_a_trial_is_taken_once_and_again_when_its_worker_is_gone(search: Search, tmp_path: Path) -> None:
    other = open_search(search.folder, search.recipe, search.space, trials=3)
    taken = [search.take(2), other.take(2)]
    first, second = (each for each in taken if each)
    assert [first.trial.number, second.trial.number] == [0, 1] and not first.resumed
    assert search.take(2) is None is other.take(2)
    first.lock.close()  # what the system does when a process ends
    with Folder(search.folder / "000").only_writer():  # what the worker started is still saving
        assert other.take(2) is None
    again = other.take(2)
    assert again and again.resumed and again.trial == first.trial
    assert search.record(again, STOPPED) is None  # somebody ended the training: it is not over
    assert (once_more := search.take(2)) and once_more.trial == first.trial
    failed = search.record(once_more, "the loss is not finite")
    assert failed and (failed.state, failed.why) == ("failed", "the loss is not finite")
    assert search.take(2) is None and (third := search.take(3)) and third.trial.number == 2


def test_another_search_in_the_folder_is_refused_with_what_differs(search: Search) -> None:
    def opened(texts: list[str], *settings: str, **how: Any) -> None:
        recipe = read_recipe(search.folder.parent / "my.toml", settings)[0]
        open_search(search.folder, recipe, read_space(texts, recipe), **{"trials": 3} | how)

    opened(["model.dropout=0.1,0.30", *SEARCHED[1:]], trials=4)  # the same, and more trials
    with pytest.raises(UserError, match=r"model.dropout \(0.1,0.3, now 0.1,0.2\)"):
        opened(["model.dropout=0.1,0.2", *SEARCHED[1:]])
    with pytest.raises(UserError, match=r"model.hidden \(8..16, now not searched\).*train.steps \(6, now 7\)"):
        opened(SEARCHED[:2], "train.steps=7")
    with pytest.raises(UserError, match=r"--seed \(1, now 5\)"):
        opened(SEARCHED, seed=5)
    with pytest.raises(UserError, match=r"--storage \(trials.log, now sqlite:///x.db\)"):
        opened(SEARCHED, storage="sqlite:///x.db")
    taken = [search.take(2), search.take(2)]
    assert all(taken)
    with pytest.raises(UserError, match="it can only grow"):
        opened(SEARCHED, trials=1)


def test_settings_that_nobody_asked_for_are_not_trained(search: Search) -> None:
    """A storage may come from somebody else, and a setting can name code."""
    search.study.add(Space((*search.space.settings[:2], Choices("model.hidden", ('"evil.py:Cell"',)))), seed=1)
    with pytest.raises(UserError, match="not in the space"):
        search.take(3)


def test_bad_requests_are_sentences(call: Call, recipe: regard.Recipe, tmp_path: Path) -> None:
    file, folder = tmp_path / "my.toml", tmp_path / "s"
    Folder(tmp_path / "run").path.mkdir()
    (tmp_path / "run" / "config.toml").write_text("")
    cases = {
        (): "nothing to search",
        ("model.hidden",): "is not a setting",
        ("model.dropout=0.1,0.3", "--trials", 3): "at most 2",
        ("model.dropout=0.1,0.3", "--trials", 0): "at least 1",
        ("model.dropout=0.1,0.3", "--trials", 2, "--jobs", 0): "at least 1",
        ("model.dropout=0.1,0.3", "--trials", 2, "--storage", "trials.db"): "not the URL of a database",
        ("model.dropout=0.1,0.3", "--trials", 2, "--storage", "redis://here"): "cannot be used",
        ("model.dropout=0.1,0.3", "--trials", 2, "-o", tmp_path / "run"): "is a run",
    }
    for arguments, said in cases.items():
        done = call("sweep", file, "-o", folder, *arguments)
        assert done.code == 1 and said in done.err and done.err.count("\n") == 1, (arguments, done.err)
    assert not (folder / "000").exists()


def test_without_optuna_the_remedy_is_one_sentence(
    call: Call, recipe: regard.Recipe, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "optuna", None)
    for name in ("search", "study"):  # as in a process that has not imported them yet
        monkeypatch.delitem(sys.modules, f"regard.sweep.{name}")
    done = call("sweep", tmp_path / "my.toml", *SEARCHED)
    assert done.code == 1 and 'pip install "regard[sweep]"' in done.err and done.err.count("\n") == 1


# --- results -----------------------------------------------------------------------------------------------------


def trials_of(values: list[float | None], **given_: list[Any]) -> list[Trial]:
    return [
        Trial(n, {key: each[n] for key, each in given_.items()}, "failed" if value is None else "finished", value)
        for n, value in enumerate(values)
    ]


def test_the_strength_of_a_setting_is_1_if_it_decides_and_small_if_it_does_not() -> None:
    random = np.random.default_rng(1)
    a, noise = random.permutation(24) / 24, random.permutation(24) / 24
    trials = trials_of([float(x**3) for x in a], a=list(a), noise=list(noise), up=[str(int(x > 0.5)) for x in a])
    decides = strength(Range("a", 0.0, 1.0), trials)
    assert decides["strength"] == pytest.approx(1) and decides["direction"] > 0 and decides["p"] < 0.01
    assert strength(Range("noise", 0.0, 1.0), trials)["p"] > 0.05
    halves = strength(Choices("up", ("0", "1", "2")), trials)
    assert 0.8 < halves["strength"] < 1 and halves["p"] < 0.01 and halves["direction"] is None
    assert [mean["trials"] for mean in halves["means"]] == [13, 11, 0] and halves["means"][2]["mean"] is None
    assert strength(Range("a", 0.0, 1.0), trials[:4])["strength"] is None


@given(some.lists(some.none() | some.floats(-10, 10), max_size=9))
def test_the_best_is_first_and_who_failed_is_last(values: list[float | None]) -> None:
    found = [trial.value for trial in ranked(trials_of(values), LOSS)]
    known = [value for value in values if value is not None]
    assert found == [*sorted(known), *[None] * (len(values) - len(known))]


# --- whole searches ----------------------------------------------------------------------------------------------


@pytest.fixture
def trained_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in processes of their own, as the trials below are: this one has torch already."""

    def train_one(plan: Any, entry: Any, *_: object) -> str:
        try:
            for _progress in Session(read_recipe(plan.recipe, entry.settings)[0], entry.folder).steps():
                pass
        except UserError as problem:
            return str(problem)
        return ""

    monkeypatch.setattr(workers, "train_one", train_one)


@pytest.mark.usefixtures("trained_here")
def test_a_trial_that_fails_is_recorded_and_the_search_continues(
    call: Call, recipe: regard.Recipe, tmp_path: Path
) -> None:
    arguments = ["sweep", tmp_path / "my.toml", "train.learning_rate=0.01,1e30", "train.clip=0", "train.metric=chrf"]
    arguments += ["--trials", 2, "-o", tmp_path / "s"]
    done = call(*arguments, "--json")
    assert done.code == 0, done.err
    best, failed = json.loads(done.out)
    assert best["settings"] == {"train.learning_rate": "0.01"} and best["state"] == "finished"
    assert failed["state"] == "failed" and failed["value"] is None and failed["why"]
    log = [json.loads(line) for line in (Path(best["folder"]) / "log.jsonl").read_text().splitlines()]
    assert best["value"] == max(entry["valid"]["chrf"] for entry in log if entry["valid"])
    again = call(*arguments)  # nothing is left to do
    assert again.code == 0 and failed["why"][:40] in again.out and "1 of 2 trials failed" in again.out
    page = (tmp_path / "s" / "report.html").read_text()
    assert "failed: " in page and "train.learning_rate" in page
    none = call("sweep", tmp_path / "my.toml", "train.learning_rate=1e30,1e31", *arguments[3:-1], tmp_path / "none")
    assert none.code == 1 and "All 2 trials failed" in none.err and not (tmp_path / "none" / "best.toml").exists()


@pytest.mark.usefixtures("trained_here")
def test_from_python_the_same_call_gives_the_same_trials(recipe: regard.Recipe, tmp_path: Path) -> None:
    space = {"model.dropout": [0.1, 0.3], "train.learning_rate": (1e-3, 1e-1), "train.steps": 4}
    found = [regard.sweep(recipe, space, tmp_path / name, trials=3) for name in ("one", "two")]
    first, second = ([(t["name"], t["settings"], t["value"]) for t in each.trials] for each in found)
    assert first == second and len(first) == 3
    assert str(found[0]).startswith(f"Trial {first[0][0]} is the best of 3: loss")
    assert read_recipe(found[0].best)[0].train.steps == 4 and "<iframe" in found[0]._repr_html_()
    with pytest.raises(UserError, match="is not a range"):
        regard.sweep(recipe, {"model.dropout": (0.1, 0.2, 0.3)}, tmp_path / "three", trials=3)


@pytest.mark.usefixtures("trained_here", "recipe")
def test_the_page_about_searches_can_be_typed(call: Call, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for line in commands_in("sweep.md"):
        arguments = shlex.split(line.replace("--trials 12", "--trials 2"))[1:]
        done = call(*arguments, "--threads", 1)
        assert done.code == 0, f"{line}\n{done.err}{done.out}"
    assert (tmp_path / "trials.db").exists() and not (tmp_path / "runs" / "with-database" / "trials.log").exists()
    for block in python_in("sweep.md"):
        exec(compile(block, "sweep.md", "exec"), {})
    assert Folder(tmp_path / "runs" / "best").best.exists()


NAMES = ["000", "001", "002"]
Start = Callable[..., subprocess.Popen[str]]


@pytest.fixture(scope="module")
def start() -> Iterator[Start]:
    """Start a worker; what is still alive in the end is killed."""
    with ExitStack() as stack:

        def started(folder: Path, *more: str) -> subprocess.Popen[str]:
            command = [
                *REGARD,
                "sweep",
                str(folder.parent / "my.toml"),
                *SEARCHED[:2],
                "--trials",
                "3",
                "--threads",
                "1",
            ]
            process = subprocess.Popen(
                [*command, "-o", str(folder), *more], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
                env=ENVIRONMENT,
            )  # fmt: skip
            stack.callback(process.wait)
            stack.callback(process.kill)
            return process

        yield started


def eventually(what: Callable[[], Any], *processes: subprocess.Popen[str]) -> Any:
    """Wait until this is true, while these processes are alive."""
    until = time.monotonic() + 300
    while not (found := what()):
        assert time.monotonic() < until and all(process.poll() is None for process in processes)
        time.sleep(0.01)
    return found


def steps_of(run: Path) -> int:
    lines = (run / "log.jsonl").read_text().splitlines() if (run / "log.jsonl").exists() else []
    return len(lines)


@pytest.fixture(scope="module")
def searched(start: Start, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A search of two workers, one of which was killed in the middle of a trial, and another was interrupted."""
    place = tmp_path_factory.mktemp("searched")
    file = recipe_in(place, "translation", "rnnsearch")
    file.write_text(file.read_text().replace("steps = 6", "steps = 60").replace("every = 2", "every = 5"))
    folder = place / "s"
    one, other = start(folder), start(folder)
    eventually(lambda: steps_of(folder / "000") and steps_of(folder / "001"), one, other)
    one.send_signal(signal.SIGKILL)
    other.send_signal(signal.SIGINT)
    ends = [process.communicate(timeout=300) for process in (one, other)]
    assert other.returncode == 130 and "the same command continues" in ends[1][1], ends
    last = start(folder, "--jobs", "2")
    ends.append(last.communicate(timeout=300))
    assert last.returncode == 0, ends
    assert "was left unfinished and is resumed." in ends[2][0]
    printed = "".join(out for out, _ in ends)
    assert [printed.count(f"Trial {name}: loss") for name in NAMES] == [1, 1, 1], printed  # none is recorded twice
    return folder


def test_workers_that_are_killed_and_interrupted_lose_no_trial_and_run_none_twice(searched: Path) -> None:
    found = json.loads((searched / "report.json").read_text())
    assert sorted(trial["name"] for trial in found["trials"]) == NAMES
    assert {trial["state"] for trial in found["trials"]} == {"finished"}
    assert sorted(folder.name for folder in searched.iterdir() if folder.name.isdigit()) == NAMES
    attempts = []
    for trial in found["trials"]:
        entries = [json.loads(line) for line in (searched / trial["name"] / "log.jsonl").read_text().splitlines()]
        steps = [entry["step"] for entry in entries]
        assert steps == sorted(set(steps)) and steps[-1] == 60  # no step was trained twice
        assert trial["value"] == min(entry["valid"]["loss"] for entry in entries if entry["valid"])
        attempts.append(len({entry["attempt"] for entry in entries}))
    assert max(attempts) == 2  # a trial was resumed, not repeated
    values = [trial["value"] for trial in found["trials"]]
    assert values == sorted(values)


def test_the_best_recipe_trains_to_the_best_trial(searched: Path, call: Call) -> None:
    best = json.loads((searched / "report.json").read_text())["trials"][0]
    done = call("train", searched / "best.toml", "-o", searched.parent / "again", "--threads", 1)
    assert done.code == 0, done.err
    lines = [json.loads(line) for line in (searched.parent / "again" / "log.jsonl").read_text().splitlines()]
    assert min(line["valid"]["loss"] for line in lines if line["valid"]) == best["value"]


def test_the_report_of_a_search_opens_with_all_of_its_trials(searched: Path) -> None:
    with chromium() as browser:
        rows = opened(browser, searched / "report.html", "light", 1280)
    assert len(rows) == 3 and all("finished" in row for row in rows)

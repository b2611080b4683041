"""A comparison says what its intervals bear; what was interrupted goes on; who fails loses nobody else's work."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import sacrebleu
from command import ENVIRONMENT, REGARD, Call

from regard.compare import children
from regard.compare.distance import gradients
from regard.compare.measure import unseen_of
from regard.compare.plan import Budget, Contender, Entry, Plan, planned
from regard.compare.summary import summary
from regard.interface import UserError
from regard.loading import load, read_recipe, shipped
from regard.models import MODELS
from regard.predict.decoding import Decoding
from regard.tasks import regression
from regard.tasks.registry import TASKS
from regard.train.cost import first_batches, flops_per_token
from regard.train.session import Session

# --- words -------------------------------------------------------------------------------------------------------


def told(low: float, high: float, lengths: Sequence[dict[str, Any]] = ()) -> list[str]:
    models = [
        {"name": name, "values": {"bleu": {"each": [mean], "mean": mean, "low": mean - 1, "high": mean + 1}},
         "lengths": lengths, "attention": None, "cost": {}} for name, mean in (("one", 30.0), ("other", 29.0))
    ]  # fmt: skip
    pair = {"first": "one", "second": "other", "measure": "bleu", "where": "all sentences", "difference": 1.0}
    return summary(
        {
            "measures": [{"key": "bleu", "name": "BLEU", "better": "higher"}],
            "models": models,
            "pairs": [{**pair, "low": low, "high": high, "p": 0.1}],
            "gold": None,
            "mixtures": [],
            "seeds": [1],
            "sized": "source",
            "counts": "tokens",
            "long": "",
        }
    )


def test_words_go_no_further_than_intervals() -> None:
    assert any("The difference to other" in sentence for sentence in told(-0.5, 2.5))
    assert not any("behind" in sentence for sentence in told(-0.5, 2.5))
    assert any("Significantly behind: other has 29.00" in sentence for sentence in told(0.5, 1.5))
    assert any("only one seed" in sentence for sentence in told(0.5, 1.5))
    short = {"from": 1, "to": 10, "mean": 30.0, "low": 29.0, "high": 31.0}
    for to, said in ((30, "those of 21 to 30, one"), (None, "those of 21 and more, one")):
        long = {"from": 21, "to": to, "mean": 20.0, "low": 19.0, "high": 21.0}
        assert any(f"at most 10 words to {said}" in sentence for sentence in told(0.5, 1.5, [short, long]))
        assert not any("at most" in sentence for sentence in told(0.5, 1.5, [short, {**long, "high": 29.5}]))


# --- plans -------------------------------------------------------------------------------------------------------


def test_budgets_are_minutes_tokens_or_flops() -> None:
    assert Budget.read("10m") == Budget("minutes", 10)
    assert Budget.read("90s") == Budget("minutes", 1.5) and str(Budget.read("20s")).startswith("20 seconds")
    assert Budget.read("2e6tok") == Budget("tokens", 2e6)
    assert Budget.read("1e15flop") == Budget("flops", 1e15)
    for bad in ("10", "m", "ten m", "-3m", "0tok", "1e999tok", "5 apples", "1.2.3m"):
        with pytest.raises(UserError, match="is not valid"):
            Budget.read(bad)


def test_everybody_has_the_same_budget_and_every_recipe_can_be_read(tmp_path: Path) -> None:
    for task in (task for task in TASKS.values() if task.contest):
        contenders = [Contender.read(text, name=name) for name, text in task.contest.items()]
        plan = planned(
            shipped(f"compare-{task.name}"), contenders, seeds=3, budget=Budget("tokens", 5000), folder=tmp_path
        )
        assert len(plan.contenders) == len(task.contest)
        seeds = {contender.name: 0 for contender in plan.contenders}
        for entry in plan.entries:
            read, _ = read_recipe(plan.recipe, entry.settings)
            assert (read.train.tokens, read.train.steps, read.train.minutes, read.seed) == (5000, 0, 0, entry.seed)
            seeds[entry.contender.name] += 1
        assert {name: count for name, count in seeds.items() if count != 3} == ({"KN5": 1} if "KN5" in seeds else {})


def test_a_contender_is_a_model_and_its_settings() -> None:
    recipe, _ = read_recipe(shipped("compare-language"))
    assert Contender.read("gpt dim=64 train.learning_rate=0.1", recipe) == Contender(
        "gpt dim=64 train.learning_rate=0.1", ("model.name=gpt", "model.dim=64", "train.learning_rate=0.1")
    )
    assert Contender.read("rnn_lm", recipe).settings == ()  # as the recipe has it
    with pytest.raises(UserError, match="is not a setting"):
        Contender.read("gpt large", recipe)
    with pytest.raises(UserError, match="more than once"):
        planned(shipped("compare-language"), [Contender.read("gpt")] * 2, seeds=1, budget=None, folder=Path("x"))
    for task in (task for task in TASKS.values() if not task.objectives):
        assert all(task.name in MODELS[name.split()[0]].tasks for name in (*task.contenders, task.model))


# --- whole comparisons -------------------------------------------------------------------------------------------

RECIPE = """task = "{task}"
[data]
name = "world"
sentences = 200
longest = 12
valid = 10
test = 40
[tokens]
kind = "{kind}"
size = 0
[model]
name = "{model}"
{sizes}
[train]
steps = 6
batch_tokens = 512
validate_every = 2
learning_rate = 0.01
precision = "float32"
"""
SIZES = "embedding = 8\nhidden = 8\ndropout = 0.0"


def recipe_in(folder: Path, task: str, model: str, kind: str = "words") -> Path:
    file = folder / "my.toml"
    file.write_text(RECIPE.format(task=task, model=model, kind=kind, sizes=SIZES))
    return file


def without_times(found: Any) -> Any:
    """What a comparison says but for times, memory and when it was made."""
    timed = {
        "made",
        "seconds",
        "minutes",
        "time",
        "memory_mb",
        "training_tokens_per_second",
        "decoding_1",
        "decoding_32",
    }
    if isinstance(found, dict):
        return {
            key: without_times(value)
            for key, value in found.items()
            if key not in timed | {"summary", "warnings", "interrupted", "folder", "command"}
        }
    return [without_times(each) for each in found] if isinstance(found, list) else found


def test_translators_beside_one_another_and_one_that_fails(call: Call, tmp_path: Path) -> None:
    recipe, report = recipe_in(tmp_path, "translation", "rnnsearch"), tmp_path / "r.html"
    contenders = ("--model", "rnnsearch", "--model", "seq2seq embedding=8 hidden=8 layers=1")
    broken = ("--model", "rnnsearch hidden=9 train.learning_rate=1e30 train.clip=0")
    done = call("compare", recipe, *contenders, *broken, "--budget", "2000tok", "-o", report, "--threads", 1)
    assert done.code == 0, done.err
    found = json.loads(report.with_suffix(".json").read_text())
    assert [model["name"] for model in found["models"]] == [
        "rnnsearch", "seq2seq embedding=8 hidden=8 layers=1", "rnnsearch hidden=9 train.learning_rate=1e30 train.clip=0"
    ]  # fmt: skip
    assert [model["runs"][0]["state"] for model in found["models"]] == ["finished", "finished", "failed"]
    said = "".join(found["warnings"])  # a rate of 1e30 is noticed in the loss, or when the validation set is translated
    assert "failed" in said and ("not finite" in said or "are not numbers" in said), said
    assert all(model["runs"][0]["tokens"] >= 2000 for model in found["models"][:2])
    first = load(tmp_path / "r.runs" / "rnnsearch-1")
    test = unseen_of(first.recipe)
    outputs = [each.text for each in first.predict(test.sources, Decoding())]
    expected = sacrebleu.BLEU(force=True).corpus_score(outputs, [list(test.targets)]).score
    assert found["models"][0]["values"]["bleu"]["mean"] == pytest.approx(expected)
    assert found["models"][0]["attention"] and found["models"][1]["attention"] is None
    assert found["alignments"][0]["models"][1]["kind"] == "saliency (gradient), not attention"
    assert found["mistakes"] and "<script" in report.read_text()
    assert [look["name"] for look in found["mistakes"][0]["models"]] == [one["name"] for one in found["models"][:2]]
    assert (
        found["title"].endswith("on the built-in corpus")
        and found["data"]["train"] == "200 pairs"
        and found["data"]["valid"] == "10 pairs"
    )
    assert found["models"][0]["values"]["chrf"]["low"] <= found["models"][0]["values"]["chrf"]["mean"]
    # runs that are trained already say the same
    folders = [tmp_path / "r.runs" / name for name in ("rnnsearch-1", "seq2seq-embedding=8-hidden=8-layers=1-1")]
    again = call("compare", *folders, "-o", tmp_path / "again.html", "--no-sentences", "--threads", 1)
    assert again.code == 0, again.err
    other = json.loads((tmp_path / "again.json").read_text())
    for one, two in zip(found["models"][:2], other["models"], strict=True):
        assert one["values"] == two["values"] and one["parameters"] == two["parameters"]
    assert not other["alignments"] and not other["mistakes"]


@pytest.fixture
def trained_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not in processes of their own, as the translators are above: this one has torch already."""

    def train_one(plan: Plan, entry: Entry, *_: object) -> str:
        for _ in Session(read_recipe(plan.recipe, entry.settings)[0], entry.folder).steps():
            pass
        return ""

    monkeypatch.setattr(children, "train_one", train_one)


@pytest.mark.usefixtures("trained_here")
@pytest.mark.parametrize("task, model, kind", [("language", "rnn_lm", "characters"), ("tagging", "birnn", "given")])
def test_other_tasks(call: Call, tmp_path: Path, task: str, model: str, kind: str) -> None:
    recipe, report = recipe_in(tmp_path, task, model, kind), tmp_path / "r.html"
    others = {"language": "ngram", "tagging": "cnn embedding=8 filters=4"}
    done = call("compare", recipe, "--model", model, "--model", others[task], "-o", report, "--threads", 1)
    assert done.code == 0, done.err
    found = json.loads(report.with_suffix(".json").read_text())
    main = found["measures"][0]["key"]
    assert all(main in model["values"] for model in found["models"])
    if task == "tagging":
        assert "/" in found["mistakes"][0]["reference"]  # each word with its tag
        # validations took it too
        assert all(len(curve[main]) == len(curve["loss"]) for model in found["models"] for curve in model["curves"])
    if task == "language":
        assert found["mixtures"][0]["value"] <= max(model["values"][main]["mean"] for model in found["models"])
        assert all(model["samples"] for model in found["models"])
        for model in found["models"]:  # to write twice as much takes longer
            assert model["reach"]["time"][-1][1] > model["reach"]["time"][0][1] > 1e-4


def test_a_label_is_right_or_wrong_and_has_no_score_of_its_own() -> None:
    for task in (task for task in TASKS.values() if task is not regression.TASK):  # a number is near or far
        two = {task.right("a", "a"), task.right("a", "b")} == {0.0, 100.0} and task.right("x y", "x z") == 0.0
        assert bool(task.words.judged) != two or task.mixes


def killed(arguments: list[str], log: Path, validations: int) -> None:
    """The comparison, killed once this run has been validated so often."""
    with subprocess.Popen([*REGARD, *arguments], env=ENVIRONMENT) as process:
        until = time.monotonic() + 60
        while not (log.exists() and len(log.read_text().splitlines()) >= validations):
            assert process.poll() is None and time.monotonic() < until
            os.sched_yield()
        process.send_signal(signal.SIGKILL)


@pytest.mark.slow
def test_a_killed_comparison_goes_on_and_says_the_same(call: Call, tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, "translation", "rnnsearch")
    arguments = ["compare", str(recipe), "data.sentences=2000", "--model", "rnnsearch", "--model",
                 "seq2seq embedding=8 hidden=8 layers=1", "--budget", "40000tok", "--threads", "1"]  # fmt: skip
    whole = call(*arguments, "-o", tmp_path / "whole.html")
    assert whole.code == 0, whole.err
    again = [*arguments, "-o", str(tmp_path / "cut.html")]
    killed(again, tmp_path / "cut.runs" / "rnnsearch-1" / "log.jsonl", validations=3)
    done = call(*again)
    assert done.code == 0, done.err
    one, other = (json.loads((tmp_path / name).read_text()) for name in ("whole.json", "cut.json"))
    assert without_times(one) == without_times(other)
    assert any("was interrupted" in warning for warning in other["warnings"])
    assert not any("was interrupted" in warning for warning in one["warnings"])


@pytest.mark.slow
def test_minutes_used_before_an_interruption_count(call: Call, tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, "translation", "rnnsearch")
    arguments = ["compare", str(recipe), "data.sentences=2000", "train.validate_every=20", "--models", "rnnsearch",
                 "--budget", "8s", "--threads", "1", "-o", str(tmp_path / "r.html")]  # fmt: skip
    log = tmp_path / "r.runs" / "rnnsearch-1" / "log.jsonl"
    killed(arguments, log, validations=1)
    used = json.loads(log.read_text().splitlines()[-1])["seconds"]
    done = call(*arguments)
    assert done.code == 0, done.err
    (run,) = json.loads((tmp_path / "r.json").read_text())["models"][0]["runs"]
    entries = [json.loads(line) for line in log.read_text().splitlines()]
    first = next(entry for entry in entries if entry["attempt"] != entries[0]["attempt"])
    assert 0 < used <= first["seconds"]  # it did not begin at 0 again
    assert 8 <= 60 * run["minutes"] < 8 + used and run["interrupted"]
    assert "was interrupted" in done.out


def test_a_budget_of_operations_is_one_of_tokens(tmp_path: Path) -> None:
    recipe, _ = read_recipe(recipe_in(tmp_path, "translation", "rnnsearch"), ["train.steps=0", "train.flops=1e8"])
    session = Session(recipe, tmp_path / "run")
    a_token = flops_per_token(session.run.model, first_batches(session.batches, session.device))
    assert session.training.config.tokens == int(1e8 / a_token) > 0
    *_, last = session.steps()
    assert last.finished and 1e8 / a_token - 1 <= last.tokens < 1e8 / a_token + 512


def test_runs_of_one_name_in_two_folders_are_two_models(call: Call, tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, "translation", "rnnsearch")
    folders = [tmp_path / place / "run" for place in ("one", "two")]
    for folder, hidden in zip(folders, (8, 9), strict=True):
        assert call("train", recipe, f"model.hidden={hidden}", "-o", folder, "--threads", 1).code == 0
    assert call("compare", *folders, "-o", tmp_path / "r.html", "--threads", 1).code == 0
    found = json.loads((tmp_path / "r.json").read_text())
    assert [model["name"] for model in found["models"]] == list(map(str, folders))


def test_runs_whose_data_is_gone_are_compared_on_a_test_set(call: Call, tmp_path: Path) -> None:
    texts = {"train": [f"the cat sat {n} times" for n in range(40)], "test": ["the dog sat", "a cat ran"]}
    for name, lines in texts.items():
        for side in ("en", "fr"):
            (tmp_path / f"{name}.{side}").write_text("\n".join(lines) + "\n")
    recipe = recipe_in(tmp_path, "translation", "rnnsearch")
    data = 'name = "parallel"\nsource = "train.en"\ntarget = "train.fr"\nhold_out = 0.5\n'
    begin, _, end = recipe.read_text().partition('name = "world"')
    recipe.write_text(begin + data + end[end.index("[tokens]") :])
    run = tmp_path / "run"
    assert call("train", recipe, "-o", run, "--threads", 1).code == 0
    (tmp_path / "train.en").unlink()
    (tmp_path / "train.fr").unlink()
    files = [argument for side in ("en", "fr") for argument in ("--test", tmp_path / f"test.{side}")]
    done = call("compare", run, *files, "-o", tmp_path / "r.html", "--threads", 1)
    assert done.code == 0, done.err
    found = json.loads((tmp_path / "r.json").read_text())
    assert found["title"] == "run on train.en"
    assert "pairs" in found["data"]["train"] and found["data"]["test"] == "2 pairs"
    assert any("fewer than 20 lines" in warning for warning in found["warnings"])
    assert found["summary"][0].startswith("run has BLEU ")


def test_bad_requests_are_sentences(call: Call, tmp_path: Path) -> None:
    recipe = recipe_in(tmp_path, "translation", "rnnsearch")
    cases = {
        (): "Give a recipe",
        (recipe, "--demo", "language"): "one of these",
        (recipe, "-o", tmp_path / "r.pdf"): "must end in .html",
        (recipe, "--budget", "soon"): "is not valid",
        (recipe, "--models", "rnnserch"): "rnnsearch",
        (recipe, "--models", "gpt"): "gpt",
        (recipe, "--test", recipe): "two files",
        (recipe, "--test", tmp_path / "none.txt"): "was not found",
        (tmp_path, "--models", "rnnsearch"): "is for training",
        (tmp_path / "absent.toml",): "does not exist",
    }
    for arguments, said in cases.items():
        done = call("compare", *arguments)
        assert done.code == 1 and said in done.err, (arguments, done.err)
    assert not list(tmp_path.glob("*.runs"))


def test_gradients_appear_at_the_distance_where_they_arise(call: Call, tmp_path: Path) -> None:
    """A language model of order 3 feels two words back and nothing before."""
    recipe = recipe_in(tmp_path, "language", "neural_lm")
    recipe.write_text(
        recipe.read_text().replace('kind = "words"', 'kind = "characters"').replace("dropout", "order = 3\ndropout")
    )
    assert call("train", recipe, "-o", tmp_path / "run", "--threads", 1).code == 0
    run = load(tmp_path / "run")
    norms = dict(gradients(run, [("the cat sat on it", "the cat sat on it")] * 8))
    assert norms[0] > 0 and norms[1] > 0 and all(norms[far] == 0 for far in norms if far > 1)

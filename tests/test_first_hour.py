"""The first hour on the command line: what a new user types ends in the right result, or in one sentence that names the
remedy."""

from __future__ import annotations

import io
import json
import shutil
import sys
from pathlib import Path

import pytest
from command import Call
from rich.console import Console

import regard
from regard.cli import compare
from regard.cli.shell import err, out
from regard.compare.measure import unseen_of
from regard.config import help_texts
from regard.models import MODELS
from regard.show.progress import counting_bar

RUNS = Path(__file__).parent / "runs"
SENTENCES = ["The old man is not good .", "The book was boring .", "Anna slept in the zoo ."]
RECIPE = """
task = "translation"
[data]
name = "parallel"
source = "train.en"
target = "train.fr"
hold_out = 0.5
[model]
name = "transformer"
[train]
steps = 1
"""


@pytest.fixture
def desk(place: Path) -> Path:
    """A folder as a new user has it: a few texts, a recipe, trained runs."""
    for name in ("translation", "classification", "tagging", "language"):
        (place / "runs").mkdir(exist_ok=True)
        shutil.copytree(RUNS / name, place / "runs" / name)
    pairs = [(sentence, sentence.lower()) for sentence in SENTENCES]
    files = {
        "my.toml": RECIPE,
        "train.en": "".join(f"{one}\n" for one, _ in pairs),
        "train.fr": "".join(f"{other}\n" for _, other in pairs),
        "pairs.tsv": "".join(f"{one}\t{other}\n" for one, other in pairs),
        "pairs.jsonl": "".join(json.dumps({"id": 3, "en": one, "fr": other}) + "\n" for one, other in pairs),
        "named.jsonl": "".join(json.dumps({"target": other, "source": one}) + "\n" for one, other in pairs),
        "labels.tsv": "".join(f"{one}\t{label}\n" for (one, _), label in zip(pairs, "aba", strict=True)),
        "empty.txt": "",
    }
    for name, content in files.items():
        (place / name).write_text(content)
    return place


# --- a file or a text ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", ["translation", "classification", "tagging"])
def test_predict_answers_a_sentence_as_it_answers_a_file_of_it(task: str, desk: Path, call: Call) -> None:
    (desk / "one.txt").write_text("The book was boring .\n")
    typed = call("predict", f"runs/{task}", "The book was boring .")
    assert (typed.code, typed.err) == (0, "")
    assert typed.out == call("predict", f"runs/{task}", "one.txt").out != ""


def test_predict_continues_a_text_with_a_language_model(desk: Path, call: Call) -> None:
    options = ("--max-length", 8, "--seed", 1)
    typed = call("predict", "runs/language", "The man", *options)
    assert (typed.code, typed.err) == (0, "")
    assert typed.out == call("predict", "runs/language", "--prompt", "The man", *options).out
    assert typed.out.startswith("The man")


def test_a_text_is_passed_on_as_it_was_typed(desk: Path, call: Call) -> None:
    typed = call("predict", "runs/tagging", "see http://a//b/ now", "--json")
    assert json.loads(typed.out)["words"] == ["see", "http://a//b/", "now"]


def test_a_word_that_could_be_a_file_is_said_to_be_a_text(desk: Path, call: Call) -> None:
    for command in ("predict", "look"):
        typed = call(command, "runs/translation", "book")
        assert (typed.code, typed.err) == (0, "There is no file 'book': it is taken for a text.\n")


def test_score_gives_the_log_probability_of_a_text(desk: Path, call: Call) -> None:
    scored = call("score", "runs/language", "The man is old .")
    assert (scored.code, scored.err) == (0, "")
    expected = regard.load("runs/language").log_prob("The man is old .")
    assert float(scored.out) == pytest.approx(expected, abs=1e-5)
    facts = json.loads(call("score", "runs/language", "The man is old .", "--json").out)
    assert facts["log_prob"] == pytest.approx(expected, abs=1e-5)


def test_look_takes_the_first_line_of_a_file(desk: Path, call: Call) -> None:
    for more in ((), ("--gates",)):
        seen = call("look", "runs/translation", "train.en", *more)
        assert seen.code == 0
        assert seen.out == call("look", "runs/translation", SENTENCES[0], *more).out
        assert seen.err == "train.en is a file: this is the first of its 3 lines; --html shows all of them.\n"


# --- scoring ------------------------------------------------------------------------------------------------------


def test_a_translator_is_scored_on_tables_of_pairs_too(desk: Path, call: Call) -> None:
    straight = call("score", "runs/translation", "--source", "train.en", "--target", "train.fr")
    assert "BLEU" in straight.out
    for file, source, target in (("pairs.tsv", 1, 2), ("pairs.jsonl", "en", "fr"), ("named.jsonl", "source", "target")):
        scored = call("score", "runs/translation", file)
        assert (scored.code, scored.out) == (0, straight.out)
        assert f"field '{source}' is taken for the source, '{target}' for the target" in scored.err
    assert call("score", "runs/translation", "train.en", "train.fr").out == straight.out
    run = regard.load("runs/translation")
    assert run.score("pairs.tsv").lines == straight.out.splitlines()
    assert [source for source, _ in unseen_of(run.recipe, [Path("pairs.tsv")]).examples] == SENTENCES


# --- what was written ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        ["predict", "runs/classification", "train.en", "-o", "out.txt"],
        ["score", "runs/classification", "labels.tsv", "-o", "out.txt"],
        ["look", "runs/translation", "train.en", "--html", "out.html"],
        ["look", "runs/translation", "The book .", "-o", "out.svg"],
    ],
)
def test_a_command_says_what_it_wrote_and_what_it_replaced(command: list[str], desk: Path, call: Call) -> None:
    written = call(*command)
    opens = "" if command[-1].endswith(".txt") else ": open it in a browser"
    assert (written.code, written.err) == (0, f"Wrote {command[-1]}{opens}.\n")
    replaced = call(*command)
    assert replaced.err == f"Wrote {command[-1]}{opens}; an earlier file of that name was replaced.\n"


# --- progress -----------------------------------------------------------------------------------------------------


def in_terminal(monkeypatch: pytest.MonkeyPatch, *consoles: Console) -> None:
    monkeypatch.setenv("TERM", "xterm")
    for console in consoles:
        monkeypatch.setattr(console, "_force_terminal", True)
        monkeypatch.setattr(console, "is_interactive", True)


@pytest.mark.parametrize(
    ("words", "command"),
    [
        ("Predicting", ["predict", "runs/classification", "train.en", "-o", "out.txt"]),
        ("Scoring", ["score", "runs/classification", "labels.tsv"]),
        ("Scoring", ["score", "runs/language", "train.en"]),
        ("Reading the data", ["check", "my.toml"]),
    ],
)
def test_a_terminal_shows_a_bar_with_the_time_left(
    words: str, command: list[str], desk: Path, call: Call, monkeypatch: pytest.MonkeyPatch
) -> None:
    piped = call(*command)
    assert "left" not in piped.err
    in_terminal(monkeypatch, err)
    seen = call(*command)
    assert (seen.code, seen.out) == (piped.code, piped.out)
    assert words in seen.err and "left" in seen.err


def test_the_time_left_is_known_after_the_first_of_several_long_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    console, clock = Console(file=io.StringIO(), force_terminal=True, force_interactive=True, width=80), [0.0]
    monkeypatch.setattr(console, "get_time", lambda: clock[0])
    with counting_bar("Measuring", 4, console) as show:
        clock[0] = 100.0
        show(advance=1, refresh=True)
    assert "0:05:00" in console.file.getvalue()  # type: ignore[attr-defined]


def test_a_file_as_standard_input_has_a_bar_too(desk: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    straight = call("predict", "runs/classification", "train.en")
    in_terminal(monkeypatch, err)
    with (desk / "train.en").open() as file:
        monkeypatch.setattr(sys, "stdin", file)
        seen = call("predict", "runs/classification")
    assert (seen.code, seen.out) == (0, straight.out)
    assert "Predicting" in seen.err and "0:00:00" in seen.err


def test_no_bar_comes_between_answers_on_the_screen(desk: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    in_terminal(monkeypatch, err, out)
    assert call("predict", "runs/classification", "train.en").err == ""


def test_compare_says_where_it_stands_in_plain_lines(desk: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk / "runs" / "classification").rename(desk / "a")
    shutil.copytree("a", "b")
    monkeypatch.setattr(compare, "PAUSE", 0.0)
    compared = call("compare", "a", "b", "--test", "labels.tsv", "-o", "report.html")
    assert compared.code == 0, compared.err
    assert "seed 1 (1 of 2): answers\n" in compared.err and "seed 1 (2 of 2): speed\n" in compared.err


# --- finding one's way --------------------------------------------------------------------------------------------


def test_the_version_is_printed(call: Call) -> None:
    said = call("--version")
    assert (said.code, said.out) == (0, f"regard {regard.__version__}\n")


def test_shells_complete_commands(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    assert all(option in call("--help").out for option in ("--install-completion", "--show-completion"))
    for name, value in {"_REGARD_COMPLETE": "complete_bash", "COMP_WORDS": "regard pre", "COMP_CWORD": "1"}.items():
        monkeypatch.setenv(name, value)
    assert call().out.split() == ["predict"]


@pytest.mark.parametrize("name", MODELS)
def test_a_models_settings_are_shown_with_their_meaning(name: str, call: Call) -> None:
    shown, values = call("models", name), json.loads(call("models", name, "--json").out)
    assert shown.code == 0 and MODELS[name].paper in shown.out
    for key, value in values.items():
        (line,) = (line for line in shown.out.splitlines() if line.startswith(f"{key} = "))
        assert help_texts(MODELS[name].config)[key] in line
        assert json.dumps(value).strip("[]") in line


def test_the_values_that_a_models_setting_may_have_are_shown(call: Call) -> None:
    assert "# norm: pre, post\n" in call("models", "transformer").out
    assert "# cell: tanh, sigmoid" in (shown := call("models", "rnn_lm").out) and "file.py:Class" in shown


# command -> its action, its input and its output, as its first line of help names them
HELP = {
    "new": ("Write", "data files", "recipe"),
    "check": ("Check", "recipe's data", "errors, warnings and a summary"),
    "encode": ("Write", "recipe's data", "tokens"),
    "train": ("Train", "recipe", "run folder"),
    "demo": ("Train", "built-in corpus", "scores"),
    "predict": ("Predict", "text or file", "one answer per line"),
    "look": ("Show", "text", "a heat map or a page"),
    "score": ("Score", "test file", "BLEU, perplexity or accuracy"),
    "compare": ("Train", "recipe, or take runs", "report"),
    "sweep": ("Train", "recipe", "find the best"),
    "serve": ("Serve", "runs", "a page and an API"),
    "export": ("Export", "run's model", "ARPA, Hugging Face, CTranslate2 or ONNX"),
    "import": ("Import", "ARPA file or a Hugging Face folder", "run folder"),
    "runs": ("List", "runs in a folder", "model, score, size and state"),
    "models": ("List", "models", "settings"),
    "info": ("Print", "machine", "versions and devices"),
}


def test_the_first_line_of_help_names_action_input_and_output(call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    page = call("--help").out.partition("Commands:")[2]
    lines = {line.split()[0]: line for line in page.splitlines() if line.strip()}
    assert set(lines) == set(HELP)
    assert "..." not in page  # no line is cut
    for name, (action, given, made) in HELP.items():
        text = lines[name].strip().removeprefix(name).strip()
        assert text.startswith(action) and given in text and made in text


# --- natural mistakes ---------------------------------------------------------------------------------------------

# what went wrong -> the command, its exit code, and what the message must name
MISTAKES: dict[str, tuple[list[str], int, list[str]]] = {
    # a file or a text
    "a missing file to predict": (["predict", "runs/translation", "gone.txt"], 1, ["gone.txt does not exist", "space"]),
    "a missing file to look at": (["look", "runs/translation", "texts/gone"], 1, ["texts/gone does not", "spelling"]),
    "a missing file to score": (["score", "runs/translation", "gone.tsv"], 1, ["gone.tsv does not exist", "spelling"]),
    "a text to score a translator on": (["score", "runs/translation", "a b"], 1, ["'a b' is a text", "pairs.tsv"]),
    "a text without quotes": (["predict", "runs/translation", "They", "are", "here"], 1, ["'They are here'", "quotes"]),
    "a text without quotes to look at": (["look", "runs/translation", "They", "are"], 2, ["quotes"]),
    "an empty file to look at": (["look", "runs/translation", "empty.txt"], 1, ["empty.txt holds only blank lines"]),
    "output over the input": (["predict", "runs/tagging", "train.en", "-o", "train.en"], 1, ["another name"]),
    "output into no folder": (["predict", "runs/tagging", "train.en", "-o", "gone/out"], 1, ["make its folder first"]),
    # settings
    "a setting without its section": (["train", "my.toml", "minutes=1"], 1, ["did you mean 'train.minutes'"]),
    "epochs without a section": (["train", "my.toml", "epochs=3"], 1, ["did you mean 'train.epochs'"]),
    "a model's setting without a section": (["train", "my.toml", "layers=2"], 1, ["did you mean 'model.layers'"]),
    "a model's setting in [train]": (["train", "my.toml", "train.layers=2"], 1, ["did you mean 'model.layers'"]),
    "a training setting in [model]": (["train", "my.toml", "model.epochs=3"], 1, ["did you mean 'train.epochs'"]),
    "a misspelt section": (["train", "my.toml", "training.epochs=3"], 1, ["did you mean 'train'"]),
    "a setting as an option": (["train", "my.toml", "--minutes", "1"], 2, ["train.minutes=1"]),
    "a setting in two words": (["train", "my.toml", "minutes", "1"], 1, ["write section.key=value"]),
    "a number in letters": (["train", "my.toml", "train.minutes=one"], 1, ["train.minutes = 'one'", "a number"]),
    "a seed in letters": (["train", "my.toml", "seed=x"], 1, ["seed = 'x'", "whole number"]),
    # models and tasks
    "a language model that is to translate": (
        ["train", "my.toml", "model.name=gpt"],
        1,
        ["'gpt' is for language, classification", "not for translation", "choose seq2seq, rnnsearch"],
    ),
    "a translator that is to classify": (
        ["new", "classification", "labels.tsv", "--model", "transformer"],
        1,
        ["'transformer' is for translation, denoising, not for classification", "choose", "birnn"],
    ),
    "a demo with another task's model": (
        ["demo", "--model", "rnn_lm"],
        1,
        ["'rnn_lm' is for language, not for translation", "rnnsearch"],
    ),
    "a comparison with another task's model": (
        ["compare", "my.toml", "--models", "rnnsearch,gpt"],
        1,
        ["'gpt' is for language", "choose"],
    ),
    "a misspelt model": (["models", "transfomer"], 1, ["did you mean 'transformer'"]),
    "a misspelt task": (["new", "translate", "pairs.tsv"], 1, ["did you mean 'translation'"]),
    "a misspelt command": (["trian", "my.toml"], 2, ["Did you mean 'train'"]),
    "a misspelt option": (["predict", "runs/translation", "a b", "--bream", "3"], 2, ["--beam"]),
    # recipes and runs
    "data as a recipe": (["train", "pairs.tsv"], 1, ["regard new TASK pairs.tsv"]),
    "an empty recipe": (["train", "empty.txt"], 1, ["has no task", "translation"]),
    "a missing recipe": (["train", "your.toml"], 1, ["your.toml does not exist", "regard new"]),
    "no recipe": (["train"], 2, ["RECIPE.toml"]),
    "a run as a recipe": (["train", "runs/translation"], 1, ["give runs/translation/config.toml"]),
    "a run to check": (["check", "runs/translation"], 1, ["give runs/translation/config.toml"]),
    "a recipe as a run": (
        ["predict", "my.toml", "a b"],
        1,
        ["is a recipe, not a run", "regard train my.toml`, and give runs/my"],
    ),
    "a run's recipe as a run": (["look", "runs/tagging/config.toml", "a b"], 1, ["give its folder, runs/tagging"]),
    "a run's weights as a run": (["score", "runs/tagging/model.safetensors", "a b"], 1, ["folder, runs/tagging"]),
    "a folder of runs as a run": (["predict", "runs", "a b"], 1, ["did you mean runs/classification"]),
    "a run without its folder": (["predict", "tagging", "a b"], 1, ["did you mean runs/tagging"]),
    "a misspelt run": (["predict", "runs/taging", "a b"], 1, ["did you mean runs/tagging"]),
    "no run yet": (["runs", "my-runs"], 1, ["my-runs does not exist", "train a model first"]),
    # options that do not fit
    "a beam for labels": (
        ["predict", "runs/classification", "train.en", "--beam", "3"],
        1,
        ["--beam does not apply", "leave it out"],
    ),
    "a prompt for a translator": (["predict", "runs/translation", "--prompt", "a"], 1, ["for language models"]),
    "a prompt and a file": (["predict", "runs/language", "train.en", "--prompt", "a"], 1, ["give one of them"]),
    "CoNLL of a translation": (["predict", "runs/translation", "train.en", "--conll"], 1, ["--conll is for tags"]),
    "a device that is not there": (["predict", "runs/tagging", "a b", "--device", "gpu"], 1, ["'gpu'", "cpu"]),
    "nothing to look at": (["look", "runs/translation"], 1, ["give one, or --gradients"]),
    "a page and JSON": (["look", "runs/translation", "a b", "--html", "x.html", "--json"], 1, ["give one of them"]),
    "nothing to score on": (["score", "runs/translation"], 1, ["a FILE"]),
    "one of two parallel files": (["score", "runs/translation", "train.en"], 1, ["two files, a source and a target"]),
    "a source without a target": (["score", "runs/translation", "--source", "train.en"], 1, ["--target FILE"]),
    "an empty test file": (["score", "runs/language", "empty.txt"], 1, ["empty"]),
    "labels as an n-gram model": (["export", "runs/tagging", "--to", "arpa"], 1, ["n-gram"]),
    "a comparison of nothing": (["compare"], 1, ["Give a recipe, or run folders"]),
    "a comparison of runs and a recipe": (["compare", "runs/tagging", "my.toml"], 1, ["not both"]),
    "a comparison of tasks": (["compare", "runs/tagging", "runs/translation"], 1, ["give runs of one task"]),
    "a report that is no page": (["compare", "my.toml", "-o", "report.txt"], 1, ["must end in .html"]),
    "a budget without a unit": (["compare", "my.toml", "--budget", "10"], 1, ["minutes (10m)"]),
    "data that moved": (["check", "my.toml", "data.source=gone.en"], 1, ["gone.en", "REGARD_DATA"]),
    "a new recipe over an old one": (["new", "classification", "labels.tsv", "-o", "my.toml"], 1, ["another name"]),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_natural_mistake_is_answered_with_its_remedy(mistake: str, desk: Path, call: Call) -> None:
    command, code, words = MISTAKES[mistake]
    before = {path: path.read_bytes() for path in desk.iterdir() if path.is_file()}
    answered = call(*command)
    everything = answered.out + answered.err
    assert answered.code == code
    assert [word for word in words if word not in everything] == []
    assert "Traceback" not in everything and "unexpected " not in answered.err.replace("unexpected extra", "")
    if code == 1 and not answered.out:
        assert answered.err.startswith("regard: ") and answered.err.count("\n") == 1
    assert {path: path.read_bytes() for path in desk.iterdir() if path.is_file()} == before

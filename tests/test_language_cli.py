"""Language models from the command line: a text file in, scores and text out, one sentence when something is wrong."""

from __future__ import annotations

import json
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from command import ENVIRONMENT, REGARD, Call, run

MODELS = {
    "ngram": "order = 3",
    "neural_lm": "order = 3\nembedding = 7\nhidden = 11",
    "rnn_lm": "embedding = 11\nhidden = 11",
    "elmo": "embedding = 7\nhidden = 11\ncontext = 13",
    "gpt": "dim = 12\nheads = 3\nfeed_forward = 17\nlayers = 1\ncontext = 13",
}
RECIPE = """
task = "language"
seed = 3
[data]
name = "text"
train = "text.txt"
valid = "valid.txt"
unit = "{unit}"
window = 11
[tokens]
kind = "{kind}"
size = 0
[model]
name = "{model}"
{settings}
[train]
steps = 7
batch_tokens = 256
warmup = 1
learning_rate = 0.02
precision = "float32"
validate_every = 7
"""


@pytest.fixture(autouse=True)
def in_the_kitchen(monkeypatch: pytest.MonkeyPatch, kitchen: Path) -> None:
    """Where the runs are."""
    monkeypatch.chdir(kitchen)


def sentences(count: int, seed: int) -> str:
    chosen = random.Random(seed)
    one = {"who": ["the cat", "a dog", "the old cat"], "does": ["sees", "hears"], "whom": ["the dog .", "a cat ."]}
    return "".join(" ".join(chosen.choice(words) for words in one.values()) + "\n" for _ in range(count))


@pytest.fixture(scope="module")
def kitchen(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with text, recipes and a run of each; of lines of words, and of one file of characters."""
    folder = tmp_path_factory.mktemp("kitchen")
    (folder / "text.txt").write_text(sentences(200, 1))
    (folder / "valid.txt").write_text(sentences(17, 2))
    (folder / "test.txt").write_text(sentences(11, 3) + "the zebra sees a dog .\n\n")
    (folder / "empty.txt").write_text("")
    for model, settings in MODELS.items():
        for name, unit, kind in ((model, "line", "words"), (f"{model}-file", "file", "characters")):
            written = RECIPE.format(model=model, settings=settings, unit=unit, kind=kind)
            (folder / f"{name}.toml").write_text(written)
    first = run("train", "rnn_lm.toml", cwd=folder)
    assert first.code == 0, first.err
    assert "Finished" in first.out
    return folder


@pytest.fixture
def trained(kitchen: Path, call: Call) -> Callable[[str], Path]:
    """A run of that name, trained when first asked for."""

    def there(name: str) -> Path:
        if not (kitchen / "runs" / name / "model.safetensors").exists():
            done = call("train", kitchen / f"{name}.toml")
            assert done.code == 0, done.err
        return kitchen / "runs" / name

    return there


every = pytest.mark.parametrize("name", [f"{model}{suffix}" for model in MODELS for suffix in ("", "-file")])


# Training and scoring


@every
def test_a_text_has_a_perplexity_and_every_line_a_probability(name, trained, call):
    folder = trained(name)
    plain, as_json, each = (call("score", folder, "test.txt", *more) for more in ((), ("--json",), ("--each",)))
    assert (plain.code, as_json.code, each.code) == (0, 0, 0), plain.err + as_json.err + each.err
    found = json.loads(as_json.out)
    assert {"perplexity_per_token", "perplexity_per_word", "bits_per_character", "tokens", "unknown"} <= found.keys()
    assert found["unknown"] == (2 if name.endswith("-file") else 1)  # the zebra, or its z and b
    assert f"perplexity per token {found['perplexity_per_token']:10.3f}" in plain.out
    windowed = name.startswith(("gpt", "elmo"))
    assert found["context"] == (13 if windowed else None)
    assert ("13 tokens, stride 6" if windowed else "everything before it") in plain.out
    values = [float(line) for line in each.out.splitlines()]
    assert len(values) == 13
    assert max(values) <= 0
    if not name.endswith("-file"):
        assert sum(values) == pytest.approx(found["log_prob"], abs=1e-3)
        assert found["ends"] == 13
    else:
        assert values[-1] == 0  # an empty line adds nothing, where a line does not end
    assert found["perplexity_per_token"] < 60


def test_training_again_is_told_to_be_over(trained, call):
    for name in ("ngram", "rnn_lm"):
        folder = trained(name)
        before = (folder / "model.safetensors").read_bytes()
        again = call("train", f"{name}.toml")
        assert again.code == 0
        assert "This run is finished" in again.out
        assert (folder / "model.safetensors").read_bytes() == before


def test_several_runs_are_mixed_and_are_better_than_each(trained, call):
    runs = [trained(name) for name in ("ngram", "rnn_lm")]
    alone = [json.loads(call("score", one, "valid.txt", "--json").out)["perplexity_per_token"] for one in runs]
    both = json.loads(call("score", *runs, "valid.txt", "--json").out)
    assert both["perplexity_per_token"] <= min(alone) + 1e-6
    assert sum(both["weights"].values()) == pytest.approx(1)
    assert list(both["weights"]) == [str(one) for one in runs]
    said = call("score", *runs, "test.txt")
    assert "weights, fitted on validation" in said.out
    each = call("score", *runs, "test.txt", "--each")
    assert len(each.out.splitlines()) == 13
    written = call("predict", *runs, "--prompt", "the cat", "--max-length", "5")
    assert written.code == 0
    assert "Weights, fitted on validation" in written.err
    assert written.out.startswith("the cat")


def test_a_shorter_stride_sees_more(trained, call):
    folder = trained("gpt-file")
    found = [json.loads(call("score", folder, "test.txt", "--json", "--stride", n).out) for n in (13, 1)]
    assert [one["stride"] for one in found] == [13, 1]
    assert found[0]["tokens"] == found[1]["tokens"]
    assert found[0]["log_prob"] != found[1]["log_prob"]


def test_an_empty_file_has_no_lines_to_score(trained, call):
    for name in ("ngram", "rnn_lm-file"):
        each = call("score", trained(name), "empty.txt", "--each")
        assert (each.code, each.out) == (0, "")


# Writing


@every
def test_a_prompt_is_gone_on_from(name, trained, call):
    settings = ("--max-length", 23, "--seed", 5, "--temperature", 0.8, "--top-p", 0.95)
    shown = call("predict", trained(name), "--prompt", "the cat", *settings)
    whole = call("predict", trained(name), "--prompt", "the cat", *settings, "--json")
    assert (shown.code, whole.code) == (0, 0), shown.err + whole.err
    assert json.loads(whole.out)["text"] + "\n" == shown.out
    assert shown.out.startswith("the cat")
    others = {call("predict", trained(name), "--prompt", "the cat", *settings[:2], "--seed", n).out for n in range(5)}
    assert len(others) > 1


def test_text_arrives_while_it_is_written(trained):
    """The prompt and more are there long before the last of a hundred thousand tokens could be."""
    command = [*REGARD, "predict", str(trained("rnn_lm-file")), "--prompt", "the cat", "--max-length", "100000"]
    command += ["--min-length", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as writing:
        assert writing.stdout is not None
        try:
            assert writing.stdout.read(50).startswith(b"the cat")
            assert writing.poll() is None
        finally:
            writing.kill()


def test_a_reader_that_has_seen_enough_ends_it(trained):
    command = [*REGARD, "predict", str(trained("rnn_lm-file")), "--prompt", "the cat", "--max-length", "100000"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=ENVIRONMENT) as writing:
        assert writing.stdout is not None
        assert writing.stderr is not None
        writing.stdout.read(9)
        writing.stdout.close()
        assert writing.wait(30) == 128 + signal.SIGPIPE
        assert writing.stderr.read() == b""


def test_lines_are_prompts(trained, call):
    folder = trained("rnn_lm")
    one_a_line = call("predict", folder, "test.txt", "--max-length", 7)
    prompts = (folder.parent.parent / "test.txt").read_text().splitlines()
    written = one_a_line.out.splitlines()
    assert len(written) == len(prompts) == 13
    assert all(text.startswith(prompt) for text, prompt in zip(written, prompts, strict=True))
    likeliest = call("predict", folder, "test.txt", "--no-sample", "--max-length", 7)
    assert likeliest.out == call("predict", folder, "test.txt", "--no-sample", "--max-length", 7, "--seed", 9).out
    best = call("predict", folder, "test.txt", "--beam", 3, "--n-best", 2, "--max-length", 5)
    assert len(best.out.splitlines()) == 26


def test_the_whole_line_of_work_in_processes_of_their_own(kitchen, trained):
    trained("ngram")
    scored = run("score", "runs/ngram", "test.txt", cwd=kitchen)
    assert scored.code == 0
    assert scored.err == ""
    assert "\x1b" not in scored.out
    written = run("predict", "runs/ngram", "--no-sample", stdin=b"the cat\na dog\n", cwd=kitchen)
    assert [line.split()[:2] for line in written.out.splitlines()] == [["the", "cat"], ["a", "dog"]]


# Elsewhere and back


def test_out_as_arpa_and_in_again_is_the_same_model(trained, call, tmp_path):
    folder = trained("ngram")
    out = call("export", folder, "--to", "arpa", "-o", tmp_path / "lm.arpa")
    assert out.code == 0, out.err
    assert "\\data\\" in (tmp_path / "lm.arpa").read_text()
    back = call("import", tmp_path / "lm.arpa", "-o", tmp_path / "back")
    assert back.code == 0, back.err
    one, other = (call("score", each, "test.txt", "--each").out.splitlines() for each in (folder, tmp_path / "back"))
    assert [float(value) for value in one] == pytest.approx([float(value) for value in other], abs=1e-4)
    assert call("predict", tmp_path / "back", "--prompt", "the").code == 0
    assert call("export", tmp_path / "back", "--to", "arpa").code == 0
    assert (tmp_path / "back" / "model.arpa").exists()


# What goes wrong

WRONG: dict[str, tuple[list[str], list[str]]] = {
    "no file to score": (["score", "{ngram}"], ["Give a RUN"]),
    "a missing file to score": (["score", "{ngram}", "nowhere.txt"], ["nowhere.txt does not exist"]),
    "an empty file to score": (["score", "{ngram}", "empty.txt"], ["empty.txt is empty"]),
    "an empty file to score as one": (["score", "{rnn_lm-file}", "empty.txt"], ["empty.txt is empty"]),
    "a missing run to score": (["score", "runs/nowhere", "test.txt"], ["runs/nowhere"]),
    "a missing run to write with": (["predict", "runs/nowhere", "--prompt", "a"], ["runs/nowhere"]),
    "a stride below 0": (["score", "{gpt-file}", "test.txt", "--stride", "-1"], ["stride = -1", "0 or more"]),
    "other vocabularies to score": (["score", "{ngram}", "{rnn_lm-file}", "test.txt"], ["different vocabularies"]),
    "other vocabularies to write": (
        ["predict", "{ngram}", "{ngram-file}", "--prompt", "a"],
        ["different vocabularies"],
    ),
    "a prompt for a translator": (["predict", "{translator}", "--prompt", "a"], ["--prompt is for language models"]),
    "a text for a translator": (["score", "{translator}", "test.txt"], ["two files, a source and a target"]),
    "a text for a translator, each": (["score", "{translator}", "test.txt", "--each"], ["two files"]),
    "a translator among them": (["score", "{ngram}", "{translator}", "test.txt"], ["is for language"]),
    "pairs for a language model": (
        ["score", "{ngram}", "--source", "test.txt", "--target", "test.txt"],
        ["one file", "2 were given"],
    ),
    "pairs for a language model, each": (
        ["score", "{ngram}", "--source", "test.txt", "--target", "test.txt", "--each"],
        ["one file", "2 were given"],
    ),
    "looking at a language model": (["look", "{rnn_lm}", "the cat"], ["no attention to look at", "--gates"]),
    "a prompt and a file": (["predict", "{ngram}", "test.txt", "--prompt", "a"], ["--prompt and a FILE"]),
    "unknowns to replace": (["predict", "{ngram}", "--prompt", "a", "--replace-unknown"], ["--replace-unknown"]),
    "no n-grams to export": (["export", "{rnn_lm}", "--to", "arpa"], ["is a rnn_lm", "model.name=ngram"]),
    "nothing to import": (["import", "nowhere.arpa"], ["nowhere.arpa"]),
    "text to import": (["import", "test.txt"], ["test.txt"]),
    "no text to train on": (
        ["train", "rnn_lm.toml", "data.train=empty.txt", "-o", "runs/wrong"],
        ["train data is empty"],
    ),
    "pairs to train on": (["train", "rnn_lm.toml", "data.name=parallel", "-o", "runs/wrong"], ["parallel"]),
    "a translator of text": (["train", "rnn_lm.toml", "model.name=seq2seq", "-o", "runs/wrong"], ["seq2seq"]),
    "a window of nothing": (
        ["train", "rnn_lm-file.toml", "data.window=0", "-o", "runs/wrong"],
        ["[data]", "window = 0"],
    ),
}


@pytest.mark.parametrize("wrong", WRONG)
def test_what_goes_wrong_is_told_in_one_sentence(wrong, trained, call):
    arguments, says = WRONG[wrong]
    names = [argument[1:-1] for argument in arguments if argument.startswith("{")]
    folders = {name: str(trained(name)) for name in names}
    result = call(*(folders.get(argument[1:-1], argument) for argument in arguments))
    assert result.code == 1, result.out + result.err
    assert result.err.startswith("regard: ")
    assert result.err.count("\n") == 1
    assert "Traceback" not in result.err
    for part in says:
        assert part in result.err


@pytest.fixture(scope="module", autouse=True)
def translator(kitchen: Path) -> None:
    (kitchen / "translator.toml").write_text(
        """
task = "translation"
[data]
name = "parallel"
source = "valid.txt"
target = "valid.txt"
valid_source = "valid.txt"
valid_target = "valid.txt"
[tokens]
kind = "words"
size = 0
[model]
name = "seq2seq"
embedding = 5
hidden = 7
[train]
steps = 1
precision = "float32"
"""
    )

"""What a user's own model must keep to, without any shell of ours: the promises of regard/interface.py, no more."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import torch
from command import Call

from regard.interface import UserError
from regard.loading import load, read_recipe
from regard.predict.decoding import Decoding, Prediction
from regard.predict.search import generate
from regard.run import Run, build_model
from regard.tasks.registry import TASKS
from regard.train.session import Session
from regard.train.smoke_test import try_out

TINY = (
    *("data.sentences=60", "data.valid=3", "data.test=3"),
    *("train.steps=2", "train.validate_every=2", "train.batch_tokens=300", "train.precision=float32"),
)
HEAD = """
from dataclasses import dataclass

import torch
from torch import nn
from regard.interface import Inside, Loss, Padded, State
from regard.models.design import Design


@dataclass(frozen=True)
class Config:
    dim: int = 8  # width


def design(task, model):
    return Design(name="own", paper="mine", year=2026, tasks=(task,), config=Config, build=model)
"""
WRITER = """

class Own(nn.Module):
    \"\"\"hₜ = tanh(U hₜ₋₁ + e(yₜ₋₁) + mean of the source); p(yₜ) = softmax(W hₜ).\"\"\"

    def __init__(self, config, shapes):
        super().__init__()
        self.read, self.embed = (nn.Embedding(side.size, config.dim) for side in (shapes.source, shapes.target))
        self.again = nn.Linear(config.dim, config.dim)
        self.out = nn.Linear(config.dim, shapes.target.size)

    def mean(self, source):
        real = source.mask[..., None]
        return (self.read(source.values) * real).sum(1) / real.sum(1)  # (batch, dim)

    def next(self, tokens, h, mean):
        return torch.tanh(self.again(h) + 3 * self.embed(tokens) + mean)

    def log_probs(self, batch):
        mean = self.mean(batch.source)
        h, given, answers = torch.zeros_like(mean), batch.target.before(), batch.target.after()
        found = []
        for tokens, answer in zip(given.values.unbind(1), answers.values.unbind(1)):
            h = self.next(tokens, h, mean)
            found.append(self.out(h).log_softmax(-1).gather(1, answer[:, None])[:, 0])
        return torch.stack(found, 1) * answers.mask, None

    def loss(self, batch):
        nll = -self.log_probs(batch)[0].sum()
        return Loss(nll, nll.detach(), int(batch.target.after().mask.sum()))

    def start(self, batch):
        mean = self.mean(batch.source)
        return State(mean, START)

    def step(self, tokens, state):
        mean = state.memory.repeat_interleave(state.width, 0)
        STEP


DESIGN = design("translation", Own)
"""
CARRIES = {  # how the state is kept between steps
    "a list": (
        "[torch.zeros_like(mean)]",
        "h = self.next(tokens, state.carry[0], mean)\n"
        "        return self.out(h), State(state.memory, [h], state.width)",
    ),
    "a dict of tuples": (
        "{'h': (torch.zeros_like(mean),)}",
        "h = self.next(tokens, state.carry['h'][0], mean)\n"
        "        return self.out(h), State(state.memory, {'h': (h,)}, state.width)",
    ),
    "on self": (
        "self.keep(mean)",
        "h = self.h.repeat_interleave(max(1, len(mean) // len(self.h)), 0)[: len(mean)]\n"
        "        self.h = self.next(tokens, h, mean)\n"
        "        return self.out(self.h), state\n\n"
        "    def keep(self, mean):\n        self.h = torch.zeros_like(mean)",
    ),
}


def writer(carry: str) -> str:
    start, step = CARRIES[carry]
    return HEAD + WRITER.replace("START", start).replace("STEP", step)


CLASSIFIER = """

class Own(nn.Module):
    def __init__(self, config, shapes):
        super().__init__()
        self.words = nn.Embedding(shapes.source.size, config.dim)
        self.out = nn.Linear(config.dim, shapes.target.size)

    def classify(self, batch):
        real = batch.source.mask[..., None]
        mean = (self.words(batch.source.values) * real).sum(1) / real.sum(1)
        return self.out(mean).log_softmax(-1)

    def loss(self, batch):
        nll = -self.classify(batch).gather(1, batch.target.values).sum()
        return Loss(nll, nll.detach(), batch.size)


DESIGN = design("classification", Own)
"""
INSPECTS = "    def inspect(self):\n        return Inside(reader=self.words)\n\n    def loss"
ENCODER = """
from regard.layers.encoders import Embedding, Encoded
from regard.layers.pooling import POOLS
from regard.models.encoder_head import headed


class Words(nn.Module):
    def __init__(self, config, shapes):
        super().__init__()
        self.embed = Embedding(vocab=shapes.source.size, dim=config.dim)

    def forward(self, source):
        words = self.embed(source.values)
        return Encoded(words, source.mask, (), words)


def own(config, shapes):
    return headed(Words(config, shapes), shapes, dim=config.dim, pool=POOLS["mean"])


DESIGN = design("classification", own)
"""


def recipe_of(place: Path, code: str, task: str = "translation") -> Path:
    (place / "own.py").write_text(code, encoding="utf-8")
    kind = "given" if task == "tagging" else "words"
    text = f'task = "{task}"\n[data]\nname = "world"\n[tokens]\nkind = "{kind}"\nsize = 0\n[model]\nname = "own.py"\n'
    (place / "recipe.toml").write_text(text, encoding="utf-8")
    return place / "recipe.toml"


def trained(place: Path, code: str, task: str = "translation") -> Path:
    session = Session(read_recipe(recipe_of(place, code, task), TINY)[0], place / "run")
    list(session.steps())
    return place / "run"


@pytest.mark.parametrize("carry", ["a list", "a dict of tuples"])
def test_beams_are_right_whatever_tree_a_model_carries(place: Path, carry: str) -> None:
    recipe, _ = read_recipe(recipe_of(place, writer(carry)), TINY)
    try_out(recipe)
    fields = recipe.task.learn(lambda: recipe.task.toy, recipe.tokens)
    run = Run(recipe, fields, build_model(recipe, fields).eval(), torch.device("cpu"))
    sources = [source for source, _ in recipe.task.toy]
    found = generate(run.model, run.batch(source=sources), Decoding(beam=3, n_best=3), limits=torch.tensor([6, 6]))
    checked = 0
    for source, hypotheses in zip(sources, found, strict=True):
        for hypothesis in (each for each in hypotheses if each.finished):
            sides = {"source": fields.encode({"source": [source]})["source"], "target": [list(hypothesis.tokens)]}
            with torch.no_grad():
                log_probs, _ = run.model.log_probs(fields.batch(sides))
            assert hypothesis.log_prob == pytest.approx(float(log_probs.sum()), abs=1e-4)
            checked += 1
    assert checked


@pytest.mark.parametrize("seed", range(5))
def test_a_model_that_keeps_state_on_itself_is_refused_in_one_sentence(place: Path, call: Call, seed: int) -> None:
    """Its beams claim the probabilities of other hypotheses."""
    recipe = recipe_of(place, writer("on self"))
    done = call("train", recipe, *TINY, f"seed={seed}", "-o", "run")
    assert done.code == 1 and done.err.count("\n") == 1
    words = r"own.py cannot learn from two examples: .*beam search gives an output ln p = -\S+, teacher forcing -\S+:"
    assert re.search(words, done.err) and "State.carry" in done.err, done.err


def test_each_line_is_scored_by_any_model_that_promises_log_probs(place: Path, call: Call) -> None:
    folder = trained(place, writer("a list"))
    (place / "s").write_text("They are watching .\nThe cat sleeps .\n")
    (place / "t").write_text("Ils regardent .\nLe chat dort .\n")
    done = call("score", folder, "--source", place / "s", "--target", place / "t", "--each")
    assert done.code == 0, done.err
    run = load(folder)
    batch = run.batch(source=(place / "s").read_text().splitlines(), target=(place / "t").read_text().splitlines())
    expected = run.model.log_probs(batch)[0].sum(-1).tolist()
    assert [float(line) for line in done.out.split()] == pytest.approx(expected, abs=1e-4)
    (place / "other").mkdir()
    code = re.sub(r"\blog_probs\b", "likely", writer("a list"))
    without = trained(place / "other", code)
    done = call("score", without, "--source", place / "s", "--target", place / "t", "--each")
    assert done.code == 1 and "has no log_probs" in done.err and done.err.count("\n") == 1


def test_a_classifier_whose_encoder_takes_the_source_alone_is_used_as_any(place: Path, call: Call) -> None:
    folder = trained(place, HEAD + ENCODER, "classification")
    (place / "lines").write_text("The cat sleeps .\nThey are watching .\n")
    assert len(call("predict", folder, place / "lines").out.splitlines()) == 2
    names = load(folder).fields.names()
    (place / "test.tsv").write_text(f"The cat sleeps .\t{names[0]}\n")
    assert json.loads(call("score", folder, place / "test.tsv", "--json").out)["count"] == 1
    looked = json.loads(call("look", folder, "The cat sleeps .", "--json").out)
    assert looked["source"] == ["The", "cat", "sleeps", ".", "<eos>"]
    assert sum(looked["weights"][0]) == pytest.approx(1, abs=1e-4)


def test_a_model_without_a_shell_has_saliency_if_it_names_its_embedding(place: Path, call: Call) -> None:
    folder = trained(place, HEAD + CLASSIFIER.replace("    def loss", INSPECTS), "classification")
    looked = json.loads(call("look", folder, "The cat sleeps .", "--json").out)
    assert looked["source"][:3] == ["The", "cat", "sleeps"] and sum(looked["weights"][0]) == pytest.approx(1, abs=1e-4)
    (place / "other").mkdir()
    silent = trained(place / "other", HEAD + CLASSIFIER, "classification")
    assert load(silent).predict("The cat sleeps .").text
    for options, words in (
        (["The cat sleeps ."], r"does not name its embedding: .* needs an inspect\(\)"),
        (["The cat sleeps .", "--gates"], "own is not recurrent"),
        (["--neighbours", "cat"], "word embedding"),
    ):
        done = call("look", silent, *options)
        assert done.code == 1 and done.err.count("\n") == 1 and re.search(f"regard: .*{words}", done.err), done.err


@pytest.mark.parametrize(
    "task, model", [("translation", "rnnsearch"), ("language", "rnn_lm"), ("classification", "cnn"), ("tagging", "cnn")]
)
def test_one_text_gives_one_prediction_and_a_list_a_list(place: Path, task: str, model: str) -> None:
    recipe, _ = read_recipe(recipe_of(place, "", task), [*TINY, f"model.name={model}"])
    assert recipe.task is TASKS[task]
    fields = recipe.task.learn(lambda: recipe.task.toy, recipe.tokens)
    run = Run(recipe, fields, build_model(recipe, fields).eval(), torch.device("cpu"))
    one, (alone,), both = run.predict("a b c"), run.predict(["a b c"]), list(run.predict(iter(["a b c", "c"])))
    assert isinstance(one, Prediction) and one == alone and len(both) == 2
    assert (both[0].text, both[0].score) == (one.text, pytest.approx(one.score, abs=1e-5))
    assert run.predict([]) == []
    assert (one.probabilities is not None) == (task == "classification")


def test_what_is_not_promised_is_named(place: Path) -> None:
    code = (HEAD + CLASSIFIER).replace("def classify", "def name")
    with pytest.raises(UserError, match=r"cannot be used for classification, since it lacks classify\(batch\)"):
        try_out(read_recipe(recipe_of(place, code, "classification"), TINY)[0])


@pytest.mark.parametrize("room", [4, 8, 9])
@pytest.mark.parametrize(
    "task, name", [("translation", "transformer"), ("translation", "convs2s"), ("language", "gpt")]
)
def test_a_model_with_little_room_passes(place: Path, task: str, name: str, room: int) -> None:
    setting = f"model.context={room}" if name == "gpt" else f"model.longest={room}"
    small = ["model.dim=8", "model.heads=2"] if name != "convs2s" else ["model.embedding=8", "model.hidden=8"]
    recipe = recipe_of(place, f"from regard.models.{name} import DESIGN\n", task)
    try_out(read_recipe(recipe, [*TINY, "model.positions=learned", setting, *small])[0])

"""Pre-training: one recipe for every objective, packed texts, noise that is undone, and the way to another task."""

from __future__ import annotations

from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from command import Call

import regard
from regard.checkpoint import Folder
from regard.data.corruption import SENTINEL, SENTINELS
from regard.data.tensors import read_tensors
from regard.interface import EOS, UserError
from regard.loading import load, read_recipe, shipped
from regard.models import MODELS
from regard.predict.restoring import restored
from regard.recipe import Recipe
from regard.run import mixture
from regard.tasks.registry import TASKS
from regard.train.api import recipe_for
from regard.train.session import Session

SMALL = ["dim=12", "heads=2", "feed_forward=16", "layers=1"]
STEPS = [
    "train.steps=2",
    "train.epochs=0",
    "train.validate_every=2",
    "train.precision=float32",
    "train.batch_tokens=64",
]
BECOMES = {"bert": "masked", "electra": "masked", "gpt": "language", "t5": "denoising", "bart": "denoising"}


def settings(*more: str) -> list[str]:
    return [*STEPS, "train.batch_tokens=64", *(f"model.{each}" for each in SMALL), *more]


@pytest.fixture
def recipe(place: Path, call: Call) -> Path:
    """The recipe that `new` writes for some lines, most of them longer than tokens.longest allows."""
    sentences = ("it rains .", "the red cat sees an old dog .")
    lines = [" ".join(sentences[number % 2] for number in range(count)) for count in range(2, 40)]
    (place / "reviews.txt").write_text("".join(f"{line}\n" for line in lines))
    smaller = ("tokens.kind=words", "tokens.longest=20", "data.window=16")
    done = call("new", "pretraining", "reviews.txt", "-o", "bert.toml", *smaller)
    assert done.code == 0, done
    return place / "bert.toml"


def trained(recipe: Recipe, folder: Path) -> Path:
    for _ in Session(recipe, folder).steps():
        pass
    return folder


# --- one recipe, many objectives ---


@pytest.mark.parametrize("model", BECOMES)
def test_a_recipe_becomes_what_its_model_is_for(recipe: Path, call: Call, model: str) -> None:
    assert 'task = "pretraining"' in recipe.read_text()
    done = call("train", recipe, f"model.name={model}", *settings(), "-o", "run")
    assert done.code == 0 and "0% padding" in done.out and "left out" not in done.out, done
    run = load("run")
    assert run.task is TASKS[BECOMES[model]] and run.model_title == model
    more = call("train", recipe, f"model.name={model}", *settings(), "train.steps=3", "-o", "run")
    assert more.code == 0 and "Resuming run from step 2" in more.out, more


def test_n_grams_are_counted_in_whole_texts(recipe: Path, call: Call) -> None:
    assert call("new", "pretraining", "reviews.txt", "model.name=ngram", "tokens.kind=words", "-o", "n.toml").code == 0
    assert "pack = false" in Path("n.toml").read_text()
    said = call("train", "n.toml", "-o", "run")
    assert said.code == 0 and load("run").task is TASKS["language"], said


def test_a_recipe_that_no_objective_has_is_refused(recipe: Path, call: Call) -> None:
    said = call("train", recipe, "model.name=birnn", "-o", "run").err
    assert "'birnn' is for classification" in said and "not for pretraining" in said and "gpt" in said
    recipe.write_text(recipe.read_text().replace('name = "bert"', ""))
    assert "The recipe has no model.name" in call("train", recipe, "-o", "run").err


def test_settings_of_other_objectives_wait_until_their_model_comes(recipe: Path) -> None:
    noisy = read_recipe(recipe, ["model.name=t5", "data.noise=infilling"])[0]
    assert noisy.data.noise == "infilling"  # type: ignore[attr-defined]
    assert "noise" not in vars(read_recipe(recipe, ["data.noise=infilling"])[0].data)
    with pytest.raises(UserError, match="data.nois' does not exist"):
        read_recipe(recipe, ["data.nois=infilling"])


def test_the_objective_changes_settings_that_nobody_gave(recipe: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(MODELS, "electra", replace(MODELS["electra"], objective={"head": "none"}))
    assert read_recipe(recipe, ["model.name=electra"])[0].model.head == "none"
    assert read_recipe(recipe, ["model.name=electra", "model.head=words"])[0].model.head == "words"
    recipe.write_text(recipe.read_text().replace('"pretraining"', '"masked"'))
    assert read_recipe(recipe, ["model.name=electra"])[0].model.head == "words"


def test_from_python(tmp_path: Path) -> None:
    sizes = {"dim": 12, "heads": 2, "feed_forward": 16, "layers": 1, "context": 8}
    table = {"task": "pretraining", "model": {"name": "gpt", **sizes}, "tokens": {"kind": "words"}}
    steps = {"train.steps": 1, "train.validate_every": 1, "train.epochs": 0, "train.precision": "float32"}
    texts = [f"a {word} c d" for word in "efghijklmnopqrstuvwxyz" * 2]
    run = regard.train(table, tmp_path / "run", data=texts, settings=steps, progress=False, threads=1)
    assert run.task is TASKS["language"] and run.recipe.data.pack and run.opening == [EOS]


# --- new ---


def test_from_python_data_is_read_as_the_settings_say(tmp_path: Path) -> None:
    def made(**data: object) -> Recipe:
        settings = {"model.name": "bart", **{f"data.{key}": value for key, value in data.items()}}
        return recipe_for({"task": "denoising"}, Folder(tmp_path / "run"), ["a b c"] * 9, ["c"], settings)

    asked = {"pack": True, "window": 64, "noise": "spans", "unit": "line"}
    assert asked.items() <= vars(made(**asked).data).items()
    with pytest.raises(UserError, match="data.train = 'other.txt' does not go with examples that are given as data"):
        made(train="other.txt")


def test_new_takes_settings_as_train_does(recipe: Path, call: Call) -> None:
    given = ("model.name=gpt", "train.minutes=3", "model.layers=2")
    done = call("new", "pretraining", "reviews.txt", *given, "-o", "g.toml")
    assert done.code == 0 and "train.minutes" not in done.out
    made = read_recipe("g.toml")[0]
    assert (made.model_name, made.model.layers, made.train.minutes) == ("gpt", 2, 3.0)
    assert made.model.context == 128 and 'task = "pretraining"' in Path("g.toml").read_text()
    refused = {
        "model.layer=2": "model.layer' does not exist: did you mean 'model.layers'",
        "train.minutes=long": "must be a number",
        "model.name=gtp": "'gtp' does not exist",
    }
    for wrong, said in refused.items():
        failed = call("new", "language", "reviews.txt", wrong, "-o", "h.toml")
        assert failed.code == 1 and said in failed.err and not Path("h.toml").exists(), failed


def test_a_file_may_have_a_name_like_a_setting(recipe: Path, call: Call) -> None:
    Path("a.b=c").write_text(Path("reviews.txt").read_text())
    assert call("new", "masked", "a.b=c", "-o", "h.toml").code == 0
    assert read_recipe("h.toml")[0].data.train == "a.b=c"  # type: ignore[attr-defined]


# --- packed texts ---


LENGTHS = {"gpt": "model.context=8", "bert": "model.longest=9", "t5": "data.window=8", "bart": "model.longest=9"}


@pytest.mark.parametrize("model", LENGTHS)
def test_what_is_resumed_is_what_was_never_interrupted(recipe: Path, tmp_path: Path, model: str) -> None:
    more = (LENGTHS[model], "train.steps=4", "train.validate_every=4")
    asked = read_recipe(recipe, [f"model.name={model}", *settings(*more)])[0]
    trained(asked, tmp_path / "straight")
    session = Session(asked, tmp_path / "resumed")
    list(islice(session.steps(), 2))
    session.save()
    trained(asked, tmp_path / "resumed")
    one, other = (read_tensors(tmp_path / name / "last" / "state.safetensors")[0] for name in ("straight", "resumed"))
    assert one.keys() == other.keys() and all(torch.equal(one[name], other[name]) for name in one)


def test_a_whole_file_is_read_masked_if_it_is_packed(recipe: Path, call: Call) -> None:
    asked = settings("data.unit=file", "data.hold_out=0.2")
    done = call("train", recipe, *asked, "data.pack=false", "-o", "run")
    assert done.code == 1 and "set data.pack to true" in done.err
    done = call("train", recipe, *asked, "-o", "run")
    assert done.code == 0 and "0% padding" in done.out


def test_a_recurrent_model_carries_its_state_through_packed_texts(recipe: Path, call: Call) -> None:
    asked = ["model.embedding=8", "model.hidden=8", *STEPS]
    done = call("train", recipe, "model.name=rnn_lm", *asked, "-o", "run")
    assert done.code == 0 and load("run").opening == [EOS]
    assert "set it to false" in call("train", recipe, "model.name=ngram", *STEPS, "-o", "other").err


def test_a_packed_language_model_starts_and_ends_texts(place: Path) -> None:
    """Each text of two words; the model learns what comes first, and where a text ends."""
    train = {"steps": 200, "epochs": 0, "validate_every": 200, "learning_rate": 0.01, "precision": "float32"}
    settings = {f"train.{key}": value for key, value in train.items()}
    sizes = {"dim": 16, "heads": 2, "feed_forward": 16, "layers": 1, "context": 8, "dropout": 0.0}
    table = {"task": "pretraining", "model": {"name": "gpt", **sizes}, "tokens": {"kind": "words"}}
    texts = ["a b", "c d e f"] * 60
    run = regard.train(table, "run", data=texts, valid=texts, settings=settings, progress=False, threads=1)
    assert {each.text for each in run.predict([""] * 30, sample=True, top_p=0.9)} == {"a b", "c d e f"}
    probabilities = np.exp(run.log_prob(["a b", "c d e f"]))
    assert probabilities.sum() == pytest.approx(1, abs=0.05) and probabilities.min() > 0.2
    apart = replace(run, recipe=replace(run.recipe, data=replace(run.recipe.data, pack=False)), name="apart")
    with pytest.raises(UserError, match="Only one of run and apart has data.pack = true"):
        mixture([run, apart])


@pytest.mark.parametrize("data", ["world", "text"])
def test_pairs_are_as_long_as_the_model_can_read(data: str, recipe: Path, place: Path) -> None:
    """Sentences of the grammar are cut nowhere else than in two; the longest text just fits."""
    path = shipped("demo-masked") if data == "world" else recipe
    small = ["data.sentences=60", "data.valid=20"] if data == "world" else ["data.window=128"]
    asked = [*settings("model.follows=true", "model.longest=32", "train.batch_tokens=512"), *small]
    session = Session(read_recipe(path, asked)[0], place / "run")
    batches = [session.batches.get(0, index) for index in range(session.batches.count(0))]
    lengths = np.concatenate([batch.first.lengths[batch.beside["follows"][:, 0] == 1].numpy() for batch in batches])
    whole = session.encoded["train"]["source"].lengths
    assert lengths.max() in (29, 30) if data == "text" else {*(lengths - 2)} <= {*whole} and lengths.max() > 4
    assert len(list(session.steps()))


# --- noise ---

SPANS = ["a b c d e f g", "h i j k l m n"] * 10  # any word is known from the others
SENTENCES = [f"{a} {a} {b} {b} . {c} {c} ." for a in "abc" for b in "def" for c in "ghi"]


def restorer(model: str, texts: list[str], folder: Path) -> regard.Run:
    sizes = {"dim": 32, "heads": 2, "feed_forward": 32, "layers": 1, "dropout": 0.0}
    table = {"task": "denoising", "model": {"name": model, **sizes}, "tokens": {"kind": "words", "size": 0}}
    train = {"steps": 250, "validate_every": 250, "epochs": 0, "learning_rate": 0.01, "warmup": 20, "batch_tokens": 96}
    asked = {f"train.{key}": value for key, value in (train | {"precision": "float32"}).items()}
    return regard.train(table, folder / "run", data=texts, valid=texts, settings=asked, progress=False, threads=1)


@pytest.fixture(scope="module")
def t5(tmp_path_factory: pytest.TempPathFactory) -> regard.Run:
    return restorer("t5", SPANS, tmp_path_factory.mktemp("t5"))


@pytest.fixture(scope="module")
def bart(tmp_path_factory: pytest.TempPathFactory) -> regard.Run:
    return restorer("bart", SENTENCES, tmp_path_factory.mktemp("bart"))


def test_a_model_of_spans_writes_what_is_missing(t5: regard.Run) -> None:
    asked = [(text, text.replace(word, "[MASK]")) for text in SPANS[:2] for word in text.split()]
    right = sum(t5.predict(shown).text == text for text, shown in asked)
    assert len(asked) == 14 and right > 8  # by chance one
    assert t5.predict("a b _ d e f g", blank="_") == t5.predict("a b [MASK] d e f g")
    assert t5.predict(["", "h [MASK]"])[0].text == ""
    assert len(t5.predict("a b [MASK] d e f g", n_best=3).alternatives) == 2


def test_every_blank_gets_what_was_written_after_its_sentinel(t5: regard.Run) -> None:
    a, b, c = t5.tokenizer("target").encode("a b c")
    parts = ["x ", " y ", " z"]
    assert restored(t5, parts, [SENTINEL, a, b, SENTINEL + 1, c], "spans") == "x a b y c z"
    assert restored(t5, parts, [c, SENTINEL + 1, a, SENTINEL + 7, b], "spans") == "x  y a z"
    assert restored(t5, parts, [a, b], "infilling") == "a b"


def test_a_model_of_spans_needs_a_blank_and_not_too_many(t5: regard.Run, call: Call) -> None:
    for text in ("a a e e .", "[MASK] a " * (SENTINELS + 1)):
        done = call("predict", t5.name, text)
        assert done.code == 1 and "where words are missing, at most 100 times" in done.err


def test_a_model_of_infilling_writes_the_text(bart: regard.Run) -> None:
    assert bart.predict("a [MASK] e e . h h .").text == "a a e e . h h ."
    assert bart.predict("c c _ d . _ i .", blank="_").text == "c c d d . i i ."
    assert bart.predict("h h . a a e e .").text == "a a e e . h h ."  # its sentences in their usual order


def test_a_text_of_the_training_is_restored_with_more_certainty(bart: regard.Run, call: Call, place: Path) -> None:
    likely, unlikely = bart.log_prob(["a a e e . h h .", "e . h a g a e ."])
    assert likely > unlikely + 5
    Path("texts").write_text("a a e e . h h .\nb b d d . g g .\n")
    done = call("score", bart.name, "texts")
    each = [float(line) for line in call("score", bart.name, "texts", "--each").out.split()]
    assert each == pytest.approx(bart.log_prob(["a a e e . h h .", "b b d d . g g ."]), abs=1e-4)
    assert done.code == 0 and float(done.out.split()[3]) == pytest.approx(np.exp(-sum(each) / 18), abs=1e-3)


def test_attention_is_looked_at_in_the_tokens_that_are_read_and_written(
    t5: regard.Run, bart: regard.Run, place: Path
) -> None:
    seen = t5.look("a b [MASK] d e f g")
    assert seen.columns == ("a", "b", "<extra_0>", "d", "e", "f", "g", "<eos>") and seen.rows[0] == "<extra_0>"
    np.testing.assert_allclose(seen.weights.sum(1), 1, atol=1e-5)
    assert bart.look("a [MASK] e e .", "a a e e .").rows == ("a", "a", "e", "e", ".")
    assert "<mask>" in bart.look("a [MASK] e e .").near().views[0].columns
    for run, text, target in ((t5, "a b", None), (t5, "a [MASK]", "a b"), (bart, "", None)):
        with pytest.raises(UserError):
            run.look(text, target)


@pytest.mark.parametrize("model", ["t5", "bart"])
def test_a_translator_takes_all_weights_of_a_restorer(
    request: pytest.FixtureRequest, tmp_path: Path, model: str
) -> None:
    base: regard.Run = request.getfixturevalue(model)
    settings = vars(base.recipe.model) | {"name": model}
    table = {"task": "translation", "model": settings, "train": {"from": base.name}}
    pairs = [("a a e", "h h ."), ("b b", "g g")] * 20
    steps = {"train.steps": 1, "train.epochs": 0, "train.validate_every": 1, "train.precision": "float32"}
    session = Session(recipe_for(table, Folder(tmp_path / "run"), pairs, pairs, steps), tmp_path / "run")
    assert session.taken is not None and session.taken.left == ()
    assert session.fields.tokenizer("source").to_json() == base.tokenizer("source").to_json()
    before, after = base.model.state_dict(), session.run.model.state_dict()
    assert before.keys() == after.keys() and all(torch.equal(before[name], after[name]) for name in before)

"""train.from: a run starts with another one's vocabulary where a side is the same, and with those of its weights that
fit; labels and class weights are the new data's own."""

from __future__ import annotations

import shutil
from collections.abc import Sequence
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
import torch
from command import Call
from torch import Tensor

from regard.data.tensors import read_tensors
from regard.interface import UserError
from regard.layers.pictures import interpolated
from regard.loading import load, read_recipe
from regard.recipe import Recipe
from regard.run import build_model
from regard.train.session import Session
from regard.train.weights import weights

TRAIN = '[train]\nsteps = 2\nvalidate_every = 2\nbatch_tokens = 64\nprecision = "float32"\n'
WORLD = '[data]\nname = "world"\nsentences = 61\nvalid = 7\n'
WORDS = '[tokens]\nkind = "words"\nsize = 0\n'
RECIPES = {
    "translation": WORLD + WORDS + '[model]\nname = "rnnsearch"\nembedding = 5\nhidden = 7\n',
    "language": WORLD + WORDS + '[model]\nname = "rnn_lm"\nembedding = 5\nhidden = 7\ntie = false\n',
    "classification": WORLD + WORDS + '[model]\nname = "attentive_birnn"\nembedding = 5\nhidden = 7\n',
    "tagging": WORLD + '[model]\nname = "birnn"\nembedding = 5\nhidden = 7\nletters = 3\n',
}
PAIRS = """
[data]
name = "table"
train = "{name}.tsv"
valid = "{name}.tsv"
source = "1"
target = "2"
"""
TRANSFORMER = '[model]\nname = "transformer"\ndim = 6\nheads = 2\nfeed_forward = 7\nlayers = 1\n'
TEXTS = ["a good day", "a bad day", "one day more", "good and bad"]


def recipe_in(folder: Path, task: str, text: str, *settings: str, name: str = "recipe") -> Recipe:
    (folder / f"{name}.toml").write_text(f'task = "{task}"\n{text}{TRAIN}')
    return read_recipe(folder / f"{name}.toml", settings)[0]


def world(folder: Path, task: str, *settings: str) -> Recipe:
    return recipe_in(folder, task, RECIPES[task], *settings)


def labelled(folder: Path, labels: Sequence[str], *settings: str, name: str = "labels") -> Recipe:
    """A text for each of these labels, in turn."""
    lines = [f"{TEXTS[number % len(TEXTS)]}\t{label}\n" for number, label in enumerate(labels)]
    (folder / f"{name}.tsv").write_text("".join(lines))
    text = PAIRS.format(name=name) + WORDS + '[model]\nname = "birnn"\nembedding = 5\nhidden = 7\n'
    return recipe_in(folder, "classification", text, *settings, name=name)


def paired(folder: Path, pairs: Sequence[tuple[str, str]], *settings: str, name: str = "pairs") -> Recipe:
    (folder / f"{name}.tsv").write_text("".join(f"{source}\t{target}\n" for source, target in pairs))
    return recipe_in(folder, "translation", PAIRS.format(name=name) + WORDS + TRANSFORMER, *settings, name=name)


def trained(recipe: Recipe, folder: Path) -> Path:
    for _ in Session(recipe, folder).steps():
        pass
    return folder


def saved(run: Path) -> dict[str, Tensor]:
    return read_tensors(run / "model.safetensors")[0]


def assert_taken(student: Session, teacher: Path, loaded: Sequence[str]) -> None:
    """The weights whose names begin so are the teacher's; all the others are what a new model has."""
    own, theirs = weights(student.run.model), saved(teacher)
    fresh = weights(build_model(student.recipe, student.fields))
    assert student.taken is not None
    expected = [name for name in own if name.startswith(tuple(loaded))]
    assert list(student.taken.loaded) == expected
    assert list(student.taken.left) == [name for name in own if name not in expected]
    for name, tensor in own.items():
        assert torch.equal(tensor, theirs[name] if name in expected else fresh[name]), name
    for name in expected:
        if tensor_learns(fresh[name]):
            assert not torch.equal(own[name], fresh[name]), name


def tensor_learns(tensor: Tensor) -> bool:
    return tensor.is_floating_point() and tensor.numel() > 0


# --- by what fits ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("task", RECIPES)
def test_the_same_recipe_takes_all_weights(tmp_path: Path, task: str) -> None:
    teacher = trained(world(tmp_path, task), tmp_path / "teacher")
    student = Session(world(tmp_path, task, f"train.from={teacher}"), tmp_path / "student")
    assert_taken(student, teacher, [""])
    assert student.fields.to_json() == load(teacher).fields.to_json()
    assert (student.training.step, student.training.best) == (0, None)


@pytest.mark.parametrize("joint", ["true", "false"])
def test_vocabularies_are_shared_as_the_teacher_shared_them(tmp_path: Path, joint: str) -> None:
    """Also where both sides, by themselves, come to the same words."""
    pairs = [("a b c", "c b a"), ("b", "b"), ("c c", "c c")]
    teacher = trained(paired(tmp_path, pairs, f"tokens.joint={joint}"), tmp_path / "teacher")
    student = Session(paired(tmp_path, pairs, f"tokens.joint={joint}", f"train.from={teacher}"), tmp_path / "student")
    assert student.fields.joint == load(teacher).fields.joint == (joint == "true")
    assert_taken(student, teacher, [""])


@pytest.mark.parametrize("task", ["translation", "classification", "tagging"])
def test_parts_are_taken_by_name(tmp_path: Path, task: str) -> None:
    teacher = trained(world(tmp_path, task), tmp_path / "teacher")
    settings = (f"train.from={teacher}", 'train.parts=["encoder."]')
    assert_taken(Session(world(tmp_path, task, *settings), tmp_path / "student"), teacher, ["encoder."])


@pytest.mark.parametrize("labels", [["good", "bad", "none"] * 5, ["yes", "no"] * 7], ids=["more", "others"])
def test_other_labels_have_a_head_of_their_own(tmp_path: Path, labels: list[str]) -> None:
    teacher = trained(labelled(tmp_path, ["good", "bad"] * 7), tmp_path / "teacher")
    student = Session(labelled(tmp_path, labels, f"train.from={teacher}", name="other"), tmp_path / "student")
    assert set(student.fields.names()) == set(labels)
    assert_taken(student, teacher, ["encoder."])


def test_other_tags_have_a_head_of_their_own(tmp_path: Path) -> None:
    """The chain of tags too, whose matrix is as large as before."""
    text = '[data]\nname = "conll"\ntrain = "{0}"\nvalid = "{0}"\n[model]\nname = "birnn"\nembedding = 5\nhidden = 7\n'
    for name, tags in (("one", "XY"), ("other", "XZ")):
        (tmp_path / name).write_text(f"a\t{tags[0]}\nb\t{tags[1]}\n\nb\t{tags[1]}\n\n")
    teacher = trained(recipe_in(tmp_path, "tagging", text.format("one")), tmp_path / "teacher")
    assert any("chain" in name for name in saved(teacher))
    recipe = recipe_in(tmp_path, "tagging", text.format("other"), f"train.from={teacher}")
    assert_taken(Session(recipe, tmp_path / "student"), teacher, ["encoder."])


def test_pictures_with_other_labels(tmp_path: Path) -> None:
    """Their labels too keep the teacher's order where they are the same."""
    text = '[data]\nname = "npz"\ntrain = "{0}.npz"\nvalid = "{0}.npz"\n[model]\nname = "vit"\ndim = 6\nheads = 2\n'
    images = np.random.default_rng(1).integers(0, 256, (9, 8, 8), np.uint8)
    for name, labels in (("one", "aab"), ("again", "bba"), ("other", "xxy")):
        np.savez(tmp_path / f"{name}.npz", images=images, labels=np.array([*labels] * 3))
    recipe = recipe_in(tmp_path, "pictures", text.format("one"), "model.layers=1")
    teacher = trained(recipe, tmp_path / "teacher")
    for name, names, loaded in (("again", ["a", "b"], [""]), ("other", ["x", "y"], ["encoder.", "head.pool."])):
        recipe = recipe_in(tmp_path, "pictures", text.format(name), "model.layers=1", f"train.from={teacher}")
        student = Session(recipe, tmp_path / name)
        assert student.fields.names() == names
        assert_taken(student, teacher, loaded)


def test_positions_of_patches_fit_pictures_of_another_size(tmp_path: Path) -> None:
    """Two rows of two patches become three rows of two; the class token's position is taken as it is."""
    text = '[data]\nname = "npz"\ntrain = "{0}.npz"\nvalid = "{0}.npz"\n[model]\nname = "vit"\ndim = 6\nheads = 2\n'
    random = np.random.default_rng(1)
    for name, size in (("small", (9, 8, 8)), ("tall", (9, 12, 8))):
        np.savez(
            tmp_path / f"{name}.npz", images=random.integers(0, 256, size, np.uint8), labels=np.array([*"aab"] * 3)
        )
    recipe = recipe_in(tmp_path, "pictures", text.format("small"), "model.layers=1")
    teacher = trained(recipe, tmp_path / "teacher")
    recipe = recipe_in(tmp_path, "pictures", text.format("tall"), "model.layers=1", f"train.from={teacher}")
    student = Session(recipe, tmp_path / "student")
    assert student.taken is not None and not student.taken.left
    name = "encoder.stack.positions.table.weight"
    old, new = saved(teacher)[name], weights(student.run.model)[name]
    assert new.shape == (7, 6) and torch.equal(new[0], old[0])
    torch.testing.assert_close(new[1:], interpolated(old[1:], (2, 2), (3, 2)))


def test_the_same_labels_keep_the_teachers_order(tmp_path: Path) -> None:
    """Though in the new data another one is the most frequent."""
    teacher = trained(labelled(tmp_path, ["good", "good", "bad"] * 5), tmp_path / "teacher")
    other = labelled(tmp_path, ["bad", "bad", "good"] * 5, name="other")
    assert Session(other, tmp_path / "alone").fields.names() == ["bad", "good"]
    recipe = labelled(tmp_path, ["bad", "bad", "good"] * 5, f"train.from={teacher}", name="other")
    student = Session(recipe, tmp_path / "student")
    assert student.fields.names() == load(teacher).fields.names() == ["good", "bad"]
    assert_taken(student, teacher, [""])


def test_another_target_is_learnt_from_the_new_data_and_the_encoder_taken(tmp_path: Path) -> None:
    teacher = trained(paired(tmp_path, [("a b c", "x y"), ("b", "y")] * 5), tmp_path / "teacher")
    new = [("a b", "u v w"), ("c d", "w")] * 5
    recipe = paired(tmp_path, new, f"train.from={teacher}", 'train.parts=["encoder."]', name="new")
    student = Session(recipe, tmp_path / "student")
    source, target = (student.fields.tokenizer(side) for side in ("source", "target"))
    assert source.to_json() == load(teacher).tokenizer("source").to_json()
    assert {"u", "v", "w"} <= set(target.to_json()["vocabulary"]) and "x" not in target.to_json()["vocabulary"]
    assert not student.fields.joint
    assert_taken(student, teacher, ["encoder."])
    for _ in student.steps():
        pass
    assert load(tmp_path / "student").predict("a b").text is not None


def test_a_text_side_keeps_its_vocabulary_unless_parts_leave_it_out(tmp_path: Path) -> None:
    teacher = trained(paired(tmp_path, [("a b c", "x y"), ("b", "y")] * 5), tmp_path / "teacher")
    recipe = paired(tmp_path, [("a b", "u v w"), ("c d", "w")] * 5, f"train.from={teacher}", name="new")
    student = Session(recipe, tmp_path / "student")
    assert student.fields.to_json() == load(teacher).fields.to_json()
    assert_taken(student, teacher, [""])


def test_widths_that_differ_start_anew(tmp_path: Path) -> None:
    teacher = trained(paired(tmp_path, [("a b c", "x y")] * 5), tmp_path / "teacher")
    recipe = paired(tmp_path, [("a b c", "x y")] * 5, f"train.from={teacher}", "model.feed_forward=11")
    student = Session(recipe, tmp_path / "student")
    assert student.taken is not None
    assert student.taken.left and all("feed_forward" in name for name in student.taken.left)
    theirs = saved(teacher)
    assert all(torch.equal(weights(student.run.model)[name], theirs[name]) for name in student.taken.loaded)


def test_a_task_may_start_from_another(tmp_path: Path) -> None:
    """A tagger's reader of words serves a classifier."""
    teacher = trained(world(tmp_path, "tagging", "model.letters=0"), tmp_path / "teacher")
    text = RECIPES["classification"].replace("attentive_birnn", "birnn").replace("words", "given")
    recipe = recipe_in(tmp_path, "classification", text, f"train.from={teacher}")
    student = Session(recipe, tmp_path / "student")
    assert student.fields.tokenizer("source").to_json() == load(teacher).tokenizer("source").to_json()
    assert_taken(student, teacher, ["encoder."])


def test_what_is_taken_changes_no_other_random_number(tmp_path: Path) -> None:
    """Trying which weights depend on a vocabulary builds models, and must not draw."""
    teacher = trained(labelled(tmp_path, ["good", "bad"] * 7), tmp_path / "teacher")
    recipe = labelled(tmp_path, ["yes", "no"] * 7, f"train.from={teacher}", name="other")
    Session(recipe, tmp_path / "student")
    state = torch.get_rng_state()
    torch.manual_seed(recipe.seed)
    assert torch.equal(torch.get_rng_state(), state)


CELL = """
import torch
from torch import nn
from regard.layers.cells import Cell


class Mine(Cell):
    def __init__(self, *, input_dim, hidden):
        super().__init__(input_dim=input_dim, hidden=hidden)
        self.linear = nn.Linear(input_dim + hidden, hidden)

    def inputs(self, x):
        return x

    def step(self, x, state):
        after = torch.tanh(self.linear(torch.cat([x, state[0]], -1)))
        if not bool(after.isfinite().all()):
            raise ValueError("not finite")
        return (after,)
"""


def test_a_users_cell_and_other_labels(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(CELL)
    cell = "model.cell=" + repr(f"{tmp_path}/mine.py:Mine")
    teacher = trained(labelled(tmp_path, ["good", "bad"] * 7, cell), tmp_path / "teacher")
    recipe = labelled(tmp_path, ["yes", "no"] * 7, cell, f"train.from={teacher}", name="other")
    assert_taken(Session(recipe, tmp_path / "student"), teacher, ["encoder."])


# --- what is said ------------------------------------------------------------------------------------------------


def test_what_was_loaded_and_what_is_new_is_said(call: Call, tmp_path: Path) -> None:
    teacher = trained(labelled(tmp_path, ["good", "bad"] * 7), tmp_path / "teacher")
    encoder = sum(name.startswith("encoder.") for name in saved(teacher))
    labelled(tmp_path, ["yes", "no", "none"] * 5, name="other")
    recipe = tmp_path / "other.toml"
    said = call("train", recipe, f"train.from={teacher}", "-o", tmp_path / "student")
    assert (said.code, said.err) == (0, "")
    assert f"Fine-tuning {teacher}: {encoder} of {encoder + 2} weights are loaded, and its vocabulary" in said.out
    assert f"; loaded: encoder ({encoder}); new: head (2).\n" in said.out
    labelled(tmp_path, ["good", "bad"] * 7)
    said = call("train", tmp_path / "labels.toml", f"train.from={teacher}", "-o", tmp_path / "same")
    assert f"; loaded: encoder ({encoder}), head (2); new: none.\n" in said.out
    one = "train.parts=['head.linear.bias']"
    said = call("train", tmp_path / "labels.toml", f"train.from={teacher}", one, "-o", tmp_path / "one")
    assert f"; loaded: head.linear.bias; new: encoder ({encoder}), head.linear.weight.\n" in said.out
    again = call("train", tmp_path / "labels.toml", f"train.from={teacher}", one, "-o", tmp_path / "one")
    assert "Fine-tuning" not in again.out


def refused(call: Call, *arguments: object) -> str:
    said = call("train", *arguments)
    assert (said.code, said.out) == (1, ""), said
    assert said.err.startswith("regard: ") and said.err.endswith(".\n") and said.err.count("\n") == 1
    assert "unexpected" not in said.err
    return said.err


def test_where_nothing_fits_one_sentence_says_so(call: Call, tmp_path: Path) -> None:
    teacher = trained(labelled(tmp_path, ["good", "bad"] * 7), tmp_path / "teacher")
    recipe, out = tmp_path / "labels.toml", ("-o", tmp_path / "student")
    labelled(tmp_path, ["yes", "no"] * 7, name="other")
    for odd in (("labels.toml", "train.parts=['decoder.']"), ("other.toml", "model.hidden=11", "model.embedding=3")):
        said = refused(call, tmp_path / odd[0], f"train.from={teacher}", *odd[1:], *out)
        assert f"Nothing of {teacher} fits" in said and "leave train.from out" in said
        assert not (tmp_path / "student" / "config.toml").exists()
    assert call("train", recipe, *out).code == 0  # and the folder is free for another attempt


def test_a_teacher_that_cannot_teach_is_one_sentence(call: Call, tmp_path: Path) -> None:
    teacher = trained(labelled(tmp_path, ["good", "bad"] * 7), tmp_path / "teacher")
    recipe = tmp_path / "labels.toml"
    for file, content, word in (
        ("fields.json", b"{", "fields.json is damaged"),
        ("fields.json", b'{"format": 2, "sides": {"source": [], "target": []}}', "fields.json is damaged"),
        ("fields.json", None, "fields.json is missing"),
        ("config.toml", b"task", "config.toml cannot be read"),
        ("config.toml", b'task = "cooking"', "config.toml cannot be read"),
        ("config.toml", None, "is not a run"),
        ("model.safetensors", b"x", "model.safetensors cannot be read"),
        ("model.safetensors", None, "has no model yet"),
    ):
        damaged = Path(shutil.copytree(teacher, tmp_path / "damaged"))
        (damaged / file).unlink()
        if content is not None:
            (damaged / file).write_bytes(content)
        assert word in refused(call, recipe, f"train.from={damaged}", "-o", tmp_path / "student")
        shutil.rmtree(damaged)
    assert "was not found" in refused(call, recipe, f"train.from={damaged}", "-o", tmp_path / "student")


def test_names_that_stand_twice_are_damage(tmp_path: Path) -> None:
    teacher = trained(labelled(tmp_path, ["good", "bad"] * 7), tmp_path / "teacher")
    text = (teacher / "fields.json").read_text()
    (teacher / "fields.json").write_text(text.replace('["bad", "good"]', '["bad", "good", "bad"]'))
    assert (teacher / "fields.json").read_text() != text
    with pytest.raises(UserError, match="its labels are not a list of different texts"):
        Session(labelled(tmp_path, ["good", "bad"] * 7, f"train.from={teacher}"), tmp_path / "student")


# --- class weights -----------------------------------------------------------------------------------------------

SKEWED = ["good"] * 9 + ["bad"] * 3  # class weights 12 / (2 · 9) and 12 / (2 · 3)
OTHERWISE = ["good"] * 2 + ["bad"] * 8


def class_weights(session: Session) -> list[float]:
    return session.run.model.get_submodule("head").get_buffer("weights").tolist()


def test_class_weights_are_of_the_students_own_data(tmp_path: Path) -> None:
    recipe = labelled(tmp_path, SKEWED, "train.balance=true")
    first = Session(recipe, tmp_path / "teacher")
    assert class_weights(first) == pytest.approx([2 / 3, 2])
    teacher = trained(recipe, tmp_path / "teacher")
    start = f"train.from={teacher}"
    plain = Session(labelled(tmp_path, SKEWED, start), tmp_path / "plain")
    assert class_weights(plain) == [1, 1]
    balanced = Session(labelled(tmp_path, OTHERWISE, start, "train.balance=true", name="other"), tmp_path / "other")
    assert balanced.fields.names() == ["good", "bad"]  # the teacher's order
    assert class_weights(balanced) == pytest.approx([5 / 2, 5 / 8])
    for student in (plain, balanced):
        assert student.taken is not None and not student.taken.left
    new = Session(labelled(tmp_path, ["yes"] * 9 + ["no"], start, "train.balance=true", name="new"), tmp_path / "new")
    assert class_weights(new) == pytest.approx([5 / 9, 5])


def test_a_balanced_run_that_is_resumed_weighs_as_before(tmp_path: Path) -> None:
    recipe = labelled(tmp_path, SKEWED, "train.balance=true", "train.steps=5")
    straight = Session(recipe, tmp_path / "straight")
    list(straight.steps())
    session = Session(recipe, tmp_path / "run")
    list(islice(session.steps(), 3))
    session.save()
    again = Session(recipe, tmp_path / "run")
    assert again.resumed and again.training.step == 3
    assert class_weights(again) == class_weights(straight) == pytest.approx([2 / 3, 2])
    list(again.steps())
    for name, tensor in weights(straight.run.model).items():
        assert torch.equal(tensor, weights(again.run.model)[name]), name
    for file in ("model.safetensors", "last/state.safetensors"):
        assert not [name for name in read_tensors(tmp_path / "run" / file)[0] if name.endswith("head.weights")]


def test_class_weights_change_what_is_learnt(tmp_path: Path) -> None:
    runs = [trained(labelled(tmp_path, SKEWED, f"train.balance={on}"), tmp_path / on) for on in ("true", "false")]
    assert any(not torch.equal(*each) for each in zip(*(saved(run).values() for run in runs), strict=True))

"""A model in a person's own file trains by its path; what is wrong with it is a sentence; a run brings no code."""

from __future__ import annotations

import dataclasses
import io
import json
import re
import shlex
import shutil
import sys
from itertools import islice
from pathlib import Path

import pytest
import torch
from command import Call
from pages import ROOT, commands_in, python_in

from regard import usercode
from regard.checkpoint import Folder
from regard.config import fields_of, help_texts, is_setting
from regard.data.tensors import read_tensors
from regard.interface import UserError
from regard.loading import load, read_recipe
from regard.models import MODELS, design_of, transformer
from regard.recipe import Recipe
from regard.train.session import Session

(FILE,) = python_in("models.md")
TINY = (
    *("data.sentences=60", "data.valid=3", "data.test=3"),
    *("train.steps=2", "train.validate_every=2", "train.batch_tokens=300", "train.precision=float32"),
)
KINDS = {
    "translation": "words",
    "language": "words",
    "denoising": "words",
    "classification": "words",
    "tagging": "given",
}  # of tokens


@pytest.fixture
def place(place: Path) -> Path:
    (place / "my_model.py").write_text(FILE, encoding="utf-8")
    return place


def recipe_in(folder: Path, model: str, *settings: str, task: str = "translation") -> Recipe:
    folder.mkdir(exist_ok=True)
    text = f'task = "{task}"\n[data]\nname = "world"\n[tokens]\nkind = "{KINDS[task]}"\nsize = 0\n'
    (folder / "recipe.toml").write_text(text + f"[model]\nname = '{model}'\n", encoding="utf-8")
    return read_recipe(folder / "recipe.toml", [*TINY, *settings])[0]


def train(recipe: Recipe, out: Path, steps: int | None = None) -> Path:
    session = Session(recipe, out)
    list(islice(session.steps(), steps))
    session.save()
    return out


@pytest.fixture
def run(place: Path) -> Path:
    return train(recipe_in(place, "my_model.py", "model.dim=8"), place / "run")


def test_the_page_does_what_it_says(place: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    shutil.copytree(ROOT / "regard" / "recipes", place / "recipes")
    said = []
    for command in commands_in("models.md"):
        before, _, after = command.rpartition("regard ")
        typed = shlex.split(before.removesuffix("| "))[1:]
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO("\n".join(typed).encode())))
        verb, *arguments = shlex.split(after)
        if verb == "compare":
            continue
        done = call(verb, *arguments, *((*TINY, "train.minutes=1") if verb == "train" else ()))
        assert done.code == 0, f"{command}: {done.err}"
        said.append(done.out)
    trained, predicted, looked, listed = said
    assert trained.startswith("Training my_model, ") and predicted.strip() and "watching" in looked
    assert re.search(r"mine +translation +my_model +finished", listed)
    assert "places = true  # positional encoding" in (place / "runs/mine/config.toml").read_text()


@pytest.mark.slow
def test_the_page_compares_it(place: Path, call: Call) -> None:
    shutil.copytree(ROOT / "regard" / "recipes", place / "recipes")
    (command,) = (command for command in commands_in("models.md") if "compare" in command)
    shrunk = re.sub(r"--budget \S+", "--budget 300tok --jobs 3 --threads 1", command.removeprefix("regard "))
    done = call(*shlex.split(shrunk), *TINY)
    assert done.code == 0, done.err
    models = json.loads((place / "report.json").read_text())["models"]
    assert [model["name"] for model in models] == ["rnnsearch", "my_model", "my_model places=false"]
    assert [(model["paper"][:8], model["year"]) for model in models] == [
        ("Bahdanau", 2015),
        ("mine", 2026),
        ("mine", 2026),
    ]
    assert all(each["state"] == "finished" for model in models for each in model["runs"])
    assert "my_model places=false" in (place / "report.html").read_text()


def test_a_trained_one_is_compared_by_its_own_name(run: Path, call: Call) -> None:
    done = call("compare", run, "-o", "report.html", "--threads", "1")
    assert done.code == 0, done.err
    (model,) = json.loads((run.parent / "report.json").read_text())["models"]
    assert (model["name"], model["paper"], model["year"]) == ("run", "mine", 2026)


def test_it_resumes_bit_for_bit_and_loads(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    recipe = recipe_in(place, "my_model.py", "model.dim=8", "train.steps=4")
    train(recipe, place / "straight")
    train(recipe, place / "run", steps=2)
    train(recipe, place / "run")
    monkeypatch.chdir("/")
    straight, resumed = (load(place / name) for name in ("straight", "run"))
    ours, theirs = (dict(each.model.named_parameters()) for each in (straight, resumed))
    assert all(torch.equal(ours[name], theirs[name]) for name in ours)
    assert straight.predict(["They"])[0].text == resumed.predict(["They"])[0].text
    assert resumed.recipe.model == recipe.model and resumed.recipe.model.dim == 8


@pytest.mark.parametrize("name", ["transformer", "gpt", "ngram", "cnn", "birnn"])
def test_a_file_that_hands_on_a_model_trains_like_it(place: Path, name: str) -> None:
    """The one promise and trial of each task, and what is fitted, are kept by the models that are here."""
    (place / "same.py").write_text(f"from regard.models.{name} import DESIGN\n")
    for task in sorted(KINDS.keys() & set(MODELS[name].tasks)):
        small = [
            f"model.{key}=8"
            for key in ("dim", "hidden", "embedding", "filters")
            if key in fields_of(MODELS[name].config)
        ]
        for model in (name, "same.py"):
            train(recipe_in(place, model, *small, task=task), place / f"{task}-{model}")
        ours, theirs = (read_tensors(place / f"{task}-{each}" / "model.safetensors")[0] for each in (name, "same.py"))
        assert ours.keys() == theirs.keys() and all(torch.equal(ours[key], theirs[key]) for key in ours)


# --- where the file is -------------------------------------------------------------------------------------------


def test_a_recipe_looks_in_its_folder_then_in_the_data_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("recipes", "data"):
        (place / name).mkdir()
        (place / name / "there.py").write_text(FILE)
    monkeypatch.setenv("REGARD_DATA", str(place / "data"))
    assert recipe_in(place / "recipes", "there.py").model_name == f"{place}/recipes/there.py"
    (place / "recipes" / "there.py").unlink()
    assert recipe_in(place / "recipes", "there.py").model_name == f"{place}/data/there.py"
    with pytest.raises(UserError, match=f"my_model.py' was not found: looked at {place}/recipes.* and {place}/data/my"):
        recipe_in(place / "recipes", "my_model.py")  # it is here, where the recipe is not
    typed = recipe_in(place / "recipes", "rnnsearch", "model.name=./my_model.py", "model.dim=4")
    assert (typed.model_name, typed.model.dim, typed.model_title) == (f"{place}/my_model.py", 4, "my_model")


def test_a_run_keeps_the_whole_path_and_the_hash(run: Path) -> None:
    recipe = read_recipe(run / "config.toml")[0]
    assert list(recipe.code()) == [str(run.parent / "my_model.py")] and Folder(run).facts()["code"] == recipe.code()


def test_a_user_defined_cell_works_in_a_user_defined_model(place: Path) -> None:
    (place / "my_cells.py").write_text("from regard.layers.cells import GRU\nclass Mine(GRU): pass\n")
    (place / "my_model.py").write_text("from regard.models.seq2seq import DESIGN\n")
    settings = ("model.cell=my_cells.py:Mine", "model.hidden=8", "model.embedding=8")
    out = train(recipe_in(place, "my_model.py", *settings), place / "run")
    assert list(Folder(out).facts()["code"]) == [f"{place}/my_cells.py", f"{place}/my_model.py"]
    (place / "my_cells.py").write_text("from regard.layers.cells import LSTM\nclass Mine(LSTM): pass\n")
    with pytest.raises(UserError, match=r"The code has changed since .*run was started \(.*/my_cells.py\)"):
        load(out)


# --- the file as it was ------------------------------------------------------------------------------------------


def test_a_changed_file_is_refused_and_not_executed(run: Path, call: Call) -> None:
    file, ran = run.parent / "my_model.py", run.parent / "ran"
    file.write_text(FILE + f"open({str(ran)!r}, 'w')\n")
    words = re.escape(
        f"The code has changed since {run} was started ({file}): restore it, or start a new run in another folder with "
        "model.name="
    )
    for refused in (load, lambda run: read_recipe(run / "config.toml")):
        with pytest.raises(UserError, match=words):
            refused(run)
    for command in (("predict", run), ("look", run, "They sleep ."), ("train", run / "config.toml", "-o", "again")):
        done = call(*command)
        assert done.code == 1 and re.match(f"regard: {words}", done.err) and done.err.count("\n") == 1
    assert "finished" in call("runs", run.parent).out
    assert not ran.exists()
    done = call("train", run / "config.toml", f"model.name={file}", "-o", "again")  # as the sentence says
    assert done.code == 0 and ran.exists(), done.err
    with pytest.raises(UserError, match=words):  # a recipe of one's own may execute it; the run goes on with no other
        Session(recipe_in(run.parent, "my_model.py", "model.dim=8", "train.steps=9"), run)
    file.write_text(FILE)
    assert load(run).predict(["They"])
    file.unlink()
    with pytest.raises(UserError, match="my_model.py' was not found"):
        load(run)


@pytest.mark.parametrize("said", ['"cod"', '"code": [1], "cod"', '"code": {"/x.py": "0"}, "cod"'])
def test_a_run_without_the_hash_of_its_code_is_refused(run: Path, said: str) -> None:
    facts = (run / "environment.json").read_text()
    (run / "environment.json").write_text(facts.replace('"code"', said))
    with pytest.raises(UserError, match="code has changed"):
        load(run)


LACKING = {  # of what would tell that it is a run
    "nothing": (),
    "folder": (),
    "facts": ("environment.json",),
    "all but config.toml": ("environment.json", "fields.json"),
}


@pytest.mark.parametrize("lacking", LACKING)
def test_a_run_brings_no_code(run: Path, lacking: str) -> None:
    """Though its config and its hash say that all is well."""
    place = run.parent
    for folder in (run, run / "data", place):
        (folder / "evil.py").write_text(f"open({str(place / 'ran')!r}, 'w')\n" + FILE)
    config, facts = ((run / name).read_text() for name in ("config.toml", "environment.json"))
    start = re.sub("folder = .*\n", "" if lacking == "folder" else 'folder = "."\n', config)
    for name in LACKING[lacking]:
        (run / name).unlink()
    for evil in (f"{run}/evil.py", f"{run}/data/evil.py", "evil.py", "../evil.py", "/proc/self/cwd/evil.py"):
        (run / "config.toml").write_text(start.replace(f"{place}/my_model.py", evil))
        if (run / "environment.json").exists():
            (run / "environment.json").write_text(facts.replace(f"{place}/my_model.py", evil))
        for read in (load, lambda run: read_recipe(run / "config.toml")):
            with pytest.raises(
                UserError, match="never executed|must be an absolute path|has changed|no environment.json"
            ):
                read(run)
    assert not (place / "ran").exists()


def test_a_link_into_a_run_is_no_way_around_nor_is_the_keyboard(run: Path) -> None:
    (run / "evil.py").write_text(FILE)
    (run.parent / "link.py").symlink_to(run / "evil.py")
    for name, typed in (("link.py", ()), ("rnnsearch", [f"model.name={run}/evil.py"])):
        with pytest.raises(UserError, match="never executed"):
            recipe_in(run.parent, name, *typed)


def test_a_run_is_not_started_around_its_code(place: Path) -> None:
    with pytest.raises(UserError, match="choose another run folder"):
        Session(recipe_in(place, "my_model.py"), place)
    assert not (place / "config.toml").exists()


def test_a_users_recipe_is_not_named_config(place: Path, call: Call) -> None:
    recipe_in(place, "my_model.py")
    (place / "recipe.toml").rename(place / "config.toml")
    done = call("train", "config.toml", *TINY, "-o", "run")
    assert done.code == 1 and "give your own recipe another name" in done.err
    assert call("train", "config.toml", "model.name=./my_model.py", "model.dim=8", *TINY, "-o", "run").code == 0


# --- what can be wrong -------------------------------------------------------------------------------------------

DIM, BUILT = "    dim: int = 192", "    return EncoderDecoder("
CLASH = "    def __post_init__(self):\n        assert self.dim > 999, 'narrow'\n"
TRIED = "my_model.py cannot learn from two examples: "
WRONG = {  # what stands there, what is written in its place, and what is said
    "raises": (
        FILE,
        "x = 1\n\nx / 0\n",
        r"my_model.py cannot be imported: line 3: ZeroDivisionError: division by zero\.",
    ),
    "no DESIGN": ("DESIGN =", "SIGN =", "my_model.py has no DESIGN: end it with DESIGN = Design"),
    "no Design": (FILE, "DESIGN = 3\n", "DESIGN in .*my_model.py is 3, and must be a Design"),
    "a task alone": ('("translation",)', '"translation"', "tasks in .* is 'translation', and must be a tuple"),
    "another task": ('"translation",', '"language",', "is for language, not for translation: choose another, or"),
    "no task": ('("translation",)', "()", "is for nothing, not for translation"),
    "no dataclass": ("@dataclass(frozen=True)", "", "config in .* is <class .*, and must be a dataclass: write @data"),
    "an instance": ("config=Config,", "config=Config(),", "config in .* must be a dataclass"),
    "no default": (DIM, "    dim: int", "The settings of .*my_model.py cannot be created: TypeError: .*'dim'"),
    "no such type": (DIM, "    dim: 'Int' = 3", "The settings of .* cannot be read: NameError: .*'Int'"),
    "an odd type": (DIM, "    dim: int | None = 3", r"The setting 'dim' of .* is int \| None, and must be a bool"),
    "an odd default": (DIM, "    dim: int = 3.5", "model.dim = 3.5 must be a whole number"),
    "a taken name": (DIM, f"{DIM}\n    name: str = ''", "has a setting 'name', which a recipe needs itself"),
    "a clash": ("\n\nclass Words", f"{CLASH}\n\nclass Words", r"cannot be created: line \d+: AssertionError: narrow"),
    "builds nothing": (BUILT, "    EncoderDecoder(", "build in .*my_model.py returned None, and must return a torch"),
    "build raises": (BUILT, "    config.wide\n" + BUILT, r"cannot be built: line \d+: AttributeError: .*'wide'"),
    "build leaves": (BUILT, "    raise SystemExit(3)\n" + BUILT, r"cannot be built: line \d+: SystemExit: 3"),
    "no promise": (
        BUILT,
        "    return nn.Sequential(",
        r"cannot be used for translation, since it lacks loss\(batch\) and start",
    ),
    "no step": ("def step", "def stop", f"{TRIED}AttributeError: 'Writer' .* 'step'"),
    "too wide": ("nn.Linear(2 *", "nn.Linear(3 *", rf"{TRIED}line \d+: RuntimeError: mat1 and mat2"),
    "one hypothesis": ("len(memory.values), -1,", "-1, 1,", rf"{TRIED}line \d+: RuntimeError: "),
}


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_wrong_with_a_file_is_one_sentence_before_the_data_is_read(place: Path, call: Call, fault: str) -> None:
    there, instead, words = WRONG[fault]
    assert FILE.count(there) == 1
    recipe_in(place, "rnnsearch")
    (place / "my_model.py").write_text(FILE.replace(there, instead))
    done = call("train", "recipe.toml", "model.name=./my_model.py", *TINY, "-o", "run")
    said = done.err.splitlines()
    assert done.code == 1 and len(said) == 1 and said[0].startswith("regard: ") and re.search(words, said[0]), done.err
    assert not (place / "run").exists() or not [*(place / "run").iterdir()]


@pytest.mark.parametrize(
    "setting, words",
    [
        ("model.name=none.py", "'none.py' was not found: looked at .*/none.py"),
        ("model.name=folder.py", "'folder.py' is not a file: name the Python file that the model is in"),
        ("model.name=my_model.py:Writer", "'my_model.py:Writer' was not found"),
        ("model.name=my_model", "model.name = 'my_model' does not exist: allowed are"),
        ("model.dimm=3", "The key 'model.dimm' does not exist: did you mean 'model.dim'"),
        ("model.preset=big", "The preset of .*my_model.py 'big' does not exist: allowed are none"),
    ],
)
def test_what_is_wrong_with_a_setting_is_one_sentence(place: Path, call: Call, setting: str, words: str) -> None:
    (place / "folder.py").mkdir()
    recipe_in(place, "my_model.py")
    done = call("train", "recipe.toml", *TINY, setting, "-o", "run")
    assert done.code == 1 and re.search(words, done.err) and done.err.count("\n") == 1, done.err


# --- settings ----------------------------------------------------------------------------------------------------


def test_every_kind_of_setting_may_be_in_a_users_file() -> None:
    assert all(is_setting(kind) for design in MODELS.values() for kind in fields_of(design.config).values())
    assert not any(map(is_setting, (None, int | None, list[int], tuple[int, int], dict, Path, int | str)))


def test_help_is_found_in_the_class_that_has_it_or_there_is_none(place: Path) -> None:
    (place / "more.py").write_text(
        "import dataclasses\nfrom regard.models.transformer import Config, DESIGN\n\n\n"
        "@dataclasses.dataclass(frozen=True)\nclass More(Config):\n    lambda_: float = 0.5  # how much of it\n\n\n"
        "DESIGN = dataclasses.replace(DESIGN, config=More, presets={'half': More(lambda_=0.25)})\n"
    )
    recipe = recipe_in(place, "more.py", "model.preset=half", "model.layers=1")
    assert help_texts(type(recipe.model)) == {**help_texts(transformer.Config), "lambda": "how much of it"}
    assert "lambda = 0.25 " in recipe.to_toml() and "# how much of it" in recipe.to_toml()
    made = dataclasses.make_dataclass("Made", [("dim", int, 3)], frozen=True)
    assert help_texts(made) == {}


def test_a_model_is_shown_by_its_files_name() -> None:
    assert [usercode.title(name) for name in ("/a/b/my_model.py", "rnnsearch")] == ["my_model", "rnnsearch"]
    assert all(design_of(name) is design for name, design in MODELS.items())

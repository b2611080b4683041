"""A cell in a person's own file trains by its path; what is wrong with it is a sentence; a run brings no code."""

from __future__ import annotations

import os
import re
import shlex
import shutil
import sys
from itertools import islice
from pathlib import Path
from typing import Any

import pytest
import torch
from command import Call
from pages import ROOT, commands_in, python_in

import regard
from regard import usercode
from regard.checkpoint import Folder
from regard.data.tensors import read_tensors
from regard.interface import UserError
from regard.layers.cells import Cell, cell_named
from regard.loading import load, read_recipe
from regard.recipe import Recipe
from regard.train.session import Session

FILE, LOOK = python_in("cells.md")
TINY = ("train.steps=2", "train.validate_every=2", "data.sentences=60", "data.valid=3", "train.batch_tokens=300")
SMALL = (*TINY, "model.embedding=8", "model.hidden=8")
MODELS = {"rnn_lm": "language", "seq2seq": "translation", "rnnsearch": "translation"}


@pytest.fixture
def place(place: Path) -> Path:
    (place / "my_cells.py").write_text(FILE, encoding="utf-8")
    return place


def recipe_in(folder: Path, cell: str, *settings: str, model: str = "rnn_lm") -> Recipe:
    folder.mkdir(exist_ok=True)
    text = f'task = "{MODELS[model]}"\n[data]\nname = "world"\n[tokens]\nkind = "characters"\nsize = 0\n'
    (folder / "recipe.toml").write_text(text + f"[model]\nname = '{model}'\ncell = '{cell}'\n", encoding="utf-8")
    return read_recipe(folder / "recipe.toml", [*SMALL, *settings])[0]


def finish(session: Session) -> None:
    for _ in session.steps():
        pass


@pytest.fixture
def run(place: Path) -> Path:
    finish(Session(recipe_in(place, "my_cells.py:Leaky"), place / "run"))
    return place / "run"


def test_the_page_does_what_it_says(place: Path, call: Call, capfd: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(ROOT / "regard" / "recipes", place / "recipes")
    commands = commands_in("cells.md")
    assert any(command.startswith("regard train") for command in commands)
    for command in commands:
        regard_itself, *arguments = shlex.split(command)
        assert regard_itself == "regard"
        budget = (*TINY, "train.minutes=1") if arguments[0] == "train" else ()
        done = call(*arguments, *budget)
        assert done.code == 0, f"{command}: {done.err}"
    exec(compile(LOOK, "docs/cells.md", "exec"), {})
    # σ(0), and little has been learnt
    assert float(re.findall(r"kept at each step: (\S+),", capfd.readouterr().out)[0]) == pytest.approx(0.5, abs=0.05)


@pytest.mark.parametrize("model", MODELS)
def test_it_trains_resumes_and_loads_in_every_model_that_has_a_cell(place: Path, model: str) -> None:
    finish(Session(recipe_in(place, "my_cells.py:Leaky", "train.steps=4", model=model), place / "straight"))
    halted = Session(recipe_in(place, "my_cells.py:Leaky", "train.steps=4", model=model), place / "run")
    list(islice(halted.steps(), 2))
    halted.save()
    finish(Session(recipe_in(place, "my_cells.py:Leaky", "train.steps=4", model=model), place / "run"))
    runs = [load(place / name) for name in ("straight", "run")]
    assert sum(type(part).__name__ == "Leaky" for part in runs[0].model.modules()) >= 1
    straight, resumed = (dict(each.model.named_parameters()) for each in runs)
    assert all(torch.equal(straight[name], resumed[name]) for name in straight)
    assert runs[0].predict(["They"])[0].text == runs[1].predict(["They"])[0].text


def test_a_cell_that_is_a_copy_of_a_built_in_one_trains_like_it(place: Path) -> None:
    (place / "copies.py").write_text("from regard.layers.cells import GRU\nclass Mine(GRU): pass\n")
    for name, cell in (("plain", "gru"), ("own", "copies.py:Mine")):
        finish(Session(recipe_in(place, cell), place / name))
    plain, mine = (read_tensors(place / name / "model.safetensors")[0] for name in ("plain", "own"))
    assert plain.keys() == mine.keys() and all(torch.equal(plain[name], mine[name]) for name in plain)


# --- where the file is -------------------------------------------------------------------------------------------


def test_a_recipe_looks_in_its_folder_then_in_the_data_folder(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("recipes", "data"):
        (place / name).mkdir()
        (place / name / "there.py").write_text(FILE)
    monkeypatch.setenv("REGARD_DATA", str(place / "data"))
    assert recipe_in(place / "recipes", "there.py:Leaky").model.cell == f"{place}/recipes/there.py:Leaky"
    (place / "recipes" / "there.py").unlink()
    assert recipe_in(place / "recipes", "there.py:Leaky").model.cell == f"{place}/data/there.py:Leaky"
    assert recipe_in(place / "recipes", f"{place}/my_cells.py:Leaky").model.cell == f"{place}/my_cells.py:Leaky"
    with pytest.raises(UserError, match=f"my_cells.py' was not found: looked at {place}/recipes.* and {place}/data/my"):
        recipe_in(place / "recipes", "my_cells.py:Leaky")  # it is here, where the recipe is not


def test_at_the_keyboard_the_current_folder_comes_first(place: Path) -> None:
    (place / "recipes").mkdir()
    (place / "recipes" / "my_cells.py").write_text(FILE)
    (place / "recipes" / "other.py").write_text(FILE)

    def typed(cell: str) -> Any:
        return recipe_in(place / "recipes", "gru", f"model.cell={cell}").model.cell

    assert typed("./my_cells.py:Leaky") == typed("my_cells.py:Leaky") == f"{place}/my_cells.py:Leaky"
    assert typed("other.py:Leaky") == f"{place}/recipes/other.py:Leaky"
    with pytest.raises(UserError, match=f"looked at {place}/none.py and {place}/recipes/none.py"):
        typed("none.py:Leaky")


def test_a_run_keeps_the_whole_path_and_the_hash(run: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (file,) = read_recipe(run / "config.toml")[0].code()
    assert file == str(run.parent / "my_cells.py") and f'cell = "{file}:Leaky"' in (run / "config.toml").read_text()
    assert Folder(run).facts()["code"] == read_recipe(run / "config.toml")[0].code()
    monkeypatch.chdir("/")
    assert load(run).predict(["T"])[0].text
    assert not list(run.parent.glob("__pycache__")) and str(run.parent) not in sys.path


def test_a_runs_recipe_is_trained_with_another_cell_from_here(run: Path, call: Call) -> None:
    (run.parent / "other.py").write_text(FILE.replace("Leaky", "Other"))
    done = call("train", run / "config.toml", "model.cell=./other.py:Other", "-o", run.parent / "again")
    assert done.code == 0, done.err


# --- the file as it was ------------------------------------------------------------------------------------------


def test_a_changed_file_is_refused_and_not_executed(run: Path, call: Call) -> None:
    file = run.parent / "my_cells.py"
    marked = f"open({str(run.parent / 'ran')!r}, 'w')\n"
    file.write_text(FILE + marked)
    words = re.escape(f"The code has changed since {run} was started ({file})")
    with pytest.raises(UserError, match=words):
        load(run)
    with pytest.raises(UserError, match=words):
        Session(recipe_in(run.parent, "my_cells.py:Leaky", "train.steps=9"), run)
    done = call("predict", run, "--prompt", "The")
    assert done.code == 1 and done.err.startswith("regard: The code has changed") and done.err.count("\n") == 1
    assert not (run.parent / "ran").exists()
    file.write_text(FILE)
    assert load(run).predict(["T"])
    file.unlink()
    with pytest.raises(UserError, match="my_cells.py' was not found"):
        load(run)


def test_a_run_without_the_hash_of_its_code_is_refused(run: Path) -> None:
    facts = (run / "environment.json").read_text()
    (run / "environment.json").write_text(facts.replace('"code"', '"cod"'))
    with pytest.raises(UserError, match="code has changed"):
        load(run)


@pytest.mark.parametrize(
    "cell", ["{run}/evil.py", "{run}/data/evil.py", "evil.py", "../evil.py", "/proc/self/cwd/evil.py"]
)
def test_a_run_brings_no_code(run: Path, cell: str) -> None:
    """Though its config and its hash say that all is well."""
    place = run.parent
    evil = f"open({str(place / 'ran')!r}, 'w')\n" + FILE
    for folder in (run, run / "data", place):
        (folder / "evil.py").write_text(evil)
    cell = cell.format(run=run)
    text = (run / "config.toml").read_text().replace(f"{place}/my_cells.py", cell)
    (run / "config.toml").write_text(text.replace(f'folder = "{place}"', 'folder = "."'))
    facts = (run / "environment.json").read_text().replace(f"{place}/my_cells.py", cell)
    (run / "environment.json").write_text(facts)
    with pytest.raises(UserError, match="never executed|must be an absolute path"):
        load(run)
    with pytest.raises(UserError, match="never executed|must be an absolute path"):
        read_recipe(run / "config.toml")
    with pytest.raises(UserError, match="never executed"):
        recipe_in(place, "gru", f"model.cell={run}/evil.py:Leaky")
    assert not (place / "ran").exists()


def test_a_link_into_a_run_is_no_way_around(run: Path) -> None:
    (run / "evil.py").write_text(FILE)
    (run.parent / "link.py").symlink_to(run / "evil.py")
    with pytest.raises(UserError, match="never executed"):
        recipe_in(run.parent, "link.py:Leaky")


def test_a_run_is_not_started_around_its_code(place: Path) -> None:
    with pytest.raises(UserError, match="choose another run folder"):
        Session(recipe_in(place, "my_cells.py:Leaky"), place)
    assert not (place / "config.toml").exists()


# --- what can be wrong -------------------------------------------------------------------------------------------

STEP = "    def step(self, projected, state):"
WRONG = {
    "syntax": ("def (:\n", "cannot be imported: line 1: SyntaxError: "),
    "null": ("x = '\0'\n", "cannot be imported: .*null"),
    "not UTF-8": ("x = '\udcff'\n", "cannot be imported: .*SyntaxError"),
    "raises": ("x = 1\n\nx / 0\n", r"cannot be imported: line 3: ZeroDivisionError: division by zero\."),
    "raises deeper": ("def f():\n    return {}['a']\nf()\n", "cannot be imported: line 2: KeyError: 'a'"),
    "leaves": ("import sys\nsys.exit(3)\n", "cannot be imported: line 2: SystemExit: 3"),
    "imports a neighbour": ("import my_helpers\n", "line 1: ModuleNotFoundError: No module named 'my_helpers'"),
    "empty": ("", "the Cell 'Leaky' does not exist: allowed are none"),
    "misspelt": (FILE.replace("Leaky", "Leeky"), "the Cell 'Leaky' does not exist: did you mean 'Leeky'"),
    "a function": ("def Leaky(): pass\n", "not a subclass of Cell: there is none in that file"),
    "no Cell": (FILE + "Other, Leaky = Leaky, int\n", "not a subclass of Cell: there is Other in that file"),
    "Cell itself": ("from regard import Cell as Leaky\n", "not a subclass of Cell"),
    "no step": (FILE.replace("def step", "def stop"), "cannot run a step: TypeError: Can't instantiate .*step"),
    "other sizes": (FILE.replace("input_dim, hidden):", "width):"), "cannot run a step: TypeError: .*input_dim"),
    "no super": (re.sub(r"super.*\n", "pass\n", FILE), "cannot run a step: line 9: AttributeError: "),
    "wrong width": (FILE.replace("projected +", "projected[:, 1:] +"), "hidden=8 cannot run a step: line 18: Runt"),
    "two states": (FILE.replace("(h,), a = state,", "h, c, a = *state,"), "cannot run a step: line 17: ValueError: "),
    "a bare tensor": (FILE.replace(",)\n\n    def gates", ")\n\n    def gates"), r"a tuple.*made \(2, 8\) of"),
    "narrower": (re.sub(r"return \(a.*", "return (h[:, 1:],)", FILE), r"and made \(\(2, 7\),\) of \(\(2, 8\),\)"),
    "time lost": (FILE.replace("self.read(x)", "self.read(x).flatten(0, -2)[:, None]"), "must change the last"),
}  # fmt: skip


@pytest.mark.parametrize("fault", WRONG)
def test_what_is_wrong_with_a_file_is_one_sentence_before_the_data_is_read(place: Path, call: Call, fault: str) -> None:
    content, words = WRONG[fault]
    (place / "my_cells.py").write_bytes(content.encode("utf-8", "surrogateescape"))
    recipe_in(place, "my_cells.py:Leaky")
    done = call("train", "recipe.toml", *SMALL, "-o", "run")
    assert done.code == 1 and done.err.startswith("regard: ") and done.err.count("\n") == 1
    assert re.search(words, done.err) and str(place / "my_cells.py") in done.err, done.err
    assert not [*(place / "run").iterdir()]


@pytest.mark.parametrize(
    "cell, words",
    [
        ("none.py:Leaky", "'none.py' was not found: looked at .*/none.py;"),
        ("folder.py:Leaky", "is not a file: name the Python file that Leaky is in"),
        ("my_cells.py", "names a file but no class in it: write my_cells.py:Name"),
        ("my_cells.py:", "names a file but no class in it: write my_cells.py:Name"),
        ("lsmt", "did you mean 'lstm'"),
        ("Leaky", "model.cell = 'Leaky' does not exist: allowed are tanh"),
        ("my_cells:Leaky", "does not exist: allowed are"),
        ("3", "does not exist: allowed are"),
    ],
)
def test_what_is_wrong_with_a_place_is_one_sentence(place: Path, call: Call, cell: str, words: str) -> None:
    (place / "folder.py").mkdir()
    recipe_in(place, "gru")
    done = call("train", "recipe.toml", *SMALL, f"model.cell={cell}", "-o", "run")
    assert done.code == 1 and re.search(words, done.err) and done.err.count("\n") == 1, done.err


def test_a_file_without_read_permission_is_reported(place: Path) -> None:
    (place / "my_cells.py").chmod(0)
    if os.access(place / "my_cells.py", os.R_OK):
        pytest.skip("this user may read everything")
    with pytest.raises(UserError, match="cannot be read"):
        usercode.module(place / "my_cells.py")


# --- loading -----------------------------------------------------------------------------------------------------


def test_a_file_is_run_once_and_again_when_it_changes(place: Path) -> None:
    file = place / "counted.py"
    file.write_text(f"open({str(place / 'ran')!r}, 'a').write('1')\n{FILE}")
    before = file.stat()
    usercode.trust(file)
    first = usercode.part(f"{file}:Leaky", Cell)  # type: ignore[type-abstract]
    assert usercode.part(f"{file}:Leaky", Cell) is first  # type: ignore[type-abstract]
    assert (place / "ran").read_text() == "1"
    file.write_text(file.read_text().replace("write('1')", "write('2')"))
    usercode.trust(file)
    os.utime(file, ns=(before.st_atime_ns, before.st_mtime_ns))  # as a compiled copy would not notice
    assert usercode.part(f"{file}:Leaky", Cell) is not first  # type: ignore[type-abstract]
    assert (place / "ran").read_text() == "12"


def test_two_files_of_one_name_are_two_modules(place: Path) -> None:
    (place / "below").mkdir()
    shutil.copy(place / "my_cells.py", place / "below")
    usercode.trust(place / "my_cells.py")
    one, other = (usercode.module(folder / "my_cells.py") for folder in (place, place / "below"))
    assert one is not other and one.__file__ != other.__file__


def test_what_looks_for_a_classs_module_finds_it(place: Path) -> None:
    """A dataclass with annotations that are strings does."""
    (place / "typed.py").write_text(
        "from __future__ import annotations\nfrom dataclasses import dataclass\n@dataclass\nclass C:\n    a: int = 3\n"
    )
    usercode.trust(place / "typed.py")
    assert usercode.module(place / "typed.py").C().a == 3


def test_cell_is_exported() -> None:
    assert regard.Cell is Cell and "Cell" in regard.__all__
    assert cell_named("lstm")(input_dim=2, hidden=3).hidden == 3

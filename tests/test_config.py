"""Laws of recipes: what is written reads back the same, and whoever misspells is told what they meant."""

from __future__ import annotations

import dataclasses
import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from regard import recipe as recipes
from regard.config import fields_of, help_texts, override, parse, parse_value, to_toml, write_table
from regard.data.sources import find
from regard.interface import UserError
from regard.loading import demo_recipe, read_recipe, shipped
from regard.models import MODELS, models_for
from regard.recipe import Recipe
from regard.tasks.registry import TASKS
from regard.train.training import TrainConfig

RECIPES = shipped("demo").parent
SOURCES = [source for task in TASKS.values() for source in task.sources.values()]

PARALLEL = {"name": "parallel", "source": "a", "target": "b", "valid_source": "c", "valid_target": "d"}


TEXT = {"name": "text", "train": "a", "valid": "c"}


def as_text(data: dict[str, Any]) -> dict[str, Any]:
    """The same for a language model."""
    return TEXT if data is PARALLEL else data


def table(**sections: Any) -> dict[str, Any]:
    """The least recipe there is, with some sections in other words."""
    least: dict[str, Any] = {
        "task": "translation",
        "data": {"name": "world"},
        "model": {"name": "rnnsearch"},
        "train": {"steps": 7},
    }
    return {**least, **sections}


def parse_recipe(table: dict[str, Any], folder: Path = Path()) -> Recipe:
    return recipes.parse_recipe(table, tasks=TASKS, folder=folder)


def reread(recipe: Recipe) -> Recipe:
    return parse_recipe(tomllib.loads(recipe.to_toml()), folder=recipe.folder)


@pytest.mark.parametrize("path", sorted(RECIPES.glob("*.toml")), ids=lambda path: path.stem)
def test_every_recipe_that_ships_is_read_without_remarks_and_says_all_it_means(path):
    recipe, remarks = read_recipe(path)
    assert remarks == []
    assert reread(recipe) == recipe


def written(folder: Path, **sections: Any) -> Path:
    path = folder / "toy.toml"
    path.write_text(parse_recipe(table(**sections)).to_toml())
    return path


# There and back

PRESETS = [(name, preset) for name, design in MODELS.items() for preset in (None, *design.presets)]


@pytest.mark.parametrize("name, preset", PRESETS)
@pytest.mark.parametrize("data", [{"name": "world"}, PARALLEL])
def test_a_recipe_reads_back_the_same(name, preset, data):
    model = {"name": name} if preset is None else {"name": name, "preset": preset}
    task = MODELS[name].tasks[0]
    pictures = {"name": "npz", "train": "a", "valid": "b"}
    own = {"pictures": pictures, "captioning": {"name": "scenes"}, "speech": {"name": "spoken"}}
    of_task = {"translation": data, "language": as_text(data), **own}.get(task, {"name": "world"})
    recipe = parse_recipe(table(task=task, model=model, data=of_task))
    assert recipe.model == (MODELS[name].config() if preset is None else MODELS[name].presets[preset])
    assert reread(recipe) == recipe
    assert reread(recipe).differences(recipe) == []


@pytest.mark.parametrize(
    "config",
    [TrainConfig, *(task.tokens for task in TASKS.values()), *SOURCES, *(d.config for d in MODELS.values())],
)
def test_every_field_explains_itself(config):
    helps = help_texts(config)
    assert list(helps) == list(fields_of(config))
    for name, text in helps.items():
        assert text, f"{config.__qualname__}.{name} has no trailing comment"


def test_a_written_recipe_is_complete_and_commented():
    recipe = parse_recipe(table())
    read = tomllib.loads(recipe.to_toml())
    for section in ("data", "tokens", "model", "train"):
        config = recipe.__dict__[section]
        assert [key for key in read[section] if key != "name"] == list(fields_of(type(config)))
        for text in help_texts(type(config)).values():
            assert f"# {text}\n" in recipe.to_toml()


def test_the_recipe_of_a_run_says_which_format_its_files_have(tmp_path):
    recipe = parse_recipe(table(), folder=tmp_path)
    placed = tomllib.loads(recipe.to_toml(placed=True))
    assert parse_recipe(placed, folder=tmp_path / "elsewhere") == recipe
    for other in ({}, {"format": 1}, {"format": "2"}, {"format": placed["format"] + 1}):
        of_another = {**{key: value for key, value in placed.items() if key != "format"}, **other}
        with pytest.raises(UserError, match=r"another version of regard .*: train it again .*in another folder\.$"):
            parse_recipe(of_another, folder=tmp_path)


values = st.one_of(
    st.booleans(),
    st.integers(-(2**63), 2**63 - 1),
    st.floats(allow_nan=False),
    st.text(st.characters(codec="utf-8")),
    st.lists(st.text(st.characters(codec="utf-8"))).map(tuple),
)


@given(value=values)
def test_every_value_reads_back_the_same(value):
    read = tomllib.loads(f"value = {to_toml(value)}")["value"]
    read = tuple(read) if isinstance(read, list) else read
    assert read == value
    assert type(read) is type(value)


SHIPPED = sorted(RECIPES.glob("*.toml"))


@pytest.mark.parametrize("path", SHIPPED, ids=[path.stem for path in SHIPPED])
def test_recipes_that_ship_are_whole(path):
    recipe, remarks = read_recipe(path)
    assert remarks == []
    assert reread(recipe) == recipe


def test_a_demo_is_of_the_model_it_is_named_after():
    names = [path.stem.removeprefix("demo-") for path in SHIPPED if path.stem.startswith("demo-")]
    models = [name for name in names if name in MODELS]
    assert "rnnsearch" in models
    assert [demo_recipe(MODELS[name].tasks[0], name).model_name for name in models] == models
    tasks = [name for name in names if name in TASKS and not TASKS[name].stages]
    for task in tasks:
        assert [demo_recipe(task, model).task.name for model in models_for(task)[:2]] == [task, task]


def test_a_demo_of_a_model_that_is_not_there():
    with pytest.raises(UserError, match="'rnsearch' does not exist: did you mean 'rnnsearch'"):
        demo_recipe("translation", "rnsearch")


# What is wrong


@dataclass(frozen=True)
class Every:
    """One field of each kind."""

    must: int  # has no default
    yes: bool = True  # a truth
    share: float = 0.5  # a number
    name: str = "x"  # a text
    kind: Literal["one", "other"] = "one"  # a choice
    several: tuple[str, ...] = ()  # a list
    long: str = (
        "so long that a formatter put it on a line of its own, as formatters do with whatever is long enough"  # wrapped
    )

    def __post_init__(self) -> None:
        if self.share > 1:
            raise ValueError(f"share = {self.share} must be at most 1.")


@pytest.mark.parametrize(
    "given_values, sentence",
    [
        ({"must": 1, "shar": 1.0}, "The key 'every.shar' does not exist: did you mean 'every.share'?"),
        ({"must": 1, "zzz": 1.0}, "The key 'every.zzz' does not exist: allowed are every.must, every.yes"),
        ({}, "The recipe has no every.must: has no default."),
        ({"must": "1"}, "every.must = '1' must be a whole number."),
        ({"must": 1.0}, "every.must = 1.0 must be a whole number."),
        ({"must": True}, "every.must = True must be a whole number."),
        ({"must": 1, "yes": 1}, "every.yes = 1 must be true or false."),
        ({"must": 1, "share": "half"}, "every.share = 'half' must be a number."),
        ({"must": 1, "share": True}, "every.share = True must be a number."),
        ({"must": 1, "name": 5}, "every.name = 5 must be a text in quotes."),
        ({"must": 1, "kind": "othr"}, "every.kind = 'othr' does not exist: did you mean 'other'?"),
        ({"must": 1, "kind": ["one"]}, "every.kind"),
        ({"must": 1, "several": "one"}, "every.several = 'one' must be a list."),
        ({"must": 1, "several": ["one", 2]}, "every.several = 2 must be a text in quotes."),
        ({"must": 1, "share": 2.0}, "In [every]: share = 2.0 must be at most 1."),
    ],
)
def test_wrong_values_are_named_with_the_remedy(given_values, sentence):
    with pytest.raises(UserError) as refused:
        parse(Every, given_values, where="every")
    assert sentence in str(refused.value)


def test_right_values():
    parsed = parse(Every, {"must": 3, "share": 1, "several": ["a", "b"], "kind": "other"}, where="every")
    assert parsed == Every(must=3, share=1.0, several=("a", "b"), kind="other")
    assert type(parsed.share) is float
    assert parse(Every, tomllib.loads(write_table("every", parsed))["every"], where="every") == parsed
    assert help_texts(Every)["long"] == "wrapped"


@pytest.mark.parametrize(
    "sections, sentence",
    [
        ({"modle": {}}, "'modle' does not exist: did you mean 'model'?"),
        ({"task": "translate"}, "'translate' does not exist: did you mean 'translation'?"),
        ({"seed": -1}, "seed = -1 must be a whole number"),
        ({"seed": 1 << 63}, "must be a whole number"),
        ({"seed": 1.0}, "seed = 1.0 must be a whole number"),
        ({"seed": True}, "seed = True must be a whole number"),
        ({"model": {"name": "transformr"}}, "model.name = 'transformr' does not exist: did you mean 'transformer'?"),
        ({"model": {}}, "The recipe has no model.name: it must be one of seq2seq, rnnsearch, convs2s, transformer"),
        ({"model": {"name": "transformer", "preset": "tny"}}, "did you mean 'tiny'?"),
        ({"model": {"name": "seq2seq", "preset": "tiny"}}, "'tiny' does not exist"),
        ({"model": {"name": "transformer", "dim": 7}}, "dim = 7 must be a multiple of heads = 4"),
        ({"model": {"name": "rnnsearch", "heads": 3}}, "hidden = 256 must be a multiple of heads = 3"),
        ({"model": "rnnsearch"}, "must be a section: write [model]"),
        ({"data": {"name": "parallel", "source": "a"}}, "The recipe has no data.target"),
        ({"train": {}}, "training would never end"),
        ({"tokens": {"kind": "letters"}}, "tokens.kind = 'letters' does not exist"),
    ],
)
def test_a_recipe_that_cannot_be_says_why(sections, sentence):
    with pytest.raises(UserError) as refused:
        parse_recipe(table(**sections))
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    "content, sentence",
    [(b"task = ", "not valid TOML"), (b"\xff\xfe", "not UTF-8"), (None, "does not exist")],
)
def test_a_file_that_is_no_recipe(tmp_path, content, sentence):
    path = tmp_path / "x.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(UserError, match=sentence):
        read_recipe(path)


# Settings over a recipe


@pytest.mark.parametrize(
    "text, value",
    [
        ("4", 4),
        ("0.1", 0.1),
        ("1e-3", 1e-3),
        ("true", True),
        ('["a", "b"]', ["a", "b"]),
        ('"4"', "4"),
        ("lstm", "lstm"),
        ("a/b c.txt", "a/b c.txt"),
        ("", ""),
    ],
)
def test_a_value_on_the_command_line(text, value):
    assert parse_value(text) == value
    assert type(parse_value(text)) is type(value)


@given(text=st.text(st.characters(codec="utf-8")))
def test_any_text_on_the_command_line_is_a_value(text):
    parse_value(text)


def test_settings_go_where_they_say():
    nested: dict[str, Any] = {"model": {"hidden": 5}}
    override(nested, "model.hidden=7")
    override(nested, "train.steps = 11")
    override(nested, "seed=2")
    override(nested, "data.source=a=b.txt")
    assert nested == {
        "model": {"hidden": 7},
        "train": {"steps": 11},
        "seed": 2,
        "data": {"source": "a=b.txt"},
    }


@pytest.mark.parametrize("setting", ["model.hidden", "=5", "model.=5", ""])
def test_what_is_no_setting(setting):
    with pytest.raises(UserError, match="section.key=value"):
        override({}, setting)


def test_a_setting_inside_a_value():
    with pytest.raises(UserError, match="'seed' is a value, not a section"):
        override({"seed": 1}, "seed.x=5")


def test_settings_over_a_file(tmp_path):
    path = written(tmp_path)
    recipe, remarks = read_recipe(path, ["model.hidden=7", "train.steps=11", "seed=5"])
    before, _ = read_recipe(path)
    assert remarks == []
    assert recipe.differences(before) == ["model.hidden", "seed", "train.steps"]
    assert recipe.folder == tmp_path
    with pytest.raises(UserError, match=r"'model\.hiden' does not exist: did you mean 'model\.hidden'"):
        read_recipe(path, ["model.hiden=7"])


@pytest.mark.parametrize("order", [(0, 1), (1, 0)])
def test_another_model_goes_back_to_its_preset_and_says_so(tmp_path, order):
    path = written(tmp_path, model={"name": "rnnsearch", "hidden": 11, "dropout": 0.5})
    settings = ["model.name=transformer", "model.layers=1"]
    recipe, (remark,) = read_recipe(path, [settings[place] for place in order])
    assert recipe.model == dataclasses.replace(MODELS["transformer"].config(), layers=1)
    assert remark.startswith("model.name=transformer: model.cell, model.dropout, model.embedding,")


def test_a_preset_on_the_command_line(tmp_path):
    path = written(tmp_path, model={"name": "transformer", "dropout": 0.5})
    recipe, remarks = read_recipe(path, ["model.preset=base", "model.heads=4"])
    assert recipe.model == dataclasses.replace(MODELS["transformer"].presets["base"], heads=4)
    assert len(remarks) == 1
    recipe, _ = read_recipe(path, ["model.name=transformer", "model.preset=big"])
    assert recipe.model == MODELS["transformer"].presets["big"]


# Paths


def test_paths_start_at_the_recipe_then_at_regard_data(tmp_path, monkeypatch):
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "both").write_text("")
    (there / "one").write_text("")
    monkeypatch.delenv("REGARD_DATA", raising=False)
    assert find("both", here) == here / "both"
    with pytest.raises(UserError) as refused:
        find("one", here)
    assert str(here / "one") in str(refused.value) and "REGARD_DATA" in str(refused.value)
    monkeypatch.setenv("REGARD_DATA", str(there))
    assert find("both", here) == here / "both"
    assert find("one", here) == there / "one"
    assert find(str(there / "both"), here) == there / "both"
    with pytest.raises(UserError) as refused:
        find("none", here)
    assert str(here / "none") in str(refused.value) and str(there / "none") in str(refused.value)


def test_a_metric_that_the_task_does_not_measure_is_refused():
    said = {"task": "language", "data": {"name": "world"}, "model": {"name": "gpt"}}
    with pytest.raises(UserError, match="For language, train.metric = 'bleu'.*loss"):
        parse_recipe({**said, "train": {"steps": 1, "metric": "bleu"}})


@pytest.mark.parametrize(
    ("text", "value"),
    [(".8", 0.8), ("5.", 5.0), ("-.5e3", -500.0), ("+.5", 0.5), (".", "."), ("1.2.3", "1.2.3"), (".e5", ".e5")],
)
def test_numbers_as_people_write_them(text, value):
    assert parse_value(text) == value

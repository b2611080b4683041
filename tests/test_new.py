"""Laws of `new`: the recipe it writes trains as it stands, and grows with the text."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from regard.data.sources import pairs
from regard.interface import UserError
from regard.models import MODELS
from regard.new.recipes import MEDIUM, Survey, choose_language, choose_size, choose_tokens, data_of, new, new_language
from regard.recipe import Recipe, read_recipe
from regard.train.session import Session

TRANSLATORS = [name for name, design in MODELS.items() if "translation" in design.tasks]
LANGUAGE_MODELS = [name for name, design in MODELS.items() if "language" in design.tasks]
LINES = [f"number {n} and {n % 7}" for n in range(499)]


@pytest.fixture
def text(tmp_path, monkeypatch) -> Path:
    """Two parallel files, a table and an object file of the same lines, in the current folder."""
    folder = tmp_path / "text"
    folder.mkdir()
    monkeypatch.chdir(tmp_path)
    upper = [line.upper() for line in LINES]
    (folder / "train.en").write_text("".join(f"{line}\n" for line in LINES))
    (folder / "train.de").write_text("".join(f"{line}\n" for line in upper))
    (folder / "both.tsv").write_text("".join(f"{a}\t{b}\n" for a, b in zip(LINES, upper, strict=True)))
    objects = (json.dumps({"en": a, "de": b}) for a, b in zip(LINES, upper, strict=True))
    (folder / "both.jsonl").write_text("".join(f"{line}\n" for line in objects))
    return folder


FORMS = {
    "parallel": {"file": None, "source": "text/train.en", "target": "text/train.de"},
    "tsv": {"file": "text/both.tsv", "source": "1", "target": "2"},
    "jsonl": {"file": "text/both.jsonl", "source": "en", "target": "de"},
}


def made(form: str, folder: Path, model: str = "transformer") -> tuple[Recipe, dict[str, str]]:
    name, data = data_of(**FORMS[form], valid=None, valid_file=None, folder=folder)
    return new(name, data, folder=folder, model=model)


@pytest.mark.parametrize("form", FORMS)
def test_the_recipe_reads_as_written_from_where_it_lies(text, tmp_path, form):
    recipe, reasons = made(form, tmp_path)
    (tmp_path / "my.toml").write_text(recipe.to_toml(reasons=reasons))
    again, _ = read_recipe(tmp_path / "my.toml")
    assert again == recipe
    assert reasons.keys() <= recipe.flat().keys()


@pytest.mark.parametrize("form", FORMS)
def test_what_is_held_out_is_apart_and_nothing_is_lost(text, tmp_path, form):
    recipe, _ = made(form, tmp_path)
    train, valid = (list(pairs(recipe.data, split, tmp_path)) for split in ("train", "valid"))
    assert not set(train) & set(valid)
    assert sorted(train + valid) == sorted((line, line.upper()) for line in LINES)
    assert 0 < len(valid) < len(LINES) / 5


def test_a_recipe_elsewhere_finds_the_files(text, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    recipe, _ = made("parallel", elsewhere)
    assert sum(1 for _ in recipe.data.lines("train", elsewhere)) > 400


@pytest.mark.parametrize("model", TRANSLATORS)
def test_the_recipe_trains_as_it_stands(text, tmp_path, model):
    recipe, reasons = made("parallel", tmp_path, model)
    (tmp_path / "my.toml").write_text(recipe.to_toml(reasons=reasons))
    again, _ = read_recipe(tmp_path / "my.toml", ["train.steps=1"])
    assert [progress.step for progress in Session(again, tmp_path / "run").steps()] == [1]


@pytest.mark.parametrize("model", TRANSLATORS)
def test_more_text_never_means_a_smaller_model_or_more_dropout(model):
    surveys = [Survey(count, 11.0, 37) for count in (10, 1_000, MEDIUM // 7, MEDIUM, 10 * MEDIUM, 100 * MEDIUM)]
    vocabularies = [choose_tokens(seen)[0].size for seen in surveys]
    chosen = [choose_size(seen, choose_tokens(seen)[0], model) for seen in surveys[:3]]
    assert vocabularies == sorted(vocabularies) and vocabularies[0] < vocabularies[-1]
    first = next(iter(vars(chosen[0][0])))  # its width
    widths = [config.__dict__[first] for config, _, _ in chosen]
    assert widths == sorted(widths) and widths[0] < widths[-1]
    epochs = [train.epochs for _, train, _ in chosen]
    assert epochs == sorted(epochs, reverse=True)


def test_a_model_that_would_take_days_is_not_chosen():
    seen = Survey(50 * MEDIUM, 11.0, 37)
    config, _, _ = choose_size(seen, choose_tokens(seen)[0], "transformer")
    assert config.dim < MODELS["transformer"].sizes[-1].dim


@pytest.mark.parametrize(
    ("options", "says"),
    [
        ({"file": "text/both.tsv", "source": "1", "target": "2", "valid": ("a", "b")}, "--valid-file"),
        ({"file": None, "source": "text/train.en", "target": "text/train.de", "valid_file": "v"}, "--file"),
        ({"file": None, "source": "text/none.en", "target": "text/train.de"}, "'text/none.en' was not found"),
    ],
)
def test_options_that_do_not_go_together(text, tmp_path, options, says):
    with pytest.raises(UserError, match=says):
        data_of(**{"valid": None, "valid_file": None, **options}, folder=tmp_path)


def test_empty_files_are_a_sentence(text, tmp_path):
    (text / "train.en").write_text("")
    (text / "train.de").write_text("")
    with pytest.raises(UserError, match="training data is empty"):
        made("parallel", tmp_path)


def test_an_unknown_model_is_a_sentence(text, tmp_path):
    with pytest.raises(UserError, match="did you mean 'transformer'"):
        made("parallel", tmp_path, "transfomer")


@pytest.mark.parametrize("kind", [None, "words", "characters", "bpe"])
@pytest.mark.parametrize("unit", [None, "line", "paragraph", "file"])
def test_a_language_recipe_reads_as_written(text, tmp_path, kind, unit):
    recipe, reasons = new_language("text/train.en", valid=None, folder=tmp_path, kind=kind, unit=unit)
    (tmp_path / "lm.toml").write_text(recipe.to_toml(reasons=reasons))
    assert read_recipe(tmp_path / "lm.toml")[0] == recipe
    assert reasons.keys() <= recipe.flat().keys()
    assert ("tokens.kind" in reasons, "data.unit" in reasons) == (kind is None, unit is None)


@pytest.mark.parametrize("model", LANGUAGE_MODELS)
def test_a_language_recipe_trains_as_it_stands(text, tmp_path, model):
    recipe, reasons = new_language("text/train.en", valid="text/train.de", folder=tmp_path, model=model)
    (tmp_path / "lm.toml").write_text(recipe.to_toml(reasons=reasons))
    again, _ = read_recipe(tmp_path / "lm.toml", ["train.steps=1"])
    assert [progress.step for progress in Session(again, tmp_path / "run").steps()] == [1]


def test_lines_that_end_like_sentences_are_texts_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("said.txt").write_text("One thing.\n\nAnother thing!\nA third\n")
    Path("verse.txt").write_text("One thing and\nanother thing,\n\na third.\n")
    units = [new_language(f, valid=None, folder=tmp_path)[0].data.unit for f in ("said.txt", "verse.txt")]
    assert units == ["line", "file"]


@pytest.mark.parametrize("model", LANGUAGE_MODELS)
def test_more_text_never_means_a_smaller_language_model(model):
    chosen = [choose_language(amount, 1000, model) for amount in (1_000, 100_000, 3_000_000, 100_000_000)]
    first = next(iter(vars(chosen[0][0])))
    widths = [config.__dict__[first] for config, _, _ in chosen]
    assert widths == sorted(widths) and (widths[0] < widths[-1] or model == "neural_lm")
    epochs = [train.epochs for _, train, _ in chosen]
    assert epochs == sorted(epochs, reverse=True)


@pytest.mark.parametrize(
    ("file", "model", "says"),
    [("none.txt", "gpt", "'none.txt' was not found"), ("blank.txt", "gpt", "is empty"), ("blank.txt", "gtp", "'gpt'")],
)
def test_what_a_language_recipe_cannot_be_made_of(tmp_path, monkeypatch, file, model, says):
    monkeypatch.chdir(tmp_path)
    Path("blank.txt").write_text("\n \n")
    with pytest.raises(UserError, match=says):
        new_language(file, valid=None, folder=tmp_path, model=model)

"""Laws of `new`: the recipe it writes trains as it stands, and grows with the text."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from command import Call, Result, run

from regard.data.languages import guessed
from regard.data.sources import examples
from regard.interface import UserError
from regard.loading import read_recipe
from regard.models import MODELS
from regard.new.choices import MEDIUM, Made, Request
from regard.new.text import Survey, choose_language, choose_size, choose_tokens, data_of
from regard.tasks.registry import TASKS
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


FORMS: dict[str, dict[str, Any]] = {
    "parallel": {"source": "text/train.en", "target": "text/train.de"},
    "tsv": {"files": ("text/both.tsv",), "source": "1", "target": "2"},
    "jsonl": {"files": ("text/both.jsonl",), "source": "en", "target": "de"},
}


def asked(task: str, folder: Path, **options: Any) -> Request:
    return Request(**{"task": TASKS[task], "files": (), "folder": folder, **options})


def made(form: str, folder: Path, model: str | None = None) -> Made:
    return TASKS["translation"].new(asked("translation", folder, **FORMS[form], model=model))


def new_language(file: str, folder: Path, **options: Any) -> Made:
    return TASKS["language"].new(asked("language", folder, files=(file,), **options))


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
    train, valid = (list(examples(recipe.data, split, tmp_path)) for split in ("train", "valid"))
    assert not set(train) & set(valid)
    assert sorted(train + valid) == sorted((line, line.upper()) for line in LINES)
    assert 0 < len(valid) < len(LINES) / 5


@pytest.mark.parametrize(("form", "pair"), [("parallel", "en:de"), ("jsonl", "en:de"), ("tsv", "")])
def test_languages_are_those_that_files_or_fields_are_named_after(text, tmp_path, form, pair):
    recipe, reasons = made(form, tmp_path)
    assert recipe.data.languages == pair
    assert ("data.languages" in reasons) == bool(pair)


@pytest.mark.parametrize(
    ("names", "pair"),
    [
        (["a/train.en.gz", "a/train.fr.txt.gz"], "en:fr"),
        (["train.en", "train.en"], ""),
        (["train.en", "train.source"], ""),
        (["en.txt", "de.txt"], "en:de"),
        (["source", "target"], ""),
        (["", ""], ""),
    ],
)
def test_languages_are_guessed_from_known_codes_alone(names, pair):
    assert guessed(names) == pair


@pytest.mark.parametrize(
    "wrong", ["en", "en:", ":de", "en:en", "en-de", "English:German", "en:de:fr", "e n:de", "\0:de"]
)
def test_languages_that_are_no_pair_of_codes_are_refused(text, tmp_path, wrong):
    recipe, _ = made("parallel", tmp_path)
    (tmp_path / "my.toml").write_text(recipe.to_toml())
    with pytest.raises(UserError, match="two codes"):
        read_recipe(tmp_path / "my.toml", [f"data.languages={json.dumps(wrong)}"])


def test_languages_describe_a_run_and_do_not_change_it(text, tmp_path):
    recipe, _ = made("parallel", tmp_path)
    other = replace(recipe, data=replace(recipe.data, languages=""))
    assert recipe != other and recipe.differences(other) == []


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
        ({**FORMS["tsv"], "valid": ("a", "b")}, "at most one validation file"),
        ({**FORMS["parallel"], "valid": ("v",)}, "give two, the source first"),
        ({"source": "text/none.en", "target": "text/train.de"}, "'text/none.en' was not found"),
        ({"source": "text/train.en"}, r"needs source and target \(--source and --target\)"),
    ],
)
def test_options_that_do_not_go_together(text, tmp_path, options, says):
    with pytest.raises(UserError, match=says):
        data_of(asked("translation", tmp_path, **options))


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
    recipe, reasons = new_language("text/train.en", tmp_path, kind=kind, unit=unit)
    (tmp_path / "lm.toml").write_text(recipe.to_toml(reasons=reasons))
    assert read_recipe(tmp_path / "lm.toml")[0] == recipe
    assert reasons.keys() <= recipe.flat().keys()
    assert ("tokens.kind" in reasons, "data.unit" in reasons) == (kind is None, unit is None)


@pytest.mark.parametrize("model", LANGUAGE_MODELS)
def test_a_language_recipe_trains_as_it_stands(text, tmp_path, model):
    recipe, reasons = new_language("text/train.en", tmp_path, valid=("text/train.de",), model=model)
    (tmp_path / "lm.toml").write_text(recipe.to_toml(reasons=reasons))
    again, _ = read_recipe(tmp_path / "lm.toml", ["train.steps=1"])
    assert [progress.step for progress in Session(again, tmp_path / "run").steps()] == [1]


def test_lines_that_end_like_sentences_are_texts_of_their_own(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("said.txt").write_text("One thing.\n\nAnother thing!\nA third\n")
    Path("verse.txt").write_text("One thing and\nanother thing,\n\na third.\n")
    units = [new_language(f, tmp_path)[0].data.unit for f in ("said.txt", "verse.txt")]
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
        new_language(file, tmp_path, model=model)


# --valid A [B], on the command line

PARALLEL_FILES = "--source train.en --target train.de"
TABLE_FIELDS = "--source 1 --target 2"
VALIDATED = {
    f"translation {PARALLEL_FILES} --valid valid.en valid.de -o out.toml": ("valid.en", "valid.de"),
    f"translation --valid valid.en valid.de {PARALLEL_FILES} -o out.toml": ("valid.en", "valid.de"),
    f"translation --valid valid.en --valid valid.de {PARALLEL_FILES} -o out.toml": ("valid.en", "valid.de"),
    f"--debug translation {PARALLEL_FILES} --valid valid.en valid.de -o out.toml": ("valid.en", "valid.de"),
    f"translation train.tsv {TABLE_FIELDS} --valid valid.tsv -o out.toml": ("valid.tsv",),
    f"translation train.tsv --valid valid.tsv {TABLE_FIELDS} -o out.toml": ("valid.tsv",),
    f"translation --file train.tsv {TABLE_FIELDS} -o out.toml --valid valid.tsv": ("valid.tsv",),
    "language train.txt --valid valid.txt -o out.toml": ("valid.txt",),
    "language --valid valid.txt -o out.toml train.txt": ("valid.txt",),
    "language --valid valid.txt train.txt -o out.toml": ("valid.txt",),
    "language --valid=valid.txt train.txt -o out.toml": ("valid.txt",),
    "language train.txt --unit file --tokens words --valid valid.txt -o out.toml": ("valid.txt",),
    "classification train.labels --valid valid.labels -o out.toml": ("valid.labels",),
    "classification --valid valid.labels train.labels -o out.toml": ("valid.labels",),
    f"classification train.labels {TABLE_FIELDS} --valid valid.labels -o out.toml": ("valid.labels",),
    "tagging train.conll --valid valid.conll -o out.toml": ("valid.conll",),
    "tagging --valid valid.conll --out out.toml train.conll": ("valid.conll",),
}


@pytest.fixture
def every_form(place) -> Path:
    """Training and validation files for every task, in the current folder."""
    for split, lines in (("train", LINES[:60]), ("valid", LINES[60:71])):
        forms = {
            "en": [*lines],
            "de": [line.upper() for line in lines],
            "tsv": [f"{line}\t{line.upper()}" for line in lines],
            "txt": [f"{line}." for line in lines],
            "labels": [f"{line}\t{'odd' if n % 2 else 'even'}" for n, line in enumerate(lines)],
            "conll": [
                "".join(f"{word}\t{'NUM' if word.isdigit() else 'X'}\n" for word in line.split()) for line in lines
            ],
        }
        for form, rows in forms.items():
            (place / f"{split}.{form}").write_text("".join(f"{row}\n" for row in rows))
    return place


def called_new(call: Call, command: str) -> Result:
    words = command.split()
    first = [words.pop(0)] if words[0] == "--debug" else []
    return call(*first, "new", *words)


@pytest.mark.parametrize("command", VALIDATED)
def test_every_task_is_validated_on_the_files_that_follow_valid(every_form, call, monkeypatch, command):
    monkeypatch.setenv("REGARD_DEBUG", "")  # which --debug sets
    said = called_new(call, command)
    assert said.code == 0, said.err
    assert "Wrote out.toml" in said.out
    assert sorted(path.name for path in every_form.glob("*.toml")) == ["out.toml"]  # -o was not swallowed
    recipe, remarks = read_recipe("out.toml")
    assert remarks == []
    files = recipe.data.names
    assert tuple(name for key, name in files.items() if key.startswith("valid")) == VALIDATED[command]
    assert all(name.startswith("train.") for key, name in files.items() if not key.startswith("valid"))
    assert recipe.data.hold_out == 0
    if recipe.data.unit == "file":
        assert "".join(text for (text,) in examples(recipe.data, "valid", every_form)) == Path("valid.txt").read_text()
    else:
        counts = [sum(1 for _ in examples(recipe.data, split, every_form)) for split in ("train", "valid")]
        assert counts == [60, 11]


@pytest.mark.parametrize(
    "command",
    [
        f"translation {PARALLEL_FILES}",
        f"translation train.tsv {TABLE_FIELDS}",
        "language train.txt",
        "classification train.labels",
        "tagging train.conll",
    ],
)
def test_without_valid_some_of_the_training_data_is_held_out(every_form, call, command):
    said = called_new(call, command)
    assert said.code == 0, said.err
    (written,) = every_form.glob("*.toml")
    assert written.stem == command.split()[0]  # where no -o says how it is called
    recipe, _ = read_recipe(written)
    assert 0 < recipe.data.hold_out < 0.5
    assert not [name for key, name in recipe.data.names.items() if key.startswith("valid")]
    train, valid = (list(examples(recipe.data, split, every_form)) for split in ("train", "valid"))
    assert train and valid and not set(train) & set(valid) and len(train + valid) == 60


REFUSED = {
    "translation --source train.en --target train.de --valid valid.en": "give two, the source first",
    f"translation train.tsv {TABLE_FIELDS} --valid valid.en valid.de": "at most one validation file",
    "translation train.en train.de": "needs source and target (--source and --target): give two files",
    f"translation {PARALLEL_FILES} --tokens words": "tokens does not apply to translation: leave it out",
    f"translation {PARALLEL_FILES} --unit line": "unit does not apply to translation: leave it out",
    "language train.txt --valid valid.txt valid.en": "at most one validation file",
    "language --valid valid.txt": "give one file",
    "language train.txt --source 1": "source does not apply to language: leave it out",
    f"language train.txt {TABLE_FIELDS}": "source and target do not apply to language: leave them out",
    "classification train.labels --unit line": "unit does not apply to classification: leave it out",
    "classification train.labels --source 1": "Only one of source and target was given: give both",
    "classification train.labels --valid valid.labels valid.tsv": "at most one validation file",
    "tagging train.conll --unit line": "unit does not apply to tagging: leave it out",
    "language train.txt --second 1 --tokens words": "second does not apply to language: leave it out",
    "tagging train.conll --target UPOS": "have no names, and 'UPOS' was asked for: give a number",
    "tagging train.conll --target 0": "must each be a column",
    "tagging train.conll --file train.conll": "give one file",
    "tagging train.conll --valid none.conll": "'none.conll' was not found",
    "taging train.conll": "did you mean 'tagging'?",
}


@pytest.mark.parametrize("command", REFUSED)
def test_options_that_do_not_apply_are_refused_in_one_sentence(every_form, call, command):
    said = called_new(call, f"{command} -o out.toml")
    assert said.code == 1
    assert REFUSED[command] in said.err
    assert said.err.startswith("regard: ") and said.err.count("\n") == 1 and said.err.endswith(".\n")
    assert not list(every_form.glob("*.toml"))


def test_a_validation_file_in_a_process_of_its_own(every_form):
    said = run("new", "tagging", "--valid", "valid.conll", "-o", "out.toml", "train.conll")
    assert said.code == 0, said.err
    assert read_recipe("out.toml")[0].data.names == {"train": "train.conll", "valid": "valid.conll"}

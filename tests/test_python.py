"""From Python: docs/python.md runs as it stands, and what regard.train, regard.training and a Run promise holds."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import torch

import regard
from regard.data.in_memory import rows_of

RUNS = Path(__file__).parent / "runs"
PAGE = Path(__file__).parent.parent / "docs" / "python.md"
TOY = {"task": "translation", "model": {"name": "rnnsearch", "hidden": 8, "embedding": 8}, "train": {"steps": 4}}
PAIRS = [(f"{a} {b}", f"{b} {a}") for a in "abcdefgh" for b in "ijklmnop"]


def test_every_block_of_the_python_page_runs(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"^```python\n(.*?)^```", PAGE.read_text(encoding="utf-8"), flags=re.S | re.M)
    lines = [line for block in blocks for line in block.splitlines() if line.strip()]
    assert len(lines) < 60
    exec(compile("\n".join(lines), str(PAGE), "exec"), {})
    assert {path.name for path in (tmp_path / "runs").iterdir()} >= {"numbers", "reviews", "lm"}


def test_training_leaves_the_random_generator_as_it_was(tmp_path):
    torch.manual_seed(3)
    before = torch.get_rng_state()
    steps = regard.training(TOY, tmp_path / "run", data=PAIRS)
    next(steps)
    assert torch.equal(torch.get_rng_state(), before)
    for _ in steps:
        torch.rand(5)  # what the caller does between two steps does not change the run
    plain = regard.train(TOY, tmp_path / "plain", data=PAIRS, progress=False)
    other = regard.load(tmp_path / "run")
    for one, two in zip(plain.model.parameters(), other.model.parameters(), strict=True):
        assert torch.equal(one, two)


def test_a_loop_that_is_left_is_saved_and_resumed(tmp_path):
    for progress in regard.training(TOY, tmp_path / "run", data=PAIRS):
        if progress.step == 2:
            break
    steps = [progress.step for progress in regard.training(TOY, tmp_path / "run", data=PAIRS)]
    assert steps == [3, 4]
    assert list(regard.training(TOY, tmp_path / "run", data=PAIRS)) == []  # finished


def test_other_data_in_the_same_folder_is_refused(tmp_path):
    regard.train(TOY, tmp_path / "run", data=PAIRS, progress=False)
    with pytest.raises(regard.UserError, match="data has changed since"):
        regard.train(TOY, tmp_path / "run", data=PAIRS[1:], progress=False)
    assert len((tmp_path / "run" / "examples" / "train.jsonl").read_text().splitlines()) == len(PAIRS)


def test_two_trainings_in_one_folder_exclude_each_other(tmp_path):
    first = regard.training(TOY, tmp_path / "run", data=PAIRS)
    next(first)
    with pytest.raises(regard.UserError, match="Another process is training"):
        next(regard.training(TOY, tmp_path / "run", data=PAIRS))


@pytest.mark.parametrize(
    "data",
    [
        [("a", "b"), ("c", "d")],
        ({"source": source, "target": target} for source, target in [("a", "b"), ("c", "d")]),
        {"source": ["a", "c"], "target": ["b", "d"]},
    ],
)
def test_lists_dictionaries_and_columns_are_the_same_examples(data):
    assert list(rows_of(data)) == [("a", "b"), ("c", "d")]


class Frame:
    """What a DataFrame promises here; pandas itself is no dependency of the tests."""

    def itertuples(self, *, index: bool, name: None) -> Iterator[tuple[str, str]]:
        return iter([("a", "b"), ("c", "d")])


def test_a_data_frame_is_read_row_by_row():
    assert list(rows_of(Frame())) == [("a", "b"), ("c", "d")]


@pytest.mark.parametrize(
    ("task", "data", "sentence"),
    [
        ("translation", ["a b c"], "must have two parts"),
        ("tagging", [("a b", "X")], "2 words and 1 tag:"),
        ("translation", "a b c", "put it in a list"),
    ],
)
def test_data_of_the_wrong_shape_is_refused_in_one_sentence(task, data, sentence, tmp_path):
    with pytest.raises(regard.UserError, match=sentence):
        regard.train({"task": task}, tmp_path / "run", data=data, progress=False)


@pytest.mark.parametrize("task", ["translation", "language", "classification", "tagging"])
def test_one_input_gives_one_prediction_a_list_a_list_an_iterator_a_stream(task):
    run = regard.load(RUNS / task)
    one, several = run.predict("a b"), run.predict(["a b", "b"])
    stream = run.predict(iter(["a b", "b"]))
    assert isinstance(one, regard.Prediction) and isinstance(stream, Iterator)
    assert len(several) == 2 and [each.text for each in stream] == [each.text for each in several]
    assert run.task.name in repr(run) and len(repr(run)) < 200


@pytest.mark.parametrize("task", ["translation", "language", "classification", "tagging"])
def test_vectors_have_one_row_for_each_input(task):
    run = regard.load(RUNS / task)
    rows = run.embed(["a b", "b"])
    assert rows.shape[0] == 2 and rows.ndim == 2
    np.testing.assert_allclose(run.embed("a b"), rows[0], rtol=1e-4, atol=1e-5)  # whatever it was padded to
    assert not np.allclose(run.embed("a b", pool="last"), rows[0])


def test_settings_of_decoding_mean_what_they_mean_on_the_command_line():
    run = regard.load(RUNS / "translation")
    sampled = run.decoding(temperature=0.5)
    assert (sampled.sample, sampled.beam) == (True, 1)
    assert run.decoding(n_best=7).beam == 7 and run.decoding(beam=2).sample is False


def test_settings_of_decoding_are_checked():
    run = regard.load(RUNS / "translation")
    assert len(run.predict("a b", beam=3, n_best=3).alternatives) == 2
    with pytest.raises(regard.UserError, match="did you mean 'beam'"):
        run.predict("a b", baem=3)
    with pytest.raises(regard.UserError, match="leave it out"):
        regard.load(RUNS / "tagging").predict("a b", beam=3)


def test_a_log_probability_is_a_number_or_a_list():
    run = regard.load(RUNS / "translation")
    one = run.log_prob(("a b", "b a"))
    assert isinstance(one, float) and run.log_prob([("a b", "b a")]) == [one]
    with pytest.raises(regard.UserError, match="predict gives the probability of each label"):
        regard.load(RUNS / "classification").log_prob("a b")


def test_scores_have_figures_by_name():
    found = regard.load(RUNS / "translation").score([("a b", "b a"), ("a", "a")])
    assert found["bleu"] == found.facts["bleu"]["value"]
    assert "BLEU" in str(found)


def test_a_saved_copy_answers_as_the_run_and_holds_no_training_data(tmp_path):
    run = regard.train(TOY, tmp_path / "run", data=PAIRS, progress=False)
    run.save(tmp_path / "copy")
    assert regard.load(tmp_path / "copy").predict("a b") == run.predict("a b")
    assert not any((tmp_path / "copy" / name).exists() for name in ("examples", "data", "last", "samples.txt"))
    with pytest.raises(regard.UserError, match="exists already"):
        run.save(tmp_path / "copy")


def test_the_package_lists_what_it_offers():
    assert set(regard.__all__) <= set(dir(regard))
    assert re.fullmatch(r"\d+\.\d+\.\d+", regard.__version__)
    for name in regard.__all__:
        assert getattr(regard, name) is not None


def test_words_and_tags_in_lists_are_scored_as_those_in_texts():
    run = regard.load(RUNS / "tagging")
    tag = run.predict("a").text
    figures = [run.score(data).facts for data in ([("a b", f"{tag} {tag}")], [(["a", "b"], [tag, tag])])]
    assert figures[0] == figures[1]


def test_too_few_validation_examples_are_warned_about_and_none_are_refused(tmp_path):
    with pytest.warns(UserWarning, match=r"fewer than 20 pairs \(\d+\), too few to measure"):
        next(regard.training(TOY, tmp_path / "few", data=PAIRS))
    alike = [("a b", "c d")] * 30
    with pytest.raises(regard.UserError, match="data.hold_out = .* left no pair for validation"):
        next(regard.training(TOY, tmp_path / "none", data=alike))

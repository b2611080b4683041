"""Zero-shot labels: a language model chooses the label whose words are most probable in a template."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import Call

import regard
from regard.data.corruption import MASK, with_hidden
from regard.interface import UserError
from regard.predict.blanks import pseudo_log_probs
from regard.run import Run
from regard.score.labels import label_scores
from regard.score.prompted import Prompted

TEXTS = ["the soup is good .", "the cat is bad .", "it was very good .", "it was bad .", "a dog sleeps ."] * 5
TINY = {"model.dim": 6, "model.heads": 2, "model.feed_forward": 7, "model.layers": 1}
STEPS = {"train.steps": 8, "train.validate_every": 8, "train.precision": "float32", "tokens.kind": "words"}
SETTINGS = {"data.unit": "line", "tokens.size": 0, "tokens.at_least": 1, **STEPS, **TINY}
TEMPLATE = "{text} it was {label} ."
WORDS = {"1": "good", "0": "bad", "2": "very good"}
ROWS = [("the soup is bad .", "0"), ("a dog sleeps .", "1"), ("good {label}", "2"), ("the cat", "1")]


@pytest.fixture(scope="module")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Run]]:
    place, made = tmp_path_factory.mktemp("runs"), {}
    for task, model in (("masked", "bert"), ("language", "gpt")):
        limit = {"model.longest" if task == "masked" else "model.context": 32}
        recipe = {"task": task, "model": {"name": model}}
        made[task] = regard.train(recipe, place / task, data=TEXTS, valid=TEXTS, settings={**SETTINGS, **limit})
    yield made


def prompted(run: Run, template: str = TEMPLATE, words: dict[str, str] = WORDS, calibrate: bool = False) -> Prompted:
    return Prompted(**{**vars(run), "template": template, "verbalize": words, "calibrate": calibrate})


def test_a_language_model_chooses_the_most_probable_text(runs: dict[str, Run]) -> None:
    for raw, answer in prompted(runs["language"]).answers([text for text, _ in ROWS], None):
        filled = {label: TEMPLATE.replace("{label}", words).replace("{text}", raw) for label, words in WORDS.items()}
        scores = {label: runs["language"].log_prob(text) for label, text in filled.items()}
        assert answer.text == max(scores, key=scores.__getitem__) and answer.probabilities is not None
        assert answer.score == pytest.approx(max(scores.values()), abs=1e-4)
        assert sum(answer.probabilities.values()) == pytest.approx(1)
        assert np.log(answer.probabilities["1"] / answer.probabilities["0"]) == pytest.approx(
            scores["1"] - scores["0"], abs=1e-4
        )


def test_a_masked_model_chooses_the_most_probable_hidden_words(runs: dict[str, Run]) -> None:
    """One token is hidden as for the pseudo-perplexity; several are hidden together."""
    run: Any = runs["masked"]
    for raw, answer in prompted(run).answers([text for text, _ in ROWS], None):
        scores = {}
        for label, words in WORDS.items():
            ids = run.tokenizer().encode(TEMPLATE.replace("{label}", words).replace("{text}", raw))
            count = len(words.split())
            source = run.fields["source"].pad([ids])
            hidden = torch.zeros_like(source.mask)
            hidden[0, len(ids) - 1 - count : len(ids) - 1] = True
            batch = with_hidden(source, hidden)
            assert int((batch.first.values == MASK).sum()) == count
            with torch.no_grad():
                each = run.model.fill(batch).log_softmax(-1).gather(1, source.values[hidden][:, None])
            scores[label] = float(each.sum())
            if count == 1:
                text = TEMPLATE.replace("{label}", words).replace("{text}", raw)
                assert scores[label] == pytest.approx(next(pseudo_log_probs(run, [text]))[-2], abs=1e-5)
        assert answer.text == max(scores, key=scores.__getitem__)
        assert answer.score == pytest.approx(max(scores.values()), abs=1e-5)


@pytest.mark.parametrize("template", [TEMPLATE, "{label} : {text}"])
@pytest.mark.parametrize("task", ["language", "masked"])
def test_a_calibrated_score_is_the_score_less_that_with_an_empty_text(
    task: str, template: str, runs: dict[str, Run]
) -> None:
    """So that without a text all labels are equally probable."""
    raws = [text for text, _ in ROWS]
    plain, calibrated = (prompted(runs[task], template, calibrate=calibrate) for calibrate in (False, True))
    found = [[answer.probabilities for _, answer in run.answers([*raws, ""], None)] for run in (plain, calibrated)]
    *each, prior = (np.log([shares[label] for label in WORDS]) for shares in found[0] if shares is not None)
    for before, shares in zip(each, found[1], strict=False):
        assert shares is not None
        odds = before - prior
        assert list(shares.values()) == pytest.approx(np.exp(odds - np.logaddexp.reduce(odds)), abs=1e-5)
    assert found[1][-1] is not None and list(found[1][-1].values()) == pytest.approx([1 / len(WORDS)] * len(WORDS))


def test_a_text_that_is_too_long_is_read_around_the_label(runs: dict[str, Run]) -> None:
    """What is far from it changes nothing; what is near does."""
    run = prompted(runs["masked"])
    far, other, near = (f"{a} {'the ' * 60}{b}" for a, b in (("good", "soup"), ("bad", "soup"), ("bad", "cat")))
    (_, one), (_, two), (_, three) = run.answers([far, other, near], None)
    assert one.probabilities == pytest.approx(two.probabilities, abs=1e-6)
    assert one.probabilities != pytest.approx(three.probabilities, abs=1e-5)


@pytest.mark.parametrize("task", ["language", "masked"])
def test_the_command_scores_as_labels_are_scored(task: str, runs: dict[str, Run], call: Call, place: Path) -> None:
    for name, head in (("rows.tsv", ""), ("named.tsv", "text\tlabel\n")):
        (place / name).write_text(head + "".join(f"{text}\t{label}\n" for text, label in ROWS))
    options = ["--template", TEMPLATE, *(f"--verbalize={label}={words}" for label, words in WORDS.items())]
    answers = [answer.text for _, answer in prompted(runs[task]).answers([text for text, _ in ROWS], None)]
    expected = label_scores([label for _, label in ROWS], answers)
    for name in ("rows.tsv", "named.tsv"):
        said = call("score", runs[task].name, name, *options, "--json")
        assert said.code == 0 and json.loads(said.out)["confusion"] == expected.confusion
    assert f"accuracy   {expected.accuracy:7.2f}   4 examples" in call("score", runs[task].name, name, *options).out
    assert runs[task].score(ROWS, template=TEMPLATE, verbalize=WORDS)["accuracy"] == expected.accuracy
    said = call("score", runs[task].name, "rows.tsv", *options, "--calibrate")
    assert (
        "calibrated: less the score of each label with an empty text" in said.out and "not calibrated" not in said.out
    )


def test_what_cannot_be_labelled_is_one_sentence(runs: dict[str, Run], call: Call, place: Path) -> None:
    (place / "rows.tsv").write_text("a b\t0\nb c\t1\n")
    (place / "one.tsv").write_text("a b\nc d\n")
    words = ["--verbalize", "0=bad", "--verbalize", "1=good"]
    for file, options, said in (
        ("rows.tsv", ["--template", "{text} it was", *words], "must have {label} once"),
        ("rows.tsv", ["--template", "it was {label}", *words], "must have {text} once"),
        ("rows.tsv", words, "must have {text} once"),
        ("rows.tsv", ["--template", TEMPLATE, *words[:2]], "for 1 label: give those of two"),
        ("rows.tsv", ["--template", TEMPLATE, *words[:2], "--verbalize", "2=good"], "The label '1' has no words"),
        (
            "rows.tsv",
            ["--template", TEMPLATE, *words, "--verbalize", "1=best"],
            "'1' was given words more than once",
        ),
        ("rows.tsv", ["--template", TEMPLATE, *words[:2], "--verbalize", "1=bad"], "the same words, 'bad'"),
        ("one.tsv", ["--template", TEMPLATE, *words], "does not have a text and a label"),
        ("a text", ["--template", TEMPLATE, *words], "give a RUN and a table"),
        ("rows.tsv", ["--template", TEMPLATE, *words, "-o", "out.txt"], "--output does not go with --template"),
        ("rows.tsv", ["--template", TEMPLATE, *words, "--each"], "--each does not go with --template"),
        ("rows.tsv", ["--calibrate"], "must have {text} once"),
    ):
        found = call("score", runs["masked"].name, file, *options)
        assert found.code == 1 and said in found.err and found.err.count("\n") == 1, found
    with pytest.raises(UserError, match="must have two parts: an input and its target"):
        runs["masked"].score([("a", "b", "0")], template=TEMPLATE, verbalize=WORDS)
    classifier = regard.load(Path(__file__).parent / "runs" / "classification")
    with pytest.raises(UserError, match="a template needs a language model"):
        classifier.score(ROWS, template=TEMPLATE, verbalize=WORDS)

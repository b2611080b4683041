"""Laws of likelihood: what is counted, what is made of it, and that pieces of a text are that text."""

from __future__ import annotations

import math

import numpy as np
import pytest
import torch
from made import target_of, text_fields
from torch import Tensor, nn

from regard.data.fields import Fields
from regard.interface import BOS, EOS, UNK, Batch, Tree, UserError
from regard.recipe import Recipe, parse_recipe
from regard.run import Run, build_model
from regard.score.likelihood import Likelihood, encoded, mixed, perplexity, score_texts, token_log_probs
from regard.tasks.registry import TASKS

CPU = torch.device("cpu")
LINES = ["a cat sees a dog", "the dog sleeps", "a dog"]
VOCAB = 4 + 6  # a, cat, dog, sees, sleeps, the


class Looking(nn.Module):
    """A model whose ln p tells what it saw: −(own token + 100 · tokens before it in the window)."""

    def __init__(self, context: int | None) -> None:
        super().__init__()
        self.context = context
        self.read: list[tuple[int, int]] = []  # the shapes it was given

    def log_probs(self, batch: Batch) -> tuple[Tensor, Tree]:
        target = target_of(batch)
        self.read.append((target.shape[0], target.shape[1]))
        before = torch.arange(1, target.shape[1]) + (0 if batch.state is None else batch.state)
        answers = target[:, 1:]
        return -(answers + 100 * before) * (answers != 0), int(before[-1])


def recipe(unit: str = "line", task: str = "language", **model: object) -> Recipe:
    return parse_recipe(
        {
            "task": task,
            "data": {"name": "text", "train": "a", "valid": "b", "unit": unit}
            if task == "language"
            else {"name": "world"},
            "tokens": {"kind": "words", "size": 0},
            "model": model,
            "train": {"steps": 1},
        },
        tasks=TASKS,
    )


def fields_of(*texts: str, sides: tuple[str, ...] = ("target",)) -> Fields:
    return text_fields(lambda: ([text] * len(sides) for text in texts), *sides, kind="words", size=0)


def run_of(unit: str = "line", model: nn.Module | None = None) -> Run:
    described = recipe(unit, name="rnn_lm", embedding=5, hidden=5, dropout=0.0)
    texts = [f"{line}\n" if unit == "file" else line for line in LINES]
    fields = fields_of(*texts)
    built = build_model(described, fields) if model is None else model
    return Run(described, fields, built.double().eval(), CPU, "toy")


# The figures


def test_the_figures_are_those_of_the_formulas():
    found = Likelihood(
        log_prob=-30 * math.log(2), tokens=10, unknown=2, ends=3, words=7, characters=60, context=None, stride=None
    )
    assert found.per_token == pytest.approx(8)  # 2 ** (30 / 10)
    assert found.per_word == pytest.approx(8)  # 7 words and 3 ends
    assert found.bits_per_character == pytest.approx(0.5)


def test_nothing_and_the_impossible_have_figures_too():
    nothing = Likelihood(0.0, 0, 0, 0, 0, 0, None, None)
    assert (nothing.per_token, nothing.per_word, nothing.bits_per_character) == (1, 1, 0)
    assert math.isfinite(perplexity(-math.inf, 3))
    assert perplexity(-math.inf, 3) > 1e300


def test_a_model_that_guesses_has_the_perplexity_of_its_vocabulary():
    run = run_of()
    for parameter in run.model.parameters():
        nn.init.zeros_(parameter)
    found = score_texts([run], LINES).likelihood
    assert run.tokenizer("target").size == VOCAB
    assert found.per_token == pytest.approx(VOCAB)
    assert found.log_prob == pytest.approx(-13 * math.log(VOCAB))


# What is counted


def test_lines_are_counted_with_their_ends():
    found = score_texts([run_of()], LINES).likelihood
    assert (found.tokens, found.ends, found.unknown) == (13, 3, 0)
    assert found.words == 10
    assert found.characters == sum(map(len, LINES)) + 3
    assert (found.context, found.stride) == (None, None)


def test_a_whole_file_has_line_ends_and_no_other():
    text = "".join(f"{line}\n" for line in LINES)
    found = score_texts([run_of("file")], [text]).likelihood
    assert (found.tokens, found.ends, found.unknown) == (13, 0, 0)
    assert (found.words, found.characters) == (10, len(text))


def test_unknown_words_are_counted():
    found = score_texts([run_of()], ["a zebra sees a yak", "a dog", "xylophones"]).likelihood
    assert (found.tokens, found.unknown, found.words) == (11, 3, 8)
    ids = encoded(run_of(), ["a zebra"])[0].tolist()
    assert ids[2:] == [UNK, EOS]


def test_an_empty_line_is_its_end_alone():
    run = run_of()
    scored = score_texts([run], ["", LINES[0], ""])
    assert [len(values) for values in scored.each] == [1, 6, 1]
    assert scored.each[0] == pytest.approx(scored.each[2])
    assert (scored.likelihood.tokens, scored.likelihood.ends, scored.likelihood.words) == (8, 3, 5)
    assert scored.likelihood.characters == len(LINES[0]) + 3
    logits = run.model.logits(Batch.of_text(torch.tensor([[BOS, EOS]]))).detach()
    ended = float(logits.log_softmax(-1)[0, 0, EOS])
    assert float(scored.each[0][0]) == pytest.approx(ended)


@pytest.mark.parametrize("unit", ["line", "file"])
def test_no_text_is_nothing(unit):
    found = score_texts([run_of(unit)], []).likelihood
    assert (found.log_prob, found.tokens, found.words, found.characters) == (0, 0, 0, 0)


def test_each_sums_to_the_whole():
    scored = score_texts([run_of()], LINES)
    assert sum(float(values.sum()) for values in scored.each) == pytest.approx(scored.likelihood.log_prob)
    for line, values in zip(LINES, scored.each, strict=True):
        assert score_texts([run_of()], [line]).each[0] == pytest.approx(values)


# Pieces and windows


def test_a_whole_file_in_pieces_is_that_file():
    run = run_of("file")
    pieces = [f"{line}\n" for line in LINES]
    whole, parts = score_texts([run], ["".join(pieces)]), score_texts([run], pieces)
    assert whole.likelihood == parts.likelihood
    assert len(whole.each) == len(parts.each) == 1
    assert (whole.each[0] == parts.each[0]).all()


def test_a_whole_file_opens_as_after_a_line_end():
    run = run_of("file")
    (newline,) = run.tokenizer("target").encode_all(["\n"], continued=True)[0]
    assert encoded(run, ["a dog"])[0][0] == newline
    assert EOS not in encoded(run, ["a dog"])[0]


@pytest.mark.parametrize(
    "stride, expected",
    [
        (3, [1, 2, 3, 1, 2, 3, 1, 2]),
        (2, [1, 2, 3, 2, 3, 2, 3, 2]),
        (1, [1, 2, 3, 3, 3, 3, 3, 3]),
        (0, [1, 2, 3, 3, 3, 3, 3, 3]),  # half of 3
        (99, [1, 2, 3, 1, 2, 3, 1, 2]),
    ],
)
def test_a_token_is_counted_where_it_has_most_before_it_that_the_stride_allows(stride, expected):
    text = np.arange(5, 14)
    (found,) = token_log_probs(Looking(3), [text], device=CPU, stride=stride)
    assert (-found % 100).tolist() == text[1:].tolist()
    assert (-found // 100).tolist() == expected


@pytest.mark.parametrize("context", [None, 5])
def test_stride_and_context_are_reported(context):
    run = run_of(model=Looking(context))
    told = [score_texts([run], LINES, stride=stride).likelihood for stride in (0, 1, 5, 9)]
    assert [found.context for found in told] == [context] * 4
    assert [found.stride for found in told] == ([None] * 4 if context is None else [2, 1, 5, 5])


def test_a_model_that_carries_sees_everything_before(monkeypatch):
    monkeypatch.setattr("regard.score.likelihood.WINDOW", 3)
    text = np.arange(5, 16)
    (found,) = token_log_probs(Looking(None), [text], device=CPU)
    assert (-found // 100).tolist() == list(range(1, 11))


def test_short_texts_go_together_and_find_their_places_again(monkeypatch):
    texts = [np.arange(5, 5 + length) for length in (3, 9, 1, 2, 7, 9)]
    model = Looking(None)
    together = token_log_probs(model, texts, device=CPU)
    assert model.read == [(5, 9)]  # the text of one token predicts nothing
    monkeypatch.setattr("regard.score.likelihood.TOKENS_AT_ONCE", 1)
    alone = token_log_probs(model, texts, device=CPU)
    for text, one, other in zip(texts, together, alone, strict=True):
        assert (-one % 100).tolist() == text[1:].tolist()
        assert (one == other).all()


# Who is scored


def test_a_translator_is_not_asked_how_likely_a_text_is():
    described, fields = recipe(task="translation", name="seq2seq"), fields_of(*LINES, sides=("source", "target"))
    translating = Run(described, fields, build_model(described, fields).eval(), CPU)
    with pytest.raises(UserError, match="seq2seq is not a language model: give pairs of a source and a target"):
        score_texts([translating], LINES)


def test_mixed_is_the_logarithm_of_the_weighted_sum():
    found = mixed(np.log([[0.5, 0.25], [0.1, 0.75]]), (0.25, 0.75))
    assert np.exp(found) == pytest.approx([0.2, 0.625])
    assert mixed(np.array([[-np.inf], [0.0]]), (1.0, 0.0)).tolist() == [-np.inf]

"""Reading a text, or two, and answering: numbers, choices, spans, and tags of words in pieces."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Callable
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import Call
from scipy import stats

import regard
from regard.data import world
from regard.data.fields import Fields, FirstsField, NumberField, TagField, TextField, TextsField
from regard.data.in_memory import keep_choices, keep_labelled
from regard.data.questions import Answer, ChoiceField, ChoicesField, QuestionTable, SpanField
from regard.data.sources import BETWEEN
from regard.data.text import read_fields
from regard.data.tokens import Kind, Tokenizer
from regard.interface import EOS, Batch, Choice, Ids, Label, Padded, Scalar, Shapes, Span, TagIds, UserError
from regard.loading import demo_recipe
from regard.models import MODELS
from regard.predict.questions import LONGEST, best_spans
from regard.score.bootstrap import interval, resample
from regard.score.metrics import ANSWER_F1, EXACT_MATCH, PEARSON, RMSE, SPEARMAN, Metric
from regard.tasks.registry import TASKS

VOCAB, DIM = 13, 6
TEXT = ["the cat sees a small dog", "a dog , which sees the cat ."]
QUICK = ("train.epochs=0", "train.steps=6", "train.validate_every=3", "train.precision=float32")
BODIES: dict[str, dict[str, Any]] = {
    "birnn": {"embedding": 5, "hidden": 7},
    "attentive_birnn": {"embedding": 5, "hidden": 7},
    "encoder": {"dim": 6, "heads": 2, "feed_forward": 7, "layers": 1},
    "cnn": {"embedding": 5, "filters": 7, "widths": (2, 3)},
    "bert": {"dim": 6, "heads": 2, "feed_forward": 7, "layers": 1, "longest": 40},
}


def texts(kind: Kind = "words", of: type[TextField] = TextsField) -> TextField:
    size = 300 if kind == "bpe" else None
    return of(Tokenizer.train(kind, TEXT * 5, size=size), begins=False)


def source(*rows: list[int]) -> Padded:
    field = texts()
    return field.pad([np.array(row) for row in rows])


def body(model: str, target: Any) -> Any:
    torch.manual_seed(1)
    built = MODELS[model].build(MODELS[model].config(**BODIES[model], dropout=0.0), Shapes(Ids(VOCAB), target))
    for parameter in built.parameters():
        parameter.data.add_(0.1 * torch.rand_like(parameter))
    return built.double().eval()


# --- two texts ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["words", "bpe", "characters", "given"])
def test_two_texts_are_each_encoded_alone_with_the_end_of_text_between(kind: Kind) -> None:
    field = texts(kind)
    (both,), (first, second) = field.encode([BETWEEN.join(TEXT)]), field.encode(TEXT)
    assert both.tolist() == [*first, EOS, *second]
    assert [piece.id for piece in field.pieces(BETWEEN.join(TEXT))] == both.tolist()
    raw = BETWEEN.join(TEXT)
    assert [raw[piece.start : piece.end].strip() for piece in field.pieces(raw) if piece.id != EOS] == [
        piece.text.strip() for piece in field.pieces(raw) if piece.id != EOS
    ]


def test_a_run_that_was_saved_without_the_flag_reads_as_before() -> None:
    field = texts()
    saved = field.to_json()
    again, before = TextsField.from_json(saved), TextsField.from_json({**saved, "parts": None})
    raw = BETWEEN.join(TEXT)
    assert again.encode([raw])[0].tolist() == field.encode([raw])[0].tolist()
    assert before.encode([raw])[0].tolist() == field.tokenizer.encode(raw)


@pytest.mark.parametrize("most", [1, 2, 5, 7, 8, 11, 30])
def test_of_a_pair_that_is_too_long_the_longer_text_is_cut_first(most: int) -> None:
    short, long = [4, 5, 6], list(range(4, 13))
    kept = [[*short, EOS, *long][place] for place in texts().kept([*short, EOS, *long], most)]
    assert len(kept) <= max(most, 1)
    assert EOS in kept  # both stay
    one, other = kept[: kept.index(EOS)], kept[kept.index(EOS) + 1 :]
    assert one == short[: len(one)]
    assert other == long[: len(other)]
    assert len(one) == len(short) or len(other) <= len(one)
    assert len(kept) >= min(most, 13) - 1


# --- numbers -----------------------------------------------------------------------------------------------------


def test_a_model_learns_standardised_numbers_and_answers_in_the_unit_of_the_data() -> None:
    raws = ["3.5", "-20", "1e3", "7"]
    field = NumberField.train(raws)
    numbers = np.concatenate(field.encode(raws))
    assert numbers.mean() == pytest.approx(0, abs=1e-6)
    assert numbers.std() == pytest.approx(1, abs=1e-6)
    again = NumberField.from_json(json.loads(json.dumps(field.to_json())))
    assert [float(again.text(float(each))) for each in numbers] == pytest.approx([3.5, -20, 1000, 7], rel=1e-4)


@pytest.mark.parametrize(("mean", "spread"), [(10**400, 1), (0, 10**400), (0, 0), (float("inf"), 1), ("1", 1)])
def test_a_saved_number_that_is_none_is_refused(mean: Any, spread: Any) -> None:
    saved = json.dumps({"sides": {"target": {"kind": "number", "mean": mean, "spread": spread}}})
    with pytest.raises(UserError, match="fields.json is damaged"):
        Fields.from_json(saved, {"target": NumberField})


def test_a_right_number_that_is_none_is_refused() -> None:
    assert NumberField().gold("a text", 3.5) == "3.5"
    with pytest.raises(UserError, match="'three' is not a number"):
        NumberField().gold("a text", "three")


def test_the_loss_of_numbers_is_the_squared_error() -> None:
    model = body("birnn", Scalar())
    target = torch.tensor([[0.5], [-2.0]]).double()
    batch = Batch(source([4, 5, 6], [7]), Padded(target, target == target))
    with torch.no_grad():
        loss, found = model.loss(batch), model.estimate(batch)
    assert float(loss.nll) == pytest.approx(float(((found - target[:, 0]) ** 2).sum()))
    assert loss.tokens == 2


def drawn(count: int = 40) -> tuple[list[str], list[str]]:
    random = np.random.default_rng(3)
    x = random.integers(0, 8, count)  # with many ties
    y = x + random.normal(0, 3, count).round()
    return [str(each) for each in x], [str(each) for each in y + 2000]


CORRELATIONS: dict[str, tuple[Metric, Callable[..., Any]]] = {
    "pearson": (PEARSON, stats.pearsonr),
    "spearman": (SPEARMAN, stats.spearmanr),
}


@pytest.mark.parametrize("name", CORRELATIONS)
def test_correlations_are_those_of_scipy_also_of_every_resample(name: str) -> None:
    metric, peer = CORRELATIONS[name]
    outputs, gold = drawn()
    x, y = np.array(outputs, float), np.array(gold, float)
    assert metric.of(outputs, gold) == pytest.approx(100 * peer(x, y).statistic)
    counts = np.random.default_rng(1).multinomial(len(x), np.full(len(x), 1 / len(x)), size=5).astype(float)
    values = metric.over(metric.statistics(outputs, gold), counts)
    for row, value in zip(counts.astype(int), values, strict=True):
        assert value == pytest.approx(100 * peer(x.repeat(row), y.repeat(row)).statistic)
    low, high = interval(metric, outputs, gold)
    assert low < metric.of(outputs, gold) < high
    (seed,) = resample({"a": [metric.statistics(outputs, gold)]}, metric)["a"].each
    assert seed == pytest.approx(metric.of(outputs, gold))


def test_equal_answers_have_no_correlation_and_errors_are_in_the_unit_of_the_data() -> None:
    assert PEARSON.of(["2", "2", "2"], ["1", "2", "4"]) == 0
    assert SPEARMAN.of(["2", "2", "2"], ["1", "2", "4"]) == 0
    assert RMSE.of(["1", "5"], ["4", "1"]) == pytest.approx(math.sqrt((9 + 16) / 2))


TABLE = "score\tfirst\tsecond\n" + "".join(
    f"{i % 7}.5\tthe cat sees a small dog {i}\tthe dog sees {i % 7} cats\n" for i in range(60)
)


def test_numbers_for_pairs_from_a_table_to_answers(place: Path, call: Call) -> None:
    table = place / "pairs.tsv"
    table.write_text(TABLE)
    assert call("new", "regression", table, "-o", "r.toml").code == 0
    recipe = (place / "r.toml").read_text()
    assert all(
        f'{key} = "{name}"' in recipe for key, name in (("source", "first"), ("second", "second"), ("target", "score"))
    )
    assert call("check", "r.toml").code == 0
    settings = {"train.epochs": 0, "train.steps": 6, "train.validate_every": 3, "train.precision": "float32"}
    for progress in regard.training("r.toml", "half", settings=settings):
        if progress.step == 2:
            break
    assert call("train", "r.toml", *QUICK, "-o", "half").code == 0  # resumed
    assert call("train", "r.toml", *QUICK, "-o", "whole").code == 0
    assert (place / "half/model.safetensors").read_bytes() == (place / "whole/model.safetensors").read_bytes()
    lines = place / "lines"
    lines.write_text("the cat\ta dog\n\nthe cat\n")
    found = call("predict", "whole", lines).out.splitlines()
    assert len({*map(float, found)}) == 3
    entry = json.loads(call("predict", "whole", lines, "--json").out.splitlines()[0])
    assert entry["number"] == float(found[0])
    scored = json.loads(call("score", "whole", table, "--json").out)
    assert scored["count"] == 60
    assert all(scored["intervals"][key][0] <= scored[key] <= scored["intervals"][key][1] for key in ("pearson", "rmse"))
    assert "saliency" in call("look", "whole", "the cat\ta dog").out


@pytest.mark.parametrize("cell", ["much", "nan", "inf", "1_000", ""])
def test_what_is_no_number_is_refused_with_its_line(place: Path, call: Call, cell: str) -> None:
    (place / "t.tsv").write_text("a b\t1.5\nc d\t2.5\n")
    assert call("new", "regression", "t.tsv", "-o", "r.toml").code == 0
    (place / "t.tsv").write_text(f"a b\t1.5\nc d\t{cell}\n" + "e f\t1\n" * 20)
    for arguments in (("train", "r.toml", "-o", "run"), ("new", "regression", "t.tsv", "-o", "again.toml")):
        said = call(*arguments)
        assert said.code == 1
        assert "line 2" in said.err
        assert "is not a number" in said.err
    assert not (place / "again.toml").exists()
    assert "(2) cannot be read" in call("check", "r.toml").out


@pytest.mark.parametrize(
    ("name", "content", "found"),
    [
        ("t.tsv", "a b c d\t3\n" * 3, ("1", "", "2")),
        ("t.csv", "id,note,rating\n1,so very good,4.5\n2,so very bad,1.0\n", ("note", "", "rating")),
        ("t.jsonl", '{"y": 0.5, "a": "one two three", "b": "four five six"}\n' * 1, ("a", "b", "y")),
    ],
)
def test_the_field_of_numbers_is_found(
    place: Path, call: Call, name: str, content: str, found: tuple[str, str, str]
) -> None:
    (place / name).write_text(content)
    assert call("new", "regression", name, "-o", "r.toml").code == 0
    data = regard.loading.read_recipe(place / "r.toml")[0].data
    assert (data.source, data.second, data.target) == found  # type: ignore[attr-defined]


def test_two_texts_and_their_label_are_found(place: Path, call: Call) -> None:
    (place / "t.tsv").write_text(
        "label\tfirst\tsecond\n" + "".join(f"{'yn'[i % 2]}\tone two three {i}\tfour five six {i}\n" for i in range(30))
    )
    assert call("new", "classification", "t.tsv", "-o", "r.toml").code == 0
    data = regard.loading.read_recipe(place / "r.toml")[0].data
    assert (data.source, data.second, data.target) == ("first", "second", "label")  # type: ignore[attr-defined]
    assert call("new", "classification", "t.tsv", "--source", "second", "--target", "label", "-o", "o.toml").code == 0
    assert regard.loading.read_recipe(place / "o.toml")[0].data.second == ""  # type: ignore[attr-defined]


# --- every body under every head ---------------------------------------------------------------------------------


TARGETS: dict[str, tuple[Any, Padded]] = {
    "number": (Scalar(), Padded(torch.tensor([[0.5], [-1.0]]).double(), torch.ones(2, 1, dtype=torch.bool))),
    "choice": (Choice(), Padded(torch.tensor([[2], [0]]), torch.ones(2, 1, dtype=torch.bool))),
    "span": (Span(), Padded(torch.tensor([[4, 6], [2, 2]]), torch.ones(2, 2, dtype=torch.bool))),
}
ROWS = {
    "number": ([4, 5, EOS, 6, 7, 8], [9, EOS, 10]),
    "choice": ([4, 5, EOS, 6, EOS, 4, 5, EOS, 7, 8, EOS, 4, 5, EOS, 9], [9, EOS, 10, EOS, 9, EOS, 11, 12]),
    "span": ([4, 5, EOS, 6, 7, 8, 9], [9, EOS, 10]),
}
CASES = [(model, head) for model in BODIES for head in TARGETS if (model, head) != ("attentive_birnn", "span")]


def answers(model: Any, batch: Batch) -> torch.Tensor:
    use = model.estimate if hasattr(model, "estimate") else model.choose if hasattr(model, "choose") else model.point
    found: torch.Tensor = use(batch)
    return found


@pytest.mark.parametrize(("model", "head"), CASES)
def test_every_body_learns_under_every_head(model: str, head: str) -> None:
    shape, target = TARGETS[head]
    built, batch = body(model, shape), Batch(source(*ROWS[head]), target)
    before = built.loss(batch)
    before.objective.backward()
    for path, parameter in built.named_parameters():
        if not path.endswith(("attention.key.bias", "score.out.bias")) and "head.linear.bias" not in path:
            assert parameter.grad is not None, path
            assert parameter.grad.abs().max() > 0, path
    norm = torch.stack([p.grad.norm() for p in built.parameters() if p.grad is not None]).norm()
    torch.optim.SGD(built.parameters(), lr=float(1e-3 / norm)).step()
    assert built.loss(batch).objective < before.objective - 0.5e-3 * norm


@pytest.mark.parametrize(("model", "head"), CASES)
@torch.no_grad()
def test_batch_mates_and_padding_change_no_answer(model: str, head: str) -> None:
    shape, _ = TARGETS[head]
    built = body(model, shape)
    together = answers(built, Batch(source(*ROWS[head])))
    for row, ids in enumerate(ROWS[head]):
        alone = answers(built, Batch(source(ids)))[0]
        assert torch.allclose(together[row][..., : alone.shape[-1]] if alone.dim() else together[row], alone, atol=1e-9)


# --- multiple choice ---------------------------------------------------------------------------------------------


@torch.no_grad()
def test_a_choice_is_a_softmax_over_the_scores_of_question_and_answer() -> None:
    model = body("encoder", Choice())
    question, choices = [4, 5], [[6], [7, 8, 9], [10]]
    field = texts(of=ChoicesField)
    batch = Batch(field.pad([field.join([question, *choices])]))
    alone = [model.head.numbers(model.encoder(source([*question, EOS, *choice]))) for choice in choices]
    assert torch.allclose(model.choose(batch)[0], torch.cat(alone).log_softmax(0))
    turned = Batch(field.pad([field.join([question, *choices[::-1]])]))
    assert torch.allclose(model.choose(batch)[0], model.choose(turned)[0].flip(0))


@torch.no_grad()
def test_questions_may_have_different_numbers_of_answers() -> None:
    model = body("birnn", Choice())
    found = model.choose(Batch(source(*ROWS["choice"])))
    assert found.shape == (2, 3)
    assert torch.allclose(found.exp().sum(1), torch.ones(2).double())
    assert found[1, 2] == -torch.inf


def test_each_answer_of_a_long_question_is_kept() -> None:
    field = texts(of=ChoicesField)
    ids = field.join([[4] * 9, [5, 6], [7] * 20]).tolist()
    kept = [ids[place] for place in field.kept(ids, 8)]
    assert kept == [4, 4, 4, 4, 4, EOS, 5, 6, EOS, 4, 4, 4, EOS, 7, 7, 7]


CHOICES = [
    {"question": f"who sees {i} ?", "choices": ["the cat", "a dog", f"{i}"][: 2 + i % 2], "answer": i % 2}
    for i in range(60)
]


def test_choices_from_jsonl_and_tsv_to_answers(place: Path, call: Call) -> None:
    (place / "q.jsonl").write_text("".join(json.dumps(each) + "\n" for each in CHOICES))
    rows = (
        (each["question"], *each["choices"], *[""] * (3 - len(each["choices"])), "AB"[each["answer"]])
        for each in CHOICES
    )  # type: ignore[misc, arg-type, index, str-bytes-safe]
    (place / "q.tsv").write_text("".join("\t".join(row) + "\n" for row in rows))  # type: ignore[arg-type]
    read = []
    for name in ("q.jsonl", "q.tsv"):
        assert call("new", "multiple-choice", name, "-o", f"{name}.toml").code == 0
        recipe = regard.loading.read_recipe(place / f"{name}.toml")[0]
        read.append([line[1:] for line in recipe.data.lines("train", place)])
        assert call("check", f"{name}.toml").code == 0
    assert read[0] == read[1]
    assert call("train", "q.jsonl.toml", *QUICK, "-o", "run").code == 0
    (place / "lines").write_text("who ?\tthe cat\ta dog\n\nwho ?\ta\tb\tc\n")
    first, second, third = call("predict", "run", "lines").out.split("\n")[:3]
    assert first.split("\t")[0] in ("the cat", "a dog")
    assert second == ""
    entry = json.loads(call("predict", "run", "lines", "--json").out.splitlines()[2])
    assert entry["answer"] == third.split("\t")[0]
    assert sum(entry["probabilities"].values()) == pytest.approx(1)
    assert "accuracy" in call("score", "run", "q.jsonl").out
    run = regard.load("run")
    assert run.predict([("who ?", ["the cat", "a dog"])])[0].text == first.split("\t")[0]
    answers = ["the cat", "a dog"]
    for place_of in (0, np.int64(1)):
        by_text, by_place = (run.score([("who ?", answers, right)]) for right in (answers[place_of], place_of))
        assert by_text["accuracy"] == by_place["accuracy"] == 100 * (answers[place_of] == first.split("\t")[0])
    with pytest.raises(UserError, match="'7' is neither one of the answers 'the cat, a dog' nor the place of one"):
        run.score([("who ?", answers, 7)])
    said = call("look", "run", "who ?\ta\tb")
    assert said.code == 1
    assert said.err.count("\n") == 1


@pytest.mark.parametrize(
    ("entry", "says"),
    [
        ({"question": "a", "choices": ["b"], "answer": 0}, "1 answer"),
        ({"question": "a", "choices": ["b", "b"], "answer": 0}, "two of its answers are equal"),
        ({"question": "a", "choices": ["b", "c"], "answer": 5}, "'5' is neither one of its answers"),
        ({"question": " ", "choices": ["b", "c"], "answer": "c"}, "no question"),
    ],
)
def test_a_question_that_cannot_be_asked_is_named_by_check(place: Path, call: Call, entry: Any, says: str) -> None:
    (place / "q.jsonl").write_text("".join(json.dumps(each) + "\n" for each in CHOICES))
    assert call("new", "multiple-choice", "q.jsonl", "-o", "r.toml").code == 0
    (place / "q.jsonl").write_text("".join(json.dumps(each) + "\n" for each in [*CHOICES, entry]))
    said = call("check", "r.toml")
    assert said.code == 1
    assert f"({len(CHOICES) + 1}) cannot be read" in said.out
    assert says in said.out.replace("\n", " ")


@pytest.mark.parametrize(
    ("answers", "right", "says"),
    [
        (["b", "c"], 2, "2 answers, from 0 on, and 2 is given as the right one"),
        (["b", "c"], -1, "and -1 is given as the right one"),
        ("bc", "b", "'bc' as its answers: give a list of them"),
        (None, "b", "'None' as its answers"),
    ],
)
def test_a_choice_from_python_that_cannot_be_made_is_refused(
    tmp_path: Path, answers: Any, right: Any, says: str
) -> None:
    kept = keep_choices([("a", ["b", "c"], np.int64(1))], tmp_path / "good")
    assert json.loads(kept["file"].read_text())["answer"] == "c"
    with pytest.raises(UserError, match=f"Example 2 .*{says}"):
        keep_choices([("a", ["b", "c"], 0), ("a", answers, right)], tmp_path / "bad")


def test_what_is_no_single_text_is_refused_where_one_is_read(tmp_path: Path) -> None:
    """A number may be one, as in a table."""
    kept = keep_labelled([(3, "x"), ("b", 1)], tmp_path / "some")
    assert json.loads(kept["file"].read_text().splitlines()[0]) == {"source": "3", "target": "x"}
    run = regard.load(Path(__file__).parent / "runs" / "classification")
    with pytest.raises(UserError, match="reads one text at a time, and .* is not one"):
        run.predict([("a", "b")])
    with pytest.raises(UserError, match="is not an input and its right answer"):
        run.score([("a", "b", "x")])


# --- question answering ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["words", "bpe", "characters", "given"])
def test_a_span_comes_back_as_the_characters_that_were_typed(kind: Kind) -> None:
    text = "The cafe\u0301 opened in 1994, said Ann's friend."
    field = TextsField(Tokenizer.train(kind, [text] * 3, size=300 if kind == "bpe" else None))
    fields = regard.data.fields.Fields({"source": field, "target": SpanField()})
    for answer in ("The", "cafe\u0301", "opened in") + (() if kind == "given" else ("1994", "friend")):
        raw = BETWEEN.join(["what ?", text])
        (span,) = fields.encode({"source": [raw], "target": [Answer(answer, text.index(answer))]})["target"]
        pieces = field.pieces(raw)
        assert raw[pieces[span[0]].start : pieces[span[1]].end] == answer


def test_the_best_span_is_that_of_a_search_over_all() -> None:
    random = torch.Generator().manual_seed(1)
    log_probs = torch.randn(2, 2 * LONGEST, generator=random).log_softmax(-1)
    every = [
        (float(log_probs[0, start] + log_probs[1, end]), start, end)
        for start in range(2 * LONGEST)
        for end in range(start, min(2 * LONGEST, start + LONGEST))
    ]
    found = best_spans(log_probs, 5)
    assert [span[1:] for span in found] == [span[1:] for span in sorted(every, reverse=True)[:5]]


def test_the_best_span_of_a_very_long_text_takes_no_square_of_its_length() -> None:
    log_probs = torch.full((2, 300_000), -20.0)
    log_probs[0, 299_990] = log_probs[1, 299_995] = log_probs[1, 7] = -1.0
    assert best_spans(log_probs) == [(-2.0, 299_990, 299_995)]


@torch.no_grad()
def test_an_answer_starts_and_ends_in_the_second_text() -> None:
    model = body("encoder", Span())
    shares = model.point(Batch(source(*ROWS["span"]))).exp()
    assert torch.allclose(shares.sum(-1), torch.ones(2, 2).double())
    assert shares[0, :, :3].eq(0).all()  # the question and its end
    assert shares[1, :, 3:].eq(0).all()


@pytest.mark.parametrize(
    ("answer", "gold", "exact", "f1"),
    [
        ("The cat!", "cat", 100, 100),
        ("a small cat", "the cat", 0, 200 / 3),
        ("dog", BETWEEN.join(["cat", "Dog"]), 100, 100),
        ("", "cat", 0, 0),
    ],
)
def test_answers_are_compared_as_squad_does(answer: str, gold: str, exact: float, f1: float) -> None:
    assert EXACT_MATCH.of([answer], [gold]) == exact
    assert ANSWER_F1.of([answer], [gold]) == pytest.approx(f1)


QUESTIONS = [
    {"question": f"who sees {i} ?", "context": f"dog . the cat sees {i} .", "answer": "the cat"} for i in range(60)
]


def squad(rows: list[dict[str, str]]) -> dict[str, Any]:
    paragraphs = [
        {
            "context": row["context"],
            "qas": [
                {
                    "question": row["question"],
                    "answers": [{"text": row["answer"], "answer_start": row["context"].find(row["answer"])}],
                }
            ],
        }
        for row in rows
    ]
    return {"version": "1.1", "data": [{"title": "t", "paragraphs": paragraphs}]}


def test_spans_from_every_form_of_file_to_answers(place: Path, call: Call) -> None:
    (place / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in QUESTIONS))
    (place / "q.tsv").write_text("".join("\t".join(row.values()) + "\n" for row in QUESTIONS))
    (place / "q.json").write_text(json.dumps(squad(QUESTIONS)))
    read = []
    for name in ("q.jsonl", "q.tsv", "q.json"):
        assert call("new", "question-answering", name, "-o", f"{name}.toml").code == 0
        recipe = regard.loading.read_recipe(place / f"{name}.toml")[0]
        read.append([(line[1:], line[2].start) for line in recipe.data.lines("train", place)])
    assert read[0] == read[1] == read[2]
    assert call("check", "q.json.toml").code == 0
    assert call("train", "q.json.toml", *QUICK, "-o", "run").code == 0
    text = "a dog, and the cat"
    (place / "lines").write_text(f"who ?\t{text}\n\n")
    answer, share, start = call("predict", "run", "lines").out.splitlines()[0].split("\t")
    assert text[int(start) :].startswith(answer)
    entry = json.loads(call("predict", "run", "lines", "--json", "--n-best", 3).out.splitlines()[0])
    assert text[entry["start"] : entry["end"]] == entry["answer"] == answer
    assert entry["probability"] == pytest.approx(float(share), abs=1e-3)
    assert len(entry["alternatives"]) == 2
    assert "exact match" in call("score", "run", "q.jsonl").out
    run = regard.load("run")
    assert run.predict([("who ?", text)])[0].text == answer
    for typed in (("who ?", f"  {text}"), f"who ?\t  {text}", f"who ?{BETWEEN}  {text}"):
        (found,) = run.predict([typed])
        assert found.place is not None and f"  {text}"[slice(*found.place)] == found.text
    with pytest.raises(UserError, match="has 3 parts: give a question and one text"):
        run.predict([("who ?", text, text)])
    assert run.score([(*row.values(),) for row in QUESTIONS[:3]])["count"] == 3
    said = call("predict", "run", "no text here")
    assert said.code == 1
    assert "a tab between" in said.err


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ('{"version": "1", "data": [{"tit', "q.json is not SQuAD's JSON or JSONL"),
        ('{"data": [{"title": "t"}]}', "q.json is not SQuAD's JSON: data must hold"),
        ('{"question": "who ?"}', "has 1 field in each line"),
    ],
)
def test_a_file_without_questions_is_named(place: Path, call: Call, content: str, says: str) -> None:
    (place / "q.json").write_text(content)
    said = call("new", "question-answering", "q.json", "-o", "q.toml")
    assert said.code == 1 and says in said.err and said.err.count("\n") == 1, said
    assert not (place / "q.toml").exists()


def test_an_empty_table_is_called_empty(tmp_path: Path) -> None:
    (tmp_path / "t.tsv").write_text("")
    with pytest.raises(UserError, match="is empty: give a first line with the names question, answer,"):
        list(read_fields(tmp_path / "t.tsv", ["question", "answer"]))


def test_several_answers_may_be_right_and_none_is_refused_by_name(place: Path) -> None:
    rows = [
        {"question": "q", "context": "a b c b", "answer": {"text": ["b", "c"], "answer_start": [6, 4]}},
        {"question": "unanswerable", "context": "a b", "answer": []},
        {"question": "q", "context": "a b", "answer": "z"},
    ]
    (place / "q.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    wrong: list[str] = []
    data = QuestionTable(train="q.jsonl", valid="q.jsonl")
    ((_, _, target),) = data.lines("train", place, lambda file, number, says: wrong.append(f"{number} {says}"))
    assert (target, target.start) == (BETWEEN.join(["b", "c"]), 6)
    assert wrong[0].startswith("2 the question 'unanswerable' has no answer")
    assert wrong[1] == "3 the answer 'z' is not in the text"


# --- words in pieces ---------------------------------------------------------------------------------------------


def test_the_first_piece_of_a_word_stands_for_it() -> None:
    field = texts("bpe", TextField)
    fields = regard.data.fields.Fields({"source": field, "target": TagField(["x"])})
    (firsts,) = fields.encode({"source": ["the sun-cat sees dogs"]})["firsts"]
    pieces = field.pieces("the sun-cat sees dogs")
    assert [pieces[place - 1].start for place in firsts] == [0, 4, 12, 17]
    assert isinstance(fields["firsts"], FirstsField)
    assert "firsts" not in json.loads(fields.to_json())["sides"]
    whole = regard.data.fields.Fields({"source": texts("given", TextField), "target": TagField(["x"])})
    assert "firsts" not in whole


@pytest.mark.parametrize("head", ["softmax", "crf"])
@torch.no_grad()
def test_tags_of_pieces_are_those_of_their_first_states(head: str) -> None:
    torch.manual_seed(1)
    config = MODELS["birnn"].config(**BODIES["birnn"], head=head, dropout=0.0)
    model = MODELS["birnn"].build(config, Shapes(Ids(VOCAB), TagIds(3))).double().eval()
    read = source([4, 5, 6, 7], [8, 9])
    batch = Batch(read, beside={"firsts": torch.tensor([[1, 3, 4], [1, 0, 0]])})
    states = model.encoder(read).states
    scores = model.head.linear(states)  # type: ignore[operator, union-attr]
    assert torch.equal(model.encoded(batch).states[0], states[0, [0, 2, 3]])
    if head == "softmax":
        assert model.tag(batch)[0].tolist() == scores[0, [0, 2, 3]].argmax(-1).tolist()
    words = Batch(
        read, Padded(torch.tensor([[0, 1, 2], [1, 0, 0]]), torch.tensor([[1, 1, 1], [1, 0, 0]]).bool()), batch.beside
    )
    assert model.loss(words).tokens == 4
    every = Batch(read, beside={"firsts": torch.tensor([[1, 2, 3, 4], [1, 2, 0, 0]])})  # each word is one piece
    tags, alone = model.tag(every), model.tag(Batch(read))
    assert tags[0].tolist() == alone[0, :4].tolist()
    assert tags[1, :2].tolist() == alone[1, :2].tolist()


def test_tagging_with_byte_pairs_gives_a_tag_for_each_word_that_is_read(place: Path, call: Call) -> None:
    sentence = "the\tD\nunbelievable\tA\ncat\tN\nsees\tV\n\n"
    (place / "t.conll").write_text("".join(sentence.replace("cat", f"cat{i}") for i in range(60)))
    assert call("new", "tagging", "t.conll", "--tokens", "bpe", "--model", "encoder", "-o", "t.toml").code == 0
    small = ("tokens.size=270", "model.positions=learned", "model.longest=48", "data.hold_out=0.5")
    assert call("train", "t.toml", *QUICK, *small, "-o", "run").code == 0
    run = regard.load("run")
    short, long = run.predict(["the dog sees", " ".join(["the unbelievable cat sees"] * 9)])
    assert len(short.tokens) == 3
    assert 4 < len(long.tokens) < 36
    assert long.cut
    assert "accuracy" in call("score", "run", "t.conll").out
    said = call("train", "t.toml", *QUICK, *small, "model.letters=3", "-o", "other")
    assert "model.letters needs words" in said.err


# --- the grammar's questions -------------------------------------------------------------------------------------


def test_the_grammar_asks_what_its_sentences_answer() -> None:
    for split in ("train", "valid"):
        some = list(islice(world.questions(split, longest=14), 100))  # type: ignore[arg-type]
        for asked in some:
            assert asked.text[asked.start : asked.start + len(asked.answer)] == asked.answer
            assert asked.right.lower() == asked.answer.lower()
            assert len({*asked.choices}) == len(asked.choices) >= 3
            assert {*asked.question.lower().split()[:-1]} <= {
                *asked.text.lower().split(),
                "who",
                "what",
                "where",
                "when",
            }
    first, again = (next(world.questions("test", seed=3)) for _ in range(2))
    assert first == again


def test_the_shapes_of_the_new_tasks_are_those_of_their_fields() -> None:
    shapes = {
        name: TASKS[name].learn(lambda n=name: TASKS[n].toy, TASKS[name].tokens()).shapes.target for name in TASKS
    }  # type: ignore[misc]
    assert shapes["regression"] == Scalar()
    assert shapes["multiple-choice"] == Choice()
    assert shapes["question-answering"] == Span()
    assert isinstance(shapes["classification"], Label)
    assert ChoiceField().shape == Choice()


@pytest.mark.slow
@pytest.mark.parametrize("task", ["multiple-choice", "question-answering"])
def test_questions_of_the_grammar_are_answered_from_scratch(task: str, tmp_path: Path) -> None:
    recipe = demo_recipe(task, TASKS[task].demo_model)
    run = regard.train(recipe, tmp_path / "run", progress=False)
    lines = copy.copy(run.recipe.data).lines("test", tmp_path)
    every = [(*source.split(BETWEEN), answer) for _, source, answer in lines]
    assert run.score(every)[run.task.metrics[0].key] >= 90


@pytest.mark.slow
def test_the_lexical_density_of_the_grammar_is_learnt(tmp_path: Path) -> None:
    run = regard.train(demo_recipe("regression", "birnn"), tmp_path / "run", progress=False)
    every = [line[1:] for line in replace(run.recipe.data).lines("test", tmp_path)]  # type: ignore[type-var]
    assert run.score(every)["pearson"] >= 90

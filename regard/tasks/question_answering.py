"""question-answering: a question and a text; the answer is a stretch of the text."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

from regard.check.examples import check_examples
from regard.config import counted
from regard.data import world
from regard.data.fields import TextsField
from regard.data.in_memory import keep_questions
from regard.data.questions import Answer, QuestionTable, SpanField, clean, is_squad
from regard.data.sources import BETWEEN, UNDECIDED, World
from regard.data.text import one_line
from regard.data.tokens import TextTokens
from regard.interface import Learns, Points, UserError
from regard.new.choices import Made, Reasons, Request
from regard.new.fields import keys_of
from regard.new.labelled import new_labelled
from regard.predict.decoding import Decoding, Prediction
from regard.predict.questions import point
from regard.run import Run
from regard.score.labels import score_answers
from regard.score.metrics import ANSWER_F1, ANSWER_METRICS, EXACT_MATCH
from regard.tasks import Task, Words
from regard.tasks.classification import labelled_demo
from regard.train.corpus import Corpus

QUESTION, TEXT = ("question", "query"), ("context", "text", "passage", "paragraph", "document")  # names of fields
RIGHT, START = ("answer", "answers", "target"), ("start", "answer_start")


class WorldQuestions(World):
    """A question about a sentence of the built-in grammar: who does it, what, where or when."""

    form = QuestionTable(train="", hold_out=UNDECIDED)
    paired = True
    write = world.questions

    @staticmethod
    def sides(pair: world.Asked) -> tuple[str, ...]:
        return BETWEEN.join([pair.question, pair.text]), Answer(pair.answer, pair.start)


def as_read(lines: Sequence[Any]) -> list[str]:
    """A question and a text, which a tab or BETWEEN separates, or which are a tuple."""
    pairs = [line.replace(BETWEEN, "\t", 1).split("\t", 1) if isinstance(line, str) else line for line in lines]
    if odd := [pair for pair in pairs if len(pair) > 2]:
        raise UserError(f"{str(odd[0])[:80]!r} has {len(odd[0])} parts: give a question and one text.")
    return [BETWEEN.join([pair[0].strip(), *map(clean, pair[1:])]) for pair in pairs]


def answer(run: Run, lines: Sequence[Any], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    return point(run, as_read(lines), how, first_line)


def plain(raw: Any, prediction: Prediction) -> str:
    if prediction.place is None:
        return ""
    return f"{one_line(prediction.text)}\t{math.exp(prediction.score):.4f}\t{prediction.place[0]}"


def entry(raw: Any, prediction: Prediction) -> dict[str, Any]:
    """The answer, its probability and its place in the text, in characters from 0, and the other answers."""
    ranked = [
        {"answer": each.text, "probability": math.exp(each.score), "start": each.place[0], "end": each.place[1]}
        for each in (prediction, *prediction.alternatives)
        if each.place is not None
    ]
    return {**(ranked[0] if ranked else {"answer": ""}), "alternatives": ranked[1:], "cut": prediction.cut}


def new(asked: Request) -> Made:
    asked.refuse("unit")
    files = asked.train_and_valid()
    file = asked.first_file(files["train"])
    fields: dict[str, Any] = {}
    reasons: Reasons = {"data.train": "SQuAD's JSON."}
    if not is_squad(file):
        keys = keys_of(file, (*QUESTION, *TEXT, *RIGHT, *START), form="SQuAD's JSON or JSONL")
        if len(keys) < 3:
            raise UserError(
                f"{file} has {counted(len(keys), 'field')} in each line: give a question, a text and the answer."
            )
        usual = {key.lower(): key for key in keys}
        found = [next((usual[name] for name in names if name in usual), "") for names in (QUESTION, TEXT, RIGHT, START)]
        named = (asked.source, asked.second, asked.target)
        source, second, target = (given or name or key for given, name, key in zip(named, found, keys, strict=False))
        fields = {"source": source, "second": second, "target": target, "start": found[3]}
        reasons = {"data.source": "the question.", "data.second": "the text.", "data.target": "the answer in the text."}
    data = QuestionTable(**fields, **files)
    return new_labelled(asked, data, TextTokens(kind=asked.kind or "words", size=0, longest=512), reasons)


def demo(run: Run) -> Iterator[str]:
    yield from labelled_demo(run, "answers", EXACT_MATCH, "question")
    yield "  regard new question-answering your.jsonl -o my.toml"


TASK = Task(
    name="question-answering",
    about="Questions about English sentences from a small grammar; the answer is a phrase of the sentence.",
    words=Words(
        example="question",
        file="squad.json",
        line="question",
        counts="questions",
        sides=("question and text", "answer"),
        another="another answer to an earlier question",
        judged="the words that the answer and the right one share (F1)",
    ),
    fields={"source": TextsField, "target": SpanField},
    sources={"world": WorldQuestions, "table": QuestionTable},
    tokens=TextTokens,
    promises={"loss(batch)": Learns, "point(batch)": Points},
    metrics=ANSWER_METRICS,
    model="encoder",
    contenders=("encoder", "birnn", "cnn"),
    demo_model="encoder",
    toy=((BETWEEN.join(["a", "b c"]), "c"), (BETWEEN.join(["c", "a b d"]), "a b")),
    corpus=Corpus,
    keep=keep_questions,
    new=new,
    check=check_examples,
    answer=answer,
    score=score_answers,
    demo=demo,
    plain=plain,
    entry=entry,
    right=lambda output, reference: ANSWER_F1.of([output], [reference]),
    decoding=Decoding(),
)

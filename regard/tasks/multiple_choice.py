"""multiple-choice: a question and several answers, one of which is right."""

from __future__ import annotations

from collections.abc import Iterator, Sequence, Sized
from pathlib import Path
from typing import Any

from regard.check.examples import check_examples
from regard.data import world
from regard.data.in_memory import keep_choices
from regard.data.questions import ChoiceField, ChoicesField, ChoiceTable, entries, rows_in
from regard.data.sources import BETWEEN, UNDECIDED, World
from regard.data.tokens import TextTokens
from regard.interface import Chooses, Learns, UserError
from regard.new.choices import Made, Reasons, Request
from regard.new.fields import keys_of
from regard.new.labelled import new_labelled
from regard.predict.decoding import Decoding, Prediction
from regard.predict.questions import choose
from regard.run import Run
from regard.score.labels import score_answers
from regard.score.metrics import ACCURACY
from regard.tasks import Task, Words
from regard.tasks.classification import as_read, labelled_demo, plain
from regard.train.corpus import Corpus

ASKED = ("question", "prompt", "source")  # usual names of fields
ANSWERS = ("choices", "answers", "options", "endings")
RIGHT = ("answer", "label", "right", "target")


class WorldChoices(World):
    """A sentence of the built-in grammar with a question about it, and phrases of the grammar as answers."""

    form = ChoiceTable(train="", source="question", choices=("choices",), target="answer", hold_out=UNDECIDED)
    paired = True
    write = world.questions

    @staticmethod
    def sides(pair: world.Asked) -> tuple[str, ...]:
        return BETWEEN.join([f"{pair.text} {pair.question}", *pair.choices]), pair.right


class ChoiceCorpus(Corpus):
    def fits(self, example: Sequence[Sized]) -> bool:
        """A question with any of its answers may be as long as a text."""
        ids: Any = example[0]
        return len(ids) > 0 and all(end - start <= self.recipe.tokens.longest for start, end in rows_in(ids))


def answer(run: Run, lines: Sequence[Any], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    return choose(run, as_read(run, lines), how, first_line)


def entry(raw: Any, prediction: Prediction) -> dict[str, Any]:
    return {"answer": prediction.text, "probabilities": prediction.probabilities or {}, "cut": prediction.cut}


def fields_in(asked: Request, file: Path) -> tuple[dict[str, Any], Reasons]:
    """The fields of the question, of the answers and of the right one: by their usual names; otherwise the first, those
    in the middle and the last."""
    keys = keys_of(file, (*ASKED, *ANSWERS, *RIGHT))
    if len(keys) < 3:
        raise UserError(f"{file} has {len(keys)} fields in each line: give a question, its answers and the right one.")
    usual = {key.lower(): key for key in keys}
    question, several, right = (
        next((usual[name] for name in names if name in usual), None) for names in (ASKED, ANSWERS, RIGHT)
    )
    question, right = asked.source or question or keys[0], asked.target or right or keys[-1]
    choices = (several,) if several else tuple(key for key in keys if key not in (question, right))
    rows = entries(file, (question, *choices, right), lambda *_: None)
    numbers, counts = set[int](), set[int]()
    for _, (_, *cells, number) in rows:
        if str(number).isdecimal():
            numbers.add(int(number))
            counts.add(sum(len(cell) if isinstance(cell, list) else 1 for cell in cells))
    first = int(0 not in numbers and bool(numbers & counts))
    reasons = {"data.choices": "the fields of the answers.", "data.target": "the field of the right answer."}
    if numbers:
        reasons["data.first"] = f"the right answers are given by number, the first of them is {first}."
    return {"source": question, "choices": choices, "target": right, "first": first}, reasons


def new(asked: Request) -> Made:
    asked.refuse("unit", "second")
    files = asked.train_and_valid()
    fields, reasons = fields_in(asked, asked.first_file(files["train"]))
    data = ChoiceTable(**fields, **files)
    return new_labelled(asked, data, TextTokens(kind=asked.kind or "words", size=0), reasons)


def demo(run: Run) -> Iterator[str]:
    yield from labelled_demo(run, "answers", ACCURACY, "question")
    yield "  regard new multiple-choice your.jsonl -o my.toml"


TASK = Task(
    name="multiple-choice",
    about="Questions about English sentences from a small grammar, with several answers each.",
    words=Words(
        example="question",
        file="questions.jsonl",
        counts="questions",
        sides=("question with its answers", "right answer"),
        another="another answer to an earlier question",
    ),
    fields={"source": ChoicesField, "target": ChoiceField},
    sources={"world": WorldChoices, "table": ChoiceTable},
    tokens=TextTokens,
    promises={"loss(batch)": Learns, "choose(batch)": Chooses},
    metrics=(ACCURACY,),
    model="birnn",
    contenders=("birnn", "attentive_birnn", "encoder", "cnn"),
    demo_model="birnn",
    toy=((BETWEEN.join(["a b", "c", "d"]), "d"), (BETWEEN.join(["c", "a", "b", "d"]), "a")),
    corpus=ChoiceCorpus,
    keep=keep_choices,
    new=new,
    check=check_examples,
    answer=answer,
    score=score_answers,
    demo=demo,
    plain=plain,
    entry=entry,
)

"""regression: a number for a text, or for two texts read one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from regard.check.examples import check_examples
from regard.config import counted
from regard.data import world
from regard.data.fields import NumberField, TextsField, is_number
from regard.data.in_memory import keep_labelled
from regard.data.sources import UNDECIDED, Line, World
from regard.data.text import Report, refuse_line
from regard.data.tokens import TextTokens
from regard.interface import Estimates, Learns
from regard.new.choices import Made, Request
from regard.new.fields import number_among, texts_and_target
from regard.new.labelled import new_labelled
from regard.predict.decoding import Decoding, Prediction
from regard.predict.labels import estimate
from regard.run import Run
from regard.score.labels import score_answers
from regard.score.metrics import NUMBER_METRICS
from regard.tasks import Task, Words
from regard.tasks.classification import LabelledTable, as_read, look, look_closely
from regard.train.corpus import Corpus

CONTENT = ("NOUN", "PROPN", "VERB", "ADJ", "ADV", "NUM")  # parts of speech that say something by themselves


@dataclass(frozen=True, kw_only=True)
class NumberTable(LabelledTable):
    """One file with a text, or two, and a number in each line: JSONL, TSV or CSV; plain or compressed."""

    def read(self, path: Path, report: Report | None) -> Iterator[Line]:
        for line in super().read(path, report):
            if is_number(line[2]):
                yield line
            else:
                refuse_line(report, str(path), line[0], f"{line[2][:80]!r} is not a number", "correct or delete it")


class WorldDensity(World):
    """Sentences of the built-in grammar and their lexical density: content words per 100 words."""

    form = NumberTable(train="", source="1", target="2", hold_out=UNDECIDED)

    @staticmethod
    def sides(pair: world.Pair) -> tuple[str, ...]:
        share = sum(tag in CONTENT for tag in pair.tags) / len(pair.tags)
        return " ".join(pair.source), f"{100 * share:.1f}"


def answer(run: Run, lines: Sequence[Any], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    return estimate(run, as_read(run, lines), how)


def entry(raw: Any, prediction: Prediction) -> dict[str, Any]:
    return {"number": float(prediction.text), "cut": prediction.cut}


def near(output: str, reference: str) -> float:
    """How near a number is to the right one: 100 / (1 + |x − y|)."""
    return 100 / (1 + abs(float(output) - float(reference)))


def new(asked: Request) -> Made:
    asked.refuse("unit")
    files = asked.train_and_valid()
    fields, reasons = texts_and_target(asked, asked.first_file(files["train"]), number_among)
    data = NumberTable(**fields, **files)
    return new_labelled(asked, data, TextTokens(kind=asked.kind or "words", size=0), reasons)


def demo(run: Run) -> Iterator[str]:
    """How well the numbers of unseen sentences are estimated, and the first few."""
    every = [line[1:] for line in run.recipe.data.lines("test", run.recipe.folder)]
    outputs = [prediction.text for prediction in run.predict([source for source, _ in every])]
    found = (f"{metric.name} {metric.of(outputs, [gold for _, gold in every]):.2f}" for metric in NUMBER_METRICS)
    yield f"\n{counted(len(every), 'unseen sentence')}: {', '.join(found)}"
    for (text, gold), output in list(zip(every, outputs, strict=True))[:5]:
        yield f"  {text}\n    {float(output):.1f}   (correct: {gold})"
    yield "\nNext:"
    yield f"  regard predict {run.name} < sentences.txt"
    yield "  regard new regression your.tsv -o my.toml"


TASK = Task(
    name="regression",
    about="Lexical density of English sentences from a small grammar: content words per 100 words.",
    words=Words(
        example="text",
        file="pairs.tsv",
        counts="numbers",
        sides=("text", "number"),
        another="another number for an earlier text",
        judged="how near the number is to the right one, 100 / (1 + distance)",
    ),
    fields={"source": TextsField, "target": NumberField},
    sources={"world": WorldDensity, "table": NumberTable},
    tokens=TextTokens,
    promises={"loss(batch)": Learns, "estimate(batch)": Estimates},
    metrics=NUMBER_METRICS,
    model="birnn",
    contenders=("birnn", "attentive_birnn", "encoder", "cnn"),
    demo_model="birnn",
    toy=(("a b c", "1.5"), ("c", "-2")),
    corpus=Corpus,
    keep=keep_labelled,
    new=new,
    check=check_examples,
    answer=answer,
    score=score_answers,
    demo=demo,
    entry=entry,
    right=near,
    look=look,
    look_closely=look_closely,
)

"""classification: one label for a text, or for two texts read one after the other."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from regard.check.examples import check_examples
from regard.config import counted
from regard.data import world
from regard.data.fields import LabelField, TextsField
from regard.data.in_memory import keep_labelled
from regard.data.sources import BETWEEN, UNDECIDED, Imported, Table, World
from regard.data.text import one_line
from regard.data.tokens import TextTokens
from regard.interface import Classifies, Learns, UserError, Weighs
from regard.look.attention import label_closely, look_at_label
from regard.new.choices import Made, Request
from regard.new.fields import label_among, texts_and_target
from regard.new.labelled import new_labelled
from regard.predict.decoding import Decoding, Prediction
from regard.predict.labels import classify
from regard.run import Run
from regard.score.labels import score_labels
from regard.score.metrics import LABEL_METRICS, Metric
from regard.show.attention_page import Sentence
from regard.show.heat_map import HeatMap
from regard.tasks import Task, Words
from regard.train.corpus import Corpus, Sides


@dataclass(frozen=True, kw_only=True)
class LabelledTable(Table):
    """One file with a text, or two, and a label in each line: JSONL, TSV or CSV; plain or compressed."""

    second: str = ""  # the field of a second text, read after the first; "": there is none

    @property
    def texts(self) -> tuple[str, ...]:
        return (self.source, self.second) if self.second else (self.source,)

    @property
    def paired(self) -> bool:
        return bool(self.second)


class WorldSentiment(World):
    """Sentences of the built-in grammar and their sentiment: praise, blame or neither."""

    form = LabelledTable(train="", source="1", target="2", hold_out=UNDECIDED)

    @staticmethod
    def sides(pair: world.Pair) -> tuple[str, ...]:
        return " ".join(pair.source), pair.sentiment


class ImportedLabels(Imported):
    form = WorldSentiment.form
    paired = True


class LabelCorpus(Corpus):
    def prepare(self, model: object, encoded: Sides) -> None:
        """Class weights (train.balance): rare labels count as much as frequent ones."""
        if not self.recipe.train.balance:
            return
        if not isinstance(model, Weighs):
            raise UserError("train.balance needs class weights, and this model has no weigh(counts): set it to false.")
        model.weigh(np.bincount(encoded["target"].tokens))


def as_read(run: Run, lines: Sequence[Any]) -> list[str]:
    """Lines as the run reads them: a model of two texts reads both, which a tab separates, or which are a tuple."""
    if not run.recipe.data.paired:
        if other := [line for line in lines if not isinstance(line, str)]:
            raise UserError(f"{run.name} reads one text at a time, and {str(other[0])[:80]!r} is not one: give texts.")
        return list(lines)
    several = (line.split("\t") if isinstance(line, str) else line for line in lines)
    flat = ([each for part in parts for each in ([part] if isinstance(part, str) else part)] for parts in several)
    return [BETWEEN.join(part.strip(" ") for part in parts) if len(parts) > 1 else parts[0] for parts in flat]


def answer(run: Run, lines: Sequence[str], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    return classify(run, as_read(run, lines), how, first_line)


def look(run: Run, text: str, target: str | None = None, layer: int | None = None) -> HeatMap:
    return look_at_label(run, as_read(run, [text])[0], target)


def look_closely(run: Run, text: str, target: str | None = None) -> Sentence:
    return label_closely(run, as_read(run, [text])[0], target)


def plain(raw: Any, prediction: Prediction) -> str:
    if prediction.probabilities is None:
        return ""
    return f"{one_line(prediction.text)}\t{prediction.probabilities[prediction.text]:.4f}"


def entry(raw: Any, prediction: Prediction) -> dict[str, Any]:
    return {"label": prediction.text, "probabilities": prediction.probabilities or {}, "cut": prediction.cut}


def new(asked: Request) -> Made:
    asked.refuse("unit")
    files = asked.train_and_valid()
    fields, reasons = texts_and_target(asked, asked.first_file(files["train"]), label_among)
    data = LabelledTable(**fields, **files)
    return new_labelled(asked, data, TextTokens(kind=asked.kind or "words", size=0), reasons)


def demo(run: Run) -> Iterator[str]:
    yield from labelled_demo(run, "sentences", LABEL_METRICS[0])
    first = next(iter(run.recipe.data.lines("test", run.recipe.folder)))
    yield f'  regard look {run.name} "{first[1]}"'
    yield "  regard new classification your.tsv -o my.toml"


def labelled_demo(run: Run, unit: str, accuracy: Metric, example: str = "sentence") -> Iterator[str]:
    """How many are correct, and the first few."""
    every = list(run.recipe.data.lines("test", run.recipe.folder))
    outputs = [prediction.text for prediction in run.predict([source for _, source, _ in every])]
    gold = [target for _, _, target in every]
    share, count = accuracy.of(outputs, gold), int(accuracy.statistics(outputs, gold)[:, 1].sum())
    yield f"\n{counted(len(every), f'unseen {example}')}: {share:.2f} % of {count:,} {unit} are correct"
    for (_, text, target), output in list(zip(every, outputs, strict=True))[:5]:
        yield f"  {text.replace(BETWEEN, ' | ')}\n    {output}" + (
            "" if output == target else f"   (correct: {target})"
        )
    yield "\nNext:"
    yield f"  regard predict {run.name} < {example}s.txt"


TASK = Task(
    name="classification",
    about="Sentiment of English sentences from a small grammar: praise, blame or neither.",
    words=Words(example="sentence", file="reviews.tsv", counts="labels"),
    fields={"source": TextsField, "target": LabelField},
    sources={"world": WorldSentiment, "table": LabelledTable, "imported": ImportedLabels},
    tokens=TextTokens,
    promises={"loss(batch)": Learns, "classify(batch)": Classifies},
    metrics=LABEL_METRICS,
    model="birnn",
    contenders=("birnn", "attentive_birnn", "encoder", "cnn"),
    demo_model="birnn",
    toy=(("a b c", "x"), ("c", "y")),
    corpus=LabelCorpus,
    keep=keep_labelled,
    new=new,
    check=check_examples,
    answer=answer,
    score=score_labels,
    demo=demo,
    plain=plain,
    entry=entry,
    look=look,
    look_closely=look_closely,
    train_settings=frozenset({"balance"}),
)

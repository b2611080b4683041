"""tagging: a tag for each word, such as its part of speech, or spans of words such as names."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from regard.check.examples import check_examples
from regard.config import choose, counted, parse
from regard.data import world
from regard.data.fields import Fields, SpellingField, TagField, TextField
from regard.data.in_memory import keep_tagged
from regard.data.sources import UNDECIDED, Conll, World
from regard.data.spans import with_words
from regard.data.text import CONLLU, is_conllu, one_line
from regard.data.tokens import GivenTokens
from regard.interface import Learns, Tags, UserError
from regard.new.choices import Made, Reasons, Request
from regard.new.labelled import new_labelled
from regard.predict.decoding import Prediction
from regard.predict.labels import tag
from regard.run import Run
from regard.score.labels import score_tags
from regard.score.metrics import TAG_ACCURACY, TAG_METRICS
from regard.tasks import Task, Words
from regard.tasks.classification import labelled_demo
from regard.train.corpus import Corpus, Sides


class WorldTags(World):
    """Sentences of the built-in grammar, and the part of speech of each word."""

    form = Conll(train="", hold_out=UNDECIDED)

    @staticmethod
    def sides(pair: world.Pair) -> tuple[str, ...]:
        return " ".join(pair.source), " ".join(pair.tags)


class TagCorpus(Corpus):
    def batches(self, fields: Fields, encoded: Sides, model: object) -> Any:
        if "firsts" in fields and vars(self.recipe.model).get("letters"):
            raise UserError("model.letters needs words that are not split into pieces: set it to 0.")
        return super().batches(fields, encoded, model)

    def remarks(self) -> list[str]:
        data, corrected = self.recipe.data, list[str]()
        if data.names:
            for _ in data.lines("train", self.recipe.folder, lambda file, number, wrong: corrected.append(wrong)):
                pass
        if not corrected:
            return []
        return [
            f"In {counted(len(corrected), 'sentence')} tags were corrected ({corrected[0]}); regard check lists them."
        ]


def words_of(line: str) -> list[str]:
    return [word for word in line.split(" ") if word]


def entry(raw: str, prediction: Prediction) -> dict[str, Any]:
    return {"words": words_of(raw), "tags": list(prediction.tokens), "cut": prediction.cut}


def columns(raw: str, prediction: Prediction) -> str:
    """One word and its tag per line, a blank line after each sentence."""
    pairs = zip(words_of(raw), prediction.tokens, strict=False)  # a line that was cut has fewer tags
    return "".join(f"{one_line(word)}\t{tag}\n" for word, tag in pairs)


def tag_columns(asked: Request, file: Path) -> tuple[dict[str, int], Reasons]:
    """The columns of words and tags that were given; in CoNLL-U they have names, and FORM and UPOS are the default."""
    names = {name: number for number, name in enumerate(CONLLU, start=1)} if is_conllu(file) else {}
    chosen: dict[str, int] = {}
    reasons = {"data.train": "CoNLL-U: its comments, multi-word ranges and empty nodes are left out."} if names else {}
    for key, name, usual in (("word", asked.source, "FORM"), ("tag", asked.target, "UPOS")):
        if name and name.removeprefix("-").isdecimal():
            chosen[key] = int(name)
        elif name and not names:
            raise UserError(f"The columns of {file} have no names, and {name!r} was asked for: give a number, from 1.")
        elif names:
            chosen[key] = choose(names, (name or usual).upper(), "The CoNLL-U column")
            reasons[f"data.{key}"] = f"column {chosen[key]} of CoNLL-U is {CONLLU[chosen[key] - 1]}."
    return chosen, reasons


def new(asked: Request) -> Made:
    asked.refuse("unit")
    files = asked.train_and_valid()
    chosen, reasons = tag_columns(asked, asked.first_file(files["train"]))
    data = parse(Conll, {**files, **chosen}, where="data")
    kind = asked.kind or "given"
    recipe, reasons = new_labelled(asked, data, GivenTokens(kind=kind, size=8000 if kind == "bpe" else 0), reasons)
    if "letters" in vars(recipe.model) and kind == "given":
        recipe = replace(recipe, model=replace(recipe.model, letters=50))
        reasons["model.letters"] = "spelling helps with words that are not in the training data."
    return recipe, reasons


def demo(run: Run) -> Iterator[str]:
    yield from labelled_demo(run, "words", TAG_ACCURACY)
    yield "  regard new tagging your.conll -o my.toml"


TASK = Task(
    name="tagging",
    about="Parts of speech in English sentences from a small grammar.",
    words=Words(
        example="sentence",
        file="train.conll",
        line="sentence",
        counts="tags",
        judged="the tags that are correct, in per cent",
    ),
    fields={"source": TextField, "target": TagField, "spelling": SpellingField},
    sources={"world": WorldTags, "conll": Conll},
    tokens=GivenTokens,
    promises={"loss(batch)": Learns, "tag(batch)": Tags},
    metrics=TAG_METRICS,
    model="birnn",
    contenders=("birnn", "encoder", "cnn"),
    demo_model="birnn",
    toy=(("a b c", "x y y"), ("c", "y")),
    keep=keep_tagged,
    corpus=TagCorpus,
    new=new,
    check=check_examples,
    answer=tag,
    score=score_tags,
    demo=demo,
    entry=entry,
    right=lambda output, reference: TAG_ACCURACY.of([output], [reference]),
    columns=columns,
    legible=lambda raw, output: with_words(raw.split(), output.split()),
)

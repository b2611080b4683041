"""denoising: what a text was before noise hid parts of it (pre-training of a model that reads and writes)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Literal, cast

import numpy as np

from regard.data import world
from regard.data.corruption import SENTINELS, Batches, Noise, Noisy
from regard.data.fields import Fields, TextField
from regard.data.in_memory import keep_texts
from regard.data.sources import UNDECIDED, Line, Split, Text
from regard.data.text import Report
from regard.data.tokens import TextTokens
from regard.interface import Generates, Learns, UserError
from regard.look.attention import Reading, look_at_reading, read_tokens, reading_closely
from regard.new.choices import Made, Request
from regard.new.text import new_text_model
from regard.predict.decoding import Decoding, Prediction
from regard.predict.restoring import restore, restoring_log_probs, written
from regard.recipe import Recipe
from regard.run import Run
from regard.score.likelihood import perplexity
from regard.score.metrics import PERPLEXITY
from regard.score.result import Options, Scored
from regard.show.attention_page import Sentence
from regard.show.heat_map import HeatMap
from regard.tasks import Task, Words
from regard.tasks.language import WorldText, refuse_check
from regard.tasks.masked import BLANK, CorruptedCorpus, samples

NOISES: dict[str, Noise] = {"bart": "infilling"}  # by model, as in its paper; for all others: spans
Noises = Literal["auto", "spans", "infilling"]


@dataclass(frozen=True)
class NoisyText(Text):
    """One file of plain text, for a model that restores it; plain or compressed."""

    noise: Noises = "auto"  # spans (T5), infilling of permuted sentences (BART), or auto: as in the model's paper

    def lines(self, split: Split, folder: Path, report: Report | None = None) -> Iterator[Line]:
        """A text is both sides of an example, until noise changes them."""
        return ((number, text, text) for number, text in super().lines(split, folder, report))


@dataclass(frozen=True)
class NoisyWorld(WorldText):
    """English sentences of the built-in grammar, to be restored."""

    form = NoisyText(train="", hold_out=UNDECIDED)

    noise: Noises = "auto"  # spans (T5), infilling of permuted sentences (BART), or auto: as in the model's paper

    @staticmethod
    def sides(pair: world.Pair) -> tuple[str, ...]:
        return WorldText.sides(pair) * 2


def noise_of(recipe: Recipe) -> Noise:
    assert isinstance(recipe.data, NoisyText | NoisyWorld)
    return NOISES.get(recipe.model_name, "spans") if recipe.data.noise == "auto" else recipe.data.noise


class DenoisingCorpus(CorruptedCorpus):
    def learn_fields(self) -> Fields:
        """One vocabulary, from each text once."""
        task = replace(self.recipe.task, fields={"target": TextField})
        learnt: Fields = task.learn(lambda: (example[:1] for example in self.sample()), self.recipe.tokens)
        tokenizer = learnt.tokenizer()
        return Fields({side: TextField(tokenizer, begins=side == "target") for side in self.sides})

    def corrupted(self, texts: Batches, fields: Fields, seed: int) -> Batches:
        return Noisy(texts, fields, noise=noise_of(self.recipe), seed=seed)


def answer(run: Run, texts: Sequence[str], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    return restore(run, texts, how or TASK.decoding or Decoding(), noise_of(run.recipe), first_line)


def reading(run: Run, text: str, target: str | None) -> Reading:
    """A text with blanks and what the model writes for it, in tokens."""
    noise = noise_of(run.recipe)
    if target is not None and noise == "spans":
        raise UserError("A model of spans writes only what is missing: leave the target out.")
    line, hypotheses = next(written(run, [text], Decoding(blank=BLANK), noise), (None, []))
    if line is None:
        raise UserError("The text to look at is empty: give one with words in it.")
    ids = hypotheses[0].tokens if target is None else run.tokenizer("target").encode(target)
    return read_tokens(run, line.ids, ids)


def look(run: Run, text: str, target: str | None = None, layer: int | None = None) -> HeatMap:
    return look_at_reading(run, text, reading(run, text, target), layer)


def look_closely(run: Run, text: str, target: str | None = None) -> Sentence:
    return reading_closely(run, text, reading(run, text, target))


def outcomes(run: Run, examples: Sequence[tuple[str, ...]], how: Decoding | None) -> list[Any]:
    return list(restoring_log_probs(run, [text for text, *_ in examples], noise_of(run.recipe)))


def log_prob_of_each(runs: Sequence[Run], texts: Iterable[tuple[str, ...]], stride: int = 0) -> Iterator[float]:
    """ln P of what restores each text."""
    (run,) = runs
    yield from (float(values.sum()) for values in outcomes(run, list(texts), None))


def score(runs: Sequence[Run], texts: Sequence[tuple[str, ...]], asked: Options) -> Scored:
    (run,) = runs
    each = outcomes(run, texts, None)
    if not sum(map(len, each)):
        raise UserError("The text is empty: give at least one line.")
    if asked.on_answer is not None:
        for values in each:
            asked.on_answer(f"{values.sum():.4f}")
    log_prob, tokens = float(np.concatenate(each).sum()), sum(map(len, each))
    value = perplexity(log_prob, tokens)
    lines = [f"perplexity per token {value:10.3f}   {tokens:,} tokens that restore the texts, <eos> included"]
    return Scored(lines, {"perplexity": value, "tokens": tokens, "log_prob": log_prob})


def new(asked: Request) -> Made:
    """A recipe whose noise stays the same for every model, so that they can be compared."""
    recipe, reasons = new_text_model(replace(asked, unit=asked.unit or "line"))
    noise = NOISES.get(recipe.model_name, "spans")
    reasons["data.noise"] = f"it is the noise of the paper of {recipe.model_name}, and the same for other models."
    return replace(recipe, data=replace(cast(NoisyText, recipe.data), noise=noise)), reasons


def demo(run: Run) -> Iterator[str]:
    """How well unseen sentences are restored, and a few of them."""
    texts = [text for _, text, _ in run.recipe.data.lines("test", run.recipe.folder)]
    each = np.concatenate(outcomes(run, [(text,) for text in texts], None))
    yield f"\n{len(texts)} unseen sentences, {len(each):,} tokens to restore:"
    yield f"  perplexity {perplexity(float(each.sum()), len(each)):.2f} per token"
    for sample in samples(run, texts[:5]):
        yield f"  {sample.source}\n    {sample.output}"
    yield "\nNext:"
    yield f'  regard predict {run.name} "The small {BLANK} the soup ."'
    yield f"  regard score {run.name} sentences.txt"


TASK = Task(
    name="denoising",
    about="English sentences from a small grammar, with spans of words hidden.",
    words=Words(example="text", file="corpus.txt", sides=("text", "text"), try_with=f' "… {BLANK} …"'),
    fields={"source": TextField, "target": TextField},
    sources={"world": NoisyWorld, "text": NoisyText},
    tokens=TextTokens,
    specials=("<mask>", *(f"<extra_{number}>" for number in range(SENTINELS))),
    promises={"loss(batch)": Learns, "start(batch) and step(tokens, state)": Generates},
    metrics=(PERPLEXITY,),
    model="t5",
    contenders=("t5", "bart", "transformer"),
    demo_model="bart",
    toy=(("a b c", "a b c"), ("c", "c")),
    keep=keep_texts,
    corpus=DenoisingCorpus,
    new=new,
    check=refuse_check,
    answer=answer,
    outcomes=outcomes,
    score=score,
    demo=demo,
    decoding=Decoding(blank=BLANK),
    look=look,
    look_closely=look_closely,
    log_probs=log_prob_of_each,
    fills=True,
    checked=False,
)

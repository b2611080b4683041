"""The data of a recipe for training: examples, fields learnt from them, batches, and validation."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from dataclasses import replace
from functools import cached_property
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch

from regard.config import counted
from regard.data.batches import Encoded, Examples, validation_plan
from regard.data.fields import Fields
from regard.data.shards import shuffled
from regard.data.sources import Split, examples
from regard.data.text import is_cut
from regard.interface import Learns, Sample
from regard.predict.decoding import Decoding
from regard.recipe import Recipe
from regard.run import Run
from regard.score.metrics import LOSS

SHOWN_SAMPLES = 3
VALID_TOKENS = 4096  # in a batch

Sides = Mapping[str, Encoded]
Metrics = dict[str, float]
OnRead = Callable[[int, int], None]


class Corpus:
    """Separate examples, in batches of similar lengths. A task may have another kind of corpus."""

    whole_file = False  # True: one long text, in pieces

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe
        self.sides = tuple(recipe.task.fields)
        self.noun = recipe.task.words.example  # what an example is called

    def keep_in(self, folder: Path, on_read: OnRead) -> None:
        """Where a corpus may keep examples that are slow to read, until all are encoded; it calls `on_read` with how
        many it has read, and how many there are."""

    def forget(self) -> None:
        """Remove what was kept there."""

    def examples(self, split: Split) -> Iterator[tuple[Any, ...]]:
        """Yield the raw sides of each example of a split."""
        return examples(self.recipe.data, split, self.recipe.folder)

    def held(self, split: Split) -> Iterator[tuple[Any, ...]]:
        """Yield the examples that are not too long to be held; training leaves the others out."""
        return (example for example in self.examples(split) if not is_cut(example))

    @cached_property
    def valid(self) -> list[tuple[Any, ...]]:
        return list(self.held("valid"))

    def parts(self) -> list[Corpus]:
        """The same corpus, apart for each of several training files."""
        several = self.recipe.data.parts(self.recipe.folder)
        return [type(self)(replace(self.recipe, data=part)) for part in several] if several[1:] else [self]

    def learn_fields(self) -> Fields:
        fields: Fields = self.recipe.task.learn(lambda: self.held("train"), self.recipe.tokens, self.sample)
        return fields

    def sample(self) -> Iterator[tuple[Any, ...]]:
        """Yield the training examples that a vocabulary is learnt from: of several files, the first of each, which
        have tokens.sample million characters together."""
        parts, most = self.parts(), vars(self.recipe.tokens).get("sample", 0)
        for part in parts:
            room = most * 1_000_000 / len(parts) if most and parts[1:] else math.inf
            for example in part.held("train"):
                yield example
                room -= sum(len(side) for side in example if isinstance(side, str))
                if room <= 0:
                    break

    def fits(self, example: Sequence[Sized]) -> bool:
        """Return whether an encoded example is neither empty nor too long; packed texts are cut, never left out."""
        longest = math.inf if self.recipe.data.pack else self.recipe.tokens.longest
        return all(0 < len(ids) <= longest for ids in example[:2])

    def batches(self, fields: Fields, encoded: Sides, model: object) -> Any:
        return shuffled(Examples(fields, encoded), tokens=self.recipe.train.batch_tokens, seed=self.recipe.seed)

    def amount(self, encoded: Sides) -> str:
        return counted(len(next(iter(encoded.values()))), self.noun)

    def remarks(self) -> list[str]:
        """Return remarks for the user on how the data was read."""
        return []

    def prepare(self, model: object, encoded: Sides) -> None:
        """Give a model what it needs from the training data before its first step."""

    def validate(self, run: Run, encoded: Sides) -> tuple[Metrics, tuple[Sample, ...]]:
        """Return the validation loss, the task's metrics where one of them chooses the checkpoint or they cost little,
        and a few outputs."""
        task, found = run.task, loss_over(run, Examples(run.fields, encoded))
        cheap = task.decoding is None  # no text is generated, so every validation measures all metrics
        measured = cheap or self.recipe.metric is not LOSS
        some = self.valid if measured else self.valid[:SHOWN_SAMPLES]
        greedy = None if cheap else Decoding()
        outputs = [answer.text for answer in run.predict([example[0] for example in some], greedy)]
        references = [example[1] for example in some]
        if measured:
            wanted = task.metrics if cheap else (self.recipe.metric,)
            found |= {metric.key: metric.of(outputs, references) for metric in wanted}
        shown = (example[0] if isinstance(example[0], str) else "" for example in some)
        samples = (Sample(*each) for each in zip(shown, references, outputs, strict=True))
        return found, tuple(islice(samples, SHOWN_SAMPLES))


def by_side(fields: Fields, examples: Iterable[Sequence[Any]]) -> dict[str, Any]:
    """Return the raw values of each side that examples hold; other sides are derived from the source."""
    given = [side for side in fields if fields[side].shape is not None]
    return dict(zip(given, zip(*examples, strict=True), strict=True))


def loss_over(run: Run, examples: Examples) -> Metrics:
    """Return the mean loss per token, and the number of tokens."""
    nll, tokens = 0.0, 0
    with torch.inference_mode():
        for indices in validation_plan(*examples.lengths, tokens=VALID_TOKENS):
            loss = cast(Learns, run.model).loss(examples.collate(indices).to(run.device))
            nll, tokens = nll + float(loss.nll), tokens + loss.tokens
    return {LOSS.key: nll / tokens, "tokens": float(tokens)}

"""What a session trains on, task by task: texts, batches of them, and what validating means."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property
from itertools import islice
from typing import Any, ClassVar, cast

import numpy as np
import torch

from regard.data.batches import Encoded, Lines, Named, Pairs, Shuffled, spelt, validation_plan
from regard.data.sources import Conll, PlainText, Split, World, pairs
from regard.data.streams import Anywhere, Carried
from regard.data.tokenizers import Tokenizers
from regard.interface import BOS, EOS, UNK, Learns, Sample, Scores, UserError, Windowed
from regard.models.encoder_head import LABELS, Classifier
from regard.predict.search import Decoding
from regard.recipe import PlainTokens, Recipe, Tokens
from regard.run import Run
from regard.score import labels as naming
from regard.score import translation as score
from regard.score.labels import names_of
from regard.score.likelihood import carried_log_probs, token_log_probs

SHOWN_SAMPLES = 3
SAMPLE_LENGTH = 100  # tokens of a text that is written to show what has been learnt
VALID_ROWS = 32  # places of a whole file that are read side by side to validate

Metrics = dict[str, float]


class Corpus(ABC):
    """The data of a recipe as its task sees it."""

    sides: ClassVar[tuple[str, ...]]  # of an example: each has its tokens in a file of its own
    noun: str  # what an example is called, more than one of them
    whole_file = False  # one text, in pieces

    def __init__(self, recipe: Recipe) -> None:
        self.recipe = recipe

    @abstractmethod
    def texts(self, split: Split) -> Iterator[tuple[str, ...]]:
        """The examples of a split, a text a side."""

    @abstractmethod
    def tokenizers(self) -> Tokenizers: ...

    def encoders(self, tokenizers: Tokenizers) -> tuple[Callable[..., list[list[int]]], ...]:
        """From the texts of each side to what is kept of them."""
        return tuple(tokenizer.encode_all for tokenizer in tokenizers)

    @abstractmethod
    def batches(self, encoded: tuple[Encoded, ...], model: object) -> Any: ...

    @abstractmethod
    def validate(self, run: Run, encoded: tuple[Encoded, ...]) -> tuple[Metrics, tuple[Sample, ...]]: ...

    def amount(self, encoded: tuple[Encoded, ...]) -> str:
        return f"{len(encoded[0]):,} {self.noun}"

    def remarks(self) -> list[str]:
        """What a person should know of how the data was read."""
        return []


class Translation(Corpus):
    sides = ("source", "target")
    noun = "pairs"

    @cached_property
    def valid(self) -> list[tuple[str, str]]:
        return list(self.texts("valid"))

    def texts(self, split: Split) -> Iterator[tuple[str, str]]:
        return pairs(self.recipe.data, split, self.recipe.folder)

    def tokenizers(self) -> Tokenizers:
        how = cast(Tokens, self.recipe.tokens)
        return Tokenizers.train(
            lambda: self.texts("train"), kind=how.kind, size=how.size, joint=how.joint, at_least=how.at_least
        )

    def batches(self, encoded: tuple[Encoded, ...], model: object) -> Shuffled:
        train = self.recipe.train
        return Shuffled(Pairs(*encoded), tokens=train.batch_tokens, seed=self.recipe.seed)

    def validate(self, run: Run, encoded: tuple[Encoded, ...]) -> tuple[Metrics, tuple[Sample, ...]]:
        """Loss over the validation pairs; BLEU too where it decides; a few translations."""
        model, examples = cast(Learns, run.model), Pairs(*encoded)
        nll, tokens = 0.0, 0
        for indices in validation_plan(*examples.lengths, tokens=4096):
            loss = model.loss(examples.collate(indices).to(run.device))
            nll, tokens = nll + float(loss.nll), tokens + loss.tokens
        metrics = {"loss": nll / tokens, "tokens": float(tokens)}
        measured = self.recipe.train.metric == "bleu"
        shown = self.valid[: len(self.valid) if measured else SHOWN_SAMPLES]
        outputs = [p.text for p in run.predict([s for s, _ in shown])]
        if measured:
            metrics["bleu"] = score.bleu(outputs, [reference for _, reference in shown]).value
        samples = (Sample(*pair, output) for pair, output in zip(shown, outputs, strict=True))
        return metrics, tuple(islice(samples, SHOWN_SAMPLES))


class Language(Corpus):
    sides = ("text",)

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.data = cast(PlainText, recipe.data)
        self.noun = f"{self.data.unit}s"
        self.whole_file = self.data.unit == "file"

    def texts(self, split: Split) -> Iterator[tuple[str]]:
        return ((text,) for text in self.data.texts(split, self.recipe.folder))

    def tokenizers(self) -> Tokenizers:
        how = cast(PlainTokens, self.recipe.tokens)
        return Tokenizers.train(
            lambda: self.texts("train"), kind=how.kind, size=how.size, joint=True, at_least=how.at_least
        )

    def amount(self, encoded: tuple[Encoded, ...]) -> str:
        tokens = f"{len(encoded[0].tokens):,} tokens"
        return tokens if self.whole_file else f"{super().amount(encoded)} of {tokens}"

    def batches(self, encoded: tuple[Encoded, ...], model: object) -> Shuffled | Carried | Anywhere:
        """A whole file is read on and on by a model that carries its state, and anywhere by one that sees a window."""
        train, seed = self.recipe.train, self.recipe.seed
        (texts,) = encoded
        context = model.context if isinstance(model, Windowed) else None
        if not self.whole_file:
            if context is not None and (longest := int(texts.lengths.max()) + 1) > context:
                raise UserError(
                    f"The longest text has {longest} tokens with its end, and model.context = {context} is what the "
                    f"model reads at once: make it {longest} or more, or leave longer texts out with "
                    f"tokens.longest = {context - 1}."
                )
            return Shuffled(Lines(texts, most=context), tokens=train.batch_tokens, seed=seed)
        if context is not None:
            rows = max(1, train.batch_tokens // context)
            return Anywhere(texts.tokens, rows=rows, window=context, seed=seed)
        rows = max(1, train.batch_tokens // self.data.window)
        return Carried(texts.tokens, rows=rows, window=self.data.window, seed=seed)

    def validate(self, run: Run, encoded: tuple[Encoded, ...]) -> tuple[Metrics, tuple[Sample, ...]]:
        """Loss over the validation text, and a little of what the model writes."""
        log_prob, tokens = self._likelihood(cast(Scores, run.model), encoded[0], run.device)
        how = Decoding(sample=True, max_length=SAMPLE_LENGTH)
        samples = (Sample("", "", each.text) for each in run.predict([""] * SHOWN_SAMPLES, how))
        return {"loss": -log_prob / tokens, "tokens": float(tokens)}, tuple(samples)

    def _likelihood(self, model: Scores, texts: Encoded, device: torch.device) -> tuple[float, int]:
        if not self.whole_file:
            each = [np.concatenate([[BOS], texts[i], [EOS]]) for i in range(len(texts))]
        elif isinstance(model, Windowed) and model.context:
            each = [texts.tokens]
        else:  # side by side, each place as if a text began there: quick, and but little too high
            rows = max(1, min(VALID_ROWS, (len(texts.tokens) - 1) // (2 * self.data.window)))
            span = (len(texts.tokens) - 1) // rows
            starts = np.arange(rows)[:, None] * span
            found = carried_log_probs(model, texts.tokens[starts + np.arange(span + 1)], device=device)
            return float(found.sum()), found.size
        context = model.context if isinstance(model, Windowed) else None
        scored = token_log_probs(model, each, device=device, stride=context or 0)
        return float(sum(values.sum() for values in scored)), sum(map(len, scored))


class Naming(Corpus):
    """Sentences, and what each of them or of their words is called."""

    noun = "sentences"
    per_word: ClassVar[bool]

    def texts(self, split: Split) -> Iterator[tuple[str, ...]]:
        data = self.recipe.data
        if isinstance(data, World):
            return data.named(split, per_word=self.per_word)
        return pairs(data, split, self.recipe.folder)

    def tokenizers(self) -> Tokenizers:
        how = self.recipe.tokens
        return Tokenizers.for_names(
            lambda: self.texts("train"), kind=how.kind, size=how.size, at_least=how.at_least, per_word=self.per_word
        )

    def encoders(self, tokenizers: Tokenizers) -> tuple[Callable[..., list[list[int]]], ...]:
        texts, names = super().encoders(tokenizers)

        def known(labels: Sequence[str], *, continued: bool) -> list[list[int]]:
            every = names(labels, continued=continued)
            for label, ids in zip(labels, every, strict=True):
                if UNK in ids:
                    raise UserError(f"{label[:80]!r} holds a label that the training data has not: mend or remove it.")
            return every

        return texts, known

    def batches(self, encoded: tuple[Encoded, ...], model: object) -> Shuffled:
        examples = Named(*encoded, per_word=self.per_word)
        return Shuffled(examples, tokens=self.recipe.train.batch_tokens, seed=self.recipe.seed)

    def validate(self, run: Run, encoded: tuple[Encoded, ...]) -> tuple[Metrics, tuple[Sample, ...]]:
        """Loss, accuracy and F1 over the validation sentences, and a few of them with what they are called."""
        examples = Named(*encoded, per_word=self.per_word)
        nll, tokens, found = 0.0, 0, [""] * len(examples)
        for indices in validation_plan(*examples.lengths, tokens=4096):
            batch = examples.collate(indices).to(run.device)
            loss = cast(Learns, run.model).loss(batch)
            nll, tokens = nll + float(loss.nll), tokens + loss.tokens
            for index, name in zip(indices, names_of(run, batch), strict=True):
                found[index] = name.text
        read, names = run.tokenizers
        gold = [names.decode(examples.target[i].tolist()) for i in range(len(examples))]
        scored = naming.score(gold, found, per_word=self.per_word)
        metrics = {"loss": nll / tokens, "tokens": float(tokens), "accuracy": scored.accuracy, "f1": scored.f1}
        some = range(min(SHOWN_SAMPLES, len(examples)))
        return metrics, tuple(Sample(read.decode(examples.source[i].tolist()), gold[i], found[i]) for i in some)


class Classification(Naming):
    sides = ("source", "target")
    per_word = False

    def batches(self, encoded: tuple[Encoded, ...], model: object) -> Shuffled:
        if self.recipe.train.balance and isinstance(model, Classifier):
            model.head.weigh(np.bincount(encoded[1].tokens - LABELS, minlength=len(model.head.weights)))
        return super().batches(encoded, model)


class Tagging(Naming):
    sides = ("source", "target", "spelling")
    per_word = True

    def texts(self, split: Split) -> Iterator[tuple[str, ...]]:
        return ((text, tags, text) for text, tags in super().texts(split))

    def encoders(self, tokenizers: Tokenizers) -> tuple[Callable[..., list[list[int]]], ...]:
        return (*super().encoders(tokenizers), spellings)

    def remarks(self) -> list[str]:
        data, mended = self.recipe.data, list[str]()
        if isinstance(data, Conll):
            for _ in data.lines("train", self.recipe.folder, lambda file, number, wrong: mended.append(wrong)):
                pass
        if not mended:
            return []
        return [f"In {len(mended):,} sentences tags were mended ({mended[0]}); regard check says where."]


def spellings(texts: Sequence[str], *, continued: bool = False) -> list[list[int]]:
    return [[letter for word in text.split(" ") if word for letter in spelt(word)] for text in texts]


CORPORA: dict[str, type[Corpus]] = {
    "translation": Translation,
    "language": Language,
    "classification": Classification,
    "tagging": Tagging,
}

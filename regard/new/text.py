"""A recipe for plain text: a language model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from regard import machine
from regard.data.sources import Text, find
from regard.data.text import read_lines
from regard.data.tokens import TextTokens
from regard.interface import Fits, Ids, Shapes, UserError
from regard.models import MODELS
from regard.new.choices import (
    PIECES_PER_WORD,
    SHARE_OF_PEAK,
    Made,
    Reasons,
    Request,
    by_size,
    first_key,
    parameters_of,
    spoken,
)
from regard.recipe import Recipe
from regard.train.training import TrainConfig

SENTENCE_ENDS = frozenset(".!?…\"'”’)»。！？")
WHOLE_LINES = 0.6  # a file with more of its lines ending like sentences is one of sentences
FEW_CHARACTERS = 500_000


@dataclass(frozen=True)
class TextSurvey:
    words: int
    characters: int
    sentences: float  # share of the lines, those that are not blank, that end like a sentence


def survey_text(path: Path) -> TextSurvey:
    words = characters = ended = spoken_lines = 0
    for line in read_lines(path):
        words += len(line.split())
        characters += len(line) + 1
        if text := line.rstrip():
            spoken_lines += 1
            ended += text[-1] in SENTENCE_ENDS
    if not words:
        raise UserError(f"{path} is empty: give a file of text.")
    return TextSurvey(words, characters, ended / spoken_lines)


def new_language_model(asked: Request) -> Made:
    """A recipe for this text, and the reasons for what it says, by dotted key."""
    model = asked.model_name
    asked.refuse("source", "target")
    data = Text(**asked.train_and_valid())
    seen = survey_text(find(data.train, asked.folder))
    reasons = {}
    unit, kind = asked.unit, asked.kind
    if unit is None:
        unit = "line" if seen.sentences > WHOLE_LINES else "file"
        rest = "sentences: each is a text of its own." if unit == "line" else "sentences: the text runs on across them."
        reasons["data.unit"] = f"{seen.sentences:.0%} of the lines end like {rest}"
    data = replace(data, unit=unit)
    if data.hold_out:
        share = 0.1 if seen.characters < 2_000_000 else 0.05 if seen.characters < 20_000_000 else 0.01
        data = replace(data, hold_out=share)
        reasons["data.hold_out"] = "no validation file: so much of the text is kept apart."
    if kind is None:
        kind = "characters" if seen.characters < FEW_CHARACTERS else "bpe"
        reasons["tokens.kind"] = (
            "little text: a character is seen often, a word seldom."
            if kind == "characters"
            else "sub-words: no word is unknown, and rare ones share their parts."
        )
    per_word = {"characters": seen.characters / max(1, seen.words), "bpe": PIECES_PER_WORD}.get(kind, 1.2)
    amount = max(1, round(seen.words * per_word))  # tokens, about
    vocabulary = {"characters": 0, "bpe": by_size(amount // 15, 1000, 4000, 8000, 16000)}.get(kind, 10_000)
    longest = 1024 if kind == "characters" else 256
    config, train, reasons_of_size = choose_language(amount, vocabulary or 100, model)
    reasons |= reasons_of_size
    if "context" in vars(config) and unit != "file":
        config = replace(config, context=longest // 2)
        longest = config.context - 1  # and <eos>
        reasons["tokens.longest"] = "as long as the model's context allows: longer texts are left out."
    tokens = TextTokens(kind=kind, size=vocabulary, longest=longest)
    return Recipe(asked.task, 1, "text", data, tokens, model, config, train, asked.folder), reasons


def choose_language(amount: int, vocabulary: int, model: str) -> tuple[Any, TrainConfig, Reasons]:
    """Sizes and a budget for so many tokens."""
    texts = amount // 15  # as many as there were pairs in the tables that follow
    config = by_size(texts, *MODELS[model].sizes)
    parameters, built = parameters_of(model, config, Shapes(None, Ids(vocabulary)))
    if isinstance(built, Fits):
        return config, TrainConfig(steps=1), {first_key(config): f"for about {amount:,} tokens."}
    batch_tokens = by_size(texts, 1024, 1024, 2048, 4096)
    an_epoch = max(1, amount // batch_tokens)
    epochs = min(40, max(2, round(12_000_000 / amount)))
    dropout = by_size(texts, 0.3, 0.2, 0.2, 0.1)
    peak = machine.matmul_gflops()
    seconds = 6 * parameters * amount * epochs / (SHARE_OF_PEAK * peak * 1e9)
    train = TrainConfig(
        epochs=epochs,
        batch_tokens=batch_tokens,
        learning_rate=1e-3 if "context" in vars(config) else 2e-3,  # attention wants less than recurrence
        schedule="linear",
        warmup=min(500, max(1, an_epoch * epochs // 10)),
        validate_every=max(20, an_epoch // 2),
        patience=5,
    )
    return (
        replace(config, dropout=dropout),
        train,
        {
            first_key(config): f"{parameters / 1e6:.1f} M parameters for about {amount:,} tokens.",
            "train.epochs": f"about {spoken(seconds)} here, at half of this machine's {peak:.0f} GFLOPS.",
            "train.batch_tokens": f"about {an_epoch:,} steps an epoch.",
            "train.validate_every": "about twice an epoch.",
            "train.patience": "stops when more training only learns the text by heart.",
        },
    )

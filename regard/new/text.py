"""Recipes for text: a translator for pairs of texts, a language model for plain text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from statistics import median
from typing import Any, cast

from regard.config import counted, parse
from regard.data.languages import guessed
from regard.data.source_files import find_all
from regard.data.sources import UNDECIDED, PairTable, Parallel, Source, Text, every_line
from regard.data.text import Cut, read_lines
from regard.data.tokens import PairTokens, TextTokens
from regard.interface import Fits, Ids, Shapes, UserError
from regard.models import MODELS
from regard.new.choices import Made, Reasons, Request, by_size, first_key, hold_out, parameters_of, time_here, written
from regard.new.fields import named_fields, pair_of_texts
from regard.train.training import TrainConfig

LONGEST_TRAINING = 12 * 3600.0  # seconds: a first model should not take longer
PIECES_PER_WORD = 1.3  # byte-pair tokens, as measured on captions
SENTENCE_ENDS = frozenset(".!?…\"'”’)»。！？")
WHOLE_LINES = 0.6  # where more of the lines end like sentences, each line is a text
FEW_CHARACTERS = 500_000
WINDOW = 128  # tokens of packed texts that are read at once
SUB_WORDS = "with byte-pair encoding no word is unknown, and rare words share sub-words."
EARLY_STOPPING = "early stopping ends training when validation stops improving."


@dataclass(frozen=True)
class Survey:
    """What the choices for a translator depend on."""

    pairs: int
    words: float  # the median over lines of the longer side
    longest: int  # words


def survey(data: Source, folder: Path) -> Survey:
    lengths = [max(len(source.split()), len(target.split())) for _, source, target in every_line(data, folder)]
    if not lengths:
        raise UserError("The training data is empty: give at least one pair of lines.")
    return Survey(len(lengths), median(lengths), max(lengths))


def data_of(asked: Request) -> tuple[Any, Reasons]:
    """The [data] section, with paths relative to the recipe's folder; and why it names these fields."""
    asked.refuse("kind", "unit")
    one_file = len(asked.files or asked.valid[1:]) == 1 and not (asked.source or asked.target)
    if not one_file and (asked.source is None or asked.target is None):
        raise UserError("Translation needs source and target (--source and --target): give two files, or two fields.")
    if asked.files or one_file:
        files = asked.train_and_valid()
        source, target, reasons = named_fields(asked, asked.first_file(files["train"]), pair_of_texts)
        pair, why = languages_of(source, target)
        named = {**files, "source": source, "target": target, "languages": pair}
        return parse(PairTable, named, where="data"), reasons | why
    if len(asked.valid) not in (0, 2):
        raise UserError("One validation file was given for two parallel files: give two, the source first.")
    paths = [written(str(path), asked.folder) for path in (asked.source, asked.target, *asked.valid)]
    files = dict(zip(Parallel.FILES, paths, strict=False))
    pair, why = languages_of(*paths[:2])
    return Parallel(**files, hold_out=0.0 if asked.valid else UNDECIDED, languages=pair), why


def languages_of(source: str, target: str) -> tuple[str, Reasons]:
    """The languages that the names of two files, or fields, end with, and a reason for the recipe."""
    pair = guessed([source, target])
    return pair, {"data.languages": f"{source} and {target} are named after them."} if pair else {}


def new_translator(asked: Request) -> Made:
    """A recipe for these pairs, and the reasons for its values, by dotted key."""
    model = asked.model_name
    data, reasons = data_of(asked)
    seen = survey(data, asked.folder)
    if data.hold_out:
        share = min(0.05, 1000 / seen.pairs) if seen.pairs >= 200 else 0.1
        data = replace(data, hold_out=round(share, 4))
        reasons["data.hold_out"] = hold_out(seen.pairs, share, "pair")
    tokens, reasons_of_tokens = choose_tokens(seen)
    config, train, reasons_of_size = choose_size(seen, tokens, model)
    return asked.recipe(data, tokens, config, train), reasons | reasons_of_tokens | reasons_of_size


def choose_tokens(seen: Survey) -> tuple[PairTokens, Reasons]:
    size = by_size(seen.pairs, 2000, 4000, 16000, 32000)
    longest = 256
    while longest < min(1024, 2 * PIECES_PER_WORD * seen.words):
        longest *= 2
    return PairTokens(size=size, longest=longest), {
        "tokens.kind": SUB_WORDS,
        "tokens.size": f"there are few enough tokens that each occurs often in {counted(seen.pairs, 'pair')}.",
        "tokens.longest": f"the number of words per line is {seen.words:g} in the median, {seen.longest:,} at most.",
    }


def choose_size(seen: Survey, tokens: PairTokens, model: str) -> tuple[Any, TrainConfig, Reasons]:
    sizes = by_size(seen.pairs, 1, 2, 3, 4)
    dropout = by_size(seen.pairs, 0.3, 0.2, 0.2, 0.1)
    epochs = min(60, max(3, round(600_000 / seen.pairs)))
    a_line = max(1.0, PIECES_PER_WORD * seen.words) + 1
    for config in reversed(MODELS[model].sizes[:sizes]):
        parameters, _ = parameters_of(model, config, Shapes(Ids(tokens.size), Ids(tokens.size), tokens.joint))
        seconds, how_long = time_here(parameters, a_line * seen.pairs * epochs)
        if seconds < LONGEST_TRAINING:
            break
    batch_tokens = by_size(seen.pairs, 1024, 1024, 4096, 8192)
    an_epoch = max(1, round(seen.pairs * a_line / batch_tokens))
    steps = an_epoch * epochs
    train = TrainConfig(
        epochs=epochs,
        batch_tokens=batch_tokens,
        learning_rate=by_size(seen.pairs, 1e-3, 1.5e-3, 1e-3, 1e-3),
        schedule="linear",
        warmup=min(1000, max(1, steps // 10)),
        validate_every=max(20, an_epoch),
        patience=5,
    )
    reasons = {
        first_key(config): f"the model has {parameters / 1e6:.1f} M parameters for {counted(seen.pairs, 'pair')}.",
        "model.dropout": "the less text, the more dropout." if dropout > 0.1 else "much text needs little dropout.",
        "train.epochs": how_long,
        "train.batch_tokens": f"an epoch has about {counted(an_epoch, 'step')}; little text needs many small ones.",
        "train.warmup": f"warm-up takes a tenth of about {counted(steps, 'step')}, at most 1,000.",
        "train.validate_every": "validation runs about once an epoch, at most every 20 steps.",
        "train.patience": EARLY_STOPPING,
    }
    return replace(config, dropout=dropout), train, reasons


def survey_text(paths: Sequence[Path]) -> tuple[int, int, float]:
    """Words, characters, and the share of the lines (without blank ones) that end like a sentence."""
    words = characters = ended = filled_lines = 0
    for line in chain.from_iterable(read_lines(path, whole=True) for path in paths):
        words += len(line.split())
        characters += len(line) + 1
        if isinstance(line, Cut):
            continue  # the line continues
        if text := line.rstrip():
            filled_lines += 1
            ended += text[-1] in SENTENCE_ENDS
    if not words:
        raise UserError(f"{paths[0]} is empty: give a file of text.")
    return words, characters, ended / filled_lines


def new_text_model(asked: Request, *, packed: bool = False) -> Made:
    """A recipe for this text, and the reasons for its values, by dotted key. `packed`: for a model that is to be
    fine-tuned later, which reads joined texts in short windows."""
    model = asked.model_name
    asked.refuse("source", "target")
    data = cast(Text, asked.task.sources["text"](**asked.train_and_valid()))
    words, characters, sentences = survey_text(find_all("train", data.train, asked.folder))
    reasons = {}
    unit, kind = asked.unit, asked.kind
    if unit is None:
        unit = "line" if sentences > WHOLE_LINES else "file"
        rest = "each is one text" if unit == "line" else "the text continues across lines"
        reasons["data.unit"] = f"{sentences:.0%} of the lines end like sentences: {rest}."
    if data.hold_out:
        share = 0.1 if characters < 2_000_000 else 0.05 if characters < 20_000_000 else 0.01
        data = replace(data, hold_out=share)
        reasons["data.hold_out"] = "there is no validation file: this share of the text is held out for validation."
    if kind is None:
        kind = "characters" if characters < FEW_CHARACTERS and not packed else "bpe"
        little = "in little text, characters occur often and words rarely."
        reasons["tokens.kind"] = little if kind == "characters" else SUB_WORDS
    per_word = {"characters": characters / words, "bpe": PIECES_PER_WORD}.get(kind, 1.2)
    amount = max(1, round(words * per_word))  # tokens, about
    vocabulary = {"characters": 0, "bpe": by_size(amount // 15, 1000, 4000, 8000, 16000)}.get(kind, 10_000)
    longest = 1024 if kind == "characters" else 256
    config, train, reasons_of_size = choose_language(amount, vocabulary or 100, model)
    reasons |= reasons_of_size
    if packed and "dropout" in vars(config):  # what counts n-grams reads whole texts
        data = replace(data, pack=True, window=WINDOW)
        config = replace(config, dropout=0.1, **({"context": WINDOW} if "context" in vars(config) else {}))
        reasons |= {
            "data.pack": "texts are joined and cut into windows, so that none is too long and nothing is padding.",
            "data.window": "most labelled texts are short, and short windows cost less; raise it for longer texts.",
        }
    elif "context" in vars(config) and unit != "file":
        config = replace(config, context=longest // 2)
        longest = config.context - 1  # and <eos>
        reasons["tokens.longest"] = "as long as the model's context allows: longer texts are left out."
    tokens = TextTokens(kind=kind, size=vocabulary, longest=longest)
    return asked.recipe(replace(data, unit=unit), tokens, config, train), reasons


def choose_language(amount: int, vocabulary: int, model: str) -> tuple[Any, TrainConfig, Reasons]:
    """Sizes and a budget for so many tokens."""
    texts = amount // 15  # as many as there were pairs in the tables that follow
    config = by_size(texts, *MODELS[model].sizes)
    parameters, built = parameters_of(model, config, Shapes(Ids(vocabulary), Ids(vocabulary), joint=True))
    if isinstance(built, Fits):
        return config, TrainConfig(steps=1), {first_key(config): f"the size is for about {counted(amount, 'token')}."}
    batch_tokens = by_size(texts, 1024, 1024, 2048, 4096)
    an_epoch = max(1, amount // batch_tokens)
    epochs = min(40, max(2, round(12_000_000 / amount)))
    train = TrainConfig(
        epochs=epochs,
        batch_tokens=batch_tokens,
        learning_rate=1e-3 if "heads" in vars(config) else 2e-3,  # attention needs a lower one than recurrence
        schedule="linear",
        warmup=min(500, max(1, an_epoch * epochs // 10)),
        validate_every=max(20, an_epoch // 2),
        patience=5,
    )
    reasons = {
        first_key(config): f"the model has {parameters / 1e6:.1f} M parameters for about {counted(amount, 'token')}.",
        "train.epochs": time_here(parameters, amount * epochs)[1],
        "train.batch_tokens": f"an epoch has about {counted(an_epoch, 'step')}.",
        "train.validate_every": "validation runs about twice an epoch, at most every 20 steps.",
        "train.patience": EARLY_STOPPING,
    }
    return replace(config, dropout=by_size(texts, 0.3, 0.2, 0.2, 0.1)), train, reasons

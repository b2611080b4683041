"""new: a complete recipe for a person's own files; each choice follows from their size and the machine, and says so.

Pairs become translators, plain text language models, labelled sentences classifiers and tagged words taggers.
"""

from __future__ import annotations

import json
import math
import os
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any

import torch

from regard import machine
from regard.config import parse, unknown
from regard.data.sources import Conll, Parallel, Source, Table, Text, Unit, find
from regard.data.text import JSON_SUFFIXES, read_lines, read_rows
from regard.data.tokens import Kind
from regard.interface import Fits, UserError
from regard.models import MODELS
from regard.models.design import Vocabulary
from regard.recipe import PlainTokens, Recipe, Task, Tokens
from regard.train.training import TrainConfig

LOOKED_AT = 1000  # lines
UNDECIDED = 0.5  # a hold_out until the data has been counted
PIECES_PER_WORD = 1.3  # byte-pair tokens, as found on captions
SHARE_OF_PEAK = 0.5  # of the matmul peak that training reaches, as found on two cores
PATIENCE_OF_PEOPLE = 12 * 3600.0  # seconds: a model that takes longer is not the one to begin with
SENTENCE_ENDS = frozenset(".!?…\"'”’)»。！？")
WHOLE_LINES = 0.6  # a file with more of its lines ending like sentences is one of sentences
FEW_CHARACTERS = 500_000
SMALL, MEDIUM, LARGE = 10_000, 200_000, 2_000_000  # pairs


@dataclass(frozen=True)
class Survey:
    """What the choices depend on."""

    pairs: int
    words: float  # in the middle line, the longer side
    longest: int  # words


def data_of(
    *, file: str | None, source: str, target: str, valid: tuple[str, str] | None, valid_file: str | None, folder: Path
) -> tuple[str, Source]:
    """The [data] section, its paths as they read from the recipe's folder."""
    if file is None:
        if valid_file:
            raise UserError("--valid-file goes with --file; two parallel files are validated on --valid SOURCE TARGET.")
        valid_source, valid_target = (written(path, folder) for path in valid) if valid else ("", "")
        return "parallel", Parallel(
            source=written(source, folder),
            target=written(target, folder),
            valid_source=valid_source,
            valid_target=valid_target,
            hold_out=0.0 if valid else UNDECIDED,
        )
    if valid:
        raise UserError("--valid goes with two parallel files; beside --file give --valid-file.")
    valid_path = written(valid_file, folder) if valid_file else ""
    values = {"train": written(file, folder), "source": source, "target": target, "valid": valid_path}
    return "table", parse(Table, {**values, "hold_out": 0.0 if valid_file else UNDECIDED}, where="data")


def written(path: str, folder: Path) -> str:
    """A path typed here as it must be written in a recipe there."""
    found = find(path, Path.cwd())
    if not (Path.cwd() / path).exists():
        return path  # found through $REGARD_DATA, as the recipe will find it
    return os.path.relpath(found, folder) if found.is_relative_to(folder) else str(found)


def survey(data: Source, folder: Path) -> Survey:
    lengths = [max(len(source.split()), len(target.split())) for _, source, target in every_line(data, folder)]
    if not lengths:
        raise UserError("The training data is empty: give at least one pair of lines.")
    return Survey(len(lengths), median(lengths), max(lengths))


def every_line(data: Source, folder: Path) -> Iterator[tuple[int, str, str]]:
    """All training lines, those that will be held out too."""
    yield from data.lines("train", folder)
    if isinstance(data, Parallel | Table | Conll) and data.hold_out:
        yield from data.lines("valid", folder)


def new(data_name: str, data: Source, *, folder: Path, model: str = "transformer") -> tuple[Recipe, dict[str, str]]:
    """A recipe for these pairs, and the reasons for what it says, by dotted key."""
    check_model(model, "translation")
    seen = survey(data, folder)
    reasons = {}
    if isinstance(data, Parallel | Table) and data.hold_out:
        share = min(0.05, 1000 / seen.pairs) if seen.pairs >= 200 else 0.1
        data = replace(data, hold_out=round(share, 4))
        reasons["data.hold_out"] = (
            f"no validation file: about {max(1, round(share * seen.pairs)):,} pairs are kept apart."
        )
    tokens, reasons_of_tokens = choose_tokens(seen)
    config, train, reasons_of_size = choose_size(seen, tokens, model)
    reasons |= reasons_of_tokens | reasons_of_size
    return Recipe("translation", 1, data_name, data, tokens, model, config, train, folder), reasons


def check_model(model: str, task: str) -> None:
    known = [name for name, design in MODELS.items() if task in design.tasks]
    if model not in known:
        raise unknown(model, known, "The model")


# --- language models ---------------------------------------------------------------------------------------------


def new_language(
    file: str,
    *,
    valid: str | None,
    folder: Path,
    model: str = "rnn_lm",
    kind: Kind | None = None,
    unit: Unit | None = None,
) -> tuple[Recipe, dict[str, str]]:
    """A recipe for this text, and the reasons for what it says, by dotted key."""
    check_model(model, "language")
    seen = survey_text(find(file, Path.cwd()))
    reasons = {}
    if unit is None:
        unit = "line" if seen.sentences > WHOLE_LINES else "file"
        rest = "sentences: each is a text of its own." if unit == "line" else "sentences: the text runs on across them."
        reasons["data.unit"] = f"{seen.sentences:.0%} of the lines end like {rest}"
    share = 0.0
    if valid is None:
        share = 0.1 if seen.characters < 2_000_000 else 0.05 if seen.characters < 20_000_000 else 0.01
        reasons["data.hold_out"] = "no validation file: so much of the text is kept apart."
    if kind is None:
        kind = "characters" if seen.characters < FEW_CHARACTERS else "bpe"
        reasons["tokens.kind"] = (
            "little text: a character is seen often, a word seldom."
            if kind == "characters"
            else "sub-words: no word is unknown, and rare ones share their parts."
        )
    per_word = {"words": 1.2, "characters": seen.characters / max(1, seen.words), "bpe": PIECES_PER_WORD}[kind]
    amount = max(1, round(seen.words * per_word))  # tokens, about
    vocabulary = {"words": 10_000, "characters": 0, "bpe": by_size(amount // 15, 1000, 4000, 8000, 16000)}[kind]
    data = Text(train=written(file, folder), valid=written(valid, folder) if valid else "", hold_out=share, unit=unit)
    longest = 1024 if kind == "characters" else 256
    config, train, reasons_of_size = choose_language(amount, vocabulary or 100, model)
    reasons |= reasons_of_size
    if "context" in vars(config) and unit != "file":
        config = replace(config, context=longest // 2)
        longest = config.context - 1  # and <eos>
        reasons["tokens.longest"] = "as long as the model's context allows: longer texts are left out."
    tokens = PlainTokens(kind=kind, size=vocabulary, longest=longest)
    return Recipe("language", 1, "text", data, tokens, model, config, train, folder), reasons


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


def choose_language(amount: int, vocabulary: int, model: str) -> tuple[Any, TrainConfig, dict[str, str]]:
    """Sizes and a budget for so many tokens."""
    design = MODELS[model]
    texts = amount // 15  # as many as there were pairs in the tables that follow
    config = by_size(texts, *design.sizes)
    first = next(iter(vars(config)))  # the reason stands above the first of the sizes
    with torch.device("meta"):
        built = design.build(config, Vocabulary(vocabulary, vocabulary, True))
    if isinstance(built, Fits):
        return config, TrainConfig(steps=1), {f"model.{first}": f"for about {amount:,} tokens."}
    batch_tokens = by_size(texts, 1024, 1024, 2048, 4096)
    an_epoch = max(1, amount // batch_tokens)
    epochs = min(40, max(2, round(12_000_000 / amount)))
    dropout = by_size(texts, 0.3, 0.2, 0.2, 0.1)
    parameters = sum(parameter.numel() for parameter in built.parameters())
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
            f"model.{first}": f"{parameters / 1e6:.1f} M parameters for about {amount:,} tokens.",
            "train.epochs": f"about {spoken(seconds)} here, at half of this machine's {peak:.0f} GFLOPS.",
            "train.batch_tokens": f"about {an_epoch:,} steps an epoch.",
            "train.validate_every": "about twice an epoch.",
            "train.patience": "stops when more training only learns the text by heart.",
        },
    )


# --- names of sentences and of words -----------------------------------------------------------------------------


def new_names(
    task: Task,
    file: str,
    *,
    valid: str | None,
    folder: Path,
    model: str = "birnn",
    fields: tuple[str, str] | None = None,
) -> tuple[Recipe, dict[str, str]]:
    """A recipe for these labelled sentences or tagged words; `fields` are the text's and the label's."""
    check_model(model, task)
    reasons = {}
    path = find(file, Path.cwd())
    train_file, valid_file = written(file, folder), written(valid, folder) if valid else ""
    share = 0.0 if valid else UNDECIDED
    data: Table | Conll
    if task == "tagging":
        data = Conll(train=train_file, valid=valid_file, hold_out=share)
    else:
        if fields is None:
            fields = guess_fields(path)
            reasons["data.source"] = "the field that differs most from line to line is taken for the text."
            reasons["data.target"] = "the field with the fewest different values is taken for the label."
        values = {"train": train_file, "valid": valid_file, "source": fields[0], "target": fields[1], "hold_out": share}
        data = parse(Table, values, where="data")
    rows = [(text, names) for _, text, names in every_line(data, folder)]
    if not rows:
        raise UserError(f"{path} has no sentences: give at least a few with their labels.")
    if not valid:
        share = 0.1 if len(rows) < 20_000 else 0.05
        data = replace(data, hold_out=share)
        reasons["data.hold_out"] = (
            f"no validation file: about {max(1, round(share * len(rows))):,} sentences are kept apart."
        )
    words = sum(len(text.split()) for text, _ in rows)
    kinds = Counter(name for _, names in rows for name in (names.split() if task == "tagging" else [names]))
    if len(kinds) < 2:
        raise UserError(f"{path} has one label only ({next(iter(kinds))}): there is nothing to tell apart.")
    config = by_size(len(rows), *MODELS[model].sizes)
    if "letters" in vars(config) and task == "tagging":
        config = replace(config, letters=50)
        reasons["model.letters"] = "what a word's letters make helps with words that training never met."
    tokens = PlainTokens(kind="given" if task == "tagging" else "words", size=0, at_least=2 if words > 20_000 else 1)
    reasons["tokens.at_least"] = "a word that occurs once teaches nothing of itself, and something of unknown ones."
    batch_tokens = by_size(len(rows), 1024, 2048, 4096, 4096)
    epochs = min(40, max(4, round(3_000_000 / max(1, words))))
    an_epoch = max(1, words // batch_tokens)
    train = TrainConfig(
        epochs=epochs,
        batch_tokens=batch_tokens,
        learning_rate=1e-3,
        schedule="linear",
        warmup=min(200, max(1, an_epoch * epochs // 10)),
        validate_every=max(10, an_epoch // 2),
        metric="f1" if task == "tagging" else "accuracy",
        patience=8,
        smooth=0.1,
    )
    first = next(iter(vars(config)))
    most, times = kinds.most_common(1)[0]
    reasons |= {
        f"model.{first}": f"for {len(rows):,} sentences of {words:,} words, {len(kinds)} labels; {most} is "
        f"{times / sum(kinds.values()):.0%} of them.",
        "train.epochs": "as many as little text needs; patience ends it earlier.",
        "train.metric": "what is asked of it decides which checkpoint is the best.",
    }
    return Recipe(
        task, 1, "conll" if task == "tagging" else "table", data, tokens, model, config, train, folder
    ), reasons


def guess_fields(path: Path) -> tuple[str, str]:
    """Which field is the text and which the label: by how many different values they have in the first lines."""
    if any(suffix in JSON_SUFFIXES for suffix in path.suffixes):
        try:
            entries = [dict(json.loads(line)) for line in islice(read_lines(path), LOOKED_AT)]
            first = entries[0]
        except (ValueError, TypeError, IndexError, RecursionError):
            raise UserError(f"{path} is not JSONL: give one object a line, with texts in it.") from None
        names = [key for key in first if all(type(entry.get(key)) in (str, int) for entry in entries)]
        columns = {key: [str(entry[key]) for entry in entries] for key in names}
    else:
        rows = [row for _, row in islice(read_rows(path), LOOKED_AT)]
        width = min(map(len, rows), default=0)
        columns = {str(place + 1): [row[place] for row in rows] for place in range(width)}
    if len(columns) < 2:
        raise UserError(f"{path} has not two fields in each line: give a text and a label, as in text<tab>label.")
    different = {name: len(set(values)) for name, values in columns.items()}
    label = min(columns, key=lambda name: (different[name], sum(map(len, columns[name]))))
    text = max((name for name in columns if name != label), key=lambda name: sum(map(len, columns[name])))
    head = {name: values[0] for name, values in columns.items()}
    if (
        label.isdecimal()
        and len(columns[label]) > 2
        and columns[label].count(head[label]) == 1
        and head[text].isidentifier()
    ):
        return head[text], head[label]  # the first line names the columns
    return text, label


# --- translators -------------------------------------------------------------------------------------------------


def choose_tokens(seen: Survey) -> tuple[Tokens, dict[str, str]]:
    size = by_size(seen.pairs, 2000, 4000, 16000, 32000)
    longest = 256
    while longest < min(1024, 2 * PIECES_PER_WORD * seen.words):
        longest *= 2
    return Tokens(size=size, longest=longest), {
        "tokens.kind": "sub-words: no word is unknown, and rare ones share their parts.",
        "tokens.size": f"{seen.pairs:,} pairs: few enough types that each is seen often.",
        "tokens.longest": f"the middle line has {seen.words:g} words, the longest {seen.longest:,}.",
    }


def choose_size(seen: Survey, tokens: Tokens, model: str) -> tuple[Any, TrainConfig, dict[str, str]]:
    design = MODELS[model]
    sizes = by_size(seen.pairs, 1, 2, 3, 4)
    dropout = by_size(seen.pairs, 0.3, 0.2, 0.2, 0.1)
    epochs = min(60, max(3, round(600_000 / seen.pairs)))
    a_line = max(1.0, PIECES_PER_WORD * seen.words) + 1
    peak = machine.matmul_gflops()
    for config in reversed(design.sizes[:sizes]):
        with torch.device("meta"):
            built = design.build(config, Vocabulary(tokens.size, tokens.size, tokens.joint))
        parameters = sum(parameter.numel() for parameter in built.parameters())
        seconds = 6 * parameters * a_line * seen.pairs * epochs / (SHARE_OF_PEAK * peak * 1e9)
        if seconds < PATIENCE_OF_PEOPLE:
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
    first = next(iter(vars(config)))  # the reason stands above the first of the sizes
    return (
        replace(config, dropout=dropout),
        train,
        {
            f"model.{first}": f"{parameters / 1e6:.1f} M parameters for {seen.pairs:,} pairs.",
            "model.dropout": "the less text, the more dropout." if dropout > 0.1 else "much text needs little of it.",
            "train.epochs": f"about {spoken(seconds)} here, at half of this machine's {peak:.0f} GFLOPS.",
            "train.batch_tokens": f"about {an_epoch:,} steps an epoch; little text wants many small ones.",
            "train.warmup": f"a tenth of about {steps:,} steps, at most 1,000.",
            "train.validate_every": "about once an epoch.",
            "train.patience": "stops when more training only learns the text by heart.",
        },
    )


def by_size(pairs: int, small: Any, medium: Any, large: Any, huge: Any) -> Any:
    return small if pairs < SMALL else medium if pairs < MEDIUM else large if pairs < LARGE else huge


def spoken(seconds: float) -> str:
    if seconds < 90:
        return "a minute"
    return f"{math.ceil(seconds / 60)} minutes" if seconds < 5400 else f"{seconds / 3600:.1f} hours"

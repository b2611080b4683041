"""A recipe for pairs of texts: a translator."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from statistics import median
from typing import Any

from regard import machine
from regard.config import parse
from regard.data.sources import UNDECIDED, Parallel, Source, Table, every_line
from regard.data.tokens import PairTokens
from regard.interface import Ids, Shapes, UserError
from regard.models import MODELS
from regard.new.choices import (
    PIECES_PER_WORD,
    SHARE_OF_PEAK,
    Made,
    Reasons,
    Request,
    by_size,
    first_key,
    hold_out,
    parameters_of,
    spoken,
    written,
)
from regard.recipe import Recipe
from regard.train.training import TrainConfig

PATIENCE_OF_PEOPLE = 12 * 3600.0  # seconds: a model that takes longer is not the one to begin with


@dataclass(frozen=True)
class Survey:
    """What the choices depend on."""

    pairs: int
    words: float  # in the middle line, the longer side
    longest: int  # words


def survey(data: Source, folder: Path) -> Survey:
    lengths = [max(len(source.split()), len(target.split())) for _, source, target in every_line(data, folder)]
    if not lengths:
        raise UserError("The training data is empty: give at least one pair of lines.")
    return Survey(len(lengths), median(lengths), max(lengths))


def data_of(asked: Request) -> tuple[str, Any]:
    """The [data] section, its paths as they read from the recipe's folder."""
    asked.refuse("kind", "unit")
    if asked.source is None or asked.target is None:
        raise UserError("For translation give --source and --target: two files, or two fields of one FILE.")
    if asked.files:
        fields = {"source": asked.source, "target": asked.target}
        return "table", parse(Table, asked.train_and_valid() | fields, where="data")
    if len(asked.valid) not in (0, 2):
        raise UserError("Two parallel files are validated on two: give --valid SOURCE TARGET.")
    valid_source, valid_target = (written(path, asked.folder) for path in asked.valid) if asked.valid else ("", "")
    return "parallel", Parallel(
        source=written(asked.source, asked.folder),
        target=written(asked.target, asked.folder),
        valid_source=valid_source,
        valid_target=valid_target,
        hold_out=0.0 if asked.valid else UNDECIDED,
    )


def new_translator(asked: Request) -> Made:
    """A recipe for these pairs, and the reasons for what it says, by dotted key."""
    model = asked.model_name
    data_name, data = data_of(asked)
    seen = survey(data, asked.folder)
    reasons = {}
    if data.hold_out:
        share = min(0.05, 1000 / seen.pairs) if seen.pairs >= 200 else 0.1
        data = replace(data, hold_out=round(share, 4))
        reasons["data.hold_out"] = hold_out(seen.pairs, share, "pairs")
    tokens, reasons_of_tokens = choose_tokens(seen)
    config, train, reasons_of_size = choose_size(seen, tokens, model)
    reasons |= reasons_of_tokens | reasons_of_size
    return Recipe(asked.task, 1, data_name, data, tokens, model, config, train, asked.folder), reasons


def choose_tokens(seen: Survey) -> tuple[PairTokens, Reasons]:
    size = by_size(seen.pairs, 2000, 4000, 16000, 32000)
    longest = 256
    while longest < min(1024, 2 * PIECES_PER_WORD * seen.words):
        longest *= 2
    return PairTokens(size=size, longest=longest), {
        "tokens.kind": "sub-words: no word is unknown, and rare ones share their parts.",
        "tokens.size": f"{seen.pairs:,} pairs: few enough types that each is seen often.",
        "tokens.longest": f"the middle line has {seen.words:g} words, the longest {seen.longest:,}.",
    }


def choose_size(seen: Survey, tokens: PairTokens, model: str) -> tuple[Any, TrainConfig, Reasons]:
    sizes = by_size(seen.pairs, 1, 2, 3, 4)
    dropout = by_size(seen.pairs, 0.3, 0.2, 0.2, 0.1)
    epochs = min(60, max(3, round(600_000 / seen.pairs)))
    a_line = max(1.0, PIECES_PER_WORD * seen.words) + 1
    peak = machine.matmul_gflops()
    for config in reversed(MODELS[model].sizes[:sizes]):
        parameters, _ = parameters_of(model, config, Shapes(Ids(tokens.size), Ids(tokens.size), tokens.joint))
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
    return (
        replace(config, dropout=dropout),
        train,
        {
            first_key(config): f"{parameters / 1e6:.1f} M parameters for {seen.pairs:,} pairs.",
            "model.dropout": "the less text, the more dropout." if dropout > 0.1 else "much text needs little of it.",
            "train.epochs": f"about {spoken(seconds)} here, at half of this machine's {peak:.0f} GFLOPS.",
            "train.batch_tokens": f"about {an_epoch:,} steps an epoch; little text wants many small ones.",
            "train.warmup": f"a tenth of about {steps:,} steps, at most 1,000.",
            "train.validate_every": "about once an epoch.",
            "train.patience": "stops when more training only learns the text by heart.",
        },
    )

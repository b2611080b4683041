"""Measure everything that a report shows about one run, once, as JSON.

The result is kept beside the run with the hash of its weights and of the test set, and used again if both are the same.
"""

from __future__ import annotations

import hashlib
import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from regard.checkpoint import Folder
from regard.compare.distance import gradients, times
from regard.data.batches import Encoded
from regard.data.files import own_file, read_own, write_atomically
from regard.data.pictures import PictureField
from regard.data.sounds import SoundField
from regard.data.sources import examples, find
from regard.data.tensors import tensor_shapes
from regard.data.text import BETWEEN, content_hash, whole_lines
from regard.interface import Generates, Numbered, UserError
from regard.loading import load
from regard.look.captions import pixels_of
from regard.look.recordings import first_piece
from regard.look.weights import attends
from regard.predict.decoding import Decoding
from regard.recipe import Recipe
from regard.run import Run
from regard.runs import log_entries
from regard.score.alignment import read_links
from regard.score.gold import Gold
from regard.score.registry import METRICS
from regard.score.translation import gold_links
from regard.show.picture_map import png_text
from regard.show.spectrogram import spectrogram_pixels
from regard.tasks import Task
from regard.train.cost import first_batches, flops_per_token

Facts = dict[str, Any]
OnProgress = Callable[[float, str], None]  # the share that is done, from 0 to 1, and what is being done
VERSION = 7  # of the kept results; those of another version are measured again
SHOWN = (0.5, 0.8, 0.95)  # quantiles of length of the test sentences whose attention is shown
FAST = {1: 8, 32: 64}  # batch size in lines, and how many lines are timed
SAMPLES = 3
MOST_KEPT = 1 << 28  # bytes of kept results
NO_LIMIT = 1 << 62  # tokens in a batch, whose size is given in lines


# --- test data -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unseen:
    """Test examples."""

    examples: tuple[tuple[Any, ...], ...]
    gold: Gold | None = None  # what attention should look at
    held_out: bool = True  # False: it is the validation set, which chose the checkpoints

    @property
    def sources(self) -> list[Any]:
        return [example[0] for example in self.examples]

    @property
    def targets(self) -> list[Any]:
        """The targets; for a language model, the texts themselves."""
        return [example[-1] for example in self.examples]

    @property
    def hash(self) -> str:
        known = self.gold.each if self.gold else None

        def plain(raw: Any) -> Any:
            return sorted(raw) if isinstance(raw, frozenset) else hashlib.sha256(raw.tobytes()).hexdigest()

        return hashlib.sha256(json.dumps([self.examples, known], default=plain).encode()).hexdigest()


def unseen_of(recipe: Recipe, files: Sequence[Path] = (), align: Path | None = None) -> Unseen:
    """Read test data from these files; else the data's own test set; else the validation set."""
    data = recipe.data.reading([find(str(file), Path()) for file in files]) if files else recipe.data
    split: Any = "test" if data.has_test else "valid"
    rows = tuple(examples(data, split, recipe.folder, whole=True))
    if not rows:
        raise UserError("The test data is empty: give at least one line.")
    gold = None if files else recipe.task.gold(data, rows)
    if align is not None:
        links = tuple(read_links(line) for _, line in whole_lines(find(str(align), Path())))
        if len(links) != len(rows):
            raise UserError(
                f"{align} has {len(links)} lines, and the test set {len(rows)}: give one alignment for each."
            )
        gold = gold_links(rows, links)
    return Unseen(rows, gold, held_out=bool(files) or data.has_test)


def texts_of(task: Task, test: Unseen) -> tuple[str, list[str]]:
    """The texts whose words are counted, and what they are called: what a model reads or, of pictures, what it is to
    write; "" where neither is a text."""
    if task.decoding and not any(isinstance(source, str) for source in test.sources):
        return task.words.sides[1], [target.split(BETWEEN)[0] for target in test.targets]
    return task.words.reads, [source if isinstance(source, str) else "" for source in test.sources]


# --- measurements --------------------------------------------------------------------------------------------


def measured(folder: Path, test: Unseen, *, beam: int, on_progress: OnProgress) -> Facts:
    """Return the results that are kept beside the run, or measure it now."""
    place = Folder(folder).must_exist()
    if place.best.exists():
        tensor_shapes(place.best)  # so that what is hashed is a file of weights
    key = [VERSION, content_hash(own_file(place.best)) if place.best.exists() else "", test.hash, beam]
    kept = place.path.with_name(place.path.name + ".json")
    try:
        facts: Facts = json.loads(read_own(kept, most=MOST_KEPT))
        if facts["key"] == key and facts.pop("hash") == hash_of(facts):
            return facts
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        pass
    facts = {"key": key, **measure(load(folder), place, test, beam=beam, on_progress=on_progress)}
    facts = json.loads(json.dumps(facts))
    write_atomically(kept, json.dumps({**facts, "hash": hash_of(facts)}, ensure_ascii=False) + "\n", own=True)
    return facts


def hash_of(facts: Facts) -> str:
    return hashlib.sha256(json.dumps(facts).encode()).hexdigest()


def measure(run: Run, folder: Folder, test: Unseen, *, beam: int, on_progress: OnProgress) -> Facts:
    on_progress(0.0, "answers")
    task, corpus = run.task, run.task.corpus(run.recipe)
    how = Decoding(beam=beam) if task.decoding and not task.decoding.sample else None
    values = task.outcomes(run, test.examples, how)
    statistics = {metric.key: metric.statistics(values, test.targets).tolist() for metric in task.metrics}
    if test.gold is not None and attends(run.model):
        statistics[test.gold.metric.key] = test.gold.statistics(run, test.examples).tolist()
    entries = [entry for entry in log_entries(folder) if isinstance(entry.get("valid"), dict) and has_numbers(entry)]
    data = {split: _encoded(run, folder, split) for split in ("train", "valid")}
    a_token = None  # floating-point operations of training per token
    if data["train"]:
        batches = corpus.batches(run.fields, data["train"], run.model)
        a_token = flops_per_token(run.model, first_batches(batches, run.device))
    cost = {
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "training_flops": None if a_token is None or not entries else a_token * entries[-1].get("tokens", 0),
        "training_tokens_per_second": mean(entry["tokens_per_second"] for entry in entries) if entries else None,
        "memory_mb": max((entry["memory"] for entry in entries if "memory" in entry), default=None),
    }
    on_progress(0.5, "speed")
    raws = [raw for raw in test.sources if not isinstance(raw, str) or raw.strip()] or [""]
    for rows, count in FAST.items():
        cost[f"decoding_{rows}"] = speed(run, ([""] if run.whole_file else raws * count)[:count], rows=rows)
    on_progress(0.75, "attention and gradients")
    return {
        "outputs": values if all(isinstance(value, str) for value in values) else [],
        "statistics": statistics,
        "looks": [looked(run, test.sources[place]) for place in shown_places(task, test)],
        "pixels": [pictured(run, test.sources[place]) for place in shown_places(task, test)],
        "samples": _samples(run),
        "floors": floors(run, test, data["train"]),
        "sizes": {split: corpus.amount(sides) if sides else "" for split, sides in data.items()},
        "cost": cost,
        "curve": _curve(entries, a_token),
        "gradient": gradients(run, test.examples),
        "time": times(run),
    }


def has_numbers(entry: Facts) -> bool:
    """Return whether what is read from a line of the log is all numbers."""
    read = [entry.get(name) for name in ("seconds", "tokens", "tokens_per_second")]
    return all(type(each) in (int, float) for each in [*read, entry.get("memory", 0), *entry["valid"].values()])


def floors(run: Run, test: Unseen, train: Mapping[str, Encoded]) -> dict[str, float]:
    """Return the value of each metric that a model reaches without learning anything, where that is known."""
    field = run.fields.get("target")
    if field is None or not isinstance(field.shape, Numbered):  # a masked language model has none
        return {}
    try:
        ids = np.concatenate(field.encode(test.targets))
    except UserError:  # a label that training never had
        return {}
    counts = np.bincount(train["target"].tokens if train else ids[:0], minlength=field.shape.size)
    found = {metric: metric.floor.value(ids, counts) for metric in run.task.metrics if metric.floor and len(ids)}
    # a floor that the references themselves do not exceed is left out: BLEU where no sentence has four words
    passed = (m for m, floor in found.items() if m.better == "lower" or m.of(test.targets, test.targets) > floor)
    return {metric.key: found[metric] for metric in passed}


def speed(run: Run, raws: Sequence[str], *, rows: int) -> float:
    """Measure tokens per second from raw input to answer, with `rows` inputs in a batch.

    A translator uses greedy decoding; a language model samples `rows` continuations of one line at a time, of every
    `rows`-th; <eos> is not counted. For all others, the tokens of the input are counted; a model that fills
    blanks gets one at the end of each line.
    """
    if rows < 1 or not raws:
        raise UserError(f"Speed needs at least 1 line and 1 row at a time, and got {len(raws)} and {rows}.")
    raws = sorted(raws, key=len, reverse=True)  # similar lengths together, as `predict` does
    usual = run.task.decoding
    how = replace(usual if usual and usual.sample else Decoding(), batch_tokens=NO_LIMIT)
    if run.task.fills:
        raws = [f"{raw} {how.blank}" for raw in raws]
    if "source" in run.fields:
        together = [raws[start : start + rows] for start in range(0, len(raws), rows)]
    else:
        together = [[raw] * rows for raw in raws[::rows]]
    run.predict(together[0], how)  # warm-up, not timed
    began = time.perf_counter()
    answers = [answer for some in together for answer in run.predict(some, how)]
    seconds = time.perf_counter() - began
    if isinstance(run.model, Generates):
        return sum(len(answer.tokens) for answer in answers) / seconds
    field = run.fields["source"]
    read = field.encode([raw for some in together for raw in some])
    return sum(len(array) // field.width for array in read) / seconds


def _samples(run: Run) -> list[str]:
    """Sample texts from a model that needs no input."""
    if "source" in run.fields or not isinstance(run.model, Generates):
        return []
    return [each.text for each in run.predict([""] * SAMPLES, Decoding(sample=True, temperature=0.8, max_length=60))]


def _encoded(run: Run, folder: Folder, split: str) -> dict[str, Encoded]:
    """Open the encoded training or validation data; return nothing where it is gone."""
    try:
        return {side: Encoded.open(folder.data, f"{split}.{side}") for side in run.fields}
    except (OSError, ValueError, UserError):
        return {}


def _curve(entries: Sequence[Facts], a_token: float | None) -> Facts:
    """Return the learning curve: seconds, tokens, FLOPs and metrics of each validation."""
    curve: Facts = {name: [entry[name] for entry in entries] for name in ("seconds", "tokens")}
    curve["flops"] = [tokens * a_token for tokens in curve["tokens"]] if a_token else []
    for name in METRICS:
        if entries and all(name in entry["valid"] for entry in entries):
            curve[name] = [entry["valid"][name] for entry in entries]
    return curve


def shown_places(task: Task, test: Unseen) -> list[int]:
    """Choose a few examples, from the median length to a long one."""
    words = [len(text.split()) for text in texts_of(task, test)[1]]
    order = sorted(range(len(words)), key=words.__getitem__)
    return list(dict.fromkeys(order[int(share * (len(order) - 1))] for share in SHOWN))


def looked(run: Run, raw: Any) -> Facts | None:
    """Return the attention on an input, for a report; None where there is none to show."""
    try:
        seen = run.look(raw)
    except UserError:  # the input is empty or too long
        return None
    return seen and dict(seen.facts(digits=4))


def pictured(run: Run, raw: Any) -> str:
    """Return a picture as the model reads it, or a recording's spectrogram, as a PNG file in base64; "" for others."""
    field = run.fields.get("source")
    if isinstance(field, SoundField):
        return png_text(spectrogram_pixels(field.frames(first_piece(run, raw))))
    return png_text(pixels_of(run, raw)) if isinstance(field, PictureField) else ""

"""measure: all that a report says of one run, as JSON, so that it is measured once.

What is measured is kept beside the run, with the hash of its weights and of the test set: whoever comes again with the
same ones finds it.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from regard import load
from regard.checkpoint import Folder, write_atomically
from regard.compare.distance import gradients, times
from regard.data import world
from regard.data.batches import Encoded
from regard.data.sources import Parallel, PlainText, Table, World, find, pairs, texts_of
from regard.data.spans import found_spans, mark_spans
from regard.data.text import content_hash, read_lines, read_pairs
from regard.interface import UserError
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.encoder_head import LABELS
from regard.predict.search import Decoding
from regard.recipe import Recipe
from regard.run import Run
from regard.runs import METRICS, log_entries
from regard.score import labels as naming
from regard.score.bootstrap import bleu_statistics, chrf_statistics
from regard.score.likelihood import score_texts
from regard.score.translation import Links, agreement, attention_links, diagonal_links, read_links
from regard.train.corpora import CORPORA, Corpus
from regard.train.cost import first_batches, flops_per_token, speed

Floats = NDArray[np.float64]
Facts = dict[str, Any]
VERSION = 2  # of what is kept; another one is measured anew
SHOWN = (0.5, 0.8, 0.95)  # sentences that are looked into: longer than so many of the test's
FAST = {1: 8, 32: 64}  # lines at a time, and how many of them are timed
BLOCK = 64  # tokens of one long text that stand for a sentence
SAMPLES = 3


# --- what is measured on -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Unseen:
    """Texts never trained on: with their translations or names, and with gold links where there are some."""

    sources: tuple[str, ...]
    targets: tuple[str, ...]  # of a language model, the texts themselves
    links: tuple[Links, ...] | None = None
    held_out: bool = True  # False: it is the validation set, which chose the checkpoints

    @property
    def hash(self) -> str:
        links = [sorted(each) for each in self.links] if self.links else None
        return hashlib.sha256(json.dumps([self.sources, self.targets, links]).encode()).hexdigest()


def unseen_of(recipe: Recipe, files: Sequence[Path] = (), align: Path | None = None) -> Unseen:
    """From these files; else the built-in corpus' own test set; else the validation set."""
    rows = list(_rows(recipe, [find(str(file), Path()) for file in files]))
    if not rows:
        raise UserError("The test data is empty: give at least one line.")
    sources, targets = zip(*rows, strict=True)
    links = None
    if align is not None:
        links = tuple(read_links(line) for line in read_lines(find(str(align), Path())))
        if len(links) != len(rows):
            raise UserError(f"{align} has {len(links)} lines, and the test {len(rows)}: give one alignment for each.")
    elif not files and isinstance(recipe.data, World) and recipe.task == "translation":
        links = tuple(frozenset(pair.links) for pair in _built_in(recipe.data))
    return Unseen(sources, targets, links, held_out=bool(files) or isinstance(recipe.data, World))


def _rows(recipe: Recipe, files: Sequence[Path]) -> Any:
    data, task = recipe.data, recipe.task
    two = task == "translation" and isinstance(data, Parallel | World)
    if files and len(files) != (2 if two else 1):
        wanted = "two files, --test SOURCE --test TARGET" if two else "one file, of the same form as the training data"
        raise UserError(f"{len(files)} test files were given, and {task} here needs {wanted}.")
    if files and two:
        return ((source, target) for _, source, target in read_pairs(*files))
    if task in ("classification", "tagging"):
        if files:
            return naming.named_in(recipe, files[0])
        if isinstance(data, World):
            return data.named("test", per_word=task == "tagging")
        return pairs(data, "valid", recipe.folder)
    if task == "language":
        text = cast(PlainText, data)
        if files:
            texts = texts_of(files[0], text.unit)
        else:
            texts = text.texts("test" if isinstance(data, World) else "valid", recipe.folder)
        return ((text, text) for text in texts)
    if files:
        assert isinstance(data, Table)
        return pairs(replace(data, valid=str(files[0].absolute()), hold_out=0.0), "valid", recipe.folder)
    return pairs(data, "test" if isinstance(data, World) else "valid", recipe.folder)


def _built_in(data: World) -> list[world.Pair]:
    return list(islice(world.pairs("test", seed=data.grammar_seed, longest=data.longest), data.test))


# --- what is measured --------------------------------------------------------------------------------------------


def measured(folder: Path, test: Unseen, *, beam: int) -> Facts:
    """Found beside the run, or measured now."""
    place = Folder(folder).must_exist()
    key = [VERSION, content_hash(place.best) if place.best.exists() else "", test.hash, beam]
    kept = place.path.with_name(place.path.name + ".json")
    try:
        facts: Facts = json.loads(kept.read_text(encoding="utf-8"))
        if facts["key"] == key:
            return facts
    except (OSError, ValueError, KeyError, TypeError):
        pass
    facts = {"key": key, **measure(load(folder), place, test, beam=beam)}
    write_atomically(kept, json.dumps(facts, ensure_ascii=False) + "\n")
    return facts


def measure(run: Run, folder: Folder, test: Unseen, *, beam: int) -> Facts:
    task = run.recipe.task
    if task == "translation":
        found = _translations(run, test, beam)
    elif task == "language":
        found = _texts(run, test)
    else:
        found = _names(run, test)
    entries = [entry for entry in log_entries(folder) if isinstance(entry.get("valid"), dict)]
    corpus = CORPORA[task](run.recipe)
    sizes = {split: _amount(corpus, folder, split) for split in ("train", "valid")}
    a_token = _flops(run, corpus, folder) if sizes["train"] else None
    cost = {
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
        "training_flops": None if a_token is None or not entries else a_token * entries[-1].get("tokens", 0),
        "training_tokens_per_second": mean(entry["tokens_per_second"] for entry in entries) if entries else None,
        "memory_mb": max((entry["memory"] for entry in entries if "memory" in entry), default=None),
    }
    lines = [text for text in test.sources if text.strip()] or [""]
    if run.whole_file:
        lines = [""]
    for rows, count in FAST.items():
        cost[f"decoding_{rows}"] = speed(run, (lines * count)[:count], rows=rows)
    pairs_of = list(zip(test.sources, test.targets, strict=True))
    return {
        **found,
        "sizes": sizes,
        "cost": cost,
        "curve": _curve(entries, a_token),
        "gradient": gradients(run, pairs_of),
        "time": times(run),
    }


def _encoded(corpus: Corpus, folder: Folder, split: str) -> tuple[Encoded, ...]:
    return tuple(Encoded.open(folder.data, f"{split}.{side}") for side in corpus.sides)


def _amount(corpus: Corpus, folder: Folder, split: str) -> str:
    """What it was trained or validated on; "" where that is gone."""
    try:
        return corpus.amount(_encoded(corpus, folder, split))
    except (OSError, ValueError, UserError):
        return ""


def _flops(run: Run, corpus: Corpus, folder: Folder) -> float:
    """Of training, a target token."""
    batches = corpus.batches(_encoded(corpus, folder, "train"), run.model)
    return flops_per_token(run.model, first_batches(batches, run.device))


def _curve(entries: Sequence[Facts], a_token: float | None) -> Facts:
    """Each validation: after how much it came, and what it found."""
    curve: Facts = {name: [entry[name] for entry in entries] for name in ("seconds", "tokens")}
    curve["flops"] = [tokens * a_token for tokens in curve["tokens"]] if a_token else []
    for name, factor in {"loss": 1, **{key: factor for key, (_, factor) in METRICS.items()}}.items():
        if entries and all(name in entry["valid"] for entry in entries):
            curve[name] = [factor * entry["valid"][name] for entry in entries]
    return curve


def _translations(run: Run, test: Unseen, beam: int) -> Facts:
    outputs = [prediction.text for prediction in run.predict(test.sources, Decoding(beam=beam))]
    found: Facts = {
        "outputs": outputs,
        "statistics": {
            "bleu": bleu_statistics(outputs, test.targets).tolist(),
            "chrf": chrf_statistics(outputs, test.targets).tolist(),
        },
        "looks": [looked(run, test.sources[place]) for place in shown_places(test)],
    }
    model = run.model
    if test.links is not None and isinstance(model, EncoderDecoder) and model.decoder.looks_back():
        pairs_of = list(zip(test.sources, test.targets, strict=True))
        found["statistics"]["alignment_error"] = agreement(attention_links(run, pairs_of), test.links)
    return found


def diagonal(test: Unseen) -> Floats | None:
    """The agreement of someone who looks at nothing."""
    if test.links is None:
        return None
    spaced = zip(test.sources, test.targets, strict=True)
    guessed = [diagonal_links(len(source.split()), len(target.split())) for source, target in spaced]
    return np.array(agreement(guessed, test.links), dtype=np.float64)


def shown_places(test: Unseen) -> list[int]:
    """A few sentences, from the middle one to a long one."""
    order = sorted(range(len(test.sources)), key=lambda place: len(test.sources[place].split()))
    return list(dict.fromkeys(order[int(share * (len(order) - 1))] for share in SHOWN))


def looked(run: Run, sentence: str) -> Facts | None:
    try:
        seen = run.look(sentence)
    except UserError:  # empty, or longer than can be looked at
        return None
    weights = [[round(float(weight), 4) for weight in row] for row in seen.weights]
    return {"source": seen.source, "target": seen.target, "weights": weights, "kind": seen.kind}


def _texts(run: Run, test: Unseen) -> Facts:
    each = score_texts([run], test.sources).each
    if run.whole_file:
        long = each[0]
        each = [long[at : at + BLOCK] for at in range(0, len(long), BLOCK)]
    written = run.predict([""] * SAMPLES, Decoding(sample=True, temperature=0.8, max_length=60))
    return {
        "statistics": {"perplexity": [[-float(values.sum()), len(values)] for values in each]},
        "samples": [prediction.text for prediction in written],
        "looks": [],
    }


def _names(run: Run, test: Unseen) -> Facts:
    per_word = run.recipe.task == "tagging"
    said = [named.text for named in naming.name(run, test.sources)]
    gold = [target.split() if per_word else [target] for target in test.targets]
    given = [text.split() if per_word else [text] for text in said]
    known = run.tokenizers.target.surface(range(LABELS, run.tokenizers.target.size))
    labels = sorted({*known, *(label for names in gold for label in names)})
    each = list(zip(gold, given, strict=True))
    right = [[sum(a == b for a, b in zip(one, other, strict=False)), len(one)] for one, other in each]
    spans = per_word and mark_spans(label for names in gold for label in names)
    if spans:
        rows = [np.sum([(0, 0, 0), *found_spans(one, other).values()], axis=0).tolist() for one, other in each]
    else:
        rows = [_counts(one, other, labels) for one, other in each]
    return {
        "outputs": said,
        "statistics": {"accuracy": right, "f1": rows},
        "looks": [] if per_word else [looked(run, test.sources[place]) for place in shown_places(test)],
        "spans": spans,
        "labels": [] if spans else labels,
    }


def _counts(gold: Sequence[str], said: Sequence[str], labels: Sequence[str]) -> list[int]:
    """Of each label: right, said, there."""
    row = []
    for label in labels:
        right = sum(a == b == label for a, b in zip(gold, said, strict=False))
        row += [right, sum(b == label for b in said), sum(a == label for a in gold)]
    return row

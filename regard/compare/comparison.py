"""comparison: what was measured of several runs, put beside one another."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
import sacrebleu
from numpy.typing import NDArray

from regard import machine
from regard.checkpoint import Folder
from regard.compare.measure import Facts, Unseen, diagonal, looked, measured, shown_places
from regard.compare.summary import ALL, summary
from regard.data.sources import World
from regard.data.spans import with_words
from regard.interface import Fits, UserError
from regard.models import design_of
from regard.models.design import Design
from regard.recipe import Recipe, read_recipe
from regard.run import Run, load
from regard.score import bootstrap as drawing
from regard.score.bootstrap import Drawn, Measure, difference, draw, interval
from regard.score.likelihood import fit_weights, score_texts
from regard.score.translation import bleu, by_length, chrf

LONG = 25  # words: a sentence with more is a long one
FEWEST = 20  # sentences for a figure to be of use
MISTAKES = 8
SIGNED = {"bleu": bleu, "chrf": chrf}  # whose signature says how they are computed
TOKEN = {"words": "word", "given": "word", "characters": "character", "bpe": "sub-word"}
Floats = NDArray[np.float64]


@dataclass(frozen=True)
class Trained:
    """A run as it came out; `why` it failed, or ""."""

    name: str  # of the model
    seed: int
    folder: Path
    command: str
    settings: tuple[str, ...] = ()
    why: str = ""
    interrupted: bool = False
    facts: Facts | None = None  # what was measured


def measures_of(recipe: Recipe, found: Sequence[Facts]) -> list[Measure]:
    """The first is the main one."""
    if recipe.task == "translation":
        return [Measure("bleu", "BLEU", "higher", drawing.bleu), Measure("chrf", "chrF", "higher", drawing.chrf)]
    if recipe.task == "language":
        return [Measure("perplexity", "perplexity", "lower", drawing.perplexity, f"a {TOKEN[recipe.tokens.kind]}")]
    accuracy = Measure("accuracy", "accuracy", "higher", drawing.share, "%")
    spans = any(facts.get("spans") for facts in found)
    f1 = Measure("f1", "entity F1" if spans else "macro F1", "higher", drawing.mean_f1, "%")
    return [f1, accuracy] if recipe.task == "tagging" and spans else [accuracy, f1]


def comparison(
    recipe: Recipe, runs: Sequence[Trained], test: Unseen, *, budget: Mapping[str, Any], command: str, setting: Facts
) -> Facts:
    """All that a report says, as JSON."""
    there = [run for run in runs if run.facts]
    names = list(dict.fromkeys(run.name for run in runs))
    by_name = {name: [run for run in there if run.name == name] for name in names}
    measures = measures_of(recipe, [run.facts for run in there if run.facts])
    drawn = {measure.key: _drawn(by_name, measure.key, measure.value) for measure in measures}
    error = _drawn(by_name, "alignment_error", _alignment_error)
    words = np.array([len(source.split()) for source in test.sources])
    whole = bool(there) and len(_statistics(there[0], measures[0].key)) != len(words)  # one long text, in blocks
    lengths = {} if whole else _by_length(by_name, measures[0], test.sources)
    long = f"sources of more than {LONG} words"
    found: Facts = {
        "title": _title(names, recipe),
        "task": recipe.task,
        "made": {
            "date": datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC"),
            "version": machine.facts()["regard"],
            "command": command,
            "machine": setting,
        },
        "data": _data(recipe, test, there[0].facts["sizes"] if there and there[0].facts else {}, whole=whole),
        "budget": dict(budget),
        "seeds": sorted({run.seed for run in runs}),
        "warnings": _warnings(runs, test, few=not whole and len(words) < FEWEST),
        "measures": [_told(measure, recipe) for measure in measures],
        "reads": "source" if recipe.task == "translation" else "text",
        "counts": {"classification": "labels", "tagging": "tags"}.get(recipe.task, "tokens"),
        "long": long,
        "models": [
            _model(name, [run for run in runs if run.name == name], drawn, error, lengths.get(name, []))
            for name in names
        ],
        "diagonal_error": None,
        "mixtures": _mixtures(by_name, test) if recipe.task == "language" else [],
        "pairs": _pairs(drawn[measures[0].key], measures[0].key, ALL),
        "alignments": _alignments(by_name, test),
        "mistakes": _mistakes(recipe, by_name, test),
    }
    if recipe.task == "translation":
        if (words > LONG).sum() >= FEWEST:
            some = _drawn(by_name, "bleu", drawing.bleu, words > LONG)
            found["pairs"] += _pairs(some, "bleu", long)
        if (guessed := diagonal(test)) is not None:
            found["diagonal_error"] = float(_alignment_error(guessed.sum(0)))
    found["summary"] = summary(found)
    return found


# --- figures -----------------------------------------------------------------------------------------------------


def _statistics(run: Trained, key: str) -> Floats:
    assert run.facts is not None
    return np.array(run.facts["statistics"].get(key, []), dtype=np.float64)


def _drawn(
    by_name: Mapping[str, Sequence[Trained]], key: str, value: Any, where: Any = slice(None)
) -> dict[str, Drawn]:
    """Of the models that have this statistic; what they said of the same sentences, so of as many."""
    statistics = {}
    for name, runs in by_name.items():
        seeds = [_statistics(run, key) for run in runs]
        if seeds and all(len(seed) for seed in seeds):
            statistics[name] = [seed[where] for seed in seeds]
    return draw(statistics, value) if statistics else {}


def _alignment_error(sums: Floats) -> Floats:
    errors: Floats = 1 - sums[..., 0] / np.maximum(sums[..., 1], 1)
    return errors


def _by_length(
    by_name: Mapping[str, Sequence[Trained]], measure: Measure, sources: Sequence[str]
) -> dict[str, list[Facts]]:
    buckets: dict[str, list[Facts]] = {name: [] for name in by_name}
    for shortest, longest, inside in by_length(sources):
        if inside.sum() < FEWEST:
            continue
        for name, drawn in _drawn(by_name, measure.key, measure.value, inside).items():
            first, last = interval(drawn.draws)
            place = {"from": shortest, "to": longest, "sentences": int(inside.sum())}
            buckets[name].append({**place, "mean": drawn.mean, "low": first, "high": last})
    return buckets


def _pairs(drawn: Mapping[str, Drawn], key: str, where: str) -> list[Facts]:
    return [
        {"first": one, "second": other, "measure": key, "where": where, **difference(drawn[one], drawn[other])}
        for one, other in combinations(drawn, 2)
    ]


def _model(
    name: str,
    runs: Sequence[Trained],
    drawn: Mapping[str, Mapping[str, Drawn]],
    error: Mapping[str, Drawn],
    lengths: list[Facts],
) -> Facts:
    there = [run.facts for run in runs if run.facts]
    first = runs[0]
    design = _design(first)
    return {
        "name": name,
        "paper": design.paper if design else "",
        "year": design.year if design else None,
        "settings": list(first.settings),
        "parameters": there[0]["cost"]["parameters"] if there else None,
        "runs": [_run(run) for run in runs],
        "values": {key: some[name].facts() for key, some in drawn.items() if name in some},
        "lengths": lengths,
        "alignment_error": error[name].facts() if name in error else None,
        "curves": [{"seed": run.seed, **run.facts["curve"]} for run in runs if run.facts],
        "cost": _cost([facts["cost"] for facts in there]),
        "reach": {
            "path": design.path if design else "",
            "gradient": _mean_curve([facts["gradient"] for facts in there]),
            "time": _mean_curve([facts["time"] for facts in there]),
        },
        "samples": there[0].get("samples", []) if there else [],
    }


def _design(run: Trained) -> Design | None:
    """None where it was never begun."""
    try:
        return design_of(read_recipe(Folder(run.folder).config)[0].model_name)
    except UserError:
        return None


def _run(run: Trained) -> Facts:
    curve = run.facts["curve"] if run.facts else {"seconds": [], "tokens": []}
    return {
        "seed": run.seed,
        "folder": str(run.folder),
        "command": run.command,
        "state": "failed" if run.why else "finished",
        "why": run.why,
        "minutes": curve["seconds"][-1] / 60 if curve["seconds"] else None,
        "tokens": curve["tokens"][-1] if curve["tokens"] else None,
        "interrupted": run.interrupted,
    }


def _cost(costs: Sequence[Facts]) -> Facts:
    """Of each kind that is known: each seed's, and their mean."""
    found = {key: [cost[key] for cost in costs if cost[key] is not None] for key in (costs[0] if costs else {})}
    return {key: {"each": each, "mean": mean(each)} for key, each in found.items() if each}


def _mean_curve(curves: Sequence[Sequence[Sequence[float]]]) -> list[list[float]]:
    """At the places that all of them have."""
    maps = [dict((int(x), y) for x, y in curve) for curve in curves]
    shared = sorted(set.intersection(*(set(each) for each in maps))) if maps else []
    return [[x, mean(each[x] for each in maps)] for x in shared]


# --- texts -------------------------------------------------------------------------------------------------------


def _title(names: Sequence[str], recipe: Recipe) -> str:
    files = list(recipe.data.names.values())
    data = "/".join(Path(files[0]).parts[-2:]) if files else "the built-in corpus"
    return f"{', '.join(names[:-1])} and {names[-1]} on {data}" if len(names) > 1 else f"{names[0]} on {data}"


def _data(recipe: Recipe, test: Unseen, sizes: Mapping[str, str], *, whole: bool) -> Facts:
    data, nouns = recipe.data, {"translation": "pairs", "language": "texts"}
    noun = nouns.get(recipe.task, "sentences")
    files = list(data.names.values())
    text = ", ".join(Path(file).name for file in files)
    if isinstance(data, World):
        text = f"the built-in corpus, sentences of at most {data.longest} words"
    tested = "one text" if whole else f"{len(test.sources):,} {noun}"
    return {
        "text": text,
        "train": sizes.get("train", ""),
        "valid": sizes.get("valid", ""),
        "test": tested if test.held_out else "the validation set",
        "files": files,
        "tokens": recipe.tokens.kind,
    }


def _told(measure: Measure, recipe: Recipe) -> Facts:
    note = ""
    if measure.key in SIGNED:
        note = SIGNED[measure.key](["a"], ["a"]).signature
    if measure.key == "perplexity":
        note = f"exp of the mean −ln p, of {TOKEN[recipe.tokens.kind]}s and, where there are several, ends of texts"
    return {"key": measure.key, "name": measure.name, "unit": measure.unit, "better": measure.better, "note": note}


def _warnings(runs: Sequence[Trained], test: Unseen, *, few: bool) -> list[str]:
    said = [f"{run.name}, seed {run.seed}: failed ({run.why})." for run in runs if run.why]
    said += [
        f"{run.name}, seed {run.seed}: was interrupted, and went on where it had stopped."
        for run in runs
        if run.interrupted
    ]
    if few:
        said.append(f"The test set has fewer than {FEWEST} lines, too few for intervals to mean much: give more.")
    if not test.held_out:
        said.append("Measured on the validation set, which also chose the checkpoints: give --test for a fair figure.")
    return said


def _alignments(by_name: Mapping[str, Sequence[Trained]], test: Unseen) -> list[Facts]:
    """The chosen sentences, each model's first seed beside the others'."""
    found = []
    for number, place in enumerate(shown_places(test)):
        models = []
        for name, runs in by_name.items():
            looks = runs[0].facts["looks"] if runs and runs[0].facts else []
            if number < len(looks) and looks[number]:
                models.append({"name": name, **looks[number]})
        if models:
            source = models[0]["source"]
            found.append({"source": source, "reference": test.targets[place], "models": models})
    return found


def _mistakes(recipe: Recipe, by_name: Mapping[str, Sequence[Trained]], test: Unseen) -> list[Facts]:
    """Where models, their first seeds, differ most: by chrF of a sentence, or by how many are right."""
    first = {name: runs[0].facts for name, runs in by_name.items() if runs and runs[0].facts}
    outputs = {name: facts["outputs"] for name, facts in first.items() if facts and "outputs" in facts}
    if len(outputs) < 2:
        return []
    rows = []
    for place, (source, target) in enumerate(zip(test.sources, test.targets, strict=True)):
        scores = {name: _right(recipe, said[place], target) for name, said in outputs.items()}
        rows.append((max(scores.values()) - min(scores.values()), place, source, target, scores))
    rows.sort(key=lambda row: (-row[0], row[1]))
    rows = [row for row in rows[:MISTAKES] if row[0] > 0]
    looks = {name: _looks(by_name[name][0], [row[2] for row in rows]) for name in outputs}
    return [
        {
            "source": source,
            "reference": _legible(recipe, source, target),
            "outputs": [
                {"model": name, "text": _legible(recipe, source, said[place]), "score": scores[name]}
                for name, said in outputs.items()
            ],
            "models": [{"name": name, **look} for name, seen in looks.items() if (look := seen[number])],
        }
        for number, (_, place, source, target, scores) in enumerate(rows)
    ]


def _legible(recipe: Recipe, source: str, said: str) -> str:
    return with_words(source.split(), said.split()) if recipe.task == "tagging" else said


def _looks(run: Trained, sentences: Sequence[str]) -> list[Facts | None]:
    """None of what is named word by word."""
    loaded = load(run.folder)
    return [None if loaded.recipe.task == "tagging" else looked(loaded, sentence) for sentence in sentences]


def _right(recipe: Recipe, said: str, target: str) -> float:
    """0 to 100."""
    if recipe.task == "translation":
        return float(sacrebleu.sentence_chrf(said, [target]).score)
    one, other = said.split(), target.split()
    return 100 * sum(a == b for a, b in zip(one, other, strict=False)) / max(1, len(other))


def _mixtures(by_name: Mapping[str, Sequence[Trained]], test: Unseen) -> list[Facts]:
    """Every model's first seed with the one that counts, and all together: weights from the validation text."""
    runs = {name: load(some[0].folder) for name, some in by_name.items() if some}
    counting = [name for name, run in runs.items() if isinstance(run.model, Fits)]
    groups: list[tuple[str, ...]] = [(name, other) for name in runs for other in counting if name not in counting]
    if len(runs) > 2:
        groups.append(tuple(runs))
    found = []
    for group in groups:
        some = [runs[name] for name in group]
        try:
            found.append(_mixture(group, some, test))
        except UserError:  # of different vocabularies
            continue
    return found


def _mixture(names: Sequence[str], runs: Sequence[Run], test: Unseen) -> Facts:
    weights = fit_weights(runs)
    likelihood = score_texts(runs, test.sources, weights=weights).likelihood
    shown = {name: round(weight, 4) for name, weight in zip(names, weights, strict=True)}
    return {"name": " + ".join(names), "weights": shown, "value": likelihood.per_token}


def measure_runs(runs: Sequence[Trained], test: Unseen, *, beam: int, tell: Any) -> list[Trained]:
    """With what was measured; one that cannot be is reported as failed."""
    found = []
    for run in runs:
        if run.why:
            found.append(run)
            continue
        tell(run)
        try:
            found.append(replace(run, facts=measured(run.folder, test, beam=beam)))
        except Exception as problem:  # whatever it is, it is one run's
            found.append(replace(run, why=f"it could not be measured: {problem}"))
    return found

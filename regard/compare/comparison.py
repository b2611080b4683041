"""Combine the measurements of several runs into one comparison, as JSON."""

from __future__ import annotations

import datetime
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import combinations
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

from regard import machine
from regard.checkpoint import Folder
from regard.compare.measure import Facts, OnProgress, Unseen, looked, measured, pictured, shown_places, texts_of
from regard.compare.summary import ALL, covers_0, listed, summary
from regard.data.files import reason
from regard.data.text import BETWEEN
from regard.interface import Fits, UserError
from regard.loading import load, read_recipe
from regard.models import design_of
from regard.models.design import Design
from regard.recipe import Recipe
from regard.score.bootstrap import Resampled, difference, resample
from regard.score.gold import Gold
from regard.score.likelihood import fit_weights, score_texts
from regard.score.metrics import FEWEST, PERPLEXITY, Metric, buckets

LONG = 25  # words: a sentence with more is a long one
MISTAKES = 8
TOKEN = {"words": "word", "given": "word", "characters": "character", "bpe": "sub-word"}


@dataclass(frozen=True)
class Trained:
    """A trained run, or `why` it failed."""

    name: str  # of the model
    seed: int
    folder: Path
    command: str
    settings: tuple[str, ...] = ()
    why: str = ""
    interrupted: bool = False
    facts: Facts = field(default_factory=dict)  # what was measured; nothing, if it failed


ByName = Mapping[str, Sequence[Trained]]  # the runs that were measured, by model


def comparison(
    recipe: Recipe, runs: Sequence[Trained], test: Unseen, *, budget: Mapping[str, Any], command: str, setting: Facts
) -> Facts:
    """Return everything that a report shows, as JSON."""
    every: dict[str, list[Trained]] = {}
    for run in runs:
        every.setdefault(run.name, []).append(run)
    by_name = {name: there for name, some in every.items() if (there := [run for run in some if run.facts])}
    first: Facts = next((some[0].facts for some in by_name.values()), {"sizes": {}, "statistics": {}, "floors": {}})
    task, metrics = recipe.task, recipe.task.metrics
    resamples = {metric.key: _resampled(by_name, metric) for metric in metrics}
    looked_at = _resampled(by_name, test.gold.metric) if test.gold else {}
    sized, texts = texts_of(task, test)
    words = np.array([len(text.split()) for text in texts])
    whole = len(first["statistics"].get(metrics[0].key, words)) != len(words)  # one long text, in blocks
    lengths = {} if whole or not words.any() else _by_length(by_name, metrics[0], texts)
    long = f"sources of more than {LONG} words"
    pairs = _pairs(resamples[metrics[0].key], metrics[0], ALL)
    if task.aligned and (words > LONG).sum() >= FEWEST:
        pairs += _pairs(_resampled(by_name, metrics[0], words > LONG), metrics[0], long)
    found: Facts = {
        "title": f"{listed(list(every))} on {data_title(recipe)}",
        "task": task.name,
        "made": made_by(command, setting),
        "data": _data(recipe, test, first["sizes"], whole=whole),
        "budget": dict(budget),
        "seeds": sorted({run.seed for run in runs}),
        "warnings": _warnings(runs, test, few=not whole and len(words) < FEWEST),
        "measures": [_described(metric, recipe, test, first["floors"]) for metric in metrics],
        "reads": task.words.reads,
        "sized": sized,  # what lengths are of
        "counts": task.words.counts,
        "weights_to_one": task.aligned,  # attention to a whole text at once has low weights
        "judged_by": task.words.judged,
        "long": long,
        "models": [_model(name, some, resamples, lengths.get(name, []), looked_at) for name, some in every.items()],
        "gold": _gold(test.gold) if test.gold else None,
        "mixtures": _mixtures(by_name, test) if task.mixes else [],
        "pairs": pairs,
        "alignments": _alignments(recipe, by_name, test),
        "mistakes": _mistakes(recipe, by_name, test),
    }
    found["summary"] = summary(found)
    return found


def made_by(command: str, setting: Facts) -> Facts:
    """Describe when, by which command and on which machine something was made."""
    date = datetime.datetime.now(datetime.UTC).strftime("%Y-%m-%d %H:%M UTC")
    return {"date": date, "version": machine.facts()["regard"], "command": command, "machine": setting}


# --- numbers -----------------------------------------------------------------------------------------------------


def _resampled(by_name: ByName, metric: Metric, where: Any = slice(None)) -> dict[str, Resampled]:
    """Resample the models that have this statistic, all over the same sentences."""
    statistics = {}
    for name, runs in by_name.items():
        seeds = [np.array(run.facts["statistics"].get(metric.key, []), dtype=np.float64) for run in runs]
        if all(len(seed) for seed in seeds):
            statistics[name] = [seed[where] for seed in seeds]
    return resample(statistics, metric) if statistics else {}


def _by_length(by_name: ByName, metric: Metric, texts: Sequence[str]) -> dict[str, list[Facts]]:
    found: dict[str, list[Facts]] = {name: [] for name in by_name}
    for shortest, longest, inside in buckets(texts):
        if inside.sum() >= FEWEST:
            bucket = {"from": shortest, "to": longest, "sentences": int(inside.sum())}
            for name, resampled in _resampled(by_name, metric, inside).items():
                found[name].append(bucket | resampled.facts())
    return found


def _pairs(resamples: Mapping[str, Resampled], metric: Metric, where: str) -> list[Facts]:
    """Compare every two models and name the better one; None where the confidence interval covers 0."""
    pairs: list[Facts] = []
    for one, other in combinations(resamples, 2):
        pair = {"first": one, "second": other, "measure": metric.key, "where": where}
        apart = difference(resamples[one], resamples[other])._asdict()
        ahead = one if (apart["difference"] > 0) == (metric.better == "higher") else other
        pairs.append({**pair, **apart, "better": None if covers_0(apart) else ahead})
    return pairs


def _model(
    name: str,
    runs: Sequence[Trained],
    resamples: Mapping[str, Mapping[str, Resampled]],
    lengths: list[Facts],
    looked_at: Mapping[str, Resampled],
) -> Facts:
    there = [run.facts for run in runs if run.facts]
    design = _design(runs[0])
    values = {key: some[name].facts() for key, some in resamples.items() if name in some}
    return {
        "name": name,
        "paper": design.paper if design else "",
        "year": design.year if design else None,
        "settings": list(runs[0].settings),
        "parameters": there[0]["cost"]["parameters"] if there else None,
        "runs": [_run(run) for run in runs],
        "values": values,
        "lengths": lengths,
        "attention": looked_at[name].facts() if name in looked_at else None,  # how far it agrees with gold
        "curves": [{"seed": run.seed, **run.facts["curve"]} for run in runs if run.facts],
        "cost": _cost([facts["cost"] for facts in there]),
        "reach": {
            "path": design.path if design else "",
            "gradient": _mean_curve([facts["gradient"] for facts in there]),
            "time": _mean_curve([facts["time"] for facts in there]),
        },
        "samples": there[0]["samples"] if there else [],
    }


def _design(run: Trained) -> Design | None:
    """Return the design of a run's model; None where the run was never started."""
    try:
        return design_of(read_recipe(Folder(run.folder).config)[0].model_name)
    except UserError:
        return None


def _run(run: Trained) -> Facts:
    curve = run.facts.get("curve", {"seconds": [], "tokens": []})
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
    """Return the costs that are known: one value per seed, and their mean."""
    found = {key: [cost[key] for cost in costs if cost[key] is not None] for key in (costs[0] if costs else {})}
    return {key: {"each": each, "mean": mean(each)} for key, each in found.items() if each}


def _mean_curve(curves: Sequence[Sequence[Sequence[float]]]) -> list[list[float]]:
    """Average curves at the places that all of them have."""
    maps = [dict((int(x), y) for x, y in curve) for curve in curves]
    shared = sorted(set.intersection(*(set(each) for each in maps))) if maps else []
    return [[x, mean(each[x] for each in maps)] for x in shared]


# --- texts -------------------------------------------------------------------------------------------------------


def data_title(recipe: Recipe) -> str:
    """Name the training data in a title."""
    files = list(recipe.data.names.values())
    return "/".join(Path(files[0]).parts[-2:]) if files else "the built-in corpus"


def _data(recipe: Recipe, test: Unseen, sizes: Mapping[str, str], *, whole: bool) -> Facts:
    data, noun = recipe.data, f"{recipe.task.words.example}s"
    tested = "one text" if whole else f"{len(test.sources):,} {noun}"
    return {
        "text": data.described,
        "train": sizes.get("train", ""),
        "valid": sizes.get("valid", ""),
        "test": tested if test.held_out else "the validation set",
        "files": list(data.names.values()),
    }


def _described(metric: Metric, recipe: Recipe, test: Unseen, floors: Mapping[str, float]) -> Facts:
    note, unit = metric.note(), metric.unit
    if metric is PERPLEXITY:
        token = TOKEN[recipe.tokens.kind]
        note, unit = f"{note}, of {token}s and, where there are several, ends of texts", f"a {token}"
    name = metric.called(test.targets)
    described: Facts = {"key": metric.key, "name": name, "unit": unit, "better": metric.better, "note": note}
    if metric.floor and metric.key in floors:
        described["floor"] = {"value": floors[metric.key], "meaning": metric.floor.meaning}
    return described


def _gold(gold: Gold) -> Facts:
    metric = gold.metric
    described = {"name": metric.name, "unit": metric.unit, "better": metric.better, "note": metric.note()}
    return {**described, "baseline": {"name": gold.baseline_name, "value": gold.baseline}}


def _warnings(runs: Sequence[Trained], test: Unseen, *, few: bool) -> list[str]:
    warnings = [f"{run.name}, seed {run.seed}, failed ({run.why})." for run in runs if run.why]
    warnings += [
        f"{run.name}, seed {run.seed}, was interrupted and resumed where it had stopped."
        for run in runs
        if run.interrupted
    ]
    if few:
        warnings.append(f"The test set has fewer than {FEWEST} lines, too few for reliable intervals: give more.")
    if not test.held_out:
        warnings.append(
            "The models were measured on the validation set, which also chose the checkpoints: give a test set."
        )
    return warnings


def _alignments(recipe: Recipe, by_name: ByName, test: Unseen) -> list[Facts]:
    """Show the attention of each model's first seed on the chosen examples."""
    firsts = {name: runs[0].facts for name, runs in by_name.items()}
    found = []
    for number, place in enumerate(shown_places(recipe.task, test)):
        models = [{"name": name, **seen} for name, facts in firsts.items() if (seen := facts["looks"][number])]
        if models:
            picture = next(iter(firsts.values()))["pixels"][number]
            source = [_called(recipe, test, place)] if picture else models[0]["source"]
            shown = {"source": source, "picture": picture, "reference": _reference(recipe, test, place)}
            found.append({**shown, "models": models})
    return found


def _called(recipe: Recipe, test: Unseen, place: int) -> str:
    """Return a source, if it is a text, or else its number."""
    source = test.sources[place]
    return source if isinstance(source, str) else f"{recipe.task.words.example} {place + 1}"


def _reference(recipe: Recipe, test: Unseen, place: int) -> str:
    shown = recipe.task.legible(test.sources[place], test.targets[place])
    return shown.replace(BETWEEN, "\n")


def _mistakes(recipe: Recipe, by_name: ByName, test: Unseen) -> list[Facts]:
    """Find where the models' first seeds differ most: by sentence chrF, or by how many labels are right."""
    outputs = {name: texts for name, runs in by_name.items() if (texts := runs[0].facts["outputs"])}
    if len(outputs) < 2:
        return []
    rows = []
    for place, target in enumerate(test.targets):
        scores = {name: recipe.task.right(texts[place], target) for name, texts in outputs.items()}
        rows.append((max(scores.values()) - min(scores.values()), place, scores))
    rows.sort(key=lambda row: (-row[0], row[1]))
    rows = [row for row in rows[:MISTAKES] if row[0] > 0]
    loaded = {name: load(by_name[name][0].folder) for name in outputs}
    return [
        {
            "source": _called(recipe, test, place),
            "picture": pictured(next(iter(loaded.values())), source),
            "reference": _reference(recipe, test, place),
            "outputs": [
                {"model": name, "text": recipe.task.legible(source, texts[place]), "score": scores[name]}
                for name, texts in outputs.items()
            ],
            "models": [{"name": name, **seen} for name, run in loaded.items() if (seen := looked(run, source))],
        }
        for _, place, scores in rows
        for source in [test.sources[place]]
    ]


def _mixtures(by_name: ByName, test: Unseen) -> list[Facts]:
    """Mix every model's first seed with the n-gram model, and all of them, with weights fitted on validation text."""
    runs = {name: load(some[0].folder) for name, some in by_name.items()}
    counting = [name for name, run in runs.items() if isinstance(run.model, Fits)]
    groups: list[tuple[str, ...]] = [(name, other) for name in runs for other in counting if name not in counting]
    if len(runs) > 2:
        groups.append(tuple(runs))
    found = []
    for group in groups:
        mixed = [runs[name] for name in group]
        try:
            weights = fit_weights(mixed)
            value = score_texts(mixed, test.sources, weights=weights).likelihood.per_token
        except UserError:  # their vocabularies differ
            continue
        shown = {name: round(weight, 4) for name, weight in zip(group, weights, strict=True)}
        found.append({"name": " + ".join(group), "weights": shown, "value": value})
    return found


def measure_runs(runs: Sequence[Trained], test: Unseen, *, beam: int, on_progress: OnProgress) -> list[Trained]:
    """Measure every run; one that cannot be measured is reported as failed."""
    found = list(runs)

    def proceed(place: int, share: float, what: str) -> None:
        name = f"{runs[place].name}, seed {runs[place].seed} ({place + 1} of {len(runs)})"
        on_progress((place + share) / len(runs), f"{name}: {what}")

    for place, run in enumerate(runs):
        if run.why:
            continue
        try:
            facts = measured(run.folder, test, beam=beam, on_progress=partial(proceed, place))
            found[place] = replace(run, facts=facts)
        except Exception as problem:  # one run's error does not stop the others
            found[place] = replace(run, why=f"it could not be measured: {reason(problem)}")
    return found

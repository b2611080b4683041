"""The results of a search: its trials, best first, and how much each setting mattered, as JSON."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regard.compare.comparison import data_title, made_by
from regard.compare.measure import Facts
from regard.compare.summary import listed
from regard.runs import log_entries
from regard.score.metrics import Metric
from regard.sweep.search import Search
from regard.sweep.space import Choices, Setting
from regard.sweep.study import Trial

Floats = NDArray[np.float64]
SHUFFLES = 2000  # random orders of the results, beside which a setting's strength is judged
FEWEST = 5  # finished trials for a strength to be of use
CHANCE = 0.05  # a strength that is reached so often by shuffled results is not more than chance


def results(search: Search, trials: Sequence[Trial], *, command: str, setting: Facts) -> Facts:
    """Return everything that the table and the report show."""
    metric = search.recipe.metric
    rows = [_row(search, trial) for trial in ranked(trials, metric)]
    finished = [trial for trial in trials if trial.value is not None]
    found: Facts = {
        "title": f"Search for {listed(list(search.space.texts()))}: "
        f"{search.recipe.model_title} on {data_title(search.recipe)}",
        "task": search.recipe.task.name,
        "made": made_by(command, setting),
        "folder": str(search.folder),
        "seed": search.seed,
        "metric": {
            "key": metric.key,
            "name": metric.name,
            "unit": metric.unit,
            "better": metric.better,
            "note": metric.note(),
        },
        "space": [_described(each) for each in search.space.settings],
        "trials": rows,
        "settings": [strength(each, finished) for each in search.space.settings],
    }
    found["summary"] = summary(found)
    return found


def ranked(trials: Sequence[Trial], metric: Metric) -> list[Trial]:
    """Sort trials: the best first, then those without a value."""
    sign = -1 if metric.better == "higher" else 1
    known = [trial for trial in trials if trial.value is not None]
    known.sort(key=lambda trial: (sign * (trial.value or 0.0), trial.number))
    return known + [trial for trial in trials if trial.value is None]


def _row(search: Search, trial: Trial) -> Facts:
    curve: dict[str, list[float]] = {"seconds": [], "step": [], "value": []}
    last: dict[str, Any] = {}
    for last in log_entries(search.run(trial)):
        valid = last.get("valid")
        value = valid.get(search.recipe.metric.key) if isinstance(valid, dict) else None
        point: Facts = {"seconds": last.get("seconds"), "step": last.get("step"), "value": value}
        if all(isinstance(number, int | float) for number in point.values()):
            for key in curve:
                curve[key].append(point[key])
    return {
        "name": trial.name,
        "state": trial.state,
        "value": trial.value,
        "settings": dict(trial.params),
        "titles": search.space.titles(trial.params),
        "seconds": last.get("seconds"),
        "step": last.get("step"),
        "why": trial.why,
        "folder": str(search.run(trial).path),
        "curve": curve,
    }


def _described(setting: Setting) -> Facts:
    if isinstance(setting, Choices):
        return {"key": setting.key, "choices": [setting.title(value) for value in setting.values]}
    return {"key": setting.key, "low": setting.low, "high": setting.high, "log": setting.log}


def strength(setting: Setting, trials: Sequence[Trial]) -> Facts:
    """Return how much a setting goes with the results, from 0 to 1, and how often shuffled results reach as much.

    For a range it is the absolute rank correlation (Spearman), whose sign is given, too; for choices the correlation
    ratio of ranks: √(variance between the choices / variance). Trials that failed do not count.
    """
    values = np.array([trial.value for trial in trials], dtype=np.float64)
    given = [trial.params[setting.key] for trial in trials]
    found: Facts = {"key": setting.key, "strength": None, "direction": None, "p": None, "means": []}
    if isinstance(setting, Choices):
        for value in setting.values:
            of_it = [float(each) for each, one in zip(values, given, strict=True) if one == value]
            mean = sum(of_it) / len(of_it) if of_it else None
            found["means"].append({"choice": setting.title(value), "trials": len(of_it), "mean": mean})
    if len(trials) < FEWEST or len(set(given)) < 2 or len(set(values.tolist())) < 2:
        return found
    ranks, shuffles = _ranks(values), np.random.default_rng(0)
    orders = np.stack([ranks, *(shuffles.permutation(ranks) for _ in range(SHUFFLES))])  # (1 + shuffles, trials)
    if isinstance(setting, Choices):
        strengths = _ratio(orders, given)
    else:
        signed = _correlation(orders, _ranks(np.array(given, dtype=np.float64)))
        strengths, found["direction"] = np.abs(signed), float(signed[0])
    found["strength"] = float(strengths[0])
    found["p"] = float((strengths >= strengths[0] - 1e-9).mean())
    return found


def _ranks(values: Floats) -> Floats:
    """Return the rank of each value; equal values share the mean of their ranks."""
    _, place, counts = np.unique(values, return_inverse=True, return_counts=True)
    ends = np.cumsum(counts)
    ranks: Floats = (ends - (counts - 1) / 2)[place]
    return ranks


def _correlation(orders: Floats, ranks: Floats) -> Floats:
    """Correlate each row with these ranks."""
    one, other = orders - orders.mean(1, keepdims=True), ranks - ranks.mean()
    found: Floats = one @ other / np.sqrt((one**2).sum(1) * (other**2).sum())
    return found


def _ratio(orders: Floats, groups: Sequence[object]) -> Floats:
    """Return the share of each row's spread that lies between the groups, as a square root."""
    whole = orders.mean(1)
    between = np.zeros(len(orders))
    for group in set(groups):
        inside = np.array([one == group for one in groups])
        between += inside.sum() * (orders[:, inside].mean(1) - whole) ** 2
    found: Floats = np.sqrt(between / ((orders - whole[:, None]) ** 2).sum(1))
    return found


def summary(found: Facts) -> list[str]:
    """Say in sentences which trial is the best, and which settings went with the results."""
    metric, rows = found["metric"], found["trials"]
    finished = [row for row in rows if row["state"] == "finished"]
    failed = [row for row in rows if row["state"] == "failed"]
    lost = f" {len(failed)} of {len(rows)} trials failed." if failed else ""
    if not finished:
        return [f"No trial has finished yet.{lost}"]
    best = finished[0]
    settings = ", ".join(f"{key} = {value}" for key, value in best["titles"].items())
    sentences = [
        f"Trial {best['name']} is the best of {len(finished)}: {metric['name']} {best['value']:.4g} on the validation "
        f"set, with {settings}.{lost}"
    ]
    known = [one for one in found["settings"] if one["strength"] is not None]
    if not known:
        return [
            *sentences,
            f"Fewer than {FEWEST} trials that differ have finished, too few to say which settings mattered.",
        ]
    sure = sorted((one for one in known if one["p"] <= CHANCE), key=lambda one: -one["strength"])
    if not sure:
        return [*sentences, "No setting went with the results more closely than by chance: try more trials."]
    words = [f"{one['key']} ({one['strength']:.2f}{_way(one, metric['better'])})" for one in sure]
    return [*sentences, f"What went with the results more closely than by chance: {listed(words)}."]


def _way(one: Facts, better: str) -> str:
    if one["direction"] is None:
        return ""
    return ", larger is better" if (one["direction"] > 0) == (better == "higher") else ", smaller is better"

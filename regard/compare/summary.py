"""Summarise a comparison in plain sentences, and claim nothing that its confidence intervals do not support."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

Facts = Mapping[str, Any]
ALL = "all sentences"
NOTABLE = 1.2  # times as fast: worth a sentence


def summary(comparison: Facts) -> list[str]:
    measure = comparison["measures"][0]
    known = [model for model in comparison["models"] if measure["key"] in model["values"]]
    if not known:
        return ["No model could be measured."]
    sign = 1 if measure["better"] == "higher" else -1
    known.sort(key=lambda model: -sign * model["values"][measure["key"]]["mean"])
    sentences = [
        *_untrained(comparison["measures"], known),
        *_first(comparison["pairs"], known, measure),
        *_by_length(known, measure, comparison["sized"]),
        *_long(comparison),
        *_attention(comparison["gold"], known),
        *_mixed(comparison, known, measure),
        *_cost(known, comparison["counts"]),
    ]
    if len(comparison["seeds"]) == 1:
        sentences.append("There is only one seed: the intervals cover the choice of examples, not chance in training.")
    return sentences


def _untrained(measures: Sequence[Facts], models: Sequence[Facts]) -> list[str]:
    """Report where no model is better than an untrained one, by the first measure that has such a floor."""
    for measure in measures:
        values = [model["values"][measure["key"]]["mean"] for model in models if measure["key"] in model["values"]]
        if (floor := measure.get("floor")) and values:
            sign = 1 if measure["better"] == "higher" else -1
            best = sign * max(sign * value for value in values)
            level = f"is {number(best)}, and {number(floor['value'])} is {floor['meaning']}"
            sentence = f"No model has learnt the task yet: the best {measure['name']} {level}; train longer."
            return [] if sign * best > sign * floor["value"] else [sentence]
    return []


def _first(pairs: Sequence[Facts], ranked: Sequence[Facts], measure: Facts) -> list[str]:
    best = ranked[0]
    value = best["values"][measure["key"]]
    seeds = len(value["each"])
    mean_of = f", the mean of {seeds} seeds" if seeds > 1 else ""
    most = "highest" if measure["better"] == "higher" else "lowest"
    which = f"the {most} {measure['name']}:" if len(ranked) > 1 else measure["name"]
    around = f" ({number(value['low'])} to {number(value['high'])})" if value["low"] is not None else ""
    sentences = [f"{best['name']} has {which} {number(value['mean'])}{around}{mean_of}."]
    level, behind = [], []
    pair_of = {frozenset((pair["first"], pair["second"])): pair for pair in pairs if pair["where"] == ALL}
    for other in ranked[1:]:
        pair = pair_of[frozenset((best["name"], other["name"]))]
        if covers_0(pair):
            level.append(f"{other['name']} ({number(pair['low'])} to {number(pair['high'])} apart)")
        else:
            behind.append(f"{other['name']} has {number(other['values'][measure['key']]['mean'])}")
    if level:
        sentences.append(
            f"The difference to {listed(level)} is not significant: other sentences or seeds may reverse it."
        )
    if behind:
        sentences.append(f"Significantly behind: {listed(behind)}.")
    return sentences


def _by_length(ranked: Sequence[Facts], measure: Facts, sized: str) -> list[str]:
    """Compare short and long sentences, where the intervals of a model's first and last bucket do not overlap."""
    changes = []
    for model in ranked:
        buckets = model["lengths"]
        if len(buckets) < 2:
            continue
        short, long = buckets[0], buckets[-1]
        if short["low"] > long["high"] or short["high"] < long["low"]:
            changes.append(f"{model['name']} goes from {number(short['mean'])} to {number(long['mean'])}")
    if not changes:
        return []
    buckets = ranked[0]["lengths"]
    last = buckets[-1]
    longest = f"{last['from']} and more" if last["to"] is None else f"{last['from']} to {last['to']}"
    beyond = f"{sized}s of at most {buckets[0]['to']} words to those of {longest}"
    return [f"In {measure['name']}, from {beyond}, {listed(changes)}."]


def _long(comparison: Facts) -> list[str]:
    """Report which models are better on long sentences."""
    leads = []
    for pair in comparison["pairs"]:
        if pair["where"] != ALL and pair["better"]:
            behind = pair["second"] if pair["better"] == pair["first"] else pair["first"]
            least, most = sorted((abs(pair["low"]), abs(pair["high"])))
            around = f"({number(least)} to {number(most)})"
            leads.append(f"{pair['better']} is {number(abs(pair['difference']))} ahead of {behind} {around}")
    return [f"On {comparison['long']}, {listed(leads)}."] if leads else []


def _attention(gold: Facts | None, ranked: Sequence[Facts]) -> list[str]:
    found = [(model["attention"]["mean"], model["name"]) for model in ranked if model["attention"]]
    if not found or gold is None:
        return []

    def shown(value: float) -> str:
        return f"{value:.1f} {gold['unit']}" if gold["unit"] else f"{value:.3f}"

    each = listed([f"{name} {shown(value)}" for value, name in sorted(found, reverse=gold["better"] == "higher")])
    title, baseline = gold["name"], gold["baseline"]
    return [f"{title[0].upper()}{title[1:]}: {each}; {baseline['name']}: {shown(baseline['value'])}."]


def _mixed(comparison: Facts, ranked: Sequence[Facts], measure: Facts) -> list[str]:
    better = [mix for mix in comparison["mixtures"] if mix["value"] < ranked[0]["values"][measure["key"]]["mean"]]
    if not better:
        return []
    best = min(better, key=lambda mix: mix["value"])
    shares = [f"{name} ({share:.2f})" for name, share in best["weights"].items() if share >= 0.01]
    return [f"A mixture of the first seeds of {listed(shares)} has {number(best['value'])}."]


def _cost(ranked: Sequence[Facts], counts: str) -> list[str]:
    sentences = []
    for key, doing, what in (("training_tokens_per_second", "trains", counts), ("decoding_32", "is used", "tokens")):
        found = sorted((model["cost"][key]["mean"], model["name"]) for model in ranked if key in model["cost"])
        if len(found) > 1 and found[-1][0] > NOTABLE * found[0][0]:
            (slow, last), (fast, first) = found[0], found[-1]
            slowest = f"{last} is the slowest with {slow:,.0f}"
            sentences.append(f"{first} {doing} fastest here, {fast:,.0f} {what} per second; {slowest}.")
    return sentences


def covers_0(pair: Facts) -> bool:
    return bool(pair["low"] <= 0 <= pair["high"])


def number(value: float) -> str:
    return f"{value:.2f}" if abs(value) < 1000 else f"{value:,.0f}"


def listed(parts: Sequence[str]) -> str:
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"

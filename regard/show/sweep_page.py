"""The report of a search over settings: one HTML file that opens offline, with the look of a comparison's report.

It shows the search's JSON and decides nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from regard.show import report_charts as charts
from regard.show.markup import Html, html_table, quiet, scroller
from regard.show.report_page import Part, document, fact_list, machine_facts
from regard.show.text import NONE, decimals, fixed, short, tidy, whole

BEST = 6  # trials that have a colour of their own, and curves
ABOUT_STRENGTH = (
    "Strength, from 0 to 1: for a range the absolute rank correlation (Spearman) of the setting with the results, for "
    "choices the correlation ratio of ranks, √(variance between the choices / variance). p: how often shuffled results "
    "are as strong; each setting is tested alone. Trials that failed do not count. A search does not try all values "
    "equally often, so this shows what went together, and is not an experiment."
)


def sweep_page(found: Part) -> str:
    """Return one HTML document with all it needs inside."""
    s = _prepared(tidy(found))
    sections = {
        "Summary": ("summary", "".join(f"<p>{escape(sentence)}</p>\n" for sentence in s["summary"])),
        "Trials": ("trials", html_table([_row(s, trial) for trial in s["trials"]], wordy=("state",))),
        "Settings": ("settings", _settings(s)),
        "Curves": ("curves", _curves(s)),
        "Setup": ("setup", _setup(s)),
    }
    return document(s, sections)


def _prepared(s: dict[str, Any]) -> Part:
    """Add each trial's index and label, and the title and decimals of the metric."""
    metric = s["metric"]
    values = [trial["value"] for trial in s["trials"]]
    title = f"{metric['name']} ({metric['unit']})" if metric["unit"] else metric["name"]
    for place, trial in enumerate(s["trials"]):
        sign = ""
        if place < BEST and trial["value"] is not None:
            mark = charts.MODEL_SIGNS[charts.model_style(place)[0]]
            sign = f'<i class="m{place % charts.MODEL_COLOURS}" aria-hidden="true">{mark}</i>'
        trial |= {"place": place, "label": Html(f'<span class="model">{sign}{escape(trial["name"])}</span>')}
    best = [trial for trial in s["trials"][:BEST] if trial["value"] is not None]
    others = [trial for trial in s["trials"][BEST:] if trial["value"] is not None]
    return s | {"title_of_metric": title, "digits": decimals(values), "best": best, "others": others}


def _row(s: Part, trial: Part) -> dict[str, str]:
    state = f"{trial['state']}: {trial['why']}" if trial["why"] else trial["state"]
    return {
        "trial": trial["label"],
        s["title_of_metric"]: fixed(trial["value"], s["digits"]),
        **trial["titles"],
        "minutes": NONE if trial["seconds"] is None else fixed(trial["seconds"] / 60, 1),
        "steps": whole(trial["step"]),
        "state": state,
    }


def _settings(s: Part) -> str:
    if not s["best"]:
        return ""
    rows = []
    for one in sorted(s["settings"], key=lambda one: -(one["strength"] or 0)):
        direction = one["direction"]
        rows.append(
            {
                "setting": Html(escape(one["key"]).replace(".", ".<wbr>").replace("_", "_<wbr>")),
                "strength": fixed(one["strength"], 2),
                "p": NONE if one["p"] is None else f"{one['p']:.2g}",
                "rank correlation": fixed(direction, 2, "+"),
                f"mean {s['metric']['name']} of each choice": "; ".join(_mean(s, mean) for mean in one["means"])
                or NONE,
            }
        )
    drawn = [_against(s, setting) for setting in s["space"]]
    table = html_table([_row(s, trial) for trial in (*s["best"], *s["others"])], wordy=("state",))
    about = quiet(f"{s['metric']['name']}: {s['metric']['better']} is better. {s['metric']['note']}")
    means = [name for name in rows[0] if name.startswith("mean")]
    note = f'<div class="notes">{quiet(ABOUT_STRENGTH)}{about}</div>'
    return f"{html_table(rows, wordy=means)}\n{note}\n{charts.figure(drawn, table)}"


def _mean(s: Part, mean: Part) -> str:
    trials = f"{mean['trials']} trial{'' if mean['trials'] == 1 else 's'}"
    return f"{mean['choice']}: {fixed(mean['mean'], s['digits'])} ({trials})"


def _against(s: Part, setting: Part) -> charts.Chart:
    """Draw the metric of each finished trial against one setting."""
    key, best, others = setting["key"], s["best"], s["others"]
    data = []
    if "choices" in setting:
        names = setting["choices"]
        across = charts.word_axis(key, names, range=[-0.5, len(names) - 0.5])
        place = {name: at for at, name in enumerate(names)}
        means = next(one["means"] for one in s["settings"] if one["key"] == key)
        known = [(place[mean["choice"]], mean["mean"]) for mean in means if mean["mean"] is not None]
        data.append(charts.level_marks("mean of a choice", known))
        at = {trial["name"]: place[trial["titles"][key]] for trial in (*best, *others)}
    else:
        at = {trial["name"]: trial["settings"][key] for trial in (*best, *others)}
        across = charts.log_axis(key, list(at.values())) if setting["log"] else charts.axis(key)
    titles = {trial["name"]: f"trial {trial['name']}: {key} {trial['titles'][key]}" for trial in (*best, *others)}
    if others:
        data.append(charts.points("other trials", [(at[t["name"]], t["value"], titles[t["name"]]) for t in others]))
    for trial in best:
        data.append(
            charts.points(
                f"trial {trial['name']}", [(at[trial["name"]], trial["value"], titles[trial["name"]])], trial["place"]
            )
        )
    up = charts.axis(f"validation {charts.plain(s['title_of_metric'])}")
    return charts.chart(key, f"Validation {s['metric']['name']} of each trial against {key}", data, across, up)


def _curves(s: Part) -> str:
    """Draw the validations of the best trials against time and steps."""
    known = [trial for trial in s["best"] if trial["curve"]["value"]]
    if not known:
        return ""
    slow = max(seconds for trial in known for seconds in trial["curve"]["seconds"]) >= 120
    unit, divisor = ("minutes", 60) if slow else ("seconds", 1)
    axes = {
        "seconds": ("Time", f"training time ({unit})", divisor),
        "step": ("Steps", "training steps", 1),
    }
    up = charts.axis(f"validation {charts.plain(s['title_of_metric'])}")
    drawn, rows = [], []
    for key, (button, words, by) in axes.items():
        data = [
            charts.line(
                {"place": trial["place"], "name": f"trial {trial['name']}"},
                [at / by for at in trial["curve"][key]],
                trial["curve"]["value"],
            )
            for trial in known
        ]
        title = f"Validation {s['metric']['name']} of the best trials against {words.split(' (')[0]}"
        drawn.append(charts.chart(button, title, data, charts.axis(words), up))
    for trial in known:
        curve = trial["curve"]
        for seconds, step, value in zip(curve["seconds"], curve["step"], curve["value"], strict=True):
            row = {"trial": trial["label"], unit: fixed(seconds / divisor, 2), "steps": whole(step)}
            rows.append(row | {s["title_of_metric"]: fixed(value, 3)})
    return charts.figure(drawn, html_table(rows))


def _setup(s: Part) -> str:
    spaces: Sequence[str] = [f"{one['key']}: {_space(one)}" for one in s["space"]]
    facts = {
        "Searched": "; ".join(spaces),
        "Chosen by": f"{s['metric']['name']} on the validation set, {s['metric']['better']} is better",
        "Seed": str(s["seed"]),
        "Folder": s["folder"],
        **machine_facts(s["made"]),
    }
    command = scroller(f"<pre>{escape(s['made']['command'])}</pre>")
    return f"{fact_list(facts)}\n<h3>Command</h3>\n{command}"


def _space(one: Part) -> str:
    if "choices" in one:
        return ", ".join(one["choices"])
    return f"{short(one['low'])} to {short(one['high'])}{', on a logarithmic scale' if one['log'] else ''}"

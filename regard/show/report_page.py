"""A comparison as one HTML file that opens offline: a summary, charts, and a table for each chart.

It shows the comparison's JSON and decides nothing: the JSON also names the input, the unit of size and the metrics.
Tables are written here, so that they are readable without a script; `report_page.html` draws the charts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from html import escape
from statistics import fmean
from typing import Any

import numpy as np
from plotly.offline import get_plotlyjs

from regard.show import report_charts as charts
from regard.show.colours import SCALES, colour_scale
from regard.show.markup import Html, fill_template, html_grid, html_table, inert_json, policy_hash, quiet, scroller
from regard.show.picture_map import png_address, png_text, shadow, shares_of
from regard.show.text import NONE, brief, decimals, fixed, interval, power, short, tidy, visible, whole

Part = Mapping[str, Any]  # a part of REPORT.json

INTERVAL = "95 % confidence interval"
USES = {"train": "training", "valid": "validation", "test": "testing"}
COSTS = {
    "parameters": "parameters",
    "training_flops": "training FLOPs",
    "training_tokens_per_second": "training, «counts»/s",
    "decoding_1": "prediction, batch of 1, tokens/s",
    "decoding_32": "prediction, batch of 32, tokens/s",
    "memory_mb": "memory, MB",
}
STRIP_ASPECT = 3.0  # of a spectrogram, whose places are one row of steps
SPOTLIGHT = "For each word, the «reads» is bright where the weight is largest and dark where there is none."
REACH = "The path length: steps between two words that are n words apart."


def report_page(comparison: Part) -> str:
    """Return one HTML document with all it needs inside."""
    c = _prepared(tidy(comparison))
    return document(c, {title: (key, write(c)) for key, (title, write) in SECTIONS.items()})


def document(made: Part, sections: Mapping[str, tuple[str, str]]) -> str:
    """Return a page with these sections, title -> key and markup; those that are empty are left out."""
    shown = [(key, title, inner) for title, (key, inner) in sections.items() if inner]
    plotly = get_plotlyjs()
    return fill_template(
        "report_page.html",
        plotly_hash=policy_hash(plotly),
        title=escape(brief(made["title"], 200)),
        about=escape(f"{made['made']['date']} · {made['task']} · regard {made['made']['version']}"),
        contents="\n".join(f'<li><a href="#{key}">{title}</a></li>' for key, title, _ in shown),
        sections="\n".join(
            f'<section id="{key}" aria-labelledby="{key}-title">\n<h2 id="{key}-title">{title}</h2>\n{inner}</section>'
            for key, title, inner in shown
        ),
        scales=inert_json({theme: colour_scale(*ends)[::15] for theme, ends in SCALES.items()}),
        plotly=plotly,
    )


def _prepared(c: dict[str, Any]) -> Part:
    """Add what sections share: each model's index and its name with its symbol, each measure's title and decimals."""
    for place, model in enumerate(c["models"]):
        sign, colour = charts.MODEL_SIGNS[charts.model_style(place)[0]], place % charts.MODEL_COLOURS
        signed = f'<i class="m{colour}" aria-hidden="true">{sign}</i>{escape(model["name"])}'
        model |= {"place": place, "label": Html(f'<span class="model">{signed}</span>')}
    for measure in c["measures"]:
        means = [value["mean"] for model in c["models"] if (value := _value(model, measure))]
        title = f"{measure['name']} ({measure['unit']})" if measure["unit"] else measure["name"]
        measure |= {"title": title, "digits": decimals(means)}
    return c | {"labels": {model["name"]: model["label"] for model in c["models"]}}


# --- sections: markup, or "" if a section is empty -------------------------------------------------------------------


def _summary(c: Part) -> str:
    text = "".join(f"<p>{escape(sentence)}</p>\n" for sentence in c["summary"])
    warnings = "".join(f"<li>{escape(warning)}</li>\n" for warning in c["warnings"])
    return text + (f'<div class="warnings"><h3>Warnings</h3>\n<ul>{warnings}</ul></div>' if warnings else "")


def _compared(c: Part) -> str:
    made, data = c["made"], c["data"]
    facts = {
        "Data": data["text"],
        "Sizes": ", ".join(f"{data[part]} for {use}" for part, use in USES.items() if data[part]),
        "Budget": c["budget"]["text"],
        "Seeds": ", ".join(map(str, c["seeds"])),
        **machine_facts(made),
    }
    rows, commands = [], {"The comparison": [made["command"]]}
    for model in c["models"]:
        runs, name = model["runs"], model["label"]
        states = {state: sum(run["state"] == state for run in runs) for state in ("finished", "failed")}
        states["interrupted"] = sum(run["interrupted"] for run in runs)
        rows.append(
            {
                "model": name,
                "from": " ".join([model["paper"] or "", f"({model['year']})" if model["year"] else ""]).strip() or NONE,
                "parameters": whole(model["parameters"] or None),  # an n-gram model has none
                "minutes per run": fixed(_mean(run["minutes"] for run in runs), 1),
                f"{c['counts']} per run": whole(_mean(run["tokens"] for run in runs)),
                "runs": ", ".join(f"{many} {state}" for state, many in states.items() if many) or NONE,
            }
        )
        commands[name] = [f"# settings: {' '.join(model['settings'])}"] if model["settings"] else []
        for run in runs:
            state = f"{run['state']}: {run['why']}" if run["why"] else run["state"]
            commands[name] += [f"# seed {run['seed']}, {state}, in {run['folder']}", run["command"]]
    commands["Files read"] = data["files"]
    blocks = (
        f"<h3>{name}</h3>\n{scroller(f'<pre>{escape(chr(10).join(lines))}</pre>')}"
        for name, lines in commands.items()
        if lines
    )
    return (
        f"{fact_list(facts)}\n{html_table(rows, wordy=('from', 'runs'))}\n"
        f"<details><summary>Commands, settings and files</summary>{''.join(blocks)}</details>"
    )


def _quality(c: Part) -> str:
    measures = [measure for measure in c["measures"] if any(_value(model, measure) for model in c["models"])]
    if not measures:
        return _curves(c)
    cells = html_table([{"model": m["label"], **_cells(c, measures, m["values"])} for m in c["models"]])
    names = charts.word_axis("model", [m["name"] for m in c["models"]], range=[len(c["models"]) - 0.5, -0.5])
    drawn = []
    for measure in measures:
        known = [(model, value) for model in c["models"] if (value := _value(model, measure))]
        data = [trace for model, value in known for trace in charts.dots(model, value)]
        what = "with 95 % confidence intervals" if any("error_x" in trace for trace in data) else "of each model"
        size = {"showlegend": False, "height": 150 + 56 * len(c["models"])}
        drawn.append(charts.chart(measure["name"], f"{measure['name']} {what}", data, _up(measure), names, **size))
    notes = ["Small markers are single seeds."] * (len(c["seeds"]) > 1)
    notes += [f"{m['name']}: {m['better']} is better. {m['note']}" for m in measures]
    below = f'<div class="notes">{"".join(map(quiet, notes))}</div>'
    return f"{cells}\n{charts.figure(drawn, cells)}{below}\n{_curves(c)}"


def _curves(c: Part) -> str:
    """Draw learning curves: the main metric on the validation set, if it was measured, and the loss."""
    drawn = "".join(_curve(c, measure["key"], measure["name"], measure["title"]) for measure in c["measures"][:1])
    drawn += _curve(c, "loss", "loss", "loss (nats per token)")
    several = any(len(model["curves"]) > 1 for model in c["models"])
    note = quiet("Thick lines are means over seeds, thin lines are single seeds.") if several else ""
    return f"<h3>Learning curves</h3>\n{note}{drawn}" if drawn else ""


def _curve(c: Part, what: str, called: str, unit_of: str) -> str:
    found = [(model, [curve for curve in model["curves"] if curve.get(what)]) for model in c["models"]]
    known = [(model, curves) for model, curves in found if curves]
    if not known:
        return ""
    slow = max(s for _, curves in known for curve in curves for s in curve["seconds"] or [0]) >= 120
    unit = "minutes" if slow else "seconds"
    axes = {
        "seconds": ("Time", charts.axis(f"training time ({unit})")),
        "tokens": (c["counts"].capitalize(), charts.axis(f"training {c['counts']}", exponentformat="SI")),
        "flops": ("FLOPs", charts.axis("training FLOPs", exponentformat="power")),
    }
    data: dict[str, list[charts.Trace]] = {key: [] for key in axes}
    rows = []
    for model, curves in known:
        curves = [{**one, "seconds": [s / 60 if slow else s for s in one["seconds"]]} for one in curves]
        columns = {key: zip(*(one[key] for one in curves), strict=False) for key in (*axes, what)}  # of all seeds
        means = {key: list(map(_mean, column)) for key, column in columns.items()}
        for key in axes:
            thin = [charts.thin_line(model, one[key], one[what]) for one in curves if len(curves) > 1]
            data[key] += [*thin, charts.line(model, means[key], means[what])] if means[key] else []
        for curve in curves + [{"seed": "mean", **means}] * (len(curves) > 1):
            for at, value in enumerate(curve[what]):
                seconds, tokens, flops = (curve[key][at] if curve[key] else None for key in axes)
                row = {"model": model["label"], "seed": str(curve["seed"]), unit: fixed(seconds, 2)}
                rows.append(row | {c["counts"]: whole(tokens), "FLOPs": power(flops), called: fixed(value, 3)})
    up = charts.axis(f"validation {charts.plain(unit_of)}")
    title = f"Validation {called} against"
    drawn = [
        charts.chart(button, f"{title} {across['title']['text'].split(' (')[0]}", data[key], across, up)
        for key, (button, across) in axes.items()
        if data[key]
    ]
    return charts.figure(drawn, html_table(rows))


def _lengths(c: Part) -> str:
    bins = {part["from"]: part["to"] for model in c["models"] for part in model["lengths"]}
    if not bins:
        return ""
    spans = {first: f"{first}+" if bins[first] is None else f"{first}–{bins[first]}" for first in sorted(bins)}
    measure, lines, bands = c["measures"][0], [], []
    across = f"words in the {c['sized']}"
    known = [model for model in c["models"] if model["lengths"]]
    rows = {
        first: {across: span, "sentences": NONE, **dict.fromkeys((model["name"] for model in known), NONE)}
        for first, span in spans.items()
    }
    for model in known:
        parts = model["lengths"]
        for part in parts:
            around = interval(part, measure["digits"])
            cell = fixed(part["mean"], measure["digits"]) + (f" ({around})" if around != NONE else "")
            rows[part["from"]] |= {"sentences": whole(part["sentences"]), model["name"]: cell}
        lines.append(charts.line(model, [spans[one["from"]] for one in parts], [one["mean"] for one in parts]))
        sure = [part for part in parts if part["low"] is not None and part["high"] is not None]
        ends = ([part[end] for part in sure] for end in ("low", "high"))
        bands += [charts.band(model, [spans[part["from"]] for part in sure], *ends)] if sure else []
    title = f"{measure['name']} by length of the {c['sized']}{', with 95 % confidence intervals' if bands else ''}"
    lengths = charts.axis(across, type="category", categoryarray=list(spans.values()), tickangle=0)
    drawn = charts.chart("", title, bands + lines, lengths, _up(measure))
    return charts.figure([drawn], html_table(list(rows.values())))


def _learnt(c: Part) -> str:
    agreement, gold = "", c["gold"]
    if gold and (known := [model for model in c["models"] if model["attention"]]):
        digits = decimals([model["attention"]["mean"] for model in known])
        title = f"{gold['name']} ({gold['unit']})" if gold["unit"] else gold["name"]
        measure = {"key": "attention", "name": gold["name"], "title": title, "digits": digits}
        rows = [{"model": model["label"], **_cells(c, [measure], model)} for model in known]
        baseline = {"model": gold["baseline"]["name"], title: fixed(gold["baseline"]["value"], digits)}
        rows.append(dict.fromkeys(rows[0], "") | baseline)
        agreement = quiet(f"{gold['name'].capitalize()}: {gold['note']}; {gold['better']} is better.") + html_table(
            rows
        )
    if not c["alignments"]:
        return agreement
    seen = any(one.get("picture") for one in c["alignments"])
    asked = (" ".join([*one["source"], *([one["reference"]] if one.get("picture") else [])]) for one in c["alignments"])
    sources = (brief(each, 90) for each in asked)
    options = "".join(f'<option value="{at}">{escape(source)}</option>' for at, source in enumerate(sources))
    shared = f"The weights of each row sum to 1 over the words of the {c['reads']}; all models share one colour scale."
    most = "1" if c["weights_to_one"] else "the largest of the text"
    scale = f'<p class="quiet scale">weight 0 <i></i> {most}</p>\n'
    return (
        f"{agreement}\n<h3>{'Where each word looked' if seen else 'Alignments'}</h3>\n"
        f"{quiet(SPOTLIGHT.replace('«reads»', c['reads']) if seen else shared)}\n"
        f'<p class="choose"><label for="sentence">{c["reads"].capitalize() if seen else "Sentence"}</label> '
        f'<select id="sentence">{options}</select></p>\n{"" if seen else scale}'
        f"{''.join(_alignment(c, at, one) for at, one in enumerate(c['alignments']))}"
    )


def _alignment(c: Part, at: int, one: Part) -> str:
    shown = f'<div class="sentence" id="sentence-{at}"{" hidden" if at else ""}>\n'
    return f"{shown}{_asked(c, one, ' '.join(one['source']))}\n{_maps(c, one)}</div>\n"


def _asked(c: Part, one: Part, source: str) -> str:
    """Show a source and its reference, and the picture, if it is one."""
    texts = fact_list({c["reads"].capitalize(): source, "Reference": one["reference"] or NONE})
    if not one.get("picture"):
        return texts
    return f'<div class="pictured"><img src="{png_address(escape(one["picture"]))}" alt="">{texts}</div>'


def _spotlights(c: Part, one: Part) -> str:
    """Show the picture once for each word that a model wrote, bright where it looked."""
    cards = []
    for model in one["models"]:
        rows, columns = model["grid"]
        aspect = columns / rows if rows > 1 else STRIP_ASPECT
        shares = shares_of(np.array(model["weights"]).reshape(-1, rows, columns))
        dark = (png_address(png_text(shadow(each))) for each in shares)
        words = [
            f'<div><img src="{over}" alt="" style="aspect-ratio: {aspect:g}">{escape(visible(word))}</div>'
            for word, over in zip(model["target"], dark, strict=True)
        ]
        head = f'{c["labels"][model["name"]]} <span class="quiet">{escape(model["kind"])}</span>'
        cards.append(f'<div class="card"><h4>{head}</h4><div class="places">{"".join(words)}</div></div>')
    picture = f"--picture: url({png_address(escape(one['picture']))})"  # once for all of its maps
    return f'<div style="{picture}">{"".join(cards)}</div>'


def _maps(c: Part, one: Part) -> str:
    """Show the attention map of each model, side by side if there is room."""
    if one.get("picture"):
        return _spotlights(c, one)
    figures, least, to_one = [], 0.0, c["weights_to_one"]
    weights_of = (weight for model in one["models"] for row in model["weights"] for weight in row)
    most = 1.0 if to_one else max(weights_of, default=1.0)
    for model in one["models"]:
        source = [visible(word) for word in model["source"]]  # its tokens may be its own
        target, weights = [visible(word) if to_one else word for word in model["target"]], model["weights"]
        if not target:
            continue
        small = {"tickfont": {"size": 11.5}}
        across = charts.word_axis(c["reads"], source, side="top", tickangle=-90, **small)
        up = charts.word_axis("output", target, autorange="reversed", **small)
        least = max(least, 5 + 0.43 * max(map(len, up["ticktext"])) + 0.8 * len(source))
        cells = [[word, *(fixed(w, 2) for w in row)] for word, row in zip(target, weights, strict=True)]
        title, data = f"{model['name']}: {model['kind']}", [charts.heat(weights, most)]
        drawn = charts.chart("", title, data, across, up, showlegend=False)
        figures.append(charts.figure([drawn], html_grid(["", *(brief(word, 24) for word in source)], cells)))
    return f'<div class="beside" style="--least: {least:.1f}rem">{"".join(figures)}</div>' if figures else ""


def _cost(c: Part) -> str:
    known = {key for model in c["models"] for key in model["cost"]}
    names = {key: name.replace("«counts»", c["counts"]) for key, name in COSTS.items() if key in known}
    if not names:
        return ""
    measure, rows = c["measures"][0], []
    for model in c["models"]:
        value = _value(model, measure)
        rows.append({"model": model["label"], measure["title"]: fixed(value and value["mean"], measure["digits"])})
        for key, name in names.items():
            rows[-1][name] = _spread(model["cost"].get(key), power if "flops" in key else whole)
    several = quiet("Means over seeds, with the minimum and maximum if seeds differ.") if len(c["seeds"]) > 1 else ""
    return several + html_table(rows)


def _spread(cost: Part | None, write: Callable[[float | None], str]) -> str:
    if cost is None or not any(cost["each"]):  # an n-gram model has no parameters
        return NONE
    least, most = write(min(cost["each"])), write(max(cost["each"]))
    spread = f'<br><span class="quiet">{escape(f"{least} to {most}")}</span>' if least != most else ""
    return Html(escape(write(cost["mean"])) + spread)


def _reach(c: Part) -> str:
    models = [model for model in c["models"] if model["reach"]]
    paths = [{"model": model["label"], "path": path} for model in models if (path := model["reach"]["path"])]
    parts = [quiet(REACH), html_table(paths, wordy=("model", "path"))] if paths else []
    for key, title, of, up in (
        ("gradient", "Gradient norm against distance", "distance (tokens)", "gradient norm (log scale)"),
        ("time", "Time against length", "length (tokens, log scale)", "seconds to read and write (log scale)"),
    ):
        known = [(model, dict(map(tuple, points))) for model in models if (points := model["reach"][key])]
        heights = [y for _, points in known for y in points.values() if y]
        if not heights:
            continue
        at = sorted({x for _, points in known for x in points})
        marks = at[:: -(-len(at) // 8)]
        scaled = {"type": "log", "tickvals": marks, "ticktext": list(map(str, marks))} if key == "time" else {}
        data = [charts.line(model, list(points), [y or None for y in points.values()]) for model, points in known]
        rows = [{of: f"{x:,}", **{model["name"]: short(points.get(x)) for model, points in known}} for x in at]
        drawn = charts.chart("", title, data, charts.axis(of, **scaled), charts.log_axis(up, heights))
        parts.append(charts.figure([drawn], html_table(rows)))
    return "\n".join(parts)


def _language(c: Part) -> str:
    rows = []
    for mixture in c["mixtures"]:
        measure = c["measures"][0]
        weights = ", ".join(f"{fixed(weight, 2)} {name}" for name, weight in mixture["weights"].items())
        value = fixed(mixture["value"], measure["digits"])
        rows.append({"mixture": mixture["name"], "weights": weights, measure["title"]: value})
    parts = ["<h3>Mixtures</h3>", html_table(rows, wordy=("mixture", "weights"))] if rows else []
    cards = "".join(_card(model["label"], model["samples"]) for model in c["models"] if model["samples"])
    parts += ["<h3>Samples</h3>", f'<div class="outputs">{cards}</div>'] if cards else []
    return "\n".join(parts)


def _significance(c: Part) -> str:
    measures = {measure["key"]: measure for measure in c["measures"]}
    rows = []
    for pair in c["pairs"]:
        measure = measures[pair["measure"]]
        around = interval(pair, measure["digits"], "+")
        verdict = f"{pair['better']} is better" if pair["better"] else "no significant difference"
        rows.append(
            {
                "first": c["labels"][pair["first"]],
                "second": c["labels"][pair["second"]],
                "measure": f"{measure['name']}, {pair['where']}",
                "first − second": fixed(pair["difference"], measure["digits"], "+"),
                INTERVAL: around,
                "p": NONE if pair["p"] is None else f"{pair['p']:.2g}",
                "result": "not tested" if around == NONE else verdict,
            }
        )
    return html_table(rows, wordy=("second", "measure", "result"))


def _mistakes(c: Part) -> str:
    articles, by = [], c["judged_by"]  # without a score an output is right or wrong
    for mistake in c["mistakes"]:
        cards = []
        for one in mistake["outputs"]:
            grade = f"score {fixed(one['score'], 1)}" if by else "right" if one["score"] else "wrong"
            cards.append(_card(f'{c["labels"][one["model"]]} <span class="quiet">{grade}</span>', [one["text"]]))
        texts = _asked(c, mistake, mistake["source"])
        maps = _maps(c, mistake)
        looks = f"<details><summary>Attention maps</summary>{maps}</details>" if maps else ""
        articles.append(f'<article>{texts}<div class="outputs">{"".join(cards)}</div>{looks}</article>\n')
    about = quiet(f"The examples on which the first seeds of the models differ most{f'; score: {by}' if by else ''}.")
    return about + "".join(articles) if articles else ""


SECTIONS = {
    "summary": ("Summary", _summary),
    "compared": ("Setup", _compared),
    "quality": ("Quality for the budget", _quality),
    "lengths": ("Quality by length", _lengths),
    "learnt": ("Attention and alignment", _learnt),
    "cost": ("Cost", _cost),
    "reach": ("Long distances", _reach),
    "writing": ("Language", _language),
    "significance": ("Significance", _significance),
    "mistakes": ("Mistakes", _mistakes),
}


# --- shared by sections ----------------------------------------------------------------------------------------------


def machine_facts(made: Part) -> dict[str, str]:
    machine = made["machine"]
    return {
        "Machine": f"{machine['processor']}, {machine['cores']} cores, {whole(machine['memory_gb'])} GB; "
        f"threads per run: {machine['threads']}, parallel runs: {machine['jobs']}",
        "Versions": f"regard {made['version']}, torch {machine['torch']}",
    }


def fact_list(facts: Mapping[str, str]) -> str:
    items = "".join(f'<dt>{name}</dt><dd dir="auto">{escape(text)}</dd>\n' for name, text in facts.items() if text)
    return f'<dl class="facts">\n{items}</dl>'


def _card(head: str, texts: Sequence[str]) -> str:
    body = "".join(f'<p dir="auto">{escape(text) or NONE}</p>' for text in texts)
    return f'<div class="card"><h4>{head}</h4>{body}</div>\n'


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def _value(model: Part, measure: Part) -> Any:
    value = model["values"].get(measure["key"])
    return value if value and value["mean"] is not None else None


def _cells(c: Part, measures: Sequence[Part], values: Part) -> dict[str, str]:
    """Return the mean, confidence interval and each seed of every measure."""
    cells = {}
    for measure in measures:
        value = values.get(measure["key"]) or {"each": [], "mean": None, "low": None, "high": None}
        digits = measure["digits"]
        cells[measure["title"]] = fixed(value["mean"], digits)
        cells[f"{measure['name']}, {INTERVAL}"] = interval(value, digits)
        if len(c["seeds"]) > 1:
            cells[f"{measure['name']}, each seed"] = " · ".join(fixed(each, digits) for each in value["each"]) or NONE
    return cells


def _up(measure: Part) -> charts.Chart:
    return charts.axis(f"{charts.plain(measure['title'])}, {measure['better']} is better")

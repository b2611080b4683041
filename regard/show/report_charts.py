"""The charts of a report, as Plotly figures and as markup with the table of each chart.

Colours are names in angle brackets (`<ink>`, `<model-0>`), which no escaped text can be; `report_page.html` replaces
them by the colours of the current theme.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from regard.show.markup import inert_json, numbers_behind, scroller
from regard.show.text import brief, short

Chart = dict[str, Any]  # {"name": label of its button, "data": traces, "layout": title, axes, height}
Trace = dict[str, Any]
Model = Mapping[str, Any]  # with its name and its index, which decides its colour and symbol

MODEL_COLOURS = 6  # in report_page.html; 7 symbols give 42 combinations
MODEL_SIGNS = {"circle": "●", "square": "■", "diamond": "◆", "triangle-up": "▲", "cross": "✚", "x": "✖", "star": "★"}
MODEL_DASHES = ("solid", "7px,4px", "2px,3px", "9px,3px,2px,3px", "13px,3px", "9px,3px,2px,3px,2px,3px", "4px,2px")
MANY = 10  # most points of a line that have markers
BEHIND = {"showlegend": False, "hoverinfo": "skip"}  # for traces behind a line, which have no name


def figure(charts: Sequence[Chart], table: str) -> str:
    """Return a figure with one chart, or several with buttons, above a table of the same numbers."""
    buttons = "".join(
        f'<button type="button" aria-pressed="{"false" if at else "true"}">{escape(chart["name"])}</button>'
        for at, chart in enumerate(charts)
        if len(charts) > 1
    )
    return (
        f"<figure><figcaption><span>{escape(charts[0]['layout']['title'])}</span>"
        f'<button type="button" class="save">Save SVG</button></figcaption><div class="choices">{buttons}</div>'
        f'{scroller("<div></div>", "chart")}<script type="application/json">{inert_json(charts)}</script>'
        f"{numbers_behind(table)}</figure>\n"
    )


def chart(name: str, title: str, data: Sequence[Trace], across: Chart, up: Chart, **more: Any) -> Chart:
    layout = {"title": brief(title, 120), "xaxis": across, "yaxis": up, **more}
    return {"name": brief(name, 32), "data": data, "layout": layout}


def axis(title: str, **more: Any) -> Chart:
    return {"title": {"text": title}, **more}


def log_axis(title: str, values: Sequence[float]) -> Chart:
    """Return a logarithmic axis between round numbers."""
    low, high = (math.floor(math.log10(value)) for value in (min(values), max(values)))
    steps, every = ((1, 2, 5), 1) if high - low < 3 else ((1,), -(-(high - low) // 8))
    ticks = [step * 10.0**power for power in range(low, high + every + 1, every) for step in steps]
    first = max(tick for tick in ticks if tick <= min(values))
    last = min(tick for tick in ticks if tick >= max(values) and tick > first)
    ends = [math.log10(first) - 0.02, math.log10(last) + 0.02]
    return axis(title, type="log", tickvals=ticks, ticktext=list(map(short, ticks)), range=ends)


def word_axis(title: str, words: Sequence[str], **more: Any) -> Chart:
    ticks = {"tickvals": [*range(len(words))], "ticktext": [plain(word, 16) for word in words]}
    return axis(title, **ticks, showgrid=False, **more)


def model_style(place: int) -> tuple[str, str, str]:
    """Return the symbol, colour and dash of a model in all charts."""
    symbol = list(MODEL_SIGNS)[place % len(MODEL_SIGNS)]
    return symbol, f"<model-{place % MODEL_COLOURS}>", MODEL_DASHES[place % len(MODEL_DASHES)]


def line(model: Model, x: Sequence[Any], y: Sequence[Any]) -> Trace:
    symbol, colour, dash = model_style(model["place"])
    drawn: Trace = {"x": x, "y": y, "name": plain(model["name"]), "legendgroup": model["place"]}
    drawn["mode"] = "lines+markers" if len(x) <= MANY else "lines"
    drawn["line"] = {"color": colour, "dash": dash, "width": 2.5}
    return drawn | {"marker": {"symbol": symbol, "color": colour, "size": 8}}


def thin_line(model: Model, x: Sequence[Any], y: Sequence[Any]) -> Trace:
    """Return the line of one seed, behind the mean."""
    colour = model_style(model["place"])[1]
    seed = {"x": x, "y": y, "mode": "lines", "line": {"color": colour, "width": 1}, "opacity": 0.5}
    return seed | {"legendgroup": model["place"], **BEHIND}


def band(model: Model, x: Sequence[Any], low: Sequence[float], high: Sequence[float]) -> Trace:
    around = {"x": [*x, *x[::-1]], "y": [*high, *low[::-1]], "mode": "lines", "line": {"width": 0}}
    filled = {"fill": "toself", "fillcolor": model_style(model["place"])[1], "opacity": 0.15}
    return around | filled | {"legendgroup": model["place"], **BEHIND}


def dots(model: Model, value: Chart) -> list[Trace]:
    """Return a mean with its confidence interval, and each seed as a small marker."""
    place = model["place"]
    symbol, colour, _ = model_style(place)
    mean, seeds = value["mean"], value["each"] if len(value["each"]) > 1 else []
    dot: Trace = {"x": [mean], "y": [place], "mode": "markers", "name": plain(model["name"])}
    dot["marker"] = {"symbol": symbol, "color": colour, "size": 13}
    if value["low"] is not None and value["high"] is not None:
        ends = {"array": [value["high"] - mean], "arrayminus": [mean - value["low"]]}
        dot["error_x"] = {"type": "data", "symmetric": False, **ends, "color": colour, "thickness": 2, "width": 7}
    each: Trace = {"x": seeds, "y": [place + 0.27] * len(seeds), "mode": "markers", "name": "a seed"}
    return [dot, each | {"marker": {"symbol": f"{symbol}-open", "color": colour, "size": 7}}]


def points(name: str, given: Sequence[tuple[Any, float, str]], place: int | None = None) -> Trace:
    """Return markers at (x, y), each with a text for the pointer; without a place they are small and quiet."""
    symbol, colour = ("circle-open", "<quiet>") if place is None else model_style(place)[:2]
    drawn: Trace = {
        "x": [x for x, _, _ in given],
        "y": [y for _, y, _ in given],
        "mode": "markers",
        "name": plain(name),
    }
    drawn |= {"text": [plain(text, 80) for _, _, text in given], "hovertemplate": "%{text}, %{y:.4~g}<extra></extra>"}
    return drawn | {"marker": {"symbol": symbol, "color": colour, "size": 8 if place is None else 12}}


def level_marks(name: str, given: Sequence[tuple[int, float]]) -> Trace:
    """Return a short horizontal line for each (category, y)."""
    x, y = [], []
    for at, height in given:
        x += [at - 0.25, at + 0.25, None]
        y += [height, height, None]
    drawn: Trace = {"x": x, "y": y, "mode": "lines", "name": plain(name), "connectgaps": False}
    return drawn | {
        "line": {"color": "<quiet>", "width": 2, "dash": "dot"},
        "hovertemplate": "%{y:.4~g}<extra></extra>",
    }


def heat(weights: Sequence[Sequence[float]], most: float) -> Trace:
    drawn: Trace = {"type": "heatmap", "z": [[round(weight, 3) for weight in row] for row in weights]}
    drawn |= {"zmin": 0, "zmax": most, "colorscale": "<scale>", "showscale": False, "xgap": 1, "ygap": 1, "name": ""}
    return drawn | {"hovertemplate": "%{y} → %{x}: %{z:.2f}"}


def plain(text: str, most: int = 32) -> str:
    """Return short text without what Plotly would read as markup or mathematics."""
    return escape(brief(text, most), quote=False).replace("$", "&#36;")

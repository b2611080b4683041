"""Line charts over categories or numbers as SVG pictures, readable on light and dark pages and without colour; and
pages of such charts, each one HTML file that opens offline, with a table for every chart and no script."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from itertools import groupby
from typing import Any, NamedTuple

from regard.show.markup import Rows, fill_template, html_grid, html_table, numbers_behind, policy_hash, quiet, scroller
from regard.show.text import scientific

LINE_COLOURS = ("#d1495b", "#2e86ab", "#3a9d5d", "#b5761f", "#7a5ea8", "#5b6770")
LINE_DASHES = ("", "7 4", "2 4", "10 3 2 3")
WIDE, HIGH = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 80, 190, 44, 62
CHART_STYLE = (
    "text{fill:#24292f;font:14px system-ui,sans-serif}.grid{stroke:#8884;stroke-width:1}"
    "@media(prefers-color-scheme:dark){text{fill:#d7dde3}}"
)


class Curve(NamedTuple):
    """A value per category or at 0, 1, 2 …, with the minimum and maximum if it is a mean."""

    name: str
    values: Sequence[float]
    colour: int = 0  # curves that belong together share a colour and differ in their dashes
    dash: int = 0
    least: Sequence[float] = ()
    most: Sequence[float] = ()
    mark: str = "o"  # its character in a text plot
    at: Sequence[float] = ()  # the position of each value on the x axis; if empty: 0, 1, 2 …


@dataclass(frozen=True, kw_only=True)
class LineChart:
    curves: Sequence[Curve]
    title: str
    across: str
    up: str
    categories: Sequence[str] = ()  # if empty: the numbers first, first + 1 …
    first: int = 0
    log: bool = False  # logarithmic scale; values of 0 or below are left out
    counted: str = ""  # name of the numbers on the x axis, in a table
    top: float | None = None  # end of a linear y axis; None: a round number above the largest value


Ticks = list[tuple[float, str]]  # position on the axis, and its label


def line_chart(chart: LineChart) -> str:
    curves, first = chart.curves, chart.first
    places = [curve.at or range(len(curve.values)) for curve in curves]
    last = max((place for each in places for place in each), default=0.0)
    rungs, y = _scale(chart)

    def x(place: float) -> float:
        return LEFT + place / max(last, 1) * (WIDE - LEFT - RIGHT)

    stride = tick_stride(int(last) + 1, 10)
    numbers = range(-(-first // stride) * stride, first + int(last) + 1, stride)
    names = dict(enumerate(chart.categories)) or {number - first: str(number) for number in numbers}
    parts = _frame(chart, rungs, [(x(place), name) for place, name in names.items()])
    heights = [[y(value) if _shown(value, chart.log) else None for value in curve.values] for curve in curves]
    ends = [next((height for height in reversed(each) if height), HIGH - BOTTOM) for each in heights]
    for curve, along, each, label in zip(curves, places, heights, _apart(ends), strict=True):
        parts += _line(curve, _pieces(list(zip(map(x, along), each, strict=True))), label)
        marked: Mapping[Any, str] = {place: f"{place:g}" for place in along} if curve.at else names
        for number, place in enumerate(along):
            if place in marked and each[number] is not None:
                parts.append(_mark(curve, number, marked[place], x(place), y))
    return "\n".join([*parts, "</svg>"]) + "\n"


def _frame(chart: LineChart, rungs: Ticks, marks: Ticks) -> list[str]:
    """Draw everything except the lines."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}" height="{HIGH}" '
        f'role="img" aria-label="{escape(chart.title)}">',
        f"<style>{CHART_STYLE}</style>",
        f'<text x="{LEFT}" y="22" font-weight="600">{escape(chart.title)}</text>',
        f'<text x="{(LEFT + WIDE - RIGHT) / 2:.0f}" y="{HIGH - 14}" text-anchor="middle">{escape(chart.across)}</text>',
        f'<text transform="translate(16 {(TOP + HIGH - BOTTOM) / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(chart.up)}</text>",
    ]
    for height, name in rungs:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{height + 5:.1f}" text-anchor="end">{escape(name)}</text>')
    for place, name in marks:
        parts.append(f'<text x="{place:.1f}" y="{HIGH - BOTTOM + 22}" text-anchor="middle">{escape(name)}</text>')
    return parts


def _line(curve: Curve, pieces: Sequence[Sequence[tuple[float, float]]], label: float) -> list[str]:
    """Draw a line, interrupted at gaps, and its name at the right."""
    dash = LINE_DASHES[curve.dash % len(LINE_DASHES)]
    drawn = f'stroke="{_colour(curve)}" stroke-width="2.5" stroke-dasharray="{dash}"/>'
    return [
        *(
            f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in piece)}" fill="none" {drawn}'
            for piece in pieces
        ),
        f'<line x1="{WIDE - RIGHT + 10}" x2="{WIDE - RIGHT + 34}" y1="{label:.1f}" y2="{label:.1f}" {drawn}',
        f'<text x="{WIDE - RIGHT + 40}" y="{label + 5:.1f}">{escape(curve.name)}</text>',
    ]


def _mark(curve: Curve, place: int, name: str, x: float, y: Callable[[float], float]) -> str:
    """Draw a circle with its value as a tooltip, and a bar from the minimum to the maximum."""
    value, colour, around, size, label = curve.values[place], _colour(curve), "", 3.0, f"{curve.values[place]:.3g}"
    if curve.most:
        least, most = curve.least[place], curve.most[place]
        size, label = 3.5, f"{value:.1f} ({least:.1f} to {most:.1f})"
        around = (
            f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{y(least):.1f}" y2="{y(most):.1f}" '
            f'stroke="{colour}" stroke-width="1.5"/>'
        )
    title = f"<title>{escape(f'{curve.name}, {name}: {label}')}</title>"
    return f'{around}<circle cx="{x:.1f}" cy="{y(value):.1f}" r="{size:g}" fill="{colour}">{title}</circle>'


def _colour(curve: Curve) -> str:
    return LINE_COLOURS[curve.colour % len(LINE_COLOURS)]


def _shown(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def _pieces(points: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """Yield stretches without a gap."""
    stretches = groupby(points, key=lambda point: point[1] is not None)
    return [[(x, y) for x, y in stretch if y is not None] for known, stretch in stretches if known]


def _scale(chart: LineChart) -> tuple[Ticks, Callable[[float], float]]:
    """Return the ticks of the y axis, powers of ten or five from 0 to a round number, and the height of a value."""
    values = [value for curve in chart.curves for value in (*curve.values, *curve.most) if _shown(value, chart.log)]
    if chart.log:
        steps = {10.0**power: power_of_ten(power) for power in decades(values)}
    else:
        top = round_up(max(values, default=1.0) if chart.top is None else chart.top)
        steps = {top * share / 4: f"{top * share / 4:g}" for share in range(5)}
    along = math.log10 if chart.log else float
    low, high = along(min(steps)), along(max(steps))

    def y(value: float) -> float:
        return HIGH - BOTTOM - (along(value) - low) / (high - low) * (HIGH - TOP - BOTTOM)

    return [(y(step), name) for step, name in steps.items()], y


def decades(values: Sequence[float]) -> range:
    """Return powers of ten, or every few of them, from below the smallest value to above the largest."""
    low = math.floor(math.log10(min(values, default=1.0)))
    high = max(low + 1, math.ceil(math.log10(max(values, default=1.0))))
    stride = -(-(high - low) // 8)
    return range(high - -(-(high - low) // stride) * stride, high + 1, stride)


def power_of_ten(exponent: int) -> str:
    """Return the label of a power of ten."""
    return f"1e{exponent}" if exponent else "1"


def round_up(value: float, figures: Sequence[int] = (1, 2, 4, 5, 8, 10)) -> float:
    """Return the smallest of these figures times a power of ten that is not below the value."""
    power_below = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(figure * power_below for figure in figures if figure * power_below >= value)


def tick_stride(count: int, most: int) -> int:
    """Return the step between the ticks of an axis with this many positions and about this many ticks."""
    return max(1, round(round_up((count - 1) / most, (1, 2, 5, 10))))


def _apart(heights: Sequence[float], least: float = 17.0) -> list[float]:
    """Move labels down if two would touch, and up again if the last would leave the picture."""
    placed = [0.0] * len(heights)
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    last = -math.inf
    for place in order:
        last = placed[place] = max(heights[place], last + least)
    last = HIGH - BOTTOM + least
    for place in reversed(order):
        last = placed[place] = min(placed[place], last - least)
    return placed


# --- a page of charts ---------------------------------------------------------------------------------------------


class Section(NamedTuple):
    """A section of a page; it is left out if it has no rows."""

    title: str
    about: str
    charts: Sequence[LineChart]
    rows: Rows  # the first two columns are text


def chart_page(sections: Sequence[Section], *, title: str, about: str, foot: str) -> str:
    return fill_template(
        "chart_page.html",
        chart_style=policy_hash(CHART_STYLE),
        title=escape(title),
        about=escape(about),
        sections="\n".join(_section(section) for section in sections if section.rows),
        foot=escape(foot),
    )


def _section(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>", quiet(section.about), *map(_figure, section.charts)]
    return "\n".join([*parts, html_table(section.rows, wordy=list(section.rows[0])[:2])])


def _figure(chart: LineChart) -> str:
    names = [chart.counted, *(curve.name for curve in chart.curves)]
    columns = zip(*(curve.values for curve in chart.curves), strict=True)
    rows = [[str(at), *map(scientific, values)] for at, values in enumerate(columns, start=chart.first)]
    return f"<figure>{scroller(line_chart(chart))}{numbers_behind(html_grid(names, rows))}</figure>"

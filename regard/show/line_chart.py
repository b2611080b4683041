"""chart: lines over categories or numbers as one SVG picture, readable on light and dark pages and without colour."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from html import escape
from typing import NamedTuple

COLOURS = ("#d1495b", "#2e86ab", "#3a9d5d", "#b5761f", "#7a5ea8", "#5b6770")
DASHES = ("", "7 4", "2 4", "10 3 2 3")
WIDE, HIGH = 760, 400
LEFT, RIGHT, TOP, BOTTOM = 64, 190, 44, 62
STYLE = (
    "text{fill:#24292f;font:14px system-ui,sans-serif}.grid{stroke:#8884;stroke-width:1}"
    "@media(prefers-color-scheme:dark){text{fill:#d7dde3}}"
)


class Line(NamedTuple):
    """A mean per category, and the least and the most that went into it."""

    name: str
    means: Sequence[float]
    least: Sequence[float]
    most: Sequence[float]
    colour: int = 0  # lines that belong together share a colour and differ in their dashes
    dash: int = 0


class Curve(NamedTuple):
    """A value at 0, 1, 2 …; on a logarithmic scale, what is not above 0 is left out."""

    name: str
    values: Sequence[float]
    colour: int = 0
    dash: int = 0


def line_chart(lines: Sequence[Line], *, categories: Sequence[str], title: str, across: str, up: str) -> str:
    """From 0 to a round number above the highest."""
    rungs, y = _shares([max(line.most) for line in lines])
    step = (WIDE - LEFT - RIGHT) / max(len(categories) - 1, 1)

    def x(place: int) -> float:
        return LEFT + place * step

    marks = [(x(place), category) for place, category in enumerate(categories)]
    parts = _frame(title, across, up, rungs=rungs, marks=marks)
    for line, label in zip(lines, _apart([y(line.means[-1]) for line in lines]), strict=True):
        colour, points = _colour(line), [(x(place), y(mean)) for place, mean in enumerate(line.means)]
        parts += _drawn(line, [points], label)
        for place, (mean, least, most) in enumerate(zip(line.means, line.least, line.most, strict=True)):
            parts.append(
                f'<line x1="{x(place):.1f}" x2="{x(place):.1f}" y1="{y(least):.1f}" y2="{y(most):.1f}" '
                f'stroke="{colour}" stroke-width="1.5"/>'
                f'<circle cx="{x(place):.1f}" cy="{y(mean):.1f}" r="3.5" fill="{colour}">'
                f"<title>{escape(f'{line.name}, {categories[place]}: {mean:.1f} ({least:.1f} to {most:.1f})')}</title>"
                "</circle>"
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


def curve_chart(
    curves: Sequence[Curve],
    *,
    title: str,
    across: str,
    up: str,
    first: int = 0,
    log: bool = False,
    top: float | None = None,
) -> str:
    """Over first, first + 1, …; from 0 to `top` or a round number above the highest, or between powers of ten."""
    count = max(len(curve.values) for curve in curves)
    values = [value for curve in curves for value in curve.values if _shown(value, log)]
    rungs, y = _decades(values) if log else _shares(values if top is None else [top])

    def x(place: int) -> float:
        return LEFT + place / max(count - 1, 1) * (WIDE - LEFT - RIGHT)

    stride = max(1, round(_round_up((count - 1) / 10)))
    last = first + count - 1
    numbers = [number for number in range(-(-first // stride) * stride, last + 1, stride)]
    parts = _frame(title, across, up, rungs=rungs, marks=[(x(number - first), str(number)) for number in numbers])
    ends = [next((y(v) for v in reversed(curve.values) if _shown(v, log)), HIGH - BOTTOM) for curve in curves]
    for curve, label in zip(curves, _apart(ends), strict=True):
        places = [(x(place), y(value) if _shown(value, log) else None) for place, value in enumerate(curve.values)]
        parts += _drawn(curve, _pieces(places), label)
        for number in numbers:
            if number - first < len(curve.values) and _shown(value := curve.values[number - first], log):
                parts.append(
                    f'<circle cx="{x(number - first):.1f}" cy="{y(value):.1f}" r="3" fill="{_colour(curve)}">'
                    f"<title>{escape(f'{curve.name}, {number}: {value:.3g}')}</title></circle>"
                )
    return "\n".join([*parts, "</svg>"]) + "\n"


Rungs = list[tuple[float, str]]  # lines across, each with what it stands for


def _frame(title: str, across: str, up: str, *, rungs: Rungs, marks: Rungs) -> list[str]:
    """All but the lines themselves."""
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}" height="{HIGH}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<text x="{LEFT}" y="22" font-weight="600">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDE - RIGHT) / 2:.0f}" y="{HIGH - 14}" text-anchor="middle">{escape(across)}</text>',
        f'<text transform="translate(18 {(TOP + HIGH - BOTTOM) / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(up)}</text>",
    ]
    for height, name in rungs:
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{height:.1f}" y2="{height:.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{height + 5:.1f}" text-anchor="end">{escape(name)}</text>')
    for place, name in marks:
        parts.append(f'<text x="{place:.1f}" y="{HIGH - BOTTOM + 22}" text-anchor="middle">{escape(name)}</text>')
    return parts


def _drawn(line: Line | Curve, pieces: Sequence[Sequence[tuple[float, float]]], label: float) -> list[str]:
    """A line in pieces, and its name at the right."""
    parts = [
        f'<polyline points="{" ".join(f"{x:.1f},{y:.1f}" for x, y in piece)}" fill="none" stroke="{_colour(line)}" '
        f'stroke-width="2.5" stroke-dasharray="{DASHES[line.dash % len(DASHES)]}"/>'
        for piece in pieces
    ]
    sample = (
        f'<line x1="{WIDE - RIGHT + 10}" x2="{WIDE - RIGHT + 34}" y1="{label:.1f}" y2="{label:.1f}" '
        f'stroke="{_colour(line)}" stroke-width="2.5" stroke-dasharray="{DASHES[line.dash % len(DASHES)]}"/>'
    )
    return [*parts, sample, f'<text x="{WIDE - RIGHT + 40}" y="{label + 5:.1f}">{escape(line.name)}</text>']


def _colour(line: Line | Curve) -> str:
    return COLOURS[line.colour % len(COLOURS)]


def _shown(value: float, log: bool) -> bool:
    return math.isfinite(value) and (value > 0 or not log)


def _pieces(places: Sequence[tuple[float, float | None]]) -> list[list[tuple[float, float]]]:
    """Stretches without a gap."""
    pieces: list[list[tuple[float, float]]] = [[]]
    for x, y in places:
        if y is not None:
            pieces[-1].append((x, y))
        elif pieces[-1]:
            pieces.append([])
    return [piece for piece in pieces if piece]


def _shares(values: Sequence[float]) -> tuple[Rungs, Callable[[float], float]]:
    """Five lines from 0 to a round number, and where a value stands."""
    top = _round_up(max(values, default=1.0))

    def y(value: float) -> float:
        return HIGH - BOTTOM - value / top * (HIGH - TOP - BOTTOM)

    return [(y(top * share / 4), f"{top * share / 4:g}") for share in range(5)], y


def _decades(values: Sequence[float]) -> tuple[Rungs, Callable[[float], float]]:
    """A line for every power of ten, or for every few, and where a value stands."""
    low = math.floor(math.log10(min(values, default=1.0)))
    high = max(low + 1, math.ceil(math.log10(max(values, default=1.0))))
    stride = -(-(high - low) // 8)
    low -= (low - high) % stride  # so that lines stand at both ends

    def y(value: float) -> float:
        return HIGH - BOTTOM - (math.log10(value) - low) / (high - low) * (HIGH - TOP - BOTTOM)

    return [(y(10.0**power), f"1e{power}" if power else "1") for power in range(low, high + 1, stride)], y


def _round_up(value: float) -> float:
    """The least of 1, 2, 4, 5, 8, 10 times a power of ten that is not below the value."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)


def _apart(heights: Sequence[float], least: float = 17.0) -> list[float]:
    """The same places, moved down where two labels would touch, and up again where the last would leave the picture."""
    placed = [0.0] * len(heights)
    order = sorted(range(len(heights)), key=lambda place: heights[place])
    last = -math.inf
    for place in order:
        last = placed[place] = max(heights[place], last + least)
    last = HIGH - BOTTOM + least
    for place in reversed(order):
        last = placed[place] = min(placed[place], last - least)
    return placed

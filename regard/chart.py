"""chart: lines over a row of categories as one SVG picture, readable on light and dark pages and without colour."""

from __future__ import annotations

import math
from collections.abc import Sequence
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


def line_chart(lines: Sequence[Line], *, categories: Sequence[str], title: str, across: str, up: str) -> str:
    """From 0 to a round number above the highest."""
    top = _round_up(max(max(line.most) for line in lines))
    step = (WIDE - LEFT - RIGHT) / max(len(categories) - 1, 1)

    def x(place: int) -> float:
        return LEFT + place * step

    def y(value: float) -> float:
        return HIGH - BOTTOM - value / top * (HIGH - TOP - BOTTOM)

    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDE} {HIGH}" width="{WIDE}" height="{HIGH}" '
        f'role="img" aria-label="{escape(title)}">',
        f"<style>{STYLE}</style>",
        f'<text x="{LEFT}" y="22" font-weight="600">{escape(title)}</text>',
        f'<text x="{(LEFT + WIDE - RIGHT) / 2:.0f}" y="{HIGH - 14}" text-anchor="middle">{escape(across)}</text>',
        f'<text transform="translate(18 {(TOP + HIGH - BOTTOM) / 2:.0f}) rotate(-90)" text-anchor="middle">'
        f"{escape(up)}</text>",
    ]
    for share in range(5):
        value = top * share / 4
        parts.append(f'<line class="grid" x1="{LEFT}" x2="{WIDE - RIGHT}" y1="{y(value):.1f}" y2="{y(value):.1f}"/>')
        parts.append(f'<text x="{LEFT - 8}" y="{y(value) + 5:.1f}" text-anchor="end">{value:g}</text>')
    for place, category in enumerate(categories):
        parts.append(
            f'<text x="{x(place):.1f}" y="{HIGH - BOTTOM + 22}" text-anchor="middle">{escape(category)}</text>'
        )
    for line, label in zip(lines, _apart([y(line.means[-1]) for line in lines]), strict=True):
        colour, dash = COLOURS[line.colour % len(COLOURS)], DASHES[line.dash % len(DASHES)]
        points = " ".join(f"{x(place):.1f},{y(mean):.1f}" for place, mean in enumerate(line.means))
        parts.append(
            f'<polyline points="{points}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-dasharray="{dash}"/>'
        )
        for place, (mean, least, most) in enumerate(zip(line.means, line.least, line.most, strict=True)):
            parts.append(
                f'<line x1="{x(place):.1f}" x2="{x(place):.1f}" y1="{y(least):.1f}" y2="{y(most):.1f}" '
                f'stroke="{colour}" stroke-width="1.5"/>'
                f'<circle cx="{x(place):.1f}" cy="{y(mean):.1f}" r="3.5" fill="{colour}">'
                f"<title>{escape(f'{line.name}, {categories[place]}: {mean:.1f} ({least:.1f} to {most:.1f})')}</title>"
                "</circle>"
            )
        parts.append(f'<text x="{WIDE - RIGHT + 12}" y="{label + 5:.1f}">{escape(line.name)}</text>')
    return "\n".join([*parts, "</svg>"]) + "\n"


def _round_up(value: float) -> float:
    """The least of 1, 2, 4, 5, 8, 10 times a power of ten that is not below the value."""
    power = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(step * power for step in (1, 2, 4, 5, 8, 10) if step * power >= value)


def _apart(heights: Sequence[float], least: float = 17.0) -> list[float]:
    """The same places, moved down where two labels would touch."""
    placed = [0.0] * len(heights)
    last = -math.inf
    for place in sorted(range(len(heights)), key=lambda place: heights[place]):
        last = placed[place] = max(heights[place], last + least)
    return placed

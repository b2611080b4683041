"""Curves, bars and tables in characters, for the terminal."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.cells import cell_len
from rich.text import Text

from regard.show.line_chart import Curve, decades, power_of_ten, tick_stride
from regard.show.markup import Rows

BARS = "▁▂▃▄▅▆▇█"
PLOT_COLOURS = ("bright_blue", "magenta", "green", "yellow", "cyan", "red")
PLOT_LINES = 16


def text_plot(curves: Sequence[Curve], *, width: int) -> Text:
    """Plot values at 0, 1, 2 … on a logarithmic scale; dashed curves are dim, and later ones cover earlier ones."""
    powers = decades([value for curve in curves for value in curve.values if 0 < value < math.inf])
    low, high = powers[0], powers[-1]
    count = max(len(curve.values) for curve in curves)
    left = max(map(len, map(power_of_ten, powers))) + 2
    room = max(10, width - left - 1)
    wide = min(room, (count - 1) * min(5, max(1, (room - 1) // max(1, count - 1))) + 1)
    cells: dict[tuple[int, int], tuple[str, str]] = {}  # mark and style, by line and column

    def line(value: float) -> int:
        return round((high - value) / (high - low) * PLOT_LINES)

    def column(place: int) -> int:
        return round(place / max(count - 1, 1) * (wide - 1))

    for curve in curves:
        style = "dim" if curve.dash else PLOT_COLOURS[curve.colour % len(PLOT_COLOURS)]
        for place, value in enumerate(curve.values):
            if 0 < value < math.inf:
                cells[line(math.log10(value)), column(place)] = (curve.mark, style)
    names = {line(power): power_of_ten(power) for power in powers}
    text = Text()
    for number in range(PLOT_LINES + 1):
        rung = f"{names[number]:>{left - 2}} ┤" if number in names else " " * (left - 1) + "│"
        row = (cells.get((number, place), (" ", "")) for place in range(wide))
        text.append_tokens([(rung, "dim"), *row, ("\n", "")])
    ruler = [" "] * wide
    for place in range(0, count, tick_stride(count, 5)):
        begin = min(column(place), wide - len(str(place)))
        ruler[begin : begin + len(str(place))] = str(place)
    text.append(f"{' ' * (left - 1)}└{'─' * wide}\n{' ' * left}{''.join(ruler).rstrip()}\n", style="dim")
    return text


def text_table(rows: Rows) -> Text:
    """Return a table whose columns are not cut."""
    text = Text()
    widths = {name: max(cell_len(name), *(cell_len(row[name]) for row in rows)) for name in rows[0]}
    for number, row in enumerate([{name: name for name in widths}, *rows]):
        cells = (row[name] + " " * (wide - cell_len(row[name])) for name, wide in widths.items())
        text.append("  ".join(cells).rstrip() + "\n", style="bold" if not number else "")
    return text


def bars(values: Sequence[float], width: int = 32) -> str:
    """Draw values from 0 to 1 as bars, averaging neighbours if there is no room for all."""
    count = min(width, len(values))
    cuts = [place * len(values) // count for place in range(count + 1)]
    means = [math.fsum(values[a:b]) / (b - a) for a, b in zip(cuts, cuts[1:], strict=False)]
    return "".join(BARS[min(len(BARS) - 1, int(mean * len(BARS)))] for mean in means)

"""plot: what is felt how far back, in the terminal: a logarithmic plot and the tables beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import NamedTuple

from rich.cells import cell_len
from rich.text import Text

from regard.look.gradients import Reach

DISTANCES = (1, 10, 50, 100)
BARS = "▁▂▃▄▅▆▇█"
STYLES = {"h": "bright_blue", "c": "magenta"}
HIGH = 16  # lines of a plot

Rows = list[dict[str, str]]


class Dots(NamedTuple):
    """One curve."""

    mark: str
    values: Sequence[float]
    style: str = ""


def log_plot(curves: Sequence[Dots], *, width: int) -> Text:
    """Values at 0, 1, 2 … on a logarithmic scale; later curves lie over earlier ones."""
    logs = [[math.log10(v) if 0 < v < math.inf else None for v in curve.values] for curve in curves]
    known = [value for curve in logs for value in curve if value is not None]
    low, high = math.floor(min(known, default=0)), math.ceil(max(known, default=0))
    high = max(high, low + 1)
    count = max(len(curve.values) for curve in curves)
    left = max(len(_power(power)) for power in (low, high)) + 2
    room = max(10, width - left - 1)
    wide = min(room, (count - 1) * min(5, max(1, (room - 1) // max(1, count - 1))) + 1)
    grid: list[list[tuple[str, str]]] = [[(" ", "")] * wide for _ in range(HIGH + 1)]

    def line(value: float) -> int:
        return round((high - value) / (high - low) * HIGH)

    def column(place: int) -> int:
        return round(place / max(count - 1, 1) * (wide - 1))

    for curve, values in zip(curves, logs, strict=True):
        for place, value in enumerate(values):
            if value is not None:
                grid[line(value)][column(place)] = (curve.mark, curve.style)
    stride = -(-(high - low) // 8)
    names = {line(power): _power(power) for power in range(high, low - 1, -stride)}
    text = Text()
    for number, cells in enumerate(grid):
        text.append(
            f"{names.get(number, ''):>{left - 2}} ┤" if number in names else " " * (left - 1) + "│", style="dim"
        )
        for mark, style in cells:
            text.append(mark, style=style)
        text.append("\n")
    ruler = [" "] * wide
    every = max(1, -(-(count - 1) // 5))
    every = next(step for step in (1, 2, 5, 10, 20, 25, 50, 100, 200, 500, 1000, every) if step >= every)
    for place in range(0, count, every):
        begin = min(column(place), wide - len(str(place)))
        ruler[begin : begin + len(str(place))] = str(place)
    text.append(f"{' ' * (left - 1)}└{'─' * wide}\n", style="dim")
    text.append(f"{' ' * left}{''.join(ruler).rstrip()}\n", style="dim")
    return text


def felt_plot(found: Reach, layer: str, *, width: int) -> Text:
    """Small letters before training, capitals after."""
    curves = [
        Dots(
            felt.state.upper() if when == "after" else felt.state,
            felt.norms,
            STYLES[felt.state] if when == "after" else "dim",
        )
        for felt, when, factor in found.lines(layer)
        if factor == 1
    ]
    return log_plot(curves, width=width)


def table(rows: Rows) -> Text:
    """Columns side by side, none of them cut."""
    text = Text()
    widths = {name: max(cell_len(name), *(cell_len(row[name]) for row in rows)) for name in rows[0]}
    for number, row in enumerate([{name: name for name in widths}, *rows]):
        cells = (row[name] + " " * (wide - cell_len(row[name])) for name, wide in widths.items())
        text.append("  ".join(cells).rstrip() + "\n", style="bold" if not number else "")
    return text


def felt_rows(found: Reach) -> Rows:
    distances = [distance for distance in DISTANCES if distance <= found.length]
    return [
        {
            "layer": layer,
            "felt in": line.name,
            **{
                f"at {distance}": number(line.felt.norms[distance]) if distance < len(line.felt.norms) else "–"
                for distance in distances
            },
            "slope": f"{line.felt.slope:+.3f}",
            "a step": f"×{math.exp(line.felt.slope):.3f}",
        }
        for layer in found.layers
        for line in found.lines(layer)
    ]


def spectrum_rows(found: Reach) -> Rows:
    both = zip(found.before.flow.spectra, found.after.flow.spectra, strict=True)
    return [
        {
            "layer": of.layer,
            "block": f"{of.block}, {when}",
            "largest": f"{of.largest:.3f}",
            "median": f"{of.median:.3f}",
            "smallest": f"{of.smallest:.3f}",
        }
        for pair in both
        for when, of in zip(("before", "after"), pair, strict=True)
    ]


def gate_rows(found: Reach) -> Rows:
    both = zip(found.before.flow.gates, found.after.flow.gates, strict=True)
    return [
        {
            "layer": after.layer,
            "gate": after.gate,
            "before": f"{before.mean:.3f}",
            "after": f"{after.mean:.3f}",
            "over time, after": bars(after.means),
        }
        for before, after in both
    ]


def said(found: Reach) -> str:
    """What was done, in sentences."""
    when = {"before training": found.before, "after": found.after}
    if found.clip:
        clipped = ", ".join(
            f"{name} a gradient of length {number(at.gradient)} would be "
            + (f"shortened to {at.factor:.3f} of it" if at.factor < 1 else "left as it is (factor 1)")
            for name, at in when.items()
        )
        clipping = f"train.clip = {found.clip:g}: {clipped}."
    else:
        clipping = "train.clip = 0: nothing is clipped."
    return (
        f"The loss of the last token only, in {found.rows} rows of validation text, felt up to {found.length} tokens "
        f"back: the mean length of its gradient. {clipping}"
    )


def bars(values: Sequence[float], width: int = 32) -> str:
    """Of values from 0 to 1, means of neighbours where there are more than fit."""
    count = min(width, len(values))
    cuts = [place * len(values) // count for place in range(count + 1)]
    means = [math.fsum(values[a:b]) / (b - a) for a, b in zip(cuts, cuts[1:], strict=False)]
    return "".join(BARS[min(len(BARS) - 1, int(mean * len(BARS)))] for mean in means)


def number(value: float) -> str:
    return f"{value:.2e}" if value and not 1e-2 <= abs(value) < 1e3 else f"{value:.3g}"


def _power(power: int) -> str:
    return f"1e{power}" if power else "1"

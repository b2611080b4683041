"""Heat maps in the terminal, readable with and without colour, and as SVG pictures; gates next to their tokens."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from regard.show.attention_page import Sentence, notebook_frame
from regard.show.colours import LEGEND, paper_colour, shade, terminal_colour
from regard.show.text import visible


@dataclass(frozen=True)
class HeatMap:
    """The weight of each column for each row. Rows sum to 1."""

    rows: tuple[str, ...]  # output words (queries)
    columns: tuple[str, ...]  # input words (keys)
    weights: NDArray[np.floating]  # (rows, columns)
    kind: str  # "attention", for example
    near: Callable[[], Sentence] | None = field(default=None, repr=False, compare=False)  # every layer and head

    def __str__(self) -> str:
        return self.text(100).plain

    def text(self, width: int) -> Text:
        """Return the map for a terminal; headers are vertical if the words do not fit side by side."""
        names = max(map(cell_len, self.rows), default=0)
        widths = [max(2, cell_len(word)) for word in self.columns]
        headers = [" ".join(map(set_cell_size, self.columns, widths))]
        if names + sum(widths) + len(widths) > width:
            widths, tall = [2] * len(widths), max(map(len, self.columns))
            upright = [word.rjust(tall) for word in self.columns]
            headers = [" ".join(set_cell_size(word[line], 2) for word in upright) for line in range(tall)]
        text = Text()
        for header in headers:
            text.append(f"{' ' * names} {header}".rstrip() + "\n", style="bold")
        for word, weights in zip(self.rows, self.weights.tolist(), strict=True):
            text.append(f"{' ' * (names - cell_len(word))}{word} ", style="bold")
            for size, weight in zip(widths, weights, strict=True):
                mark = shade(weight)
                text.append((mark.center(size) if mark == "·" else mark * size) + " ", style=_style(weight))
            text.append("\n")
        text.append(f"{self.kind}: {LEGEND}", style="dim")
        return text

    def svg(self) -> str:
        """Return an SVG picture for a page or a paper."""
        size, font = 34, 15
        left = 24 + round(0.62 * font * max(len(word) for word in (*self.rows, "")))
        top = 24 + round(0.5 * font * max(len(word) for word in self.columns))
        slant = round(0.42 * font * len(self.columns[-1]))
        wide, high = left + size * len(self.columns) + slant + 24, top + size * len(self.rows) + 44
        parts = svg_begin(wide, high, font)
        for column, word in enumerate(self.columns):
            x = left + column * size + size // 2
            parts.append(f'<text transform="translate({x},{top - 8}) rotate(-40)" fill="#222">{svg_text(word)}</text>')
        for row, (word, weights) in enumerate(zip(self.rows, self.weights.tolist(), strict=True)):
            y = top + row * size
            middle = y + size // 2 + font // 3
            parts.append(f'<text x="{left - 8}" y="{middle}" text-anchor="end" fill="#222">{svg_text(word)}</text>')
            for column, weight in enumerate(weights):
                fill = "#{:02x}{:02x}{:02x}".format(*paper_colour(weight))
                label = f"{word} attends to {self.columns[column]}: {weight:.2f}"
                place = f'x="{left + column * size}" y="{y}" width="{size - 2}" height="{size - 2}"'
                parts.append(f'<rect {place} rx="3" fill="{fill}"><title>{svg_text(label)}</title></rect>')
        caption = svg_text(f"{self.kind}; darker is more")
        parts.append(f'<text x="{left}" y="{high - 16}" fill="#666" font-size="12">{caption}</text></svg>')
        return "\n".join(parts) + "\n"

    def facts(self, digits: int = 6) -> dict[str, Any]:
        """Return the map for JSON."""
        weights = self.weights.round(digits).tolist()
        return {"source": self.columns, "target": self.rows, "kind": self.kind, "weights": weights}

    def _repr_html_(self) -> str | None:
        """Return the map for a notebook."""
        return notebook_frame(self.near()) if self.near else None


def gate_map(title: str, tokens: Sequence[str], columns: Mapping[str, NDArray[np.floating]]) -> Text:
    """Return a table with one token per row and each value as a shade and in digits; a column with values above 1 is
    shaded relative to its largest."""
    full = [max(1.0, *values) for values in columns.values()]
    tokens = [visible(token) for token in tokens]
    names = max(map(cell_len, tokens))
    widths = [max(7, cell_len(name)) for name in columns]
    text = Text(f"{title}\n", style="bold")
    text.append(f"{' ' * names}  {'  '.join(map(set_cell_size, columns, widths))}".rstrip() + "\n", style="bold")
    for token, row in zip(tokens, zip(*columns.values(), strict=True), strict=True):
        text.append(f"{' ' * (names - cell_len(token))}{token}", style="bold")
        for value, most, size in zip(row, full, widths, strict=True):
            text.append("  " + shade(value / most) * 2, style=_style(value / most))
            text.append(f" {value:.2f}".ljust(size - 2))
        text.append("\n")
    return text


def svg_begin(wide: int, high: int, font: int) -> list[str]:
    """Start an SVG picture on white."""
    return [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {wide} {high}" width="{wide}" height="{high}" '
        f'font-family="system-ui, sans-serif" font-size="{font}">',
        f'<rect width="{wide}" height="{high}" fill="#ffffff"/>',
    ]


def svg_text(text: str) -> str:
    """Escape text for XML, without control characters."""
    return escape("".join(character if character.isprintable() else "\ufffd" for character in text))


def _style(weight: float) -> str:
    return "dim" if shade(weight) == "·" else "rgb({},{},{})".format(*terminal_colour(weight))

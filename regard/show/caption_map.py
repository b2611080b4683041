"""Where each word of a caption looked: its weights over the places of a picture, in the terminal and as SVG.

A picture is uint8, (height, width) if grey or (height, width, 3); weights are (words, rows, columns). As under a
spotlight, the picture is as it is at each word's largest weight and dark where there is none, so that its own colours
are seen. As SVG the light is smooth, or falls on cells.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.cells import cell_len, set_cell_size
from rich.text import Text

from regard.show.caption_page import Captioned, caption_frame
from regard.show.colours import LEGEND
from regard.show.heat_map import svg_begin, svg_text
from regard.show.picture_map import DARK, DARKEST, Pixels, map_facts, shadow, shares_of, svg_image, tinted
from regard.show.text import visible

GAP = 2  # characters between two maps
SIDE, MARGIN, NAMES = 132, 12, 24  # of a map in an SVG, in pixels


@dataclass(frozen=True)
class CaptionMap:
    """The weight of each place of a picture for each word of its caption."""

    pixels: Pixels
    words: tuple[str, ...]
    weights: NDArray[np.floating]  # (words, rows, columns)
    kind: str  # "attention", for example
    near: Callable[[], Captioned] | None = field(default=None, repr=False, compare=False)  # every layer and head

    def __post_init__(self) -> None:
        if self.weights.ndim != 3 or len(self.weights) != len(self.words) or not self.weights.size:
            raise ValueError(f"weights are {self.weights.shape}, but must be (words, rows, columns).")

    def __str__(self) -> str:
        return self.text(100).plain

    @property
    def shares(self) -> NDArray[np.floating]:
        """Return each weight as a share of its word's largest."""
        return shares_of(self.weights)

    def text(self, width: int) -> Text:
        """Return the maps for a terminal, as many side by side as fit, each below its word."""
        _, rows, columns = self.weights.shape
        wide = max(1, min(2, (width - GAP) // columns))
        across = max(wide * columns, *(cell_len(word) for word in self.words)) if wide * columns < 8 else wide * columns
        together = max(1, (width + GAP) // (across + GAP))
        maps = [tinted(self.pixels, shares, 1, wide) for shares in self.shares]
        text = Text()
        for first in range(0, len(self.words), together):
            some = range(first, min(first + together, len(self.words)))
            names = (set_cell_size(visible(self.words[place]), across) for place in some)
            text.append((" " * GAP).join(names).rstrip() + "\n", style="bold")
            for line in range(rows):
                for place in some:
                    text.append(maps[place][line])
                    text.append(" " * (across - wide * columns + GAP) if place != some[-1] else "\n")
            text.append("\n")
        text.append(f"{self.kind}, of each word's largest weight: {LEGEND}", style="dim")
        return text

    def _repr_html_(self) -> str:  # in a notebook
        return caption_frame(self.near()) if self.near else self.svg()

    def svg(self, *, smooth: bool = True, across: int = 6) -> str:
        """Return the picture once, and once for each word with its weights over it."""
        side_high = round(SIDE * self.pixels.shape[0] / self.pixels.shape[1])
        lines = -(-(len(self.words) + 1) // across)
        step_x, step_y = SIDE + MARGIN, side_high + NAMES + MARGIN
        wide = MARGIN + step_x * min(across, len(self.words) + 1)
        parts = [*svg_begin(wide, MARGIN + step_y * lines + NAMES, 13)]
        for place, word in enumerate(("", *self.words)):
            x, y = MARGIN + step_x * (place % across), MARGIN + step_y * (place // across)
            over = self._overlay(place - 1, side_high, smooth) if place else ""
            name = f'<text x="0" y="{side_high + 17}">{svg_text(visible(word)) if place else ""}</text>'
            parts.append(f'<g transform="translate({x} {y})">{svg_image(self.pixels, SIDE, side_high)}{over}{name}</g>')
        note = svg_text(f"{self.kind}; bright at each word's largest weight")
        parts.append(f'<text x="{MARGIN}" y="{MARGIN + step_y * lines + 10}" fill="#444">{note}</text></svg>')
        return "\n".join(parts) + "\n"

    def _overlay(self, word: int, high: int, smooth: bool) -> str:
        shares = self.shares[word]
        if smooth:
            return svg_image(shadow(shares), SIDE, high, smooth=True)
        down, across = high / shares.shape[0], SIDE / shares.shape[1]
        cells = (
            f'<rect x="{column * across:.2f}" y="{row * down:.2f}" width="{across:.2f}" height="{down:.2f}" '
            f'fill-opacity="{DARKEST * (1 - share):.3f}"/>'
            for (row, column), share in np.ndenumerate(shares)
        )
        return '<g fill="#{:02x}{:02x}{:02x}">'.format(*DARK) + "".join(cells) + "</g>"

    def facts(self, digits: int = 6) -> dict[str, Any]:
        """Return the map for JSON: a row for each word, whose columns are the places, row by row."""
        return map_facts(self.words, self.kind, self.weights.round(digits))

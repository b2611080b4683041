"""Heat maps over a picture: the weight of each patch of a grid, in the terminal and as SVG.

A picture is uint8, (height, width) if grey or (height, width, 3) if it has colours. Weights are (rows, columns), one
for each patch from the top left; the largest of them has full colour.
"""

from __future__ import annotations

import struct
import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.text import Text

from regard.show.colours import LEGEND, Colour, blend, shade
from regard.show.heat_map import svg_begin, svg_text

Pixels = NDArray[np.uint8]
ACCENT: Colour = (255, 90, 0)  # the colour of weights
STRENGTH = 0.7  # opacity of the accent at the largest weight
DARK: Colour = (16, 18, 22)  # a spotlight leaves the rest of the picture so
DARKEST = 0.75  # its opacity
TALLEST = 32  # most lines in a terminal


@dataclass(frozen=True)
class PictureMap:
    """The weight of each patch for a prediction."""

    pixels: Pixels
    weights: NDArray[np.floating]  # (rows, columns) of patches
    answer: str
    kind: str  # "attention", for example

    def __post_init__(self) -> None:
        pixels, weights = self.pixels, self.weights
        if pixels.dtype != np.uint8 or pixels.shape[2:] not in ((), (3,)) or pixels.ndim < 2 or not pixels.size:
            raise ValueError(f"pixels are {pixels.dtype} {pixels.shape}, but must be uint8 (height, width) or (…, 3).")
        if weights.ndim != 2 or not weights.size or not bool(np.all(np.isfinite(weights) & (weights >= 0))):
            raise ValueError(f"weights are {weights.shape}, but must be (rows, columns), finite and not negative.")

    def __str__(self) -> str:
        return self.text(80).plain

    @property
    def shares(self) -> NDArray[np.floating]:
        """Return each weight as a share of the largest."""
        return self.weights / (self.weights.max() or 1.0)

    def text(self, width: int) -> Text:
        """Return the map for a terminal: each patch is a block of its shade, which is readable without colour; with
        colour, the shade tints the picture behind it."""
        rows, columns = self.weights.shape
        shape = (self.pixels.shape[1] / columns) / (self.pixels.shape[0] / rows)  # width of a patch over its height
        # lines of a patch; a character is half as wide as it is high
        lines = max(1, min(TALLEST // rows, int(width / columns / shape / 2)))
        wide = max(1, min(int(2 * lines * shape), width // columns))
        text = Text()
        for line in tinted(self.pixels, self.shares, lines, wide):
            text.append(line).append("\n")
        most = f"of the largest weight ({self.weights.max():.3g})"
        text.append(f"{self.answer}: {self.kind}, {most}: {LEGEND}", style="dim")
        return text

    def _repr_html_(self) -> str:  # in a notebook
        return self.svg()

    def svg(self, size: int = 448) -> str:
        """Return the picture, `size` wide, with an overlay on each patch whose opacity is its weight."""
        rows, columns = self.weights.shape
        high = round(size * self.pixels.shape[0] / self.pixels.shape[1])
        down, across = high / rows, size / columns
        parts = [
            *svg_begin(size, high + 28, 12),
            svg_image(self.pixels, size, high),
            '<g fill="#{:02x}{:02x}{:02x}">'.format(*ACCENT),
        ]
        for (row, column), share in np.ndenumerate(self.shares):
            label = f"row {row + 1}, column {column + 1}: {self.weights[row, column]:.3g}"
            parts.append(
                f'<rect x="{column * across:.2f}" y="{row * down:.2f}" width="{across:.2f}" height="{down:.2f}" '
                f'fill-opacity="{STRENGTH * share:.3f}"><title>{label}</title></rect>'
            )
        caption = svg_text(f"{self.answer}: {self.kind}; full colour at {self.weights.max():.3g}")
        return "\n".join([*parts, f'</g><text x="4" y="{high + 19}" fill="#444">{caption}</text></svg>']) + "\n"

    def facts(self, digits: int = 6) -> dict[str, Any]:
        """Return the map for JSON: one row, whose columns are the patches."""
        return map_facts([self.answer], self.kind, self.weights[None].round(digits))


def map_facts(words: Sequence[str], kind: str, weights: NDArray[np.floating]) -> dict[str, Any]:
    """Return weights (words, rows, columns) for JSON: a row for each word, whose columns are the places, row by row."""
    places = [f"{row + 1},{column + 1}" for row, column in np.ndindex(*weights.shape[1:])]
    flat = weights.reshape(len(words), -1).tolist()
    return {
        "source": places,
        "target": list(words),
        "kind": kind,
        "grid": list(weights.shape[1:]),
        "weights": flat,
    }


def shares_of(weights: NDArray[np.floating]) -> NDArray[np.floating]:
    """Return weights (words, rows, columns) as shares of each word's largest."""
    most = weights.max((1, 2), keepdims=True)
    shares: NDArray[np.floating] = weights / np.where(most > 0, most, 1.0)
    return shares


def shadow(shares: NDArray[np.floating]) -> Pixels:
    """Return what a spotlight leaves dark, (rows, columns, 4): opaque where the share is 0, clear where it is 1."""
    opacity = np.rint(255 * DARKEST * (1 - shares)).astype(np.uint8)
    colour = np.broadcast_to(np.array(DARK, np.uint8), (*shares.shape, 3))
    return np.concatenate([colour, opacity[..., None]], -1)


def tinted(pixels: Pixels, shares: NDArray[np.floating], lines: int, wide: int) -> list[Text]:
    """Return the lines of a map for a terminal; a patch is `lines` high and `wide` characters wide."""
    rows, columns = shares.shape
    drawn = []
    repeated = shares.repeat(lines, 0).repeat(wide, 1).tolist()
    for colours, line in zip(_resized(pixels, rows * lines, columns * wide).tolist(), repeated, strict=True):
        text = Text()
        for colour, share in zip(colours, line, strict=True):
            front = blend(colour, ACCENT, STRENGTH * share)
            text.append(shade(share), style="rgb({},{},{}) on rgb({},{},{})".format(*front, *colour))
        drawn.append(text)
    return drawn


def svg_image(pixels: Pixels, wide: float, high: float, *, smooth: bool = False) -> str:
    """Return a picture as an element of an SVG."""
    style = "" if smooth else ' style="image-rendering: pixelated"'
    return (
        f'<image width="{wide}" height="{high}" preserveAspectRatio="none"{style} '
        f'href="{png_address(png_text(pixels))}"/>'
    )


def png_text(pixels: Pixels) -> str:
    """Return a PNG file in base64, for JSON."""
    return b64encode(png(pixels)).decode()


def png_address(text: str) -> str:
    return f"data:image/png;base64,{text}"


def png(pixels: Pixels) -> bytes:
    """Encode a PNG file: 8 bits, grey, RGB or RGB with opacity, no filter (ISO/IEC 15948)."""
    high, wide = pixels.shape[:2]
    kind = {(): 0, (3,): 2, (4,): 6}[pixels.shape[2:]]
    header = struct.pack(">IIBBBBB", wide, high, 8, kind, 0, 0, 0)
    lines = np.hstack([np.zeros((high, 1), np.uint8), pixels.reshape(high, -1)])  # filter 0 before each line
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(lines.tobytes())), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data)) for name, data in chunks
    )


def _resized(pixels: Pixels, high: int, wide: int) -> Pixels:
    """Resize to (high, wide, 3): the mean of the pixels under each cell, or the nearest pixel if cells are smaller."""
    colours = np.broadcast_to(pixels if pixels.ndim == 3 else pixels[..., None], (*pixels.shape[:2], 3)).astype(float)
    for axis, count in ((0, high), (1, wide)):
        edges = np.arange(count + 1) * pixels.shape[axis] // count
        sums = np.add.reduceat(colours, edges[:-1], axis)
        colours = sums / np.expand_dims(np.maximum(1, np.diff(edges)), (1 - axis, 2))
    cells: Pixels = np.rint(colours).astype(np.uint8)
    return cells

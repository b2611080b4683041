"""The colours and marks of weights from 0 to 1: on pages, in SVG pictures and in the terminal.

The scales of the pages lie on a straight line through OKLab (Ottosson 2020), so that equal steps of weight are equal
perceived steps.
"""

from __future__ import annotations

import numpy as np

SHADES = ((0.75, "█"), (0.45, "▓"), (0.2, "▒"), (0.05, "░"), (0.0, "·"))
LEGEND = "· under 5 %   ░ 5 %   ▒ 20 %   ▓ 45 %   █ 75 % and more"
SCALES = {"light": ("#eff3f9", "#08298a"), "dark": ("#20262f", "#b5dcff")}  # the colours of weight 0 and weight 1
RGB_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
CONES_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)
Colour = tuple[int, int, int]  # red, green, blue, 0 to 255 each


def shade(weight: float) -> str:
    """Return the character that shows a weight without colour."""
    return next(mark for least, mark in SHADES if weight >= least)


def blend(low: Colour, high: Colour, share: float) -> Colour:
    red, green, blue = (round(a + (b - a) * share) for a, b in zip(low, high, strict=True))
    return red, green, blue


def paper_colour(weight: float) -> Colour:
    """Return a colour between near-white and deep blue, for SVG pictures."""
    return blend((236, 242, 250), (8, 64, 129), min(1.0, weight) ** 0.8)


def terminal_colour(weight: float) -> Colour:
    """Return a blue that is visible on black and on white."""
    return blend((110, 150, 200), (40, 130, 255), weight)


def colour_scale(none: str, full: str) -> list[list[int]]:
    """Return the colours of the bytes 0 … 255, from one hex colour to the other along a line through OKLab."""
    gamma = np.array([[int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)] for colour in (none, full)])
    linear = np.where(gamma <= 0.04045, gamma / 12.92, ((gamma + 0.055) / 1.055) ** 2.4)
    ends = np.cbrt(linear @ RGB_TO_CONES.T) @ CONES_TO_LAB.T  # (2, 3)
    line = ends[0] + np.linspace(0, 1, 256)[:, None] * (ends[1] - ends[0])  # (256, 3)
    cones = (line @ np.linalg.inv(CONES_TO_LAB).T) ** 3
    linear = np.clip(cones @ np.linalg.inv(RGB_TO_CONES).T, 0, 1)
    gamma = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return [[round(255 * value) for value in colour] for colour in gamma.tolist()]


def theme_scales() -> dict[str, list[list[int]]]:
    """Return the scale of each theme, as `AttentionMap` takes them."""
    return {theme: colour_scale(*ends) for theme, ends in SCALES.items()}

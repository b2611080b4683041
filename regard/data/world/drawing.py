"""Drawing for the scenes: things with a shape, a colour, a size and a texture, on a busy background.

Coordinates run from 0 to 1, x to the right and y downwards. Edges are anti-aliased by supersampling: a pixel is the
mean of 4 × 4 points. All noise comes from the raw bits of PCG64, a stream that NumPy keeps the same in every version.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cache
from math import cos, floor, pi, prod, radians, sin, sqrt
from typing import Any, Literal

import numpy as np
from numpy.random import PCG64
from numpy.typing import NDArray

Shape = Literal["circle", "square", "triangle", "star", "cross", "ring"]
Colour = Literal["red", "green", "blue", "yellow", "purple", "white"]
Size = Literal["small", "large"]
Texture = Literal["plain", "striped", "dotted"]
Floats = NDArray[np.float32]
Mask = NDArray[np.bool_]

SIDE = 48  # pixels
SAMPLES = 4  # points per pixel and axis
COLOURS: dict[Colour, tuple[int, int, int]] = {
    "red": (220, 35, 35),
    "green": (30, 165, 60),
    "blue": (40, 75, 225),
    "yellow": (245, 210, 30),
    "purple": (155, 35, 190),
    "white": (245, 245, 245),
}
HOLE, RIM = 0.7, 1.1  # of the ring; there is room for a small thing in a large one
RADII: dict[Size, tuple[float, float]] = {"small": (0.094, 0.106), "large": (0.172, 0.2)}
REACH: dict[Shape, float] = {
    "circle": 0.95,
    "square": 1.25,
    "triangle": 1.26,
    "star": 1.25,
    "cross": 1.06,
    "ring": RIM,
}
NOTCH = 0.56  # inner radius of the star
PERIODS: dict[Size, float] = {"small": 0.7, "large": 0.5}  # of stripes and dots, as a share of the radius
SHADE = 0.4  # how bright stripes and dots are, compared with the thing
DARKEST = 48  # level of the background
STROKES = 10  # in the background
COARSE = 7  # points a side of the coarse noise
GRAIN = 22  # range of the fine noise, which lies over the things, too


@dataclass(frozen=True)
class Thing:
    """One thing of a scene: what a caption says of it, then where and how it is drawn."""

    shape: Shape
    colour: Colour
    size: Size
    texture: Texture
    x: float  # centre
    y: float
    radius: float
    tilt: float = 0.0  # degrees
    light: float = 1.0  # factor of its brightness

    @property
    def reach(self) -> float:
        """Radius of a circle around the centre that holds all of it."""
        return self.radius * REACH[self.shape]


def _circle(u: Floats, v: Floats) -> Mask:
    return u * u + v * v < 0.95**2


def _square(u: Floats, v: Floats) -> Mask:
    return np.maximum(abs(u), abs(v)) < 0.88


def _triangle(u: Floats, v: Floats) -> Mask:
    return (v < 0.78) & (abs(u) < 0.576 * (v + 0.92))


def _star(u: Floats, v: Floats) -> Mask:
    """Five points, folded twice at the axis between two of them onto the upright one."""
    across, down = cos(pi / 5), sin(pi / 5)
    for _ in range(2):
        u = abs(u)
        beyond: Floats = 2 * np.maximum(across * u + down * v, np.float32(0))
        u, v = u - across * beyond, v - down * beyond
    slope = (1.25 - NOTCH * across) / (NOTCH * down)
    return v + 1.25 > slope * abs(u)


def _cross(u: Floats, v: Floats) -> Mask:
    u, v = abs(u), abs(v)
    return (np.minimum(u, v) < 0.36) & (np.maximum(u, v) < 1)


def _ring(u: Floats, v: Floats, least: float = HOLE, most: float = RIM) -> Mask:
    square = u * u + v * v
    return (square < most**2) & (square > least**2)


INSIDE: dict[Shape, Callable[[Floats, Floats], Mask]] = {
    "circle": _circle,
    "square": _square,
    "triangle": _triangle,
    "star": _star,
    "cross": _cross,
    "ring": _ring,
}


def draw(things: Sequence[Thing], seed: int, side: int = SIDE) -> NDArray[np.uint8]:
    """(side, side, 3): the things on the background of this seed; without things, the background alone."""
    check(side)
    bits = PCG64(seed)
    picture = _background(bits, side)  # (3, side, side)
    for thing in sorted(things, key=lambda thing: -thing.radius):  # what is inside comes after what it is in
        (rows, columns), solid, pattern = _cover(thing, side)
        patch = picture[:, rows, columns]
        patch *= 1 - solid
        patch += _colours()[thing.colour] * (thing.light * (solid - (1 - SHADE) * pattern))
    raw: Any = bits.random_raw(picture.size // 8)
    picture += raw.astype("<u8").view(np.uint8).astype(np.float32).reshape(picture.shape) * (GRAIN / 255)
    return np.ascontiguousarray(np.clip(picture, 0, 255).astype(np.uint8).transpose(1, 2, 0))


def masks(things: Sequence[Thing], side: int = SIDE) -> list[Mask]:
    """(side, side) per thing: where it is seen, so without the thing inside it or the hole of a ring."""
    check(side)
    layers = np.zeros((len(things), side, side), np.bool_)
    for index in sorted(range(len(things)), key=lambda index: -things[index].radius):
        place, solid, _ = _cover(things[index], side)
        layers[(slice(None), *place)] &= solid < 0.5
        layers[(index, *place)] |= solid >= 0.5
    return list(layers)


def coverage(mask: Mask, rows: int, columns: int) -> Floats:
    """(rows, columns): which share of each cell of a grid over the picture is inside the region."""
    height, width = mask.shape
    pixels = _cells(rows, height) @ mask.astype(np.float32) @ _cells(columns, width).T
    return pixels * (rows * columns / mask.size)


def check(side: int) -> None:
    if side < 8 or side % 8:
        raise ValueError(f"a picture of {side} pixels a side cannot be drawn: choose a multiple of 8, such as {SIDE}")


def _cover(thing: Thing, side: int) -> tuple[tuple[slice, slice], Floats, Floats]:
    """Rows and columns of a box around the thing; how much of each pixel there is thing, and how much its pattern."""
    (top, bottom), (left, right) = (
        (max(0, floor((centre - thing.reach) * side)), min(side, floor((centre + thing.reach) * side) + 1))
        for centre in (thing.y, thing.x)
    )
    points = _points(side)
    down = (points[:, None, top:bottom, None] - thing.y) / thing.radius
    across = (points[None, :, None, left:right] - thing.x) / thing.radius
    turn, lean = cos(radians(thing.tilt)), sin(radians(thing.tilt))
    u, v = turn * across + lean * down, turn * down - lean * across  # (samples, samples, rows, columns)
    inside = INSIDE[thing.shape](u, v)
    solid = _mean(inside)
    place = slice(top, bottom), slice(left, right)
    if thing.texture == "plain":
        return place, solid, np.zeros_like(solid)
    marks = _beads if (thing.shape, thing.texture) == ("ring", "dotted") else PATTERNS[thing.texture]
    return place, solid, _mean(_inner(thing.shape, u, v) & marks(u, v, PERIODS[thing.size]))


def _inner(shape: Shape, u: Floats, v: Floats) -> Mask:
    """What stripes and dots fill: all but an outline, so that the shape remains."""
    return _ring(u, v, HOLE + 0.04, RIM - 0.07) if shape == "ring" else INSIDE[shape](1.2 * u, 1.2 * v)


def _stripes(u: Floats, v: Floats, period: float) -> Mask:
    along = (u + v) * (sqrt(0.5) / period) + 0.25
    dark: Mask = along - np.floor(along) < 0.5
    return dark


def _beads(u: Floats, v: Floats, period: float) -> Mask:
    """Dots along a ring."""
    middle = (RIM + HOLE) / 2
    count = round(2 * pi * middle / period)
    angle = np.arctan2(v, u) * (count / (2 * pi))
    along = (angle - np.rint(angle)) * (2 * pi * middle / count)
    beyond = np.sqrt(u * u + v * v) - middle
    return along * along + beyond * beyond < (0.36 * (RIM - HOLE)) ** 2


def _dots(u: Floats, v: Floats, period: float) -> Mask:
    u, v = u / period, v / period
    u, v = u - np.rint(u), v - np.rint(v)
    return u * u + v * v < 0.33**2


PATTERNS: dict[Texture, Callable[[Floats, Floats, float], Mask]] = {"striped": _stripes, "dotted": _dots}


def _mean(inside: Mask) -> Floats:
    """(rows, columns): the share of each pixel's points."""
    counts = inside.reshape(-1, *inside.shape[2:]).sum(0, dtype=np.uint8)
    shares: Floats = counts.astype(np.float32) / SAMPLES**2
    return shares


def _background(bits: PCG64, side: int) -> Floats:
    """(3, side, side): a gradient between muted colours, coarse noise, and clutter: soft, faint strokes.

    A stroke is exp(-u² - v²), u along and v across it; both are sums of 1, x and y, as is the gradient.
    """
    ends = _uniform(bits, 2, 4)
    clouds = 44 * (_uniform(bits, COARSE, 3 * COARSE) - 0.5)
    x, y, angle, length, thickness, level, *tint = _uniform(bits, 9, STROKES)

    grid = _grid(side)  # (3, pixels)
    start, end = DARKEST + 45 * ends[:, :1] + 30 * ends[:, 1:]
    direction = 2 * pi * float(_uniform(bits, 1)[0])
    slope = np.outer(0.7 * (end - start), np.array([0, cos(direction), sin(direction)], np.float32))  # (3, 3)
    slope[:, 0] = (start + end - slope[:, 1] - slope[:, 2]) / 2

    length, thickness = 0.05 + 0.13 * length, 0.012 + 0.02 * thickness
    turn, lean = np.cos(pi * angle), np.sin(pi * angle)
    along = np.array([-(turn * x + lean * y), turn, lean]) / length  # (3, strokes)
    across = np.array([lean * x - turn * y, -lean, turn]) / thickness
    squares = np.concatenate([along, across], 1).T @ grid
    squares *= squares
    strokes = np.exp(-np.minimum(squares[:STROKES] + squares[STROKES:], 20))  # smaller numbers are slow
    colours = 56 * (level - 0.5) + 44 * (np.array(tint) - 0.5)  # (3, strokes)

    spread = _spread(side)
    half = (spread @ clouds).reshape(side, COARSE, 3).transpose(1, 2, 0).reshape(COARSE, 3 * side)
    coarse = (spread @ half).reshape(side, 3, side).transpose(1, 0, 2)
    picture: Floats = (slope @ grid + colours @ strokes).reshape(3, side, side) + coarse
    return picture


def _uniform(bits: PCG64, *shape: int) -> Floats:
    raw: Any = bits.random_raw(prod(shape))
    numbers: Floats = (raw >> np.uint64(40)).astype(np.float32).reshape(shape) * 2.0**-24
    return numbers


@cache
def _colours() -> dict[Colour, Floats]:
    return {name: np.array(colour, np.float32)[:, None, None] for name, colour in COLOURS.items()}


@cache
def _points(side: int) -> Floats:
    """(samples, side): the points at which each pixel of an axis is looked at."""
    places = (np.arange(side * SAMPLES, dtype=np.float64) + 0.5) / (side * SAMPLES)
    return places.reshape(side, SAMPLES).T.astype(np.float32)


@cache
def _grid(side: int) -> Floats:
    """(3, pixels): 1, x and y of the middle of each pixel."""
    middles = (np.arange(side, dtype=np.float32) + 0.5) / side
    y, x = np.meshgrid(middles, middles, indexing="ij")
    return np.stack([np.ones(side * side, np.float32), x.ravel(), y.ravel()])


@cache
def _spread(side: int) -> Floats:
    """(side, coarse): linear interpolation between the points of the coarse noise."""
    places = (np.arange(side) + 0.5) / side * (COARSE - 1)
    return np.maximum(0, 1 - abs(places[:, None] - np.arange(COARSE))).astype(np.float32)


@cache
def _cells(count: int, pixels: int) -> Floats:
    """(count, pixels): how much of each pixel is in each cell, also where the grid does not fit the pixels."""
    edges = np.arange(count + 1)[:, None] * pixels / count
    shared = np.minimum(edges[1:], np.arange(1, pixels + 1)) - np.maximum(edges[:-1], np.arange(pixels))
    found: Floats = np.maximum(0, shared).astype(np.float32)
    return found

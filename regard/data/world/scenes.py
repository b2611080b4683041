"""The built-in scenes: pictures of one to four things, and captions that the picture determines.

A thing has a shape, a colour, a size and perhaps a texture. A perfect captioner scores 100 % exact match in both
languages, and the region of each word is known, so that attention can be compared with it.

Splits are made by a hash of what is seen. For two or more things that is what they are, so that no set of things is in
two splits. For a single thing it is also roughly where it is: its few captions are in all splits, its pictures are not.
Six combinations of a colour and a shape are held out: training never sees them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import sqrt
from random import Random
from typing import get_args

import numpy as np
from numpy.typing import NDArray

from regard.data.world.captions import HOSTS, Language, describe, read, vocabulary, write
from regard.data.world.drawing import (
    RADII,
    REACH,
    SIDE,
    Colour,
    Mask,
    Shape,
    Size,
    Texture,
    Thing,
    coverage,
    draw,
    masks,
)
from regard.data.world.tables import Split, split_of

__all__ = ["HELD_OUT", "Scene", "Thing", "coverage", "held_out", "scenes", "vocabulary"]

SHAPES: tuple[Shape, ...] = get_args(Shape)
COLOURS: tuple[Colour, ...] = get_args(Colour)
SIZES: tuple[Size, ...] = get_args(Size)
TEXTURES: tuple[Texture, ...] = get_args(Texture)
MOST = 4  # things
# each colour and each shape once
HELD_OUT: frozenset[tuple[Colour, Shape]] = frozenset(
    {
        ("red", "cross"),
        ("green", "circle"),
        ("blue", "star"),
        ("yellow", "square"),
        ("purple", "triangle"),
        ("white", "ring"),
    }
)
# which units lie apart, by the number of things; a 2 is a thing and another inside it
LAYOUTS: dict[int, tuple[tuple[int, ...], ...]] = {
    1: ((1,),),
    2: ((1, 1), (1, 1), (1, 1), (1, 1), (2,)),  # a thing inside another in a fifth of them
    3: ((1, 1, 1), (2, 1)),
    4: ((1, 1, 1, 1), (1, 1, 2), (2, 2)),
}
# where units are, how far all of them are moved, and how far each
ANCHORS: dict[int, tuple[tuple[tuple[float, float], ...], tuple[float, float], float]] = {
    1: (((0.5, 0.5),), (0.4, 0.4), 0.0),
    2: (((0.26, 0.5), (0.74, 0.5)), (0.1, 0.3), 0.12),
    3: (((0.24, 0.24), (0.76, 0.24), (0.5, 0.76)), (0.05, 0.05), 0.08),
    4: (((0.24, 0.24), (0.76, 0.24), (0.24, 0.76), (0.76, 0.76)), (0.03, 0.03), 0.07),
}
TRIES = 60  # to place the things; some sets do not fit
EDGE = (0.01, 0.05)  # least distance from the edge of the picture
TILT = 12.0  # degrees, at most
LIGHT = (0.9, 1.04)  # factors of brightness
PLACES = 8  # cells a side: how roughly the place of a single thing counts for its split

Look = tuple[Shape, Colour, Size, Texture]


@dataclass(frozen=True)
class Scene:
    """Things, and the seed of the background. Their order does not matter: captions are read off their places."""

    things: tuple[Thing, ...]
    seed: int = 0

    @cached_property
    def english(self) -> tuple[str, ...]:
        return tuple(word for word, _ in write(self.things, "english"))

    @cached_property
    def french(self) -> tuple[str, ...]:
        return tuple(word for word, _ in write(self.things, "french"))

    def draw(self, side: int = SIDE) -> NDArray[np.uint8]:
        """(side, side, 3), a multiple of 8 pixels a side."""
        return draw(self.things, self.seed, side)

    def background(self, side: int = SIDE) -> NDArray[np.uint8]:
        """The same picture without its things."""
        return draw((), self.seed, side)

    def masks(self, side: int = SIDE) -> list[Mask]:
        """(side, side) for each thing: where it is seen."""
        return masks(self.things, side)

    def regions(self, language: Language, side: int = SIDE) -> list[Mask]:
        """(side, side) for each word of the caption: the thing that it is about; for relations all that are related,
        for "both" and its comma the two before it."""
        seen = np.stack(self.masks(side))
        return [np.logical_or.reduce(seen[list(about)]) for _, about in write(self.things, language)]


def held_out(scene: Scene) -> bool:
    """Whether training may not see it: a thing has a held-out combination of colour and shape."""
    return any((thing.colour, thing.shape) in HELD_OUT for thing in scene.things)


def scenes(
    split: Split, *, seed: int = 0, most: int = 2, fewest: int = 1, held_out: bool | None = None
) -> Iterator[Scene]:
    """Endless scenes of one split, of so many things; held_out: only those with a held-out combination, or without."""
    if split not in get_args(Split):
        raise ValueError(f"no split {split!r}: choose one of {', '.join(get_args(Split))}")
    if not 1 <= fewest <= most <= MOST:
        raise ValueError(f"no scenes of {fewest} to {most} things: choose fewest and most from 1 to {MOST}")
    if split == "train" and held_out:
        raise ValueError("held-out combinations are never in train: choose valid or test")
    return _generate(split, Random(f"scenes {split} {seed}"), fewest, most, False if split == "train" else held_out)


def _generate(split: Split, random: Random, fewest: int, most: int, unseen: bool | None) -> Iterator[Scene]:
    while True:
        layout = random.choice(LAYOUTS[random.randint(fewest, most)])
        looks = [look for unit in layout for look in _looks(random, unit)]
        if len({*looks}) < len(looks):  # two things that are described alike
            continue
        if unseen is not None and unseen != any((colour, shape) in HELD_OUT for shape, colour, *_ in looks):
            continue
        if len(looks) > 1 and split_of(" / ".join(sorted(" ".join(look) for look in looks))) != split:
            continue
        things = _place(random, layout, looks)
        if things and (len(things) > 1 or _single_split(things[0]) == split):
            yield Scene(things, random.getrandbits(32))


def _single_split(thing: Thing) -> Split:
    words = " ".join(describe(thing, "english"))
    return split_of(f"{words} {int(thing.x * PLACES)} {int(thing.y * PLACES)}")


def _looks(random: Random, unit: int) -> list[Look]:
    """A thing, or a large one and a small one of another colour that is to be inside it."""
    if unit == 1:
        return [(random.choice(SHAPES), random.choice(COLOURS), random.choice(SIZES), random.choice(TEXTURES))]
    outer, inner = random.sample(COLOURS, 2)
    return [
        (random.choice([*HOSTS]), outer, "large", random.choice(TEXTURES)),
        (random.choice(SHAPES), inner, "small", random.choice(TEXTURES)),
    ]


def _place(random: Random, layout: Sequence[int], looks: Sequence[Look]) -> tuple[Thing, ...]:
    """The things where they can be read; nothing if no such places were found."""
    for _ in range(TRIES):
        left = iter(looks)
        things: list[Thing] = []
        for unit, (x, y) in zip(layout, _places(random, len(layout)), strict=True):
            things.append(_thing(random, next(left), x, y))
            if unit == 2:
                things.append(_inside(random, next(left), things[-1]))
        if read(things):
            return tuple(things)
    return ()


def _places(random: Random, count: int) -> Iterator[tuple[float, float]]:
    anchors, (along, across), each = ANCHORS[count]
    turned, mirrored = random.random() < 0.5, random.random() < 0.5
    moved = random.uniform(-along, along), random.uniform(-across, across)
    for anchor in anchors:
        x, y = (a + m + random.uniform(-each, each) for a, m in zip(anchor, moved, strict=True))
        x, y = (1 - x, 1 - y) if mirrored else (x, y)
        yield (y, x) if turned else (x, y)


def _thing(random: Random, look: Look, x: float, y: float) -> Thing:
    """A thing at this place, or where it is in the picture."""
    radius, tilt = random.uniform(*RADII[look[2]]), random.uniform(-TILT, TILT)
    edge = radius * REACH[look[0]] + random.uniform(*EDGE)
    x, y = (min(max(place, edge), 1 - edge) for place in (x, y))
    return Thing(*look, x, y, radius, tilt, random.uniform(*LIGHT))


def _inside(random: Random, look: Look, outer: Thing) -> Thing:
    thing = _thing(random, look, outer.x, outer.y)
    room = max(0.0, HOSTS[outer.shape] * outer.radius - thing.reach) / sqrt(2)
    return replace(thing, x=outer.x + random.uniform(-room, room), y=outer.y + random.uniform(-room, room))

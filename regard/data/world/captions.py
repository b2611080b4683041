"""Captions of scenes, in English and in French: what is read off the things in a picture.

caption = thing | pair | pair , both relation thing | pair , both relation pair        pair = thing relation thing

The picture alone decides what is said, and in which order:
- Size and colour are always said, texture where there is one.
- A pair is said from the smaller thing to the larger one, and between equals from the left or upper thing.
- Of two groups, two separate things come first, then a thing inside another, then a single thing; between two groups of
  the same kind the left or upper one comes first.
- Of three separate things, the pair is the two in line: the third one faces the middle between them.
- Four separate things are read in rows, the upper row first.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import hypot
from typing import Literal, NamedTuple, get_args

from regard.data.world.drawing import HOLE, Colour, Shape, Size, Texture, Thing

Language = Literal["english", "french"]
Relation = Literal["left of", "right of", "above", "below", "inside"]
Said = tuple[str, tuple[int, ...]]  # a word, and the things that it is about

OPPOSITES: dict[Relation, Relation] = {
    "left of": "right of",
    "right of": "left of",
    "above": "below",
    "below": "above",
}
LATER = frozenset({"right of", "below"})  # what is so related is read second
HOSTS: dict[Shape, float] = {"circle": 0.8, "square": 0.73, "ring": HOLE}  # radius of the room inside

ENGLISH: dict[Relation, tuple[str, ...]] = {
    "left of": ("left", "of"),
    "right of": ("right", "of"),
    "above": ("above",),
    "below": ("below",),
    "inside": ("inside",),
}
FRENCH: dict[Relation, tuple[str, ...]] = {  # all before "un" or "une", so that "de" is always elided
    "left of": ("à", "gauche", "d'"),
    "right of": ("à", "droite", "d'"),
    "above": ("au-dessus", "d'"),
    "below": ("au-dessous", "d'"),
    "inside": ("dans",),
}
NOUNS: dict[Shape, str] = {
    "circle": "cercle",
    "square": "carré",
    "triangle": "triangle",
    "star": "étoile",
    "cross": "croix",
    "ring": "anneau",
}
FEMININE = frozenset({"star", "cross"})
# masculine and feminine
SIZES: dict[Size, tuple[str, str]] = {"small": ("petit", "petite"), "large": ("grand", "grande")}
COLOURS: dict[Colour, tuple[str, str]] = {
    "red": ("rouge", "rouge"),
    "green": ("vert", "verte"),
    "blue": ("bleu", "bleue"),
    "yellow": ("jaune", "jaune"),
    "purple": ("violet", "violette"),
    "white": ("blanc", "blanche"),
}
TEXTURES: dict[Texture, tuple[str, str]] = {"striped": ("rayé", "rayée"), "dotted": ("à pois", "à pois")}


class Margin(NamedTuple):
    """From where on a relation holds."""

    slant: float  # most distance across its direction, as a share of that along it
    gap: float  # least gap between the two


CLEAR = Margin(0.45, 0.05)  # what a caption says
POSSIBLE = Margin(0.75, 0.0)  # what could be taken for another reading: there may be only one


class Box(NamedTuple):
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True)
class Group:
    """One thing, or two and their relation; things by their index in the scene."""

    things: tuple[int, ...]
    relation: Relation | None
    box: Box

    @property
    def rank(self) -> int:
        return 2 if self.relation is None else 1 if self.relation == "inside" else 0


@dataclass(frozen=True)
class Reading:
    """What a caption says: one group, or two and their relation."""

    first: Group
    relation: Relation | None = None
    second: Group | None = None


def read(things: Sequence[Thing]) -> Reading | None:
    """The reading of a picture; none if things overlap, if no relation is clear, or if there are several readings."""
    units = _units(things)
    clear = list(_readings(things, units, CLEAR))
    if len(clear) == 1 == len(list(_readings(things, units, POSSIBLE))):
        return clear[0]
    return None


def related(one: Box, other: Box, margin: Margin = CLEAR) -> Relation | None:
    """Where the first is, seen from the second: the direction in which they lie apart, if that is clear."""
    across = (other.left + other.right - one.left - one.right) / 2
    down = (other.top + other.bottom - one.top - one.bottom) / 2
    beside = max(other.left - one.right, one.left - other.right)
    over = max(other.top - one.bottom, one.top - other.bottom)
    if beside >= margin.gap and abs(down) <= margin.slant * abs(across):
        return "left of" if across > 0 else "right of"
    if over >= margin.gap and abs(across) <= margin.slant * abs(down):
        return "above" if down > 0 else "below"
    return None


def nested(inner: Thing, outer: Thing) -> bool:
    """Whether a thing lies on another, or in the hole of a ring."""
    room = HOSTS.get(outer.shape, 0.0) * outer.radius
    return inner.size != outer.size and hypot(inner.x - outer.x, inner.y - outer.y) + inner.reach <= room


def _box(thing: Thing) -> Box:
    return Box(thing.x - thing.reach, thing.y - thing.reach, thing.x + thing.reach, thing.y + thing.reach)


def _units(things: Sequence[Thing]) -> list[Group]:
    """Separate things, each with the thing inside it if there is one; nothing if there are two inside one."""
    places = range(len(things))
    inside = {i: j for i in places for j in places if i != j and nested(things[i], things[j])}
    holds = {j: i for i, j in inside.items()}
    if len(holds) < len(inside):
        return []
    return [
        Group((holds[i], i), "inside", _box(things[i])) if i in holds else Group((i,), None, _box(things[i]))
        for i in places
        if i not in inside
    ]


def _readings(things: Sequence[Thing], units: list[Group], margin: Margin) -> Iterator[Reading]:
    if len(units) == 1:
        yield Reading(units[0])
    elif len(units) == 2 and all(unit.relation is None for unit in units):
        if pair := _pair(things, units[0], units[1], margin):
            yield Reading(pair)
    elif len(units) == 2:
        yield from _joined(units[0], units[1], margin)
    elif len(units) == 3:
        for third in units:
            one, other = (unit for unit in units if unit is not third)
            if pair := _pair(things, one, other, margin):
                yield from _joined(pair, third, margin)
    elif len(units) == 4:
        above, beside, *below = sorted(units, key=lambda unit: unit.box.top + unit.box.bottom)
        rows = _pair(things, above, beside, margin), _pair(things, below[0], below[1], margin)
        if rows[0] and rows[1] and {rows[0].relation, rows[1].relation} <= {"left of", "right of"}:
            yield from (reading for reading in _joined(rows[0], rows[1], margin) if reading.relation == "above")


def _pair(things: Sequence[Thing], one: Group, other: Group, margin: Margin) -> Group | None:
    relation = related(one.box, other.box, margin)
    if relation is None or one.relation or other.relation:
        return None
    first, second = (things[unit.things[0]].size for unit in (one, other))
    swapped = relation in LATER if first == second else second == "small"
    if swapped:
        one, other, relation = other, one, OPPOSITES[relation]
    lowest, highest = map(min, one.box, other.box), map(max, one.box, other.box)
    return Group(one.things + other.things, relation, Box(*[*lowest][:2], *[*highest][2:]))


def _joined(one: Group, other: Group, margin: Margin) -> Iterator[Reading]:
    relation = related(one.box, other.box, margin)
    if relation is not None:
        if other.rank < one.rank or other.rank == one.rank and relation in LATER:
            one, other, relation = other, one, OPPOSITES[relation]
        yield Reading(one, relation, other)


def write(things: Sequence[Thing], language: Language) -> tuple[Said, ...]:
    """The words of a caption, each with the things that it is about: a relation is about both of its groups."""
    if language not in get_args(Language):
        raise ValueError(f"no captions in {language!r}: choose one of {', '.join(get_args(Language))}")
    reading = read(things)
    if reading is None:
        raise ValueError(
            "these things have no caption: they overlap, or their relations are not clear; move them apart"
        )
    said = list(_group(things, reading.first, language))
    if reading.second is not None and reading.relation is not None:
        first, second = reading.first, reading.second
        both = ("both",) if language == "english" else ("tous" if _masculine(things, first) else "toutes", "deux")
        said += [(word, first.things) for word in (",", *both)]
        said += [(word, first.things + second.things) for word in _relation(reading.relation, language)]
        said += _group(things, second, language)
    return tuple(said)


def describe(thing: Thing, language: Language) -> tuple[str, ...]:
    """A noun phrase: "a large striped blue square", "un grand carré bleu rayé"."""
    textured = thing.texture != "plain"
    if language == "english":
        return ("a", thing.size, *([thing.texture] if textured else []), thing.colour, thing.shape)
    gender = int(thing.shape in FEMININE)
    colour, noun, article = COLOURS[thing.colour][gender], NOUNS[thing.shape], ("un", "une")[gender]
    texture = tuple(TEXTURES[thing.texture][gender].split()) if textured else ()
    return (article, SIZES[thing.size][gender], noun, colour, *texture)


def vocabulary(language: Language) -> frozenset[str]:
    """Every word that a caption may have."""
    if language == "english":
        words = {"a", ",", "both", *get_args(Size), *TEXTURES, *get_args(Colour), *get_args(Shape)}
        return frozenset(words.union(*ENGLISH.values()))
    forms = [form.split() for table in (SIZES, COLOURS, TEXTURES) for pair in table.values() for form in pair]
    return frozenset({"un", "une", ",", "tous", "toutes", "deux", *NOUNS.values()}.union(*forms, *FRENCH.values()))


def _group(things: Sequence[Thing], group: Group, language: Language) -> Iterator[Said]:
    for index in group.things:
        if group.relation is not None and index == group.things[1]:
            yield from ((word, group.things) for word in _relation(group.relation, language))
        yield from ((word, (index,)) for word in describe(things[index], language))


def _relation(relation: Relation, language: Language) -> tuple[str, ...]:
    return (ENGLISH if language == "english" else FRENCH)[relation]


def _masculine(things: Sequence[Thing], group: Group) -> bool:
    return not all(things[index].shape in FEMININE for index in group.things)

"""What a sentence is before it is words: trees that the grammar draws and the writer says twice."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from regard.data.world.lexicon import Adjective, Noun, Verb

Tense = Literal[
    "present", "past", "progressive", "was progressive", "perfect", "pluperfect",
    "future", "conditional", "supposed", "can", "must", "should",
]  # fmt: skip
Negation = Literal["", "not", "never", "no longer"]


@dataclass(slots=True)
class Pronoun:
    word: str  # the English subject form
    feminine: bool = False  # in French, by what it stands for


@dataclass(slots=True)
class Person:
    given: str
    family: str
    feminine: bool


@dataclass(slots=True)
class City:
    name: str


@dataclass(slots=True)
class Country:
    name: str


@dataclass(slots=True)
class Institution:
    where: str
    what: str  # may be empty
    head: str


@dataclass(slots=True)
class Phrase:
    """[owner 's | determiner] adjective topic noun tail"""

    noun: Noun
    determiner: str = "the"
    plural: bool = False
    adjective: Adjective | None = None
    topic: Noun | None = None
    owner: Thing | None = None
    tail: Tail | None = None


@dataclass(slots=True)
class Both:
    first: Thing
    second: Thing


Thing = Pronoun | Person | City | Country | Institution | Phrase | Both


@dataclass(slots=True)
class Of:
    """a noun held to another by a preposition: the treaty on trade, the king of Spain"""

    english: str
    french: str
    thing: Thing


@dataclass(slots=True)
class Relative:
    """who reads / that the boy reads / where the boy reads: the noun is subject, object or place in it"""

    role: Literal["subject", "object", "place"]
    clause: Clause


@dataclass(slots=True)
class Place:
    thing: Thing


@dataclass(slots=True)
class Time:
    """Kind and parts: ("month", "March", "1994"), ("ago", "three", "years"), ("word", "yesterday") …"""

    kind: Literal["month", "year", "date", "day", "last", "next", "every", "season", "ago", "word"]
    parts: tuple[str, ...]


Tail = Of | Relative | Place


@dataclass(slots=True)
class Quality:
    """very old; older than the king; long but terribly exciting (the degree goes with the last adjective)"""

    adjective: Adjective
    degree: str = ""
    than: Thing | None = None
    first: Adjective | None = None
    joint: str = ""  # "and" or "but" between the first adjective and the last


@dataclass(slots=True)
class That:
    clause: Part


@dataclass(slots=True)
class ToDo:
    clause: Clause


@dataclass(slots=True)
class Clause:
    subject: Thing
    verb: Verb
    tense: Tense = "present"
    negation: Negation = ""
    object: Thing | None = None
    recipient: Thing | None = None
    complement: Quality | That | ToDo | Phrase | None = None
    often: str = ""  # adverb before the English verb
    manner: str = ""  # adverb of how
    passive: bool = False
    agent: Thing | None = None
    adjuncts: list[Place | Time] = field(default_factory=list)
    opening: Time | None = None  # said first: In March 1994 , …


@dataclass(slots=True)
class There:
    """There is a cat in the garden."""

    thing: Phrase
    place: Place
    tense: Tense


@dataclass(slots=True)
class Joined:
    first: Part
    word: str  # and, but, because, when …
    second: Part
    fronted: bool = False  # When A , B


@dataclass(slots=True)
class Question:
    clause: Clause
    word: str = ""  # Why, When, Where; empty for yes or no


Part = Clause | There | Joined

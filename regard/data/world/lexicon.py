"""The words of the little world, read once from lexicon.toml and given all their forms."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from regard.data.world.french import Conjugation, agreements, conjugate
from regard.data.world.french import plural as french_plural

MASS = frozenset({"food", "drink", "topic"})
IRREGULARLY_COMPARED = {"good": ("better", "meilleur"), "bad": ("worse", "pire")}


@dataclass(frozen=True, slots=True, eq=False)
class Noun:
    lemma: str
    plural: str
    french: tuple[str, str]  # singular, plural
    feminine: bool
    kind: str
    mass: bool


@dataclass(frozen=True, slots=True, eq=False)
class Adjective:
    lemma: str
    more: str  # the one-word comparative, or "" where English says "more …"
    forms: tuple[str, ...]  # masculine, feminine, masculine plural, feminine plural
    liaison: str  # masculine before a vowel: vieil, nouvel, bel
    better: tuple[str, ...]  # the one-word French comparative, or () where French says "plus …"
    before: bool
    predicative: bool  # may stand after "be"
    scale: str  # what it measures; a thing has one place on it
    strong: bool  # "absolutely", never "very"
    verdict: int  # +1, −1 or 0
    nouns: frozenset[Noun]


@dataclass(frozen=True, slots=True, eq=False)
class Verb:
    lemma: str
    third: str
    past: str
    done: str
    doing: str
    particle: str
    french: Conjugation
    preposition: str
    lasting: bool
    verdict: int
    subjects: tuple[Noun, ...]
    objects: tuple[Noun, ...]


@dataclass(frozen=True, slots=True)
class Lexicon:
    nouns: dict[str, tuple[Noun, ...]]  # by kind
    adjectives: tuple[Adjective, ...]
    verbs: dict[str, tuple[Verb, ...]]  # by frame
    adverbs: dict[str, dict[str, str]]
    men: tuple[str, ...]
    women: tuple[str, ...]
    families: tuple[str, ...]
    cities: dict[str, str]
    countries: dict[str, tuple[str, bool]]  # French name, feminine
    where: dict[str, tuple[str, ...]]
    what: dict[str, tuple[str, ...]]
    heads: dict[str, tuple[str, bool]]
    calendar: dict[str, dict[str, str]]
    compounds: tuple[tuple[Noun, Noun], ...]  # (topic, thing)
    auxiliaries: dict[str, Conjugation]
    lists: dict[str, frozenset[str]]  # words of one habit


def english_plural(word: str) -> str:
    if word.endswith(("s", "x", "ch", "sh")):
        return word + "es"
    return word[:-1] + "ies" if word[-1] == "y" and word[-2] not in "aeiou" else word + "s"


def past_form(base: str, doubles: bool) -> str:
    if base.endswith("e"):
        return base + "d"
    if base[-1] == "y" and base[-2] not in "aeiou":
        return base[:-1] + "ied"
    return base + base[-1] * doubles + "ed"


def doing_form(base: str, doubles: bool) -> str:
    if base == "be" or base.endswith("ee") or not base.endswith("e"):
        return base + base[-1] * doubles + "ing"
    return base[:-1] + "ing"


def comparative(base: str) -> str:
    if base in IRREGULARLY_COMPARED:
        return IRREGULARLY_COMPARED[base][0]
    if base.endswith("e"):
        return base + "r"
    if base.endswith("y"):
        return base[:-1] + "ier"
    return base + base[-1] * (base in ("big", "hot")) + "er"


def _noun(english: str, french: str, kind: str) -> Noun:
    lemma, _, irregular = english.partition("/")
    gender, singular, *plurals = french.split()
    return Noun(
        lemma=lemma,
        plural=irregular or english_plural(lemma),
        french=(singular, plurals[0] if plurals else french_plural(singular)),
        feminine=gender == "f",
        kind=kind,
        mass=kind in MASS,
    )


def _adjective(
    english: str,
    entry: list[str],
    side: str,
    scale: str,
    verdict: int,
    nouns: tuple[Noun, ...],
    lists: dict[str, frozenset[str]],
) -> Adjective:
    masculine, feminine, liaison, *_ = [*entry[0].split(), "", ""]
    _, better = IRREGULARLY_COMPARED.get(english, ("", ""))
    return Adjective(
        lemma=english,
        more=comparative(english) if english in lists["compared"] or english in IRREGULARLY_COMPARED else "",
        forms=agreements(masculine, feminine),
        liaison=liaison or masculine,
        better=agreements(better) if better else (),
        before=side == "before",
        predicative=side != "relational" and english not in lists["attributive"],
        scale=scale,
        strong=len(entry) > 2,
        verdict=verdict,
        nouns=frozenset(nouns),
    )


@cache
def lexicon() -> Lexicon:
    raw: dict[str, Any] = tomllib.loads(files(__package__).joinpath("lexicon.toml").read_text("utf-8"))
    nouns = {
        kind: tuple(_noun(english, french, kind) for english, french in entries.items())
        for kind, entries in raw["nouns"].items()
    }
    lists = {name: frozenset(words.split()) for name, words in raw["lists"].items()}
    by_lemma = {noun.lemma: (noun,) for kind in nouns.values() for noun in kind}

    def named(text: str) -> tuple[Noun, ...]:
        """Nouns by group, kind or lemma, in the order written and each once."""
        found: dict[Noun, None] = {}
        for name in text.split():
            if name in raw["groups"]:
                found |= dict.fromkeys(named(raw["groups"][name]))
            elif name in nouns:
                found |= dict.fromkeys(nouns[name])
            else:
                found |= dict.fromkeys(by_lemma[name])
        return tuple(found)

    def verb(english: str, entry: list[str], verdict: int) -> Verb:
        forms, _, particle = english.partition(" ")
        base, past, done, *_ = [*forms.split("/"), "", ""]
        whole = entry[0].removeprefix("se ")
        infinitive, _, preposition = whole.partition(" ")
        who, what = (named(text) for text in (*entry[1:], "")[:2])
        doubles = base in lists["doubling"]
        third = {"be": "is"}.get(base, english_plural(base))
        return Verb(
            lemma=base,
            third=third,
            past=past or past_form(base, doubles),
            done=done or past or past_form(base, doubles),
            doing=doing_form(base, doubles),
            particle=particle,
            french=conjugate(("se " if whole != entry[0] else "") + infinitive, raw["conjugations"]),
            preposition=preposition,
            lasting=base in lists["lasting"],
            verdict=verdict,
            subjects=who,
            objects=what,
        )

    scales = {word: scale for scale, members in raw["scales"].items() for word in members.split()}
    adjectives = [
        _adjective(english, entry, side, scales.get(english, english), verdict, named(entry[1]), lists)
        for table, verdict in (("adjectives", 0), ("good", 1), ("bad", -1))
        for side, entries in raw[table].items()
        for english, entry in entries.items()
    ]
    frames = {"liking": 1, "disliking": -1}
    return Lexicon(
        nouns=nouns,
        adjectives=tuple(adjectives),
        verbs={
            frame: tuple(verb(english, entry, frames.get(frame, 0)) for english, entry in entries.items())
            for frame, entries in raw["verbs"].items()
        },
        adverbs=raw["adverbs"],
        men=tuple(raw["names"]["he"].split()),
        women=tuple(raw["names"]["she"].split()),
        families=tuple(raw["names"]["family"].split()),
        cities=raw["cities"],
        countries={e: (f[2:], f[0] == "f") for e, f in raw["countries"].items()},
        where={e: agreements(*f.split()) for e, f in raw["institutions"]["where"].items()},
        what={e: agreements(*f.split()) for e, f in raw["institutions"]["what"].items()},
        heads={e: (f[2:], f[0] == "f") for e, f in raw["institutions"]["head"].items()},
        calendar=raw["calendar"],
        compounds=tuple(
            (by_lemma[topic][0], noun) for topic, things in raw["compounds"].items() for noun in named(things)
        ),
        auxiliaries={v: conjugate(v, raw["conjugations"]) for v in ("être", "avoir", "pouvoir", "devoir")},
        lists=lists,
    )

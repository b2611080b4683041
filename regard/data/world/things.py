"""Draws the small parts of a sentence: nouns with their determiners, names, places and times."""

from __future__ import annotations

from random import Random
from typing import TypeVar

from regard.data.world.lexicon import Lexicon, Noun
from regard.data.world.tables import HUMAN, PLACES, Split, Tables
from regard.data.world.trees import (
    Both,
    City,
    Country,
    Institution,
    Of,
    Person,
    Phrase,
    Place,
    Pronoun,
    Tense,
    Thing,
    Time,
)

T = TypeVar("T")

NUMBERS = (
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
    "twenty",
    "thirty",
    "forty",
    "fifty",
)
FIGURES = ("100", "200", "15", "20", "30", "50", "500", "25", "60", "80", "300", "1000")
OWNERS = ("my", "your", "his", "her", "our", "their")
OWNED = frozenset({"thing", "case", "clothing", "vehicle", "instrument", "text", "animal"})
PERIODS = ("week", "month", "year", "summer", "winter", "spring")
HABITS = ("day", "morning", "evening", "week", "month", "year", "summer", "winter")


class Things:
    """One stream of random numbers and the words it draws."""

    def __init__(self, lexicon: Lexicon, tables: Tables, split: Split, rng: Random) -> None:
        self.lexicon, self.tables, self.split, self.random = lexicon, tables, split, rng.random
        self.lists = lexicon.lists
        self.people = [noun for kind in HUMAN for noun in lexicon.nouns[kind]]
        self.places = [noun for kind in PLACES for noun in lexicon.nouns[kind]]
        self.cities, self.countries = tuple(lexicon.cities), tuple(lexicon.countries)
        self.where, self.what, self.heads = tuple(lexicon.where), tuple(lexicon.what), tuple(lexicon.heads)
        self.months, self.days = tuple(lexicon.calendar["months"]), tuple(lexicon.calendar["days"])
        self.adverbs = {how: tuple(words) for how, words in lexicon.adverbs.items()}

    def pick(self, options: tuple[T, ...] | list[T]) -> T:
        return options[int(self.random() * len(options))]

    def word(self, words: tuple[T, ...] | list[T]) -> T:
        """One of these words, the first ones oftener, much as Zipf found: P(rank ≤ k of n) = ∛(k/n)."""
        return words[int(self.random() ** 3 * len(words))]

    def chance(self, probability: float) -> bool:
        return self.random() < probability

    def phrase(self, noun: Noun, *, new: bool = False, definite: bool = False) -> Phrase:
        """A noun with a determiner that suits it; a new thing may be "a thing" or "things"."""
        r = self.random()
        if noun.mass:
            if noun.kind == "topic":
                return Phrase(noun, "")
            if not new or definite or r < 0.4:
                return Phrase(noun, "the" if r < 0.9 else "this")
            return Phrase(noun, "some" if r < 0.75 else "")
        plural = self.random() < 0.3
        if noun.kind == "kin":
            return Phrase(noun, self.pick(OWNERS), plural and noun.lemma not in self.lists["single"])
        if r < (0.8 if definite else 0.5):
            return Phrase(noun, "the", plural)
        if r < 0.6 or definite:
            return Phrase(noun, "this", plural)
        if plural:
            if r < 0.72:
                return Phrase(noun, "" if new else "many", True)
            if r < 0.82:
                return Phrase(noun, self.pick(("some", "several")), True)
            if r < 0.88:
                return Phrase(noun, "all", True)
            figure = self.word(FIGURES) if new and r > 0.94 else self.word(NUMBERS)
            return Phrase(noun, figure, True)
        if r < 0.88:
            return Phrase(noun, "a")
        if noun.kind in OWNED:
            return Phrase(noun, self.pick(OWNERS))
        return Phrase(noun, "every" if not new and r > 0.95 else "the")

    def somebody(self) -> Person:
        feminine = self.chance(0.5)
        given = self.word(self.lexicon.women if feminine else self.lexicon.men)
        return Person(given, self.word(self.lexicon.families) if self.chance(0.3) else "", feminine)

    def two_people(self) -> Both:
        first, second = self.somebody(), self.somebody()
        while second.given == first.given:
            second = self.somebody()
        return Both(first, second)

    def institution(self) -> Institution:
        return Institution(
            self.word(self.where), self.word(self.what) if self.chance(0.65) else "", self.word(self.heads)
        )

    def pronoun_for(self, thing: Thing) -> Pronoun:
        """What a later clause calls it, with the gender French gives it."""
        if isinstance(thing, Pronoun):
            return thing
        if isinstance(thing, Both):
            return Pronoun("they", self.feminine(thing))
        if isinstance(thing, Phrase):
            if thing.plural:
                return Pronoun("they", thing.noun.feminine)
            if thing.noun.kind not in HUMAN:
                return Pronoun("it", thing.noun.feminine)
        elif not isinstance(thing, Person):
            return Pronoun("it", self.feminine(thing))
        return Pronoun("she" if self.feminine(thing) else "he")

    def feminine(self, thing: Thing) -> bool:
        if isinstance(thing, Both):
            return self.feminine(thing.first) and self.feminine(thing.second)
        if isinstance(thing, Phrase):
            return thing.noun.feminine
        if isinstance(thing, Institution):
            return self.lexicon.heads[thing.head][1]
        if isinstance(thing, Country):
            return self.lexicon.countries[thing.name][1]
        return not isinstance(thing, City) and thing.feminine

    # ── when and where ─────────────────────────────────────────────────────────────────────────────────────

    def place(self, official: bool = False) -> Place:
        r = self.random() * (0.32 if official else 1.0)
        if r < 0.2:
            return Place(City(self.word(self.cities)))
        if r < 0.32:
            return Place(Country(self.word(self.countries)))
        return Place(Phrase(self.word(self.places), "the" if r < 0.88 else "a" if r < 0.96 else "this"))

    def time(self, tense: Tense) -> Time | None:
        r = self.random()
        if tense == "past":
            if r < 0.12:
                return Time("word", ("yesterday",))
            if r < 0.27:
                return Time("ago", (self.word(NUMBERS), self.pick(("days", "weeks", "months", "years", "hours"))))
            return Time("last", (self.pick(PERIODS),)) if r < 0.42 else self.date(1970, 2020)
        if tense == "future":
            if r < 0.3:
                return Time("word", (self.pick(("tomorrow", "soon")),))
            return Time("next", (self.pick(PERIODS),)) if r < 0.6 else self.date(2030, 2045)
        if tense == "progressive":
            return Time("word", (self.pick(("now", "today")),))
        if tense == "present":
            if r < 0.7:
                return Time("every", (self.pick(HABITS),))
            return Time("season", (self.pick(("summer", "winter")),))
        return None

    def date(self, earliest: int, latest: int) -> Time:
        r = self.random()
        year = str(earliest + int(self.random() * (latest - earliest)))
        if r < 0.35:
            return Time("month", (self.pick(self.months), year))
        if r < 0.55:
            return Time("year", (year,))
        if r < 0.75:
            # French says "le 1er": the first of the month is left out
            return Time("date", (str(2 + int(self.random() * 27)), self.pick(self.months), year))
        return Time("day", (self.pick(self.days),))

    # ── one more word about a noun ─────────────────────────────────────────────────────────────────────────

    def describe(self, phrase: Phrase, left: int) -> int:
        """Adds an adjective, a topic, an owner or an "of"; says how many words it took."""
        noun, r = phrase.noun, self.random()
        held = phrase.tail is not None
        if noun.kind == "document" and phrase.topic is None and not held and left > 1 and self.chance(0.75):
            if left > 3 and self.chance(0.75):
                phrase.tail = Of("on", "sur", self.institution())
                return 4
            phrase.tail = Of("on", "sur", Phrase(self.word(self.lexicon.nouns["topic"]), ""))
            return 2
        if phrase.adjective is None and not held and r < 0.55:
            options = self.tables.adjectives.get((noun, 0))
            if options:
                adjective = self.word(options)
                if adjective.lemma != "other" or phrase.determiner not in ("a", "every"):
                    phrase.adjective = adjective
                    return 1
        if phrase.topic is None and not held and noun in self.tables.compounds and r < 0.7:
            phrase.topic = self.pick(self.tables.compounds[noun])
            return 1
        if held or left < 2:
            return 0
        if noun.lemma in self.lists["titles"] and phrase.determiner in ("the", "a") and phrase.adjective is None:
            phrase.tail = Of("of", "de", Country(self.word(self.countries)))
            return 2
        if noun.kind in OWNED and phrase.determiner == "the" and self.chance(0.6):
            phrase.owner = self.somebody() if self.chance(0.4) else self.phrase(self.word(self.people), definite=True)
            phrase.determiner = ""
            return 2
        return 0

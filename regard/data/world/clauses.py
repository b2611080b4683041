"""Draws clauses that make sense: who does what to whom, when and where.

The first clause's subject, verb and object decide the split. "They", "it" and "them" in a later clause stand
for the subject or object of the first, so that the English shows their gender.
"""

from __future__ import annotations

from random import Random
from typing import Literal

from regard.data.world.lexicon import Lexicon, Noun, Verb
from regard.data.world.tables import HUMAN, PLACES, Split, Tables, domain_of, split_of
from regard.data.world.things import Things
from regard.data.world.trees import (
    Both,
    Clause,
    Country,
    Institution,
    Person,
    Phrase,
    Pronoun,
    Relative,
    Tense,
    There,
    Thing,
    ToDo,
)

Frame = Literal["past", "present", "future", "conditional", "supposed"]

TENSES: dict[Frame, tuple[Tense, ...]] = {
    "past": ("past",) * 14 + ("was progressive", "pluperfect"),
    "present": ("present",) * 6 + ("progressive",) * 5 + ("perfect", "can", "must", "should"),
    "future": ("future",),
    "conditional": ("conditional",),
    "supposed": ("supposed",),
}
PASSIVE_TENSES: dict[Frame, tuple[Tense, ...]] = {
    "past": ("past", "past", "past", "pluperfect"),
    "present": ("perfect", "must", "can", "should", "past"),
    "future": ("future",),
    "conditional": ("conditional",),
    "supposed": ("supposed",),
}
OFTEN: dict[str, tuple[str, ...]] = {
    "present": ("often", "always", "sometimes", "rarely", "still"),
    "past": ("often", "always", "finally", "rarely"),
    "perfect": ("already", "always", "often"),
    "progressive": ("still",),
    "future": ("always", "often"),
}
SOMEBODY = ("he", "she", "we", "I", "you")
SUBJECT_PRONOUNS = ("he", "he", "she", "she", "they", "they", "they", "we", "I", "you")


class Clauses(Things):
    """Draws clauses one after another, and remembers what the first was about."""

    def __init__(self, lexicon: Lexicon, tables: Tables, split: Split, rng: Random) -> None:
        super().__init__(lexicon, tables, split, rng)
        self.forget()

    def forget(self) -> None:
        """Nothing said yet."""
        self.frame: Frame = "past"
        self.first_subject: Thing | None = None
        self.first_object: Phrase | None = None
        self.unnamed = False  # the object of the clause is a pronoun for somebody
        self.domain = ""  # what the first clause is about; later clauses keep near it
        self.scale = ""  # what the first clause measured
        # one time, one report, one contrast and one of each connective are enough for a sentence
        self.timed = self.reported = self.contrasted = False
        self.joints: set[str] = set()

    def core(self, frame: str, verdict: int = 0) -> tuple[Verb, Thing, Noun | None]:
        """Verb, subject and object; in the first clause such that they belong to this split."""
        verbs, objects = self.tables.verbs[frame], self.tables.objects
        passive = frame == "passive"
        tries = 4
        while True:
            verb = self.word(verbs)
            noun = self.word(objects[verb]) if verb.objects else None
            if verdict and (noun, verdict) not in self.tables.adjectives:
                continue
            named = noun is None or verb.preposition or noun.kind not in HUMAN or frame != "transitive"
            self.unnamed = not named and self.chance(0.2)
            if self.first_subject is not None:
                tries -= 1
                if noun is not None and tries and self.domain and domain_of(noun) != self.domain:
                    continue
                return verb, self.first_subject if passive else self.later_subject(verb), noun
            subject, name = (Pronoun("they"), "passive") if passive else self.subject(verb)
            other = "" if noun is None else "somebody" if self.unnamed else noun.lemma
            if split_of(f"{name} {verb.lemma} {other}") == self.split:
                self.first_subject = subject
                if noun is not None:
                    self.domain = domain_of(noun)
                return verb, subject, noun

    def subject(self, verb: Verb) -> tuple[Thing, str]:
        """Who does it, and the name that stands for it in the core."""
        r = self.random()
        if verb in self.tables.human_verbs:
            if r < 0.25:
                word = self.pick(SUBJECT_PRONOUNS)
                return Pronoun(word), word
            if r < 0.36:
                return self.somebody(), "PERSON"
            if r < 0.39:
                return self.two_people(), "PERSON and PERSON"
        if verb in self.tables.agent_verbs:
            if r > 0.7:
                return self.institution(), "ORG"
            if r > 0.62:
                return Country(self.word(self.countries)), "PLACE"
        noun = self.word(verb.subjects)
        return self.phrase(noun), noun.lemma

    def stranger(self, verb: Verb) -> Thing:
        """A subject that needs nothing said before; "they" is left for what the first clause named."""
        while True:
            thing, _ = self.subject(verb)
            if not (isinstance(thing, Pronoun) and thing.word == "they"):
                return thing

    def later_subject(self, verb: Verb) -> Thing:
        """Often a pronoun for the subject of the first clause, where that can do it."""
        first = self.first_subject
        if first is not None and self.chance(0.5):
            if isinstance(first, Phrase):
                fits = first.noun in verb.subjects
            else:
                official = isinstance(first, Institution | Country)
                fits = verb in (self.tables.agent_verbs if official else self.tables.human_verbs)
            if fits:
                return self.pronoun_for(first)
        return self.stranger(verb)

    def settle(self, clause: Clause, wanted: Tense | None, asked: bool = False) -> None:
        """Tense, negation and a small adverb."""
        verb = clause.verb
        tense = self.pick(TENSES[self.frame]) if wanted is None else wanted
        if asked and tense not in ("past", "present", "progressive", "future"):
            tense = "past"
        if verb.lasting and tense in ("progressive", "was progressive"):
            tense = "present" if tense == "progressive" else "past"
        clause.tense = tense
        if asked:
            return
        r = self.random()
        if r < 0.14:
            clause.negation = "not"
        elif r < 0.2 and tense in ("present", "past", "perfect", "future"):
            clause.negation = "never" if tense == "perfect" or r < 0.18 else "no longer"
        elif r < 0.28 and tense in OFTEN:
            clause.often = self.pick(OFTEN[tense])
        if clause.negation:
            one_scope(clause.subject)
        self.show_tense(clause)

    def show_tense(self, clause: Clause) -> None:
        """ "They read" hides its tense; "they have read" does not."""
        verb = clause.verb
        if verb.past == verb.lemma and clause.tense in ("past", "supposed") and not third(clause.subject):
            clause.tense = "perfect" if clause.tense == "past" else "conditional"

    def doing(self, frame: str, budget: int, tense: Tense | None = None, asked: bool = False) -> Clause:
        """They are watching. The old baker sold three cakes at the market yesterday."""
        first = self.first_subject is None
        verb, subject, noun = self.core(frame)
        clause = Clause(subject, verb)
        self.settle(clause, tense, asked)
        left = budget - 2 - (not isinstance(subject, Pronoun)) - bool(clause.negation) - bool(clause.often)
        left -= clause.tense not in ("present", "past")
        if asked:
            left = min(left, 3 + 2 * (noun is not None))
        if noun is not None:
            clause.object = self.object(clause, noun, first)
            left -= 2
            if left > 3 and isinstance(clause.object, Phrase) and not asked and self.chance(0.12):
                clause.object = self.pair_up(clause.object, verb)
                left -= 3
        if (
            left > 0 and not (clause.negation or clause.often or asked or verb.particle) and self.chance(0.15)
            and verb in self.tables.human_verbs and verb.lemma not in self.lists["unhurried"]
        ):  # fmt: skip
            clause.manner = self.word(self.adverbs["manner"])
            left -= 1
        self.spend(clause, left)
        return clause

    def object(self, clause: Clause, noun: Noun, first: bool) -> Thing:
        verb, subject = clause.verb, clause.subject
        if self.unnamed:
            return self.other_than(subject, SOMEBODY + ("they",) if first else SOMEBODY)
        seen = self.first_object
        again = not (first or verb.preposition) and self.chance(0.2)
        if again and seen is not None and seen.noun in self.tables.objects[verb]:
            return Pronoun("they" if seen.plural else "it", seen.noun.feminine)
        thing = self.acted_on(verb, noun)
        if first:
            self.first_object = thing
        return thing

    def acted_on(self, verb: Verb, noun: Noun, definite: bool = False) -> Phrase:
        """One plays "the" violin; and "de" wants no "des" after it, so prepositions take known things."""
        if noun.kind == "instrument" and verb.preposition:
            return Phrase(noun)
        return self.phrase(noun, new=not verb.preposition, definite=definite)

    def other_than(self, subject: Thing, words: tuple[str, ...]) -> Pronoun:
        """A pronoun that is not the subject once more."""
        said = subject.word if isinstance(subject, Pronoun) else ""
        taken = ("I", "we") if said in ("I", "we") else (said,)
        return Pronoun(self.pick([w for w in words if w not in taken]))

    def pair_up(self, thing: Phrase, verb: Verb) -> Thing:
        options = [n for n in self.tables.objects[verb] if n.kind == thing.noun.kind and n is not thing.noun]
        if not options:
            return thing
        self.first_object = None if self.first_object is thing else self.first_object
        return Both(thing, self.acted_on(verb, self.word(options)))

    def undergoing(self, budget: int) -> Clause:
        """The treaty was signed by the minister in March 1994."""
        first = self.first_subject is None
        verb, _, noun = self.core("passive")
        assert noun is not None
        clause = Clause(self.phrase(noun), verb, self.pick(PASSIVE_TENSES[self.frame]), passive=True)
        if first:
            self.first_subject = clause.subject
        left = budget - 4 - (clause.tense != "past")
        if self.chance(0.12):
            clause.negation = "not"
            one_scope(clause.subject)
            left -= 1
        if left > 2 and self.chance(0.35):
            clause.agent = self.doer(verb)
            left -= 3
        self.spend(clause, left)
        return clause

    def doer(self, verb: Verb) -> Thing:
        """By whom: never a pronoun."""
        if verb in self.tables.agent_verbs and self.chance(0.4):
            return self.institution()
        noun = self.word(verb.subjects)
        return self.somebody() if noun.kind == "person" and self.chance(0.25) else self.phrase(noun)

    def giving(self, budget: int, tense: Tense | None) -> Clause:
        """The nurse gave him a blanket. Anna sends the old baker a letter."""
        first = self.first_subject is None
        verb, subject, noun = self.core("giving")
        assert noun is not None
        clause = Clause(subject, verb)
        self.settle(clause, tense)
        clause.object = self.phrase(noun, new=True)
        if first:
            self.first_object = clause.object
        clause.recipient = self.receiver(subject)
        left = budget - 5 - (not isinstance(subject, Pronoun)) - (not isinstance(clause.recipient, Pronoun | Person))
        self.spend(clause, left - (clause.tense not in ("present", "past")))
        return clause

    def receiver(self, giver: Thing) -> Thing:
        r = self.random()
        if r < 0.45:
            return self.other_than(giver, SOMEBODY + ("they",))  # leur has no gender to know
        return self.somebody() if r < 0.62 else self.phrase(self.word(self.people))

    def wanting(self, budget: int, tense: Tense | None) -> Clause:
        """The council refused to sign the treaty."""
        verb, subject, _ = self.core("wanting")
        clause = Clause(subject, verb)
        self.settle(clause, tense)
        clause.often = ""
        clause.negation = "not" if clause.negation else ""
        if clause.tense in ("progressive", "was progressive", "can", "must", "should"):
            clause.tense = "past" if self.frame == "past" else "present"
        inner = self.word(self.tables.doable[is_human(subject)])
        thing = self.acted_on(inner, self.word(self.tables.objects[inner]), definite=bool(clause.negation))
        todo = Clause(subject, inner, object=thing)
        clause.complement = ToDo(todo)
        self.spend(todo, budget - 6 - (not isinstance(subject, Pronoun)), timeless=True)
        return clause

    def existence(self, budget: int) -> Clause | There:
        """There were three horses in the garden."""
        noun = self.word(self.lexicon.nouns[self.pick(("animal", "thing", "vehicle", "person"))])
        if self.first_subject is None and split_of(f"there {noun.lemma}") != self.split:
            return self.doing("transitive", budget)
        phrase = self.phrase(noun, new=True)
        phrase.determiner = self.pick(("", "three", "many", "two", "several")) if phrase.plural else "a"
        if self.first_subject is None:
            self.first_subject = phrase
        self.adorn(phrase, budget - 7)
        return There(phrase, self.place(), "past" if self.frame == "past" else "present")

    # ── more words, where there is room ───────────────────────────────────────────────────────────────────

    def spend(self, clause: Clause, left: int, timeless: bool = False) -> None:
        """Adjectives, places, times and relative clauses until the length is met."""
        verb, subject, thing = clause.verb, clause.subject, clause.object
        timeless = timeless or bool(clause.often) or clause.negation in ("never", "no longer")
        placed = verb.lasting or verb.lemma in self.lists["nowhere"] or clause.tense == "perfect"
        for _ in range(5):
            if left <= 0:
                return
            r = self.random()
            if r < 0.3 and isinstance(thing, Phrase):
                left -= self.adorn(thing, left)
            elif r < 0.52 and isinstance(subject, Phrase):
                left -= self.adorn(subject, left)
            elif r < 0.76 and left > 1 and not placed:
                placed = True
                about = (
                    thing.noun
                    if isinstance(thing, Phrase)
                    else subject.noun
                    if clause.passive and isinstance(subject, Phrase)
                    else None
                )
                official = (
                    verb.lemma == "travel"
                    or verb in self.tables.agent_verbs
                    or about is not None
                    and domain_of(about) in ("affairs", "place")
                )
                place = self.place(official)
                clause.adjuncts.insert(0, place)
                left -= 3 if isinstance(place.thing, Phrase) else 2
            elif not (timeless or self.timed):
                time = self.time(clause.tense)
                if time is None:
                    timeless = True
                    continue
                self.timed = True
                left -= len(time.parts) + (time.kind != "word")
                if subject is self.first_subject and left > 1 and time.kind != "word" and self.chance(0.3):
                    clause.opening = time
                else:
                    clause.adjuncts.append(time)

    def adorn(self, phrase: Phrase, left: int) -> int:
        """One more word about a noun, or a relative clause; says how many words it took."""
        if left <= 0:
            return 0
        if left > 3 and phrase.tail is None and phrase.owner is None and self.chance(0.45):
            taken = self.relative(phrase, left)
            if taken:
                return taken
        return self.describe(phrase, left)

    def relative(self, phrase: Phrase, left: int) -> int:
        """The boy who reads / the book that the boy reads / the village where the boy lives."""
        noun, tables = phrase.noun, self.tables
        tense: Tense = (
            self.pick(("past", "past", "pluperfect")) if self.frame == "past" else self.pick(("present", "past"))
        )
        if self.frame not in ("past", "present"):
            tense = "present"
        if noun.kind in PLACES and self.chance(0.5):
            verb = self.word(tables.verbs["staying"])
            phrase.tail = Relative("place", Clause(self.stranger(verb), verb, tense))
            return 4
        if noun.kind in HUMAN or noun.kind in ("animal", "body"):
            if noun not in tables.with_subject:
                return 0
            verb = self.word(tables.with_subject[noun])
            inner, taken = Clause(phrase, verb, tense), 2
            if verb.objects:
                inner.object = self.acted_on(verb, self.word(tables.objects[verb]))
                taken = 4
                if left > taken:
                    taken += self.describe(inner.object, left - taken)
            elif left > 4 and verb.lemma not in self.lists["nowhere"]:
                inner.adjuncts.append(self.place())
                taken = 5
            phrase.tail = Relative("subject", inner)
        else:
            if noun not in tables.with_object or noun.kind == "topic":
                return 0
            verb = self.word(tables.with_object[noun])
            inner, taken = Clause(self.stranger(verb), verb, tense), 4
            if left > taken and isinstance(inner.subject, Phrase):
                taken += self.describe(inner.subject, left - taken)
            phrase.tail = Relative("object", inner)
        if verb.past == verb.lemma and tense == "past" and not third(inner.subject):
            inner.tense = "pluperfect"
        return taken


def one_scope(subject: Thing) -> None:
    """ "All the kings did not" could mean two things; "the kings did not" means one."""
    if isinstance(subject, Phrase) and subject.determiner in ("all", "every", "many"):
        subject.determiner = "the"


def third(thing: Thing) -> bool:
    if isinstance(thing, Pronoun):
        return thing.word in ("he", "she", "it")
    return not (isinstance(thing, Both) or isinstance(thing, Phrase) and thing.plural)


def is_human(thing: Thing) -> bool:
    if isinstance(thing, Phrase):
        return thing.noun.kind in HUMAN
    return isinstance(thing, Person | Both) or isinstance(thing, Pronoun) and thing.word != "it"

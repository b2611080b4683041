"""Says nouns, names, places and times in both languages at once.

English is written left to right; each part hands back its French as tokens (word, source indices…), so that
every French word knows the English words it says. One with no English of its own belongs to its noun.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from regard.data.world.french import Token, opens_with_vowel
from regard.data.world.lexicon import Adjective, Lexicon, Noun
from regard.data.world.trees import (
    Both,
    City,
    Clause,
    Country,
    Institution,
    Of,
    Person,
    Phrase,
    Place,
    Pronoun,
    Tail,
    Thing,
    Time,
)

Said = tuple[list[Token], int, bool]  # French tokens, person (0 je … 5 ils), feminine

# English subject form: English object form, person, French subject, direct and indirect object
PRONOUNS: dict[str, tuple[str, int, str, str, str]] = {
    "I": ("me", 0, "je", "me", "me"),
    "he": ("him", 2, "il", "le", "lui"),
    "she": ("her", 2, "elle", "la", "lui"),
    "it": ("it", 2, "il", "le", "lui"),
    "we": ("us", 3, "nous", "nous", "nous"),
    "you": ("you", 4, "vous", "vous", "vous"),
    "they": ("them", 5, "ils", "les", "leur"),
}
POSSESSIVES: dict[str, tuple[str, str, str]] = {
    "my": ("mon", "ma", "mes"),
    "your": ("votre", "votre", "vos"),
    "his": ("son", "sa", "ses"),
    "her": ("son", "sa", "ses"),
    "its": ("son", "sa", "ses"),
    "our": ("notre", "notre", "nos"),
    "their": ("leur", "leur", "leurs"),
}
FIXED = {"some": "quelques", "several": "plusieurs", "every": "chaque"}
AN_EXCEPTIONS = ("uni", "use", "eur")
WHERE = {"room": ("in", "dans"), "spot": ("at", "à"), "ground": ("on", "sur")}


class Phrases(ABC):
    """Says things, places and times; one sentence in the making."""

    __slots__ = ("english", "entities", "lexicon", "tags", "uses")

    def __init__(self, lexicon: Lexicon) -> None:
        self.lexicon = lexicon
        self.english: list[str] = []
        self.tags: list[str] = []
        self.entities: list[tuple[int, int, str]] = []
        self.uses: list[tuple[str, str]] = []  # noun-adjective and verb-object lemmas, the rarer kind first

    def say(self, word: str, tag: str) -> int:
        self.english.append(word)
        self.tags.append(tag)
        return len(self.english) - 1

    def mark(self, start: int, label: str) -> None:
        self.entities.append((start, len(self.english), label))

    # ── things ──────────────────────────────────────────────────────────────────────────────────────────────

    def thing(self, thing: Thing, *, negated: bool = False) -> Said:
        if isinstance(thing, Phrase):
            return self.phrase(thing, negated)
        if isinstance(thing, Pronoun):
            return self.pronoun(thing)
        if isinstance(thing, Person):
            return self.person(thing)
        if isinstance(thing, Both):
            first, _, feminine = self.thing(thing.first)
            also = self.say("and", "CCONJ")
            second, _, feminine_too = self.thing(thing.second)
            return [*first, ("et", also), *second], 5, feminine and feminine_too
        if isinstance(thing, Institution):
            return self.institution(thing)
        at = self.say(thing.name, "PROPN")
        self.mark(at, "PLACE")
        if isinstance(thing, City):
            return [(self.lexicon.cities[thing.name], at)], 2, False
        name, feminine = self.lexicon.countries[thing.name]
        return [("LA" if feminine else "LE", at), (name, at)], 2, feminine

    def pronoun(self, pronoun: Pronoun) -> Said:
        _, person, french, _, _ = PRONOUNS[pronoun.word]
        if pronoun.feminine:
            french = french.replace("il", "elle")
        return [(french, self.say(pronoun.word, "PRON"))], person, pronoun.feminine or pronoun.word == "she"

    def person(self, person: Person) -> Said:
        at = self.say(person.given, "PROPN")
        tokens: list[Token] = [(person.given, at)]
        if person.family:
            tokens.append((person.family, self.say(person.family, "PROPN")))
        self.mark(at, "PERSON")
        return tokens, 2, person.feminine

    def institution(self, thing: Institution) -> Said:
        the = self.say("the", "DET")
        where = self.say(thing.where, "PROPN")
        what = self.say(thing.what, "PROPN") if thing.what else -1
        head = self.say(thing.head, "PROPN")
        self.mark(where, "ORG")
        french, feminine = self.lexicon.heads[thing.head]
        tokens: list[Token] = [("LA" if feminine else "LE", the), (french, head)]
        if thing.what:
            tokens.append((self.lexicon.what[thing.what][feminine], what))
        tokens.append((self.lexicon.where[thing.where][feminine], where))
        return tokens, 2, feminine

    def phrase(self, phrase: Phrase, negated: bool = False) -> Said:
        """Determiner, adjective and noun agree; the adjective stands before or after the French noun."""
        noun, plural, adjective = phrase.noun, phrase.plural, phrase.adjective
        feminine = noun.feminine
        owner: list[Token] = []
        determiner = phrase.determiner
        det = -1
        if phrase.owner is not None:
            owned_by, person, _ = self.thing(phrase.owner)
            mark = "'" if person == 5 and self.english[-1].endswith("s") else "'s"
            owner = [("de", self.say(mark, "PART")), *owned_by]
        elif determiner:
            det = self.say(*self.determiner_word(phrase))
            if determiner == "all":
                self.say("the", "DET")
        quality: list[Token] = []
        if adjective is not None:
            quality = self.attribute(adjective, phrase)
        topic = self.say(phrase.topic.lemma, "NOUN") if phrase.topic is not None else -1
        at = self.say(noun.plural if plural else noun.lemma, "NOUN")
        head: list[Token] = [(noun.french[plural], at)]
        if phrase.topic is not None:
            head += [("de", topic), (phrase.topic.french[0], topic)]
        before = adjective is not None and adjective.before
        if adjective is not None:
            head = quality + head if before else head + quality
        link = det if det >= 0 else at
        tokens = self.determiner(phrase, link, head[0][0], before, negated) + head + owner
        if phrase.tail is not None:
            tokens += self.tail(phrase.tail, phrase)
        return tokens, 5 if plural else 2, feminine

    def determiner_word(self, phrase: Phrase) -> tuple[str, str]:
        word = phrase.determiner
        if word == "a":
            follower = phrase.adjective.lemma if phrase.adjective is not None else (phrase.topic or phrase.noun).lemma
            sounds = (
                follower[0].lower() in "aeiou" and follower[:3].lower() not in AN_EXCEPTIONS or follower[:4] == "hone"
            )
            return ("an" if sounds else "a"), "DET"
        if word == "this" and phrase.plural:
            return "these", "DET"
        if word in POSSESSIVES:
            return word, "PRON"
        if word in self.lexicon.calendar["numbers"] or word.isdigit():
            return word, "NUM"
        return word, "ADJ" if word in ("many", "several") else "DET"

    def determiner(self, phrase: Phrase, link: int, follower: str, before: bool, negated: bool) -> list[Token]:
        word, plural, feminine = phrase.determiner, phrase.plural, phrase.noun.feminine
        if word == "the" or phrase.owner is not None or (not word and phrase.noun.kind == "topic"):
            return [("LES" if plural else "LA" if feminine else "LE", link)]
        if word == "a":
            return [("de" if negated else "une" if feminine else "un", link)]
        if phrase.noun.mass and word in ("", "some"):
            return [("de", link)] if negated else [("de", link), ("LA" if feminine else "LE", link)]
        if not word:
            return [("de" if negated or before else "des", link)]
        if word == "this":
            cet = "cet" if opens_with_vowel[follower] else "ce"
            return [("ces" if plural else "cette" if feminine else cet, link)]
        if word in POSSESSIVES:
            mine = POSSESSIVES[word]
            return [(mine[2] if plural else mine[feminine and not opens_with_vowel[follower]], link)]
        if word == "all":
            return [("toutes" if feminine else "tous", link), ("LES", link + 1)]
        if word == "many":
            return [("beaucoup", link), ("de", link)]
        return [(FIXED.get(word) or self.lexicon.calendar["numbers"].get(word, word), link)]

    def attribute(self, adjective: Adjective, phrase: Phrase) -> list[Token]:
        at = self.say(adjective.lemma, "ADJ")
        self.uses.append((adjective.lemma, phrase.noun.lemma))
        form = adjective.forms[phrase.noun.feminine + 2 * phrase.plural]
        masculine = not (phrase.plural or phrase.noun.feminine)
        if masculine and adjective.before and opens_with_vowel[phrase.noun.french[0]]:
            form = adjective.liaison
        return [(form, at)]

    def tail(self, tail: Tail, phrase: Phrase) -> list[Token]:
        if isinstance(tail, Of):
            at = self.say(tail.english, "ADP")
            held, _, feminine = self.thing(tail.thing)
            # le roi d'Espagne, but le roi du Portugal
            bare = tail.french == "de" and feminine and isinstance(tail.thing, Country)
            return [(tail.french, at), *(held[1:] if bare else held)]
        if isinstance(tail, Place):
            return self.place(tail)
        noun, plural = phrase.noun, phrase.plural
        if tail.role == "place":
            at = self.say("where", "ADV")
            return [("où", at), *self.clause(tail.clause)]
        human = noun.kind in ("person", "kin")
        if tail.role == "subject":
            at = self.say("who" if human else "that", "PRON")
            return [
                ("qui", at),
                *self.clause(tail.clause, subject=([], 5 if plural else 2, noun.feminine), whose=noun),
            ]
        at = self.say("that", "PRON")
        self.uses.append((tail.clause.verb.lemma, noun.lemma))
        return [("que", at), *self.clause(tail.clause, fronted_object=noun.feminine + 2 * plural)]

    # ── when and where ─────────────────────────────────────────────────────────────────────────────────────

    def place(self, place: Place) -> list[Token]:
        thing = place.thing
        if isinstance(thing, City):
            return [("à", self.say("in", "ADP")), *self.thing(thing)[0]]
        if isinstance(thing, Country):
            at = self.say("in", "ADP")
            tokens = self.thing(thing)[0]
            french, feminine = self.lexicon.countries[thing.name]
            return [("en", at), tokens[1]] if feminine or opens_with_vowel[french] else [("à", at), *tokens]
        assert isinstance(thing, Phrase)
        english, french = WHERE[thing.noun.kind]
        return [(french, self.say(english, "ADP")), *self.thing(thing)[0]]

    def time(self, time: Time) -> list[Token]:
        kind, parts, calendar = time.kind, time.parts, self.lexicon.calendar
        if kind == "word":
            word = next(calendar[t][parts[0]] for t in ("past", "present", "future") if parts[0] in calendar[t])
            return [(word, self.say(parts[0], "ADV" if parts[0] in ("now", "soon") else "NOUN"))]
        if kind in ("last", "next", "every"):
            how = self.say(kind, "DET" if kind == "every" else "ADJ")
            at = self.say(parts[0], "NOUN")
            gender, french = calendar["periods"][parts[0]].split()
            feminine = gender == "f"
            if kind == "every":
                return [("chaque", how), (french, at)]
            forms = ("dernier", "dernière") if kind == "last" else ("prochain", "prochaine")
            return [("LA" if feminine else "LE", at), (french, at), (forms[feminine], how)]
        if kind == "ago":
            number, span = self.say(parts[0], "NUM"), self.say(parts[1], "NOUN")
            ago = self.say("ago", "ADV")
            count = calendar["numbers"][parts[0]]
            return [("il", ago), ("y", ago), ("a", ago), (count, number), (calendar["spans"][parts[1]], span)]
        if kind == "season":
            at = self.say("in", "ADP")
            return [("en", at), (calendar["periods"][parts[0]].split()[1], self.say(parts[0], "NOUN"))]
        at = self.say("on" if kind in ("date", "day") else "in", "ADP")
        start = at + 1
        if kind == "day":
            day = self.say(parts[0], "PROPN")
            self.mark(start, "DATE")
            return [(calendar["days"][parts[0]], at, day)]
        tokens: list[Token] = [("le" if kind == "date" else "en", at)]
        for part in parts:
            month = calendar["months"].get(part)
            tokens.append((month or part, self.say(part, "PROPN" if month else "NUM")))
        self.mark(start, "DATE")
        return tokens

    @abstractmethod
    def clause(
        self,
        clause: Clause,
        *,
        subject: Said | None = None,
        whose: Noun | None = None,
        fronted_object: int = 0,
    ) -> list[Token]:
        """Says a clause, here one that a noun carries."""

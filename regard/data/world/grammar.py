"""Draws sentences: how long, about what time, and whether it was liked.

A sentence is drawn in this order: its length, its verdict (good, bad or none), its time (past, present,
future), and then clause by clause from the left.
"""

from __future__ import annotations

import math
from bisect import bisect
from itertools import accumulate
from random import Random

from regard.data.world.clauses import Clauses, Frame
from regard.data.world.lexicon import Adjective, Lexicon, Noun
from regard.data.world.tables import HUMAN, Split, Tables, domain_of, split_of
from regard.data.world.trees import (
    Clause,
    Joined,
    Negation,
    Part,
    Phrase,
    Pronoun,
    Quality,
    Question,
    Tense,
    That,
    There,
)

SHORTEST = 3
VERDICTS = (1,) * 3 + (-1,) * 3 + (0,) * 4
CONNECTIVES: dict[Frame, tuple[str, ...]] = {
    "past": ("and", "and", "because", "because", "when", "while", "after", "so", "since"),
    "present": ("and", "and", "because", "because", "when", "while", "so", "since"),
    "future": ("and", "because", "so", "since"),
    "conditional": ("and", "because"),
    "supposed": ("and",),
}
# the tenses of what went on meanwhile, in past and present
ASIDES: dict[str, tuple[Tense, Tense]] = {
    "when": ("past", "present"),
    "while": ("was progressive", "progressive"),
    "after": ("pluperfect", "perfect"),
}


def length_table(longest: int) -> list[float]:
    """Cumulative weights of the lengths 3 … longest: log-normal, mostly short with a real tail."""
    lengths = range(SHORTEST, longest + 1)
    return list(accumulate(math.exp(-0.5 * (math.log(n / 18.5) / 0.6) ** 2) / n for n in lengths))


FRAMES: tuple[Frame, ...] = ("past",) * 6 + ("present",) * 5 + ("future",)


class Grammar(Clauses):
    """Draws trees for one split."""

    def __init__(self, lexicon: Lexicon, tables: Tables, split: Split, rng: Random, longest: int) -> None:
        super().__init__(lexicon, tables, split, rng)
        self.lengths = length_table(longest)
        self.be, self.seem, *self.turns = lexicon.verbs["linking"]

    # ── sentences ──────────────────────────────────────────────────────────────────────────────────────────

    def sentence(self) -> tuple[Part | Question, int]:
        """A tree and its verdict."""
        self.forget()
        budget = SHORTEST - 1 + bisect(self.lengths, self.random() * self.lengths[-1])  # the full stop apart
        verdict = self.pick(VERDICTS)
        if verdict:
            self.frame = "past" if self.chance(0.6) else "present"
            return self.part(budget, verdict), verdict
        self.frame = self.pick(FRAMES)
        if budget < 14 and self.chance(0.12):
            return self.question(budget), 0
        if budget > 12 and self.chance(0.08):
            return self.condition(budget), 0
        return self.part(budget, 0), 0

    def part(self, budget: int, verdict: int) -> Part:
        """One clause, or two joined where there is room."""
        if budget < 10 or (budget < 18 and self.chance(0.6)):
            return self.clause(budget, verdict)
        if not self.reported and self.chance(0.25):
            return self.report(budget, verdict)
        cut = int(budget * (0.35 + 0.3 * self.random()))
        if verdict and not self.contrasted and self.chance(0.45):
            return self.contrast(cut, budget - cut - 2, verdict)
        word = self.pick(CONNECTIVES[self.frame])
        if word in self.joints:
            word = "and"
        self.joints.add(word)
        if word in ASIDES:
            return self.aside(word, min(cut, 12), budget, verdict)
        first, second = (verdict, verdict) if self.chance(0.4) else (verdict, 0) if self.chance(0.4) else (0, verdict)
        return Joined(self.part(cut, first), word, self.part(budget - cut - 1, second))

    def aside(self, word: str, short: int, budget: int, verdict: int) -> Joined:
        """When A , B / B when A: the clause after "when" only tells what went on."""
        past, present = ASIDES[word]
        tense = past if self.frame == "past" else present
        frame = self.pick(("intransitive", "transitive", "transitive"))
        if self.chance(0.5):
            told = self.doing(frame, short, tense)
            return Joined(told, word, self.part(budget - short - 2, verdict), fronted=True)
        main = self.part(budget - short - 1, verdict)
        return Joined(main, word, self.doing(frame, short, tense))

    def contrast(self, first: int, second: int, verdict: int) -> Joined:
        """What comes after "but", or what "although" only concedes to, is the verdict."""
        self.contrasted = True
        r = self.random()
        if r < 0.5:
            return Joined(self.part(first, -verdict), "but", self.part(second, verdict))
        if r < 0.75:
            return Joined(self.clause(min(first, 14), -verdict), "although", self.part(second, verdict), fronted=True)
        return Joined(self.part(first, verdict), "although", self.clause(min(second, 14), -verdict))

    def condition(self, budget: int) -> Joined:
        """If A , B: open (present, future) or supposed (past, would)."""
        opened = self.chance(0.6)
        self.frame = "present" if opened else "supposed"
        first = self.clause(budget // 2, 0, tense="present" if opened else "supposed")
        self.frame = "future" if opened else "conditional"
        return Joined(first, "if", self.clause(budget - budget // 2 - 2, 0), fronted=True)

    def report(self, budget: int, verdict: int) -> Clause:
        """The critics wrote that … / They told us that …"""
        self.reported = True
        telling = self.chance(0.3)
        verb, subject, _ = self.core("telling" if telling else "saying")
        clause = Clause(subject, verb, "past" if self.frame == "past" else "present")
        if telling:
            clause.recipient = self.receiver(subject)
        clause.complement = That(self.part(max(budget - 4 - telling, 4), verdict))
        return clause

    def question(self, budget: int) -> Question:
        """Did the neighbour repair the clock ? Why is Anna laughing ?"""
        frame = "intransitive" if self.chance(0.3) else "transitive"
        clause = self.doing(frame, min(max(budget - 1, 4), 9), asked=True)
        word = self.pick(("", "", "", "why", "why", "when", "where"))
        somewhere, sometime = clause.verb.lemma in self.lists["wherever"], clause.tense in ("past", "future")
        if word == "where" and not somewhere or word == "when" and not sometime:
            word = "why"
        if word:
            clause.adjuncts = []
        return Question(clause, word)

    def clause(self, budget: int, verdict: int, tense: Tense | None = None) -> Clause | There:
        if verdict:
            return self.judgement(budget, verdict)
        r = self.random()
        if self.frame in ("past", "present") and tense is None:
            if r < 0.06 and budget > 5:
                return self.existence(budget)
            if r < 0.18:
                return self.description(budget, 0)
        if r < 0.3 or budget < 4 or budget < 7 and r < 0.5:
            return self.doing("intransitive", budget, tense)
        if budget > 5:
            if r < 0.56 and tense is None:
                return self.undergoing(budget)
            if r < 0.66:
                return self.giving(budget, tense)
            if r < 0.74 and budget > 6:
                return self.wanting(budget, tense)
        return self.doing("transitive", budget, tense)

    # ── verdicts ───────────────────────────────────────────────────────────────────────────────────────────

    def judgement(self, budget: int, verdict: int) -> Clause:
        r = self.random()
        if budget > 4:
            if r < 0.2:
                return self.taste(budget, verdict)
            if r < 0.34 and budget > 5:
                return self.opinion(budget, verdict)
            if r < 0.52:
                return self.fine_work(budget, verdict)
        return self.description(budget, verdict)

    def description(self, budget: int, verdict: int) -> Clause:
        """The film was terribly exciting. The old castle is not ugly. The soup is better than the pie."""
        negation: Negation = "not" if self.chance(0.16) else ""
        wanted = -verdict if negation else verdict
        first = self.first_subject
        adjective, noun, subject = self.matter(wanted)
        left = budget - 4 - bool(negation) + (subject is not None)
        tense: Tense = "past" if self.frame in ("past", "supposed") else "present"
        described = subject or self.phrase(noun, definite=True)
        if first is None:
            self.first_subject, self.scale = described, adjective.scale
        linking = self.be
        if not negation and self.chance(0.15):
            linking = self.seem if verdict or noun.kind not in HUMAN else self.pick(self.turns)
        quality = Quality(adjective)
        if not negation and linking is self.be:
            left -= self.compare(quality, noun, left, verdict)
        plain = negation or quality.than is not None or adjective.strong and not verdict
        if not plain and left > 0 and self.chance(0.6):
            quality.degree = self.pick(self.adverbs["strong" if adjective.strong else "degree"])
            left -= 1
        if isinstance(described, Phrase):
            left -= self.adorn(described, left)
            self.adorn(described, left)
            said = {adjective.scale, quality.first.scale if quality.first else ""}
            if described.adjective is not None and described.adjective.scale in said:
                described.adjective = None
        return Clause(described, linking, tense, negation, complement=quality)

    def matter(self, verdict: int) -> tuple[Adjective, Noun, Pronoun | None]:
        """What is said of what: now and then of the first subject again, otherwise of something near it."""
        first, tables = self.first_subject, self.tables
        if isinstance(first, Phrase) and self.chance(0.4):
            options = tables.adjectives.get((first.noun, verdict))
            again = self.word(options) if options else None
            if again is not None and again.predicative and again.scale != self.scale:
                return again, first.noun, self.pronoun_for(first)
        tries = 4
        while True:
            adjective = self.word(tables.by_verdict[verdict])
            noun = self.word(tables.nouns[adjective])
            tries -= 1
            if first is not None:
                if not tries or not self.domain or domain_of(noun) == self.domain:
                    return adjective, noun, None
            elif split_of(f"{noun.lemma} be {adjective.lemma}") == self.split:
                self.domain = domain_of(noun)
                return adjective, noun, None

    def compare(self, quality: Quality, noun: Noun, left: int, verdict: int) -> int:
        """Older than the bridge; long but exciting. Says how many words it took."""
        adjective, r = quality.adjective, self.random()
        if left > 2 and r < 0.15 and not adjective.strong:
            others = [n for n in self.tables.nouns[adjective] if n.kind == noun.kind and n is not noun]
            if others:
                quality.than = self.phrase(self.word(others), definite=True)
                return 3
        if left > 1 and r > 0.7:
            joint = self.pick(("and", "but", "but")) if verdict else "and"
            side = verdict if joint == "and" else -verdict if self.chance(0.6) else 0
            options = self.tables.adjectives.get((noun, side))
            other = self.word(options) if options else adjective
            if other.scale != adjective.scale and other.predicative:
                quality.first, quality.joint = other, joint
                return 2
        return 0

    def taste(self, budget: int, verdict: int) -> Clause:
        """The children loved the film."""
        first = self.first_subject is None
        negation: Negation = "not" if self.chance(0.2) else ""
        liked = verdict * (-1 if negation else 1)
        verb, subject, noun = self.core("liking" if liked > 0 else "disliking")
        assert noun is not None
        clause = Clause(subject, verb, "past" if self.frame == "past" else "present", negation)
        clause.object = self.phrase(noun, definite=True)
        if first:
            self.first_object = clause.object
        self.spend(clause, budget - 4 - (not isinstance(subject, Pronoun)) - 2 * bool(negation), timeless=True)
        return clause

    def opinion(self, budget: int, verdict: int) -> Clause:
        """The critics found the long novel awfully boring."""
        first = self.first_subject is None
        verb, subject, _ = self.core("judging")
        adjective = self.word(self.tables.by_verdict[verdict])
        noun = self.word(self.tables.nouns[adjective])
        thing = self.phrase(noun, definite=True)
        if first:
            self.first_object, self.domain = thing, domain_of(noun)
        left = budget - 5 - (not isinstance(subject, Pronoun))
        degree = ""
        if left > 0 and self.chance(0.6):
            degree = self.pick(self.adverbs["strong" if adjective.strong else "degree"])
            left -= 1
        if left > 0:
            self.describe(thing, min(left, 2))
        if isinstance(subject, Phrase) and left > 2:
            self.adorn(subject, left - 1)
        tense: Tense = "past" if self.frame == "past" else "present"
        return Clause(subject, verb, tense, object=thing, complement=Quality(adjective, degree))

    def fine_work(self, budget: int, verdict: int) -> Clause:
        """The baker prepared a delicious cake. The actress sang beautifully."""
        if budget < 6 or self.chance(0.3):
            verb, subject, _ = self.core("performing")
            clause = Clause(subject, verb, manner=self.pick(self.adverbs["well" if verdict > 0 else "badly"]))
            left = budget - 3
        else:
            first = self.first_subject is None
            verb, subject, noun = self.core("savouring" if verdict > 0 else "suffering", verdict)
            assert noun is not None
            thing = self.phrase(noun, new=True)
            thing.adjective = self.word(self.tables.adjectives[noun, verdict])
            if first:
                self.first_object = thing
            clause = Clause(subject, verb, object=thing)
            left = budget - 5
        clause.tense = self.pick(("past",) if self.frame == "past" else ("present", "perfect"))
        self.show_tense(clause)
        self.spend(clause, left - (not isinstance(subject, Pronoun)) - (clause.tense == "perfect"))
        return clause

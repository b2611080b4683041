"""Questions about a sentence of the little world, with their answers: who does it, what, where and when.

Who signed the treaty ?  The doctor signed what ?  The doctor signed the treaty where ?  The words of a question are
those of its sentence; the answer is a phrase of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from regard.data.world.french import Token
from regard.data.world.lexicon import Lexicon
from regard.data.world.phrases import Said
from regard.data.world.tables import HUMAN
from regard.data.world.trees import Both, Clause, Joined, Part, Person, Phrase, Place, Pronoun, Question, Thing, Time
from regard.data.world.writer import Writer

FEWEST, MOST = 3, 4  # answers to choose from
REMEMBERED = 50  # phrases of other sentences, which can be wrong answers


@dataclass(frozen=True, slots=True)
class Asked:
    text: str
    question: str
    answer: str
    start: int  # where the answer starts in the text, in characters
    choices: tuple[str, ...]  # the answer among others, each as it is written inside a sentence

    @property
    def right(self) -> str:
        """The right choice."""
        return next(choice for choice in self.choices if choice[1:] == self.answer[1:])


@dataclass(frozen=True, slots=True)
class Role:
    """A phrase, and the question that it answers; places in words."""

    kind: str
    start: int
    end: int
    question: tuple[str, ...]


class Noter(Writer):
    """Says one sentence, and notes where its things, places and times are."""

    __slots__ = ("spans",)

    def __init__(self, lexicon: Lexicon) -> None:
        super().__init__(lexicon)
        self.spans: dict[int, tuple[int, int]] = {}  # by the identity of a part of the tree

    def thing(self, thing: Thing, *, negated: bool = False) -> Said:
        start = len(self.english)
        said = super().thing(thing, negated=negated)
        self.spans[id(thing)] = start, len(self.english)
        return said

    def place(self, place: Place) -> list[Token]:
        start = len(self.english)
        said = super().place(place)
        self.spans[id(place)] = start, len(self.english)
        return said

    def time(self, time: Time) -> list[Token]:
        start = len(self.english)
        said = super().time(time)
        self.spans[id(time)] = start, len(self.english)
        return said

    def roles(self, tree: Part | Question) -> Iterator[Role]:
        """Who does what, where and when, in each clause that says who does something to what."""
        for clause in clauses_of(tree):
            if clause.passive or clause.complement or clause.recipient or clause.object is None:
                continue
            if isinstance(clause.object, Pronoun) or isinstance(clause.subject, Pronoun):
                continue
            (start, after), (what, end) = self.spans[id(clause.subject)], self.spans[id(clause.object)]
            words = tuple(self.english)
            yield Role("who", start, after, ("who" if is_human(clause.subject) else "what", *words[after:end]))
            yield Role("what", what, end, (*words[start:what], "what"))
            for adjunct in clause.adjuncts:
                asks = "where" if isinstance(adjunct, Place) else "when"
                yield Role(asks, *self.spans[id(adjunct)], (*words[start:end], asks))


def clauses_of(tree: Part | Question) -> Iterator[Clause]:
    if isinstance(tree, Joined):
        yield from clauses_of(tree.first)
        yield from clauses_of(tree.second)
    elif isinstance(tree, Clause):
        yield tree


def is_human(thing: Thing) -> bool:
    return isinstance(thing, Person | Both) or (isinstance(thing, Phrase) and thing.noun.kind in HUMAN)


class Asker:
    """Asks one question about each sentence that answers any."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.others: list[tuple[str, str]] = []  # kind and words of phrases of the sentences before

    def ask(self, noter: Noter, tree: Part | Question) -> Asked | None:
        roles = list(noter.roles(tree))
        if not roles:
            return None
        role = self.random.choice(roles)
        words = noter.english
        said = {each: self.inside(noter, each) for each in roles}
        answer = said[role]
        wrong = list({text: 0 for each, text in said.items() if each.kind != role.kind and text != answer})
        self.random.shuffle(wrong)
        wrong += [text for kind, text in reversed(self.others) if kind != role.kind and text not in (answer, *wrong)]
        wrong = [text for text in wrong if text[1:] != answer[1:]]
        choices = [answer, *wrong[: self.random.randint(FEWEST, MOST) - 1]]
        self.random.shuffle(choices)
        self.others = [*self.others, *((each.kind, text) for each, text in said.items())][-REMEMBERED:]
        if len(choices) < FEWEST:
            return None
        text, question = " ".join(words), " ".join([*role.question, "?"])
        start = len(" ".join(words[: role.start])) + (role.start > 0)
        return Asked(text, question, " ".join(words[role.start : role.end]), start, tuple(choices))

    @staticmethod
    def inside(noter: Noter, role: Role) -> str:
        """A phrase as it is written inside a sentence: without the capital of a first word that is not a name."""
        text = " ".join(noter.english[role.start : role.end])
        first = role.start == 0 and noter.tags[0] != "PROPN"
        return text[0].lower() + text[1:] if first else text

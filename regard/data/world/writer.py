"""Says a whole tree: clauses, what joins them, and the two sentences at the end.

Each part hands back its French for the parent to put in French order; elision and contraction come last, when
neighbours are known.
"""

from __future__ import annotations

from regard.data.world.french import Token, join
from regard.data.world.lexicon import Noun, Verb
from regard.data.world.phrases import PRONOUNS, Said
from regard.data.world.trees import (
    Both,
    Clause,
    Part,
    Phrase,
    Place,
    Pronoun,
    Quality,
    Question,
    That,
    There,
    Thing,
    ToDo,
)
from regard.data.world.verbs import REFLEXIVES, Verbs, english_forms

CONNECTIVES: dict[str, tuple[str, ...]] = {
    "and": ("et",),
    "but": ("mais",),
    "because": ("parce", "que"),
    "when": ("quand",),
    "while": ("pendant", "que"),
    "although": ("même", "si"),
    "if": ("si",),
    "since": ("puisque",),
    "after": ("après", "que"),
    "so": ("donc",),
}
AFTER_A_COMMA = frozenset({"but", "although", "so"})


class Writer(Verbs):
    """Says one sentence."""

    __slots__ = ()

    def clause(
        self,
        clause: Clause,
        *,
        subject: Said | None = None,
        whose: Noun | None = None,
        fronted_object: int = 0,
        question: str | None = None,
    ) -> list[Token]:
        verb = clause.verb
        tokens: list[Token] = []
        if clause.opening is not None:
            tokens = [*self.time(clause.opening), (",", self.say(",", "PUNCT"))]
        helper = -1
        if question is not None:
            helper, asked = self.ask(clause, question)
            tokens += asked
        said, person, feminine = subject or self.thing(clause.subject)
        tokens += said
        group = self.english_verb(clause, person, helper)
        clitics: list[Token] = []
        after: list[Token] = []
        receiver: list[Token] = []
        if clause.recipient is not None:
            if isinstance(clause.recipient, Pronoun):
                english, _, _, _, french = PRONOUNS[clause.recipient.word]
                clitics.append((french, self.say(english, "PRON")))
            else:
                start = len(self.english)
                heard = self.thing(clause.recipient)[0]
                receiver = [("à", self.head_after(start)), *heard]
        if isinstance(clause.object, Pronoun):
            word = clause.object.word
            english, object_person, _, direct, _ = PRONOUNS[word]
            object_feminine = clause.object.feminine or word == "she"
            if word == "it" and object_feminine:
                direct = "la"
            clitics.append((direct, self.say(english, "PRON")))
            fronted_object = object_feminine + 2 * (object_person > 2)
            agreement = fronted_object
        elif clause.object is not None:
            if verb.preposition:
                # talk about → parler de, but answer → répondre à
                link = group.particle if group.particle >= 0 else group.verb
                after = [(verb.preposition, link), *self.thing(clause.object)[0]]
                agreement = 0
            else:
                after, object_person, object_feminine = self.thing(clause.object, negated=bool(clause.negation))
                agreement = object_feminine + 2 * (object_person > 2)
            self.use_objects(verb, clause.object)
        else:
            agreement = feminine + 2 * (person > 2)
        if clause.passive:
            self.use_objects(verb, clause.subject)
        tokens += self.french_verb(clause, person, feminine, group, clitics, fronted_object)
        tokens += after
        tokens += receiver
        if clause.complement is not None:
            of = clause.object if clause.object is not None else whose or clause.subject
            tokens += self.complement(clause, agreement, of)
        if clause.agent is not None:
            tokens.append(("par", self.say("by", "ADP")))
            tokens += self.thing(clause.agent)[0]
        for adjunct in clause.adjuncts:
            tokens += self.place(adjunct) if isinstance(adjunct, Place) else self.time(adjunct)
        return tokens

    def head_after(self, start: int) -> int:
        """The first noun or name from start on."""
        return next(i for i in range(start, len(self.tags)) if self.tags[i] in ("NOUN", "PROPN"))

    def use_objects(self, verb: Verb, thing: Thing) -> None:
        if isinstance(thing, Phrase):
            self.uses.append((verb.lemma, thing.noun.lemma))
        elif isinstance(thing, Both):
            self.use_objects(verb, thing.first)
            self.use_objects(verb, thing.second)

    def ask(self, clause: Clause, word: str) -> tuple[int, list[Token]]:
        """Why did … / Pourquoi est-ce que …"""
        tokens: list[Token] = []
        if word:
            french = {"why": "pourquoi", "when": "quand", "where": "où"}[word]
            tokens.append((french, self.say(word, "ADV")))
        person = person_of(clause.subject)
        helpers, _ = english_forms(clause, person, True)
        helper = self.say(helpers[0], "AUX")
        return helper, [*tokens, ("est-ce", helper), ("que", helper)]

    def complement(self, clause: Clause, agreement: int, of: Thing | Noun) -> list[Token]:
        complement = clause.complement
        if isinstance(complement, Quality):
            return self.quality(complement, agreement, of)
        if isinstance(complement, That):
            return [("que", self.say("that", "SCONJ")), *self.part(complement.clause)]
        if isinstance(complement, ToDo):
            return self.to_do(clause, complement.clause)
        assert isinstance(complement, Phrase)
        return self.thing(complement)[0]

    def quality(self, quality: Quality, agreement: int, of: Thing | Noun) -> list[Token]:
        adjective = quality.adjective
        noun = of.noun if isinstance(of, Phrase) else of if isinstance(of, Noun) else None
        if noun is not None:
            self.uses.append((adjective.lemma, noun.lemma))
        tokens: list[Token] = []
        if quality.first is not None:
            if noun is not None:
                self.uses.append((quality.first.lemma, noun.lemma))
            tokens.append((quality.first.forms[agreement], self.say(quality.first.lemma, "ADJ")))
            tokens.append((CONNECTIVES[quality.joint][0], self.say(quality.joint, "CCONJ")))
        if quality.than is None:
            if quality.degree:
                degrees = self.lexicon.adverbs["strong" if adjective.strong else "degree"]
                tokens.append((degrees[quality.degree], self.say(quality.degree, "ADV")))
            return [*tokens, (adjective.forms[agreement], self.say(adjective.lemma, "ADJ"))]
        if adjective.more:
            more = at = self.say(adjective.more, "ADJ")
        else:
            more, at = self.say("more", "ADV"), self.say(adjective.lemma, "ADJ")
        if adjective.better:
            tokens = [(adjective.better[agreement], at)]
        else:
            tokens = [("plus", more), (adjective.forms[agreement], at)]
        tokens.append(("que", self.say("than", "ADP")))
        return tokens + self.thing(quality.than)[0]

    def to_do(self, clause: Clause, inner: Clause) -> list[Token]:
        to = self.say("to", "PART")
        at = self.say(inner.verb.lemma, "VERB")
        preposition = clause.verb.preposition
        tokens: list[Token] = [(preposition, to)] if preposition else []
        infinitive: Token = (
            (inner.verb.french.infinitive, at) if preposition else (inner.verb.french.infinitive, to, at)
        )
        if inner.verb.particle:
            particle = self.say(inner.verb.particle, "ADP")
            if not inner.verb.preposition:
                infinitive = (*infinitive, particle)
        if inner.verb.french.reflexive:
            tokens.append((REFLEXIVES[person_of(clause.subject)], at))
        tokens.append(infinitive)
        if inner.object is not None:
            if inner.verb.preposition:
                tokens.append((inner.verb.preposition, len(self.english) - 1))
            tokens += self.thing(inner.object)[0]
            self.use_objects(inner.verb, inner.object)
        for adjunct in inner.adjuncts:
            tokens += self.place(adjunct) if isinstance(adjunct, Place) else self.time(adjunct)
        return tokens

    def there(self, there: There) -> list[Token]:
        at = self.say("there", "PRON")
        plural = there.thing.plural
        english = {"present": ("is", "are"), "past": ("was", "were")}[there.tense][plural]
        be = self.say(english, "VERB")
        french = "a" if there.tense == "present" else "avait"
        return [("il", at), ("y", at), (french, be), *self.thing(there.thing)[0], *self.place(there.place)]

    def part(self, part: Part) -> list[Token]:
        if isinstance(part, Clause):
            return self.clause(part)
        if isinstance(part, There):
            return self.there(part)
        tag = "CCONJ" if part.word in ("and", "but", "so") else "SCONJ"
        if part.fronted:
            at = self.say(part.word, tag)
            tokens = self.part(part.first)
            comma: Token = (",", self.say(",", "PUNCT"))
            return [*((w, at) for w in CONNECTIVES[part.word]), *tokens, comma, *self.part(part.second)]
        tokens = self.part(part.first)
        if part.word in AFTER_A_COMMA:
            tokens.append((",", self.say(",", "PUNCT")))
        at = self.say(part.word, tag)
        return [*tokens, *((w, at) for w in CONNECTIVES[part.word]), *self.part(part.second)]

    def sentence(self, sentence: Part | Question) -> tuple[list[str], list[tuple[int, int]]]:
        """The French words and the links; the English stays in the writer."""
        if isinstance(sentence, Question):
            tokens = self.clause(sentence.clause, question=sentence.word)
            tokens.append(("?", self.say("?", "PUNCT")))
        else:
            tokens = self.part(sentence)
            tokens.append((".", self.say(".", "PUNCT")))
        words, links = join(tokens)
        words[0] = words[0][0].upper() + words[0][1:]
        self.english[0] = self.english[0][0].upper() + self.english[0][1:]
        return words, links


def person_of(thing: Thing) -> int:
    if isinstance(thing, Pronoun):
        return PRONOUNS[thing.word][1]
    return 5 if isinstance(thing, Both) or isinstance(thing, Phrase) and thing.plural else 2

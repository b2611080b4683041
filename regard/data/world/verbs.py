"""Says the verb: English helpers, negation and tense against French endings, clitics and participles.

will not be signed / ne sera pas signé        had never seen her / ne l' avait jamais vue
"""

from __future__ import annotations

from dataclasses import dataclass

from regard.data.world.french import Token
from regard.data.world.phrases import Phrases
from regard.data.world.trees import Clause, Tense

REFLEXIVES = ("me", "te", "se", "nous", "vous", "se")
BE_PRESENT = ("am", "are", "is", "are", "are", "are")
BE_PAST = ("was", "were", "was", "were", "were", "were")
HELPERS: dict[str, tuple[str, ...]] = {
    "future": ("will",),
    "conditional": ("would",),
    "can": ("can",),
    "must": ("must",),
    "should": ("should",),
    "pluperfect": ("had",),
}
# where the French tense has another name
FRENCH_TENSES: dict[Tense, str] = {
    "progressive": "present",
    "was progressive": "imperfect",
    "supposed": "imperfect",
    "can": "modal",
    "must": "modal",
    "should": "modal",
}
NEGATIONS = {"not": "pas", "never": "jamais", "no longer": "plus"}
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
MANNERS = ("manner", "well", "badly")


@dataclass(slots=True)
class Group:
    """Where the words of an English verb group stand; −1 for none."""

    helpers: list[int]
    verb: int
    negation: list[int]
    often: int
    manner: int
    particle: int


class Verbs(Phrases):
    """Says verb groups."""

    __slots__ = ()

    def english_verb(self, clause: Clause, person: int, question_helper: int = -1) -> Group:
        """Says the English verb group; gives the places of its words."""
        verb, negation = clause.verb, clause.negation
        helpers, main = english_forms(clause, person, negation == "not" or question_helper >= 0)
        said = [question_helper] if question_helper >= 0 else []
        no: list[int] = []
        often = manner = particle = at = -1
        be = verb.lemma == "be" and not helpers
        if be:
            at = self.say(main, "AUX")
        elif helpers and not said:
            if helpers[0] == "can" and negation == "not":
                said.append(self.say("cannot", "AUX"))
                no.append(said[0])
            else:
                said.append(self.say(helpers[0], "AUX"))
        if negation and not no:
            no = [self.say(word, "PART" if word == "not" else "ADV") for word in negation.split()]
        if clause.often:
            often = self.say(clause.often, "ADV")
        for helper in helpers[1:]:
            said.append(self.say(helper, "AUX"))
        early = bool(clause.manner) and clause.object is not None
        if early:
            manner = self.say(clause.manner, "ADV")
        if not be:
            at = self.say(main, "AUX" if verb.lemma == "be" else "VERB")
        if verb.particle and not clause.passive:
            particle = self.say(verb.particle, "ADP")
        if clause.manner and not early:
            manner = self.say(clause.manner, "ADV")
        return Group(said, at, no, often, manner, particle)

    def french_verb(
        self,
        clause: Clause,
        person: int,
        feminine: bool,
        group: Group,
        clitics: list[Token],
        fronted_object: int,
    ) -> list[Token]:
        """ne clitics finite pas often participle manner"""
        said, at, no = group.helpers, group.verb, group.negation
        # a particle French has no word for belongs to its verb: look at / regarder
        extra = (group.particle,) if group.particle >= 0 and not clause.verb.preposition else ()
        verb, tense = clause.verb, clause.tense
        french = verb.french
        agreement = feminine + 2 * (person > 2)
        auxiliaries = self.lexicon.auxiliaries
        if french.reflexive:
            clitics = [(REFLEXIVES[person], at)]
        simple = french_tense(tense, verb.lasting)
        rest: list[Token] = []
        late: list[Token] = []  # clitics that wait for the infinitive
        if simple == "modal":
            modal = auxiliaries["pouvoir" if tense == "can" else "devoir"]
            form = modal.tenses["conditional" if tense == "should" else "present"]
            finite: Token = (form[person], said[0])
            late, clitics = clitics, []
            if clause.passive:
                rest = [("être", said[-1]), (french.participle[agreement], at)]
            else:
                rest = [(french.infinitive, at, *extra)]
        elif simple in ("perfect", "pluperfect"):
            helper = auxiliaries["être" if french.with_etre and not clause.passive else "avoir"]
            forms = helper.tenses["present" if simple == "perfect" else "imperfect"]
            finite = (forms[person], said[0] if said else at)
            if clause.passive:
                rest = [("été", said[-1]), (french.participle[agreement], at)]
            elif french.with_etre:
                rest = [(french.participle[agreement], at, *extra)]
            else:
                rest = [(french.participle[fronted_object], at, *extra)]
        else:
            conjugation = auxiliaries["être"] if clause.passive else french
            forms = conjugation.tenses[simple]
            if clause.passive:
                finite = (forms[person], *said)
                rest = [(french.participle[agreement], at)]
            else:
                finite = (forms[person], *said, at, *extra)
        tokens: list[Token] = [("ne", *no)] if no else []
        tokens += clitics
        tokens.append(finite)
        if no:
            tokens.append((NEGATIONS[clause.negation], *no))
        if clause.often:
            tokens.append((self.lexicon.adverbs["often"][clause.often], group.often))
        tokens += late
        tokens += rest
        if clause.manner:
            adverbs = self.lexicon.adverbs
            word = next(adverbs[how][clause.manner] for how in MANNERS if clause.manner in adverbs[how])
            # mal is short enough to stand before the participle
            tokens.insert(len(tokens) - (len(rest) if word == "mal" else 0), (word, group.manner))
        return tokens


def french_tense(tense: Tense, lasting: bool) -> str:
    """Which French tense says an English one: he signed / il a signé, but he knew / il savait."""
    if tense == "past":
        return "imperfect" if lasting else "perfect"
    return FRENCH_TENSES.get(tense, tense)


def english_forms(clause: Clause, person: int, needs_helper: bool) -> tuple[tuple[str, ...], str]:
    """Helpers and verb form: (("has", "been"), "signed")."""
    verb, tense = clause.verb, clause.tense
    third = person == 2
    be = verb.lemma == "be"
    if tense in ("present", "past", "supposed"):
        forms = BE_PRESENT if tense == "present" else BE_PAST
        if clause.passive:
            return (forms[person],), verb.done
        if be:
            return (), forms[person]
        if needs_helper:
            return ("did" if tense != "present" else "does" if third else "do",), verb.lemma
        return (), verb.past if tense != "present" else verb.third if third else verb.lemma
    if tense == "progressive":
        return (BE_PRESENT[person],), verb.doing
    if tense == "was progressive":
        return (BE_PAST[person],), verb.doing
    if tense in ("perfect", "pluperfect"):
        have = "had" if tense == "pluperfect" else "has" if third else "have"
        return ((have, "been") if clause.passive else (have,)), verb.done
    helpers = HELPERS[tense]
    return ((*helpers, "be"), verb.done) if clause.passive else (helpers, verb.lemma)

"""Which words go together, and which of these meetings training never sees.

reserved(a, b) = crc32("a b") mod 100 < 15     a fixed share of adjective-noun and verb-object lemma pairs
split_of(core) = crc32(core) mod 20            0 test, 1 valid, else train; the core is who does what to whom
                                               in the first clause, names masked
"""

from __future__ import annotations

from typing import Literal
from zlib import crc32

from regard.data.world.lexicon import Adjective, Lexicon, Noun, Verb

Split = Literal["train", "valid", "test"]

RESERVED = 15  # per cent
HUMAN = ("person", "kin")
PLACES = ("room", "spot", "ground")
SUBJECTS = {
    "table": ("dish", "food", "drink"),
    "culture": ("show", "art", "text", "instrument"),
    "place": PLACES,
    "affairs": ("document", "idea", "event", "body", "topic"),
    "home": ("thing", "opening", "case", "clothing"),
}
DOMAINS = {kind: domain for domain, kinds in SUBJECTS.items() for kind in kinds}


def reserved(first: str, second: str) -> bool:
    return crc32(f"{first} {second}".encode()) % 100 < RESERVED


def split_of(core: str) -> Split:
    bucket = crc32(core.encode()) % 20
    return "test" if bucket == 0 else "valid" if bucket == 1 else "train"


def domain_of(noun: Noun) -> str:
    """What a sentence about this noun is about."""
    return DOMAINS.get(noun.kind, noun.kind)


class Tables:
    """The lexicon turned round: from a word to the words it may meet, with or without the reserved pairs."""

    def __init__(self, lexicon: Lexicon, held_out: bool) -> None:
        def allowed(first: str, second: str) -> bool:
            return held_out or not reserved(first, second)

        nouns = [noun for kind in lexicon.nouns.values() for noun in kind]
        verbs = {frame: list(entries) for frame, entries in lexicon.verbs.items()}
        self.nouns: dict[Adjective, list[Noun]] = {
            a: [n for n in nouns if n in a.nouns and allowed(a.lemma, n.lemma)] for a in lexicon.adjectives
        }
        self.adjectives: dict[tuple[Noun, int], list[Adjective]] = {}  # by noun and verdict
        for adjective, fits in self.nouns.items():
            for noun in fits:
                self.adjectives.setdefault((noun, adjective.verdict), []).append(adjective)
        self.by_verdict = {
            verdict: [a for a in lexicon.adjectives if a.verdict == verdict and self.nouns[a] and a.predicative]
            for verdict in (-1, 0, 1)
        }
        self.objects: dict[Verb, list[Noun]] = {
            v: [n for n in v.objects if allowed(v.lemma, n.lemma)] for entries in verbs.values() for v in entries
        }
        verbs["transitive"] = [v for v in verbs["transitive"] if self.objects[v]]
        verbs["passive"] = [v for v in verbs["transitive"] if not (v.preposition or v.particle)]
        for verdict, frame in ((1, "savouring"), (-1, "suffering")):
            verbs[frame] = [
                v
                for v in verbs["transitive"]
                if v.lemma in lexicon.lists["savoured"]
                and any((n, verdict) in self.adjectives for n in self.objects[v])
            ]
        self.verbs = verbs  # by frame
        self.with_object: dict[Noun, list[Verb]] = {}
        for verb in verbs["passive"]:
            for noun in self.objects[verb]:
                self.with_object.setdefault(noun, []).append(verb)
        self.with_subject: dict[Noun, list[Verb]] = {}
        for verb in verbs["intransitive"] + verbs["transitive"]:
            for noun in verb.subjects:
                self.with_subject.setdefault(noun, []).append(verb)
        # institutions speak in the passive, above all of documents
        official = [v for v in verbs["passive"] if any(n.kind == "body" for n in v.subjects)]
        signed = [v for v in official if any(n.kind == "document" for n in v.objects)]
        verbs["passive"] += 2 * official + 8 * signed
        verbs["transitive"] += 2 * signed
        everything = [v for entries in verbs.values() for v in entries]
        self.human_verbs = frozenset(v for v in everything if any(n.lemma == "doctor" for n in v.subjects))
        self.agent_verbs = frozenset(v for v in everything if any(n.lemma == "government" for n in v.subjects))
        self.doable = {
            human: [
                v
                for v in verbs["transitive"]
                if not v.lasting and v in (self.human_verbs if human else self.agent_verbs)
            ]
            for human in (True, False)
        }
        self.compounds: dict[Noun, list[Noun]] = {}
        for topic, noun in lexicon.compounds:
            self.compounds.setdefault(noun, []).append(topic)

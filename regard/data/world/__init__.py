"""The built-in corpus: a little grammar that writes English-French pairs without end.

Each pair knows its gold word alignment, parts of speech, named entities and verdict. The French is a function
of the English, so a perfect translator scores 100 BLEU.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from itertools import chain, islice
from random import Random
from typing import get_args

from regard.data.world.grammar import SHORTEST, Grammar
from regard.data.world.lexicon import lexicon
from regard.data.world.questions import Asked, Asker, Noter
from regard.data.world.tables import Split, Tables, reserved
from regard.data.world.trees import Clause, Institution, Of, Part, Phrase, Pronoun, Question, Time
from regard.data.world.writer import Writer

__all__ = [
    "SHORTEST",
    "SHOWN",
    "Asked",
    "Pair",
    "Split",
    "dictionary",
    "example",
    "held_out",
    "lemma_of",
    "lemmas",
    "masked",
    "pairs",
    "questions",
    "reserved",
]

# held out of training, shown by the demo
SHOWN: tuple[str, ...] = (
    "They are watching .",
    "The treaty on the European Economic Area was signed in March 1994 .",
)


@dataclass(frozen=True, slots=True)
class Pair:
    source: tuple[str, ...]  # English words; punctuation and 's are words
    target: tuple[str, ...]  # French words; l', d', n', j', qu' are words
    links: tuple[tuple[int, int], ...]  # gold alignment: (source index, target index), sorted
    tags: tuple[str, ...]  # universal part of speech of each source word
    entities: tuple[tuple[int, int, str], ...]  # (start, end, label) over source words: PERSON PLACE ORG DATE
    sentiment: str  # positive, negative or neutral
    uses: tuple[tuple[str, str], ...]  # (adjective, noun) and (verb, object) lemmas said together


def pairs(split: Split, *, seed: int = 0, longest: int = 50) -> Iterator[Pair]:
    """Endless pairs of one split; the splits share no sentence, even with names and numbers exchanged."""
    for tree, verdict in _trees(split, Random(f"{split} {seed}"), longest):
        pair = _write(Writer(lexicon()), tree, verdict)
        if len(pair.source) <= longest and not (split == "train" and held_out(pair)):
            yield pair


def questions(split: Split, *, seed: int = 0, longest: int = 50) -> Iterator[Asked]:
    """Endless questions about sentences of one split."""
    asker = Asker(Random(f"questions {split} {seed}"))
    for tree, verdict in _trees(split, Random(f"{split} {seed}"), longest):
        noter = Noter(lexicon())
        pair = _write(noter, tree, verdict)
        if len(pair.source) <= longest and not (split == "train" and held_out(pair)):
            asked = asker.ask(noter, tree)
            if asked is not None:
                yield asked


def _trees(split: Split, random: Random, longest: int) -> Iterator[tuple[Part | Question, int]]:
    if split not in get_args(Split):
        raise ValueError(f"no split {split!r}: choose one of {', '.join(get_args(Split))}")
    if longest < SHORTEST:
        raise ValueError(f"no sentence is as short as {longest} words: longest must be at least {SHORTEST}")
    grammar = Grammar(lexicon(), _tables(split != "train"), split, random, longest)
    while True:
        yield grammar.sentence()


def held_out(pair: Pair) -> bool:
    """Whether training may not see it: it says a reserved combination, or a shown sentence."""
    return (
        any(map(_is_reserved, pair.uses))
        or len(pair.source) in _shown_masks()
        and masked(pair) in _shown_masks().values()
    )


def _write(writer: Writer, tree: Part | Question, verdict: int) -> Pair:
    words, links = writer.sentence(tree)
    links.sort()
    return Pair(
        tuple(writer.english), tuple(words), tuple(links), tuple(writer.tags), tuple(writer.entities),
        ("neutral", "positive", "negative")[verdict], tuple(writer.uses),
    )  # fmt: skip


def masked(pair: Pair) -> tuple[str, ...]:
    """The source with every name, date and number replaced by its class."""
    words: list[str] = []
    spans = {start: (end, label) for start, end, label in pair.entities}
    at = 0
    while at < len(pair.source):
        end, label = spans.get(at, (at + 1, "NUM" if pair.tags[at] == "NUM" else pair.source[at]))
        words.append(label)
        at = end
    return tuple(words)


def example(text: str) -> Pair:
    """The pair of a sentence in SHOWN, written by the grammar's own writer."""
    if text not in SHOWN:
        raise ValueError(f"no example {text!r}: the shown sentences are {', '.join(map(repr, SHOWN))}")
    return _shown()[text]


@cache
def lemma_of() -> dict[str, str]:
    """English word form to lemma, for every content word of the lexicon."""
    words = lexicon()
    forms: dict[str, str] = {}
    for noun in (n for kind in words.nouns.values() for n in kind):
        forms |= {noun.lemma: noun.lemma, noun.plural: noun.lemma}
    for adjective in words.adjectives:
        forms |= {f: adjective.lemma for f in (adjective.lemma, adjective.more) if f}
    for verb in (v for frame in words.verbs.values() for v in frame):
        for form in (verb.lemma, verb.third, verb.past, verb.done, verb.doing):
            forms.setdefault(form, verb.lemma)
    tables: list[Iterable[str]] = [words.cities, words.countries, words.where, words.what, words.heads]
    tables += [words.men, words.women, words.families, *words.adverbs.values(), *words.calendar.values()]
    for word in chain.from_iterable(tables):
        forms.setdefault(word, word)
    return forms


@cache
def lemmas() -> frozenset[str]:
    """The English lemmas the grammar can use."""
    return frozenset(lemma_of().values())


@cache
def dictionary() -> dict[str, str]:
    """English word form to the French form that says it most often."""
    words = lexicon()
    usual: dict[str, str] = {}
    for verb in (v for frame in words.verbs.values() for v in frame):
        french = verb.french
        usual |= {
            verb.lemma: french.infinitive,
            verb.third: french.tenses["present"][2],
            verb.past: french.participle[0],
        }
        usual |= {verb.done: french.participle[0], verb.doing: french.infinitive}
    for adjective in words.adjectives:
        usual[adjective.lemma] = adjective.forms[0]
    for noun in (n for kind in words.nouns.values() for n in kind):
        usual |= {noun.lemma: noun.french[0].replace("_", " "), noun.plural: noun.french[1].replace("_", " ")}
    counts: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for pair in islice(pairs("train"), 4000):
        for source, target in pair.links:
            counts[pair.source[source]][pair.target[target]] += 1
    usual |= {word: max(sorted(seen), key=seen.__getitem__) for word, seen in counts.items()}
    capitals = {w[0].upper() + w[1:]: f[0].upper() + f[1:] for w, f in usual.items()}
    return capitals | usual


@cache
def _tables(held_out: bool) -> Tables:
    return Tables(lexicon(), held_out)


@cache
def _shown() -> dict[str, Pair]:
    words = lexicon()
    nouns = {noun.lemma: noun for kind in words.nouns.values() for noun in kind}
    watch = next(v for v in words.verbs["intransitive"] if v.lemma == "watch")
    sign = next(v for v in words.verbs["transitive"] if v.lemma == "sign")
    treaty = Phrase(nouns["treaty"], tail=Of("on", "sur", Institution("European", "Economic", "Area")))
    trees = (
        Clause(Pronoun("they"), watch, "progressive"),
        Clause(treaty, sign, "past", passive=True, adjuncts=[Time("month", ("March", "1994"))]),
    )
    return {text: _write(Writer(words), tree, 0) for text, tree in zip(SHOWN, trees, strict=True)}


@cache
def _shown_masks() -> dict[int, tuple[str, ...]]:
    return {len(pair.source): masked(pair) for pair in _shown().values()}


@cache
def _is_reserved(use: tuple[str, str]) -> bool:
    return reserved(*use)

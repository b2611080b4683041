"""One pass over the text of a split: faults of single lines, and what is kept to compare lines with each other."""

from __future__ import annotations

import operator
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from regard.check.characters import CODE_POINTS, FAULTY, SPACE, TRACES, UNSPACED, Array, classes, scripts_of
from regard.check.faults import BIT
from regard.data.sources import BAD_TAGS, Line, Split
from regard.data.text import NOT_UTF8, Cut
from regard.data.tokens import RULES, SPLIT_WITH_SPACE, PairTokens, TextTokens, normal

CHUNK = 1 << 18  # characters of text that are processed together
NAMED = 5  # line numbers that a finding names
WORDS_OR_SIGNS = re.compile(r"\w+|[^\w\s]")


def too_long(tokens: TextTokens) -> Callable[[str], bool]:
    """Whether training will find too many tokens in a line, as far as that is known before there is a vocabulary.

    Exact for characters, and for words but for spacing so rare that it is left out. Sub-words never span two words, so
    there are at least as many; where no spaces stand between words, a sub-word rarely has more than two letters.
    """
    longest = tokens.longest

    def words(text: str) -> bool:
        # cutting is slow: first the most words there can be, the joins between them, and spacing that is not silent
        most, parts, spaces = roughly(text)
        return 2 * most - parts + spaces > longest and len(RULES["words"].cut(text)) > longest

    def pieces(text: str) -> bool:
        unspaced = 0 if text.isascii() else len(UNSPACED.findall(text)) // 2
        most, _, spaces = roughly(text)
        many = most + spaces > longest - unspaced
        return many and len(SPLIT_WITH_SPACE.pre_tokenize_str(" " + text)) > longest - unspaced

    def exactly(text: str) -> bool:
        return len(text if tokens.kind == "characters" else text.split(" ")) > longest

    return {"words": words, "bpe": pieces}.get(tokens.kind, exactly)


def roughly(text: str) -> tuple[int, int, int]:
    """No fewer words than there are, the stretches between spaces, and white space that is not one space between."""
    parts = text.split()
    spaces = 0 if " ".join(parts) == text else len(text) - sum(map(len, parts))
    return len(WORDS_OR_SIGNS.findall(text)), len(parts), spaces


class Coded(NamedTuple):
    """Some lines in one array."""

    lines: list[str]  # in normal form
    lengths: Array  # (line,)
    starts: Array  # (line,): where each begins
    text: str  # all of them, a line end after each
    codes: Array  # (character,): of the text


def coded(lines: Sequence[str]) -> Coded:
    normal_lines = [normal(line) for line in lines]
    text = "\n".join([*normal_lines, ""])
    lengths = lengths_of(normal_lines)
    codes = np.frombuffer(text.encode("utf-32-le"), np.uint32)
    return Coded(normal_lines, lengths, np.cumsum(lengths + 1) - (lengths + 1), text, codes)


def lengths_of(lines: Sequence[str]) -> Array:
    return np.fromiter(map(len, lines), np.int64, len(lines))


def hashes_of(items: Iterable[Hashable], count: int) -> Array:
    """64-bit hashes by Python, which differ between processes."""
    return np.fromiter(map(hash, items), np.int64, count)


def lines_at(places: Sequence[int] | Array, starts: Array) -> Array:
    """Which line each place is in."""
    return np.searchsorted(starts, np.asarray(places, np.int64), side="right") - 1


class Seen(NamedTuple):
    """What was found on one side of some lines."""

    coded: Coded  # trimmed
    scripts: Array  # (line,)
    faults: Array  # (line,): bits
    words: int


def look(typed: Sequence[str], longest: int, long: Callable[[str], bool]) -> Seen:
    """Check lines all together, and one by one only where something may be wrong: most text is fine."""
    trimmed = [line.strip() for line in typed]
    before, after = lengths_of(typed), lengths_of(trimmed)
    faults = np.zeros(len(typed), np.uint32)
    faults[before == 0] |= BIT["empty"]
    faults[(after == 0) & (before > 0)] |= BIT["blank"]
    faults[(after < before) & (after > 0)] |= BIT["edges"]
    lines, lengths, starts, text, codes = whole = coded(trimmed)
    kinds = classes()[codes]
    kinds[starts + lengths] = SPACE
    for name, kind in FAULTY.items():
        faults[lines_at(np.flatnonzero(kinds == kind), starts)] |= BIT[name]
    for name, pattern, signs in TRACES:
        if any(sign in text for sign in signs):
            faults[lines_at([match.start() for match in pattern.finditer(text)], starts)] |= BIT[name]
    for line in np.flatnonzero(2 * lengths > longest):
        if isinstance(typed[int(line)], Cut) or long(lines[line]):
            faults[line] |= BIT["long"]
    spaces = kinds == SPACE
    words = int(np.count_nonzero(spaces[1:] & ~spaces[:-1]))  # each word has an end
    return Seen(whole, scripts_of(kinds, starts), faults, words)


class Key(NamedTuple):
    split: Split
    file: str
    kind: str  # of fault


class Reports:
    """Lines that readers cannot read; a file that both splits are read from is counted once."""

    def __init__(self) -> None:
        self.split: Split = "train"
        self.recent: set[int] = set()  # line numbers since it was last cleared
        self.counts: Counter[Key] = Counter()
        self.first: dict[Key, list[tuple[int, str]]] = defaultdict(list)  # the first few, and what is wrong

    def begin(self, split: Split) -> None:
        self.split = split
        self.recent.clear()

    def __call__(self, file: str, number: int, wrong: str) -> None:
        kind = "encoding" if wrong.endswith(NOT_UTF8) else "tags" if wrong.endswith(BAD_TAGS) else "row"
        if kind != "tags":
            self.recent.add(number)
        key = Key(self.split, file, kind)
        if self.split == "valid" and key._replace(split="train") in self.counts:
            return
        self.counts[key] += 1
        if len(self.first[key]) < NAMED:
            self.first[key].append((number, wrong))


def chunks(lines: Iterable[Line]) -> Iterator[list[Line]]:
    chunk: list[Line] = []
    room = CHUNK
    for line in lines:
        chunk.append(line)
        room -= len(line[1]) + len(line[2]) + 2
        if room <= 0:
            yield chunk
            chunk, room = [], CHUNK
    if chunk:
        yield chunk


class Scan:
    """A split after one pass over it."""

    def __init__(self, lines: Iterable[Line], tokens: TextTokens, reports: Reports, known: Array | None = None) -> None:
        """`known`: the characters (side, code point) that are not new."""
        self.words, self.characters = [0, 0], [0, 0]
        self.counts = np.zeros((2, CODE_POINTS), np.int64)  # (side, code point): how often it occurs
        long = too_long(tokens)
        kept = [columns_of((), [look((), 1, long)] * 2, set())]
        for chunk in chunks(lines):
            numbers, *typed = zip(*chunk, strict=True)
            sides = [look(side, tokens.longest, long) for side in typed]
            for place, (side, _, faults, words) in enumerate(sides):
                self.words[place] += words
                self.characters[place] += int(side.lengths.sum())
                here = np.bincount(side.codes)
                self.counts[place, : len(here)] += here
                if known is not None:
                    faults[lines_at(np.flatnonzero(~known[place][side.codes]), side.starts)] |= BIT["unseen"]
            kept.append(columns_of(numbers, sides, reports.recent))
            reports.recent.clear()
        together = [np.concatenate(parts) for parts in zip(*kept, strict=True)]
        self.numbers, self.sources, self.pairs, self.lengths, self.scripts, self.faults = together
        self.counts[:, ord("\n")] = 0  # line ends that `coded` added
        self.seen = self.counts > 0

    def free_of(self, faults: int) -> Array:
        free: Array = ((self.faults & faults) == 0).all(1)
        return free

    def mark(self, fault: str, where: Array, side: int = 0) -> None:
        """`where`: True for these lines, or their places."""
        self.faults[where, side] |= BIT[fault]


def columns_of(numbers: Sequence[int], sides: Sequence[Seen], bad: set[int]) -> tuple[Array, ...]:
    """What is kept of some pairs; `bad` are the numbers of those that were not UTF-8."""
    count = len(numbers)
    source, target = sides
    sources, targets = source.coded.lines, target.coded.lines
    faults = np.stack([source.faults, target.faults], axis=1)  # (line, side); those of a pair are on the source's side
    faults[(faults & BIT["empty"]).all(1)] = (BIT["nothing"], 0)
    same = np.fromiter(map(operator.eq, sources, targets), np.bool_, count)
    faults[same & (source.coded.lengths > 0), 0] |= BIT["equal"]
    if bad:
        faults[np.isin(numbers, list(bad))] = (BIT["encoding"], 0)  # other faults may come from decoding it
    return (
        np.fromiter(numbers, np.int64, count),
        hashes_of(sources, count),
        hashes_of(zip(sources, targets, strict=True), count),
        np.stack([source.coded.lengths, target.coded.lengths], axis=1).astype(np.int32),
        np.stack([source.scripts, target.scripts], axis=1),
        faults,
    )


def known_characters(train: Array, tokens: TextTokens) -> Array:
    """What a vocabulary learnt from `train` (side, code point) can know, and characters that are faults themselves."""
    known = train | train[::-1] if isinstance(tokens, PairTokens) and tokens.joint else train.copy()
    kinds = classes()
    known |= np.isin(kinds, list(FAULTY.values()))
    if tokens.kind in ("words", "given"):
        known |= kinds == SPACE  # spacing that train does not have is left out
    return known

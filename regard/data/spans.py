"""Spans of words, as tags mark them.

BIO     B-X begins a span of kind X, I-X continues it, O is outside any span
BIOES   E-X also ends a span, S-X is a span of one word
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

MARKS = ("B-", "I-", "E-", "S-")


def mark_spans(tags: Iterable[str]) -> bool:
    """Whether tags with these names can be read as spans."""
    names = set(tags)
    return "O" in names and len(names) > 1 and all(tag == "O" or tag[:2] in MARKS for tag in names)


def mark_ends(tags: Iterable[str]) -> bool:
    """Whether these are BIOES tags, not BIO."""
    return any(tag[:2] in ("E-", "S-") for tag in tags)


def spans_of(tags: Sequence[str]) -> Iterator[tuple[int, int, str]]:
    """Beginning, end and kind of each span that BIO or BIOES tags mark; an I- that continues nothing begins one."""
    begin, kind = 0, ""
    for at, tag in enumerate([*tags, "O"]):
        mark, _, here = tag.partition("-")
        continues = bool(kind) and mark in ("I", "E") and here == kind
        if kind and not continues:
            yield begin, at, kind
            kind = ""
        if not continues and mark in ("B", "I", "S", "E"):
            begin, kind = at, here
        if kind and mark in ("S", "E"):
            yield begin, at + 1, kind
            kind = ""


def found_spans(gold: Sequence[str], predicted: Sequence[str]) -> dict[str, tuple[int, int, int]]:
    """Counts per kind, in one sentence: spans that are correct, predicted and gold."""
    there, guessed = set(spans_of(gold)), set(spans_of(predicted))
    counts = [Counter(kind for _, _, kind in spans) for spans in (there & guessed, guessed, there)]
    return {kind: (counts[0][kind], counts[1][kind], counts[2][kind]) for kind in counts[1] | counts[2]}


def with_words(words: Sequence[str], tags: Sequence[str]) -> str:
    """For display: the words of each span with its kind, or every word with its tag where tags mark no spans."""
    if all(tag == "O" or tag[:2] in MARKS for tag in tags):
        return "; ".join(f"{' '.join(words[begin:end])} ({kind})" for begin, end, kind in spans_of(tags))
    return " ".join(f"{word}/{tag}" for word, tag in zip(words, tags, strict=False))


def tags_of(spans: Iterable[tuple[int, int, str]], length: int, *, ends: bool) -> list[str]:
    """The tags that mark these spans among so many words."""
    tags = ["O"] * length
    for begin, end, kind in spans:
        tags[begin:end] = [f"B-{kind}", *[f"I-{kind}"] * (end - begin - 1)]
        if ends:
            tags[end - 1] = f"S-{kind}" if end - begin == 1 else f"E-{kind}"
    return tags

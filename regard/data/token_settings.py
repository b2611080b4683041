"""The settings in [tokens]: how text becomes tokens, for pairs, for texts and for words that are given."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from regard.config import ABOVE_0, between, keep_within
from regard.data.tokens import Kind


@dataclass(frozen=True)
class TextTokens:
    kind: Kind = "bpe"  # words, characters, bpe (sub-words, byte by byte where it must), or given: between spaces
    size: int = 8000  # most types in the vocabulary; 0: all
    at_least: int = 1  # times a type must occur to be in it
    longest: int = 256  # tokens in a text, at most, unless it is a whole file: a longer one is left out

    def __post_init__(self) -> None:
        check_tokens(self)


@dataclass(frozen=True)
class PairTokens:
    kind: Kind = "bpe"  # words, characters or bpe (sub-words, byte by byte where it must)
    size: int = 8000  # most types in the vocabulary; 0: all
    joint: bool = True  # one vocabulary for both languages
    at_least: int = 1  # times a type must occur to be in it
    longest: int = 256  # tokens in a line, at most: a pair with a longer side is left out

    def __post_init__(self) -> None:
        check_tokens(self)


@dataclass(frozen=True)
class GivenTokens:
    kind: Literal["given"] = "given"  # words as they are given, between spaces
    size: int = 8000  # most types in the vocabulary; 0: all
    at_least: int = 1  # times a type must occur to be in it
    longest: int = 256  # words in a sentence, at most: a longer one is left out

    def __post_init__(self) -> None:
        check_tokens(self)


def check_tokens(tokens: object) -> None:
    keep_within(tokens, between(0, 10_000_000), "size")
    keep_within(tokens, ABOVE_0, "at_least", "longest")

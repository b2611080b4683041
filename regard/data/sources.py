"""Where sentence pairs come from: the built-in corpus, or two parallel files."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Literal, Protocol

from regard.data import world
from regard.data.text import content_hash, read_pairs
from regard.interface import UserError

Split = Literal["train", "valid", "test"]


class Source(Protocol):
    """Gives the pairs of a split, the same ones each time."""

    def pairs(self, split: Split, folder: Path) -> Iterator[tuple[str, str]]: ...

    def fingerprint(self, folder: Path) -> str: ...  # changes when the pairs change


@dataclass(frozen=True)
class World:
    """The built-in grammar."""

    sentences: int = 100_000  # training pairs taken from the grammar
    longest: int = 50  # words in a sentence, at most
    grammar_seed: int = 0  # another seed, other sentences
    valid: int = 500  # validation pairs
    test: int = 500  # test pairs

    def __post_init__(self) -> None:
        if self.longest < world.SHORTEST:
            raise ValueError(f"longest = {self.longest} must be at least {world.SHORTEST}.")
        for name in ("sentences", "valid", "test"):
            if self.__dict__[name] < 1:
                raise ValueError(f"{name} = {self.__dict__[name]} must be at least 1.")

    def pairs(self, split: Split, folder: Path) -> Iterator[tuple[str, str]]:
        count = {"train": self.sentences, "valid": self.valid, "test": self.test}[split]
        return iter(_said(split, self.grammar_seed, self.longest, count))

    def fingerprint(self, folder: Path) -> str:
        some = str([*islice(self.pairs("train", folder), 1000), *islice(self.pairs("valid", folder), 100)])
        return hashlib.sha256(some.encode()).hexdigest()


@lru_cache(maxsize=3)  # a session goes over its text several times, and writing it anew costs more than keeping it
def _said(split: Split, seed: int, longest: int, count: int) -> list[tuple[str, str]]:
    pairs = islice(world.pairs(split, seed=seed, longest=longest), count)
    return [(" ".join(pair.source), " ".join(pair.target)) for pair in pairs]


@dataclass(frozen=True)
class Parallel:
    """Two text files, line by line each other's translation; plain or gzip."""

    source: str  # training file, source language
    target: str  # training file, target language
    valid_source: str  # validation file, source language
    valid_target: str  # validation file, target language

    def pairs(self, split: Split, folder: Path) -> Iterator[tuple[str, str]]:
        files = {"train": (self.source, self.target), "valid": (self.valid_source, self.valid_target)}
        if split not in files:
            raise UserError(f"The recipe names no {split} files.")
        source, target = files[split]
        return read_pairs(find(source, folder), find(target, folder))

    def fingerprint(self, folder: Path) -> str:
        files = (self.source, self.target, self.valid_source, self.valid_target)
        return " ".join(content_hash(find(file, folder)) for file in files)


SOURCES: dict[str, type[World] | type[Parallel]] = {"world": World, "parallel": Parallel}


def find(path: str, folder: Path) -> Path:
    """A recipe's path: absolute as it is, else from the recipe's folder, else from $REGARD_DATA."""
    tries = [folder / path]
    if os.environ.get("REGARD_DATA"):
        tries.append(Path(os.environ["REGARD_DATA"]) / path)
    for candidate in tries:
        if candidate.exists():
            return candidate.resolve()
    looked = " and ".join(str(candidate) for candidate in tries)
    raise UserError(f"The file {path!r} was not found: looked at {looked}; set REGARD_DATA or correct the recipe.")

"""A run's tokenizers: one for each language, or one for both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

from tokenizers.pre_tokenizers import ByteLevel

from regard.data.tokens import Kind, Tokenizer
from regard.interface import UserError


class Tokenizers(NamedTuple):
    source: Tokenizer
    target: Tokenizer

    @property
    def joint(self) -> bool:
        return self.source is self.target

    @classmethod
    def train(
        cls,
        examples: Callable[[], Iterable[tuple[str, ...]]],
        *,
        kind: Kind,
        size: int,
        joint: bool,
        at_least: int,
    ) -> Tokenizers:
        """`examples` is called once for each pass over the text; each has a source and a target, or is one text."""
        most = size or None
        if joint:
            both = Tokenizer.train(
                kind, (text for example in examples() for text in example), size=most, at_least=at_least
            )
            return cls(both, both)
        return cls(
            Tokenizer.train(kind, (source for source, _ in examples()), size=most, at_least=at_least),
            Tokenizer.train(kind, (target for _, target in examples()), size=most, at_least=at_least),
        )

    @classmethod
    def for_names(
        cls, examples: Callable[[], Iterable[tuple[str, ...]]], *, kind: Kind, size: int, at_least: int, per_word: bool
    ) -> Tokenizers:
        """Of texts, and of what they or their words are called."""
        names = Tokenizer.train("given" if per_word else "label", (name for _, name, *_ in examples()), size=None)
        texts = (text for text, *_ in examples())
        return cls(Tokenizer.train(kind, texts, size=size or None, at_least=at_least), names)

    def to_json(self) -> str:
        saved = {"joint": self.joint, "source": self.source.to_json()}
        if not self.joint:
            saved["target"] = self.target.to_json()
        return json.dumps(saved, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Tokenizers:
        try:
            saved = json.loads(text)
            if not isinstance(saved, dict) or type(saved.get("joint")) is not bool:
                raise ValueError("it does not say whether it is joint")
            source = _restored(saved.get("source"))
            return cls(source, source if saved["joint"] else _restored(saved.get("target")))
        except (ValueError, RecursionError, UserError) as problem:
            raise UserError(f"tokenizer.json is damaged ({problem}): restore it or train again.") from None

    @classmethod
    def read(cls, path: Path) -> Tokenizers:
        """Those that a file holds."""
        try:
            return cls.from_json(path.read_bytes())
        except FileNotFoundError:
            raise UserError(f"{path} is missing: restore it, or train again with another -o.") from None
        except OSError as problem:
            raise UserError(f"{path} cannot be read ({problem.strerror}): put the run's own file there.") from None
        except UserError as problem:
            raise UserError(f"In {path.parent}: {problem}") from None


def _restored(saved: Any) -> Tokenizer:
    """A saved tokenizer. Those who use it trust it, so whatever could surprise them is refused here."""
    if not isinstance(saved, dict):
        raise ValueError("a tokenizer is missing")
    kind, vocabulary, merges = (saved.get(key, []) for key in ("kind", "vocabulary", "merges"))
    if not isinstance(kind, str) or not _texts(vocabulary) or len(set(vocabulary)) < len(vocabulary):
        raise ValueError("its vocabulary is no list of different texts")
    if kind == "bpe":
        known = set(vocabulary)
        if not known >= set(ByteLevel.alphabet()):
            raise ValueError("its vocabulary lacks a byte")
        if not isinstance(merges, list) or not all(_texts(pair) and len(pair) == 2 for pair in merges):
            raise ValueError("its merges are no list of pairs")
        if not all({left, right, left + right} <= known for left, right in merges):
            raise ValueError("it merges what is not in its vocabulary")
    return Tokenizer.from_json(saved)


def _texts(value: Any) -> bool:
    """Whether this is a list of texts that can be written to a file: JSON can spell half a character."""
    return isinstance(value, list) and all(isinstance(each, str) and _whole(each) for each in value)


def _whole(text: str) -> bool:
    return text.isascii() or not any("\ud800" <= character <= "\udfff" for character in text)

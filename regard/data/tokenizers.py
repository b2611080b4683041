"""A run's tokenizers: one for each language, or one for both."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import NamedTuple

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
        pairs: Callable[[], Iterable[tuple[str, str]]],
        *,
        kind: Kind,
        size: int,
        joint: bool,
        at_least: int,
    ) -> Tokenizers:
        """`pairs` is called once for each pass over the text."""
        most = size or None
        if joint:
            both = Tokenizer.train(kind, (text for pair in pairs() for text in pair), size=most, at_least=at_least)
            return cls(both, both)
        return cls(
            Tokenizer.train(kind, (source for source, _ in pairs()), size=most, at_least=at_least),
            Tokenizer.train(kind, (target for _, target in pairs()), size=most, at_least=at_least),
        )

    def to_json(self) -> str:
        saved = {"joint": self.joint, "source": self.source.to_json()}
        if not self.joint:
            saved["target"] = self.target.to_json()
        return json.dumps(saved, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes) -> Tokenizers:
        try:
            saved = json.loads(text)
            source = Tokenizer.from_json(saved["source"])
            return cls(source, source if saved["joint"] else Tokenizer.from_json(saved["target"]))
        except (ValueError, KeyError, TypeError) as problem:
            raise UserError(f"tokenizer.json is damaged ({problem}): restore it or train again.") from None

"""Text as it can be shown: what hides, reorders or breaks a line is replaced by a sign or by its code point."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

SPACES = {" ": "␣", "\t": "⇥", "\n": "⏎"}
EMPTY = "‿"  # the token between two words that touch
JOINERS = {"\u200c", "\u200d", *map(chr, range(0xE0020, 0xE0080))}  # inside letters and emoji they have a shape


def visible(token: str) -> str:
    """A token as it can be seen: signs for white space, code points for what has no ink, a circle under a lone mark."""
    if unicodedata.category(token[:1] or "a").startswith("M"):
        token = "◌" + token
    return legible(token, spaces=False) or EMPTY


def legible(text: str, *, spaces: bool = True) -> str:
    """Without what hides, reorders or breaks text (controls, bidi overrides, lone surrogates)."""
    inked = any(unicodedata.category(character)[0] not in "CZM" for character in text)
    return "".join(
        character
        if (spaces and character == " ") or (inked and character in JOINERS) or _has_ink(character)
        else SPACES.get(character, f"U+{ord(character):04X}")
        for character in text
    )


def tidy(value: Any) -> Any:
    """JSON whose every text is legible, and without the numbers that JSON lacks."""
    if isinstance(value, str):
        return "\n".join(map(legible, value.split("\n")))
    if isinstance(value, Mapping):
        return {tidy(key): tidy(inner) for key, inner in value.items()}
    if isinstance(value, Sequence):
        return [tidy(inner) for inner in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value


def brief(text: str, most: int) -> str:
    text = " ".join(text.split())
    return text if len(text) <= most else text[: most - 1] + "…"


def _has_ink(character: str) -> bool:
    noncharacter = ord(character) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(character) <= 0xFDEF
    return not noncharacter and unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}

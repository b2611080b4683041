"""Text and numbers for display.

In text, characters that are invisible, reorder text or break a line are replaced by a sign or by their code point. NONE
stands for a missing number.
"""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Mapping, Sequence
from typing import Any

SPACES = {" ": "␣", "\t": "⇥", "\n": "⏎"}
EMPTY = "‿"  # the token between two words that touch
NONE = "–"
SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")
JOINERS = {"\u200c", "\u200d", *map(chr, range(0xE0020, 0xE0080))}  # they are visible inside letters and emoji


def visible(token: str) -> str:
    """Return a visible token: signs for white space, code points for invisible characters, a circle for a lone mark."""
    if unicodedata.category(token[:1] or "a").startswith("M"):
        token = "◌" + token
    return legible(token, spaces=False) or EMPTY


def legible(text: str, *, spaces: bool = True) -> str:
    """Remove characters that are invisible, reorder or break text (controls, bidi overrides, lone surrogates)."""
    inked = any(unicodedata.category(character)[0] not in "CZM" for character in text)
    return "".join(
        character
        if (spaces and character == " ") or (inked and character in JOINERS) or _has_ink(character)
        else SPACES.get(character, f"U+{ord(character):04X}")
        for character in text
    )


def tidy(value: Any) -> Any:
    """Make text in JSON legible, and remove numbers that JSON does not have."""
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


# --- numbers ------------------------------------------------------------------------------------------------------


def decimals(values: Sequence[float | None]) -> int:
    """Return the decimals that show three figures of the largest value: 91.3, 5.31, 0.152."""
    largest = max((abs(value) for value in values if value), default=1.0)
    return min(3, max(1, 2 - math.floor(math.log10(largest))))


def fixed(value: float | None, digits: int, sign: str = "-") -> str:
    return NONE if value is None else f"{value:{sign},.{digits}f}".replace("-", "−")


def whole(value: float | None) -> str:
    return fixed(value, 0)


def interval(value: Mapping[str, Any], digits: int, sign: str = "-") -> str:
    low, high = value["low"], value["high"]
    return NONE if low is None or high is None else f"{fixed(low, digits, sign)} to {fixed(high, digits, sign)}"


def short(value: float | None) -> str:
    """Write three figures: 0.0123, 512, 3.14 · 10⁻⁷."""
    return NONE if value is None else f"{value:.3g}" if not value or 1e-4 <= abs(value) < 1e3 else power(value)


def power(value: float | None) -> str:
    """Write a power of ten: 3.14 · 10¹⁴, 10¹⁵."""
    if not value:
        return NONE if value is None else "0"
    figures, exponent = f"{value:.2e}".split("e")
    return f"{'' if figures == '1.00' else figures + ' · '}10{str(int(exponent)).translate(SUPERSCRIPTS)}"


def scientific(value: float) -> str:
    """Write three figures that a program can read: 0.0123, 512, 3.14e-07."""
    return f"{value:.2e}" if value and not 1e-2 <= abs(value) < 1e3 else f"{value:.3g}"

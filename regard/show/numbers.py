"""writing: how a report writes numbers and texts."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from regard.show.attention_page import legible

NONE = "–"
DIGITS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def tidy(value: Any) -> Any:
    """The same, without characters that hide, reorder or break text, and without numbers that JSON lacks."""
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


def mean(values: Sequence[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return fmean(known) if known else None


def decimals(values: Sequence[float | None]) -> int:
    """As many as show three figures of the largest: 91.3, 5.31, 0.152."""
    largest = max((abs(value) for value in values if value), default=1.0)
    return min(3, max(1, 2 - math.floor(math.log10(largest))))


def fixed(value: float | None, digits: int, sign: str = "-") -> str:
    return NONE if value is None else f"{value:{sign},.{digits}f}".replace("-", "−")


def interval(value: Mapping[str, Any], digits: int, sign: str = "-") -> str:
    low, high = value["low"], value["high"]
    return NONE if low is None or high is None else f"{fixed(low, digits, sign)} to {fixed(high, digits, sign)}"


def count(value: float | None) -> str:
    return fixed(value, 0)


def short(value: float | None) -> str:
    """0.0123, 512, 3.14 · 10⁻⁷"""
    return NONE if value is None else f"{value:.3g}" if not value or 1e-4 <= abs(value) < 1e3 else power(value)


def power(value: float | None) -> str:
    """3.14 · 10¹⁴, 10¹⁵"""
    if not value:
        return NONE if value is None else "0"
    figures, exponent = f"{value:.2e}".split("e")
    return f"{'' if figures == '1.00' else figures + ' · '}10{str(int(exponent)).translate(DIGITS)}"

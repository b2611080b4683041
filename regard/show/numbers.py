"""Numbers as tables and sentences write them; NONE where there is no number."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

NONE = "–"
SUPERSCRIPTS = str.maketrans("0123456789-", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻")


def decimals(values: Sequence[float | None]) -> int:
    """As many as show three figures of the largest: 91.3, 5.31, 0.152."""
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
    """0.0123, 512, 3.14 · 10⁻⁷"""
    return NONE if value is None else f"{value:.3g}" if not value or 1e-4 <= abs(value) < 1e3 else power(value)


def power(value: float | None) -> str:
    """3.14 · 10¹⁴, 10¹⁵"""
    if not value:
        return NONE if value is None else "0"
    figures, exponent = f"{value:.2e}".split("e")
    return f"{'' if figures == '1.00' else figures + ' · '}10{str(int(exponent)).translate(SUPERSCRIPTS)}"


def scientific(value: float) -> str:
    """0.0123, 512, 3.14e-07: three figures that a program can read again."""
    return f"{value:.2e}" if value and not 1e-2 <= abs(value) < 1e3 else f"{value:.3g}"


def decades(values: Sequence[float]) -> range:
    """The powers of ten, or every few of them, from below the least of these values to above the largest."""
    low = math.floor(math.log10(min(values, default=1.0)))
    high = max(low + 1, math.ceil(math.log10(max(values, default=1.0))))
    stride = -(-(high - low) // 8)
    return range(high - -(-(high - low) // stride) * stride, high + 1, stride)


def power_of_ten(exponent: int) -> str:
    """The name of a line of a logarithmic scale."""
    return f"1e{exponent}" if exponent else "1"


def round_up(value: float, figures: Sequence[int] = (1, 2, 4, 5, 8, 10)) -> float:
    """The least of these figures times a power of ten that is not below the value."""
    power_below = 10.0 ** math.floor(math.log10(value)) if value > 0 else 1.0
    return next(figure * power_below for figure in figures if figure * power_below >= value)


def tick_stride(count: int, most: int) -> int:
    """How far apart the marks of an axis stand that counts so many places, with about so many marks at most."""
    return max(1, round(round_up((count - 1) / most, (1, 2, 5, 10))))

"""Characters by class: the script that a line is written in, and traces of how text goes wrong."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]

CODE_POINTS = 0x110000
FEWEST = 50  # lines that can show what is usual
LETTERS = 8  # in a line, for its script to mean something
AGREED = 0.8  # share of the lines that are in one script, for the others to be wrong

# code points, in hexadecimal
SPACES = "9 20 a0 1680 2000-200a 202f 205f 3000"
CONTROLS = "1-8 a-1f 7f-9f 2028-2029 feff"
SCRIPTS = {
    "Latin": "41-5a 61-7a aa ba c0-d6 d8-f6 f8-2af 1e00-1eff 2c60-2c7f a722-a7ff fb00-fb06 ff21-ff3a ff41-ff5a",
    "Greek": "370-3ff 1f00-1fff",
    "Cyrillic": "400-52f 1c80-1c8f 2de0-2dff a640-a69f",
    "Armenian": "531-587",
    "Hebrew": "591-5f4 fb1d-fb4f",
    "Arabic": "610-6ff 750-77f 8a0-8ff fb50-fdff fe70-fefc",
    "Devanagari": "900-963 970-97f a8e0-a8ff",
    "Bengali": "980-9ff",
    "Gurmukhi": "a00-a7f",
    "Gujarati": "a80-aff",
    "Oriya": "b00-b7f",
    "Tamil": "b80-bff",
    "Telugu": "c00-c7f",
    "Kannada": "c80-cff",
    "Malayalam": "d00-d7f",
    "Sinhala": "d80-dff",
    "Thai": "e00-e7f",
    "Lao": "e80-eff",
    "Tibetan": "f00-fff",
    "Burmese": "1000-109f",
    "Georgian": "10a0-10ff 1c90-1cbf",
    "Ethiopic": "1200-139f",
    "Khmer": "1780-17ff",
    "Hangul": "1100-11ff 3131-318e ac00-d7ff",
    "Han": "3005-3007 3400-4dbf 4e00-9fff f900-faff 20000-323af",
    "Japanese": "3041-30ff 31f0-31ff ff66-ff9d",  # kana; a line that has some is Japanese, and Han beside them is too
}
NAMES = list(SCRIPTS)
HAN, JAPANESE = NAMES.index("Han"), NAMES.index("Japanese")
DENSE = {HAN: 3, JAPANESE: 3, NAMES.index("Hangul"): 3}  # how many letters of an alphabet one character counts as
UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3041-\u30ff\u3400-\u9fff\uf900-\ufaff\U00020000-\U000323af]"
)

OTHER, SPACE, CONTROL, NUL, BROKEN, FIRST_SCRIPT = range(6)  # classes of characters; each script's follow

FAULTY = {"binary": NUL, "broken": BROKEN, "control": CONTROL}  # classes that are a fault of a line by themselves

MARKUP = re.compile(r"</?[A-Za-z][^<>\n]{0,200}>|&(?:[A-Za-z][A-Za-z0-9]{1,30}|#\d{1,7}|#[xX][0-9A-Fa-f]{1,6});")
# a letter of Latin-1 and what a byte after it looks like; not after a capital, since NÃO and IRMÃ are Portuguese
MOJIBAKE = re.compile("(?<![A-ZÀ-Þ])[ÃÂ][\u0080-\u00ba\u00bc-\u00bf]|â€[\u0080-\u009f\u02dc-\u2122]|ï¿½|ï»¿")
# a fault, its pattern and signs one of which each match has: looking for them is quick
TRACES = (("markup", MARKUP, ("<", "&")), ("mojibake", MOJIBAKE, ("Ã", "Â", "â€", "ï¿½", "ï»¿")))


@cache
def classes() -> Array:
    """What each code point is: one of the classes above, or FIRST_SCRIPT + the place of its script."""
    table = np.full(CODE_POINTS, OTHER, np.uint8)
    kinds = {SPACES: SPACE, CONTROLS: CONTROL, "0": NUL, "fffd": BROKEN}
    kinds |= {ranges: FIRST_SCRIPT + place for place, ranges in enumerate(SCRIPTS.values())}
    for ranges, kind in kinds.items():
        for stretch in ranges.split():
            first, _, last = stretch.partition("-")
            table[int(first, 16) : int(last or first, 16) + 1] = kind
    return table


def scripts_of(kinds: Array, starts: Array) -> Array:
    """The script of each line, as 1 + its place; 0 where there are few letters, or many scripts."""
    letters = np.zeros((len(NAMES), len(starts)), np.int64)  # (script, line)
    for script in np.flatnonzero(np.bincount(kinds)[FIRST_SCRIPT:]):
        counts = np.add.reduceat(kinds == FIRST_SCRIPT + script, starts, dtype=np.int64)
        letters[script] = counts * DENSE.get(int(script), 1)
    kana = letters[JAPANESE].copy()
    letters[HAN] += kana
    letters[JAPANESE] = 0
    total, most, main = letters.sum(0), letters.max(0), letters.argmax(0)
    main[(main == HAN) & (8 * kana >= most)] = JAPANESE
    return np.where((total >= LETTERS) & (2 * most > total), main + 1, 0).astype(np.uint8)


def main_script(scripts: Array) -> int:
    """The script that these lines agree on, as 1 + its place; 0 if they do not."""
    han, japanese = (int((scripts == 1 + place).sum()) for place in (HAN, JAPANESE))
    counts = np.bincount(scripts, minlength=len(NAMES) + 1)
    counts[0] = 0
    counts[1 + HAN], counts[1 + JAPANESE] = han + japanese, 0
    main = int(counts.argmax())
    if counts.sum() < FEWEST or counts[main] < AGREED * counts.sum():
        return 0
    return 1 + JAPANESE if main == 1 + HAN and japanese > han else main


def in_other_script(scripts: Array, main: int) -> Array:
    other: Array = (scripts != 0) & (scripts != main) & (main != 0)
    return other & (scripts != 1 + HAN) if main == 1 + JAPANESE else other

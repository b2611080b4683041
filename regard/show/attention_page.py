"""page: what a model looks at, or carries, as one HTML file that opens anywhere, without a network.

A weight w ∈ [0, 1] is kept as the byte round(255 w), so |w − byte/255| ≤ 1/510. Each view's bytes are packed apart
(zlib, base64) and unpacked by the browser when that view is chosen; `page.html` draws them. Its colours lie on a
straight line through OKLab (Ottosson 2020), so that equal steps of weight are equal steps to the eye.
"""

from __future__ import annotations

import re
import unicodedata
import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

import numpy as np
from numpy.typing import NDArray

from regard.show.html import inert_json, policy_hash

SIGNS = {" ": "␣", "\t": "⇥", "\n": "⏎"}
SCALES = {"light": ("#eff3f9", "#08298a"), "dark": ("#20262f", "#b5dcff")}  # the colours of weight 0 and weight 1
EMPTY = "‿"  # the token between two words that touch
JOINERS = frozenset(
    {"\u200c", "\u200d", *map(chr, range(0xE0020, 0xE0080))}
)  # inside letters and emoji they have a shape

RGB_TO_CONES = np.array(
    [
        [0.4122214708, 0.5363325363, 0.0514459929],
        [0.2119034982, 0.6806995451, 0.1073969566],
        [0.0883024619, 0.2817188376, 0.6299787005],
    ]
)
CONES_TO_LAB = np.array(
    [
        [0.2104542553, 0.7936177850, -0.0040720468],
        [1.9779984951, -2.4285922050, 0.4505937099],
        [0.0259040371, 0.7827717662, -0.8086757660],
    ]
)


@dataclass(frozen=True)
class View:
    """One layer's heads, looking at one thing."""

    name: str  # "what it writes looks at what it read", "encoder, itself", "decoder, itself"
    layer: int
    rows: tuple[str, ...]  # the tokens that look
    columns: tuple[str, ...]  # the tokens looked at
    weights: NDArray[np.floating]  # (heads, rows, columns): a row sums to 1, or is 0

    def __post_init__(self) -> None:
        shape = (len(self.weights), len(self.rows), len(self.columns))
        if self.weights.shape != shape or not len(self.weights):
            raise ValueError(f"weights are {self.weights.shape}, but rows and columns ask for (heads, {shape[1:]}).")
        if not bool(np.all((self.weights > -1e-3) & (self.weights < 1 + 1e-3))):
            raise ValueError("weights must be numbers from 0 to 1.")


@dataclass(frozen=True)
class Sentence:
    title: str  # the source, say
    output: str  # what the model made of it
    views: tuple[View, ...]
    note: str = ""  # "gradient, not attention" where nothing attends

    def __post_init__(self) -> None:
        if not self.views or len({(view.name, view.layer) for view in self.views}) < len(self.views):
            raise ValueError("a sentence needs views, no two of one name and layer.")


ATTENTION = {  # how the page speaks of its maps
    "kind": "Which attention",
    "looking": "Looking",
    "looked-at": "Looked at",
    "forward": "looks at",
    "back": "is looked at by",
    "about": "Each row shares its looking among the columns.",
}


def page(sentences: Sequence[Sentence], *, title: str, words: Mapping[str, str] = ATTENTION) -> str:
    """One HTML document with all it needs inside."""
    if not sentences:
        raise ValueError("a page needs a sentence.")
    template = files("regard.show").joinpath("attention_page.html").read_text(encoding="utf-8")
    parts = {
        "policy": _policy(template),
        "title": escape(legible(title)),
        "content": _content(sentences, title, words),
        "weights": "\n".join(
            f'<script type="text/plain" id="weights-{s}-{v}">{_pack(view.weights)}</script>'
            for s, sentence in enumerate(sentences)
            for v, view in enumerate(sentence.views)
        ),
    }
    return re.sub("«(\\w+)»", lambda found: parts[found[1]], template)  # in one pass: what is put in is not read again


def fragment(sentence: Sentence) -> str:
    """The page of one sentence for a notebook's cell, in a frame, so that neither can touch the other."""
    rows = max(len(view.rows) for view in sentence.views)
    height = min(max(560, 360 + 40 * rows), 860)
    document, name = escape(page([sentence], title=sentence.title)), escape(legible(sentence.title))
    return (
        f'<iframe title="{name}" width="100%" height="{height}" style="border: 0" '
        f'sandbox="allow-scripts allow-downloads" srcdoc="{document}"></iframe>'
    )


def as_bytes(weights: NDArray[np.floating]) -> NDArray[np.uint8]:
    """round(255 w)"""
    rounded: NDArray[np.uint8] = np.rint(255 * np.clip(weights, 0, 1)).astype(np.uint8)
    return rounded


def scale(none: str, full: str) -> list[list[int]]:
    """The colours of the bytes 0 … 255, from one hex colour to the other along a line through OKLab."""
    gamma = np.array([[int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)] for colour in (none, full)])
    linear = np.where(gamma <= 0.04045, gamma / 12.92, ((gamma + 0.055) / 1.055) ** 2.4)
    ends = np.cbrt(linear @ RGB_TO_CONES.T) @ CONES_TO_LAB.T  # (2, 3)
    line = ends[0] + np.linspace(0, 1, 256)[:, None] * (ends[1] - ends[0])  # (256, 3)
    cones = (line @ np.linalg.inv(CONES_TO_LAB).T) ** 3
    linear = np.clip(cones @ np.linalg.inv(RGB_TO_CONES).T, 0, 1)
    gamma = np.where(linear <= 0.0031308, 12.92 * linear, 1.055 * linear ** (1 / 2.4) - 0.055)
    return [[round(255 * value) for value in colour] for colour in gamma.tolist()]


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
        else SIGNS.get(character, f"U+{ord(character):04X}")
        for character in text
    )


def _has_ink(character: str) -> bool:
    noncharacter = ord(character) & 0xFFFE == 0xFFFE or 0xFDD0 <= ord(character) <= 0xFDEF
    return not noncharacter and unicodedata.category(character) not in {"Cc", "Cf", "Cs", "Zs", "Zl", "Zp"}


def _pack(weights: NDArray[np.floating]) -> str:
    return b64encode(zlib.compress(as_bytes(weights).tobytes())).decode()


def _content(sentences: Sequence[Sentence], title: str, words: Mapping[str, str]) -> str:
    """All but the weights, as JSON that cannot end the element it stands in."""
    content = {
        "title": legible(title),
        "words": dict(words),
        "scales": {theme: scale(*ends) for theme, ends in SCALES.items()},
        "sentences": [
            {
                "title": legible(sentence.title),
                "output": legible(sentence.output),
                "note": legible(sentence.note),
                "views": [
                    {
                        "id": f"weights-{s}-{v}",
                        "name": legible(view.name),
                        "layer": view.layer,
                        "heads": len(view.weights),
                        "rows": [visible(token) for token in view.rows],
                        "columns": [visible(token) for token in view.columns],
                    }
                    for v, view in enumerate(sentence.views)
                ],
            }
            for s, sentence in enumerate(sentences)
        ],
    }
    return inert_json(content)


def _policy(template: str) -> str:
    """Nothing is fetched, and no style or script runs but the template's own."""

    def own(tag: str) -> str:
        return policy_hash(template.split(f"<{tag}>")[1].split(f"</{tag}>")[0])

    return (
        f"default-src 'none'; script-src {own('script')}; style-src {own('style')}; img-src blob:; "
        "base-uri 'none'; form-action 'none'"
    )

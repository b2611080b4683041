"""Attention maps, or gates and states, as one HTML file that opens offline in any browser.

A weight w ∈ [0, 1] is stored as the byte round(255 w), so |w − byte/255| ≤ 1/510. The bytes of each view are compressed
separately (zlib, base64) and unpacked by the browser when that view is chosen; `attention_map.js` draws them, wherever
it is given what `sentence_facts` returns.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from regard.show.colours import theme_scales
from regard.show.markup import fill_template, inert_json, notebook_cell
from regard.show.text import legible, visible


@dataclass(frozen=True)
class View:
    """The heads of one attention of one layer."""

    name: str  # "encoder self-attention", for example
    layer: int
    rows: tuple[str, ...]  # the tokens that attend (queries)
    columns: tuple[str, ...]  # the tokens attended to (keys)
    weights: NDArray[np.floating]  # (heads, rows, columns): a row sums to 1, or is 0

    def __post_init__(self) -> None:
        shape = (len(self.weights), len(self.rows), len(self.columns))
        if self.weights.shape != shape or not len(self.weights):
            raise ValueError(f"weights are {self.weights.shape}, but rows and columns ask for (heads, {shape[1:]}).")
        if not bool(np.all((self.weights > -1e-3) & (self.weights < 1 + 1e-3))):
            raise ValueError("weights must be numbers from 0 to 1.")


@dataclass(frozen=True)
class Sentence:
    title: str  # the source, for example
    output: str  # the model's output
    views: tuple[View, ...]
    note: str = ""  # "saliency (gradient), not attention" if the model has no attention
    averages: bool = True  # whether a mean over layers means something: units of two layers have nothing in common

    def __post_init__(self) -> None:
        if not self.views or len({(view.name, view.layer) for view in self.views}) < len(self.views):
            raise ValueError("a sentence needs views, and each pair of name and layer must be unique.")


ATTENTION = {  # the labels of the page
    "kind": "Attention",
    "looking": "Queries",
    "looked-at": "Keys",
    "forward": "attends to",
    "back": "is attended to by",
    "about": "The weights of each row sum to 1.",
}


def attention_page(sentences: Sequence[Sentence], *, title: str, words: Mapping[str, str] = ATTENTION) -> str:
    """Return one HTML document with all it needs inside."""
    if not sentences:
        raise ValueError("a page needs a sentence.")
    content = {
        "title": legible(title),
        "words": dict(words),
        "scales": theme_scales(),
        "sentences": [sentence_facts(sentence) for sentence in sentences],
    }
    return fill_template(
        "attention_page.html",
        title=escape(legible(title)),
        about=escape(words["about"]),
        content=inert_json(content),
    )


def sentence_facts(sentence: Sentence) -> dict[str, object]:
    """Return the sentence for JSON, with its weights, as `AttentionMap.show` takes it."""
    texts = {name: legible(vars(sentence)[name]) for name in ("title", "output", "note")}
    return {**texts, "averages": sentence.averages, "views": [_view_facts(view) for view in sentence.views]}


def notebook_frame(sentence: Sentence) -> str:
    """Return the page of one sentence for a notebook cell, in a frame, so that neither affects the other."""
    rows = max(len(view.rows) for view in sentence.views)
    height = min(max(600, 400 + 40 * rows), 900)
    return notebook_cell(attention_page([sentence], title=sentence.title), legible(sentence.title), height)


def as_bytes(weights: NDArray[np.floating]) -> NDArray[np.uint8]:
    """Compute round(255 w)."""
    rounded: NDArray[np.uint8] = np.rint(255 * np.clip(weights, 0, 1)).astype(np.uint8)
    return rounded


def packed(weights: NDArray[np.uint8]) -> str:
    """Return the bytes as text: compressed, in base64."""
    return b64encode(zlib.compress(weights.tobytes())).decode()


def share_facts(weights: NDArray[np.floating]) -> dict[str, object]:
    """Return weights (heads, words, …) for JSON as shares of the largest of each head and word."""
    flat = weights.reshape(*weights.shape[:2], -1)
    most = flat.max(2, keepdims=True)
    return {
        "heads": len(weights),
        "largest": [[round(float(word), 4) for word in head] for head in most[:, :, 0]],
        "weights": packed(as_bytes(flat / np.where(most > 0, most, 1.0))),
    }


def _view_facts(view: View) -> dict[str, object]:
    return {
        "name": legible(view.name),
        "layer": view.layer,
        "heads": len(view.weights),
        "rows": [visible(token) for token in view.rows],
        "columns": [visible(token) for token in view.columns],
        "weights": packed(as_bytes(view.weights)),
    }

"""Pictures with their captions as one HTML file that opens offline: for each word, where each head looked.

Weights are stored as in `attention_page`: bytes, compressed for each view; `picture_view.js` draws them,
wherever it is given what `picture_facts` returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from regard.show.attention_page import share_facts
from regard.show.markup import fill_template, inert_json, notebook_cell
from regard.show.picture_map import DARK, DARKEST, Pixels, png_address, png_text
from regard.show.text import legible, visible


@dataclass(frozen=True)
class Places:
    """Weights over the places of a picture: the heads of one attention, or one map for all layers."""

    name: str  # "attention, layer 2", or "attention rollout"
    weights: NDArray[np.floating]  # (heads, words, rows, columns)


@dataclass(frozen=True)
class Captioned:
    """A picture, its caption or label, and what each word looked at."""

    title: str
    pixels: Pixels
    words: tuple[str, ...]
    views: tuple[Places, ...]
    note: str = ""

    def __post_init__(self) -> None:
        if not self.views or any(view.weights.shape[1] != len(self.words) for view in self.views):
            raise ValueError("a captioned picture needs views, each with weights for all of its words.")


def caption_page(pictures: Sequence[Captioned], *, title: str) -> str:
    """Return one HTML document with all it needs inside."""
    if not pictures:
        raise ValueError("a page needs a picture.")
    content = {**spotlight(), "shown": [picture_facts(picture) for picture in pictures]}
    return fill_template("caption_page.html", title=escape(legible(title)), content=inert_json(content))


def spotlight() -> dict[str, object]:
    """Return how dark a picture is where no weight is, for JSON."""
    return {"dark": list(DARK), "darkest": DARKEST}


def picture_facts(picture: Captioned) -> dict[str, object]:
    """Return the picture for JSON, with its weights, as `PictureView.show` takes it."""
    return {
        "title": legible(picture.title),
        "note": legible(picture.note),
        "words": [visible(word) for word in picture.words],
        "picture": png_address(png_text(picture.pixels)),
        "size": [*picture.pixels.shape[:2]],
        "views": [_view_facts(view) for view in picture.views],
    }


def caption_frame(picture: Captioned) -> str:
    """Return the page of one picture for a notebook cell."""
    return notebook_cell(caption_page([picture], title=picture.title), legible(picture.title), 640)


def _view_facts(view: Places) -> dict[str, object]:
    """Return the weights as shares of the largest of each head and word, where the picture is bright."""
    rows, columns = view.weights.shape[2:]
    return {"name": legible(view.name), "rows": rows, "columns": columns, **share_facts(view.weights)}

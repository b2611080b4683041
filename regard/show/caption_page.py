"""Pictures with their captions as one HTML file that opens offline: for each word, where each head looked.

Weights are stored as in `attention_page`: bytes, compressed for each view; `caption_page.html` draws them.
"""

from __future__ import annotations

import zlib
from base64 import b64encode
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from regard.show.attention_page import as_bytes
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
    described, packed = [], []
    for place, picture in enumerate(pictures):
        views = []
        for number, view in enumerate(picture.views):
            heads, _, rows, columns = view.weights.shape
            name = f"weights-{place}-{number}"
            most = view.weights.max((2, 3), keepdims=True)  # of each head and word, where the picture is bright
            shares = as_bytes(view.weights / np.where(most > 0, most, 1.0))
            packed.append(f'<script type="text/plain" id="{name}">{_packed(shares.tobytes())}</script>')
            largest = [[round(float(word), 4) for word in head] for head in most[:, :, 0, 0]]
            size = {"heads": heads, "rows": rows, "columns": columns}
            views.append({"id": name, "name": legible(view.name), **size, "largest": largest})
        described.append(
            {
                "title": legible(picture.title),
                "note": legible(picture.note),
                "words": [visible(word) for word in picture.words],
                "picture": png_address(png_text(picture.pixels)),
                "size": [*picture.pixels.shape[:2]],
                "views": views,
            }
        )
    content = {"title": legible(title), "dark": list(DARK), "darkest": DARKEST, "shown": described}
    return fill_template(
        "caption_page.html", title=escape(legible(title)), content=inert_json(content), weights="\n".join(packed)
    )


def caption_frame(picture: Captioned) -> str:
    """Return the page of one picture for a notebook cell."""
    return notebook_cell(caption_page([picture], title=picture.title), legible(picture.title), 640)


def _packed(data: bytes) -> str:
    return b64encode(zlib.compress(data)).decode()

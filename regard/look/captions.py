"""Where a captioner looks: its attention over the places of a picture while it writes each word."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from regard.data.pictures import PictureField, pixels_in
from regard.interface import UserError
from regard.look.attention import words_of
from regard.look.weights import attends, attention_weights, forced_weights, inside, merge
from regard.run import Run
from regard.show.caption_map import CaptionMap
from regard.show.caption_page import Captioned, Places

Weights = NDArray[np.floating]


class Written(NamedTuple):
    """A picture with the words of a caption, and its weights over places, (words, places)."""

    words: tuple[str, ...]
    weights: Weights


def pixels_of(run: Run, picture: Any) -> NDArray[np.uint8]:
    """The picture as the model reads it: (height, width), or (…, 3)."""
    field = run.fields["source"]
    assert isinstance(field, PictureField)
    pixels = pixels_in(picture, field.size)
    return pixels[..., 0] if pixels.shape[-1] == 1 else pixels


def grid_of(shape: Sequence[int], places: int) -> tuple[int, int]:
    """The rows and columns of so many places of a picture of this shape, (height, width, …)."""
    rows = max(1, round((places * shape[0] / shape[1]) ** 0.5))
    if places % rows:
        raise UserError(f"{places} places do not make a grid over a picture of {shape[0]} x {shape[1]} pixels.")
    return rows, places // rows


def written(run: Run, picture: Any, caption: str, layer: int | None = None) -> Written:
    """The weights of each word while the model reads this caption (teacher forcing); pieces of a word are averaged."""
    if not attends(run.model):
        raise UserError(f"{run.model_title} does not attend to places of a picture: there is nothing to look at.")
    pieces = run.tokenizer("target").pieces(caption)
    if not pieces:
        raise UserError("The caption is empty: give one with words in it, or leave it out.")
    weights = forced_weights(run.model, batch_of(run, picture, caption), layer=layer)[0].cpu().numpy()
    places = [*range(weights.shape[1] - 1)]  # each is a word of its own, and the last is where <eos> would be
    return Written(tuple(words_of(pieces)), merge(weights, places, [piece.word for piece in pieces]))


def batch_of(run: Run, picture: Any, caption: str) -> Any:
    return run.batch(source=[picture], target=[caption], multiple=1)


def look_at_caption(run: Run, picture: Any, target: str | None = None, layer: int | None = None) -> CaptionMap:
    """For each word of `target`, or of the model's own caption, the weight of each place of the picture."""
    caption = run.predict([picture])[0].text if target is None else target
    words, weights = written(run, picture, caption, layer)
    pixels = pixels_of(run, picture)
    maps = weights.reshape(len(words), *grid_of(pixels.shape, weights.shape[1]))
    return CaptionMap(pixels, words, maps, "attention", near=lambda: caption_closely(run, picture, caption))


def caption_closely(run: Run, picture: Any, target: str | None = None) -> Captioned:
    """The same for every layer and head, token by token."""
    caption = run.predict([picture])[0].text if target is None else target
    pixels = pixels_of(run, picture)
    crossings = inside(run.model).of_kind("cross")
    if not crossings:
        raise UserError(f"{run.model_title} does not attend to places of a picture: there is nothing to look at.")
    tokens = (*(piece.text for piece in run.tokenizer("target").pieces(caption)), "<eos>")
    views = []
    for each, found in zip(
        crossings, attention_weights(run.model, batch_of(run, picture, caption), crossings), strict=True
    ):
        weights = found[0, :, each.lead :, each.extra :].float().cpu().numpy()  # (heads, target, places)
        grid = grid_of(pixels.shape, weights.shape[2])
        views.append(Places(f"attention, layer {each.layer}", weights.reshape(*weights.shape[:2], *grid)))
    return Captioned(caption, pixels, tokens, tuple(views))

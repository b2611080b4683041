"""Attention maps and saliency of a model's output.

The maps show attention weights if the model has attention, else saliency, |∂ ln p/∂xᵢ|, which is labelled as such. Both
are computed while the model reads a given output (teacher forcing), by default its own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from regard.config import counted
from regard.data.fields import TextField
from regard.data.tokens import Piece
from regard.interface import Batch, SeenAttention, UserError
from regard.layers.attention import watch
from regard.look.weights import NOT_ATTENTION, attends, attention_weights, forced_weights, inside, label_gradient, merge
from regard.predict.blanks import with_blanks
from regard.predict.text import most_read
from regard.run import Run
from regard.show.attention_page import Sentence, View
from regard.show.heat_map import HeatMap

VIEWS: dict[tuple[str | None, str], str] = {  # the name of an attention, by its query side and its key side
    ("target", "source"): "cross-attention, target to source",
    ("target", "target"): "decoder self-attention",
    ("source", "source"): "encoder self-attention",
}


class Reading(NamedTuple):
    """A source and a target, encoded as one batch."""

    source: list[Piece]
    target: list[Piece]
    text: str  # the text of the target
    batch: Batch

    @property
    def tokens(self) -> dict[str, tuple[str, ...]]:
        """Return the tokens that are read on each side."""
        source, target = ([piece.text for piece in side] for side in (self.source, self.target))
        return {"source": (*source, "<eos>"), "target": ("<bos>", *target)}


def read(run: Run, source: str, target: str | None) -> Reading:
    """Encode `source` with `target`, or with the model's own translation."""
    pieces = pieces_to_look_at(run, source)
    text = run.predict(source).text if target is None else target
    written = run.tokenizer("target").pieces(text)
    if written:
        refuse_length(run, len(written), "translation")
    return Reading(pieces, written, text, run.batch(source=[source], target=[text], multiple=1))


def read_tokens(run: Run, source: Sequence[int], target: Sequence[int]) -> Reading:
    """Read these tokens, special ones among them, each as a word of its own."""
    sides = {"source": source, "target": target}
    surfaces = {side: run.tokenizer(side).surface(ids) for side, ids in sides.items()}
    read, written = (
        [Piece(ids[place], text, 0, 0, place) for place, text in enumerate(surfaces[side])]
        for side, ids in sides.items()
    )
    batch = run.fields.batch({side: [ids] for side, ids in sides.items()}, multiple=1).to(run.device)
    return Reading(read, written, run.tokenizer("target").decode(target), batch)


def pieces_to_look_at(run: Run, source: str) -> list[Piece]:
    field = run.fields["source"]
    pieces = field.pieces(source) if source.strip() and isinstance(field, TextField) else []
    refuse_length(run, len(pieces))
    return pieces


def refuse_length(run: Run, length: int, what: str = "sentence") -> None:
    """Refuse an empty text, and one above the model's maximum length."""
    most = most_read(run.model)
    if not length:
        raise UserError(f"The {what} to look at is empty: give one with text in it.")
    if length > most:
        raise UserError(f"The {what} has {length} tokens, and at most {most} can be looked at: give a shorter one.")


def look_at_translation(run: Run, source: str, target: str | None = None, layer: int | None = None) -> HeatMap:
    """Return the attention, or saliency, of each word of `target`, or of the model's own translation of `source`."""
    return look_at_reading(run, source, read(run, source, target), layer)


def look_at_reading(run: Run, source: str, reading: Reading, layer: int | None = None) -> HeatMap:
    weights = forced_weights(run.model, reading.batch, layer=layer)[0].cpu().numpy()
    return HeatMap(
        rows=tuple(words_of(reading.target)),
        columns=(*words_of(reading.source), "<eos>"),
        weights=merge(weights, [piece.word for piece in reading.source], [piece.word for piece in reading.target]),
        kind="attention" if attends(run.model) else NOT_ATTENTION,
        near=lambda: reading_closely(run, source, reading),
    )


def translation_closely(run: Run, source: str, target: str | None = None) -> Sentence:
    """Return every head of every attention, token by token, while the model reads `target` or its own translation."""
    return reading_closely(run, source, read(run, source, target))


def reading_closely(run: Run, source: str, reading: Reading) -> Sentence:
    tokens = reading.tokens
    outputs = (*tokens["target"][1:], "<eos>")  # the predicted token at each target position
    if not attends(run.model):
        slopes = forced_weights(run.model, reading.batch).cpu().numpy()  # (1, target, source)
        view = View("saliency, target to source", 1, outputs, tokens["source"], slopes)
        return Sentence(source, reading.text, (view,), note=NOT_ATTENTION)
    every = inside(run.model).attentions
    known = [each for sides in VIEWS for each in every if (each.queries, each.keys) == sides]
    views = []
    for each, weights in zip(known, attention_weights(run.model, reading.batch, known), strict=True):
        rows = outputs if each.queries == "target" else tokens["source"]
        name = VIEWS[each.queries, each.keys]
        before = "<bos>" if each.keys == "source" else "<eos>"  # bart's encoder and decoder begin with these
        rows, columns = ("<bos>",) * each.lead + rows, (before,) * each.extra + tokens[each.keys]
        views.append(View(name, each.layer, rows, columns, weights[0].float().cpu().numpy()))
    return Sentence(source, reading.text, tuple(views))


def look_at_text(run: Run, text: str, target: str | None = None, layer: int | None = None) -> HeatMap:
    """Return the self-attention of a text's words, the mean of all heads and layers, or of the heads of one layer."""
    names, known, weights = self_attention(run, text)
    if layer is not None and not 1 <= layer <= len(known):
        raise UserError(f"layer = {layer} does not exist: the model has {counted(len(known), 'layer')}.")
    chosen = weights if layer is None else weights[layer - 1 : layer]
    mean = torch.stack([each.mean(0) for each in chosen]).mean(0).numpy()
    return HeatMap(rows=names, columns=names, weights=mean, kind="attention", near=lambda: text_closely(run, text))


def text_closely(run: Run, text: str, target: str | None = None) -> Sentence:
    """Return every head of every self-attention while the model reads the text."""
    names, known, weights = self_attention(run, text)
    views = (
        View("self-attention", each.layer, names, names, found.numpy())
        for each, found in zip(known, weights, strict=True)
    )
    return Sentence(text, "", tuple(views))


def self_attention(run: Run, text: str) -> tuple[tuple[str, ...], list[SeenAttention], list[Tensor]]:
    """The tokens of a text with those around it, the model's self-attentions, and the weights of each by head."""
    known = inside(run.model).of_kind("self")
    if not known:
        raise UserError(f"{run.model_title} has no attention to look at: try regard look --gates.")
    side = next(iter(run.fields))
    blank = run.task.decoding.blank if run.task.fills and run.task.decoding else ""
    if blank and blank in text:
        ids = with_blanks(run, text, blank)
        names, batch = run.tokenizer(side).surface(ids), run.fields.batch({side: [ids]}, multiple=1).to(run.device)
    else:
        names = [piece.text for piece in run.tokenizer(side).pieces(text)] if text.strip() else []
        batch = run.batch(**{side: [text]}, multiple=1)
    refuse_length(run, len(names))
    before, after = (1, 0) if side == "target" else (known[0].extra, 1)
    around = ("<bos>",) * before + tuple(names) + ("<eos>",) * after
    with watch(run.model) as seen, torch.inference_mode():
        run.model.encode(batch)  # type: ignore[operator]
    return around, known, [seen.of(each.part)[0][0, :, : len(around), : len(around)].float().cpu() for each in known]


def look_at_label(run: Run, text: str, label: str | None = None, layer: int | None = None) -> HeatMap:
    """Return the importance of each word for `label`, or for the predicted label: the attention of the pooling, if
    there is any, and the saliency |∂ ln P(label)/∂xᵢ|, each divided by its sum."""
    pieces = pieces_to_look_at(run, text)
    with watch(run.model) as seen:
        name, slopes = label_gradient(run, run.batch(source=[text], multiple=1), label)
    rows = {f"{name}, saliency": slopes}
    pooling = inside(run.model).of_kind("pooling")
    if pooling:
        weights = seen.of(pooling[0].part)[0][0, 0].detach()
        rows = {f"{name}, attention": weights[..., pooling[0].extra :]} | rows
    together = torch.cat([row.float() for row in rows.values()]).cpu().numpy()
    return HeatMap(
        rows=tuple(rows),
        columns=(*words_of(pieces), "<eos>"),
        weights=merge(together, [piece.word for piece in pieces], list(range(len(rows)))),
        kind="attention and saliency" if pooling else NOT_ATTENTION,
    )


def label_closely(run: Run, text: str, label: str | None = None) -> Sentence:
    decided = look_at_label(run, text, label)
    view = View("importance of each word", 1, decided.rows, decided.columns, decided.weights[None])
    return Sentence(text, decided.rows[0].partition(",")[0], (view,), note=decided.kind)


def words_of(pieces: list[Piece]) -> list[str]:
    words = [""] * (max((piece.word for piece in pieces), default=-1) + 1)
    for piece in pieces:
        words[piece.word] += piece.text
    return [word.strip() or word for word in words]

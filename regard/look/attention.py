"""What a model looks at while it makes its answer.

Attention weights where the model attends; |∂ ln p/∂xᵢ| where it does not, and then it is called by its name. Both are
taken while the model reads a given answer (forced decoding), its own if none is given.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from regard.data.tokens import Piece
from regard.interface import Batch, UserError
from regard.layers.attention import watch
from regard.look.weights import NOT_ATTENTION, attends, attention_weights, forced_weights, inside, label_gradient, merge
from regard.predict.text import most_read
from regard.run import Run
from regard.show.attention_page import Sentence, View
from regard.show.heat_map import HeatMap

VIEWS: dict[
    tuple[str | None, str], str
] = {  # how an attention is called, by the side that looks and the side looked at
    ("target", "source"): "what it writes looks at what it read",
    ("target", "target"): "what it writes looks at what it has written",
    ("source", "source"): "what it reads looks at itself",
}


class Reading(NamedTuple):
    """A sentence and a target, ready to be read together."""

    source: list[Piece]
    target: list[Piece]
    text: str  # of the target
    batch: Batch

    @property
    def tokens(self) -> dict[str, tuple[str, ...]]:
        """What is read on each side."""
        source, target = ([piece.text for piece in side] for side in (self.source, self.target))
        return {"source": (*source, "<eos>"), "target": ("<bos>", *target)}


def read(run: Run, source: str, target: str | None) -> Reading:
    """`source` with `target`, or with the model's own translation."""
    pieces = pieces_to_look_at(run, source)
    text = run.predict(source).text if target is None else target
    written = run.tokenizer("target").pieces(text)
    if written:
        refuse_length(run, len(written), "translation")
    return Reading(pieces, written, text, run.batch(source=[source], target=[text], multiple=1))


def pieces_to_look_at(run: Run, source: str) -> list[Piece]:
    pieces = run.tokenizer("source").pieces(source) if source.strip() else []
    refuse_length(run, len(pieces))
    return pieces


def refuse_length(run: Run, length: int, what: str = "sentence") -> None:
    """Of 0, or of more tokens than can be read."""
    most = most_read(run.model)
    if not length:
        raise UserError(f"The {what} to look at is empty.")
    if length > most:
        raise UserError(f"The {what} has {length} tokens, and at most {most} can be looked at: give a shorter one.")


def look_at_translation(run: Run, source: str, target: str | None = None, layer: int | None = None) -> HeatMap:
    """What goes into each word of `target`, or of the model's own translation of `source`."""
    reading = read(run, source, target)
    weights = forced_weights(run.model, reading.batch, layer=layer)[0].cpu().numpy()
    return HeatMap(
        rows=tuple(words_of(reading.target)),
        columns=(*words_of(reading.source), "<eos>"),
        weights=merge(weights, [piece.word for piece in reading.source], [piece.word for piece in reading.target]),
        kind="attention" if attends(run.model) else NOT_ATTENTION,
        near=lambda: translation_closely(run, source, reading.text),
    )


def translation_closely(run: Run, source: str, target: str | None = None) -> Sentence:
    """Every head of every attention of the model, token by token, while it reads `target` or its own translation."""
    reading = read(run, source, target)
    tokens = reading.tokens
    outputs = (*tokens["target"][1:], "<eos>")  # what the places of the target predict
    if not attends(run.model):
        slopes = forced_weights(run.model, reading.batch).cpu().numpy()  # (1, target, source)
        view = View("what it writes depends on what it read", 1, outputs, tokens["source"], slopes)
        return Sentence(source, reading.text, (view,), note=NOT_ATTENTION)
    every = inside(run.model).attentions
    known = [each for sides in VIEWS for each in every if (each.queries, each.keys) == sides]
    views = []
    for each, weights in zip(known, attention_weights(run.model, reading.batch, known), strict=True):
        rows = outputs if each.queries == "target" else tokens["source"]
        name = VIEWS[each.queries, each.keys]
        views.append(View(name, each.layer, rows, tokens[each.keys], weights[0].float().cpu().numpy()))
    return Sentence(source, reading.text, tuple(views))


def look_at_label(run: Run, text: str, label: str | None = None, layer: int | None = None) -> HeatMap:
    """How much each word had to do with `label`, or with the model's own: the attention of the pooling where there is
    one, and |∂ ln P(label)/∂xᵢ|, each over its sum."""
    pieces = pieces_to_look_at(run, text)
    with watch(run.model) as seen:
        name, slopes = label_gradient(run, run.batch(source=[text], multiple=1), label)
    rows = {f"{name}, gradient": slopes}
    pooling = inside(run.model).of_kind("pooling")
    if pooling:
        weights = seen.of(pooling[0].part)[0][0, 0].detach()
        rows = {f"{name}, attention": weights[..., pooling[0].extra :]} | rows
    together = torch.cat([row.float() for row in rows.values()]).cpu().numpy()
    return HeatMap(
        rows=tuple(rows),
        columns=(*words_of(pieces), "<eos>"),
        weights=merge(together, [piece.word for piece in pieces], list(range(len(rows)))),
        kind="attention and gradient" if pooling else NOT_ATTENTION,
    )


def label_closely(run: Run, text: str, label: str | None = None) -> Sentence:
    decided = look_at_label(run, text, label)
    view = View("which words decided", 1, decided.rows, decided.columns, decided.weights[None])
    return Sentence(text, decided.rows[0].partition(",")[0], (view,), note=decided.kind)


def words_of(pieces: list[Piece]) -> list[str]:
    words = [""] * (max((piece.word for piece in pieces), default=-1) + 1)
    for piece in pieces:
        words[piece.word] += piece.text
    return [word.strip() or word for word in words]

"""What a model looks at while it makes its answer.

Attention weights where the model attends; |∂ ln p/∂xᵢ| where it does not, and then it is called by its name. Both are
taken while the model reads a given answer (forced decoding), its own if none is given.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from regard.data.tokens import Piece
from regard.interface import Batch, Classifies, SeenAttention, UserError
from regard.layers.attention import watch
from regard.look.weights import attends, forced_weights, gradient_weights, inside, merge, reading, scores
from regard.predict.text import most_read
from regard.run import Run
from regard.show.attention_page import Sentence, View
from regard.show.heat_map import HeatMap

NOT_ATTENTION = "gradient, not attention"
VIEWS = {  # how an attention is called, by the side that looks and the side looked at
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


def read(run: Run, source: str, target: str | None) -> Reading:
    """`source` with `target`, or with the model's own translation."""
    scores(run.model)
    most = most_read(run.model)
    pieces = run.tokenizer("source").pieces(source)
    if not pieces or not source.strip():
        raise UserError("The sentence to look at is empty.")
    if len(pieces) <= most and target is None:
        target = run.predict(source).text
    target = target or ""
    written = run.tokenizer("target").pieces(target)
    for what, length in (("sentence", len(pieces)), ("translation", len(written))):
        if length > most:
            raise UserError(f"The {what} has {length} tokens, and at most {most} can be looked at: give a shorter one.")
    return Reading(pieces, written, target, run.batch(source=[source], target=[target], multiple=1))


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
    read_tokens = (*(piece.text for piece in reading.source), "<eos>")
    inputs = ("<bos>", *(piece.text for piece in reading.target))
    outputs = (*inputs[1:], "<eos>")
    if not attends(run.model):
        slopes = gradient_weights(run.model, reading.batch).cpu().numpy()  # (1, target, source)
        view = View("what it writes depends on what it read", 1, outputs, read_tokens, slopes)
        return Sentence(source, reading.text, (view,), note=NOT_ATTENTION)
    tokens = {"source": read_tokens, "target": inputs}
    return Sentence(source, reading.text, tuple(views(run, reading.batch, tokens, outputs)))


def views(run: Run, batch: Batch, tokens: dict[str, tuple[str, ...]], outputs: tuple[str, ...]) -> list[View]:
    """The weights of every attention between sides; `outputs` are what the places of the target predict."""
    with torch.no_grad(), watch(run.model) as seen:
        scores(run.model).log_probs(batch)

    def view(each: SeenAttention) -> View:
        rows = outputs if each.queries == "target" else tokens["source"]
        # a recurrent decoder looks once per step, a Transformer at all steps together: both join along the target
        weights = torch.cat(seen.of(each.part), 2)[0].float().cpu().numpy()
        return View(VIEWS[each.queries or "target", each.keys], each.layer, rows, tokens[each.keys], weights)

    order = list(VIEWS)
    known = [each for each in inside(run.model).attentions if (each.queries, each.keys) in VIEWS]
    return [view(each) for each in sorted(known, key=lambda each: order.index((each.queries or "", each.keys)))]


def look_at_label(run: Run, text: str, label: str | None = None, layer: int | None = None) -> HeatMap:
    """How much each word had to do with `label`, or with the model's own: the attention of the pooling where there is
    one, and |∂ ln P(label)/∂xᵢ|, each over its sum."""
    model, labels = run.model, run.fields.names()
    if not isinstance(model, Classifies):
        raise UserError(f"{run.model_title} does not give labels: there is nothing to look at.")
    pieces = run.tokenizer("source").pieces(text)
    if not pieces:
        raise UserError("The sentence to look at is empty.")
    if label is not None and label not in labels:
        raise UserError(f"{label!r} is no label of this model: it has {', '.join(labels)[:200]}.")
    most = most_read(model)
    if len(pieces) > most:
        raise UserError(f"The text has {len(pieces)} tokens, and at most {most} can be looked at: give a shorter one.")
    with torch.enable_grad(), watch(model) as seen, reading(model) as embedded:
        log_probs = model.classify(run.batch(source=[text], multiple=1))[0]
        chosen = int(log_probs.argmax()) if label is None else labels.index(label)
        (slope,) = torch.autograd.grad(log_probs[chosen], embedded[0])
    slopes = slope[0].norm(dim=-1)
    rows = {f"{labels[chosen]}, gradient": (slopes / slopes.sum().clamp_min(1e-30))[None]}
    pooling = inside(model).of_kind("pooling")
    if pooling:
        weights = seen.of(pooling[0].part)[0][0, 0].detach()
        rows = {f"{labels[chosen]}, attention": weights[..., pooling[0].extra :]} | rows
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

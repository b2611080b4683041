"""look: what a model looks at while it writes.

Attention weights where the model attends; |∂ log p(yₜ)/∂xᵢ| where it does not, and then it is called by its name.
Both are taken while the model reads a given target (forced decoding), its own translation if none is given.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.data.batches import pad
from regard.data.tokens import Piece
from regard.exchange.word_vectors import read_with
from regard.interface import Batch, Tags, UserError
from regard.layers.attention import watch
from regard.models.encoder_decoder import EncoderDecoder
from regard.models.encoder_head import LABELS, Classifier
from regard.predict.search import Decoding, most_read
from regard.score.labels import as_read
from regard.show.attention_page import Sentence, View, fragment

if TYPE_CHECKING:
    from regard.run import Run

Kind = Literal["attention", "gradient, not attention", "attention and gradient"]
NOT_ATTENTION: Kind = "gradient, not attention"


@dataclass(frozen=True)
class Look:
    """A heat map: how much of each source word went into each target word. Rows sum to 1."""

    source: tuple[str, ...]  # <eos> last
    target: tuple[str, ...]
    weights: NDArray[np.floating]  # (target, source)
    kind: Kind
    near: Callable[[], Sentence] | None = field(default=None, repr=False, compare=False)  # every layer and head

    def __str__(self) -> str:
        from regard.show.terminal import heat_map

        return heat_map(self, width=100).plain

    def _repr_html_(self) -> str | None:
        """What a notebook shows."""
        return fragment(self.near()) if self.near else None


@contextmanager
def reading(model: nn.Module) -> Iterator[list[Tensor]]:
    """The vectors that tokens are read as (the source's, where there is one), kept so that gradients to them can be
    asked for."""
    embedded: list[Tensor] = []

    def keep(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
        if embedded:  # the same vectors read the target, after the source
            return output
        embedded.append(output.detach().requires_grad_())
        return embedded[0]

    embed = read_with(model)
    assert embed is not None
    hook = embed.register_forward_hook(keep)
    try:
        yield embedded
    finally:
        hook.remove()


def gradient_weights(model: EncoderDecoder, batch: Batch) -> Tensor:
    """(batch, target - 1, source): |∂ log p(yₜ)/∂xᵢ|, xᵢ the embedding of source token i, each row over its sum."""
    assert batch.target is not None
    with torch.enable_grad():
        with reading(model) as embedded:
            log_probs = model.logits(batch).log_softmax(-1)
        chosen = log_probs.gather(-1, batch.target[:, 1:, None])[..., 0]  # (batch, target - 1)
        rows = []
        for step in range(chosen.shape[1]):
            (slope,) = torch.autograd.grad(chosen[:, step].sum(), embedded[0], retain_graph=True)
            rows.append(slope.norm(dim=-1))  # (batch, source)
    sizes = torch.stack(rows, 1) * batch.source_mask[:, None]
    return sizes / sizes.sum(-1, keepdim=True).clamp_min(torch.finfo(sizes.dtype).tiny)


def forced_weights(model: EncoderDecoder, batch: Batch, *, layer: int | None = None) -> Tensor:
    """(batch, target - 1, source): attention, the mean of the heads, and of the layers unless one is named;
    or the gradient where nothing attends."""
    if not model.decoder.looks_back():
        return gradient_weights(model, batch)
    weights = model.attention(batch).mean(2)  # (batch, layers, target - 1, source)
    if layer is None:
        return weights.mean(1)
    layers = weights.shape[1]
    if not 1 <= layer <= layers:
        raise UserError(f"--layer {layer} does not exist: this model has layers 1 to {layers}.")
    return weights[:, layer - 1]


def merge(weights: NDArray[np.floating], source_words: list[int], target_words: list[int]) -> NDArray[np.floating]:
    """Sub-word weights to word weights: summed over a source word's pieces, averaged over a target word's.

    weights (target pieces [+ <eos>], source pieces + <eos>) -> (target words, source words + <eos>)
    """
    columns = np.zeros((len(source_words) + 1, max(source_words, default=-1) + 2))
    columns[np.arange(len(source_words)), source_words] = 1
    columns[-1, -1] = 1
    rows = np.zeros((max(target_words, default=-1) + 1, len(target_words)))
    rows[target_words, np.arange(len(target_words))] = 1
    rows /= np.maximum(rows.sum(1, keepdims=True), 1)
    merged: NDArray[np.floating] = rows @ weights[: len(target_words), : len(source_words) + 1] @ columns
    return merged


class Reading(NamedTuple):
    """A sentence and a target, ready to be read together."""

    source: list[Piece]
    target: list[Piece]
    text: str  # of the target
    batch: Batch


def read(run: Run, source: str, target: str | None) -> tuple[EncoderDecoder, Reading]:
    """`source` with `target`, or with the model's own translation."""
    if isinstance(run.model, Tags):
        raise UserError(f"{run.recipe.model_name} tags words: only --neighbours looks into that.")
    if not isinstance(run.model, EncoderDecoder):
        raise UserError(f"{run.recipe.model_name} reads no source: there is no alignment to look at.")
    most = most_read(run.model, Decoding())
    pieces = run.tokenizers.source.pieces(source)
    if not pieces or not source.strip():
        raise UserError("The sentence to look at is empty.")
    if len(pieces) <= most and target is None:
        target = run.predict([source])[0].text
    target = target or ""
    written = run.tokenizers.target.pieces(target)
    for what, length in (("sentence", len(pieces)), ("translation", len(written))):
        if length > most:
            raise UserError(f"The {what} has {length} tokens, and at most {most} can be looked at: give a shorter one.")
    batch = Batch(
        pad([[piece.id for piece in pieces]], multiple=1),
        pad([[piece.id for piece in written]], multiple=1, begin=True),
    ).to(run.device)
    return run.model, Reading(pieces, written, target, batch)


def look(run: Run, source: str, target: str | None = None, *, layer: int | None = None) -> Look:
    """What goes into each word of `target`, or of the model's own translation of `source`; or into a label."""
    if isinstance(run.model, Classifier):
        return what_decided(run, source, target)
    model, reading = read(run, source, target)
    weights = forced_weights(model, reading.batch, layer=layer)[0].cpu().numpy()
    return Look(
        source=(*_words(reading.source), "<eos>"),
        target=tuple(_words(reading.target)),
        weights=merge(weights, [piece.word for piece in reading.source], [piece.word for piece in reading.target]),
        kind="attention" if model.decoder.looks_back() else NOT_ATTENTION,
        near=lambda: look_closely(run, source, reading.text),
    )


def what_decided(run: Run, text: str, label: str | None = None) -> Look:
    """How much each word had to do with `label`, or with the model's own: the attention of the pooling where there is
    one, and |∂ ln P(label)/∂xᵢ|, each over its sum."""
    model, names = run.model, run.tokenizers.target
    assert isinstance(model, Classifier)
    pieces = run.tokenizers.source.pieces(as_read(run, text))
    if not pieces:
        raise UserError("The sentence to look at is empty.")
    batch = Batch(pad([[piece.id for piece in pieces]], multiple=1)).to(run.device)
    labels = names.surface(range(LABELS, names.size))
    if label is not None and label not in labels:
        raise UserError(f"--target {label!r} is no label of this model: it has {', '.join(labels)[:200]}.")
    with torch.enable_grad(), watch(model) as seen, reading(model) as embedded:
        log_probs = model.classify(batch)[0]
        chosen = int(log_probs.argmax()) if label is None else labels.index(label)
        (slope,) = torch.autograd.grad(log_probs[chosen], embedded[0])
    slopes = slope[0].norm(dim=-1)
    rows = {f"{labels[chosen]}, gradient": (slopes / slopes.sum().clamp_min(1e-30))[None]}
    pooling = [path for path in seen.paths() if path.startswith("head.")]
    if pooling:
        rows = {f"{labels[chosen]}, attention": seen[pooling[0]][0][0, 0].detach()} | rows
    weights = torch.cat([row.float() for row in rows.values()]).cpu().numpy()
    return Look(
        source=(*_words(pieces), "<eos>"),
        target=tuple(rows),
        weights=merge(weights, [piece.word for piece in pieces], list(range(len(rows)))),
        kind="attention and gradient" if pooling else NOT_ATTENTION,
    )


def look_closely(run: Run, source: str, target: str | None = None) -> Sentence:
    """Every head of every attention of the model, token by token, while it reads `target` or its own translation; or
    what had to do with a label."""
    if isinstance(run.model, Classifier):
        decided = what_decided(run, source, target)
        view = View("which words decided", 1, decided.target, decided.source, decided.weights[None])
        return Sentence(source, decided.target[0].partition(",")[0], (view,), note=decided.kind)
    model, reading = read(run, source, target)
    read_tokens = (*(piece.text for piece in reading.source), "<eos>")
    inputs = ("<bos>", *(piece.text for piece in reading.target))
    outputs = (*inputs[1:], "<eos>")
    if not model.decoder.looks_back():
        slopes = gradient_weights(model, reading.batch).cpu().numpy()  # (1, target, source)
        views = [View("what it writes depends on what it read", 1, outputs, read_tokens, slopes)]
        return Sentence(source, reading.text, tuple(views), note=NOT_ATTENTION)
    with torch.no_grad(), watch(model) as seen:
        model.hidden(reading.batch)
    back = {seen.names[attention] for attention in model.decoder.looks_back()}
    kinds: dict[str, tuple[tuple[str, ...], tuple[str, ...], list[str]]] = {
        "what it writes looks at what it read": (outputs, read_tokens, []),
        "what it writes looks at what it has written": (outputs, inputs, []),
        "what it reads looks at itself": (read_tokens, read_tokens, []),
    }
    across, own, encoder = (paths for _, _, paths in kinds.values())
    for path in seen.paths():
        (across if path in back else encoder if path.startswith("encoder.") else own).append(path)
    return Sentence(
        source,
        reading.text,
        tuple(
            # a recurrent decoder looks once per step, a Transformer at all steps together: both join along the target
            View(name, layer, rows, columns, torch.cat(seen[path], 2)[0].float().cpu().numpy())
            for name, (rows, columns, paths) in kinds.items()
            for layer, path in enumerate(paths, start=1)
        ),
    )


def _words(pieces: list[Piece]) -> list[str]:
    words = [""] * (max((piece.word for piece in pieces), default=-1) + 1)
    for piece in pieces:
        words[piece.word] += piece.text
    return [word.strip() or word for word in words]

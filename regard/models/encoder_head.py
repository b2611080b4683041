"""The models that read a text, or two, and answer: an encoder and a head.

P(label | x) from one vector per text                P(tags | x) from one vector per word, or from a CRF over the tags
a number, w · pooled + b: squared error              P(choice) = softmax over the scores of question and answer, each
P(start), P(end): a softmax over the positions of the second text each                     Radford 2018, Devlin 2019
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.interface import (
    EOS,
    PAD,
    Batch,
    Choice,
    Frames,
    Inside,
    Label,
    Loss,
    Padded,
    Scalar,
    Shapes,
    Span,
    TagIds,
    UserError,
)
from regard.layers.crf import CRF
from regard.layers.dropout import Dropout
from regard.layers.encoders import (
    Embedding,
    Encoded,
    SoundEncoder,
    Spelling,
    WordReader,
    extra_states,
    prompt_length,
)
from regard.layers.heads import AdaptiveHead, SoftmaxHead
from regard.layers.inside import attentions_in, inside_of, recurrences_in, seen
from regard.layers.sound import FrameReader, SubsampledEncoder, Subsampling
from regard.models.design import size_of

APART = "A model for multiple choice reads each answer by itself, so it has no one sequence of states"
HALVINGS = 2  # of the number of frames, before an encoder reads them: a state covers 40 ms
SPREAD = 0.3  # initial scale of word vectors: small, so that rare words are not noise


def _exact(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


class ClassHead(nn.Module):
    """softmax(W pooled + b), one label per sentence."""

    weights: Tensor

    def __init__(self, *, pool: nn.Module, dim: int, labels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.pool = pool
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(dim, labels)
        # class weights; not saved, since they follow from the training data
        self.register_buffer("weights", torch.ones(labels), persistent=False)

    def logits(self, encoded: Encoded) -> Tensor:
        return _exact(self.linear(self.dropout(self.pool(encoded))))  # (batch, labels)

    def loss(self, encoded: Encoded, targets: Padded) -> Loss:
        """Compute the loss of targets (batch, 1)."""
        labels, logits = targets.values[:, 0], self.logits(encoded)
        nll = nn.functional.cross_entropy(logits, labels, reduction="sum")
        objective = nn.functional.cross_entropy(logits, labels, weight=self.weights, reduction="sum")
        return Loss(objective, nll.detach(), len(labels))


class ScalarHead(nn.Module):
    """w · pooled + b, one number per text."""

    def __init__(self, *, pool: nn.Module, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.pool = pool
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(dim, 1)

    def numbers(self, encoded: Encoded) -> Tensor:
        return _exact(self.linear(self.dropout(self.pool(encoded))))[:, 0]  # (rows,)

    def loss(self, encoded: Encoded, targets: Padded) -> Loss:
        """Compute the squared error of targets (batch, 1); it takes the place of −ln p."""
        error = ((self.numbers(encoded) - targets.values[:, 0]) ** 2).sum()
        return Loss(error, error.detach(), len(targets.values))


class SpanHead(nn.Module):
    """softmaxᵢ(wₛ · hᵢ) and softmaxᵢ(wₑ · hᵢ): where an answer begins and ends."""

    def __init__(self, *, dim: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(dim, 2)

    def log_probs(self, encoded: Encoded, real: Tensor) -> Tensor:
        """ln P of the first and of the last token of the answer among the real positions: (batch, 2, source)."""
        scores = _exact(self.linear(self.dropout(encoded.states))).transpose(1, 2)
        return scores.masked_fill(~real[:, None], -torch.inf).log_softmax(-1)


class TagHead(nn.Module):
    """A tag for each word: the most probable one, or the most probable tag sequence (CRF)."""

    def __init__(self, *, dim: int, tags: int, chain: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(dim, tags)
        self.chain = CRF(tags) if chain else None

    def emissions(self, encoded: Encoded) -> Tensor:
        return _exact(self.linear(self.dropout(encoded.states)))  # (batch, source, tags)

    def loss(self, encoded: Encoded, targets: Padded) -> Loss:
        """Compute the loss of tags (batch, source), real at words; <eos> has no tag, so its column may be missing."""
        tags, real = targets
        scores = self.emissions(encoded)[:, : tags.shape[1]]
        if self.chain is None:
            nll = -(scores.log_softmax(-1).gather(-1, tags[..., None])[..., 0] * real).sum()
        else:
            nll = (self.chain.log_total(scores, real) - self.chain.score(scores, tags, real)).sum()
        return Loss(nll, nll.detach(), len(tags[real]))

    def tags(self, encoded: Encoded, real: Tensor) -> Tensor:
        scores = self.emissions(encoded)
        return scores.argmax(-1) if self.chain is None else self.chain.best(scores, real)  # (batch, source)


class EncoderWithHead(nn.Module):
    def __init__(
        self,
        encoder: nn.Module,
        head: nn.Module,
        *,
        beside: tuple[str, ...] = (),
        longest: int | None = None,
    ) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head
        self.words: SoftmaxHead | AdaptiveHead | None = None  # of a causal encoder: predicts the next token
        self.auxiliary = 0.0  # weight of its loss per token, beside the task's per answer
        self.beside = beside  # further inputs of the encoder besides the source, by name
        self.longest = longest  # maximum length in tokens, padding and <eos> included; None: no limit

    def encoded(self, batch: Batch) -> Encoded:
        encoded: Encoded = self.encoder(batch.source, *(batch.beside[name] for name in self.beside))
        return encoded

    def encode(self, batch: Batch) -> Padded:
        encoded = self.encoded(batch)
        return Padded(encoded.states, encoded.mask)

    def loss(self, batch: Batch) -> Loss:
        assert batch.target is not None
        encoded = self.encoded(batch)
        loss: Loss = self.head.loss(encoded, batch.target)  # type: ignore[operator]
        if self.words is None:
            return loss
        assert batch.source is not None
        said = self.words.loss(encoded.states[:, :-1], batch.source)  # the state of <bos> predicts the first token
        return loss._replace(objective=loss.objective + self.auxiliary * said.objective * loss.tokens / said.tokens)

    def inspect(self) -> Inside:
        extra = extra_states(self.encoder)
        before = extra + prompt_length(self.encoder)
        attentions = (
            *seen(attentions_in(self.encoder), "self", "source", "source", before, before),
            *seen(attentions_in(self.head), "pooling", None, "source", extra),
        )
        return inside_of(self.encoder, attentions, recurrences_in(self.encoder, "source"))


class Classifier(EncoderWithHead):
    """A model that classifies."""

    head: ClassHead

    def weigh(self, counts: NDArray[Any]) -> None:
        """Set class weights such that each label has the same total weight and the sum stays the same."""
        weights = self.head.weights
        there = torch.ones_like(weights)
        there[: len(counts)] = torch.from_numpy(counts).to(weights).clamp(min=1)
        weights.copy_(there.sum() / (len(there) * there))

    def classify(self, batch: Batch) -> Tensor:
        """ln P(label | x): (batch, labels)."""
        return self.head.logits(self.encoded(batch)).log_softmax(-1)


class Tagger(EncoderWithHead):
    """A model that tags."""

    head: TagHead

    def encoded(self, batch: Batch) -> Encoded:
        """One state per token, or where words are split into pieces one per word: that of its first piece."""
        encoded = without(super().encoded(batch), extra_states(self.encoder))
        if (firsts := batch.beside.get("firsts")) is None:
            return encoded
        places = (firsts - 1).clamp(min=0)[..., None]  # (batch, words, 1)
        states, values = (
            each.gather(1, places.expand(-1, -1, each.shape[-1])) for each in (encoded.states, encoded.values)
        )
        return encoded._replace(states=states, mask=firsts > 0, values=values)

    def tag(self, batch: Batch) -> Tensor:
        """Return the id of each word's tag: (batch, source), or (batch, words)."""
        assert batch.source is not None
        encoded = self.encoded(batch)
        return self.head.tags(encoded, encoded.mask if "firsts" in batch.beside else batch.source.but_end().mask)


class Estimator(EncoderWithHead):
    """A model that gives a number."""

    head: ScalarHead

    def estimate(self, batch: Batch) -> Tensor:
        """Return the number for each example: (batch,)."""
        return self.head.numbers(self.encoded(batch))


class Chooser(EncoderWithHead):
    """A model that chooses one of several answers: each is read after the question, as a row of its own."""

    head: ScalarHead

    def encode(self, batch: Batch) -> Padded:
        raise UserError(f"{APART}: use the vectors of a run of another task.")

    def rows(self, batch: Batch) -> tuple[Encoded, Tensor]:
        assert batch.source is not None
        rows, owners = rows_of_choices(batch.source)
        return self.encoder(rows), owners

    def choose(self, batch: Batch) -> Tensor:
        """ln P(choice): (batch, choices), −∞ where an example has fewer."""
        encoded, owners = self.rows(batch)
        scores = self.head.numbers(encoded)  # (rows,)
        counts = owners.bincount(minlength=batch.size)
        ranks = torch.arange(len(owners), device=owners.device) - (counts.cumsum(0) - counts)[owners]
        table = scores.new_full((batch.size, int(counts.max())), -torch.inf)
        return table.index_put((owners, ranks), scores).log_softmax(-1)

    def loss(self, batch: Batch) -> Loss:
        assert batch.target is not None
        nll = -self.choose(batch).gather(1, batch.target.values).sum()
        return Loss(nll, nll.detach(), batch.size)


def rows_of_choices(source: Padded) -> tuple[Padded, Tensor]:
    """Cut question <eos> answer <eos> question <eos> answer <eos> … after every second <eos>: one row for each answer,
    and the number of the example that it belongs to."""
    values, mask = source
    ends = ((values == EOS) & mask).long()
    before = ends.cumsum(1) - ends  # (batch, source): how many <eos> are before each token
    counts = (ends.sum(1) + 1) // 2  # (batch,): rows of each example
    rows_before = counts.cumsum(0) - counts
    rows = (before // 2 + rows_before[:, None])[mask]  # (tokens,), ascending
    lengths = rows.bincount()
    columns = torch.arange(len(rows), device=rows.device) - (lengths.cumsum(0) - lengths)[rows]
    found = values.new_full((len(lengths), int(lengths.max())), PAD)
    found[rows, columns] = values[mask]
    owners = torch.arange(len(values), device=values.device).repeat_interleave(counts)
    return Padded.of_ids(found), owners


class Pointer(EncoderWithHead):
    """A model that points at the answer in the second of two texts."""

    head: SpanHead

    def point(self, batch: Batch) -> Tensor:
        """ln P of the first and of the last token of the answer: (batch, 2, source)."""
        assert batch.source is not None
        values, mask = batch.source
        ends = (values == EOS) & mask
        second = (ends.cumsum(1) > 0) & mask & ~ends
        return self.head.log_probs(without(self.encoded(batch), extra_states(self.encoder)), second)

    def loss(self, batch: Batch) -> Loss:
        """−ln P(start) − ln P(end) of targets (batch, 2)."""
        assert batch.target is not None
        nll = -self.point(batch).gather(2, batch.target.values[..., None]).sum()
        return Loss(nll, nll.detach(), batch.size)


def without(encoded: Encoded, extra: int) -> Encoded:
    """Leave out the first states, which are not of the sentence's own tokens."""
    if not extra:
        return encoded
    return encoded._replace(
        states=encoded.states[:, extra:], mask=encoded.mask[:, extra:], values=encoded.values[:, extra:]
    )


def reader(
    shapes: Shapes, *, dim: int, letters: int = 0, dropout: float = 0.0, word_dropout: float = 0.0
) -> WordReader | FrameReader:
    """Build what reads the source: words, or frames, which `headed` subsamples first."""
    if isinstance(shapes.source, Frames):
        return FrameReader(dim)
    return WordReader(
        embed=Embedding(vocab=size_of(shapes.source), dim=dim, dropout=dropout, spread=SPREAD),
        spelling=Spelling(filters=letters, dropout=dropout) if letters and isinstance(shapes.target, TagIds) else None,
        hidden_words=word_dropout,
    )


def listening(encoder: nn.Module, width: int, *, dim: int, dropout: float) -> SubsampledEncoder:
    """Put convolutions before an encoder that reads frames, and whose states are `dim` wide."""
    read = next(part.output_dim for part in encoder.modules() if isinstance(part, FrameReader))
    fewer = Subsampling(width=width, dim=read, halvings=HALVINGS, dropout=dropout)
    return SubsampledEncoder(subsampling=fewer, encoder=encoder, dim=dim)


def headed(
    encoder: nn.Module,
    shapes: Shapes,
    *,
    dim: int,
    pool: Callable[[int], nn.Module],
    chain: bool = False,
    dropout: float = 0.0,
    beside: tuple[str, ...] = (),
    longest: int | None = None,
) -> EncoderWithHead:
    """Combine an encoder, whose states are `dim` wide, with the head that the target needs: for a label, a number,
    tags, a choice or a span. `longest` is the encoder's maximum length in tokens; None: no limit. An encoder of frames
    reads them subsampled."""
    if isinstance(shapes.source, Frames) and not isinstance(encoder, SoundEncoder):
        encoder = listening(encoder, shapes.source.width, dim=dim, dropout=dropout)
    if isinstance(shapes.target, TagIds):
        tags = TagHead(dim=dim, tags=shapes.target.size, chain=chain, dropout=dropout)
        return Tagger(encoder, tags, beside=beside, longest=longest)
    if isinstance(shapes.target, Span):
        return Pointer(encoder, SpanHead(dim=dim, dropout=dropout), beside=beside, longest=longest)
    if isinstance(shapes.target, Scalar | Choice):
        shell = Estimator if isinstance(shapes.target, Scalar) else Chooser
        return shell(encoder, ScalarHead(pool=pool(dim), dim=dim, dropout=dropout), beside=beside, longest=longest)
    label = ClassHead(pool=pool(dim), dim=dim, labels=size_of(shapes.target, Label), dropout=dropout)
    return Classifier(encoder, label, beside=beside, longest=longest)

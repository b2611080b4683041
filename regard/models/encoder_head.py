"""The shell of what reads a sentence and names it, or each of its words: an encoder and a head.

P(label | x) from one vector of the sentence;   P(tags | x) from one vector a word, or from the chain of tags
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.interface import PAD, SPECIALS, UNK, Batch, Loss
from regard.layers.chain import Chain
from regard.layers.dropout import Dropout
from regard.layers.encoders import Embedding, Encoded
from regard.layers.reading import Reader, Spelling
from regard.models.design import Vocabulary

SPREAD = 0.3  # of words' first vectors: what a rare word says is to be learnt, not drawn by lot
LABELS = len(SPECIALS)  # labels' numbers begin after the special tokens'


def _exact(scores: Tensor) -> Tensor:
    return scores.to(torch.promote_types(scores.dtype, torch.float32))


class ClassHead(nn.Module):
    """softmax(W pooled + b), one label a sentence."""

    weights: Tensor

    def __init__(self, *, pool: nn.Module, dim: int, labels: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.pool = pool
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(dim, labels)
        self.register_buffer("weights", torch.ones(labels))  # of the labels' losses

    def weigh(self, counts: NDArray[Any]) -> None:
        """All labels together weigh as they did, and each as much as another."""
        there = torch.from_numpy(counts).to(self.weights).clamp(min=1)
        self.weights.copy_(there.sum() / (len(there) * there))

    def logits(self, encoded: Encoded) -> Tensor:
        logits: Tensor = self.linear(self.dropout(self.pool(encoded)))
        return _exact(logits)  # (batch, labels)

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        assert batch.target is not None
        labels, logits = batch.target[:, 0] - LABELS, self.logits(encoded)
        nll = nn.functional.cross_entropy(logits, labels, reduction="sum")
        objective = nn.functional.cross_entropy(logits, labels, weight=self.weights, reduction="sum")
        return Loss(objective, nll.detach(), len(labels))


class TagHead(nn.Module):
    """A tag for each word: the likeliest by itself, or the likeliest chain of tags."""

    def __init__(self, *, dim: int, tags: int, chain: bool, dropout: float = 0.0) -> None:
        super().__init__()
        self.dropout = Dropout(dropout)
        self.linear = nn.Linear(dim, tags)
        self.chain = Chain(tags) if chain else None

    def emissions(self, encoded: Encoded) -> Tensor:
        scores: Tensor = self.linear(self.dropout(encoded.states))
        return _exact(scores)  # (batch, source, tags)

    def loss(self, encoded: Encoded, batch: Batch) -> Loss:
        assert batch.target is not None
        scores, real = self.emissions(encoded), batch.target != PAD  # (batch, source): not <eos>
        tags = (batch.target - LABELS).clamp(min=0)
        if self.chain is None:
            nll = -(scores.log_softmax(-1).gather(-1, tags[..., None])[..., 0] * real).sum()
        else:
            nll = (self.chain.log_total(scores, real) - self.chain.score(scores, tags, real)).sum()
        return Loss(nll, nll.detach(), len(real.nonzero()))

    def tags(self, encoded: Encoded, real: Tensor) -> Tensor:
        scores = self.emissions(encoded)
        best = scores.argmax(-1) if self.chain is None else self.chain.best(scores, real)
        return (best + LABELS) * real  # (batch, source), <pad> where there is no word


class EncoderWithHead(nn.Module):
    def __init__(self, encoder: nn.Module, head: ClassHead | TagHead) -> None:
        super().__init__()
        self.encoder = encoder
        self.head = head

    def encoded(self, batch: Batch) -> Encoded:
        beside = () if batch.spelling is None else (batch.spelling,)
        encoded: Encoded = self.encoder(batch.source, *beside)
        return encoded

    def loss(self, batch: Batch) -> Loss:
        return self.head.loss(self.encoded(batch), batch)


class Classifier(EncoderWithHead):
    """Promises `classify`."""

    head: ClassHead

    def classify(self, batch: Batch) -> Tensor:
        """ln P(label | x): (batch, labels)."""
        return self.head.logits(self.encoded(batch)).log_softmax(-1)


class Tagger(EncoderWithHead):
    """Promises `tag`."""

    head: TagHead

    def tag(self, batch: Batch) -> Tensor:
        """The number of each word's tag: (batch, source), <pad> at <eos> and padding."""
        return self.head.tags(self.encoded(batch), words(batch))


def words(batch: Batch) -> Tensor:
    """Where there is a word: (batch, source)."""
    return batch.source >= UNK


def reader(
    vocabulary: Vocabulary, *, dim: int, letters: int = 0, dropout: float = 0.0, word_dropout: float = 0.0
) -> Reader:
    return Reader(
        embed=Embedding(vocab=vocabulary.source, dim=dim, dropout=dropout, spread=SPREAD),
        spelling=Spelling(filters=letters, dropout=dropout) if letters and vocabulary.per_word else None,
        hidden_words=word_dropout,
    )


def headed(
    encoder: nn.Module,
    vocabulary: Vocabulary,
    *,
    dim: int,
    pool: Callable[[int], nn.Module],
    chain: bool = False,
    dropout: float = 0.0,
) -> Classifier | Tagger:
    """The encoder, whose states are `dim` wide, with a head for labels, or for tags."""
    names = vocabulary.target - LABELS
    if vocabulary.per_word:
        return Tagger(encoder, TagHead(dim=dim, tags=names, chain=chain, dropout=dropout))
    return Classifier(encoder, ClassHead(pool=pool(dim), dim=dim, labels=names, dropout=dropout))

"""The shell of what reads a sentence and names it, or each of its words: embed, read, name.

    P(label | x) from one vector of the sentence;   P(tags | x) from one vector a word, or from the chain of tags
A body reads vectors, in one direction, both or all at once; a head pools or walks its states.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from regard.interface import PAD, SPECIALS, UNK, Batch, Loss
from regard.layers.cells import cell_named
from regard.layers.chain import Chain
from regard.layers.convolution import Windows
from regard.layers.dropout import Dropout
from regard.layers.encoders import Embedding, Encoded
from regard.layers.positions import Positions
from regard.layers.recurrent import Recurrent, Skip
from regard.layers.transformer import Stack
from regard.models.design import Vocabulary

LABELS = len(SPECIALS)  # labels' numbers begin after the special tokens'
BYTES = 256
LETTER_DIM = 32


class Body(Protocol):
    output_dim: int

    def __call__(self, x: Tensor, mask: Tensor) -> Encoded: ...  # (batch, source, dim), (batch, source)


class Reader(nn.Module):
    """A token's vector; beside it, where words are spelt out, what their letters make. In training some words are
    hidden (word dropout), so that a word's neighbours must do without it."""

    def __init__(self, *, embed: Embedding, spelling: Spelling | None = None, hidden_words: float = 0.0) -> None:
        super().__init__()
        self.embed = embed
        self.spelling = spelling
        self.hidden_words = hidden_words
        self.output_dim = embed.weight.shape[1] + (spelling.output_dim if spelling else 0)

    def forward(self, batch: Batch) -> Tensor:
        tokens = batch.source
        if self.training and self.hidden_words:
            hidden = (torch.rand(tokens.shape, device=tokens.device) < self.hidden_words) & (tokens > UNK)
            tokens = tokens.masked_fill(hidden, UNK)
        embedded: Tensor = self.embed(tokens)  # (batch, source, dim)
        if self.spelling is None:
            return embedded
        assert batch.spelling is not None
        return torch.cat([embedded, self.spelling(batch.spelling)], -1)


class Spelling(nn.Module):
    """What the bytes of a word make: windows over them, the largest of each feature (Ma & Hovy 2016, section 2.1)."""

    def __init__(self, *, dim: int, filters: int, width: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = Embedding(vocab=BYTES + 1, dim=dim, dropout=dropout)  # 0: beyond the word's end
        self.windows = Windows(input_dim=dim, filters=filters, widths=(width,))
        self.output_dim = filters

    def forward(self, spelling: Tensor) -> Tensor:
        """(batch, source, bytes) -> (batch, source, filters)."""
        batch, source, width = spelling.shape
        letters = spelling.view(batch * source, width)
        return self.windows(self.embed(letters), letters != 0).amax(1).view(batch, source, -1)  # type: ignore[no-any-return]


class Recurrence(nn.Module):
    def __init__(self, recurrent: Recurrent, *, dropout: float = 0.0) -> None:
        super().__init__()
        self.recurrent = recurrent
        self.dropout = Dropout(dropout)
        self.output_dim = recurrent.output_dim

    def forward(self, x: Tensor, mask: Tensor) -> Encoded:
        states, final = self.recurrent(x, mask)
        states = self.dropout(states)
        return Encoded(states, mask, final, states)


def recurrence(
    dim: int,
    *,
    hidden: int,
    layers: int,
    cell: str,
    skip: Skip,
    dropout: float,
    bidirectional: bool = True,
) -> Recurrence:
    """A body that reads vectors of this width."""
    recurrent = Recurrent(
        cell=cell_named(cell),
        input_dim=dim,
        hidden=hidden,
        layers=layers,
        bidirectional=bidirectional,
        dropout=dropout,
        skip=skip,
    )
    return Recurrence(recurrent, dropout=dropout)


class SelfAttention(nn.Module):
    """Every token looks at every token; with `cls`, a learnt one stands before them."""

    def __init__(self, *, enter: nn.Module, positions: Positions, stack: Stack, dim: int, cls: bool, dropout: float):
        super().__init__()
        self.enter = enter
        self.positions = positions
        self.stack = stack
        self.dropout = Dropout(dropout)
        self.cls = nn.Parameter(torch.randn(dim)) if cls else None
        self.output_dim = dim

    def forward(self, x: Tensor, mask: Tensor) -> Encoded:
        x = self.enter(x)
        if self.cls is not None:
            x = torch.cat([self.cls.to(x.dtype).expand(len(x), 1, -1), x], 1)
            mask = torch.cat([mask.new_ones(len(mask), 1), mask], 1)
        places = torch.arange(x.shape[1], device=x.device)
        states, _ = self.stack(self.dropout(self.positions(x, places)), mask=mask[:, None], real=mask)
        return Encoded(states, mask, (), states)


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
        return Loss(nll, nll.detach(), int(real.sum()))

    def tags(self, encoded: Encoded, real: Tensor) -> Tensor:
        scores = self.emissions(encoded)
        best = scores.argmax(-1) if self.chain is None else self.chain.best(scores, real)
        return (best + LABELS) * real  # (batch, source), <pad> where there is no word


class EncoderWithHead(nn.Module):
    def __init__(self, *, reader: Reader, body: Body, head: ClassHead | TagHead) -> None:
        super().__init__()
        self.reader = reader
        self.body = body
        self.head = head

    def encoded(self, batch: Batch) -> Encoded:
        return self.body(self.reader(batch), batch.source_mask)

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


def assembled(
    *,
    vocabulary: Vocabulary,
    embedding: int,
    body: Callable[[int], Body],
    pool: Callable[[int], nn.Module],
    chain: bool,
    letters: int,
    dropout: float,
    word_dropout: float,
) -> Classifier | Tagger:
    """The shell around a body, which is made for the width of what it reads; for labels, or for tags."""
    reader = Reader(
        embed=Embedding(vocab=vocabulary.source, dim=embedding, dropout=dropout),
        spelling=Spelling(dim=LETTER_DIM, filters=letters, dropout=dropout) if letters else None,
        hidden_words=word_dropout,
    )
    made = body(reader.output_dim)
    dim, labels = made.output_dim, vocabulary.target - LABELS
    if vocabulary.per_word:
        tags = TagHead(dim=dim, tags=labels, chain=chain, dropout=dropout)
        return Tagger(reader=reader, body=made, head=tags)
    head = ClassHead(pool=pool(dim), dim=dim, labels=labels, dropout=dropout)
    return Classifier(reader=reader, body=made, head=head)

"""Encoders: a source sentence becomes one state per token, and a final state where the encoder has one.

An encoder reads tokens with its `embed`, which may also read their spelling (character features).
x = [E w ; max_j relu(W c_{j : j + 2} + b)], c the bytes of the word        Ma & Hovy 2016, section 2.1
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.interface import BOS, EOS, UNK, Padded
from regard.layers.attention import unwatched
from regard.layers.cells import State as CellState
from regard.layers.convolution import Windows
from regard.layers.dropout import Dropout
from regard.layers.recurrent import Recurrent, reverse
from regard.layers.transformer import Stack

BYTES = 256
LETTER_DIM = 32
SMALL = 0.02  # the initial scale of vectors that are read as they are (Radford 2018, section 4.1)


class Encoded(NamedTuple):
    states: Tensor  # (batch, source, dim)
    mask: Tensor  # (batch, source)
    final: tuple[CellState, ...]  # per layer, after the last token; empty for an encoder that is not recurrent
    values: Tensor  # (batch, source, value_dim): the values of attention, the states and optionally more


class Embedding(nn.Module):
    """A table of vectors of about unit length, multiplied by √dim, so that a component is about 1, or `spread`.

    The scale of the table suits an output matrix too (weight tying). If it is not `scaled`, the vectors are read as
    they are in the table, and are small at first.
    """

    def __init__(self, *, vocab: int, dim: int, dropout: float = 0.0, spread: float = 1.0, scaled: bool = True) -> None:
        super().__init__()
        self.dim = dim
        self.scale = dim**0.5 if scaled else 1.0
        std = spread * dim**-0.5 if scaled else SMALL
        self.weight = nn.Parameter(nn.init.normal_(torch.empty(vocab, dim), std=std))
        self.prompt: nn.Parameter | None = None  # the vectors of ids from `vocab` on (prompt tuning)
        self.dropout = Dropout(dropout)

    def forward(self, tokens: Tensor) -> Tensor:
        vocab = len(self.weight)
        vectors = nn.functional.embedding(tokens if self.prompt is None else tokens.clamp(max=vocab - 1), self.weight)
        if self.prompt is not None:
            learnt = nn.functional.embedding((tokens - vocab).clamp(min=0), self.prompt)
            vectors = torch.where((tokens < vocab)[..., None], vectors, learnt)
        embedded: Tensor = self.dropout(vectors * self.scale)
        return embedded  # (…, dim)

    @torch.no_grad()
    def put(self, place: int, vector: Tensor) -> None:
        """Set the vector, (dim,), of token `place`."""
        self.weight[place] = vector / self.scale


class Spelling(nn.Module):
    """Character features: a convolution over the bytes of a word, and the maximum of each feature."""

    def __init__(self, *, filters: int, dim: int = LETTER_DIM, width: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = Embedding(vocab=BYTES + 1, dim=dim, dropout=dropout)  # 0: padding after the word's end
        self.windows = Windows(input_dim=dim, filters=filters, widths=(width,))
        self.output_dim = filters

    def forward(self, spelling: Tensor) -> Tensor:
        """(batch, source, bytes) -> (batch, source, filters)."""
        batch, source, width = spelling.shape
        letters = spelling.view(batch * source, width)
        return self.windows(self.embed(letters), letters != 0).amax(1).view(batch, source, -1)  # type: ignore[no-any-return]


class WordReader(nn.Module):
    """A token's vector, with character features appended if `spelling` is given. In training some words are hidden
    (word dropout), so that the model learns from their neighbours."""

    def __init__(self, *, embed: Embedding, spelling: Spelling | None = None, hidden_words: float = 0.0) -> None:
        super().__init__()
        self.embed = embed
        self.spelling = spelling
        self.hidden_words = hidden_words
        self.beside = () if spelling is None else ("spelling",)  # further inputs besides the tokens, by name
        self.output_dim = embed.dim + (spelling.output_dim if spelling else 0)

    def forward(self, tokens: Tensor, letters: Tensor | None = None) -> Tensor:
        if self.training and self.hidden_words:
            hidden = (torch.rand(tokens.shape, device=tokens.device) < self.hidden_words) & (tokens > UNK)
            tokens = tokens.masked_fill(hidden, UNK)
        embedded: Tensor = self.embed(tokens)  # (batch, source, dim)
        if self.spelling is None:
            return embedded
        assert letters is not None
        return torch.cat([embedded, self.spelling(letters)], -1)


class RecurrentEncoder(nn.Module):
    """hₜ = f(xₜ, hₜ₋₁), optionally bidirectional; `reverse` reads it from right to left (Sutskever 2014, 3.3)."""

    def __init__(
        self,
        *,
        embed: nn.Module,
        recurrent: Recurrent,
        dropout: float = 0.0,
        reverse: bool = False,
        lexical: bool = False,  # a token's value is its own vector and its state
    ) -> None:
        super().__init__()
        self.embed = embed
        self.recurrent = recurrent
        self.dropout = Dropout(dropout)
        self.reverse = reverse
        self.lexical = lexical

    def forward(self, source: Padded, *beside: Tensor) -> Encoded:
        mask = source.mask  # (batch, source)
        embedded = self.embed(source.values, *beside)
        if self.reverse:
            embedded = reverse(embedded, mask)
        states, final = self.recurrent(embedded, mask)
        states = self.dropout(states)
        values = torch.cat((embedded, states), dim=-1) if self.lexical else states
        return Encoded(states, mask, final, values)


class TransformerEncoder(nn.Module):
    """Layers of self-attention over the sentence (Vaswani 2017, 3.1). A state may precede those of the sentence: that
    of a learned vector, `first`, or of the token <bos>, if the encoder `begins` with it (<cls>: Devlin 2019)."""

    def __init__(
        self,
        *,
        embed: nn.Module,
        stack: Stack,
        enter: nn.Linear | None = None,  # from the embedding's width to the stack's, where they differ
        first: nn.Parameter | None = None,
        begins: bool = False,
    ) -> None:
        super().__init__()
        self.embed = embed
        self.enter = enter
        self.first = first
        self.begins = begins
        self.stack = stack
        self.extra = int(begins or first is not None)  # states before those of the sentence

    def forward(self, source: Padded, *beside: Tensor) -> Encoded:
        if self.begins:
            source = source.led_by(BOS)
        mask = source.mask  # (batch, source)
        x = self.embed(source.values, *beside)
        if self.enter is not None:
            x = self.enter(x)
        if self.first is not None:
            x = torch.cat([self.first.to(x.dtype).expand(x.shape[0], 1, -1), x], 1)
            mask = torch.cat([mask.new_ones(mask.shape[0], 1), mask], 1)
        states, _ = self.stack(x, mask=mask[:, None], real=mask)
        return Encoded(states, mask, (), states)


class CausalEncoder(nn.Module):
    """Reads <bos> and the sentence from left to right, as a language model does: a state knows what is before it.

    With `both_orders`, a pair of texts is read in both orders, and the last states are added (Radford 2018, 3.3)."""

    extra = 1

    def __init__(self, *, embed: nn.Module, body: nn.Module, both_orders: bool = False) -> None:
        super().__init__()
        self.embed = embed
        self.body = body  # (batch, time, dim) -> the states, (batch, time, dim), and a state to continue from
        self.both_orders = both_orders

    def forward(self, source: Padded) -> Encoded:
        read = source.led_by(BOS)
        states: Tensor = self.body(self.embed(read.values))[0]
        if self.both_orders:
            turned, pairs = swapped(source, prompt_length(self))
            last = (read.mask & ~read.but_end().mask) & pairs[:, None]  # (batch, source)
            with unwatched():
                states = states + self.body(self.embed(turned.led_by(BOS).values))[0] * last[..., None]
        return Encoded(states, read.mask, (), states)


def swapped(source: Padded, prompt: int = 0) -> tuple[Padded, Tensor]:
    """Put the first text of each row after the others; and return which rows have more than one text, (batch,). So many
    columns before the texts stay where they are."""
    ids, mask = source.values[:, prompt:], source.mask[:, prompt:]
    lengths, places = mask.sum(1, keepdim=True), torch.arange(ids.shape[1], device=ids.device)
    first = (ids == EOS).int().argmax(1, keepdim=True) + 1  # the length of the first text, with its <eos>
    moved = ids.gather(1, torch.where(mask, (places + first) % lengths, places))
    return Padded(torch.cat([source.values[:, :prompt], moved], 1), source.mask), (first < lengths)[:, 0]


class SoundEncoder(nn.Module):
    """An encoder of recordings; a state covers `stride` frames."""

    stride: int
    dim: int  # width of a state
    extra = 0  # states before those of the recording


def extra_states(encoder: nn.Module) -> int:
    """Count the states before those of the sentence's own tokens."""
    return encoder.extra if isinstance(encoder, TransformerEncoder | CausalEncoder | SoundEncoder) else 0


def add_prompt(encoder: nn.Module, embed: nn.Module, length: int) -> None:
    """Prompt tuning (Lester 2021): the encoder reads `length` learnt vectors, which `embed` has, before each source,
    as if they were tokens; their states are left out of what it returns."""
    assert isinstance(embed, Embedding)
    vocab, dim = embed.weight.shape
    embed.prompt = nn.Parameter(nn.init.normal_(torch.empty(length, dim), std=dim**-0.5))

    def lead(encoder: nn.Module, inputs: tuple[Any, ...]) -> tuple[Any, ...]:
        source, *beside = inputs
        ids = torch.arange(vocab, vocab + length, device=source.values.device).expand(source.values.shape[0], -1)
        real = torch.ones_like(ids, dtype=torch.bool)
        led = Padded(torch.cat([ids, source.values], 1), torch.cat([real, source.mask], 1))
        return led, *(torch.cat([each.new_zeros(ids.shape[0], length, *each.shape[2:]), each], 1) for each in beside)

    def leave_out(encoder: nn.Module, inputs: tuple[Any, ...], encoded: Encoded) -> Encoded:
        first = extra_states(encoder)
        backwards = isinstance(encoder, RecurrentEncoder) and encoder.reverse  # the prompt is then read last

        def rest(every: Tensor) -> Tensor:
            return every[:, :-length] if backwards else torch.cat([every[:, :first], every[:, first + length :]], 1)

        return encoded._replace(states=rest(encoded.states), mask=encoded.mask[:, length:], values=rest(encoded.values))

    encoder.register_forward_pre_hook(lead)
    encoder.register_forward_hook(leave_out)


@torch.no_grad()
def begin_prompts(model: nn.Module) -> None:
    """Set learnt vectors before the input to those of random tokens (Lester 2021, section 3.2)."""
    for part in model.modules():
        if isinstance(part, Embedding) and part.prompt is not None:
            part.prompt.copy_(part.weight[torch.randint(len(part.weight), (len(part.prompt),))])


def prompt_length(encoder: nn.Module) -> int:
    """Count the learnt vectors that the encoder reads before each source."""
    prompts = (part.prompt for part in encoder.modules() if isinstance(part, Embedding))
    return max((len(prompt) for prompt in prompts if prompt is not None), default=0)


class ConvolutionalEncoder(nn.Module):
    """Layers of convolution over tokens; from the second layer on they are residual (Kim 2014)."""

    def __init__(self, *, embed: nn.Module, windows: Sequence[Windows], dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = embed
        self.windows = nn.ModuleList(windows)
        self.dropout = Dropout(dropout)

    def forward(self, source: Padded, *beside: Tensor) -> Encoded:
        mask = source.mask  # (batch, source)
        x = self.embed(source.values, *beside)
        for layer, windows in enumerate(self.windows):
            made = windows(self.dropout(x) if layer else x, mask)
            x = x + made if layer else made
        return Encoded(x, mask, (), x)

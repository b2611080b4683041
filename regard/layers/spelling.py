"""Reading words: by their vectors, and by their letters beside them.

x = [E w ; max_j relu(W c_{j : j + 2} + b)], c the bytes of the word        Ma & Hovy 2016, section 2.1
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from regard.interface import UNK
from regard.layers.convolution import Windows
from regard.layers.encoders import Embedding

BYTES = 256
LETTER_DIM = 32


class Spelling(nn.Module):
    """What the bytes of a word make: windows over them, the largest of each feature."""

    def __init__(self, *, filters: int, dim: int = LETTER_DIM, width: int = 3, dropout: float = 0.0) -> None:
        super().__init__()
        self.embed = Embedding(vocab=BYTES + 1, dim=dim, dropout=dropout)  # 0: beyond the word's end
        self.windows = Windows(input_dim=dim, filters=filters, widths=(width,))
        self.output_dim = filters

    def forward(self, spelling: Tensor) -> Tensor:
        """(batch, source, bytes) -> (batch, source, filters)."""
        batch, source, width = spelling.shape
        letters = spelling.view(batch * source, width)
        return self.windows(self.embed(letters), letters != 0).amax(1).view(batch, source, -1)  # type: ignore[no-any-return]


class WordReader(nn.Module):
    """A token's vector; beside it, where words are spelt out, what their letters make. In training some words are
    hidden (word dropout), so that a word's neighbours must do without it."""

    def __init__(self, *, embed: Embedding, spelling: Spelling | None = None, hidden_words: float = 0.0) -> None:
        super().__init__()
        self.embed = embed
        self.spelling = spelling
        self.hidden_words = hidden_words
        self.beside = () if spelling is None else ("spelling",)  # what it is told beside the tokens, by name
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

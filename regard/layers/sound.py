"""Encoders of recordings: frames of sound become fewer states, each of which covers `stride` frames.

subsampling   x ← gelu(W ∗ x), width 3, every second place, once for each halving: x₂ₜ₋₁, x₂ₜ, x₂ₜ₊₁ become one
pyramid       hₜ of layer l reads [h₂ₜ ; h₂ₜ₊₁] of layer l − 1, both directions        Chan 2016, section 3.1
A padded frame is 0 before every convolution and layer, so padding changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence

from torch import Tensor, nn
from torch.nn import functional

from regard.interface import Padded
from regard.layers.dropout import Dropout
from regard.layers.encoders import Encoded, SoundEncoder, extra_states
from regard.layers.recurrent import Recurrent

REACH = 3  # frames that a convolution reads


def joined_pairs(source: Padded) -> Padded:
    """Put two neighbours side by side: (batch, time, width) -> (batch, ⌈time / 2⌉, 2 · width)."""
    values, mask = source
    if odd := values.shape[1] % 2:
        values, mask = functional.pad(values, (0, 0, 0, odd)), functional.pad(mask, (0, odd))
    batch, time, width = values.shape
    values = values.masked_fill(~mask[..., None], 0.0)
    return Padded(values.reshape(batch, time // 2, 2 * width), mask[:, ::2])


class Subsampling(nn.Module):
    """Convolutions over time, each of which halves the number of frames: (batch, time, width) -> (batch, ⌈time /
    stride⌉, dim)."""

    def __init__(self, *, width: int, dim: int, halvings: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.stride = 2**halvings
        widths = [width] + [dim] * halvings
        self.convolutions = nn.ModuleList(nn.Conv1d(inputs, dim, REACH, stride=2, padding=1) for inputs in widths[:-1])
        self.norm = nn.LayerNorm(dim)
        self.dropout = Dropout(dropout)

    def forward(self, source: Padded) -> Padded:
        x, mask = source
        for convolution in self.convolutions:
            x = x.masked_fill(~mask[..., None], 0.0)
            x, mask = functional.gelu(convolution(x.transpose(1, 2))).transpose(1, 2), mask[:, ::2]
        return Padded(self.dropout(self.norm(x)), mask)


class SubsampledEncoder(SoundEncoder):
    """An encoder that reads subsampled frames instead of words; its `embed` passes them on."""

    def __init__(self, *, subsampling: Subsampling, encoder: nn.Module, dim: int) -> None:
        super().__init__()
        self.subsampling, self.encoder = subsampling, encoder
        self.stride, self.dim, self.extra = subsampling.stride, dim, extra_states(encoder)

    def forward(self, source: Padded, *beside: Tensor) -> Encoded:
        encoded: Encoded = self.encoder(self.subsampling(source))
        return encoded


class PyramidalEncoder(SoundEncoder):
    """Bidirectional recurrent layers, one after another; each of the first `halvings` joins neighbours, and so halves
    the number of states."""

    def __init__(self, *, layers: Sequence[Recurrent], halvings: int, dropout: float = 0.0) -> None:
        super().__init__()
        self.stride, self.dim = 2**halvings, layers[-1].output_dim
        self.halvings = halvings
        self.layers = nn.ModuleList(layers)
        self.dropout = Dropout(dropout)

    def forward(self, source: Padded, *beside: Tensor) -> Encoded:
        x = source
        for layer, recurrent in enumerate(self.layers):
            x = joined_pairs(x) if layer < self.halvings else x
            states, _ = recurrent(x.values, x.mask)
            x = Padded(self.dropout(states), x.mask)
        return Encoded(x.values, x.mask, (), x.values)

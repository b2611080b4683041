"""Log-mel frames: what a model reads of a recording.

    xₜ,b = ln(10⁻⁶ + Σ_f w_b(f) |Xₜ(f)|²)   X the Fourier transform of 25 ms under a Hann window, every 10 ms

Frame t is centred at t · 10 ms, zeros stand before and after the recording, so n samples give 1 + ⌊n / hop⌋ frames, and
a frame depends on the 25 ms around it alone. The filters w are those of Slaney's Auditory Toolbox (1998), as librosa
has them by default: triangles of equal area, evenly spaced on a mel scale that is linear up to 1000 Hz and logarithmic
above, from 20 Hz to half of the rate. 10⁻⁶ is about the energy of white noise at -70 dB: digital silence is finite.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

HOP, WINDOW = 0.01, 0.025  # seconds
PER_SECOND = 100  # frames
LOWEST = 20.0  # Hz
FLOOR = 1e-6  # added to each energy
AT_ONCE = 3000  # frames that are transformed together, so that memory stays small
LINEAR = 200 / 3  # Hz of a mel below the break
BREAK = 1000.0  # Hz, where the scale becomes logarithmic
LOG_STEP = np.log(6.4) / 27  # of a mel above it

Samples = NDArray[np.float32]


def hop_of(rate: int) -> int:
    """The samples from one frame to the next."""
    if rate % PER_SECOND:
        raise ValueError(f"rate = {rate} must be a multiple of {PER_SECOND}, so that a frame is exactly 10 ms.")
    return rate // PER_SECOND


def frames_in(samples: int, rate: int) -> int:
    return 1 + samples // hop_of(rate)


def log_mel(samples: Any, rate: int, bands: int) -> Samples:
    """The frames of a recording, (frames, bands)."""
    hop, length, size = hop_of(rate), round(WINDOW * rate), fft_size(rate)
    wave = torch.as_tensor(samples, dtype=torch.float32)
    wave = torch.nn.functional.pad(wave, (size // 2, size // 2))
    window, filters = torch.hann_window(length), mel_filters(rate, bands)
    count, found = frames_in(len(wave) - size, rate), []
    for first in range(0, count, AT_ONCE):
        last = min(first + AT_ONCE, count) - 1
        part = wave[first * hop : last * hop + size]
        spectrum = torch.stft(part, size, hop, length, window, center=False, return_complex=True)
        power = torch.view_as_real(spectrum).square().sum(-1)  # (frequencies, frames)
        found.append((filters @ power).add(FLOOR).log().T)  # (frames, bands)
    return torch.cat(found).contiguous().numpy()


def fft_size(rate: int) -> int:
    """A power of two, at least twice as long as the window, so that every filter has some frequencies."""
    return int(2 ** np.ceil(np.log2(2 * WINDOW * rate)))


@lru_cache(maxsize=8)
def mel_filters(rate: int, bands: int) -> Tensor:
    """The weight of each frequency of the Fourier transform in each band, (bands, frequencies)."""
    frequencies = np.arange(fft_size(rate) // 2 + 1) * rate / fft_size(rate)
    edges = band_edges(rate, bands)
    widths = np.diff(edges)
    slopes = edges[:, None] - frequencies  # (bands + 2, frequencies)
    rising, falling = -slopes[:-2] / widths[:-1, None], slopes[2:] / widths[1:, None]
    triangles = np.maximum(0, np.minimum(rising, falling))
    return torch.from_numpy(triangles * (2 / (edges[2:] - edges[:-2]))[:, None]).float()


def band_edges(rate: int, bands: int) -> NDArray[np.float64]:
    """In Hz; band b rises from edge b, is highest at edge b + 1 and falls to edge b + 2."""
    return mel_to_hz(np.linspace(hz_to_mel(LOWEST), hz_to_mel(rate / 2), bands + 2))


def hz_to_mel(hz: float) -> float:
    return hz / LINEAR if hz < BREAK else BREAK / LINEAR + float(np.log(hz / BREAK)) / LOG_STEP


def mel_to_hz(mel: NDArray[np.float64]) -> NDArray[np.float64]:
    above = BREAK * np.exp(LOG_STEP * (mel - BREAK / LINEAR))
    return np.where(mel < BREAK / LINEAR, mel * LINEAR, above)

"""Resampling: the same sound at another rate, by a polyphase windowed-sinc filter.

    y[n] = Σₖ x[k] h(n · from / to - k)   h(t) = c sinc(c t) · Kaiser window   Smith, "Digital Audio Resampling", 2002

The rates are `up` / `down` in lowest terms, so that h is needed at `up` phases only: outputs n, n + up, n + 2 up … all
use the same weights, at places `down` apart. Everything below 0.84 of the lower Nyquist frequency passes, everything
above that Nyquist frequency is weakened by 80 dB. Beyond its ends a sound is 0.
"""

from __future__ import annotations

import math
from functools import lru_cache

import numpy as np

from regard.data.frames import Samples

ZEROS = 32  # zero crossings of the sinc to either side
CUTOFF = 0.92  # of the lower of both Nyquist frequencies, where the filter passes half
BETA = 7.857  # of the Kaiser window: 80 dB
TOGETHER = 64  # phases whose weights are computed together
REMEMBERED = 64  # times as many whose weights are not computed twice


def resampled(samples: Samples, from_rate: int, to_rate: int) -> Samples:
    """The same sound at another rate, ⌈samples · to / from⌉ samples; equal rates change nothing."""
    if from_rate == to_rate or not len(samples):
        return samples
    common = math.gcd(from_rate, to_rate)
    up, down = to_rate // common, from_rate // common
    half = reach(up, down)
    count = -(-len(samples) * up // down)
    result = np.empty(count, np.float32)
    tail = 2 * half + 2 * down  # enough for every phase's last window
    wide = np.concatenate([np.zeros(half, np.float32), samples, np.zeros(tail, np.float32)])
    for phase in range(min(up, count)):
        outputs = len(range(phase, count, up))
        filter = weights(phase // TOGETHER, up, down)[phase % TOGETHER]
        result[phase::up] = _strided_product(wide[phase * down // up :], filter, down, outputs)
    return result


def _strided_product(wide: Samples, filter: Samples, stride: int, count: int) -> Samples:
    """Σⱼ wide[i · stride + j] filter[j] for each i: a matrix product of rows of `stride` samples, which are not copied,
    with the filter, one piece of `stride` weights after another."""
    result = np.zeros(count, np.float32)
    for first in range(0, len(filter), stride):
        piece = filter[first : first + stride]
        rows = wide[first : first + count * stride].reshape(count, stride)
        result += rows[:, : len(piece)] @ piece
    return result


def reach(up: int, down: int) -> int:
    """How many samples to either side of a place take part in what is computed there."""
    return math.ceil(ZEROS * max(1.0, down / up) / CUTOFF)


@lru_cache(maxsize=REMEMBERED)
def weights(block: int, up: int, down: int) -> Samples:
    """The weights of some outputs, (phase, weight), of the block of this number: of the 2 · reach + 1 samples around
    the last one that is not after an output's place. They sum to 1, so that a constant stays the same."""
    half = reach(up, down)
    phases = np.arange(block * TOGETHER, min(up, (block + 1) * TOGETHER))
    time = np.arange(-half, half + 1) - (phases * down % up / up)[:, None]
    inside = np.clip(1 - (time / (half + 1)) ** 2, 0, None)
    impulse = np.sinc(CUTOFF * min(1.0, up / down) * time) * np.i0(BETA * np.sqrt(inside))
    return np.asarray(impulse / impulse.sum(1, keepdims=True), np.float32)

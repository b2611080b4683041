"""A long recording in pieces, cut at silences. It is read once, as a stream: memory stays flat however long it is.

A piece ends where the sound is quiet, smoothed over 0.2 s: in the middle of the longest silence in the second half of
what a piece may have; if there is none, of the longest in the first half; if there is none either, in the quietest
place of the second half.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from regard.data.files import refused_as
from regard.data.frames import PER_SECOND, Samples
from regard.data.recordings import KIND, Recording, blocks, header_of, opened
from regard.data.resampling import resampled

SMOOTH = 20  # steps of 10 ms over which energy is averaged
QUIET = 1e-6  # mean square of what is silent in any case, -60 dB
BELOW = 10**-2.5  # a silence has at most this share of the energy of loud places, -25 dB
LOUD = 0.95  # the share of places that are not louder than a loud one
SHORTEST = 0.1  # of the longest piece, below which no silence is looked for

Energies = NDArray[np.float64]


def pieces(recording: Recording, rate: int, longest: float) -> Iterator[Recording]:
    """Pieces of at most `longest` seconds with their samples at this rate, one after another; `start` and `end` of each
    are places in the file, in seconds. A recording that is not longer is one piece."""
    if recording.seconds <= longest:
        yield recording
        return
    if recording.held is not None:
        yield from _cut(recording, iter([recording.held]), recording.held_rate, 0, rate, longest)
        return
    path = recording.path
    own = header_of(path).rate
    first = round(recording.start * own)
    last = None if recording.end is None else round(recording.end * own)
    assert path is not None
    with refused_as(KIND, path), opened(path) as sound:
        yield from _cut(recording, blocks(sound, first, last), own, first, rate, longest)


def _cut(
    whole: Recording, stream: Iterator[Samples], own: int, place: int, rate: int, longest: float
) -> Iterator[Recording]:
    """Cut a stream of samples that begins at this place of the recording."""
    most = int(longest * own)
    rest = np.zeros(0, np.float32)

    def piece(samples: Samples) -> Recording:
        held = resampled(samples, own, rate)
        return replace(whole, start=place / own, end=(place + len(samples)) / own, held=held, held_rate=rate)

    for block in stream:
        rest = np.concatenate([rest, block])
        while len(rest) > most:
            end = cut_at(rest[:most], own)
            yield piece(rest[:end])
            rest, place = rest[end:], place + end
    if len(rest):
        yield piece(rest)


def cut_at(samples: Samples, rate: int) -> int:
    """Where a piece ends that may have as many samples as these."""
    step = max(1, rate // PER_SECOND)
    energy = smoothed(samples[: len(samples) // step * step].reshape(-1, step))
    half = len(energy) // 2
    if not half:
        return len(samples)
    silent = energy <= max(QUIET, BELOW * float(np.quantile(energy, LOUD)))
    least = max(1, round(SHORTEST * len(energy)))
    for first, last in ((half, len(energy)), (least, half)):
        if (found := longest_run(silent[first:last])) is not None:
            return (first + found) * step
    return (half + int(energy[half:].argmin())) * step


def smoothed(steps: Samples) -> Energies:
    """The mean square around the beginning of each step, of as much as there is."""
    sums = np.concatenate([[0.0], np.cumsum(np.square(steps, dtype=np.float64).mean(1))])
    places = np.arange(len(steps))
    first, last = np.maximum(places - SMOOTH // 2, 0), np.minimum(places + SMOOTH // 2, len(steps))
    return np.asarray((sums[last] - sums[first]) / (last - first), np.float64)


def longest_run(silent: NDArray[np.bool_]) -> int | None:
    """The middle of the longest run of places that are silent; None: no place is."""
    ends = np.flatnonzero(np.diff(np.concatenate([[False], silent, [False]])))
    if not len(ends):
        return None
    starts, stops = ends[::2], ends[1::2]
    widest = int((stops - starts).argmax())
    return int(starts[widest] + stops[widest]) // 2

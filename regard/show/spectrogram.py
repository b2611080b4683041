"""A recording as pictures and as a sound file: levels of its spectrogram, their colours, its axis of time, WAV."""

from __future__ import annotations

import io
import wave
from base64 import b64encode
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from regard.show.colours import colour_scale

Floats = NDArray[np.floating]
QUIETEST = 14.0  # natural log of energy below the loudest (60 dB): what is quieter has the darkest colour
COLOURS = ("#0b0f24", "#1f8787", "#fbf3c4")  # of the quietest, the middle and the loudest level
PITCHES = (500, 1000, 2000, 4000, 8000, 16000)  # Hz, that an axis marks
APART = 0.12  # of the height, between two of them
TICKS = (0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 30, 60)  # seconds between two marks of an axis
AUDIO = "audio/wav"


def levels(energies: Floats) -> Floats:
    """Return log energies, (frames, bands), as levels from 0 to 1."""
    loudest = energies.max()
    quietest = max(float(np.quantile(energies, 0.02)), float(loudest) - QUIETEST)
    found: Floats = np.clip((energies - quietest) / max(float(loudest) - quietest, 1e-9), 0, 1)
    return found


def level_bytes(energies: Floats) -> NDArray[np.uint8]:
    """Return levels as a picture, (bands, frames): the highest frequency in the first row."""
    found: NDArray[np.uint8] = np.rint(255 * levels(energies)).astype(np.uint8).T[::-1]
    return found


def sound_scale() -> list[list[int]]:
    """Return the colours of the levels 0 … 255: two straight lines through OKLab, from dark to bright."""
    dark, middle, bright = COLOURS
    return colour_scale(dark, middle)[::2] + colour_scale(middle, bright)[::2]


def spectrogram_pixels(energies: Floats) -> NDArray[np.uint8]:
    """Return a spectrogram in colours: (bands, frames, 3)."""
    found: NDArray[np.uint8] = np.array(sound_scale(), np.uint8)[level_bytes(energies)]
    return found


def refuse_unfit(spectrogram: Floats, seconds: float, words: Sequence[str], weights: Floats, stride: int) -> None:
    """Refuse what cannot be drawn; weights are (…, words, steps)."""
    if spectrogram.ndim != 2 or not spectrogram.size or not bool(np.isfinite(spectrogram).all()):
        raise ValueError(f"a spectrogram is {spectrogram.shape}, but must be (frames, bands) of finite numbers.")
    if not (0 < seconds < float("inf")) or stride < 1:
        raise ValueError(f"a recording has {seconds} seconds and steps of {stride} frames, but both must be above 0.")
    if weights.shape[-2:-1] != (len(words),) or not weights.size:
        raise ValueError(f"weights are {weights.shape}, but must be (…, {len(words)} words, steps).")
    if not bool(np.all(np.isfinite(weights) & (weights >= 0))):
        raise ValueError("weights must be finite and not negative.")
    if (weights.shape[-1] - 1) * stride >= len(spectrogram):
        raise ValueError(f"{weights.shape[-1]} steps of {stride} frames do not fit into {len(spectrogram)} frames.")


def ticks(seconds: float, most: int) -> list[float]:
    """Return the times that an axis marks, at most so many after 0."""
    between = next((each for each in TICKS if seconds / each <= most), TICKS[-1] * -(-seconds // (TICKS[-1] * most)))
    return [round(number * between, 2) for number in range(int(seconds / between + 1e-6) + 1)]


def pitch_marks(hertz: Sequence[float]) -> list[tuple[str, float]]:
    """Return the frequencies that an axis marks and where: 0 is the bottom of a spectrogram, 1 its top. `hertz` are the
    middles of its bands, from low to high."""
    if not hertz:
        return []
    middles = (np.arange(len(hertz)) + 0.5) / len(hertz)
    found: list[tuple[str, float]] = []
    for pitch in PITCHES:
        place = float(np.interp(pitch, hertz, middles))
        if hertz[0] <= pitch <= hertz[-1] and (not found or place - found[-1][1] >= APART):
            found.append((f"{pitch} Hz" if pitch < 1000 else f"{pitch // 1000} kHz", round(place, 4)))
    return found


def clock(seconds: float) -> str:
    """Write a time: 0.5, 12, 1:05."""
    if seconds >= 60:
        return f"{int(seconds // 60)}:{seconds % 60:02g}"
    return f"{seconds:g}"


def wav_bytes(samples: Floats, rate: int) -> bytes:
    """Encode samples from -1 to 1 of one channel as a WAV file, 16 bits each."""
    if samples.ndim != 1 or not bool(np.isfinite(samples).all()):
        raise ValueError(f"samples are {samples.shape}, but must be one channel of finite numbers.")
    file = io.BytesIO()
    with wave.open(file, "wb") as writer:
        writer.setnchannels(1)
        writer.setsampwidth(2)
        writer.setframerate(rate)
        writer.writeframes(np.rint(32767 * np.clip(samples, -1, 1)).astype("<i2").tobytes())
    return file.getvalue()


def wav_address(samples: Floats, rate: int) -> str:
    """Return a WAV file as a data: URL."""
    return f"data:{AUDIO};base64,{b64encode(wav_bytes(samples, rate)).decode()}"

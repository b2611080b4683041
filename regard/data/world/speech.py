"""The built-in speech: strings of digits and letters, spoken by a small synthesiser, with the times of each unit.

A unit, a digit or a letter, is a sequence of two to four sounds. A sound is noise, or the pulses of a voice, that two
resonances shape, as the mouth shapes a voice:

    sample = loudness(t) · (resonances(t) ∗ (√(1 − b) pulses + √b noise)) + background        b: the share of breath
    |resonances(f)|² ∝ Σᵢ 1 / (1 + (2 (f − Fᵢ) / Bᵢ)²)

Nearly all units have another one of the same sounds in reverse order, so that their mean spectra are equal: only the
order of the sounds decides which unit it is. All 36 sequences differ, and a unit fades at its ends, so that a perfect
listener makes no error, whatever the voice: pitch, length of the vocal tract, tempo, loudness, gaps and noise vary.

Splits are made by a hash of the words: no string is in two splits.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from math import sqrt
from random import Random
from string import ascii_lowercase
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from regard.data.world.tables import Split, split_of

__all__ = ["PATTERNS", "SHORTEST", "UNITS", "Units", "Utterance", "Voice", "speak", "utterances"]

Samples = NDArray[np.float32]
Floats = NDArray[np.floating[Any]]
Units = Literal["digits", "letters", "both"]
Range = tuple[float, float]


class Sound(NamedTuple):
    first: float  # Hz, the lower resonance
    second: float  # Hz, the higher one
    breath: float = 0.02  # the share of noise in what is shaped; the rest is voice


SOUNDS = {
    "i": Sound(290, 2350),
    "e": Sound(520, 1850),
    "a": Sound(800, 1350),
    "o": Sound(530, 880),
    "u": Sound(300, 720),
    "s": Sound(2700, 3300, breath=1.0),
    "f": Sound(1500, 2900, breath=1.0),
}
PATTERNS: dict[str, str] = {
    "zero": "ia", "one": "ai", "two": "eu", "three": "ue", "four": "sio",
    "five": "ois", "six": "aoeu", "seven": "ueoa", "eight": "fau", "nine": "uaf",
    "a": "io", "b": "oi", "c": "au", "d": "ua", "e": "eo", "f": "oe", "g": "iu", "h": "ui", "i": "sa", "j": "as",
    "k": "su", "l": "us", "m": "fi", "n": "if", "o": "fo", "p": "of", "q": "aei", "r": "iea", "s": "oae", "t": "eao",
    "u": "uio", "v": "oiu", "w": "seaf", "x": "faes", "y": "iau", "z": "uai",
}  # fmt: skip
DIGITS = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine")
LETTERS = tuple(ascii_lowercase)
UNITS: dict[Units, tuple[str, ...]] = {"digits": DIGITS, "letters": LETTERS, "both": (*DIGITS, *LETTERS)}
SHORTEST = 2  # units, at least, of the longest string: there are too few strings of one unit to hold any out

PITCH: Range = (90.0, 250.0)  # Hz
TRACT: Range = (0.87, 1.15)  # factor of all resonances
TEMPO: Range = (0.8, 1.25)
LOUDNESS: Range = (0.1, 0.9)  # the largest sample
NOISE: Range = (10.0, 30.0)  # dB of the speech over the background
COLOUR: Range = (-0.3, 0.8)  # of the background: from more high frequencies to more low ones
GAP: Range = (0.02, 0.6)  # seconds between two units
GAPLESS = 0.25  # share of units that follow the one before at once
EDGE: Range = (0.05, 0.5)  # seconds before the first and after the last unit
SOUND_LENGTHS = {2: 0.115, 3: 0.09, 4: 0.075}  # seconds of each sound, by how many a unit has
UNEVEN: Range = (0.85, 1.15)  # factor of the length of each sound
STRESS: Range = (0.7, 1.0)  # loudness of a unit
TUNE: Range = (0.92, 1.08)  # factor of the pitch at the start and at the end of a unit
RISE, FALL = 0.02, 0.03  # seconds in which a unit becomes loud, and silent
TURN = 0.015  # seconds before and after the end of a sound in which it changes to the next
STEP = 0.01  # seconds after which resonances and loudness change
BANDWIDTH, BROAD = 90.0, 500.0  # Hz of a resonance of the voice, and how much broader it is of noise


@dataclass(frozen=True)
class Voice:
    pitch: float
    tract: float
    tempo: float
    loudness: float
    noise: float
    colour: float


@dataclass(frozen=True)
class Utterance:
    """A string of units and how it is spoken; its samples are computed when they are asked for."""

    words: tuple[str, ...]
    edges: tuple[tuple[float, ...], ...]  # for each unit the times at which its sounds start, and at which it ends
    seconds: float
    voice: Voice
    seed: int  # of what differs between utterances in the same voice: noise, stress, tune

    @property
    def spans(self) -> tuple[tuple[float, float], ...]:
        """The start and the end of each unit, in seconds."""
        return tuple((edges[0], edges[-1]) for edges in self.edges)

    @property
    def text(self) -> str:
        return " ".join(self.words)

    def samples(self, rate: int) -> Samples:
        """The sound, `rate` samples per second, from -1 to 1."""
        random = np.random.default_rng(self.seed)
        size, hop = round(self.seconds * rate), round(STEP * rate)
        tracks = _tracks(self, np.arange(size // hop + 2) * (hop / rate), random)
        noise = random.standard_normal(size + 1, np.float32)
        pulses = _pulses(_pitch(self, np.arange(size) / rate, random), rate)
        breath = np.interp(np.arange(size), np.arange(len(tracks.breath)) * hop, tracks.breath).astype(np.float32)
        sound = (np.sqrt(1 - breath) * pulses + np.sqrt(breath) * noise[1:]).astype(np.float32)
        speech = _shape(sound, tracks, self.voice.tract, rate, hop)
        background = noise[1:] + self.voice.colour * noise[:-1]
        power = float(np.mean(np.square(speech))) * self.seconds / sum(end - start for start, end in self.spans)
        level = sqrt(power * 10 ** (-self.voice.noise / 10) / (1 + self.voice.colour**2))
        speech += (background * level).astype(np.float32)
        speech *= self.voice.loudness / np.abs(speech).max()
        return speech


def utterances(split: Split, *, seed: int = 0, units: Units = "digits", longest: int = 7) -> Iterator[Utterance]:
    """Endless utterances of one split, of one unit to `longest`."""
    if split not in get_args(Split):
        raise ValueError(f"no split {split!r}: choose one of {', '.join(get_args(Split))}")
    if units not in UNITS:
        raise ValueError(f"no units {units!r}: choose one of {', '.join(UNITS)}")
    if longest < SHORTEST:
        raise ValueError(f"longest = {longest} leaves too few strings for three splits: choose at least {SHORTEST}")
    return _generate(split, Random(f"speech {split} {seed}"), UNITS[units], longest)


def _generate(split: Split, random: Random, units: Sequence[str], longest: int) -> Iterator[Utterance]:
    while True:
        words = random.choices(units, k=random.randint(1, longest))
        if split_of(f"speech {' '.join(words)}") == split:
            yield speak(words, random.getrandbits(32))


def speak(words: Sequence[str], seed: int) -> Utterance:
    """These units in a voice and with times that the seed determines."""
    random = Random(seed)
    voice = Voice(*(random.uniform(*each) for each in (PITCH, TRACT, TEMPO, LOUDNESS, NOISE, COLOUR)))
    edges, time = [], random.uniform(*EDGE)
    for place, word in enumerate(words):
        if place and random.random() >= GAPLESS:
            time += random.uniform(*GAP)
        times = [time]
        for _ in PATTERNS[word]:
            time += SOUND_LENGTHS[len(PATTERNS[word])] / voice.tempo * random.uniform(*UNEVEN)
            times.append(time)
        edges.append(tuple(times))
    return Utterance(tuple(words), tuple(edges), time + random.uniform(*EDGE), voice, seed)


class _Tracks(NamedTuple):
    """What changes with time, at each step."""

    loudness: Floats
    breath: Floats
    resonances: Floats  # (2, steps), Hz


def _tracks(utterance: Utterance, times: Floats, random: np.random.Generator) -> _Tracks:
    """A sound has its values from shortly after its start to shortly before its end, and changes linearly between."""
    knots: list[float] = []
    sounds: list[Sound] = []
    louder: list[tuple[float, float]] = []
    for word, edges in zip(utterance.words, utterance.edges, strict=True):
        for sound, start, end in zip(PATTERNS[word], edges, edges[1:], strict=False):
            knots += start + TURN, end - TURN
            sounds += [SOUNDS[sound]] * 2
        stress = random.uniform(*STRESS)
        louder += (edges[0], 0.0), (edges[0] + RISE, stress), (edges[-1] - FALL, stress), (edges[-1], 0.0)
    first, second, breath = (np.interp(times, knots, values) for values in zip(*sounds, strict=True))
    at, heights = zip(*louder, strict=True)
    return _Tracks(np.interp(times, at, heights), breath, np.stack([first, second]))


def _pitch(utterance: Utterance, times: Floats, random: np.random.Generator) -> Floats:
    knots = np.array(utterance.spans).reshape(-1)
    pitch: Floats = np.interp(times, knots, utterance.voice.pitch * random.uniform(*TUNE, len(knots)))
    return pitch


def _pulses(pitch: Floats, rate: int) -> Samples:
    """One pulse per period, of power 1; a pulse between two samples is shared by them."""
    periods = np.cumsum(pitch / rate)
    places = np.searchsorted(periods, np.arange(1, periods[-1]))
    late = (periods[places] % 1) / (pitch[places] / rate)  # how far before the sample, in samples
    heights = np.sqrt(rate / pitch[places])
    pulses = np.zeros(len(pitch), np.float32)
    pulses[places] += heights * (1 - late)
    pulses[places - 1] += heights * late
    return pulses


def _shape(sound: Samples, tracks: _Tracks, tract: float, rate: int, hop: int) -> Samples:
    """Filter overlapping windows, two steps long, each by the resonances and the loudness at its middle."""
    steps = len(tracks.loudness)
    window, frequencies = _window(hop), _frequencies(hop, rate)
    blocks = np.zeros((steps + 1, hop), np.float32)  # window k is blocks k and k + 1; its middle is the time k · hop
    blocks.reshape(-1)[hop : hop + len(sound)] = sound
    windows = np.zeros((steps, 4, hop), np.float32)  # with space for what a filter adds before and after
    windows[:, 1], windows[:, 2] = blocks[:-1] * window[:hop], blocks[1:] * window[hop:]
    widths = (BANDWIDTH + BROAD * tracks.breath).astype(np.float32)[:, None] / 2
    power = np.zeros((steps, len(frequencies)), np.float32)
    for resonance in tracks.resonances:
        power += 1 / (1 + ((frequencies - (tract * resonance).astype(np.float32)[:, None]) / widths) ** 2)
    gains = np.sqrt(power / power.mean(1, keepdims=True)) * tracks.loudness.astype(np.float32)[:, None]
    shaped = np.fft.irfft(np.fft.rfft(windows.reshape(steps, -1)) * gains, 4 * hop).reshape(steps, 4, hop)
    added = np.zeros((steps + 3, hop), np.float32)
    for place in range(4):
        added[place : place + steps] += shaped[:, place]
    return added.reshape(-1)[2 * hop : 2 * hop + len(sound)]


@cache
def _window(hop: int) -> Samples:
    """A Hann window of two steps: such windows, a step apart, add up to 1."""
    return (0.5 - 0.5 * np.cos(np.pi * np.arange(2 * hop) / hop)).astype(np.float32)


@cache
def _frequencies(hop: int, rate: int) -> Samples:
    return np.fft.rfftfreq(4 * hop, 1 / rate).astype(np.float32)

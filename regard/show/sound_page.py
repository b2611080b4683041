"""Recordings with their transcripts as one HTML file that opens offline: for each word, the moments where each head
looked, or where CTC emitted it; the file holds the sound, too.

Weights are stored as in `caption_page`; `sound_view.js` draws them, wherever it is given what `sound_facts` returns.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
from numpy.typing import NDArray

from regard.show.attention_page import packed, share_facts
from regard.show.colours import theme_scales
from regard.show.markup import fill_template, inert_json, notebook_cell
from regard.show.spectrogram import level_bytes, pitch_marks, refuse_unfit, sound_scale, wav_address
from regard.show.text import legible, visible

Times = tuple[tuple[float, float], ...]  # of each word: its start and end in seconds


@dataclass(frozen=True)
class Moments:
    """Weights over the steps of a recording: the heads of one attention, or the probabilities of CTC."""

    name: str  # "attention, layer 2", or "CTC"
    weights: NDArray[np.floating]  # (heads, words, steps)
    stride: int = 1  # frames of a step


@dataclass(frozen=True)
class Wave:
    """The sound of a recording."""

    samples: NDArray[np.floating]  # from -1 to 1
    rate: int


@dataclass(frozen=True)
class Transcribed:
    """A recording, its transcript, and when each word was looked at."""

    title: str
    seconds: float  # that the frames cover
    spectrogram: NDArray[np.floating]  # (frames, bands), natural logs of energies
    words: tuple[str, ...]
    views: tuple[Moments, ...]
    times: Times | None = None
    wave: Wave | None = None
    hertz: tuple[float, ...] = ()  # the middle of each band, from low to high; (): not known
    note: str = ""

    def __post_init__(self) -> None:
        if not self.views or (self.times is not None and len(self.times) != len(self.words)):
            raise ValueError("a transcribed recording needs views, and one time for each word or none at all.")
        for view in self.views:
            refuse_unfit(self.spectrogram, self.seconds, self.words, view.weights, view.stride)
            if view.weights.ndim != 3:
                raise ValueError(f"weights are {view.weights.shape}, but must be (heads, words, steps).")


def sound_page(recordings: Sequence[Transcribed], *, title: str) -> str:
    """Return one HTML document with all it needs inside."""
    if not recordings:
        raise ValueError("a page needs a recording.")
    content = {**sound_colours(), "shown": [sound_facts(recording) for recording in recordings]}
    return fill_template("sound_page.html", title=escape(legible(title)), content=inert_json(content))


def sound_colours() -> dict[str, object]:
    """Return the colours of spectrograms, and those of weights in each theme, for JSON."""
    return {"loudness": sound_scale(), "scales": theme_scales()}


def sound_facts(recording: Transcribed) -> dict[str, object]:
    """Return the recording for JSON, with its sound and its weights, as `SoundView.show` takes it."""
    frames, bands = recording.spectrogram.shape
    times = recording.times
    return {
        "title": legible(recording.title),
        "note": legible(recording.note),
        "words": [visible(word) for word in recording.words],
        "seconds": round(recording.seconds, 4),
        "spectrogram": {
            "frames": frames,
            "bands": bands,
            "levels": packed(level_bytes(recording.spectrogram)),
            "pitches": pitch_marks(recording.hertz),
        },
        "times": None if times is None else [[round(time, 4) for time in each] for each in times],
        "wav": None if recording.wave is None else wav_address(recording.wave.samples, recording.wave.rate),
        "views": [
            {
                "name": legible(view.name),
                "rows": 1,
                "columns": view.weights.shape[2],
                "stride": view.stride,
                **share_facts(view.weights),
            }
            for view in recording.views
        ],
    }


def sound_frame(recording: Transcribed) -> str:
    """Return the page of one recording for a notebook cell."""
    return notebook_cell(sound_page([recording], title=recording.title), legible(recording.title), 720)

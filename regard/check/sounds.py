"""Recordings and their labels or transcripts: files that cannot be decoded, silence, clipping, transcripts that are
longer than the sound."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from regard.check.faults import Checked
from regard.check.files import SPLITS, Checking, check_files
from regard.data.frames import HOP, Samples
from regard.data.recordings import recording_of, require_soundfile
from regard.data.sound_sources import SOUNDS, LabelledSounds
from regard.data.tokens import TextTokens
from regard.recipe import Recipe
from regard.train.sounds import LONGEST

HASH = 16  # bytes
SILENT = 1e-3  # the largest sample of a recording in which nobody speaks: -60 dB
CLIPPED_AT, CLIPPED_SHARE = 0.999, 1e-3  # where a sound is cut off, and the share of its samples that may be there
SHORTEST = 5 * HOP  # seconds
FASTEST = 30.0  # characters per second: twice as fast as quick speech
SILENCE = "silent; remove such recordings"
CLIPPED = "clipped (cut off at the loudest values); record them more quietly"
SHORT = f"shorter than {SHORTEST:.2f} s; remove such recordings"
LENGTHY = f"longer than {LONGEST:.0f} s, which training leaves out; cut such recordings"
CROWDED = f"too short for the transcript (over {FASTEST:.0f} characters a second); correct one"


class CheckingSounds(Checking):
    kind = SOUNDS
    text = "transcript"

    def look(self, raw: Any, label: str) -> bytes:
        recording = recording_of(raw)
        rate = recording.own_rate
        samples = recording.samples(rate)
        seconds = len(samples) / rate
        transcript = not self.named
        found = {
            SILENCE: np.abs(samples).max() < SILENT,
            CLIPPED: clipped(samples),
            SHORT: seconds < SHORTEST,
            LENGTHY: transcript and seconds > LONGEST,
            CROWDED: transcript and len(label) > FASTEST * seconds,
        }
        for wrong, is_so in found.items():
            if is_so:
                self.note(wrong, recording.name or f"recording {self.number}")
        return hashlib.blake2b(samples.tobytes(), digest_size=HASH).digest()


def clipped(samples: Samples) -> bool:
    """Whether a sound was louder than could be recorded: many samples stand at its ends."""
    loud = np.abs(samples) >= CLIPPED_AT
    return bool(loud.mean() > CLIPPED_SHARE and (loud[1:] & loud[:-1]).any())


def check_sounds(recipe: Recipe, write: Path | None, on_example: Callable[[], None] = lambda: None) -> Checked:
    """Check recordings and their labels."""
    return check_recordings(recipe, write, on_example, None)


def check_transcripts(recipe: Recipe, write: Path | None, on_example: Callable[[], None] = lambda: None) -> Checked:
    """Check recordings and their transcripts."""
    return check_recordings(recipe, write, on_example, recipe.tokens)


def check_recordings(
    recipe: Recipe, write: Path | None, on_example: Callable[[], None], tokens: TextTokens | None
) -> Checked:
    if isinstance(recipe.data, LabelledSounds):
        require_soundfile(recipe.data.train)  # once, not for each file
    return check_files(recipe, write, on_example, [CheckingSounds(split, tokens) for split in SPLITS])

"""Recordings: sound files of any rate and number of channels, read with soundfile, and samples in memory.

Channels are averaged, and the sound is resampled to the rate that is asked for. A part of a file is read by seeking.

A file may come from somebody else. Only formats that are named here are tried. Files are decoded block by block, so
that memory depends on what a file holds and not on what its header says; a number of samples that its size cannot hold
is counted instead.
"""

from __future__ import annotations

import hashlib
import os
import struct
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import lru_cache
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np
import torch

from regard.config import UserError
from regard.data.files import DIGEST, digest_of, open_regular, refused_as
from regard.data.frames import PER_SECOND, Samples
from regard.data.resampling import resampled

if TYPE_CHECKING:
    from soundfile import SoundFile

KIND = "recording"
SUFFIXES = (".wav", ".flac", ".ogg", ".mp3", ".oga", ".opus", ".aif", ".aiff", ".au")
FORMATS = "WAV, FLAC, OGG, MP3, AIFF or AU"
MAGIC = (b"RIFF", b"RIFX", b"RF64", b"fLaC", b"OggS", b"ID3", b"FORM", b".snd")
MPEG = (0xFF, 0xE0)  # the first byte of an MP3 without a tag, and the least second one
RATE = 16_000  # samples per second of an array, and of a model whose data does not say
RATES = range(1000, 768_001)  # that a file may have
BLOCK = 1 << 18  # samples of all channels that are decoded together
MOST = 1 << 27  # samples of a recording that is read as a whole: 46 minutes at 48 kHz, 2.3 hours at 16 kHz
MOST_PER_BYTE = 5000  # samples that a byte of a file can hold: silence in FLAC
FLOAT = 3  # the code of floating point in a WAV file
LOUDEST = 8.0  # of samples that are cut off at 1; louder ones are not from -1 to 1


@dataclass(frozen=True, eq=False)
class Recording:
    """A sound file, or a part of one, that is decoded when its samples are needed; or samples in memory."""

    path: Path | None = None
    start: float = 0.0  # where it begins in the file, in seconds
    end: float | None = None  # where it ends; None: with the file
    held: Samples | None = field(default=None, repr=False)  # its samples, if they are in memory
    held_rate: int = 0  # and their rate
    rate: int = 0  # samples per second that its source asks for; 0: the field that reads it decides
    bands: int = 0  # frequency bands that its source asks for

    def samples(self, rate: int) -> Samples:
        """Its sound at this rate, one channel, from -1 to 1."""
        if self.held is not None:
            return resampled(self.held, self.held_rate, rate)
        assert self.path is not None
        with refused_as(KIND, self.path), opened(self.path) as sound:
            first, last = round(self.start * sound.samplerate), None
            if self.end is not None:
                last = round(self.end * sound.samplerate)
            found = together(blocks(sound, first, last), sound)
            own = sound.samplerate
        return resampled(found, own, rate)

    @property
    def own_rate(self) -> int:
        """The rate that its samples have."""
        return self.held_rate if self.held is not None else header_of(self.path).rate

    @property
    def seconds(self) -> float:
        """How long it is, by the file's header."""
        if self.end is None and self.held is not None:
            return len(self.held) / self.held_rate
        whole = self.end
        if whole is None:
            header = header_of(self.path)
            whole = header.samples / header.rate
        return max(0.0, whole - self.start)

    @property
    def name(self) -> str:
        return "" if self.path is None else str(self.path)

    @property
    def digest(self) -> bytes:
        """The hash of its content, and of where a part begins and ends."""
        if self.held is not None:
            content = hashlib.sha256(self.held.tobytes() + str(self.held_rate).encode()).digest()
        else:
            assert self.path is not None
            with refused_as(KIND, self.path):
                content = digest_of(self.path)
        if self.held is None and (self.start or self.end is not None):
            content = hashlib.sha256(content + f"{self.start!r} {self.end!r}".encode()).digest()
        return content[:DIGEST]

    def tobytes(self) -> bytes:
        """What no other recording has. A file that cannot be read has its name, and is refused when it is decoded."""
        try:
            return self.digest
        except UserError:
            return os.fsencode(self.name)

    @property
    def nbytes(self) -> int:
        """The bytes of its samples; 0 for a file that cannot be read, which is refused when it is decoded."""
        if self.held is not None:
            return self.held.nbytes
        try:
            return int(self.seconds * (self.rate or RATE)) * 4
        except UserError:
            return 0

    def __len__(self) -> int:
        """The number of frames, one every 10 ms."""
        return min(1 + int(self.seconds * PER_SECOND + 1e-6), sys.maxsize)


class Header(NamedTuple):
    """What a file says of its sound, before it is decoded."""

    rate: int
    channels: int
    samples: int  # of each channel


def header_of(path: Path | None) -> Header:
    assert path is not None
    with refused_as(KIND, path):
        found = os.stat(path)
        return _header(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=1 << 16)
def _header(path: Path, size: int, changed: int) -> Header:
    with opened(path) as sound:
        count = sound.frames
        if not 0 <= count <= MOST_PER_BYTE * max(1, size):
            count = sum(map(len, blocks(sound)))
        return Header(sound.samplerate, sound.channels, count)


@contextmanager
def opened(path: Path) -> Iterator[SoundFile]:
    with open_regular(path) as file, decoder(file, path) as sound:
        yield sound


@contextmanager
def decoder(file: BinaryIO, name: object) -> Iterator[SoundFile]:
    """What decodes an open file, of which only the header is read."""
    require_soundfile(name)
    import soundfile

    start = file.read(4)
    file.seek(0)
    if not start:
        raise ValueError("it is empty")
    if not start.startswith(MAGIC) and not (start[0] == MPEG[0] and start[1:] >= bytes([MPEG[1]])):
        raise ValueError(f"it is not {FORMATS}: others are converted with ffmpeg -i FILE FILE.wav")
    try:
        with soundfile.SoundFile(file) as sound:
            if sound.samplerate not in RATES:
                raise ValueError(f"it says that it has {sound.samplerate:,} samples per second")
            yield sound
    except soundfile.LibsndfileError as problem:
        raise ValueError(problem.error_string.rstrip(".") or "it is damaged") from None


def blocks(sound: SoundFile, first: int = 0, last: int | None = None) -> Iterator[Samples]:
    """The samples of an open file from one to before another, the mean of its channels, some at a time."""
    sound.seek(min(first, sound.frames))
    at_once = max(1, BLOCK // sound.channels)
    left = sound.frames - first if last is None else last - first
    while left > 0:
        block = sound.read(min(at_once, left), dtype="float32", always_2d=True)
        if not len(block):
            return
        left -= len(block)
        yield one_channel(block)


def together(some: Iterator[Samples], sound: SoundFile) -> Samples:
    found: list[Samples] = []
    count = 0
    for block in some:
        found.append(block)
        count += len(block)
        if count > MOST:
            raise ValueError(f"it is longer than {MOST / sound.samplerate / 60:.0f} minutes: cut it into several")
    if not count:
        raise ValueError("it has no samples")
    return np.concatenate(found)


def one_channel(block: Any) -> Samples:
    """The mean of channels, (samples, channels), from -1 to 1."""
    mean: Samples = block.mean(1, dtype=np.float32) if block.shape[1] > 1 else block[:, 0]
    most = float(np.abs(mean).max(initial=0))
    if not np.isfinite(most):
        raise ValueError("it has samples that are not numbers (NaN or infinite)")
    if most > LOUDEST:
        raise ValueError(f"its samples are as large as {most:,.0f}, and those of a sound are from -1 to 1: scale them")
    return np.clip(mean, -1, 1) if most > 1 else mean


def decoded_sound(content: bytes, name: str) -> Recording:
    """Decode the content of a file, which errors call by this name."""
    with refused_as(KIND, name), decoder(BytesIO(content), name) as sound:
        return Recording(held=together(blocks(sound), sound), held_rate=sound.samplerate)


def recording_of(raw: Any, rate: int = RATE) -> Recording:
    """The recording that is given as a file, or its name, or as samples at this rate: (samples,) or (samples,
    channels), in floating point from -1 to 1 or in whole numbers of a sound card (int16, int32, uint8)."""
    if isinstance(raw, Recording):
        return raw
    if isinstance(raw, str | Path):
        return Recording(Path(raw))
    array = raw.detach().cpu().numpy() if isinstance(raw, torch.Tensor) else np.asarray(raw)
    if array.ndim not in (1, 2) or (array.ndim == 2 and array.shape[0] < array.shape[1]):
        wanted = "(samples,) or (samples, channels): transpose it, or give one recording at a time"
        raise UserError(f"An array of shape {array.shape} was given as a recording, and must be {wanted}.")
    if not len(array):
        raise UserError("A recording without samples was given: give at least a few milliseconds of sound.")
    with refused_as(KIND, "An array"):
        columns = array if array.ndim == 2 else array[:, None]
        return Recording(held=one_channel(as_float(columns)), held_rate=rate)


def as_float(array: Any) -> Samples:
    """Whole numbers become numbers from -1 to 1; bytes have their middle at 128, as in a WAV file."""
    if array.dtype == np.uint8:
        return np.asarray((array.astype(np.float32) - 128) / 128, np.float32)
    if array.dtype in (np.int16, np.int32):
        return np.asarray(array / -float(np.iinfo(array.dtype).min), np.float32)
    if array.dtype.kind != "f":
        raise ValueError(f"its numbers are {array.dtype}: give float32 from -1 to 1, or int16")
    return np.ascontiguousarray(array, np.float32)


def wav_of(samples: Samples, rate: int) -> bytes:
    """The content of a WAV file, one channel of float32: its samples and nothing else. soundfile would add the time at
    which it was written, and then equal data would have another hash."""
    content = np.asarray(samples, "<f4").tobytes()
    width = 4  # bytes of a sample
    form = struct.pack("<4sIHHIIHH", b"fmt ", 16, FLOAT, 1, rate, width * rate, width, 8 * width)
    inside = b"WAVE" + form + struct.pack("<4sI", b"data", len(content)) + content
    return struct.pack("<4sI", b"RIFF", len(inside)) + inside


def require_soundfile(name: object) -> None:
    try:
        import soundfile  # noqa: F401
    except (ImportError, OSError):  # the package, or the library that it loads
        remedy = 'install it with pip install "regard[audio]"'
        raise UserError(f"{name} needs soundfile, which is not installed: {remedy}.") from None

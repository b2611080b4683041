"""Laws of recordings: whatever the format, the rate and the channels, the same sound gives the same frames; a long one
is cut where it is quiet and lost nowhere; what cannot be decoded is named in one sentence."""

from __future__ import annotations

import os
import struct
import sys
import tracemalloc
from io import BytesIO
from pathlib import Path

import numpy as np
import pytest
import torch

from regard.data import frames
from regard.data.frames import Samples, frames_in, hop_of, log_mel
from regard.data.recordings import MOST, Recording, decoded_sound, header_of, recording_of, wav_of
from regard.data.resampling import resampled
from regard.data.silences import pieces
from regard.interface import UserError

soundfile = pytest.importorskip("soundfile")

RATE = 8000


def noise(count: int, seed: int = 1, loudness: float = 0.1) -> Samples:
    return (loudness * np.random.default_rng(seed).standard_normal(count)).astype(np.float32)


def tones(rate: int, seconds: float, *pitches: float) -> Samples:
    """A chord without an edge: it becomes loud and silent slowly."""
    time = np.arange(round(rate * seconds)) / rate
    chord = sum(np.sin(2 * np.pi * pitch * time) for pitch in pitches) / len(pitches)
    return np.asarray(0.5 * chord * np.sin(np.pi * time / seconds) ** 2, np.float32)


def write(path: Path, samples: Samples, rate: int = RATE, subtype: str | None = None) -> Path:
    soundfile.write(path, samples, rate, subtype=subtype)
    return path


# --- frames -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("rate", "bands"), [(8000, 40), (16_000, 80), (44_100, 64)])
def test_frames_are_librosas(rate: int, bands: int) -> None:
    librosa = pytest.importorskip("librosa")
    for sound in (noise(rate), tones(rate, 0.7, 440, 1234), np.zeros(rate // 5, np.float32)):
        power = librosa.feature.melspectrogram(
            y=sound,
            sr=rate,
            n_fft=frames.fft_size(rate),
            hop_length=hop_of(rate),
            win_length=round(0.025 * rate),
            pad_mode="constant",
            n_mels=bands,
            fmin=20,
        )
        wanted = np.log(1e-6 + power.T)
        found = log_mel(sound, rate, bands)
        assert found.shape == wanted.shape == (frames_in(len(sound), rate), bands)
        assert np.abs(found - wanted).max() < 1e-3


def test_a_frame_reads_its_25_ms_and_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    sound = noise(RATE)
    before = log_mel(sound, RATE, 40)
    place = 4321
    sound[place] += 0.5
    changed = np.nonzero(np.abs(log_mel(sound, RATE, 40) - before).max(1) > 1e-5)[0]
    near = [frame for frame in range(len(before)) if abs(frame * hop_of(RATE) - place) < 0.0125 * RATE]
    assert {*changed.tolist()} <= {*near} and len(changed) >= 2
    whole = log_mel(sound, RATE, 40)
    monkeypatch.setattr(frames, "AT_ONCE", 7)
    assert np.abs(log_mel(sound, RATE, 40) - whole).max() < 1e-5
    assert log_mel(sound[:1], RATE, 40).shape == (1, 40)


# --- resampling ---------------------------------------------------------------------------------------------------

RATES = [(44_100, 16_000), (48_000, 8000), (8000, 16_000), (11_025, 8000), (192_000, 16_000)]


@pytest.mark.parametrize(("before", "after"), RATES)
def test_what_both_rates_can_hold_stays_and_what_the_lower_cannot_vanishes(before: int, after: int) -> None:
    nyquist = min(before, after) / 2
    low = (0.1 * nyquist, 0.4 * nyquist, 0.8 * nyquist)
    found = resampled(tones(before, 0.5, *low), before, after)
    assert found.dtype == np.float32 and len(found) == -(-round(before * 0.5) * after // before)
    assert np.abs(found - tones(after, 0.5, *low)[: len(found)]).max() < 1e-3
    if before > after:
        assert np.abs(resampled(tones(before, 0.5, 1.05 * nyquist), before, after)).max() < 1e-3


@pytest.mark.parametrize(("before", "after"), RATES)
def test_resampling_is_close_to_soxrs(before: int, after: int) -> None:
    soxr = pytest.importorskip("soxr")
    nyquist = min(before, after) / 2
    sound = sum(tones(before, 0.5, share * nyquist) for share in (0.05, 0.3, 0.55, 0.75)) / 4
    wanted, found = soxr.resample(sound, before, after, quality="VHQ"), resampled(sound, before, after)
    most = min(len(wanted), len(found))
    assert np.abs(found[:most] - wanted[:most]).max() < 1e-3


def test_an_equal_rate_and_no_samples_change_nothing_and_a_constant_stays_one() -> None:
    sound = noise(100)
    assert resampled(sound, RATE, RATE) is sound and not len(resampled(sound[:0], RATE, 16_000))
    middle = resampled(np.ones(4000, np.float32), RATE, 11_025)[500:-500]
    assert np.abs(middle - 1).max() < 1e-4


# --- files --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("ending", "subtype", "near"),
    [
        ("wav", "PCM_16", 1e-4),
        ("wav", "PCM_24", 1e-6),
        ("wav", "FLOAT", 1e-7),
        ("wav", "ULAW", 0.02),
        ("flac", "PCM_16", 1e-4),
        ("aiff", "PCM_16", 1e-4),
        ("au", "PCM_16", 1e-4),
        ("ogg", "VORBIS", 0.1),
        ("opus", "OPUS", 0.1),
        ("mp3", "MPEG_LAYER_III", 0.1),
    ],
)
def test_every_format_gives_the_same_sound(tmp_path: Path, ending: str, subtype: str, near: float) -> None:
    sound = tones(16_000, 0.6, 300, 900)
    path = tmp_path / f"x.{ending}"
    format = {"opus": "OGG", "au": "AU"}.get(ending)
    soundfile.write(path, sound, 16_000, subtype=subtype, format=format)
    for name in (path, path.rename(tmp_path / "other.wav")):  # the content tells, not the name
        if name.exists():
            found = Recording(name).samples(16_000)
            assert abs(len(found) - len(sound)) <= 3000  # an encoder may add silence
            most = min(len(found), len(sound))
            assert np.abs(found[:most] - sound[:most]).max() < near
            assert abs(Recording(name).seconds - len(found) / 16_000) < 0.01


def test_channels_are_averaged_and_a_part_is_a_slice(tmp_path: Path) -> None:
    left, right = noise(RATE, 1), noise(RATE, 2)
    path = write(tmp_path / "x.wav", np.stack([left, right], 1), subtype="FLOAT")
    assert np.allclose(Recording(path).samples(RATE), (left + right) / 2)
    part = Recording(path, start=0.25, end=0.75)
    assert np.allclose(part.samples(RATE), ((left + right) / 2)[2000:6000]) and part.seconds == 0.5
    assert part.digest != Recording(path).digest
    eight = write(
        tmp_path / "eight.wav", np.stack([tones(192_000, 0.4, 400 + 90 * each) for each in range(8)], 1), 192_000
    )
    pitches = [400 + 90 * each for each in range(8)]
    assert np.abs(Recording(eight).samples(16_000) - tones(16_000, 0.4, *pitches)).max() < 2e-3


def test_a_file_its_content_and_its_samples_are_the_same_recording(tmp_path: Path) -> None:
    sound = noise(RATE)
    path = write(tmp_path / "x.wav", sound, subtype="PCM_16")
    wanted = Recording(path).samples(RATE)
    assert np.array_equal(decoded_sound(path.read_bytes(), "it").samples(RATE), wanted)
    whole_numbers = np.rint(wanted * 32768).astype(np.int16)
    for raw in (wanted, torch.from_numpy(wanted), whole_numbers, whole_numbers.astype(np.int32) << 16, wanted[:, None]):
        assert np.array_equal(recording_of(raw, RATE).samples(RATE), wanted)
    assert np.array_equal(decoded_sound(wav_of(sound, RATE), "it").samples(RATE), sound)
    in_bytes = recording_of(np.array([0, 128, 255], np.uint8), RATE).samples(RATE)
    assert np.allclose(in_bytes, [-1, 0, 127 / 128])


def test_a_recording_that_is_written_is_its_samples_and_nothing_that_differs_from_day_to_day() -> None:
    sound = noise(1000)
    content = wav_of(sound, RATE)
    read, rate = soundfile.read(BytesIO(content), dtype="float32")
    assert rate == RATE and np.array_equal(read, sound)
    header, samples = content[:-4000], content[-4000:]
    assert len(header) == 44 and samples == sound.astype("<f4").tobytes()


def test_arrays_that_are_no_recording_are_refused_with_what_is_wanted() -> None:
    for array, wrong in (
        (np.zeros((2, 100)), "transpose it"),
        (np.zeros((2, 3, 4)), "shape"),
        (np.zeros(0, np.float32), "without samples"),
        (np.full(9, np.nan), "not numbers"),
        (np.full(9, 300.0), "from -1 to 1"),
        (np.zeros(9, np.int64), "int64"),
    ):
        with pytest.raises(UserError, match=wrong):
            recording_of(array)


def break_sounds(folder: Path) -> dict[str, str]:
    """Write files that are no recordings; return the name of each and what is wrong with it."""
    good = write(folder / "good.wav", noise(4000), subtype="PCM_16").read_bytes()
    (folder / "empty.wav").write_bytes(b"")
    (folder / "text.wav").write_text("This is a letter, not a recording.\n")
    (folder / "header.wav").write_bytes(b"RIFF" + bytes(range(60)))
    (folder / "half.flac").write_bytes(b"fLaC" + good[:30])
    (folder / "nothing.wav").write_bytes(good[:40] + struct.pack("<I", 0))
    (folder / "rate.wav").write_bytes(good[:24] + struct.pack("<I", 7) + good[28:])
    write(folder / "nan.wav", np.array([0, np.nan, 0.5] * 400, np.float32), subtype="FLOAT")
    write(folder / "loud.wav", np.full(900, 3e4, np.float32), subtype="FLOAT")
    (folder / "folder.wav").mkdir()
    os.mkfifo(folder / "pipe.wav")
    return {
        "empty.wav": "(it is empty): replace or remove it.",
        "text.wav": "(it is not WAV, FLAC, OGG, MP3, AIFF or AU: others are converted with ffmpeg",
        "header.wav": "cannot be read as a recording (",
        "half.flac": "cannot be read as a recording (",
        "nothing.wav": "(it has no samples): replace or remove it.",
        "rate.wav": "(it says that it has 7 samples per second)",
        "nan.wav": "(it has samples that are not numbers (NaN or infinite))",
        "loud.wav": "as large as 30,000",
        "missing.wav": "does not exist: check the spelling and the folder.",
        "folder.wav": "is a folder, not a recording: name a file inside it.",
        "pipe.wav": "a pipe or a device",
    }


def test_a_file_that_is_no_recording_is_a_sentence_with_its_name(tmp_path: Path) -> None:
    for name, wrong in break_sounds(tmp_path).items():
        with pytest.raises(UserError) as refused:
            Recording(tmp_path / name).samples(RATE)
        assert str(refused.value).startswith(f"{tmp_path / name} ") and wrong in str(refused.value), name
        assert "\n" not in str(refused.value)
        assert list(Recording(tmp_path / name).tobytes()) and Recording(tmp_path / name).nbytes >= 0


def test_a_header_that_lies_about_its_length_costs_no_memory(tmp_path: Path) -> None:
    content = bytearray(write(tmp_path / "x.wav", noise(4000), subtype="PCM_16").read_bytes())
    content[40:44] = struct.pack("<I", 0xFFFFFFF0)
    (tmp_path / "x.wav").write_bytes(content)
    tracemalloc.start()
    assert len(Recording(tmp_path / "x.wav").samples(RATE)) == 4000
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert most < 20e6
    assert header_of(tmp_path / "x.wav").samples < 1e6
    silence = write(tmp_path / "long.flac", np.zeros(MOST // 8, np.float32), 1000)
    repeated = Recording(silence)
    with pytest.raises(UserError, match="cut it into several"), pytest.MonkeyPatch.context() as patch:
        patch.setattr("regard.data.recordings.MOST", 1_000_000)
        repeated.samples(1000)


def test_without_soundfile_a_sentence_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "x.wav", noise(100))
    monkeypatch.setitem(sys.modules, "soundfile", None)
    with pytest.raises(
        UserError, match=r'soundfile, which is not installed: install it with pip install "regard\[audio\]"'
    ):
        Recording(path).samples(RATE)
    assert len(recording_of(noise(100), RATE).samples(RATE)) == 100


# --- long recordings ----------------------------------------------------------------------------------------------


def speech(count: int, seed: int, pause: float = 0.4) -> tuple[Samples, list[tuple[float, float]]]:
    """Bursts of noise of 0.5 to 3 s between silences; and when each silence is."""
    random, parts, gaps, place = np.random.default_rng(seed), [], [], 0
    for number in range(count):
        burst = noise(int(RATE * random.uniform(0.5, 3)), seed * 1000 + number)
        silence = noise(int(RATE * pause), number, 1e-4)
        parts += [burst, silence]
        place += len(burst)
        gaps.append((place / RATE, (place + len(silence)) / RATE))
        place += len(silence)
    return np.concatenate(parts), gaps


@pytest.mark.parametrize("seed", range(3))
def test_the_pieces_are_the_whole_and_are_cut_in_silences(tmp_path: Path, seed: int) -> None:
    sound, gaps = speech(30, seed)
    path = write(tmp_path / "x.wav", sound, subtype="FLOAT")
    for whole in (Recording(path), recording_of(sound, RATE)):
        found = list(pieces(whole, RATE, 10.0))
        assert len(found) > 3 and all(piece.seconds <= 10 for piece in found)
        assert np.array_equal(np.concatenate([piece.samples(RATE) for piece in found]), sound)
        assert [piece.start for piece in found[1:]] == [piece.end for piece in found[:-1]]
        for piece in found[:-1]:
            assert piece.end is not None and any(start <= piece.end <= end for start, end in gaps)
    part = Recording(path, start=5.0, end=40.0)
    found = list(pieces(part, RATE, 10.0))
    assert found[0].start == 5.0 and found[-1].end == 40.0
    assert np.array_equal(np.concatenate([piece.samples(RATE) for piece in found]), sound[5 * RATE : 40 * RATE])


def test_sound_without_a_silence_is_cut_too_and_a_short_one_is_one_piece() -> None:
    sound = noise(RATE * 25)
    found = list(pieces(recording_of(sound, RATE), RATE, 10.0))
    assert [piece.seconds > 4.5 for piece in found[:-1]] == [True] * (len(found) - 1) and len(found) in (3, 4, 5)
    assert np.array_equal(np.concatenate([piece.samples(RATE) for piece in found]), sound)
    short = recording_of(sound[:RATE], RATE)
    assert list(pieces(short, RATE, 10.0)) == [short]


def test_the_memory_of_a_long_recording_stays_flat(tmp_path: Path) -> None:
    def most(minutes: int) -> int:
        path = tmp_path / f"{minutes}.flac"
        with soundfile.SoundFile(path, "w", 44_100, 1) as file:
            for number in range(minutes):
                file.write(noise(44_100 * 60, number))
        tracemalloc.start()
        seconds = sum(piece.seconds for piece in pieces(Recording(path), 16_000, 20.0))
        _, peak = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        assert seconds == pytest.approx(60 * minutes)
        return peak

    assert most(4) < 1.1 * most(1)

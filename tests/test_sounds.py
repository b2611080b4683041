"""Laws of recordings as data: their field, tables and folders of them, augmentation, `check`, and every verb on the
files of a person."""

from __future__ import annotations

import csv
import json
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from command import Call
from test_recordings import break_sounds, noise, tones, write

import regard
from regard.data.batches import Encoded, Examples, Shuffled
from regard.data.corruption import Batches
from regard.data.fields import Fields, LabelField
from regard.data.frames import log_mel
from regard.data.recordings import Recording, recording_of
from regard.data.sound_augmentation import SoundAugmentation, at_tempo, augmented_sounds, with_noise
from regard.data.sound_sources import LabelledSounds, Recordings, file_and_transcript
from regard.data.sounds import SoundField
from regard.data.world.speech import utterances
from regard.interface import Padded, UserError
from regard.score.error_rates import WER
from regard.score.metrics import ACCURACY

soundfile = pytest.importorskip("soundfile")

RATE, BANDS = 8000, 16
TINY = ("model.dim=16", "model.hidden=16", "model.layers=1", "model.dropout=0.0", "data.bands=16")
BUDGET = ("train.epochs=0", "train.precision=float32", "train.smooth=0.0", "train.patience=0", "--threads", 1)
BRIEF = (*TINY, *BUDGET, "train.steps=2", "train.validate_every=1")


def write_table(folder: Path, name: str, rows: Sequence[Sequence[str]]) -> Path:
    with (folder / name).open("w", newline="") as file:
        csv.writer(file, delimiter="\t", lineterminator="\n").writerows(rows)
    return folder / name


def spoken(folder: Path, name: str, count: int, split: Any = "train", longest: int = 3) -> Path:
    """A table of utterances of the synthesiser, and their files."""
    (folder / name).mkdir(parents=True)
    rows = [("file", "text")]
    for number, each in enumerate(islice(utterances(split, longest=longest), count)):
        soundfile.write(folder / name / f"{number:03}.wav", each.samples(RATE), RATE, subtype="PCM_16")
        rows.append((f"{name}/{number:03}.wav", each.text))
    return write_table(folder, f"{name}.tsv", rows)


def class_folders(folder: Path, count: int = 8) -> Path:
    """High and low tones, in two formats."""
    for label, pitch in (("high", 1500), ("low", 300)):
        (folder / label).mkdir(parents=True)
        for number in range(count):
            sound = tones(RATE, 0.3, pitch * (1 + 0.03 * number)) + noise(2400, number, 0.01)
            write(folder / label / f"{number:03}.{'flac' if number % 2 else 'wav'}", sound, subtype="PCM_16")
    return folder


# --- the field ----------------------------------------------------------------------------------------------------


def test_each_band_is_standardised_over_the_training_recordings() -> None:
    raws = [
        Recording(held=noise(4000, seed, 0.02 * seed), held_rate=RATE, rate=RATE, bands=BANDS) for seed in (1, 2, 3)
    ]
    field = SoundField.train(raws)
    assert (field.rate, field.bands) == (RATE, BANDS)
    every = torch.cat([field.pad(field.encode([raw]), multiple=1).values[0] for raw in raws]).double()
    assert torch.allclose(every.mean(0), torch.zeros(BANDS, dtype=torch.float64), atol=1e-2)
    assert torch.allclose(every.std(0), torch.ones(BANDS, dtype=torch.float64), atol=1e-2)
    silent = SoundField.train([Recording(held=np.zeros(4000, np.float32), held_rate=RATE, rate=RATE, bands=BANDS)])
    assert bool(silent.pad(silent.encode([raws[0]])).values.isfinite().all())


def test_padding_is_0_and_a_field_is_what_its_json_says() -> None:
    field = SoundField(RATE, BANDS, np.linspace(-9, -5, BANDS).tolist(), [2.0] * BANDS)
    long, short = recording_of(noise(4000), RATE), recording_of(noise(1000), RATE)
    both = field.pad(field.encode([long, short]))
    assert both.lengths.tolist() == [51, 13] and bool((both.values[1, 13:] == 0).all())
    alone = field.pad(field.encode([short]))
    assert torch.equal(alone.values[0, :13], both.values[1, :13])
    again = SoundField.from_json(json.loads(json.dumps(field.to_json())))
    assert torch.equal(again.pad(again.encode([long])).values, both.values[:1, :52])
    for wrong in (
        {"rate": 0},
        {"rate": 8050},
        {"bands": 4},
        {"mean": [1.0]},
        {"spread": [0.0] * BANDS},
        {"mean": None},
    ):
        with pytest.raises(ValueError):
            SoundField.from_json(field.to_json() | wrong)


def test_any_rate_is_read_at_the_models_rate(tmp_path: Path) -> None:
    field = SoundField(RATE, BANDS, -8.0, 2.0)
    before = field.frames(write(tmp_path / "8.wav", tones(RATE, 0.5, 300, 900), subtype="FLOAT"))
    for rate in (11_025, 16_000, 44_100, 48_000):
        after = field.frames(write(tmp_path / f"{rate}.wav", tones(rate, 0.5, 300, 900), rate, "FLOAT"))
        loud = before > -8  # the floor differs: a filter that removes what is above half of the rate is not exact
        assert after.shape == before.shape and np.abs(after - before)[loud].max() < 0.1


# --- augmentation -------------------------------------------------------------------------------------------------


def frames(count: int = 60, seed: int = 1) -> torch.Tensor:
    return torch.randn(count, BANDS, generator=torch.Generator().manual_seed(seed))


def test_a_tempo_changes_the_length_and_keeps_the_ends() -> None:
    some = frames()
    assert torch.equal(at_tempo(some, 1.0), some)
    for tempo, count in ((2.0, 30), (0.5, 120), (1.2, 50)):
        faster = at_tempo(some, tempo)
        assert len(faster) == count and torch.equal(faster[0], some[0])
        assert torch.allclose(faster[-1], some[-1], atol=1e-4)
    line = torch.linspace(0, 1, 41)[:, None].expand(-1, BANDS)
    assert torch.allclose(at_tempo(line, 1.6)[:, 0], torch.linspace(0, 1, 26), atol=1e-6)


def test_noise_adds_its_share_of_energy() -> None:
    energies = 2 * frames()
    noisy = with_noise(energies, 0.5, torch.zeros_like(energies))
    assert torch.allclose(noisy.exp().mean(0), 1.5 * energies.exp().mean(0), rtol=1e-4)
    assert torch.equal(with_noise(energies, 0.0, torch.zeros_like(energies)), energies)


def batches(folder: Path, seed: int = 1, **how: Any) -> Batches:
    """Six recordings of several lengths, changed in this way."""
    field = SoundField(RATE, BANDS, -8.0, 2.0)
    with Encoded.writer(folder, "s", field.dtype) as add_sound, Encoded.writer(folder, "t") as add_label:
        for number in range(6):
            add_sound(field.encode([recording_of(noise(4000 + 800 * number, number), RATE)])[0])
            add_label([number % 2])
    encoded = {"source": Encoded.open(folder, "s"), "target": Encoded.open(folder, "t")}
    examples = Examples(Fields({"source": field, "target": LabelField(["a", "b"])}), encoded)
    return augmented_sounds(Shuffled(examples, tokens=300, seed=3), SoundAugmentation(**how), field, seed)


def values(some: Batches, epoch: int, index: int = 0) -> torch.Tensor:
    source = some.get(epoch, index).source
    assert source is not None
    return source.values


@pytest.mark.parametrize("how", [{"mask": True}, {"speed": 0.3}, {"noise": 0.5}])
def test_augmentation_is_a_function_of_seed_epoch_and_index(tmp_path: Path, how: dict[str, Any]) -> None:
    one, plain = batches(tmp_path, **how), batches(tmp_path)
    assert isinstance(plain, Shuffled) and one.count(1) == plain.count(1) > 1
    first = values(one, 1)
    values(one, 2)
    assert torch.equal(values(one, 1), first) and torch.equal(values(batches(tmp_path, **how), 1), first)
    for other in (values(one, 1, 1), values(batches(tmp_path, 2, **how), 1), values(plain, 1)):
        assert other.shape != first.shape or not torch.equal(other, first)


def test_a_recording_is_changed_alike_beside_longer_ones() -> None:
    how = SoundAugmentation(mask=True, speed=0.2, noise=0.3, mean=torch.full((BANDS,), -8.0), spread=torch.ones(BANDS))
    alone = Padded(frames(60)[None], torch.ones(1, 60, dtype=torch.bool))
    wide = torch.zeros(2, 90, BANDS)
    wide[0, :60], wide[1] = frames(60), frames(90, 2)
    both = how(Padded(wide, torch.arange(90) < torch.tensor([[60], [90]])), np.random.default_rng(3))
    own = how(alone, np.random.default_rng(3))
    length = int(own.lengths[0])
    assert both.lengths[0] == length and torch.equal(both.values[0, :length], own.values[0, :length])
    assert bool((both.values[0, length:] == 0).all())


def test_hidden_stretches_are_the_mean_and_few() -> None:
    side = Padded(frames(400)[None] + 3, torch.ones(1, 400, dtype=torch.bool))
    hidden = SoundAugmentation(mask=True)(side, np.random.default_rng(4)).values[0] == 0
    rows, columns = hidden.all(1), hidden.all(0)
    assert bool((hidden == (rows[:, None] | columns)).all()) and bool(hidden.any())
    assert int(rows.sum()) <= 2 * 20 and int(columns.sum()) <= 2 * BANDS // 5
    padded = Padded(torch.cat([side.values, torch.zeros(1, 100, BANDS)], 1), torch.arange(500)[None] < 400)
    same = SoundAugmentation(mask=True)(padded, np.random.default_rng(4))
    assert torch.equal(same.values[0, :400] == 0, hidden) and same.lengths.tolist() == [400]


# --- where recordings come from -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "text", "fields"),
    [
        ("t.tsv", "a.wav\tone two\nb.wav\tthree four\n", ("1", "2")),
        ("t.tsv", "file\tspeaker\ttext\na.wav\tanna\tone two\nb.wav\tben\tthree\n", ("file", "text")),
        ("t.csv", 'text,file\n"one, two",a.flac\nthree,b.flac\n', ("file", "text")),
        (
            "t.jsonl",
            '{"audio": "a.mp3", "sentence": "one two"}\n{"audio": "b.mp3", "sentence": "x y"}\n',
            ("audio", "sentence"),
        ),
    ],
)
def test_the_fields_of_a_table_are_found(tmp_path: Path, name: str, text: str, fields: tuple[str, str]) -> None:
    (tmp_path / name).write_text(text)
    assert file_and_transcript(tmp_path / name) == fields
    data = Recordings(train=name, hold_out=0.5, source=fields[0], target=fields[1])
    found = [(recording.path.name, text) for _, recording, text in data.read(tmp_path / name, None)]  # type: ignore[union-attr]
    assert len(found) == 2 and found[0][0].startswith("a.") and "one" in found[0][1]


def test_an_empty_transcript_and_what_is_no_table_are_refused(tmp_path: Path) -> None:
    table = write_table(tmp_path, "t.tsv", [("file", "text"), ("a.wav", "one"), ("b.wav", " ")])
    data = Recordings(train="t.tsv", hold_out=0.5, source="file", target="text")
    with pytest.raises(UserError, match=r"t\.tsv, line 3: an empty transcript; write one, or delete the line"):
        list(data.read(table, None))
    with pytest.raises(UserError):
        list(data.read(class_folders(tmp_path / "tones"), None))


def test_the_split_of_held_out_recordings_follows_their_content(tmp_path: Path) -> None:
    folder = class_folders(tmp_path / "tones", 20)
    data = LabelledSounds(train="tones", hold_out=0.3)

    def listed(split: Any) -> set[str]:
        return {str(recording.path.relative_to(folder)) for _, recording, _ in data.lines(split, tmp_path)}  # type: ignore[union-attr]

    train, valid = listed("train"), listed("valid")
    assert train and valid and not train & valid and len(train | valid) == 40
    for path in sorted(folder.glob("*/*")):
        shutil.copy(path, path.with_name(f"copy of {path.name}"))
    for split, before in (("train", train), ("valid", valid)):
        wanted = before | {str(Path(name).with_name(f"copy of {Path(name).name}")) for name in before}
        assert listed(split) == wanted


# --- every verb ---------------------------------------------------------------------------------------------------


def test_check_names_what_training_and_predict_refuse(call: Call, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    spoken(place, "good", 12)
    wrong = break_sounds(place)
    silence, loud = np.zeros(RATE, np.float32), np.sign(noise(RATE)).astype(np.float32)
    for name, sound in (
        ("silent.wav", silence),
        ("clipped.wav", loud),
        ("short.wav", noise(200)),
        ("fast.wav", noise(RATE)),
    ):
        write(place / name, sound, subtype="FLOAT")
    rows = [(name, "one") for name in (*wrong, "silent.wav", "clipped.wav", "short.wav")]
    write_table(place, "t.tsv", [("file", "text"), ("good/000.wav", "two"), *rows, ("fast.wav", "one two three " * 20)])
    assert call("new", "speech", "good.tsv", "--valid", "good.tsv", "-o", "s.toml").code == 0
    assert call("train", "s.toml", *BRIEF, "-o", "run").code == 0
    done = call("check", "s.toml", "data.train=t.tsv")
    assert done.code == 1
    for name, what in wrong.items():
        (line,) = (line for line in done.out.splitlines() if line.startswith("error: ") and f"{name} " in line)
        assert what in line
    for what, name in (
        ("is silent", "silent.wav"),
        ("is clipped", "clipped.wav"),
        ("is shorter than 0.05 s", "short.wav"),
        ("are too short for the transcript", "fast.wav"),
        ("in train too", ""),
    ):
        assert any(what in line and name in line for line in done.out.splitlines()), what
    made = call("new", "speech", "t.tsv", "-o", "t.toml")  # which leaves bad files to `check`
    assert made.code == 0, made.err
    with monkeypatch.context() as without:
        without.setitem(sys.modules, "soundfile", None)
        refused = call("check", "s.toml")
    assert refused.code == 1 and "soundfile" in refused.err and len(refused.err.splitlines()) == 1
    for name in wrong:
        refused = call("predict", "run", "good/000.wav", name)
        assert refused.code == 1 and name in refused.err and len(refused.err.splitlines()) == 1, name


def test_a_recogniser_is_trained_used_scored_and_looked_into(call: Call, place: Path) -> None:
    spoken(place, "train", 60)
    spoken(place, "test", 10, "test")
    made = call("new", "speech", "train.tsv", "-o", "s.toml")
    assert made.code == 0 and 'name = "ctc"' in (place / "s.toml").read_text()
    trained = call("train", "s.toml", *TINY, *BUDGET, "train.steps=6", "train.validate_every=3", "-o", "runs/s")
    assert trained.code == 0 and "WER" in trained.out
    plain = call("predict", "runs/s", "test/000.wav", "test/001.wav")
    run = regard.load("runs/s")
    answers = run.predict([Path("test/000.wav"), Path("test/001.wav")])
    assert plain.out.splitlines() == [f"{answer.text}\ttest/00{n}.wav" for n, answer in enumerate(answers)]
    as_json = call("predict", "runs/s", "test/000.wav", "--json")
    found = json.loads(as_json.out.splitlines()[0])
    assert (
        found["file"] == "test/000.wav" and {"word", "start", "end"} == {*found["times"][0]} if found["times"] else True
    )
    for no_table in ("test/000.wav", "test", "s.toml"):
        refused = call("score", "runs/s", no_table)
        assert refused.code == 1 and "table" in refused.err and len(refused.err.splitlines()) == 1, refused.err
    scored = call("score", "runs/s", "test.tsv", "--json")
    facts = json.loads(scored.out)
    references = [text for _, text in run.examples(Path("test.tsv"))]
    outputs = [answer.text for answer in run.predict([raw for raw, _ in run.examples(Path("test.tsv"))])]
    assert facts["wer"] == pytest.approx(WER.of(outputs, references)) and facts["count"] == 10
    shown = call("look", "runs/s", "test/000.wav")
    assert shown.code == 0 and "CTC" in shown.out
    for name in ("look.html", "look.svg"):
        assert call("look", "runs/s", "test/000.wav", "--html" if "html" in name else "-o", name).code == 0
    page = (place / "look.html").read_text()
    assert "data:audio/wav" in page and "<svg" in (place / "look.svg").read_text()
    checked = call("check", "s.toml")
    assert checked.code == 0, checked.out


def test_labels_of_recordings_go_through_every_verb(call: Call, place: Path) -> None:
    class_folders(place / "tones", 20)
    assert call("new", "sounds", "tones", "-o", "s.toml").code == 0
    settings = ("model.embedding=8", "model.hidden=16", "model.layers=1", "train.steps=40", "train.validate_every=20")
    trained = call("train", "s.toml", *settings, *BUDGET, "-o", "runs/s")
    assert trained.code == 0, trained.err
    run = regard.load("runs/s")
    every = list(run.examples(Path("tones")))
    outputs = [answer.text for answer in run.predict([raw for raw, _ in every])]
    assert ACCURACY.of(outputs, [label for _, label in every]) > 90
    said = call("predict", "runs/s", "tones/low/000.wav", "tones/high/001.flac")
    assert [line.split("\t")[0] for line in said.out.splitlines()] == outputs_of(
        run, "tones/low/000.wav", "tones/high/001.flac"
    )
    looked = call("look", "runs/s", "tones/low/000.wav")
    assert looked.code == 0 and "saliency" in looked.out
    assert call("look", "runs/s", "tones/low/000.wav", "--html", "look.html").code == 0
    assert "data:audio/wav" in (place / "look.html").read_text()
    assert call("score", "runs/s", "tones").code == 0


def outputs_of(run: Any, *names: str) -> list[str]:
    return [answer.text for answer in run.predict([Path(name) for name in names])]


@pytest.mark.parametrize(
    ("arguments", "wrong"),
    [
        (("new", "speech", "missing.tsv"), "missing.tsv"),
        (("new", "speech", "empty.tsv"), "empty.tsv"),
        (("new", "speech", "prose.tsv"), "prose.tsv"),
        (("new", "speech", "binary.tsv"), "binary.tsv"),
        (("new", "speech", "tones"), "tones"),
        (("new", "sounds", "good.tsv", "--tokens", "words"), "tokens does not apply"),
        (("new", "sounds", "flat"), "flat"),
        (("new", "speech", "gone.tsv"), "nowhere/"),
    ],
)
def test_what_is_no_table_of_recordings_is_one_sentence(
    call: Call, place: Path, arguments: tuple[str, ...], wrong: str
) -> None:
    spoken(place, "good", 3)
    class_folders(place / "tones", 2)
    (place / "flat").mkdir()
    write(place / "flat" / "a.wav", noise(900))
    (place / "empty.tsv").write_text("")
    (place / "prose.tsv").write_text("It was a dark and stormy night.\nThe rain fell in torrents.\n")
    (place / "binary.tsv").write_bytes(bytes(range(256)) * 20)
    write_table(place, "gone.tsv", [("file", "text"), ("nowhere/a.wav", "one"), ("nowhere/b.wav", "two")])
    done = call(*arguments, "-o", "x.toml")
    assert done.code != 0 and wrong in done.err and len(done.err.strip().splitlines()) == 1, done.err
    assert not (place / "x.toml").exists()


def test_log_mel_frames_of_a_silence_are_finite() -> None:
    assert np.isfinite(log_mel(np.zeros(100, np.float32), RATE, BANDS)).all()
    assert replace(Recording(held=noise(800), held_rate=RATE), end=0.05).seconds == pytest.approx(0.05)

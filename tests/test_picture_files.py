"""Laws of picture files: whatever the format, the mode and the size, a picture gives the same pixels; what cannot be
decoded is named in one sentence; augmentation is a function of (seed, epoch, index)."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
import zlib
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from command import ENVIRONMENT, REGARD, Call

import regard
from regard.data import picture_files
from regard.data.augmentation import Augmentation, Augmented, augmented, cropped, flipped, recoloured
from regard.data.batches import Encoded, Examples, Shuffled
from regard.data.fields import Fields, LabelField
from regard.data.picture_cache import PictureCache
from regard.data.picture_files import MOST_PIXELS, PictureFile, read_picture
from regard.data.picture_sources import Npz, Pictures, file_and_label
from regard.data.pictures import PictureField, pixels_in, read_pictures
from regard.interface import UserError
from regard.loading import read_recipe
from regard.score.metrics import ACCURACY, TOP_5
from regard.train.session import Session

Image = pytest.importorskip("PIL.Image")

SIDE = 16
SIZE = (SIDE, SIDE, 3)
COLOUR, GREY = (200, 100, 50), 128
TINY = ("model.dim=8", "model.heads=2", "model.feed_forward=8", "model.layers=1", "model.patch=8", "data.side=16")
BUDGET = ("train.epochs=0", "train.steps=2", "train.validate_every=1", "train.precision=float32", "train.smooth=0.0")
BRIEF = (*TINY, *BUDGET, "--threads", 1)


def noise(height: int, width: int, seed: int = 1, channels: int = 3) -> np.ndarray:
    shape = (height, width, channels) if channels > 1 else (height, width)
    return np.random.default_rng(seed).integers(0, 256, shape, np.uint8)


def write_folder(folder: Path, count: int = 6, seed: int = 1) -> Path:
    """Reddish and bluish pictures of several sizes, as PNG and JPEG."""
    random = np.random.default_rng(seed)
    for label, colour in (("red", (220, 40, 40)), ("blue", (40, 40, 220))):
        (folder / label).mkdir(parents=True)
        for number in range(count):
            height, width = random.integers(20, 60, 2)
            pixels = np.clip(np.array(colour) + random.normal(0, 30, (height, width, 3)), 0, 255).astype(np.uint8)
            Image.fromarray(pixels).save(folder / label / f"{number:03}.{'jpg' if number % 2 else 'png'}")
    return folder


# --- what a file may have -----------------------------------------------------------------------------------------


def of_mode(mode: str) -> Any:
    """A picture of one colour, or of one grey."""
    if mode == "I;16":
        return Image.fromarray(np.full((40, 60), 257 * GREY, np.uint16))
    if mode == "F":
        return Image.fromarray(np.full((40, 60), GREY / 255, np.float32))
    picture = Image.new("RGB", (60, 40), COLOUR)
    return picture.quantize(8) if mode == "P" else picture.convert(mode)


@pytest.mark.parametrize(
    ("mode", "endings"),
    [
        ("RGB", "png jpg gif bmp webp tif ppm"),
        ("P", "png gif bmp tif"),
        ("CMYK", "jpg tif"),
        ("RGBA", "png webp tif"),
        ("L", "png jpg gif bmp tif pgm"),
        ("LA", "png tif"),
        ("I;16", "png tif"),
        ("F", "tif"),
        ("YCbCr", "jpg tif"),
    ],
)
def test_every_mode_in_every_format_gives_its_colour(tmp_path: Path, mode: str, endings: str) -> None:
    for ending in endings.split():
        path = tmp_path / f"x.{ending}"
        of_mode(mode).save(path)
        grey = {"L": 124, "LA": 124, "I;16": GREY, "F": GREY}.get(mode)  # 124: the luminance of the colour
        wanted = np.array(COLOUR if grey is None else (grey,) * 3)
        pixels = read_picture(path, SIZE)
        assert pixels.shape == SIZE and pixels.dtype == np.uint8
        assert np.abs(pixels.astype(int) - wanted).max() <= 6, (mode, ending)
        assert read_picture(path, (SIDE, SIDE, 1)).shape == (SIDE, SIDE, 1)


def test_black_and_white_of_one_bit_stay_so(tmp_path: Path) -> None:
    Image.new("1", (40, 40), 1).save(tmp_path / "x.png")
    assert read_picture(tmp_path / "x.png", SIZE).min() == 255


UNDONE = {1: 1, 2: 2, 3: 3, 4: 4, 5: 5, 6: 8, 7: 7, 8: 6}  # the orientation that turns each back


@pytest.mark.parametrize("ending", ["png", "tif", "webp"])
@pytest.mark.parametrize("orientation", UNDONE)
def test_a_rotated_file_with_its_orientation_equals_the_upright_one(tmp_path, orientation, ending):
    upright = Image.fromarray(noise(24, 40))
    exif = Image.Exif()
    exif[picture_files.ORIENTATION] = UNDONE[orientation]
    stored = upright
    if orientation != 1:
        turned = Image.Exif()
        turned[picture_files.ORIENTATION] = UNDONE[orientation]
        stored = upright.copy()
        stored.info["exif"] = turned.tobytes()
        stored = picture_files.upright(stored)
    exif[picture_files.ORIENTATION] = orientation
    how = {"lossless": True} if ending == "webp" else {}
    upright.save(tmp_path / f"upright.{ending}", **how)
    stored.info.pop("exif", None)
    stored.save(tmp_path / f"turned.{ending}", exif=exif, **how)
    one, other = (read_picture(tmp_path / f"{name}.{ending}", SIZE) for name in ("upright", "turned"))
    assert np.abs(one.astype(int) - other).max() <= 1  # resizing the other axis first rounds otherwise
    assert orientation == 1 or not np.array_equal(np.asarray(stored), np.asarray(upright))


def test_what_is_transparent_is_white(tmp_path: Path) -> None:
    """Half of a picture is transparent black: as alpha, as a colour of the palette, as a colour that is declared so."""
    alpha = np.zeros((32, 32, 4), np.uint8)
    alpha[:, :16] = (*COLOUR, 255)
    Image.fromarray(alpha).save(tmp_path / "alpha.png")
    Image.fromarray(alpha).save(tmp_path / "alpha.webp", lossless=True)
    Image.fromarray(alpha).save(tmp_path / "palette.gif")
    Image.fromarray(alpha[..., :3]).save(tmp_path / "declared.png", transparency=(0, 0, 0))
    Image.fromarray(alpha[..., :3]).quantize(4).save(tmp_path / "palette.png", transparency=0)
    for path in sorted(tmp_path.iterdir()):
        pixels = read_picture(path, (32, 32, 3)).astype(int)
        halves = pixels[:, :14].mean((0, 1)), pixels[:, 18:].mean((0, 1))
        clear = max(halves, key=sum)
        assert np.abs(clear - 255).max() <= 1, path.name


def test_the_first_frame_of_an_animation_is_read(tmp_path: Path) -> None:
    first, *others = (Image.new("RGB", (20, 20), colour) for colour in ("red", "lime", "blue"))
    for ending in ("gif", "webp", "tif", "png"):
        path = tmp_path / f"x.{ending}"
        first.save(path, save_all=True, append_images=others)
        assert np.abs(read_picture(path, SIZE).astype(int) - (255, 0, 0)).max() <= 4, ending


def test_a_picture_of_the_right_size_keeps_its_pixels(tmp_path: Path) -> None:
    pixels = noise(SIDE, SIDE)
    Image.fromarray(pixels).save(tmp_path / "x.png")
    assert np.array_equal(read_picture(tmp_path / "x.png", SIZE), pixels)


def test_the_middle_is_kept_with_its_proportions_and_antialiased(tmp_path: Path) -> None:
    wide = np.zeros((64, 128, 3), np.uint8)
    wide[:, 32:96] = COLOUR
    for name, pixels in (("wide", wide), ("tall", wide.transpose(1, 0, 2))):
        Image.fromarray(pixels).save(tmp_path / f"{name}.png")
        assert np.array_equal(read_picture(tmp_path / f"{name}.png", SIZE)[2:-2, 2:-2], np.full((12, 12, 3), COLOUR))
    board = np.indices((256, 256)).sum(0) % 2 * 255  # of single pixels: without antialiasing all black or all white
    Image.fromarray(board.astype(np.uint8)).save(tmp_path / "board.png")
    assert np.abs(read_picture(tmp_path / "board.png", SIZE)[1:-1, 1:-1].astype(int) - 127).max() <= 2


# --- what cannot be decoded ---------------------------------------------------------------------------------------


def break_files(folder: Path) -> dict[str, str]:
    """Write files that are no pictures; return the name of each and what is wrong with it."""
    content = (write_folder(folder / "sound", 2) / "red" / "001.jpg").read_bytes()
    (folder / "half.jpg").write_bytes(content[:-90])
    (folder / "head.jpg").write_bytes(content[:30])
    (folder / "empty.png").write_bytes(b"")
    (folder / "text.jpg").write_text("This is a letter, not a picture.\n")
    (folder / "script.png").write_bytes(b"%!PS-Adobe-3.0 EPSF-3.0\n%%BoundingBox: 0 0 9 9\n")
    Image.fromarray(noise(1, 1)).save(folder / "large.png")
    content = (folder / "large.png").read_bytes()
    for name, width in (("large.png", 20_000), ("bomb.png", 400_000)):  # Pillow itself refuses the second
        header = b"IHDR" + struct.pack(">II", width, 6_000) + content[24:29]
        checked = header + struct.pack(">I", zlib.crc32(header))
        (folder / name).write_bytes(content[:12] + checked + content[33:])
    Image.fromarray(np.full((9, 9), -3, np.int32)).save(folder / "negative.tif")
    return {
        "half.jpg": "cannot be read as a picture (image file is truncated",
        "head.jpg": "cannot be read as a picture (",
        "empty.png": "(it is empty): replace or remove it.",
        "text.jpg": "(it is not PNG, JPEG, GIF, BMP, WEBP, TIFF or PPM): replace or remove it.",
        "script.png": "(it is not PNG, JPEG, GIF, BMP, WEBP, TIFF or PPM)",
        "bomb.png": f"(it has more than {MOST_PIXELS:,} pixels): replace or remove it.",
        "large.png": f"(it has more than {MOST_PIXELS:,} pixels)",
        "negative.tif": "(its numbers are not from 0 to 65,535: save it with 8 bits per colour)",
        "missing.png": "does not exist: check the spelling and the folder.",
        "sound": "is a folder, not a picture: name a file inside it.",
    }


def test_a_file_that_is_no_picture_is_a_sentence_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(subprocess, "Popen", None)  # no other program is started
    for name, wrong in break_files(tmp_path).items():
        with pytest.raises(UserError) as refused:
            read_picture(tmp_path / name, SIZE)
        assert str(refused.value).startswith(f"{tmp_path / name} ") and wrong in str(refused.value), name
        assert "\n" not in str(refused.value)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "x.png")
    with pytest.raises(UserError, match="a pipe or a device"):
        read_picture(tmp_path / "x.png", SIZE)


def test_check_names_every_file_that_train_and_predict_refuse(call: Call, place: Path) -> None:
    wrong = break_files(place)
    names = [name for name in wrong if name not in ("large.png", "head.jpg")]
    rows = [*(f"{name},red" for name in names), "sound/red/000.png,red", "sound/blue/000.png,blue"]
    (place / "t.csv").write_text("\n".join(["file,label", *rows, "sound/red/001.jpg,"]) + "\n")
    write_folder(place / "photos")
    assert call("new", "pictures", "photos", "--valid", "sound", "-o", "sound.toml").code == 0
    assert call("train", "sound.toml", *BRIEF, "-o", "run").code == 0
    done = call("check", "sound.toml", "data.train=t.csv")
    assert done.code == 1
    for name in names:
        (line,) = (line for line in done.out.splitlines() if line.startswith("error: ") and f"{name} " in line)
        assert wrong[name] in line
    for name in ("half.jpg", "empty.png", "bomb.png", "missing.png"):
        refused = call("predict", "run", "sound/red/000.png", name)
        assert refused.code == 1 and name in refused.err and len(refused.err.splitlines()) == 1 and refused.out == ""
    assert "t.csv, line 12: has an empty label: correct or remove it." in done.out
    (place / "photos" / "red" / "bad.png").write_bytes(b"")
    (place / "photos" / "red" / "notes.txt").write_text("no picture")
    done = call("check", "sound.toml")
    assert done.code == 1 and "red/bad.png cannot be read as a picture (it is empty)" in done.out
    assert "1 file with other endings than a picture's (notes.txt), which training leaves out" in done.out
    done = call("train", "sound.toml", *BRIEF, "-o", "other")
    assert done.code == 1 and "red/bad.png cannot be read" in done.err and len(done.err.splitlines()) == 1


def test_without_pillow_a_sentence_says_how_to_install_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_folder(tmp_path / "photos", 1)
    np.savez(tmp_path / "x.npz", images=np.zeros((2, 8, 8), np.uint8), labels=np.arange(2))
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "PIL.Image")
    with pytest.raises(
        UserError, match=r'Pillow, which is not installed: install it with pip install "regard\[images\]"'
    ):
        read_picture(tmp_path / "photos" / "red" / "000.png", SIZE)
    assert len(list(read_pictures(tmp_path / "x.npz"))) == 2


# --- where pictures come from -------------------------------------------------------------------------------------


def listed(data: Npz, split: Any = "train", folder: Path = Path()) -> list[tuple[str, str]]:
    return [(picture.path.name, label) for _, picture, label in data.lines(split, folder)]


@pytest.mark.parametrize(
    ("name", "text", "fields"),
    [
        ("t.csv", "file,label\nred/0.png,red\nblue/0.png,blue\n", ("file", "label")),
        ("t.csv", "label;file;note\nred;red/0.png;a\nblue;blue/0.png;b\n", ("file", "label")),
        ("t.tsv", "red/0.png\tred\nblue/0.png\tblue\n", ("1", "2")),
        ("t.tsv", "x\t1\tred/0.png\ny\t1\tblue/0.png\n", ("3", "2")),
        ("t.jsonl", '{"y": 3, "x": "red/0.png"}\n{"y": 4, "x": "blue/0.png"}\n', ("x", "y")),
    ],
)
def test_the_fields_of_a_table_are_found(tmp_path: Path, name: str, text: str, fields: tuple[str, str]) -> None:
    (tmp_path / name).write_text(text)
    assert file_and_label(tmp_path / name) == fields
    data = Pictures(train=name, hold_out=0.5, source=fields[0], target=fields[1])
    found = [(picture.path, label) for _, picture, label in data.labelled(tmp_path / name, None)]
    assert [path for path, _ in found] == [tmp_path / "red/0.png", tmp_path / "blue/0.png"]


def test_a_folder_and_a_table_of_it_are_the_same_examples(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "photos")
    (folder / "red" / "more").mkdir()
    (folder / "red" / "000.png").rename(folder / "red" / "more" / "000.png")
    (folder / "red" / ".hidden.png").write_bytes(b"")
    found = listed(Pictures(train="photos", valid="photos"), folder=tmp_path)
    assert len(found) == 12 and {label for _, label in found} == {"red", "blue"}
    files = sorted(path.relative_to(tmp_path) for path in folder.rglob("*/[0-9]*.*"))
    (tmp_path / "t.tsv").write_text("".join(f"{file}\t{file.parts[1]}\n" for file in files))
    assert sorted(listed(Pictures(train="t.tsv", valid="t.tsv", source="1", target="2"), folder=tmp_path)) == sorted(
        found
    )


def test_a_picture_without_a_label_and_a_folder_without_folders_are_refused(tmp_path: Path) -> None:
    data = Pictures(train="photos", valid="photos")
    (tmp_path / "photos").mkdir()
    with pytest.raises(UserError, match="has no folders, and pictures need labels: put each picture into a folder"):
        listed(data, folder=tmp_path)
    write_folder(tmp_path / "photos" / "x", 1)
    Image.new("L", (9, 9)).save(tmp_path / "photos" / "loose.png")
    with pytest.raises(UserError, match="has loose.png beside its folders"):
        listed(data, folder=tmp_path)


def test_held_out_pictures_are_chosen_by_their_content(tmp_path: Path) -> None:
    folder = write_folder(tmp_path / "photos", 20)
    data = Pictures(train="photos", hold_out=0.3)
    train, valid = ({*listed(data, split, tmp_path)} for split in ("train", "valid"))
    every = {*listed(replace(data, valid="photos", hold_out=0.0), folder=tmp_path)}
    assert train and valid and not train & valid and train | valid == every
    for path in sorted(folder.glob("*/*")):
        path.with_name(f"copy of {path.name}").write_bytes(path.read_bytes())
    for split, before in (("train", train), ("valid", valid)):
        after = {*listed(data, split, tmp_path)}
        assert after == before | {(f"copy of {name}", label) for name, label in before}


def test_a_fingerprint_changes_with_a_pixel_a_label_and_a_file(tmp_path: Path) -> None:
    folder, data = write_folder(tmp_path / "photos", 2), Pictures(train="photos", hold_out=0.5)
    seen = [data.fingerprint(tmp_path)]
    assert data.fingerprint(tmp_path) == seen[0]
    Image.new("L", (9, 9)).save(folder / "red" / "000.png")
    seen.append(data.fingerprint(tmp_path))
    (folder / "red" / "000.png").rename(folder / "blue" / "zzz.png")
    seen.append(data.fingerprint(tmp_path))
    (folder / "red" / "001.jpg").unlink()
    seen.append(data.fingerprint(tmp_path))
    assert len({*seen}) == 4


@pytest.mark.parametrize("settings", [{"channels": 2}, {"side": 0}, {"source": "file"}, {"crop": -1}, {"colour": 1.0}])
def test_settings_that_are_not_possible_are_refused(settings: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=" must be "):
        Pictures(train="x", hold_out=0.5, **settings)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("order", ["C", "F"])
def test_an_npz_is_read_in_parts_and_gives_all_of_it(tmp_path, monkeypatch, save, channels, order):
    monkeypatch.setattr("regard.data.pictures.AT_ONCE", 5 * 8 * 7 * channels)
    images = np.random.default_rng(1).integers(0, 256, (23, 8, 7, channels), np.uint8)
    save(tmp_path / "x.npz", images=np.asarray(images, order=order), labels=np.arange(23) % 3, names=list("abc"))
    pixels, labels = zip(*read_pictures(tmp_path / "x.npz"), strict=True)
    assert np.array_equal(np.stack(pixels), images) and "".join(labels) == ("abc" * 8)[:23]


# --- decoded once -------------------------------------------------------------------------------------------------


@pytest.fixture
def decoded(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names of the files that are decoded."""
    names: list[str] = []

    def noted(path: Path, size: Any) -> Any:
        names.append(path.name)
        return read_picture(path, size)

    monkeypatch.setattr(picture_files, "read_picture", noted)
    return names


def recipe_for(place: Path, *settings: str) -> Any:
    (place / "p.toml").write_text('task = "pictures"\n[data]\nname = "pictures"\n[model]\nname = "vit"\n')
    given = ("data.train=photos", "data.valid=photos", *TINY, *BUDGET, *settings)
    return read_recipe(place / "p.toml", given)[0]


def test_every_file_is_decoded_once_and_after_an_interruption_only_the_others(place: Path, decoded: list[str]) -> None:
    folder = write_folder(place / "photos", 6)
    content = (folder / "red" / "003.jpg").read_bytes()
    (folder / "red" / "003.jpg").write_bytes(content[:-90])
    progress: list[tuple[int, int]] = []
    with pytest.raises(UserError, match="003.jpg cannot be read"):
        Session(recipe_for(place), place / "run")
    assert len(decoded) == 6 + 4 and (place / "run" / "data" / "pictures.16x16x3").is_file()
    (folder / "red" / "003.jpg").write_bytes(content)
    decoded.clear()
    session = Session(recipe_for(place), place / "run", on_read=lambda *each: progress.append(each))
    assert decoded == ["003.jpg", "004.png", "005.jpg"] and progress == [(10, 24), (11, 24), (12, 24)]
    assert not (place / "run" / "data" / "pictures.16x16x3").exists()
    again = Session(recipe_for(place), place / "straight")
    for one, other in zip(session.encoded["train"].values(), again.encoded["train"].values(), strict=True):
        assert np.array_equal(one.tokens, other.tokens)
    decoded.clear()
    assert len(list(session.steps())) == 2
    assert len(list(Session(recipe_for(place, "train.steps=3"), place / "run").steps())) == 1
    assert decoded == []  # neither validation nor resuming decodes anything


def test_a_damaged_record_is_decoded_again(tmp_path: Path) -> None:
    pictures = {bytes([number]) * 16: noise(4, 4, number) for number in range(5)}

    def read(expected: int) -> None:
        cache, made = PictureCache(tmp_path, (4, 4, 3)), []
        for digest, pixels in pictures.items():
            assert np.array_equal(cache.get(digest, lambda pixels=pixels: made.append(1) or pixels), pixels)
        cache.close()
        assert len(made) == expected

    read(5)
    read(0)
    path = tmp_path / "pictures.4x4x3"
    content = bytearray(path.read_bytes())
    content[16 + 5] ^= 1  # a pixel of the first record
    path.write_bytes(content[:-1])  # and the last one is cut off
    read(2)
    read(0)


@pytest.mark.slow
def test_memory_does_not_grow_with_the_number_of_pictures(tmp_path: Path) -> None:
    """5,000 pictures of 128 x 128 are 250 MB."""
    peaks = {}
    for count in (250, 2500):
        folder = write_folder(tmp_path / str(count), 1)
        for number, label in ((number, label) for number in range(count) for label in ("red", "blue")):
            Image.fromarray(noise(6, 6, number * 2 + (label == "red"))).save(folder / label / f"n{number}.png")
        run = [*REGARD, "new", "pictures", folder, "-o", tmp_path / f"{count}.toml"]
        subprocess.run(run, env=ENVIRONMENT, check=True, capture_output=True)
        settings = [*TINY, *BUDGET, "data.side=128", "model.patch=64", "train.steps=1", "--threads", "1"]
        command = [*REGARD, "train", tmp_path / f"{count}.toml", *settings, "-o", tmp_path / f"run{count}"]
        started = subprocess.Popen(list(map(str, command)), env=ENVIRONMENT, stdout=subprocess.DEVNULL)
        _, status, used = os.wait4(started.pid, 0)
        started.returncode = os.waitstatus_to_exitcode(status)
        assert started.returncode == 0
        peaks[count] = used.ru_maxrss / 1024
    assert peaks[2500] - peaks[250] < 60, peaks


# --- as numbers ---------------------------------------------------------------------------------------------------


def test_each_channel_has_its_mean_and_spread(tmp_path: Path) -> None:
    raws = [noise(8, 6, seed) // (1, 2, 4) for seed in range(30)]
    field = PictureField.train(iter(raws))
    values = field.pad(field.encode(raws)).values.view(30, 8, 6, 3)
    assert torch.allclose(values.mean((0, 1, 2)), torch.zeros(3), atol=1e-5)
    assert torch.allclose(values.std((0, 1, 2), correction=0), torch.ones(3), atol=1e-5)
    again = PictureField.from_json(json.loads(json.dumps(field.to_json())))
    assert torch.equal(again.pad(again.encode(raws)).values.view_as(values), values)


def test_a_run_from_before_has_one_mean_and_spread_for_all_channels() -> None:
    raws = [noise(8, 6, seed) for seed in range(5)]
    field = PictureField.from_json({"size": [8, 6, 3], "mean": 93.7, "spread": 61.3})
    found = field.pad(field.encode(raws)).values
    assert torch.equal(found, (torch.from_numpy(np.stack(raws)).float().view(5, 8, 18) - 93.7) / 61.3)
    for wrong in ({"mean": [1.0, 2.0]}, {"spread": [1.0, 1.0, 0.0]}, {"mean": [1.0, 2.0, "x"]}, {"spread": []}):
        with pytest.raises(ValueError):
            PictureField.from_json({"size": [8, 6, 3], "mean": 93.7, "spread": 61.3, **wrong})


def test_a_file_an_image_and_an_array_of_a_picture_are_the_same(tmp_path: Path) -> None:
    pixels = noise(SIDE, SIDE)
    path = tmp_path / "x.png"
    Image.fromarray(pixels).save(path)
    for raw in (path, str(path), PictureFile(path), Image.open(path), pixels, pixels.astype(int)):
        assert np.array_equal(pixels_in(raw, SIZE), pixels)
    for odd, wrong in ((pixels / 255, "float64"), (pixels.astype(int) - 1, "int64"), (pixels[1:], "resize it first")):
        with pytest.raises(UserError, match=wrong):
            pixels_in(odd, SIZE)


# --- augmentation -------------------------------------------------------------------------------------------------


def pictures(count: int = 7) -> torch.Tensor:
    return torch.randn(count, 11, 13, 3, generator=torch.Generator().manual_seed(1))


def test_flipping_twice_changes_nothing() -> None:
    some, which = pictures(), torch.arange(7) % 2 == 0
    once = flipped(some, which)
    assert torch.equal(flipped(once, which), some)
    assert torch.equal(once[1::2], some[1::2]) and torch.equal(once[0, :, 0], some[0, :, -1])


def test_cropping_in_the_middle_changes_nothing_and_elsewhere_moves() -> None:
    some, middle = pictures(), torch.full((7,), 2)
    assert torch.equal(cropped(some, middle, middle, 2), some)
    moved = cropped(some, middle + 1, middle - 2, 2)
    assert torch.equal(moved[:, :-1, 2:], some[:, 1:, :-2]) and not moved[:, -1].any() and not moved[:, :, :2].any()


def test_colour_changes_mean_and_spread_of_each_picture_as_asked() -> None:
    some, contrast, brightness = pictures(), torch.linspace(0.5, 1.5, 7), torch.linspace(-1, 1, 7)
    found = recoloured(some, contrast, brightness)
    assert torch.allclose(found.mean((1, 2, 3)), some.mean((1, 2, 3)) + brightness, atol=1e-5)
    assert torch.allclose(found.std((1, 2, 3)), some.std((1, 2, 3)) * contrast, atol=1e-5)
    assert torch.allclose(recoloured(some, torch.ones(7), torch.zeros(7)), some, atol=1e-5)


def batches(folder: Path, how: Augmentation, seed: int = 3) -> tuple[Shuffled, Augmented]:
    field, labels = PictureField(6, 5, 3, 100.0, 50.0), LabelField("ab")
    with Encoded.writer(folder, "s", np.uint8) as add_picture, Encoded.writer(folder, "t") as add_label:
        for number in range(23):
            add_picture(noise(6, 5, number).reshape(-1))
            add_label([number % 2])
    fields = Fields({"source": field, "target": labels})
    encoded = {"source": Encoded.open(folder, "s"), "target": Encoded.open(folder, "t")}
    plain = Shuffled(Examples(fields, encoded), tokens=64, seed=seed)
    changed = augmented(plain, how, field.size, seed)
    assert isinstance(changed, Augmented)
    return plain, changed


HOWS = (Augmentation(flip=True), Augmentation(crop=2), Augmentation(colour=0.4), Augmentation(True, 2, 0.4))


@pytest.mark.parametrize("how", HOWS)
def test_augmentation_is_a_function_of_seed_epoch_and_index(tmp_path: Path, how: Augmentation) -> None:
    def pixels(seed: int, epoch: int, index: int) -> torch.Tensor:
        """The pictures of a batch; which ones they are does not depend on the epoch here."""
        plain, changed = batches(tmp_path, how, seed)
        order = plain.plan(0)
        plain.plan = lambda _: order
        return changed.get(epoch, index).source.values

    first = pixels(3, 1, 0)
    assert torch.equal(first, pixels(3, 1, 0)) and first.shape[1:] == (6, 15)
    assert not torch.equal(first, pixels(3, 2, 0))  # another epoch
    plain, changed = batches(tmp_path, how)
    assert any(not torch.equal(plain.get(0, n).source.values, changed.get(0, n).source.values) for n in range(3))
    assert torch.equal(plain.get(0, 1).target.values, changed.get(0, 1).target.values)


def test_without_augmentation_and_in_validation_nothing_changes(place: Path) -> None:
    write_folder(place / "photos", 4)
    plain, none = Session(recipe_for(place), place / "plain"), Session(recipe_for(place), place / "none")
    some = Session(recipe_for(place, "data.flip=true", "data.crop=3", "data.colour=0.3"), place / "some")
    assert isinstance(plain.batches, Shuffled) and isinstance(some.batches, Augmented)
    assert torch.equal(plain.batches.get(0, 0).source.values, none.batches.get(0, 0).source.values)
    assert not torch.equal(plain.batches.get(0, 0).source.values, some.batches.get(0, 0).source.values)
    found = []
    for session in (plain, some):
        session.run.model.eval()
        found.append(session.corpus.validate(session.run, session.encoded["valid"])[0])
    assert found[0] == found[1]
    with pytest.raises(UserError, match=r"data.crop = 16 would move a picture of 16 x 16 pixels out of sight"):
        Session(recipe_for(place, "data.crop=16"), place / "far")


def test_an_augmented_run_resumes_as_if_it_was_never_interrupted(place: Path) -> None:
    write_folder(place / "photos", 4)
    settings = ("data.flip=true", "data.crop=3", "data.colour=0.3", "train.steps=4", "train.batch_tokens=64")
    list(Session(recipe_for(place, *settings), place / "straight").steps())
    stopped = Session(recipe_for(place, *settings), place / "stopped")
    next(iter(stopped.steps()))
    stopped.save()
    list(Session(recipe_for(place, *settings), place / "stopped").steps())
    one, other = (regard.load(place / name).model.state_dict() for name in ("straight", "stopped"))
    assert all(torch.equal(one[name], other[name]) for name in one)


# --- every command, and Python ------------------------------------------------------------------------------------


@pytest.fixture
def photos(place: Path) -> Iterator[Path]:
    write_folder(place / "test", 4, seed=2)
    yield write_folder(place / "photos", 30)


def test_every_command_serves_picture_files(call: Call, place: Path, photos: Path) -> None:
    done = call("new", "pictures", "photos/", "--valid", "test", "-o", "p.toml")
    assert done.code == 0 and "data.side = 32: the median picture has" in done.out, done.err
    done = call("check", "p.toml")
    assert done.code == 0 and "60 pictures" in done.out and "red 30" in done.out, done.err
    learning = ("train.learning_rate=0.02", "train.steps=20", "train.validate_every=10", "train.batch_tokens=512")
    done = call("train", "p.toml", *BRIEF, *learning, "data.flip=true", "-o", "run")
    assert done.code == 0 and "valid accuracy" in done.out, done.err
    done = call("predict", "run", "test/red/000.png", "test/blue/001.jpg")
    assert [line.split("\t")[::2] for line in done.out.splitlines()] == [
        ["red", "test/red/000.png"], ["blue", "test/blue/001.jpg"]
    ]  # fmt: skip
    entries = [json.loads(line) for line in call("predict", "run", "test", "--json").out.splitlines()]
    assert [entry["file"] for entry in entries][:2] == ["test/blue/000.png", "test/blue/001.jpg"] and len(entries) == 8
    assert json.loads(call("score", "run", "test", "--json").out)["accuracy"] == 100
    (place / "t.csv").write_text("name,kind\ntest/red/000.png,red\ntest/blue/000.png,blue\n")
    assert json.loads(call("score", "run", "t.csv", "--json").out)["count"] == 2
    assert len(call("predict", "run", "t.csv", "test/red").out.splitlines()) == 6
    seen = call("look", "run", "test/red/000.png")
    assert seen.code == 0 and "red: attention rollout" in seen.out, seen.err
    assert call("look", "run", "test/red/000.png", "-o", "map.svg").code == 0
    ElementTree.fromstring((place / "map.svg").read_text(encoding="utf-8"))
    assert call("look", "run", "test", "--html", "map.html").code == 0
    assert "test/red/001.jpg" in (place / "map.html").read_text(encoding="utf-8")
    assert "has 8 pictures: this is the first" in call("look", "run", "test").err
    done = call("compare", "run", "--test", "test", "-o", "r.html", "--threads", 1)
    assert done.code == 0 and "accuracy" in done.out, done.err
    refused = call("predict", "run", "test/red/000.png", "nowhere.png")
    assert refused.code == 1 and "nowhere.png does not exist" in refused.err and refused.out == ""
    refused = call("predict", "run")
    assert refused.code == 1 and "Pictures are read from files" in refused.err


def test_a_run_trained_on_arrays_reads_files_of_any_size(call: Call, place: Path, photos: Path) -> None:
    images = np.stack(
        [np.full((SIDE, SIDE, 3), (220, 40, 40) if n % 2 else (40, 40, 220), np.uint8) for n in range(40)]
    )
    np.savez(place / "x.npz", images=images, labels=np.arange(40) % 2, names=["blue", "red"])
    assert call("new", "pictures", "x.npz", "--valid", "x.npz", "-o", "p.toml").code == 0
    settings = [setting for setting in BRIEF if setting != "data.side=16"]
    assert call("train", "p.toml", *settings, "train.learning_rate=0.05", "train.steps=9", "-o", "run").code == 0
    assert json.loads(call("score", "run", "test", "--json").out)["accuracy"] == 100
    refused = call("train", "p.toml", "data.train=photos", "-o", "other")
    assert refused.code == 1 and 'set data.name to "pictures", and data.side' in refused.err


@pytest.mark.parametrize(("usual", "side"), [(20, 32), (40, 32), (50, 48), (60, 48), (64, 64), (300, 64)])
def test_the_side_follows_from_the_median(call: Call, place: Path, usual: int, side: int) -> None:
    for number, label in ((number, label) for number in range(3) for label in "ab"):
        (place / "photos" / label).mkdir(parents=True, exist_ok=True)
        Image.new("L", (usual, usual + number), number).save(place / "photos" / label / f"{number}.png")
    assert call("new", "pictures", "photos", "-o", "p.toml").code == 0
    data = read_recipe(place / "p.toml")[0].data
    assert (data.side, data.channels) == (side, 1)  # and they are all grey


def test_pictures_are_given_from_python_as_files_images_and_arrays(place: Path, photos: Path) -> None:
    files = sorted(photos.glob("*/*"))
    data: list[tuple[Any, str]] = [(path, path.parent.name) for path in files]
    data[0] = (str(files[0]), data[0][1])
    data[1] = (Image.open(files[1]), data[1][1])
    data[2] = (np.asarray(Image.open(files[2])), data[2][1])
    how = {"task": "pictures", "model": {"dim": 8, "heads": 2, "layers": 1, "feed_forward": 8, "patch": 8}}
    settings: dict[str, Any] = {"data.side": 16, "train.epochs": 0, "train.steps": 2, "train.precision": "float32"}
    run = regard.train(how, "run", data=data, valid=data[:30], settings=settings, progress=False)
    assert run.recipe.data.side == 16 and len(list((place / "run" / "examples" / "pictures").iterdir())) == 2
    several = run.predict([str(files[1]), Image.open(files[1]), np.asarray(Image.open(files[1]).resize((16, 16)))])
    assert several[0].probabilities == several[1].probabilities and len(several) == 3
    assert run.predict(str(files[1])) == run.predict(files[1]) == run.predict(Image.open(files[1]))
    assert run.score([(files[0], "blue"), (Image.open(files[1]), "red")])["count"] == 2
    assert run.look(files[1]).pixels.shape == (16, 16, 3)
    assert run.embed(files[1]).shape == (8,)
    assert list(regard.training(how, "run", data=data, valid=data[:30], settings=settings)) == []  # finished
    with pytest.raises(UserError, match="data has changed"):
        regard.train(how, "run", data=data[1:], valid=data[:30], settings=settings, progress=False)
    with pytest.raises(UserError, match="Picture 1 is an array of object: give the name of a file"):
        regard.train(how, "other", data=[(None, "a"), (files[0], "b")], progress=False)


def test_top_5_counts_labels_among_the_first_five(call: Call, place: Path) -> None:
    best, gold = [list("abcde"), list("bcdef"), list("cdefa")], ["e", "a", "c"]
    assert TOP_5.of(best, gold) == pytest.approx(200 / 3)
    assert TOP_5.of(best, gold) >= ACCURACY.of([labels[0] for labels in best], gold)
    images = np.repeat(np.arange(0, 240, 40, np.uint8), 5)[:, None, None] + np.zeros((1, 8, 8), np.uint8)
    np.savez(place / "x.npz", images=images, labels=np.repeat(np.arange(6), 5), names=list("abcdef"))
    assert call("new", "pictures", "x.npz", "--valid", "x.npz", "-o", "p.toml").code == 0
    settings = [setting for setting in BRIEF if setting != "data.side=16"]
    done = call("train", "p.toml", *settings, "-o", "run")
    assert done.code == 0 and "top-5 accuracy" in done.out, done.err
    found = json.loads(call("score", "run", "x.npz", "--json").out)
    assert found["top_5"] >= found["accuracy"] and len(found["intervals"]["top_5"]) == 2
    assert "top-5 " in call("score", "run", "x.npz").out


def test_fine_tuning_keeps_the_size_of_the_pictures(call: Call, place: Path, photos: Path) -> None:
    assert call("new", "pictures", "photos", "--valid", "test", "-o", "p.toml").code == 0
    assert call("train", "p.toml", *BRIEF, "-o", "run").code == 0
    assert call("new", "pictures", "test", "--from", "run", "-o", "more.toml").code == 0
    recipe = read_recipe(place / "more.toml")[0]
    assert (recipe.data.side, recipe.data.channels, recipe.model.patch) == (16, 3, 8)


def test_a_fine_tuned_run_of_pictures_is_trained_and_answers(call: Call, place: Path, photos: Path) -> None:
    assert call("new", "pictures", photos, "-o", "p.toml").code == 0
    assert call("train", "p.toml", "-o", "first", *BRIEF).code == 0
    assert call("new", "pictures", photos, "--from", "first", "-o", "q.toml").code == 0
    trained = call("train", "q.toml", "-o", "second", *BUDGET, "--threads", 1)
    assert trained.code == 0 and "Fine-tuning" in trained.out, trained.err
    assert call("predict", "second", photos).code == 0


def test_a_name_that_is_not_utf_8_is_written_with_replacement_characters(call: Call, place: Path, photos: Path) -> None:
    assert call("new", "pictures", photos, "-o", "p.toml").code == 0
    assert call("train", "p.toml", "-o", "run", *BRIEF).code == 0
    good, bad = (os.fsdecode(name) for name in (b"caf\xe9.png", b"bad\xe9.png"))
    Image.new("RGB", (20, 20)).save(good)
    Path(bad).write_text("no picture")
    plain, entry = call("predict", "run", good), call("predict", "run", good, "--json")
    assert plain.code == 0 and plain.out.endswith("\tcaf\ufffd.png\n"), plain.err
    assert json.loads(entry.out)["file"] == "caf\ufffd.png"
    assert call("look", "run", good, "--html", "look.html").code == 0
    refused = call("predict", "run", bad)
    assert refused.code == 1 and "cannot be read as a picture" in refused.err


def test_the_first_picture_of_a_file_of_several_is_read(tmp_path: Path) -> None:
    """A telephone writes JPEG files with a second picture inside (MPO)."""
    first, second = (Image.new("RGB", (30, 20), colour) for colour in (COLOUR, "black"))
    first.save(tmp_path / "x.jpg", "MPO", save_all=True, append_images=[second])
    assert np.abs(read_picture(tmp_path / "x.jpg", SIZE).astype(int) - COLOUR).max() <= 4

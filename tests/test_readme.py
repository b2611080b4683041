"""The README, typed from top to bottom: every command runs, long ones with a tiny budget, and so does its Python."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import numpy as np
import pytest
from command import Call
from PIL import Image

from regard.data.recordings import wav_of
from regard.loading import shipped

README = (Path(__file__).parent.parent / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"^```(\w*)\n(.*?)^```", README, flags=re.S | re.M)
COMMANDS = [line.split("  #")[0].strip() for kind, block in BLOCKS if not kind for line in block.splitlines()]
TINY = ["train.steps=2", "train.epochs=0", "train.validate_every=1", "train.warmup=1", "--threads", "1"]
TESTED_ELSEWHERE = {
    "regard compare --demo translation": "tests/test_compare.py",
    "regard serve runs/demo": "tests/test_serve.py",
}


def test_the_first_screen_shows_what_it_is_how_to_install_it_and_what_it_prints():
    assert len(README.splitlines()) <= 125
    first = "\n".join(README.splitlines()[:40])
    for part in ("pip install", "regard demo", "BLEU", "import regard", "![", "Python 3.11"):
        assert part in first


def test_every_link_and_picture_of_the_readme_exists():
    for link in re.findall(r"\]\(([^)#]+)\)", README):
        assert (Path(__file__).parent.parent / link).exists(), link


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the files that the README names."""
    folder = tmp_path_factory.mktemp("readme")
    words = ["one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten"]
    english = [f"{a} {b} cats ." for a in words for b in words]
    german = [f"{b} {a} Katzen ." for a in words for b in words]
    for name in ("train", "val", "test"):
        few = slice(None) if name == "train" else slice(5)
        (folder / f"{name}.en").write_text("\n".join(english[few]) + "\n", encoding="utf-8")
        (folder / f"{name}.de").write_text("\n".join(german[few]) + "\n", encoding="utf-8")
    (folder / "corpus.txt").write_text("\n".join(english * 3) + "\n", encoding="utf-8")
    (folder / "test.txt").write_text("\n".join(english[:9]) + "\n", encoding="utf-8")
    labelled = [f"{text}\t{'even' if number % 2 else 'odd'}\n" for number, text in enumerate(english)]
    for name, few in (("reviews.tsv", labelled), ("test.tsv", labelled[:9])):
        (folder / name).write_text("".join(few), encoding="utf-8")
    rated = [f"{text}\t{number / 7:.2f}\n" for number, text in enumerate(english)]
    (folder / "rated.tsv").write_text("".join(rated), encoding="utf-8")
    tagged = "".join("".join(f"{word}\tW\n" for word in text.split()) + "\n" for text in english)
    (folder / "train.conll").write_text(tagged.replace("cats\tW", "cats\tN"), encoding="utf-8")
    random = np.random.default_rng(1)
    for label in ("cat", "dog"):
        (folder / "photos" / label).mkdir(parents=True)
        for number in range(20):
            picture = Image.fromarray(random.integers(0, 256, (16, 16, 3), np.uint8))
            picture.save(folder / "photos" / label / f"{number}.jpg")
    picture.save(folder / "photo.jpg")
    names = [
        f"photos/{label}/{number}.jpg\ta {label} with the number {number}\n"
        for label in ("cat", "dog")
        for number in range(20)
    ]
    (folder / "captions.tsv").write_text("".join(names), encoding="utf-8")
    for number in range(20):
        samples = random.uniform(-0.1, 0.1, 4000 + 100 * number).astype(np.float32)
        (folder / f"{number}.wav").write_bytes(wav_of(samples, 8000))
    (folder / "recording.wav").write_bytes(wav_of(samples, 8000))
    (folder / "train.tsv").write_text("".join(f"{n}.wav\tnumber {words[n % 10]}\n" for n in range(20)))
    return folder


def test_every_command_of_the_readme_runs(place: Path, call: Call, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(place)
    typed = 0
    for line in COMMANDS:
        if line.startswith("echo "):
            line = line.split("|")[1].strip() + " train.en"
        if not line.startswith("regard ") or line in TESTED_ELSEWHERE:
            assert not line or re.match(r"pip install|regard|\d+ unseen|BLEU|alignment error", line), line
            continue
        arguments = shlex.split(line)[1:]
        if arguments == ["demo"]:  # the same recipe, a tiny budget
            arguments = [
                "train",
                str(shipped("demo-rnnsearch")),
                "-o",
                "runs/demo",
                "data.sentences=200",
                "data.valid=5",
                *TINY,
            ]
        elif arguments[0] == "train":
            arguments += TINY
        elif arguments[0] == "sweep":  # several trials: tests/test_sweep.py
            arguments = [*arguments[:-1], "1", *TINY]
        elif arguments[0] == "compare" and arguments[1] == "my.toml":
            arguments[arguments.index("--budget") + 1] = "300tok"
            arguments[arguments.index("--models") + 1] = "seq2seq"  # several: tests/test_compare.py
            arguments += ["--threads", "1"]
        elif arguments[0] == "compare":
            arguments = [argument.replace("runs/a", "runs/s").replace("runs/b", "runs/s") for argument in arguments]
        elif "--prompt" in arguments:
            arguments += ["--max-length", "5"]
        done = call(*arguments)
        assert done.code == 0, f"{line}\n{done.err}{done.out}"
        typed += 1
    assert typed >= 25


def test_the_python_of_the_readme_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (block,) = (block for kind, block in BLOCKS if kind == "python")
    quick = block.replace("data=pairs,", 'data=pairs, settings={"train.steps": 2},')
    assert quick != block
    exec(compile(quick, "README.md", "exec"), {})

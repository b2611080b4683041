"""Pictures: how well they are classified and described, and how much memory many of them take.

REGARD_DATA=… python bench/pictures.py fashion|emoji|folder [--seeds 3] [--jobs 2] [--only NAME …] [-o FOLDER]

fashion   Fashion-MNIST: `regard new pictures train.npz --model vit` (or convnet) with the settings below, and `regard
          train`. A part of train chooses the checkpoint; the test set is read once a run. Accuracy of all seeds.
emoji     Captions of emoji, `regard new captioning train.jsonl.gz --target en` (or de) and `regard train`, beside the
          caption of the nearest training picture by pixels. chrF on the test pictures.
folder    Trains on a folder of --count generated pictures, and on a hundredth of them: peak memory of each, and the
          difference. The first decoding is interrupted once (SIGINT) and goes on.
Intervals are of a bootstrap over test pictures and seeds. Training resumes and answers are kept: the same command goes
on. --jobs trains that many models side by side, one thread each.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
from children import megabytes
from pretraining import keep_answers, shown, workers

import regard
from regard.data.pictures import read_images
from regard.data.world.scenes import scenes
from regard.score.bootstrap import resample
from regard.score.metrics import ACCURACY, CHRF, Metric

REGARD = (sys.executable, "-m", "regard")


# what `regard new` is asked for, by row of the table
FASHION = {
    model: ("pictures", "fashion/train.npz", "--model", model, "data.flip=true", *settings)
    for model, settings in {
        "vit": (
            *("model.patch=4", "model.dim=96", "model.feed_forward=192", "model.layers=5", "model.dropout=0"),
            *("model.pool=mean", "model.positions=sinusoidal-2d", "data.crop=1"),
            *("train.weight_decay=0.6", "train.epochs=13"),
        ),
        "convnet": (
            *("model.width=40", "model.blocks=2", "model.dropout=0"),
            *("train.weight_decay=0.4", "train.epochs=11"),
        ),
    }.items()
}
EMOJI = {
    f"{model}, {language}": ("captioning", "emoji/train.jsonl.gz", "--target", language, "--model", model)
    for language in ("en", "de")
    for model in ("show_attend_tell", "captioner")
}


def data() -> Path:
    return Path(os.environ["REGARD_DATA"])


def answers(folder: Path, name: str, new: Sequence[str], test: Path, seed: int, threads: int) -> dict[str, Any]:
    """What a run answers that is trained now, or was earlier."""
    place = folder / f"{name.replace(', ', '-')}-{seed}"
    kept = place.with_suffix(".json")
    if not kept.exists():
        task, train, *more = new
        recipe = place.with_suffix(".toml")
        if not recipe.exists():
            subprocess.run([*REGARD, "new", task, str(data() / train), *more, "-o", str(recipe)], check=True)
        options = ["-o", str(place), "--threads", str(threads)]
        command = [*REGARD, "train", str(recipe), f"seed={seed}", *options]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        run = regard.load(place)
        keep_answers(run, run.examples(test), kept)
    found: dict[str, Any] = json.loads(kept.read_text())
    return found


def compare(given: argparse.Namespace, rows: Mapping[str, Sequence[str]], test: Path, metric: Metric) -> None:
    folder = given.out / given.what
    folder.mkdir(parents=True, exist_ok=True)
    rows = {name: new for name, new in rows.items() if not given.only or name in given.only}
    every = [(name, seed) for seed in range(1, given.seeds + 1) for name in rows]
    statistics: dict[str, list[Any]] = {name: [] for name in rows}
    with workers(given.jobs) as pool:
        threads = 1 if given.jobs > 1 else 0
        waits = [pool.submit(answers, folder, name, rows[name], test, seed, threads) for name, seed in every]
        for (name, seed), wait in zip(every, waits, strict=True):
            run = wait.result()
            statistics[name].append(metric.statistics(run["answers"], run["gold"]))
            value = f"{metric.of(run['answers'], run['gold']):6.2f}   valid {run['valid']:6.2f}"
            print(f"  {name:24} seed {seed}   {value}   {run['minutes']:.1f} minutes", flush=True)
    print(f"\n{metric.name}, {metric.note()}")
    for name, value in resample(statistics, metric).items():
        print(f"{name:24} {shown(value)}")


def emoji_baselines(languages: Sequence[str] = ("en", "de")) -> None:
    """The caption of the nearest training picture by pixels."""
    pictures, captions = {}, {}
    for split in ("train", "test"):
        pictures[split] = np.stack([*read_images(data() / f"emoji/{split}.npz")]).astype(np.float32)
        pictures[split] = pictures[split].reshape(len(pictures[split]), -1)
        with gzip.open(data() / f"emoji/{split}.jsonl.gz", "rt", encoding="utf-8") as lines:
            captions[split] = [json.loads(line) for line in lines]
    known, asked = pictures["train"], pictures["test"]
    apart = (known**2).sum(1) - 2 * asked @ known.T
    for language in languages:
        gold = [each[language] for each in captions["test"]]
        near = [captions["train"][place][language] for place in apart.argmin(1)]
        print(f"nearest picture, {language:7} {shown(resample({'': [CHRF.statistics(near, gold)]}, CHRF)[''])}")


# --- a large folder ---


def generated(folder: Path, count: int) -> Path:
    """So many pictures of scenes in a folder for each number of things; the noise of each is its own."""
    from PIL import Image

    place = folder / f"{count}"
    if not (place / "done").exists():
        shutil.rmtree(place, ignore_errors=True)
        drawn = [(len(scene.things), scene.draw(48)) for scene in islice(scenes("train", most=4), 2000)]
        random = np.random.default_rng(1)
        for number in range(count):
            things, pixels = drawn[number % len(drawn)]
            file = place / "pictures" / f"{things}" / f"{number}.png"
            file.parent.mkdir(parents=True, exist_ok=True)
            noise = random.integers(0, 16, pixels.shape, np.uint8)
            Image.fromarray(np.minimum(pixels, 239) + noise).save(file)
        (place / "done").touch()
    return place


def train(place: Path, interrupt: bool) -> tuple[float, float]:
    """Seconds and peak megabytes of `regard train` on the pictures of a folder; interrupted, when some are decoded."""
    recipe, run = place / "p.toml", place / "run"
    recipe.unlink(missing_ok=True)
    shutil.rmtree(run, ignore_errors=True)
    new = [*REGARD, "new", "pictures", str(place / "pictures"), "--model", "convnet", "-o", str(recipe)]
    subprocess.run(new, check=True, stdout=subprocess.DEVNULL)
    budget = ("train.epochs=0", "train.steps=100", "train.validate_every=100", "model.width=16", "model.blocks=1")
    command = [*REGARD, "train", str(recipe), *budget, "-o", str(run)]
    peak, began = 0.0, time.perf_counter()
    for again in (True, False) if interrupt else (False,):
        child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        while child.poll() is None:
            peak = max(peak, megabytes(child.pid, "VmHWM"))
            decoded = sum(file.stat().st_size for file in (run / "data").glob("pictures.*") if file.is_file())
            if again and decoded > 20_000 * 48 * 48 * 3:
                child.send_signal(signal.SIGINT)
                again = False
            time.sleep(0.2)
        print(f"  exit {child.returncode} after {time.perf_counter() - began:.0f} s, {decoded / 1e6:.0f} MB decoded")
    if not (run / "model.safetensors").exists():
        raise SystemExit("the run was not trained")
    return time.perf_counter() - began, peak


def large_folder(given: argparse.Namespace) -> None:
    found = {}
    for count in (given.count // 100, given.count):
        place = generated(given.out / "folder", count)
        seconds, found[count] = train(place, interrupt=count == given.count)
        print(f"{count:9,} pictures   {seconds:6.0f} s   peak memory {found[count]:6.0f} MB", flush=True)
    few, many = found.values()
    print(f"memory for {given.count - given.count // 100:,} more pictures: {many - few:.0f} MB")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("fashion", "emoji", "folder"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="models that are trained side by side, one thread each")
    parser.add_argument("--only", nargs="+", default=[], help="rows of the table")
    parser.add_argument("--count", type=int, default=100_000, help="pictures in the folder")
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/pictures"))
    given = parser.parse_args()
    if given.what == "folder":
        large_folder(given)
    elif given.what == "fashion":
        compare(given, FASHION, data() / "fashion/test.npz", ACCURACY)
    else:
        emoji_baselines()
        compare(given, EMOJI, data() / "emoji/test.jsonl.gz", CHRF)


if __name__ == "__main__":
    main()

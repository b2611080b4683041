"""Denoising helps a translator with little data: Multi30k English-German with 2,000 pairs.

REGARD_DATA=… python bench/denoising.py [-o FOLDER] [--jobs 2] [--seeds 3] [--only ROW …]

One Transformer (3+3 layers, dim 256) learns to restore captions, English (the five of each picture of task 2) and
German (the German side of Multi30k, without its English), once with T5's spans and once with BART's infilling and
permutation; then it is fine-tuned on 2,000 pairs, beside the same model from scratch. Checkpoints are
chosen on the validation pairs; BLEU on test_2016_flickr, which is read once a run, with a bootstrap over sentences and
seeds. Training resumes and answers are kept: the same command goes on. --jobs trains that many rows of the table side
by side, one thread each.
"""

from __future__ import annotations

import argparse
import json
import os
import random
from pathlib import Path
from typing import Any

import pretraining
from pretraining import keep_answers, workers

import regard
from regard.data.files import write_atomically
from regard.score.bootstrap import difference, resample
from regard.score.metrics import BLEU

MODEL: dict[str, Any] = {"name": "transformer", "dim": 256, "heads": 4, "feed_forward": 1024, "layers": 3}
ROWS = {"from scratch": "", "after T5's spans": "spans", "after BART's infilling": "infilling"}
STEPS = 1100  # of pre-training: not quite once through the captions
TUNED = 450  # steps of fine-tuning, and from scratch


def lines_of(name: str) -> list[str]:
    return list(pretraining.lines_of(Path(os.environ["REGARD_DATA"]) / name))


def files(folder: Path, pairs: int) -> dict[str, str]:
    """Captions in both languages, shuffled, and the first pairs of Multi30k."""
    both = {side: lines_of(f"multi30k/train.{side}.gz") for side in ("en", "de")}
    captions = [*lines_of("captions/train.en.gz"), *both["de"]]
    random.Random(1).shuffle(captions)
    few = zip(both["en"][:pairs], both["de"][:pairs], strict=True)
    texts = {"captions.txt": captions, f"pairs{pairs}.tsv": ["\t".join(pair) for pair in few]}
    for split, name in (("valid", "val"), ("test", "test_2016_flickr")):
        rows = zip(lines_of(f"multi30k/{name}.en.gz"), lines_of(f"multi30k/{name}.de.gz"), strict=True)
        texts[f"{split}.tsv"] = ["\t".join(row) for row in rows]
    for name, lines in texts.items():
        if not (folder / name).exists():
            write_atomically(folder / name, "".join(f"{line}\n" for line in lines))
    return {name.split(".")[0].rstrip("0123456789"): str((folder / name).resolve()) for name in texts}


def pretrained(folder: Path, captions: str, noise: str) -> str:
    recipe = {
        "task": "denoising",
        "data": {"name": "text", "train": captions, "hold_out": 0.01, "noise": noise},
        "tokens": {"kind": "bpe", "size": 8000},
        "model": {**MODEL, "dropout": 0.1, "tie": True},
        "train": {
            "steps": STEPS,
            "batch_tokens": 2048,
            "learning_rate": 0.002,
            "schedule": "linear",
            "warmup": 200,
            "validate_every": 500,
        },
    }
    run = folder / noise
    regard.train(recipe, run)
    return str(run.resolve())


def translated(folder: Path, row: str, seed: int, named: dict[str, str]) -> dict[str, Any]:
    """The translations of a run that is trained now, or was earlier."""
    place = folder / f"{row.replace(' ', '-')}-{Path(named['pairs']).stem}-{seed}"
    kept = place.with_suffix(".json")
    if not kept.exists():
        base = pretrained(folder, named["captions"], ROWS[row]) if ROWS[row] else ""
        steps = TUNED
        recipe = {
            "task": "translation",
            "seed": seed,
            "data": {"name": "table", "train": named["pairs"], "source": "1", "target": "2", "valid": named["valid"]},
            "tokens": {"kind": "bpe", "size": 2000, "joint": True},
            "model": {**MODEL, "dropout": 0.3, "tie": True},
            "train": {
                "steps": steps,
                "batch_tokens": 2048,
                "learning_rate": 1e-3,
                "schedule": "linear",
                "warmup": steps // 10,
                "validate_every": steps // 5,
                "metric": "bleu",
                **({"from": base} if base else {}),
            },
        }
        run = regard.train(recipe, place)
        keep_answers(run, run.examples(named["test"]), kept)
    result: dict[str, Any] = json.loads(kept.read_text())
    return result


def of_every_seed(folder: Path, row: str, seeds: int, named: dict[str, str]) -> list[dict[str, Any]]:
    return [translated(folder, row, seed, named) for seed in range(1, seeds + 1)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="rows that are trained side by side, one thread each")
    parser.add_argument("--pairs", type=int, default=2000)
    parser.add_argument("--only", nargs="+", default=[*ROWS], choices=ROWS, metavar="ROW", help="besides scratch")
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/denoising"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    named = files(given.out, given.pairs)
    statistics = {}
    rows = [row for row, noise in ROWS.items() if not noise or row in given.only]
    with workers(given.jobs) as pool:
        waits = {row: pool.submit(of_every_seed, given.out, row, given.seeds, named) for row in rows}
    for row, wait in waits.items():
        runs = wait.result()
        statistics[row] = [BLEU.statistics(run["answers"], run["gold"]) for run in runs]
        each = "  ".join(f"{BLEU.of(run['answers'], run['gold']):.2f} (valid {run['valid']:.2f})" for run in runs)
        print(f"{row:24} {each}   {runs[0]['minutes']:.1f} minutes", flush=True)
    found = resample(statistics, BLEU)
    print(f"\nBLEU, {BLEU.note()}, {given.pairs:,} pairs, {given.seeds} seeds")
    for row, each in found.items():
        facts = each.facts()
        gain = difference(each, found["from scratch"])
        more = f"{gain.difference:+.2f} ({gain.low:+.2f} to {gain.high:+.2f}), p = {gain.p:.3f}" if ROWS[row] else ""
        print(f"{row:24} {facts['mean']:6.2f} ({facts['low']:.2f} to {facts['high']:.2f})   {more}")


if __name__ == "__main__":
    main()

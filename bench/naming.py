"""Labels and tags, model beside model: sentiment, named entities, and what only later words decide.

REGARD_DATA=… python bench/naming.py sentiment|entities|later [--seeds 3] [--jobs 1] [-o FOLDER]

sentiment  SST-2, no pretraining: four encoders; settings and checkpoints were chosen on the development set, the test
           set is read once a run. Accuracy of each seed, their mean.
entities   WNUT17: a BiLSTM with and without a chain of tags (CRF), with and without letters; entity F1, exact spans.
later      The built-in grammar: is an adverb before an adjective ("terribly exciting") praise or blame? Only the next
           word tells. A BiLSTM beside the same that reads forwards only: macro F1 of praise, blame and other words.
Training resumes and results are kept: the same command goes on.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from statistics import mean

from regard.checkpoint import Folder
from regard.data import world
from regard.data.files import write_atomically
from regard.data.tensors import read_tensors

HERE = Path(__file__).resolve().parent
SENTIMENT = {
    "birnn": ["model.name=birnn", "model.dropout=0.5", "model.word_dropout=0.1"],
    "attentive_birnn": ["model.name=attentive_birnn", "model.dropout=0.5", "model.word_dropout=0.1"],
    "encoder": ["model.name=encoder", "model.dropout=0.3", "model.word_dropout=0.2", "model.pool=mean"],
    "cnn": ["model.name=cnn", "model.embedding=128", "model.dropout=0.5", "model.word_dropout=0.2"],
}
ENTITIES = {
    f"{head}{', letters' if letters else ''}": [f"model.head={head}", f"model.letters={letters}"]
    for letters in (0, 100)
    for head in ("softmax", "crf")
}
LATER = {"bidirectional": ["model.bidirectional=true"], "forwards": ["model.bidirectional=false"]}
SENTENCES = {"train": 4000, "valid": 500, "test": 1000}  # of the grammar


def run_one(folder: Path, recipe: Path, settings: list[str], test: Path, threads: int) -> dict[str, float]:
    """Trained and measured now, or earlier."""
    kept = folder.with_suffix(".json")
    if not kept.exists():
        command = [sys.executable, "-m", "regard"]
        options = ["--threads", str(threads)] if threads else []
        quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        subprocess.run([*command, "train", str(recipe), *settings, "-o", str(folder), *options], check=True, **quiet)  # type: ignore[call-overload]
        scored = subprocess.run(
            [*command, "score", str(folder), str(test), "--json"], check=True, capture_output=True, text=True
        )
        found = json.loads(scored.stdout)
        facts = read_tensors(Folder(folder).last)[1]
        weights = sum(tensor.numel() for tensor in read_tensors(Folder(folder).best)[0].values())
        entry = {
            "accuracy": found["accuracy"],
            "f1": found["f1"],
            "valid": facts["best"],
            "minutes": facts["seconds"] / 60,
            "parameters": weights,
        }
        write_atomically(kept, json.dumps(entry) + "\n")
    result: dict[str, float] = json.loads(kept.read_text())
    return result


def later_sentences(split: world.Split) -> Iterator[str]:
    """Each word's tag is O, but an adverb that an adjective follows is called as its sentence is."""
    for pair in world.pairs(split, seed=7, longest=20):
        marked = [
            pair.sentiment if here == "ADV" and after == "ADJ" and pair.sentiment != "neutral" else "O"
            for here, after in zip(pair.tags, (*pair.tags[1:], ""), strict=True)
        ]
        if any(tag != "O" for tag in marked):
            yield "".join(f"{word}\t{tag}\n" for word, tag in zip(pair.source, marked, strict=True))


def later_files(folder: Path) -> tuple[Path, Path]:
    """A recipe for the grammar's sentences, and the test file."""
    for split, count in SENTENCES.items():
        write_atomically(folder / f"{split}.conll", "\n".join(islice(later_sentences(split), count)))  # type: ignore[arg-type]
    recipe = (HERE / "tagging.toml").read_text()
    recipe = recipe.replace("wnut17/train.conll", "train.conll").replace("wnut17/dev.conll", "valid.conll")
    write_atomically(folder / "later.toml", recipe)
    return folder / "later.toml", folder / "test.conll"


def main() -> None:
    parser = argparse.ArgumentParser(description="Labels and tags, model beside model")
    parser.add_argument("what", choices=("sentiment", "entities", "later"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="models that train side by side, a thread each")
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/naming"))
    given = parser.parse_args()
    folder = given.out / given.what
    folder.mkdir(parents=True, exist_ok=True)
    budget, measured = list[str](), "accuracy" if given.what == "sentiment" else "f1"
    if given.what == "later":
        recipe, test = later_files(folder.resolve())
        models, budget = (
            LATER,
            ["train.steps=300", "train.validate_every=50", "train.batch_tokens=1024", "model.head=softmax"],
        )
    else:
        data = Path(os.environ["REGARD_DATA"])
        sentiment = given.what == "sentiment"
        recipe = HERE / ("naming.toml" if sentiment else "tagging.toml")
        test = data / ("sst2/test.tsv" if sentiment else "wnut17/test.conll")
        models = SENTIMENT if sentiment else ENTITIES
    every = [(name, seed) for seed in range(1, given.seeds + 1) for name in models]

    def one(of: tuple[str, int]) -> dict[str, float]:
        name, seed = of
        place = folder / f"{name.replace(', ', '-').replace(' ', '-')}-{seed}"
        settings = [*models[name], *budget, f"seed={seed}"]
        return run_one(place, recipe, settings, test, 1 if given.jobs > 1 else 0)

    with ThreadPoolExecutor(given.jobs) as pool:
        results = dict(zip(every, pool.map(one, every), strict=True))
    print(
        f"{'':18} {'parameters':>10} {'minutes':>8} {'valid':>7}   "
        f"test {measured}, each of {given.seeds} seeds, and their mean"
    )
    for name in models:
        own = [results[name, seed] for seed in range(1, given.seeds + 1)]
        values = [result[measured] for result in own]
        shown = "  ".join(f"{value:5.2f}" for value in values)
        print(
            f"{name:18} {own[0]['parameters']:10,} {mean(r['minutes'] for r in own):8.2f} "
            f"{mean(r['valid'] for r in own):7.2f}   {shown}   {mean(values):5.2f}"
        )


if __name__ == "__main__":
    main()

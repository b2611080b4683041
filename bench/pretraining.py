"""Pre-training helps: bodies that have read film reviews, beside the same from scratch, on little labelled data.

REGARD_DATA=… python bench/pretraining.py pretrain|sentiment|ablation [-o FOLDER] [--seeds 3] [--only NAME …]

pretrain    One body each of gpt, bert, electra and elmo, on the text of imdb, captions and wikitext2: at most 30
            minutes on two free cores. Budgets are in steps, so that a busy machine gives the same weights.
sentiment   SST-2 with 100, 1,000 and all 6,920 labelled sentences: each body fine-tuned, and from scratch.
            Checkpoints are chosen on the development set, the test set is read once a run.
ablation    The table of Radford 2018, 5: CoLA, MRPC, STS-B, RTE and SST-2 with gpt and the auxiliary loss, without
            pre-training, without the auxiliary loss, and with a body of LSTMs (elmo). Checkpoints are chosen on a
            tenth of train, GLUE's dev sets are read once a run.
Intervals are of a bootstrap over test examples and seeds. Training resumes and answers are kept: the same command
goes on.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

import regard
from regard.checkpoint import Folder, read_tensors
from regard.data.files import write_atomically
from regard.run import Run
from regard.score.bootstrap import Resampled, difference, resample
from regard.score.metrics import ACCURACY, MATTHEWS, PEARSON, Floats, Metric

WINDOW = 128
STACK: dict[str, Any] = {"dim": 256, "heads": 4, "feed_forward": 1024, "layers": 4}
BODIES: dict[str, dict[str, Any]] = {
    "gpt": {**STACK, "context": WINDOW, "dropout": 0.0},
    "bert": {**STACK, "longest": WINDOW + 2, "norm": "pre", "dropout": 0.0},
    "electra": {**STACK, "longest": WINDOW + 2, "norm": "pre", "dropout": 0.0, "embedding": 0, "generator": 0.25},
    "elmo": {"embedding": 256, "hidden": 256, "layers": 2, "context": WINDOW, "dropout": 0.0},
}
STEPS = {"gpt": 3000, "bert": 4000, "electra": 3000, "elmo": 2800}  # of 4,096 tokens
SCRATCH = "attentive_birnn"  # the best of bench/naming.py without pre-training
AUXILIARY = {"auxiliary": 0.5}


@dataclass(frozen=True)
class Row:
    """A body, how it starts, and what fine-tuning changes of its settings."""

    body: str
    pretrained: bool = True
    model: Mapping[str, Any] | None = None

    @property
    def slug(self) -> str:
        return "-".join([self.body, *(self.model or {}), *([] if self.pretrained else ["scratch"])])


SENTIMENT = {
    "attentive_birnn, scratch": Row(SCRATCH, False),
    "gpt, scratch": Row("gpt", False),
    "bert, scratch": Row("bert", False),
    "elmo, scratch": Row("elmo", False),
    "gpt": Row("gpt"),
    "gpt + auxiliary": Row("gpt", model=AUXILIARY),
    "bert": Row("bert"),
    "electra": Row("electra"),
    "elmo + attention": Row("elmo"),
}
ABLATION = {
    "full": Row("gpt", model=AUXILIARY),
    "no pre-training": Row("gpt", False, AUXILIARY),
    "no auxiliary loss": Row("gpt"),
    "LSTM body": Row("elmo"),
}


@dataclass(frozen=True)
class Examples:
    """A task's files, what its columns are, and how it is measured."""

    name: str
    task: str = "classification"
    pair: bool = False
    metric: Metric = ACCURACY
    steps: int = 600
    few: int = 0  # labelled examples; 0: all


def f1_of(label: str) -> Metric:
    """F1 of one label, as GLUE measures MRPC."""

    def counts(outputs: Sequence[str], references: Sequence[str]) -> Floats:
        pairs = list(zip(outputs, references, strict=True))
        return np.array([[a == b == label, a == label, b == label] for a, b in pairs], dtype=float)

    return Metric(
        "f1",
        "F1",
        "higher",
        counts,
        lambda sums: 200 * sums[..., 0] / np.maximum(sums[..., 1] + sums[..., 2], 1),
        lambda: f"F1 of {label}",
        "%",
    )


FEW = {"100": 100, "1,000": 1000, "all": 0}
SST2 = {
    name: Examples("sst2", few=count, steps=150 if count == 100 else 400 if count else 700)
    for name, count in FEW.items()
}
GLUE = {
    "CoLA": Examples("cola", metric=MATTHEWS),
    "MRPC": Examples("mrpc", pair=True, metric=f1_of("paraphrase")),
    "STS-B": Examples("stsb", "regression", pair=True, metric=PEARSON),
    "RTE": Examples("rte", pair=True),
    "SST-2": SST2["all"],
}


# --- the data, in one form ---


def lines_of(path: Path) -> Iterator[str]:
    with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
        yield from (line.rstrip("\n") for line in file)


def worded(text: str) -> str:
    """A text as SST-2 has it: lower case, words and signs between spaces, no hyphens."""
    text = text.lower().replace("-", " ").replace("’", "'")
    text = re.sub(r"(?<=[a-z])n't\b", " n't", text)
    text = re.sub(r"(?<=\w)'(s|re|ve|ll|d|m)\b", r" '\1", text)
    text = re.sub(r"([^\w\s'])", r" \1 ", text)
    return " ".join(re.sub(r"(?: \.)+ ", " . ", f"{text} ").split())


def plain_text(folder: Path) -> Path:
    """Reviews, captions in groups of five, and Wikipedia's articles: a document a line."""
    path, data = folder / "text.txt", Path(os.environ["REGARD_DATA"])
    if not path.exists():
        documents = [line.split("\t", 1)[1] for line in list(lines_of(data / "imdb/train.tsv.gz"))[1:]]
        captions = list(lines_of(data / "captions/train.en.gz"))
        documents += [" ".join(captions[at : at + 5]) for at in range(0, len(captions), 5)]
        documents += [line for line in lines_of(data / "wikitext2/train.txt.gz") if len(line.split()) > 20]
        random.Random(1).shuffle(documents)
        write_atomically(path, "".join(f"{worded(document)}\n" for document in documents))
    return path


def tables(folder: Path, of: Examples) -> dict[str, str]:
    """The files of a task, with the columns label, first and second; "" where there is none for validation."""
    data, found = Path(os.environ["REGARD_DATA"]), {}
    glue = of.name != "sst2"
    names = {"train": "train", "test": "dev"} if glue else {"train": "train", "valid": "dev", "test": "test"}
    for split, name in names.items():
        path = folder / f"{of.name}-{split}{of.few if split == 'train' and of.few else ''}.tsv"
        found[split] = str(path.resolve())
        if path.exists():
            continue
        if glue:
            rows = [line.split("\t") for line in lines_of(data / f"glue/{of.name}.{name}.tsv.gz")][1:]
        else:
            rows = [line.split("\t")[::-1] for line in lines_of(data / f"sst2/{name}.tsv")]
            random.Random(1).shuffle(rows)
            rows = rows[: of.few or None] if split == "train" else rows
        header = "label\tfirst" + "\tsecond" * of.pair
        body = ("\t".join([label, *map(worded, texts)]) for label, *texts in rows)
        write_atomically(path, "\n".join([header, *body, ""]))
    return found


# --- training ---


def pretrained(folder: Path, body: str) -> Path:
    recipe = {
        "task": "pretraining",
        "data": {"name": "text", "train": str(plain_text(folder).resolve()), "hold_out": 0.005, "pack": True},
        "tokens": {"kind": "bpe", "size": 8000},
        "model": {"name": body, **BODIES[body]},
        "train": {
            "steps": STEPS[body],
            "batch_tokens": 4096,
            "learning_rate": 0.002,
            "schedule": "linear",
            "warmup": 200,
            "validate_every": 500,
        },
    }
    run = folder / "bodies" / body
    regard.train(recipe, run)
    return run.resolve()


def tuned(folder: Path, row: Row, of: Examples, seed: int, place: Path) -> dict[str, Any]:
    """The answers on the test set of a run that is trained now, or was earlier."""
    kept = place.with_suffix(".json")
    if not kept.exists():
        files = tables(folder, of)
        scratch = row.body == SCRATCH
        model = {"embedding": 128, "hidden": 128} if scratch else {**BODIES[row.body], **(row.model or {})}
        model.pop("generator", None)
        data = {"name": "table", "train": files["train"], "source": "first", "target": "label"}
        held = {"valid": files["valid"]} if "valid" in files else {"hold_out": 0.1}
        recipe = {
            "task": of.task,
            "seed": seed,
            "data": data | ({"second": "second"} if of.pair else {}) | held,
            "tokens": {"kind": "bpe", "size": 8000} if row.pretrained else {"kind": "given", "size": 0},
            "model": {"name": row.body, **model, "dropout": 0.5 if scratch else 0.2},
            "train": {
                "steps": of.steps,
                "batch_tokens": 1024,
                "learning_rate": 3e-4 if row.pretrained else 1e-3,
                "schedule": "linear",
                "warmup": max(10, of.steps // 10),
                "validate_every": max(10, of.steps // 14),
                "metric": of.metric.key,
                "smooth": 0.1,
                **({"from": str(folder.resolve() / "bodies" / row.body)} if row.pretrained else {}),
            },
        }
        keep_answers(regard.train(recipe, place), files["test"], kept)
    result: dict[str, Any] = json.loads(kept.read_text())
    return result


def keep_answers(run: Run, test: str, kept: Path) -> None:
    """Write what a run answers on the test set, and how long it was trained."""
    examples = run.examples(test)
    facts = read_tensors(Folder(run.name).last)[1]
    found = {
        "answers": [answer.text for answer in run.predict([source for source, _ in examples])],
        "gold": [target for _, target in examples],
        "valid": facts["best"],
        "minutes": facts["seconds"] / 60,
    }
    write_atomically(kept, json.dumps(found) + "\n")


def measured(
    folder: Path, rows: Mapping[str, Row], tasks: Mapping[str, Examples], seeds: int, only: Sequence[str]
) -> None:
    """Every row on every task, a table of means with intervals, and what each gains over the first row from scratch."""
    for title, of in tasks.items():
        statistics, minutes, valid = {}, {}, {}
        for name, row in rows.items():
            if only and name not in only:
                continue
            place = folder / "tuned" / f"{of.name}{of.few or ''}-{row.slug}"
            runs = [tuned(folder, row, of, seed, Path(f"{place}-{seed}")) for seed in range(1, seeds + 1)]
            statistics[name] = [of.metric.statistics(run["answers"], run["gold"]) for run in runs]
            minutes[name], valid[name] = (mean(run[key] for run in runs) for key in ("minutes", "valid"))
            each = "  ".join(f"{of.metric.of(run['answers'], run['gold']):6.2f}" for run in runs)
            print(f"  {title:6} {name:26} {each}   valid {valid[name]:6.2f}   {minutes[name]:.1f} minutes", flush=True)
        found = resample(statistics, of.metric)
        scratch = max((name for name in found if not rows[name].pretrained), key=lambda name: found[name].mean)
        print(f"\n{title}: {of.metric.name}, {of.metric.note()}; gain over {scratch}")
        for name, value in found.items():
            print(f"  {name:26} {shown(value)}   {gained(value, found[scratch]) if name != scratch else ''}")
        print(flush=True)


def shown(found: Resampled) -> str:
    facts = found.facts()
    return f"{facts['mean']:6.2f} ({facts['low']:.2f} to {facts['high']:.2f})"


def gained(found: Resampled, scratch: Resampled) -> str:
    gain = difference(found, scratch)
    return f"{gain.difference:+6.2f} ({gain.low:+.2f} to {gain.high:+.2f}), p = {gain.p:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pretrain", "sentiment", "ablation"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--only", nargs="+", default=[], help="bodies, or rows of the table")
    parser.add_argument("--tasks", nargs="+", default=[], help="columns of the table")
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/pretraining"))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.what == "pretrain":
        for body in given.only or BODIES:
            facts = read_tensors(Folder(pretrained(given.out, body)).last)[1]
            print(f"{body:8} {facts['seconds'] / 60:5.1f} minutes, {facts['step']:,} steps", flush=True)
        return
    rows, tasks = (SENTIMENT, SST2) if given.what == "sentiment" else (ABLATION, GLUE)
    chosen = {title: of for title, of in tasks.items() if not given.tasks or title in given.tasks}
    measured(given.out, rows, chosen, given.seeds, given.only)


if __name__ == "__main__":
    main()

"""Pre-training helps: bodies that have read film reviews, beside the same from scratch, on little labelled data.

REGARD_DATA=… python bench/pretraining.py pretrain|sentiment|curve|ablation [--setup words] [--jobs 2] [--only NAME …]

pretrain    One body each of gpt, bert, electra and elmo, on the text of imdb: at most an hour of one thread.
            Budgets are in steps, so that a busy machine gives the same weights. A copy is kept every 1,000 steps.
sentiment   SST-2 with 100, 1,000 and all 6,920 labelled sentences, other ones for each seed: each body fine-tuned, and
            from scratch. Checkpoints are chosen on the development set, the test set is read once a run.
curve       How accuracy grows with pre-training: each copy's vectors of the same sentences (the mean of its states, as
            `run.embed` gives it), and a logistic regression on them.
ablation    The table of Radford 2018, 5: CoLA, MRPC, STS-B, RTE and SST-2 with gpt and the auxiliary loss, without
            pre-training, without the auxiliary loss, and with a body of LSTMs (elmo). Checkpoints are chosen on a
            tenth of train, GLUE's dev sets are read once a run.
Fine-tuning has the settings that `regard new … --from RUN` chooses, but for DROPOUT and what the setup says.
--setup     pieces: 8,000 BPE types and a softmax over all of them. words: 24,000 words and an adaptive softmax, so that
            as many words take half the time; attentive_birnn has the settings of bench/naming.py; fewer steps.
Intervals are of a bootstrap over test examples and seeds. Training resumes and answers are kept: the same command
goes on. --jobs trains that many models side by side, one thread each.
"""

from __future__ import annotations

import argparse
import gzip
import json
import os
import random
import re
import shutil
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from itertools import chain, repeat
from multiprocessing import get_context
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np

import regard  # isort: skip  (sets how long threads spin, before torch is imported)
import torch
from torch import nn

from regard.checkpoint import Folder
from regard.data.files import write_atomically
from regard.data.tensors import read_tensors
from regard.machine import PARENT, end_with_parent, use_threads
from regard.predict.decoding import Decoding
from regard.run import Run
from regard.score.bootstrap import Resampled, difference, resample
from regard.score.metrics import ACCURACY, MATTHEWS, PEARSON, Floats, Metric

WINDOW, SHORT = 128, 64  # tokens; masked models learn to use context sooner in short windows
SPLITS = ("train", "dev", "test")  # of SST-2
STACK: dict[str, Any] = {"dim": 256, "heads": 4, "feed_forward": 1024, "layers": 3}
LSTM: dict[str, Any] = {"embedding": 256, "hidden": 256, "layers": 2}
ADAPTIVE: dict[str, Any] = {"head": "adaptive", "tie": False}
MASKED: dict[str, Any] = {**STACK, "longest": WINDOW + 2, "norm": "pre"}
DROPOUT = {"gpt": 0.2, "bert": 0.2, "electra": 0.2, "elmo": 0.5}  # of fine-tuning; one pass over the text needs none
ROOM = 119  # tokens of a text that `regard new --from` leaves of a window, beside <bos>, <eos> and padding
COPIED_EVERY = 1000  # steps
SCRATCH = "attentive_birnn"  # the best of bench/naming.py without pre-training
AUXILIARY = {"auxiliary": 0.5}


@dataclass(frozen=True)
class Setup:
    """How bodies are pre-trained and fine-tuned."""

    tokens: Mapping[str, Any]
    bodies: Mapping[str, dict[str, Any]]
    steps: Mapping[str, int]  # of pre-training, 2,048 tokens each
    tuned: int  # steps of fine-tuning on 1,000 sentences of SST-2 and more; 0: as `regard new` chooses
    glue: int  # steps of fine-tuning, and from scratch
    masked_window: int = WINDOW
    scratch: Mapping[str, Any] = field(default_factory=dict)  # of the recipe of SCRATCH and of gpt without pre-training
    train: Mapping[str, Any] = field(default_factory=dict)  # of every fine-tuning


SETUPS = {
    "pieces": Setup(
        tokens={"kind": "bpe", "size": 8000},
        bodies={
            "gpt": {**STACK, "context": WINDOW},
            "bert": MASKED,
            "electra": {**MASKED, "embedding": 0, "generator": 0.25},
            "elmo": {**LSTM, "context": WINDOW},
        },
        steps={"gpt": 4500, "bert": 4500, "electra": 4500, "elmo": 4400},
        tuned=0,
        glue=300,
    ),
    "words": Setup(
        tokens={"kind": "given", "size": 24_000},  # 96 % of SST-2's words; by frequency, as an adaptive softmax needs
        bodies={
            "gpt": {**STACK, **ADAPTIVE, "context": WINDOW},
            "bert": {**MASKED, "masked": 0.3},
            "electra": {**MASKED, "masked": 0.3, "embedding": 0, "generator": 0.25},
            "elmo": {**LSTM, **ADAPTIVE, "context": WINDOW},
        },
        steps={"elmo": 4200, "gpt": 3600, "electra": 1000, "bert": 1300},
        tuned=300,
        glue=200,
        masked_window=SHORT,
        scratch={"tokens": {"kind": "given", "size": 0, "at_least": 1}, "model": {"dropout": 0.5, "word_dropout": 0.1}},
        train={"smooth": 0.1},
    ),
}


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


METRICS = {metric.key: metric for metric in (ACCURACY, MATTHEWS, PEARSON, f1_of("paraphrase"))}


@dataclass(frozen=True)
class Examples:
    """A task's data, and how it is measured."""

    name: str
    task: str = "classification"
    measure: str = ACCURACY.key
    few: int = 0  # labelled examples; 0: all

    @property
    def metric(self) -> Metric:
        return METRICS[self.measure]


SST2 = {name: Examples("sst2", few=count) for name, count in {"100": 100, "1,000": 1000, "all": 0}.items()}
GLUE = {
    "CoLA": Examples("cola", measure="matthews"),
    "MRPC": Examples("mrpc", measure="f1"),
    "STS-B": Examples("stsb", "regression", measure="pearson"),
    "RTE": Examples("rte"),
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
    """Film reviews without their labels: one a line."""
    path = folder / "text.txt"
    if not path.exists():
        lines = list(lines_of(Path(os.environ["REGARD_DATA"]) / "imdb/train.tsv.gz"))[1:]
        documents = [line.split("\t", 1)[1] for line in lines]
        random.Random(1).shuffle(documents)
        write_atomically(path, "".join(f"{worded(document)}\n" for document in documents))
    return path


def splits(of: Examples, seed: int) -> dict[str, list[tuple[Any, str]]]:
    """A text, or two, and the answer to each: to train on, to choose a checkpoint by, and to measure."""
    data = Path(os.environ["REGARD_DATA"])
    if of.name == "sst2":
        rows = {split: [line.split("\t") for line in lines_of(data / f"sst2/{split}.tsv")] for split in SPLITS}
        train, valid, test = ([(worded(text), label) for text, label in rows[split]] for split in SPLITS)
        random.Random(seed).shuffle(train)
        return {"train": train[: of.few or None], "valid": valid, "test": test}
    files = {split: list(lines_of(data / f"glue/{of.name}.{split}.tsv.gz"))[1:] for split in ("train", "dev")}
    cells = {split: [line.split("\t") for line in lines] for split, lines in files.items()}
    every, test = ([(one_or_two(texts), label) for label, *texts in each] for each in cells.values())
    return {"train": [each for at, each in enumerate(every) if at % 10], "valid": every[::10], "test": test}


def one_or_two(texts: Sequence[str]) -> Any:
    found = tuple(map(worded, texts))
    return found if len(found) > 1 else found[0]


# --- training ---


def pretrained(folder: Path, setup: Setup, body: str) -> str:
    text = str(plain_text(folder).resolve())
    window = setup.masked_window if body in ("bert", "electra") else WINDOW
    recipe = {
        "task": "pretraining",
        "data": {"name": "text", "train": text, "hold_out": 0.005, "pack": True, "window": window},
        "tokens": setup.tokens,
        "model": {"name": body, "dropout": 0.0, **setup.bodies[body]},
        "train": {
            "steps": setup.steps[body],
            "batch_tokens": 2048,
            "learning_rate": 0.002,
            "schedule": "linear",
            "warmup": 200,
            "validate_every": 500,
        },
    }
    run = folder / "bodies" / body
    for progress in regard.training(recipe, run):
        copy = run.with_name(f"{body}-{progress.step}")
        if progress.valid and progress.step % COPIED_EVERY == 0 and not copy.exists():
            shutil.copytree(run, copy, ignore=shutil.ignore_patterns("data", "last"))
    facts = read_tensors(Folder(run).last)[1]
    return f"{body:8} {facts['seconds'] / 60:5.1f} minutes, {facts['step']:,} steps"


def tuned(folder: Path, setup: Setup, row: Row, of: Examples, seed: int) -> dict[str, Any]:
    """The answers on the test set of a run that is trained now, or was earlier."""
    place = folder / "tuned" / f"{of.name}{of.few or ''}-{row.slug}-{seed}"
    kept = place.with_suffix(".json")
    if not kept.exists():
        data = splits(of, seed)
        recipe: dict[str, Any] = {"task": of.task, "seed": seed, "train": {"metric": of.metric.key, **setup.train}}
        steps = (0 if of.few == 100 else setup.tuned) if of.name == "sst2" else setup.glue
        if steps and row.body != SCRATCH:
            recipe["train"] |= {"steps": steps, "validate_every": steps // 6, "warmup": steps // 10}
        if row.pretrained:
            recipe["train"]["from"] = str(folder.resolve() / "bodies" / row.body)
            recipe["model"] = {"dropout": DROPOUT[row.body], **(row.model or {})}
        else:
            usual = setup.scratch.get("model", {}) if row.body == SCRATCH else setup.bodies[row.body]
            recipe["model"] = {"name": row.body, **usual, **(row.model or {})}
            recipe |= {key: value for key, value in setup.scratch.items() if key != "model"}
            if row.body != SCRATCH:  # as many tokens as its pre-trained sibling reads
                recipe["tokens"] = {**recipe.get("tokens", {}), "longest": ROOM}
        keep_answers(regard.train(recipe, place, data=data["train"], valid=data["valid"]), data["test"], kept)
        shutil.rmtree(place)
    result: dict[str, Any] = json.loads(kept.read_text())
    return result


def keep_answers(run: Run, examples: Iterable[tuple[Any, str]], kept: Path, how: Decoding | None = None) -> None:
    """Write what a run answers on the test set, and how long it was trained."""
    examples = list(examples)
    facts = read_tensors(Folder(run.name).last)[1]
    found = {
        "answers": [answer.text for answer in run.predict([source for source, _ in examples], how)],
        "gold": [target for _, target in examples],
        "valid": facts["best"],
        "steps": facts["step"],
        "minutes": facts["seconds"] / 60,
    }
    write_atomically(kept, json.dumps(found) + "\n")


def start_worker(threads: int) -> None:
    end_with_parent()
    use_threads(threads)


def workers(jobs: int) -> ProcessPoolExecutor:
    os.environ[PARENT] = str(os.getpid())
    return ProcessPoolExecutor(jobs, get_context("spawn"), start_worker, (int(jobs > 1),))


def trained(
    jobs: int, folder: Path, setup: Setup, rows: Mapping[str, Row], tasks: Mapping[str, Examples], seeds: int
) -> dict[tuple[str, str, int], dict[str, Any]]:
    """The answers of every row on every task with every seed."""
    every = [(title, name, seed) for title in tasks for seed in range(1, seeds + 1) for name in rows]
    with workers(jobs) as pool:
        waits = {each: pool.submit(tuned, folder, setup, rows[each[1]], tasks[each[0]], each[2]) for each in every}
        found = {}
        for (title, name, seed), wait in waits.items():
            run = found[title, name, seed] = wait.result()
            value = tasks[title].metric.of(run["answers"], run["gold"])
            spent = f"{run['steps']:,} steps, {run['minutes']:.1f} minutes"
            print(f"  {title:6} {name:26} seed {seed}   {value:6.2f}   valid {run['valid']:6.2f}   {spent}", flush=True)
    return found


def report(
    found: Mapping[tuple[str, str, int], dict[str, Any]], rows: Mapping[str, Row], tasks: Mapping[str, Examples]
) -> None:
    """A table for each task: means with intervals, and what each row gains over the best from scratch."""
    for title, of in tasks.items():
        statistics = {
            name: [
                of.metric.statistics(run["answers"], run["gold"])
                for key, run in found.items()
                if key[:2] == (title, name)
            ]
            for name in rows
        }
        values = resample(statistics, of.metric)
        others = (name for name in rows if not rows[name].pretrained)
        scratch = max(others, key=lambda name: values[name].mean, default="")
        print(f"\n{title}: {of.metric.name}, {of.metric.note()}" + (f"; gain over {scratch}" if scratch else ""))
        for name, value in values.items():
            gain = gained(value, values[scratch]) if scratch not in ("", name) else ""
            print(f"  {name:26} {shown(value)}   {gain}")


def curve(folder: Path, body: str, seeds: int) -> Iterator[str]:
    """What each copy of a body knows of sentiment, before it is fine-tuned."""
    places = [place for place in (folder / "bodies").glob(f"{body}*") if place.name.split("-")[0] == body]
    last = {place: json.loads((place / "log.jsonl").read_text().splitlines()[-1]) for place in places}
    yield f"{body}: minutes of pre-training, steps; accuracy of a probe with {', '.join(SST2)} labels"
    every = splits(SST2["all"], seed=1)
    for place, facts in sorted(last.items(), key=lambda item: item[1]["step"]):
        run = regard.load(place)
        vectors = {split: run.embed([text for text, _ in every[split]]) for split in ("train", "test")}
        gold = {split: np.array([label == "1" for _, label in every[split]]) for split in vectors}
        found = []
        for of in SST2.values():
            parts = [slice(at * of.few, (at + 1) * of.few or None) for at in range(seeds if of.few else 1)]
            own = ((vectors["train"][part], gold["train"][part]) for part in parts)
            found.append(mean(100 * float((probe(*each, vectors["test"]) == gold["test"]).mean()) for each in own))
        shares = "  ".join(f"{share:5.1f}" for share in found)
        yield f"  {facts['seconds'] / 60:5.1f}   {facts['step']:5,}   {shares}"


def probe(vectors: Any, gold: Any, others: Any) -> Any:
    """Which of the other vectors a logistic regression calls positive; its weight decay suits few labels."""
    scale = torch.from_numpy(np.stack([vectors.mean(0), vectors.std(0) + 1e-6]))
    known, asked = ((torch.from_numpy(each) - scale[0]) / scale[1] for each in (vectors, others))
    weights = torch.zeros(known.shape[1] + 1, requires_grad=True)
    optimiser = torch.optim.LBFGS([weights], max_iter=200, line_search_fn="strong_wolfe")

    def loss() -> torch.Tensor:
        optimiser.zero_grad()
        scores = known @ weights[1:] + weights[0]
        error = nn.functional.binary_cross_entropy_with_logits(scores, torch.from_numpy(gold).float())
        total = error + 10 / len(gold) * (weights[1:] ** 2).sum()
        total.backward()  # type: ignore[no-untyped-call]
        return total

    optimiser.step(loss)  # type: ignore[no-untyped-call]
    return (asked @ weights[1:] + weights[0] > 0).detach().numpy()


def shown(found: Resampled) -> str:
    facts = found.facts()
    return f"{facts['mean']:6.2f} ({facts['low']:.2f} to {facts['high']:.2f})"


def gained(found: Resampled, scratch: Resampled) -> str:
    gain = difference(found, scratch)
    return f"{gain.difference:+6.2f} ({gain.low:+.2f} to {gain.high:+.2f}), p = {gain.p:.3f}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", choices=("pretrain", "sentiment", "curve", "ablation"))
    parser.add_argument("--setup", choices=SETUPS, default="pieces")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1, help="models that are trained side by side, one thread each")
    parser.add_argument("--only", nargs="+", default=[], help="bodies, or rows of the table")
    parser.add_argument("--tasks", nargs="+", default=[], help="columns of the table")
    parser.add_argument("-o", "--out", type=Path, help="by default runs/pretraining-SETUP")
    given = parser.parse_args()
    setup, given.out = SETUPS[given.setup], given.out or Path(f"runs/pretraining-{given.setup}")
    (given.out / "tuned").mkdir(parents=True, exist_ok=True)
    if given.what == "pretrain":
        plain_text(given.out)
        with workers(given.jobs) as pool:
            for line in pool.map(pretrained, repeat(given.out), repeat(setup), given.only or setup.steps):
                print(line, flush=True)
        return
    if given.what == "curve":
        for line in chain.from_iterable(curve(given.out, body, given.seeds) for body in given.only or setup.bodies):
            print(line, flush=True)
        return
    rows, tasks = {
        "sentiment": (SENTIMENT, SST2),
        "ablation": (ABLATION, GLUE),
    }[given.what]
    tasks = {title: of for title, of in tasks.items() if not given.tasks or title in given.tasks}
    rows = {name: row for name, row in rows.items() if not given.only or name in given.only}
    report(trained(given.jobs, given.out, setup, rows, tasks, given.seeds), rows, tasks)


if __name__ == "__main__":
    main()

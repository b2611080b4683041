"""BLEU against sentence length: a fixed vector, and attention, each trained on short and on all sentences.

python bench/length.py [-o FOLDER] [--seeds 3] [--jobs 1]

Four models: seq2seq and rnnsearch, each on sentences of at most 15 and of at most 50 words of the built-in grammar.
Each begins with sentences of at most 15 words, at a constant rate, and spends the second half of its tokens on those of
its own length, at a falling one: a fixed vector learns short sentences long before long ones. All train on as many
tokens, as many batches of one size, and both models on the very same ones. rnnsearch is the paper's; seq2seq has one
help, `lexical`: the words' own vectors, summed, are part of its fixed vector. All translate the same test sentences, of
up to 50 words, which no training set of that grammar seed holds. Training resumes and results are kept, so the same
command goes on where it was stopped. With --jobs 2 two models train side by side, a thread each: better for the whole,
but the minutes are then not those of a free machine.
The last line of output says whether the curves are what Bahdanau et al. (2015, figure 2) found; the picture is
FOLDER/length.svg.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from itertools import islice
from pathlib import Path
from statistics import mean
from typing import Any

import regard
from regard.checkpoint import Folder
from regard.data import world
from regard.data.files import write_atomically
from regard.data.tensors import read_tensors
from regard.predict.decoding import Decoding
from regard.score.metrics import BLEU, buckets
from regard.show.line_chart import Curve, LineChart, line_chart

HERE = Path(__file__).parent
TEST = 2000  # sentences
GRAMMAR = 11  # a seed that nothing was chosen on
EDGES = (10, 20, 30)
BUCKETS = ("up to 10", "11 to 20", "21 to 30", "over 30")
MODELS = ("seq2seq", "rnnsearch")
LENGTHS = (15, 50)
Result = dict[str, Any]


def train(run: Path, model: str, longest: int, seed: int, threads: int, *more: str) -> Path:
    """Half of the tokens; the same command goes on where it was stopped."""
    settings = [f"data.longest={longest}", f"data.grammar_seed={GRAMMAR}", f"seed={seed}", *more]
    environment = {**os.environ, **({"OMP_NUM_THREADS": str(threads)} if threads else {})}
    command = [sys.executable, "-m", "regard", "train", str(HERE / f"length-{model}.toml"), *settings, "-o", str(run)]
    subprocess.run(command, check=True, env=environment, stdout=subprocess.DEVNULL)
    return run


def results_of(folder: Path, model: str, seed: int, threads: int) -> list[Result]:
    """Of the models that grow from one young one: trained and measured now, or earlier."""
    young = train(folder / f"{model}-young-{seed}", model, min(LENGTHS), seed, threads, "train.schedule=constant")
    results = []
    for longest in LENGTHS:
        run = folder / f"{model}-{longest}-{seed}"
        kept = folder / f"{run.name}.json"
        if not kept.exists():
            train(run, model, longest, seed, threads, f"train.from={young.resolve()}")
            write_atomically(kept, json.dumps(measured(run, young)) + "\n")
        result = {"model": f"{model}-{longest}", "seed": seed, **json.loads(kept.read_text())}
        scores = "  ".join(f"{score:5.1f}" for score in result["bleu"])
        print(f"{result['model']:12}  seed {seed}  {scores}   {result['minutes']:.1f} min", flush=True)
        results.append(result)
    return results


def measured(folder: Path, young: Path) -> Result:
    pairs = list(islice(world.pairs("test", seed=GRAMMAR, longest=max(LENGTHS)), TEST))
    sources = [" ".join(pair.source) for pair in pairs]
    references = [" ".join(pair.target) for pair in pairs]
    run = regard.load(folder)
    outputs = [prediction.text for prediction in run.predict(sources, Decoding())]
    each = BLEU.statistics(outputs, references)
    groups = [each[inside] for _, _, inside in buckets(sources, EDGES) if inside.any()]
    facts = [read_tensors(Folder(each).last)[1] for each in (young, folder)]
    return {
        "bleu": [float(BLEU.value(group.sum(0))) for group in groups],
        "sentences": [len(group) for group in groups],
        "minutes": sum(fact["seconds"] for fact in facts) / 60,
        "steps": sum(fact["step"] for fact in facts),
        "parameters": sum(parameter.numel() for parameter in run.model.parameters()),
    }


def lines_of(results: list[Result]) -> list[Curve]:
    lines = []
    for longest in LENGTHS:
        for model in MODELS:
            seeds = [result["bleu"] for result in results if result["model"] == f"{model}-{longest}"]
            columns = list(zip(*seeds, strict=True))
            lines.append(
                Curve(
                    f"{model}-{longest}",
                    [mean(column) for column in columns],
                    colour=MODELS.index(model),
                    dash=LENGTHS.index(longest) ^ 1,
                    least=[min(column) for column in columns],
                    most=[max(column) for column in columns],
                )
            )
    return lines


def verdict(lines: list[Curve]) -> str:
    fixed, attentive = (next(line for line in lines if line.name == f"{model}-50").values for model in MODELS)
    return (
        f"Up to 10 words: seq2seq-50 {fixed[0]:.1f}, rnnsearch-50 {attentive[0]:.1f} "
        f"({attentive[0] - fixed[0]:+.1f}; wanted within 3). "
        f"Over 30 against up to 10: seq2seq-50 {fixed[-1] / fixed[0]:.2f} (wanted at most 0.6), "
        f"rnnsearch-50 {attentive[-1] / attentive[0]:.2f} (wanted at least 0.85)."
    )


def main() -> None:
    parser = argparse.ArgumentParser(description="BLEU against sentence length")
    parser.add_argument("-o", "--out", type=Path, default=Path("runs/length"))
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--jobs", type=int, default=1)
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    wanted = [(model, 1 + seed) for seed in range(given.seeds) for model in MODELS]
    threads = 1 if given.jobs > 1 else 0
    print(f"BLEU of {TEST} test sentences by the words of the source: {', '.join(BUCKETS)}", flush=True)
    with ThreadPoolExecutor(given.jobs) as pool:
        families = pool.map(lambda which: results_of(given.out, *which, threads), wanted)
        results = [result for family in families for result in family]
    lines = lines_of(results)
    for line in lines:
        print(f"{line.name:12}  mean    " + "  ".join(f"{score:5.1f}" for score in line.values))
    title = f"BLEU against sentence length, {given.seeds} seeds (mean, least and most)"
    chart = LineChart(curves=lines, categories=BUCKETS, title=title, across="words in the source", up="BLEU")
    (given.out / "length.svg").write_text(line_chart(chart), encoding="utf-8")
    print(verdict(lines))


if __name__ == "__main__":
    main()

"""What a vocabulary shortlist keeps, and what it gains: coverage of references, BLEU and speed of a trained translator.

python bench/shortlist.py --run runs/multi30k [--k 20 50 100 200] [--beam 1] [--batch 1 32] [--lines 200] [--rounds 3]

Coverage: how many tokens of the run's encoded validation targets are in the shortlist of their batch, and how many
types it has. Speed: target tokens a second while `--lines` validation sentences are translated; the rows take turns,
and each figure is the median of the rounds. BLEU is computed on the same sentences.
"""

from __future__ import annotations

import argparse
import statistics
import time
from dataclasses import replace

import numpy as np

import regard
from regard import machine
from regard.checkpoint import Folder
from regard.data.batches import Encoded
from regard.data.sources import examples
from regard.interface import SPECIALS
from regard.predict.decoding import Decoding
from regard.predict.shortlist import associations_of
from regard.run import Run
from regard.score.metrics import BLEU


def coverage(run: Run, k: int, rows: int) -> tuple[float, float]:
    """Return the share of reference tokens in their batch's shortlist, and the mean number of types of a shortlist."""
    found = associations_of(run)
    source, target = (Encoded.open(Folder(run.name).data, f"valid.{side}") for side in ("source", "target"))
    covered, sizes = [], []
    order = np.argsort(-source.lengths, kind="stable")  # as sentences are batched
    for start in range(0, len(order), rows):
        batch = order[start : start + rows]
        ids = np.union1d(np.arange(len(SPECIALS)), found.shortlist(np.concatenate([source[i] for i in batch]), k))
        covered.append(np.isin(np.concatenate([target[i] for i in batch]), ids))
        sizes.append(len(ids))
    return float(np.concatenate(covered).mean()), statistics.mean(sizes)


def translated(run: Run, lines: list[str], how: Decoding, rows: int) -> tuple[list[str], float]:
    """Translate so many lines at a time; return the outputs and target tokens a second."""
    ordered = sorted(range(len(lines)), key=lambda i: -len(lines[i]))
    outputs, tokens = [""] * len(lines), 0
    began = time.perf_counter()
    for start in range(0, len(lines), rows):
        some = ordered[start : start + rows]
        for i, answer in zip(some, run.predict([lines[i] for i in some], how), strict=True):
            outputs[i], tokens = answer.text, tokens + len(answer.tokens) + 1
    return outputs, tokens / (time.perf_counter() - began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--run", required=True)
    parser.add_argument("--k", type=int, nargs="+", default=[20, 50, 100, 200])
    parser.add_argument("--beam", type=int, default=1)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 32])
    parser.add_argument("--lines", type=int, default=200)
    parser.add_argument("--rounds", type=int, default=3)
    given = parser.parse_args()
    machine.use_threads(0)
    machine.tune_allocator()
    run = regard.load(given.run)
    pairs = list(examples(run.recipe.data, "valid", run.recipe.folder))[: given.lines]
    lines, references = [source for source, _ in pairs], [target for _, target in pairs]
    began = time.perf_counter()
    size = len(associations_of(run).frequent)
    print(f"{machine.cpu_name()}; associations in {time.perf_counter() - began:.1f} s; beam {given.beam}; {size} types")
    print(f"{'batch':>5} {'k':>5} {'types':>7} {'coverage':>9} {'BLEU':>6} {'same outputs':>13} {'tokens/s':>9}")
    plain = Decoding(beam=given.beam, batch_tokens=1 << 20)
    for rows in given.batch:
        rates: dict[int, list[float]] = {k: [] for k in (0, *given.k)}
        outputs: dict[int, list[str]] = {}
        for turn in range(given.rounds + 1):
            for k in rates:
                outputs[k], rate = translated(run, lines, replace(plain, shortlist=k), rows)
                rates[k] += [rate] if turn else []  # the first turn warms up
        for k, found in rates.items():
            share, types = coverage(run, k, rows) if k else (1.0, size)
            same = sum(one == other for one, other in zip(outputs[0], outputs[k], strict=True)) / len(lines)
            bleu = BLEU.of(outputs[k], references)
            print(
                f"{rows:5} {k or '-':>5} {types:7,.0f} {share:9.2%} {bleu:6.2f} {same:13.1%} "
                f"{statistics.median(found):9,.0f}",
                flush=True,
            )


if __name__ == "__main__":
    main()

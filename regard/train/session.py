"""A training session: a recipe and a run folder in, Progress out.

Opening one reads and encodes the data, builds the model and, where the folder holds an earlier attempt, takes it up
exactly where it stopped.
"""

from __future__ import annotations

import dataclasses
import json
import time
from collections.abc import Iterable, Iterator
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, cast

import torch

from regard import machine, score
from regard.checkpoint import Folder, append_log, read_tensors, write_atomically, write_tensors
from regard.data.batches import Encoded, Pairs, Stats, plan, stats, validation_plan
from regard.data.sources import Split
from regard.data.tokenizers import Tokenizers
from regard.interface import Batch, Learns, Progress, Sample, UserError
from regard.recipe import Recipe, read_recipe
from regard.run import Run, build_model
from regard.train.loop import Training, train_steps, weights

MAY_GROW = {"train.steps", "train.epochs", "train.minutes"}
SAVE_EVERY = 60.0  # seconds: the most work that a crash can cost
SHOWN_SAMPLES = 3
LINES_AT_ONCE = 10_000


class ShuffledPairs:
    """Training batches: which examples meet is a function of (seed, epoch, index)."""

    def __init__(self, pairs: Pairs, *, tokens: int, seed: int) -> None:
        self.pairs = pairs
        self.tokens = tokens
        self.seed = seed
        self.plan = lru_cache(maxsize=1)(self._plan)

    def _plan(self, epoch: int) -> list[Any]:
        lengths = self.pairs.source.lengths, self.pairs.target.lengths
        return plan(*lengths, tokens=self.tokens, seed=self.seed, epoch=epoch)

    def count(self, epoch: int) -> int:
        return len(self.plan(epoch))

    def get(self, epoch: int, index: int) -> Batch:
        return self.pairs.collate(self.plan(epoch)[index])

    def stats(self) -> Stats:
        return stats(self.plan(0), self.pairs.source.lengths, self.pairs.target.lengths)


class Session:
    """Everything a run needs, open and ready to step."""

    def __init__(self, recipe: Recipe, out: str | Path, *, device: str = "cpu") -> None:
        self.folder = Folder(out)
        self.device = machine.device(device)
        self.resumed = self.folder.config.exists()
        if self.resumed:
            refuse_changes(recipe, self.folder)
        machine.tune_allocator()
        self.facts = self._facts(recipe)
        train = dataclasses.replace(recipe.train, precision=self.facts["precision"])
        self.recipe = recipe
        self.tokenizers = self._tokenizers()
        self.train_pairs, self.valid_pairs = self._encoded("train"), self._encoded("valid")
        self.valid_text = list(recipe.data.pairs("valid", recipe.folder))
        self.batches = ShuffledPairs(self.train_pairs, tokens=train.batch_tokens, seed=recipe.seed)
        model = build_model(recipe, self.tokenizers).to(self.device)
        self.run = Run(recipe, self.tokenizers, model, self.device)
        self.training = Training(model, train, self.device)
        torch.manual_seed(recipe.seed)
        if self.resumed and self.folder.last.exists():
            self.training.load(*read_tensors(self.folder.last))
        # last of the files: a folder without it was never begun
        write_atomically(self.folder.config, recipe.to_toml())

    # --- opening ---

    def _facts(self, recipe: Recipe) -> dict[str, Any]:
        """The machine, the data and the precision, as they were when the run began."""
        fingerprint = recipe.data.fingerprint(recipe.folder)
        if self.resumed and self.folder.environment.exists():
            facts: dict[str, Any] = json.loads(self.folder.environment.read_text())
            if facts["data"] != fingerprint:
                raise UserError(
                    f"The data has changed since {self.folder.path} was begun: restore it, or start anew with -o."
                )
            return facts
        precision = recipe.train.precision
        if precision == "auto":
            precision = "bfloat16" if self.device.type == "cpu" and machine.bf16_gain() > 1.5 else "float32"
        facts = {**machine.facts(), "data": fingerprint, "precision": precision}
        write_atomically(self.folder.environment, json.dumps(facts, indent=2) + "\n")
        return facts

    def _tokenizers(self) -> Tokenizers:
        # what an attempt that failed before it began has left may be of other text
        if self.resumed and self.folder.tokenizer.exists():
            return Tokenizers.from_json(self.folder.tokenizer.read_bytes())
        recipe = self.recipe
        tokenizers = Tokenizers.train(
            lambda: recipe.data.pairs("train", recipe.folder), **dataclasses.asdict(recipe.tokens)
        )
        write_atomically(self.folder.tokenizer, tokenizers.to_json())
        return tokenizers

    def _encoded(self, split: Split) -> Pairs:
        sides = {"source": self.tokenizers.source, "target": self.tokenizers.target}
        names = [f"{split}.{side}" for side in sides]
        if not (self.resumed and (self.folder.data / split).exists()):
            for place, (side, tokenizer) in enumerate(sides.items()):
                texts = (pair[place] for pair in self.recipe.data.pairs(split, self.recipe.folder))
                encoded = (ids for chunk in chunks(texts) for ids in tokenizer.encode_all(chunk))
                Encoded.write(self.folder.data, f"{split}.{side}", encoded)
            write_atomically(self.folder.data / split, "encoded\n")
        pairs = Pairs(*(Encoded.open(self.folder.data, name) for name in names))
        if not len(pairs):
            raise UserError(f"The {split} data is empty: give at least one pair of lines.")
        return pairs

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.run.model.parameters())

    # --- stepping ---

    def steps(self) -> Iterator[Progress]:
        """Train until the budget is used, saving on the way. Whoever stops earlier calls `save`."""
        attempt = int(time.time())
        saved = time.monotonic()
        for progress in train_steps(self.training, self.batches, validate=self.validate, save_best=self.save_best):
            if progress.valid is not None:
                self._log(progress, attempt)
            if progress.valid is not None or time.monotonic() - saved > SAVE_EVERY:
                self.save()
                saved = time.monotonic()
            yield progress

    def save(self) -> None:
        """All that the next step depends on."""
        write_tensors(self.folder.last, self.training.tensors(), self.training.facts())

    def save_best(self) -> None:
        write_tensors(self.folder.best, weights(self.run.model), {"step": self.training.step})

    def _log(self, progress: Progress, attempt: int) -> None:
        entry = dataclasses.asdict(progress)
        samples = entry.pop("samples")
        append_log(self.folder.log, {**entry, "attempt": attempt})
        text = "".join(
            f"step {progress.step}\n  source     {s}\n  reference  {r}\n  output     {o}\n" for s, r, o in samples
        )
        with self.folder.samples.open("a", encoding="utf-8") as file:
            file.write(text)

    def validate(self) -> tuple[dict[str, float], tuple[Sample, ...]]:
        """Loss over the validation pairs; BLEU too where it decides; a few translations."""
        model = cast(Learns, self.run.model)
        nll, tokens = 0.0, 0
        lengths = self.valid_pairs.source.lengths, self.valid_pairs.target.lengths
        for indices in validation_plan(*lengths, tokens=4096):
            loss = model.loss(self.valid_pairs.collate(indices).to(self.device))
            nll, tokens = nll + float(loss.nll), tokens + loss.tokens
        metrics = {"loss": nll / tokens, "tokens": float(tokens)}
        count = len(self.valid_text) if self.training.config.metric == "bleu" else SHOWN_SAMPLES
        pairs = self.valid_text[:count]
        outputs = [p.text for p in self.run.predict([s for s, _ in pairs])]
        if self.training.config.metric == "bleu":
            metrics["bleu"] = score.bleu(outputs, [reference for _, reference in pairs]).value
        samples = (Sample(*pair, output) for pair, output in zip(pairs, outputs, strict=True))
        return metrics, tuple(islice(samples, SHOWN_SAMPLES))


def chunks(texts: Iterable[str]) -> Iterator[list[str]]:
    iterator = iter(texts)
    while chunk := list(islice(iterator, LINES_AT_ONCE)):
        yield chunk


def refuse_changes(recipe: Recipe, folder: Folder) -> None:
    """The recipe of an existing run may ask for more of the same, and for nothing else."""
    before, _ = read_recipe(folder.config)
    changed = [key for key in recipe.differences(before) if key not in MAY_GROW]
    if changed:
        raise UserError(
            f"{folder.path} was begun with another recipe, which differs in {', '.join(changed)}: "
            "choose another folder with -o, or take those settings back."
        )

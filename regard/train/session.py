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
from regard.checkpoint import (
    Folder,
    append,
    append_log,
    make_folder,
    read_tensors,
    write_atomically,
    write_tensors,
    writing,
)
from regard.data.batches import Encoded, Pairs, Stats, plan, stats, validation_plan
from regard.data.sources import Split, pairs
from regard.data.text import content_hash
from regard.data.tokenizers import Tokenizers
from regard.interface import Batch, Learns, Progress, Sample, UserError
from regard.recipe import Recipe, read_recipe
from regard.run import Run, build_model
from regard.train.loop import Training, load_weights, train_steps, weights

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
        self.folder.sweep()
        self.device = machine.device(device)
        self.resumed = self.folder.config.exists()
        if self.resumed:
            refuse_changes(recipe, self.folder)
        elif self.folder.best.exists():
            raise UserError(
                f"{self.folder.best} is there without the config.toml it was trained with, and training would replace "
                "it: restore config.toml, or choose another folder with -o."
            )
        machine.tune_allocator()
        self.facts = self._facts(recipe)
        if self.facts["precision"] == "bfloat16" and self.device.type == "cpu" and not machine.bf16_gain():
            raise UserError("bfloat16 does not run on this processor: set train.precision to float32, with another -o.")
        train = dataclasses.replace(recipe.train, precision=self.facts["precision"])
        self.recipe = recipe
        self.teacher = find_run(train.from_, recipe.folder) if train.from_ and not self.resumed else None
        self.tokenizers = self._tokenizers()
        self.left_out: dict[str, int] = {}  # pairs of a split that are empty on one side, or too long
        self.train_pairs, self.valid_pairs = self._encoded("train"), self._encoded("valid")
        self.valid_text = list(self._text("valid"))
        self.batches = ShuffledPairs(self.train_pairs, tokens=train.batch_tokens, seed=recipe.seed)
        model = build_model(recipe, self.tokenizers).to(self.device)
        self.run = Run(recipe, self.tokenizers, model, self.device)
        self.training = Training(model, train, self.device)
        torch.manual_seed(recipe.seed)
        if self.resumed:
            self.training.load(*read_tensors(self.folder.last), origin=self.folder.last)
        else:
            if self.teacher:
                load_weights(model, read_tensors(self.teacher.best)[0], origin=self.teacher.best)
            self.save()
        # last of the files: a folder without it was never begun, one with it has them all
        write_atomically(self.folder.config, recipe.to_toml(placed=True))

    # --- opening ---

    def _facts(self, recipe: Recipe) -> dict[str, Any]:
        """The machine, the data and the precision, as they were when the run began."""
        fingerprint = recipe.data.fingerprint(recipe.folder)
        files = {key: str(path) for key, path in recipe.data.files(recipe.folder).items()}
        if self.resumed:
            facts = self.folder.facts()
            if facts["data"] != fingerprint:
                each = zip(files.values(), facts["data"].split(), fingerprint.split(), strict=False)
                changed = ", ".join(file for file, was, now in each if was != now) or "what the recipe describes"
                raise UserError(
                    f"The data has changed since {self.folder.path} was begun ({changed}): "
                    "restore it, or start anew with -o."
                )
            return facts
        precision = recipe.train.precision
        if precision == "auto":
            precision = "bfloat16" if self.device.type == "cpu" and machine.bf16_gain() > 1.5 else "float32"
        facts = {**machine.facts(), "files": files, "data": fingerprint, "precision": precision}
        write_atomically(self.folder.environment, json.dumps(facts, indent=2) + "\n")
        return facts

    def _text(self, split: Split) -> Iterator[tuple[str, str]]:
        return pairs(self.recipe.data, split, self.recipe.folder)

    def _tokenizers(self) -> Tokenizers:
        # what an attempt that failed before it began has left may be of other text
        if self.resumed:
            return Tokenizers.read(self.folder.tokenizer)
        if self.teacher:  # its weights know its words only
            tokenizers = Tokenizers.read(self.teacher.tokenizer)
        else:
            how = dataclasses.asdict(self.recipe.tokens)
            del how["longest"]
            tokenizers = Tokenizers.train(lambda: self._text("train"), **how)
        write_atomically(self.folder.tokenizer, tokenizers.to_json())
        return tokenizers

    def _encoded(self, split: Split) -> Pairs:
        names = [f"{split}.{side}" for side in ("source", "target")]
        left_out = left_out_of(self.folder.data, split) if self.resumed else None
        if left_out is None:
            left_out, longest = 0, self.recipe.tokens.longest
            with writing(self.folder.data):
                make_folder(self.folder.data)
                source, target = (Encoded.writer(self.folder.data, name) for name in names)
                with source as add_source, target as add_target:
                    for chunk in chunks(self._text(split)):
                        sides = zip(*chunk, strict=True)
                        encoded = (t.encode_all(list(side)) for t, side in zip(self.tokenizers, sides, strict=True))
                        for pair in zip(*encoded, strict=True):
                            if not all(0 < len(ids) <= longest for ids in pair):
                                left_out += 1
                                continue
                            add_source(pair[0])
                            add_target(pair[1])
            write_atomically(self.folder.data / split, " ".join([str(left_out), *hashes(self.folder.data, split)]))
        encoded_pairs = Pairs(*(Encoded.open(self.folder.data, name) for name in names))
        self.left_out[split] = left_out
        if not len(encoded_pairs):
            short = f" of at most {self.recipe.tokens.longest} tokens a side" if left_out else ""
            raise UserError(f"The {split} data is empty: give at least one pair of lines{short}.")
        return encoded_pairs

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.run.model.parameters())

    def examples(self, count: int) -> Iterator[tuple[str, list[str], str]]:
        """The first training lines, source and target in turn: as written, in tokens, and put together again."""
        for pair in islice(self._text("train"), count):
            for text, tokenizer in zip(pair, self.tokenizers, strict=True):
                shown = [piece.text for piece in tokenizer.pieces(text)]
                yield text, shown, tokenizer.decode(tokenizer.encode(text))

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
        append(self.folder.samples, text)

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
        shown = self.valid_text[:count]
        outputs = [p.text for p in self.run.predict([s for s, _ in shown])]
        if self.training.config.metric == "bleu":
            metrics["bleu"] = score.bleu(outputs, [reference for _, reference in shown]).value
        samples = (Sample(*pair, output) for pair, output in zip(shown, outputs, strict=True))
        return metrics, tuple(islice(samples, SHOWN_SAMPLES))


def hashes(folder: Path, split: Split) -> list[str]:
    """Of the files of an encoded split."""
    return [content_hash(file) for file in sorted(folder.glob(f"{split}.*.npy"))]


def left_out_of(folder: Path, split: Split) -> int | None:
    """How many pairs were left out of an encoded split; None where its files are not as they were written.

    They are then written anew: they hold nothing that the text and the tokenizer do not say.
    """
    try:
        left_out, *rest = (folder / split).read_text(encoding="utf-8").split()
        return int(left_out) if rest == hashes(folder, split) and rest else None
    except (OSError, ValueError, UserError):
        return None


def chunks(texts: Iterable[tuple[str, str]]) -> Iterator[list[tuple[str, str]]]:
    iterator = iter(texts)
    while chunk := list(islice(iterator, LINES_AT_ONCE)):
        yield chunk


def refuse_changes(recipe: Recipe, folder: Folder) -> None:
    """The recipe of an existing run may ask for more of the same, and for nothing else."""
    before, _ = read_recipe(folder.config)
    changed = recipe.differences(before)
    other = [key for key in changed if key not in MAY_GROW]
    if other:
        raise UserError(
            f"{folder.path} was begun with another recipe, which differs in {', '.join(other)}: "
            "choose another folder with -o, or take those settings back."
        )
    for key in changed:
        was, now = (each.train.__dict__[key.removeprefix("train.")] for each in (before, recipe))
        if was == 0 or 0 < now < was:  # 0: no limit
            raise UserError(
                f"{folder.path} was begun with {key} = {was}, and {now} is less: a run can only be made longer; "
                "choose another folder with -o, or take the setting back."
            )


def find_run(path: str, folder: Path) -> Folder:
    """The run to begin from: absolute as it is, else from the recipe's folder, else from here."""
    tries = [folder / path, Path(path)]
    for candidate in tries:
        if candidate.is_dir():
            found = Folder(candidate).must_exist()
            if not found.best.exists():
                raise UserError(f"train.from = {path!r} has no model yet: train it until its first validation.")
            return found
    looked = " and ".join(str(candidate) for candidate in dict.fromkeys(map(Path.absolute, tries)))
    raise UserError(f"train.from = {path!r} was not found: looked at {looked}; give a run folder.")

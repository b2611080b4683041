"""A training session: it takes a recipe and a run folder, and yields Progress.

Opening one reads and encodes the data, builds the model and, where the folder holds an earlier attempt, resumes it
exactly where it stopped.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import torch
from torch import nn

from regard import machine, usercode
from regard.checkpoint import Folder, append_log
from regard.config import AgreedError, counted
from regard.data.fields import Fields, TextField
from regard.data.files import append, write_atomically
from regard.data.sources import find
from regard.data.tensors import read_tensors, tensor_shapes, write_tensors
from regard.exchange.word_vectors import load_word_vectors
from regard.interface import Fits, Progress, UserError
from regard.layers.encoders import begin_prompts
from regard.loading import read_recipe
from regard.recipe import Recipe, refuse_other_code
from regard.run import Run, build_model, build_saved
from regard.score.metrics import FEWEST
from regard.train.corpus import Corpus, OnRead
from regard.train.cost import first_batches, flops_per_token
from regard.train.encoding import Encoding
from regard.train.events import require_tensorboard, with_events
from regard.train.group import Group
from regard.train.loop import fit_steps, train_steps
from regard.train.smoke_test import try_out
from regard.train.stamps import fingerprint, refuse_changed_data
from regard.train.training import BUDGETS, Precision, Training
from regard.train.transfer import Taken, find_run, load_fitting, share_rows
from regard.train.tuning import Tuning
from regard.train.weights import weights

MAY_GROW = {f"train.{budget}" for budget in (*BUDGETS, "patience")}
# which do not affect what is learnt, but for rounding
MAY_CHANGE = {"train.tensorboard", "train.shard", "train.wire"}
SAVE_EVERY = 60.0  # seconds between checkpoints: the most work that a crash can cost
LOG_EVERY = 5.0  # seconds without a validation after which a line is logged, for those who watch
EXAMPLE = 1000  # characters of a text that are shown, at most
ELSEWHERE = "choose another run folder (-o on the command line)"
VERSIONS = ("regard", "torch")  # which decide what a step computes


class Session:
    """Everything a run needs, open and ready to step."""

    def __init__(
        self,
        recipe: Recipe,
        out: str | Path,
        *,
        device: str = "cpu",
        on_read: OnRead = lambda read, every: None,
        follows: bool = False,
    ) -> None:
        """Open the run folder. A process that follows another one writes nothing there: it reads what the other wrote,
        as if it resumed the run."""
        self.folder = Folder(out)
        self.follows = follows
        if follows and not self.folder.config.exists():
            raise UserError(
                f"{self.folder.path} is not the run folder that process 0 has opened: it must be on a file system that "
                "all hosts share, under the same path."
            )
        if not follows:
            self.folder.sweep()
        self.device = machine.device(device)
        self.resumed = self.folder.config.exists()
        if self.resumed:
            refuse_changes(recipe, self.folder)
        elif self.folder.best.exists():
            raise UserError(
                f"{self.folder.best} exists without the config.toml it was trained with, and training would replace "
                f"it: restore config.toml, or {ELSEWHERE}."
            )
        if recipe.train.tensorboard:
            require_tensorboard()
        machine.tune_allocator()
        self.remark = ""  # on what the person should know before training
        self._try_code(recipe)
        facts = self._facts(recipe)
        now = machine.facts()
        others = [
            f"{name} {str(facts.get(name))[:40]}, now {now[name]}" for name in VERSIONS if facts.get(name) != now[name]
        ]
        self.other_versions = ""  # a remark, where a run is resumed with other versions
        if others:
            which = " and ".join(others)
            self.other_versions = f"{self.folder.path} was started with {which}: its weights may come out differently."
        if self.device.type == "cpu" and facts["precision"] != "float32":
            machine.probe_bf16()  # in the background, while the data is read
        self.recipe = recipe
        self.corpus: Corpus = recipe.task.corpus(recipe)
        self.corpus.keep_in(self.folder.data, on_read)
        base = recipe.train.from_
        self.base = find_run(base, recipe.folder) if base and not self.resumed else None
        self.encoding = Encoding(self.folder, self.corpus)
        self.fields = self._fields()
        self.encoded, self.left_out = self.encoding.encoded(self.fields, known=self.resumed)
        self.corpus.forget()
        model = self._model().to(self.device)
        self.taken: Taken | None = None  # weights from the run that this one fine-tunes
        if not self.resumed and (new := self._start(model)):
            facts["new"] = new
        share_rows(model, recipe, self.fields)
        self.batches = self.corpus.batches(self.fields, self.encoded["train"], model)
        self.run = Run(recipe, self.fields, model, self.device, self.folder.path.name)
        precision = self._precision(facts["precision"])
        settings = dataclasses.replace(recipe.train, precision=precision, tokens=self._most_tokens(model))
        tuning = Tuning(recipe.train.tune, recipe.train.layer_decay, frozenset(map(str, facts.get("new", []))))
        self.training = Training(model, settings, self.device, metric=recipe.metric, tuning=tuning, seed=recipe.seed)
        self.corpus.prepare(model, self.encoded["train"])
        torch.manual_seed(recipe.seed)
        if self.resumed:
            saved = read_tensors(self.folder.last)
            self.training.load(*saved, rows=self.batches.carries, origin=self.folder.last)
        if follows:
            return
        if self.resumed:
            self.folder.forget_after(self.training.step)
        else:
            self.folder.write_facts({**facts, "precision": precision})
            self.save()
        # written last: a folder without it was never started, one with it has all files
        write_atomically(self.folder.config, recipe.to_toml(placed=True), own=True)

    def join(self, group: Group) -> None:
        """Train together with other processes, which have opened the same run."""
        if group.size == 1:
            return
        if isinstance(self.run.model, Fits):
            raise AgreedError(f"{self.run.model_title} counts, in one process: start it without torchrun.")
        self.training = self.training.spread(group, rows=self.batches.carries)

    # --- opening ---

    def _try_code(self, recipe: Recipe) -> None:
        """Try the user's files, so that an error in them is reported before the data is read."""
        if self.resumed:
            refuse_other_code(recipe.code(), self.folder)
        for file in recipe.code():
            if Path(file).is_relative_to(self.folder.path.resolve()):
                raise UserError(
                    f"{file} is inside {self.folder.path}, and code inside a run is never executed: {ELSEWHERE}."
                )
        if recipe.code():
            if not self.resumed:
                try_out(recipe)
            self.remark = usercode.remember(recipe.code())

    def _facts(self, recipe: Recipe) -> dict[str, Any]:
        """Describe the machine and the data as they were when the run started."""
        now = fingerprint(recipe, self.folder.data)
        files = {key: str(path) for key, path in recipe.data.files(recipe.folder).items()}
        if self.resumed:
            facts = self.folder.facts()
            refuse_changed_data(recipe, self.folder, facts["data"], now)
            return facts
        found = {"files": files, "data": now, "code": recipe.code()}
        return {**machine.facts(), **found, "precision": recipe.train.precision}

    def _precision(self, wanted: Precision) -> Precision:
        """Return what `auto` means on this machine."""
        if wanted == "bfloat16" and self.device.type == "cpu" and not machine.bf16_gain():
            raise UserError("bfloat16 does not run on this processor: start a new run with train.precision = float32.")
        if wanted == "auto":
            return "bfloat16" if self.device.type == "cpu" and machine.bf16_gain() > 1.5 else "float32"
        return wanted

    def _most_tokens(self, model: nn.Module) -> int:
        """Return the budget in tokens, into which a budget in FLOPs is converted."""
        limit = self.recipe.train
        if not limit.flops or isinstance(model, Fits):
            return limit.tokens
        a_token = flops_per_token(model, first_batches(self.batches, self.device))
        most = max(1, int(limit.flops / a_token))
        return min(most, limit.tokens or most)

    def _fields(self) -> Fields:
        # files of an attempt that failed before its first step may come from other data
        if self.resumed:
            return Fields.read(self.folder.fields, self.recipe.task.fields)
        fields = self.encoding.made_fields(self.base)
        self.remark = " ".join(filter(None, [self.remark, self.encoding.remark]))
        return fields

    def _model(self) -> nn.Module:
        if not self.resumed:
            return build_model(self.recipe, self.fields)
        saved = tensor_shapes(self.folder.last)
        shapes = {name.removeprefix("model."): saved[name] for name in saved if name.startswith("model.")}
        return build_saved(self.recipe, self.fields, shapes, self.folder.last)

    def _start(self, model: nn.Module) -> list[str]:
        """Load what a new model starts with; return the names of weights that a way of fine-tuning adds to those of
        the other run, or keeps apart from them."""
        if vectors := self.recipe.train.vectors:
            load_word_vectors(model, self.fields.tokenizer(), find(vectors, self.recipe.folder))
        if not self.base:
            return []
        self.taken = load_fitting(model, self.recipe, self.fields, self.base, self.recipe.train.parts)
        if any(name.endswith(".prompt") for name in self.taken.left):
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(self.recipe.seed)
                begin_prompts(model)
        return list(self.taken.left) if self.recipe.train.tune != "all" else []

    @property
    def few_valid(self) -> str:
        """The size of a validation set that is too small to measure anything; "" for a larger one."""
        count = len(next(iter(self.encoded["valid"].values())))
        enough = self.corpus.whole_file or count >= FEWEST
        return "" if enough else f"fewer than {counted(FEWEST, self.corpus.noun)} ({count})"

    @property
    def parameters(self) -> int:
        return sum(parameter.numel() for parameter in self.run.model.parameters())

    @property
    def learning(self) -> int:
        """The number of parameters that learn, now or in a later epoch."""
        return sum(parameter.numel() for parameter in self.training.parameters.values())

    @property
    def other_tokens(self) -> str:
        """The kind of tokens that the run to start from has, where the recipe has another."""
        kinds = {field.tokenizer.kind for field in self.fields.values() if isinstance(field, TextField)}
        if self.base is None or not kinds:
            return ""
        return " and ".join(sorted(kinds)) if kinds - {self.recipe.tokens.kind} else ""

    def examples(self, count: int) -> Iterator[tuple[str, list[str], str]]:
        """Yield the first training texts, side after side: as written, in tokens, and decoded again."""
        fields = [self.fields[side] for side in self.recipe.task.fields]
        for example in islice(self.corpus.examples("train"), 1 if self.corpus.whole_file else count):
            sides = zip(example, fields, strict=False)
            texts = {text: field for text, field in sides if isinstance(field, TextField)}  # once, if both are the same
            for text, field in texts.items():
                beginning = text[:EXAMPLE]
                yield beginning, [piece.text for piece in field.pieces(beginning)], field.restored(beginning)

    # --- stepping ---

    def steps(self) -> Iterator[Progress]:
        """Train until the budget is used, and save checkpoints. A caller that stops earlier calls `save`."""
        attempt = int(time.time())
        saved, logged = self.training.seconds, time.monotonic()
        validate = partial(self.corpus.validate, self.run, self.encoded["valid"])
        if isinstance(self.run.model, Fits):
            texts = self.encoded["train"]["target"]
            steps = fit_steps(self.training, texts, validate=validate, save_best=self.save_best)
        else:
            steps = train_steps(self.training, self.batches, validate=validate, save_best=self.save_best)
        if self.recipe.train.tensorboard and not self.follows:
            steps = with_events(steps, self.folder.tensorboard, self.training.step)
        for progress in steps:
            if not self.follows and (progress.valid is not None or time.monotonic() - logged > LOG_EVERY):
                self._log(progress, attempt)
                logged = time.monotonic()
            # all processes save together, and know the same seconds
            if progress.valid is not None or progress.seconds - saved > SAVE_EVERY:
                self.save()
                saved = progress.seconds
            yield progress

    def save(self) -> None:
        """Save a checkpoint: all that the next step depends on."""
        tensors = self.training.tensors()  # of which other processes may have parts
        if not self.follows:
            write_tensors(self.folder.last, tensors, self.training.facts())

    def save_best(self) -> None:
        write_tensors(self.folder.best, weights(self.run.model), {"step": self.training.step})

    def _log(self, progress: Progress, attempt: int) -> None:
        entry = dataclasses.asdict(progress)
        del entry["samples"]
        append_log(self.folder.log, {**entry, "attempt": attempt, "memory": machine.memory()})
        lines = []
        for sample in progress.samples:
            lines.append(f"step {progress.step}")
            lines += [f"  {part:9}  {text}" for part, text in sample._asdict().items() if text or part == "output"]
        append(self.folder.samples, "".join(f"{line}\n" for line in lines))


def described(recipe: Recipe, folder: Folder) -> dict[str, str]:
    """Describe what processes that train together must share."""
    facts = machine.facts()
    return {
        "version of regard or of torch": " ".join(facts[name] for name in VERSIONS),
        "recipe": recipe.to_toml(),
        "training or validation file": fingerprint(recipe, folder.data),
        "file of code": str(recipe.code()),
    }


def refuse_changes(recipe: Recipe, folder: Folder) -> None:
    """Refuse a recipe that differs from the run's in more than a larger budget."""
    before, _ = read_recipe(folder.config)
    changed = [key for key in recipe.differences(before) if key not in MAY_CHANGE]
    other = [key for key in changed if key not in MAY_GROW]
    if other:
        raise UserError(
            f"{folder.path} was started with another recipe, which differs in {', '.join(other)}: "
            f"{ELSEWHERE}, or restore those settings."
        )
    for key in changed:
        was, now = (each.train.__dict__[key.removeprefix("train.")] for each in (before, recipe))
        if was == 0 or 0 < now < was:  # 0: no limit
            raise UserError(
                f"{folder.path} was started with {key} = {was}, and {now} is less: a run can only be made longer; "
                f"{ELSEWHERE}, or restore the setting."
            )

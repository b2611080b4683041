"""Plan a comparison: its models, its budget, and the folders of its runs."""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from regard.interface import Fits, UserError
from regard.layers.fast.without_values import without_values
from regard.loading import read_recipe
from regard.models import design_of
from regard.recipe import Recipe
from regard.train.training import BUDGETS

JOBS = 2  # parallel runs of a demo, with a thread each: a small model's products are too small for two threads
Kind = Literal["minutes", "tokens", "flops"]
UNITS: dict[str, tuple[Kind, float]] = {
    "s": ("minutes", 1 / 60),
    "m": ("minutes", 1.0),
    "h": ("minutes", 60.0),
    "tok": ("tokens", 1.0),
    "flop": ("flops", 1.0),
}
NUMBER = re.compile(rf"((?:\d+\.?\d*|\.\d+)(?:e\+?\d+)?)\s*({'|'.join(UNITS)})", re.ASCII)


@dataclass(frozen=True)
class Budget:
    """The training budget, which is the same for every model."""

    kind: Kind
    amount: float

    @classmethod
    def read(cls, text: str) -> Budget:
        amount = 0.0
        if found := NUMBER.fullmatch(text.strip().lower()):
            kind, unit = UNITS[found[2]]
            amount = float(found[1]) * unit
        if not 0 < amount < math.inf:
            raise UserError(
                f"The budget {text!r} is not valid: give minutes (10m), tokens (2e6tok) or FLOPs (1e15flop)."
            )
        return cls(kind, amount)

    def settings(self) -> list[str]:
        """Return the settings that replace a recipe's own limits."""
        mine = {limit: "0" for limit in (*BUDGETS, "patience")}
        mine[self.kind] = str(int(self.amount)) if self.kind == "tokens" else repr(self.amount)
        return [f"train.{limit}={value}" for limit, value in mine.items()]

    def facts(self) -> dict[str, Any]:
        return {"text": str(self), "kind": self.kind, "amount": self.amount}

    def __str__(self) -> str:
        if self.kind == "minutes":
            time = f"{self.amount:g} minutes" if self.amount >= 1 else f"{60 * self.amount:g} seconds"
            return f"{time} of training each"
        if self.kind == "tokens":
            return f"{self.amount:,.0f} target tokens of training each"
        return f"{self.amount:.3g} floating-point operations of training each"


@dataclass(frozen=True)
class Contender:
    """A model with its settings: "rnn_lm cell=tanh"."""

    name: str
    settings: tuple[str, ...]

    @classmethod
    def read(cls, text: str, recipe: Recipe | None = None, *, name: str = "") -> Contender:
        """Read a model's name or file, and settings, which are the model's unless they name a section. The recipe's own
        model keeps the recipe's settings."""
        try:
            model, *more = shlex.split(text)
        except ValueError:
            raise UserError(
                f'The model {text!r} cannot be read: write a name and settings, as in "rnn_lm cell=tanh".'
            ) from None
        for setting in more:
            if not re.match(r"[\w.]+=", setting):
                raise UserError(
                    f'The model {text!r} has {setting!r}, which is not a setting: write "rnn_lm cell=tanh".'
                )
        settings = [setting if "." in setting.split("=")[0] else f"model.{setting}" for setting in more]
        own = [] if recipe and model == recipe.model_name else [f"model.name={model}"]
        short = Path(model).stem if model.endswith(".py") else model
        return cls(name or " ".join([short, *more]), (*own, *settings))

    @property
    def slug(self) -> str:
        return re.sub(r"[^\w.=-]+", "-", self.name.replace("/", "-")).strip("-.") or "model"


@dataclass(frozen=True)
class Entry:
    """One run of a contender."""

    contender: Contender
    seed: int
    folder: Path
    settings: tuple[str, ...]

    @property
    def title(self) -> str:
        return f"{self.contender.name}, seed {self.seed}"


@dataclass(frozen=True)
class Plan:
    recipe: Path
    entries: tuple[Entry, ...]  # ordered by seed, so that every model is trained once before any is trained twice
    budget: Budget | None
    trust_code: bool = False

    @property
    def contenders(self) -> list[Contender]:
        return list(dict.fromkeys(entry.contender for entry in self.entries))


def planned(
    recipe: Path,
    contenders: Sequence[Contender],
    *,
    seeds: int,
    budget: Budget | None,
    folder: Path,
    settings: Sequence[str] = (),
    trust_code: bool = False,
) -> Plan:
    """Plan every model with every seed; an n-gram model, which has no randomness, with one. Each recipe is read now, so
    that a mistake is reported before anything is trained."""
    base, _ = read_recipe(recipe, settings, trust_code=trust_code)
    twice = {one.slug for one in contenders if sum(one.slug == other.slug for other in contenders) > 1}
    if twice:
        raise UserError(f"{', '.join(sorted(twice))} is given more than once: give each model different settings.")
    limits = budget.settings() if budget else []
    entries = []
    for seed in range(base.seed, base.seed + seeds):
        for contender in contenders:
            own = (*settings, *contender.settings, *limits, f"seed={seed}")
            if counts(read_recipe(recipe, own)[0]) and seed > base.seed:
                continue
            entries.append(Entry(contender, seed, folder / f"{contender.slug}-{seed}", own))
    return Plan(recipe, tuple(entries), budget, trust_code)


def counts(recipe: Recipe) -> bool:
    """Return whether the model is fitted by counting, and so is the same for every seed."""
    task = recipe.task
    fields = task.learn(lambda: task.toy, task.tokens())
    with without_values():
        built = design_of(recipe.model_name).build(recipe.model, fields.shapes)
    return isinstance(built, Fits)

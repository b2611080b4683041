"""demo: train on the built-in corpus and measure on sentences never seen."""

from __future__ import annotations

from dataclasses import dataclass
from importlib.resources import files
from itertools import islice
from pathlib import Path

from regard.config import unknown
from regard.data import world
from regard.data.sources import World
from regard.interface import UserError
from regard.models import MODELS
from regard.recipe import Recipe, read_recipe
from regard.run import Run
from regard.score.labels import NamesScored, name
from regard.score.labels import score as score_names
from regard.score.likelihood import Likelihood, score_texts
from regard.score.translation import Scored, score

RECIPES = files("regard") / "recipes"
DEFAULTS = {"translation": "rnnsearch", "language": "rnn_lm", "classification": "birnn", "tagging": "birnn"}


def demo_recipe(task: str, model: str) -> Recipe:
    """The recipe that ships for this model, or for this task with this model in it."""
    of_task = recipe_file(task)
    shipped = [
        name
        for name, design in MODELS.items()
        if task in design.tasks and (of_task.exists() or recipe_file(name).exists())
    ]
    if model not in shipped:
        raise unknown(model, shipped, f"The model of the {task} demo")
    if of_task.exists():
        return read_recipe(of_task, [] if model == DEFAULTS[task] else [f"model.name={model}"])[0]
    return read_recipe(recipe_file(model))[0]


def recipe_file(name: str) -> Path:
    return Path(str(RECIPES / f"demo-{name}.toml"))


@dataclass(frozen=True)
class Result:
    scored: Scored
    lengths: tuple[int, int, int]  # shortest, median and longest test source, in words


def measure(run: Run, *, layer: int | None = None) -> Result:
    """BLEU and alignment error on the recipe's test pairs."""
    pairs = test_pairs(run)
    scored = score(
        run,
        [" ".join(pair.source) for pair in pairs],
        [" ".join(pair.target) for pair in pairs],
        gold=[frozenset(pair.links) for pair in pairs],
        layer=layer,
    )
    lengths = sorted(len(pair.source) for pair in pairs)
    return Result(scored, (lengths[0], lengths[len(lengths) // 2], lengths[-1]))


def test_pairs(run: Run) -> list[world.Pair]:
    data = run.recipe.data
    if not isinstance(data, World):
        raise UserError("This run was not trained on the built-in corpus.")
    return list(islice(world.pairs("test", seed=data.grammar_seed, longest=data.longest), data.test))


def measure_names(run: Run) -> tuple[NamesScored, list[tuple[str, str, str]]]:
    """How well the recipe's test sentences, or their words, are named; and each with its gold and given names."""
    assert isinstance(run.recipe.data, World)
    per_word = run.recipe.task == "tagging"
    texts, gold = zip(*run.recipe.data.named("test", per_word=per_word), strict=True)
    said = [named.text for named in name(run, texts)]
    return score_names(gold, said, per_word=per_word), list(zip(texts, gold, said, strict=True))


def measure_language(run: Run) -> Likelihood:
    """How likely the recipe's test sentences are."""
    return score_texts([run], [" ".join(pair.source) for pair in test_pairs(run)]).likelihood

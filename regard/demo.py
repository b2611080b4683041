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
from regard.perplexity import Likelihood, score_texts
from regard.recipe import Recipe, read_recipe
from regard.run import Run
from regard.score import Scored, score

RECIPES = files("regard") / "recipes"
DEFAULTS = {"translation": "rnnsearch", "language": "rnn_lm"}


def demo_recipe(task: str, model: str) -> Recipe:
    """The recipe that ships for this model."""
    shipped = [name for name, design in MODELS.items() if design.task == task and recipe_file(name).exists()]
    if model not in shipped:
        raise unknown(model, shipped, f"The model of the {task} demo")
    return read_recipe(recipe_file(model))[0]


def recipe_file(model: str) -> Path:
    return Path(str(RECIPES / f"demo-{model}.toml"))


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


def measure_language(run: Run) -> Likelihood:
    """How likely the recipe's test sentences are."""
    return score_texts([run], [" ".join(pair.source) for pair in test_pairs(run)]).likelihood

"""export: a run's model in other programs' forms, and such models as runs."""

from __future__ import annotations

import json
from pathlib import Path

from regard import machine
from regard.checkpoint import Folder, make_folder, write_atomically, write_tensors
from regard.data.fields import Fields, TextField
from regard.data.sources import Arpa
from regard.data.text import content_hash
from regard.data.tokens import RULES, Listed, TextTokens, Tokenizer
from regard.exchange import arpa
from regard.interface import SPECIALS, CountsNGrams, UserError
from regard.loading import load
from regard.models.ngram import Config
from regard.recipe import Recipe
from regard.tasks.language import TASK
from regard.train.training import TrainConfig, Training
from regard.train.weights import weights


def to_arpa(run: Path, path: Path) -> None:
    """The n-grams of a run as an ARPA file."""
    loaded = load(run)
    if not isinstance(loaded.model, CountsNGrams):
        raise UserError(
            f"{run} is a {loaded.recipe.model_name}, and an ARPA file holds n-grams: train model.name=ngram."
        )
    arpa.write(path, loaded.model, loaded.tokenizer("target").scheme.vocabulary)


def from_arpa(file: Path, folder: Path) -> None:
    """A new run of the n-grams in an ARPA file; its words are those between the text's spaces and stops."""
    place = Folder(folder)
    if place.config.exists() or place.best.exists():
        raise UserError(f"{folder} is a run already: choose another folder with -o.")
    words, model = arpa.read(file)
    config = Config(order=model.order)
    data = Arpa(str(file.resolve()))
    recipe = Recipe(
        task=TASK,
        seed=1,
        data_name="arpa",
        data=data,
        tokens=TextTokens(kind="words", size=0),
        model_name="ngram",
        model=config,
        train=TrainConfig(steps=1),
        folder=file.resolve().parent,
    )
    fields = Fields(
        {"target": TextField(Tokenizer("words", Listed(RULES["words"], words, len(SPECIALS))), begins=True)}
    )
    make_folder(place.path)
    facts = {
        **machine.facts(),
        "files": {"file": str(file)},
        "data": content_hash(file),
        "precision": "float32",
    }
    write_atomically(place.environment, json.dumps(facts, indent=2) + "\n")
    write_atomically(place.fields, fields.to_json())
    write_tensors(place.best, weights(model), {"step": 1})
    finished = Training(model, recipe.train, step=1)
    write_tensors(place.last, finished.tensors(), finished.facts())
    write_atomically(place.config, recipe.to_toml(placed=True))

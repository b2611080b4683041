"""Fine-tuning (transfer learning): start from another run's vocabulary, where a side is the same, and weights that fit.

A weight fits if the new model has one of that name, shape and type, if it begins with one of `parts` or there are none,
and if it does not depend on a vocabulary or on labels that have changed. Where the other run has no weight of that
name, its name there may differ (ALSO): all of a language model, without its head, is an encoder under a new head.
Learned positions of a picture's patches are interpolated where the grid has changed.
A language model of packed texts has read <eos> before each text and never <bos>, which takes the vector of <eos>.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from regard.checkpoint import Folder, refuse_another_version
from regard.data.fields import Field, Fields, LabelField, TextField
from regard.data.files import read_toml, reason
from regard.data.imported_tokens import Imported
from regard.data.sources import find
from regard.data.tensors import read_tensors
from regard.interface import BOS, EOS, Inspects, Numbered, Shapes, UserError
from regard.layers.lora import is_change, merged, plain_name
from regard.layers.pictures import refitted
from regard.models import design_of
from regard.recipe import Recipe
from regard.tasks.registry import TASKS
from regard.train.corpus import Corpus
from regard.train.weights import misfit, weights

ALSO = (  # the beginning of a weight's name here, and in the run that it comes from
    ("encoder.", ""),  # a body: embed., body.
    ("words.", "head."),  # the head of an auxiliary language model
    ("head.pool.", "follows.pool."),  # BERT's pooler, which next-sentence prediction trains
)


class Taken(NamedTuple):
    """The names of weights that are loaded, and of those that are new."""

    loaded: tuple[str, ...]
    left: tuple[str, ...]


def find_run(path: str, folder: Path) -> Folder:
    """Find the run to start from: an absolute path, or relative to the recipe's folder or the current one."""
    found = Folder(find(path, folder, Path.cwd())).must_exist()
    if not found.best.exists():
        raise UserError(f"train.from = {path!r} has no model yet: train it until its first validation.")
    return found


def read_base(base: Folder) -> tuple[Fields, bool]:
    """Read the fields of a run, and whether its texts were packed."""
    try:
        recipe = read_toml(base.config, own=True)
        task, data = TASKS[recipe["task"]], recipe["data"]
        packed = data.get("pack") is True and data.get("unit") != "file"
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as problem:
        raise UserError(f"{base.config} cannot be read ({reason(problem)}): restore it.") from None
    refuse_another_version(recipe, base.path)
    return Fields.read(base.fields, task.fields), packed


def fields_from(base: Folder, corpus: Corpus, parts: Sequence[str]) -> Fields:
    """Take the other run's vocabularies for texts that its parts read, and learn the rest from the data."""
    theirs, _ = read_base(base)
    texts = {side: field.tokenizer for side in theirs if isinstance(field := theirs[side], TextField)}
    learnt: Fields | None = None
    sides: dict[str, Field] = {}
    for place, side in enumerate(corpus.sides):
        read = not parts or place == 0 or any(part.startswith("decoder") for part in parts)
        kind = corpus.recipe.task.fields[side]
        if not issubclass(kind, TextField):
            own, names = kind.train(example[place] for example in corpus.held("train")), theirs.names()
            sides[side] = type(own)(names) if isinstance(own, LabelField) and set(names) == set(own.names) else own
        elif texts and read:
            sides[side] = kind(texts.get(side, next(iter(texts.values()))), begins=side == "target")
        else:
            learnt = learnt or corpus.learn_fields()
            sides[side] = learnt[side]
    return Fields(sides)


def sized_by(recipe: Recipe, shapes: Shapes, side: str) -> set[str]:
    """Name the weights whose shape depends on the number of tokens or labels of a side."""

    def shapes_with(size: int) -> dict[str, torch.Size]:
        sides = ("source", "target") if shapes.joint else (side,)
        other = replace(shapes, **{each: replace(vars(shapes)[each], size=size) for each in sides})
        with torch.random.fork_rng(devices=[]):
            built = design_of(recipe.model_name).build(recipe.model, other)
        return {name: tensor.shape for name, tensor in built.state_dict().items()}

    size = vars(shapes)[side].size
    one, other = shapes_with(size), shapes_with(size + 1)
    return {name for name in one if one[name] != other.get(name)}


def load_fitting(model: nn.Module, recipe: Recipe, fields: Fields, base: Folder, parts: Sequence[str] = ()) -> Taken:
    """Load the weights of the other run that fit into the model."""
    saved, (theirs, packed) = merged(read_tensors(base.best)[0]), read_base(base)
    known = [meaning(theirs[side]) for side in theirs]
    other: set[str] = set()
    for side, shape in vars(fields.shapes).items():
        if isinstance(shape, Numbered) and side in fields and meaning(fields[side]) not in known:
            other |= sized_by(recipe, fields.shapes, side)
    own_weights, reads = weights(model), theirs.shapes.source
    fitting: dict[str, Tensor] = {}
    for name, own in own_weights.items():
        plain = plain_name(name)
        if is_change(name) or plain in other or not plain.startswith(tuple(parts) or ""):
            continue
        found = next((saved[there] for there in names_of(plain) if there in saved), None)
        if found is not None:
            found = refitted(model, plain, found, reads)
            if not misfit({name: own}, {name: found}):
                fitting[name] = found
    if not fitting:
        raise UserError(
            f"Nothing of {base.path} fits {recipe.model_title}: choose the same model and sizes, "
            "or leave train.from out."
        )
    for name, found in fitting.items():
        own_weights[name].copy_(found)
    if packed and not recipe.data.pack and "source" not in theirs:
        vectors = model.inspect().vectors if isinstance(model, Inspects) else None
        for name in fitting:
            if vectors is not None and own_weights[name].data_ptr() == vectors.weight.data_ptr():  # type: ignore[operator]
                own_weights[name][BOS] = own_weights[name][EOS]
    return Taken(tuple(fitting), tuple(name for name in own_weights if name not in fitting))


def names_of(name: str) -> Iterator[str]:
    """Yield the names that a weight of this name may have in another run."""
    yield name
    yield from (there + name.removeprefix(here) for here, there in ALSO if name.startswith(here))


def share_rows(model: nn.Module, recipe: Recipe, fields: Fields) -> None:
    """Train the ids that read one row of an imported vocabulary, such as GPT-2's <bos> and <eos>, as one: each gets the
    gradient of all, so that they stay equal and the model can be exported."""
    groups: dict[str, list[list[int]]] = {}  # by the name of a weight; two sides may share one
    for side, field in fields.items():
        if (
            isinstance(field, TextField)
            and isinstance(field.tokenizer, Imported)
            and (twins := field.tokenizer.twins())
        ):
            groups |= dict.fromkeys(sized_by(recipe, fields.shapes, side), twins)
    for name, table in model.named_parameters():
        if name in groups and table.dim() > 1:
            table.register_hook(partial(_summed, groups=groups[name]))  # type: ignore[no-untyped-call]


def _summed(gradient: Tensor, *, groups: Sequence[Sequence[int]]) -> Tensor:
    gradient = gradient.clone()
    for group in groups:
        gradient[group] = gradient[group].sum(0)
    return gradient


def meaning(field: Field) -> dict[str, Any]:
    """Return what the ids of a side mean."""
    return {key: value for key, value in field.to_json().items() if key in ("tokenizer", "names")}

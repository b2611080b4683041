"""A trial: a model of one's own learns from two short examples, and writes or names them, before any data is read."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard import usercode
from regard.config import is_place
from regard.data.batches import SPELT, pad
from regard.interface import BOS, PAD, UNK, Batch, Classifies, Fits, Generates, Learns, Scores, Tags, UserError
from regard.models import design_of
from regard.models.design import Vocabulary
from regard.models.encoder_head import LABELS
from regard.predict.search import Decoding, generate
from regard.recipe import Recipe

LEARNS: dict[str, Any] = {"loss(batch)": Learns}
WRITES: dict[str, Any] = {"start(batch) and step(tokens, state)": Generates}
NEEDED: dict[str, dict[str, Any]] = {  # the promises that a task asks for
    "translation": LEARNS | WRITES,
    "language": {"loss(batch), or fit(texts) and restore(tensors)": Learns | Fits, "log_probs(batch)": Scores} | WRITES,
    "classification": LEARNS | {"classify(batch)": Classifies},
    "tagging": LEARNS | {"tag(batch)": Tags},
}
VOCAB = 100
WORDS = [[UNK + 1, UNK + 2], [UNK + 3]]  # of two examples


def try_out(recipe: Recipe) -> None:
    """Build the model, and see that one of a person's own does what its task asks for."""
    vocabulary = Vocabulary(VOCAB, VOCAB, joint=True, per_word=recipe.task == "tagging")
    model = design_of(recipe.model_name).build(recipe.model, vocabulary)
    if not is_place(recipe.model_name):
        return  # what is a person's own in it is a cell, which took a step when it was built
    file = Path(recipe.model_name)
    missing = [method for method, promise in NEEDED[recipe.task].items() if not isinstance(model, promise)]
    if missing:
        raise UserError(
            f"The model that {file} builds is none for {recipe.task}, since it lacks {' and '.join(missing)}: "
            "regard/interface.py says what they promise."
        )
    if not isinstance(model, Fits):
        with usercode.blamed(file, f"The model in {file} cannot learn from two sentences"):
            learn_and_use(model, recipe.task)


def learn_and_use(model: Any, task: str) -> None:
    batch = examples(task)
    model.train().loss(batch).objective.backward()
    model.eval()
    with torch.no_grad():
        if task == "classification":
            model.classify(batch)
        elif task == "tagging":
            model.tag(batch)
        elif task == "language":
            model.log_probs(batch)
            generate(model, Batch.of_text(torch.full((2, 1), BOS)), Decoding(beam=2), limits=torch.tensor([1, 3]))
        else:
            generate(model, Batch(batch.source), Decoding(beam=2), limits=torch.tensor([1, 3]))


def examples(task: str) -> Batch:
    source, target = pad(WORDS), pad(WORDS, begin=True)
    if task == "translation":
        return Batch(source, target)
    if task == "language":
        return Batch.of_text(target)
    if task == "classification":
        return Batch(source, torch.tensor([[LABELS], [LABELS + 1]]))
    letters = torch.ones(*source.shape, SPELT, dtype=torch.long)
    return Batch(source, torch.where(source > UNK, LABELS, PAD), spelling=letters)

"""A smoke test: before any data is read, a user's model is trained on two examples, generates, and its probability of
what it wrote is checked."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch

from regard import usercode
from regard.config import is_place
from regard.data.fields import Fields
from regard.interface import BOS, Batch, Fits, Generates, Learns, Scores, UserError, Windowed
from regard.predict.decoding import Decoding
from regard.predict.search import generate, room
from regard.recipe import Recipe
from regard.run import Run, build_model
from regard.train.corpus import by_side

WRITTEN = 9  # tokens, at most: enough steps for hypotheses to change their order


def try_out(recipe: Recipe) -> None:
    """Build the model, and check that a user-defined one has what its task needs."""
    task = recipe.task
    fields = task.learn(lambda: task.toy, task.tokens())
    model = build_model(recipe, fields)
    if not is_place(recipe.model_name):
        return  # only its cell is user-defined, and building it ran a step
    file = Path(recipe.model_name)
    missing = [method for method, promise in task.promises.items() if not isinstance(model, promise)]
    if missing:
        raise UserError(
            f"The model that {file} builds cannot be used for {task.name}, since it lacks {' and '.join(missing)}: "
            "add what regard/interface.py describes under these names."
        )
    if not isinstance(model, Fits):
        with usercode.blamed(file, f"The model in {file} cannot learn from two examples"):
            learn_and_use(Run(recipe, fields, model, torch.device("cpu"), "smoke test"))


def learn_and_use(run: Run) -> None:
    model, task, fields = run.model, run.task, run.fields
    assert isinstance(model, Learns)
    raws = by_side(fields, task.toy)
    model.train()
    model.loss(run.batch(**raws)).objective.backward()  # type: ignore[no-untyped-call]
    model.eval()
    if isinstance(model, Generates):
        check_beam(model, fields, raws)
    else:
        run.predict([example[0] for example in task.toy])


def check_beam(model: Any, fields: Fields, raws: dict[str, Any]) -> None:
    """Check that beam search and teacher forcing give an output the same probability: otherwise the state was not
    reordered with the hypotheses."""
    read = fields.encode({"source": raws["source"]} if "source" in fields else {})
    batch = fields.batch(read) if read else Batch.of_text(torch.full((2, 1), BOS))
    how = Decoding(beam=3, n_best=3, no_repeat=1)
    most = model.context if isinstance(model, Windowed) else room(model) or WRITTEN
    found = generate(model, batch, how, limits=torch.tensor([WRITTEN - 1, WRITTEN]).clamp(max=max(1, most - 1)))
    if not isinstance(model, Scores):
        return
    for row, hypotheses in enumerate(found):
        sides: dict[str, list[Any]] = {side: [arrays[row]] * len(hypotheses) for side, arrays in read.items()}
        sides["target"] = [list(hypothesis.tokens) for hypothesis in hypotheses]
        with torch.no_grad():
            forced = model.log_probs(fields.batch(sides, multiple=1))[0]  # (hypotheses, target - 1)
        for hypothesis, log_probs in zip(hypotheses, forced, strict=True):
            log_prob = float(log_probs[: len(hypothesis.tokens) + hypothesis.finished].sum())  # cut off: without <eos>
            if abs(hypothesis.log_prob - log_prob) > 1e-3 * max(1.0, abs(log_prob)):
                raise ValueError(
                    f"beam search gives an output ln p = {hypothesis.log_prob:.4f}, teacher forcing {log_prob:.4f}: "
                    "step must keep what it carries in State.carry, in tensors with a row for each hypothesis"
                )

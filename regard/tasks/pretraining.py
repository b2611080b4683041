"""pretraining: a model learns a language from plain text, by the objective that it was designed for.

A recipe of this task becomes one of masked, language or denoising when it is read, whichever its model is for.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from regard.models import MODELS
from regard.new.choices import Made, Request
from regard.new.text import new_text_model
from regard.recipe import objective_of
from regard.run import Run
from regard.score.bootstrap import paired_bootstrap
from regard.score.metrics import ACCURACY
from regard.tasks import denoising, language, masked


def new(asked: Request) -> Made:
    """A recipe for the objective of the model that was asked for."""
    model = asked.model or TASK.model
    recipe, reasons = new_text_model(replace(asked, task=objective_of(TASK, model), model=model), packed=True)
    changes = MODELS[model].objective
    reasons |= {f"model.{key}": f"pre-training of {model} needs it." for key in changes}
    return replace(recipe, task=TASK, model=replace(recipe.model, **changes)), reasons


def demo(run: Run, tuned: Run, scratch: Run) -> Iterator[str]:
    """Accuracy on unseen sentences after a few labelled ones, with and without pre-training."""
    data = tuned.recipe.data
    texts, gold = zip(*(example for _, *example in data.lines("test", tuned.recipe.folder)), strict=True)
    ours, theirs = ([answer.text for answer in each.predict(texts)] for each in (tuned, scratch))
    with_it, without, gain = paired_bootstrap(ACCURACY, ours, theirs, gold)
    labelled = len(list(data.lines("train", tuned.recipe.folder)))
    yield f"\n{len(texts)} unseen sentences, after {labelled} labelled ones:"
    yield f"  accuracy {with_it.mean:.1f} % with pre-training, {without.mean:.1f} % from scratch"
    yield f"  difference {gain.difference:+.1f} points, 95 % confidence interval {gain.low:+.1f} to {gain.high:+.1f}"
    yield "\nNext:"
    yield f'  regard predict {run.name} "The small {masked.BLANK} eats the soup ." --n-best 5'
    yield f'  regard predict {tuned.name} "{texts[0]}"'
    yield "  regard new pretraining your.txt -o bert.toml"


TASK = replace(
    masked.TASK,
    name="pretraining",
    about="English sentences from a small grammar, and the sentiment of a few of them.",
    objectives=(masked.TASK, language.TASK, denoising.TASK),
    new=new,
    demo=demo,
    stages=("demo-pretraining-tuned", "demo-pretraining-scratch"),
)

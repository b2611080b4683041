"""demo: train a model on the built-in corpus, score it and show what it does."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.options import Output, Threads, task_names
from regard.cli.shell import command, out, the_task
from regard.cli.train import follow, opened

SHORT = "rnnsearch"  # the model whose run folder is called demo, without the model's name


@command
def demo(
    task: Annotated[str, typer.Argument(help=f"The task: {', '.join(task_names())}.")] = "translation",
    model: str | None = None,  # the model; by default the one that shows the task best
    output: Output = None,  # the run folder
    threads: Threads = 0,
) -> None:
    """Train on the built-in corpus and print scores on unseen text.

    Translation: BLEU and an attention map. Language: perplexity and samples of a character-level language model.
    Classification: sentiment. Regression: lexical density. Tagging: parts of speech. Multiple choice and question
    answering: who does what, where and when. Captioning: drawn scenes, and where the model looks. Pretraining: accuracy
    after 100 labelled sentences, with and without pre-training. The model is written to a run folder.
    """
    from regard import load
    from regard.loading import demo_recipe, read_recipe, shipped

    shown = the_task(task)
    chosen = model or shown.demo_model
    recipe = demo_recipe(task, chosen)
    usual = "demo" if chosen == SHORT else f"demo-{chosen}"
    folder = output or Path("runs") / (f"demo-{task}" if shipped(f"demo-{task}").exists() else usual)
    out.print(f"Built-in corpus: {shown.about}")
    stages = {folder: recipe}
    for name in shown.stages:
        later = read_recipe(shipped(name))[0]
        if later.train.from_:
            later = replace(later, train=replace(later.train, from_=str(folder.absolute())))
        stages[folder.with_name(folder.name + name.removeprefix(f"demo-{task}"))] = later
    for place, stage in stages.items():
        if len(stages) > 1:
            out.print(f"\n{place}: {stage.task.name}")
        with opened(stage, place, threads, "cpu") as session:
            if not follow(session):
                return
    for part in shown.demo(*map(load, stages)):
        out.print(part)

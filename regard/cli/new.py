"""new: write a recipe for the user's own files."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal

import typer

from regard.cli.options import Output, task_names
from regard.cli.shell import command, err, out, the_task
from regard.config import UserError

SETTING = re.compile(r"\w+\.\w+=")


@command
def new(
    task: Annotated[str, typer.Argument(help=f"The task: {', '.join(task_names())}.")],
    files: Annotated[list[str] | None, typer.Argument(metavar="[FILES … section.key=value …]")] = None,
    # the training data: a text, a table of texts and labels, or tagged words; for translation see --source; and
    # settings that replace those that are chosen, as model.name=gpt
    source: str
    | None = None,  # translation: the file of sources; with one FILE: the field of the text, or of the words
    target: str | None = None,  # translation: the file of targets; with one FILE: the field of the label, tag or target
    second: str | None = None,  # with one FILE: the field of a second text, which is read after the first
    valid: Annotated[list[str] | None, typer.Option(metavar="A [B]")] = None,
    # the validation file, or two; by default a validation split is held out from the training data
    file: str | None = None,  # the same as FILES: one .jsonl, .tsv or .csv file
    kind: Annotated[Literal["words", "characters", "bpe"] | None, typer.Option("--tokens")] = None,
    # the kind of tokens; tagging: the first piece of a word stands for it
    unit: Literal["line", "paragraph", "file"] | None = None,  # language: what counts as one text
    model: str | None = None,  # the model; `regard models` lists them
    base: Annotated[str | None, typer.Option("--from", metavar="RUN")] = None,
    # fine-tuning: the run whose model, settings, tokens and weights to start from
    output: Output = None,  # the recipe to write; by default the task's name and .toml
) -> None:
    """Write a recipe for your data files, with settings to fit them.

    Settings are chosen from the size of the data and the speed of this machine; the recipe gives the reasons.
    """
    from regard.data.files import write_atomically
    from regard.loading import with_settings
    from regard.new.choices import Request
    from regard.new.fine_tuning import new_recipe

    chosen = the_task(task)
    output = output or Path(f"{task}.toml")
    if output.exists():
        raise UserError(f"{output} exists already: choose another name with -o, or remove it.")
    settings = [word for word in files or () if SETTING.match(word) and not Path(word).exists()]
    given = (*(word for word in files or () if word not in settings), *([file] if file else ()))
    for setting in settings:  # what is chosen depends on the model
        model = setting.partition("=")[2] if setting.startswith("model.name=") else model
    folder = output.absolute().parent.resolve()
    named = {"source": source, "target": target, "second": second, "model": model, "kind": kind, "unit": unit}
    asked = Request(chosen, given, folder, tuple(valid or ()), **named, base=base)  # type: ignore[arg-type]
    with err.status("Reading the data …"):
        recipe, reasons = new_recipe(asked)
        if other := [setting for setting in settings if not setting.startswith("model.name=")]:
            recipe = with_settings(recipe, other)
        typed = {setting.partition("=")[0] for setting in settings}
        reasons = {key: reason for key, reason in reasons.items() if key in recipe.flat().keys() - typed}
        written = recipe.to_toml(reasons=reasons)
    write_atomically(output, written)
    values = recipe.flat()
    for key, reason in reasons.items():
        out.print(f"{key} = {values[key]}: {reason}")
    checking = f"regard check {output}, then " if chosen.checked else ""
    out.print(f"\nWrote {output}. Next: {checking}regard train {output}")

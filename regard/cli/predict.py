"""predict: a trained run answers, one line in, one line out."""

from __future__ import annotations

import dataclasses
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.cli.options import Device, Json, Output, Threads, option_name, options_of
from regard.cli.shell import command, err, json_line, load_runs, write_now, written_to
from regard.config import UserError, fields_of
from regard.data.text import encodable, one_line
from regard.predict.decoding import Decoding, Prediction

if TYPE_CHECKING:
    from regard.run import Run

DRAWING = {"temperature", "top_k", "top_p"}  # giving one of these means sampling


@command
@options_of(Decoding, leave_out=("longest_source", "batch_tokens"))
def predict(
    paths: Annotated[list[Path], typer.Argument(metavar="RUN … [FILE]")],
    # a run folder, or several as one model; a file of inputs, one a line, by default standard input
    prompt: str | None = None,  # go on from this text, and show it as it is written
    output: Output = None,  # by default standard output
    conll: bool = False,  # tagging: a word and its tag a line, a blank line after each sentence
    errors: Literal["strict", "replace"] = "strict",  # what to do with bytes that are not UTF-8
    as_json: Json = False,
    threads: Threads = 0,
    device: Device = "cpu",
    **settings: Any,
) -> None:
    """Translate, go on writing, classify or tag: one line in, one line out; several runs write as one (ensemble).

    By default a translator uses beam search with a beam of 5, and a language model samples. Giving a --temperature,
    --top-k or --top-p means sampling. A line ends at "\\n" and nowhere else. What an output holds of line ends, "\\r"
    and U+2028 among them, is written as JSON escapes it: so every program counts the same lines; --json gives the text
    itself, and --prompt writes it as it is.
    """
    from regard.predict.inputs import AT_ONCE
    from regard.predict.text import most_read
    from regard.tasks import nothing

    # all but a last path that is no folder are runs
    folders, file = (paths[:-1], paths[-1]) if len(paths) > 1 and not paths[-1].is_dir() else (paths, None)
    run = as_one(load_runs(folders, threads=threads, device=device))
    task = run.task
    how = decoding(run, {key: value for key, value in settings.items() if value is not None})
    if conll and task.columns is nothing:
        raise UserError(f"--conll is for tags: {run.model_title} does not give any.")
    write_one = task.columns if conll else task.plain
    if prompt is not None:
        if task.continue_aloud is nothing:
            raise UserError(f"--prompt is for language models: {run.model_title} answers lines.")
        if file is not None:
            raise UserError("--prompt and a FILE exclude each other: give one of them.")
        if output is None and not as_json and how is not None and how.width == 1:
            with as_options():
                task.continue_aloud(run, encodable(prompt), how, lambda text: write_now(text, sys.stdout))
            write_now("\n", sys.stdout)
            return
    interactive = file is None and prompt is None and sys.stdin.isatty()
    raws = iter([encodable(prompt)]) if prompt is not None else task.inputs(file, errors)
    with written_to(output) as write, as_options():
        for number, (raw, answer) in enumerate(run.answers(raws, how, at_once=1 if interactive else AT_ONCE), start=1):
            if answer.cut:
                part = "beginning" if "source" in run.fields else "end"
                most = most_read(run.model, how)
                err.print(f"Line {number} is too long: only its {part} was read, at most {most} tokens.")
            if as_json:
                write(json_line({"line": number, **task.entry(raw, answer)}))
            elif how is not None and how.n_best > 1:
                write(ranked(number, answer))
            else:
                write(write_one(raw, answer))


def decoding(run: Run, given: dict[str, Any]) -> Decoding | None:
    """What was asked for over what the task does unless told."""
    usual = run.task.decoding
    if usual is None:
        if given:
            names = ", ".join(map(option_name, given))
            raise UserError(f"{names} does not apply: {run.model_title} writes nothing step by step.")
        return None
    if DRAWING & given.keys() and "beam" not in given:
        given = {"sample": True, **given}
    if given.get("sample"):
        given = {"beam": 1, **given}
    elif given.get("beam", 1) > 1:
        given = {"sample": False, **given}
    if not given.get("sample", usual.sample) and "n_best" in given:
        given = {"beam": max(usual.beam, given["n_best"]), **given}
    with as_options():
        return dataclasses.replace(usual, **given)


@contextmanager
def as_options() -> Iterator[None]:
    """An error that begins with a setting has settings by the names that they have as options."""
    try:
        yield
    except UserError as problem:
        names = "|".join(fields_of(Decoding))
        if not re.match(rf"({names}) ", str(problem)):
            raise
        setting = rf"\b({names})\b(?= = | and | exclude| for | needs | \()"
        text = re.sub(setting, lambda found: option_name(found[0]), str(problem))
        raise UserError(text.replace(" = ", " ")) from None


def as_one(runs: list[Run]) -> Run:
    """A run, or several that answer as one: language models by weights fitted on validation, translators alike."""
    from regard.run import mixture
    from regard.score.likelihood import fit_weights, spoken_weights

    task, weights = runs[0].task, None
    if len(runs) > 1 and task.decoding is None:
        raise UserError(f"Several runs cannot answer as one in {task.name}: give one run and a FILE.")
    if len(runs) > 1 and task.mixes:
        weights = fit_weights(runs)
        err.print(f"Weights, fitted on validation: {spoken_weights(runs, weights)}")
    return mixture(runs, weights)


def ranked(number: int, prediction: Prediction) -> str:
    """The n-best list: line, rank, score and text, with tabs between them."""
    rows = enumerate((prediction, *prediction.alternatives), start=1)
    texts = ((rank, one.score, one_line(one.text).replace("\t", "\\t")) for rank, one in rows)
    return "\n".join(f"{number}\t{rank}\t{score:.4f}\t{text}" for rank, score, text in texts)

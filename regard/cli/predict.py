"""predict: a trained run answers, one line in, one line out."""

from __future__ import annotations

import dataclasses
import json
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.cli.options import options_of
from regard.cli.shell import Device, Json, Threads, app, err, write_now, written_to
from regard.predict.decoding import Decoding

if TYPE_CHECKING:
    from regard.predict.decoding import Prediction
    from regard.run import Run

DRAWING = {"temperature", "top_k", "top_p"}  # giving one of these means sampling


@app.command()
@options_of(Decoding, "given", leave_out=("longest_source",))
def predict(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN … [FILE]",
            help="A run folder, or several as one model; a file of inputs, one a line, by default standard input.",
        ),
    ],
    given: dict[str, Any],
    prompt: Annotated[str | None, typer.Option(help="Go on from this text, and show it as it is written.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--out", help="By default standard output.")] = None,
    conll: Annotated[
        bool, typer.Option("--conll", help="Tagging: a word and its tag a line, a blank line after each sentence.")
    ] = False,
    errors: Annotated[
        Literal["strict", "replace"], typer.Option(help="What to do with bytes that are not UTF-8.")
    ] = "strict",
    as_json: Json = False,
    threads: Threads = 0,
    device: Device = "cpu",
) -> None:
    """Translate, go on writing, classify or tag: one line in, one line out; several runs write as one (ensemble).

    By default a translator uses beam search with a beam of 5, and a language model samples. Giving a --temperature,
    --top-k or --top-p means sampling. A line ends at "\\n" and nowhere else. What an output holds of line ends, "\\r"
    and U+2028 among them, is written as JSON escapes it: so every program counts the same lines; --json gives the text
    itself, and --prompt writes it as it is.
    """
    from regard import machine
    from regard.data.text import encodable
    from regard.interface import UserError
    from regard.predict.inputs import AT_ONCE
    from regard.predict.text import most_read
    from regard.tasks import nothing

    machine.use_threads(threads)
    folders, file = runs_and_file(paths)
    run = loaded_together(folders, device)
    task = run.task
    how = decoding(run, given)
    write_one = task.plain
    if conll:
        if task.columns is nothing:
            raise UserError(f"--conll is for tags: {run.model_title} does not give any.")
        write_one = task.columns
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
    with written_to(output) as write:
        for number, raw, answer in answers(run, raws, how, at_once=1 if interactive else AT_ONCE):
            if answer.cut:
                part = "beginning" if "source" in run.fields else "end"
                err.print(
                    f"Line {number} is too long: only its {part} was read, at most {most_read(run.model, how)} tokens."
                )
            if as_json:
                from regard.data.text import one_line

                write(one_line(json.dumps({"line": number, **task.entry(raw, answer)}, ensure_ascii=False)))
            elif how is not None and how.n_best > 1:
                write(ranked(number, answer))
            else:
                write(write_one(raw, answer))


def decoding(run: Run, given: dict[str, Any]) -> Decoding | None:
    """What was asked for over what the task does unless told."""
    from regard.interface import UserError

    usual = run.task.decoding
    if usual is None:
        if given:
            names = ", ".join(f"--{key.replace('_', '-')}" for key in given)
            raise UserError(f"{names} does not apply: {run.model_title} writes nothing step by step.")
        return None
    if DRAWING & given.keys() and "beam" not in given:
        given = {"sample": True, **given}
    if given.get("sample"):
        given = {"beam": 1, **given}
    elif given.get("beam", 1) > 1 or given.get("sample") is False:
        given = {"sample": False, **given}
    if not given.get("sample", usual.sample) and "n_best" in given:
        given = {"beam": max(usual.beam, given["n_best"]), **given} if "beam" not in given else given
    with as_options():
        return dataclasses.replace(usual, **given)


@contextmanager
def as_options() -> Iterator[None]:
    """An error that begins with a setting has settings by the names that they have as options."""
    from regard.interface import UserError

    try:
        yield
    except UserError as problem:
        text, names = str(problem), [field.name for field in dataclasses.fields(Decoding)]
        if text.split(" ")[0] not in names:
            raise
        for name in names:
            text = re.sub(rf"\b{name}\b(?= = | and | exclude| for | needs | \()", f"--{name.replace('_', '-')}", text)
        raise UserError(text.replace(" = ", " ")) from None


def runs_and_file(paths: list[Path]) -> tuple[list[Path], Path | None]:
    """All but a last one that is no folder are runs."""
    if len(paths) > 1 and not paths[-1].is_dir():
        return paths[:-1], paths[-1]
    return paths, None


def loaded_together(folders: list[Path], device: str) -> Run:
    """A run, or several that answer as one: language models by weights fitted on validation, translators alike."""
    from regard import load
    from regard.interface import UserError
    from regard.run import mixture
    from regard.score.likelihood import fit_weights, spoken_weights

    runs = [load(folder, device=device) for folder in folders]
    task = runs[0].task
    if len(runs) == 1:
        return runs[0]
    if task.decoding is None:
        raise UserError(f"Several runs cannot answer as one in {task.name}: give one run and a FILE.")
    if not task.mixes:
        return mixture(runs)
    weights = fit_weights(runs)
    err.print("Weights, fitted on validation: " + spoken_weights(list(map(str, folders)), weights), markup=False)
    return mixture(runs, weights)


def answers(
    run: Run, raws: Iterator[Any], how: Decoding | None, *, at_once: int
) -> Iterator[tuple[int, Any, Prediction]]:
    from regard.predict.inputs import some_at_once

    done = 0
    for chunk in some_at_once(raws, at_once):
        with as_options():
            found = run.task.answer(run, chunk, how, first_line=done)
        yield from (
            (done + place, raw, answer) for place, (raw, answer) in enumerate(zip(chunk, found, strict=True), 1)
        )
        done += len(chunk)


def ranked(number: int, prediction: Prediction) -> str:
    """The n-best list: line, rank, score and text, with tabs between them."""
    from regard.data.text import one_line

    rows = enumerate((prediction, *prediction.alternatives), start=1)
    texts = ((rank, one.score, one_line(one.text).replace("\t", "\\t")) for rank, one in rows)
    return "\n".join(f"{number}\t{rank}\t{score:.4f}\t{text}" for rank, score, text in texts)

"""predict: answer each line of input with a trained run."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.cli.options import Device, Json, Output, ProductPrecision, Threads, TrustCode, option_name, options_of
from regard.cli.shell import command, err, json_line, load_runs, out, say_if_text, write_now, written_to
from regard.config import UserError, fields_of
from regard.data.text import Cut, encodable, one_line
from regard.predict.decoding import Decoding, Prediction

if TYPE_CHECKING:
    from regard.run import Run
    from regard.tasks import Task


@command
@options_of(Decoding, leave_out=("longest_source", "batch_tokens"))
def predict(
    paths: Annotated[list[str], typer.Argument(metavar="RUN … [FILE | TEXT]")],
    # a run folder, or several (ensemble); a file of inputs, one per line, or a text; by default standard input; for
    # pictures one file or several, folders of them, tables of their names or .npz files
    lm: Path | None = None,  # speech: the run of a language model, with which transcripts are decoded
    prompt: str | None = None,  # continue this text, and show the continuation as it is generated
    output: Output = None,  # write to a file; by default standard output
    conll: bool = False,  # tagging: write one word and its tag per line, and a blank line after each sentence
    vectors: bool = False,  # write a vector per line instead of an answer: the hidden states of the input, pooled
    pool: Literal["mean", "first", "last"] = "mean",  # with --vectors: which hidden states
    errors: Literal["strict", "replace"] = "strict",  # what to do with bytes that are not UTF-8
    as_json: Json = False,
    threads: Threads = 0,
    device: Device = "cpu",
    precision: ProductPrecision = "fp32",
    trust_code: TrustCode = False,
    **settings: Any,
) -> None:
    """Predict with a run on a text or file: print one answer per line.

    Translate, continue, classify, estimate, tag, choose or find an answer; a tab separates a text, or a question, from
    what is read after it. Several runs answer as one (ensemble). What exists is a file; what does not
    exist and has no space, but a slash or a file extension, is a missing file; anything else is a text.

    By default a translator uses beam search with a beam of 5, and a language model samples. Giving a --temperature,
    --top-k or --top-p means sampling. A line ends at "\\n" and nowhere else. Line ends inside an output, "\\r" and
    U+2028 among them, are written as JSON escapes, so that every program counts the same lines; --json gives the text
    itself, and --prompt prints it unchanged.
    """
    from regard.predict.inputs import AT_ONCE, named_file, text_lines
    from regard.predict.text import most_read
    from regard.show.progress import counting_bar
    from regard.tasks import nothing

    folders, given = runs_and_inputs(paths)
    runs = load_runs(folders, threads=threads, device=device, precision=precision, trust_code=trust_code, lm=lm)
    task = runs[0].task
    reads_text = task.inputs is text_lines
    if reads_text:
        refuse_several(given)
    run = as_one(runs)
    last = given[-1] if given and reads_text else None
    how = decoding(run, {key: value for key, value in settings.items() if value is not None})
    if conll and task.columns is nothing:
        raise UserError(f"--conll is for tags: {run.model_title} gives none; leave it out.")
    write_one = task.columns if conll else task.plain
    if vectors and (prompt is not None or conll):
        raise UserError("--vectors gives no answers: leave --prompt and --conll out.")
    if prompt is not None:
        if task.stream is nothing:
            raise UserError(
                f"--prompt is for language models: {run.model_title} answers lines; give a TEXT or a FILE instead."
            )
        if last is not None:
            raise UserError("--prompt and a FILE exclude each other: give one of them.")
    file = None if last is None else named_file(last)
    files: list[Path | None] = [file] if reads_text else [Path(each) for each in given] or [None]
    text = last if file is None and last is not None else prompt
    shown_as_it_comes = not vectors and output is None and not as_json and how is not None and how.width == 1
    if text is not None and shown_as_it_comes and task.stream is not nothing:
        with as_options():
            task.stream(run, encodable(text), how, lambda some: write_now(some, sys.stdout))
        write_now("\n", sys.stdout)
        say_if_text(last)
        return
    if output and output.is_file() and os.path.realpath(output) in (os.path.realpath(each) for each in files if each):
        raise UserError(f"{output} is the input, which -o would replace: choose another name.")
    interactive = reads_text and file is None and text is None and sys.stdin.isatty()
    if interactive:
        err.print("Type a line and press Enter; Ctrl-D ends.")
    every = [iter([encodable(text)])] if text is not None else [task.inputs(each, errors) for each in files]
    raws = chain.from_iterable(every)
    # a bar would disturb answers on the screen
    watched = err.is_terminal and text is None and not (interactive or (output is None and out.is_terminal))
    total = inputs_in(task, files) if watched else None
    if vectors:
        with written_to(output) as write:
            for number, vector in enumerate(vectors_of(run, raws, pool), start=1):
                write(json_line({"line": number, "vector": vector}) if as_json else " ".join(map(str, vector)))
        return
    if not as_json and precision != "fp32":
        err.print(f"Matrix products are computed in {precision}.")
    with written_to(output) as write, counting_bar("Predicting", total, err, shown=watched) as show, as_options():
        for number, (raw, answer) in enumerate(run.answers(raws, how, at_once=1 if interactive else AT_ONCE), start=1):
            show(advance=1)
            if answer.cut or isinstance(raw, Cut):
                part = "beginning" if "source" in run.fields else "end"
                part += " of its first 1 MiB" if isinstance(raw, Cut) and part == "end" else ""
                most = most_read(run.model, how)
                err.print(f"Line {number} is too long: only its {part} was read, at most {most} tokens.")
            if as_json:
                write(json_line({"line": number, **task.entry(raw, answer), **less_exact(precision)}))
            elif how is not None and how.n_best > 1:
                write(ranked(number, answer))
            else:
                write(write_one(raw, answer))
    if file is None:
        say_if_text(last)


def less_exact(precision: str) -> dict[str, str]:
    """Name the precision in JSON, where it is not the usual one."""
    return {} if precision == "fp32" else {"precision": precision}


def vectors_of(run: Run, raws: Iterable[Any], pool: Literal["mean", "first", "last"]) -> Iterator[list[float]]:
    """Yield the vector of each input, rounded to the digits that float32 has."""
    from regard.predict.inputs import some_at_once

    for some in some_at_once(raws):
        for vector in run.embed(some, pool):
            yield [float(f"{number:.7g}") for number in vector.tolist()]


def inputs_in(task: Task, files: Sequence[Path | None]) -> int | None:
    """Count the inputs of files, or of standard input; None where one cannot be read twice."""
    for file in files:
        again = file.is_file() or file.is_dir() if file else sys.stdin.buffer.seekable()
        if not again or str(file).startswith("/dev/"):
            return None
    count = sum(1 for file in files for _ in task.inputs(file, "replace"))
    if None in files:
        sys.stdin.buffer.seek(0)
    return count


def runs_and_inputs(paths: Sequence[str]) -> tuple[list[Path], list[str]]:
    """The first path is a run, and so are those after it that are run folders; what follows them are inputs."""
    runs = (os.path.isfile(os.path.join(path, "config.toml")) for path in paths)  # a text may be too long for a name
    first = next((n for n, is_run in enumerate(runs) if n and not is_run), len(paths))
    return [Path(path) for path in paths[:first]], list(paths[first:])


def refuse_several(given: Sequence[str]) -> None:
    """Refuse more than one file or text, words of a sentence that is not in quotes, and a folder that is no run."""
    from regard.checkpoint import Folder

    words = [path for path in given if not os.path.exists(path)]
    if len(words) > 1 and not any("/" in word for word in words):
        raise UserError(f"{' '.join(given)!r} is not one argument but {len(given)}: put a text in quotes.")
    for path in given if os.path.isdir("".join(given[-1:])) else given[:-1]:
        Folder(path).must_exist()


def decoding(run: Run, given: dict[str, Any]) -> Decoding | None:
    """Return the task's default decoding with the options that were given."""
    if run.task.decoding is None:
        if given:
            names = ", ".join(map(option_name, given))
            raise UserError(f"{names} does not apply: {run.model_title} does not generate text; leave it out.")
        return None
    with as_options():
        return run.decoding(**given)


@contextmanager
def as_options() -> Iterator[None]:
    """In an error that begins with a setting, replace the names of settings by those of their options."""
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
    """Combine several runs: language models with weights fitted on validation, translators with equal ones."""
    from regard.interface import Generates
    from regard.run import mixture
    from regard.score.likelihood import fit_weights, listed_weights

    task, weights = runs[0].task, None
    if len(runs) > 1 and not all(isinstance(run.model, Generates) for run in runs):
        raise UserError(f"Several runs cannot answer as one in {task.name}: give one run and a FILE.")
    if len(runs) > 1 and task.mixes:
        weights = fit_weights(runs)
        err.print(f"Weights, fitted on validation: {listed_weights(runs, weights)}")
    return mixture(runs, weights)


def ranked(number: int, prediction: Prediction) -> str:
    """Write the n-best list: line, rank, score and text, separated by tabs."""
    rows = enumerate((prediction, *prediction.alternatives), start=1)
    texts = ((rank, one.score, one_line(one.text).replace("\t", "\\t")) for rank, one in rows)
    return "\n".join(f"{number}\t{rank}\t{score:.4f}\t{text}" for rank, score, text in texts)

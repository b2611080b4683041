"""A trained run at work: predict."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.cli.naming import predict_names
from regard.cli.shell import Device, Json, Threads, app, err, write_now, written_to

if TYPE_CHECKING:
    from regard.predict.search import Decoding, Prediction
    from regard.run import Run


@app.command()
def predict(
    paths: Annotated[
        list[Path],
        typer.Argument(
            metavar="RUN … [FILE]",
            help="A run folder, or several as one; text, one sentence or prompt a line, by default standard input.",
        ),
    ],
    prompt: Annotated[str | None, typer.Option(help="Go on from this text, and show it as it is written.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--out", help="By default standard output.")] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses kept per sentence; 1 is greedy.")] = 1,
    sample: Annotated[
        bool | None,
        typer.Option(
            "--sample/--no-sample",
            help="Draw, or take the likeliest; by default a language model draws.",
            show_default=False,
        ),
    ] = None,
    temperature: Annotated[float, typer.Option(help="Below 1 sharpens what is drawn from.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw among the k likeliest; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw among the likeliest that hold this probability.")] = 1.0,
    n_best: Annotated[int, typer.Option(help="Outputs per line: line, rank, score and text, tab-separated.")] = 1,
    length_penalty: Annotated[float, typer.Option(help="Hypotheses compete by score / length to this power.")] = 1.0,
    min_length: Annotated[int, typer.Option(help="Fewest tokens.")] = 0,
    max_length: Annotated[int, typer.Option(help="Most tokens; 0: twice the source and ten; of a text, 256.")] = 0,
    no_repeat: Annotated[int, typer.Option(help="Never write the same n tokens twice; 0: no limit.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the sampling noise.")] = 0,
    replace_unknown: Annotated[
        bool, typer.Option("--replace-unknown", help="Write the source word that an <unk> looks at, in its place.")
    ] = False,
    conll: Annotated[
        bool, typer.Option("--conll", help="Of tags: a word and its tag a line, a blank line after each sentence.")
    ] = False,
    errors: Annotated[
        Literal["strict", "replace"], typer.Option(help="What to do with bytes that are not UTF-8.")
    ] = "strict",
    as_json: Json = False,
    threads: Threads = 0,
    device: Device = "cpu",
) -> None:
    """Translate, go on writing, or name: one line in, one line out; several runs write together.

    Giving a --temperature, --top-k or --top-p means drawing. A line ends at "\\n" and nowhere else. What an output
    holds of line ends, "\\r" and U+2028 among them, is written as JSON escapes it: so every program counts the same
    lines; --json gives the text itself, and --prompt writes it as it is.
    """
    from regard import machine
    from regard.data.text import encodable, read_lines
    from regard.interface import UserError
    from regard.predict.search import Decoding, most_read, write_on

    machine.use_threads(threads)
    folders, file = runs_and_file(paths)
    loaded = loaded_together(folders, device)
    if loaded.recipe.task in ("classification", "tagging"):
        if prompt is not None or len(folders) > 1:
            raise UserError(f"{loaded.recipe.model_name} names lines: give one run and a FILE, or standard input.")
        lines = read_lines(file or sys.stdin.buffer, errors=errors)
        return predict_names(loaded, lines, output, conll=conll, as_json=as_json)
    if conll:
        raise UserError(f"--conll is for tags: {loaded.recipe.model_name} gives none.")
    language = loaded.recipe.task == "language"
    if sample is None:
        sample = beam == 1 and (language or (temperature, top_k, top_p) != (1.0, 0, 1.0))
    how = Decoding(
        beam=beam,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        n_best=n_best,
        length_penalty=length_penalty,
        min_length=min_length,
        max_length=max_length,
        no_repeat=no_repeat,
        seed=seed,
        replace_unknown=replace_unknown,
    )
    if prompt is not None:
        if not language:
            raise UserError(f"--prompt is for language models: {loaded.recipe.model_name} translates lines.")
        if file is not None:
            raise UserError("--prompt and a FILE exclude each other: give one of them.")
        if output is None and not as_json and how.width == 1:
            write_on(loaded, encodable(prompt), how, lambda text: write_now(text, sys.stdout))
            write_now("\n", sys.stdout)
            return
    interactive = file is None and sys.stdin.isatty()
    lines = read_lines(file or sys.stdin.buffer, errors=errors) if prompt is None else iter([encodable(prompt)])
    with written_to(output) as write:
        for number, prediction in predictions(loaded, lines, how, at_once=1 if interactive else 512):
            if prediction.cut:
                part, most = ("end", how.longest_source) if language else ("beginning", most_read(loaded.model, how))
                err.print(f"Line {number} is too long: only its {part} was read, at most {most} tokens.")
            write(as_text(number, prediction, n_best=n_best, as_json=as_json))


def runs_and_file(paths: list[Path]) -> tuple[list[Path], Path | None]:
    """All but a last one that is no folder are runs."""
    if len(paths) > 1 and not paths[-1].is_dir():
        return paths[:-1], paths[-1]
    return paths, None


def loaded_together(folders: list[Path], device: str) -> Run:
    """A run, or several that write as one: language models by weights fitted on validation, translators alike."""
    from regard import load
    from regard.run import mixture
    from regard.score.likelihood import fit_weights

    runs = [load(folder, device=device) for folder in folders]
    if len(runs) == 1 or runs[0].recipe.task != "language":
        return mixture(runs)
    weights = fit_weights(runs)
    err.print("Weights, fitted on validation: " + spoken_weights(folders, weights), markup=False)
    return mixture(runs, weights)


def spoken_weights(folders: list[Path], weights: Sequence[float]) -> str:
    return ", ".join(f"{folder} {weight:.3f}" for folder, weight in zip(folders, weights, strict=True)) + "."


def predictions(run: Any, lines: Iterator[str], how: Decoding, *, at_once: int) -> Iterator[tuple[int, Prediction]]:
    from itertools import islice

    from regard.predict.search import predict

    done = 0
    while chunk := list(islice(lines, at_once)):
        yield from enumerate(predict(run, chunk, how, first_line=done), start=done + 1)
        done += len(chunk)


def as_text(number: int, prediction: Prediction, *, n_best: int, as_json: bool) -> str:
    from regard.data.text import one_line

    if as_json:
        return one_line(json.dumps({"line": number, **dataclasses.asdict(prediction)}, ensure_ascii=False))
    every = (prediction, *prediction.alternatives)
    texts = [one_line(one.text) for one in every]
    if n_best == 1:
        return texts[0]
    scores = [one.score for one in every]
    columns = [text.replace("\t", "\\t") for text in texts]
    ranked = enumerate(zip(scores, columns, strict=True), start=1)
    return "\n".join(f"{number}\t{rank}\t{score:.4f}\t{text}" for rank, (score, text) in ranked)

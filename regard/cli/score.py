"""score: how good a run's answers are, and how likely texts are to it."""

from __future__ import annotations

import json
from contextlib import ExitStack
from pathlib import Path
from typing import Annotated

import typer

from regard.cli.predict import as_options
from regard.cli.shell import Device, Json, Threads, app, err, print_plain, written_to


@app.command()
def score(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN …] [FILE]", help="A run folder, or several as one model; and a file to score on."),
    ] = None,
    target: Annotated[Path | None, typer.Option(help="The references, one a line.")] = None,
    source: Annotated[Path | None, typer.Option(help="The sources, one a line.")] = None,
    system: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="A B", help="Compare two files of outputs, without a run: BLEU and a paired bootstrap."),
    ] = None,
    beam: Annotated[
        int | None,
        typer.Option(help="Hypotheses kept per sentence; by default 5, as `predict` has it.", show_default=False),
    ] = None,
    by_length: Annotated[bool, typer.Option("--by-length", help="BLEU by the number of words in the source.")] = False,
    each: Annotated[
        bool, typer.Option("--each", help="Instead: the natural log-probability of each line, <eos> included.")
    ] = False,
    align: Annotated[
        Path | None, typer.Option(help="Gold alignments, as in 0-0 1-2, one line a pair: alignment error.")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="The attending layer that --align looks at.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--out", help="Write the outputs to a file.")] = None,
    stride: Annotated[
        int, typer.Option(help="Tokens by which the window of a model that sees one moves; 0: half of it.")
    ] = 0,
    as_json: Json = False,
    threads: Threads = 0,
    device: Device = "cpu",
) -> None:
    """Score a run on a file of its training data's form, or on --source and --target.

    Translation: BLEU, chrF and TER with sacreBLEU's signatures. Language: perplexity; several runs are mixed by weights
    fitted on validation. Classification: accuracy, F1, Matthews and the confusion matrix. Tagging: entity F1.
    """
    from regard import machine
    from regard.interface import UserError

    machine.use_threads(threads)
    paths = paths or []
    if system is not None and target is not None:
        score_outputs(system, target, as_json)
        return
    files = [source, target] if source and target else paths[-1:] if len(paths) > 1 else []
    runs = paths if source and target else paths[:-1]
    if system or bool(source) != bool(target) or not runs or not files:
        raise UserError(
            "Give a RUN with --source FILE and --target FILE; one RUN or several and a FILE; "
            "or two files of outputs with --system A B and --target FILE."
        )
    if stride < 0:
        raise UserError(f"--stride {stride} is not possible: it must be at least 0.")
    score_runs(
        runs,
        [file for file in files if file],
        beam=beam,
        by_length=by_length,
        each=each,
        align=align,
        layer=layer,
        output=output,
        stride=stride,
        as_json=as_json,
        device=device,
    )


def score_runs(
    folders: list[Path],
    files: list[Path],
    *,
    beam: int | None,
    by_length: bool,
    each: bool,
    align: Path | None,
    layer: int | None,
    output: Path | None,
    stride: int,
    as_json: bool,
    device: str,
) -> None:
    from dataclasses import replace

    from regard import load
    from regard.data.fields import TextField
    from regard.data.sources import examples, parallel
    from regard.data.text import one_line, read_lines
    from regard.interface import UserError
    from regard.score.alignment import read_links
    from regard.score.result import Options
    from regard.tasks import nothing

    runs = [load(folder, device=device) for folder in folders]
    task = runs[0].task
    side_by_side = len(files) == 2 and task.fields.get("source") is TextField  # whatever it was trained on
    data = parallel(files) if side_by_side else runs[0].recipe.data.reading(files)
    if each and runs[0].whole_file:
        data = replace(data, unit="line")  # type: ignore[type-var]
    every = examples(data, "valid", Path.cwd())
    if each:
        if task.log_probs is nothing:
            raise UserError(f"--each gives log-probabilities of targets, and {task.name} has none: leave it out.")
        with written_to(output) as write:
            for value in task.log_probs(runs, every, stride):
                write(f"{value:.6f}")
        return
    if output is not None and "source" not in runs[0].fields:
        raise UserError(f"-o writes answers, and {task.name} has none: give it with --each, or leave it out.")
    how = None
    if beam is not None:
        if task.decoding is None:
            raise UserError(f"--beam does not apply: {runs[0].model_title} writes nothing step by step.")
        with as_options():
            how = replace(task.decoding, beam=beam)
    rows = list(every)
    if not rows:
        raise UserError(f"{files[0]} is empty: give at least one {task.words.example}.")
    gold = tuple(read_links(line) for line in read_lines(align)) if align else None
    names = tuple(map(str, folders))
    asked = Options(how=how, gold=gold, layer=layer, by_length=by_length, stride=stride, names=names)
    with ExitStack() as stack:
        if output is not None:
            write = stack.enter_context(written_to(output))
            asked = replace(asked, told=lambda answer: write(one_line(answer)))
        stack.enter_context(err.status("Scoring …"))
        found = task.score(runs, rows, asked)
    if as_json:
        print_plain(json.dumps(found.facts, ensure_ascii=False))
        return
    for line in found.lines:
        print_plain(line)


def score_outputs(system: tuple[Path, Path], target: Path, as_json: bool) -> None:
    """Two files of outputs beside each other."""
    from regard.data.text import read_lines
    from regard.interface import UserError
    from regard.score.bootstrap import RESAMPLES, paired_bootstrap
    from regard.score.metrics import BLEU

    references = list(read_lines(target))
    if not references:
        raise UserError(f"{target} is empty: give at least one reference.")
    outputs = []
    for path in system:
        outputs.append(list(read_lines(path)))
        if len(outputs[-1]) != len(references):
            raise UserError(
                f"{path} has {len(outputs[-1])} lines for {len(references)} references: give as many of each."
            )
    first, second, apart = paired_bootstrap(BLEU, outputs[0], outputs[1], references)
    if as_json:
        facts = {"first": first.mean, "second": second.mean, **apart._asdict(), "signature": BLEU.note()}
        print_plain(json.dumps(facts))
        return
    for path, one in zip(system, (first, second), strict=True):
        print_plain(f"BLEU {one.mean:.2f}   {path}")
    print_plain(f"p = {apart.p:.4f}   paired bootstrap, {RESAMPLES:,} resamples; {BLEU.note()}")

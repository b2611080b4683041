"""score: measure a run's answers on a test file, or the probability of texts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Device, Json, Output, ProductPrecision, Threads, TrustCode
from regard.cli.predict import decoding, less_exact
from regard.cli.shell import command, err, load_runs, out, print_json, say_if_text, written_to
from regard.config import UserError, counted
from regard.data.text import encodable, one_line, whole_lines

if TYPE_CHECKING:
    from regard.run import Run
    from regard.score.result import Scored


@command
def score(
    paths: Annotated[list[str] | None, typer.Argument(metavar="[RUN …] [FILE | TEXT]")] = None,
    # a run folder, or several (mixture); a test file, or two parallel ones; for a language model also a text
    target: Path | None = None,  # the references, one per line
    source: Path | None = None,  # the sources, one per line
    system: Annotated[tuple[Path, Path] | None, typer.Option(metavar="A B")] = None,
    # compare two files of outputs, without a run: BLEU and a paired bootstrap
    beam: int | None = None,  # beam size of beam search; by default that of `predict`
    lm: Path | None = None,  # speech: the run of a language model, with which transcripts are decoded
    lm_weight: float | None = None,  # speech: weight of the language model, β of shallow fusion
    length_reward: float | None = None,  # speech: γ, added to the score of an output for each token
    ctc_weight: float | None = None,  # speech, by attention and CTC: share of CTC in the ranking; 1: CTC alone
    by_length: bool = False,  # BLEU by the number of words in the source
    each: bool = False,  # print the natural log-probability of each line instead, <eos> included
    align: Path | None = None,  # gold alignments, as in 0-0 1-2, one line per pair, for the alignment error rate
    layer: int | None = None,  # the attention layer that --align uses
    output: Output = None,  # write the outputs to a file
    template: Annotated[str | None, typer.Option(metavar="TEXT")] = None,
    # zero-shot labels of a language model: a text with {text} and {label} in it, such as "{text} It was {label} ."
    verbalize: Annotated[list[str] | None, typer.Option(metavar="LABEL=WORDS")] = None,
    # the words of a label in the template; give the option once for each label
    calibrate: bool = False,  # with --template: take off the score that each label has with an empty text
    stride: int = 0,  # tokens by which the context window of a model that has one moves; 0: half of it
    as_json: Json = False,
    threads: Threads = 0,
    device: Device = "cpu",
    precision: ProductPrecision = "fp32",
    trust_code: TrustCode = False,
) -> None:
    """Score a run on a test file: print BLEU, perplexity or accuracy.

    The file has the format of the training data; a translator takes parallel files (--source and --target) as well as
    tables of pairs. A language model gives the log-probability of a text.

    Translation: BLEU, chrF and TER with sacreBLEU's signatures. Language: perplexity; a mixture of several runs gets
    weights fitted on validation. Classification: accuracy, F1, Matthews and confusion matrix. Tagging: entity F1.
    Regression: Pearson, Spearman, RMSE. Question answering: exact match and F1. In brackets: confidence intervals.
    A language model also classifies without training (zero-shot), by --template and --verbalize; with
    --calibrate no label has an advantage because its words are frequent.
    """
    from regard.predict.inputs import named_file
    from regard.score.alignment import read_links
    from regard.score.result import Options
    from regard.show.progress import counting_bar

    if system is not None and target is not None:
        show(scored_outputs(system, target), as_json=as_json)
        return
    paths = paths or []
    parallel_files = len(paths) > 2 and all(map(os.path.isfile, paths[-2:]))
    first = len(paths) - (0 if source and target else 2 if parallel_files else 1)  # before it, every path is a run
    folders = [Path(path) for path in paths[: max(0, first)]]
    if system or bool(source) != bool(target) or not folders:
        raise UserError(
            "Give a RUN with --source FILE and --target FILE; one RUN or several and a FILE; "
            "or two files of outputs with --system A B and --target FILE."
        )
    if not as_json and precision != "fp32":
        err.print(f"Matrix products are computed in {precision}.")
    runs = load_runs(folders, threads=threads, device=device, precision=precision, trust_code=trust_code, lm=lm)
    if template is not None or verbalize or calibrate:
        others = {
            "source": source,
            "beam": beam,
            "lm": lm,
            "by-length": by_length,
            "each": each,
            "align": align,
            "layer": layer,
        }
        if given := [name for name, value in {**others, "output": output, "stride": stride}.items() if value]:
            raise UserError(f"--{given[0]} does not go with --template: leave it out.")
        show(
            scored_labels(runs, paths[first:], template or "", verbalize or [], calibrate),
            as_json=as_json,
            precision=precision,
        )
        return
    task = runs[0].task
    answers = "source" in runs[0].fields
    files = [source, target] if source and target else [named_file(path) for path in paths[first:]]
    examples: Iterator[Any]
    if None in files:
        text = paths[-1]
        if answers:
            raise UserError(f"{text!r} is a text, and {task.name} is scored on a file, such as {task.words.file}.")
        each, examples = each or not as_json, iter([(encodable(text),)])
    else:
        examples = examples_in([file for file in files if file], runs[0], by_line=each)
    if each:
        write_each(runs, examples, stride, output)
        say_if_text(None if files[-1] else paths[-1])
        return
    if output is not None and not answers:
        raise UserError(f"-o writes answers, and {task.name} has none: give it with --each, or leave it out.")
    if beam is not None and not answers:
        raise UserError(f"--beam is for answers, and {task.name} has none: leave it out.")
    settings = {"beam": beam, "lm_weight": lm_weight, "length_reward": length_reward, "ctc_weight": ctc_weight}
    chosen = {name: value for name, value in settings.items() if value is not None}
    how = decoding(runs[0], chosen) if chosen else None
    rows = list(examples)
    if not rows:
        raise UserError(f"{files[0]} is empty: give at least one {task.words.example}.")
    gold = [read_links(line) for _, line in whole_lines(align)] if align else None
    asked = Options(how, gold, layer, by_length, stride)
    with nullcontext() if output is None else written_to(output) as write:
        lost: list[OSError] = []  # what kept answers from being written; the figure is printed all the same

        def answered(answer: str) -> None:
            show_progress(advance=1)
            if write is not None and not lost:
                try:
                    write(one_line(answer))
                except OSError as problem:
                    lost.append(problem)

        with counting_bar("Scoring", len(rows) if answers else None, err) as show_progress:
            found = task.score(runs, rows, replace(asked, on_answer=answered))
        show(found, as_json=as_json, precision=precision)
        if lost:
            raise lost[0]


def scored_labels(
    runs: Sequence[Run], files: Sequence[str], template: str, verbalize: Sequence[str], calibrate: bool
) -> Scored:
    """Score the labels that a language model gives to the texts of a table."""
    from regard.predict.inputs import named_file
    from regard.show.progress import counting_bar

    given = [each.partition("=")[::2] for each in verbalize]
    words = dict(given)
    if len(words) < len(given):
        twice = next(label for label, _ in given if [each for each, _ in given].count(label) > 1)
        raise UserError(f"The label {twice!r} was given words more than once: give --verbalize once for each label.")
    if len(runs) > 1 or len(files) != 1 or (file := named_file(files[0])) is None:
        raise UserError("A template labels the texts of one file with one run: give a RUN and a table.")
    with counting_bar("Scoring", None, err) as show_progress:
        asked = {"template": template, "verbalize": words, "calibrate": calibrate}
        return runs[0].score(file, **asked, on_answer=lambda _: show_progress(advance=1))


def examples_in(files: list[Path], run: Run, *, by_line: bool) -> Iterator[Any]:
    """Read files in the format of the training data, or parallel files; a whole file may also be read by line."""
    from regard.data.fields import TextField
    from regard.data.sources import PairTable, examples, parallel

    side_by_side = len(files) == 2 and isinstance(run.fields.get("source"), TextField)  # whatever it was trained on
    data = parallel(files) if side_by_side else run.recipe.data.reading(files)
    if isinstance(data, PairTable) and not isinstance(run.recipe.data, PairTable):
        err.print(f"{files[0]}: field {data.source!r} is taken for the source, {data.target!r} for the target.")
    if by_line and run.whole_file:
        data = replace(data, unit="line")  # type: ignore[type-var]
    return examples(data, "valid", Path.cwd(), whole=True)


def write_each(runs: Sequence[Run], examples: Iterator[Any], stride: int, output: Path | None) -> None:
    from regard.tasks import nothing

    task = runs[0].task
    if task.log_probs is nothing:
        raise UserError(f"--each gives log-probabilities of targets, and {task.name} has none: leave it out.")
    with written_to(output) as write:
        for value in task.log_probs(runs, examples, stride):
            write(f"{value:.6f}")


def scored_outputs(system: tuple[Path, Path], target: Path) -> Scored:
    """Compare two files of outputs."""
    from regard.score.bootstrap import RESAMPLES, paired_bootstrap
    from regard.score.metrics import BLEU
    from regard.score.result import Scored

    references, *outputs = ([line for _, line in whole_lines(path)] for path in (target, *system))
    if not references:
        raise UserError(f"{target} is empty: give at least one reference.")
    for path, lines in zip(system, outputs, strict=True):
        if len(lines) != len(references):
            have = f"{counted(len(lines), 'line')} for {counted(len(references), 'reference')}"
            raise UserError(f"{path} has {have}: give one line for each reference.")
    one, other, apart = paired_bootstrap(BLEU, outputs[0], outputs[1], references)
    shown = [f"BLEU {each.mean:.2f}   {path}" for each, path in zip((one, other), system, strict=True)]
    shown.append(f"p = {apart.p:.4f}   paired bootstrap, {RESAMPLES:,} resamples; {BLEU.note()}")
    return Scored(shown, {"first": one.mean, "second": other.mean, **apart._asdict(), "signature": BLEU.note()})


def show(found: Scored, *, as_json: bool, precision: str = "fp32") -> None:
    if as_json:
        print_json({**found.facts, **less_exact(precision)})
        return
    for line in found.lines:
        out.print(line)

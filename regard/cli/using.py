"""A trained run at work: predict, score and look."""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from regard.cli.shell import Device, Json, RunFolder, Threads, app, err, out, print_plain, written_to

if TYPE_CHECKING:
    from regard.predict import Decoding, Prediction
    from regard.score import Scored


@app.command()
def predict(
    run: RunFolder,
    file: Annotated[Path | None, typer.Argument(help="Text, one sentence a line; by default standard input.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--out", help="By default standard output.")] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses kept per sentence; 1 is greedy.")] = 1,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of taking the likeliest.")] = False,
    temperature: Annotated[float, typer.Option(help="Below 1 sharpens what is drawn from.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw among the k likeliest; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw among the likeliest that hold this probability.")] = 1.0,
    n_best: Annotated[int, typer.Option(help="Outputs per line: line, rank, score and text, tab-separated.")] = 1,
    length_penalty: Annotated[float, typer.Option(help="Hypotheses compete by score / length to this power.")] = 1.0,
    min_length: Annotated[int, typer.Option(help="Fewest tokens.")] = 0,
    max_length: Annotated[int, typer.Option(help="Most tokens; 0: twice the source and ten.")] = 0,
    no_repeat: Annotated[int, typer.Option(help="Never write the same n tokens twice; 0: no limit.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the sampling noise.")] = 0,
    replace_unknown: Annotated[
        bool, typer.Option("--replace-unknown", help="Write the source word that an <unk> looks at, in its place.")
    ] = False,
    errors: Annotated[
        Literal["strict", "replace"], typer.Option(help="What to do with bytes that are not UTF-8.")
    ] = "strict",
    as_json: Json = False,
    threads: Threads = 0,
    device: Device = "cpu",
) -> None:
    """Translate: one line in, one line out.

    A line ends at "\\n" and nowhere else. What an output holds of line ends, "\\r" and U+2028 among them, is written
    as JSON escapes it, so that every program counts the same lines; --json gives the text itself.
    """
    from regard import load, machine
    from regard.data.text import read_lines
    from regard.predict import Decoding, most_read

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
    machine.use_threads(threads)
    loaded = load(run, device=device)
    interactive = file is None and sys.stdin.isatty()
    lines = read_lines(file or sys.stdin.buffer, errors=errors)
    with written_to(output) as write:
        for number, prediction in predictions(loaded, lines, how, at_once=1 if interactive else 512):
            if prediction.cut:
                most = most_read(loaded.model, how)
                err.print(f"Line {number} is too long: only its beginning was read, at most {most} tokens.")
            write(as_text(number, prediction, n_best=n_best, as_json=as_json))


def predictions(run: Any, lines: Iterator[str], how: Decoding, *, at_once: int) -> Iterator[tuple[int, Prediction]]:
    from itertools import islice

    from regard.predict import predict

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


@app.command()
def score(
    target: Annotated[Path, typer.Option(help="The references, one a line.")],
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="A run folder, such as runs/demo.")] = None,
    source: Annotated[Path | None, typer.Option(help="The sources, one a line.")] = None,
    system: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="A B", help="Compare two files of outputs, without a run: BLEU and a paired bootstrap."),
    ] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses kept per sentence; 1 is greedy.")] = 5,
    by_length: Annotated[bool, typer.Option("--by-length", help="BLEU by the number of words in the source.")] = False,
    each: Annotated[
        bool, typer.Option("--each", help="Instead: ln p(reference | source) of each line, <eos> included.")
    ] = False,
    align: Annotated[
        Path | None, typer.Option(help="Gold alignments, as in 0-0 1-2, one line a pair: alignment error.")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="The attending layer that --align looks at.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--out", help="Write the outputs to a file.")] = None,
    as_json: Json = False,
    threads: Threads = 0,
    device: Device = "cpu",
) -> None:
    """How good a run's translations are: BLEU and chrF, with sacreBLEU's signatures."""
    from regard import load, machine
    from regard.data.text import one_line, read_lines
    from regard.interface import UserError
    from regard.predict import Decoding
    from regard.score import compare, log_probabilities, read_links
    from regard.score import score as score_run

    references = list(read_lines(target))
    if not references:
        raise UserError(f"{target} is empty: give at least one reference.")
    if system is not None:
        first, second = (same_count(list(read_lines(path)), references, path) for path in system)
        compared = compare(first, second, references)
        if as_json:
            print_plain(json.dumps(compared._asdict()))
        else:
            for path, value in zip(system, compared[:2], strict=True):
                print_plain(f"BLEU {value:.2f}   {path}")
            print_plain(f"p = {compared.p:.4f}   {compared.signature}")
        return
    if run is None or source is None:
        raise UserError("Give a RUN and --source FILE, or two files of outputs with --system A B.")
    machine.use_threads(threads)
    loaded = load(run, device=device)
    sources = same_count(list(read_lines(source)), references, source)
    if each:
        for value in log_probabilities(loaded, list(zip(sources, references, strict=True))):
            print_plain(f"{value:.6f}")
        return
    gold = [read_links(line) for line in read_lines(align)] if align else None
    with err.status("Translating …"):
        scored = score_run(loaded, sources, references, how=Decoding(beam=beam), gold=gold, layer=layer)
    if output is not None:
        with written_to(output) as write:
            for line in scored.outputs:
                write(one_line(line))
    if as_json:
        print_plain(json.dumps({"beam": beam, "sentences": len(sources), **without_outputs(scored)}))
        return
    for name, found in (("BLEU", scored.bleu), ("BLEU", scored.bleu_lowercase), ("chrF", scored.chrf)):
        print_plain(f"{name} {found.value:6.2f}   {found.signature}")
    if gold is not None:
        error = "does not attend" if scored.alignment_error is None else f"{scored.alignment_error:.3f}"
        print_plain(f"alignment error {error}   (guessing the diagonal: {scored.diagonal_error:.3f})")
    for bucket in scored.by_length if by_length else ():
        words = f"{bucket.shortest}-{bucket.longest}" if bucket.longest else f"{bucket.shortest} or more"
        print_plain(f"{words:>10} words   {bucket.sentences:6,} sentences   BLEU {bucket.bleu:6.2f}")


def same_count(lines: list[str], references: list[str], path: Path) -> list[str]:
    from regard.interface import UserError

    if len(lines) != len(references):
        raise UserError(f"{path} has {len(lines)} lines for {len(references)} references: give as many of each.")
    return lines


def without_outputs(scored: Scored) -> dict[str, Any]:
    named = {"bleu": scored.bleu, "bleu_lowercase": scored.bleu_lowercase, "chrf": scored.chrf}
    scores = {name: found._asdict() for name, found in named.items()}
    errors = {"alignment_error": scored.alignment_error, "diagonal_error": scored.diagonal_error}
    return {**scores, **errors, "by_length": [bucket._asdict() for bucket in scored.by_length]}


@app.command()
def look(
    run: RunFolder,
    sentence: Annotated[str, typer.Argument(help="A source sentence; with --html also a file of them, one a line.")],
    target: Annotated[str | None, typer.Option(help="Its translation; by default the model's own.")] = None,
    layer: Annotated[
        int | None, typer.Option(help="Of several attending layers, this one; by default their mean.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--out", help="Write the picture as an SVG file.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write every layer and head as one HTML file that opens anywhere.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What the model looks at while it translates a sentence."""
    from regard import load
    from regard.data.text import encodable, one_line
    from regard.look import look as look_at
    from regard.look import look_closely
    from regard.page import page
    from regard.render import heat_map, svg

    loaded = load(run)
    written = target and encodable(target)
    if html is not None:
        with written_to(html) as write:
            pages = [look_closely(loaded, text, written) for text in sentences_in(sentence)]
            write(page(pages, title=f"What {loaded.recipe.model_name} looks at"))
        return
    seen = look_at(loaded, encodable(sentence), written, layer=layer)
    if output is not None:
        with written_to(output) as write:
            write(svg(seen).removesuffix("\n"))
    elif as_json:
        entry = {"source": seen.source, "target": seen.target, "kind": seen.kind}
        print_plain(one_line(json.dumps({**entry, "weights": seen.weights.round(6).tolist()}, ensure_ascii=False)))
    else:
        out.print(heat_map(seen, width=out.width))


def sentences_in(text: str) -> list[str]:
    """The sentence itself, or the lines of the file of that name, those that are not blank."""
    from regard.data.text import encodable, read_lines
    from regard.interface import UserError

    if len(text) > 255 or "\0" in text or not Path(text).is_file():
        return [encodable(text)]
    lines = [line for line in read_lines(text) if line.strip()]
    if not lines:
        raise UserError(f"{text} has no sentence: give one with text in it.")
    return lines

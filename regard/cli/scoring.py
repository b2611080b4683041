"""score: how good translations are, and how likely a text is."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, NamedTuple

import typer

from regard.cli.naming import score_names
from regard.cli.shell import Device, Json, Threads, app, err, print_plain, written_to
from regard.cli.using import spoken_weights

if TYPE_CHECKING:
    from regard.score.translation import Scored


@app.command()
def score(
    paths: Annotated[
        list[Path] | None,
        typer.Argument(metavar="[RUN …] [FILE]", help="A run folder; for language models several as one, and a text."),
    ] = None,
    target: Annotated[Path | None, typer.Option(help="The references, one a line.")] = None,
    source: Annotated[Path | None, typer.Option(help="The sources, one a line.")] = None,
    system: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="A B", help="Compare two files of outputs, without a run: BLEU and a paired bootstrap."),
    ] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses kept per sentence; 1 is greedy.")] = 5,
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
        int, typer.Option(help="Of a model that sees a window: tokens by which it moves; 0: half of the window.")
    ] = 0,
    as_json: Json = False,
    threads: Threads = 0,
    device: Device = "cpu",
) -> None:
    """How good a run is. Of translations, BLEU and chrF with sacreBLEU's signatures: give --source and --target. Of a
    text, perplexity: give the text, after one run or several, which are then mixed by weights fitted on validation. Of
    labels, accuracy, F1 and who was taken for whom; of tags, entity F1: give a file of the training data's form.
    """
    from regard import machine
    from regard.interface import UserError

    machine.use_threads(threads)
    paths = paths or []
    if system is not None and target is not None:
        score_outputs(system, target, as_json)
    elif source is not None and target is not None and len(paths) == 1:
        outs = Outs(by_length=by_length, each=each, output=output, as_json=as_json)
        score_translations(paths[0], source, target, beam=beam, align=align, layer=layer, device=device, outs=outs)
    elif len(paths) > 1 and not (source or target or system):
        score_text(paths[:-1], paths[-1], each=each, stride=stride, as_json=as_json, device=device)
    else:
        raise UserError(
            "Give a RUN with --source FILE and --target FILE; one RUN or several and a text FILE; "
            "or two files of outputs with --system A B and --target FILE."
        )


class Outs(NamedTuple):
    """What to show of a score, and how."""

    by_length: bool
    each: bool
    output: Path | None
    as_json: bool


def score_outputs(system: tuple[Path, Path], target: Path, as_json: bool) -> None:
    """Two files of outputs beside each other."""
    from regard.data.text import read_lines
    from regard.score.translation import compare

    references = references_in(target)
    first, second = (same_count(list(read_lines(path)), references, path) for path in system)
    compared = compare(first, second, references)
    if as_json:
        print_plain(json.dumps(compared._asdict()))
        return
    for path, value in zip(system, compared[:2], strict=True):
        print_plain(f"BLEU {value:.2f}   {path}")
    print_plain(f"p = {compared.p:.4f}   {compared.signature}")


def score_translations(
    run: Path,
    source: Path,
    target: Path,
    *,
    beam: int,
    align: Path | None,
    layer: int | None,
    device: str,
    outs: Outs,
) -> None:
    from regard import load
    from regard.data.text import one_line, read_lines
    from regard.predict.search import Decoding
    from regard.score.translation import log_probabilities, read_links
    from regard.score.translation import score as score_run

    references = references_in(target)
    loaded = load(run, device=device)
    sources = same_count(list(read_lines(source)), references, source)
    if outs.each:
        for value in log_probabilities(loaded, list(zip(sources, references, strict=True))):
            print_plain(f"{value:.6f}")
        return
    gold = [read_links(line) for line in read_lines(align)] if align else None
    with err.status("Translating …"):
        scored = score_run(loaded, sources, references, how=Decoding(beam=beam), gold=gold, layer=layer)
    if outs.output is not None:
        with written_to(outs.output) as write:
            for line in scored.outputs:
                write(one_line(line))
    if outs.as_json:
        print_plain(json.dumps({"beam": beam, "sentences": len(sources), **without_outputs(scored)}))
        return
    for name, found in (("BLEU", scored.bleu), ("BLEU", scored.bleu_lowercase), ("chrF", scored.chrf)):
        print_plain(f"{name} {found.value:6.2f}   {found.signature}")
    if gold is not None:
        error = "does not attend" if scored.alignment_error is None else f"{scored.alignment_error:.3f}"
        print_plain(f"alignment error {error}   (guessing the diagonal: {scored.diagonal_error:.3f})")
    for bucket in scored.by_length if outs.by_length else ():
        words = f"{bucket.shortest}-{bucket.longest}" if bucket.longest else f"{bucket.shortest} or more"
        print_plain(f"{words:>10} words   {bucket.sentences:6,} sentences   BLEU {bucket.bleu:6.2f}")


def references_in(target: Path) -> list[str]:
    from regard.data.text import read_lines
    from regard.interface import UserError

    references = list(read_lines(target))
    if not references:
        raise UserError(f"{target} is empty: give at least one reference.")
    return references


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


def score_text(folders: list[Path], file: Path, *, each: bool, stride: int, as_json: bool, device: str) -> None:
    from regard import load
    from regard.data.sources import texts_of
    from regard.data.text import read_lines
    from regard.interface import UserError
    from regard.score.likelihood import fit_weights, score_texts

    if stride < 0:
        raise UserError(f"--stride {stride} is not possible: it must be at least 0.")
    runs = [load(folder, device=device) for folder in folders]
    if runs[0].recipe.task in ("classification", "tagging"):
        if len(runs) > 1 or each:
            raise UserError("Names are scored one run at a time, without --each: give one RUN and a FILE.")
        return score_names(runs[0], file, as_json=as_json)
    with err.status("Reading …"):
        weights = fit_weights(runs, stride=stride) if len(runs) > 1 else (1.0,)
        if each:  # a line at a time, also under a model of whole files
            lines = list(read_lines(file))
            for few in [[line] for line in lines] if runs[0].whole_file else [lines]:
                for values in score_texts(runs, few, stride=stride, weights=weights).each:
                    print_plain(f"{values.sum():.6f}")
            return
        texts = list(texts_of(file, runs[0].unit))
        scored = score_texts(runs, texts, stride=stride, weights=weights)
    found = scored.likelihood
    if not found.tokens:
        raise UserError(f"{file} is empty: give at least one line of text.")
    made = {
        "perplexity_per_token": found.per_token,
        "perplexity_per_word": found.per_word,
        "bits_per_character": found.bits_per_character,
    }
    if as_json:
        shares = {str(folder): weight for folder, weight in zip(folders, scored.weights, strict=True)}
        print_plain(json.dumps({**made, **dataclasses.asdict(found), "weights": shares}))
        return
    if len(runs) > 1:
        print_plain("weights, fitted on validation: " + spoken_weights(folders, scored.weights))
    ends = f", {found.ends:,} of them <eos>" if found.ends else ""
    print_plain(
        f"perplexity per token {found.per_token:10.3f}   {found.tokens:,} tokens{ends}, {found.unknown:,} <unk>"
    )
    with_ends = f" and {found.ends:,} ends" if found.ends else ""
    print_plain(f"perplexity per word  {found.per_word:10.3f}   {found.words:,} words{with_ends}")
    print_plain(f"bits per character   {found.bits_per_character:10.4f}   {found.characters:,} characters")
    seen = (
        "everything before it in its text"
        if found.context is None
        else f"{found.context} tokens, stride {found.stride}"
    )
    print_plain(f"context              {seen}")

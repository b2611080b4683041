"""look: show attention, gates, gradients or nearest neighbours of a trained run."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Json, Output, RunFolder, Threads, TrustCode
from regard.cli.shell import command, err, load_runs, out, print_json, say_if_text, show_table, written_to
from regard.config import UserError, counted
from regard.data.text import encodable

if TYPE_CHECKING:
    from regard.look.gradients import Reach, Stage
    from regard.run import Run

Write = Callable[[str], None]  # into a file
TAKES = {  # the options that each mode takes
    "": {"a sentence", "--target", "--layer", "--out", "--html", "--json"},
    "--gates": {"a sentence", "--target", "--html", "--json"},
    "--gradients": {"--length", "--html", "--json"},
    "--neighbours": {"--count", "--json"},
}


@command
def look(
    run: RunFolder,
    sentence: Annotated[str | None, typer.Argument()] = None,
    # a text, or a file of texts, one per line: its first line, with --html all of them; for pictures a file, a folder
    # or FILE.npz:3
    target: str | None = None,  # the translation of the sentence; by default the model's own
    layer: int | None = None,  # show this attention layer; by default the mean of several
    gates: bool = False,  # show what the gates of a recurrent model let in, keep and output at each token
    gradients: bool = False,  # show how far back gradients reach in a recurrent model, on its validation text
    length: int | None = None,  # with --gradients: tokens back, at most; by default 100
    neighbours: Annotated[str | None, typer.Option(metavar="WORD")] = None,
    # show the nearest neighbours of this word: the tokens with the most similar embeddings
    count: int | None = None,  # with --neighbours: how many; by default 10
    output: Output = None,  # write the picture as an SVG file
    html: Path | None = None,  # write every layer and head, unit or curve as one HTML file that opens offline
    as_json: Json = False,
    threads: Threads = 0,
    trust_code: TrustCode = False,
) -> None:
    """Show what a run attends to in a text: a heat map or a page.

    Attention weights, or saliency where a model has none; --gates shows a recurrent model's gates, --gradients how far
    back gradients reach, --neighbours the nearest word vectors. What exists is a file; what does not exist and has
    no space, but a slash or a file extension, is a missing file; anything else is a text.
    """
    asked = {"--gates": gates, "--gradients": gradients, "--neighbours": neighbours is not None}
    ways = [name for name, wanted in asked.items() if wanted]
    if len(ways) > 1:
        raise UserError(f"{' and '.join(ways)} exclude each other: give one of them.")
    way = "".join(ways)
    texts = {"a sentence": sentence, "--target": target, "--out": output, "--html": html}
    refuse_others(way, {**texts, "--layer": layer, "--length": length, "--count": count, "--json": as_json or None})
    if html is not None and as_json:
        raise UserError("--html and --json exclude each other: give one of them.")
    if sentence is None and way in ("", "--gates"):
        raise UserError("There is no sentence to look at: give one, or --gradients, or --neighbours WORD.")
    (loaded,) = load_runs([run], threads=threads, trust_code=trust_code)
    texts = [] if sentence is None else loaded.task.given(sentence)
    file = output if html is None else html
    with nullcontext() if file is None else written_to(file) as write:
        page = None if html is None else write
        if neighbours is not None:
            show_neighbours(loaded, neighbours, count, as_json)
        elif gradients:
            show_gradients(loaded, length, page, as_json)
        elif gates:
            show_gates(loaded, texts, target and encodable(target), page, as_json)
        else:
            show_attention(loaded, texts, target and encodable(target), layer, write, page, as_json)
    if sentence is not None:
        say_what_was_shown(loaded, sentence, texts, every=html is not None)


def refuse_others(way: str, given: Mapping[str, object]) -> None:
    """Refuse options that this mode does not take."""
    for name, value in given.items():
        if value is not None and name not in TAKES[way]:
            owners = [other for other, takes in TAKES.items() if name in takes]
            remedy = "leave it out" if way else f"it belongs to {owners[0]}"
            raise UserError(f"{way or 'look'} does not take {name}: {remedy}.")


def say_what_was_shown(run: Run, given: str, texts: list[Any], *, every: bool) -> None:
    """Print what could surprise: only a file's first line was shown, or a text could be the name of a file."""
    from regard.predict.inputs import typed_text

    if len(texts) > 1 and not every and run.task.given is typed_text:
        err.print(f"{given} is a file: this is the first of its {len(texts):,} lines; --html shows all of them.")
    elif len(texts) > 1 and not every:
        amount = counted(len(texts), run.task.words.example)
        err.print(f"{given} has {amount}: this is the first of them; --html shows all.")
    elif run.task.given is typed_text and not os.path.exists(given):
        say_if_text(given)


def show_attention(
    run: Run,
    texts: list[Any],
    target: str | None,
    layer: int | None,
    svg: Write | None,
    page: Write | None,
    as_json: bool,
) -> None:
    from regard.tasks import nothing

    task = run.task
    if task.look is nothing:
        remedy = "try --gates and --gradients for a recurrent model, or --neighbours WORD"
        raise UserError(f"There is no attention to look at in {task.name}: {remedy}.")
    if page:
        pages = [task.look_closely(run, text, target) for text in texts]
        page(task.page(pages, title=f"What {run.model_title} attends to"))
        return
    seen = task.look(run, texts[0], target, layer)
    if svg:
        svg(seen.svg().removesuffix("\n"))
    elif as_json:
        print_json(seen.facts())
    else:
        out.print(seen.text(out.width))


def show_gates(run: Run, texts: list[Any], target: str | None, page: Write | None, as_json: bool) -> None:
    from regard.look.gates import WORDS, carried, carried_closely
    from regard.show.attention_page import attention_page
    from regard.show.colours import LEGEND
    from regard.show.heat_map import gate_map

    if page:
        pages = [carried_closely(run, text, target) for text in texts]
        page(attention_page(pages, title=f"Gates and states of {run.model_title}", words=WORDS))
        return
    seen = carried(run, texts[0], target)
    if as_json:
        layers = [
            {"layer": layer.name, "tokens": layer.tokens}
            | {
                part: {name: values.round(6).tolist() for name, values in named.items()}
                for part, named in (("means", layer.means()), ("gates", layer.gates), ("states", layer.states))
            }
            for layer in seen.layers
        ]
        print_json({"text": seen.text, "output": seen.output, "layers": layers})
        return
    if seen.output:
        out.print(f"→ {seen.output}")
    for part in seen.layers:
        out.print(gate_map(part.name, part.tokens, part.means()))
    out.print(f"mean over the units: {LEGEND}", style="dim")


def show_gradients(run: Run, length: int | None, page: Write | None, as_json: bool) -> None:
    from regard.look.gradient_report import gradient_sections, norm_chart, summary
    from regard.look.gradients import LENGTH, reach
    from regard.show.line_chart import chart_page
    from regard.show.text_plot import text_plot, text_table

    found = reach(run, length=LENGTH if length is None else length)
    if page:
        title, foot = f"How far back gradients reach in {found.model}", "In float64, without dropout. Made with regard."
        page(chart_page(gradient_sections(found), title=title, about=summary(found), foot=foot))
        return
    if as_json:
        print_json(numbers(found))
        return
    out.print(summary(found), soft_wrap=False)
    for layer in found.layers:
        out.print(f"\n{layer}: gradient norm by distance in tokens; lower case before training, upper case after")
        out.print(text_plot(norm_chart(found, layer, clipped=False).curves, width=out.width), end="")
    for section in gradient_sections(found):
        if section.rows:
            out.print(f"\n{section.title}")
            out.print(text_table(section.rows), end="")


def numbers(found: Reach) -> Any:
    """Return all numbers in a form that JSON can hold."""
    from regard.show.text import tidy

    def stage(at: Stage) -> dict[str, Any]:
        flow = at.flow
        return {
            "gradient": at.gradient,
            "clip_factor": at.factor,
            "gradient_norms": [{**asdict(each), "slope": each.slope} for each in flow.gradient_norms],
            "singular_values": [asdict(spectrum) for spectrum in flow.spectra],
            "gates": [{**asdict(gate), "mean": gate.mean} for gate in flow.gates],
        }

    head = {"model": found.model, "rows": found.rows, "length": found.length, "clip": found.clip}
    return tidy({**head, "before": stage(found.before), "after": stage(found.after)})


def show_neighbours(run: Run, word: str, count: int | None, as_json: bool) -> None:
    from regard.look.neighbours import COUNT, neighbours

    found = neighbours(run, encodable(word), count=COUNT if count is None else count)
    if as_json:
        print_json(asdict(found))
    else:
        show_table([{"near": each.word, "cosine": f"{each.cosine:.3f}"} for each in found.nearest])

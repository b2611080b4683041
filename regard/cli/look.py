"""look: show attention, steps of a decode, gates, gradients or nearest neighbours of a trained run."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import nullcontext
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import Json, Output, RunFolder, Threads, TrustCode
from regard.cli.predict import as_options
from regard.cli.shell import command, err, load_runs, out, print_json, say_if_text, show_table, written_to
from regard.config import UserError, counted
from regard.data.text import encodable

if TYPE_CHECKING:
    from regard.look.gradients import Reach, Stage
    from regard.look.steps import Candidate, Tree
    from regard.run import Run

Write = Callable[[str], None]  # into a file
TAKES = {  # the options that each mode takes
    "": {"a sentence", "--target", "--layer", "--out", "--html", "--json"},
    "--steps": {"a sentence", "--beam", "--force", "--json"},
    "--gates": {"a sentence", "--target", "--html", "--json"},
    "--gradients": {"--length", "--html", "--json"},
    "--neighbours": {"--count", "--json"},
}


@command
def look(
    run: RunFolder,
    sentence: Annotated[str | None, typer.Argument()] = None,
    # a text, or a file of texts, one per line: its first line, with --html all of them; for pictures a file, a folder
    # or FILE.npz:3; for recordings a file or a folder
    target: str | None = None,  # the translation of the sentence; by default the model's own
    layer: int | None = None,  # show this attention layer; by default the mean of several
    steps: bool = False,  # show a decode step by step: the likeliest tokens, the choice, the tree of beam search
    beam: int | None = None,  # with --steps: beam size of beam search, 1: greedy decoding; by default as in predict
    force: str | None = None,  # with --steps: the output begins with this text
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

    Attention weights, or saliency where a model has none; --steps shows a decode step by step, --gates a recurrent
    model's gates, --gradients how far back gradients reach, --neighbours the nearest word vectors. What exists is a
    file; what does not exist and has no space, but a slash or a file extension, is a missing file; anything else is a
    text.
    """
    asked = {"--steps": steps, "--gates": gates, "--gradients": gradients, "--neighbours": neighbours is not None}
    ways = [name for name, wanted in asked.items() if wanted]
    if len(ways) > 1:
        raise UserError(f"{' and '.join(ways)} exclude each other: give one of them.")
    way = "".join(ways)
    texts = {"a sentence": sentence, "--target": target, "--out": output, "--html": html}
    numbers = {"--layer": layer, "--beam": beam, "--length": length, "--count": count}
    refuse_others(way, {**texts, "--force": force, **numbers, "--json": as_json or None})
    if html is not None and as_json:
        raise UserError("--html and --json exclude each other: give one of them.")
    if sentence is None and "a sentence" in TAKES[way]:
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
        elif steps:
            show_steps(loaded, texts[0], beam, force, as_json)
        elif gates:
            show_gates(loaded, texts, target and encodable(target), page, as_json)
        else:
            show_attention(loaded, texts, target and encodable(target), layer, write, page, as_json)
    if sentence is not None:
        say_what_was_shown(loaded, sentence, texts, every=html is not None, pages="--html" in TAKES[way])


def refuse_others(way: str, given: Mapping[str, object]) -> None:
    """Refuse options that this mode does not take."""
    for name, value in given.items():
        if value is not None and name not in TAKES[way]:
            owners = [other for other, takes in TAKES.items() if name in takes]
            remedy = "leave it out" if way else f"it belongs to {owners[0]}"
            raise UserError(f"{way or 'look'} does not take {name}: {remedy}.")


def say_what_was_shown(run: Run, given: str, texts: list[Any], *, every: bool, pages: bool) -> None:
    """Print what could surprise: only a file's first line was shown, or a text could be the name of a file."""
    from regard.predict.inputs import typed_text

    if len(texts) > 1 and not every and run.task.given is typed_text:
        others = "; --html shows all of them" if pages else ""
        err.print(f"{given} is a file: this is the first of its {len(texts):,} lines{others}.")
    elif len(texts) > 1 and not every:
        amount, others = counted(len(texts), run.task.words.example), "; --html shows all" if pages else ""
        err.print(f"{given} has {amount}: this is the first of them{others}.")
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
    from regard.look.weights import inside
    from regard.tasks import nothing

    task = run.task
    if task.look is nothing:
        remedy = "try --gates and --gradients for a recurrent model, or --neighbours WORD"
        raise UserError(f"There is no attention to look at in {task.name}: {remedy}.")
    if page:
        pages = [task.look_closely(run, text, target) for text in texts]
        does = "attends to" if inside(run.model).attentions else "responds to"
        page(task.page(pages, title=f"What {run.model_title} {does}"))
        return
    seen = task.look(run, texts[0], target, layer)
    if svg:
        svg(seen.svg().removesuffix("\n"))
    elif as_json:
        print_json(seen.facts())
    else:
        out.print(seen.text(out.width))


def show_steps(run: Run, raw: Any, beam: int | None, force: str | None, as_json: bool) -> None:
    from regard.look.steps import steps, tokens_of
    from regard.predict.text import generating
    from regard.show.text import fixed, visible

    generating(run)
    with as_options():
        how = None if beam is None else run.decoding(beam=beam, sample=False)
    found = steps(run, raw, how, [] if force is None else tokens_of(run, encodable(force)))
    if as_json:
        print_json(found.facts())
        return
    show_table(
        [
            {
                "step": number,
                "previous": visible(step.previous),
                "chosen": f"{candidate(step.chosen)}{' (forced)' if step.forced else ''}",
                "likeliest": "  ".join(map(candidate, step.likely)),
            }
            for number, step in enumerate(found.steps, start=1)
        ],
        wrapped=["likeliest"],
    )
    if found.tree is not None and found.tree.width > 1:
        out.print(f"\nThe {found.tree.width} hypotheses of beam search, with their log-probabilities")
        for line in tree_lines(found.tree):
            out.print(line)
    cut = "" if found.finished else f"; it was cut off after {counted(len(found.steps), 'token')}"
    out.print(f"\n→ {found.text}")
    out.print(f"log-probability {fixed(found.score, 4)}{cut}", style="dim")
    if found.note:
        out.print(found.note)


def candidate(each: Candidate) -> str:
    from regard.show.text import short, visible

    return f"{visible(each.token)} {short(each.probability)}"


def tree_lines(tree: Tree) -> Iterator[str]:
    """Yield the tree of beam search as indented text."""
    from regard.show.outline import outline
    from regard.show.text import fixed, visible

    parents = {node.parent for node in tree.nodes}
    ends = {}
    for node in tree.nodes:
        marks = [fixed(node.log_prob, 2)]
        if node.score is not None:
            marks.append(f"score {fixed(node.score, 2)}")
        if node.id not in parents and (node.best or not node.kept):
            marks.append("best" if node.best else "pruned")
        ends[node.id] = ", ".join(marks)
    return outline([node.parent for node in tree.nodes], [visible(node.token) for node in tree.nodes], ends)


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

"""Into a trained run: look."""

from __future__ import annotations

import contextlib
import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.shell import Json, RunFolder, Threads, app, out, print_plain, show_table, written_to

if TYPE_CHECKING:
    from regard.look.gradients import Reach
    from regard.run import Run

TAKES = {  # which options each way of looking understands
    "": {"a sentence", "--target", "--layer", "--out", "--html", "--json"},
    "--gates": {"a sentence", "--target", "--html", "--json"},
    "--gradients": {"--length", "--html", "--json"},
    "--neighbours": {"--count", "--json"},
}


@app.command()
def look(
    run: RunFolder,
    sentence: Annotated[
        str | None, typer.Argument(help="A source sentence, or a text; with --html also a file of them, one a line.")
    ] = None,
    target: Annotated[str | None, typer.Option(help="Its translation; by default the model's own.")] = None,
    layer: Annotated[
        int | None, typer.Option(help="Of several attending layers, this one; by default their mean.")
    ] = None,
    gates: Annotated[
        bool, typer.Option("--gates", help="What a recurrent model lets in, keeps and shows at each token.")
    ] = False,
    gradients: Annotated[
        bool, typer.Option("--gradients", help="How far back a recurrent model feels a loss, in its validation text.")
    ] = False,
    length: Annotated[int | None, typer.Option(help="With --gradients: tokens back, at most; by default 100.")] = None,
    neighbours: Annotated[
        str | None, typer.Option(metavar="WORD", help="The tokens whose vectors are nearest to this one's.")
    ] = None,
    count: Annotated[int | None, typer.Option(help="With --neighbours: how many; by default 10.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--out", help="Write the picture as an SVG file.")] = None,
    html: Annotated[
        Path | None,
        typer.Option(help="Write every layer and head, unit or curve as one HTML file that opens anywhere."),
    ] = None,
    as_json: Json = False,
    threads: Threads = 0,
) -> None:
    """What the model looks at while it translates a sentence; or what it carries, feels and knows."""
    from regard import load, machine
    from regard.interface import UserError

    ways = [name for name in ("--gates", "--gradients") if {"--gates": gates, "--gradients": gradients}[name]]
    ways += ["--neighbours"] * (neighbours is not None)
    if len(ways) > 1:
        raise UserError(f"{' and '.join(ways)} exclude each other: give one of them.")
    way = "".join(ways)
    given = {
        "a sentence": sentence,
        "--target": target,
        "--layer": layer,
        "--length": length,
        "--count": count,
        "--out": output,
        "--html": html,
        "--json": as_json or None,
    }
    for name, value in given.items():
        if value is not None and name not in TAKES[way]:
            of = next(
                (f"it belongs to {other}" for other, takes in TAKES.items() if other and name in takes), "leave it"
            )
            raise UserError(f"{way or 'look'} does not take {name}: {of if not way else 'leave it out'}.")
    if html is not None and as_json:
        raise UserError("--html and --json exclude each other: give one of them.")
    machine.use_threads(threads)
    if way == "--neighbours":
        assert neighbours is not None
        show_neighbours(load(run), neighbours, count, as_json=as_json)
    elif way == "--gradients":
        show_gradients(load(run), length, html, as_json=as_json)
    elif sentence is None:
        raise UserError("There is no sentence to look at: give one, or --gradients, or --neighbours WORD.")
    elif way == "--gates":
        show_gates(load(run), sentence, target, html, as_json=as_json)
    else:
        show_attention(load(run), sentence, target, layer, output, html, as_json=as_json)


def show_attention(
    run: Run,
    sentence: str,
    target: str | None,
    layer: int | None,
    output: Path | None,
    html: Path | None,
    *,
    as_json: bool,
) -> None:
    from regard.data.text import encodable
    from regard.interface import UserError
    from regard.show.attention_page import attention_page
    from regard.tasks import nothing

    task, written = run.task, target and encodable(target)
    if task.look is nothing:
        raise UserError(f"There is no attention to look at in {task.name}: --gates and --neighbours look into others.")
    if html is not None:
        with written_to(html) as write:
            pages = [task.look_closely(run, text, written) for text in run.task.given(sentence)]
            write(attention_page(pages, title=f"What {run.model_title} looks at"))
        return
    seen = task.look(run, task.given(sentence)[0], written, layer)
    if output is not None:
        with written_to(output) as write:
            write(seen.svg().removesuffix("\n"))
    elif as_json:
        print_json(seen.facts())
    else:
        out.print(seen.text(out.width))


def show_gates(run: Run, sentence: str, target: str | None, html: Path | None, *, as_json: bool) -> None:
    from regard.data.text import encodable
    from regard.look.gates import WORDS, carried, carried_closely
    from regard.show.attention_page import attention_page
    from regard.show.colours import LEGEND
    from regard.show.heat_map import gate_map

    written = target and encodable(target)
    if html is not None:
        with written_to(html) as write:
            pages = [carried_closely(run, text, written) for text in run.task.given(sentence)]
            write(attention_page(pages, title=f"What {run.model_title} carries", words=WORDS))
        return
    seen = carried(run, encodable(sentence), written)
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
        out.print(f"→ {seen.output}", markup=False)
    for part in seen.layers:
        out.print(gate_map(part.name, part.tokens, part.means()))
    out.print(f"mean over the units: {LEGEND}", style="dim")


def show_gradients(run: Run, length: int | None, html: Path | None, *, as_json: bool) -> None:
    from regard.look.gradient_report import felt_chart, felt_rows, gate_rows, gradient_sections, spectrum_rows, summary
    from regard.look.gradients import LENGTH, reach
    from regard.show.chart_page import chart_page
    from regard.show.text_plot import text_plot, text_table

    with written_to(html) if html is not None else contextlib.nullcontext() as write:
        found = reach(run, length=LENGTH if length is None else length)
        if write is not None:
            title, foot = f"How far back {found.model} feels a loss", "In float64, without dropout. Made with regard."
            write(chart_page(gradient_sections(found), title=title, about=summary(found), foot=foot))
            return
    if as_json:
        print_json(numbers(found))
        return
    out.print(summary(found), markup=False, soft_wrap=False)
    for layer in found.layers:
        out.print(f"\n{layer}: felt so many tokens back; small letters before training, capitals after", markup=False)
        out.print(text_plot(felt_chart(found, layer, clipped=False).curves, width=out.width), end="")
    for title, rows in (
        ("Felt so many tokens back; slope in ln per token", felt_rows(found)),
        ("Singular values of the recurrent matrices", spectrum_rows(found)),
        ("Gates, the mean over rows, units and time: 0 shut, 1 open", gate_rows(found)),
    ):
        if rows:
            out.print(f"\n{title}", markup=False)
            out.print(text_table(rows), end="")


def numbers(found: Reach) -> dict[str, Any]:
    """All of them, as JSON can hold them."""
    from regard.show.text import tidy

    def stage(at: Any) -> dict[str, Any]:
        flow = at.flow
        return {
            "gradient": at.gradient,
            "clip_factor": at.factor,
            "felt": [{**dataclasses.asdict(felt), "slope": felt.slope} for felt in flow.felt],
            "singular_values": [dataclasses.asdict(spectrum) for spectrum in flow.spectra],
            "gates": [{**dataclasses.asdict(gate), "mean": gate.mean} for gate in flow.gates],
        }

    head = {"model": found.model, "rows": found.rows, "length": found.length, "clip": found.clip}
    told: dict[str, Any] = tidy({**head, "before": stage(found.before), "after": stage(found.after)})
    return told


def show_neighbours(run: Run, word: str, count: int | None, *, as_json: bool) -> None:
    from regard.data.text import encodable
    from regard.look.neighbours import COUNT, neighbours

    found = neighbours(run, encodable(word), count=COUNT if count is None else count)
    if as_json:
        print_json(dataclasses.asdict(found))
    else:
        show_table([{"near": each.word, "cosine": f"{each.cosine:.3f}"} for each in found.nearest])


def print_json(entry: dict[str, Any]) -> None:
    from regard.data.text import one_line

    print_plain(one_line(json.dumps(entry, ensure_ascii=False)))

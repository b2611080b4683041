"""report: how far back losses are felt, as one HTML file that opens anywhere: charts, and the numbers behind each.

No script, nothing fetched; light or dark as the reader's system is.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape

from regard.look.gradients import Reach
from regard.show.gradient_plot import Rows, felt_rows, gate_rows, number, said, spectrum_rows
from regard.show.html import numbers, policy_hash, quiet, scroller, table
from regard.show.line_chart import STYLE as CHART_STYLE
from regard.show.line_chart import Curve, curve_chart

STYLE = """
:root { color-scheme: light dark; --page: #f7f6f3; --panel: #ffffff; --ink: #1d2126; --quiet: #59606a;
  --line: #dedbd4; }
@media (prefers-color-scheme: dark) { :root { --page: #131519; --panel: #1a1d22; --ink: #e7e5df; --quiet: #a3a9b2;
  --line: #343840; } }
* { box-sizing: border-box; }
body { max-width: 56rem; margin: 0 auto; padding: 1rem clamp(.75rem, 2.5vw, 2rem) 2rem; background: var(--page);
  color: var(--ink); font: 1rem/1.5 system-ui, sans-serif; overflow-wrap: anywhere; }
h1 { font-size: 1.35rem; line-height: 1.35; margin: 0; }
h2 { font-size: 1.1rem; margin: 1.75rem 0 .5rem; }
p { margin: .5rem 0; }
.quiet, figcaption, summary, footer { color: var(--quiet); font-size: .9375rem; }
figure { margin: .75rem 0; padding: .75rem; background: var(--panel); border: 1px solid var(--line);
  border-radius: .6rem; }
.scroll { overflow-x: auto; }
svg { display: block; width: 100%; min-width: 38rem; max-width: 47.5rem; height: auto; margin: 0 auto; }
summary { cursor: pointer; padding: .35rem 0; }
table { border-collapse: collapse; font-size: .875rem; font-variant-numeric: tabular-nums; white-space: nowrap; }
th, td { padding: .2rem .7rem .2rem 0; border-bottom: 1px solid var(--line); text-align: end; }
th:first-child, td:first-child, .named :is(th, td):nth-child(2) { text-align: start; }
th { color: var(--quiet); font-weight: 600; }
footer { margin-top: 2rem; }
@media print { details > * { display: block; } }
"""
FELT = """Each line is the mean over rows of the length of the gradient of the last token's loss, in the state so many
tokens before it. A straight line is a constant factor a step: vanishing if it falls, exploding if it rises."""
SPECTRA = """A step multiplies by these matrices. Where every singular value is far under 1, nothing can be felt far
back through them; over 1, it may grow. Gates add ways around them."""
GATES = """How far each gate stands open, the mean over rows and units: 0 is shut, 1 is open. Kept near 1 is what lets a
cell remember."""


def report(found: Reach) -> str:
    title = f"How far back {found.model} feels a loss"
    parts = [f"<h1>{escape(title)}</h1>", f"<p>{escape(said(found))}</p>", "<h2>Felt at a distance</h2>", quiet(FELT)]
    parts += [_felt(found, layer) for layer in found.layers]
    parts += [_named(felt_rows(found)), *_spectra(found)]
    if found.after.flow.gates:
        parts += ["<h2>Gates</h2>", quiet(GATES), *(_gates(found, layer) for layer in found.layers)]
        parts.append(_named([{k: v for k, v in row.items() if "time" not in k} for row in gate_rows(found)]))
    styles = f"{policy_hash(STYLE)} {policy_hash(CHART_STYLE)}"
    policy = f"default-src 'none'; style-src {styles}; base-uri 'none'; form-action 'none'"
    return "\n".join(
        [
            '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">',
            f'<meta http-equiv="Content-Security-Policy" content="{policy}">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>",
            *parts,
            "<footer>In float64, without dropout. Made with regard.</footer>\n</body>\n</html>",
        ]
    )


def _spectra(found: Reach) -> list[str]:
    rows = spectrum_rows(found)
    return ["<h2>Singular values of the recurrent matrices</h2>", quiet(SPECTRA), _named(rows)] if rows else []


def _felt(found: Reach, layer: str) -> str:
    lines = list(found.lines(layer))
    curves = [
        Curve(line.name, line.felt.norms, "hc".index(line.felt.state), _dash(line.when, line.factor)) for line in lines
    ]
    chart = curve_chart(
        curves,
        title=f"Felt in {layer}",
        across=f"distance from the {'end of what it read' if layer.startswith('encoder') else 'last token'}, in tokens",
        up="length of the gradient (log scale)",
        log=True,
    )
    return _figure(chart, [curve.name for curve in curves], [curve.values for curve in curves], "tokens back", first=0)


def _gates(found: Reach, layer: str) -> str:
    curves = [
        Curve(f"{gate.gate}, {when}", gate.means, place, 1 if when == "before" else 0)
        for when, at in (("before", found.before), ("after", found.after))
        for place, gate in enumerate(gate for gate in at.flow.gates if gate.layer == layer)
    ]
    if not curves:
        return ""
    chart = curve_chart(
        curves, title=f"Gates of {layer}", across="token of the text", up="share that stands open", first=1, top=1.0
    )
    return _figure(chart, [curve.name for curve in curves], [curve.values for curve in curves], "token", first=1)


def _dash(when: str, factor: float) -> int:
    return (1 if when == "before" else 0) if factor == 1 else (3 if when == "before" else 2)


def _figure(chart: str, names: Sequence[str], columns: Sequence[Sequence[float]], place: str, *, first: int) -> str:
    rows = [
        {place: str(first + at), **{name: number(value) for name, value in zip(names, values, strict=True)}}
        for at, values in enumerate(zip(*columns, strict=True))
    ]
    return f"<figure>{scroller(chart)}{numbers(table(rows))}</figure>"


def _named(rows: Rows) -> str:
    """A table whose first two columns are words."""
    return scroller(table(rows), "named")

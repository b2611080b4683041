"""What is said and drawn of gradients: a sentence, the tables, a chart per layer, and the sections of the page."""

from __future__ import annotations

import math

from regard.look.gradients import Reach
from regard.show.line_chart import Curve, LineChart, Section
from regard.show.numbers import NONE, scientific
from regard.show.text_plot import bars

DISTANCES = (1, 10, 50, 100)
FELT = """Each line is the mean over rows of the length of the gradient of the last token's loss, in the state so many
tokens before it. A straight line is a constant factor a step: vanishing if it falls, exploding if it rises."""
SPECTRA = """A step multiplies by these matrices. Where every singular value is far under 1, nothing can be felt far
back through them; over 1, it may grow. Gates add ways around them."""
GATES = """How far each gate stands open, the mean over rows and units: 0 is shut, 1 is open. Kept near 1 is what lets a
cell remember."""

Rows = list[dict[str, str]]


def summary(found: Reach) -> str:
    """What was done, in sentences."""
    clipping = "train.clip = 0: nothing is clipped."
    if found.clip:
        clipped = ", ".join(
            f"{name} a gradient of length {scientific(at.gradient)} would be "
            + (f"shortened to {at.factor:.3f} of it" if at.factor < 1 else "left as it is (factor 1)")
            for name, at in (("before training", found.before), ("after", found.after))
        )
        clipping = f"train.clip = {found.clip:g}: {clipped}."
    return (
        f"The loss of the last token only, in {found.rows} rows of validation text, felt up to {found.length} tokens "
        f"back: the mean length of its gradient. {clipping}"
    )


def gradient_sections(found: Reach) -> list[Section]:
    gates = [{name: cell for name, cell in row.items() if "time" not in name} for row in gate_rows(found)]
    gated = dict.fromkeys(gate.layer for gate in found.after.flow.gates)
    return [
        Section("Felt at a distance", FELT, [felt_chart(found, layer) for layer in found.layers], felt_rows(found)),
        Section("Singular values of the recurrent matrices", SPECTRA, [], spectrum_rows(found)),
        Section("Gates", GATES, [gate_chart(found, layer) for layer in gated], gates),
    ]


def felt_chart(found: Reach, layer: str, *, clipped: bool = True) -> LineChart:
    """In a plot of text, small letters before training and capitals after."""
    curves = [
        Curve(
            line.name,
            line.felt.norms,
            "hc".index(line.felt.state),
            (line.when == "before") + 2 * (line.factor < 1),
            mark=line.felt.state if line.when == "before" else line.felt.state.upper(),
        )
        for line in found.lines(layer)
        if clipped or line.factor == 1
    ]
    return LineChart(
        curves=curves,
        title=f"Felt in {layer}",
        across=f"distance from the {'end of what it read' if layer.startswith('encoder') else 'last token'}, in tokens",
        up="length of the gradient (log scale)",
        counted="tokens back",
        log=True,
    )


def gate_chart(found: Reach, layer: str) -> LineChart:
    curves = [
        Curve(f"{gate.gate}, {when}", gate.means, place, int(when == "before"))
        for when, at in (("before", found.before), ("after", found.after))
        for place, gate in enumerate(gate for gate in at.flow.gates if gate.layer == layer)
    ]
    title, up = f"Gates of {layer}", "share that stands open"
    return LineChart(curves=curves, title=title, across="token of the text", up=up, counted="token", first=1, top=1.0)


def felt_rows(found: Reach) -> Rows:
    return [
        {
            "layer": layer,
            "felt in": line.name,
            **{
                f"at {distance}": scientific(line.felt.norms[distance]) if distance < len(line.felt.norms) else NONE
                for distance in DISTANCES
                if distance <= found.length
            },
            "slope": f"{line.felt.slope:+.3f}",
            "a step": f"×{math.exp(line.felt.slope):.3f}",
        }
        for layer in found.layers
        for line in found.lines(layer)
    ]


def spectrum_rows(found: Reach) -> Rows:
    return [
        {
            "layer": of.layer,
            "block": f"{of.block}, {when}",
            "largest": f"{of.largest:.3f}",
            "median": f"{of.median:.3f}",
            "smallest": f"{of.smallest:.3f}",
        }
        for pair in zip(found.before.flow.spectra, found.after.flow.spectra, strict=True)
        for when, of in zip(("before", "after"), pair, strict=True)
    ]


def gate_rows(found: Reach) -> Rows:
    return [
        {
            "layer": after.layer,
            "gate": after.gate,
            "before": f"{before.mean:.3f}",
            "after": f"{after.mean:.3f}",
            "over time, after": bars(after.means),
        }
        for before, after in zip(found.before.flow.gates, found.after.flow.gates, strict=True)
    ]

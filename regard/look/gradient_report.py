"""What is said and drawn of gradients: a sentence, the tables, a chart per layer, and the sections of the page."""

from __future__ import annotations

import math

from regard.look.gradients import STATES, Reach
from regard.show.line_chart import Curve, LineChart, Section
from regard.show.text import NONE, scientific
from regard.show.text_plot import bars

DISTANCES = (1, 10, 50, 100)
FELT = """Each line is the mean over rows of the length of the gradient of the last token's loss, in the state so many
tokens before it. A straight line is a constant factor a step: vanishing if it falls, exploding if it rises."""
SPECTRA = """A step multiplies by these matrices. Where every singular value is far under 1, nothing can be felt far
back through them; over 1, it may grow. Gates add ways around them."""
GATES = "How far each gate stands open at each token. Kept near 1 is what lets a cell remember."

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
    felt = [felt_chart(found, layer) for layer in found.layers]
    gated = dict.fromkeys(gate.layer for gate in found.after.flow.gates)
    gates = [gate_chart(found, layer) for layer in gated]
    return [
        Section("Felt so many tokens back; slope in ln per token", FELT, felt, felt_rows(found)),
        Section("Singular values of the recurrent matrices", SPECTRA, [], spectrum_rows(found)),
        Section("Gates, the mean over rows, units and time: 0 shut, 1 open", GATES, gates, gate_rows(found)),
    ]


def felt_chart(found: Reach, layer: str, *, clipped: bool = True) -> LineChart:
    """In a plot of text, small letters before training and capitals after."""
    curves = []
    for line in found.lines(layer):
        if clipped or line.factor == 1:
            state, before = line.felt.state, line.when == "before"
            mark, dash = state if before else state.upper(), before + 2 * (line.factor < 1)
            curves.append(Curve(line.name, line.felt.norms, STATES.index(state), dash, mark=mark))
    end = "end of what it read" if layer.startswith("encoder") else "last token"
    across, up = f"distance from the {end}, in tokens", "length of the gradient (log scale)"
    return LineChart(curves=curves, title=f"Felt in {layer}", across=across, up=up, counted="tokens back", log=True)


def gate_chart(found: Reach, layer: str) -> LineChart:
    curves = [
        Curve(f"{gate.gate}, {when}", gate.means, place, int(when == "before"))
        for when, at in found.stages.items()
        for place, gate in enumerate(gate for gate in at.flow.gates if gate.layer == layer)
    ]
    title, up = f"Gates of {layer}", "share that stands open"
    return LineChart(curves=curves, title=title, across="token of the text", up=up, counted="token", first=1, top=1.0)


def felt_rows(found: Reach) -> Rows:
    rows = []
    for layer in found.layers:
        for line in found.lines(layer):
            norms, slope = line.felt.norms, line.felt.slope
            far = {at: scientific(norms[at]) if at < len(norms) else NONE for at in DISTANCES if at <= found.length}
            rows.append({"layer": layer, "felt in": line.name} | {f"at {at}": norm for at, norm in far.items()})
            rows[-1] |= {"slope": f"{slope:+.3f}", "a step": f"×{math.exp(slope):.3f}"}
    return rows


def spectrum_rows(found: Reach) -> Rows:
    rows = []
    for pair in zip(found.before.flow.spectra, found.after.flow.spectra, strict=True):
        for when, of in zip(found.stages, pair, strict=True):
            values = {"largest": of.largest, "median": of.median, "smallest": of.smallest}
            rows.append({"layer": of.layer, "block": f"{of.block}, {when}"} | _three_decimals(values))
    return rows


def gate_rows(found: Reach) -> Rows:
    rows = []
    for before, after in zip(found.before.flow.gates, found.after.flow.gates, strict=True):
        means = _three_decimals({"before": before.mean, "after": after.mean})
        rows.append({"layer": after.layer, "gate": after.gate, **means, "over time, after": bars(after.means)})
    return rows


def _three_decimals(values: dict[str, float]) -> dict[str, str]:
    return {name: f"{value:.3f}" for name, value in values.items()}

"""The report of gradient norms: a summary, tables, a chart per layer, and the sections of the page."""

from __future__ import annotations

import math

from regard.look.gradients import STATES, Reach
from regard.show.line_chart import Curve, LineChart, Section
from regard.show.text import NONE, scientific
from regard.show.text_plot import bars

DISTANCES = (1, 10, 50, 100)
NORMS = """Each line is the norm of the gradient of the last token's loss with respect to an earlier state, averaged
over rows. A straight line is a constant factor per step: the gradient vanishes if it falls and explodes if it rises."""
SPECTRA = """Each step back multiplies the gradient by these matrices. If every singular value is far below 1, it
vanishes; above 1, it may grow. Gates add paths around them."""
GATES = "The mean value of each gate at each token. A kept gate near 1 lets a cell remember."

Rows = list[dict[str, str]]


def summary(found: Reach) -> str:
    """Summarise what was measured."""
    clipping = "train.clip = 0: nothing is clipped."
    if found.clip:
        clipped = ", ".join(
            f"{name} a gradient norm of {scientific(at.gradient)} would be "
            + (f"clipped to {at.factor:.3f} of it" if at.factor < 1 else "left as it is (factor 1)")
            for name, at in (("before training", found.before), ("after", found.after))
        )
        clipping = f"train.clip = {found.clip:g}: {clipped}."
    return (
        f"The figures are mean norms of the gradient of the last token's loss, up to {found.length} tokens back, in "
        f"{found.rows} rows of validation text. {clipping}"
    )


def gradient_sections(found: Reach) -> list[Section]:
    norms = [norm_chart(found, layer) for layer in found.layers]
    gated = dict.fromkeys(gate.layer for gate in found.after.flow.gates)
    gates = [gate_chart(found, layer) for layer in gated]
    return [
        Section("Gradient norm by distance in tokens; slope in ln per token", NORMS, norms, norm_rows(found)),
        Section("Singular values of the recurrent matrices", SPECTRA, [], spectrum_rows(found)),
        Section("Gates, the mean over rows, units and time: 0 closed, 1 open", GATES, gates, gate_rows(found)),
    ]


def norm_chart(found: Reach, layer: str, *, clipped: bool = True) -> LineChart:
    """Draw gradient norms; in a text plot, lower case is before training and upper case after."""
    curves = []
    for line in found.lines(layer):
        if clipped or line.factor == 1:
            state, before = line.gradient_norms.state, line.when == "before"
            mark, dash = state if before else state.upper(), before + 2 * (line.factor < 1)
            norms = line.gradient_norms.norms
            curves.append(Curve(line.name, norms, STATES.index(state), dash, mark=mark))
    end = "end of the source" if layer.startswith("encoder") else "last token"
    across, up = f"distance from the {end}, in tokens", "gradient norm (log scale)"
    title = f"Gradient norm in {layer}"
    return LineChart(curves=curves, title=title, across=across, up=up, counted="tokens back", log=True)


def gate_chart(found: Reach, layer: str) -> LineChart:
    curves = [
        Curve(f"{gate.gate}, {when}", gate.means, place, int(when == "before"))
        for when, at in found.stages.items()
        for place, gate in enumerate(gate for gate in at.flow.gates if gate.layer == layer)
    ]
    title, up = f"Gates of {layer}", "mean value"
    return LineChart(curves=curves, title=title, across="token of the text", up=up, counted="token", first=1, top=1.0)


def norm_rows(found: Reach) -> Rows:
    rows = []
    for layer in found.layers:
        for line in found.lines(layer):
            norms, slope = line.gradient_norms.norms, line.gradient_norms.slope
            far = {at: scientific(norms[at]) if at < len(norms) else NONE for at in DISTANCES if at <= found.length}
            rows.append({"layer": layer, "state": line.name} | {f"at {at}": norm for at, norm in far.items()})
            rows[-1] |= {"slope": f"{slope:+.3f}", "per step": f"×{math.exp(slope):.3f}"}
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

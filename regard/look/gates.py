"""gates: what a recurrent model carries while it reads a sentence, token by token.

Of each layer the gates, between 0 (shut) and 1 (open), and the states h and c, after each token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.interface import BOS, SPECIALS, Batch, Scores, UserError
from regard.layers.recurrent import trace
from regard.look.attention import Reading, pieces_to_look_at, read, refuse_length
from regard.look.gradients import STATES, layers_of, recurrent
from regard.look.weights import use
from regard.run import Run
from regard.show.attention_page import Sentence, View

Floats = NDArray[np.floating]
UNITS = 64  # of a layer, at most, on a page
WORDS = {  # how the page speaks of its maps
    "kind": "Which gate or state",
    "looking": "Tokens",
    "looked-at": "Units",
    "forward": "has most in",
    "back": "has most at",
    "about": "Each row is a token, each column a unit of the layer.",
}


@dataclass(frozen=True)
class Layer:
    """One layer's gates and states after each token, in the order in which it read."""

    name: str
    tokens: tuple[str, ...]
    gates: dict[str, Floats]  # (tokens, hidden), from 0 to 1
    states: dict[str, Floats]  # (tokens, hidden): h, and c where there is one

    def means(self) -> dict[str, Floats]:
        """(tokens,) each: a gate's mean over the units, and the mean of |h| and |c|."""
        sizes = {f"|{state}|": np.abs(values).mean(-1) for state, values in self.states.items()}
        return {name: values.mean(-1) for name, values in self.gates.items()} | sizes


@dataclass(frozen=True)
class Carried:
    """Everything that was carried through a text, or through a sentence and its translation."""

    text: str
    output: str  # the translation; "" of a language model
    layers: tuple[Layer, ...]


def carried(run: Run, text: str, target: str | None = None) -> Carried:
    """While a language model reads `text`, or a translator reads it and writes `target`, its own if none is given."""
    model = recurrent(run)
    if "source" not in run.fields:
        if target is not None:
            raise UserError(f"A target is for translators: {run.model_title} goes on from what it reads.")
        output = ""
        batch, tokens = _opened(run, text)
    else:
        if isinstance(model, Scores):
            reading = read(run, text, target)
        else:
            batch = run.batch(source=[text], multiple=1)
            reading = Reading(pieces_to_look_at(run, text), [], run.predict(text).text, batch)
        output, batch, tokens = reading.text, reading.batch, reading.tokens
    with torch.no_grad(), trace(model) as kept:
        use(model, batch)
    layers = []
    for name, seen in layers_of(model).items():
        states, gates = kept.states_of(seen.part), kept.gates_of(seen.part)
        read_by_it = tokens[seen.side][::-1] if seen.backwards else tokens[seen.side]
        opened = {gate: _over_time([step[gate] for step in gates]) for gate in gates[0]}
        held = {state: _over_time(list(steps)) for state, steps in zip(STATES, zip(*states, strict=True), strict=False)}
        layers.append(Layer(name, read_by_it, opened, held))
    return Carried(text, output, tuple(layers))


def carried_closely(run: Run, text: str, target: str | None = None) -> Sentence:
    """Every gate and state of every layer for the page: tokens × units, of those that vary most."""
    seen = carried(run, text, target)
    views = []
    scales = []
    for layer in seen.layers:
        units = most_varied(layer.states["h"])
        side, number, *arrow = layer.name.split()
        side = "" if side == "layer" else " ".join([side, *arrow]) + ", "
        columns = tuple(f"u{unit + 1}" for unit in units)
        shares = {name: values[:, units] for name, values in layer.gates.items()}
        for name, values in layer.states.items():
            largest = max(1.0, float(np.abs(values[:, units]).max()))
            if largest > 1:
                scales.append(f"{largest:.3g} for {name} of {layer.name}")
            shares[name] = (values[:, units] / largest + 1) / 2
        for name, share in shares.items():
            views.append(View(f"{side}{name}", int(number), layer.tokens, columns, share[None]))
    hidden = seen.layers[0].states["h"].shape[1]
    shown = f"The {UNITS} of {hidden} units whose h varies most." if hidden > UNITS else f"All {hidden} units."
    scale = f"m is 1, but {', '.join(scales)}" if scales else "m is 1"
    note = f"{shown} States can be negative: x is shown as (x/m + 1)/2, so that 0 is 0.5; {scale}."
    return Sentence(seen.text, seen.output, tuple(views), note=note)


def most_varied(states: Floats) -> NDArray[np.integer]:
    """The units of (tokens, hidden) that differ most from token to token, in their own order."""
    return np.sort(np.argsort(-states.std(0), kind="stable")[:UNITS])


def _opened(run: Run, text: str) -> tuple[Batch, dict[str, tuple[str, ...]]]:
    """A text after what stands before it, and what each token is called; its last token is read, too."""
    tokenizer = run.tokenizer("target")
    (ids,) = tokenizer.encode_all([text], continued=run.whole_file)
    refuse_length(run, len(ids))
    tokens = [*run.opening, *ids]
    answers = torch.tensor([[*tokens, BOS]], device=run.device)  # the last is asked for, not read
    names = [SPECIALS[BOS]] if run.opening == [BOS] else tokenizer.surface(run.opening)
    return Batch.of_text(answers), {"target": (*names, *tokenizer.surface(ids))}


def _over_time(steps: list[Tensor]) -> Floats:
    values: Floats = torch.cat(steps).double().cpu().numpy()  # one row a step
    return values

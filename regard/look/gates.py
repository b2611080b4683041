"""Gates and hidden states of a recurrent model, token by token.

Each layer shows its gates, between 0 (closed) and 1 (open), and the states h and c, after each token.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.data.text import BETWEEN
from regard.interface import BOS, SPECIALS, Batch, Chooses, Scores, UserError
from regard.layers.recurrent import trace
from regard.look.attention import Reading, pieces_to_look_at, read, refuse_length
from regard.look.gradients import STATES, layers_of, recurrent
from regard.look.weights import use
from regard.models.encoder_head import APART
from regard.run import Run
from regard.show.attention_page import Sentence, View

Floats = NDArray[np.floating]
UNITS = 64  # most units of a layer on a page
WORDS = {  # the labels of the page
    "kind": "Gate or state",
    "looking": "Tokens",
    "looked-at": "Units",
    "forward": "is largest in",
    "back": "is largest at",
    "about": "Each row is a token, each column a unit of the layer.",
}


@dataclass(frozen=True)
class Layer:
    """One layer's gates and states after each token, in reading order."""

    name: str
    tokens: tuple[str, ...]
    gates: dict[str, Floats]  # (tokens, hidden), from 0 to 1
    states: dict[str, Floats]  # (tokens, hidden): h, and c where there is one

    def means(self) -> dict[str, Floats]:
        """Return the mean of each gate over the units, and the mean of |h| and |c|: (tokens,) each."""
        sizes = {f"|{state}|": np.abs(values).mean(-1) for state, values in self.states.items()}
        return {name: values.mean(-1) for name, values in self.gates.items()} | sizes


@dataclass(frozen=True)
class Carried:
    """The gates and states of all layers over a text, or over a sentence and its translation."""

    text: str
    output: str  # the translation; "" for a language model
    layers: tuple[Layer, ...]


def carried(run: Run, text: str, target: str | None = None) -> Carried:
    """Record the layers while a language model reads `text`, or a translator reads it and `target` or its output."""
    model = recurrent(run)
    if "source" not in run.fields:
        if target is not None:
            raise UserError(f"A target is for translators, and {run.model_title} is a language model: leave it out.")
        output = ""
        batch, tokens = _opened(run, text)
    else:
        if isinstance(model, Chooses):
            raise UserError(f"{APART}: look at a run of another task.")
        if run.recipe.data.paired:
            text = BETWEEN.join(part.strip(" ") for part in text.split("\t"))
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
    """Return every gate and state of every layer for the page: tokens × units, for the units that vary most."""
    return closely(carried(run, text, target))


def closely(seen: Carried) -> Sentence:
    views = []
    scales = []
    for layer in seen.layers:
        units = most_varied(layer.states["h"])
        side, number = place_of(layer)
        columns = tuple(f"u{unit + 1}" for unit in units)
        shares = {name: values[:, units] for name, values in layer.gates.items()}
        for name, values in layer.states.items():
            largest = max(1.0, float(np.abs(values[:, units]).max()))
            if largest > 1:
                scales.append(f"{largest:.3g} for {name} of {layer.name}")
            shares[name] = (values[:, units] / largest + 1) / 2
        for name, share in shares.items():
            views.append(View(f"{side}{name}", number, layer.tokens, columns, share[None]))
    hidden = seen.layers[0].states["h"].shape[1]
    shown = f"The {UNITS} of {hidden} units whose h varies most." if hidden > UNITS else f"All {hidden} units."
    scale = f"m is 1, but {', '.join(scales)}" if scales else "m is 1"
    note = f"{shown} States can be negative: x is shown as (x/m + 1)/2, so that 0 is 0.5; {scale}."
    return Sentence(seen.text, seen.output, tuple(views), note=note, averages=False)


def averages(seen: Carried) -> list[View]:
    """Return the mean of each gate, and of |h| and |c|, over all units of each layer: tokens × gates and states."""
    views = []
    for layer in seen.layers:
        side, number = place_of(layer)
        means = layer.means()
        scales = {name: max(1.0, float(values.max())) for name, values in means.items()}
        columns = tuple(name if scale == 1 else f"{name}/{scale:.3g}" for name, scale in scales.items())
        shares = np.stack([values / scales[name] for name, values in means.items()], axis=-1)
        views.append(View(f"{side}mean over units", number, layer.tokens, columns, shares[None]))
    return views


def place_of(layer: Layer) -> tuple[str, int]:
    """Return the side and direction of a layer as the beginning of a name, and its number."""
    side, number, *arrow = layer.name.split()
    return "" if side == "layer" else " ".join([side, *arrow]) + ", ", int(number)


def most_varied(states: Floats) -> NDArray[np.integer]:
    """Return the units of (tokens, hidden) that vary most from token to token, in order."""
    return np.sort(np.argsort(-states.std(0), kind="stable")[:UNITS])


def _opened(run: Run, text: str) -> tuple[Batch, dict[str, tuple[str, ...]]]:
    """Return a text after its opening as a batch, and the name of each token; the last token is read too."""
    tokenizer = run.tokenizer("target")
    (ids,) = tokenizer.encode_all([text], continued=run.whole_file)
    refuse_length(run, len(ids))
    tokens = [*run.opening, *ids]
    answers = torch.tensor([[*tokens, BOS]], device=run.device)  # the last one is predicted, not read
    names = [SPECIALS[BOS]] if run.opening == [BOS] else tokenizer.surface(run.opening)
    return Batch.of_text(answers), {"target": (*names, *tokenizer.surface(ids))}


def _over_time(steps: list[Tensor]) -> Floats:
    values: Floats = torch.cat(steps).double().cpu().numpy()  # one row per step
    return values

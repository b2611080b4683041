"""A few inputs from a run's own validation data, to try it with."""

from __future__ import annotations

from itertools import islice
from typing import Any

import numpy as np

from regard.config import UserError
from regard.data.recordings import RATE, Recording
from regard.data.sources import BETWEEN, examples
from regard.data.text import is_cut
from regard.run import Run
from regard.show.picture_map import png_address, png_text
from regard.show.spectrogram import wav_address

SHOWN = 4
AMONG = 40  # the first examples of the validation data
LONGEST = 200  # characters
SECONDS = 20  # of a recording, at most
PROMPT = 3  # words with which a language model begins


def examples_of(run: Run) -> list[Any]:
    """Return inputs as /v1/predict takes them; none where the data is not there."""
    try:
        lines = list(islice(examples(run.recipe.data, "valid", run.recipe.folder), AMONG))
    except UserError:
        return []
    found = (as_input(run, line[0]) for line in lines if not is_cut(line) and not is_long(line[0]))
    short = (each for each in found if not isinstance(each, str) or 0 < len(each) <= LONGEST)
    return list(islice(short, SHOWN))


def is_long(raw: Any) -> bool:
    return isinstance(raw, Recording) and raw.seconds > SECONDS


def as_input(run: Run, raw: Any) -> Any:
    if isinstance(raw, np.ndarray):
        return {"picture": png_address(png_text(raw))}
    if isinstance(raw, Recording):
        rate = min(raw.rate or RATE, RATE)
        return {"recording": wav_address(raw.samples(rate), rate)}
    text = str(raw).replace(BETWEEN, "\t")
    words = text.split(" ")
    if run.task.fills and run.task.decoding is not None:
        words[len(words) // 2] = run.task.decoding.blank
        return " ".join(words)
    return text if "source" in run.fields else " ".join(words[:PROMPT])

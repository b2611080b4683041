"""Zero-shot classification: a template is filled with the words of each label, and the most probable one is chosen.

language    ln P of the filled text; what stands before the label is the same for all           Brown 2020, section 2
masked      Σ ln P of the label's tokens, hidden together                                         Schick 2021, section 3
calibrated  each score less that of the same label with an empty text, so that no label is chosen because its words are
            frequent                                                                        Holtzman 2021, Zhao 2021
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import counted
from regard.data.corruption import with_hidden
from regard.data.in_memory import pairs_in, rows_of
from regard.data.sources import Table, examples
from regard.interface import Fills, UserError
from regard.new.fields import columns_of
from regard.predict.blanks import TOKENS_AT_ONCE
from regard.predict.decoding import Decoding, Prediction
from regard.predict.inputs import AT_ONCE, some_at_once
from regard.predict.text import most_read
from regard.run import Run, spaced
from regard.score.labels import score_labels
from regard.score.metrics import Floats
from regard.score.result import Options, Scored

CALIBRATED = "calibrated: less the score of each label with an empty text"
PLAIN = "not calibrated: labels whose words are frequent have an advantage, which --calibrate takes off"
PLACE = re.compile(r"(\{text\}|\{label\})")


@dataclass(frozen=True)
class Filled:
    """A template with a text and the words of a label in it; `start` and `end` are where those words stand."""

    text: str
    start: int
    end: int


@dataclass(frozen=True)
class Prompted(Run):
    """A language model that answers with labels."""

    template: str = ""
    verbalize: Mapping[str, str] = field(default_factory=dict)  # label -> its words
    calibrate: bool = False

    def __post_init__(self) -> None:
        for place in ("{text}", "{label}"):
            if self.template.count(place) != 1:
                raise UserError(
                    f"The template {self.template!r} must have {place} once: write one such as "
                    "'{text} It was {label} .'."
                )
        if len(self.verbalize) < 2 or not all(map(str.strip, self.verbalize.values())):
            raise UserError(
                f"Words were given for {counted(sum(map(bool, self.verbalize.values())), 'label')}: give those of two "
                "or more, such as --verbalize 0=terrible --verbalize 1=great."
            )

        said = list(self.verbalize.values())
        if same := [each for each in said if said.count(each) > 1]:
            raise UserError(f"Two labels have the same words, {same[0]!r}: give each label words of its own.")

    def filled(self, text: str, words: str) -> Filled:
        made, places = "", {"{text}": text, "{label}": words}
        start = end = 0
        for part in PLACE.split(self.template):
            if part == "{label}":
                start, end = len(made), len(made) + len(words)
            made += places.get(part, part)
        cut = len(made) - len(made.lstrip())  # before an empty text's neighbour
        return Filled(made[cut:], start - cut, end - cut)

    def scores(self, texts: Sequence[str]) -> Floats:
        """How probable each label is for each text: (texts, labels)."""
        every = [self.filled(text, words) for text in texts for words in self.verbalize.values()]
        found = hidden_log_probs(self, every) if isinstance(self.model, Fills) else text_log_probs(self, every)
        return np.reshape(found, (len(texts), len(self.verbalize)))

    def answers(
        self, raws: Iterable[Any], how: Decoding | None, *, at_once: int = AT_ONCE
    ) -> Iterator[tuple[Any, Prediction]]:
        """Yield each text with its label, and the probabilities of all labels."""
        labels = list(self.verbalize)
        prior = self.scores([""]) if self.calibrate else 0.0
        for some in some_at_once(raws, at_once):
            for text, each in zip(some, self.scores(some) - prior, strict=True):
                shares = np.exp(each - np.logaddexp.reduce(each))
                best = int(shares.argmax())
                found = dict(zip(labels, map(float, shares), strict=True))
                yield text, Prediction(labels[best], float(each[best]), (), probabilities=found)


def text_log_probs(run: Run, every: Sequence[Filled]) -> list[float]:
    found: list[float] = run.log_prob([filled.text for filled in every])
    return found


def hidden_log_probs(run: Run, every: Sequence[Filled]) -> list[float]:
    """ln P of each label's tokens, hidden together; of a text that is too long, what is around them is read."""
    model, most, rows = run.model, most_read(run.model), []
    assert isinstance(model, Fills)
    for filled in every:
        pieces = run.tokenizer().pieces(filled.text)
        places = [place for place, p in enumerate(pieces) if p.start < filled.end and p.end > filled.start]
        first = max(0, min(places[0] - most // 2, len(pieces) - most)) if places else 0
        ids = [piece.id for piece in pieces[first : first + most]]
        rows.append((ids, [place - first for place in places if place - first < len(ids)]))
    found = [0.0] * len(rows)
    for together in in_batches([len(ids) for ids, _ in rows]):
        source = run.fields["source"].pad([rows[number][0] for number in together])
        hidden = torch.zeros_like(source.mask)
        for row, number in enumerate(together):
            hidden[row, rows[number][1]] = True
        with torch.inference_mode():
            log_probs = model.fill(with_hidden(source, hidden).to(run.device)).float().log_softmax(-1).cpu()
        each = log_probs.gather(1, source.values[hidden][:, None])[:, 0].double()
        owners = torch.arange(len(together)).repeat_interleave(hidden.sum(1))
        for number, value in zip(together, torch.zeros(len(together)).double().index_add(0, owners, each), strict=True):
            found[number] = float(value)
    return found


def in_batches(lengths: Sequence[int]) -> Iterator[list[int]]:
    """The numbers of rows that are read together, the longest first."""
    order = sorted(range(len(lengths)), key=lambda number: -lengths[number])
    while order:
        count = max(1, TOKENS_AT_ONCE // (lengths[order[0]] + 1))
        together, order = order[:count], order[count:]
        yield together


def score_prompted(
    run: Run,
    data: Any,
    *,
    template: str = "",
    verbalize: Mapping[str, str] | None = None,
    calibrate: bool = False,
    on_answer: Callable[[str], None] | None = None,
) -> Scored:
    """Score labels that a language model gives to texts: accuracy, F1, Matthews and the confusion matrix. `calibrate`:
    from the score of each label, its score with an empty text is taken off."""
    named = {str(label): words for label, words in (verbalize or {}).items()}
    prompted = Prompted(**{**vars(run), "template": template, "verbalize": named, "calibrate": calibrate})
    rows = [(str(spaced(text)), str(label)) for text, label in pairs_in(labelled(data, named))]
    if not rows:
        raise UserError("There is no example: give at least one text with its label.")
    if other := sorted({label for _, label in rows} - named.keys()):
        raise UserError(
            f"The label {other[0]!r} has no words, only {', '.join(named)} have: add --verbalize '{other[0]}=…'."
        )
    found = score_labels([prompted], rows, Options(on_answer=on_answer))
    return Scored([*found.lines, CALIBRATED if calibrate else PLAIN], {**found.facts, "calibrated": calibrate})


def labelled(data: Any, labels: Iterable[str]) -> list[tuple[Any, ...]]:
    """Texts with their labels: those in memory, or those of a table, in which the field of the labels is found."""
    if not isinstance(data, str | Path):
        return [tuple(row) for row in rows_of(data)]
    columns, known = columns_of(Path(data)), set(labels)
    if len(columns) < 2:
        raise UserError(f"{data} does not have a text and a label in each line: give both, with a tab between them.")
    label = max(columns, key=lambda name: sum(value in known for value in columns[name]))
    text = max((name for name in columns if name != label), key=lambda name: sum(map(len, columns[name])))
    heads = columns[text][0], columns[label][0]
    if heads[1] not in known and all(map(str.isidentifier, heads)) and label.isdecimal():
        text, label = heads  # the first line names the columns
    table = Table(train=str(data), valid=str(data), source=text, target=label)
    return list(examples(table, "valid", Path.cwd(), whole=True))

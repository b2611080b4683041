"""Restoring a text with blanks by a model that was trained to undo noise: it writes what is missing, or the text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import count

import numpy as np
import torch

from regard.data.batches import Integers, validation_plan
from regard.data.corruption import MASK, SENTINEL, SENTINELS, Noise, corruption
from regard.interface import UserError
from regard.look.weights import scores
from regard.predict.blanks import with_blanks
from regard.predict.decoding import Decoding, Prediction
from regard.predict.inputs import some_at_once
from regard.predict.search import Hypothesis
from regard.predict.text import NO_ANSWER, Line, batches, best_of, generated, most_read
from regard.run import Run
from regard.score.metrics import Floats

TOKENS_AT_ONCE = 2048


def restore(run: Run, texts: Sequence[str], how: Decoding, noise: Noise, first_line: int = 0) -> list[Prediction]:
    """Write each text without its blanks."""
    found = [NO_ANSWER] * len(texts)
    for line, hypotheses in written(run, texts, how, noise, first_line):
        outputs = [restored(run, line.text.split(how.blank), each.tokens, noise) for each in hypotheses]
        found[line.number] = best_of(run, line, hypotheses, outputs)
    return found


def written(
    run: Run, texts: Sequence[str], how: Decoding, noise: Noise, first_line: int = 0
) -> Iterator[tuple[Line, list[Hypothesis]]]:
    """What the model writes for each text that is not empty. A model of spans writes what is missing, and needs a
    blank."""
    lines, most = [], most_read(run.model, how)
    for number, text in enumerate(texts):
        ids = with_blanks(run, text, how.blank)
        blanks = ids.count(MASK)
        if noise == "spans":
            if blanks > SENTINELS or text.strip() and not blanks:
                wrong = f"{text[:80]!r} has {blanks or 'no'} blanks"
                raise UserError(f"{wrong}: write {how.blank} where words are missing, at most {SENTINELS} times.")
            sentinel = count(SENTINEL)
            ids = [next(sentinel) if token == MASK else token for token in ids]
        if ids:
            lines.append(Line(number, text, ids[:most], len(ids) > most))
    for together in batches(sorted(lines, key=lambda line: -len(line.ids)), how):
        batch = run.fields.batch({"source": [line.ids for line in together]}).to(run.device)
        yield from zip(together, generated(run, together, batch, how, first_line), strict=True)


def restored(run: Run, parts: Sequence[str], tokens: Sequence[int], noise: Noise) -> str:
    """The text between these parts and in them: what was written after each sentinel, or all that was written."""
    decode = run.tokenizer("target").decode
    if noise != "spans":
        return decode(tokens)
    spans: dict[int, list[int]] = {}
    for token in tokens:
        if SENTINEL <= token < SENTINEL + SENTINELS:
            last = spans.setdefault(token - SENTINEL, [])
        elif spans:
            last.append(token)
    return parts[0] + "".join(decode(spans.get(number, [])) + part for number, part in enumerate(parts[1:]))


def restoring_log_probs(run: Run, texts: Sequence[str], noise: Noise) -> Iterator[Floats]:
    """ln P of each token that restores each text, from which the same is hidden each time."""
    model, corrupt, most = scores(run.model), corruption(noise, run.tokenizer("source")), most_read(run.model)
    done = 0
    for some in some_at_once(texts):
        encoded = [np.array(ids[:most]) for ids in run.tokenizer("source").encode_all(some)]
        pairs = [corrupt(ids, np.random.default_rng([0, done + number])) for number, ids in enumerate(encoded)]
        sides: list[list[Integers]] = [list(side) for side in zip(*pairs, strict=True)]
        found = [np.zeros(0)] * len(some)
        lengths = [np.array([len(ids) for ids in side]) for side in sides]
        for indices in validation_plan(*lengths, tokens=TOKENS_AT_ONCE):
            few = {name: [side[i] for i in indices] for name, side in zip(("source", "target"), sides, strict=True)}
            with torch.inference_mode():
                values = model.log_probs(run.fields.batch(few).to(run.device))[0].double().cpu().numpy()
            for row, i in zip(values, indices.tolist(), strict=True):
                found[i] = row[: lengths[1][i] + 1]
        yield from found
        done += len(some)

"""Recordings in, text out: by an attending decoder, by CTC, or by both; and when each word was spoken.

A long recording is cut at silences, and its pieces are transcribed one after another, so that memory stays the same.
Where a model has both, the hypotheses of its decoder are ranked again: (1 − c) log P(y | x) + c log P_CTC(y | x).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from regard.data.fields import TextField
from regard.data.frames import HOP
from regard.data.recordings import Recording, recording_of
from regard.data.silences import pieces
from regard.data.sounds import SoundField
from regard.interface import Batch, Emits, Generates, Padded, Scores, UserError
from regard.layers.ctc import IMPOSSIBLE, aligned, total
from regard.look.weights import attends, forced_weights, inside
from regard.machine import release_memory
from regard.models.fusion import Fused, LanguageModel
from regard.predict.decoding import Decoding, Prediction, Timed
from regard.predict.inputs import some_at_once
from regard.predict.language_model import language_model
from regard.predict.prefix_search import best_path, prefix_search
from regard.predict.search import Hypothesis
from regard.run import Run

LONGEST = 20.0  # seconds of a piece
TOGETHER = 160.0  # seconds of recordings that are read in one batch, padding included
AT_ONCE = 32  # recordings whose texts are known
ROOM = 10  # tokens more than the encoder has states, at most


@dataclass(frozen=True)
class Part:
    """A piece of the recording with this number."""

    number: int
    recording: Recording
    start: float  # seconds


def transcribe(run: Run, raws: Sequence[Any], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    """Transcribe each recording."""
    how = how or run.task.decoding or Decoding()
    found: list[list[Prediction]] = [[] for _ in raws]
    for number, together in enumerate(batches(run, raws)):
        if number:
            release_memory()  # so that a long recording takes no more of it than a short one
        batch = run.batch(source=[part.recording for part in together])
        lines = [first_line + part.number for part in together]
        for part, answer in zip(together, transcripts(run, batch, how, lines), strict=True):
            found[part.number].append(moved(answer, part.start))
    return [joined(parts) for parts in found]


def batches(run: Run, raws: Sequence[Any]) -> Iterator[list[Part]]:
    """Yield the pieces of all recordings, several together."""
    field = run.fields["source"]
    assert isinstance(field, SoundField)
    together: list[Part] = []
    longest = 0.0
    for number, raw in enumerate(raws):
        for piece in pieces(recording_of(raw, field.rate), field.rate, LONGEST):
            longest = max(longest, piece.seconds)
            if together and longest * (len(together) + 1) > TOGETHER:
                yield together
                together, longest = [], piece.seconds
            together.append(Part(number, piece, piece.start))
    if together:
        yield together


def transcripts(run: Run, batch: Batch, how: Decoding, lines: Sequence[int]) -> list[Prediction]:
    """Transcribe a batch of frames."""
    lm = language_model(run, run.lm) if run.lm else None
    emitted = emitted_by(run, batch)
    if isinstance(run.model, Generates) and how.ctc_weight < 1:
        found = written(run, batch, how, lines, lm)
        if emitted is not None and how.ctc_weight:
            found = reranked(run, found, emitted, how)
    elif emitted is not None:
        found = by_ctc(run, emitted, how, lm)
    else:
        raise UserError(f"ctc_weight = 1 needs a model with CTC, and {run.model_title} has none: lower it.")
    places = spoken(run, batch, emitted, [hypotheses[0].tokens for hypotheses in found])
    tokenizer, answers = run.tokenizer("target"), []
    lengths = batch.first.lengths.tolist()
    for hypotheses, steps, frames in zip(found, places, lengths, strict=True):
        best, *others = (
            Prediction(tokenizer.decode(each.tokens), each.log_prob, tuple(tokenizer.surface(each.tokens)))
            for each in hypotheses[: how.n_best]
        )
        times = times_of_words(run, hypotheses[0].tokens, steps, frames)
        answers.append(replace(best, alternatives=tuple(others), times=times))
    return answers


def emitted_by(run: Run, batch: Batch) -> Padded | None:
    """Return what a model with CTC emits."""
    if not isinstance(run.model, Emits):
        return None
    with torch.inference_mode():
        return run.model.emit(batch)


def written(
    run: Run, batch: Batch, how: Decoding, lines: Sequence[int], lm: LanguageModel | None
) -> list[list[Hypothesis]]:
    """Decode with the attending decoder."""
    assert isinstance(run.model, Generates)
    model = Fused(run.model, lm, weight=how.lm_weight, reward=how.length_reward) if lm else run.model
    most = -(-batch.first.lengths // inside(run.model).stride) + ROOM
    limits = torch.full_like(most, how.max_length) if how.max_length else most
    return run.decoder(model, batch, how, limits=limits, lines=torch.tensor(lines, device=run.device))


def reranked(run: Run, found: list[list[Hypothesis]], emitted: Padded, how: Decoding) -> list[list[Hypothesis]]:
    """Rank the hypotheses of each recording by both of its models. One with more tokens than CTC has steps, which is
    impossible, is left out; if all are, the decoder's ranking stays."""
    target, share = run.fields["target"], how.ctc_weight
    assert isinstance(target, TextField)
    ranked = []
    for row, hypotheses in enumerate(found):
        texts = target.pad([list(each.tokens) for each in hypotheses]).values.to(run.device)
        one = emitted.row(row)
        every = Padded(one.values.expand(len(hypotheses), -1, -1), one.mask.expand(len(hypotheses), -1))
        by_steps = total(every, Padded.of_ids(texts)).tolist()
        both = [
            replace(each, log_prob=(1 - share) * each.log_prob + share * steps)
            for each, steps in zip(hypotheses, by_steps, strict=True)
        ]
        possible = [each for each in both if each.log_prob > IMPOSSIBLE]
        ranked.append(sorted(possible, key=lambda each: -each.log_prob) or hypotheses)
    return ranked


def by_ctc(run: Run, emitted: Padded, how: Decoding, lm: LanguageModel | None) -> list[list[Hypothesis]]:
    """Decode by CTC: a beam of 1 without a language model takes the best path."""
    if how.sample:
        raise UserError(f"sample needs a decoder, and {run.model_title} transcribes by CTC: leave it out.")
    rows = [emitted.row(row).values[0] for row in range(len(emitted.mask))]
    if how.beam == 1 and lm is None:
        return [[best_path(row)] for row in rows]
    return [prefix_search(row, how, lm) for row in rows]


# --- when each word was spoken -----------------------------------------------------------------------------------


def spoken(
    run: Run, batch: Batch, emitted: Padded | None, texts: Sequence[Sequence[int]]
) -> list[list[tuple[int, int]]]:
    """Return the first and the last state of each token of each text: on the best path of CTC, or where the decoder
    attended most while it wrote the token."""
    if emitted is not None:
        return [aligned(emitted.row(row).values[0], text) for row, text in enumerate(texts)]
    if not attends(run.model):
        return [[] for _ in texts]
    target = run.fields["target"]
    both = replace(batch, target=Padded.of_ids(target.pad([list(text) for text in texts]).values.to(run.device)))
    most = forced_weights(run.model, both).argmax(-1).tolist()  # (batch, target - 1)
    return [[(place, place) for place in row[: len(text)]] for row, text in zip(most, texts, strict=True)]


def times_of_words(run: Run, tokens: Sequence[int], steps: Sequence[tuple[int, int]], frames: int) -> tuple[Timed, ...]:
    """Join the tokens of each word, and turn states into seconds; the last state may reach beyond the last frame."""
    tokenizer, stride = run.tokenizer("target"), inside(run.model).stride
    groups: dict[int, list[int]] = {}
    for place, word in enumerate(tokenizer.words(tokens)[: len(steps)]):
        groups.setdefault(word, []).append(place)
    found = []
    for places in groups.values():
        text = tokenizer.decode([tokens[place] for place in places]).strip()
        first, last = steps[places[0]][0], steps[places[-1]][1]
        if text:
            end = min((last + 1) * stride, frames)
            found.append(Timed(text, round(first * stride * HOP, 3), round(end * HOP, 3)))
    return tuple(found)


def moved(answer: Prediction, start: float) -> Prediction:
    """Return the times of a piece as those of the whole recording."""
    later = (Timed(word, round(first + start, 3), round(last + start, 3)) for word, first, last in answer.times or ())
    return replace(answer, times=tuple(later))


def joined(parts: Sequence[Prediction]) -> Prediction:
    """Put the transcripts of the pieces of a recording together."""
    if len(parts) == 1:
        return parts[0]
    texts = [part.text for part in parts if part.text]
    return Prediction(
        " ".join(texts),
        sum(part.score for part in parts),
        tuple(token for part in parts for token in part.tokens),
        times=tuple(timed for part in parts for timed in part.times or ()),
    )


def greedy_texts(run: Run, batch: Batch) -> list[str]:
    """Transcribe a batch quickly, as validation does."""
    answers = transcripts(run, batch, Decoding(ctc_weight=0.0), [0] * batch.size)
    return [answer.text for answer in answers]


def times_of_texts(run: Run, examples: Iterable[tuple[Any, str]]) -> Iterator[tuple[Timed, ...]]:
    """Yield when each word of a known text was spoken (forced alignment)."""
    target = run.fields["target"]
    for some in some_at_once(examples, AT_ONCE):
        batch = run.batch(source=[recording for recording, _ in some])
        texts = [ids.tolist() for ids in target.encode([text for _, text in some])]
        places = spoken(run, batch, emitted_by(run, batch), texts)
        lengths = batch.first.lengths.tolist()
        yield from (times_of_words(run, *each) for each in zip(texts, places, lengths, strict=True))


def log_prob_of_each_transcript(
    runs: Sequence[Run], examples: Iterable[tuple[Any, str]], stride: int = 0
) -> Iterator[float]:
    """Yield ln P(text | recording): by the decoder, or by CTC where there is none."""
    for some in some_at_once(examples, AT_ONCE):
        recordings, texts = zip(*some, strict=True)
        batch = runs[0].batch(source=recordings, target=texts)
        model = runs[0].model
        with torch.inference_mode():
            if isinstance(model, Scores):
                found = model.log_probs(batch)[0].sum(1)
            else:
                assert isinstance(model, Emits) and batch.target is not None
                found = total(model.emit(batch), batch.target)
        yield from found.tolist()

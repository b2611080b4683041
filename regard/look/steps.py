"""A decode, step by step: the likeliest tokens, the choice, the attention, and the tree of beam search.

Probabilities are the model's own, as if nothing were forbidden or filtered. An output may be forced to begin with given
tokens (prefix-constrained decoding); after them decoding continues freely.
"""

from __future__ import annotations

import math
from collections.abc import Generator, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from regard.data.fields import TextField
from regard.data.pictures import PictureField
from regard.data.sounds import SoundField
from regard.interface import BOS, EOS, PAD, UNK, Batch, Padded, SeenAttention, State, UserError
from regard.layers.attention import Seen, watch
from regard.look.captions import grid_of
from regard.look.recordings import Heard, heard
from regard.look.weights import NOT_ATTENTION, Weights, gradient_rows, inside
from regard.predict.decoding import Decoding, Prediction
from regard.predict.search import Choice, Hypothesis, OnChoice, Search, log_softmax, room
from regard.predict.text import generating, most_read
from regard.run import Run

MOST = 200  # tokens of an output that is shown step by step
WIDEST = 50  # hypotheses of a beam whose tree is shown
SHOWN = 5  # likeliest tokens at each step
EXPLAINED = 50  # most tokens of an output whose saliency is computed: each takes a backward pass
NOTHING_WRITTEN = Hypothesis((), 0.0, finished=True)


@dataclass(frozen=True)
class Candidate:
    """A token, with the probability that the model gives it."""

    id: int
    token: str
    probability: float


@dataclass(frozen=True)
class Step:
    """A token of the best hypothesis, and those that could have been chosen."""

    previous: str
    chosen: Candidate
    likely: tuple[Candidate, ...]  # likeliest first
    attention: tuple[float, ...] | None  # the weight of each token of the source, or of each place of the picture
    forced: bool


@dataclass(frozen=True)
class Node:
    """A hypothesis that the search kept at a step."""

    id: int
    parent: int | None  # None: it is the first token
    step: int  # from 1
    token: str
    token_id: int
    log_prob: float  # of all tokens so far
    score: float | None  # with the length penalty, if it ended here
    kept: bool  # part of a hypothesis that ended; all others were pruned
    finished: bool  # by <eos>
    best: bool  # part of the best hypothesis


@dataclass(frozen=True)
class Tree:
    width: int
    nodes: tuple[Node, ...]


@dataclass(frozen=True)
class Steps:
    """A decode that can be replayed."""

    source: tuple[str, ...] | None  # the tokens that attention may reach; of a language model, those of the text so far
    kind: str | None  # what the weights are: attention or saliency; None: there are none
    grid: tuple[int, int] | None  # rows and columns of a picture's places
    text: str
    score: float  # log-probability of the output
    finished: bool  # by <eos>, not by the length limit
    steps: tuple[Step, ...]
    tree: Tree | None  # None: the output was sampled
    note: str = ""  # what is left out

    def facts(self, digits: int = 6) -> dict[str, Any]:
        """Return all of it for JSON."""
        found = asdict(self)
        if not self.note:
            del found["note"]
        for step in found["steps"]:
            step["attention"] = step["attention"] and [round(weight, digits) for weight in step["attention"]]
        return found


# --- what is recorded while a search is under way ------------------------------------------------------------------


class Moment(NamedTuple):
    """What the model predicted after a hypothesis."""

    previous: int
    likely: tuple[tuple[int, float], ...]  # ids and log-probabilities, likeliest first
    weights: Weights | None  # of each key of the attention


class Kept(NamedTuple):
    """A token that the search kept."""

    parent: int | None  # its place in the record
    step: int
    token: int
    log_prob: float
    total: float
    moment: Moment


class Record:
    """A model that generates text for one example, and a record of what it predicted and what was chosen."""

    def __init__(self, run: Run, attentions: Sequence[SeenAttention]) -> None:
        self.part, self.model, self.longest, self.attentions = run.model, generating(run), room(run.model), attentions
        self.kept: list[Kept] = []
        self.places: dict[int, int] = {}  # in the record, of the hypothesis in each row
        self.steps = 0
        self.tokens, self.log_probs = torch.empty(0), torch.empty(0)
        self.weights: Tensor | None = None

    def start(self, batch: Batch) -> State:
        return self.model.start(batch)

    def step(self, tokens: Tensor, state: State) -> tuple[Tensor, State]:
        with watch(self.part) as seen:
            logits, after = self.model.step(tokens, state)
        self.tokens, self.log_probs = tokens, log_softmax(logits)
        self.weights = mean_weights(seen, self.attentions, len(tokens))
        self.steps += 1
        return logits, after

    def note(self, choice: Choice, rows: Sequence[int]) -> None:
        """Record the tokens that were chosen for these rows, which are still under way."""
        parents = list(range(len(choice.tokens))) if choice.parents is None else choice.parents.tolist()
        tokens, totals = choice.tokens.tolist(), choice.totals[0].tolist()
        moments = {parent: self._moment(parent) for parent in {parents[row] for row in rows}}
        before, self.places = self.places, {}
        for row in rows:
            parent, token = parents[row], tokens[row]
            log_prob = float(self.log_probs[parent, token])
            self.places[row] = len(self.kept)
            self.kept.append(Kept(before.get(parent), self.steps, token, log_prob, totals[row], moments[parent]))

    def _moment(self, row: int) -> Moment:
        ids = likeliest(self.log_probs[row], SHOWN)
        likely = zip(ids.tolist(), self.log_probs[row, ids].tolist(), strict=True)
        weights = None if self.weights is None else self.weights[row].float().cpu().numpy()
        return Moment(int(self.tokens[row]), tuple(likely), weights)

    def path(self, place: int | None) -> list[int]:
        """Return the places of a hypothesis' tokens, from its first to this one."""
        places = []
        while place is not None:
            places.append(place)
            place = self.kept[place].parent
        return places[::-1]

    def ends_of(self, hypotheses: Sequence[Hypothesis], longest: int) -> list[int]:
        """Return the place of the last token of each."""
        ends = (place for place, kept in enumerate(self.kept) if kept.token == EOS or kept.step == longest)
        known = {tuple(self.kept[each].token for each in self.path(end)): end for end in ends}
        return [known[each.tokens + (EOS,) * each.finished] for each in hypotheses]


def likeliest(log_probs: Tensor, count: int) -> Tensor:
    """Return the ids of the largest values of one row, largest first; of equal ones the first."""
    least = log_probs.topk(min(count, len(log_probs))).values[-1]
    ids = (log_probs >= least).nonzero()[:, 0]
    return ids[log_probs[ids].argsort(descending=True, stable=True)[:count]]


def mean_weights(seen: Seen, attentions: Sequence[SeenAttention], rows: int) -> Tensor | None:
    """Return the attention weights of a step, the mean of layers and heads: (rows, keys). A user-defined model may
    attend otherwise, and has none."""
    means = []
    for each in attentions:
        weights = seen.of(each.part)[-1:]  # of a cross-attention (1, heads, rows, keys), else (rows, heads, time, keys)
        last = [step[:, :, -1:] if each.kind == "self" else step for step in weights]
        means += [step[..., each.extra :].mean(1).flatten(0, 1) for step in last]
    known = means and len(means) == len(attentions) and all(mean.shape == (rows, *means[0].shape[1:]) for mean in means)
    return torch.stack(means).mean(0) if known else None


# --- a decode ------------------------------------------------------------------------------------------------------


class Asked(NamedTuple):
    """What a task asks of a decoder for one input."""

    batch: Batch
    limit: int  # most tokens of the output, <eos> included
    line: int  # its number, for the sampler


def steps(run: Run, raw: Any, how: Decoding | None = None, forced: Sequence[int] = ()) -> Steps:
    """Decode one input as `predict` does, and return every step. `forced`: ids that the output must begin with."""
    under_way = replay(run, raw, how, forced)
    while True:
        try:
            next(under_way)
        except StopIteration as end:
            found: Steps = end.value
            return found


def replay(run: Run, raw: Any, how: Decoding | None = None, forced: Sequence[int] = ()) -> Generator[int, None, Steps]:
    """Decode one input in small units of work, and return every step; after each unit, yield the number of steps so
    far."""
    generating(run)
    how, forced = how or run.task.decoding or Decoding(), list(forced)
    refuse(run, how, forced)
    heard = heard_of(run, raw)
    raw = raw if heard is None else heard.piece
    asked = prepared(run, raw, how)
    if len(forced) > asked.limit:
        given = f"{len(forced)} tokens are forced, and this output has at most {asked.limit}"
        raise UserError(f"{given}: force fewer, or raise max_length (at most {MOST}).")
    record = Record(run, attentions_of(run, asked.batch))
    found = yield from search(record, asked, how, forced)
    best = answer(run, raw, how, found)
    surface = run.tokenizer("target").surface
    found.sort(key=lambda each: tuple(surface(each.tokens)) != best.tokens)  # CTC may rank another one first
    ends = record.ends_of(found, asked.limit)
    path = [record.kept[place] for place in record.path(ends[0])]
    weights, kind = yield from weights_on(run, asked.batch, path)
    source = source_of(run, asked.batch, path, attended=kind is not None)
    places = None if heard is None else heard.steps
    attended = (spread(row, number, source, asked.batch, places) for number, row in enumerate(weights))
    return Steps(
        source=source,
        kind=kind,
        grid=grid_over(run, weights[0]),
        text=best.text,
        score=found[0].log_prob,
        finished=found[0].finished,
        steps=tuple(step_of(run, *each, each[0].step <= len(forced)) for each in zip(path, attended, strict=True)),
        tree=None if how.sample else tree_of(run, record, how, dict(zip(ends, found, strict=True))),
        note="" if heard is None else heard.note,
    )


def search(
    record: Record, asked: Asked, how: Decoding, forced: Sequence[int]
) -> Generator[int, None, list[Hypothesis]]:
    """Decode one input, and return the hypotheses, best first; after each step, yield the number of steps so far."""
    under_way = Search(record, how, lambda choice: record.note(choice, np.flatnonzero(under_way.alive[0]).tolist()))
    under_way.add(asked.batch, names=[0], lines=[asked.line], limits=[asked.limit], forced=[forced])
    ended: list[tuple[int, list[Hypothesis]]] = []
    while not ended:
        ended = under_way.step()
        yield record.steps
    ((_, found),) = ended
    return found


def weights_on(
    run: Run, batch: Batch, path: Sequence[Kept]
) -> Generator[int, None, tuple[list[Weights | None], str | None]]:
    """Return the weights of each step of a hypothesis and what they are: attention, or where a source is text and the
    model has none, saliency, if the output is not too long; after each gradient, yield the number of steps."""
    weights = [each.moment.weights for each in path]
    if all(row is not None for row in weights):
        return weights, "attention"
    is_text = batch.source is not None and batch.source.values.dim() == 2
    if not is_text or inside(run.model).reader is None or len(path) > EXPLAINED:
        return [None] * len(path), None
    weights = []
    for slopes in gradient_rows(run.model, with_written(batch, [each.token for each in path])):
        weights.append(slopes[0].cpu().numpy())
        yield len(path)
    return weights, NOT_ATTENTION


def refuse(run: Run, how: Decoding, forced: Sequence[int]) -> None:
    """Refuse what cannot be shown step by step, and tokens that are never written."""
    if how.shortlist:
        raise UserError("shortlist leaves out tokens that would be shown as likely ones: set it to 0.")
    if how.width > WIDEST:
        raise UserError(f"{how.width} hypotheses are too many to show step by step: choose at most {WIDEST}.")
    if how.max_length > MOST:
        raise UserError(f"max_length = {how.max_length}: at most {MOST} tokens are shown step by step; lower it.")
    size = run.tokenizer("target").size
    for place, token in enumerate(forced):
        if not 0 <= token < size or token in (PAD, BOS):
            raise UserError(
                f"{token} is not the id of a token that can be written: choose one from {EOS} to {size - 1}."
            )
        if token == EOS and place + 1 < len(forced):
            raise UserError("<eos> ends an output: force no token after it.")


def tokens_of(run: Run, text: str) -> list[int]:
    """Return the ids of a text that an output is to begin with."""
    pieces = run.tokenizer("target").pieces(text)
    if not pieces:
        raise UserError("The text to begin with is empty: give one with words in it, or leave it out.")
    for piece in pieces:
        if piece.id == UNK:
            raise UserError(f"{piece.text!r} is not in the vocabulary of {run.model_title}: begin with other words.")
    return [piece.id for piece in pieces]


def heard_of(run: Run, raw: Any) -> Heard | None:
    """Return what is read of a recording; None: the source is something else."""
    return heard(run, raw) if isinstance(run.fields.get("source"), SoundField) else None


def prepared(run: Run, raw: Any, how: Decoding) -> Asked:
    """Return what the task asks of a decoder for this input."""
    asked: list[Asked] = []

    def decoder(
        model: object,
        batch: Batch,
        how: Decoding,
        *,
        limits: Tensor,
        lines: Tensor | None = None,
        on_choice: OnChoice | None = None,
    ) -> list[list[Hypothesis]]:
        longest = room(model)
        limit = min(int(limits[0]), MOST, MOST if longest is None else longest)
        asked.append(Asked(batch, limit, 0 if lines is None else int(lines[0])))
        return [[NOTHING_WRITTEN]]

    (prediction,) = run.task.answer(replace(run, decoder=decoder), [raw], how)
    if not asked:
        raise UserError("The text to decode is empty: give one with words in it.")
    if prediction.cut:
        raise UserError(f"The text is too long: at most {most_read(run.model, how)} tokens are read; shorten it.")
    return asked[0]


def answer(run: Run, raw: Any, how: Decoding, found: list[Hypothesis]) -> Prediction:
    """Return the task's answer to an input for which these hypotheses were found."""
    (prediction,) = run.task.answer(replace(run, decoder=lambda *given, **options: [found]), [raw], how)
    answered: Prediction = prediction
    return answered


def attentions_of(run: Run, batch: Batch) -> list[SeenAttention]:
    """Return the attentions to the source, or to the text so far where there is no source."""
    known = inside(run.model)
    if batch.source is not None:
        return known.of_kind("cross")
    return [each for each in known.of_kind("self") if each.queries == each.keys == "target"]


def so_far(batch: Batch) -> Tensor:
    """Return what stands before the first token that is written: (1, time)."""
    return batch.first.values.new_full((1, 1), BOS) if batch.target is None else batch.target.values


def with_written(batch: Batch, written: Sequence[int]) -> Batch:
    """Return the batch with a target that goes up to the last token."""
    before = so_far(batch)
    return replace(batch, target=Padded.of_ids(torch.cat([before, before.new_tensor([written])], 1)))


def source_of(run: Run, batch: Batch, path: Sequence[Kept], *, attended: bool) -> tuple[str, ...] | None:
    """Return the tokens of the source; of a language model that attends, those that it has read at the last step."""
    if batch.source is None:
        ids = [*so_far(batch)[0].tolist(), *(each.token for each in path[:-1])]
        return tuple(run.tokenizer("target").surface(ids)) if attended else None
    field = run.fields["source"]
    if not isinstance(field, TextField):
        return None
    return tuple(field.tokenizer.surface(batch.source.row(0).values[0].tolist()))


def grid_over(run: Run, weights: Weights | None) -> tuple[int, int] | None:
    """Return the rows and columns of a picture's places."""
    field = run.fields.get("source")
    return grid_of(field.size, len(weights)) if isinstance(field, PictureField) and weights is not None else None


def spread(
    weights: Weights | None, number: int, source: tuple[str, ...] | None, batch: Batch, places: int | None
) -> tuple[float, ...] | None:
    """Return a step's weights, one for each token of the source, without padding; those of a language model are of the
    last tokens that it has read. `places`: how many a source has that is no text, where a batch pads it."""
    if weights is None:
        return None
    if source is None:
        return tuple(weights[:places].tolist())
    if batch.source is not None:
        return tuple(weights[: len(source)].tolist())
    read = so_far(batch).shape[1] + number
    before, after = (0.0,) * (read - len(weights)), (0.0,) * (len(source) - read)
    return before + tuple(weights.tolist()) + after


def step_of(run: Run, kept: Kept, attention: tuple[float, ...] | None, forced: bool) -> Step:
    surface = run.tokenizer("target").surface
    previous, *shown = surface([kept.moment.previous, kept.token, *(token for token, _ in kept.moment.likely)])
    every = ((kept.token, kept.log_prob), *kept.moment.likely)
    chosen, *likely = (
        Candidate(token, name, math.exp(log_prob)) for (token, log_prob), name in zip(every, shown, strict=True)
    )
    return Step(previous, chosen, tuple(likely), attention, forced)


def tree_of(run: Run, record: Record, how: Decoding, ended: dict[int, Hypothesis]) -> Tree:
    """Return all that the search kept; `ended`: hypotheses by the place of their last token, the best one first."""
    paths = [record.path(end) for end in ended]
    kept, best = {place for path in paths for place in path}, set(paths[0])
    tokens = run.tokenizer("target").surface([each.token for each in record.kept])
    nodes = (
        Node(
            id=place,
            parent=each.parent,
            step=each.step,
            token=token,
            token_id=each.token,
            log_prob=each.total,
            score=ended[place].score(how.length_penalty) if place in ended else None,
            kept=place in kept,
            finished=each.token == EOS,
            best=place in best,
        )
        for place, (each, token) in enumerate(zip(record.kept, tokens, strict=True))
    )
    return Tree(how.width, tuple(nodes))

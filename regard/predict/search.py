"""One decoding loop for every model that Generates: greedy decoding, beam search, top-k and top-p (nucleus) sampling.

for each step:  logits, state ← model.step(last, state);  constrain;  choose;  state ← state.pick(parents)
A hypothesis' score is the model's own log-probability, whatever the filters; n-best lists are ordered by
score / length^penalty (length penalty).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from regard.interface import BOS, EOS, PAD, Batch, Bounded, Fuses, Generates, State, UserError, rows_of
from regard.predict.decoding import Decoding

IMPOSSIBLE = float("-inf")
STAY = 0.75  # share of the examples above which those that ended stay in the batch
NOTHING = -1  # in place of a token that was written before an example joined
STRETCH = 64  # tokens whose maximum, or sum, is taken together
NARROW = 1024  # tokens that are summed one by one
RANKS = 40  # bits for the number of a line, below those for the rank of its sample
BELOW_ONE = 1 - 2.0**-53
BITS = 2**64 - 1
Integers = TypeVar("Integers", int, NDArray[Any])  # an array is of uint64


@dataclass(frozen=True)
class Hypothesis:
    tokens: tuple[int, ...]  # <eos> not included
    log_prob: float  # natural logarithm, <eos> included
    finished: bool  # ended by <eos>, not by the length limit

    def score(self, length_penalty: float) -> float:
        length = float(len(self.tokens) + self.finished)
        return self.log_prob / math.pow(length, length_penalty)


# --- filters: logits in, logits out ------------------------------------------------------------------------------


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """Keep the nucleus: the smallest set of most probable tokens whose probabilities reach p; it is never empty. The
    first of equally probable tokens are kept."""
    if p >= 1:
        return logits
    # NumPy's sort, which moves no indices, is several times faster than PyTorch's
    ordered = torch.from_numpy(np.sort(logits.cpu().numpy())).to(logits.device).flip(-1)
    probs = ordered.softmax(-1).double()
    count = (probs.cumsum(-1) - probs < p).sum(-1, keepdim=True).clamp(min=1)
    least = ordered.gather(-1, count - 1)
    ties = logits == least
    spare = count - (ordered > least).sum(-1, keepdim=True)  # how many of the ties are kept
    return logits.masked_fill((logits < least) | ties & (ties.cumsum(-1) > spare), IMPOSSIBLE)


def forbid_repeats(logits: Tensor, written: Tensor, n: int) -> Tensor:
    """Forbid, in place, tokens that complete an n-gram which their row of `written` (rows, time) already has."""
    if n == 0 or written.shape[1] < n:
        return logits
    grams = written.unfold(1, n, 1)  # (rows, time - n + 1, n)
    tail = written[:, written.shape[1] - n + 1 :]  # (rows, n - 1)
    same = (grams[..., :-1] == tail[:, None]).all(-1) & (grams != NOTHING).all(-1)  # (rows, time - n + 1)
    row, place = same.nonzero(as_tuple=True)
    logits[row, grams[row, place, -1]] = IMPOSSIBLE
    return logits


def constrain(log_probs: Tensor, written: Tensor, ages: NDArray[Any], how: Decoding) -> Tensor:
    """Make forbidden tokens impossible, in place; where nothing else is left, allow <eos>. Row r has written ages[r]
    tokens, the last ones of `written` (rows, time)."""
    log_probs[:, PAD : BOS + 1] = IMPOSSIBLE
    young = ages < how.min_length
    if not how.no_repeat and not young.any():
        return log_probs
    end = log_probs[:, EOS].clone()
    forbid_repeats(log_probs, written, how.no_repeat)
    if young.any():
        log_probs[torch.from_numpy(young).to(log_probs.device), EOS] = IMPOSSIBLE
    stuck = log_probs.amax(-1) == IMPOSSIBLE
    if bool(stuck.any()):
        log_probs[stuck, EOS] = end[stuck]
    return log_probs


def log_softmax(logits: Tensor) -> Tensor:
    """Return log-probabilities, at least in float32."""
    return logits.log_softmax(-1) if logits.dtype is torch.float64 else logits.float().log_softmax(-1)


def largest(x: Tensor, k: int) -> tuple[Tensor, Tensor]:
    """Return the k largest of each row, (rows, k), and their places, as `topk` does; of equal ones, if k is 1, the
    first. They lie in the k stretches with the largest maxima, and maxima are found several times faster."""
    rows, width = x.shape
    stretches = -(-width // STRETCH)
    if stretches <= k:
        return x.topk(k, -1)
    if rest := stretches * STRETCH - width:
        x = torch.nn.functional.pad(x, (0, rest), value=IMPOSSIBLE)
    x = x.view(rows, stretches, STRETCH)
    maxima = x.amax(-1)  # (rows, stretches)
    best = maxima.argmax(-1, keepdim=True) if k == 1 else maxima.topk(k, -1).indices  # (rows, k)
    near = x.gather(1, best[..., None].expand(-1, -1, STRETCH)).flatten(1)  # (rows, k · STRETCH)
    values, places = near.max(-1, keepdim=True) if k == 1 else near.topk(k, -1)
    return values, best.gather(1, places // STRETCH) * STRETCH + places % STRETCH


# --- choices: which hypotheses continue, and with which token ----------------------------------------------------


class Choice(NamedTuple):
    parents: Tensor | None  # (rows,) the row that each hypothesis continues; None: its own
    tokens: Tensor  # (rows,)
    totals: Tensor  # (batch, width) log-probability so far


OnChoice = Callable[[Choice], None]  # is called after each step, before examples that have ended leave
# log_probs, totals, and of each example its line number and how many tokens it has
Chooser = Callable[[Tensor, Tensor, NDArray[Any], NDArray[Any]], Choice]


def greedy(log_probs: Tensor, totals: Tensor, lines: NDArray[Any], ages: NDArray[Any]) -> Choice:
    gained, tokens = largest(log_probs, 1)
    return Choice(None, tokens[:, 0], totals + gained.view_as(totals))


def beam(log_probs: Tensor, totals: Tensor, lines: NDArray[Any], ages: NDArray[Any]) -> Choice:
    """Beam search: keep the best continuations among all hypotheses of an example, best first."""
    batch, width = totals.shape
    each = min(width, log_probs.shape[-1])  # continuations of one hypothesis that may be among the best
    gained, tokens = largest(log_probs, each)  # (rows, each)
    candidates = (totals[..., None] + gained.view(batch, width, each)).flatten(1)
    best, places = candidates.topk(width, -1)  # (batch, width)
    parents = places // each + torch.arange(batch, device=places.device)[:, None] * width
    return Choice(parents.flatten(), tokens.view(batch, -1).gather(1, places).flatten(), best)


def mixed(number: Integers) -> Integers:
    """Return an element of the sequence of SplitMix64 (Steele 2014), or an array of them."""
    h = (number + 1) * 0x9E3779B97F4A7C15 & BITS
    h = (h ^ h >> 30) * 0xBF58476D1CE4E5B9 & BITS
    h = (h ^ h >> 27) * 0x94D049BB133111EB & BITS
    return h ^ h >> 31


def uniform(seed: int, steps: NDArray[np.int64], lines: NDArray[np.int64], width: int) -> NDArray[np.float64]:
    """Return a number in [0, 1) for each of `width` samples of each line, (batch · width, 1). It is a hash, by integers
    only, of (seed, step, line, rank), so that it is the same on every machine and whatever the other lines are."""
    numbers = (np.arange(width) << RANKS) + lines[:, None]  # (batch, width)
    once: NDArray[np.uint64] = mixed(steps.astype(np.uint64) + np.uint64(mixed(seed)))
    bits: NDArray[np.uint64] = mixed((numbers.astype(np.uint64) + once[:, None]).reshape(-1, 1))
    return (bits >> np.uint64(11)).astype(np.float64) * 2.0**-53


def place_at(weights: Tensor, shares: Tensor) -> Tensor:
    """Return the place where the running sum of each row passes this share, in [0, 1), of its total: (rows, 1). A
    weight of 0 is never chosen. In a wide row the stretch is found first, since sums are faster than running sums."""
    rows, width = weights.shape
    if width <= NARROW:
        return crossing(weights, shares)[0]
    if rest := -width % STRETCH:
        weights = torch.nn.functional.pad(weights, (0, rest))
    weights = weights.view(rows, -1, STRETCH)
    sizes = weights.sum(-1, dtype=torch.float64)  # (rows, stretches)
    stretch, sums, goals = crossing(sizes, shares)
    beyond = (sums.gather(1, stretch) - goals) / sizes.gather(1, stretch)
    near = weights.gather(1, stretch[..., None].expand(-1, -1, STRETCH))[:, 0]
    return stretch * STRETCH + crossing(near, (1 - beyond).clamp_(0, BELOW_ONE))[0]  # rounding might give 1


def crossing(weights: Tensor, shares: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Return where the running sums of weights pass these shares of their last one, the sums, and the shares of it."""
    sums = weights.double().cumsum(-1)
    goals = sums[:, -1:] * shares
    return torch.searchsorted(sums, goals, right=True).clamp_(max=sums.shape[1] - 1), sums, goals


def sampler(how: Decoding) -> Chooser:
    """Sample by inverting the cumulative distribution at a number that is a hash of (seed, line, sample, step)."""

    def sample(log_probs: Tensor, totals: Tensor, lines: NDArray[Any], ages: NDArray[Any]) -> Choice:
        logits, ids = log_probs / how.temperature, None
        if 0 < how.top_k < logits.shape[-1]:
            logits, ids = largest(logits, how.top_k)
        shares = torch.from_numpy(uniform(how.seed, ages, lines, totals.shape[1])).to(logits.device)
        places = place_at(keep_top_p(logits, how.top_p).softmax(-1), shares)
        tokens = places if ids is None else ids.gather(-1, places)  # (rows, 1)
        return Choice(None, tokens[:, 0], totals + log_probs.gather(-1, tokens).view_as(totals))

    return sample


def chooser(how: Decoding) -> Chooser:
    return sampler(how) if how.sample else beam if how.beam > 1 else greedy


# --- the loop ----------------------------------------------------------------------------------------------------


def room(model: object) -> int | None:
    """Return the maximum length of the model on either side, in tokens; None: no limit."""
    return model.longest if isinstance(model, Bounded) else None


def last_tokens(batch: Batch) -> Tensor:
    """Return the last token that each example has generated so far, or <bos>: (batch,)."""
    if batch.target is None:
        return torch.full((batch.size,), BOS, device=batch.device)
    return batch.target.values.gather(1, batch.target.lengths[:, None] - 1)[:, 0]


class Search:
    """A decoding that is under way. Examples may join it at any time; a step writes one token of each, and those that
    have ended leave."""

    def __init__(self, model: Generates, how: Decoding, on_choice: OnChoice | None = None) -> None:
        self.model, self.how, self.width, self.on_choice = model, how, how.width, on_choice
        self.choose = chooser(how)
        self.state: State | None = None
        self.found: dict[int, list[Hypothesis]] = {}  # of those that have not ended, by their names
        self.forced: dict[int, Sequence[int]] = {}  # what the output of an example must begin with, by its name
        # one entry per example; a row per hypothesis
        self.names = self.lines = self.limits = self.ages = np.zeros(0, np.int64)
        self.to_come = np.zeros(0, np.int64)  # hypotheses that have not ended
        self.alive = np.zeros((0, self.width), bool)
        self.tokens, self.totals, self.written = torch.empty(0), torch.empty(0), torch.empty(0)

    def __len__(self) -> int:
        """Count the examples that have not ended."""
        return len(self.found)

    @torch.inference_mode()
    def add(
        self,
        batch: Batch,
        *,
        names: Sequence[int],
        lines: Sequence[int],
        limits: Sequence[int],
        forced: Sequence[Sequence[int]] = (),
    ) -> None:
        """Let examples join. `limits`: the maximum length of each, <eos> included, if the model allows as many;
        `lines`: their numbers for the sampler's noise; no two examples that are under way have the same name.
        `forced`: the tokens that each output must begin with, whatever the settings forbid (prefix-constrained
        decoding)."""
        longest = room(self.model)
        most = np.minimum(limits, np.iinfo(np.int64).max if longest is None else longest)
        state = self.model.start(batch)
        tokens = last_tokens(batch)
        totals = torch.zeros(batch.size, self.width, device=batch.device)
        if self.width > 1:
            state = state.widen(self.width, torch.arange(batch.size, device=batch.device))
            tokens = tokens.repeat_interleave(self.width)
        if self.choose is beam:  # all hypotheses are still the same one: let it branch once
            totals[:, 1:] = IMPOSSIBLE
        written = tokens.new_empty(len(tokens), 0)
        self.found.update((name, []) for name in names)
        self.forced.update((name, tokens) for name, tokens in zip(names, forced, strict=False) if tokens)
        alive = np.ones((batch.size, self.width), bool)
        fresh = (np.asarray(names), np.asarray(lines), most, np.zeros_like(most), alive.sum(1), alive)
        if self.state is None or not self._leave(np.nonzero(self.alive.any(1))[0]):
            self.state, self.tokens, self.totals, self.written = state, tokens, totals, written
            self.names, self.lines, self.limits, self.ages, self.to_come, self.alive = fresh
            return
        self.state = self.state.join(state)
        self.tokens, self.totals = torch.cat([self.tokens, tokens]), torch.cat([self.totals, totals])
        age = self.written.shape[1]
        self.written = torch.cat([self.written, tokens.new_full((len(tokens), age), NOTHING)])
        old = (self.names, self.lines, self.limits, self.ages, self.to_come, self.alive)
        both = (np.concatenate(pair) for pair in zip(old, fresh, strict=True))
        self.names, self.lines, self.limits, self.ages, self.to_come, self.alive = both

    @torch.inference_mode()
    def step(self) -> list[tuple[int, list[Hypothesis]]]:
        """Write one token of each example, and return the names and hypotheses, best first, of those that ended."""
        assert self.state is not None
        logits, state = self.model.step(self.tokens, self.state)
        log_probs = logits if isinstance(self.model, Fuses) else log_softmax(logits)
        own = log_probs.clone() if self.forced else log_probs
        log_probs = constrain(log_probs, self.written, self.ages.repeat(self.width), self.how)
        for place, token in self._forced_next():
            rows = slice(place * self.width, (place + 1) * self.width)
            if float(own[rows.start, token]) == IMPOSSIBLE:
                raise UserError(f"Token {token} is forced where the model gives it probability 0: force another one.")
            log_probs[rows] = IMPOSSIBLE
            log_probs[rows, token] = own[rows, token]
        choice = parents, tokens, totals = self.choose(log_probs, self.totals, self.lines, self.ages)
        values = totals.cpu().numpy()
        if np.isnan(values).any():
            raise UserError(
                "The model's outputs are not numbers: restore its weights, or train with a lower train.learning_rate."
            )
        written = self.written
        if parents is not None:
            state, written = state.pick(parents), written.index_select(0, parents)
            # a finished hypothesis gives up its place, so the beam narrows until all have ended
            self.alive = (np.arange(self.width) < self.to_come[:, None]) & (values > IMPOSSIBLE)
        self.state, self.tokens, self.totals = state, tokens, totals
        self.written = torch.cat([written, tokens[:, None]], 1)
        self.ages = self.ages + 1
        if self.on_choice is not None:
            self.on_choice(choice)
        stopped = (tokens == EOS).cpu().numpy().reshape(self.alive.shape)
        ended = self.alive & (stopped | (self.limits <= self.ages)[:, None])
        over = self._end(ended, stopped, values) if ended.any() else []
        if self.choose is beam and not self.alive.all():
            self.totals = totals.masked_fill(torch.from_numpy(~self.alive).to(totals.device), IMPOSSIBLE)
        if over:
            left = np.nonzero(self.alive.any(1))[0]
            if len(left) <= STAY * len(self.names):  # leaving costs a copy of the state, so examples leave together
                self._leave(left)
        return over

    def _forced_next(self) -> list[tuple[int, int]]:
        """Return the place of each example whose next token is forced, and this token."""
        ages = zip(self.names.tolist(), self.ages.tolist(), strict=True) if self.forced else ()
        every = ((place, self.forced.get(name, ()), age) for place, (name, age) in enumerate(ages))
        return [(place, tokens[age]) for place, tokens, age in every if age < len(tokens)]

    @torch.inference_mode()
    def drop(self, names: Collection[int]) -> None:
        """Let examples leave before they have ended."""
        for name in names:
            self.found.pop(name, None)
            self.forced.pop(name, None)
        self.alive = self.alive & ~np.isin(self.names, list(names))[:, None]
        self._leave(np.nonzero(self.alive.any(1))[0])

    def _end(
        self, ended: NDArray[Any], stopped: NDArray[Any], values: NDArray[Any]
    ) -> list[tuple[int, list[Hypothesis]]]:
        """Keep the hypotheses that ended, and return the examples of which none is left."""
        for place, rank in zip(*(each.tolist() for each in np.nonzero(ended)), strict=True):
            finished = bool(stopped[place, rank])
            ids = self.written[place * self.width + rank, -int(self.ages[place]) :].tolist()
            hypothesis = Hypothesis(tuple(ids[:-1] if finished else ids), float(values[place, rank]), finished)
            self.found[int(self.names[place])].append(hypothesis)
        self.alive, self.to_come = self.alive & ~ended, self.to_come - ended.sum(1)
        penalty = self.how.length_penalty
        over = []
        for name in self.names[ended.any(1) & ~self.alive.any(1)].tolist():
            # those that ended with <eos> come before those that were cut off
            hypotheses = sorted(self.found.pop(name), key=lambda each: (not each.finished, -each.score(penalty)))
            self.forced.pop(name, None)
            over.append((name, hypotheses))
        return over

    def _leave(self, left: NDArray[Any]) -> int:
        """Keep only these examples, and return how many they are."""
        if len(left) < len(self.names):
            assert self.state is not None
            examples = torch.from_numpy(left).to(self.tokens.device)
            rows = rows_of(examples, self.width)
            self.state, self.tokens, self.totals = self.state.keep(examples), self.tokens[rows], self.totals[examples]
            self.names, self.lines, self.limits = self.names[left], self.lines[left], self.limits[left]
            self.ages, self.to_come, self.alive = self.ages[left], self.to_come[left], self.alive[left]
            oldest = self.written.shape[1] - int(self.ages.max(initial=0))
            self.written = self.written[rows, oldest:]
        return len(left)


class Decoder(Protocol):
    """Decodes each example of a batch and returns its hypotheses, best first.

    `limits` (batch,) is the maximum length of each, <eos> included, if the model allows as many; `lines` (batch,)
    numbers the examples for the sampler; `on_choice` is called after each step.
    """

    def __call__(
        self,
        model: Generates,
        batch: Batch,
        how: Decoding,
        *,
        limits: Tensor,
        lines: Tensor | None = None,
        on_choice: OnChoice | None = None,
    ) -> list[list[Hypothesis]]: ...


def generate(
    model: Generates,
    batch: Batch,
    how: Decoding,
    *,
    limits: Tensor,
    lines: Tensor | None = None,
    on_choice: OnChoice | None = None,
) -> list[list[Hypothesis]]:
    """Decode these examples by themselves: the Decoder of every run that shares its model with nobody."""
    search, names = Search(model, how, on_choice), range(batch.size)
    search.add(batch, names=names, lines=names if lines is None else lines.tolist(), limits=limits.tolist())
    found: dict[int, list[Hypothesis]] = {}
    while search:
        found.update(search.step())
    return [found[name] for name in names]

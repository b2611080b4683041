"""predict: one decoding loop for everything that Generates; greedy, sampling and beam are choices inside it.

for each step:  logits, state ← model.step(last, state);  constrain;  choose;  state ← state.pick(parents)
A hypothesis' score is the model's own log-probability, whatever the filters; n-best lists are ordered by
score / length^penalty.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor

from regard.config import NOT_NEGATIVE, Bound, between, out_of_bounds
from regard.data.batches import MULTIPLE, pad
from regard.interface import BOS, EOS, PAD, UNK, Batch, Bounded, Generates, UserError, rows_of
from regard.models.encoder_decoder import EncoderDecoder

if TYPE_CHECKING:
    from regard.run import Run

IMPOSSIBLE = float("-inf")
LONGEST_TEXT = 256  # tokens that a language model writes unless told otherwise
NEAR = 16  # tokens whose text the next token's depends on, and more than that
HALF = "\ufffd"
CHARACTERS = 100  # in a token, on average and at most: what lies beyond in a line is not even looked at

BOUNDS = {
    "beam": between(1, 1000),
    "temperature": between(1e-6, 1e6),
    "top_k": NOT_NEGATIVE,
    "top_p": Bound("above 0 and at most 1", lambda value: 0 < value <= 1),
    "n_best": between(1, 1000),
    "length_penalty": between(-10, 10),
    "min_length": between(0, 1_000_000),
    "max_length": between(0, 1_000_000),
    "no_repeat": NOT_NEGATIVE,
    "seed": Bound("at least 0 and below 2⁶³", lambda value: 0 <= value < 1 << 63),
    "longest_source": between(1, 1_000_000),
}


@dataclass(frozen=True)
class Decoding:
    """How to write."""

    beam: int = 1  # hypotheses kept per sentence; 1 is greedy
    sample: bool = False  # draw from the distribution instead of taking the likeliest
    temperature: float = 1.0  # below 1 sharpens the distribution that is drawn from, above 1 flattens it
    top_k: int = 0  # draw among the k likeliest tokens only; 0: all
    top_p: float = 1.0  # draw among the likeliest tokens that together hold this much probability
    n_best: int = 1  # outputs per sentence
    length_penalty: float = 1.0  # hypotheses compete by log-probability / length to this power
    min_length: int = 0  # tokens before <eos> may come
    max_length: int = 0  # tokens, <eos> included; 0: twice the source and ten, or 256 of a text
    no_repeat: int = 0  # never write the same n tokens twice; 0: no limit
    seed: int = 0  # of the noise that samples; it depends on the line and the step only
    longest_source: int = 1000  # tokens of a line that are read; a longer line is cut
    replace_unknown: bool = False  # write the source word that an <unk> looks at most, in its place

    def __post_init__(self) -> None:
        for name, bound in BOUNDS.items():
            for _, value, allowed in out_of_bounds(self, bound, name):
                raise UserError(f"--{name.replace('_', '-')} {value} is not possible: it must be {allowed}.")
        if self.sample and self.beam > 1:
            raise UserError("--sample and --beam exclude each other: use --n-best for several samples.")
        if not self.sample and self.n_best > self.beam:
            raise UserError(f"--n-best {self.n_best} needs at least as wide a --beam (it is {self.beam}), or --sample.")

    @property
    def width(self) -> int:
        return self.n_best if self.sample else self.beam


@dataclass(frozen=True)
class Hypothesis:
    tokens: tuple[int, ...]  # <eos> not included
    log_prob: float  # natural logarithm, <eos> included
    finished: bool  # ended by <eos>, not by the length limit

    def score(self, length_penalty: float) -> float:
        length = float(len(self.tokens) + self.finished)
        return self.log_prob / math.pow(length, length_penalty)


@dataclass(frozen=True)
class Prediction:
    text: str
    score: float  # log-probability of the whole output
    tokens: tuple[str, ...]
    alternatives: tuple[Prediction, ...] = ()  # the rest of the n-best list
    cut: bool = False  # the line was longer than the model or longest_source allows: only its beginning was read


# --- filters: logits in, logits out ------------------------------------------------------------------------------


def keep_top_k(logits: Tensor, k: int) -> Tensor:
    if k == 0 or k >= logits.shape[-1]:
        return logits
    least = logits.topk(k, -1).values[..., -1:]
    return logits.masked_fill(logits < least, IMPOSSIBLE)


def keep_top_p(logits: Tensor, p: float) -> Tensor:
    """The smallest set of likeliest tokens whose probabilities reach p; the likeliest always stays."""
    if p >= 1:
        return logits
    ordered, order = logits.sort(-1, descending=True)
    probs = ordered.softmax(-1)
    before = probs.cumsum(-1) - probs
    return logits.scatter(-1, order, ordered.masked_fill(before >= p, IMPOSSIBLE))


def forbid_repeats(logits: Tensor, written: Tensor, n: int) -> Tensor:
    """No token may complete an n-gram that its row of `written` (rows, time) already holds."""
    forbidden = logits.clone()
    if n == 0 or written.shape[1] < n:
        return forbidden
    grams = written.unfold(1, n, 1)  # (rows, time - n + 1, n)
    tail = written[:, written.shape[1] - n + 1 :]  # (rows, n - 1)
    same = (grams[..., :-1] == tail[:, None]).all(-1)  # (rows, time - n + 1)
    row, place = same.nonzero(as_tuple=True)
    forbidden[row, grams[row, place, -1]] = IMPOSSIBLE
    return forbidden


def constrain(log_probs: Tensor, written: Tensor, how: Decoding) -> Tensor:
    """What may never come next is impossible; where that leaves nothing, <eos> may come after all."""
    allowed = forbid_repeats(log_probs, written, how.no_repeat)
    allowed[:, [PAD, BOS]] = IMPOSSIBLE
    if written.shape[1] < how.min_length:
        allowed[:, EOS] = IMPOSSIBLE
    stuck = (allowed == IMPOSSIBLE).all(-1)
    allowed[stuck, EOS] = log_probs[stuck, EOS]
    return allowed


# --- choices: which hypotheses go on, and with which token -------------------------------------------------------


class Choice(NamedTuple):
    parents: Tensor | None  # (rows,) the row each hypothesis goes on from; None: its own
    tokens: Tensor  # (rows,)
    totals: Tensor  # (batch, width) log-probability so far


Chooser = Callable[[Tensor, Tensor, Tensor, int], Choice]  # log_probs, totals, examples' line numbers, step


def greedy(log_probs: Tensor, totals: Tensor, lines: Tensor, step: int) -> Choice:
    gained, tokens = log_probs.max(-1)
    return Choice(None, tokens, totals + gained.view_as(totals))


def beam(log_probs: Tensor, totals: Tensor, lines: Tensor, step: int) -> Choice:
    """The best continuations of an example's hypotheses together, best first."""
    batch, width = totals.shape
    vocab = log_probs.shape[-1]
    candidates = (totals[..., None] + log_probs.view(batch, width, vocab)).flatten(1)
    best, places = candidates.topk(width, -1)  # (batch, width)
    parents = places // vocab + torch.arange(batch, device=places.device)[:, None] * width
    return Choice(parents.flatten(), (places % vocab).flatten(), best)


def sampler(how: Decoding) -> Chooser:
    """Draws by the Gumbel-max trick: argmax of logits + noise, the noise a function of (seed, line, sample, step)."""

    def sample(log_probs: Tensor, totals: Tensor, lines: Tensor, step: int) -> Choice:
        filtered = keep_top_p(keep_top_k(log_probs / how.temperature, how.top_k), how.top_p)
        noise = np.empty(log_probs.shape)
        for row in range(log_probs.shape[0]):
            line, drawn = int(lines[row // totals.shape[1]]), row % totals.shape[1]
            generator = np.random.Generator(np.random.Philox(key=[how.seed, line], counter=[0, 0, step, drawn]))
            noise[row] = generator.gumbel(size=log_probs.shape[1])
        tokens = (filtered + torch.from_numpy(noise).to(filtered)).argmax(-1)
        gained = log_probs.gather(-1, tokens[:, None])
        return Choice(None, tokens, totals + gained.view_as(totals))

    return sample


def chooser(how: Decoding) -> Chooser:
    return sampler(how) if how.sample else beam if how.beam > 1 else greedy


# --- the loop ----------------------------------------------------------------------------------------------------


def room(model: object) -> int | None:
    """The most tokens on either side that the model can count; None: any number."""
    return model.longest if isinstance(model, Bounded) else None


def last_tokens(batch: Batch) -> Tensor:
    """The last token of what each example has written already, <bos> if nothing: (batch,)."""
    if batch.target is None:
        return torch.full((batch.size,), BOS, device=batch.source.device)
    ends = (batch.target != PAD).sum(1, keepdim=True) - 1
    return batch.target.gather(1, ends)[:, 0]


@torch.inference_mode()
def generate(
    model: Generates,
    batch: Batch,
    how: Decoding,
    *,
    limits: Tensor,
    lines: Tensor | None = None,
    told: Callable[[Tensor], None] | None = None,
) -> list[list[Hypothesis]]:
    """Each example's hypotheses, best first. `limits` (batch,) is the most tokens each may have, <eos> included, where
    the model has room for as many; `lines` (batch,) numbers the examples for the sampler's noise; `told` hears of
    every row's token as it is chosen."""
    choose, width = chooser(how), how.width
    if (longest := room(model)) is not None:
        limits = limits.clamp(max=longest)
    device = batch.source.device
    examples = torch.arange(batch.size, device=device)  # those still in the batch
    lines = examples if lines is None else lines
    found: list[list[Hypothesis]] = [[] for _ in range(batch.size)]
    state = model.start(batch)
    if width > 1:
        state = state.widen(width, examples)
    tokens = last_tokens(batch).repeat_interleave(width)
    written = tokens.new_empty(batch.size * width, 0)
    alive = torch.ones(batch.size, width, dtype=torch.bool, device=device)
    to_come = alive.sum(1, keepdim=True)  # (batch, 1) hypotheses that have not ended
    totals: Tensor | None = None
    step = 0
    while len(examples):
        logits, state = model.step(tokens, state)
        log_probs = logits.log_softmax(-1) if logits.dtype is torch.float64 else logits.float().log_softmax(-1)
        if totals is None:
            totals = log_probs.new_zeros(alive.shape)
            if choose is beam:  # all hypotheses are still the same one: let it branch once
                totals[:, 1:] = IMPOSSIBLE
        log_probs = constrain(log_probs, written, how)
        parents, tokens, totals = choose(log_probs, totals, lines[examples], step)
        if totals.isnan().any():
            raise UserError(
                "The model's outputs are not numbers: restore its weights, or train with a lower train.learning_rate."
            )
        if parents is not None:
            state, written = state.pick(parents), written.index_select(0, parents)
            # a finished hypothesis gives up its place, so the beam narrows until all have ended
            ranks = torch.arange(width, device=device)
            alive = (ranks < to_come) & (totals > IMPOSSIBLE)
        written = torch.cat([written, tokens[:, None]], 1)
        step += 1
        if told is not None:
            told(tokens)
        stopped = tokens.view_as(alive) == EOS
        ended = alive & (stopped | (limits[examples] <= step)[:, None])
        for place, rank in ended.nonzero().tolist():
            finished = bool(stopped[place, rank])
            ids = written[place * width + rank].tolist()
            hypothesis = Hypothesis(tuple(ids[:-1] if finished else ids), float(totals[place, rank]), finished)
            found[int(examples[place])].append(hypothesis)
        alive, to_come = alive & ~ended, to_come - ended.sum(1, keepdim=True)
        if choose is beam:
            totals = totals.masked_fill(~alive, IMPOSSIBLE)
        left = alive.any(1).nonzero()[:, 0]
        if len(left) <= 0.75 * len(examples):  # leaving costs a copy of the state, so examples leave together
            rows = rows_of(left, width)
            state, tokens, written = state.keep(left), tokens[rows], written[rows]
            examples, alive, totals, to_come = examples[left], alive[left], totals[left], to_come[left]
    for hypotheses in found:
        hypotheses.sort(key=lambda hypothesis: -hypothesis.score(how.length_penalty))
    return found


# --- text in, text out -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Line:
    number: int
    ids: list[int] = field(repr=False)
    cut: bool


def most_read(model: object, how: Decoding) -> int:
    """Tokens of a line that are read, <eos> not included; a longer line is cut."""
    longest = room(model)
    return how.longest_source if longest is None else min(how.longest_source, longest // MULTIPLE * MULTIPLE - 1)


def predict(
    run: Run,
    lines: Sequence[str],
    how: Decoding | None = None,
    *,
    batch_tokens: int = 4096,
    first_line: int = 0,
) -> list[Prediction]:
    """One Prediction per line, in order; `first_line` numbers the first one, for the sampler's noise.

    A translator translates the line, a language model goes on from it; unless told how, it draws.
    """
    if not isinstance(run.model, Generates):
        raise UserError(f"{run.recipe.model_name} does not generate: it has no step.")
    if run.recipe.task == "language":
        how = how or Decoding(sample=True)
        return _continued(run, lines, how, batch_tokens=batch_tokens, first_line=first_line)
    how = how or Decoding()
    predictions = [Prediction("", 0.0, ())] * len(lines)  # empty in, empty out
    if how.replace_unknown and not attends(run.model):
        raise UserError(
            f"--replace-unknown needs a model that attends to the source: {run.recipe.model_name} does not."
        )
    most = most_read(run.model, how)
    beginnings = [line[: most * CHARACTERS] for line in lines]
    readable = []
    for number, ids in enumerate(run.tokenizers.source.encode_all(beginnings)):
        if lines[number].strip():
            cut = len(ids) > most or len(lines[number]) > len(beginnings[number])
            readable.append(_Line(number, ids[:most], cut))
    readable.sort(key=lambda line: -len(line.ids))
    while readable:
        count = max(1, batch_tokens // ((len(readable[0].ids) + 1) * how.width))
        together, readable = readable[:count], readable[count:]
        source = pad([line.ids for line in together])
        lengths = (source != PAD).sum(1)
        limits = torch.full_like(lengths, how.max_length) if how.max_length else 2 * lengths + 10
        numbers = torch.tensor([first_line + line.number for line in together])
        found = generate(
            run.model,
            Batch(source.to(run.device)),
            how,
            limits=limits.to(run.device),
            lines=numbers.to(run.device),
        )
        kept = [hypotheses[: how.n_best] for hypotheses in found]
        looked_at = _looked_at(run, together, kept, beginnings) if how.replace_unknown else {}
        for line, hypotheses in zip(together, kept, strict=True):
            best, *others = (
                _prediction(run, hypothesis, looked_at.get((line.number, rank), []), cut=line.cut)
                for rank, hypothesis in enumerate(hypotheses)
            )
            predictions[line.number] = replace(best, alternatives=tuple(others))
    return predictions


def _continued(
    run: Run, prompts: Sequence[str], how: Decoding, *, batch_tokens: int, first_line: int
) -> list[Prediction]:
    """Each prompt and what comes after it. Those of one length go together, so that none sees another's padding."""
    refuse_replacing(run, how)
    predictions: list[Prediction | None] = [None] * len(prompts)
    tokens = run.tokenizers.target.encode_all(prompts, continued=run.whole_file)
    by_length: dict[int, list[_Line]] = {}
    for number, ids in enumerate(tokens):
        read = [*run.opening, *ids[-how.longest_source :]]
        by_length.setdefault(len(read), []).append(_Line(number, read, cut=len(ids) > how.longest_source))
    for length, waiting in by_length.items():
        count = max(1, batch_tokens // (length * how.width))
        for begin in range(0, len(waiting), count):
            together = waiting[begin : begin + count]
            for line, hypotheses in zip(together, _generate(run, together, how, first_line), strict=True):
                best, *others = (
                    _written(run, prompts[line.number], tokens[line.number], hypothesis, cut=line.cut)
                    for hypothesis in hypotheses[: how.n_best]
                )
                predictions[line.number] = replace(best, alternatives=tuple(others))
    return cast(list[Prediction], predictions)


def refuse_replacing(run: Run, how: Decoding) -> None:
    if how.replace_unknown:
        raise UserError(f"--replace-unknown needs a translator: {run.recipe.model_name} has no source to look at.")


def _generate(
    run: Run, lines: list[_Line], how: Decoding, first_line: int, told: Callable[[Tensor], None] | None = None
) -> list[list[Hypothesis]]:
    read = torch.tensor([line.ids for line in lines], device=run.device)
    limits = torch.full((len(lines),), how.max_length or LONGEST_TEXT, device=run.device)
    numbers = torch.tensor([first_line + line.number for line in lines], device=run.device)
    return generate(cast(Generates, run.model), Batch.of_text(read), how, limits=limits, lines=numbers, told=told)


def _written(run: Run, prompt: str, ids: Sequence[int], hypothesis: Hypothesis, *, cut: bool) -> Prediction:
    """The prompt, and what these tokens add to the text of its own."""
    tokenizer, near = run.tokenizers.target, list(ids[-NEAR:])
    added = tokenizer.decode([*near, *hypothesis.tokens])[len(tokenizer.decode(near)) :]
    return Prediction(prompt + added, hypothesis.log_prob, tuple(tokenizer.surface(hypothesis.tokens)), cut=cut)


def write_on(run: Run, prompt: str, how: Decoding, write: Callable[[str], None]) -> Prediction:
    """Go on from a prompt, handing out the text as it comes: the prompt first."""
    refuse_replacing(run, how)
    (ids,) = run.tokenizers.target.encode_all([prompt], continued=run.whole_file)
    written: list[int] = []
    shown = 0  # characters

    def told(tokens: Tensor) -> None:
        nonlocal shown
        if int(tokens[0]) == EOS:
            return
        before = [*ids, *written][-NEAR:]
        written.append(int(tokens[0]))
        decode = run.tokenizers.target.decode
        # half a character decodes as U+FFFD until its other half comes
        was, now = decode(before).rstrip(HALF), decode([*before, written[-1]]).rstrip(HALF)
        shown += len(now) - len(was)
        write(now[len(was) :])

    write(prompt)
    line = _Line(0, [*run.opening, *ids[-how.longest_source :]], cut=len(ids) > how.longest_source)
    (hypotheses,) = _generate(run, [line], how, 0, told)
    prediction = _written(run, prompt, ids, hypotheses[0], cut=line.cut)
    write(prediction.text[len(prompt) + shown :])
    return prediction


def attends(model: object) -> bool:
    return isinstance(model, EncoderDecoder) and len(model.decoder.looks_back()) > 0


def _looked_at(
    run: Run, lines: list[_Line], found: list[list[Hypothesis]], texts: list[str]
) -> dict[tuple[int, int], list[str]]:
    """The source word that each <unk> looks at most, layers and heads together, by line number and rank."""
    asking = [
        (line, rank, hypothesis.tokens)
        for line, hypotheses in zip(lines, found, strict=True)
        for rank, hypothesis in enumerate(hypotheses)
        if UNK in hypothesis.tokens
    ]
    if not asking:
        return {}
    batch = Batch(pad([line.ids for line, _, _ in asking]), pad([tokens for _, _, tokens in asking], begin=True))
    weights = cast(EncoderDecoder, run.model).attention(batch.to(run.device)).mean((1, 2)).cpu()
    words = {}
    for (line, rank, tokens), rows in zip(asking, weights, strict=True):
        pieces = run.tokenizers.source.pieces(texts[line.number])[: len(line.ids)]
        says = torch.tensor([bool(piece.text.strip()) for piece in pieces])  # not a space, a join or <eos>
        unknown = rows[: len(tokens), : len(pieces)][torch.tensor(tokens) == UNK]  # (unknowns, source)
        words[line.number, rank] = [pieces[place].text for place in (unknown * says).argmax(-1).tolist()]
    return words


def _prediction(run: Run, hypothesis: Hypothesis, unknowns: list[str], *, cut: bool) -> Prediction:
    tokenizer, tokens = run.tokenizers.target, hypothesis.tokens
    return Prediction(
        tokenizer.decode(tokens, unknowns), hypothesis.log_prob, tuple(tokenizer.surface(tokens)), cut=cut
    )

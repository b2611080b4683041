"""Texts that a run writes for a completion: every choice together, or each one as it comes.

A choice that is streamed, or that has stop sequences, is a request of its own to the engine, which decodes it with all
others; so it can end by itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Literal, NamedTuple

from torch import Tensor

from regard.interface import Batch, Generates
from regard.predict.decoding import Decoding
from regard.predict.search import RANKS, Choice, Decoder, Hypothesis, OnChoice
from regard.run import Run
from regard.serve.desk import Desk
from regard.serve.engine import Gone, Ticket

AT_ONCE = 8  # choices of one request that are streamed side by side, each in a thread


@dataclass(frozen=True)
class Plan:
    """What is to be written."""

    prompts: Sequence[str]
    n: int  # choices per prompt
    how: Decoding  # with n-best as large as n, but for greedy decoding, whose choices are all the same
    first_line: int  # the number of the first prompt for the sampler
    stops: Sequence[str]
    continues: bool  # whether the outputs of the run begin with their prompt
    echo: bool  # and whether the prompt is wanted there


class End(NamedTuple):
    """How a choice ended."""

    reason: Literal["stop", "length"]
    read: int  # tokens of the prompt, as the model reads it
    written: int  # tokens, <eos> included


class Piece(NamedTuple):
    """More text of a choice; the last one says how it ended."""

    choice: int  # prompt · n + rank
    text: str
    end: End | None = None


class Recorder:
    """A decoder that notes what it read and wrote."""

    def __init__(self, decoder: Decoder) -> None:
        self.decoder = decoder
        self.read: dict[int, int] = {}  # tokens by line
        self.found: dict[int, list[Hypothesis]] = {}  # by line
        self.steps = 0

    def __call__(
        self,
        model: Generates,
        batch: Batch,
        how: Decoding,
        *,
        limits: Tensor,
        lines: Tensor | None = None,
        on_choice: OnChoice | None = None,
    ) -> list[list[Hypothesis]]:
        assert lines is not None

        def counted(choice: Choice) -> None:
            self.steps += 1
            if on_choice is not None:
                on_choice(choice)

        self.read.update(zip(lines.tolist(), batch.first.lengths.tolist(), strict=True))
        watched = None if on_choice is None else counted
        found = self.decoder(model, batch, how, limits=limits, lines=lines, on_choice=watched)
        self.found.update(zip(lines.tolist(), found, strict=True))
        return found


class Part(Ticket):
    """One choice of a request: it ends with the request, or before."""

    def __init__(self, whole: Ticket) -> None:
        super().__init__(whole.deadline)
        self.whole = whole

    def problem(self) -> Exception | None:
        return self.whole.problem() or super().problem()


class Stops:
    """Finds the first stop sequence in a text that comes in pieces, and holds back what may be its beginning."""

    def __init__(self, sequences: Sequence[str]) -> None:
        self.sequences, self.held, self.found = sequences, "", False

    def feed(self, piece: str) -> str:
        """Return what is sure to stand before a stop sequence."""
        if self.found:
            return ""
        text = self.held + piece
        places = [place for each in self.sequences if (place := text.find(each)) >= 0]
        if places:
            self.found, self.held = True, ""
            return text[: min(places)]
        beginnings = (n for each in self.sequences for n in range(1, len(each)) if text.endswith(each[:n]))
        sure = len(text) - max(beginnings, default=0)
        self.held = text[sure:]
        return text[:sure]


async def pieces(desk: Desk, ticket: Ticket, run: Run, plan: Plan, *, one_by_one: bool) -> AsyncIterator[Piece]:
    """Write all choices; `one_by_one`: each as it comes, which a language model can."""
    if not one_by_one:
        written = desk.in_thread(partial(together, run, plan, desk.engine.decoder(ticket)))
        for every in await desk.before_deadline(ticket, written):
            yield every
        return
    loop, turns = asyncio.get_running_loop(), asyncio.Semaphore(AT_ONCE)
    found: asyncio.Queue[Piece | Exception] = asyncio.Queue()

    async def write(choice: int) -> None:
        def emit(text: str) -> None:
            loop.call_soon_threadsafe(found.put_nowait, Piece(choice, text))

        part = Part(ticket)
        try:
            async with turns:
                call = partial(one, run, plan, choice, part, desk.engine.decoder(part), emit)
                end = await desk.before_deadline(ticket, desk.in_thread(call))
            found.put_nowait(Piece(choice, "", end))
        except Exception as problem:
            found.put_nowait(problem)

    tasks = [asyncio.create_task(write(choice)) for choice in range(len(plan.prompts) * plan.n)]
    try:
        left = len(tasks)
        while left:
            piece = await found.get()
            if isinstance(piece, Exception):
                raise piece
            left -= piece.end is not None
            yield piece
    finally:
        for task in tasks:
            task.cancel()


def together(run: Run, plan: Plan, decoder: Decoder) -> list[Piece]:
    """Write all choices in one decoding, or a few."""
    recorder = Recorder(decoder)
    shared = replace(run, decoder=recorder)
    answers = run.task.answer(shared, plan.prompts, plan.how, first_line=plan.first_line)
    found = []
    for number, (prompt, answer) in enumerate(zip(plan.prompts, answers, strict=True)):
        start = len(prompt) if plan.continues else 0
        line = plan.first_line + number
        texts = [answer.text, *(other.text for other in answer.alternatives)]
        texts *= plan.n if plan.how.n_best == 1 else 1
        hypotheses = recorder.found.get(line, [])  # none for an empty line
        for rank, text in enumerate(texts):
            stops = Stops(plan.stops)
            shown = stops.feed(text[start:]) + stops.held
            hypothesis = hypotheses[min(rank, len(hypotheses) - 1)] if hypotheses else Hypothesis((), 0.0, True)
            reason: Literal["stop", "length"] = "stop" if stops.found or hypothesis.finished else "length"
            written = len(hypothesis.tokens) + hypothesis.finished if hypotheses else 0
            end = End(reason, recorder.read.get(line, 0), written)
            found.append(Piece(number * plan.n + rank, (prompt if plan.echo else "") + shown, end))
    return found


def one(run: Run, plan: Plan, choice: int, part: Part, decoder: Decoder, emit: Callable[[str], None]) -> End:
    """Write one choice as it comes; a stop sequence ends it."""
    number, rank = divmod(choice, plan.n)
    prompt, recorder, stops = plan.prompts[number], Recorder(decoder), Stops(plan.stops)
    line = plan.first_line + number + (rank << RANKS if plan.how.sample else 0)
    is_prompt = True  # which comes first

    def write(text: str) -> None:
        nonlocal is_prompt
        if not is_prompt or plan.echo:
            shown = text if is_prompt else stops.feed(text)
            part.left = stops.found
            if shown:
                emit(shown)
        is_prompt = False

    try:
        run.task.stream(replace(run, decoder=recorder), prompt, replace(plan.how, n_best=1), write, line)
    except Gone:
        if not stops.found or part.whole.problem():
            raise
    if stops.held:
        emit(stops.held)
    (read,) = recorder.read.values()
    ended = stops.found or all(hypothesis.finished for each in recorder.found.values() for hypothesis in each)
    return End("stop" if ended else "length", read, recorder.steps)

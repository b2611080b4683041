"""One thread computes for all requests, one small piece of work after another.

    each turn:  of all work, take the one that has had the least time;  advance it by one unit

A unit is one step of a decoding, one batch of labels, or one call. Requests that decode with the same model and
settings share one `Search`: they join it at any step and leave it when they end (continuous batching). Sources of very
different lengths are decoded apart, so that a short one does not carry the padding of a long one. Time goes to the work
that has had the least of it, so that a long request cannot hold up short ones.
"""

from __future__ import annotations

import queue
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any, Protocol

from torch import Tensor

from regard import machine
from regard.config import UserError
from regard.interface import Batch, Generates, joined
from regard.predict.decoding import Decoding, Prediction
from regard.predict.search import Choice, Decoder, Hypothesis, OnChoice, Search
from regard.run import Run

SHORT = 32  # tokens of a source up to which sources are decoded together; then up to 4, 16 … times as many
REFILL = 0.25  # joining costs a batch of its own and a copy of the state, so requests wait until there are this many,
PATIENCE = 4  # as a share of those under way, but for no more steps than these
MOST_OF_A_SHARE = 4  # requests of one piece of work that count when time is shared out
TOKENS = 16_384  # of the sources that are decoded together, at most
FEW_LABELS = 32  # inputs of a batch of labels
RELEASE = 64  # units of work after which freed memory goes back to the system, since tensors of many sizes leave gaps,
IDLE = 1.0  # and seconds without work


class Gone(Exception):
    """The client of a request has left, or its time is up."""


class TooLate(Gone):
    """The request took longer than the server allows."""


class Closing(Exception):
    """The server is shutting down."""


@dataclass(eq=False)
class Ticket:
    """A request that is under way: until when it is worth working for."""

    deadline: float  # of time.monotonic()
    left: bool = False  # whether its client has gone

    def problem(self) -> Exception | None:
        if self.left:
            return Gone()
        return TooLate() if time.monotonic() > self.deadline else None


class Job:
    """Something a request waits for."""

    def __init__(self, ticket: Ticket) -> None:
        self.ticket = ticket
        self.done: Future[Any] = Future()
        self.done.set_running_or_notify_cancel()  # only the engine ends it; a request that leaves says so on its ticket

    def over(self) -> bool:
        """Whether nobody waits for it any more."""
        if self.done.done():
            return True
        if (problem := self.ticket.problem()) is None:
            return False
        self.done.set_exception(problem)
        return True

    def fail(self, problem: BaseException) -> None:
        if not self.done.done():
            self.done.set_exception(problem)


class Work(Protocol):
    """What the engine shares its time between."""

    used: float  # seconds that it has had, each a share of those of its requests

    def add(self, job: Any) -> None: ...

    def jobs(self) -> Sequence[Job]: ...

    def advance(self) -> bool:
        """Do one unit, and return whether there is more to do."""
        ...


@dataclass
class Counters:
    """What the engine has done, for /metrics."""

    steps: int = 0  # of decoding
    tokens: int = 0  # that were written: hypotheses × steps
    rows: int = 0  # examples × steps: rows / steps is the mean number of examples that were decoded together
    seconds: float = 0.0  # of computing


# --- decoding ----------------------------------------------------------------------------------------------------


class DecodeJob(Job):
    def __init__(
        self, ticket: Ticket, batch: Batch, limits: list[int], lines: list[int], on_choice: OnChoice | None
    ) -> None:
        super().__init__(ticket)
        self.batch, self.limits, self.lines, self.on_choice = batch, limits, lines, on_choice
        self.names: list[int] = []  # of its examples in the search
        self.found: dict[int, list[Hypothesis]] = {}


class Decodings:
    """Requests that are decoded together."""

    def __init__(self, model: Generates, how: Decoding, at_once: int, counters: Counters) -> None:
        self.search = Search(model, how, self.pass_on)
        self.at_once, self.counters, self.used = at_once, counters, 0.0
        self.waiting: deque[DecodeJob] = deque()
        self.owners: dict[int, DecodeJob] = {}  # by the names of examples
        self.numbers = count()
        self.since = 0  # steps since requests joined

    def add(self, job: DecodeJob) -> None:
        self.waiting.append(job)

    def jobs(self) -> list[DecodeJob]:
        return [*{id(job): job for job in self.owners.values()}.values(), *self.waiting]

    def advance(self) -> bool:
        if gone := [name for name, job in self.owners.items() if job.over()]:
            for name in gone:
                del self.owners[name]
            self.search.drop(gone)
        waiting = sum(job.batch.size for job in self.waiting)
        self.since += 1
        if waiting and (self.since > PATIENCE or waiting >= REFILL * len(self.search)):
            self.admit()
        if not self.search:
            return bool(self.waiting)
        examples = len(self.search)
        for name, hypotheses in self.search.step():
            job = self.owners.pop(name)
            job.found[name] = hypotheses
            if len(job.found) == len(job.names) and not job.done.done():
                job.done.set_result([job.found[each] for each in job.names])
        counters = self.counters
        counters.steps += 1
        counters.rows += examples
        counters.tokens += examples * self.search.width
        return bool(self.search or self.waiting)

    def admit(self) -> None:
        """Let waiting requests join while there is room, those of one form in one batch; a request that is larger than
        the room joins when nothing else is under way."""
        self.since = 0
        joining: list[DecodeJob] = []
        room = self.at_once - len(self.search)
        while self.waiting:
            job = self.waiting[0]
            if job.over():
                self.waiting.popleft()
                continue
            if job.batch.size > room and (self.search or joining):
                break
            room -= job.batch.size
            joining.append(self.waiting.popleft())
        by_form: dict[object, list[DecodeJob]] = {}
        for job in joining:
            by_form.setdefault(form_of(job.batch), []).append(job)
        for together in by_form.values():
            batch = together[0].batch
            for other in together[1:]:
                batch = joined(batch, other.batch)
            names, lines, limits = [], [], []
            for job in together:
                job.names = [next(self.numbers) for _ in range(job.batch.size)]
                self.owners.update(dict.fromkeys(job.names, job))
                names += job.names
                lines += job.lines
                limits += job.limits
            self.search.add(batch, names=names, lines=lines, limits=limits)

    def pass_on(self, choice: Choice) -> None:
        """Let those requests that watch see what was chosen for them."""
        width = self.search.width
        for place, name in enumerate(self.search.names.tolist()):
            job = self.owners.get(name)
            if job is not None and job.on_choice is not None:
                rows = slice(place * width, (place + 1) * width)
                parents = None if choice.parents is None else choice.parents[rows] - place * width
                try:
                    job.on_choice(Choice(parents, choice.tokens[rows], choice.totals[place : place + 1]))
                except Exception as problem:  # which is its own, not that of the others
                    job.fail(problem)


def form_of(batch: Batch) -> object:
    """What examples must have in common to be put into one batch: texts that are continued have one length, so that
    no prompt is padded; sources are padded."""
    target = None if batch.target is None else batch.target.values.shape[1]
    source = None if batch.source is None else batch.source.values.shape[2:]
    return target, source, tuple(sorted(batch.beside))


def length_class(batch: Batch) -> int:
    """0, 1, 2 … for sources, or texts to continue, of up to SHORT, 4 · SHORT, 16 · SHORT … tokens."""
    length, found = batch.first.values.shape[1], 0
    while length > SHORT * 4**found:
        found += 1
    return found


# --- labels, numbers, tags: many inputs in one call ---------------------------------------------------------------


class AnswerJob(Job):
    def __init__(self, ticket: Ticket, raws: Sequence[Any]) -> None:
        super().__init__(ticket)
        self.raws = raws


class Answers:
    """Requests that a run answers in one batch."""

    def __init__(self, run: Run, how: Decoding | None, at_once: int) -> None:
        self.run, self.how, self.used = run, how, 0.0
        self.at_once = min(at_once, FEW_LABELS)
        self.waiting: deque[AnswerJob] = deque()

    def add(self, job: AnswerJob) -> None:
        self.waiting.append(job)

    def jobs(self) -> list[AnswerJob]:
        return list(self.waiting)

    def advance(self) -> bool:
        together: list[AnswerJob] = []
        room = self.at_once
        while self.waiting and (not together or len(self.waiting[0].raws) <= room):
            job = self.waiting.popleft()
            if not job.over():
                together.append(job)
                room -= len(job.raws)
        try:
            self.answer(together)
        except UserError:  # which of them is at fault is seen when each is answered alone
            for job in together:
                try:
                    self.answer([job])
                except UserError as problem:
                    job.fail(problem)
        except Exception as problem:
            for job in together:
                job.fail(problem)
        return bool(self.waiting)

    def answer(self, together: Sequence[AnswerJob]) -> None:
        every = [raw for job in together for raw in job.raws]
        found: list[Prediction] = self.run.task.answer(self.run, every, self.how) if every else []
        for job in together:
            mine, found = found[: len(job.raws)], found[len(job.raws) :]
            if not job.done.done():
                job.done.set_result(mine)


# --- anything else ------------------------------------------------------------------------------------------------


class CallJob(Job):
    def __init__(self, ticket: Ticket, call: Callable[[], Any]) -> None:
        super().__init__(ticket)
        self.call = call


class Calls:
    """One call; if it gives a generator, each of its steps is a unit, and what it returns is the result."""

    def __init__(self) -> None:
        self.used = 0.0
        self.job: CallJob | None = None
        self.steps: Generator[Any, None, Any] | None = None

    def add(self, job: CallJob) -> None:
        self.job = job

    def jobs(self) -> list[CallJob]:
        return [self.job] if self.job else []

    def advance(self) -> bool:
        job = self.job
        assert job is not None
        if job.over():
            if self.steps is not None:
                self.steps.close()
            return False
        try:
            if self.steps is None:
                found = job.call()
                if isinstance(found, Generator):
                    self.steps = found
                    return True
            else:
                try:
                    next(self.steps)
                    return True
                except StopIteration as end:
                    found = end.value
        except Exception as problem:
            job.fail(problem)
        else:
            job.done.set_result(found)
        return False


# --- the thread ---------------------------------------------------------------------------------------------------

Made = Callable[[], Work]


@dataclass
class Engine:
    at_once: int = 64  # most examples that are computed together
    counters: Counters = field(default_factory=Counters)
    clock: Callable[[], float] = time.perf_counter  # by which computing time is shared out

    def __post_init__(self) -> None:
        self.inbox: queue.SimpleQueue[tuple[object, Made, Job] | None] = queue.SimpleQueue()
        self.works: dict[object, Work] = {}
        self.closing = threading.Event()
        self.thread = threading.Thread(target=self._loop, name="engine", daemon=True)
        self.thread.start()

    def close(self, grace: float) -> None:
        """Finish what is under way, for at most so many seconds, and refuse what comes later."""
        self.closing.set()
        self.inbox.put(None)
        self.thread.join(grace)

    def decoder(self, ticket: Ticket) -> Decoder:
        """Return what decodes for one request, together with the others."""

        def decode(
            model: Generates,
            batch: Batch,
            how: Decoding,
            *,
            limits: Tensor,
            lines: Tensor | None = None,
            on_choice: OnChoice | None = None,
        ) -> list[list[Hypothesis]]:
            numbers = list(range(batch.size)) if lines is None else lines.tolist()
            job = DecodeJob(ticket, batch, limits.tolist(), numbers, on_choice)
            lengths = length_class(batch)
            at_once = max(1, min(self.at_once, TOKENS // (SHORT * 4**lengths)))
            key = ("decode", id(model), how, lengths)
            self._put(key, partial(Decodings, model, how, at_once, self.counters), job)
            found: list[list[Hypothesis]] = job.done.result()
            return found

        return decode

    def answer(self, ticket: Ticket, run: Run, raws: Sequence[Any], how: Decoding | None) -> Future[Any]:
        """Have a run that does not write text answer these inputs, together with those of other requests."""
        return self._put(("answer", id(run), how), partial(Answers, run, how, self.at_once), AnswerJob(ticket, raws))

    def call(self, ticket: Ticket, call: Callable[[], Any]) -> Future[Any]:
        """Call this in the engine's thread."""
        job = CallJob(ticket, call)
        return self._put(("call", id(job)), Calls, job)

    def _put(self, key: object, made: Made, job: Job) -> Future[Any]:
        if self.closing.is_set():
            raise Closing
        self.inbox.put((key, made, job))
        return job.done

    def _loop(self) -> None:
        units = 0  # since memory was released
        while self.works or not self.closing.is_set():
            self._take(IDLE if units else None)
            if units >= RELEASE or (units and not self.works):
                machine.release_memory()
                units = 0
            if not self.works:
                continue
            units += 1
            key, work = min(self.works.items(), key=lambda pair: pair[1].used)
            weight = min(max(1, len(work.jobs())), MOST_OF_A_SHARE)
            began = self.clock()
            try:
                more = work.advance()
            except Exception as problem:
                more = False
                for job in work.jobs():
                    job.fail(problem)
            took = self.clock() - began
            self.counters.seconds += took
            work.used += took / weight
            if not more:
                del self.works[key]
        while not self.inbox.empty():
            if found := self.inbox.get():
                found[2].fail(Closing())

    def _take(self, seconds: float | None) -> None:
        """Take what has come; if there is nothing else to do, wait for it, for so many seconds."""
        while True:
            try:
                found = self.inbox.get(not self.works and not self.closing.is_set(), seconds)
            except queue.Empty:
                return
            if found is None:
                return
            key, made, job = found
            if key not in self.works:
                least = min((work.used for work in self.works.values()), default=0.0)
                self.works[key] = made()
                self.works[key].used = least
            self.works[key].add(job)
            if self.inbox.empty():
                return

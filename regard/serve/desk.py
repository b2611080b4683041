"""What every request goes through: it gets a ticket, or is refused; it is answered; it leaves.

Requests that write text run in a thread each, which waits while the engine decodes for all of them; so a task's own
`answer` serves here as it does for `regard predict`.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, TypeVar

from starlette.requests import Request

from regard.config import UserError
from regard.interface import Generates
from regard.predict.decoding import Decoding, Prediction
from regard.run import Run
from regard.serve.engine import Closing, Engine, Ticket, TooLate
from regard.serve.shelf import NoSuchRun, Shelf

T = TypeVar("T")
SLOWNESS = 0.9  # of the running mean of how long requests take
AFTER = 1.0  # seconds after its deadline in which the engine itself may refuse a request


@dataclass(frozen=True)
class Limits:
    """What a request may ask for."""

    body: int = 8 << 20  # bytes
    waiting: int = 256  # requests that are under way at once
    seconds: float = 60.0  # until a request is given up
    inputs: int = 64  # in one request
    beam: int = 16  # and n-best
    tokens: int = 4096  # that may be written


class Refused(Exception):
    """A request that is refused with this HTTP status; `param` is the parameter that is at fault."""

    def __init__(self, status: int, sentence: str, retry_after: int = 0, *, param: str | None = None) -> None:
        super().__init__(sentence)
        self.status, self.sentence, self.retry_after, self.param = status, sentence, retry_after, param


def refusal_of(problem: BaseException) -> Refused | None:
    """Return how the client of a request that failed is answered; None: it has left, or the server is at fault."""
    match problem:
        case Refused():
            return problem
        case NoSuchRun():
            return Refused(404, str(problem), param="model")
        case UserError():
            return Refused(400, str(problem))
        case TooLate() | TimeoutError():
            return Refused(503, "The request took longer than this server allows: ask for less, or later.", 5)
        case Closing():
            return Refused(503, "The server is shutting down: ask again later.", 5)
    return None


class Desk:
    def __init__(self, shelf: Shelf, engine: Engine, limits: Limits) -> None:
        self.shelf, self.engine, self.limits = shelf, engine, limits
        self.pool = ThreadPoolExecutor(limits.waiting, thread_name_prefix="request")
        self.tickets: set[Ticket] = set()  # of the requests under way
        self.closes = math.inf  # when the server ends, of time.monotonic()
        self.seconds = 1.0  # that a request takes, about

    @asynccontextmanager
    async def ticket(self, request: Request) -> AsyncIterator[Ticket]:
        """Admit a request, whose body has been read, and notice when its client leaves."""
        if self.closes < math.inf:
            raise Closing
        if self.open >= self.limits.waiting:
            sentence = f"{self.open} requests are under way, as many as this server takes: ask again later."
            raise Refused(429, sentence, retry_after=max(1, math.ceil(self.seconds)))
        ticket = Ticket(time.monotonic() + self.limits.seconds)
        self.tickets.add(ticket)
        watcher = asyncio.create_task(notice(request, ticket))
        began = time.monotonic()
        try:
            yield ticket
        finally:
            watcher.cancel()
            ticket.left = True
            self.tickets.remove(ticket)
            self.seconds = SLOWNESS * self.seconds + (1 - SLOWNESS) * (time.monotonic() - began)

    @property
    def open(self) -> int:
        """Count the requests that are under way."""
        return len(self.tickets)

    def close(self, seconds: float) -> None:
        """Admit no more requests, and give those that are under way so many seconds."""
        self.closes = time.monotonic() + seconds
        for ticket in self.tickets:
            ticket.deadline = min(ticket.deadline, self.closes)

    async def run(self, name: str) -> Run:
        """Return a run by its name; loading it may take a while."""
        return await self.in_thread(partial(self.shelf.get, name))

    async def in_thread(self, call: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self.pool, call)

    def shared(self, run: Run, ticket: Ticket) -> Run:
        """The same run, which decodes together with other requests."""
        return replace(run, decoder=self.engine.decoder(ticket))

    async def answer(self, ticket: Ticket, run: Run, raws: Sequence[Any], how: Decoding | None) -> list[Prediction]:
        if isinstance(run.model, Generates):
            answers = self.in_thread(partial(run.task.answer, self.shared(run, ticket), raws, how))
            return await self.before_deadline(ticket, answers)
        return await self.before_deadline(ticket, asyncio.wrap_future(self.engine.answer(ticket, run, raws, how)))

    async def call(self, ticket: Ticket, call: Callable[[], Any]) -> Any:
        """Have the engine's thread call this; a generator is called step by step, and its result returned."""
        return await self.before_deadline(ticket, asyncio.wrap_future(self.engine.call(ticket, call)))

    async def before_deadline(self, ticket: Ticket, awaited: Awaitable[T]) -> T:
        async with asyncio.timeout(max(0.0, ticket.deadline - time.monotonic()) + AFTER):
            return await awaited


async def notice(request: Request, ticket: Ticket) -> None:
    """Mark the ticket when the client disconnects."""
    with suppress(asyncio.CancelledError):
        while (await request.receive())["type"] != "http.disconnect":
            pass
        ticket.left = True

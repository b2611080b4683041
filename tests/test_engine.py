"""Laws of the engine, without HTTP: a request that shares a decode with others gets what it gets alone, and long work
does not hold up short work."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from itertools import count, islice
from typing import Any

import pytest
from serving import RUNS

import regard
from regard import machine
from regard.config import UserError
from regard.data import world
from regard.predict.decoding import Decoding, Prediction
from regard.predict.text import stream_text
from regard.run import Run
from regard.serve.engine import Closing, Engine, Gone, Ticket, TooLate
from regard.serve.telemetry import resident

SENTENCES = [" ".join(pair.source) for pair in islice(world.pairs("test", seed=0, longest=8), 24)]
TEXTS = [" ".join(SENTENCES[: 1 + place % 5 * (place % 3)]) for place in range(24)]
ENDLESS = Decoding(min_length=1_000_000, max_length=1_000_000)
PROMPT = "The man"
WAYS = {
    "greedy": ("translation", Decoding(max_length=30)),
    "beam search": ("translation", Decoding(beam=4, n_best=2, max_length=30)),
    "sampling": ("language", Decoding(sample=True, temperature=0.7, n_best=2, max_length=30, seed=3)),
}


def ticket() -> Ticket:
    return Ticket(math.inf)


@pytest.fixture(scope="module")
def runs() -> dict[str, Run]:
    return {task: regard.load(RUNS / task) for task in ("translation", "language", "classification")}


@pytest.fixture
def engine() -> Iterator[Engine]:
    """An engine for which every unit of work takes one second."""
    engine = Engine(at_once=8, clock=count().__next__)
    yield engine
    engine.close(60)
    assert not engine.thread.is_alive() and not engine.works


def shared(run: Run, engine: Engine, holder: Ticket | None = None) -> Run:
    return replace(run, decoder=engine.decoder(holder or ticket()))


def close(found: Prediction, expected: Prediction) -> bool:
    same = found.text == expected.text and found.tokens == expected.tokens and found.cut == expected.cut
    others = zip(found.alternatives, expected.alternatives, strict=True)
    return same and found.score == pytest.approx(expected.score, abs=1e-3) and all(close(*pair) for pair in others)


class Under:
    """Work that is under way in a thread: an output that does not end, whose tokens are counted."""

    def __init__(self, run: Run, engine: Engine) -> None:
        self.ticket, self.steps, self.started = ticket(), 0, threading.Event()
        self.pool = ThreadPoolExecutor(1)
        mine = shared(run, engine, self.ticket)
        self.done = self.pool.submit(run.task.stream, mine, PROMPT, replace(ENDLESS, seed=1), self.count)

    def count(self, text: str) -> None:
        self.steps += 1
        if self.steps > 1:  # the first is the prompt
            self.started.set()

    def leave(self) -> None:
        self.ticket.left = True
        with pytest.raises(Gone):
            self.done.result(60)
        self.pool.shutdown()


@pytest.fixture
def long(runs: dict[str, Run], engine: Engine) -> Iterator[Under]:
    under = Under(runs["language"], engine)
    assert under.started.wait(60)
    yield under
    under.leave()


@pytest.mark.parametrize("way", WAYS)
def test_a_request_that_is_joined_with_others_gets_what_it_gets_alone(
    runs: dict[str, Run], engine: Engine, way: str
) -> None:
    task, how = WAYS[way]
    run = runs[task]
    alone = [run.task.answer(run, [text], how)[0] for text in TEXTS]
    with ThreadPoolExecutor(len(TEXTS)) as pool:
        together = list(pool.map(lambda text: run.task.answer(shared(run, engine), [text], how)[0], TEXTS))
    assert all(map(close, together, alone))
    assert engine.counters.rows > engine.counters.steps  # how many were joined depends on when threads run


def test_labels_of_several_requests_are_computed_in_one_batch(
    runs: dict[str, Run], engine: Engine, long: Under
) -> None:
    run = runs["classification"]
    jobs = [engine.answer(ticket(), run, [text, "I am"], None) for text in TEXTS]
    for text, job in zip(TEXTS, jobs, strict=True):
        for found, expected in zip(job.result(60), run.predict([text, "I am"]), strict=True):
            assert found.probabilities == pytest.approx(expected.probabilities, abs=1e-4)


def test_a_long_request_gets_no_more_units_than_a_short_one_beside_it(
    runs: dict[str, Run], engine: Engine, long: Under
) -> None:
    how, seen = Decoding(seed=2, min_length=40, max_length=40), []  # steps of the long one, at each of the short one
    stream_text(shared(runs["language"], engine), PROMPT, how, lambda text: seen.append(long.steps))
    _, *seen, _ = seen  # the prompt and the whole text are not steps
    assert len(seen) == 40 and seen[-1] - seen[0] <= 40 + 3


def units(number: int, at_end: Callable[[], Any]) -> Generator[None, None, Any]:
    for _ in range(number):
        yield
    return at_end()


def test_time_is_shared_between_calls_of_any_kind(engine: Engine, long: Under) -> None:
    before = long.steps
    job = engine.call(ticket(), lambda: units(50, lambda: long.steps))
    assert job.result(60) - before <= 50 + 3


def test_work_for_more_requests_gets_more_time_but_not_all(runs: dict[str, Run], engine: Engine, long: Under) -> None:
    others = [Under(runs["language"], engine) for _ in range(7)]
    assert all(other.started.wait(60) for other in others)
    before = long.steps  # eight requests decode together and count as four
    job = engine.call(ticket(), lambda: units(50, lambda: long.steps))
    assert 3.5 * 50 <= job.result(60) - before <= 4 * 50 + 8
    for other in others:
        other.leave()


def test_a_request_that_is_larger_than_the_room_is_answered(runs: dict[str, Run], engine: Engine) -> None:
    run, how = runs["translation"], Decoding(max_length=10)
    with ThreadPoolExecutor(4) as pool:
        found = list(
            pool.map(lambda texts: run.task.answer(shared(run, engine), texts, how), [TEXTS, *[TEXTS[:1]] * 3])
        )
    expected = run.task.answer(run, TEXTS, how)
    assert all(map(close, found[0], expected)) and all(close(one[0], expected[0]) for one in found[1:])


def test_nothing_is_left_of_a_request_whose_client_left(runs: dict[str, Run], engine: Engine, long: Under) -> None:
    other = Under(runs["language"], engine)
    assert other.started.wait(60)
    other.leave()
    before = long.steps
    assert engine.call(ticket(), lambda: units(9, lambda: long.steps)).result(60) > before  # which continues
    (work,) = engine.works.values()
    assert [job.ticket for job in work.jobs()] == [long.ticket]


def test_a_request_whose_time_is_up_is_given_up(runs: dict[str, Run], engine: Engine) -> None:
    run, late = runs["language"], Ticket(time.monotonic() - 1)
    with pytest.raises(TooLate):
        run.task.answer(shared(run, engine, late), ["a"], ENDLESS)
    with pytest.raises(TooLate):
        engine.answer(late, runs["classification"], ["a"], None).result(60)
    with pytest.raises(TooLate):
        engine.call(late, lambda: units(9, lambda: 0)).result(60)


def test_an_input_that_is_refused_fails_its_own_request_alone(
    runs: dict[str, Run], engine: Engine, long: Under
) -> None:
    def refused() -> None:
        raise UserError("not this")

    def broken(text: str) -> None:
        if text != PROMPT:
            raise ZeroDivisionError

    with pytest.raises(UserError, match="not this"):
        engine.call(ticket(), refused).result(60)
    run = shared(runs["language"], engine)
    with pytest.raises(ZeroDivisionError):  # beside the long one, with the same settings
        stream_text(run, PROMPT, replace(ENDLESS, seed=1), broken)
    before = long.steps
    assert engine.call(ticket(), lambda: units(9, lambda: long.steps)).result(60) > before


def test_freed_memory_goes_back_to_the_system_when_there_is_nothing_to_do(engine: Engine) -> None:
    if machine.glibc() is None:
        pytest.skip("other allocators return memory by themselves")

    def scattered() -> tuple[list[bytes], int]:
        pairs = [(b"a" * 60_000, b"b" * 600) for _ in range(5000)]  # what stays lies between what goes
        return [small for _, small in pairs], resident()

    kept, most = engine.call(ticket(), scattered).result(60)
    until = time.monotonic() + 60
    while resident() > most - 200e6:
        assert time.monotonic() < until and kept


def test_an_engine_that_closes_finishes_what_is_under_way_and_takes_no_more(runs: dict[str, Run]) -> None:
    engine, run = Engine(at_once=8), runs["language"]
    begun = threading.Event()
    how = Decoding(min_length=100, max_length=100)
    with ThreadPoolExecutor(1) as pool:
        written = partial(stream_text, shared(run, engine), PROMPT, how, lambda text: text == PROMPT or begun.set())
        found = pool.submit(written)
        assert begun.wait(60)
        engine.close(60)
        assert len(found.result(60).tokens) == 100
    with pytest.raises(Closing):
        engine.call(ticket(), lambda: 0)

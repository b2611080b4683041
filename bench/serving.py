"""`regard serve` under load, from a second process on the loopback interface.

python bench/serving.py RUN [--only batching|long|memory …] [--rounds 3] [--clients 64]
                                [--requests 20000] [--words 10] [--long 1000]

batching      requests a second with --batch-size 64 and with --batch-size 1, turn by turn; p50 and p99 of each request
long          p99 of short requests alone, and while one long request after another runs; then clients that close their
              connection in the middle of a request: what is left of them in /metrics
memory        the most resident memory while the first 2,000 requests are answered, the next 2,000, and so on
In the end every answer is compared with that of `regard predict`.

RUN is a translator, such as runs/demo of `regard demo`. Sentences come from the built-in grammar.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import re
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from statistics import median

from regard.data.world import pairs

REGARD = (sys.executable, "-m", "regard")
WARM = 256  # requests before anything is measured
EACH = 2000  # requests between two lines about memory
Answers = dict[str, str]


@contextmanager
def server(run: Path, *options: str) -> Iterator[tuple[str, int]]:
    """A server in a process of its own: its host and port."""
    command = [*REGARD, "serve", str(run), "--port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://([\d.]+):(\d+)/", line)
        if found is None:
            sys.exit(f"The server did not start: {line}")
        try:
            yield found[1], int(found[2])
        finally:
            process.terminate()
            process.wait()


def quantile(values: list[float], share: float) -> float:
    return sorted(values)[min(len(values) - 1, int(share * len(values)))]


class Client:
    """One connection that is kept open."""

    def __init__(self, host: str, port: int) -> None:
        self.host, self.port = host, port

    async def open(self) -> None:
        self.reader, self.writer = await asyncio.open_connection(self.host, self.port)

    async def send(self, method: str, path: str, body: object = None) -> None:
        content = b"" if body is None else json.dumps(body).encode()
        head = f"{method} {path} HTTP/1.1\r\nHost: {self.host}:{self.port}\r\n"
        head += f"Content-Type: application/json\r\nContent-Length: {len(content)}\r\n\r\n"
        self.writer.write(head.encode() + content)
        await self.writer.drain()

    async def receive(self) -> tuple[int, bytes]:
        head = (await self.reader.readuntil(b"\r\n\r\n")).decode()
        length = re.search(r"content-length: (\d+)", head, re.IGNORECASE)
        assert length is not None, head
        return int(head.split()[1]), await self.reader.readexactly(int(length[1]))

    async def translate(self, run: str, sentence: str) -> str:
        await self.send("POST", "/v1/predict", {"run": run, "input": sentence})
        status, content = await self.receive()
        if status != 200:
            raise RuntimeError(f"{status}: {content.decode()[:300]}")
        return str(json.loads(content)["predictions"][0]["text"])


async def metric(host: str, port: int, name: str) -> float:
    client = Client(host, port)
    await client.open()
    await client.send("GET", "/metrics")
    _, content = await client.receive()
    client.writer.close()
    found = re.search(rf"^regard_{name} (\S+)$", content.decode(), re.MULTILINE)
    assert found is not None
    return float(found[1])


async def load(
    address: tuple[str, int], run: str, sentences: list[str], clients: int, seen: Answers
) -> tuple[float, list[float]]:
    """Send these sentences by so many clients; return requests a second and the seconds of each."""
    waiting, times = iter(sentences), []

    async def work() -> None:
        client = Client(*address)
        await client.open()
        for sentence in waiting:
            began = time.perf_counter()
            answer = await client.translate(run, sentence)
            times.append(time.perf_counter() - began)
            assert seen.setdefault(sentence, answer) == answer, f"two answers to {sentence!r}"
        client.writer.close()

    began = time.perf_counter()
    await asyncio.gather(*(work() for _ in range(clients)))
    return len(times) / (time.perf_counter() - began), times


async def with_long(
    address: tuple[str, int], run: str, sentences: list[str], clients: int, long: str, seen: Answers
) -> tuple[float, list[float], int]:
    """The same while one long request after another runs; and how many of those were answered."""
    answered = 0

    async def keep_busy() -> None:
        nonlocal answered
        client = Client(*address)
        await client.open()
        while True:
            await client.translate(run, long)
            answered += 1

    busy = asyncio.create_task(keep_busy())
    rate, times = await load(address, run, sentences, clients, seen)
    busy.cancel()
    return rate, times, answered


async def killed(address: tuple[str, int], run: str, sentences: list[str], long: str) -> float:
    """Close connections in the middle of requests; return how many requests are open when the server has noticed."""
    for number, sentence in enumerate(sentences):
        client = Client(*address)
        await client.open()
        await client.send("POST", "/v1/predict", {"run": run, "input": sentence if number % 8 else long})
        client.writer.transport.abort()
    for _ in range(200):
        if not (left := await metric(*address, "requests_open")):
            break
        await asyncio.sleep(0.05)
    return left


def described(rate: float, times: list[float]) -> str:
    p50, p99 = median(times), quantile(times, 0.99)
    return f"{rate:8.1f} requests/s   p50 {1000 * p50:7.1f} ms   p99 {1000 * p99:7.1f} ms   p99/p50 {p99 / p50:5.2f}"


class Bench:
    """What the parts of the bench share: sentences to send, and every answer so far."""

    def __init__(self, given: argparse.Namespace) -> None:
        self.given, self.run, self.choose = given, given.run.resolve().name, random.Random(1)
        every = [" ".join(pair.source) for pair in islice(pairs("train"), 40_000)]
        self.short = [each for each in every if abs(len(each.split()) - given.words) <= 2]
        self.long = " ".join(" ".join(self.some(given.long)).split()[: given.long])
        self.seen: Answers = {}

    def some(self, count: int) -> list[str]:
        return [self.choose.choice(self.short) for _ in range(count)]

    async def load(self, address: tuple[str, int], count: int) -> tuple[float, list[float]]:
        return await load(address, self.run, self.some(count), self.given.clients, self.seen)

    async def batching(self) -> None:
        rates: dict[str, list[float]] = {"64": [], "1": []}
        for _ in range(self.given.rounds):
            for size, count in (("64", 2000), ("1", 200)):
                with server(self.given.run, "--batch-size", size) as address:
                    await self.load(address, WARM if size == "64" else 16)
                    rate, times = await self.load(address, count)
                    print(f"batch size {size:>3}: {described(rate, times)}", flush=True)
                    rates[size].append(rate)
        ratios = [one / other for one, other in zip(rates["64"], rates["1"], strict=True)]
        each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
        print(f"batching answers {median(ratios):.2f} times as many requests (rounds: {each})")

    async def beside_long(self) -> None:
        given = self.given
        with server(given.run) as address:
            await self.load(address, WARM)
            for _ in range(given.rounds):
                rate, times = await self.load(address, 2000)
                print(f"short requests alone:          {described(rate, times)}", flush=True)
                alone = quantile(times, 0.99)
                rate, times, answered = await with_long(
                    address, self.run, self.some(2000), given.clients, self.long, self.seen
                )
                print(f"beside {given.long} words ({answered} answered): {described(rate, times)}", flush=True)
                print(f"  p99 is {quantile(times, 0.99) / alone:.2f} times that of short requests alone", flush=True)
            left = await killed(address, self.run, self.some(64), self.long)
            print(f"64 clients killed in the middle of a request: {left:.0f} requests are left", flush=True)

    async def memory(self) -> None:
        with server(self.given.run) as address:
            sizes = {}
            for done in range(EACH, self.given.requests + 1, EACH):
                loading = asyncio.create_task(self.load(address, EACH))
                sizes[done] = 0.0
                while not loading.done():
                    sizes[done] = max(sizes[done], await metric(*address, "resident_memory_bytes"))
                    await asyncio.sleep(0.25)
                rate, _ = await loading
                print(f"up to request {done:,}: {sizes[done] / 1e6:.0f} MB, {rate:.1f} requests/s", flush=True)
            growth = 100 * (sizes[done] / sizes[EACH] - 1)
            print(f"memory grew by {growth:.1f} % after the first {EACH:,} requests", flush=True)

    async def equal(self) -> None:
        sentences = list(self.seen)
        command, lines = [*REGARD, "predict", str(self.given.run)], "\n".join(sentences) + "\n"
        predicted = subprocess.run(command, input=lines, capture_output=True, text=True, check=True)
        pairs_of_answers = zip(sentences, predicted.stdout.splitlines(), strict=True)
        same = sum(self.seen[one] == other for one, other in pairs_of_answers)
        print(f"equal to `regard predict`: {same:,} of {len(sentences):,} different answers")


async def measure(given: argparse.Namespace) -> None:
    bench = Bench(given)
    parts = {"batching": bench.batching, "long": bench.beside_long, "memory": bench.memory}
    for name in given.only or parts:
        await parts[name]()
    await bench.equal()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("run", type=Path)
    parser.add_argument("--only", nargs="+", choices=("batching", "long", "memory"), help="parts of the bench")
    parser.add_argument("--clients", type=int, default=64)
    parser.add_argument("--requests", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--words", type=int, default=10)
    parser.add_argument("--long", type=int, default=1000)
    asyncio.run(measure(parser.parse_args()))


if __name__ == "__main__":
    main()

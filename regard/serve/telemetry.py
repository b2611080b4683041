"""Counters in Prometheus' text format: requests by route and status, how long they took, what the engine computed."""

from __future__ import annotations

import os
import time
from collections import Counter

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from regard.serve.desk import Desk

BOUNDS = (0.01, 0.03, 0.1, 0.3, 1.0, 3.0, 10.0, 30.0)  # seconds, of the histogram of latencies
OTHER = "other"  # a path that is no route, so that no client can make up labels


class Telemetry:
    def __init__(self, desk: Desk) -> None:
        self.desk = desk
        self.requests: Counter[tuple[str, int]] = Counter()  # by route and status
        self.latencies: Counter[float] = Counter()  # by the upper bound of their bucket
        self.seconds = 0.0

    def around(self, app: ASGIApp) -> ASGIApp:
        """Count what goes through an application."""

        async def counting(scope: Scope, receive: Receive, send: Send) -> None:
            if scope["type"] != "http":
                await app(scope, receive, send)
                return
            began, status = time.perf_counter(), 500

            async def watched(message: Message) -> None:
                nonlocal status
                if message["type"] == "http.response.start":
                    status = message["status"]
                await send(message)

            try:
                await app(scope, receive, watched)
            finally:
                took = time.perf_counter() - began
                route = scope.get("route")
                self.requests[OTHER if route is None else route.path, status] += 1
                self.latencies[next((bound for bound in BOUNDS if took <= bound), float("inf"))] += 1
                self.seconds += took

        return counting

    def text(self) -> str:
        """Write all counters."""
        engine, engine_work, lines = self.desk.engine.counters, len(self.desk.engine.works), []

        def write(name: str, kind: str, about: str, *values: tuple[str, float]) -> None:
            lines.extend([f"# HELP regard_{name} {about}", f"# TYPE regard_{name} {kind}"])
            lines.extend(f"regard_{name}{labels} {value:.10g}" for labels, value in values)

        counts = [(f'{{route="{route}",status="{status}"}}', n) for (route, status), n in sorted(self.requests.items())]
        write("requests_total", "counter", "Requests by route and status.", *counts)
        reached, buckets = 0, []
        for bound in (*BOUNDS, float("inf")):
            reached += self.latencies[bound]
            buckets.append((f'_bucket{{le="{"+Inf" if bound == float("inf") else bound}"}}', reached))
        sums = [("_sum", self.seconds), ("_count", reached)]
        write("request_seconds", "histogram", "How long requests took.", *buckets, *sums)
        write("requests_open", "gauge", "Requests under way.", ("", self.desk.open))
        write("work_open", "gauge", "Pieces of work that computing time is shared between.", ("", engine_work))
        write("decoding_steps_total", "counter", "Steps of decoding.", ("", engine.steps))
        write("decoding_examples_total", "counter", "Examples that these steps decoded together.", ("", engine.rows))
        write("decoded_tokens_total", "counter", "Tokens written, in all hypotheses.", ("", engine.tokens))
        write("compute_seconds_total", "counter", "Time spent computing.", ("", engine.seconds))
        write("runs_loaded", "gauge", "Runs in memory.", ("", len(self.desk.shelf.runs)))
        write("resident_memory_bytes", "gauge", "Memory of the process.", ("", resident()))
        return "\n".join(lines) + "\n"


def resident() -> int:
    """Return the memory of this process in bytes; 0 where the system does not say."""
    try:
        with open("/proc/self/statm") as file:
            return int(file.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0

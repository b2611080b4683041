"""The curves and samples of a run, also of one that is training now: pushed as its log grows."""

from __future__ import annotations

import asyncio
import json
import math
from collections.abc import AsyncIterator, Callable
from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

from fastapi import APIRouter
from fastapi.responses import StreamingResponse

from regard.checkpoint import Folder
from regard.data.files import open_regular
from regard.runs import facts_of, listed, log_entries
from regard.score.registry import METRICS
from regard.serve import examples
from regard.serve.desk import Desk, Refused
from regard.serve.schema import answers, refusals
from regard.show.line_chart import Curve, LineChart, line_chart

EVERY = 0.5  # seconds between two looks at the log
ALIVE = 15.0  # seconds after which an empty line keeps the connection open
MOST_STREAMS = 32
POINTS = 400  # most points of a curve
SAMPLES = 4000  # bytes of the latest samples
CURVES = {  # title, name on the axis, and the keys of its curves in the log
    "Loss": ("nats per token", {"loss": "training", "valid.loss": "validation"}),
    "Learning rate": ("rate", {"learning_rate": "learning rate"}),
    "Gradient norm": ("norm", {"gradient_norm": "gradient norm"}),
    "Speed": ("tokens per second", {"tokens_per_second": "training"}),
}


def routes(desk: Desk, closing: Callable[[], bool]) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["regard"])
    streams = 0

    @router.get("/runs/{run}/training", responses={**answers(examples.TRAINING), **refusals(404)})
    async def training_now(run: str) -> dict[str, Any]:
        """Return the curves of a run as SVG pictures, its log and its latest samples."""
        folder = Folder(desk.shelf.path(run))
        return await desk.in_thread(partial(progress_of, folder))

    streamed = answers(f"data: {json.dumps(examples.TRAINING)}\n\n", "text/event-stream")

    @router.get(
        "/runs/{run}/training/events",
        response_class=StreamingResponse,
        responses={**streamed, **refusals(404, 429)},
    )
    async def events(run: str) -> StreamingResponse:
        """Send the same as server-sent events: at once, and whenever the run's log grows."""
        folder = Folder(desk.shelf.path(run))
        if streams >= MOST_STREAMS:
            raise Refused(429, f"{streams} pages watch a training already: close one of them.", retry_after=10)
        headers = {"cache-control": "no-store"}
        return StreamingResponse(pushed(folder), media_type="text/event-stream", headers=headers)

    async def pushed(folder: Folder) -> AsyncIterator[str]:
        nonlocal streams
        streams += 1
        try:
            before, quiet = None, 0.0
            while not closing():
                now = await desk.in_thread(partial(changes, folder))
                if now != before:
                    before, quiet = now, 0.0
                    progress = await desk.in_thread(partial(progress_of, folder))
                    yield f"data: {json.dumps(progress)}\n\n"
                elif quiet > ALIVE:
                    quiet = 0.0
                    yield ": still here\n\n"
                await asyncio.sleep(EVERY)
                quiet += EVERY
        finally:
            streams -= 1

    return router


def changes(folder: Folder) -> list[tuple[int, int]]:
    """Return what differs when a run has progressed: sizes and times of its log and checkpoint, and its state."""
    files = [(facts.st_size, facts.st_mtime_ns) for facts in facts_of((folder.log, folder.last))]
    return [*files, (int(folder.in_use()), 0)]


def progress_of(folder: Folder) -> dict[str, Any]:
    """Return the state, the curves, the last entry of the log and the samples of a run."""
    by_step = {entry["step"]: entry for entry in log_entries(folder) if isinstance(entry.get("step"), int)}
    entries = [by_step[step] for step in sorted(by_step)]
    if len(entries) > POINTS:  # the latest, and every so many of those before
        entries = [*entries[: -1 : -(-len(entries) // POINTS)], entries[-1]]
    charts = [drawn(chart) for chart in charts_of(entries)]
    return {
        **asdict(listed(folder)),
        "charts": charts,
        "last": entries[-1] if entries else None,
        "samples": end_of(folder.samples),
    }


def charts_of(entries: list[dict[str, Any]]) -> list[LineChart]:
    """Draw what the log has: losses, metrics, learning rate, gradient norm, speed."""
    metrics = {key for entry in entries for key in (entry.get("valid") or {}) if key in METRICS and key != "loss"}
    curves = dict(list(CURVES.items())[:1])
    curves |= {METRICS[key].name: (METRICS[key].name, {f"valid.{key}": "validation"}) for key in sorted(metrics)}
    curves |= CURVES
    charts = []
    for title, (up, keys) in curves.items():
        lines = []
        for number, (key, name) in enumerate(keys.items()):
            points = [(entry["step"], value) for entry in entries if (value := number_at(entry, key)) is not None]
            if points:
                steps, values = zip(*points, strict=True)
                lines.append(Curve(name, values, colour=number, at=steps))
        if lines:
            charts.append(LineChart(curves=lines, title=title, across="step", up=up))
    return charts


def drawn(chart: LineChart) -> dict[str, Any]:
    """Return a chart as an SVG picture, and the numbers of its curves."""
    curves = [
        {
            "name": curve.name,
            "at": list(curve.at) or [chart.first + place for place in range(len(curve.values))],
            "values": [value if math.isfinite(value) else None for value in curve.values],
        }
        for curve in chart.curves
    ]
    return {"title": chart.title, "svg": line_chart(chart), "curves": curves}


def number_at(entry: dict[str, Any], key: str) -> float | None:
    """Return a number of the log by its dotted key."""
    value: Any = entry
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else None


def end_of(path: Path) -> str:
    """Return the last samples, from the beginning of one."""
    try:
        with open_regular(path, own=True) as file:
            file.seek(0, 2)
            file.seek(max(0, file.tell() - SAMPLES))
            text = file.read(SAMPLES).decode("utf-8", "replace")
    except OSError:
        return ""
    last = text.rfind("step ", 0, max(0, text.rfind("step ")))
    return text[max(0, last) :]

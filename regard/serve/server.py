"""The server's process: it loads the runs, listens, and ends when it is asked to."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from pathlib import Path
from typing import Any

import uvicorn

from regard.config import UserError, choose
from regard.data.files import reason
from regard.data.languages import Pair, pair_in
from regard.run import Run
from regard.serve.app import GRACE, application
from regard.serve.desk import Desk, Limits
from regard.serve.engine import Engine
from regard.serve.shelf import Shelf

BACKLOG = 2048  # connections that wait to be accepted
REFUSING = 2.0  # seconds in which requests that took too long are refused, before their connections are cut
IDLE = 30  # seconds for which a connection is kept open without a request


def named_languages(given: Sequence[str], names: Sequence[str]) -> dict[str, Pair]:
    """Return the languages of runs by name, from NAME=en:de, or en:de where there is one run."""
    found: dict[str, Pair] = {}
    for each in given:
        name, equals, pair = each.rpartition("=")
        if not equals and len(names) != 1:
            several = "several runs are served" if names else "no run is served yet"
            raise UserError(f"--languages {each!r} does not say of which run, and {several}: write NAME={each}.")
        name = choose({name: name for name in names}, name, "The run in --languages") if equals else names[0]
        try:
            found[name] = pair_in(pair)
        except ValueError as problem:
            raise UserError(f"--{problem}") from None
    return found


class Uvicorn(uvicorn.Server):
    """Leaves signals to the command, which ends as the others do."""

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class Server:
    def __init__(
        self,
        runs: Sequence[Path],
        folder: Path | None,
        *,
        opened: Callable[[Path], Run],
        limits: Limits,
        batch_size: int,
        host: str,
        port: int,
        hosts: Collection[str],
        key: str,
        languages: Sequence[str] = (),
    ) -> None:
        self.shelf = Shelf(runs, folder, opened=opened)
        pairs = named_languages(languages, list(self.shelf.paths()))
        for name in self.shelf.given:
            self.shelf.get(name)
        self.host, self.port, self.key = host, port, key
        self.desk = Desk(self.shelf, Engine(batch_size), limits)
        app = application(self.desk, hosts={*hosts, host}, key=key, languages=pairs, closing=self.is_ending)
        config = uvicorn.Config(
            app,
            log_level="warning",
            access_log=False,
            server_header=False,
            timeout_keep_alive=IDLE,
            timeout_graceful_shutdown=int(GRACE),
            backlog=BACKLOG,
        )
        self.uvicorn = Uvicorn(config)

    @contextlib.contextmanager
    def listening(self) -> Iterator[str]:
        """Listen, and give the address of the page."""
        family = socket.AF_INET6 if ":" in self.host else socket.AF_INET
        self.socket = socket.socket(family)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self.socket.bind((self.host, self.port))
            self.socket.listen(BACKLOG)  # so that what connects from now on is answered
        except OSError as problem:
            self.socket.close()
            remedy = "choose another --host or --port"
            raise UserError(f"{self.host}:{self.port} cannot be listened at: {reason(problem)}; {remedy}.") from None
        with self.socket:
            port = self.socket.getsockname()[1]
            name = f"[{self.host}]" if ":" in self.host else self.host
            yield f"http://{'127.0.0.1' if self.host == '0.0.0.0' else name}:{port}/"

    def serve(self) -> None:
        """Serve until `end` is called."""
        self.uvicorn.run(sockets=[self.socket])

    def is_ending(self) -> bool:
        return self.uvicorn.should_exit

    def end(self, *_: Any) -> None:
        """Finish what is under way, and end."""
        self.desk.close(GRACE - REFUSING)
        self.uvicorn.should_exit = True

"""A server in a process of its own, on a free port, for the tests that send it requests."""

from __future__ import annotations

import http.client
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from command import ENVIRONMENT, REGARD

RUNS = Path(__file__).parent / "runs"
PATIENCE = 60.0  # seconds, for whatever has to happen at some time


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    content: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.content)

    @property
    def error(self) -> str:
        """What is wrong, in either shape."""
        error = self.json["error"]
        return str(error["message"] if isinstance(error, dict) else error)


@dataclass
class Served:
    """A server that answers."""

    process: subprocess.Popen[str]
    host: str
    port: int
    key: str = ""

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    def connect(self) -> http.client.HTTPConnection:
        return http.client.HTTPConnection(self.host, self.port, timeout=PATIENCE)

    def send(
        self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}
    ) -> http.client.HTTPConnection:
        """Send a request, and leave its answer to be read; a body that is not bytes becomes JSON."""
        connection = self.connect()
        own = {"authorization": f"Bearer {self.key}"} if self.key else {}
        if body is not None and not isinstance(body, bytes | Iterator):
            body, own = json.dumps(body).encode(), {**own, "content-type": "application/json"}
        connection.request(method, path, body, {**own, **headers}, encode_chunked=isinstance(body, Iterator))
        return connection

    def ask(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = {}) -> Answer:
        connection = self.send(method, path, body, headers)
        try:
            return received(connection)
        finally:
            connection.close()

    def get(self, path: str, headers: Mapping[str, str] = {}) -> Answer:
        return self.ask("GET", path, headers=headers)

    def post(self, path: str, body: Any, headers: Mapping[str, str] = {}) -> Answer:
        return self.ask("POST", path, body, headers)

    def metric(self, name: str) -> float:
        found = re.search(rf"(?m)^regard_{name} (\S+)$", self.get("/metrics").content.decode())
        assert found is not None, name
        return float(found[1])


def received(connection: http.client.HTTPConnection) -> Answer:
    response = connection.getresponse()
    return Answer(response.status, {name.lower(): value for name, value in response.getheaders()}, response.read())


@contextmanager
def serving(*arguments: object, key: str = "") -> Iterator[Served]:
    """Serve with these arguments, until the block ends."""
    command = [*REGARD, "serve", *map(str, arguments), "--port", "0", *(["--key", key] if key else [])]
    with (
        tempfile.TemporaryFile("w+") as errors,
        subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True, env=ENVIRONMENT) as process,
    ):
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            errors.seek(0)
            found = re.search(r"http://([\d.]+):(\d+)/", line)
            assert found is not None, line + errors.read()
            yield Served(process, found[1], int(found[2]), key)
            process.terminate()
            process.wait(PATIENCE)
            errors.seek(0)
            assert "Traceback" not in (printed := errors.read()), printed
        finally:
            process.kill()


def ask(served: Served, path: str, **body: Any) -> Any:
    """Return the JSON of an answer; with a body it is a POST."""
    answer = served.post(path, body) if body else served.get(path)
    assert answer.status == 200, answer.content
    return answer.json

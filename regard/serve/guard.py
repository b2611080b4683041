"""What stands before every route: who may ask, from which page, and how much at once.

A page on another site can make a browser send requests to a local server. So the Host must be a name of this server
(else a name that an attacker controls could be pointed at it), and a request that names its Origin must come from the
page of this server.
"""

from __future__ import annotations

import hmac
import json
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

LOCAL = frozenset({"localhost", "127.0.0.1", "[::1]"})
OPEN = frozenset({"/health", "/languages"})  # need no key: LibreTranslate's clients ask for languages without one
KEY_IN_BODY = frozenset({"/translate", "/detect"})  # LibreTranslate's clients send the key there: these routes check it
KEY_IS_MISSING = "regard.key_is_missing"  # in a request's scope: no header had the key that the server wants
SAFE = {
    "x-content-type-options": "nosniff",
    "referrer-policy": "no-referrer",
    "cross-origin-resource-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "x-frame-options": "DENY",
}


class TooLarge(HTTPException):
    """A body is larger than the server reads: an HTTPException, which FastAPI passes on while it reads a body."""

    def __init__(self, most: int) -> None:
        super().__init__(413, f"The body is larger than {most:,} bytes, the most that this server reads: send less.")


@dataclass(frozen=True)
class Key:
    """What a request must know; "": nothing."""

    value: str

    def is_in(self, headers: Mapping[str, str]) -> bool:
        """Return whether headers have the key, in UTF-8 or, as some clients write them, in Latin-1."""
        given = headers.get("authorization", "").removeprefix("Bearer ").strip()
        return not self.value or self.is_(given) or self.is_(given.encode("latin-1"))

    def is_(self, given: object) -> bool:
        """Compare a value from a body, of any type, or from a header, in constant time."""
        if isinstance(given, str):
            given = given.encode("utf-8", "replace")
        return isinstance(given, bytes) and hmac.compare_digest(given, self.value.encode())


@dataclass
class Guard:
    """ASGI middleware around the whole application."""

    app: ASGIApp
    hosts: Collection[str]  # names by which this server may be addressed
    key: Key
    body: int  # most bytes
    page: Collection[str] = field(default_factory=frozenset)  # paths of the page, which has no secrets in it

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in scope["headers"]}
        if refusal := self.refusal(scope["path"], headers):
            await refuse(send, *refusal, openai=scope["path"].startswith("/v1/"))
            return
        scope[KEY_IS_MISSING] = not self.key.is_in(headers)
        seen = 0
        started = False

        async def limited() -> Message:
            nonlocal seen
            message = await receive()
            seen += len(message.get("body", b""))
            if seen > self.body:
                raise TooLarge(self.body)
            return message

        async def with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                have = {name.lower() for name, _ in message["headers"]}
                more = [(name.encode(), value.encode()) for name, value in SAFE.items() if name.encode() not in have]
                message = {**message, "headers": [*message["headers"], *more]}
            await send(message)

        try:
            await self.app(scope, limited, with_headers)
        except TooLarge as problem:
            if not started:
                await refuse(send, problem.status_code, problem.detail, openai=scope["path"].startswith("/v1/"))

    def refusal(self, path: str, headers: Mapping[str, str]) -> tuple[int, str] | None:
        """Return the status and the sentence with which a request is refused."""
        host = headers.get("host", "")
        name = without_port(host)
        if name.lower() not in self.hosts:
            return 403, f"The host {name[:80]!r} is not a name of this server: start it with --allow-host {name[:80]}."
        origin = headers.get("origin")
        if origin is not None and origin.partition("://")[2] != host:
            return 403, f"Requests from the page {origin[:80]!r} are refused: only this server's own page may ask."
        elsewhere = headers.get("sec-fetch-site") in ("cross-site", "same-site")
        if elsewhere and path not in self.page:  # a link to the page may be anywhere
            return 403, "Requests from pages of other sites are refused."
        length = headers.get("content-length", "0")
        if not length.isdecimal() or int(length) > self.body:
            problem = TooLarge(self.body)
            return problem.status_code, problem.detail
        if path not in OPEN | KEY_IN_BODY and path not in self.page and not self.key.is_in(headers):
            return 401, "A key is needed: send it as `Authorization: Bearer KEY`."
        return None


def without_port(host: str) -> str:
    """Return the name in a Host header; that of an IPv6 address has brackets."""
    name, colon, port = host.rpartition(":")
    return name if colon and port.isdecimal() and (name.endswith("]") or ":" not in name) else host


def error_body(
    status: int, sentence: str, *, openai: bool, param: str | None = None, code: str | None = None
) -> dict[str, object]:
    """Return an error as OpenAI's clients read it, or as LibreTranslate's do."""
    if not openai:
        return {"error": sentence}
    kind = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 429: "rate_limit_error"}
    usual = "server_error" if status >= 500 else "invalid_request_error"
    return {"error": {"message": sentence, "type": kind.get(status, usual), "param": param, "code": code}}


async def refuse(send: Send, status: int, sentence: str, *, openai: bool) -> None:
    content = json.dumps(error_body(status, sentence, openai=openai)).encode()
    headers = {**SAFE, "content-type": "application/json", "content-length": str(len(content)), "connection": "close"}
    pairs = [(name.encode(), value.encode()) for name, value in headers.items()]
    await send({"type": "http.response.start", "status": status, "headers": pairs})
    await send({"type": "http.response.body", "body": content})

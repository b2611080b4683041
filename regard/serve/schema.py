"""What the OpenAPI schema says beside the types: the statuses that can occur, with an example of each."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import FastAPI
from pydantic import BeforeValidator

from regard.data.text import encodable
from regard.serve.guard import error_body

INVALID = "422"  # FastAPI's own status for an invalid request, which this server answers with 400
SENTENCES = {
    400: "beam = 99 is above 16, the most that this server allows: choose less.",
    401: "A key is needed: send it as `Authorization: Bearer KEY`.",
    403: "Requests from pages of other sites are refused.",
    404: "There is no run 'demo' here: choose one of mine, other.",
    413: "The body is larger than 8,388,608 bytes, the most that this server reads: send less.",
    429: "256 requests are under way, as many as this server takes: ask again later.",
    503: "The request took longer than this server allows: ask for less, or later.",
}
MEANINGS = {
    400: "The request is not valid",
    401: "A key is needed",
    403: "The Host or the Origin is not this server's",
    404: "There is no such run",
    413: "The body is too large",
    429: "Too many requests are under way",
    503: "It took too long, or the server is shutting down",
}
ALWAYS = (401, 403, 413)  # from the guard
WAITS = {"Retry-After": {"description": "Seconds to wait.", "schema": {"type": "integer"}}}
SENTENCE = {"type": "string"}
MAYBE = {"type": ["string", "null"]}
DETAILS = {"message": SENTENCE, "type": SENTENCE, "param": MAYBE, "code": MAYBE}
OPENAI_ERROR = {"type": "object", "properties": DETAILS, "required": list(DETAILS)}
Responses = dict[int | str, dict[str, Any]]


def whole_characters(value: Any) -> Any:
    return encodable(value) if isinstance(value, str) else value


Text = Annotated[str, BeforeValidator(whole_characters)]  # JSON may hold half a surrogate pair, which Pydantic refuses


def refusals(*statuses: int, openai: bool = True) -> Responses:
    """Describe these responses, beside those of the guard."""
    found: Responses = {}
    for status in sorted({*ALWAYS, *statuses}):
        example = error_body(status, SENTENCES[status], openai=openai)
        error = OPENAI_ERROR if openai else SENTENCE
        schema = {"type": "object", "properties": {"error": error}, "required": ["error"]}
        content = {"application/json": {"schema": schema, "example": example}}
        found[status] = {"description": MEANINGS[status], "content": content}
        if status in (429, 503):
            found[status]["headers"] = WAITS
    return found


def answers(example: Any, kind: str = "application/json", **others: str) -> Responses:
    """Give an example of a response; `others` are examples in other media types."""
    content = {kind: {"example": example}, **{name: {"example": text} for name, text in others.items()}}
    return {200: {"content": content}}


class Described(FastAPI):
    """Leaves out of the schema what this server never answers."""

    def openapi(self) -> dict[str, Any]:
        if self.openapi_schema is None:
            schema = super().openapi()
            for operations in schema["paths"].values():
                for operation in operations.values():
                    operation["responses"].pop(INVALID, None)
            for name in ("HTTPValidationError", "ValidationError"):
                schema["components"]["schemas"].pop(name, None)
            self.openapi_schema = schema
        return self.openapi_schema

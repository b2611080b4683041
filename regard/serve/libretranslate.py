"""LibreTranslate's API: /translate, /languages and /detect, answered by runs whose languages are known.

A pair of languages chooses the run. Each line of a text is an input of its own, as for `regard predict`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Literal
from urllib.parse import parse_qs

from fastapi import APIRouter, Request
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from regard.config import UserError
from regard.data.languages import Pair, name_of
from regard.interface import Generates
from regard.predict.decoding import Decoding, Prediction
from regard.run import Run
from regard.serve.desk import Desk, Limits, Refused
from regard.serve.guard import KEY_IS_MISSING, Key
from regard.serve.native import refuse_long, refuse_many
from regard.serve.schema import Text, answers, refusals
from regard.serve.shelf import Shelf, languages_of

AUTO = "auto"
EXAMPLE: dict[str, Any] = {"q": "They are watching .", "source": "en", "target": "fr"}
KEYS = {"type": "string", "default": "", "description": "The server's key, where it has one."}


class Translate(BaseModel):
    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [EXAMPLE]})  # clients send more

    q: Text | list[Text] = Field(description="A text, or several.")
    source: Text = Field(description="The code of its language; auto: the only one that can be translated.")
    target: Text = Field(description="The code of the language to translate to.")
    format: Literal["text", "html"] = Field("text", description="html is accepted, and its tags are read as text.")
    alternatives: int = Field(0, ge=0, description="How many other translations to return.")


class Language(BaseModel):
    code: str
    name: str
    targets: list[str]


class Detected(BaseModel):
    language: str
    confidence: float


class Translated(BaseModel):
    translatedText: str | list[str]
    alternatives: list[str] | list[list[str]] | None = None
    detectedLanguage: Detected | list[Detected] | None = None


class Pairs:
    """Which run translates between which languages: those given with --languages, otherwise those of the recipes."""

    def __init__(self, shelf: Shelf, given: Mapping[str, Pair]) -> None:
        self.shelf, self.given = shelf, given

    def all(self) -> dict[Pair, str]:
        """Return the run of each pair: the first one where several have the same."""
        found: dict[Pair, str] = {}
        for name, path in self.shelf.paths().items():
            pair = self.given.get(name) or languages_of(path)
            if pair:
                found.setdefault(pair, name)
        return found

    def chosen(self, source: str, target: str) -> tuple[str, str]:
        """Return the run for this pair, and its source language."""
        pairs = self.all()
        if not pairs:
            raise UserError("No run here has languages: start the server with --languages, such as --languages en:de.")
        fits = [pair for pair in pairs if pair[1] == target and source in (pair[0], AUTO)]
        listed = ", ".join(":".join(pair) for pair in pairs)[:400]
        if not fits:
            raise UserError(f"{source[:20]} to {target[:20]} is not supported: choose one of {listed}.")
        if len(fits) > 1:
            raise UserError(
                f"Languages are not detected, and several are translated to {target}: give one of {listed}."
            )
        return pairs[fits[0]], fits[0][0]


def routes(desk: Desk, key: Key, languages: Mapping[str, Pair]) -> APIRouter:
    router = APIRouter(tags=["LibreTranslate"])
    pairs = Pairs(desk.shelf, languages)

    @router.post(
        "/translate",
        response_model=Translated,
        response_model_exclude_none=True,
        openapi_extra={"requestBody": described_body(Translate)},
        responses={**answers({"translatedText": "Ils regardent ."}), **refusals(400, 429, 503, openai=False)},
    )
    async def translate(request: Request) -> dict[str, Any]:
        """Translate a text, or a list of texts."""
        asked = validated(await body_of(request, key))
        several = [asked.q] if isinstance(asked.q, str) else asked.q
        async with desk.ticket(request) as ticket:
            refuse_many(several, desk.limits)
            name, source = await desk.in_thread(partial(pairs.chosen, asked.source, asked.target))
            run = await desk.run(name)
            refuse_other_task(run, name)
            how = decoding_of(run, asked.alternatives, desk.limits)
            lines = [line.removesuffix("\r") for text in several for line in text.split("\n")]
            refuse_many_lines(lines, desk.limits)
            await desk.in_thread(partial(refuse_long, run, lines, how))
            found = iter(await desk.answer(ticket, run, lines, how))
        each = [whole([next(found) for _ in text.split("\n")]) for text in several]
        many = isinstance(asked.q, list)
        response: dict[str, Any] = {"translatedText": [best for best, *_ in each] if many else each[0][0]}
        if asked.alternatives:
            response["alternatives"] = [rest for _, *rest in each] if many else each[0][1:]
        if asked.source == AUTO:
            detected = Detected(language=source, confidence=0.0)  # nothing is detected: it is the only one
            response["detectedLanguage"] = [detected] * len(each) if many else detected
        return response

    @router.get(
        "/languages",
        responses={**answers([{"code": "en", "name": "English", "targets": ["fr"]}]), **refusals(openai=False)},
    )
    async def languages_served() -> list[Language]:
        """List the languages, and those that each is translated to."""
        found = await desk.in_thread(pairs.all)
        codes = dict.fromkeys([source for source, _ in found] + [target for _, target in found])
        to = {code: [target for source, target in found if source == code] for code in codes}
        return [Language(code=code, name=name_of(code), targets=to[code]) for code in codes]

    @router.post(
        "/detect",
        openapi_extra={"requestBody": described_body(Detect)},
        responses=refusals(400, openai=False),
        status_code=400,
        response_model=None,
    )
    async def detect(request: Request) -> None:
        """Refuse to detect a language: no run does."""
        await body_of(request, key)
        raise UserError("Languages are not detected here: name the source language, or give auto where there is one.")

    return router


class Detect(BaseModel):
    model_config = ConfigDict(extra="ignore", json_schema_extra={"examples": [{"q": "They are watching ."}]})

    q: str


def described_body(model: type[BaseModel]) -> dict[str, Any]:
    """Describe a body that may be JSON or a form, for the OpenAPI schema."""
    schema = model.model_json_schema()
    schema["properties"] |= {"api_key": KEYS}
    form = json.loads(json.dumps(schema))
    form["properties"]["q"] = {"type": "string"}
    media = {"application/json": schema, "application/x-www-form-urlencoded": form}
    return {"required": True, "content": {kind: {"schema": each} for kind, each in media.items()}}


async def body_of(request: Request, key: Key) -> dict[str, Any]:
    """Read a body, JSON or a form; without the key, where one is needed, it is refused."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    content = await request.body()
    values: Any
    if kind == "application/x-www-form-urlencoded":
        try:
            fields = parse_qs(content.decode(), keep_blank_values=True, errors="replace", max_num_fields=1000)
        except ValueError:
            raise UserError("The form is not urlencoded UTF-8 text: encode it, or send JSON.") from None
        values = {name: several[0] if len(several) == 1 else several for name, several in fields.items()}
    elif kind in ("application/json", ""):
        try:
            values = json.loads(content)
        except (ValueError, RecursionError):
            raise UserError(f"The body is not JSON: send an object such as {json.dumps(EXAMPLE)}.") from None
    else:
        raise UserError(f"A body of {kind[:80]!r} is not read: send JSON, or a form that is urlencoded.")
    given = values if isinstance(values, dict) else {}
    if request.scope[KEY_IS_MISSING] and not any(key.is_(given.get(name)) for name in ("api_key", "apiKey")):
        raise Refused(401, "A key is needed: send it as api_key in the body.")
    if not isinstance(values, dict):
        raise UserError(f"The body is not a JSON object: send one, such as {json.dumps(EXAMPLE)}.")
    return values


def validated(values: dict[str, Any]) -> Translate:
    try:
        return Translate.model_validate(values)
    except ValidationError as problem:
        raise RequestValidationError(problem.errors()) from None


def refuse_other_task(run: Run, name: str) -> None:
    if "source" not in run.fields or not isinstance(run.model, Generates) or run.task.decoding is None:
        raise UserError(f"{name} does not translate, it is for {run.task.name}: leave it out of --languages.")


def decoding_of(run: Run, alternatives: int, limits: Limits) -> Decoding:
    """Return the run's own decoding, with room for alternatives."""
    n_best = 1 + alternatives
    if n_best > limits.beam:
        most = limits.beam - 1
        raise UserError(
            f"alternatives = {alternatives} is above {most}, the most that this server allows: choose less."
        )
    return run.decoding(n_best=n_best) if alternatives else run.decoding()


def refuse_many_lines(lines: Sequence[str], limits: Limits) -> None:
    filled = sum(1 for line in lines if line.strip())
    if filled > limits.inputs:
        raise UserError(f"The text has {filled} lines, and a request at most {limits.inputs}: send it in parts.")


def whole(lines: Sequence[Prediction]) -> list[str]:
    """Return the best translation of a text, then its alternatives; of a line that has fewer of them, its best."""
    each = [[line.text, *(other.text for other in line.alternatives)] for line in lines]
    ranks = range(max(map(len, each)))
    texts = ("\n".join(line[rank] if rank < len(line) else line[0] for line in each) for rank in ranks)
    return list(dict.fromkeys(texts))

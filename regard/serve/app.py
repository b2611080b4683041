"""The application: the page, the API, and what both go through."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection, Mapping
from functools import partial

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from regard import __version__
from regard.config import UserError
from regard.data.languages import Pair
from regard.data.text import encodable, one_line
from regard.serve import libretranslate, native, openai, training
from regard.serve.desk import Desk, Refused, refusal_of
from regard.serve.engine import Closing, Gone
from regard.serve.guard import LOCAL, Guard, Key, TooLarge, error_body
from regard.serve.page import assets
from regard.serve.schema import Described, answers, refusals
from regard.serve.telemetry import Telemetry

ABOUT = "Translate, continue, classify, tag and caption with trained sequence models, and see what they attend to."
GRACE = 10.0  # seconds that requests have to finish when the server ends
CLIENT_LEFT = 499  # nobody reads it
COUNTERS = (
    "# HELP regard_requests_open Requests under way.\n# TYPE regard_requests_open gauge\nregard_requests_open 0\n"
)


def application(
    desk: Desk,
    *,
    hosts: Collection[str] = (),
    key: str = "",
    languages: Mapping[str, Pair] = {},
    closing: Callable[[], bool] = lambda: False,
) -> ASGIApp:
    """Build the application; `languages` are those of runs by name; `closing` says whether the server is about to end,
    so that streams end too."""
    telemetry = Telemetry(desk)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.get_running_loop().run_in_executor(None, partial(desk.engine.close, GRACE))
        desk.pool.shutdown(wait=False, cancel_futures=True)

    # its own pages of documentation would load scripts from elsewhere
    app = Described(
        title="regard", version=__version__, description=ABOUT, docs_url=None, redoc_url=None, lifespan=lifespan
    )
    app.include_router(native.routes(desk))
    app.include_router(training.routes(desk, closing))
    app.include_router(libretranslate.routes(desk, Key(key), languages))
    app.include_router(openai.routes(desk))
    page = assets()
    for path, asset in page.items():
        app.add_api_route(path, asset.response, methods=["GET"], include_in_schema=False)

    @app.get("/health", tags=["operation"], responses={**answers({"status": "ok"}), **refusals()})
    async def health() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "closing" if closing() else "ok"}

    counters = answers(COUNTERS, "text/plain")

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse, responses={**counters, **refusals()})
    async def metrics() -> PlainTextResponse:
        """Counters in Prometheus' text format."""
        return PlainTextResponse(telemetry.text(), media_type="text/plain; version=0.0.4")

    answer_errors(app)
    return telemetry.around(
        Guard(app, {*LOCAL, *(host.lower() for host in hosts)}, Key(key), desk.limits.body, set(page))
    )


def answer_errors(app: FastAPI) -> None:
    """Turn every exception into one sentence with its status, in the shape that the route's clients read."""

    def answer(
        request: Request, status: int, sentence: str, retry_after: int = 0, param: str | None = None
    ) -> Response:
        headers = {"retry-after": str(retry_after)} if retry_after else {}
        openai = request.url.path.startswith("/v1/")
        code = "model_not_found" if status == 404 and param else None
        body = error_body(status, encodable(sentence), openai=openai, param=param, code=code)
        return JSONResponse(body, status, headers)

    @app.exception_handler(UserError)
    @app.exception_handler(Refused)
    @app.exception_handler(TimeoutError)
    @app.exception_handler(Closing)
    @app.exception_handler(Gone)
    async def refused(request: Request, problem: Exception) -> Response:
        found = refusal_of(problem)
        if found is None:
            return Response(status_code=CLIENT_LEFT)
        return answer(request, found.status, found.sentence, found.retry_after, found.param)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, problem: RequestValidationError) -> Response:
        first = problem.errors()[0]
        places = [str(part) for part in first["loc"] if part != "body"]
        sentence = f"{'.'.join(places)[:200] or 'The body'}: {first['msg']}."
        return answer(request, 400, one_line(sentence), param=encodable(places[0][:80]) if places else None)

    @app.exception_handler(Exception)
    async def unexpected(request: Request, problem: Exception) -> Response:
        return answer(request, 500, "This is an error of the server, which its log describes.")

    @app.exception_handler(HTTPException)
    async def other(request: Request, problem: HTTPException) -> Response:
        where = "" if isinstance(problem, TooLarge) else f": {request.method} {request.url.path[:80]}."
        response = answer(request, problem.status_code, f"{problem.detail}{where}")
        response.headers.update(problem.headers or {})
        return response

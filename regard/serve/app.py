"""The application: the page, the API, and what both go through."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Collection
from functools import partial

from fastapi import FastAPI, Request, Response
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse, PlainTextResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp

from regard import __version__
from regard.config import UserError
from regard.data.text import one_line
from regard.serve import native, training
from regard.serve.desk import Desk, Refused
from regard.serve.engine import Closing, Gone, TooLate
from regard.serve.guard import LOCAL, Guard, error_body
from regard.serve.page import assets
from regard.serve.shelf import NoSuchRun
from regard.serve.telemetry import Telemetry

ABOUT = "Translate, continue, classify, tag and caption with trained sequence models, and see what they attend to."
GRACE = 10.0  # seconds that requests have to finish when the server ends
CLIENT_LEFT = 499  # nobody reads it


def application(
    desk: Desk, *, hosts: Collection[str] = (), key: str = "", closing: Callable[[], bool] = lambda: False
) -> ASGIApp:
    """Build the application; `closing` says whether the server is about to end, so that streams end too."""
    telemetry = Telemetry(desk)

    @contextlib.asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        yield
        await asyncio.get_running_loop().run_in_executor(None, partial(desk.engine.close, GRACE))
        desk.pool.shutdown(wait=False, cancel_futures=True)

    # its own pages of documentation would load scripts from elsewhere
    app = FastAPI(
        title="regard", version=__version__, description=ABOUT, docs_url=None, redoc_url=None, lifespan=lifespan
    )
    app.include_router(native.routes(desk))
    app.include_router(training.routes(desk, closing))
    page = assets()
    for path, asset in page.items():
        app.add_api_route(path, asset.response, methods=["GET"], include_in_schema=False)

    @app.get("/health", tags=["operation"])
    async def health() -> dict[str, str]:
        """Whether the server answers."""
        return {"status": "closing" if closing() else "ok"}

    @app.get("/metrics", tags=["operation"], response_class=PlainTextResponse)
    async def metrics() -> PlainTextResponse:
        """Counters in Prometheus' text format."""
        return PlainTextResponse(telemetry.text(), media_type="text/plain; version=0.0.4")

    answer_errors(app)
    return telemetry.around(Guard(app, {*LOCAL, *(host.lower() for host in hosts)}, key, desk.limits.body, set(page)))


def answer_errors(app: FastAPI) -> None:
    """Turn every exception into one sentence with its status, in the shape that the route's clients read."""

    def answer(request: Request, status: int, sentence: str, retry_after: int = 0) -> JSONResponse:
        headers = {"retry-after": str(retry_after)} if retry_after else {}
        body = error_body(status, sentence, openai=request.url.path.startswith("/v1/"))
        return JSONResponse(body, status, headers)

    @app.exception_handler(UserError)
    async def user_error(request: Request, problem: UserError) -> JSONResponse:
        return answer(request, 404 if isinstance(problem, NoSuchRun) else 400, str(problem))

    @app.exception_handler(Refused)
    async def refused(request: Request, problem: Refused) -> JSONResponse:
        return answer(request, problem.status, problem.sentence, problem.retry_after)

    @app.exception_handler(RequestValidationError)
    async def invalid(request: Request, problem: RequestValidationError) -> JSONResponse:
        first = problem.errors()[0]
        where = ".".join(str(part) for part in first["loc"] if part != "body")
        return answer(request, 400, one_line(f"{where or 'The body'}: {first['msg']}."))

    @app.exception_handler(HTTPException)
    async def other(request: Request, problem: HTTPException) -> JSONResponse:
        response = answer(request, problem.status_code, f"{problem.detail}: {request.method} {request.url.path[:80]}.")
        response.headers.update(problem.headers or {})
        return response

    @app.exception_handler(Gone)
    async def gone(request: Request, problem: Gone) -> Response:
        if isinstance(problem, TooLate):
            return late(request)
        return Response(status_code=CLIENT_LEFT)

    @app.exception_handler(TimeoutError)
    async def timed_out(request: Request, problem: TimeoutError) -> Response:
        return late(request)

    def late(request: Request) -> Response:
        return answer(request, 503, "The request took longer than this server allows: ask for less, or later.", 5)

    @app.exception_handler(Closing)
    async def ending(request: Request, problem: Closing) -> Response:
        return answer(request, 503, "The server is shutting down: ask again later.", 5)

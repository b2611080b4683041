"""OpenAI's API: completions, embeddings and models. Chat is refused, because the models here continue a text."""

from __future__ import annotations

import base64
import json
import secrets
import time
from collections.abc import AsyncIterator, Generator, Sequence
from contextlib import AsyncExitStack
from functools import partial
from typing import Annotated, Any, Literal

import numpy as np
import torch
from fastapi import APIRouter, Request
from fastapi.responses import StreamingResponse
from numpy.typing import NDArray
from pydantic import BaseModel, BeforeValidator, Field
from starlette.types import Receive, Scope, Send

from regard.checkpoint import Folder
from regard.data.fields import TextField
from regard.interface import Encodes, Generates
from regard.predict.decoding import Decoding
from regard.predict.text import most_read
from regard.run import Run
from regard.serve.completions import End, Plan, pieces
from regard.serve.desk import Desk, Limits, Refused, refusal_of
from regard.serve.engine import Ticket
from regard.serve.guard import error_body
from regard.serve.native import Body, refuse_long, refuse_many, tokens_of
from regard.serve.schema import Responses, Text, answers, refusals
from regard.serve.shelf import NOT_YET, stamp
from regard.tasks import nothing

SEEDS = 1 << 63  # ours are below it
LINES = 1 << 39  # numbers of lines among which a request without a seed chooses
MOST_STOPS, LONGEST_STOP = 4, 200  # stop sequences, and their characters
TOGETHER = 4096  # tokens that are embedded in one batch
NO_CHAT = (
    "There is no chat here, because the models of this server continue a text or answer it: "
    "use /v1/completions (client.completions.create with a prompt)."
)
EVENTS = {"cache-control": "no-store", "x-accel-buffering": "no"}  # nginx passes events on at once


def refuse_ids(value: Any) -> Any:
    """Refuse token ids, which some clients send: those of another tokenizer would be another text."""
    if isinstance(value, list) and value and not all(isinstance(each, str) for each in value):
        raise ValueError("token ids are not read, because every run has its own tokenizer: send a text, or texts")
    return value


Texts = Annotated[Text | list[Text], BeforeValidator(refuse_ids)]


class Complete(Body):
    model: Text = Field(description="The name of a run, as /v1/models lists it.", examples=["language"])
    prompt: Texts = Field(description="A text to continue, or to answer; or several.", examples=["The man"])
    max_tokens: int | None = Field(None, ge=1, description="Most tokens to write; by default the run's own limit.")
    temperature: float | None = Field(None, ge=0, le=2, description="0: greedy decoding; by default the run's own.")
    top_p: float | None = Field(None, gt=0, le=1, description="Nucleus sampling.")
    top_k: int | None = Field(None, ge=0, description="Top-k sampling; 0: from all. OpenAI's API does not have it.")
    n: int | None = Field(None, ge=1, description="Choices for each prompt.")
    seed: int | None = Field(None, ge=-SEEDS, lt=SEEDS, description="Random seed; without one each answer is another.")
    stop: Text | list[Text] | None = Field(None, description="Texts before which writing stops, up to 4.")
    stream: bool | None = Field(None, description="Send the text as server-sent events while it is written.")
    stream_options: StreamOptions | None = None
    echo: bool | None = Field(None, description="Return the prompt, too; for language models.")
    user: Text | None = Field(None, description="Is not used.")
    best_of: int | None = Field(None, description="Only the same as n.")
    logprobs: int | None = Field(None, description="Not supported.")
    suffix: Text | None = Field(None, description="Not supported.")
    presence_penalty: float | None = Field(None, description="Only 0.")
    frequency_penalty: float | None = Field(None, description="Only 0.")
    logit_bias: dict[str, float] | None = Field(None, description="Not supported.")


class StreamOptions(Body):
    include_usage: bool | None = Field(None, description="Send the counts of tokens with the last event.")


class Embed(Body):
    model: Text = Field(description="The name of a run, as /v1/models lists it.", examples=["language"])
    input: Texts = Field(description="A text, or several.", examples=["The man"])
    encoding_format: Literal["float", "base64"] | None = None
    dimensions: int | None = Field(None, description="Only the width of the model.")
    user: Text | None = Field(None, description="Is not used.")


class Usage(BaseModel):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


class Choice(BaseModel):
    index: int
    text: str
    finish_reason: Literal["stop", "length"]
    logprobs: None = None


class Completion(BaseModel):
    id: str
    object: Literal["text_completion"] = "text_completion"
    created: int
    model: str
    choices: list[Choice]
    usage: Usage


class Embedding(BaseModel):
    object: Literal["embedding"] = "embedding"
    index: int
    embedding: list[float] | str


class EmbeddingUsage(BaseModel):
    prompt_tokens: int
    total_tokens: int


class Embeddings(BaseModel):
    object: Literal["list"] = "list"
    data: list[Embedding]
    model: str
    usage: EmbeddingUsage


class Model(BaseModel):
    id: str
    object: Literal["model"] = "model"
    created: int
    owned_by: str = "regard"


class Models(BaseModel):
    object: Literal["list"] = "list"
    data: list[Model]


COMPLETION = Completion(
    id="cmpl-1",
    created=1_700_000_000,
    model="language",
    choices=[Choice(index=0, text=" is good .", finish_reason="stop")],
    usage=Usage(prompt_tokens=3, completion_tokens=4, total_tokens=7),
)
EMBEDDINGS = Embeddings(
    data=[Embedding(index=0, embedding=[0.25, -0.5])],
    model="language",
    usage=EmbeddingUsage(prompt_tokens=3, total_tokens=3),
)
MODEL = Model(id="language", created=1_700_000_000)
EVENT = 'data: {"id": "cmpl-1", "choices": [{"index": 0, "text": " is"}]}\n\ndata: [DONE]\n\n'


class Events(StreamingResponse):
    """Server-sent events of a request, which is under way until the last one."""

    media_type = "text/event-stream"

    def __init__(self, content: AsyncIterator[str], under_way: AsyncExitStack) -> None:
        super().__init__(content, headers=EVENTS)
        self.under_way = under_way

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self.under_way:
            await super().__call__(scope, receive, send)


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["OpenAI"])
    asking = refusals(400, 404, 429, 503)

    @router.get("/models", responses={**answers(Models(data=[MODEL]).model_dump()), **refusals()})
    async def models() -> Models:
        """List the runs that are served."""
        paths = await desk.in_thread(desk.shelf.paths)
        written = {name: stamp(Folder(path).best) for name, path in paths.items()}
        return Models(data=[model_of(name, when[0]) for name, when in written.items() if when != NOT_YET])

    @router.get("/models/{model}", responses={**answers(MODEL.model_dump()), **refusals(404)})
    async def model(model: str) -> Model:
        """Describe one run."""
        return model_of(model, stamp(Folder(await desk.in_thread(partial(desk.shelf.path, model))).best)[0])

    streamed: Responses = answers(COMPLETION.model_dump(), **{"text/event-stream": EVENT})

    @router.post("/completions", response_model=Completion, responses={**streamed, **asking})
    async def completions(request: Request, asked: Complete) -> Any:
        """Continue a text with a language model, or answer it with another run that writes."""
        async with AsyncExitStack() as under_way:
            ticket = await under_way.enter_async_context(desk.ticket(request))
            run = await desk.run(asked.model)
            plan = await desk.in_thread(partial(plan_of, run, asked, desk.limits))
            if asked.stream:
                return Events(events(desk, ticket, run, plan, asked), under_way.pop_all())
            texts = [""] * len(plan.prompts) * plan.n
            ends: dict[int, End] = {}
            one_by_one = plan.continues and bool(plan.stops)
            async for piece in pieces(desk, ticket, run, plan, one_by_one=one_by_one):
                texts[piece.choice] += piece.text
                if piece.end:
                    ends[piece.choice] = piece.end
        choices = [Choice(index=n, text=texts[n], finish_reason=end.reason) for n, end in sorted(ends.items())]
        return Completion(**head_of(asked), choices=choices, usage=usage_of(plan, ends))

    @router.post("/embeddings", responses={**answers(EMBEDDINGS.model_dump()), **asking})
    async def embeddings(request: Request, asked: Embed) -> Embeddings:
        """Return a vector for each text: the mean of the model's hidden states."""
        async with desk.ticket(request) as ticket:
            texts = [asked.input] if isinstance(asked.input, str) else asked.input
            run = await desk.run(asked.model)
            refuse_many(texts, desk.limits)
            counts = await desk.in_thread(partial(tokens_in, run, texts))
            vectors: NDArray[np.float32] = await desk.call(ticket, partial(embedded, run, texts, counts))
        width = vectors.shape[1]
        if asked.dimensions not in (None, width):
            sentence = f"dimensions = {asked.dimensions} is not the width of {asked.model}, {width}: leave it out."
            raise Refused(400, sentence, param="dimensions")
        encoded = base64_of if asked.encoding_format == "base64" else list[float]
        data = [Embedding(index=place, embedding=encoded(vector)) for place, vector in enumerate(vectors)]
        usage = EmbeddingUsage(prompt_tokens=sum(counts), total_tokens=sum(counts))
        return Embeddings(data=data, model=asked.model, usage=usage)

    @router.post("/chat/completions", status_code=400, response_model=None, responses=refusals(400))
    async def chat(request: Request) -> None:
        """Refuse to chat."""
        raise Refused(400, NO_CHAT, param="messages")

    return router


# --- completions ---------------------------------------------------------------------------------------------------


def plan_of(run: Run, asked: Complete, limits: Limits) -> Plan:
    """Return what is to be written, or refuse the request and name the parameter at fault."""
    refuse_unsupported(asked)
    if not isinstance(run.model, Generates) or run.task.decoding is None or not reads_text(run):
        remedy = "use /v1/predict, or another model"
        raise Refused(
            400, f"{asked.model} does not complete texts, it is for {run.task.name}: {remedy}.", param="model"
        )
    prompts = [asked.prompt] if isinstance(asked.prompt, str) else asked.prompt
    n = asked.n or 1
    for name, value, most in (
        ("prompt", len(prompts), limits.inputs),
        ("n", n, limits.beam),
        ("max_tokens", asked.max_tokens or 1, limits.tokens),
    ):
        if not 1 <= value <= most:
            raise Refused(400, f"{name} is {value}, and this server allows 1 to {most}: ask for less.", param=name)
    continues = run.task.stream is not nothing
    if asked.echo and not continues:
        raise Refused(400, f"echo is for language models, and {asked.model} is not one: leave it out.", param="echo")
    how = decoding_of(run, asked, n)
    if not continues:
        refuse_long(run, prompts, how)
    first_line = secrets.randbelow(LINES) if how.sample and asked.seed is None else 0
    return Plan(prompts, n, how, first_line, stops_of(asked), continues, bool(asked.echo))


def refuse_unsupported(asked: Complete) -> None:
    wrong = {
        "suffix": asked.suffix is not None,
        "logprobs": asked.logprobs is not None,
        "logit_bias": bool(asked.logit_bias),
        "best_of": asked.best_of not in (None, asked.n or 1),
        "presence_penalty": bool(asked.presence_penalty),
        "frequency_penalty": bool(asked.frequency_penalty),
        "stream_options": asked.stream_options is not None and not asked.stream,
    }
    for name, is_wrong in wrong.items():
        if is_wrong:
            allowed = {"best_of": "with the value of n", "stream_options": "with stream"}
            usual = "as 0" if name.endswith("penalty") else ""
            only = allowed.get(name, usual)
            raise Refused(400, f"{name} is not supported{f', but {only}' if only else ''}: leave it out.", param=name)


def stops_of(asked: Complete) -> list[str]:
    stops = [asked.stop] if isinstance(asked.stop, str) else asked.stop or []
    if len(stops) > MOST_STOPS or not all(1 <= len(each) <= LONGEST_STOP for each in stops):
        allowed = f"up to {MOST_STOPS} texts of 1 to {LONGEST_STOP} characters"
        raise Refused(400, f"stop must be {allowed}: give fewer, or leave it out.", param="stop")
    return stops


def decoding_of(run: Run, asked: Complete, n: int) -> Decoding:
    """Return the run's settings of decoding with those of the request. A request without a seed has another line
    number each time, not another seed, so that it is decoded together with others."""
    given: dict[str, Any] = {}
    if asked.max_tokens:
        given["max_length"] = asked.max_tokens
    if asked.temperature == 0:
        given["sample"] = False
        given["beam"] = 1
    elif any(value is not None for value in (asked.temperature, asked.top_p, asked.top_k)):
        given |= {"sample": True, "temperature": max(asked.temperature or 1.0, 1e-6), "top_p": asked.top_p or 1.0}
        if asked.top_k is not None:
            given["top_k"] = asked.top_k
    if asked.seed is not None:
        given["seed"] = asked.seed % SEEDS
    how = run.decoding(**given)
    greedy = not how.sample and how.beam == 1
    return how if n == 1 or greedy else run.decoding(**given, n_best=n)


def head_of(asked: Complete) -> dict[str, Any]:
    return {"id": f"cmpl-{secrets.token_hex(12)}", "created": int(time.time()), "model": asked.model}


def usage_of(plan: Plan, ends: dict[int, End]) -> Usage:
    """Count tokens: those of a prompt once, however many choices it has."""
    read = sum(end.read for choice, end in ends.items() if choice % plan.n == 0)
    written = sum(end.written for end in ends.values())
    return Usage(prompt_tokens=read, completion_tokens=written, total_tokens=read + written)


async def events(desk: Desk, ticket: Ticket, run: Run, plan: Plan, asked: Complete) -> AsyncIterator[str]:
    """Yield the text as server-sent events while it is written; a problem becomes an event, too."""
    head = {**head_of(asked), "object": "text_completion"}
    wants_usage = bool(asked.stream_options and asked.stream_options.include_usage)
    ends: dict[int, End] = {}

    def event(choices: list[dict[str, Any]], usage: Usage | None = None) -> str:
        more = {"usage": usage.model_dump() if usage else None} if wants_usage else {}
        return f"data: {json.dumps({**head, 'choices': choices, **more})}\n\n"

    try:
        async for piece in pieces(desk, ticket, run, plan, one_by_one=plan.continues):
            choice = {"index": piece.choice, "text": piece.text, "logprobs": None, "finish_reason": None}
            if piece.text:
                yield event([choice])
            if piece.end:
                ends[piece.choice] = piece.end
                yield event([{**choice, "text": "", "finish_reason": piece.end.reason}])
        if wants_usage:
            yield event([], usage_of(plan, ends))
        yield "data: [DONE]\n\n"
    except Exception as problem:
        if (refused := refusal_of(problem)) is None:
            raise
        yield f"data: {json.dumps(error_body(refused.status, refused.sentence, openai=True))}\n\n"


# --- embeddings and models -----------------------------------------------------------------------------------------


def reads_text(run: Run) -> bool:
    return isinstance(run.fields[next(iter(run.task.fields))], TextField)


def tokens_in(run: Run, texts: Sequence[str]) -> list[int]:
    """Count the tokens of each text, or refuse what cannot be embedded."""
    if not isinstance(run.model, Encodes) or not reads_text(run):
        raise Refused(400, f"{run.model_title} has no vectors for texts: choose another model.", param="model")
    most = most_read(run.model)
    counts = []
    for number, text in enumerate(texts, start=1):
        count = tokens_of(run, next(iter(run.task.fields)), text, most)
        if not count:
            raise Refused(400, f"Input {number} is empty: give a text.", param="input")
        if count > most:
            raise Refused(400, f"Input {number} has more than {most} tokens: shorten it.", param="input")
        counts.append(count)
    return counts


def embedded(run: Run, texts: Sequence[str], counts: Sequence[int]) -> Generator[None, None, NDArray[np.float32]]:
    """Embed texts of similar length together, a batch in each step."""
    order = sorted(range(len(texts)), key=counts.__getitem__, reverse=True)
    vectors: dict[int, NDArray[np.float32]] = {}
    while order:
        some = order[: max(1, TOGETHER // counts[order[0]])]
        order = order[len(some) :]
        with torch.inference_mode():
            vectors.update(zip(some, run.embed([texts[place] for place in some]), strict=True))
        yield
    return np.stack([vectors[place] for place in range(len(texts))])


def base64_of(vector: NDArray[np.float32]) -> str:
    return base64.b64encode(vector.astype("<f4").tobytes()).decode()


def model_of(name: str, nanoseconds: int) -> Model:
    return Model(id=name, created=nanoseconds // 10**9)

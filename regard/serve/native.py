"""The routes /v1/runs, /v1/predict, /v1/score, /v1/look, /v1/gradients and /v1/steps: for the page, and for everything
that other programs' APIs have no words for."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Generator, Sequence
from dataclasses import replace
from functools import partial
from threading import Lock
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, ConfigDict, Field, create_model

from regard.config import UserError, fields_of, help_texts
from regard.data.fields import TextField
from regard.data.picture_files import decoded
from regard.data.pictures import PictureField
from regard.data.recordings import Recording, decoded_sound
from regard.data.sounds import SoundField
from regard.interface import Generates
from regard.look.recordings import first_piece
from regard.predict.decoding import Decoding
from regard.predict.inputs import some_at_once
from regard.predict.text import CHARACTERS, most_read, readable
from regard.run import Run
from regard.serve import examples
from regard.serve.desk import Desk, Limits
from regard.serve.own_examples import examples_of
from regard.serve.schema import Text, answers, refusals
from regard.serve.shelf import abilities
from regard.serve.training import drawn
from regard.show.attention_page import sentence_facts
from regard.show.caption_page import Captioned, picture_facts
from regard.show.sound_page import Transcribed, sound_facts
from regard.tasks import nothing

SERVER_DECIDES = ("longest_source", "batch_tokens", "shortlist")  # settings of decoding that a request cannot change
SCORED_TOGETHER = 4  # examples
NAME = Field(description="The name of a run, as /v1/runs lists it.", examples=["demo"])
RunName = Annotated[Text, NAME]


class Body(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Picture(Body):
    picture: Annotated[str, Field(description="A picture file, base64.")]


class Recorded(Body):
    recording: Annotated[str, Field(description="A sound file (WAV, FLAC, OGG, MP3), base64.")]


Input = Text | Picture | Recorded
Example = str | tuple[str, str]
WANTED: dict[type, str] = {
    Picture: '{"picture": "…"} with a file in base64',
    Recorded: '{"recording": "…"} with a sound file in base64',
    str: "a text",
}
CHOICES: dict[str, Any] = {  # the settings of decoding, as `regard predict` has them
    name: (kind | None, Field(None, description=help_texts(Decoding)[name]))
    for name, kind in fields_of(Decoding).items()
    if name not in SERVER_DECIDES
}
Settings: Any = create_model("Settings", __base__=Body, **CHOICES)
GIVEN: Any = Field(default_factory=Settings, description="Settings of decoding; what is left out is the run's own.")


class Predict(Body):
    run: RunName
    input: Annotated[Input | list[Input], Field(description="One input, or several.", examples=["They are watching ."])]
    settings: Settings = GIVEN


class Score(Body):
    run: RunName
    examples: Annotated[
        list[Text | tuple[Text, Text]],
        Field(
            description="Texts, or pairs of a source and a target.",
            examples=[[["They are watching .", "Ils regardent ."]]],
        ),
    ]


class Look(Body):
    run: RunName
    input: Annotated[Input, Field(examples=["They are watching ."])]
    target: Annotated[Text | None, Field(description="What the model reads as its output; by default its own.")] = None
    kind: Annotated[Literal["attention", "gates"], Field(description="What is shown.")] = "attention"


class Gradients(Body):
    run: RunName


class Steps(Body):
    run: RunName
    input: Annotated[Input, Field(examples=["They are watching ."])]
    forced: Annotated[list[int], Field(description="Ids of tokens with which the output begins.")] = []
    settings: Settings = GIVEN


def routes(desk: Desk) -> APIRouter:
    router = APIRouter(prefix="/v1", tags=["regard"])
    asking = refusals(400, 404, 429, 503)

    @router.get("/runs", responses={**answers(examples.RUNS), **refusals()})
    async def runs() -> dict[str, Any]:
        """List the runs that are served."""
        return {"runs": await desk.in_thread(lambda: list(desk.shelf.list()))}

    @router.get("/runs/{run}", responses={**answers(examples.RUN), **refusals(400, 404)})
    async def run_facts(run: str) -> dict[str, Any]:
        """Load a run, and describe what it reads and what it can do."""
        loaded = await desk.run(run)
        listed = await desk.in_thread(partial(desk.shelf.described, run))
        return {**listed, **abilities(loaded)}

    @router.get("/runs/{run}/examples", responses={**answers(examples.INPUTS), **refusals(400, 404)})
    async def run_examples(run: str) -> dict[str, Any]:
        """Return a few inputs from the run's own validation data, if it is there. A recipe may name any file as its
        data, so files are read only for runs that the command line names."""
        loaded = await desk.run(run)
        if loaded.recipe.data.names and run not in desk.shelf.given:
            return {"examples": []}
        return {"examples": await desk.in_thread(partial(examples_of, loaded))}

    @router.post("/predict", responses={**answers(examples.PREDICTED), **asking})
    async def predict(request: Request, asked: Predict) -> dict[str, Any]:
        """Answer each input: translate, continue, classify, tag, caption …"""
        async with desk.ticket(request) as ticket:
            run = await desk.run(asked.run)
            several = asked.input if isinstance(asked.input, list) else [asked.input]
            raws = await desk.in_thread(partial(raws_of, run, several, desk.limits))
            how = settings_of(run, asked.settings, desk.limits)
            found = await desk.answer(ticket, run, raws, how)
        entries = [run.task.entry(raw, answer) for raw, answer in zip(raws, found, strict=True)]
        about = {"run": asked.run, "task": run.task.name, "model": run.model_title, "precision": run.precision}
        return {**about, "predictions": entries}

    @router.post("/score", responses={**answers(examples.SCORED), **asking})
    async def score(request: Request, asked: Score) -> dict[str, Any]:
        """Return the log-probability (natural logarithm) of each text, or of each target given its source."""
        async with desk.ticket(request) as ticket:
            run = await desk.run(asked.run)
            refuse_many(asked.examples, desk.limits)
            refuse_other_form(run, asked.examples)
            await desk.in_thread(partial(refuse_long_examples, run, asked.examples, desk.limits.tokens))
            found = await desk.call(ticket, partial(log_probs, run, asked.examples))
        return {"run": asked.run, "log_probs": found}

    @router.post("/look", responses={**answers(examples.SEEN), **asking})
    async def look(request: Request, asked: Look) -> dict[str, Any]:
        """Show what a run attends to while it reads an input, or the gates and states of its recurrent layers."""
        async with desk.ticket(request) as ticket:
            run = await desk.run(asked.run)
            (raw,) = await desk.in_thread(partial(raws_of, run, [asked.input], desk.limits))
            target = asked.target
            await desk.in_thread(partial(refuse_unseen, run, raw, target))
            if target is None and isinstance(run.model, Generates) and "source" in run.fields:
                # with the others that are under way, before the engine's thread looks at it
                read = await desk.in_thread(partial(first_piece, run, raw)) if isinstance(raw, Recording) else raw
                target = (await desk.answer(ticket, run, [read], None))[0].text
            found: dict[str, Any] = await desk.call(ticket, partial(seen, run, raw, target, asked.kind))
            return found

    @router.post("/gradients", responses={**answers(examples.FLOW), **asking})
    async def gradients(request: Request, asked: Gradients) -> dict[str, Any]:
        """Measure how far back gradients reach in a run's recurrent layers, before and after training, on its own
        validation text."""
        async with desk.ticket(request) as ticket:
            run = await desk.run(asked.run)
            # a copy of the model, in another thread: it takes seconds, in which the engine has other things to do
            found = await desk.before_deadline(ticket, desk.in_thread(partial(gradient_flow, run, desk.shelf.loading)))
        return {"run": asked.run, **found}

    @router.post("/steps", responses={**answers(examples.STEPS), **asking})
    async def steps(request: Request, asked: Steps) -> dict[str, Any]:
        """Replay how a run writes its output: at each step the likeliest tokens, the choice, the attention; and the
        tree of beam search."""
        from regard.look.steps import replay

        async with desk.ticket(request) as ticket:
            run = await desk.run(asked.run)
            (raw,) = await desk.in_thread(partial(raws_of, run, [asked.input], desk.limits))
            await desk.in_thread(partial(refuse_unseen, run, raw, None))
            how = settings_of(run, asked.settings, desk.limits)
            found = await desk.call(ticket, partial(replay, run, raw, how, asked.forced))
        return {"run": asked.run, **found.facts()}

    return router


def seen(run: Run, raw: Any, target: str | None, kind: str) -> dict[str, Any]:
    """Return what /v1/look shows, in the form that the page draws."""
    if kind == "gates":
        from regard.look.gates import WORDS, averages, carried, closely

        layers = carried(run, raw, target)
        sentence = closely(layers)
        return {"words": WORDS, **sentence_facts(replace(sentence, views=(*averages(layers), *sentence.views)))}
    if run.task.look_closely is nothing:
        raise UserError(f"There is no attention to look at in {run.task.name}: ask for another run, or for gates.")
    shown = run.task.look_closely(run, raw, target)
    match shown:
        case Captioned():
            return picture_facts(shown)
        case Transcribed():
            return sound_facts(shown)
    return sentence_facts(shown)


def gradient_flow(run: Run, lock: Lock) -> dict[str, Any]:
    """Return the summary and the charts of gradient norms and gates. Nothing else may build a model meanwhile, since
    its first weights come from PyTorch's one random generator."""
    from regard.look.gradient_report import gradient_sections, summary
    from regard.look.gradients import reach

    with lock:
        found = reach(run)
    charts = [drawn(chart) for section in gradient_sections(found) for chart in section.charts]
    return {"summary": summary(found), "charts": charts}


def raws_of(run: Run, inputs: Sequence[Input], limits: Limits) -> list[Any]:
    """Return inputs as the run reads them."""
    refuse_many(inputs, limits)
    field = run.fields[next(iter(run.task.fields))]
    reads = Picture if isinstance(field, PictureField) else Recorded if isinstance(field, SoundField) else str
    raws: list[Any] = []
    for number, each in enumerate(inputs, start=1):
        if not isinstance(each, reads):
            raise UserError(f"Input {number} is not what {run.model_title} reads: give {WANTED[reads]}.")
        match each:
            case Picture():
                assert isinstance(field, PictureField)
                raws.append(decoded(content_of(each.picture, "picture"), field.size, f"Picture {number}"))
            case Recorded():
                raws.append(decoded_sound(content_of(each.recording, "recording"), f"Recording {number}"))
            case _:
                raws.append(each)
    return raws


def content_of(text: str, what: str) -> bytes:
    try:
        return base64.b64decode(text.rpartition(",")[2], validate=True)  # a data: URL has a comma before it
    except (binascii.Error, ValueError):
        raise UserError(f"The {what} is not base64: encode the file's bytes as base64.") from None


def refuse_many(inputs: Sequence[object], limits: Limits) -> None:
    if not 1 <= len(inputs) <= limits.inputs:
        raise UserError(f"A request has 1 to {limits.inputs} inputs, and this one has {len(inputs)}: send several.")


def refuse_long(run: Run, lines: Sequence[str], how: Decoding) -> None:
    """Refuse a line of which only the beginning would be read, where an answer cannot say so."""
    if "source" in run.fields and any(line.cut for line in readable(run, lines, how)):
        raise UserError(f"A line has more than {most_read(run.model, how)} tokens, the most that is read: send parts.")


def tokens_of(run: Run, side: str, text: str, most: int) -> int:
    """Count the tokens of a text; of one with too many characters for so many tokens, not all."""
    beginning = text[: most * CHARACTERS]
    found = len(run.fields[side].encode([beginning])[0])
    return found if len(beginning) == len(text) else most + 1


def refuse_more(run: Run, side: str, text: str, most: int) -> None:
    """Refuse a text with more tokens than these, before anything else that takes longer than counting them."""
    if isinstance(run.fields.get(side), TextField) and tokens_of(run, side, text, most) > most:
        raise UserError(f"{text[:40]!r} … has more than {most} tokens, the most that is read here: shorten it.")


def refuse_unseen(run: Run, raw: Any, target: str | None) -> None:
    """Refuse texts that are too long to be looked at."""
    first = next(iter(run.task.fields))
    for side, text in ((first, raw), ("target", target)):
        if isinstance(text, str):
            refuse_more(run, side, text, most_read(run.model))


def refuse_long_examples(run: Run, examples: Sequence[Example], most: int) -> None:
    for example in examples:
        texts = zip(run.task.fields, (example,) if isinstance(example, str) else example, strict=False)
        for side, text in texts:
            refuse_more(run, side, text, most)


def log_probs(run: Run, examples: Sequence[Example]) -> Generator[None, None, list[float]]:
    """Score a few examples in each step."""
    found: list[float] = []
    for some in some_at_once(examples, SCORED_TOGETHER):
        found += run.log_prob(some)
        yield
    return found


def refuse_other_form(run: Run, examples: Sequence[object]) -> None:
    pairs = "source" in run.fields and len(run.fields) > 1 and not run.task.fills
    if wrong := [each for each in examples if isinstance(each, tuple) != pairs]:
        wanted = "pairs of a source and a target" if pairs else "texts"
        raise UserError(f"{run.model_title} scores {wanted}, and {str(wrong[0])[:80]!r} is not one.")


def settings_of(run: Run, given: Any, limits: Limits) -> Decoding | None:
    """Return a run's settings of decoding with those of the request, within the server's limits."""
    asked = {name: value for name, value in given.model_dump().items() if value is not None}
    if run.task.decoding is None:
        if asked:
            raise UserError(f"{', '.join(asked)}: {run.model_title} does not write text; leave the settings out.")
        return None
    how = run.decoding(**asked)
    for name, most in (("beam", limits.beam), ("n_best", limits.beam), ("max_length", limits.tokens)):
        if (value := vars(how)[name]) > most:
            raise UserError(f"{name} = {value} is above {most}, the most that this server allows: choose less.")
    return how

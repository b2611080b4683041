"""Text in, text out: translating lines, and going on from prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.data.fields import MULTIPLE
from regard.interface import EOS, UNK, Batch, Generates, UserError
from regard.look.weights import attends, cross_attention
from regard.predict.decoding import Decoding, Prediction
from regard.predict.search import Hypothesis, generate, room
from regard.run import Run

LONGEST_TEXT = 256  # tokens that a language model writes unless told otherwise
NEAR = 16  # tokens whose text the next token's depends on, and more than that
HALF = "\ufffd"
CHARACTERS = 100  # in a token, on average and at most: what lies beyond in a line is not even looked at
NO_ANSWER = Prediction("", 0.0, ())  # to an empty line
Told = Callable[[Tensor], None]  # hears of every row's token as it is chosen


@dataclass(frozen=True)
class Line:
    """A line as it will be read."""

    number: int
    text: str = field(repr=False)
    ids: list[int] = field(repr=False)
    cut: bool


def most_read(model: object, how: Decoding | None = None) -> int:
    """Tokens of a line that are read, <eos> not included; a longer line is cut."""
    longest, most = room(model), (how or Decoding()).longest_source
    return most if longest is None else min(most, longest // MULTIPLE * MULTIPLE - 1)


def readable(run: Run, lines: Sequence[str], how: Decoding | None = None) -> list[Line]:
    """Those that hold something, the longest first, none longer than the model can read."""
    most = most_read(run.model, how)
    beginnings = [line[: most * CHARACTERS] for line in lines]
    found = []
    for number, ids in enumerate(run.tokenizer("source").encode_all(beginnings)):
        if ids and lines[number].strip():
            cut = len(ids) > most or len(lines[number]) > len(beginnings[number])
            found.append(Line(number, beginnings[number], ids[:most], cut))
    return sorted(found, key=lambda line: -len(line.ids))


def batches(lines: list[Line], how: Decoding) -> Iterator[list[Line]]:
    """Lines of like lengths, as many as go together."""
    while lines:
        count = max(1, how.batch_tokens // ((len(lines[0].ids) + 1) * how.width))
        together, lines = lines[:count], lines[count:]
        yield together


def translate(run: Run, lines: Sequence[str], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    """One Prediction per line, in order; `first_line` numbers the first one, for the sampler's noise."""
    how = how or run.task.decoding or Decoding()
    if how.replace_unknown and not attends(run.model):
        raise UserError(f"replace_unknown needs a model that attends to the source: {run.model_title} does not.")
    predictions = [NO_ANSWER] * len(lines)
    tokenizer = run.tokenizer("target")
    for together in batches(readable(run, lines, how), how):
        batch = run.fields.batch({"source": [line.ids for line in together]}).to(run.device)
        found = _generate(run, together, batch, how, first_line)
        looked_at = _looked_at(run, together, found) if how.replace_unknown else {}
        for line, hypotheses in zip(together, found, strict=True):
            texts = [
                tokenizer.decode(hypothesis.tokens, looked_at.get((line.number, rank), []))
                for rank, hypothesis in enumerate(hypotheses)
            ]
            predictions[line.number] = _prediction(run, line, hypotheses, texts)
    return predictions


def _generate(
    run: Run, lines: list[Line], batch: Batch, how: Decoding, first_line: int, told: Told | None = None
) -> list[list[Hypothesis]]:
    """The hypotheses of each line, as many as are asked for."""
    if not isinstance(run.model, Generates):
        raise UserError(f"{run.model_title} does not generate: it has no step.")
    lengths = batch.first.lengths
    usual = torch.full_like(lengths, LONGEST_TEXT) if batch.source is None else 2 * lengths + 10
    limits = torch.full_like(lengths, how.max_length) if how.max_length else usual
    numbers = torch.tensor([first_line + line.number for line in lines], device=run.device)
    found = generate(run.model, batch, how, limits=limits, lines=numbers, told=told)
    return [hypotheses[: how.n_best] for hypotheses in found]


def _prediction(run: Run, line: Line, hypotheses: Sequence[Hypothesis], texts: Iterable[str]) -> Prediction:
    """The best of an n-best list, with the others as its alternatives."""
    tokenizer = run.tokenizer("target")
    best, *others = (
        Prediction(text, hypothesis.log_prob, tuple(tokenizer.surface(hypothesis.tokens)), cut=line.cut)
        for hypothesis, text in zip(hypotheses, texts, strict=True)
    )
    return replace(best, alternatives=tuple(others))


def _looked_at(run: Run, lines: list[Line], found: list[list[Hypothesis]]) -> dict[tuple[int, int], list[str]]:
    """The source word that each <unk> looks at most, layers and heads together, by line number and rank."""
    asking = [
        (line, rank, hypothesis.tokens)
        for line, hypotheses in zip(lines, found, strict=True)
        for rank, hypothesis in enumerate(hypotheses)
        if UNK in hypothesis.tokens
    ]
    if not asking:
        return {}
    sources, targets = [line.ids for line, _, _ in asking], [tokens for _, _, tokens in asking]
    batch = run.fields.batch({"source": sources, "target": targets}).to(run.device)
    weights = cross_attention(run.model, batch).mean((1, 2)).cpu()
    words = {}
    for (line, rank, tokens), rows in zip(asking, weights, strict=True):
        pieces = run.tokenizer("source").pieces(line.text)[: len(line.ids)]
        says = torch.tensor([bool(piece.text.strip()) for piece in pieces])  # not a space, a join or <eos>
        unknown = rows[: len(tokens), : len(pieces)][torch.tensor(tokens) == UNK]  # (unknowns, source)
        words[line.number, rank] = [pieces[place].text for place in (unknown * says).argmax(-1).tolist()]
    return words


# --- going on from a prompt --------------------------------------------------------------------------------------


def go_on(
    run: Run, prompts: Sequence[str], how: Decoding | None = None, first_line: int = 0, told: Told | None = None
) -> list[Prediction]:
    """Each prompt and what comes after it. Those of one length go together, so that none sees another's padding."""
    how = how or run.task.decoding or Decoding()
    refuse_replacing(run, how)
    predictions = [NO_ANSWER] * len(prompts)
    tokenizer, most = run.tokenizer("target"), how.longest_source
    tokens = tokenizer.encode_all(prompts, continued=run.whole_file)
    by_length: dict[int, list[Line]] = {}
    for number, ids in enumerate(tokens):
        line = Line(number, prompts[number], [*run.opening, *ids[-most:]], cut=len(ids) > most)
        by_length.setdefault(len(line.ids), []).append(line)
    for waiting in by_length.values():
        for together in batches(waiting, how):
            batch = Batch.of_text(torch.tensor([line.ids for line in together], device=run.device))
            found = _generate(run, together, batch, how, first_line, told)
            for line, hypotheses in zip(together, found, strict=True):
                near = tokens[line.number][-NEAR:]
                start = len(tokenizer.decode(near))
                texts = (line.text + tokenizer.decode([*near, *one.tokens])[start:] for one in hypotheses)
                predictions[line.number] = _prediction(run, line, hypotheses, texts)
    return predictions


def refuse_replacing(run: Run, how: Decoding) -> None:
    if how.replace_unknown:
        raise UserError(f"replace_unknown needs a translator: {run.model_title} has no source to look at.")


def go_on_aloud(run: Run, prompt: str, how: Decoding, write: Callable[[str], None]) -> Prediction:
    """Go on from a prompt, handing out the text as it comes: the prompt first."""
    refuse_replacing(run, how)
    tokenizer = run.tokenizer("target")
    written = list(tokenizer.encode_all([prompt], continued=run.whole_file)[0])
    shown = len(prompt)

    def told(tokens: Tensor) -> None:
        nonlocal shown
        if int(tokens[0]) == EOS:
            return
        before = written[-NEAR:]
        written.append(int(tokens[0]))
        # half a character decodes as U+FFFD until its other half comes
        was, now = (tokenizer.decode(some).rstrip(HALF) for some in (before, [*before, written[-1]]))
        shown += len(now) - len(was)
        write(now[len(was) :])

    write(prompt)
    (prediction,) = go_on(run, [prompt], how, told=told)
    write(prediction.text[shown:])
    return prediction

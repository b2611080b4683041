"""Text in, text out: translating lines, and going on from prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, cast

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
BATCH_TOKENS = 4096  # padding included


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


def batches(lines: list[Line], *, width: int = 1, tokens: int = BATCH_TOKENS) -> Iterator[list[Line]]:
    """Lines of like lengths, as many as so many tokens hold, of `width` hypotheses each."""
    while lines:
        count = max(1, tokens // ((len(lines[0].ids) + 1) * width))
        together, lines = lines[:count], lines[count:]
        yield together


def generates(run: Run) -> Generates:
    if not isinstance(run.model, Generates):
        raise UserError(f"{run.model_title} does not generate: it has no step.")
    return run.model


def translate(
    run: Run,
    lines: Sequence[str],
    how: Decoding | None = None,
    *,
    batch_tokens: int = BATCH_TOKENS,
    first_line: int = 0,
) -> list[Prediction]:
    """One Prediction per line, in order; `first_line` numbers the first one, for the sampler's noise."""
    model = generates(run)
    how = how or run.task.decoding or Decoding()
    if how.replace_unknown and not attends(run.model):
        raise UserError(f"replace_unknown needs a model that attends to the source: {run.model_title} does not.")
    predictions = [Prediction("", 0.0, ())] * len(lines)  # empty in, empty out
    for together in batches(readable(run, lines, how), width=how.width, tokens=batch_tokens):
        batch = run.fields.batch({"source": [line.ids for line in together]}).to(run.device)
        assert batch.source is not None
        lengths = batch.source.lengths
        limits = torch.full_like(lengths, how.max_length) if how.max_length else 2 * lengths + 10
        numbers = torch.tensor([first_line + line.number for line in together], device=run.device)
        found = generate(model, batch, how, limits=limits, lines=numbers)
        kept = [hypotheses[: how.n_best] for hypotheses in found]
        looked_at = _looked_at(run, together, kept) if how.replace_unknown else {}
        for line, hypotheses in zip(together, kept, strict=True):
            best, *others = (
                _prediction(run, hypothesis, looked_at.get((line.number, rank), []), cut=line.cut)
                for rank, hypothesis in enumerate(hypotheses)
            )
            predictions[line.number] = replace(best, alternatives=tuple(others))
    return predictions


def _prediction(run: Run, hypothesis: Hypothesis, unknowns: list[str], *, cut: bool) -> Prediction:
    tokenizer, tokens = run.tokenizer("target"), hypothesis.tokens
    return Prediction(
        tokenizer.decode(tokens, unknowns), hypothesis.log_prob, tuple(tokenizer.surface(tokens)), cut=cut
    )


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
    sides: dict[str, list[Any]] = {"source": [line.ids for line, _, _ in asking]}
    sides["target"] = [tokens for _, _, tokens in asking]
    weights = cross_attention(run.model, run.fields.batch(sides).to(run.device)).mean((1, 2)).cpu()
    words = {}
    for (line, rank, tokens), rows in zip(asking, weights, strict=True):
        pieces = run.tokenizer("source").pieces(line.text)[: len(line.ids)]
        says = torch.tensor([bool(piece.text.strip()) for piece in pieces])  # not a space, a join or <eos>
        unknown = rows[: len(tokens), : len(pieces)][torch.tensor(tokens) == UNK]  # (unknowns, source)
        words[line.number, rank] = [pieces[place].text for place in (unknown * says).argmax(-1).tolist()]
    return words


# --- going on from a prompt --------------------------------------------------------------------------------------


def go_on(
    run: Run,
    prompts: Sequence[str],
    how: Decoding | None = None,
    *,
    batch_tokens: int = BATCH_TOKENS,
    first_line: int = 0,
) -> list[Prediction]:
    """Each prompt and what comes after it. Those of one length go together, so that none sees another's padding."""
    how = how or run.task.decoding or Decoding()
    refuse_replacing(run, how)
    predictions: list[Prediction | None] = [None] * len(prompts)
    tokens = run.tokenizer("target").encode_all(prompts, continued=run.whole_file)
    by_length: dict[int, list[Line]] = {}
    for number, ids in enumerate(tokens):
        line = _prompt(run, number, prompts[number], ids, how)
        by_length.setdefault(len(line.ids), []).append(line)
    for waiting in by_length.values():
        for together in batches(waiting, width=how.width, tokens=batch_tokens):
            for line, hypotheses in zip(together, _generate(run, together, how, first_line), strict=True):
                best, *others = (
                    _written(run, prompts[line.number], tokens[line.number], hypothesis, cut=line.cut)
                    for hypothesis in hypotheses[: how.n_best]
                )
                predictions[line.number] = replace(best, alternatives=tuple(others))
    return cast(list[Prediction], predictions)


def _prompt(run: Run, number: int, prompt: str, ids: Sequence[int], how: Decoding) -> Line:
    most = how.longest_source
    return Line(number, prompt, [*run.opening, *ids[-most:]], cut=len(ids) > most)


def refuse_replacing(run: Run, how: Decoding) -> None:
    if how.replace_unknown:
        raise UserError(f"replace_unknown needs a translator: {run.model_title} has no source to look at.")


def _generate(
    run: Run, lines: list[Line], how: Decoding, first_line: int, told: Callable[[Tensor], None] | None = None
) -> list[list[Hypothesis]]:
    read = torch.tensor([line.ids for line in lines], device=run.device)
    limits = torch.full((len(lines),), how.max_length or LONGEST_TEXT, device=run.device)
    numbers = torch.tensor([first_line + line.number for line in lines], device=run.device)
    return generate(generates(run), Batch.of_text(read), how, limits=limits, lines=numbers, told=told)


def _written(run: Run, prompt: str, ids: Sequence[int], hypothesis: Hypothesis, *, cut: bool) -> Prediction:
    """The prompt, and what these tokens add to the text of its own."""
    tokenizer, near = run.tokenizer("target"), list(ids[-NEAR:])
    added = tokenizer.decode([*near, *hypothesis.tokens])[len(tokenizer.decode(near)) :]
    return Prediction(prompt + added, hypothesis.log_prob, tuple(tokenizer.surface(hypothesis.tokens)), cut=cut)


def go_on_aloud(run: Run, prompt: str, how: Decoding, write: Callable[[str], None]) -> Prediction:
    """Go on from a prompt, handing out the text as it comes: the prompt first."""
    refuse_replacing(run, how)
    tokenizer = run.tokenizer("target")
    (ids,) = tokenizer.encode_all([prompt], continued=run.whole_file)
    written: list[int] = []
    shown = 0  # characters

    def told(tokens: Tensor) -> None:
        nonlocal shown
        if int(tokens[0]) == EOS:
            return
        before = [*ids, *written][-NEAR:]
        written.append(int(tokens[0]))
        # half a character decodes as U+FFFD until its other half comes
        was, now = (tokenizer.decode(some).rstrip(HALF) for some in (before, [*before, written[-1]]))
        shown += len(now) - len(was)
        write(now[len(was) :])

    write(prompt)
    line = _prompt(run, 0, prompt, ids, how)
    (hypotheses,) = _generate(run, [line], how, 0, told)
    prediction = _written(run, prompt, ids, hypotheses[0], cut=line.cut)
    write(prediction.text[len(prompt) + shown :])
    return prediction

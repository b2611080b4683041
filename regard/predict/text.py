"""Text in, text out: translation of lines, and continuation of prompts."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from regard.data.fields import MULTIPLE, TextField
from regard.interface import EOS, UNK, Batch, Generates, UserError
from regard.look.weights import attends, cross_attention
from regard.predict.decoding import Decoding, Prediction
from regard.predict.search import Choice, Hypothesis, OnChoice, Search, generate, room
from regard.predict.shortlist import Shortlisted, associations_of, shortlisted
from regard.run import Run

LONGEST_TEXT = 256  # tokens that a language model writes if max_length is 0
REFILL = 0.25  # share of a batch that has ended before others take its place: joining costs a copy of the state
NEAR = 16  # previous tokens that are decoded together with the next one, more than enough
HALF = "\ufffd"
CHARACTERS = 100  # most characters per token, on average: the rest of a line is not tokenized
NO_ANSWER = Prediction("", 0.0, ())  # for an empty line


@dataclass(frozen=True)
class Line:
    """An input line, tokenized and cut to the maximum length."""

    number: int
    text: str = field(repr=False)
    ids: list[int] = field(repr=False)
    cut: bool


def most_read(model: object, how: Decoding | None = None) -> int:
    """Return the maximum length of an input line in tokens, without <eos>; a longer line is cut."""
    longest, most = room(model), (how or Decoding()).longest_source
    return most if longest is None else min(most, longest // MULTIPLE * MULTIPLE - 1)


def readable(run: Run, lines: Sequence[str], how: Decoding | None = None) -> list[Line]:
    """Tokenize the lines that are not empty, longest first, cut to the maximum length."""
    most = most_read(run.model, how)
    source = run.fields["source"]
    assert isinstance(source, TextField)
    beginnings = [source.beginning(line, most * CHARACTERS) for line in lines]
    found = []
    for number, ids in enumerate(array.tolist() for array in source.encode(beginnings)):
        if ids and lines[number].strip():
            read = [ids[place] for place in source.kept(ids, most)]
            cut = len(read) < len(ids) or len(lines[number]) > len(beginnings[number])
            found.append(Line(number, beginnings[number], read, cut))
    return sorted(found, key=lambda line: -len(line.ids))


def batches(lines: list[Line], how: Decoding) -> Iterator[list[Line]]:
    """Yield batches of lines of similar length."""
    while lines:
        count = max(1, how.batch_tokens // ((len(lines[0].ids) + 1) * how.width))
        together, lines = lines[:count], lines[count:]
        yield together


def translate(run: Run, lines: Sequence[str], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    """Translate each line, in order; `first_line` is the number of the first one, for the sampler."""
    how = how or run.task.decoding or Decoding()
    if how.replace_unknown and not attends(run.model):
        raise UserError(f"replace_unknown needs attention to the source, which {run.model_title} lacks: leave it out.")
    read = readable(run, lines, how)
    in_turns = run.decoder is generate and not how.shortlist
    found = dict((in_turn if in_turns else in_batches)(run, read, how, first_line))
    attended: dict[tuple[int, int], list[str]] = {}
    if how.replace_unknown:
        for together in batches(read, how):
            attended |= _attended(run, together, [found[line.number] for line in together])
    predictions = [NO_ANSWER] * len(lines)
    tokenizer = run.tokenizer("target")
    for line in read:
        hypotheses = found[line.number]
        texts = [
            tokenizer.decode(hypothesis.tokens, attended.get((line.number, rank), []))
            for rank, hypothesis in enumerate(hypotheses)
        ]
        predictions[line.number] = best_of(run, line, hypotheses, texts)
    return predictions


def in_turn(run: Run, lines: list[Line], how: Decoding, first_line: int) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Translate lines, longest first, and yield the number and the n-best hypotheses of each when it has ended; the
    next ones then take its place in the batch. With several hypotheses a batch ends first: their states are large, and
    rows of different lengths cost more than the empty places."""
    search = Search(generating(run), how)
    sizes: dict[int, int] = {}  # tokens of those that are under way
    while lines or search:
        longest = max([len(line.ids) for line in lines[:1]] + list(sizes.values()))
        most = max(1, how.batch_tokens // ((longest + 1) * how.width))
        if lines and (not search or (how.width == 1 and most - len(search) >= most * REFILL)):
            together, lines = lines[: most - len(search)], lines[most - len(search) :]
            numbers = [line.number for line in together]
            sizes.update((line.number, len(line.ids)) for line in together)
            batch = run.fields.batch({"source": [line.ids for line in together]}).to(run.device)
            limits = limits_of(batch, how).tolist()
            search.add(batch, names=numbers, lines=[first_line + number for number in numbers], limits=limits)
        for number, hypotheses in search.step():
            del sizes[number]
            yield number, hypotheses[: how.n_best]


def in_batches(run: Run, lines: list[Line], how: Decoding, first_line: int) -> Iterator[tuple[int, list[Hypothesis]]]:
    """Translate lines, each batch by itself, with a shortlist of its own if there is one."""
    associations = associations_of(run) if how.shortlist else None
    for together in batches(lines, how):
        batch = run.fields.batch({"source": [line.ids for line in together]}).to(run.device)
        narrow = None if associations is None else shortlisted(run, associations, batch, how.shortlist)
        found = generated(run, together, batch, how, first_line, narrow=narrow)
        yield from zip((line.number for line in together), found, strict=True)


def generating(run: Run) -> Generates:
    if not isinstance(run.model, Generates):
        raise UserError(f"{run.model_title} does not generate text (it has no step): give a run of another model.")
    return run.model


def limits_of(batch: Batch, how: Decoding) -> Tensor:
    """Return the maximum length of each output in tokens, <eos> included: (batch,)."""
    lengths = batch.first.lengths
    usual = torch.full_like(lengths, LONGEST_TEXT) if batch.source is None else 2 * lengths + 10
    return torch.full_like(lengths, how.max_length) if how.max_length else usual


def generated(
    run: Run,
    lines: list[Line],
    batch: Batch,
    how: Decoding,
    first_line: int,
    on_choice: OnChoice | None = None,
    narrow: Shortlisted | None = None,
) -> list[list[Hypothesis]]:
    """Decode a batch and return the n-best hypotheses of each line; `narrow` is the model with a shortlist."""
    model = generating(run)
    if how.shortlist and narrow is None:
        raise UserError(f"shortlist needs a translator, and {run.model_title} is for {run.task.name}: leave it out.")
    numbers = torch.tensor([first_line + line.number for line in lines], device=run.device)
    limits = limits_of(batch, how)
    found = run.decoder(narrow or model, batch, how, limits=limits, lines=numbers, on_choice=on_choice)
    best = [hypotheses[: how.n_best] for hypotheses in found]
    return [[narrow.original(each) for each in hypotheses] for hypotheses in best] if narrow else best


def best_of(run: Run, line: Line, hypotheses: Sequence[Hypothesis], texts: Iterable[str]) -> Prediction:
    """Return the best of an n-best list, with the others as its alternatives."""
    tokenizer = run.tokenizer("target")
    best, *others = (
        Prediction(text, hypothesis.log_prob, tuple(tokenizer.surface(hypothesis.tokens)), cut=line.cut)
        for hypothesis, text in zip(hypotheses, texts, strict=True)
    )
    return replace(best, alternatives=tuple(others))


def _attended(run: Run, lines: list[Line], found: list[list[Hypothesis]]) -> dict[tuple[int, int], list[str]]:
    """Return the source word with the highest attention weight for each <unk>, averaged over layers and heads, by line
    number and rank."""
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
        is_word = torch.tensor([bool(piece.text.strip()) for piece in pieces])  # not a space, a join or <eos>
        unknown = rows[: len(tokens), : len(pieces)][torch.tensor(tokens) == UNK]  # (unknowns, source)
        words[line.number, rank] = [pieces[place].text for place in (unknown * is_word).argmax(-1).tolist()]
    return words


# --- continuing a prompt -----------------------------------------------------------------------------------------


def continue_texts(
    run: Run,
    prompts: Sequence[str],
    how: Decoding | None = None,
    first_line: int = 0,
    on_choice: OnChoice | None = None,
) -> list[Prediction]:
    """Continue each prompt; a prediction's text begins with its prompt. Prompts of equal length share a batch, so there
    is no padding."""
    how = how or run.task.decoding or Decoding()
    refuse_replacing(run, how)
    predictions = [NO_ANSWER] * len(prompts)
    tokenizer, most = run.tokenizer("target"), how.longest_source
    ends = [prompt[-most * CHARACTERS :] for prompt in prompts]
    tokens = tokenizer.encode_all(ends, continued=run.whole_file)
    by_length: dict[int, list[Line]] = {}
    for number, ids in enumerate(tokens):
        cut = len(ids) > most or len(prompts[number]) > len(ends[number])
        line = Line(number, prompts[number], [*run.opening, *ids[-most:]], cut=cut)
        by_length.setdefault(len(line.ids), []).append(line)
    for waiting in by_length.values():
        for together in batches(waiting, how):
            batch = Batch.of_text(torch.tensor([line.ids for line in together], device=run.device))
            found = generated(run, together, batch, how, first_line, on_choice)
            for line, hypotheses in zip(together, found, strict=True):
                near = tokens[line.number][-NEAR:]
                start = len(tokenizer.decode(near))
                texts = (line.text + tokenizer.decode([*near, *one.tokens])[start:] for one in hypotheses)
                predictions[line.number] = best_of(run, line, hypotheses, texts)
    return predictions


def refuse_replacing(run: Run, how: Decoding) -> None:
    if how.replace_unknown:
        raise UserError(f"replace_unknown needs a translator, and {run.model_title} has no source: leave it out.")


def stream_text(run: Run, prompt: str, how: Decoding, write: Callable[[str], None], first_line: int = 0) -> Prediction:
    """Continue a prompt and pass the text to `write` as it is generated, the prompt first."""
    refuse_replacing(run, how)
    tokenizer = run.tokenizer("target")
    written = list(tokenizer.encode_all([prompt], continued=run.whole_file)[0])
    shown = len(prompt)

    def on_choice(choice: Choice) -> None:
        nonlocal shown
        if int(choice.tokens[0]) == EOS:
            return
        before = written[-NEAR:]
        written.append(int(choice.tokens[0]))
        # half a character decodes as U+FFFD until its other half comes
        was, now = (tokenizer.decode(some).rstrip(HALF) for some in (before, [*before, written[-1]]))
        shown += len(now) - len(was)
        write(now[len(was) :])

    write(prompt)
    (prediction,) = continue_texts(run, [prompt], how, first_line, on_choice)
    write(prediction.text[shown:])
    return prediction

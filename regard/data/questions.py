"""Questions: with several answers to choose from, and with a text in which the answer stands.

choices   question <eos> answer₁ <eos> question <eos> answer₂ …: each answer is read after the question; the target is
          the number of the right one
spans     question <eos> text: the target is the first and the last token of the answer in the text

A raw source is the question and what follows it, with BETWEEN between them; a raw target is the right answer's text.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from numbers import Integral
from pathlib import Path
from typing import Annotated, Any, ClassVar

import numpy as np
import torch

from regard.config import UserError, between, counted
from regard.data.fields import MULTIPLE, Array, Derived, Fields, TextField, TextsField
from regard.data.sources import Line, TrainAndValid
from regard.data.text import BETWEEN, Report, encodable, is_jsonl, read_fields, read_json, refuse_line, whole_lines
from regard.interface import EOS, Choice, Padded, Shape, Span

FEWEST, MOST = 2, 16  # answers of a question
LETTERS = "ABCDEFGHIJKLMNOP"
CORRECT = "correct or delete it"


class ChoicesField(TextsField):
    """A question and its answers, each of them after the question."""

    def join(self, texts: Sequence[Sequence[int]]) -> Array:
        question, *choices = texts
        return super().join([text for choice in choices for text in (question, choice)])

    def kept(self, ids: Sequence[int], most: int) -> list[int]:
        """At most so many tokens of each question and its answer."""
        found: list[int] = []
        for start, end in rows_in(ids):
            found += [start + place for place in super().kept(ids[start:end], most)] + [end]
        return found[:-1]


def rows_in(ids: Sequence[int]) -> list[tuple[int, int]]:
    """Where each question and its answer start and end."""
    ends = [place for place, token in enumerate(ids) if token == EOS][1::2] + [len(ids)]
    return list(zip([0, *(end + 1 for end in ends[:-1])], ends, strict=True))


class Answered(Derived):
    """A target that depends on the source, as numbers: (batch, width)."""

    reads = ("source", "target")

    def pad(self, arrays: Sequence[Any], *, multiple: int = MULTIPLE) -> Padded:
        values = torch.from_numpy(np.array(arrays, np.int64).reshape(len(arrays), -1))
        return Padded(values, torch.ones_like(values, dtype=torch.bool))


class ChoiceField(Answered):
    """The number of the right answer, from 0."""

    kind = "choice"

    @property
    def shape(self) -> Shape:
        return Choice()

    def derive(self, fields: Fields, *raws: Sequence[str]) -> list[Array]:
        found = []
        for source, target in zip(*raws, strict=True):
            choices = source.split(BETWEEN)[1:]
            if target not in choices:
                raise UserError(f"{target[:80]!r} is not one of the answers {', '.join(choices)[:80]!r}: correct it.")
            found.append(np.array([choices.index(target)], np.int32))
        return found

    def gold(self, source: Any, right: Any) -> str:
        """The text of the right answer, also where its place is given, from 0."""
        found = right_of(int(right) if isinstance(right, Integral) else right, source[1:], 0)
        if found is None:
            of = ", ".join(map(str, source[1:]))[:80]
            raise UserError(
                f"{str(right)[:80]!r} is neither one of the answers {of!r} nor the place of one: correct it."
            )
        return found


class SpanField(Answered):
    """The places of the first and of the last token of the answer in the source."""

    kind = "span"

    @property
    def shape(self) -> Shape:
        return Span()

    def derive(self, fields: Fields, *raws: Sequence[str]) -> list[Array]:
        field, found = fields["source"], []
        assert isinstance(field, TextField)
        for source, target in zip(*raws, strict=True):
            question, text = source.split(BETWEEN, 1)
            answer = target.split(BETWEEN)[0]
            start = target.start if isinstance(target, Answer) else text.find(answer)
            if start < 0:
                raise UserError(f"The answer {answer[:80]!r} is not in its text {text[:80]!r}: correct it.")
            begin = len(question) + len(BETWEEN) + start
            end = begin + len(answer)
            pieces = list(enumerate(field.pieces(source)))
            inside = [place for place, piece in pieces if piece.start < end and begin < piece.end]
            found.append(np.array([inside[0], inside[-1]], np.int32))
        return found


class Answer(str):
    """The text of an answer, or of several right ones with BETWEEN between them, and where the first starts."""

    start: int

    def __new__(cls, text: str, start: int = 0) -> Answer:
        made = super().__new__(cls, text)
        made.start = start
        return made


# --- files -------------------------------------------------------------------------------------------------------


def entries(path: Path, fields: Sequence[str], report: Report | None) -> Iterator[tuple[int, list[Any]]]:
    """These fields of each line of JSONL, whatever they hold, or of a table."""
    if not is_jsonl(path):
        yield from read_fields(path, fields, report=report)
        return
    for number, line in whole_lines(path, report):
        try:
            entry = json.loads(line)
            values = [entry[field] for field in fields]
        except (ValueError, KeyError, TypeError, RecursionError):
            refuse_line(report, str(path), number, f"not a JSON object with {', '.join(fields)}", CORRECT)
            continue
        yield number, values


def clean(value: Any) -> str:
    """A text as it is read: a tab, which separates texts, becomes a space of the same length."""
    return encodable(value).replace("\t", " ") if isinstance(value, str) else ""


@dataclass(frozen=True, kw_only=True)
class ChoiceTable(TrainAndValid):
    """One file with a question, its answers and the right one in each line: JSONL, TSV or CSV; plain or compressed."""

    paired: ClassVar[bool] = True

    source: str  # the question's key (JSONL), column number from 1, or column name in the first line
    choices: tuple[str, ...]  # the fields of the answers; in JSONL one of them may hold a list
    target: str  # the field of the right answer: its text, its letter (A, B, …) or its number
    first: Annotated[int, between(0, 1)] = 0  # the number of the first answer, where the right one is given by number

    def read(self, path: Path, report: Report | None) -> Iterator[Line]:
        for number, (question, *cells, right) in entries(path, (self.source, *self.choices, self.target), report):
            lists = (cell if isinstance(cell, list) else [cell] for cell in cells)
            choices = [text for cell in lists for each in cell if (text := clean(each).strip())]
            answer = right_of(right, choices, self.first)
            wrong = ""
            if not clean(question).strip():
                wrong = "it has no question"
            elif not FEWEST <= len(choices) <= MOST:
                wrong = f"it has {counted(len(choices), 'answer')}, and {FEWEST} to {MOST} are possible"
            elif len(set(choices)) < len(choices):
                wrong = "two of its answers are equal"
            elif answer is None:
                wrong = f"{str(right)[:80]!r} is neither one of its answers nor the letter or number of one"
            if wrong:
                refuse_line(report, str(path), number, wrong, CORRECT)
            else:
                yield number, BETWEEN.join([clean(question).strip(), *choices]), answer


def right_of(right: Any, choices: Sequence[str], first: int) -> str | None:
    """The right answer, given by its text, its letter or its number; None where there is no such answer."""
    if isinstance(right, str):
        text = clean(right).strip()
        if text in choices:
            return text
        right = LETTERS.index(text) + first if text and text in LETTERS else int(text) if text.isdecimal() else None
    if type(right) is not int or not 0 <= right - first < len(choices):
        return None
    return choices[right - first]


@dataclass(frozen=True, kw_only=True)
class QuestionTable(TrainAndValid):
    """One file with a question, a text and the answer in it: SQuAD's JSON, JSONL, TSV or CSV; plain or compressed."""

    paired: ClassVar[bool] = True

    source: str = "question"  # the question's key (JSONL), column number from 1, or column name in the first line
    second: str = "context"  # the field of the text that holds the answer
    target: str = "answer"  # the field of the answer's text; in JSONL also a list of right answers, as SQuAD has them
    start: str = ""  # the field of the place, in characters from 0, where the answer starts; "": its first occurrence

    def read(self, path: Path, report: Report | None) -> Iterator[Line]:
        if is_squad(path):
            rows: Iterator[tuple[int, list[Any]]] = enumerate(asked_in(path), start=1)
        else:
            rows = entries(
                path, [field for field in (self.source, self.second, self.target, self.start) if field], report
            )
        for number, (question, text, right, *start) in rows:
            found = golds(right, start[0] if start else None)
            texts, starts = [clean(answer) for answer, _ in found], [place for _, place in found]
            text, wrong = clean(text), ""
            at = text.find(texts[0]) if found and starts[0] is None else starts[0] if found else -1
            if not clean(question).strip() or not text.strip():
                wrong = "it has no question, or no text"
            elif not found or not all(answer.strip() for answer in texts):
                wrong = f"the question {clean(question)[:80]!r} has no answer, and unanswerable ones are not possible"
            elif at is None or at < 0 or text[at : at + len(texts[0])] != texts[0]:
                wrong = f"the answer {texts[0][:80]!r} is not in the text" + ("" if starts[0] is None else f" at {at}")
            if wrong:
                refuse_line(report, str(path), number, wrong, CORRECT)
            else:
                yield number, BETWEEN.join([clean(question).strip(), text]), Answer(BETWEEN.join(texts), int(at or 0))


def is_squad(path: Path) -> bool:
    """Whether a file is one JSON object with articles, as SQuAD is."""
    whole = read_json(path) if ".json" in path.suffixes else None
    return isinstance(whole, dict) and isinstance(whole.get("data"), list)


def asked_in(path: Path) -> Iterator[list[Any]]:
    """The question, the text and the answers of each question of SQuAD's JSON (Rajpurkar 2016)."""
    try:
        for article in read_json(path)["data"]:
            for paragraph in article["paragraphs"]:
                for asked in paragraph["qas"]:
                    yield [asked["question"], paragraph["context"], asked.get("answers", [])]
    except (KeyError, TypeError, AttributeError):
        wrong = f"{path} is not SQuAD's JSON"
        raise UserError(f"{wrong}: data must hold articles with paragraphs, context and qas.") from None


def golds(right: Any, start: Any) -> list[tuple[Any, int | None]]:
    """The right answers and where they start, if that is known: from a text, a list of texts, SQuAD's list of objects,
    or the object of lists that Hugging Face makes of it."""
    if isinstance(right, dict) and isinstance(right.get("text"), list):
        places = right.get("answer_start") or [None] * len(right["text"])
        right = [{"text": text, "answer_start": place} for text, place in zip(right["text"], places, strict=False)]
    found: list[tuple[Any, int | None]] = []
    for each in right if isinstance(right, list) else [right]:
        place = each.get("answer_start", each.get("start")) if isinstance(each, dict) else start
        text = each.get("text") if isinstance(each, dict) else each
        known = int(place) if isinstance(place, int) or (isinstance(place, str) and place.strip().isdecimal()) else None
        found.append((text, known))
    return found

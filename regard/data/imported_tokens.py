"""Tokenizers of other programs: a pipeline of the `tokenizers` library, with the ids in the order of this package.

ours       <pad> <bos> <eos> <unk> | the mask token, other special tokens, rows without a token | all other tokens
theirs     for each of our ids the id in the folder; −1 where the folder has no such token
predicted  whether our id is the one that stands for the folder's id in a prediction

`theirs` says which row of an embedding is read for each of our ids. Two of ours may read the same row: GPT-2 begins and
ends a text with one token, and T5, which has no token for the beginning, begins with the row of its padding. Exactly
one of them is predicted, the first in the order <eos>, <pad>, <unk>, <bos>, so a prediction over the folder's ids is
one over ours.
<bos> is [CLS] or the folder's token for the beginning, or else the token that its decoder begins with; <eos> is [SEP]
or the token for the end. `start` is the one of our ids that its decoder begins with (BART: <eos>).

A text is split as the pipeline does, with its own normaliser and no other; a special token that is typed is characters.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from regard.data.pipelines import (
    HIDDEN,
    NAMED,
    Pipeline,
    library,
    plain_settings,
    running,
    without_prepended,
    write_pipeline,
)
from regard.data.text import encodable
from regard.data.tokens import (
    Foreign,
    Piece,
    Tokenizer,
    byte_of_character,
    is_texts,
    texts_of_bytes,
    without_space,
    word_of,
)
from regard.interface import BOS, EOS, PAD, SPECIALS, UNK, UserError

DECODERS = ("ByteLevel", "WordPiece", "Metaspace", "Fuse")
BYTE_LEVEL = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
STRIPPED = {"type": "Sequence", "decoders": [BYTE_LEVEL, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]}
MOST_ROWS = 1_000_000
BYTE = byte_of_character()


class Imported(Tokenizer):
    """A pipeline of the `tokenizers` library. `named`: the folder's special tokens, by what they are for; `others`:
    special tokens that are for nothing known here; `rows`: how many ids its model has; `start`: the folder's id that
    its decoder begins with; `settings`: what else its tokenizer_config.json says, which is written again."""

    writes: Foreign = "imported"

    def __init__(
        self,
        pipeline: Pipeline,
        named: Mapping[str, str],
        others: Sequence[str] = (),
        *,
        rows: int | None = None,
        start: int | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        self.settings = dict(settings or {})
        self.pipeline, self.named, self.others = pipeline, dict(named), tuple(others)
        decoder = pipeline.get("decoder")
        self.strips = decoder == STRIPPED  # the space before a text is left out
        decoder = BYTE_LEVEL if self.strips else decoder
        self.decoder_kind = decoder.get("type") if isinstance(decoder, dict) else decoder
        if self.decoder_kind not in (None, *DECODERS):
            raise UserError(f"its decoder is {self.decoder_kind!r}, and not one of {', '.join(DECODERS)}")
        self.inner = running(pipeline, {*self.named.values(), *others})
        plain = without_prepended(pipeline)
        self.after = self.inner if plain is pipeline else running(plain, {*self.named.values(), *others})
        self.decoder = self.inner.decoder
        ids = {token.removeprefix(HIDDEN): i for token, i in self.inner.get_vocab().items()}
        self._number(ids, rows, start)
        with library("split a text"):
            self.inner.encode("a ꙮ")  # something unknown, for which some pipelines have no token

    def _number(self, ids: dict[str, int], rows: int | None, start: int | None) -> None:
        """Give each id of the folder one of ours."""
        last = max(ids.values(), default=-1)
        self.rows = last + 1 if rows is None else rows
        if not 0 < self.rows <= MOST_ROWS or last >= MOST_ROWS:
            raise UserError(f"its ids end at {max(last, self.rows)}, and not between 1 and {MOST_ROWS}")
        self.start_row = start if start is not None and 0 <= start < self.rows else None
        place = {token: i for token, i in ids.items() if i < self.rows}
        named = {what: place[token] for what, token in self.named.items() if token in place}
        start = -1 if self.start_row is None else self.start_row
        begin = named.get("cls_token", named.get("bos_token", start))
        end = named.get("sep_token", named.get("eos_token", -1))
        roles = [named.get("pad_token", -1), begin, end, named.get("unk_token", -1)]
        mask = [named["mask_token"]] if named.get("mask_token", -1) not in (-1, *roles) else []
        special = {place[token] for token in (*self.named.values(), *self.others) if token in place}
        name_of = {i: token for token, i in place.items()}
        more = sorted(special - {*roles, *mask}, key=lambda i: _natural(name_of[i]))
        empty = [i for i in range(self.rows) if i not in name_of]
        silent = {*roles, *special}
        texts = [i for i in sorted(name_of) if i not in silent]
        known = {*self.named.values(), *self.others}
        if beyond := [token for token, i in ids.items() if i >= self.rows and token not in known]:
            raise UserError(f"its tokenizer has the token {beyond[0]!r}, but its model only {self.rows} ids")
        names = [name_of.get(i, f"<row {i}>") for i in (*mask, *more, *empty)]
        self.theirs = [*roles, *mask, *more, *empty, *texts]
        self.mask = len(SPECIALS) if mask else None  # our id of the mask token
        others = (f"{name} {i}" if name in SPECIALS else name for i, name in enumerate(names))
        super().__init__(self.writes, [name_of[i] for i in texts], (*SPECIALS, *others))
        taken: set[int] = {-1}
        self.predicted = [False] * self.size
        for own in (EOS, PAD, UNK, BOS, *range(len(SPECIALS), self.size)):
            self.predicted[own] = self.theirs[own] not in taken
            taken.add(self.theirs[own])
        self.ours = [UNK] * max(self.rows, last + 1)  # for each id of the pipeline, ours in a text
        for own, their in enumerate(self.theirs):
            if self.predicted[own]:
                self.ours[their] = own
        self.start = BOS if self.start_row in (None, roles[BOS]) else self.ours[self.start_row]
        if roles[UNK] >= 0:
            self.ours[roles[UNK]] = UNK

    def twins(self) -> list[list[int]]:
        """Our ids that read one row of the folder's, two or more of them together."""
        places: dict[int, list[int]] = {}
        for own, their in enumerate(self.theirs):
            places.setdefault(their, []).append(own)
        return [group for their, group in places.items() if their >= 0 and len(group) > 1]

    def encode_all(self, texts: Sequence[str], *, continued: bool = False) -> list[list[int]]:
        return self._encode_all([encodable(text) for text in texts], continued=continued)

    def _encode_all(self, texts: Sequence[str], *, continued: bool) -> list[list[int]]:
        with library("split a text"):
            inner = self.after if continued else self.inner
            encodings = inner.encode_batch_fast(texts, add_special_tokens=False)
        return [[self.ours[their] for their in encoding.ids] for encoding in encodings]

    def spans(self, text: str) -> list[tuple[int, int, int]]:
        with library("split a text"):
            encoding = self.inner.encode(text, add_special_tokens=False)
        spans = []
        for their, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            space = len(text[start:end]) - len(text[start:end].lstrip(" "))
            spans.append((self.ours[their], start + space if start + space < end else start, end))
        return spans

    def pieces(self, text: str) -> list[Piece]:
        spans = self.spans(encodable(text))
        words = word_of(encodable(text), (start for _, start, _ in spans))
        return [Piece(i, text[start:end], start, end, word) for (i, start, end), word in zip(spans, words, strict=True)]

    def chunks(self, ids: Sequence[int], unknowns: Iterator[str]) -> list[str]:
        if self.decoder_kind == "ByteLevel":
            chunks = texts_of_bytes(
                next(unknowns).encode() if token == UNK else self._bytes(token) if token >= self.offset else b""
                for token in ids
            )
            return without_space(chunks) if self.strips else chunks
        chunks, first = [], True
        for token in ids:
            if token >= self.offset:
                chunks.append(self._text(self.vocabulary[token - self.offset], first))
            else:
                chunks.append(self._text("x", first)[:-1] + next(unknowns) if token == UNK else "")
            first = first and token < self.offset and token != UNK
        return chunks

    def _text(self, token: str, first: bool) -> str:
        if self.decoder_kind is None:
            return token if first else f" {token}"
        text: str = self.decoder.decode([token] if first else ["", token])
        return text

    def _bytes(self, token: int) -> bytes:
        written = self.vocabulary[token - self.offset]
        found = [BYTE.get(character, -1) for character in written]
        return written.encode() if -1 in found else bytes(found)

    def show(self, token: int) -> str:
        if self.decoder_kind == "ByteLevel":
            text = self._bytes(token).decode("utf-8", "backslashreplace")
        else:
            text = self._text(self.vocabulary[token - self.offset], first=False)
        return text if text.isspace() or not text else text.removeprefix(" ")

    def same_ids(self, other: Tokenizer) -> bool:
        return isinstance(other, Imported) and (self.theirs, self.vocabulary) == (other.theirs, other.vocabulary)

    def continues(self, token: int) -> bool:
        if self.decoder_kind == "ByteLevel":
            return not self._bytes(token)[:1].isspace()
        return not self._text(self.vocabulary[token - self.offset], first=False).startswith(" ")

    def to_json(self) -> dict[str, Any]:
        names = {"named": self.named, "others": list(self.others), "settings": self.settings}
        return {"kind": self.kind, **names, "rows": self.rows, "start": self.start_row, "pipeline": self.pipeline}

    @classmethod
    def from_saved(cls, saved: dict[str, Any]) -> Imported:
        """Read what `to_json` wrote; whatever is invalid is refused."""
        named, rows, start = valid_names(saved)
        pipeline, others, settings = (saved.get(key) for key in ("pipeline", "others", "settings"))
        if not isinstance(pipeline, dict) or not isinstance(others, list) or not is_texts(others):
            raise UserError("its pipeline or its special tokens are not valid")
        if not isinstance(settings, dict) or settings != plain_settings(settings):
            raise UserError("its settings are not valid")
        return cls(pipeline, named, others, rows=rows, start=start, settings=settings)

    def write(self, folder: Path, target: Imported | None = None) -> None:
        """Write the files from which `transformers` reads the same tokenizer; both sides of a model have one."""
        write_pipeline(folder, self.pipeline, self.named, self.others, self.settings)


def valid_names(saved: dict[str, Any]) -> tuple[dict[str, str], int, int | None]:
    """The special tokens, the number of rows and the start that a saved tokenizer has, or a sentence."""
    named, rows, start = saved.get("named"), saved.get("rows"), saved.get("start")
    if not isinstance(named, dict) or not named.keys() <= set(NAMED) or not is_texts(list(named.values())):
        raise UserError("its named special tokens are not valid")
    if type(rows) is not int or not isinstance(start, int | None):
        raise UserError("its number of rows or its start is not a number")
    return named, rows, start


def valid_ids(ids: Any) -> dict[str, int]:
    """Refuse what is not a vocabulary: texts, each with a number."""
    if not isinstance(ids, dict) or not is_texts(list(ids)) or not {*map(type, ids.values())} <= {int}:
        raise UserError("its vocabulary does not give each token a number")
    if min(ids.values(), default=-1) < 0:
        raise UserError("its vocabulary is empty or has numbers below 0")
    return ids


def _natural(name: str) -> tuple[str, int, str]:
    """Sort key by which <extra_id_2> comes before <extra_id_10>."""
    return re.sub(r"\d+", "", name), len(name), name

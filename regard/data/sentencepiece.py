"""SentencePiece models (Kudo 2018): their files, their normaliser and how they split a text.

A file is a message of the protobuf wire format: pieces with scores and kinds, how it was trained, how it normalises.
The normaliser replaces the longest match of a table, a double-array trie over UTF-8 (Darts), squeezes white space and
writes spaces as ▁. Unigram models only: a text is split into the pieces whose scores have the largest sum. Sums are
rounded to 32 bits as in the original program, so that equal splits ("00" + "0" or "0" + "00") are decided the same.
"""

from __future__ import annotations

import struct
from array import array
from base64 import b64decode, b64encode
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from regard.data.pipelines import check_charsmaps, library
from regard.data.tokens import is_texts
from regard.interface import UserError

SPACE = "▁"
NORMAL, UNKNOWN, CONTROL, USER, UNUSED, BYTE = range(1, 7)  # kinds of pieces
UNIGRAM = 1  # kind of model
VARINT, EIGHT, BYTES, FOUR = 0, 1, 2, 5  # wire types of protobuf
LONGEST = 256  # characters of a piece, or of what is replaced
PIECE, TRAINER, NORMALISER = 1, 2, 3  # fields of a model


@dataclass(frozen=True)
class SentencePieceModel:
    """What a model file says. `prefix`: a space is put in front; `squeeze`: several spaces become one."""

    pieces: list[str]
    scores: list[float]
    kinds: list[int]
    charsmap: bytes = b""
    prefix: bool = True
    squeeze: bool = True

    def __post_init__(self) -> None:
        if not self.pieces or self.kinds.count(UNKNOWN) != 1:
            raise UserError("it does not have one unknown piece")
        if max(map(len, self.pieces)) > LONGEST:
            raise UserError(f"it has a piece of more than {LONGEST} characters")
        if self.charsmap:
            table = b64encode(self.charsmap).decode()
            with library("be read"):
                check_charsmaps({"type": "Precompiled", "precompiled_charsmap": table})

    @property
    def unknown(self) -> int:
        return self.kinds.index(UNKNOWN)

    @classmethod
    def parse(cls, content: bytes) -> SentencePieceModel:
        """Read the bytes of a file."""
        try:
            return cls._parse(content)
        except (ValueError, IndexError, TypeError, struct.error):
            raise UserError("it is not a sentencepiece model") from None

    @classmethod
    def _parse(cls, content: bytes) -> SentencePieceModel:
        pieces, scores, kinds = [], [], []
        trainer: dict[int, Any] = {}
        normaliser: dict[int, Any] = {}
        for field, value in _fields(content):
            if field == PIECE:
                each = dict(_fields(value))
                pieces.append(each[1].decode() if 1 in each else "")
                scores.append(struct.unpack("<f", each[2])[0] if 2 in each else 0.0)
                kinds.append(each.get(3, NORMAL))
            elif field == TRAINER:
                trainer = dict(_fields(value))
            elif field == NORMALISER:
                normaliser = dict(_fields(value))
        if trainer.get(3, UNIGRAM) != UNIGRAM:
            raise UserError("it is a sentencepiece model of another kind than unigram, which cannot be run")
        if trainer.get(35, 0) or BYTE in kinds:
            raise UserError("it is a sentencepiece model with bytes as pieces, which cannot be run")
        if trainer.get(24, 0) or not normaliser.get(5, 1):
            raise UserError("it is a sentencepiece model that does not write a space before a word as ▁")
        prefix, squeeze = bool(normaliser.get(3, 1)), bool(normaliser.get(4, 1))
        return cls(pieces, scores, kinds, normaliser.get(2, b""), prefix, squeeze)

    def serialise(self) -> bytes:
        """The bytes of a file."""
        parts = [
            _field(PIECE, _field(1, piece.encode()) + _field(2, struct.pack("<f", score), FOUR) + _field(3, kind))
            for piece, score, kind in zip(self.pieces, self.scores, self.kinds, strict=True)
        ]
        trainer = _field(3, UNIGRAM) + _field(40, self.unknown)
        for number, name in ((41, "<s>"), (42, "</s>"), (43, "<pad>")):
            trainer += _field(number, self.pieces.index(name) if name in self.pieces else -1)
        table = _field(2, self.charsmap) if self.charsmap else b""
        normaliser = table + _field(3, int(self.prefix)) + _field(4, int(self.squeeze)) + _field(5, 1)
        return b"".join(parts) + _field(TRAINER, trainer) + _field(NORMALISER, normaliser)

    def to_json(self) -> dict[str, Any]:
        saved = {name: self.__dict__[name] for name in self.__dataclass_fields__}
        return saved | {"charsmap": b64encode(self.charsmap).decode()}

    @classmethod
    def from_json(cls, saved: Any) -> SentencePieceModel:
        wrong = UserError("its sentencepiece model is not valid")
        if not isinstance(saved, dict) or saved.keys() != cls.__dataclass_fields__.keys():
            raise wrong
        pieces, scores, kinds = saved["pieces"], saved["scores"], saved["kinds"]
        if not is_texts(pieces) or not isinstance(scores, list) or not isinstance(kinds, list):
            raise wrong
        if not len(pieces) == len(scores) == len(kinds) or not {*map(type, scores)} <= {float}:
            raise wrong
        if not {*map(type, kinds)} <= {int} or not {*kinds} <= {*range(NORMAL, BYTE)}:
            raise wrong
        if not isinstance(saved["charsmap"], str) or {type(saved["prefix"]), type(saved["squeeze"])} != {bool}:
            raise wrong
        with library("be read"):
            return cls(**saved | {"charsmap": b64decode(saved["charsmap"], validate=True)})

    def normalise(self, text: str) -> tuple[str, list[tuple[int, int]]]:
        """The text that is split, and for each of its characters where it comes from in `text`."""
        written: list[str] = []
        origins: list[tuple[int, int]] = []
        spaced = self.squeeze
        for start, end, made in self._replaced(text):
            made = made.lstrip(" ") if spaced else made
            if not made:
                continue
            if not written and self.prefix:
                written, origins = [SPACE], [(start, start)]
            written += made
            origins += [(start, end)] * len(made)
            spaced = self.squeeze and made.endswith(" ")
        whole = "".join(written).replace(" ", SPACE)
        if not whole and text and self.prefix and not self.squeeze:
            whole, origins = SPACE, [(0, 0)]
        whole = whole.rstrip(SPACE) if self.squeeze else whole
        return whole, origins[: len(whole)]

    def _replaced(self, text: str) -> Iterator[tuple[int, int, str]]:
        """Stretches of the text, each with what it is replaced by."""
        units, strings, symbols = self._table
        here, count = 0, len(text)
        encoded = [character.encode() for character in text]
        while here < count:
            if symbol := next((symbol for symbol in symbols if text.startswith(symbol, here)), ""):
                yield here, here + len(symbol), symbol
                here += len(symbol)
                continue
            end, found, at = here + 1, -1, here
            node = _offset(units[0]) if units else -1
            while node >= 0 and at < count:
                for byte in encoded[at]:
                    node ^= byte
                    unit = units[node] if node < len(units) else -1
                    if unit < 0 or unit & 0x800000FF != byte:
                        node = -1
                        break
                    node ^= _offset(unit)
                at += 1
                if node >= 0 and unit >> 8 & 1 and node < len(units):  # a replacement ends here
                    end, found = at, units[node] & 0x7FFFFFFF
            if found < 0:
                yield here, end, text[here]
            else:
                yield here, end, strings[found : strings.find(b"\0", found)].decode(errors="replace")
            here = end

    @cached_property
    def _table(self) -> tuple[Sequence[int], bytes, list[str]]:
        """The trie, the replacements, and the symbols that are not replaced, the longest first."""
        size = int.from_bytes(self.charsmap[:4], "little")
        symbols = {piece for piece, kind in zip(self.pieces, self.kinds, strict=True) if kind == USER and piece}
        units = memoryview(self.charsmap[4 : 4 + size]).cast("I")
        return units, self.charsmap[4 + size :], sorted(symbols, key=len, reverse=True)

    @cached_property
    def _known(self) -> tuple[dict[str, float], float, int]:
        """The score of each piece that text may have, that of an unknown character, and the longest length."""
        normal = [score for score, kind in zip(self.scores, self.kinds, strict=True) if kind == NORMAL]
        least, most = min(normal, default=0.0), max(normal, default=0.0)
        known = {
            piece: score if kind == NORMAL else len(piece.encode()) * most - 0.1
            for piece, score, kind in zip(self.pieces, self.scores, self.kinds, strict=True)
            if kind in (NORMAL, USER) and piece
        }
        return known, array("f", [least - 10])[0], max(map(len, known), default=0)

    def split(self, normalised: str) -> list[tuple[int, int]]:
        """Where the pieces of a normalised text start and end; neighbours that are unknown are one."""
        known, unknown, longest = self._known
        count = len(normalised)
        ahead, best, starts = array("f", [0]), array("f", bytes(4 * (count + 1))), [-1] * (count + 1)
        for start in range(count):
            here = best[start]
            for end in range(start + 1, min(start + longest, count) + 1):
                score = known.get(normalised[start:end])
                if score is not None:
                    ahead[0] = score + here
                    if starts[end] < 0 or ahead[0] > best[end]:
                        best[end], starts[end] = ahead[0], start
            if normalised[start] not in known:
                ahead[0] = unknown + here
                if starts[start + 1] < 0 or ahead[0] > best[start + 1]:
                    best[start + 1], starts[start + 1] = ahead[0], start
        spans: list[tuple[int, int]] = []
        end = count
        while end > 0:
            start = starts[end]
            strange = normalised[start:end] not in known
            if strange and spans and normalised[slice(*spans[-1])] not in known:
                spans[-1] = (start, spans[-1][1])
            else:
                spans.append((start, end))
            end = start
        return spans[::-1]


def _offset(unit: int) -> int:
    return unit >> 10 << ((unit & 1 << 9) >> 6)


def _varint(content: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = content[at]
        value, shift, at = value | (byte & 0x7F) << shift, shift + 7, at + 1
        if byte < 0x80:
            return value, at
        if shift > 63:
            raise ValueError("a number is too long")


def _fields(content: bytes) -> Iterator[tuple[int, Any]]:
    """The fields of a message: their numbers and their values, a number or bytes."""
    at = 0
    while at < len(content):
        key, at = _varint(content, at)
        wire = key & 7
        value: int | bytes
        if wire == VARINT:
            value, at = _varint(content, at)
        else:
            size, at = _varint(content, at) if wire == BYTES else ({EIGHT: 8, FOUR: 4}[wire], at)
            value, at = content[at : at + size], at + size
        if at > len(content):
            raise ValueError("a field is cut off")
        yield key >> 3, value


def _number(value: int) -> bytes:
    value &= (1 << 64) - 1
    parts = []
    while value > 0x7F:
        parts.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*parts, value])


def _field(number: int, value: int | bytes, wire: int = BYTES) -> bytes:
    if isinstance(value, int):
        return _number(number << 3 | VARINT) + _number(value)
    return _number(number << 3 | wire) + (_number(len(value)) if wire == BYTES else b"") + value

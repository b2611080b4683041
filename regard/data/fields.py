"""Fields: one side of an example, from its raw value to an array and to a padded batch.

text       ids of tokens, <eos> at the end, <bos> in front where a model is to write it; also several texts
label      one of a few names for the whole example          tags   one for each word
number     one number for the whole example                  span   where an answer begins and ends in the source
choice     which of the answers in the source is right       Each kind of field is a class here or beside its task.
spelling   the bytes of each word                            firsts the first piece of each word

A run keeps its fields in one file, fields.json. Its users rely on it, so anything invalid is refused when it is read.
"""

from __future__ import annotations

import json
import math
import re
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from numpy.typing import NDArray

from regard.checkpoint import FORMAT
from regard.config import choose
from regard.data.files import read_own, reason
from regard.data.imported_tokens import Imported
from regard.data.marian_tokens import Marian
from regard.data.text import BETWEEN
from regard.data.tokens import PairTokens, Piece, Tokenizer, is_texts, normal
from regard.interface import (
    BOS,
    EOS,
    PAD,
    SPECIALS,
    Batch,
    Ids,
    Label,
    Padded,
    Scalar,
    Shape,
    Shapes,
    TagIds,
    UserError,
)

Array = NDArray[Any]
MULTIPLE = 2  # padded lengths are rounded up to it, so that few shapes occur
MOST = 256 << 20  # bytes of fields.json: some twenty million words
FOREIGN: dict[str, type[Imported]] = {"imported": Imported, "marian": Marian}  # tokenizers of other programs
SPELT = 16  # most bytes of a word; a longer one keeps its first and its last


class Field(ABC):
    """One side of an example."""

    kind: ClassVar[str]
    width: int = 1  # numbers per position
    dtype: ClassVar[Any] = np.int32  # of the values on disk

    @property
    @abstractmethod
    def shape(self) -> Shape | None:
        """What a model is built from; None: it is computed from the source, and read beside it."""

    @abstractmethod
    def encode(self, raws: Sequence[Any], *, continued: bool = False) -> list[Array]:
        """One array per value; `continued`: each text continues after a line end."""

    @abstractmethod
    def pad(self, arrays: Sequence[Any], *, multiple: int = MULTIPLE) -> Padded: ...

    def is_one(self, raw: Any) -> bool:
        """Whether this is a single value, and not several."""
        return isinstance(raw, str)

    def up_to(self, array: Array, tokens: int) -> Array:
        """What belongs to the first tokens of the source, for a field that is read beside it."""
        return array[: tokens * self.width]

    def gold(self, source: Any, right: Any) -> Any:
        """A right answer, as a program gives it beside its source, as a file would have it."""
        return right

    @classmethod
    def train(cls, raws: Iterable[Any]) -> Field:
        return cls()

    def to_json(self) -> dict[str, Any]:
        return {}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> Field:
        return cls()


class Derived(Field):
    """A field that is computed from several sides, or by means of another field."""

    reads: ClassVar[tuple[str, ...]]  # the sides that it is computed from

    @abstractmethod
    def derive(self, fields: Fields, *raws: Sequence[Any]) -> list[Array]:
        """One array per example, from the raw values of the sides that it reads."""

    def encode(self, raws: Sequence[Any], *, continued: bool = False) -> list[Array]:
        raise NotImplementedError(f"{self.kind} is computed from {' and '.join(self.reads)}")


def rounded(lengths: Any, multiple: int = MULTIPLE) -> Any:
    """Lengths with <eos>, rounded up."""
    return (lengths + multiple) // multiple * multiple


def padded(arrays: Sequence[Any], *, multiple: int, width: int = 1) -> Padded:
    """Positions of `width` numbers each, padded with 0 to the length of a text of as many tokens and <eos>."""
    lengths = [len(array) // width for array in arrays]
    time = int(rounded(max(lengths, default=0), multiple))
    values = np.zeros((len(arrays), time, width), np.int64)
    mask = np.zeros((len(arrays), time), np.bool_)
    for row, real, array, length in zip(values, mask, arrays, lengths, strict=True):
        row[:length] = np.asarray(array).reshape(length, width)
        real[:length] = True
    tensor = torch.from_numpy(values)
    return Padded(tensor[..., 0] if width == 1 else tensor, torch.from_numpy(mask))


class TextField(Field):
    """A text as tokens. `begins`: <bos> stands before it, so that a decoder can read all but the last column and
    predict all but the first. `parts`: it may be several texts, which are encoded apart, with <eos> between them."""

    kind = "text"

    def __init__(self, tokenizer: Tokenizer, *, begins: bool, parts: bool = False) -> None:
        self.tokenizer = tokenizer
        self.begins = begins
        self.parts = parts

    @property
    def shape(self) -> Ids:
        return Ids(self.tokenizer.size)

    def encode(self, raws: Sequence[str], *, continued: bool = False) -> list[Array]:
        if not self.parts or not any(BETWEEN in raw for raw in raws):
            return list(self.tokenizer.arrays(raws, continued=continued))
        several = [raw.split(BETWEEN) for raw in raws]
        each = iter(self.tokenizer.encode_all([text for texts in several for text in texts], continued=continued))
        return [self.join([next(each) for _ in texts]) for texts in several]

    def join(self, texts: Sequence[Sequence[int]]) -> Array:
        """The ids of several texts in one array."""
        return np.array([token for text in texts for token in (EOS, *text)][1:], np.int32)

    def kept(self, ids: Sequence[int], most: int) -> list[int]:
        """The places of at most so many tokens; of several texts the longest is cut first, so that none is lost."""
        if len(ids) <= most or not self.parts:
            return list(range(min(most, len(ids))))
        ends = [place for place, token in enumerate(ids) if token == EOS] + [len(ids)]
        starts = [0, *(end + 1 for end in ends[:-1])]
        level = water_level([end - start for start, end in zip(starts, ends, strict=True)], most - len(ends) + 1)
        texts = ((*range(start, min(end, start + level)), end) for start, end in zip(starts, ends, strict=True))
        return [place for text in texts for place in text][:-1]

    def pieces(self, raw: str) -> list[Piece]:
        """The tokens of `encode`, each with its position in `raw`; between two texts there is <eos>."""
        found: list[Piece] = []
        at = 0
        for text in raw.split(BETWEEN) if self.parts else [raw]:
            words = found[-1].word + 1 if found else 0
            if at:
                found.append(Piece(EOS, SPECIALS[EOS], at - len(BETWEEN), at, words))
                words += 1
            for piece in self.tokenizer.pieces(text):
                found.append(Piece(piece.id, piece.text, piece.start + at, piece.end + at, piece.word + words))
            at += len(text) + len(BETWEEN)
        return found

    def restored(self, raw: str) -> str:
        """The text as it is decoded from its tokens, for display."""
        each = self.tokenizer.encode_all(raw.split(BETWEEN) if self.parts else [raw])
        return BETWEEN.join(map(self.tokenizer.decode, each))

    def beginning(self, raw: str, characters: int) -> str:
        """At most so many characters of each text."""
        return BETWEEN.join(part[:characters] for part in raw.split(BETWEEN)) if self.parts else raw[:characters]

    def pad(self, arrays: Sequence[Any], *, multiple: int = MULTIPLE) -> Padded:
        """Without <bos> the length is a multiple of `multiple`."""
        front = int(self.begins)
        time = int(rounded(max(map(len, arrays), default=0), multiple))
        rows = np.full((len(arrays), front + time), PAD, np.int64)
        rows[:, :front] = BOS
        for row, array in zip(rows, arrays, strict=True):
            end = front + len(array)
            row[front:end] = array
            row[end] = EOS
        return Padded.of_ids(torch.from_numpy(rows))

    def to_json(self) -> dict[str, Any]:
        parts = {"parts": True} if self.parts else {}
        return {"begins": self.begins, **parts, "tokenizer": self.tokenizer.to_json()}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> TextField:
        tokenizer: Any = saved.get("tokenizer")
        imported = FOREIGN.get(str(tokenizer.get("kind"))) if isinstance(tokenizer, dict) else None
        read = Tokenizer.from_json if imported is None else imported.from_saved
        return cls(read(tokenizer), begins=saved["begins"], parts=saved.get("parts") is True)


class TextsField(TextField):
    """One text, or several with <eos> between them; a run that was saved without the flag reads them as one."""

    def __init__(self, tokenizer: Tokenizer, *, begins: bool = False, parts: bool = True) -> None:
        super().__init__(tokenizer, begins=begins, parts=parts)


def water_level(lengths: Sequence[int], room: int) -> int:
    """The most that each may keep, so that all together have at most `room`."""
    room = max(0, room)
    for place, length in enumerate(sorted(lengths)):
        if length * (len(lengths) - place) > room:
            return room // (len(lengths) - place)
        room -= length
    return max(lengths, default=0)


class LabelField(Field):
    """One of a few names, numbered by frequency, the most frequent first."""

    kind = "label"
    made_of: ClassVar[type[Label | TagIds]] = Label

    def __init__(self, names: Sequence[str]) -> None:
        self.names = list(names)
        self.numbers = {name: number for number, name in enumerate(self.names)}

    @classmethod
    def train(cls, raws: Iterable[str]) -> LabelField:
        counts = Counter(name for raw in raws for name in cls.cut(raw))
        return cls(sorted(counts, key=lambda name: (-counts[name], name)))

    @staticmethod
    def cut(raw: str) -> list[str]:
        return [raw] if raw else []

    @property
    def shape(self) -> Label | TagIds:
        return self.made_of(len(self.names))

    def encode(self, raws: Sequence[str], *, continued: bool = False) -> list[Array]:
        for raw in raws:
            if not self.numbers.keys() >= set(self.cut(raw)):
                wrong = "holds a label that the training data does not have"
                raise UserError(f"{raw[:80]!r} {wrong}: correct or remove it.")
        return [np.array([self.numbers[name] for name in self.cut(raw)], np.int32) for raw in raws]

    def pad(self, arrays: Sequence[Any], *, multiple: int = MULTIPLE) -> Padded:
        values = torch.from_numpy(np.array([array[:1] for array in arrays], np.int64).reshape(-1, 1))
        return Padded(values, torch.ones_like(values, dtype=torch.bool))  # (batch, 1)

    def to_json(self) -> dict[str, Any]:
        return {"names": self.names}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> LabelField:
        names: Any = saved.get("names")
        if not is_texts(names) or len(set(names)) < len(names):
            raise UserError("its labels are not a list of different texts")
        return cls(names)


class NumberField(Field):
    """One number, standardised by the mean and the spread of the training numbers: (x − mean) / spread."""

    kind = "number"
    dtype = np.float32
    shape = Scalar()

    def __init__(self, mean: float = 0.0, spread: float = 1.0) -> None:
        self.mean, self.spread = mean, spread

    @classmethod
    def train(cls, raws: Iterable[str]) -> NumberField:
        numbers = np.array([number_in(raw) for raw in raws] or [0.0])
        return cls(float(numbers.mean()), float(numbers.std()) or 1.0)

    def encode(self, raws: Sequence[str], *, continued: bool = False) -> list[Array]:
        return [np.array([(number_in(raw) - self.mean) / self.spread], np.float32) for raw in raws]

    def pad(self, arrays: Sequence[Any], *, multiple: int = MULTIPLE) -> Padded:
        values = torch.from_numpy(np.array(arrays, np.float32).reshape(-1, 1))
        return Padded(values, torch.ones_like(values, dtype=torch.bool))  # (batch, 1)

    def gold(self, source: Any, right: Any) -> str:
        number_in(str(right))
        return str(right)

    def text(self, standardised: float) -> str:
        """A model's answer in the unit of the data."""
        return f"{self.mean + self.spread * standardised:.6g}"

    def to_json(self) -> dict[str, Any]:
        return {"mean": self.mean, "spread": self.spread}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> NumberField:
        both: list[Any] = [saved.get("mean"), saved.get("spread")]
        if not all(type(each) in (int, float) and math.isfinite(each) for each in both) or both[1] <= 0:
            raise UserError("its mean and spread are not two numbers, the spread above 0")
        return cls(*map(float, both))


def is_number(raw: str) -> bool:
    try:
        return "_" not in raw and math.isfinite(float(raw))
    except ValueError:
        return False


def number_in(raw: str) -> float:
    """The number that a text is."""
    if not is_number(raw):
        raise UserError(f"{raw[:80]!r} is not a number: write one such as 3.5, or remove the line.")
    return float(raw)


class TagField(LabelField):
    """A tag for each word, with spaces between them."""

    kind = "tags"
    made_of = TagIds

    @staticmethod
    def cut(raw: str) -> list[str]:
        return raw.split()

    def pad(self, arrays: Sequence[Any], *, multiple: int = MULTIPLE) -> Padded:
        return padded(arrays, multiple=multiple)


class SpellingField(Field):
    """The bytes of each word: 1 + each byte, then 0."""

    kind = "spelling"
    width = SPELT
    shape = None

    def encode(self, raws: Sequence[str], *, continued: bool = False) -> list[Array]:
        words = ([letter for word in raw.split(" ") if word for letter in spelt(word)] for raw in raws)
        return [np.array(letters, np.int32) for letters in words]

    def pad(self, arrays: Sequence[Any], *, multiple: int = MULTIPLE) -> Padded:
        return padded(arrays, multiple=multiple, width=SPELT)


class FirstsField(Derived):
    """Where words are split into pieces: 1 + the place of the first piece of each word."""

    kind = "firsts"
    reads = ("source",)
    shape = None

    def derive(self, fields: Fields, *raws: Sequence[str]) -> list[Array]:
        tokenizer, found = fields.tokenizer("source"), []
        for text in map(normal, raws[0]):
            ends = [end for _, _, end in tokenizer.spans(text)]
            starts = (word.start() for word in re.finditer("[^ ]+", text))
            places = [min(bisect_right(ends, start) + 1, len(ends)) for start in starts]
            found.append(np.array(places, np.int32))
        return found

    def pad(self, arrays: Sequence[Any], *, multiple: int = MULTIPLE) -> Padded:
        return padded(arrays, multiple=multiple)

    def up_to(self, array: Array, tokens: int) -> Array:
        return array[array <= tokens]


def spelt(word: str) -> list[int]:
    letters = word.encode("utf-8", "surrogatepass")
    if len(letters) > SPELT:
        letters = letters[: SPELT // 2] + letters[-(SPELT // 2) :]
    return [1 + byte for byte in letters] + [0] * (SPELT - len(letters))


class Fields(dict[str, Field]):
    """The fields of a run, by the name of their side: source and target, and what is read beside them. Where tagged
    words are split into pieces, `firsts` is one of them; it follows from the others and is not saved."""

    def __init__(self, sides: Mapping[str, Field]) -> None:
        super().__init__(sides)
        source, tagged = self.get("source"), isinstance(self.get("target"), TagField)
        if tagged and isinstance(source, TextField) and source.tokenizer.kind != "given":
            self["firsts"] = FirstsField()

    @classmethod
    def learn(
        cls,
        kinds: Mapping[str, type[Field]],
        examples: Callable[[], Iterable[Sequence[Any]]],
        tokens: Any,
        specials: Sequence[str] = (),
        sample: Callable[[], Iterable[Sequence[Any]]] | None = None,
    ) -> Fields:
        """Fields of these kinds, by side; `examples` is called once for each pass over the data, `sample` for each over
        the examples that vocabularies are learnt from, by default all. Texts share one vocabulary unless `tokens` says
        otherwise. What a model writes, the target, begins with <bos>."""
        texts = tuple(place for place, kind in enumerate(kinds.values()) if issubclass(kind, TextField))
        apart = isinstance(tokens, PairTokens) and not tokens.joint

        @cache
        def tokenizer(places: tuple[int, ...]) -> Tokenizer:
            lines = (example[place] for example in (sample or examples)() for place in places)
            if any(issubclass(kind, TextsField) for kind in kinds.values()):
                lines = (text for line in lines for text in line.split(BETWEEN))
            limits = {"size": tokens.size or None, "at_least": tokens.at_least}
            return Tokenizer.train(tokens.kind, lines, **limits, specials=(*SPECIALS, *specials))

        sides: dict[str, Field] = {}
        for place, (side, kind) in enumerate(kinds.items()):
            if issubclass(kind, TextField):
                sides[side] = kind(tokenizer((place,) if apart else texts), begins=side == "target")
            else:
                sides[side] = kind.train(example[place] for example in examples())
        return cls(sides)

    @property
    def joint(self) -> bool:
        """Whether source and target share one vocabulary."""
        both = [field.tokenizer for field in self.values() if isinstance(field, TextField)]
        return len(both) > 1 and both[0].same_ids(both[1])

    @property
    def shapes(self) -> Shapes:
        source, target = (self[side].shape if side in self else None for side in ("source", "target"))
        if target is None:  # what is hidden of the source is the target
            assert source is not None
            return Shapes(source, source, joint=True)
        return Shapes(source, target, self.joint)

    def tokenizer(self, side: str = "") -> Tokenizer:
        """The tokenizer of a side; by default that of what the model reads."""
        field = self.get(side or next(iter(self)))
        if not isinstance(field, TextField):
            raise UserError("This model does not read text: it has no tokens.")
        return field.tokenizer

    def names(self) -> list[str]:
        """The labels or tags that a model can predict."""
        field = self.get("target")
        return field.names if isinstance(field, LabelField) else []

    def encode(self, raws: Mapping[str, Sequence[Any]], *, continued: bool = False) -> dict[str, list[Array]]:
        """Encode raw sides, by name; what is read beside the source is computed from it."""
        for side in raws:
            choose(self, side, "The side")
        found = {}
        for side, field in self.items():
            of = field.reads if isinstance(field, Derived) else ("source" if field.shape is None else side,)
            if not raws.keys() >= set(of):
                continue
            if isinstance(field, Derived):
                found[side] = field.derive(self, *(raws[each] for each in of))
            else:
                found[side] = field.encode(raws[of[0]], continued=continued)
        return found

    def batch(self, arrays: Mapping[str, Sequence[Any]], *, multiple: int = MULTIPLE) -> Batch:
        """Encoded sides, as many as there are, as one Batch."""
        sides = {side: self[side].pad(some, multiple=multiple) for side, some in arrays.items()}
        beside = {side: both.values for side, both in sides.items() if self[side].shape is None}
        return Batch(sides.get("source"), sides.get("target"), beside)

    def to_json(self) -> str:
        saved: dict[str, Any] = {}
        for side, field in self.items():
            if isinstance(field, FirstsField):
                continue
            saved[side] = {"kind": field.kind, **field.to_json()}
        if self.joint and self.tokenizer("source") is self.tokenizer("target"):
            saved["target"]["tokenizer"] = "source"
        return json.dumps({"format": FORMAT, "sides": saved}, ensure_ascii=False)

    @classmethod
    def from_json(cls, text: str | bytes, kinds: Mapping[str, type[Field]]) -> Fields:
        """`kinds`: the fields that the run's task has, by side."""
        try:
            saved = json.loads(text)
            if not isinstance(saved, dict) or not isinstance(sides := saved.get("sides"), dict):
                raise ValueError("it lists no sides")
            if sides.keys() != kinds.keys():
                raise ValueError(f"its sides are {', '.join(sides)}, not {', '.join(kinds)}")
            made: dict[str, Field] = {}
            for side, kind in kinds.items():
                each = sides[side]
                if not isinstance(each, dict) or each.get("kind") != kind.kind:
                    raise ValueError(f"its {side} is not of the kind {kind.kind}")
                if issubclass(kind, TextField) and each.get("begins") is not (side == "target"):
                    raise ValueError(f"begins is not {str(side == 'target').lower()} for its {side}")
                if each.get("tokenizer") == "source" and isinstance(both := made.get("source"), TextField):
                    made[side] = TextField(both.tokenizer, begins=each["begins"])
                else:
                    made[side] = kind.from_json(each)
            return cls(made)
        except (ValueError, OverflowError, RecursionError, UserError) as problem:
            raise UserError(f"fields.json is damaged ({problem}): restore it or train again.") from None

    @classmethod
    def read(cls, path: Path, kinds: Mapping[str, type[Field]]) -> Fields:
        """Read the fields in a file."""
        try:
            return cls.from_json(read_own(path, most=MOST), kinds)
        except FileNotFoundError:
            raise UserError(f"{path} is missing: restore it, or train again in another folder.") from None
        except OSError as problem:
            raise UserError(f"{path} cannot be read ({reason(problem)}): put the run's own file there.") from None
        except UserError as problem:
            raise UserError(f"In {path.parent}: {problem}") from None

"""One Tokenizer for words, characters and byte-pair encoding; decode(encode(x)) = NFC(x).

Special tokens stand in front of the vocabulary, the same four first in every tokenizer, and are never looked for in
text: a typed "<eos>" is five characters. A tokenizer's file lists its own, so that one may have more (<mask>, <cls>)
without moving the ids of others.

A word is a run of letters, marks and digits ("3.5" included). An apostrophe stays with the letters before it
("l'") and keeps one or two letters after it ("don't", "they'll", a standing "'s"); a longer rest is a word of
its own, so "l'homme" is l' + homme. Any other sign is punctuation; a run of one sign ("...", "--") is a word.

words        One space between two words is implied. Any other white space is written out, one token per character,
             and two words that touch have the empty token "" between them. So "They are watching ." is
             They|are|watching|. and "watching." is watching||. and a word is one type wherever it stands.
             Spacing that the training text never had is left out: it means nothing to the model.
characters   One token per character.
given        Words as they are given, between single spaces: one token each, whatever it contains.
bpe          Bytes, merged inside words only (Sennrich 2016, §3.2, over the bytes of UTF-8). A text is read
             with a space put before it, so that a word is one type at the start of a line and within it.
"""

from __future__ import annotations

import codecs
import json
import re
import unicodedata
from abc import ABC, abstractmethod
from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, chain, pairwise, repeat
from typing import Annotated, Any, Literal, NamedTuple, cast

import numpy as np
import tokenizers
from numpy.typing import NDArray
from tokenizers import pre_tokenizers
from tokenizers.models import BPE
from tokenizers.trainers import BpeTrainer

from regard.config import Count, Positive, Settings, between, choose
from regard.data.text import encodable
from regard.interface import SPECIALS, UNK, UserError

Kind = Literal["words", "characters", "bpe", "given"]  # what text may be split into
Foreign = Literal["imported", "marian"]  # tokenizers of other programs, which are not trained here
Span = tuple[str, tuple[int, int]]  # a stretch of text and where it starts and ends

BYTES = 256

LETTER = r"\p{L}\p{M}\p{N}_"
WORD = (
    rf"(?:\p{{N}}+[.,](?=\p{{N}}))*[{LETTER}]+(?:['’](?:[{LETTER}]{{1,2}}(?![{LETTER}]))?)?"
    rf"|['’][{LETTER}]{{1,2}}(?![{LETTER}])"
    rf"|([^\s{LETTER}])\1*\p{{M}}*"
)
SPLIT = pre_tokenizers.Split(tokenizers.Regex(rf"{WORD}|\s"), "isolated")
SPLIT_WITH_SPACE = pre_tokenizers.Split(tokenizers.Regex(rf" ?(?:{WORD})|\s+(?!\S)|\s+"), "isolated")

# Python sorts n marks on one letter in n² steps, so a text is normalised block by block. A block ends where the next
# begins with an ASCII character, which never joins what is before it, or, in text without any, somewhere.
BLOCK = re.compile(r"(?s:.{1,1024})[^\x00-\x7f]{0,1024}")
BETWEEN_WORDS = re.compile(r"(?<=\S)(?=[ \n]\S)")  # before a single space or line end: all white space around is known
MOST_KNOWN = 1 << 17  # pieces of text whose ids are kept
LONG_PIECE = 32  # characters; a longer one will hardly occur again
Ids32 = NDArray[np.int32]
VISIBLE = str.maketrans({" ": "␣", "\t": "⇥", "\n": "⏎"})
JOIN_SIGN = "‿"


@dataclass(frozen=True)
class TextTokens(Settings):
    """The settings in [tokens]: how text becomes tokens."""

    kind: Kind = "bpe"  # words, characters, bpe (byte-pair encoding: sub-words), or given (split at spaces)
    size: Annotated[int, between(0, 10_000_000)] = 8000  # largest size of the vocabulary; 0: no limit
    at_least: Positive = 1  # times a token must occur to be in the vocabulary
    longest: Positive = 256  # most tokens in a text, unless it is packed or a whole file: longer examples are left out
    sample: Count = 50  # of several files, million characters that the vocabulary is learnt from; 0: all of them


@dataclass(frozen=True)
class PairTokens(TextTokens):
    joint: bool = True  # one shared vocabulary for both languages


@dataclass(frozen=True)
class GivenTokens(TextTokens):
    kind: Kind = "given"  # words as they are given, split at spaces; others: the first piece of a word stands for it


class Piece(NamedTuple):
    """A token and its position in the text as it was typed: `text` is typed[start:end]."""

    id: int
    text: str
    start: int
    end: int
    word: int  # which word of the text it belongs to; white space and joins belong to the word that follows


def normal(text: str) -> str:
    """Normalise to NFC, with U+FFFD for half a surrogate pair, which no file can hold."""
    if text.isascii():
        return text
    return encodable("".join(unicodedata.normalize("NFC", block) for block in BLOCK.findall(text)))


def _is_word(token: str) -> bool:
    return token.strip() != ""


def _cut_words(text: str) -> list[Span]:
    spans: list[Span] = []
    for string, (start, end) in SPLIT.pre_tokenize_str(text):
        if _is_word(string) and spans and _is_word(spans[-1][0]):
            spans.append(("", (start, start)))
        elif _is_word(string) and len(spans) > 1 and spans[-1][0] == " " and _is_word(spans[-2][0]):
            spans.pop()
        spans.append((string, (start, end)))
    return spans


def _join_words(tokens: Sequence[str]) -> list[str]:
    return [" " + token if _is_word(before) and _is_word(token) else token for before, token in pairwise(["", *tokens])]


def _cut_characters(text: str) -> list[Span]:
    return [(character, (i, i + 1)) for i, character in enumerate(text)]


def _cut_given(text: str) -> list[Span]:
    return [(found[0], found.span()) for found in re.finditer("[^ ]+", text)]


@dataclass(frozen=True)
class Rules:
    """How a kind of tokens splits and joins text."""

    cut: Callable[[str], list[Span]]
    join: Callable[[Sequence[str]], list[str]]
    spacing: bool = False  # tokens that are no words are left out, not <unk>, where the vocabulary lacks them


RULES: dict[str, Rules] = {
    "words": Rules(_cut_words, _join_words, spacing=True),
    "characters": Rules(_cut_characters, list),
    "given": Rules(_cut_given, lambda tokens: [" " * (place > 0) + token for place, token in enumerate(tokens)]),
}


def _origins(typed: str) -> list[tuple[int, int]]:
    """For each character of normal(typed), where the characters it was made from start and end in `typed`."""
    origins: list[tuple[int, int]] = []
    for block in BLOCK.finditer(typed):
        start, end = block.span()
        if unicodedata.is_normalized("NFC", block[0]):
            origins += [(i, i + 1) for i in range(start, end)]
            continue
        for i in range(start + 1, end):
            made = "" if unicodedata.combining(typed[i]) else normal(typed[start:i])
            if made and normal(typed[start : i + 1]) == made + normal(typed[i]):
                origins += [(start, i)] * len(made)
                start = i
        origins += [(start, end)] * len(normal(typed[start:end]))
    return origins


def word_of(text: str, starts: Iterable[int]) -> list[int]:
    """The word at or after each place in the text; past the last word, the last."""
    ends = [end for string, (_, end) in SPLIT.pre_tokenize_str(text) if _is_word(string)]
    return [max(min(bisect_right(ends, start), len(ends) - 1), 0) for start in starts]


class Tokenizer(ABC):
    """Text to ids and back; ids never include <bos> and <eos>, which belong to batches."""

    def __init__(self, kind: Kind | Foreign, vocabulary: list[str], specials: Sequence[str]) -> None:
        self.kind, self.vocabulary, self.specials = kind, vocabulary, tuple(specials)
        if self.specials[: len(SPECIALS)] != SPECIALS or len(set(self.specials)) < len(self.specials):
            raise UserError(f"its special tokens are not {' '.join(SPECIALS)} and others after them, each once")
        self.offset = len(self.specials)  # the first id that is a token of text
        self.size = self.offset + len(vocabulary)

    @abstractmethod
    def spans(self, text: str) -> list[tuple[int, int, int]]:
        """Each token's id, start and end in a normal text."""

    @abstractmethod
    def chunks(self, ids: Sequence[int], unknowns: Iterator[str]) -> list[str]:
        """One stretch of text per id, together the text; <unk> becomes the next of `unknowns`, other special tokens
        have no text."""

    @abstractmethod
    def show(self, token: int) -> str:
        """The token alone, without the space before it."""

    def same_ids(self, other: Tokenizer) -> bool:
        """Whether an id is the same token in both, however each of them splits a text."""
        return self is other

    def continues(self, token: int) -> bool:
        """Whether the token is a sub-word inside a word."""
        return False

    @staticmethod
    def train(
        kind: Kind, lines: Iterable[str], *, size: int | None, at_least: int = 1, specials: Sequence[str] = SPECIALS
    ) -> Tokenizer:
        """Learn at most `size` ids, the special tokens included, from what occurs `at_least` times."""
        if kind == "bpe":
            return BytePairs.learn(lines, size, at_least, specials)
        return Listed.learn(kind, lines, size, at_least, specials)

    def encode(self, text: str) -> list[int]:
        return self.encode_all([text])[0]

    def encode_all(self, texts: Sequence[str], *, continued: bool = False) -> list[list[int]]:
        """`continued`: each text continues after a line end that was encoded before it."""
        return self._encode_all([normal(text) for text in texts], continued=continued)

    def _encode_all(self, texts: Sequence[str], *, continued: bool) -> list[list[int]]:
        return [[token for token, _, _ in self.spans(text)] for text in texts]

    def arrays(self, texts: Sequence[str], *, continued: bool = False) -> list[Ids32]:
        """The same ids as `encode_all`, in arrays."""
        return [np.array(ids, np.int32) for ids in self.encode_all(texts, continued=continued)]

    def decode(self, ids: Sequence[int], unknowns: Iterable[str] = ()) -> str:
        """The text; <pad>, <bos> and <eos> have no text, <unk> becomes the next of `unknowns`, or else itself."""
        return "".join(self.chunks(ids, chain(unknowns, repeat(SPECIALS[UNK]))))

    def pieces(self, text: str) -> list[Piece]:
        """The tokens of `encode(text)`, each with its position in `text`."""
        normalised, origins = normal(text), _origins(text)
        spans = self.spans(normalised)
        words = word_of(normalised, (start for _, start, _ in spans))
        pieces = []
        for (token, start, end), word in zip(spans, words, strict=True):
            first = origins[start][0]
            last = origins[end - 1][1] if start < end else first  # a join is a place, not a stretch
            pieces.append(Piece(token, text[first:last], first, last, word))
        return pieces

    def surface(self, ids: Sequence[int]) -> list[str]:
        """One readable string per id: no space before it, white space and stray bytes made visible."""
        return [self.specials[token] if token < self.offset else _visible(self.show(token)) for token in ids]

    def words(self, ids: Sequence[int]) -> list[int]:
        """Which word of decode(ids) each id belongs to; −1 for <pad>, <bos> and <eos>."""
        # an unknown counts as letters: a word on its own among words, a part of the word among characters
        chunks = self.chunks(ids, repeat("xxx"))
        starts = accumulate((len(chunk) for chunk in chunks[:-1]), initial=0)
        words = word_of("".join(chunks), starts)
        return [word if token == UNK or token >= self.offset else -1 for token, word in zip(ids, words, strict=False)]

    def to_json(self) -> dict[str, Any]:
        return {"kind": self.kind, "specials": list(self.specials), "vocabulary": self.vocabulary}

    @staticmethod
    def from_json(saved: Any) -> Tokenizer:
        """Read a saved tokenizer. Its users rely on it, so anything invalid is refused here."""
        if not isinstance(saved, dict):
            raise UserError("a tokenizer is missing")
        missing: Any = None
        kind, specials, vocabulary = (saved.get(key, missing) for key in ("kind", "specials", "vocabulary"))
        if not isinstance(kind, str) or not is_texts(vocabulary) or len(set(vocabulary)) < len(vocabulary):
            raise UserError("its vocabulary is not a list of different texts")
        if not is_texts(specials):
            raise UserError("its special tokens are not a list of texts")
        if kind != "bpe":
            return Listed(cast(Kind, kind), vocabulary, specials)
        merges, known, alphabet = saved.get("merges", []), set(vocabulary), set(pre_tokenizers.ByteLevel.alphabet())
        if not known >= alphabet:
            raise UserError("its vocabulary lacks a byte")
        if not alphabet >= set("".join(vocabulary)):
            raise UserError("its vocabulary has tokens that are not made of bytes")
        if not isinstance(merges, list) or not all(is_texts(pair) and len(pair) == 2 for pair in merges):
            raise UserError("its merges are not a list of pairs")
        if not all({left, right, left + right} <= known for left, right in merges):
            raise UserError("it merges what is not in its vocabulary")
        return BytePairs(vocabulary, [(left, right) for left, right in merges], specials)


class Listed(Tokenizer):
    """A plain list of tokens; any other is <unk>."""

    def __init__(self, kind: Kind, vocabulary: list[str], specials: Sequence[str] = SPECIALS) -> None:
        super().__init__(kind, vocabulary, specials)
        self.rules = choose(RULES, kind, "The kind of tokens")
        self.ids = {token: i for i, token in enumerate(vocabulary, start=self.offset)}

    @classmethod
    def learn(
        cls, kind: Kind, lines: Iterable[str], size: int | None, at_least: int, specials: Sequence[str]
    ) -> Listed:
        rules, offset = choose(RULES, kind, "The kind of tokens"), len(specials)
        if size is not None and size <= offset:
            raise UserError(f"tokens.size = {size} is too small: set it to {offset + 1} or more.")
        counts = Counter(token for line in lines for token, _ in rules.cut(normal(line)))
        # by frequency, then by code point, so that the order of the lines does not matter
        ranked = sorted((-count, token) for token, count in counts.items() if count >= at_least)
        vocabulary = [token for _, token in ranked]
        return cls(kind, vocabulary if size is None else vocabulary[: size - offset], specials)

    def spans(self, text: str) -> list[tuple[int, int, int]]:
        return [
            (self.ids.get(token, UNK), start, end)
            for token, (start, end) in self.rules.cut(text)
            if token in self.ids or _is_word(token) or not self.rules.spacing
        ]

    def chunks(self, ids: Sequence[int], unknowns: Iterator[str]) -> list[str]:
        # special tokens without text must not come between two words
        has_text = [token == UNK or token >= self.offset for token in ids]
        kept = [token for token, text in zip(ids, has_text, strict=True) if text]
        texts = [next(unknowns) if token == UNK else self.vocabulary[token - self.offset] for token in kept]
        joined = iter(self.rules.join(texts))
        return [next(joined) if text else "" for text in has_text]

    def show(self, token: int) -> str:
        return self.vocabulary[token - self.offset] or JOIN_SIGN


def byte_of_character() -> dict[str, int]:
    """Byte-level BPE writes printable bytes as themselves and the others, in order, as U+0100 and on."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = [byte for byte in range(BYTES) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(BYTES + i): byte for i, byte in enumerate(others)}


def texts_of_bytes(stretches: Iterable[bytes]) -> list[str]:
    """One text per stretch of bytes, a character where its last byte is; invalid bytes become U+FFFD."""
    decoder = codecs.getincrementaldecoder("utf-8")("replace")
    texts = [decoder.decode(stretch) for stretch in stretches]
    if texts:
        texts[-1] += decoder.decode(b"", final=True)
    return texts


def without_space(chunks: list[str]) -> list[str]:
    """Stretches of text without the space before the first of them."""
    first = next((i for i, chunk in enumerate(chunks) if chunk), None)
    return chunks if first is None else [*chunks[:first], chunks[first].removeprefix(" "), *chunks[first + 1 :]]


class BytePairs(Tokenizer):
    """Byte-pair encoding by the `tokenizers` library, without special tokens."""

    def __init__(self, vocabulary: list[str], merges: list[tuple[str, str]], specials: Sequence[str]) -> None:
        super().__init__("bpe", vocabulary, specials)
        self.merges = merges
        self.inner = self._pipeline(BPE({token: i for i, token in enumerate(vocabulary)}, merges))
        self.known: dict[str, bytes] = {}  # ids of pieces of text that occurred before
        byte = byte_of_character()
        self.bytes = [bytes(byte[character] for character in token) for token in vocabulary]

    @staticmethod
    def _pipeline(model: BPE) -> tokenizers.Tokenizer:
        inner = tokenizers.Tokenizer(model)
        inner.pre_tokenizer = pre_tokenizers.Sequence(
            [SPLIT_WITH_SPACE, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
        )
        return inner

    @classmethod
    def learn(cls, lines: Iterable[str], size: int | None, at_least: int, specials: Sequence[str]) -> BytePairs:
        smallest = len(specials) + BYTES
        if size is None or size < smallest:
            raise UserError(f"tokens.size = {size or 0} is too small for bpe: set {smallest} or more (8000 is usual).")
        trainer = BpeTrainer(
            vocab_size=size - len(specials),
            min_frequency=at_least,
            initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
            show_progress=False,
        )
        inner = cls._pipeline(BPE())
        inner.train_from_iterator((" " + normal(line) for line in lines), trainer)
        ids = inner.get_vocab()
        merges = [(left, right) for left, right in json.loads(inner.to_str())["model"]["merges"]]
        return cls(sorted(ids, key=ids.__getitem__), merges, specials)

    def _encode_all(self, texts: Sequence[str], *, continued: bool) -> list[list[int]]:
        before = "" if continued else " "
        encodings = self.inner.encode_batch_fast([before + text if text else "" for text in texts])
        return [[i + self.offset for i in encoding.ids] for encoding in encodings]

    def arrays(self, texts: Sequence[str], *, continued: bool = False) -> list[Ids32]:
        """A text is cut where every cut is a cut of `SPLIT_WITH_SPACE`, too, and pieces that occurred before are not
        encoded again: most of a large text are such."""
        before = "" if continued else " "
        pieces = [BETWEEN_WORDS.split(before + text) if text else [] for text in map(normal, texts)]
        known = self.known if len(self.known) < MOST_KNOWN else {}
        self.known = known  # another thread may be reading the one that is full
        missing = list({piece for several in pieces for piece in several} - known.keys())
        rare: dict[str, bytes] = {}
        for piece, encoding in zip(missing, self.inner.encode_batch_fast(missing), strict=True):
            kept = known if len(piece) <= LONG_PIECE else rare
            kept[piece] = (np.array(encoding.ids, np.int32) + np.int32(self.offset)).tobytes()
        ids_of = (lambda piece: rare.get(piece) or known[piece]) if rare else known.__getitem__
        return [np.frombuffer(bytearray().join(map(ids_of, several)), np.int32) for several in pieces]

    def spans(self, text: str) -> list[tuple[int, int, int]]:
        if not text:
            return []
        encoding = self.inner.encode(" " + text)
        spans = []
        for i, (start, end) in zip(encoding.ids, encoding.offsets, strict=True):
            start, end = max(start - 1, 0), end - 1  # without the space put in front
            if text[start:end].startswith(" ") and not text[start:end].isspace():
                start += 1
            spans.append((i + self.offset, start, end))
        return spans

    def chunks(self, ids: Sequence[int], unknowns: Iterator[str]) -> list[str]:
        def bytes_of(token: int) -> bytes:
            if token >= self.offset:
                return self.bytes[token - self.offset]
            return next(unknowns).encode() if token == UNK else b""

        return without_space(texts_of_bytes(map(bytes_of, ids)))

    def show(self, token: int) -> str:
        text = self.bytes[token - self.offset].decode("utf-8", "backslashreplace")
        return text if text.isspace() else text.removeprefix(" ")

    def continues(self, token: int) -> bool:
        return not self.bytes[token - self.offset][:1].isspace()

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"merges": self.merges}


def is_texts(value: Any) -> bool:
    """Whether this is a list of texts that can be written to a file: JSON can spell half a character."""
    return isinstance(value, list) and all(isinstance(each, str) and encodable(each) == each for each in value)


def _visible(text: str) -> str:
    shown = text.translate(VISIBLE) if text.isspace() else text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in shown)

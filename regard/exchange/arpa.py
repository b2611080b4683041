"""ARPA files: n-grams as text, as KenLM and SRILM read and write them.

    \\data\\
    ngram 1=5
    ngram 2=3

    \\1-grams:
    -0.7781513	word	-0.30103

    \\2-grams:
    -0.39794	<s> word

    \\end\\

The left column is log₁₀ P(last word | the others), the right one log₁₀ γ (back-off weight), 0 if it is missing; −99 is
log₁₀ 0. <bos> is <s>, <eos> is </s>. Types that an ARPA file cannot hold are escaped: the empty one is <join>, white
space in a type becomes a code such as <U+000A>, and so does the first < of a type that looks like one of these marks.
"""

from __future__ import annotations

import math
import re
from array import array
from codecs import getwriter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NoReturn

import numpy as np
from numpy.typing import NDArray

from regard import machine
from regard.checkpoint import Folder
from regard.config import shown
from regard.data.fields import Fields, TextField
from regard.data.files import replacing, write_atomically
from regard.data.tensors import write_tensors
from regard.data.text import whole_lines
from regard.data.tokens import Listed
from regard.interface import BOS, EOS, SPECIALS, UNK, CountsNGrams, UserError
from regard.loading import load
from regard.models.ngram import NGram, Order
from regard.recipe import parse_recipe
from regard.tasks.registry import TASKS
from regard.train.training import Training
from regard.train.weights import weights

Integers = NDArray[np.int64]
Floats = NDArray[np.float32]
ZERO = -99.0  # log₁₀ 0, by convention
LN_10 = math.log(10)
BLOCK = 1 << 16  # n-grams that are written together

MARKS = {"<s>": BOS, "</s>": EOS, "<unk>": UNK, "<UNK>": UNK}
EMPTY = "<join>"
OFFSET = len(SPECIALS)
TO_ESCAPE = re.compile(r"[\s\0]|<(?=U\+)")
COUNT = re.compile(r"ngram\s+([0-9]{1,4})\s*=\s*([0-9]{1,15})")
ESCAPED = re.compile(r"<U\+([0-9A-F]{4,6})>")


def escape(word: str) -> str:
    """Escape a type for an ARPA file; different types stay different, and none becomes a mark."""
    if not word:
        return EMPTY
    if word in MARKS or word == EMPTY:
        return _code("<") + word[1:]
    return TO_ESCAPE.sub(lambda match: _code(match[0]), word)


def unescape(word: str) -> str:
    if word == EMPTY:
        return ""
    return ESCAPED.sub(lambda match: _character(match[0], int(match[1], 16)), word)


def _code(character: str) -> str:
    return f"<U+{ord(character):04X}>"


def _character(text: str, code: int) -> str:
    """Unescape only what `escape` writes: any other code is part of the type."""
    character = chr(code) if code < 0x110000 else ""
    return character if character == "<" or TO_ESCAPE.fullmatch(character) else text


# --- writing ---


def write(path: Path, model: CountsNGrams, words: Sequence[str], *, own: bool = False) -> None:
    """Write an ARPA file, completely or not at all; `words` are the vocabulary's types after the specials, by id;
    `own`: it is a file of a run."""
    if len(words) != model.vocab - OFFSET:
        raise ValueError(f"{len(words)} words for a vocabulary of {model.vocab}")
    orders = model.tables()
    names = np.array([SPECIALS[0], *list(MARKS)[:3], *map(escape, words)], dtype=object)
    with replacing(path, own=own) as raw:
        file = getwriter("utf-8")(raw)
        file.write("\\data\\\n")
        for n, order in enumerate(orders, start=1):
            file.write(f"ngram {n}={len(order.log_prob) - (n == 1)}\n")  # without <pad>
        for n, order in enumerate(orders, start=1):
            file.write(f"\n\\{n}-grams:\n")
            for first in range(BOS if n == 1 else 0, len(order.log_prob), BLOCK):
                file.writelines(_lines(orders[:n], np.arange(first, min(first + BLOCK, len(order.log_prob))), names))
        file.write("\n\\end\\\n")


def _lines(orders: Sequence[Order], numbers: Integers, names: NDArray[np.object_]) -> Iterator[str]:
    """Yield the lines of these n-grams of the highest order."""
    last = orders[-1]
    columns = [map(_text, last.log_prob[numbers]), _words(orders, numbers, names)]
    if len(last.log_backoff):
        columns.append(map(_text, last.log_backoff[numbers]))
    return ("\t".join(line) + "\n" for line in zip(*columns, strict=True))


def _words(orders: Sequence[Order], numbers: Integers, names: NDArray[np.object_]) -> Iterator[str]:
    """Yield the words of each n-gram: its key gives the last word and the number of the n-gram before it, and so on."""
    columns: list[list[str]] = []
    for order in orders[:0:-1]:
        numbers, last = np.divmod(order.keys[numbers], len(names))
        columns.append(names[last].tolist())
    columns.append(names[numbers].tolist())
    return map(" ".join, zip(*reversed(columns), strict=True))


def _text(logarithm: float) -> str:
    """Write nine digits, which are enough to read the same float32 again."""
    return f"{float(logarithm) / LN_10:.9g}" if logarithm > -math.inf else f"{ZERO:g}"


# --- reading ---


class _Reader:
    """Reads the lines of a file, counts them, and keeps the words of the 1-grams."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.lines = whole_lines(path)
        self.number = 0
        self.first = 0  # line of the section's first n-gram
        self.ids: dict[str, int] = {}  # word as it is written -> id
        self.types: list[str] = []  # unescaped words by id, after the specials
        self.met: set[str | int] = set()

    def next(self, expected: str) -> str:
        for number, line in self.lines:
            self.number = number
            return line
        raise UserError(f"{self.path} ends after line {self.number}, before {expected}: give a complete ARPA file.")

    def must_be(self, expected: str) -> None:
        """Check the next line that is not blank."""
        while not (line := self.next(expected).strip()):
            pass
        if line != expected:
            self.refuse(f"{shown(line)} is where {expected} should be")

    def refuse(self, what: str, line: int | None = None) -> NoReturn:
        raise UserError(f"{self.path}, line {line or self.number}: {what}; copy or write the file again.")

    def refuse_any(self, wrong: Integers, what: str) -> None:
        """Raise an error for the first of these n-grams of the section, if there is one."""
        if len(wrong):
            self.refuse(what, self.first + int(wrong[0]))

    def new_word(self, word: str) -> int:
        """Add a word and return its id; a repeated word is an error."""
        meaning = MARKS.get(word) or unescape(word)
        if meaning in self.met:
            self.refuse(f"{shown(word)} occurs twice")
        self.met.add(meaning)
        if isinstance(meaning, str):
            self.types.append(meaning)
            meaning = OFFSET + len(self.types) - 1
        self.ids[word] = meaning
        return meaning


def read(path: Path) -> tuple[list[str], NGram]:
    """Read the types after the specials, by id, and the model, from a plain or gzip file."""
    reader = _Reader(path)
    while reader.next("\\data\\").strip() != "\\data\\":  # lines before it are comments
        pass
    counts = _counts(reader)
    orders = [_unigrams(reader, counts[0])]
    for count in counts[1:]:
        orders.append(_longer(reader, count, orders))
    reader.must_be("\\end\\")
    orders[-1] = orders[-1]._replace(log_backoff=np.empty(0, dtype=np.float32))  # they are never a context
    unigrams = orders[0].log_prob
    model = NGram(vocab=len(unigrams), order=len(orders), discounts="three", open=bool(unigrams[UNK] > -np.inf))
    model.put(orders)
    return reader.types, model


def _counts(reader: _Reader) -> list[int]:
    counts: list[int] = []
    while line := reader.next("\\1-grams:").strip():
        match = COUNT.fullmatch(line)
        if not match or int(match[1]) != len(counts) + 1:
            reader.refuse(f"{shown(line)} is where 'ngram {len(counts) + 1}=' and a number should be")
        counts.append(int(match[2]))
    if not counts:
        reader.refuse("the numbers of n-grams are missing")
    return counts


def _section(reader: _Reader, n: int, count: int, id_of: Callable[[str], int]) -> tuple[Integers, Floats, Floats]:
    """Read the n-grams of one length: ids (n-grams, n), and ln P and ln γ of each."""
    title = f"\\{n}-grams:"
    reader.must_be(title)
    reader.first = reader.number + 1
    grams, log_probs, backoffs = array("q"), array("d"), array("d")
    for _ in range(count):
        line = reader.next(f"the end of {title}")
        fields = [field for field in line.replace("\t", " ").split(" ") if field]
        try:
            if not n + 1 <= len(fields) <= n + 2:
                raise ValueError
            log_probs.append(float(fields[0]))
            backoffs.append(float(fields[n + 1]) if len(fields) == n + 2 else 0.0)
            grams.extend(map(id_of, fields[1 : n + 1]))
        except ValueError:
            reader.refuse(f"{shown(line)} is not one of the {count} {n}-grams: a number, {n} words, perhaps a number")
        except KeyError as unknown:
            reader.refuse(f"{shown(unknown.args[0])} is not among the 1-grams")
    log_prob, log_backoff = _natural(log_probs), _natural(backoffs)
    wrong = np.flatnonzero(~((log_prob <= 0) & (log_backoff < np.inf)))
    reader.refuse_any(wrong, "its probability is above 1, or a number is not finite")
    return np.asarray(grams).reshape(count, n), log_prob, log_backoff


def _natural(logarithms: array[float]) -> Floats:
    values = np.asarray(logarithms)
    with np.errstate(over="ignore"):
        return np.where(values <= ZERO, -np.inf, values * LN_10).astype(np.float32)


def _unigrams(reader: _Reader, count: int) -> Order:
    ids, *known = _section(reader, 1, count, reader.new_word)
    log_prob = np.full(OFFSET + len(reader.types), -np.inf, dtype=np.float32)
    log_backoff = np.zeros_like(log_prob)
    log_prob[ids[:, 0]], log_backoff[ids[:, 0]] = known
    log_prob[BOS] = -np.inf  # it is only a context, whatever the file has
    return Order(np.empty(0, dtype=np.int64), log_prob, log_backoff)


def _longer(reader: _Reader, count: int, orders: Sequence[Order]) -> Order:
    n, vocab = len(orders) + 1, len(orders[0].log_prob)
    grams, log_prob, log_backoff = _section(reader, n, count, reader.ids.__getitem__)
    numbers, *columns = grams.T  # numbers of the first word, then of the first two, …; −1 if it does not exist
    for order, column in zip(orders[1:], columns, strict=False):
        wanted = numbers * vocab + column
        at = np.searchsorted(order.keys, wanted)
        numbers = np.where(np.append(order.keys, np.iinfo(np.int64).min)[at] == wanted, at, -1)
    reader.refuse_any(np.flatnonzero(numbers < 0), f"its first {n - 1} words are not among the {n - 1}-grams")
    keys = numbers * vocab + columns[-1]
    by_key = np.argsort(keys, kind="stable")
    keys = keys[by_key]
    reader.refuse_any(by_key[1:][keys[1:] == keys[:-1]], "its words occur twice")
    log_prob[columns[-1] == BOS] = -np.inf
    return Order(keys, log_prob[by_key], log_backoff[by_key])


# --- runs ---


def export_run(run: Path, path: Path | None = None, *, trust_code: bool = False) -> Path:
    """Export the n-grams of a run as an ARPA file, by default model.arpa in its folder; return where it is."""
    loaded = load(run, trust_code=trust_code)
    if not isinstance(loaded.model, CountsNGrams):
        raise UserError(
            f"{run} is a {loaded.recipe.model_name}, and an ARPA file holds n-grams: train a run with model.name=ngram."
        )
    place = path or run / "model.arpa"
    write(place, loaded.model, loaded.tokenizer("target").vocabulary, own=path is None)
    return place


def import_run(file: Path, path: Path) -> None:
    """Create a run from an ARPA file; its tokenizer splits text at spaces and punctuation."""
    folder = Folder(path)
    refuse_run(folder)  # before the file is read, which may take long
    words, model = read(file)
    table = {
        "task": "language",
        "data": {"name": "arpa", "file": str(file.resolve())},
        "tokens": {"kind": "words", "size": 0},
        "model": {"name": "ngram", "order": model.order},
        "train": {"steps": 1},
    }
    recipe = parse_recipe(table, tasks=TASKS, folder=file.resolve().parent)
    fields = Fields({"target": TextField(Listed("words", words), begins=True)})
    data = {"files": {"file": str(file)}, "data": recipe.data.fingerprint(recipe.folder)}
    with folder.only_writer():
        refuse_run(folder)
        folder.sweep()
        folder.write_facts({**machine.facts(), **data, "precision": "float32", "imported": True})
        write_atomically(folder.fields, fields.to_json(), own=True)
        write_tensors(folder.best, weights(model), {"step": 1})
        finished = Training(model, recipe.train, step=1)
        write_tensors(folder.last, finished.tensors(), finished.facts())
        write_atomically(folder.config, recipe.to_toml(placed=True), own=True)


def refuse_run(folder: Folder) -> None:
    """Refuse a folder that holds a run; one in which an import was cut off may be written again."""
    cut_off = folder.environment.exists() and folder.facts().get("imported") is True
    if folder.config.exists() or (folder.best.exists() and not cut_off):
        raise UserError(f"{folder.path} is a run already: choose another folder.")

"""The examples of a recipe, encoded on the disk in the data folder of a run.

Data in one file is encoded in one: train.<side>.tokens.npy. Data in several files becomes a shard for each of them,
train-00000.<side>.tokens.npy, each with a small file that says what it was made from; a shard is written again where
that has changed or where its files are missing or have changed. What is encoded holds nothing that does not follow from
the text and the tokenizer. `regard encode` writes the same files before training, in several processes.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from regard.checkpoint import SMALL, Folder
from regard.data.batches import Encoded
from regard.data.fields import MOST as MOST_OF_FIELDS
from regard.data.fields import Fields
from regard.data.files import own_file, read_own, write_atomically, writing
from regard.data.shards import names_of, open_split, remove_shards
from regard.data.sources import Split
from regard.data.text import content_hash, is_cut
from regard.interface import Numbered, UserError
from regard.predict.inputs import some_at_once
from regard.train.corpus import Corpus, by_side
from regard.train.stamps import (
    Stamp,
    contents,
    hash_of,
    read_json,
    read_manifest,
    record_file,
    settings_of,
    stamps,
    stamps_of,
    training_files,
    write_manifest,
)
from regard.train.transfer import fields_from

LINES_AT_ONCE = 10_000
SPLITS: tuple[Split, ...] = ("train", "valid")

Sides = dict[str, Encoded]
OnExamples = Callable[[int], None]


@dataclass(frozen=True)
class Shard:
    """A part of the data that is encoded in files of its own."""

    number: int
    name: str  # train-00000, of the file that says what it was made from
    key: str  # a hash of all that it depends on
    corpus: Corpus  # its examples
    names: Mapping[Split, str]  # of its files, for each split that it has examples of
    sources: Sequence[str]  # the files that it is made from
    of: tuple[str, ...]  # the sides of an example

    @property
    def sides(self) -> list[str]:
        """The names of its files, without what follows for tokens and offsets."""
        return [f"{name}.{side}" for name in self.names.values() for side in self.of]

    @property
    def size(self) -> int:
        """The bytes that it is made from."""
        return sum(Path(file).stat().st_size for file in self.sources)


class Encoding:
    """What is encoded of a recipe in a run folder, and what that was made from."""

    def __init__(self, folder: Folder, corpus: Corpus) -> None:
        self.folder, self.data, self.corpus = folder, folder.data, corpus
        self.parts = corpus.parts()
        self.count = len(self.parts)
        recipe = corpus.recipe
        self.held_out = bool(vars(recipe.data).get("hold_out", 0))  # each shard has its own share of validation
        self.splits: tuple[Split, ...] = SPLITS if self.held_out else ("train",)
        self.settings = settings_of(recipe)
        self.record = read_json(record_file(self.data))
        self.remark = ""  # on what was encoded here before

    # --- fields ---

    def fields(self) -> Fields | None:
        """The fields that were learnt here before, from the same data by the same settings."""
        try:
            content = read_own(self.folder.fields, most=MOST_OF_FIELDS)
        except OSError:
            return None
        if not self._recorded(hashlib.sha256(content).hexdigest()):
            return None
        return Fields.read(self.folder.fields, self.corpus.recipe.task.fields)

    def made_fields(self, base: Folder | None) -> Fields:
        """The fields of a new run: those that were learnt here before, otherwise new ones; with `base` those of the
        run to start from."""
        fields = None if base else self.fields()
        if fields is None:
            if self.record and not base:
                self.remark = (
                    f"The data or its settings differ from what {self.folder.path} has encoded: it is encoded again."
                )
            parts = self.corpus.recipe.train.parts
            fields = fields_from(base, self.corpus, parts) if base else self.corpus.learn_fields()
            write_atomically(self.folder.fields, fields.to_json(), own=True)
        if self.count > 1:
            self.keep(fields)
        return fields

    def _recorded(self, fields: str) -> bool:
        """Whether these fields, and what was encoded with them, come from this data and these settings."""
        if (self.record.get("settings"), self.record.get("fields")) != (self.settings, fields):
            return False
        return contents(self.sources) == contents(stamps_of(self.record))

    def keep(self, fields: Fields) -> None:
        """Record what these fields, and all that will be encoded with them, come from."""
        self.record = {"settings": self.settings, "fields": hash_of(fields.to_json()), "sources": self.sources}
        write_atomically(record_file(self.data), json.dumps(self.record), own=True)

    @cached_property
    def sources(self) -> dict[str, Stamp]:
        return stamps(self.corpus.recipe, self.record)

    # --- shards ---

    def shards(self, fields: Fields) -> list[Shard]:
        """What there is to write, a shard for each file of the data or each pair of files."""
        known, by = hash_of(fields.to_json()), {split: names_of(split, self.count) for split in self.splits}
        found = []
        for number, corpus in enumerate(self.parts):
            files = [str(file) for file in training_files(corpus.recipe)]
            key = hash_of([self.settings, known, *(self.sources[file][2] for file in files)])
            names = {split: by[split][number] for split in self.splits}
            found.append(Shard(number, names["train"], key, corpus, names, files, tuple(fields)))
        return found

    def missing(self, fields: Fields) -> list[Shard]:
        """The shards that are still to be written."""
        return [
            shard
            for shard in self.shards(fields)
            if read_manifest(self.data, shard.name, shard.key, shard.sides) is None
        ]

    def write(self, shard: Shard, fields: Fields, on_examples: OnExamples = lambda count: None) -> None:
        """Write a shard, and its share of the validation split."""
        left_out: dict[str, int] = {
            split: write_sides(self.data, name, split, shard.corpus, fields, on_examples)
            for split, name in shard.names.items()
        }
        write_manifest(self.data, shard.name, shard.key, shard.sides, left_out)

    def finish(self, fields: Fields) -> dict[str, int]:
        """Write the validation split, once all shards are there; return how many examples of each split are left
        out."""
        remove_shards(self.data, self.count)
        left_out: dict[str, int] = dict.fromkeys(SPLITS, 0)
        for shard in self.shards(fields):
            for split, count in (read_manifest(self.data, shard.name, shard.key, shard.sides) or {}).items():
                left_out[split] += count
        sides = [f"valid.{side}" for side in fields]
        key = hash_of([self.settings, hash_of(fields.to_json()), *contents(self.sources)])
        known = read_manifest(self.data, "valid", key, sides)
        if known is not None:
            return left_out | known
        if self.held_out:
            self._join_valid(fields)
        else:
            left_out["valid"] = write_sides(self.data, "valid", "valid", self.corpus, fields)
        write_manifest(self.data, "valid", key, sides, {"valid": left_out["valid"]})
        return left_out

    def _join_valid(self, fields: Fields) -> None:
        """Put the shares of the validation split that shards have in one file."""
        for side, field in fields.items():
            with writing(self.data), Encoded.writer(self.data, f"valid.{side}", field.dtype) as add:
                for name in names_of("valid", self.count):
                    held = Encoded.open(self.data, f"{name}.{side}")
                    for index in range(len(held)):
                        add(held[index], continued=self.corpus.whole_file)

    # --- all of it ---

    def encoded(self, fields: Fields, *, known: bool) -> tuple[dict[str, Sides], dict[str, int]]:
        """Each side of each split, and how many examples of a split are left out: they are empty on one side, or too
        long. `known`: the run was started, so that what is encoded comes from its data."""
        if self.count == 1:
            return self._in_one(fields, known=known or self._recorded(hash_of(fields.to_json())))
        if self.record.get("sources") != self.sources:  # they were copied or touched, and are not to be hashed again
            self.keep(fields)
        for shard in self.missing(fields):
            self.write(shard, fields)
        left_out = self.finish(fields)
        counts = {"train": self.count, "valid": 1}
        encoded: dict[str, Sides] = {
            split: {side: open_split(self.data, split, side, counts[split]) for side in fields} for split in SPLITS
        }
        for split in SPLITS:
            refuse_nothing(self.corpus, split, encoded[split], left_out[split])
        return encoded, left_out

    def _in_one(self, fields: Fields, *, known: bool) -> tuple[dict[str, Sides], dict[str, int]]:
        """The same for data in one file."""
        remove_shards(self.data, 1)
        if not known and self.record:  # what follows does not come from what it says
            with writing(self.data):
                record_file(self.data).unlink(missing_ok=True)
        encoded: dict[str, Sides] = {}
        left_out: dict[str, int] = {}
        for split in SPLITS:
            found = left_out_of(self.data, split) if known and is_sound(self.data, split, fields) else None
            left_out[split] = write_split(self.data, split, self.corpus, fields) if found is None else found
            encoded[split] = {side: Encoded.open(self.data, f"{split}.{side}") for side in fields}
            refuse_nothing(self.corpus, split, encoded[split], left_out[split])
        return encoded, left_out


# --- encoding --------------------------------------------------------------------------------------------------------


def write_sides(
    data: Path, name: str, split: Split, corpus: Corpus, fields: Fields, on_examples: OnExamples = lambda count: None
) -> int:
    """Encode each side of a split on the disk; return how many examples were left out."""
    with writing(data), ExitStack() as stack:
        writers = (Encoded.writer(data, f"{name}.{side}", field.dtype) for side, field in fields.items())
        return encode(corpus, split, fields, [stack.enter_context(writer) for writer in writers], on_examples)


def write_split(data: Path, split: Split, corpus: Corpus, fields: Fields) -> int:
    """Encode a split in one file for each side; return how many examples were left out."""
    left_out = write_sides(data, split, split, corpus, fields)
    write_atomically(data / split, " ".join([str(left_out), *hashes(data, split)]), own=True)
    return left_out


def encode(
    corpus: Corpus, split: Split, fields: Fields, adds: Sequence[Callable[..., None]], on_examples: OnExamples
) -> int:
    """Write all examples, each side with one of these functions; return how many were left out."""
    left_out, whole = 0, corpus.whole_file
    for chunk in some_at_once(corpus.examples(split), LINES_AT_ONCE):
        held = [example for example in chunk if not is_cut(example)]
        left_out += len(chunk) - len(held)
        if not held:
            continue
        every = fields.encode(by_side(fields, held), continued=whole)
        for example in zip(*every.values(), strict=True):
            if not whole and not corpus.fits(example):
                left_out += 1
                continue
            for add, ids in zip(adds, example, strict=True):
                add(ids, continued=whole)
        on_examples(len(chunk))
    return left_out


def refuse_nothing(corpus: Corpus, split: Split, encoded: Sides, left_out: int) -> None:
    """Refuse a split without examples, or a whole file that is too short to be read."""
    recipe = corpus.recipe
    amount = len(next(iter(encoded.values())).tokens)
    if not amount:
        held = vars(recipe.data).get("hold_out", 0)
        if split == "valid" and held:
            raise UserError(
                f"data.hold_out = {held:g} left no {corpus.noun} for validation, since too few differ: "
                "raise it, or name a validation file."
            )
        wrong = f"is empty: give at least one {corpus.noun}"
        if left_out:
            most = f"{recipe.tokens.longest:,} tokens a side"
            wrong = f"has no {corpus.noun} of 1 to {most}: raise tokens.longest, or give shorter ones"
        raise UserError(f"The {split} data {wrong}.")
    if corpus.whole_file and amount < 2:
        raise UserError(f"The {split} data is too short: give at least two tokens of text.")


def is_sound(data: Path, split: Split, fields: Fields) -> bool:
    """Return whether the encoded split can be read and has no ids that the fields lack."""
    try:
        every = {side: Encoded.open(data, f"{split}.{side}").tokens for side in fields}
    except UserError:
        return False
    shapes = ((fields[side].shape, tokens) for side, tokens in every.items() if len(tokens))
    return all(
        not isinstance(shape, Numbered) or 0 <= tokens.min() <= tokens.max() < shape.size for shape, tokens in shapes
    )


def hashes(data: Path, split: Split) -> list[str]:
    """Hash the files of an encoded split."""
    return [content_hash(own_file(file)) for file in sorted(data.glob(f"{split}.*.npy"))]


def left_out_of(data: Path, split: Split) -> int | None:
    """Return how many examples were left out of an encoded split; None where its files have changed."""
    try:
        left_out, *rest = read_own(data / split, most=SMALL).decode().split()
        return int(left_out) if rest == hashes(data, split) and rest else None
    except (OSError, ValueError, UserError):
        return None

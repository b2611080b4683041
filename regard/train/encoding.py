"""The examples of a recipe, encoded on the disk in the data folder of a run.

A split is encoded again where its files are missing or have changed: they hold nothing that does not follow from the
text and the tokenizer.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path

from regard.checkpoint import SMALL, Folder
from regard.data.batches import Encoded
from regard.data.fields import Fields
from regard.data.files import own_file, read_own, write_atomically, writing
from regard.data.sources import Split
from regard.data.text import content_hash, is_cut
from regard.interface import Numbered, UserError
from regard.predict.inputs import some_at_once
from regard.train.corpus import Corpus, by_side

LINES_AT_ONCE = 10_000
SPLITS: tuple[Split, ...] = ("train", "valid")

Sides = dict[str, Encoded]


def encoded_splits(
    folder: Folder, corpus: Corpus, fields: Fields, *, known: bool
) -> tuple[dict[str, Sides], dict[str, int]]:
    """Each side of each split, and how many examples of a split are left out: they are empty on one side, or too long.
    `known`: the run was started, so that what is encoded comes from its data."""
    encoded: dict[str, Sides] = {}
    left_out: dict[str, int] = {}
    for split in SPLITS:
        found = left_out_of(folder.data, split) if known and is_sound(folder.data, split, fields) else None
        left_out[split] = write_split(folder.data, split, corpus, fields) if found is None else found
        encoded[split] = {side: Encoded.open(folder.data, f"{split}.{side}") for side in fields}
        refuse_nothing(corpus, split, encoded[split], left_out[split])
    return encoded, left_out


def write_split(data: Path, split: Split, corpus: Corpus, fields: Fields) -> int:
    """Encode each side of a split on the disk; return how many examples were left out."""
    with writing(data), ExitStack() as stack:
        writers = (Encoded.writer(data, f"{split}.{side}", field.dtype) for side, field in fields.items())
        left_out = encode(corpus, split, fields, [stack.enter_context(writer) for writer in writers])
    write_atomically(data / split, " ".join([str(left_out), *hashes(data, split)]), own=True)
    return left_out


def encode(corpus: Corpus, split: Split, fields: Fields, adds: Sequence[Callable[..., None]]) -> int:
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

"""pictures: one label for a picture."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import torch

from regard.check.faults import Checked, Finding, Summary
from regard.config import counted, values_of
from regard.data.fields import LabelField
from regard.data.in_memory import keep_pictures
from regard.data.pictures import Npz, PictureField, read_pictures
from regard.data.sources import UNDECIDED, Imported, find
from regard.interface import Classifies, UserError
from regard.layers.attention import watch
from regard.look.weights import NOT_ATTENTION, inside, label_gradient, rollout
from regard.new.choices import Made, Request
from regard.new.labelled import new_labelled
from regard.predict.decoding import Decoding, Prediction
from regard.predict.inputs import some_at_once
from regard.predict.labels import labels_of
from regard.recipe import Recipe
from regard.run import Run
from regard.show.attention_page import Sentence, View
from regard.show.picture_map import PictureMap
from regard.tasks import nothing
from regard.tasks.classification import TASK as CLASSIFICATION
from regard.tasks.classification import LabelCorpus

AT_ONCE = 256  # pictures


@dataclass(frozen=True)
class NoTokens:
    """Pictures are not cut into tokens."""


class ImportedPictures(Imported):
    form = Npz(train="", hold_out=UNDECIDED)


class PictureCorpus(LabelCorpus):
    def fits(self, example: Any) -> bool:
        return True


def answer(run: Run, raws: Sequence[Any], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    return [label for some in some_at_once(raws, AT_ONCE) for label in labels_of(run, run.batch(source=some))]


def inputs(file: Path | None, errors: str = "strict") -> Iterator[Any]:
    if file is None:
        raise UserError("Pictures are read from a file: give an .npz of images after the run.")
    return iter(read_pictures(file)[0])


def given(text: str) -> list[Any]:
    """The first picture of an .npz file, or with :N after its name the N-th."""
    name, _, number = text.rpartition(":")
    path, place = (Path(name), int(number)) if name and number.isdecimal() else (Path(text), 1)
    pictures = read_pictures(path)[0]
    if not 1 <= place <= len(pictures):
        raise UserError(f"{path} has no picture {place}: give a number from 1 to {len(pictures)}.")
    return [pictures[place - 1]]


def look(run: Run, picture: Any, target: str | None = None, layer: int | None = None) -> PictureMap:
    """Which patches decided: attention rollout, or the gradient of ln P(label) where nothing attends."""
    batch = run.batch(source=[picture])
    weights, kind = rollout(run.model, batch), "attention rollout"
    if weights is None or target is not None:  # attention does not depend on the label that is asked about
        label, weights = label_gradient(run, batch, target)
        kind = NOT_ATTENTION
    else:
        label = run.predict([picture])[0].text
    height, width = picture.shape[:2]
    rows = max(1, round((weights.shape[1] * height / width) ** 0.5))
    pixels = picture[..., 0] if picture.shape[-1] == 1 else picture
    return PictureMap(pixels, weights[0].cpu().numpy().reshape(rows, -1), label, kind)


def look_closely(run: Run, picture: Any, target: str | None = None) -> Sentence:
    """The same, and the attention of each head from the class token, or its mean over positions where there is none."""
    seen = look(run, picture, target)
    shape, model = seen.weights.shape, cast(Classifies, run.model)
    rows, columns = (tuple(f"{axis}{n + 1}" for n in range(size)) for axis, size in zip("rc", shape, strict=True))
    views = [View(f"{seen.kind}, all layers", 1, rows, columns, seen.weights[None] / seen.weights.max())]
    with torch.no_grad(), watch(run.model) as watched:
        model.classify(run.batch(source=[picture]))
    for each in inside(run.model).of_kind("self"):
        weights = watched.of(each.part)[0][0]  # (heads, places, places)
        from_one = (weights[:, 0] if each.extra else weights.mean(1))[:, each.extra :].reshape(-1, *shape)
        shares = (from_one / from_one.max()).cpu().numpy()
        views.append(View("what each head looks at", each.layer, rows, columns, shares))
    return Sentence("a picture", seen.answer, tuple(views), note="shares of the largest weight")


def new(asked: Request) -> Made:
    asked.refuse("kind", "unit", "source", "target")
    data = Npz(**asked.train_and_valid())
    recipe, reasons = new_labelled(asked, data, NoTokens(), {})
    train = replace(recipe.train, epochs=max(16, recipe.train.epochs), batch_tokens=2048, learning_rate=2e-3)
    recipe = replace(recipe, train=train)
    if "patch" not in values_of(recipe.model):
        return recipe, reasons
    side = patch_side(*read_pictures(find(data.train, asked.folder))[0].shape[1:3])
    reasons["model.patch"] = "few patches make attention fast, and each still shows a part of the picture."
    return replace(recipe, model=replace(recipe.model, patch=side)), reasons


def patch_side(height: int, width: int) -> int:
    """The largest patch of at most 16 pixels a side that divides the picture into 16 or more."""
    both = math.gcd(height, width)
    sides = (side for side in range(min(16, both), 0, -1) if both % side == 0 and height * width >= 16 * side * side)
    return next(sides, 1)


def check(recipe: Recipe, write: Path | None, on_example: object = None) -> Checked:
    """Count pictures and labels; find blank pictures, duplicates and pictures that both splits have."""
    if write is not None:
        raise UserError("A clean copy can be written for translation only: correct the files of pictures yourself.")
    findings, summary, known = [], {}, set[bytes]()
    for split in ("train", "valid"):
        rows = list(recipe.data.lines(cast(Any, split), recipe.folder))
        labels = Counter(label for _, _, label in rows)
        pictures = [picture.tobytes() for _, picture, _ in rows]
        blank = sum(int(picture.min() == picture.max()) for _, picture, _ in rows)
        counts = {
            "of one colour; remove such pictures": blank,
            "in it more than once": len(pictures) - len(set(pictures)),
            "in train too, which raises the scores": len(known & set(pictures)),
        }
        for what, count in counts.items():
            if count:
                text = f"{split}: {counted(count, 'picture')} {'is' if count == 1 else 'are'} {what}."
                findings.append(Finding("warning", "pictures", text, split, count))
        if len(labels) < 2:
            findings.append(
                Finding("error", "labels", f"{split} has fewer than two labels: add pictures of another.", split)
            )
        passes = 1 - blank / max(1, len(rows))
        summary[split] = Summary(len(rows), passes, labels=dict(labels.most_common()))
        known |= set(pictures)
    findings.sort(key=lambda finding: finding.severity != "error")
    return Checked(tuple(findings), cast(Any, summary), {}, None)


TOY = (np.zeros((16, 16, 1), np.uint8), np.full((16, 16, 1), 255, np.uint8))

TASK = replace(
    CLASSIFICATION,
    name="pictures",
    about="Pictures, each with a label.",
    words=replace(
        CLASSIFICATION.words, example="picture", file="pictures.npz", units="rows of pixels", reads="picture"
    ),
    fields={"source": PictureField, "target": LabelField},
    sources={"npz": Npz, "imported": ImportedPictures},
    tokens=NoTokens,
    model="vit",
    contenders=("convnet", "vit"),
    demo_model="vit",
    toy=((TOY[0], "x"), (TOY[1], "y")),
    keep=keep_pictures,
    corpus=PictureCorpus,
    new=new,
    check=check,
    answer=answer,
    demo=nothing,
    inputs=inputs,
    given=given,
    look=look,
    look_closely=look_closely,
)

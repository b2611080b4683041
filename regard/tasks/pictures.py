"""pictures: one label for a picture."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path
from statistics import median
from typing import Any, cast

import numpy as np
import torch

from regard.check.pictures import check_pictures
from regard.checkpoint import Folder
from regard.config import values_of
from regard.data.batches import Examples
from regard.data.fields import Fields, LabelField
from regard.data.in_memory import keep_pictures
from regard.data.picture_cache import Size
from regard.data.picture_files import Header, PictureFile, read_header
from regard.data.picture_sources import Npz, Pictures, file_and_label, is_npz, is_picture, picture_files
from regard.data.pictures import PictureField, pixels_in, read_images, size_of
from regard.data.sources import UNDECIDED, Imported, find
from regard.interface import Classifies, Sample, UserError
from regard.layers.attention import watch
from regard.look.captions import grid_of, pixels_of
from regard.look.weights import NOT_ATTENTION, inside, label_gradient, rollout
from regard.new.choices import Made, Reasons, Request
from regard.new.labelled import new_labelled
from regard.predict.decoding import Decoding, Prediction
from regard.predict.inputs import some_at_once
from regard.predict.labels import labels_of
from regard.run import Run
from regard.score.labels import score_top_labels, top_labels
from regard.score.metrics import TOP, TOP_5
from regard.show.caption_page import Captioned, Places, caption_page
from regard.show.picture_map import PictureMap
from regard.tasks import entry_of, file_of, nothing, with_file
from regard.tasks.classification import TASK as CLASSIFICATION
from regard.tasks.classification import LabelCorpus
from regard.train.corpus import SHOWN_SAMPLES, Metrics, Sides, loss_over
from regard.train.pictures import PictureReading

AT_ONCE = 256  # pictures
BATCH = 2048  # rows of pixels
MOVED = (
    "moving training pictures a little is safe for most of them; so is data.flip=true where left and right are alike."
)
MOST = 1 << 22  # bytes of pictures that are read together
LOOKED_AT = 200  # pictures from which `new` chooses a size
SIDES = (32, 48, 64)  # which it chooses from
PATCHES = 36  # of a picture, at least


@dataclass(frozen=True)
class NoTokens:
    """Pictures are not cut into tokens."""


class ImportedPictures(Imported):
    form = Npz(train="", hold_out=UNDECIDED)


class PictureCorpus(PictureReading, LabelCorpus):
    """Pictures and their labels."""

    def fits(self, example: Any) -> bool:
        return True

    def validate(self, run: Run, encoded: Sides) -> tuple[Metrics, tuple[Sample, ...]]:
        """Return the validation loss, the task's metrics and a few labels, from pictures that were decoded before."""
        examples, names = Examples(run.fields, encoded), run.fields.names()
        outputs, best = list[str](), list[list[str]]()
        for some in some_at_once(range(len(examples)), at_once(run)):
            for answer in labels_of(run, examples.collate(some).to(run.device)):
                outputs.append(answer.text)
                best.append(top_labels(answer))
        references = [names[number] for number in encoded["target"].tokens.tolist()]
        found = loss_over(run, examples)
        found |= {metric.key: metric.of(outputs, references) for metric in run.task.metrics}
        if len(names) > TOP:
            found[TOP_5.key] = TOP_5.of(best, references)
        shown = islice(zip(references, outputs, strict=True), SHOWN_SAMPLES)
        return found, tuple(Sample("", *each) for each in shown)


def answer(run: Run, raws: Sequence[Any], how: Decoding | None = None, first_line: int = 0) -> list[Prediction]:
    return [label for some in some_at_once(raws, at_once(run)) for label in labels_of(run, run.batch(source=some))]


def size_read(run: Run) -> Size:
    """The size of the pictures that a run reads."""
    field = run.fields["source"]
    assert isinstance(field, PictureField)
    return field.size


def at_once(run: Run) -> int:
    """How many pictures are read together."""
    return max(1, min(AT_ONCE, MOST // math.prod(size_read(run))))


def plain(raw: Any, prediction: Prediction) -> str:
    return with_file(CLASSIFICATION.plain(raw, prediction), raw)


def entry(raw: Any, prediction: Prediction) -> dict[str, Any]:
    return entry_of(raw, CLASSIFICATION.entry(raw, prediction))


def inputs(file: Path | None, errors: str = "strict") -> Iterator[Any]:
    """The pictures that a file or a folder holds."""
    if file is None:
        raise UserError("Pictures are read from files: give some after the run, or a folder, a table or an .npz file.")
    if is_npz(file):
        return read_images(file)
    return iter(picture_files(file))


def given(text: str) -> list[Any]:
    """The pictures of a file or a folder; of an .npz file the first, or with :N after its name the N-th."""
    name, _, number = text.rpartition(":")
    path, place = (Path(name), int(number)) if name and number.isdecimal() else (Path(text), 1)
    if not is_npz(path):
        return list(inputs(Path(text)))
    found = list(islice(read_images(path), max(0, place - 1), place))
    if not found or not place:
        count = sum(1 for _ in read_images(path))
        raise UserError(f"{path} has no picture {place}: give a number from 1 to {count}.")
    return found


def look(run: Run, raw: Any, target: str | None = None, layer: int | None = None) -> PictureMap:
    """Which patches decided: attention rollout, or the gradient of ln P(label) where nothing attends."""
    picture = pixels_in(raw, size_read(run))
    batch = run.batch(source=[picture])
    weights, kind = rollout(run.model, batch), "attention rollout"
    if weights is None or target is not None:  # attention does not depend on the label that is asked about
        label, weights = label_gradient(run, batch, target)
        kind = NOT_ATTENTION
    else:
        label = run.predict([picture])[0].text
    grid = grid_of(picture.shape, weights.shape[1])
    return PictureMap(pixels_of(run, picture), weights[0].cpu().numpy().reshape(grid), label, kind)


def look_closely(run: Run, raw: Any, target: str | None = None) -> Captioned:
    """The same, and the attention of each head from the class token, or its mean over positions where there is none."""
    picture = pixels_in(raw, size_read(run))
    seen = look(run, picture, target)
    shape, model = seen.weights.shape, cast(Classifies, run.model)
    views = [Places(seen.kind, seen.weights[None, None])]
    with torch.no_grad(), watch(run.model) as watched:
        model.classify(run.batch(source=[picture]))
    for each in inside(run.model).of_kind("self"):
        weights = watched.of(each.part)[0][0]  # (heads, places, places)
        from_one = (weights[:, 0] if each.extra else weights.mean(1))[:, each.extra :]
        views.append(Places(f"attention, layer {each.layer}", from_one.reshape(-1, 1, *shape).float().cpu().numpy()))
    return Captioned(file_of(raw) or "a picture", seen.pixels, (seen.answer,), tuple(views))


def new(asked: Request) -> Made:
    asked.refuse("kind", "unit", "second")
    files = asked.train_and_valid()
    path = asked.first_file(files["train"])
    reasons: Reasons = {}
    data: Npz
    if is_npz(path):
        asked.refuse("source", "target")
        data = Npz(**files)
    else:
        data, reasons = new_pictures(asked, files, path)
    height, width, _ = size_of(first_of(data, path))
    data = replace(data, crop=crop_of(height, width))
    reasons["data.crop"] = MOVED
    recipe, reasons = new_labelled(asked, data, NoTokens(), reasons)
    an_epoch = 2 * recipe.train.validate_every * recipe.train.batch_tokens // BATCH
    train = replace(
        recipe.train,
        epochs=max(16, recipe.train.epochs),
        batch_tokens=BATCH,
        optimiser="muon",
        learning_rate=3e-3,
        weight_decay=0.5,
        validate_every=max(10, an_epoch),
    )
    reasons["train.optimiser"] = "networks that read pictures learn in fewer steps with Muon than with AdamW."
    recipe = replace(recipe, train=train)
    if "patch" not in values_of(recipe.model):
        return recipe, reasons
    reasons["model.patch"] = "few patches make attention fast, and each still shows a part of the picture."
    return replace(recipe, model=replace(recipe.model, patch=patch_side(height, width))), reasons


def crop_of(height: int, width: int) -> int:
    """By how many pixels training pictures are moved, so that a model learns that it does not matter."""
    return min(height, width) // 14


def first_of(data: Npz, path: Path) -> Any:
    for _, picture, _ in data.labelled(path, None):
        return picture
    raise UserError(f"{path} has no pictures: give at least a few with their labels.")


def new_pictures(asked: Request, files: dict[str, Any], path: Path) -> tuple[Pictures, Reasons]:
    """The settings of picture files: which fields of a table name them, how large they become, whether in colours."""
    if is_picture(path.name) and not path.is_dir():
        raise UserError(f"{path} is one picture: give a folder with a folder for each label, a table or an .npz file.")
    file, label = asked.source or "", asked.target or ""
    reasons: Reasons = {}
    if path.is_dir():
        asked.refuse("source", "target")
    elif bool(file) != bool(label):
        raise UserError("Only one of source and target was given: give both fields of the table, or neither.")
    elif not file:
        file, label = file_and_label(path)
        reasons["data.source"] = "this field holds names of pictures."
        reasons["data.target"] = "of the other fields, this one has the fewest different values."
    data = Pictures(**files, source=file, target=label)
    headers = headers_of([picture for _, picture, _ in data.labelled(path, None)], path)
    if asked.base:
        height, width, channels = size_of_run(asked.base)
        if height == width:
            reasons["data.side"] = f"the pictures of {asked.base} have this size."
            return replace(data, side=height, channels=channels), reasons
    side, grey, reasons["data.side"] = side_of(headers)
    if grey:
        reasons["data.channels"] = "the pictures are grey."
    return replace(data, side=side, channels=1 if grey else 3), reasons


def side_of(headers: Sequence[Header]) -> tuple[int, bool, str]:
    """The side that pictures of these sizes become, whether all are grey, and the reason."""
    usual = int(median(header.side for header in headers))
    alike = len({header.side for header in headers}) == 1 and usual <= SIDES[-1] and usual % 16 == 0
    side = usual if alike else next((side for side in SIDES if usual <= side * 1.25), SIDES[-1])
    reason = f"the median picture has {usual:,} pixels along its shorter side; larger is slower."
    return side, all(header.grey for header in headers), reason


def size_of_run(path: str) -> Size:
    """The size of the pictures that a run to start from was trained on."""
    field = Fields.read(Folder(find(path, Path.cwd())).fields, TASK.fields)["source"]
    assert isinstance(field, PictureField)
    return field.size


def headers_of(pictures: Sequence[PictureFile], path: Path) -> list[Header]:
    """The sizes of some pictures from everywhere; those that cannot be read are left for `check`."""
    found, problem = list[Header](), UserError(f"{path} has no pictures: give at least a few with their labels.")
    for picture in pictures[:: max(1, len(pictures) // LOOKED_AT)]:
        try:
            found.append(read_header(picture.path))
        except UserError as refused:
            problem = refused
    if not found:
        raise problem
    return found


def patch_side(height: int, width: int) -> int:
    """The largest patch of at most 16 pixels a side that divides the picture into PATCHES or more."""
    both = math.gcd(height, width)
    sides = (side for side in range(min(16, both), 0, -1) if both % side == 0)
    return next((side for side in sides if height * width >= PATCHES * side * side), 1)


TOY = (np.zeros((16, 16, 1), np.uint8), np.full((16, 16, 1), 255, np.uint8))

TASK = replace(
    CLASSIFICATION,
    name="pictures",
    about="Pictures, each with a label.",
    words=replace(
        CLASSIFICATION.words,
        example="picture",
        file="photos/",
        units="rows of pixels",
        reads="picture",
        try_with=" photo.jpg",
    ),
    fields={"source": PictureField, "target": LabelField},
    sources={"pictures": Pictures, "npz": Npz, "imported": ImportedPictures},
    tokens=NoTokens,
    model="vit",
    contenders=("convnet", "vit"),
    demo_model="vit",
    toy=((TOY[0], "x"), (TOY[1], "y")),
    keep=keep_pictures,
    corpus=PictureCorpus,
    new=new,
    check=check_pictures,
    answer=answer,
    score=score_top_labels,
    plain=plain,
    entry=entry,
    demo=nothing,
    inputs=inputs,
    given=given,
    look=look,
    look_closely=look_closely,
    page=caption_page,
)

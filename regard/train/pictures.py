"""Training data that is pictures: decoded once, and changed a little in each epoch (augmentation)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import Any, cast

from regard.data.augmentation import augmented
from regard.data.corruption import Batches
from regard.data.fields import Fields
from regard.data.picture_cache import PictureCache, forget_pictures
from regard.data.picture_files import PictureFile
from regard.data.picture_sources import Npz, Pictures
from regard.data.pictures import PictureField
from regard.data.sources import Split
from regard.recipe import Recipe
from regard.train.corpus import Corpus, OnRead, Sides

SPLITS: tuple[Split, Split] = ("train", "valid")


class PictureReading(Corpus):
    """Pictures, which are decoded once, and changed a little in each epoch where the data asks for augmentation."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__(recipe)
        self.folder: Path | None = None  # where decoded pictures are kept, until all are encoded
        self.on_read: OnRead = lambda read, every: None

    def keep_in(self, folder: Path, on_read: OnRead) -> None:
        self.folder, self.on_read = folder, on_read

    def forget(self) -> None:
        if self.folder is not None:
            forget_pictures(self.folder)
        self.folder = None

    @cached_property
    def cache(self) -> PictureCache | None:
        data, folder = self.recipe.data, self.folder
        if folder is None or not isinstance(data, Pictures):
            return None
        every = sum(1 for split in SPLITS for _ in data.lines(split, self.recipe.folder))
        return PictureCache(folder, data.size, lambda count: self.on_read(count, every))

    def examples(self, split: Split) -> Iterator[tuple[Any, ...]]:
        for picture, answer in super().examples(split):
            kept = self.folder is not None and isinstance(picture, PictureFile)
            yield replace(picture, cache=self.cache) if kept else picture, answer

    def batches(self, fields: Fields, encoded: Sides, model: object) -> Batches:
        pictures, data, field = super().batches(fields, encoded, model), self.recipe.data, fields["source"]
        if not isinstance(data, Npz) or not isinstance(field, PictureField):
            return cast(Batches, pictures)
        return augmented(pictures, data.augmentation, field.size, self.recipe.seed)

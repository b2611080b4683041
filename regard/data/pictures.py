"""Pictures and their labels from .npz files: `images` (count, height, width[, channels]) uint8, `labels` (count,), and
`names` of the labels where those are numbers."""

from __future__ import annotations

import zipfile
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch

from regard.config import counted
from regard.data.fields import MULTIPLE, Array, Field
from regard.data.files import open_regular
from regard.data.sources import Line, TrainAndValid
from regard.data.text import Report
from regard.interface import Padded, Picture, UserError

MOST = 8_000_000_000  # bytes of pictures and labels, unpacked


def read_pictures(path: Path) -> tuple[Array, list[str]]:
    """(count, height, width, channels), and a label each."""
    try:
        with open_regular(path) as opened, np.load(opened, allow_pickle=False) as file:
            if (size := sum(part.file_size for part in file.zip.infolist())) > MOST:
                raise ValueError(f"it unpacks to {size / 1e9:.1f} GB, and {MOST / 1e9:.1f} GB is the most")
            if not {"images", "labels"} <= set(file.files):
                raise ValueError(f"it has {', '.join(file.files) or 'no arrays'}, not images and labels")
            images, labels = file["images"], file["labels"]
            names = file["names"] if "names" in file.files else None
        if images.dtype != np.uint8 or images.ndim not in (3, 4) or images.shape[3:] not in ((), (1,), (3,)):
            wanted = "uint8 (count, height, width), perhaps with 1 or 3 channels"
            raise ValueError(f"its images are {images.dtype} {images.shape}, not {wanted}")
        if labels.shape != images.shape[:1] or 0 in images.shape[1:]:
            raise ValueError(f"it has {counted(len(labels), 'label')} for images of shape {images.shape}")
        if names is not None:
            labels = np.asarray(names)[labels.astype(np.int64)]
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; check the spelling and the folder.") from None
    except (OSError, ValueError, IndexError, TypeError, EOFError, zipfile.BadZipFile) as problem:
        raise UserError(f"{path} cannot be read as pictures ({problem}): give an .npz of images and labels.") from None
    return images.reshape(*images.shape[:3], -1), [str(label) for label in labels]


class Npz(TrainAndValid):
    """One .npz file of pictures and their labels."""

    def read(self, path: Path, report: Report | None) -> Iterator[Line]:
        for number, (picture, label) in enumerate(zip(*read_pictures(path), strict=True), start=1):
            if not label.strip():
                raise UserError(f"Picture {number} of {path} has an empty label: give it a label, or remove it.")
            yield number, picture, label


class PictureField(Field):
    """A picture as rows of pixels, standardised by the mean and the spread of the training pictures."""

    kind = "picture"
    dtype = np.uint8

    def __init__(self, height: int, width: int, channels: int, mean: float, spread: float) -> None:
        self.size = (height, width, channels)
        self.width = width * channels
        self.mean, self.spread = mean, spread

    @classmethod
    def train(cls, raws: Iterable[Array]) -> PictureField:
        pictures = list(raws)
        if not pictures:
            raise UserError("There are no pictures to learn from: give at least one.")
        floats = (picture.astype(np.float64) for picture in pictures)
        mean, square = np.mean([[pixels.mean(), np.square(pixels).mean()] for pixels in floats], axis=0)
        height, width, channels = pictures[0].shape
        return cls(height, width, channels, float(mean), float(max(1.0, np.sqrt(max(0.0, square - mean**2)))))

    @property
    def shape(self) -> Picture:
        return Picture(*self.size)

    def encode(self, raws: Sequence[Any], *, continued: bool = False) -> list[Array]:
        for raw in raws:
            if np.shape(raw) != self.size:
                raise UserError(
                    f"A picture of shape {np.shape(raw)} was given, and this model reads {self.size} (height, width, "
                    "channels): resize it first."
                )
        return [np.asarray(raw, np.uint8).reshape(-1) for raw in raws]

    def is_one(self, raw: Any) -> bool:
        return np.shape(raw)[:2] == self.size[:2] if hasattr(raw, "shape") else False

    def pad(self, arrays: Sequence[Any], *, multiple: int = MULTIPLE) -> Padded:
        values = torch.from_numpy(np.stack(arrays).reshape(len(arrays), self.size[0], self.width)).float()
        return Padded((values - self.mean) / self.spread, torch.ones(values.shape[:2], dtype=torch.bool))

    def to_json(self) -> dict[str, Any]:
        return {"size": list(self.size), "mean": self.mean, "spread": self.spread}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> PictureField:
        size: Any = saved.get("size")
        numbers: Any = [saved.get("mean"), saved.get("spread")]
        if not (isinstance(size, list) and len(size) == 3 and all(type(n) is int and 0 < n < 1 << 16 for n in size)):
            raise ValueError("its picture has no size")
        if not all(isinstance(number, float) and np.isfinite(number) for number in numbers) or numbers[1] <= 0:
            raise ValueError("its mean or spread is not a number")
        return cls(*size, *numbers)

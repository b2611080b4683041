"""Pictures as numbers: their field, and .npz files of them.

An .npz file has `images` (count, height, width[, channels]) uint8, `labels` (count,), and `names` of the labels where
those are numbers. It is read in parts.
"""

from __future__ import annotations

import math
import zipfile
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, cast

import numpy as np
import torch
from numpy.lib import format as npy

from regard.config import counted
from regard.data.fields import MULTIPLE, Array, Field
from regard.data.files import open_regular
from regard.data.picture_cache import Pixels, Size
from regard.data.picture_files import PictureFile, is_pillow, pixels_of, refused
from regard.interface import Padded, Picture, UserError

MOST = 8_000_000_000  # bytes of pictures and labels, unpacked
AT_ONCE = 1 << 20  # bytes of pictures that are read together
IMAGES = "images.npy"  # its name inside the archive


def read_images(path: Path) -> Iterator[Pixels]:
    """Each picture of an .npz file, (height, width, channels); its labels do not matter, if it has any."""
    return (picture for picture, _ in _read(path, wanted=("images",)))


def read_pictures(path: Path) -> Iterator[tuple[Pixels, str]]:
    """Each picture of an .npz file, (height, width, channels), and its label."""
    return _read(path, wanted=("images", "labels"))


def _read(path: Path, *, wanted: Sequence[str]) -> Iterator[tuple[Pixels, str]]:
    arrays = " and ".join(wanted)
    try:
        with open_regular(path) as opened, _archive(opened) as file:
            if (size := sum(part.file_size for part in file.zip.infolist())) > MOST:
                raise ValueError(f"it unpacks to {size / 1e9:.1f} GB, and {MOST / 1e9:.1f} GB is the most")
            if not {*wanted} <= set(file.files):
                raise ValueError(f"it has {', '.join(file.files) or 'no arrays'}, not {arrays}")
            if "labels" not in wanted:
                yield from ((picture, "") for some in _parts(file, None) for picture in some)
                return
            labels = _labels(file)
            read = 0
            for some in _parts(file, len(labels)):
                read += len(some)
                yield from zip(some, map(str, labels[read - len(some) : read]), strict=True)
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; check the spelling and the folder.") from None
    except (OSError, ValueError, LookupError, TypeError, EOFError, zipfile.BadZipFile, zlib.error) as problem:
        raise UserError(f"{path} cannot be read as pictures ({problem}): give an .npz of {arrays}.") from None


def _archive(opened: BinaryIO) -> Any:
    """What numpy loads; it takes every file that is no archive for one to unpickle, and speaks of that."""
    if not zipfile.is_zipfile(opened):
        raise ValueError("it is not a zip archive, or only a part of one")
    opened.seek(0)
    return np.load(opened, allow_pickle=False)


def _labels(file: Any) -> Array:
    """The label of each picture of an open .npz file; where those are numbers and have names, the names."""
    labels = file["labels"]
    if labels.ndim != 1:
        raise ValueError(f"its labels have the shape {labels.shape}, not (count,)")
    if "names" not in file.files:
        return cast(Array, labels)
    names = file["names"]
    if names.ndim != 1:
        raise ValueError(f"its names have the shape {names.shape}, not (count,)")
    if labels.dtype.kind not in "iu" or (labels.size and not 0 <= labels.min() <= labels.max() < len(names)):
        raise ValueError(f"its labels must be whole numbers from 0 to {len(names) - 1}, one for each of its names")
    return cast(Array, names[labels])


def _parts(file: Any, labels: int | None) -> Iterator[Array]:
    """The images of an open .npz file, some at a time: (some, height, width, channels); as many as there are labels."""
    with file.zip.open(IMAGES) as stream:
        if npy.read_magic(stream) != (1, 0):
            raise ValueError("its images were saved in another version of the format")
        shape, by_column, dtype = npy.read_array_header_1_0(stream)
        if dtype != np.uint8 or len(shape) not in (3, 4) or shape[3:] not in ((), (1,), (3,)):
            wanted = "uint8 (count, height, width), perhaps with 1 or 3 channels"
            raise ValueError(f"its images are {dtype} {shape}, not {wanted}")
        if labels is not None and shape[:1] != (labels,):
            raise ValueError(f"it has {counted(labels, 'label')} for images of shape {shape}")
        if 0 in shape[1:]:
            raise ValueError(f"its images have the shape {shape}")
        size = (*shape[1:3], *(shape[3:] or (1,)))
        if by_column:
            yield file["images"].reshape(-1, *size)
            return
        left, each = shape[0], math.prod(size)
        if left * each > file.zip.getinfo(IMAGES).file_size:
            raise EOFError(f"it is too small for images of shape {shape}")
        while left:
            some = min(left, max(1, AT_ONCE // each))
            content = stream.read(some * each)
            if len(content) < some * each:
                raise EOFError("it ends too early")
            yield np.frombuffer(content, np.uint8).reshape(some, *size)
            left -= some


class PictureField(Field):
    """A picture as rows of pixels, standardised by the mean and the spread of each channel of the training pictures.

    It reads files and Pillow's pictures of any size, and arrays of its own.
    """

    kind = "picture"
    dtype = np.uint8

    def __init__(
        self, height: int, width: int, channels: int, mean: float | Sequence[float], spread: float | Sequence[float]
    ) -> None:
        self.size: Size = (height, width, channels)
        self.width = width * channels
        self.mean, self.spread = np.broadcast_to(mean, channels), np.broadcast_to(spread, channels)

    @classmethod
    def train(cls, raws: Iterable[Any]) -> PictureField:
        size: Size | None = None
        count, sums = 0, np.zeros((2, 1), np.int64)
        for raw in raws:
            if size is None:
                size = size_of(raw)
                sums = np.zeros((2, size[2]), np.int64)
            pixels = pixels_in(raw, size).reshape(-1, size[2]).astype(np.int64)
            sums += pixels.sum(0), np.square(pixels).sum(0)
            count += len(pixels)
        if size is None:
            raise UserError("There are no pictures to learn from: give at least one.")
        mean, square = sums / count
        return cls(*size, mean, np.sqrt(np.maximum(1.0, square - mean**2)))

    @property
    def shape(self) -> Picture:
        return Picture(*self.size)

    def encode(self, raws: Sequence[Any], *, continued: bool = False) -> list[Array]:
        return [pixels_in(raw, self.size).reshape(-1) for raw in raws]

    def is_one(self, raw: Any) -> bool:
        if isinstance(raw, np.ndarray | torch.Tensor):
            return tuple(raw.shape[:2]) == self.size[:2]
        return isinstance(raw, str | Path | PictureFile) or is_pillow(raw)

    def pad(self, arrays: Sequence[Any], *, multiple: int = MULTIPLE) -> Padded:
        values = torch.from_numpy(np.stack(arrays).reshape(len(arrays), self.size[0], self.width)).float()
        mean, spread = (torch.from_numpy(np.tile(each, self.size[1])).float() for each in (self.mean, self.spread))
        return Padded(values.sub_(mean).div_(spread), torch.ones(values.shape[:2], dtype=torch.bool))

    def to_json(self) -> dict[str, Any]:
        return {"size": list(self.size), "mean": self.mean.tolist(), "spread": self.spread.tolist()}

    @classmethod
    def from_json(cls, saved: dict[str, Any]) -> PictureField:
        """Where mean and spread are one number each, all channels have it."""
        size: Any = saved.get("size")
        if not (isinstance(size, list) and len(size) == 3 and all(type(n) is int and 0 < n < 1 << 16 for n in size)):
            raise ValueError("its picture has no size")
        both: list[Any] = [saved.get("mean"), saved.get("spread")]
        lists = [each if isinstance(each, list) else [each] * size[2] for each in both]
        numbers = [number for each in lists for number in each]
        if not all(isinstance(number, float) and np.isfinite(number) for number in numbers) or min(lists[1]) <= 0:
            raise ValueError("its mean or spread is not a number")
        if any(len(each) != size[2] for each in lists):
            raise ValueError("its mean or spread is not one number for each channel")
        return cls(*size, *lists)


def size_of(raw: Any) -> Size:
    """The size of the pixels that a training picture has."""
    if isinstance(raw, PictureFile):
        if raw.size is None:
            raise UserError(f'{raw.path} may have any size: set data.name to "pictures", and data.side.')
        return raw.size
    height, width, channels = raw.shape
    return height, width, channels


def pixels_in(raw: Any, size: Size) -> Pixels:
    """The pixels of a picture: a file, or its name; Pillow's; or an array of exactly this size."""
    if isinstance(raw, str | Path):
        raw = PictureFile(Path(raw))
    if isinstance(raw, PictureFile):
        return raw.pixels(size)
    if is_pillow(raw):
        with refused("What was given"):
            return pixels_of(raw, size)
    array = np.asarray(raw)
    if array.shape != size and (*array.shape, 1) != size:
        raise UserError(
            f"A picture of shape {array.shape} was given, and this model reads {size} (height, width, channels): "
            "resize it first, or give it as a file or as Pillow's Image, which are resized."
        )
    if array.dtype != np.uint8 and not (array.dtype.kind in "iu" and array.min() >= 0 and array.max() <= 255):
        raise UserError(f"A picture of {array.dtype} was given: give whole numbers from 0 to 255 (uint8).")
    return array.astype(np.uint8, copy=False).reshape(size)

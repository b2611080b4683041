"""Decoded pictures, kept in a run as they come: after an interruption only the others are decoded.

The file is a row of records: the hash of a file's content, the pixels, their checksum. A record that was cut off, or
that the disk lost, does not match its checksum and is decoded again, so nothing has to be flushed in between. Which
files a recipe names may change meanwhile: a picture is found by its content.
"""

from __future__ import annotations

import os
import zlib
from collections.abc import Callable
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from regard.data.files import DIGEST, make_folder, open_growing, write_whole, writing

Pixels = NDArray[np.uint8]  # (height, width, channels)
Size = tuple[int, int, int]  # height, width, channels
NAME = "pictures."  # of the file, before the size
CHECK = 4  # bytes


class PictureCache:
    """The pictures of one size in a folder; `on_picture` is called with the number of them after each new one."""

    def __init__(self, folder: Path, size: Size, on_picture: Callable[[int], None] = lambda count: None) -> None:
        self.size, self.on_picture = size, on_picture
        self.path = folder / f"{NAME}{'x'.join(map(str, size))}"
        self.record = DIGEST + int(np.prod(size)) + CHECK
        self.places: dict[bytes, int] = {}  # by digest
        with writing(self.path):
            make_folder(folder)
            self.file = open_growing(self.path)
            self.count = os.fstat(self.file.fileno()).st_size // self.record
            os.ftruncate(self.file.fileno(), self.count * self.record)  # without the record that was being written
            for place in range(self.count):
                self.places[os.pread(self.file.fileno(), DIGEST, place * self.record)] = place

    def get(self, digest: bytes, decode: Callable[[], Pixels]) -> Pixels:
        """The picture whose file has this digest; `decode` is called if it is not here."""
        if (place := self.places.get(digest)) is not None:
            kept = os.pread(self.file.fileno(), self.record, place * self.record)
            pixels, check = kept[DIGEST:-CHECK], kept[-CHECK:]
            if kept[:DIGEST] == digest and check == _check(pixels):
                return np.frombuffer(pixels, np.uint8).reshape(self.size)
        pixels = (decoded := decode()).tobytes()
        with writing(self.path):
            write_whole(self.file, digest + pixels + _check(pixels))
        self.places[digest] = self.count
        self.count += 1
        self.on_picture(self.count)
        return decoded

    def close(self) -> None:
        self.file.close()


def _check(pixels: bytes) -> bytes:
    return zlib.crc32(pixels).to_bytes(CHECK, "little")


def forget_pictures(folder: Path) -> None:
    """Remove what was kept in a folder, of any size."""
    with writing(folder):
        for path in folder.glob(f"{NAME}*x*x*"):
            path.unlink()

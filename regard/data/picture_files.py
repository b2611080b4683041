"""Pictures from files of any size and mode, read with Pillow.

What a file may have is made plain in this order: its first frame, turned as its EXIF orientation says, transparency on
white, 16 bits to 8, then RGB or grey. The largest part of the middle that has the proportions of the result is
resized, antialiased, to (height, width, channels); what lies beyond it at two edges is cut off (centre crop).

A file may come from somebody else. Only formats that Pillow decodes by itself are tried: for PostScript it would start
another program. The size in the header is compared with MOST_PIXELS before anything is decoded.
"""

from __future__ import annotations

import os
import sys
import warnings
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, NamedTuple

import numpy as np

from regard.config import UserError
from regard.data.files import digest_of, open_regular, refused_as
from regard.data.picture_cache import PictureCache, Pixels, Size

if TYPE_CHECKING:
    from PIL.Image import Image

FORMATS = ("PNG", "JPEG", "GIF", "BMP", "WEBP", "TIFF", "PPM")
SUFFIXES = (".png", ".jpg", ".jpeg", ".jfif", ".gif", ".bmp", ".webp", ".tif", ".tiff", ".ppm", ".pgm", ".pbm", ".pnm")
MOST_PIXELS = 100_000_000
ORIENTATION = 0x0112  # the EXIF tag
FINE = 2  # a JPEG is decoded at no more than this many times the result's side, where its format allows
GAP = 3.0  # a large picture is first reduced by averaging, to at least this many times the result's size
GREY = ("1", "L", "LA", "I;16", "I;16L", "I;16B", "I", "F")  # Pillow's modes without colours
CLEAR = ("LA", "PA", "RGBA", "La", "RGBa")  # and those with transparency
IN_PNG = ("1", "L", "LA", "P", "RGB", "RGBA")


@dataclass(frozen=True)
class PictureFile:
    """A picture that is decoded when its pixels are needed: a hundred thousand of them take little memory."""

    path: Path
    size: Size | None = None  # of its pixels; None: the field that reads it decides
    cache: PictureCache | None = None  # which may have its pixels already

    def pixels(self, size: Size) -> Pixels:
        if self.cache is None or size != self.cache.size:
            return read_picture(self.path, size)
        return self.cache.get(self.digest, lambda: read_picture(self.path, size))

    @property
    def digest(self) -> bytes:
        """The hash of the file's content."""
        with refused(self.path):
            return digest_of(self.path)

    def tobytes(self) -> bytes:
        """What no other picture has. A file that cannot be read has its name, and is refused when it is decoded."""
        try:
            return self.digest
        except UserError:
            return os.fsencode(self.path)

    @property
    def nbytes(self) -> int:
        height, width, channels = self.size or (0, 0, 0)
        return height * width * channels

    def __len__(self) -> int:
        """The rows of pixels, as an array has them."""
        return self.size[0] if self.size else 0


def refused(name: object) -> AbstractContextManager[None]:
    return refused_as("picture", name)


def read_picture(path: Path, size: Size) -> Pixels:
    """Decode a file: (height, width, channels)."""
    with refused(path), open_regular(path) as file:
        return _decoded(file, size, path)


def decoded(content: bytes, size: Size, name: str) -> Pixels:
    """Decode the content of a file, which errors call by this name."""
    with refused(name):
        return _decoded(BytesIO(content), size, name)


def _decoded(file: BinaryIO, size: Size, name: object) -> Pixels:
    with _opened(file, name) as image:
        image.draft("", (FINE * max(size[:2]),) * 2)
        image.load()
        return pixels_of(image, size)


class Header(NamedTuple):
    """What a file says of its picture, before it is decoded."""

    side: int  # pixels along the shorter side
    grey: bool


def read_header(path: Path) -> Header:
    with refused(path), open_regular(path) as file, _opened(file, path) as image:
        return Header(min(image.size), image.mode in GREY)


@contextmanager
def _opened(file: BinaryIO, name: object) -> Iterator[Image]:
    """The picture in an open file, of which only the header is read."""
    require_pillow(name)
    from PIL import Image, UnidentifiedImageError

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of Pillow, on what is refused here, or on odd metadata
        try:
            with Image.open(file, formats=FORMATS) as image:
                if image.width * image.height > MOST_PIXELS:
                    raise Image.DecompressionBombError
                yield image
        except Image.DecompressionBombError:
            raise ValueError(f"it has more than {MOST_PIXELS:,} pixels") from None
        except UnidentifiedImageError:
            empty = not file.seek(0, os.SEEK_END)
            raise ValueError("it is empty" if empty else f"it is not {', '.join(FORMATS[:-1])} or PPM") from None


def is_pillow(raw: object) -> bool:
    """Whether this is a picture of Pillow's, which need not be installed."""
    module = sys.modules.get("PIL.Image")
    return module is not None and isinstance(raw, module.Image)


def pixels_of(image: Image, size: Size) -> Pixels:
    """The pixels of Pillow's picture, (height, width, channels)."""
    from PIL.Image import Resampling

    height, width, channels = size
    image = on_white(eight_bits(upright(image))).convert("L" if channels == 1 else "RGB")
    across, down = image.size
    scale = min(across / width, down / height)
    left, top = (across - scale * width) / 2, (down - scale * height) / 2
    box = (left, top, across - left, down - top)
    image = image.resize((width, height), Resampling.BICUBIC, box=box, reducing_gap=GAP)
    return np.array(image, np.uint8).reshape(size)


def upright(image: Image) -> Image:
    """Turn a picture as its EXIF orientation says."""
    from PIL.Image import Transpose

    turns = {
        2: Transpose.FLIP_LEFT_RIGHT,
        3: Transpose.ROTATE_180,
        4: Transpose.FLIP_TOP_BOTTOM,
        5: Transpose.TRANSPOSE,
        6: Transpose.ROTATE_270,
        7: Transpose.TRANSVERSE,
        8: Transpose.ROTATE_90,
    }
    turn = turns.get(image.getexif().get(ORIENTATION, 1))
    return image if turn is None else image.transpose(turn)


def eight_bits(image: Image) -> Image:
    """Scale 16 bits, 0 to 65,535, and floating-point numbers, 0 to 1, to the 256 steps of other pictures."""
    from PIL import Image as pillow

    if image.mode not in ("I", "F") and not image.mode.startswith("I;"):
        return image
    values, most = np.asarray(image), 1.0 if image.mode == "F" else 65535.0
    if not (values.min() >= 0 and values.max() <= most):
        raise ValueError(f"its numbers are not from 0 to {most:,.0f}: save it with 8 bits per colour")
    return pillow.fromarray(np.rint(values * (255 / most)).astype(np.uint8))


def on_white(image: Image) -> Image:
    """Put a picture that is transparent somewhere on white."""
    from PIL import Image as pillow

    palette = image.palette is not None and image.mode == "P" and image.palette.mode == "RGBA"
    if image.mode not in CLEAR and "transparency" not in image.info and not palette:
        return image
    colours = image.convert("RGBA")
    return pillow.alpha_composite(pillow.new("RGBA", colours.size, "white"), colours)


def png_of(picture: Any) -> bytes:
    """A PNG file of Pillow's picture, or of an array of uint8."""
    require_pillow("A picture from memory")
    from PIL.Image import fromarray

    with refused("A picture from memory"):
        flat = isinstance(picture, np.ndarray) and picture.shape[2:] == (1,)
        image = picture if is_pillow(picture) else fromarray(picture[..., 0] if flat else picture)
        image = eight_bits(upright(image))
        file = BytesIO()
        (image if image.mode in IN_PNG else image.convert("RGB")).save(file, "PNG", exif=b"")
        return file.getvalue()


def require_pillow(name: object) -> None:
    try:
        import PIL  # noqa: F401
    except ImportError:
        remedy = 'install it with pip install "regard[images]", or give an .npz file of pictures'
        raise UserError(f"{name} is read with Pillow, which is not installed: {remedy}.") from None

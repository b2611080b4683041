"""Lines from plain and gzip files.

A line ends at "\\n" and nowhere else, so that line n of the source is line n of the target whatever stands
inside them: U+2028, U+0085 and form feeds are text. Files are read as a stream and never held whole.
"""

from __future__ import annotations

import gzip
import hashlib
import zlib
from codecs import BOM_UTF8, BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import zip_longest
from pathlib import Path
from typing import BinaryIO, Literal, cast

from regard.interface import UserError

GZIP_MAGIC = b"\x1f\x8b"
CHUNK = 1 << 20


@contextmanager
def _content(path: Path) -> Iterator[BinaryIO]:
    """The bytes of a file, decompressed if they begin like gzip; what can go wrong becomes a sentence."""
    try:
        with path.open("rb") as raw:
            if raw.peek(2)[:2] == GZIP_MAGIC:
                with gzip.GzipFile(fileobj=raw) as unpacked:
                    yield cast(BinaryIO, unpacked)
            else:
                yield raw
    except FileNotFoundError:
        raise UserError(f"{path} does not exist; check the spelling and the folder.") from None
    except IsADirectoryError:
        raise UserError(f"{path} is a folder; name a text file inside it.") from None
    except PermissionError:
        raise UserError(f"{path} may not be read by you; change its permissions (chmod u+r).") from None
    except (EOFError, gzip.BadGzipFile, zlib.error) as error:
        raise UserError(f"{path} is a damaged gzip file ({error}); copy or download it again.") from None
    except OSError as error:
        raise UserError(f"{path} cannot be read: {error.strerror or error}.") from None


def read_lines(path: Path | str | BinaryIO, *, errors: Literal["strict", "replace"] = "strict") -> Iterator[str]:
    """The lines of a UTF-8 file, or of an open stream, without their ends; `errors="replace"` turns invalid bytes
    into U+FFFD."""
    opened: AbstractContextManager[BinaryIO]
    if isinstance(path, (str, Path)):
        opened, name = _content(Path(path)), str(path)
    else:
        opened, name = nullcontext(path), "standard input"
    with opened as stream:
        for number, line in enumerate(stream, start=1):
            if number == 1:
                if line.startswith((BOM_UTF16_LE, BOM_UTF16_BE)):
                    raise UserError(f"{name} is UTF-16, not UTF-8; convert it with: iconv -f UTF-16 -t UTF-8.")
                line = line.removeprefix(BOM_UTF8)
            if b"\0" in line:
                raise UserError(f"{name}, line {number} holds a NUL byte: not a plain text file; name one that is.")
            line = line[:-2] if line.endswith(b"\r\n") else line.removesuffix(b"\n")
            try:
                text = line.decode("utf-8", errors)
            except UnicodeDecodeError as error:
                raise UserError(
                    f"{name}, line {number}: byte {error.start + 1} ({line[error.start]:#04x}) is not UTF-8; "
                    "convert the file (iconv -f LATIN1 -t UTF-8) or use --errors replace."
                ) from None
            yield text


def read_pairs(source: Path | str, target: Path | str) -> Iterator[tuple[str, str]]:
    """Line n of the source beside line n of the target."""
    sources, targets = read_lines(source), read_lines(target)
    for pairs, (left, right) in enumerate(zip_longest(sources, targets)):
        if left is None or right is None:
            ended, goes_on = (source, targets) if left is None else (target, sources)
            longer = pairs + 1 + sum(1 for _ in goes_on)
            counts = (pairs, longer) if ended is source else (longer, pairs)
            raise UserError(
                f"{source} has {counts[0]} lines but {target} has {counts[1]}; "
                "parallel files need the same number, line n of one translating line n of the other."
            )
        yield left, right


def content_hash(path: Path | str) -> str:
    """SHA-256 of the content; a file and its gzip have the same one."""
    digest = hashlib.sha256()
    with _content(Path(path)) as stream:
        while chunk := stream.read(CHUNK):
            digest.update(chunk)
    return digest.hexdigest()

"""Files: opened, read, replaced and appended to in one place.

Every file is written under a temporary name, flushed to the disk and renamed, so a reader, or a process that is killed,
finds the old file or the new one and never half of one. A system error, such as a full disk, becomes one sentence.

A file may come from somebody else, so what is opened here is a regular file: a pipe or a device could make a command
wait or read forever. A run's own files are never reached through a link, for reading or for writing: the link could
lead to any file of the person who uses the run.
"""

from __future__ import annotations

import contextlib
import errno
import hashlib
import os
import shutil
import stat
import tomllib
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import IO, Any, BinaryIO, cast

from regard.config import UserError

AGAIN = "run the same command again"
ELSEWHERE = "or choose another output folder"
REMEDIES = {  # what to do for each system error
    f"make room and {AGAIN}": (errno.ENOSPC, errno.EDQUOT),
    f"raise the limit on a file's size (ulimit -f) and {AGAIN}": (errno.EFBIG,),
    f"make its folder first, {ELSEWHERE}": (errno.ENOENT,),
    f"make it writable for you, {ELSEWHERE}": (errno.EROFS, errno.EACCES, errno.EPERM),
    f"move what is there, {ELSEWHERE}": (errno.EEXIST, errno.EISDIR, errno.ENOTDIR, errno.ELOOP),
}


MOST_OF_A_RECIPE = 1 << 17  # bytes
MOST_PARTS = 200  # of all keys in a line: tomllib takes memory for the square of it
LINK = "it is a link, and nothing inside a run may be a link"
DIGEST = 16  # bytes of the hash of a picture or a recording
REMEMBERED = 1 << 18  # files whose hash is not computed twice
UNREADABLE: dict[type[Exception], str] = {  # {kind}: what the file should have been
    FileNotFoundError: "does not exist: check the spelling and the folder",
    IsADirectoryError: "is a folder, not a {kind}: name a file inside it",
    PermissionError: "may not be read by you: change its permissions (chmod u+r)",
}


def open_regular(path: Path, *, own: bool = False, pipe: bool = False) -> BinaryIO:
    """Open a file to read its bytes; `own`: a file of a run, which may not be a link; `pipe`: a pipe or a terminal
    will do, which can be read once."""
    flags = os.O_RDONLY | (0 if pipe else os.O_NONBLOCK)  # opening a pipe waits for somebody who writes
    handle = _open_own(path, flags) if own else os.open(path, flags | os.O_CLOEXEC)
    try:
        mode = os.fstat(handle).st_mode
        if stat.S_ISDIR(mode):
            raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
        once = stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode) or os.isatty(handle) or os.fspath(path) == os.devnull
        if not stat.S_ISREG(mode) and not (pipe and once):
            raise OSError(errno.EINVAL, "it is a pipe or a device, not a regular file", str(path))
        return os.fdopen(handle, "rb")
    except BaseException:
        os.close(handle)
        raise


def _open_own(path: Path, flags: int) -> int:
    try:
        return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC, 0o666)
    except OSError as problem:
        if problem.errno in (errno.ELOOP, errno.EMLINK):
            raise OSError(errno.ELOOP, LINK, str(path)) from None
        raise


def read_toml(path: Path, *, own: bool = False) -> dict[str, Any]:
    """Read a recipe; what would take tomllib much memory, a long file or a key of many parts, is refused before."""
    text = read_limited(path, most=MOST_OF_A_RECIPE, own=own).decode("utf-8-sig").replace("\r\n", "\n")
    if any(line.count(".") > MOST_PARTS for line in text.split("\n")):
        raise ValueError(f"a line has more than {MOST_PARTS} dots")
    return tomllib.loads(text)


def read_own(path: Path, *, most: int) -> bytes:
    """Read a file of a run, which is at most so many bytes long."""
    return read_limited(path, most=most, own=True)


def read_limited(path: Path, *, most: int, own: bool = False) -> bytes:
    """Read a regular file that is at most so many bytes long; `own`: a file of a run, which may not be a link."""
    with open_regular(path, own=own) as file:
        content = file.read(most + 1)
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {most >> 10:,} KiB", str(path))
    return content


def own_file(path: Path) -> Path:
    """Return the path of a run's file for a library that opens it by itself, if it is a regular file and no link."""
    open_regular(path, own=True).close()
    return path


def reason(problem: BaseException) -> str:
    """Return an error in a few words on one line."""
    words = isinstance(problem, OSError) and problem.strerror or str(problem) or type(problem).__name__
    return words.splitlines()[0]


@contextlib.contextmanager
def refused_as(kind: str, name: object) -> Iterator[None]:
    """Turn whatever is wrong with a picture or a recording of this name into one sentence.

    A damaged file makes its library raise errors of many kinds: OSError, SyntaxError, struct.error, OverflowError …
    """
    try:
        yield
    except UserError:
        raise
    except Exception as problem:
        says = UNREADABLE.get(type(problem), f"cannot be read as a {kind} ({reason(problem)}): replace or remove it")
        raise UserError(f"{name} {says.replace('{kind}', kind)}.") from None


def digest_of(path: Path) -> bytes:
    """The hash of a file's content."""
    found = os.stat(path)
    return _digest(path, found.st_size, found.st_mtime_ns)


@lru_cache(maxsize=REMEMBERED)  # a session needs it several times: what is held out, what has changed, what is decoded
def _digest(path: Path, size: int, changed: int) -> bytes:
    with open_regular(path) as file:
        return hashlib.file_digest(cast(Any, file), "sha256").digest()[:DIGEST]


@contextlib.contextmanager
def writing(path: Path) -> Iterator[None]:
    """Turn a system error while writing into one sentence with the remedy."""
    try:
        yield
    except OSError as problem:
        remedies = (remedy for remedy, numbers in REMEDIES.items() if problem.errno in numbers)
        what = f"{reason(problem)}; {next(remedies, f'fix that and {AGAIN}')}"
        raise UserError(f"{path} cannot be written: {what}: files that were saved before are intact.") from None


def make_folder(path: Path) -> None:
    """Create a folder and its parents, and flush the entry of each new one to the disk."""
    if not path.is_dir():
        make_folder(path.parent)
        path.mkdir(exist_ok=True)
        flush_folder(path.parent)


def flush_file(file: IO[Any]) -> None:
    """Flush a file to the disk, before it is renamed."""
    file.flush()
    os.fsync(file.fileno())


def flush_folder(path: Path) -> None:
    folder = os.open(path, os.O_RDONLY)
    try:
        os.fsync(folder)
    finally:
        os.close(folder)


def write_atomically(path: Path, content: bytes | str, *, own: bool = False) -> None:
    """Write a file completely or not at all; it is on the disk when this returns."""
    with replacing(path, own=own) as file:
        file.write(content.encode() if isinstance(content, str) else content)


@contextlib.contextmanager
def replacing(path: Path, *, own: bool = False) -> Iterator[BinaryIO]:
    """Open a temporary file that replaces `path` when it is complete and on the disk. A link stays a link, and its
    target is replaced; but where `own` says that this is a file of a run, a link is refused."""
    with writing(path):
        if own and path.is_symlink():
            raise OSError(errno.ELOOP, LINK)
        place = Path(os.path.realpath(path))
        if place.exists() and not place.is_file():  # renaming would replace a device
            raise FileExistsError(errno.EEXIST, "there is a folder or a device of that name")
        make_folder(place.parent)
        beside = unfinished(place)
        try:
            with new_file(beside) as file:
                yield file
                flush_file(file)
            beside.replace(place)
        finally:
            beside.unlink(missing_ok=True)
        flush_folder(place.parent)


_unfinished: set[Path] = set()  # every temporary name that this process has used


def unfinished(path: Path) -> Path:
    """Return the temporary name of a file or folder that gets its own name when it is complete."""
    beside = path.with_name(f".{path.name}.{os.getpid()}")
    _unfinished.add(beside)
    return beside


def refuse_to_overwrite(folder: Path) -> None:
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        what = "is not empty" if folder.is_dir() else "is a file"
        raise UserError(f"{folder} {what}: name a new or an empty folder.")


@contextlib.contextmanager
def whole_folder(folder: Path) -> Iterator[Path]:
    """A folder to write in, which gets its name when it is complete and on the disk."""
    place = folder.resolve()
    beside = unfinished(place)
    try:
        make_folder(place.parent)
        sweep(place)
        beside.mkdir()
        yield beside
        for written in sorted(beside.rglob("*"), reverse=True):  # also by a library that does not flush
            flush_folder(written)
        flush_folder(beside)
        refuse_to_overwrite(folder)
        beside.replace(place)
        flush_folder(place.parent)
    except OSError as problem:
        raise UserError(f"{folder} cannot be written ({reason(problem)}): fix that, or name another folder.") from None
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def sweep(place: Path) -> None:
    """Remove the remains of processes that were killed while they wrote this folder."""
    for left in place.parent.iterdir():
        process = left.name.removeprefix(f".{place.name}.")
        if process != left.name and process.isdecimal() and not is_alive(int(process)):
            shutil.rmtree(left, ignore_errors=True)


def is_alive(process: int) -> bool:
    try:
        with contextlib.suppress(PermissionError):  # it belongs to another user
            os.kill(process, 0)
    except (ProcessLookupError, OverflowError):
        return False
    return True


def remove_unfinished() -> None:
    """Remove the temporary files and folders of this process, which is about to end."""
    for path in tuple(_unfinished):
        with contextlib.suppress(OSError):
            shutil.rmtree(path) if path.is_dir() else path.unlink()


def new_file(path: Path) -> BinaryIO:
    """Open a file that did not exist: whatever has its name, a link too, is removed and not followed."""
    path.unlink(missing_ok=True)
    return path.open("xb")


def open_growing(path: Path) -> BinaryIO:
    """Open a file of a run to read it and to append to it; it is created if there is none."""
    handle = _open_own(path, os.O_RDWR | os.O_APPEND | os.O_CREAT | os.O_NONBLOCK)
    try:
        found = os.fstat(handle)
        if not stat.S_ISREG(found.st_mode) or found.st_nlink > 1:
            raise OSError(errno.EEXIST, "it is not a regular file, or it has a second name (a hard link)")
        return cast(BinaryIO, os.fdopen(handle, "r+b", buffering=0))
    except BaseException:
        os.close(handle)
        raise


def write_whole(file: BinaryIO, content: bytes) -> None:
    """Write all of this to an unbuffered file, which may take less at a time."""
    rest = memoryview(content)
    while rest:
        rest = rest[os.write(file.fileno(), rest) :]


def append(path: Path, text: str) -> None:
    """Append to a file of a run lines with one write; they start on a new line even if an earlier write was cut off."""
    with writing(path), open_growing(path) as file:
        size = os.fstat(file.fileno()).st_size
        torn = size > 0 and os.pread(file.fileno(), 1, size - 1) != b"\n"
        write_whole(file, ("\n" * torn + text).encode())
        os.fsync(file.fileno())

"""User-defined code: a class in a user's file, `my_cells.py:Leaky`, or a whole model, `my_model.py`.

A file is always read from its source, never from a compiled copy, and executed once per process unless it changes. It
becomes a module with a unique name: Python's search path for modules does not change.
"""

from __future__ import annotations

import hashlib
import inspect
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from regard.config import choose, is_place
from regard.interface import UserError

T = TypeVar("T")


def split(place: str) -> tuple[str, str]:
    """Split a place into the file and the name in it."""
    file, _, name = place.rpartition(":")
    if not file or not name:
        file = place.rstrip(":")
        raise UserError(f"{place!r} names a file but no class in it: write {file}:Name with the name of the class.")
    return file, name


def module(file: Path) -> ModuleType:
    """Execute the file as a module."""
    try:
        content = file.read_bytes()
    except OSError as problem:
        raise UserError(f"{file} cannot be read: {problem.strerror}: name another file, or fix that.") from None
    name = f"{file.stem}_{hashlib.sha256(str(file).encode('utf-8', 'surrogateescape') + content).hexdigest()}"
    if name in sys.modules:
        return sys.modules[name]
    made = sys.modules[name] = ModuleType(name)  # where dataclasses and inspect look for it
    made.__file__ = str(file)
    try:
        with blamed(file, f"{file} cannot be imported"):
            exec(compile(content, file, "exec", dont_inherit=True), vars(made))
    except BaseException:
        del sys.modules[name]
        raise
    return made


def part(place: str, kind: type[T]) -> type[T]:
    """Return the class at this place, a subclass of `kind`."""
    path, name = split(place)
    file = Path(path)
    there = vars(module(file))
    known = {
        each: value
        for each, value in there.items()
        if inspect.isclass(value) and issubclass(value, kind) and value is not kind
    }
    if name in there and name not in known:
        rest = f"there {'is' if len(known) == 1 else 'are'} {', '.join(known)}" if known else "there is none"
        raise UserError(f"{name} in {file} is not a subclass of {kind.__name__}: {rest} in that file.")
    return choose(known, name, f"In {file}, the {kind.__name__}")


def title(name: str) -> str:
    """Return a model's name as it is shown: for a file, its name without folders."""
    return Path(name).stem if is_place(name) else name


@contextmanager
def blamed(file: Path, what: str) -> Iterator[None]:
    """Turn an exception in user code into one sentence with the line of the file."""
    try:
        yield
    except (KeyboardInterrupt, UserError):
        raise
    except BaseException as problem:  # SystemExit too: a user's file must not end the command
        raise UserError(f"{what}: {blame(problem, file)}.") from problem


def blame(problem: BaseException, file: Path) -> str:
    """Describe an exception and the line of the file that raised it."""
    numbers: list[int | None]
    if isinstance(problem, SyntaxError) and problem.filename == str(file):
        numbers, words = [problem.lineno], problem.msg
    else:
        every = traceback.extract_tb(problem.__traceback__)
        numbers, words = [frame.lineno for frame in every if frame.filename == str(file)], str(problem)
    where = f"line {numbers[-1]}: " if numbers else ""
    return f"{where}{type(problem).__name__}: {words}".partition("\n")[0].rstrip(".: ")

"""A file of one's own: a class in it by place, `my_cells.py:Leaky`, or a whole model by its path, `my_model.py`.

A file is read as it is now, never from a compiled copy, and run once in a process unless it changes. It is a module
under a name of its own: nothing is added to where Python looks for modules.
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
    """The file, and the name in it."""
    file, _, name = place.rpartition(":")
    if not file or not name:
        file = place.rstrip(":")
        raise UserError(f"{place!r} names a file and no class in it: write {file}:Name, as the class is called.")
    return file, name


def module(file: Path) -> ModuleType:
    """The file as a module."""
    try:
        content = file.read_bytes()
    except OSError as problem:
        raise UserError(f"{file} cannot be read: {problem.strerror}.") from None
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
    """The class at this place, which is one of its kind."""
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
        raise UserError(f"{name} in {file} is not a class made from {kind.__name__}: {rest} in that file.")
    return choose(known, name, f"In {file}, the {kind.__name__}")


def title(name: str) -> str:
    """A model's name as it is shown: of a file its own name, without the folders before it."""
    return Path(name).stem if is_place(name) else name


@contextmanager
def blamed(file: Path, what: str) -> Iterator[None]:
    """What goes wrong in here is a sentence: what cannot be done, and because of which line of the file."""
    try:
        yield
    except (KeyboardInterrupt, UserError):
        raise
    except BaseException as problem:  # SystemExit too: a file that leaves does not end the command
        raise UserError(f"{what}: {blame(problem, file)}.") from problem


def blame(problem: BaseException, file: Path) -> str:
    """What went wrong, and in which line of the file."""
    numbers: list[int | None]
    if isinstance(problem, SyntaxError) and problem.filename == str(file):
        numbers, words = [problem.lineno], problem.msg
    else:
        every = traceback.extract_tb(problem.__traceback__)
        numbers, words = [frame.lineno for frame in every if frame.filename == str(file)], str(problem)
    where = f"line {numbers[-1]}: " if numbers else ""
    return f"{where}{type(problem).__name__}: {words}".partition("\n")[0].rstrip(".: ")

"""User-defined code: a class in a user's file, `my_cells.py:Leaky`, or a whole model, `my_model.py`.

A file is always read from its source, never from a compiled copy, and executed once per process unless it changes. It
becomes a module with a unique name: Python's search path for modules does not change.

Only code that the person trusts is executed: what a recipe or setting of their own names, and what they have trained
with, whose hashes are kept outside of every run, in a file `trusted` in the user's configuration folder. A run that
somebody sends can name any file, and can hold any hash, so neither counts.
"""

from __future__ import annotations

import hashlib
import inspect
import json
import os
import re
import sys
import traceback
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TypeVar

from regard.config import UserError, choose, is_place
from regard.data.files import append, make_folder, open_regular, reason, writing

T = TypeVar("T")
MOST = 8 << 20  # bytes of a user's file, and of the file of trusted hashes
SHOWN = 60  # characters of a file's first line in an error
HASH = re.compile(r"^[0-9a-f]{64}(?= )", re.MULTILINE)
_trusted: set[str] = set()  # hashes of what the person has named in this process


def split(place: str) -> tuple[str, str]:
    """Split a place into the file and the name in it."""
    file, _, name = place.rpartition(":")
    if not file or not name:
        file = place.rstrip(":")
        raise UserError(f"{place!r} names a file but no class in it: write {file}:Name with the name of the class.")
    return file, name


def trusted_file() -> Path:
    """Return the place of the file of trusted hashes: one on each line, and the path that it was found at."""
    return Path(os.environ.get("XDG_CONFIG_HOME") or os.path.expanduser("~/.config")) / "regard" / "trusted"


def trust(file: Path) -> None:
    """Trust what is in the file now, in this process, since the person named it."""
    _trusted.add(_hash(_content(file)))


def remember(code: Mapping[str, str]) -> str:
    """Keep the hashes of files that the person trains with; return a remark where that is not possible."""
    known = _remembered()
    lines = [f"{digest}  {json.dumps(file)}\n" for file, digest in code.items() if digest not in known]
    try:
        if lines:
            place = Path(os.path.realpath(trusted_file()))
            with writing(place):
                make_folder(place.parent)
            append(place, "".join(lines))
    except UserError as problem:
        return f"Other commands will need --trust-code for {', '.join(code)}, because {problem}"
    return ""


def _remembered() -> set[str]:
    try:
        with open_regular(trusted_file()) as file:
            return set(HASH.findall(file.read(MOST).decode("ascii", "replace")))
    except OSError:
        return set()


def refuse_unknown(file: Path, content: bytes | None = None) -> None:
    """Refuse code that the person has neither named nor trained with."""
    content = _content(file) if content is None else content
    if _hash(content) not in _trusted | _remembered():
        path, first = map(_printable, (str(file), content[: 4 * SHOWN].decode("utf-8", "replace").partition("\n")[0]))
        raise UserError(
            f"The recipe of a run names code that you have not trained with, {path}, which begins with "
            f"{first[:SHOWN]!r}: read it, and if you trust it give --trust-code (trust_code=True in Python)."
        )


def _printable(text: str) -> str:
    return "".join(character for character in text if character.isprintable())


def _content(file: Path) -> bytes:
    try:
        with open_regular(file) as opened:
            content = opened.read(MOST + 1)
    except OSError as problem:
        raise UserError(f"{file} cannot be read: {reason(problem)}: name another file, or fix that.") from None
    if len(content) > MOST:
        raise UserError(f"{file} has more than {MOST / 1e6:.0f} MB: name a file of Python code.")
    return content


def _hash(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def module(file: Path) -> ModuleType:
    """Execute the file as a module, if these very bytes are trusted."""
    content = _content(file)
    refuse_unknown(file, content)
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

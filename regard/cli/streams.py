"""Standard input, output and error: any of them may be closed, and whoever reads the output may stop reading."""

from __future__ import annotations

import errno
import io
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from regard.config import UserError
from regard.data.files import reason

SHOWN = "backslashreplace"  # a terminal may lack a character, and a file name may not be UTF-8
UNREAD = 128 + signal.SIGPIPE  # the exit code of a command whose output nobody reads to its end


class Screen(io.FileIO):
    """Standard output or standard error, which is replaced by /dev/null when it cannot be written any more."""

    needed = True  # whether a command ends when its standard output cannot be written

    def write(self, data: Any) -> int | None:  # type: ignore[override]
        try:
            return super().write(data)
        except OSError as problem:
            nowhere = os.open(os.devnull, os.O_WRONLY)
            os.dup2(nowhere, self.fileno(), inheritable=True)
            os.close(nowhere)
            if self.fileno() == 1 and Screen.needed:
                if problem.errno == errno.EPIPE:
                    raise SystemExit(UNREAD) from None
                raise UserError(f"Standard output cannot be written: {reason(problem)}; send it elsewhere.") from None
            return memoryview(data).nbytes


@contextmanager
def standard_streams() -> Iterator[None]:
    """Within this block, standard input, output and error can be used, whether they are open or not."""
    before = sys.stdin, sys.stdout, sys.stderr
    Screen.needed = True
    while (spare := os.open(os.devnull, os.O_RDWR)) <= 2:  # no file that is opened later may take their numbers
        pass
    os.close(spare)
    sys.stdin = sys.stdin or open(os.devnull)  # noqa: SIM115 (it stays open)
    sys.stdout, sys.stderr = screen(sys.stdout, sys.__stdout__), screen(sys.stderr, sys.__stderr__)
    try:
        yield
    finally:
        sys.stdin, sys.stdout, sys.stderr = before


def screen(stream: TextIO | None, own: TextIO | None) -> TextIO:
    """Return what replaces a standard stream; one that is not Python's own, as in a notebook, stays."""
    if stream is None:
        return open(os.devnull, "w")
    if not isinstance(stream, io.TextIOWrapper):
        return stream
    if stream is not own:
        stream.reconfigure(errors=SHOWN)
        return stream
    stream.flush()
    return io.TextIOWrapper(
        io.BufferedWriter(Screen(stream.fileno(), "w", closefd=False)),
        encoding=stream.encoding,
        errors=SHOWN,
        line_buffering=stream.line_buffering,
    )


def go_on_unread() -> None:
    """From here on, the command continues when its output cannot be written any more."""
    Screen.needed = False

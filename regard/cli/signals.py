"""Signals: SIGINT (Ctrl-C) and SIGTERM end a command in every phase, whatever the main thread is doing.

A thread waits for them, since the main thread may be inside a library for long and handle them only later. It removes
the temporary files and ends the process: what is on the disk is complete at every moment. Only training is different:
its first signal asks it to finish the step and save, and the second ends the process.
"""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from regard.data.files import remove_unfinished

STOPPING = (signal.SIGINT, signal.SIGTERM)
INTERRUPTED = "Interrupted."


class Listener:
    """Ends the process at a signal."""

    def __init__(self) -> None:
        self.sentence = INTERRUPTED  # printed when the process ends
        self.asks = False  # whether the first signal is left to a handler in the main thread
        self.number = 0  # the signal that came; of two, which may come in any order, SIGTERM

    def listen(self, reader: int) -> None:
        while number := os.read(reader, 1)[0]:
            asked, self.number = bool(self.number), max(self.number, number)
            if asked or not self.asks:
                leave(128 + self.number, self.sentence)


_listener = Listener()


def leave(code: int, sentence: str) -> NoReturn:
    """End the process at once with this exit code; 128 and a signal's number is that of a process that it ended."""
    try:
        remove_unfinished()
        shown = "\r\x1b[2K\x1b[?25h" if sys.stderr.isatty() else ""  # clears the line and shows the cursor
        os.write(sys.stderr.fileno(), f"{shown}{sentence}\n".encode())
    finally:  # also where nobody reads standard error any more
        os._exit(code)


def exit_code() -> int:
    """Return the exit code for a KeyboardInterrupt."""
    return 128 + (_listener.number or signal.SIGINT)


@contextmanager
def ending_the_process() -> Iterator[None]:
    """Within this block, SIGINT and SIGTERM end the process."""
    reader, writer = os.pipe()
    os.set_blocking(writer, False)  # required by the signal module
    _listener.number, _listener.asks = 0, False
    thread = threading.Thread(target=_listener.listen, args=(reader,), daemon=True)
    thread.start()
    before = signal.set_wakeup_fd(writer, warn_on_full_buffer=False)
    try:
        with handled_by(lambda *_: None):
            yield
    finally:
        signal.set_wakeup_fd(before)
        os.write(writer, b"\0")  # no signal has this number
        thread.join()
        os.close(reader)
        os.close(writer)


@contextmanager
def saying(sentence: str) -> Iterator[None]:
    """Within this block, a signal that ends the process prints this sentence."""
    before, _listener.sentence = _listener.sentence, sentence
    try:
        yield
    finally:
        _listener.sentence = before


@contextmanager
def asked_first(handler: Callable[[int, Any], Any], sentence: str) -> Iterator[None]:
    """Within this block, the first signal calls this handler in the main thread, and the second ends the process."""
    asked: list[int] = []

    def ask(number: int, frame: Any) -> None:
        asked.append(number)
        handler(number, frame)

    with saying(sentence), handled_by(ask):
        _listener.asks = True
        try:
            yield
        finally:
            _listener.asks = bool(asked)  # the thread may be about to read the signal that was handled


@contextmanager
def handled_by(handler: Callable[[int, Any], Any]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for number in STOPPING:
            stack.callback(signal.signal, number, signal.signal(number, handler))
        yield

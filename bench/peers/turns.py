"""What the contenders of bench/decoding.py share. It needs nothing but Python.

A contender loads, writes a line of JSON and waits. Each line on its standard input is a request: {"inputs": token ids
of each row, "length": tokens to write, "beam": 1 for greedy decoding, "sample": true or false}. It decodes, again and
again if that is short, and writes {"seconds": of one decoding, "outputs": token ids of each row}.
"""

from __future__ import annotations

import ctypes
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Sequence

Rows = Sequence[Sequence[int]]
LEAST = 0.5  # seconds of a turn
PAD, BOS, EOS = range(3)  # the special ids of regard; the fourth is <unk>


def serve(decode: Callable[..., Rows]) -> None:
    """Answer requests until nobody is there any more: decode(inputs, length=…, beam=…, sample=…)."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints is kept out of the conversation
    print(json.dumps({}), file=channel, flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        inputs, times, began = asked.pop("inputs"), 0, time.perf_counter()
        while (seconds := time.perf_counter() - began) < LEAST:
            outputs, times = decode(inputs, **asked), times + 1
        print(json.dumps({"seconds": seconds / times, "outputs": outputs}), file=channel, flush=True)


def tune_allocator() -> None:
    """As regard.machine.tune_allocator does it, for processes that do not have regard."""
    if platform.libc_ver()[0] == "glibc":
        libc = ctypes.CDLL(None)
        for name, value in ((-3, 1 << 30), (-1, (1 << 31) - 1), (-2, 1 << 26)):  # mmap, trim, top pad
            libc.mallopt(name, value)

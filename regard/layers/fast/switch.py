"""Whether fused kernels may run: they compute a whole layer in one call, with the same result as its plain form.

They are faster, but opaque: code that counts operations one by one cannot see theirs, and a graph that is exported for
another program is made of the plain form.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

import torch

T = TypeVar("T")

_plain: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def held(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Give the variable this value inside the block."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def plain() -> AbstractContextManager[None]:
    """Use the plain form of every layer inside the block."""
    return held(_plain, True)


def kernels_run() -> bool:
    return not torch.compiler.is_compiling() and not _plain.get()

"""Whether fused kernels may run: they compute a whole layer at once and give the same as its plain form.

They are faster, but opaque: whoever counts operations one by one sees none of theirs.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from typing import TypeVar

T = TypeVar("T")

_plain: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def held(variable: ContextVar[T], value: T) -> Iterator[None]:
    """Within, the variable has this value."""
    token = variable.set(value)
    try:
        yield
    finally:
        variable.reset(token)


def plain() -> AbstractContextManager[None]:
    """Within, every layer takes its plain form."""
    return held(_plain, True)


def kernels_run() -> bool:
    return not _plain.get()

"""Whether kernels may run: passes that do a whole layer at once, beside the plain form that they give the same as.

They are faster, and closed: whoever counts operations one by one counts nothing inside them.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar

_plain: ContextVar[bool] = ContextVar("plain", default=False)


@contextmanager
def plain() -> Iterator[None]:
    """Within, every layer takes its plain form."""
    token = _plain.set(True)
    try:
        yield
    finally:
        _plain.reset(token)


def kernels_run() -> bool:
    return not _plain.get()

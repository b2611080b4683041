"""Whether fused kernels may run: they compute a whole layer at once and give the same as its plain form.

They are faster, but opaque: whoever counts operations one by one sees none of theirs.
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

"""Train, use, compare and look inside every sequence model, on the machine you have.

>>> import regard
>>> m = regard.load("runs/demo")
>>> m.predict("They are watching .").text
>>> print(m.look("They are watching ."))
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# Torch's threads wait for each other by spinning, for so long that on a machine that does anything else besides most of
# its speed is lost; a shorter spin costs nothing where the cores are free. It must be set before torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")


if TYPE_CHECKING:
    from regard.interface import UserError
    from regard.layers.cells import Cell
    from regard.loading import load, read_recipe
    from regard.predict.decoding import Decoding, Prediction
    from regard.run import Run
    from regard.train.session import Session

__all__ = ["Cell", "Decoding", "Prediction", "Run", "Session", "UserError", "load", "read_recipe"]

_HOMES = {
    "Cell": "regard.layers.cells",
    "Decoding": "regard.predict.decoding",
    "Prediction": "regard.predict.decoding",
    "Run": "regard.run",
    "Session": "regard.train.session",
    "UserError": "regard.interface",
    "load": "regard.loading",
    "read_recipe": "regard.loading",
}


def __getattr__(name: str) -> Any:
    """Each name is imported when it is first used, so that `regard --help` need not wait for torch."""
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    from importlib import import_module

    return vars(import_module(_HOMES[name]))[name]

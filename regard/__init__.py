"""Train, use, compare and look inside every sequence model, on the machine you have.

>>> import regard
>>> run = regard.train({"task": "translation"}, "runs/toy", data=pairs)     # or regard.load("runs/demo")
>>> run.predict("They are watching .").text
>>> run.look("They are watching .")                                         # a picture in a notebook
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

# Torch's threads wait for each other by spinning, for so long that on a busy machine most of the speed is lost; a
# shorter spin costs nothing where the cores are free. It must be set before torch is imported.
os.environ.setdefault("GOMP_SPINCOUNT", "10000")
# Processes that train together must look for weights that got no gradient, and PyTorch warns where there are none. It
# reads this when it is imported, too.
if "RANK" in os.environ:
    os.environ.setdefault("TORCH_CPP_LOG_LEVEL", "ERROR")

if TYPE_CHECKING:
    from regard.compare.api import Comparison, compare
    from regard.interface import Progress, UserError
    from regard.layers.cells import Cell
    from regard.loading import load, read_recipe
    from regard.predict.decoding import Decoding, Prediction
    from regard.recipe import Recipe
    from regard.run import Run
    from regard.sweep.api import Sweep, sweep
    from regard.train.api import train, training
    from regard.train.session import Session

__all__ = [
    "Cell",
    "Comparison",
    "Decoding",
    "Prediction",
    "Progress",
    "Recipe",
    "Run",
    "Session",
    "Sweep",
    "UserError",
    "compare",
    "load",
    "read_recipe",
    "sweep",
    "train",
    "training",
]

_HOMES = {
    "Cell": "regard.layers.cells",
    "Comparison": "regard.compare.api",
    "Decoding": "regard.predict.decoding",
    "Prediction": "regard.predict.decoding",
    "Progress": "regard.interface",
    "Recipe": "regard.recipe",
    "Run": "regard.run",
    "Session": "regard.train.session",
    "Sweep": "regard.sweep.api",
    "UserError": "regard.interface",
    "compare": "regard.compare.api",
    "load": "regard.loading",
    "read_recipe": "regard.loading",
    "sweep": "regard.sweep.api",
    "train": "regard.train.api",
    "training": "regard.train.api",
}


def __dir__() -> list[str]:
    return sorted([*_HOMES, "__version__"])


def __getattr__(name: str) -> Any:
    """Each name is imported when it is first used, so that `regard --help` need not wait for torch."""
    from importlib import import_module, metadata

    if name == "__version__":
        return metadata.version("regard")
    if name not in _HOMES:
        raise AttributeError(f"module 'regard' has no attribute {name!r}")
    return vars(import_module(_HOMES[name]))[name]

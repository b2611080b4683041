"""train: make a run from a recipe. `regard.train(…)` trains from Python; its parts are modules of this package."""

import sys
from types import ModuleType
from typing import Any


class _Train(ModuleType):
    """The package can be called as the function: regard.train(…)."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        from regard.train.api import train

        return train(*arguments, **named)


sys.modules[__name__].__class__ = _Train

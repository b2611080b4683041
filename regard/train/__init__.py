"""train: from a recipe to a run. `regard.train(…)` trains from Python; its parts are modules of this package."""

import sys
from types import ModuleType
from typing import Any


class _Train(ModuleType):
    """The package is also the function: a person who writes regard.train(…) need not know that it is a package."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        from regard.train.api import train

        return train(*arguments, **named)


sys.modules[__name__].__class__ = _Train

"""compare: train and measure models under equal conditions. `regard.compare(…)` compares runs from Python."""

import sys
from types import ModuleType
from typing import Any


class _Compare(ModuleType):
    """The package is also the function, as regard.train is."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        from regard.compare.api import compare

        return compare(*arguments, **named)


sys.modules[__name__].__class__ = _Compare

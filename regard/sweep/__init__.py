"""sweep: search over settings. `regard.sweep(…)` searches from Python."""

import sys
from types import ModuleType
from typing import Any


class _Sweep(ModuleType):
    """The package is also the function, as regard.train is."""

    def __call__(self, *arguments: Any, **named: Any) -> Any:
        from regard.sweep.api import sweep

        return sweep(*arguments, **named)


sys.modules[__name__].__class__ = _Sweep

"""The terminal: words that come from data, recipes, runs or file names are shown as plain text.

They are never markup, and characters that would control the terminal or reorder the line are written as JSON escapes.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

# C0 and C1 controls but for tabs and line ends, the marks that embed, override and isolate directions, line separators
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069]")


def harmless(text: str) -> str:
    """Return text that a terminal shows and does not obey."""
    return CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class Terminal(Console):
    """A console that interprets nothing in the texts that it is given."""

    def __init__(self, *, stderr: bool = False) -> None:
        super().__init__(stderr=stderr, highlight=False, soft_wrap=True, markup=False, emoji=False)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=harmless(segment.text))

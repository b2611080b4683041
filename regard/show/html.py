"""markup: what the HTML files share: tables, boxes that scroll, hashes for a policy, JSON that stays inside."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from html import escape


class Html(str):
    """Markup already: it is not escaped again."""


def safe(text: str) -> str:
    return text if isinstance(text, Html) else escape(text)


def table(rows: Sequence[Mapping[str, str]], *, wordy: Collection[str] = ()) -> str:
    """A column per key of the first row; those that are `wordy` hold sentences."""
    return grid(list(rows[0]), [list(row.values()) for row in rows], wordy=wordy)


def grid(names: Sequence[str], rows: Sequence[Sequence[str]], *, wordy: Collection[str] = ()) -> str:
    """A table whose columns may share a name."""
    kinds = [' class="wordy"' if name in wordy else "" for name in names]
    head = "".join(f'<th scope="col"{kind}>{safe(name)}</th>' for name, kind in zip(names, kinds, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{kind}>{safe(cell)}</td>' for cell, kind in zip(row, kinds, strict=True))}</tr>\n"
        for row in rows
    )
    return f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>"


def scroller(inner: str, kind: str = "") -> str:
    """A box that scrolls sideways, by keys too, so that the page need not."""
    return f'<div class="{f"scroll {kind}".strip()}" tabindex="0">{inner}</div>'


def numbers(inner: str) -> str:
    """A table behind a chart."""
    return f"<details><summary>The numbers</summary>{scroller(inner)}</details>"


def quiet(text: str) -> str:
    return f'<p class="quiet">{safe(text)}</p>'


def policy_hash(text: str) -> str:
    """A script or style, as a Content-Security-Policy names it."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def inert_json(value: object) -> str:
    """JSON that cannot end the element it stands in."""
    return json.dumps(value).replace("<", "\\u003c")

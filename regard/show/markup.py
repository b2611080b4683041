"""Shared parts of the HTML pages: templates, tables, scrolling boxes and embedded JSON."""

from __future__ import annotations

import json
import re
from base64 import b64encode
from collections.abc import Collection, Mapping, Sequence
from hashlib import sha256
from html import escape
from importlib.resources import files

Rows = Sequence[Mapping[str, str]]  # a table: a column per key of the first row


class Html(str):
    """Text that is already markup and is not escaped again."""


def safe(text: str) -> str:
    return text if isinstance(text, Html) else escape(text)


IMPORT = re.compile(r'import \{ [\w, ]+ \} from "\./(\w+\.js)";|@import "(\w+\.css)";')
EXPORT = re.compile(r"^export (?=(?:const|class|function|async function) \w)", re.MULTILINE)
DECLARED = re.compile(r"^(?:const|let|class|function|async function) (\w+)", re.MULTILINE)
LEFT_OVER = re.compile(r"^\s*(?:@?import|export)\b.*|^.*\bimport\s*\(.*", re.MULTILINE)


def fill_template(name: str, **parts: str) -> str:
    """Fill a template of this folder: put the files that it imports into it, then replace each «part», and «script»
    and «style» by their hashes for the Content-Security-Policy; in one pass, so that inserted text is not replaced
    again."""
    template = with_imports(name)
    for tag, opening in (("script", "<script>"), ("script", '<script type="module">'), ("style", "<style>")):
        if opening in template:
            parts[tag] = policy_hash(template.split(opening)[1].split(f"</{tag}>")[0])
    return re.sub("«(\\w+)»", lambda found: parts[found[1]], template)


def with_imports(name: str) -> str:
    """Return a template with each import line replaced by the file that it names, once and in dependency order.

    The modules of a page then share one script and its names, so what would behave otherwise there is refused."""
    text = EXPORT.sub("", _included(name, set(), ()))
    if left := LEFT_OVER.search(text):
        raise ValueError(f"{name} cannot include this line: {left[0].strip()!r}.")
    declared = DECLARED.findall(text)
    if twice := {each for each in declared if declared.count(each) > 1}:
        raise ValueError(f"modules of {name} declare the same name: {', '.join(sorted(twice))}.")
    return text


def _included(name: str, done: set[str], within: tuple[str, ...]) -> str:
    if name in within:
        raise ValueError(f"modules import one another in a circle: {' → '.join((*within, name))}.")
    lines = []
    text = files("regard.show").joinpath(name).read_text(encoding="utf-8")
    if within and (found := re.search("</s(?:cript|tyle)|<!--", text)):
        raise ValueError(f"{name} has {found[0]!r}, which ends the element that it is put into.")
    for line in text.splitlines():
        other = next(filter(None, found.groups())) if (found := IMPORT.fullmatch(line)) else None
        if other is None:
            lines.append(line)
        elif other not in done:
            lines.append(_included(other, done, (*within, name)))
            done.add(other)
    return "\n".join(lines)


def policy_hash(text: str) -> str:
    """Return the hash of a script or style for a Content-Security-Policy."""
    return f"'sha256-{b64encode(sha256(text.encode()).digest()).decode()}'"


def notebook_cell(document: str, title: str, height: int) -> str:
    """A page for a notebook's cell, in a frame, so that neither can touch the other."""
    return (
        f'<iframe title="{escape(title)}" width="100%" height="{height}" style="border: 0" '
        f'sandbox="allow-scripts allow-downloads" srcdoc="{escape(document)}"></iframe>'
    )


def inert_json(value: object) -> str:
    """Return JSON that cannot close the element around it."""
    return json.dumps(value).replace("<", "\\u003c")


def html_table(rows: Rows, *, wordy: Collection[str] = ()) -> str:
    """Return a table in a scrolling box, "" if there are no rows; `wordy` columns hold text."""
    return html_grid(list(rows[0]), [list(row.values()) for row in rows], wordy=wordy) if rows else ""


def html_grid(names: Sequence[str], rows: Sequence[Sequence[str]], *, wordy: Collection[str] = ()) -> str:
    """Return a table whose columns may share a name."""
    marks = [' class="wordy"' if name in wordy else "" for name in names]
    head = "".join(f'<th scope="col"{mark}>{safe(name)}</th>' for name, mark in zip(names, marks, strict=True))
    body = "".join(
        f"<tr>{''.join(f'<td{mark}>{safe(cell)}</td>' for cell, mark in zip(row, marks, strict=True))}</tr>\n"
        for row in rows
    )
    return scroller(f"<table>\n<thead><tr>{head}</tr></thead>\n<tbody>\n{body}</tbody></table>")


def scroller(inner: str, kind: str = "") -> str:
    """Return a box that scrolls sideways, also by keyboard."""
    return f'<div class="{f"scroll {kind}".strip()}" tabindex="0">{inner}</div>'


def numbers_behind(table: str) -> str:
    """Return the table of a chart, initially closed."""
    return f"<details><summary>The numbers</summary>{table}</details>"


def quiet(text: str) -> str:
    return f'<p class="quiet">{safe(text)}</p>'

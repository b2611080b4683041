"""Line charts as one HTML file that opens anywhere, with the numbers behind each of them.

No script, nothing fetched; light or dark as the reader's system is.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

from regard.show.line_chart import CHART_STYLE, LineChart, line_chart
from regard.show.markup import Rows, fill_template, html_grid, html_table, numbers_behind, policy_hash, quiet, scroller
from regard.show.numbers import scientific


class Section(NamedTuple):
    """A part of a page; it is left out if it has neither charts nor rows."""

    title: str
    about: str
    charts: Sequence[LineChart]
    rows: Rows  # whose first two columns are words


def chart_page(sections: Sequence[Section], *, title: str, about: str, foot: str) -> str:
    return fill_template(
        "chart_page.html",
        chart_style=policy_hash(CHART_STYLE),
        title=escape(title),
        about=escape(about),
        sections="\n".join(_section(section) for section in sections if section.charts or section.rows),
        foot=escape(foot),
    )


def _section(section: Section) -> str:
    parts = [f"<h2>{escape(section.title)}</h2>", quiet(section.about), *map(_figure, section.charts)]
    return "\n".join([*parts, scroller(html_table(section.rows), "named")])


def _figure(chart: LineChart) -> str:
    names = [chart.counted, *(curve.name for curve in chart.curves)]
    columns = zip(*(curve.values for curve in chart.curves), strict=True)
    rows = [[str(at), *map(scientific, values)] for at, values in enumerate(columns, start=chart.first)]
    return f"<figure>{scroller(line_chart(chart))}{numbers_behind(html_grid(names, rows))}</figure>"

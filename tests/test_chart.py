"""Laws of the chart: every value stands where it should, and the picture is well-formed whatever the names are."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from regard.chart import Line, line_chart

SVG = "{http://www.w3.org/2000/svg}"
TWO = [
    Line("up & <away>", [10.0, 20.0, 30.0], [9.0, 19.0, 29.0], [11.0, 21.0, 37.0]),
    Line("down", [30.0, 20.0, 29.5], [30.0, 20.0, 29.5], [30.0, 20.0, 29.5], colour=1, dash=1),
]


def drawn(lines: list[Line]) -> ElementTree.Element:
    names = ["≤ 10", "to 20", "over 20"][: len(lines[0].means)]
    return ElementTree.fromstring(line_chart(lines, categories=names, title="a<b", across="words", up="BLEU"))


def test_heights_are_proportional_to_values():
    marks = [(circle[0].text or "", float(circle.attrib["cy"])) for circle in drawn(TWO).iter(f"{SVG}circle")]
    values = [mean for line in TWO for mean in line.means]
    assert len(marks) == len(values)
    (low, high) = (marks[0][1], marks[2][1])  # of 10 and 30
    for (label, height), value in zip(marks, values, strict=True):
        assert f": {value:.1f} (" in label
        assert height == pytest.approx(low + (high - low) * (value - 10) / 20, abs=0.2)


def test_names_are_written_as_they_are_and_labels_do_not_touch():
    texts = {text.text: text for text in drawn(TWO).iter(f"{SVG}text")}
    assert {"up & <away>", "down", "a<b", "words", "BLEU", "≤ 10", "to 20", "over 20"} <= texts.keys()
    heights = [float(texts[name].attrib["y"]) for name in ("up & <away>", "down")]
    assert abs(heights[0] - heights[1]) >= 17


def test_nothing_is_above_the_frame_and_one_category_is_enough():
    root = drawn([Line("alone", [0.0], [0.0], [0.0]), Line("other", [99.9], [99.0], [100.0])])
    grid = [float(line.attrib["y1"]) for line in root.iter(f"{SVG}line") if line.attrib.get("class") == "grid"]
    ys = [float(circle.attrib["cy"]) for circle in root.iter(f"{SVG}circle")]
    assert min(grid) <= min(ys) <= max(ys) <= max(grid)

"""Laws of the chart: every value stands where it should, and the picture is well-formed whatever the names are."""

from __future__ import annotations

from xml.etree import ElementTree

import pytest

from regard.show.line_chart import HIGH, Curve, LineChart, line_chart

SVG = "{http://www.w3.org/2000/svg}"
TWO = [
    Curve("up & <away>", [10.0, 20.0, 30.0], least=[9.0, 19.0, 29.0], most=[11.0, 21.0, 37.0]),
    Curve("down", [30.0, 20.0, 29.5], 1, 1, least=[30.0, 20.0, 29.5], most=[30.0, 20.0, 29.5]),
]


def drawn(lines: list[Curve]) -> ElementTree.Element:
    names = ["≤ 10", "to 20", "over 20"][: len(lines[0].values)]
    chart = LineChart(curves=lines, categories=names, title="a<b", across="words", up="BLEU")
    return ElementTree.fromstring(line_chart(chart))


def test_heights_are_proportional_to_values():
    marks = [(circle[0].text or "", float(circle.attrib["cy"])) for circle in drawn(TWO).iter(f"{SVG}circle")]
    values = [mean for line in TWO for mean in line.values]
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
    root = drawn([Curve("alone", [0.0], least=[0.0], most=[0.0]), Curve("other", [99.9], least=[99.0], most=[100.0])])
    grid = [float(line.attrib["y1"]) for line in root.iter(f"{SVG}line") if line.attrib.get("class") == "grid"]
    ys = [float(circle.attrib["cy"]) for circle in root.iter(f"{SVG}circle")]
    assert min(grid) <= min(ys) <= max(ys) <= max(grid)


def curves(*values: list[float], **options: object) -> ElementTree.Element:
    some = [Curve(f"curve {number}", each, number) for number, each in enumerate(values)]
    chart = LineChart(curves=some, title="t", across="x", up="y", **options)  # type: ignore[arg-type]
    return ElementTree.fromstring(line_chart(chart))


def points(root: ElementTree.Element) -> list[list[tuple[float, float]]]:
    lines = (line.attrib["points"].split() for line in root.iter(f"{SVG}polyline"))
    return [[tuple(map(float, point.split(","))) for point in line] for line in lines]  # type: ignore[misc]


def test_on_a_logarithmic_scale_a_constant_factor_is_a_straight_line():
    root = curves([0.5**place for place in range(101)], [1e-3] * 101, log=True)
    falling, level = points(root)
    steps = [(b[0] - a[0], b[1] - a[1]) for a, b in zip(falling, falling[1:], strict=False)]
    for step in steps:
        assert step == pytest.approx(steps[0], abs=0.11)  # a tenth of a pixel
    assert len({y for _, y in level}) == 1
    marks = {
        text.text: float(text.attrib["y"]) - 5 for text in root.iter(f"{SVG}text") if text.text and "y" in text.attrib
    }
    powers = {power: marks[f"1e{power}"] for power in range(-100, 9) if f"1e{power}" in marks}
    (low, bottom), (high, top) = min(powers.items()), max(powers.items())
    assert level[0][1] == pytest.approx(bottom + (top - bottom) * (-3 - low) / (high - low), abs=0.2)
    assert {"0", "50", "100"} <= {text.text for text in root.iter(f"{SVG}text")}


def test_what_has_no_place_on_the_scale_leaves_a_gap():
    (first, second) = points(curves([1.0, 0.5, 0.0, float("nan"), 0.1, 0.2], log=True))
    assert (len(first), len(second)) == (2, 2)
    assert points(curves([0.0, 0.0], log=True)) == []
    assert len(points(curves([0.0, 0.5, 1.0], top=1.0, first=1))[0]) == 3


def test_labels_of_curves_that_end_together_stay_in_the_picture():
    root = curves(*([0.001, 0.001 * (1 + number)] for number in range(6)), top=1.0)
    heights = sorted(float(t.attrib["y"]) for t in root.iter(f"{SVG}text") if (t.text or "").startswith("curve"))
    assert heights[-1] < HIGH and all(b - a > 16.9 for a, b in zip(heights, heights[1:], strict=False))

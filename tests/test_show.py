"""Laws of what is drawn: show/ knows only numbers and words, no two parts of it share a name, and a picture's heat map
says which patch was looked at, with and without colour."""

from __future__ import annotations

import ast
import io
import sys
import zlib
from base64 import b64decode, b64encode
from collections import Counter
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import chromium, visit
from hypothesis import given
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Console

from regard.show.colours import SHADES, shade
from regard.show.line_chart import decades
from regard.show.picture_map import ACCENT, STRENGTH, TALLEST, PictureMap, png

FOLDER = Path(__file__).parent.parent / "regard" / "show"
MODULES = {path.name: ast.parse(path.read_text(encoding="utf-8")) for path in FOLDER.glob("*.py")}
ALLOWED = {"numpy", "rich", "plotly", *sys.stdlib_module_names}
SVG = "{http://www.w3.org/2000/svg}"


@pytest.mark.parametrize("name", MODULES)
def test_it_imports_numbers_and_words_only(name):
    for node in ast.walk(MODULES[name]):
        if isinstance(node, ast.Import | ast.ImportFrom):
            modules = [node.module or ""] if isinstance(node, ast.ImportFrom) else [each.name for each in node.names]
            for module in modules:
                assert module.startswith("regard.show") or module.split(".")[0] in ALLOWED, module


def test_no_two_parts_share_a_public_name():
    names: Counter[str] = Counter()
    for tree in MODULES.values():
        for node in tree.body:
            if isinstance(node, ast.FunctionDef | ast.ClassDef):
                names[node.name] += 1
            elif isinstance(node, ast.Assign | ast.AnnAssign):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names.update(name.id for each in targets for name in ast.walk(each) if isinstance(name, ast.Name))
    assert [name for name, count in names.items() if count > 1 and not name.startswith("_")] == []


@given(st.lists(st.floats(1e-300, 1e300), max_size=5))
def test_a_logarithmic_scale_holds_every_value_in_few_lines(values):
    powers = decades(values)
    assert 2 <= len(powers) <= 9
    assert all(10.0 ** powers[0] * (1 - 1e-9) <= value <= 10.0 ** powers[-1] * (1 + 1e-9) for value in values)


# Pictures


def picture(*shape: int) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, shape, dtype=np.uint8)


def picture_map(pixels: np.ndarray, weights: np.ndarray, kind: str = "attention") -> PictureMap:
    return PictureMap(pixels, weights, "cat", kind)


WEIGHTS = np.array([[0.0, 0.01, 0.2], [0.03, 0.12, 0.05]])


def read_png(data: bytes) -> np.ndarray:
    """What we write and no more: one IDAT, no filters."""
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    chunks, at = {}, 8
    while at < len(data):
        size = int.from_bytes(data[at : at + 4], "big")
        name, body = data[at + 4 : at + 8], data[at + 8 : at + 8 + size]
        assert int.from_bytes(data[at + 8 + size : at + 12 + size], "big") == zlib.crc32(name + body)
        chunks[name], at = body, at + 12 + size
    assert list(chunks) == [b"IHDR", b"IDAT", b"IEND"]
    wide, high = (int.from_bytes(chunks[b"IHDR"][place : place + 4], "big") for place in (0, 4))
    lines = np.frombuffer(zlib.decompress(chunks[b"IDAT"]), np.uint8).reshape(high, -1)
    assert not lines[:, 0].any()
    depth, kind = chunks[b"IHDR"][8:10]
    assert depth == 8
    return lines[:, 1:].reshape((high, wide, 3) if kind == 2 else (high, wide))


@pytest.mark.parametrize("shape", [(5, 7), (5, 7, 3), (1, 1)])
def test_a_png_holds_the_pixels(shape):
    assert np.array_equal(read_png(png(picture(*shape))), picture(*shape))


@pytest.mark.parametrize(
    "shape, width", [((8, 12), 80), ((8, 12, 3), 30), ((200, 300, 3), 100), ((2, 30), 60), ((9, 8), 11)]
)
def test_in_the_terminal_every_patch_has_its_shade_and_the_picture_behind_it(shape, width):
    drawn = picture_map(picture(*shape), WEIGHTS).text(width)
    *lines, legend = drawn.plain.split("\n")
    assert legend.startswith("cat: attention, of the largest weight (0.2): · ")
    assert len(lines) <= TALLEST and {cell_len(line) for line in lines} == {len(lines[0])} and len(lines[0]) <= width
    high, wide = len(lines) // 2, len(lines[0]) // 3
    for row, weights in enumerate(WEIGHTS):
        for column, weight in enumerate(weights):
            block = [line[column * wide : (column + 1) * wide] for line in lines[row * high : (row + 1) * high]]
            assert set("".join(block)) == {shade(weight / 0.2)}
    assert {mark for _, mark in SHADES} == set("".join(lines))


def test_in_the_terminal_a_picture_keeps_its_colours_where_nobody_looked():
    pixels = np.zeros((4, 4, 3), np.uint8)
    pixels[:2], pixels[2:] = (10, 200, 30), (50, 60, 70)
    weights = np.array([[0.0, 0.0], [0.0, 0.5]])
    drawn = picture_map(pixels, weights).text(8)
    styles = [str(span.style) for span in drawn.spans]
    assert styles[0] == "rgb(10,200,30) on rgb(10,200,30)"
    tinted = [round(a + (b - a) * STRENGTH) for a, b in zip((50, 60, 70), ACCENT, strict=True)]
    assert styles[-2] == "rgb({},{},{}) on rgb(50,60,70)".format(*tinted)
    written = io.StringIO()
    Console(file=written, force_terminal=True, color_system="truecolor", width=80).print(drawn)
    assert "48;2;10;200;30" in written.getvalue()


def test_the_svg_holds_the_picture_and_a_pane_for_each_patch():
    pixels = picture(8, 12, 3)
    root = ElementTree.fromstring(picture_map(pixels, WEIGHTS, "<b> & attention").svg(120))
    (image,) = root.iter(f"{SVG}image")
    assert np.array_equal(read_png(b64decode(image.attrib["href"].partition(",")[2])), pixels)
    panes = list(root.find(f"{SVG}g") or ())
    opacities = np.array([float(pane.attrib["fill-opacity"]) for pane in panes]).reshape(2, 3)
    assert np.allclose(opacities, STRENGTH * WEIGHTS / 0.2, atol=1e-3)
    places = np.array([[float(pane.attrib[name]) for name in ("x", "y", "width", "height")] for pane in panes])
    assert np.allclose(places, [[40 * c, 40 * r, 40, 40] for r in range(2) for c in range(3)])
    assert panes[2][0].text == "row 1, column 3: 0.2"
    assert [text.text for text in root.iter(f"{SVG}text")] == ["cat: <b> & attention; full colour at 0.2"]


def test_a_browser_shows_the_picture_under_its_panes(tmp_path):
    pixels = np.full((4, 4), 255, np.uint8)
    pixels[:, 2:] = 0
    file = tmp_path / "picture.svg"
    file.write_text(picture_map(pixels, np.array([[0.0, 0.0], [1.0, 1.0]])).svg(40), encoding="utf-8")
    with chromium() as browser, visit(browser, file, width=40, height=68) as seen:
        shot = b64encode(seen.page.screenshot()).decode()
        seen.page.goto("about:blank")
        seen.page.set_content(f'<img src="data:image/png;base64,{shot}">')
        colours = seen.run(
            """async () => { const image = document.querySelector("img"); await image.decode();
              const canvas = document.createElement("canvas"), context = canvas.getContext("2d");
              context.drawImage(image, 0, 0);
              const colour = ([x, y]) => [...context.getImageData(x, y, 1, 1).data];
              return [[5, 5], [35, 5], [5, 35], [35, 35]].map(colour); }"""
        )
    white, black = (255, 255, 255), (0, 0, 0)
    tinted = [[round(a + (b - a) * STRENGTH) for a, b in zip(ground, ACCENT, strict=True)] for ground in (white, black)]
    assert np.abs(np.array(colours)[:, :3] - [white, black, *tinted]).max() <= 2


@pytest.mark.parametrize(
    "pixels, weights, said",
    [
        (picture(4, 4).astype(float), WEIGHTS, "pixels are float64"),
        (picture(4, 4, 4), WEIGHTS, "pixels are uint8 (4, 4, 4)"),
        (picture(4), WEIGHTS, "pixels are uint8 (4,)"),
        (picture(4, 4), WEIGHTS[0], "weights are (3,)"),
        (picture(4, 4), -WEIGHTS, "not negative"),
        (picture(4, 4), WEIGHTS * np.nan, "not negative"),
    ],
)
def test_what_is_no_picture_or_no_map_is_refused(pixels, weights, said):
    with pytest.raises(ValueError) as problem:
        picture_map(pixels, weights)
    assert said in str(problem.value)


def test_nothing_looked_at_is_a_plain_picture():
    assert "·" in picture_map(picture(4, 4), np.zeros((2, 2))).text(80).plain
    assert 'fill-opacity="0.000"' in picture_map(picture(4, 4), np.zeros((2, 2))).svg()

"""The page in a real browser: it asks for nothing, draws the matrix that was chosen, and says what is pointed at."""

from __future__ import annotations

import struct
import subprocess
import sys
from collections.abc import Callable, Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import Visit, chromium, visit
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray
from playwright.sync_api import Browser

from regard.show.attention_page import Sentence, View, as_bytes, attention_page, notebook_frame
from regard.show.colours import CONES_TO_LAB, RGB_TO_CONES, SCALES, colour_scale
from regard.show.text import visible

CROSS, ENCODER, DECODER = "cross-attention, target to source", "encoder self-attention", "decoder self-attention"
HEADS, LAYERS = 3, 2
SOURCE = ("the", "little", "black", "cat", "that", "we", "know", "sleeps", "here", ".", "<eos>")
TARGET = ("le", "petit", "chat", "noir", "dort", "ici", ".")


def attention(rows: int, columns: int, *, heads: int = HEADS, seed: int, causal: bool = False) -> NDArray[np.floating]:
    """Peaked near the diagonal, as trained attention is."""
    random = np.random.default_rng(seed)
    down, across = np.arange(rows)[:, None], np.arange(columns)
    scores = 2 * random.standard_normal((heads, rows, columns), dtype=np.float32)
    scores += (4 * np.exp(-(((across - down * columns / rows) / 3) ** 2))).astype(np.float32)
    if causal:
        scores = np.where(across <= down, scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    weights: NDArray[np.floating] = scores / scores.sum(-1, keepdims=True)
    return weights


def views(source: tuple[str, ...], target: tuple[str, ...]) -> tuple[View, ...]:
    kinds = ((CROSS, target, source), (ENCODER, source, source), (DECODER, target, target))
    return tuple(
        View(
            name,
            layer,
            rows,
            columns,
            attention(len(rows), len(columns), seed=layer + 10 * kind, causal=name == DECODER),
        )
        for kind, (name, rows, columns) in enumerate(kinds)
        for layer in range(1, LAYERS + 1)
    )


SENTENCE = Sentence(
    "the little black cat that we know sleeps here .", "le petit chat noir dort ici .", views(SOURCE, TARGET)
)
SHORT = Sentence(
    "we sleep", "nous dormons", views(("we", "sleep"), ("nous", "dormons", "<eos>")), note="saliency, not attention"
)
HOSTILE = (
    "<script>complain()</script>",
    "</script><img src=x onerror=complain()>",
    "<!--",
    "--><b>bold</b>",
    "\"'`&amp;&lt;",
    "\u2028",
    "«content»",
    "\u202egnol",
    "\ud800",
    "\x00",
    " \t\n",
    "",
    "قطة",
    "猫",
    "👩‍👩‍👧",
)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture
def opened(browser: Browser, tmp_path: Path) -> Iterator[Callable[..., Visit]]:
    """Opens sentences as a file; closes it, and looks for complaints, at the end."""
    doors = []

    def opener(*sentences: Sentence, **options: Any) -> Visit:
        file = tmp_path / f"{len(doors)}.html"
        file.write_text(attention_page(sentences or [SENTENCE], title="What it looks at"), encoding="utf-8")
        doors.append(visit(browser, file, **options))
        seen = doors[-1].__enter__()
        seen.page.wait_for_selector("body[data-drawn]")
        return seen

    yield opener
    for door in doors:
        door.__exit__(None, None, None)


MAP = "document.querySelector('main').attentionMap"
HEAT = f"{MAP}.looks.map"


def choose(seen: Visit, **choices: object) -> None:
    """kind, layer, head, look or sentence, as one would: by its button."""
    for group, value in choices.items():
        seen.page.locator(f'main .{group} input[value="{value}"]').check(force=True)
        seen.page.wait_for_function(SHOWN, arg=[group, str(value)])
    seen.settle()


SHOWN = f"""([group, value]) => group === "sentence"
  ? {MAP}.matrix && {MAP}.shown.all.every((view) => {MAP}.sentence.views.includes(view))
    && {MAP}.sentence.title === document.querySelector("main .sentence input:checked + span").textContent
  : {MAP}.chosen[group] === value"""


def hover(seen: Visit, row: float, column: float) -> str:
    """The pointer on a square (or, at -1, on a word beside it); what the page then says."""
    x, y = seen.run(
        f"([row, column]) => {{ const {{ canvas, shape }} = {HEAT};"
        """
          const { x, y } = canvas.overlay.getBoundingClientRect();
          return [column < 0 ? x + shape.left / 2 : x + shape.left + (column + 0.5) * shape.cell,
            row < 0 ? y + shape.top - 9 : y + shape.top + (row + 0.5) * shape.cell];
        }""",
        [row, column],
    )
    seen.page.mouse.move(x, y)
    seen.settle()
    return seen.page.inner_text(".pair")


def drawn(seen: Visit) -> NDArray[np.uint8]:
    """(rows, columns, 3): the colour inside every square, beside its number."""
    return np.array(
        seen.run(
            f"() => {{ const {{ canvas, matrix: map, shape: {{ left, top, cell }} }} = {HEAT};"
            """
              const context = canvas.base.getContext("2d");
              const pixel = (x, y) => [...context.getImageData(x, y, 1, 1).data].slice(0, 3);
              const row = (_, r) => map.columns.map((_, c) => pixel(left + c * cell + 2, top + r * cell + 2));
              return map.rows.map(row);
            }"""
        ),
        dtype=np.uint8,
    )


def matrix(seen: Visit) -> NDArray[np.uint8]:
    rows, columns = seen.run(f"() => [{MAP}.matrix.rows.length, {MAP}.matrix.columns.length]")
    text = seen.run(f"() => Array.from({MAP}.matrix.bytes, (byte) => String.fromCharCode(byte)).join('')")
    return np.frombuffer(text.encode("latin-1"), dtype=np.uint8).reshape(rows, columns)


def written(weight: np.floating) -> str:
    return f"{int(as_bytes(np.asarray(weight))) / 255:.2f}"


# what Python puts in the file


@given(st.floats(0, 1))
def test_a_byte_is_within_half_a_step(weight: float) -> None:
    assert abs(weight - int(as_bytes(np.array(weight))) / 255) <= 1 / 510 + 1e-9


@given(st.text(st.characters()))
def test_a_visible_token_can_be_seen_and_stored(token: str) -> None:
    shown = visible(token)
    assert shown and not any(character.isspace() or ord(character) < 32 for character in shown)
    assert ElementTree.fromstring(f"<a>{shown.replace('&', '&amp;').replace('<', '&lt;')}</a>").text == shown


def test_words_stay_as_they_are_and_what_has_no_ink_gets_a_sign() -> None:
    plain = ("Straße", "قطة", "猫", "👩‍👩‍👧", "☀️", "می‌روم", "e\u0301", "<eos>")
    assert [visible(token) for token in plain] == list(plain)
    signs = {" ": "␣", " the": "␣the", "\n": "⏎", "\t": "⇥", "": "‿", "\u2028": "U+2028", "\u0301": "◌\u0301"}
    assert {token: visible(token) for token in signs} == signs
    assert visible("\u200d") == "U+200D" and visible("\u202ex") == "U+202Ex" and visible("\ud800") == "U+D800"


def test_the_colours_are_even_to_the_eye() -> None:
    assert colour_scale("#000000", "#ffffff")[128] == [100, 100, 100]  # L³ = 0.502³ of the light, in sRGB
    for none, full in SCALES.values():
        colours = np.array(colour_scale(none, full)) / 255
        linear = np.where(colours <= 0.04045, colours / 12.92, ((colours + 0.055) / 1.055) ** 2.4)
        lab = np.cbrt(linear @ RGB_TO_CONES.T) @ CONES_TO_LAB.T
        steps = np.linalg.norm(lab[15::15] - lab[:-15:15], axis=-1)
        assert steps.max() < 1.1 * steps.min()
        assert len(set(np.sign(lab[5::5, 0] - lab[:-5:5, 0]))) == 1, "lightness alone must order them"
        ends = (colour_scale(none, full)[place] for place in (0, -1))
        assert [f"#{r:02x}{g:02x}{b:02x}" for r, g, b in ends] == [none, full]


def test_what_cannot_be_drawn_is_refused() -> None:
    good = attention(2, 3, seed=1)
    for weights in (good[:, :1], good[0], good[:0], good * np.nan, good + 1):
        with pytest.raises(ValueError, match="weights"):
            View(CROSS, 1, ("a", "b"), ("c", "d", "e"), weights)
    view = View(CROSS, 1, ("a", "b"), ("c", "d", "e"), good)
    for some in ((), (view, view)):
        with pytest.raises(ValueError, match="views"):
            Sentence("", "", some)
    with pytest.raises(ValueError, match="sentence"):
        attention_page([], title="")


class Tags(HTMLParser):
    def __init__(self, document: str) -> None:
        super().__init__()
        self.seen: list[str] = []
        self.feed(document)

    def handle_starttag(self, tag: str, attrs: object) -> None:
        self.seen.append(tag)


def test_no_text_becomes_markup() -> None:
    calm = Sentence("a", "b", (View("c", 1, ("d",) * len(HOSTILE), ("e",), np.ones((1, len(HOSTILE), 1))),), "f")
    for text in HOSTILE:
        wild = Sentence(text, text, (View(text, 1, HOSTILE, (text,), np.ones((1, len(HOSTILE), 1))),), text)
        assert Tags(attention_page([wild], title=text)).seen == Tags(attention_page([calm], title="a")).seen
        assert Tags(notebook_frame(wild)).seen == ["iframe"]
        attention_page([wild], title=text).encode()


# what the browser makes of it


def test_it_asks_for_nothing_and_complains_of_nothing(opened: Callable[..., Visit]) -> None:
    seen = opened(SENTENCE, SHORT)
    choose(seen, kind=ENCODER, layer=2, head="max", sentence=1)
    hover(seen, 1, 1)
    seen.page.click(".theme")
    assert seen.requests == [seen.page.url] and seen.complaints == []
    policy = seen.page.get_attribute('meta[http-equiv="Content-Security-Policy"]', "content")
    assert policy and policy.startswith("default-src 'none'") and "unsafe" not in policy
    assert seen.run("() => fetch('http://127.0.0.1:9').catch(() => 'refused')") == "refused"
    assert any("Content Security Policy" in complaint for complaint in seen.complaints)
    seen.run(
        "() => { const script = document.createElement('script'); script.text = 'window.ran = true'; "
        "document.head.append(script); }"
    )
    assert not seen.run("() => window.ran")


def test_512_tokens_6_layers_8_heads_are_drawn_within_2_seconds(opened: Callable[..., Visit]) -> None:
    words = tuple(f"word{index % 97}" for index in range(512))
    weights = attention(512, 512, heads=8, seed=5)
    large = Sentence(
        " ".join(words),
        " ".join(words),
        tuple(
            View(name, layer, words, words, np.roll(weights, 7 * layer + 101 * kind, -1))
            for kind, name in enumerate((CROSS, ENCODER, DECODER))
            for layer in range(1, 7)
        ),
    )
    other = subprocess.Popen([sys.executable, "-c", "while True: pass"])  # the machine is not ours alone
    try:
        seen = opened(large)
    finally:
        other.kill()
        other.wait()
    assert int(seen.page.get_attribute("body", "data-drawn") or 9999) < 2000
    assert seen.requests == [seen.page.url] and seen.complaints == []
    assert np.abs(matrix(seen) / 255 - large.views[0].weights.mean(0)).max() <= 1 / 255
    choose(seen, layer=6, head=5)
    assert np.array_equal(matrix(seen), as_bytes(large.views[5].weights[4]))
    assert hover(seen, 300, 301) == f"{words[300]} → {words[301]} {written(large.views[5].weights[4, 300, 301])}"
    milliseconds = seen.run(
        f"""() => {{ const start = performance.now();
          for (let row = 0; row < 20; row++) {{ {HEAT}.light(row, 2 * row); {MAP}.say(); }}
          return (performance.now() - start) / 20; }}"""
    )
    assert milliseconds < 100, "pointing must not redraw the map"


def test_each_choice_draws_exactly_its_matrix(opened: Callable[..., Visit]) -> None:
    seen = opened(SENTENCE, SHORT)
    colours = np.array(colour_scale(*SCALES["light"]), dtype=np.uint8)
    for view in SENTENCE.views:
        for head in range(HEADS):
            choose(seen, kind=view.name, layer=view.layer, head=head + 1)
            assert np.array_equal(matrix(seen), as_bytes(view.weights[head]))
        assert np.array_equal(drawn(seen), colours[as_bytes(view.weights[head])])
        choose(seen, head="max")
        assert np.array_equal(matrix(seen), as_bytes(view.weights.max(0)))
        choose(seen, head="mean")
        assert np.abs(matrix(seen) / 255 - view.weights.mean(0)).max() <= 1 / 255
        assert np.array_equal(drawn(seen), colours[matrix(seen)])
    choose(seen, sentence=1)
    assert np.array_equal(matrix(seen).shape, SHORT.views[5].weights.shape[1:]), "kind and layer are kept"
    assert seen.page.inner_text(".note") == SHORT.note
    seen.page.check(".stretch")
    stretched = np.rint(matrix(seen) * (255 / matrix(seen).max())).astype(int)
    assert np.abs(drawn(seen).astype(int) - colours[stretched]).max() <= 2


def test_pointing_shows_the_words_and_their_weight(opened: Callable[..., Visit]) -> None:
    seen = opened()
    choose_head = SENTENCE.views[0].weights[1]
    choose(seen, head=2)
    for row, column in ((0, 0), (3, 7), (6, 10), (2, 4)):
        weight = written(choose_head[row, column])
        assert hover(seen, row, column) == f"{TARGET[row]} → {SOURCE[column]} {weight}"
    best = int(as_bytes(choose_head[4]).argmax())
    assert hover(seen, 4, -1) == f"dort → {SOURCE[best]} {written(choose_head[4, best])}"
    assert seen.page.inner_text(".most").startswith(f"dort attends to {SOURCE[best]} ")
    shaded = seen.run(
        "() => [...document.querySelector('.columns').children].map((word) => word.style.background !== '')"
    )
    assert shaded == [bool(byte > 1) for byte in as_bytes(choose_head[4])]
    seen.page.hover(".columns span:nth-child(4)")
    seen.settle()
    best = int(as_bytes(choose_head[:, 3]).argmax())
    assert seen.page.inner_text(".pair") == f"{TARGET[best]} → cat {written(choose_head[best, 3])}"
    seen.page.hover(".rows span:nth-child(7)")
    seen.settle()
    assert seen.page.inner_text(".pair").startswith(". → ")
    beside = seen.run("() => [...document.querySelector('.columns').children].map((word) => word.dataset.weight ?? '')")
    assert beside == [written(w)[1:] if as_bytes(w) >= 13 else "" for w in choose_head[6]]


def test_slanted_words_are_where_they_are_seen(opened: Callable[..., Visit]) -> None:
    seen = opened()
    assert seen.run(f"() => {HEAT}.shape.angle") == 45
    x, y = seen.run(
        f"() => {{ const {{ left, top, cell }} = {HEAT}.shape; return [left + 6.5 * cell, top - 7 - cell]; }}"
    )
    seen.page.locator(".box:not([hidden]) canvas").nth(1).hover(position={"x": x, "y": y})
    seen.settle()
    assert " → we " in seen.page.inner_text(".pair")


def test_arrow_keys_move_the_square(opened: Callable[..., Visit]) -> None:
    seen = opened()
    seen.page.focus(".box:not([hidden])")
    means = seen.run(f"() => Array.from({MAP}.matrix.bytes)")
    for key, (row, column) in (
        ("ArrowDown", (0, 0)),
        ("ArrowDown", (1, 0)),
        ("ArrowRight", (1, 1)),
        ("ArrowRight", (1, 2)),
        ("ArrowUp", (0, 2)),
        ("ArrowUp", (0, 2)),
        ("ArrowLeft", (0, 1)),
    ):
        seen.page.keyboard.press(key)
        seen.settle()
        weight = means[row * len(SOURCE) + column] / 255
        assert seen.page.inner_text(".pair") == f"{TARGET[row]} → {SOURCE[column]} {weight:.2f}"
    seen.page.keyboard.press("Escape")
    seen.settle()
    assert "arrow keys" in seen.page.inner_text(".pair")


def test_hostile_tokens_stay_text(opened: Callable[..., Visit]) -> None:
    weights = np.eye(len(HOSTILE))[None]
    seen = opened(Sentence(HOSTILE[0], HOSTILE[1], (View(HOSTILE[1], 1, HOSTILE, HOSTILE, weights),), HOSTILE[0]))
    shown = [visible(token) for token in HOSTILE]
    for index, token in enumerate(shown):
        assert hover(seen, index, index) == f"{token} → {token} 1.00"
    assert seen.run("() => [...document.querySelector('.rows').children].map((word) => word.textContent)") == shown
    seen.page.click("summary")
    seen.page.wait_for_selector(".table th")
    assert seen.page.locator("main :is(img, b, script)").count() == 0
    assert seen.requests == [seen.page.url] and seen.complaints == []
    texts = [
        element.text
        for element in ElementTree.fromstring(seen.run(f"() => {MAP}.svg()")).iter("{http://www.w3.org/2000/svg}text")
    ]
    assert {token for token in shown if len(token) <= 16} <= set(texts)


def test_a_phone_scrolls_the_map_and_not_the_page(opened: Callable[..., Visit]) -> None:
    long = (*(f"Wort{index}" for index in range(29)), "Donaudampfschifffahrtsgesellschaft" * 3)
    sentence = Sentence(" ".join(long), "-".join(long), views(long, long))
    for option in ({"color_scheme": "light"}, {"color_scheme": "dark"}):
        seen = opened(sentence, SENTENCE, width=360, height=740, has_touch=True, is_mobile=True, **option)
        assert seen.run("() => document.documentElement.scrollWidth") <= 360
        assert seen.run(f"() => {HEAT}.element.scrollWidth > {HEAT}.element.clientWidth")
        seen.run(f"() => {HEAT}.element.scrollIntoView({{ block: 'end' }})")
        x, y = seen.run(
            f"() => {{ const {{ canvas, shape }} = {HEAT};"
            """
              const box = canvas.overlay.getBoundingClientRect();
              return [box.x + shape.left + 2.5 * shape.cell, box.y + shape.top + 4.5 * shape.cell]; }"""
        )
        seen.page.touchscreen.tap(x, y)
        seen.settle()
        assert seen.page.inner_text(".pair").startswith("Wort4 → Wort2 ")
        seen.run(f"() => {HEAT}.element.scrollTo(9999, 9999)")
        seen.settle()
        assert hover(seen, 3, 3) != "", "the words stay beside the map"
        assert seen.run(f"() => {MAP}.chosen.column") > 10


CONTRAST = """() => {
  const light = (colour) => {
    const [r, g, b] = colour.match(/[\\d.]+/g).slice(0, 3).map((v) => v / 255)
      .map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4));
    return 0.2126 * r + 0.7152 * g + 0.0722 * b;
  };
  const ratio = (one, other) => {
    const [low, high] = [light(one), light(other)].sort((a, b) => a - b);
    return (high + 0.05) / (low + 0.05);
  };
  const ground = (element) => {
    const colour = getComputedStyle(element).backgroundColor;
    return colour === "rgba(0, 0, 0, 0)" ? ground(element.parentElement) : colour;
  };
  const found = {};
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const element = walk.currentNode.parentElement, text = walk.currentNode.data.trim();
    if (text && element.checkVisibility() && !["SCRIPT", "NOSCRIPT"].includes(element.tagName))
      found[text] = ratio(getComputedStyle(element).color, ground(element));
  }
  const { paint } = document.querySelector("main").attentionMap;
  for (const name of ["ink", "quiet", "accent"]) found["map, " + name] = ratio(paint[name], paint.panel);
  for (let byte = 0; byte < 256; byte++)
    found["number on " + byte] = ratio(paint.inkOn(byte) === "#000" ? "0, 0, 0" : "255, 255, 255", paint.fill(byte));
  return found;
}"""


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_text_has_contrast_in_both_themes(opened: Callable[..., Visit], theme: str) -> None:
    seen = opened(SENTENCE, SHORT, color_scheme=theme)
    assert seen.run("() => document.documentElement.dataset.theme") == theme
    seen.page.click("summary")
    hover(seen, 3, 4)
    ratios = seen.run(CONTRAST)
    assert {"Queries", "Save SVG", "Light" if theme == "dark" else "Dark", "petit", "mean", "max"} <= ratios.keys()
    assert {text: ratio for text, ratio in ratios.items() if ratio < 4.5} == {}
    seen.page.click(".theme")
    assert seen.run("() => document.documentElement.dataset.theme") != theme
    assert {text: ratio for text, ratio in seen.run(CONTRAST).items() if ratio < 4.5} == {}
    other = colour_scale(*SCALES["light" if theme == "dark" else "dark"])
    assert np.array_equal(drawn(seen), np.array(other, dtype=np.uint8)[matrix(seen)])


def saved(seen: Visit, button: str) -> bytes:
    with seen.page.expect_download() as waiting:
        seen.page.click(button)
    return Path(waiting.value.path()).read_bytes()


def test_svg_and_png_can_be_taken_away(opened: Callable[..., Visit]) -> None:
    seen = opened(SENTENCE, SHORT)
    choose(seen, head=2)
    root = ElementTree.fromstring(saved(seen, ".save-svg"))
    name = "{http://www.w3.org/2000/svg}"
    texts = [element.text for element in root.iter(f"{name}text")]
    assert {*SOURCE, *TARGET} <= set(texts)
    chosen = as_bytes(SENTENCE.views[0].weights[1])
    colours = colour_scale(*SCALES["light"])
    fills = [element.get("fill") for element in root.iter(f"{name}rect")]
    assert fills[2:] == [f"rgb({','.join(map(str, colours[byte]))})" for byte in chosen.flat if byte]
    picture = saved(seen, ".save-png")
    assert picture.startswith(b"\x89PNG\r\n")
    assert struct.unpack(">II", picture[16:24]) == tuple(
        2 * round(float(root.get(side, 0))) for side in ("width", "height")
    )
    choose(seen, sentence=1)
    assert SHORT.note in saved(seen, ".save-svg").decode(), "what is not attention says so wherever it goes"
    assert seen.complaints == []


def test_paper_gets_the_whole_map_in_dark_ink(opened: Callable[..., Visit]) -> None:
    seen = opened(SENTENCE, color_scheme="dark")
    seen.run("() => dispatchEvent(new Event('beforeprint'))")
    assert seen.run("() => document.documentElement.dataset.theme") == "light"
    assert seen.page.locator(".print svg text").count() > len(SOURCE) + len(TARGET)
    seen.run("() => dispatchEvent(new Event('afterprint'))")
    assert seen.run("() => document.documentElement.dataset.theme") == "dark"


def test_the_numbers_are_there_as_a_table(opened: Callable[..., Visit]) -> None:
    seen = opened()
    choose(seen, head=3)
    seen.page.click("summary")
    seen.page.wait_for_selector(".table th")
    cells = seen.run(
        "() => [...document.querySelectorAll('.table tr')].map((row) => [...row.cells].map((cell) => cell.textContent))"
    )
    head = SENTENCE.views[0].weights[2]
    assert cells[0] == ["", *SOURCE]
    assert cells[1:] == [[word, *map(written, row)] for word, row in zip(TARGET, head, strict=True)]


def test_every_control_has_a_name_and_can_be_reached(opened: Callable[..., Visit]) -> None:
    seen = opened(SENTENCE, SHORT)
    reached = []
    for _ in range(14):
        seen.page.keyboard.press("Tab")
        reached.append(seen.run("() => document.activeElement.name || document.activeElement.className"))
    assert {"theme", "sentence", "kind", "layer", "head", "look", "box", "stretch", "size"} <= set(reached)
    assert {"save-svg", "save-png", "save-json"} <= set(reached)
    names = [("radiogroup", name) for name in ("Sentence", "Attention", "Layer", "Head", "View")]
    names += [("button", name) for name in ("Light or dark", "Save SVG", "Save PNG", "Save JSON")]
    names += [("slider", "Size"), ("checkbox", "Stretch colours"), ("application", "Heat map: cross-attention")]
    for role, name in names:
        assert seen.page.get_by_role(role, name=name).count() == 1, name
    assert seen.page.get_by_role("status").inner_text() == seen.page.inner_text(".pair")
    seen.page.focus('.layer input[value="1"]')
    seen.page.keyboard.press("ArrowRight")
    seen.page.wait_for_function(f"() => {MAP}.shown.name.includes('layer 2')")
    assert seen.run("() => document.activeElement.value") == "2"


def test_the_last_choice_wins_however_slow_the_first(opened: Callable[..., Visit]) -> None:
    name = opened().run(
        f"async ([first, second]) => {{ const map = {MAP};"
        """
          const real = map.bytesOf, calls = [];
          let finish;
          const late = new Promise((resolve) => (finish = resolve));
          map.bytesOf = async (view) => (calls.push(view) === 1 && (await late), real.call(map, view));
          const slow = map.choose({ kind: first });
          await map.choose({ kind: second });
          finish();
          await slow;
          return map.shown.name;
        }""",
        [ENCODER, DECODER],
    )
    assert name.startswith(DECODER)


def test_nothing_written_is_no_fault(opened: Callable[..., Visit]) -> None:
    seen = opened(Sentence("a", "", (View(CROSS, 1, (), ("a",), np.zeros((2, 0, 1))),)))
    seen.page.focus(".box:not([hidden])")
    seen.page.keyboard.press("ArrowDown")
    assert "no words" in seen.page.inner_text(".pair") and seen.complaints == []


def test_a_notebook_gets_a_frame_of_its_own(browser: Browser, tmp_path: Path) -> None:
    file = tmp_path / "notebook.html"
    file.write_text(f"<!doctype html><main>a cell</main>{notebook_frame(SENTENCE)}", encoding="utf-8")
    with visit(browser, file) as seen:
        frame = seen.page.frame_locator("iframe")
        frame.locator("body[data-drawn]").wait_for()
        assert frame.locator(".rows span").all_inner_texts() == list(TARGET)
        with seen.page.expect_download() as waiting:
            frame.locator(".save-png").click()
        assert Path(waiting.value.path()).read_bytes().startswith(b"\x89PNG")
        assert seen.run("() => [document.querySelector('main').textContent, document.styleSheets.length]") == [
            "a cell",
            0,
        ]
        assert [url for url in seen.requests if not url.startswith("blob:null/")] == [seen.page.url]
        assert seen.complaints == []

"""The looks of attention beside the heat map: all heads as small maps, arcs, means over layers; and the modules that
draw them, several on one page, restored from a link, and served as they are."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import Visit, chromium, visit
from numpy.typing import NDArray
from playwright.sync_api import Browser
from test_page import (
    CROSS,
    DECODER,
    ENCODER,
    HEADS,
    LAYERS,
    MAP,
    SENTENCE,
    SHORT,
    SOURCE,
    TARGET,
    attention,
    choose,
    matrix,
    saved,
)

import regard.show
from regard.show import markup
from regard.show.attention_page import ATTENTION, Sentence, View, as_bytes, attention_page, sentence_facts
from regard.show.colours import SCALES, colour_scale, theme_scales
from regard.show.markup import inert_json, with_imports

SVG = "{http://www.w3.org/2000/svg}"
OTHER = "document.querySelector('.other').attentionMap"
WORDS = tuple(f"word{index % 97}" for index in range(512))


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@contextmanager
def opened(browser: Browser, folder: Path, *sentences: Sentence, **options: object) -> Iterator[Visit]:
    file = folder / "page.html"
    file.write_text(attention_page(sentences or [SENTENCE], title="What it looks at"), encoding="utf-8")
    with visit(browser, file, **options) as seen:  # type: ignore[arg-type]
        seen.page.wait_for_selector("body[data-drawn]")
        yield seen
        assert seen.complaints == []


def long_sentence() -> Sentence:
    weights = {
        ENCODER: attention(512, 512, heads=8, seed=5),
        DECODER: attention(512, 512, heads=8, seed=6, causal=True),
    }
    views = [View(name, layer, WORDS, WORDS, own) for name, own in weights.items() for layer in range(1, 7)]
    return Sentence("long", "", tuple(views))


def of_kind(kind: str) -> NDArray[np.floating]:
    """(layers, heads, rows, columns)"""
    return np.stack([view.weights for view in SENTENCE.views if view.name == kind])


# means over layers


@pytest.mark.parametrize("kind", [CROSS, DECODER])
def test_the_mean_over_layers_is_the_mean(browser: Browser, tmp_path: Path, kind: str) -> None:
    weights = of_kind(kind)
    with opened(browser, tmp_path) as seen:
        choose(seen, kind=kind, layer="mean")
        assert np.abs(matrix(seen) / 255 - weights.mean((0, 1))).max() <= 1 / 255
        choose(seen, head="max")
        assert np.abs(matrix(seen) / 255 - weights.max(1).mean(0)).max() <= 1 / 255
        choose(seen, head=3)
        assert np.abs(matrix(seen) / 255 - weights[:, 2].mean(0)).max() <= 1 / 255
        assert seen.run(f"() => {MAP}.shown.name") == f"{kind}, mean of {LAYERS} layers, head 3"


def test_layers_of_other_tokens_have_no_mean(browser: Browser, tmp_path: Path) -> None:
    first, second = attention(3, 4, seed=1), attention(3, 5, seed=2)
    views = (View(CROSS, 1, tuple("abc"), tuple("defg"), first), View(CROSS, 2, tuple("abc"), tuple("defgh"), second))
    with opened(browser, tmp_path, Sentence("a", "", views)) as seen:
        assert seen.page.locator(".layer input").count() == 2
        seen.run(f"() => {MAP}.choose({{ layer: 'mean' }})")
        assert seen.run(f"() => {MAP}.chosen.layer") == "1"


# all heads as small maps


def small_maps(seen: Visit) -> list[tuple[str, NDArray[np.uint8]]]:
    """The name of each, and its pixels, (rows, columns, 3)."""
    found = seen.run(
        """() => [...document.querySelectorAll(".heads button")].map((button) => {
          const canvas = button.querySelector("canvas"), { width, height } = canvas;
          return [button.ariaLabel, height, width, [...canvas.getContext("2d").getImageData(0, 0, width, height).data]];
        })"""
    )
    return [(name, np.array(data, np.uint8).reshape(height, width, 4)[..., :3]) for name, height, width, data in found]


def test_small_maps_show_the_same_bytes_as_the_map(browser: Browser, tmp_path: Path) -> None:
    colours = np.array(colour_scale(*SCALES["light"]), dtype=np.uint8)
    with opened(browser, tmp_path) as seen:
        for kind in (CROSS, ENCODER):
            choose(seen, kind=kind, look="grid")
            found = small_maps(seen)
            places = [(layer, head) for layer in range(LAYERS) for head in range(HEADS)]
            assert [name for name, _ in found] == [f"layer {layer + 1}, head {head + 1}" for layer, head in places]
            for (layer, head), (_, pixels) in zip(places, found, strict=True):
                assert np.array_equal(pixels, colours[as_bytes(of_kind(kind)[layer, head])])
        layer, head = 1, 2
        seen.page.get_by_role("button", name="layer 2, head 3").click()
        seen.settle()
        assert seen.run(f"() => {MAP}.chosen") == {
            "kind": ENCODER, "layer": "2", "head": "3", "row": -1, "column": -1, "look": "map",
        }  # fmt: skip
        assert np.array_equal(matrix(seen), as_bytes(of_kind(ENCODER)[layer, head]))


def test_a_pixel_of_a_long_sentence_is_the_largest_weight_of_its_block(browser: Browser, tmp_path: Path) -> None:
    long = long_sentence()
    with opened(browser, tmp_path, long) as seen:
        milliseconds = seen.run(
            f"""async () => {{ await {MAP}.choose({{ look: "grid" }});
              const start = performance.now(); {MAP}.draw(); return performance.now() - start; }}"""
        )
        assert milliseconds < 1000
        block = int(re.findall(r"largest of (\d+) × \1", seen.page.inner_text(".stated"))[0])
        own = as_bytes(long.views[3].weights[6])
        side = -(-512 // block)
        padded = np.zeros((side * block, side * block), np.uint8)
        padded[:512, :512] = own
        largest = padded.reshape(side, block, side, block).max((1, 3))
        full = max(as_bytes(view.weights).max() for view in long.views if view.name == ENCODER)
        colours = np.array(colour_scale(*SCALES["light"]), dtype=np.uint8)
        name, pixels = small_maps(seen)[3 * 8 + 6]
        assert name == "layer 4, head 7"
        assert np.abs(pixels.astype(int) - colours[np.rint(largest * (255 / full)).astype(int)]).max() <= 2


def test_arrow_keys_move_among_small_maps_and_enter_opens_one(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path) as seen:
        choose(seen, look="grid")
        assert seen.page.locator(".heads [tabindex='0']").count() == 1
        seen.page.focus(".heads [tabindex='0']")
        for key, name in (
            ("ArrowRight", "layer 1, head 2"),
            ("ArrowDown", "layer 2, head 2"),
            ("ArrowDown", "layer 2, head 2"),
            ("ArrowLeft", "layer 2, head 1"),
            ("ArrowUp", "layer 1, head 1"),
            ("ArrowRight", "layer 1, head 2"),
        ):
            seen.page.keyboard.press(key)
            assert seen.run("() => document.activeElement.ariaLabel") == name
            assert seen.page.inner_text(".pair").lower() == name
        seen.page.keyboard.press("Enter")
        seen.page.wait_for_function(f"() => {MAP}.chosen.look === 'map'")
        assert seen.run(f"() => [{MAP}.chosen.layer, {MAP}.chosen.head]") == ["1", "2"]
        seen.settle()
        assert seen.run("() => document.activeElement.role") == "application", "keys now move in the map"
        for role, count in (("grid", 0), ("gridcell", 0)):
            assert seen.page.get_by_role(role).count() == count
        choose(seen, look="grid")
        assert seen.page.get_by_role("gridcell").count() == LAYERS * HEADS
        assert seen.page.locator(".heads [aria-current]").get_attribute("aria-label") == "layer 1, head 2"


# arcs


def stated(seen: Visit) -> tuple[float, int, int]:
    """What the page says of its arcs: the threshold, how many, of how many."""
    text = seen.page.inner_text(".stated").replace(",", "")
    ((threshold, drawn, count),) = re.findall(r"Weights over ([\d.]+): (\d+) of (\d+)", text)
    return float(threshold), int(drawn), int(count)


def ends_of_paths(seen: Visit) -> set[tuple[int, int]]:
    """(from, to) of each arc, read from the shapes of the SVG picture."""
    root = ElementTree.fromstring(seen.run(f"() => {MAP}.svg()"))
    words = {}
    for text in root.iter(f"{SVG}text"):
        place = re.findall(r"translate\(([\d.]+) ([\d.]+)\)", text.get("transform", ""))[0]
        words.setdefault(place[1], []).append(float(place[0]))
    line = np.array(sorted(max(words.values(), key=len)))
    found = []
    for path in root.iter(f"{SVG}path"):
        numbers = re.findall(r"[\d.]+", path.get("d", ""))
        start, end = float(numbers[0]), float(numbers[0] if "a" in path.get("d", "") else numbers[-2])
        found.append((int(np.abs(line - start).argmin()), int(np.abs(line - end).argmin())))
    assert len(found) == len({*found})
    return {*found}


@pytest.mark.parametrize("kind", [ENCODER, DECODER])
def test_arcs_are_exactly_the_weights_above_the_threshold(browser: Browser, tmp_path: Path, kind: str) -> None:
    with opened(browser, tmp_path) as seen:
        choose(seen, kind=kind, layer=2, head=2, look="arcs")
        weights = as_bytes(of_kind(kind)[1, 1])
        assert np.array_equal(matrix(seen), weights)
        for threshold in (12, 40, 128):
            seen.page.locator(".threshold").fill(str(threshold))
            seen.settle()
            wanted = {(int(row), int(column)) for row, column in np.argwhere(weights > threshold)}
            assert ends_of_paths(seen) == wanted
            assert stated(seen) == (round(threshold / 255, 2), len(wanted), weights.size)
        assert 0 < len(wanted) < weights.size


def test_arcs_are_for_self_attention_alone(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path) as seen:
        choose(seen, kind=ENCODER, look="arcs")
        choose(seen, kind=CROSS)
        assert seen.run(f"() => {MAP}.chosen.look") == "map"
        assert seen.page.locator(".look input").evaluate_all("(all) => all.map((one) => one.value)") == ["map", "grid"]
        choose(seen, kind=DECODER)
        assert seen.run(f"() => {MAP}.chosen.look") == "arcs", "the wish is kept"


BLUE = """() => { const { base, overlay } = document.querySelector("main").attentionMap.looks.arcs.canvas;
  return [base, overlay].map((canvas) => {
    const { width, height } = canvas, copy = Object.assign(document.createElement("canvas"), { width, height });
    const context = copy.getContext("2d", { willReadFrequently: true });
    context.drawImage(canvas, 0, 0);
    const { data } = context.getImageData(0, 0, width, height);
    let blue = 0;
    for (let at = 0; at < data.length; at += 4) blue += data[at + 3] && data[at + 2] > data[at] + 40;
    return blue;
  });
}"""


def test_a_token_has_its_arcs_alone(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path) as seen:
        choose(seen, kind=ENCODER, layer=1, head=1, look="arcs")
        weights = as_bytes(of_kind(ENCODER)[0, 0])
        everything, nothing = seen.run(BLUE)
        assert everything > 0 and nothing == 0
        x, y = seen.run(
            f"""() => {{ const arcs = {MAP}.looks.arcs, {{ x, y }} = arcs.canvas.overlay.getBoundingClientRect();
              return [x + arcs.middle(3), y + (arcs.shape.top + arcs.shape.bottom) / 2]; }}"""
        )
        seen.page.mouse.move(x, y)
        seen.settle()
        best = int(weights[3].argmax())
        assert seen.page.inner_text(".pair") == f"{SOURCE[3]} → {SOURCE[best]} {weights[3, best] / 255:.2f}"
        assert seen.run("() => getComputedStyle(document.querySelector('.arcs canvas')).visibility") == "hidden"
        assert 0 < seen.run(BLUE)[1] < everything
        assert ends_of_paths(seen) == {(3, int(column)) for column in np.flatnonzero(weights[3] > 12)}
        seen.page.focus(".arcs")
        seen.page.keyboard.press("ArrowRight")
        seen.settle()
        assert ends_of_paths(seen) == {(4, int(column)) for column in np.flatnonzero(weights[4] > 12)}
        seen.page.keyboard.press("ArrowDown")
        seen.settle()
        assert ends_of_paths(seen) == {(int(row), 4) for row in np.flatnonzero(weights[:, 4] > 12)}
        assert "is attended to by" in seen.page.inner_text(".most")
        seen.page.keyboard.press("Escape")
        seen.settle()
        assert seen.run("() => getComputedStyle(document.querySelector('.arcs canvas')).visibility") == "visible"
        assert len(ends_of_paths(seen)) == (weights > 12).sum()


def test_arcs_of_512_tokens_are_few_enough_to_be_fluid(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path, long_sentence()) as seen:
        choose(seen, look="arcs")
        for kind, head in ((ENCODER, "mean"), (DECODER, "mean"), (ENCODER, "max")):
            choose(seen, kind=kind, head=head)
            threshold, drawn, count = stated(seen)
            assert 512 <= drawn <= 4000 and count == 512 * 512
            assert drawn == int((matrix(seen) > seen.run(f"() => {MAP}.looks.arcs.threshold")).sum())
            assert (threshold == 0.05) == ((matrix(seen) > 12).sum() <= 4000) == (head == "mean")
        milliseconds = seen.run(
            f"""() => {{ const arcs = {MAP}.looks.arcs, start = performance.now();
              for (let token = 0; token < 512; token += 16) arcs.light(token, -1);
              return (performance.now() - start) / 32; }}"""
        )
        assert milliseconds < 16, "a frame"


def test_weights_that_are_all_small_still_have_arcs(browser: Browser, tmp_path: Path) -> None:
    even = Sentence("even", "", (View(ENCODER, 1, WORDS[:97], WORDS[:97], np.full((1, 97, 97), 1 / 97)),))
    with opened(browser, tmp_path, even) as seen:
        choose(seen, look="arcs")
        threshold, drawn, count = stated(seen)
        assert (threshold, drawn, count) == (0.008, 97 * 97, 97 * 97)


# files of each look


OUTSIDE = """() => {
  const svg = document.querySelector(".print svg"), frame = svg.getBoundingClientRect();
  return [...svg.querySelectorAll("text")].filter((text) => {
    const { left, right, top, bottom, width } = text.getBoundingClientRect();
    return !width || left < frame.left || right > frame.right || top < frame.top || bottom > frame.bottom;
  }).map((text) => text.textContent);
}"""


@pytest.mark.parametrize("look", ["map", "grid", "arcs"])
def test_each_look_is_saved_as_it_is_shown(browser: Browser, tmp_path: Path, look: str) -> None:
    note = Sentence(SHORT.title, SHORT.output, SENTENCE.views, note=SHORT.note)
    with opened(browser, tmp_path, note) as seen:
        choose(seen, kind=ENCODER, layer=2, head=3, look=look)
        weights = of_kind(ENCODER)
        root = ElementTree.fromstring(saved(seen, ".save-svg"))
        assert SHORT.note in "".join(root.itertext())
        shapes = {"map": "rect", "grid": "image", "arcs": "path"}[look]
        assert len([*root.iter(f"{SVG}{shapes}")]) > 5
        assert saved(seen, ".save-png").startswith(b"\x89PNG\r\n")
        facts = json.loads(saved(seen, ".save-json"))
        assert facts["kind"] == ENCODER and facts["note"] == SHORT.note
        if look == "map":
            assert (facts["rows"], facts["columns"]) == ([*SOURCE], [*SOURCE])
            assert np.abs(np.array(facts["weights"]) - weights[1, 2]).max() <= 1 / 500
        elif look == "grid":
            for view in facts["views"]:
                own = weights[view["layer"] - 1, view["head"] - 1]
                assert np.abs(np.array(view["weights"]) - own).max() <= 1 / 500
            assert len(facts["views"]) == LAYERS * HEADS
        else:
            assert facts["tokens"] == [*SOURCE] and facts["threshold"] == round(12 / 255, 4)
            found = {(arc["row"], arc["column"]): arc["weight"] for arc in facts["arcs"]}
            own = as_bytes(weights[1, 2])
            assert found.keys() == {(int(row), int(column)) for row, column in np.argwhere(own > 12)}
            assert all(abs(weight - weights[1, 2][place]) <= 1 / 500 for place, weight in found.items())
        seen.run("() => dispatchEvent(new Event('beforeprint'))")
        assert seen.page.locator(f".print {shapes}").count() > 5
        seen.page.emulate_media(media="print")
        seen.settle()
        assert seen.run(OUTSIDE) == [], "no word leaves the picture"
        seen.page.emulate_media(media="screen")
        seen.run("() => dispatchEvent(new Event('afterprint'))")
        assert seen.page.locator(".print svg").count() == 0


# several on one page, links


def test_two_on_one_page_do_not_disturb_one_another(browser: Browser, tmp_path: Path) -> None:
    with opened(browser, tmp_path) as seen:
        seen.run(
            f"""async () => {{ const root = document.createElement("div"), {{ scales, words, sentence }} = {MAP};
              root.className = "other"; document.body.append(root); window.calls = [];
              const onChange = (chosen) => window.calls.push(chosen);
              const {{ constructor }} = {MAP};
              root.attentionMap = new constructor(root, {{ scales, words, onChange }});
              await root.attentionMap.show(sentence); }}"""
        )
        choose(seen, kind=ENCODER, layer=2, head=3)
        first, second = (seen.page.locator(root) for root in ("main", ".other"))
        assert seen.run("() => window.calls") == [], "a choice in one is none in the other"
        assert second.locator(".kind input:checked").get_attribute("value") == CROSS
        assert first.locator(".kind input:checked").get_attribute("value") == ENCODER
        second.locator(".head input[value='1']").check(force=True)
        seen.page.wait_for_function(f"() => {OTHER}.chosen.head === '1'")
        second.locator(".rows span").nth(2).hover()
        seen.settle()
        assert first.locator(".pair.hint").count() == 1 and second.locator(".pair.hint").count() == 0
        assert seen.run(f"() => {MAP}.chosen") == {
            "kind": ENCODER, "layer": "2", "head": "3", "row": -1, "column": -1, "look": "map",
        }  # fmt: skip
        calls = seen.run("() => window.calls")
        assert [call["head"] for call in calls] == ["1", "1"] and calls[-1]["row"] == 2
        assert calls[-1] == seen.run(f"() => {OTHER}.chosen")
        assert np.array_equal(matrix(seen), as_bytes(of_kind(ENCODER)[1, 2]))
        assert seen.page.locator("[id]").count() == 0
        seen.run(f"() => {OTHER}.remove()")
        assert second.locator("*").count() == 0
        seen.page.set_viewport_size({"width": 700, "height": 800})
        choose(seen, look="grid")


LINK = {"kind": DECODER, "layer": "mean", "head": "2", "row": 5, "column": 3, "look": "arcs"}


@pytest.mark.parametrize("when", ["before", "after"])
def test_what_is_chosen_can_be_a_link(browser: Browser, tmp_path: Path, when: str) -> None:
    steps = {"before": "await other.choose(link); await other.show(sentence)"}
    steps["after"] = "await other.show(sentence); await other.choose(link)"
    with opened(browser, tmp_path) as seen:
        found = seen.run(
            f"""async (link) => {{ const {{ scales, words, sentence, constructor }} = {MAP}, calls = [];
              const root = document.body.appendChild(document.createElement("div"));
              const other = new constructor(root, {{ scales, words, onChange: (chosen) => calls.push(chosen) }});
              {steps[when]};
              await new Promise((done) => setTimeout(done, 100));
              return [other.chosen, calls, root.querySelector(".pair").textContent]; }}""",
            LINK,
        )
        weight = as_bytes(of_kind(DECODER)[:, 1].mean(0))[5, 3] / 255
        assert found[:2] == [LINK, []], "onChange is for what a person does"
        assert found[2].startswith(f"{TARGET[5]} → {TARGET[3]} ") and abs(float(found[2].split()[-1]) - weight) < 0.011


def test_a_link_to_what_is_not_there_is_no_fault(browser: Browser, tmp_path: Path) -> None:
    link = {"kind": "none", "layer": "77", "head": "x", "row": 700, "column": 3, "look": "round"}
    with opened(browser, tmp_path) as seen:
        seen.run(f"(link) => {MAP}.choose(link)", link)
        first = {"kind": CROSS, "layer": "1", "head": "mean", "row": -1, "column": -1, "look": "map"}
        assert seen.run(f"() => {MAP}.chosen") == first


# the modules themselves


def test_the_modules_can_be_served_as_they_are(browser: Browser, tmp_path: Path) -> None:
    folder = Path(regard.show.__file__).parent
    for file in (*folder.glob("*.js"), *folder.glob("*.css")):
        (tmp_path / file.name).write_bytes(file.read_bytes())
    facts = inert_json([sentence_facts(SENTENCE), dict(ATTENTION), theme_scales()])
    (tmp_path / "index.html").write_text(
        f"""<!doctype html><link rel="stylesheet" href="theme.css"><link rel="stylesheet" href="attention_map.css">
        <link rel="icon" href="data:,"><main></main><script type="module">
        import {{ AttentionMap }} from "./attention_map.js";
        import {{ unpack }} from "./drawing.js";
        const [sentence, words, scales] = {facts}, root = document.querySelector("main");
        for (const view of sentence.views) view.weights = await unpack(view.weights);
        root.attentionMap = new AttentionMap(root, {{ words, scales }});
        await root.attentionMap.show(sentence);
        document.body.dataset.drawn = 1;
        </script>"""
    )
    handler = partial(SimpleHTTPRequestHandler, directory=str(tmp_path))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        context = browser.new_context()
        seen = Visit(context.new_page())
        seen.page.on("console", lambda message: seen.complaints.append(message.text))
        seen.page.on("pageerror", lambda error: seen.complaints.append(str(error)))
        seen.page.goto(f"http://127.0.0.1:{server.server_address[1]}/")
        seen.page.wait_for_selector("body[data-drawn]")
        choose_head = as_bytes(of_kind(CROSS).max(1)[0])
        seen.run(f"() => {MAP}.choose({{ head: 'max' }})")
        assert np.array_equal(matrix(seen), choose_head) and seen.complaints == []
        assert seen.run("() => getComputedStyle(document.querySelector('.choices')).display") == "flex"
        context.close()
        server.shutdown()


@pytest.mark.parametrize(
    ("module", "complaint"),
    [
        ('import * as all from "./b.js";', "cannot include this line"),
        ('import { one } from "../b.js";', "cannot include this line"),
        ('import {\n  one } from "./b.js";', "cannot include this line"),
        ('const one = await import("./b.js");', "cannot include this line"),
        ("export default 1;", "cannot include this line"),
        ("export { one };", "cannot include this line"),
        ('import { one } from "./a.js";', "circle"),
        ("const two = 2;", "declare the same name: two"),
        ('const text = "</script>";', "ends the element"),
    ],
)
def test_a_module_that_cannot_be_put_into_a_page_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, module: str, complaint: str
) -> None:
    monkeypatch.setattr(markup, "files", lambda _: tmp_path)
    good = {
        "page.html": '<style>\n@import "a.css";\n</style><script type="module">\nimport { two } from "./a.js";\n'
        'import { one } from "./b.js";\ntwo(one);\n</script>',
        "a.css": "a { color: red; }",
        "a.js": 'import { one } from "./b.js";\n\nexport const two = () => one;',
        "b.js": "export async function one() {}",
    }
    for name, text in good.items():
        (tmp_path / name).write_text(text)
    assert with_imports("page.html") == (
        '<style>\na { color: red; }\n</style><script type="module">\nasync function one() {}\n\n'
        "const two = () => one;\ntwo(one);\n</script>"
    )
    (tmp_path / "b.js").write_text(module)
    with pytest.raises(ValueError, match=complaint):
        with_imports("page.html")

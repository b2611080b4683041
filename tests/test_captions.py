"""Captions: what they are measured by, and how a picture shows where each word looked."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import chromium, visit
from rich.cells import cell_len

from regard.data.text import BETWEEN
from regard.score.bootstrap import interval
from regard.score.captions import CAPTION_METRICS, CIDER, EXACT_CAPTION, words_of
from regard.score.metrics import BLEU, BLEU_OF_SEVERAL, CHRF, CHRF_OF_SEVERAL
from regard.show.caption_map import CaptionMap
from regard.show.caption_page import Captioned, Places, caption_page
from regard.show.colours import SHADES
from regard.show.picture_map import DARKEST

SVG = "{http://www.w3.org/2000/svg}"


def captions(count: int, references: int, seed: int = 1) -> tuple[list[str], list[str]]:
    """Captions of 1 to 12 of few words, and references that share some of them."""
    random = np.random.default_rng(seed)
    words = [f"w{number}" for number in range(17)]

    def one() -> str:
        return " ".join(random.choice(words, random.integers(1, 13)))

    several = [[one() for _ in range(references)] for _ in range(count)]
    outputs = [random.choice([one(), each[0], each[-1]]) for each in several]
    return [str(output) for output in outputs], [BETWEEN.join(each) for each in several]


# --- metrics ---


@pytest.mark.parametrize("references", [1, 3])
def test_cider_agrees_with_pycocoevalcap(references: int) -> None:
    peer = pytest.importorskip("pycocoevalcap.cider.cider_scorer")
    outputs, several = captions(29, references)
    scorer = peer.CiderScorer(n=4, sigma=6.0)
    for output, each in zip(outputs, several, strict=True):
        scorer += (output, each.split(BETWEEN))
    mean, wanted = scorer.compute_score()
    assert CIDER.statistics(outputs, several)[:, 0] == pytest.approx(wanted, abs=1e-9)
    assert CIDER.of(outputs, several) == pytest.approx(mean, abs=1e-9)
    assert len(set(np.round(wanted, 6))) > 10


def test_rare_words_count_more_and_a_perfect_caption_counts_ten() -> None:
    references = ["a red circle on grass now", "a blue star on grass now", "a green ring on sand now"]
    assert CIDER.of(references, references) == pytest.approx(10)
    rare, shared, everywhere = (CIDER.statistics([word] * 3, references)[0, 0] for word in ("red", "grass", "now"))
    assert rare > shared > everywhere == 0


def test_one_reference_is_as_for_translation_and_another_never_hurts() -> None:
    outputs, one = captions(23, 1)
    _, three = captions(23, 3)
    for single, several in ((BLEU, BLEU_OF_SEVERAL), (CHRF, CHRF_OF_SEVERAL)):
        assert several.of(outputs, one) == pytest.approx(single.of(outputs, one))
    more = [f"{a}{BETWEEN}{b}" for a, b in zip(one, three, strict=True)]
    assert CHRF_OF_SEVERAL.of(outputs, more) >= CHRF_OF_SEVERAL.of(outputs, one)
    assert EXACT_CAPTION.of(outputs, more) >= EXACT_CAPTION.of(outputs, one)


def test_right_captions_are_above_every_floor_however_short_they_are() -> None:
    outputs, references = ["a red thing"] * 3, [f"a red thing{BETWEEN}one thing that is red"] * 3
    for metric in CAPTION_METRICS:
        ids = np.zeros(1, np.int64)
        assert metric.floor is None or metric.of(outputs, references) > metric.floor.value(ids, ids), metric.name


def test_case_and_punctuation_do_not_matter_for_an_exact_match() -> None:
    assert EXACT_CAPTION.of(["A red circle."], [f"a cat{BETWEEN}a red circle"]) == 100
    assert EXACT_CAPTION.of(["a red circle"], ["a circle"]) == 0
    assert words_of("L'étoile, d'or: 9!") == ["l'étoile", "d'or", "9"]


@pytest.mark.parametrize("metric", CAPTION_METRICS, ids=lambda metric: metric.key)
def test_every_metric_has_an_interval_around_its_value(metric: object) -> None:
    outputs, references = captions(60, 2)
    low, high = interval(metric, outputs, references)  # type: ignore[arg-type]
    assert low <= metric.of(outputs, references) <= high and low < high  # type: ignore[attr-defined]


# --- maps ---

WORDS = ("a", "red", "circle", "<b>&", "wider-than-its-map")


def weights(heads: int = 0) -> np.ndarray:
    shape = (*((heads,) if heads else ()), len(WORDS), 2, 3)
    found = np.random.default_rng(3).random(shape)
    return found / found.sum((-2, -1), keepdims=True)


def drawn(**given: object) -> CaptionMap:
    pixels = np.random.default_rng(0).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    return CaptionMap(pixels, WORDS, **{"weights": weights(), "kind": "attention", **given})  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [20, 47, 100])
def test_a_terminal_shows_each_word_with_its_map_within_the_width(width: int) -> None:
    lines = drawn().text(width).plain.splitlines()
    assert all(cell_len(line) <= width for line in lines[:-1])
    marks = [mark for _, mark in SHADES]
    assert sum(line.count(mark) for line in lines[:-1] for mark in marks) == weights().size * 2  # characters a place


@pytest.mark.parametrize("smooth", [True, False])
def test_a_picture_is_there_once_and_once_more_for_each_word(smooth: bool) -> None:
    root = ElementTree.fromstring(drawn().svg(smooth=smooth))
    images = len(root.findall(f".//{SVG}image"))
    assert images == 1 + len(WORDS) * (2 if smooth else 1)
    cells = [float(each.attrib["fill-opacity"]) for each in root.findall(f".//{SVG}g/{SVG}g/{SVG}rect")]
    assert len(cells) == (0 if smooth else weights().size)
    if not smooth:  # bright where the weight is largest
        own = np.array(cells).reshape(weights().shape)
        assert own == pytest.approx(DARKEST * (1 - weights() / weights().max((1, 2), keepdims=True)), abs=1e-3)
    assert "<b>&" in [text.text for text in root.findall(f".//{SVG}text")]


def test_json_has_every_weight() -> None:
    facts = drawn().facts()
    assert facts["target"] == list(WORDS) and len(facts["source"]) == 6
    assert np.array(facts["weights"]).reshape(weights().shape) == pytest.approx(weights(), abs=1e-6)


def test_weights_that_do_not_fit_the_words_are_refused() -> None:
    with pytest.raises(ValueError, match="must be"):
        drawn(weights=weights()[1:])
    with pytest.raises(ValueError, match="for all of its words"):
        Captioned("x", np.zeros((4, 4), np.uint8), WORDS, (Places("attention, layer 1", weights(2)[:, 1:]),))


def test_a_browser_lights_up_where_the_chosen_word_looked(tmp_path: Path) -> None:
    pixels = np.full((8, 12), 255, np.uint8)
    one_place = np.zeros((2, len(WORDS), 2, 3))
    one_place[0, :, 0, 0] = one_place[1, :, 1, 2] = (
        1.0  # the first head at the top left, the second at the bottom right
    )
    view = Places("attention, layer 1", one_place)
    page = caption_page([Captioned("<script>", pixels, WORDS, (view, view))], title="<i>Where & why")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    bright = """() => { const canvas = document.querySelector(".large"), copy = document.createElement("canvas");
      const pen = copy.getContext("2d", { willReadFrequently: true });
      pen.drawImage(canvas, 0, 0, 100, 100);
      return [[10, 20], [90, 80]].map(([x, y]) => pen.getImageData(x, y, 1, 1).data[0]); }"""
    with chromium() as browser, visit(browser, tmp_path / "page.html") as seen:
        seen.page.wait_for_selector(".strip canvas")
        assert seen.page.locator(".words button").all_text_contents() == list(WORDS)
        seen.page.locator(".smooth").uncheck()
        found = {}
        for head in ("1", "2"):
            seen.page.locator(f'.head input[value="{head}"]').check(force=True)
            seen.settle()
            found[head] = seen.run(bright)
        assert found["1"][0] > 250 > 100 > found["1"][1] and found["2"][1] > 250 > 100 > found["2"][0]
        seen.page.locator(".words button").nth(2).click()
        assert "“circle”" in seen.page.locator(".caption").inner_text()
        assert seen.complaints == []
        assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        for width in (1280, 390):
            seen.page.set_viewport_size({"width": width, "height": 800})
            assert seen.run("() => document.documentElement.scrollWidth <= innerWidth")


VIEW = "document.querySelector('main').pictureView"


def two_layers(tmp_path: Path) -> Path:
    """Two pictures; the first has two layers of three heads."""
    pixels = np.random.default_rng(4).integers(0, 256, (8, 12, 3), dtype=np.uint8)
    layers = tuple(Places(f"attention, layer {layer}", weights(3)) for layer in (1, 2))
    pictures = [Captioned("first", pixels, WORDS, layers, note="of two layers"), Captioned("second", pixels, ("one",), (
        Places("attention rollout", weights(1)[:, :1]),))]  # fmt: skip
    file = tmp_path / "page.html"
    file.write_text(caption_page(pictures, title="pictures"), encoding="utf-8")
    return file


def test_what_is_chosen_of_a_picture_can_be_a_link_and_keys_change_it(tmp_path: Path) -> None:
    link = {"view": 1, "head": "2", "word": 3, "smooth": False}
    with chromium() as browser, visit(browser, two_layers(tmp_path)) as seen:
        seen.page.wait_for_selector("body[data-drawn]")
        seen.run(f"(link) => {VIEW}.choose(link)", link)
        assert seen.run(f"() => {VIEW}.chosen") == link
        assert seen.page.locator(".caption").inner_text().startswith("“<b>&”: attention, layer 2")
        assert not seen.page.locator(".smooth").is_checked()
        seen.page.focus(".strip [aria-pressed='true']")
        for key, word in (("ArrowRight", 4), ("ArrowRight", 4), ("ArrowLeft", 3), ("ArrowLeft", 2)):
            seen.page.keyboard.press(key)
            assert seen.run(f"() => {VIEW}.chosen.word") == word
            assert seen.run("() => document.activeElement.textContent") == WORDS[word]
            assert seen.page.locator("[aria-pressed='true']").all_text_contents() == [WORDS[word]] * 2
        seen.page.locator(".picture select").select_option("1")
        seen.page.wait_for_function(f"() => {VIEW}.chosen.word === 0")
        assert seen.page.locator(".strip button").all_text_contents() == ["one"]
        assert seen.page.locator(".note").inner_text() == "" and seen.complaints == []


def test_two_pictures_on_one_page_do_not_disturb_one_another(tmp_path: Path) -> None:
    with chromium() as browser, visit(browser, two_layers(tmp_path)) as seen:
        seen.page.wait_for_selector("body[data-drawn]")
        seen.run(
            f"""async () => {{ const root = document.body.appendChild(document.createElement("div"));
              const {{ constructor, dark, darkest, subject }} = {VIEW};
              root.className = "other"; window.calls = [];
              const onChange = (chosen) => window.calls.push(chosen);
              root.pictureView = new constructor(root, {{ dark, darkest, onChange }});
              await root.pictureView.show(subject); }}"""
        )
        seen.page.locator("main .head input[value='3']").check(force=True)
        seen.page.locator(".other .words button").nth(1).click()
        seen.settle()
        assert seen.run(f"() => {VIEW}.chosen") == {"view": 0, "head": "3", "word": 0, "smooth": True}
        assert seen.run("() => window.calls") == [{"view": 0, "head": "mean", "word": 1, "smooth": True}]
        assert seen.page.locator(".other .head input:checked").get_attribute("value") == "mean"
        assert seen.page.locator("[id]").count() == 0 and seen.complaints == []

"""The Studio in a real browser, against a real server: what it shows is what the API answers."""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, quote_plus

import numpy as np
import pytest
from browser import Visit, chromium, opened_in
from PIL import Image
from playwright.sync_api import BrowserContext, expect
from serving import Served, ask, serving

from regard.checkpoint import Folder
from regard.data.world.scenes import scenes
from regard.data.world.speech import utterances
from regard.loading import read_recipe, shipped
from regard.show.spectrogram import wav_bytes
from regard.train.session import Session

HERE = Path(__file__).parent
AXE = HERE / "node_modules" / "axe-core" / "axe.min.js"
DROP = """([bytes, name, type]) => {
  const dataTransfer = new DataTransfer();
  dataTransfer.items.add(new File([new Uint8Array(bytes)], name, { type }));
  const box = [...document.querySelectorAll(".file-box")].find((each) => each.checkVisibility());
  box.dispatchEvent(new DragEvent("drop", { dataTransfer, bubbles: true, cancelable: true }));
}"""
SENTENCE = "the old man sees a dog ."
HOSTILE = "<img src=x onerror=alert(1)> </script><script>alert(1)</script> \u202egnol &amp; {{7*7}}"
REFUSED = "Failed to load resource"  # what the browser itself reports of a status above 399
TRAINED = ["data.sentences=300", "data.valid=20", "data.test=5", "train.validate_every=20", "train.steps=1000000"]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The runs that the server has: small ones, and two after two steps of training, of pictures and of recordings."""
    runs = tmp_path_factory.mktemp("studio") / "runs"
    for run in ("translation", "language", "classification", "tagging"):
        shutil.copytree(HERE / "runs" / run, runs / run)
    small = ["data.valid=5", "data.test=5", "train.steps=2", "train.validate_every=2"]
    for name, size in (("captioning", ("data.scenes=30", "data.side=16")), ("speech", ("data.utterances=30",))):
        recipe, _ = read_recipe(shipped(f"demo-{name}"), [*small, *size])
        for _ in Session(recipe, runs / name).steps():
            pass
    return runs


@pytest.fixture(scope="module")
def server(folder: Path) -> Iterator[Served]:
    with serving(folder / "translation", "--runs", folder, key="secret") as served:
        yield served


@pytest.fixture(scope="module")
def window() -> Iterator[BrowserContext]:
    with chromium() as browser:
        yield browser.new_context(viewport={"width": 1280, "height": 900})


Opener = Callable[..., Visit]


@pytest.fixture
def opened(window: BrowserContext, server: Served) -> Iterator[Opener]:
    """Open a view of the page in a tab of its own, which has the key; in the end, look for complaints and for requests
    to another host."""
    visits: list[tuple[Visit, bool]] = []

    def opener(view: str, *, refused: bool = False, keyed: bool = True, **parts: Any) -> Visit:
        tab = window.new_page()
        if keyed:
            tab.add_init_script(f"sessionStorage.setItem('regard-key', '{server.key}')")
        visits.append((opened_in(tab, server.url + link(view, **parts)), refused))
        expect(tab.get_by_role("tab", selected=True)).to_be_visible()
        return visits[-1][0]

    yield opener
    for seen, refused in visits:
        assert [each for each in seen.complaints if not (refused and REFUSED in each)] == []
        assert {each for each in seen.requests if not each.startswith((f"{server.url}/", "data:", "blob:"))} == set()
        seen.run("() => localStorage.clear()")  # which tabs share
        seen.page.close()


def link(view: str, **parts: Any) -> str:
    found = [(name, each) for name, value in parts.items() for each in (value if isinstance(value, list) else [value])]
    return f"/#{view}?" + "&".join(f"{name.rstrip('_')}={quote_plus(str(value))}" for name, value in found)


def drawn(seen: Visit) -> None:
    """Wait until a map is drawn."""
    expect(seen.page.locator(".looked[data-drawn]").first).to_be_visible()


def steps_of(server: Served, forced: list[int] = [], **settings: Any) -> Any:  # noqa: B006
    body = {"run": "translation", "input": SENTENCE, "forced": forced, "settings": settings}
    return ask(server, "/v1/steps", **body)


# --- Use -----------------------------------------------------------------------------------------------------------


def test_typing_gives_a_translation_with_its_alternatives_and_its_heat_map(opened: Opener, server: Served) -> None:
    seen = opened("use", run="translation")
    box = seen.page.get_by_label("Source", exact=True)
    expect(seen.page.get_by_text("the answer appears as you type")).to_be_visible()
    box.press_sequentially(SENTENCE)
    settings = {"beam": 5, "n_best": 5}
    body = {"run": "translation", "input": SENTENCE, "settings": settings}
    (found,) = ask(server, "/v1/predict", **body)["predictions"]
    expect(seen.page.locator(".answer .answer-text")).to_have_text(found["text"])
    texts = [found["text"], *(each["text"] for each in found["alternatives"])]
    expect(seen.page.locator(".alternatives button span:first-child")).to_have_text(texts)
    drawn(seen)
    look = ask(server, "/v1/look", run="translation", input=SENTENCE)
    expect(seen.page.locator(".words.rows span")).to_have_text(look["views"][0]["rows"])
    expect(seen.page.locator(".words.columns span")).to_have_text(look["views"][0]["columns"])
    answers = [url for url in seen.requests if url.endswith("/v1/predict")]
    assert len(answers) < len(SENTENCE)  # it waits for a pause
    seen.page.locator(".alternatives button").nth(1).click()
    expect(seen.page.locator(".answer .answer-text")).to_have_text(texts[1])
    other = ask(server, "/v1/look", run="translation", input=SENTENCE, target=texts[1])
    expect(seen.page.locator(".words.rows span")).to_have_text(other["views"][0]["rows"])


def test_only_the_last_of_several_answers_is_shown(opened: Opener, server: Served) -> None:
    seen = opened("use", run="classification")
    held: list[Any] = []

    def hold(route: Any) -> None:  # the first answer comes after the second
        if route.request.post_data_json["input"] == "bad":
            held.append(route)
        else:
            route.continue_()

    seen.page.route("**/v1/predict", hold)
    box = seen.page.get_by_label("Text")
    with seen.page.expect_request("**/v1/predict"):
        box.fill("bad")
    with seen.page.expect_event("requestfailed", lambda request: request.post_data_json["input"] == "bad"):
        box.fill("a good film")
    (right,) = ask(server, "/v1/predict", run="classification", input="a good film")["predictions"]
    expect(seen.page.locator(".answer .answer-text")).to_have_text(right["label"])
    assert held


def test_labels_have_bars_and_words_have_colours_and_tags(opened: Opener, server: Served) -> None:
    text = "the old man sees a happy dog ."
    seen = opened("use", run="classification", text=text)
    (found,) = ask(server, "/v1/predict", run="classification", input=text)["predictions"]
    ranked = sorted(found["probabilities"], key=lambda label: -found["probabilities"][label])
    expect(seen.page.locator(".answer .bar-name")).to_have_text(ranked)
    words = ask(server, "/v1/look", run="classification", input=text)["views"][0]["columns"]
    expect(seen.page.locator(".tinted").first.locator("bdi")).to_have_text(words)
    assert len(set(seen.run("() => [...document.querySelectorAll('.tinted bdi')].map((w) => w.style.background)"))) > 2
    seen.page.get_by_label("Run", exact=True).select_option("tagging")
    (tagged,) = ask(server, "/v1/predict", run="tagging", input=text)["predictions"]
    expect(seen.page.locator(".tag bdi")).to_have_text(tagged["words"])
    expect(seen.page.locator(".tag-name")).to_have_text(tagged["tags"])


def test_a_picture_is_dropped_and_described(opened: Opener, server: Served, tmp_path: Path) -> None:
    file = tmp_path / "scene.png"
    Image.fromarray(next(scenes("test")).draw(16)).save(file)
    seen = opened("use", run="captioning")
    expect(seen.page.get_by_label("Picture")).to_be_visible()
    seen.run(DROP, [list(file.read_bytes()), file.name, "image/png"])
    expect(seen.page.get_by_text("scene.png. It is not part of the link.")).to_be_visible()
    drawn(seen)
    expect(seen.page.locator(".answer .answer-text")).to_be_visible()
    seen.page.get_by_role("tab", name="Step by step").click()
    expect(seen.page.locator(".replay .picture-view canvas.large")).to_be_visible()
    seen.page.reload()
    expect(seen.page.get_by_text("The link does not hold the picture scene.png")).to_be_visible()


def test_a_recording_is_dropped_or_made_and_transcribed(opened: Opener, server: Served) -> None:
    said = next(utterances("test"))
    content = wav_bytes(said.samples(8000), 8000)
    seen = opened("use", run="speech", refused=True)
    expect(seen.page.get_by_role("button", name="Record", exact=True)).to_be_visible()
    seen.run(DROP, [list(content), "said.wav", "audio/wav"])
    expect(seen.page.get_by_text("said.wav. It is not part of the link.")).to_be_visible()
    expect(seen.page.locator(".answer .answer-text, .answer .quiet").first).to_be_visible()
    seen.run(DROP, [list(b"no sound"), "no.wav", "audio/wav"])
    expect(seen.page.get_by_text("it is not WAV, FLAC, OGG, MP3, AIFF or AU")).to_be_visible()
    with seen.page.expect_response("**/v1/predict") as asked:
        seen.page.get_by_role("button", name="Record", exact=True).click()
        expect(seen.page.get_by_text("Recording: 1 s")).to_be_visible()
        seen.page.get_by_role("button", name="Stop").click()
    expect(seen.page.get_by_text("Recording 1. It is not part of the link.")).to_be_visible()
    assert asked.value.status == 200


def test_what_people_write_is_shown_as_text(opened: Opener) -> None:
    seen = opened("use", run="tagging", text=HOSTILE)
    expect(seen.page.locator(".tag bdi")).to_have_text(HOSTILE.split())
    assert seen.run("() => document.querySelectorAll('main img[src=x], main script').length") == 0


def test_a_language_model_writes_as_a_stream(opened: Opener, server: Served) -> None:
    seen = opened("use", run="language", text="The old", seed=7)
    with seen.page.expect_response("**/v1/completions") as asked:
        seen.page.get_by_role("button", name="Write").click()
    assert asked.value.request.post_data_json["stream"] is True
    body = {"prompt": "The old", "temperature": 1, "top_p": 1, "seed": 7, "max_tokens": 256}
    text = ask(server, "/v1/completions", model="language", **body)["choices"][0]["text"]
    expect(seen.page.locator(".writer .page")).to_have_text("The old" + text)
    expect(seen.page.get_by_text("Done:")).to_be_visible()
    seen.page.reload()  # a link with what was written writes it again
    expect(seen.page.locator(".writer .page")).to_have_text("The old" + text)


def test_writing_can_be_stopped(opened: Opener) -> None:
    seen = opened("use", run="language", text="The old")
    seen.page.route("**/v1/completions", lambda route: None)  # never answers
    seen.page.get_by_role("button", name="Write").click()
    with seen.page.expect_event("requestfailed"):
        seen.page.get_by_role("button", name="Stop").click()
    expect(seen.page.get_by_text("Stopped.")).to_be_visible()
    expect(seen.page.get_by_role("button", name="Write")).to_be_enabled()


def test_settings_that_are_not_streamed_are_used_too(opened: Opener, server: Served) -> None:
    seen = opened("use", run="language", text="The old", no_repeat=3)
    seen.page.get_by_role("button", name="Write").click()
    settings = {"sample": True, "no_repeat": 3, "max_length": 256}
    (found,) = ask(server, "/v1/predict", run="language", input="The old", settings=settings)["predictions"]
    expect(seen.page.locator(".writer .page")).to_have_text(found["text"])


def test_an_example_of_the_runs_own_data_is_tried(opened: Opener, server: Served) -> None:
    seen = opened("use", run="translation")
    examples = ask(server, "/v1/runs/translation/examples")["examples"]
    expect(seen.page.locator(".tries button")).to_have_text(examples)
    seen.page.locator(".tries button").nth(1).click()
    expect(seen.page.get_by_label("Source", exact=True)).to_have_value(examples[1])
    expect(seen.page.locator(".answer")).to_be_visible()
    expect(seen.page.locator(".tries")).to_be_hidden()
    seen.page.get_by_label("Run", exact=True).select_option("captioning")
    seen.page.get_by_role("button", name="Example 2").click()
    drawn(seen)
    seen.page.wait_for_function("() => location.hash.includes('picture=Example+2')")
    seen.page.reload()  # an example can be found again
    drawn(seen)


# --- Step by step --------------------------------------------------------------------------------------------------


def test_each_step_is_that_of_the_api(opened: Opener, server: Served) -> None:
    found = steps_of(server)
    seen = opened("steps", run="translation", text=SENTENCE)
    tokens = [step["chosen"]["token"] for step in found["steps"]]
    expect(seen.page.locator(".tokens bdi")).to_have_text(tokens)
    expect(seen.page.locator(".replay .tinted bdi")).to_have_text(found["source"])

    def is_at(number: int) -> None:
        step = found["steps"][number]
        expect(seen.page.locator(".where")).to_have_text(f"Step {number + 1} of {len(tokens)}")
        expect(seen.page.locator(".choice")).to_have_text(f"after {step['previous']} → {step['chosen']['token']}")
        likely = [each["token"] for each in step["likely"]]
        ids = [str(each["id"]) for each in step["likely"]]
        if step["chosen"]["id"] not in [each["id"] for each in step["likely"]]:
            likely.append(step["chosen"]["token"])
            ids.append(str(step["chosen"]["id"]))
        expect(seen.page.locator(".replay .bar-name")).to_have_text(likely)
        assert seen.run("() => [...document.querySelectorAll('button.bar-row')].map((b) => b.dataset.id)") == ids
        weights = [f"{each:.2f}".removeprefix("0") for each in step["attention"] if each >= 0.05]
        shown = seen.page.locator(".replay .tinted small").all_inner_texts()
        assert len(shown) == len(weights)
        assert all(abs(float(one) - float(other)) <= 0.01 for one, other in zip(shown, weights, strict=True))

    is_at(0)
    for number in range(1, len(tokens)):
        seen.page.get_by_role("button", name="Step forward").click()
        is_at(number)
    seen.page.get_by_role("button", name="Step back").click()
    is_at(len(tokens) - 2)
    seen.page.locator("h2").first.click()
    seen.page.keyboard.press("ArrowLeft")
    is_at(len(tokens) - 3)
    seen.page.keyboard.press("ArrowRight")
    is_at(len(tokens) - 2)
    seen.page.keyboard.press(" ")
    expect(seen.page.get_by_role("button", name="Pause")).to_be_visible()
    expect(seen.page.get_by_role("button", name="Play")).to_be_visible()  # at the end it stops
    is_at(len(tokens) - 1)


def test_the_tree_of_a_beam_has_every_hypothesis(opened: Opener, server: Served) -> None:
    tree = steps_of(server, beam=3, n_best=1)["tree"]
    seen = opened("steps", run="translation", text=SENTENCE, beam=3)
    expect(seen.page.locator(".tree svg g")).to_have_count(len(tree["nodes"]))
    assert any(not node["kept"] for node in tree["nodes"])  # some are pruned
    faint = sum(not node["kept"] for node in tree["nodes"])
    expect(seen.page.locator(".tree svg g[opacity='0.62']")).to_have_count(faint)
    best = " ".join(node["token"] for node in tree["nodes"] if node["best"])
    assert best in (seen.page.locator(".tree svg").get_attribute("aria-label") or "")
    with seen.page.expect_download() as download:
        seen.page.locator("figure").get_by_role("button", name="Save SVG").click()
    assert download.value.path().read_text().startswith("<svg")


def test_an_alternative_is_forced_and_undone(opened: Opener, server: Served) -> None:
    seen = opened("steps", run="translation", text=SENTENCE, step=2)
    before = steps_of(server)["steps"]
    expect(seen.page.locator(".where")).to_have_text(f"Step 2 of {len(before)}")
    other = before[1]["likely"][2]
    seen.page.locator(f"button.bar-row[data-id='{other['id']}']").click()
    forced = [before[0]["chosen"]["id"], other["id"]]
    after = steps_of(server, forced)
    tokens = [step["chosen"]["token"] for step in after["steps"]]
    assert tokens[:2] == [before[0]["chosen"]["token"], other["token"]]
    expect(seen.page.locator(".tokens bdi")).to_have_text(tokens)
    expect(seen.page.locator(".tokens .is-forced bdi")).to_have_text(tokens[:2])
    expect(seen.page.locator(".forced-words")).to_have_text(" ".join(tokens[:2]))
    seen.page.get_by_role("button", name="Undo all").click()
    expect(seen.page.locator(".tokens bdi")).to_have_text([step["chosen"]["token"] for step in before])
    expect(seen.page.locator(".forced")).to_be_hidden()


# --- Attention, Inside ---------------------------------------------------------------------------------------------


def test_attention_of_512_tokens_is_drawn_within_a_second(opened: Opener) -> None:
    random = np.random.default_rng(0)
    source, target = (" ".join(random.choice(words.split(), 511)) for words in (SENTENCE, "Le homme a un livre ."))
    seen = opened("attention", run="translation", text=source, target=target)
    drawn(seen)
    expect(seen.page.locator(".words.rows span")).to_have_count(512)
    expect(seen.page.locator(".words.columns span")).to_have_count(512)
    took = seen.run(
        """() => {
          const { responseEnd } = performance.getEntriesByName(new URL("/v1/look", location).href).at(-1);
          return document.querySelector(".looked").dataset.drawn - responseEnd;
        }"""
    )
    assert 0 < took < 1000


def test_gates_are_shown_by_unit_and_averaged(opened: Opener, server: Served) -> None:
    seen = opened("inside", run="translation", text=SENTENCE)
    found = ask(server, "/v1/look", run="translation", input=SENTENCE, kind="gates")
    names = list(dict.fromkeys(view["name"] for view in found["views"]))
    assert names[0].endswith("mean over units") and any(name.endswith(", h") for name in names)
    expect(seen.page.locator(".kind .choices span")).to_have_text(names)
    drawn(seen)
    expect(seen.page.locator(".words.columns span")).to_have_text(found["views"][0]["columns"])
    seen.page.get_by_label("decoder, h").check(force=True)
    expect(seen.page.locator(".words.columns span")).to_have_text([f"u{unit}" for unit in range(1, 13)])


def test_the_flow_of_gradients_is_drawn(opened: Opener) -> None:
    seen = opened("inside", run="translation", text=SENTENCE)
    with seen.page.expect_response("**/v1/gradients") as asked:
        seen.page.get_by_role("button", name="Measure gradient flow").click()
    found = asked.value.json()
    layers = ["encoder 1 →", "encoder 1 ←", "decoder 1"]
    titles = [f"{what} {layer}" for what in ("Gradient norm in", "Gates of") for layer in layers]
    assert [chart["title"] for chart in found["charts"]] == titles
    expect(seen.page.locator(".chart svg")).to_have_count(len(titles))
    expect(seen.page.locator(".flow")).to_contain_text(found["summary"])
    assert all(len(curve["at"]) == len(curve["values"]) for chart in found["charts"] for curve in chart["curves"])


# --- Compare, Runs -------------------------------------------------------------------------------------------------


def test_two_runs_show_both_outputs(opened: Opener, server: Served) -> None:
    seen = opened("compare", run="translation", with_=["tagging"], text=SENTENCE)
    one, other = (
        ask(server, "/v1/predict", run=run, input=SENTENCE)["predictions"][0] for run in ("translation", "tagging")
    )
    sides = seen.page.locator(".side")
    expect(sides.nth(0).locator(".answer-text")).to_have_text(one["text"])
    expect(sides.nth(0).locator(".looked[data-drawn]")).to_be_visible()
    expect(sides.nth(1).locator(".tag-name")).to_have_text(other["tags"])
    seen.page.get_by_label("classification").check(force=True)
    label = ask(server, "/v1/predict", run="classification", input=SENTENCE)["predictions"][0]["label"]
    expect(sides).to_have_count(3)
    expect(sides.nth(2).locator(".answer-text")).to_have_text(label)


def test_a_new_run_appears_and_opens(opened: Opener, folder: Path) -> None:
    seen = opened("runs")
    rows = seen.page.locator("tbody tr")
    expect(rows.filter(has_text="translation")).to_be_visible()
    shutil.copytree(folder / "tagging", folder / "arrived")
    try:
        expect(rows.filter(has_text="arrived")).to_be_visible()
        seen.page.get_by_role("link", name="Use: arrived").click()
        expect(seen.page.get_by_label("Run", exact=True)).to_have_value("arrived")
        expect(seen.page.get_by_role("tab", selected=True)).to_have_text("Use")
    finally:
        shutil.rmtree(folder / "arrived")


# --- Training ------------------------------------------------------------------------------------------------------


def test_a_curve_grows_while_a_run_trains(opened: Opener, folder: Path) -> None:
    recipe, _ = read_recipe(shipped("demo-classification"), TRAINED)
    trained = folder / "trained"
    with Folder(trained).only_writer():
        session = Session(recipe, trained)
        steps = session.steps()
        seen = opened("runs")
        seen.page.get_by_role("link", name="Training: trained").click()
        expect(seen.page.locator("dd").first).to_have_text("training")
        assert next(step.step for step in steps if step.valid) == 20
        expect(seen.page.get_by_role("region", name="Loss").locator("svg")).to_be_visible()
        points = "() => document.querySelectorAll('.chart circle').length"
        before = seen.run(points)
        assert next(step.step for step in steps if step.valid) == 40
        seen.page.wait_for_function(f"(before) => ({points})() > before", arg=before)
        session.save()
    expect(seen.page.locator("dd").first).to_have_text("stopped")  # pushed, too
    shutil.rmtree(trained)


# --- the link ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("view", "parts", "shown", "signs"),
    [
        (
            "use",
            {"run": "translation", "beam": 3, "alternative": 1, "row": 2},
            ".answer",
            [".alternatives li:nth-child(2):nth-last-child(2) [aria-pressed=true]", ".words.rows :nth-child(3).chosen"],
        ),
        (
            "steps",
            {"run": "translation", "forced": "6,46", "step": 3},
            ".replay",
            [".tokens li:nth-child(3).now", ".tokens li:nth-child(2).is-forced"],
        ),
        (
            "attention",
            {"run": "language", "head": "2", "row": 3},
            ".looked",
            [".head .choices label:has(input[value='2']:checked)", ".words.rows :nth-child(4).chosen"],
        ),
        (
            "compare",
            {"run": "translation", "with_": ["tagging"]},
            ".beside",
            [".side:nth-child(1) .looked[data-drawn]", ".side:nth-child(2):last-child .tagged"],
        ),
    ],
)
def test_a_link_restores_the_screen(
    opened: Opener, view: str, parts: dict[str, Any], shown: str, signs: list[str]
) -> None:
    seen = opened(view, text=SENTENCE, **parts)
    screen = """(shown) => JSON.stringify([document.querySelector(shown)?.innerText,
      [...document.querySelectorAll("main :is(input, textarea, select)")].map((each) => [each.value, each.checked])])"""
    for sign in signs:  # of what the link asks for
        expect(seen.page.locator(sign)).to_be_visible()
    before = seen.run(screen, shown)
    seen.page.reload()
    seen.page.wait_for_function(f"([shown, before]) => ({screen})(shown) === before", arg=[shown, before])
    for sign in signs:
        expect(seen.page.locator(sign)).to_be_visible()
    restored = parse_qs(seen.run("() => location.hash").partition("?")[2])
    assert restored == {"text": [SENTENCE]} | {
        name.rstrip("_"): value if isinstance(value, list) else [str(value)] for name, value in parts.items()
    }


def test_what_is_typed_and_chosen_goes_into_the_link_and_back(opened: Opener) -> None:
    seen = opened("use", run="translation")
    seen.page.get_by_label("Source", exact=True).fill(SENTENCE)
    seen.page.wait_for_function("() => location.hash.includes('text=the+old')")
    seen.page.get_by_text("Decoding").click()
    seen.page.get_by_label("Beam size").fill("2")
    expect(seen.page.locator(".alternatives button")).to_have_count(2)
    seen.page.wait_for_function("() => location.hash.includes('beam=2')")
    seen.page.get_by_role("tab", name="Attention").click()
    expect(seen.page.get_by_label("Source", exact=True)).to_have_value(SENTENCE)
    seen.page.go_back()
    expect(seen.page.get_by_role("tab", selected=True)).to_have_text("Use")
    expect(seen.page.get_by_label("Source", exact=True)).to_have_value(SENTENCE)


# --- errors --------------------------------------------------------------------------------------------------------


def test_the_servers_own_sentence_is_shown(opened: Opener, folder: Path) -> None:
    seen = opened("use", run="nothing", refused=True)
    expect(seen.page.get_by_role("alert")).to_contain_text("There is no run 'nothing' here")
    (folder / "broken").mkdir()
    (folder / "broken" / "config.toml").write_text("task = 3")
    try:
        seen = opened("use", run="broken", refused=True)
        expect(seen.page.get_by_role("alert")).to_be_visible()
    finally:
        shutil.rmtree(folder / "broken")


def test_a_busy_server_is_asked_again_when_it_says_so(opened: Opener) -> None:
    seen = opened("use", run="classification", refused=True)
    busy = {"error": {"message": "64 requests are under way: ask again later."}}
    answers = iter([429])

    def answer(route: Any) -> None:
        if next(answers, 200) == 429:
            route.fulfill(status=429, headers={"retry-after": "1"}, json=busy)
        else:
            route.continue_()

    seen.page.route("**/v1/predict", answer)
    seen.page.get_by_label("Text").fill("good")
    expect(seen.page.get_by_role("alert")).to_have_text(busy["error"]["message"])
    expect(seen.page.locator(".answer .bar-row").first).to_be_visible()


def test_a_server_that_is_gone_is_noticed_and_found_again(opened: Opener) -> None:
    seen = opened("runs", refused=True)
    expect(seen.page.locator("tbody tr").first).to_be_visible()
    seen.page.route("**/v1/runs", lambda route: route.abort())
    expect(seen.page.get_by_role("alert")).to_contain_text("The server does not answer")
    seen.page.unroute("**/v1/runs")
    seen.page.get_by_role("button", name="Try again").click()
    expect(seen.page.locator("tbody tr").first).to_be_visible()


def test_a_key_is_asked_for_once(opened: Opener, server: Served) -> None:
    seen = opened("use", run="classification", text="good", refused=True, keyed=False)
    for key in ("wrong", server.key):
        seen.page.get_by_label("API key").fill(key)
        seen.page.get_by_role("button", name="Use this key").click()
    expect(seen.page.locator(".answer .bar-row").first).to_be_visible()
    seen.page.reload()
    expect(seen.page.locator(".answer .bar-row").first).to_be_visible()
    expect(seen.page.get_by_role("dialog")).to_have_count(0)
    seen.page.get_by_role("tab", name="Training").click()  # a stream, with the key
    expect(seen.page.locator(".training-body")).to_be_visible()
    seen.page.get_by_role("tab", name="Runs").click()


# --- for everyone --------------------------------------------------------------------------------------------------

VIEWS = {
    "use": ({"run": "translation", "text": SENTENCE}, ".looked[data-drawn]"),
    "use, labels": ({"run": "classification", "text": SENTENCE}, ".importance"),
    "use, tags": ({"run": "tagging", "text": SENTENCE}, ".tag"),
    "use, a text": ({"run": "language", "text": SENTENCE}, ".writer"),
    "use, a picture": ({"run": "captioning"}, ".picture-box"),
    "use, a recording": ({"run": "speech"}, ".recording-box"),
    "steps": ({"run": "translation", "text": SENTENCE, "forced": "6", "step": 2}, ".replay"),
    "attention": ({"run": "language", "text": SENTENCE}, ".looked[data-drawn]"),
    "inside": ({"run": "translation", "text": SENTENCE}, ".looked[data-drawn]"),
    "compare": ({"run": "translation", "with_": ["classification"], "text": SENTENCE}, ".importance"),
    "runs": ({}, "tbody tr"),
    "training": ({"run": "captioning"}, ".chart svg"),
}


REPEATED = {  # what they are made of is in the other views, too
    "use, labels",
    "use, tags",
    "use, a text",
    "use, a picture",
    "use, a recording",
    "attention",
    "inside",
}


@pytest.mark.parametrize("name", [pytest.param(each, marks=[pytest.mark.slow] * (each in REPEATED)) for each in VIEWS])
def test_every_view_fits_a_phone_and_axe_finds_nothing_serious(opened: Opener, name: str) -> None:
    parts, shown = VIEWS[name]
    seen = opened(name.partition(",")[0], **parts)
    expect(seen.page.locator(shown).first).to_be_visible()
    for details in seen.page.locator("main details").all():
        if details.is_visible():
            details.locator("summary").click()
    seen.page.set_viewport_size({"width": 390, "height": 844})
    seen.settle()
    assert seen.run("() => document.documentElement.scrollWidth") <= 390
    seen.page.set_viewport_size({"width": 1280, "height": 900})
    assert seen.complaints == []
    if not AXE.exists():
        missing = "axe-core is not here: make tests/node_modules/.ready"
        pytest.fail(missing) if os.environ.get("CI") else pytest.skip(missing)
    seen.run(AXE.read_text() + ";() => 0")
    for theme, rules in (("light", {}), ("dark", {"runOnly": ["color-contrast"]})):  # they differ in colours alone
        seen.page.emulate_media(color_scheme=theme, reduced_motion="reduce")
        seen.page.wait_for_function("(theme) => document.documentElement.dataset.theme === theme", arg=theme)
        how = {"resultTypes": ["violations"], **rules}
        found = seen.run("async (how) => (await axe.run(how)).violations", how)
        serious = [each for each in found if each["impact"] in ("serious", "critical")]
        assert [(each["id"], [node["html"][:120] for node in each["nodes"]]) for each in serious] == [], theme
    seen.complaints.clear()  # axe itself sets inline styles, which the page's policy forbids


def test_the_tabs_are_reached_and_changed_by_keys(opened: Opener) -> None:
    seen = opened("use", run="translation")
    expect(seen.page.get_by_label("Source", exact=True)).to_be_visible()
    seen.page.keyboard.press("Tab")
    seen.page.keyboard.press("ArrowRight")
    expect(seen.page.get_by_role("tab", name="Step by step")).to_be_focused()
    seen.page.keyboard.press("Enter")
    expect(seen.page.get_by_role("tab", selected=True)).to_have_text("Step by step")
    assert re.search("#steps", seen.page.url)
    seen.page.keyboard.press("Tab")
    expect(seen.page.get_by_role("button", name="Light or dark")).to_be_focused()
    seen.page.keyboard.press("Enter")
    expect(seen.page.locator("html")).to_have_attribute("data-theme", "dark")
    seen.page.keyboard.press("Tab")
    expect(seen.page.get_by_label("Run", exact=True)).to_be_focused()
    seen.page.keyboard.press("Tab")
    expect(seen.page.get_by_label("Source", exact=True)).to_be_focused()

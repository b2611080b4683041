"""Laws of pictures of recordings: every word has its moments, in the terminal, as SVG, as JSON and on the page, which
plays the sound, marks the moment and asks for nothing."""

from __future__ import annotations

import io
import wave
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import chromium, visit
from numpy.typing import NDArray
from rich.cells import cell_len

from regard.show.sound_map import SoundMap, spread
from regard.show.sound_page import Moments, Transcribed, Wave, sound_page
from regard.show.spectrogram import levels, pitch_marks, ticks, wav_bytes

SVG = "{http://www.w3.org/2000/svg}"
WORDS = ("one", "<b>&", "three")
FRAMES, BANDS, STRIDE, SECONDS = 102, 8, 4, 1.02
STEPS = 26
TIMES = ((0.08, 0.28), (0.4, 0.6), (0.72, 0.92))
VIEW = "document.querySelector('main').soundView"


def spectrogram() -> NDArray[np.floating]:
    return np.random.default_rng(1).normal(-6, 2, (FRAMES, BANDS))


def peaks(*places: int) -> NDArray[np.floating]:
    """All weight of each word at one step."""
    weights = np.zeros((len(places), STEPS))
    weights[np.arange(len(places)), places] = 1.0
    return weights


def drawn(**given: object) -> SoundMap:
    facts = {"weights": peaks(3, 12, 20), "stride": STRIDE, "kind": "attention", "answer": "one <b>& three"}
    return SoundMap(spectrogram(), SECONDS, WORDS, **{**facts, "times": TIMES, **given})  # type: ignore[arg-type]


def heard(**given: object) -> Transcribed:
    rate = 8000
    sound = Wave(0.3 * np.sin(np.arange(int(SECONDS * rate)) / 9), rate)
    two = np.stack([peaks(3, 12, 20), peaks(4, 13, 21)])
    views = (Moments("attention, layer 1", two, STRIDE), Moments("CTC", peaks(2, 11, 19)[None], STRIDE))
    facts = {"title": "one <b>& three", "seconds": SECONDS, "spectrogram": spectrogram(), "words": WORDS}
    facts |= {"views": views, "times": TIMES, "wave": sound, "hertz": tuple(np.geomspace(100, 3900, BANDS))}
    return Transcribed(**{**facts, **given})  # type: ignore[arg-type]


@pytest.mark.parametrize("width", [30, 47, 100])
def test_a_terminal_shows_the_spectrogram_and_each_word_within_the_width(width: int) -> None:
    lines = drawn().text(width).plain.splitlines()
    assert all(cell_len(line) <= width for line in lines[:-1])
    for word, share in zip(WORDS, (3, 12, 20), strict=True):
        (line,) = (each for each in lines if each.split() and each.split()[0] == word)
        across = min(width - 1 - max(map(len, WORDS)), FRAMES)
        bar = line[-across:]
        place = bar.index(max(bar, key="·░▒▓█ ".find if " " not in bar else "· ░▒▓█".find))
        assert abs(place / across - share * STRIDE / FRAMES) < 0.08


def test_a_picture_has_a_strip_and_a_time_for_each_word_and_its_text_stays_text() -> None:
    root = ElementTree.fromstring(drawn().svg())
    titles = [title.text or "" for title in root.findall(f".//{SVG}title")]
    assert [title.split(":")[0] for title in titles] == list(WORDS)
    assert len(root.findall(f".//{SVG}g/{SVG}rect[@fill='none']")) == len(WORDS)
    assert len(ElementTree.fromstring(drawn(times=None).svg()).findall(f".//{SVG}g/{SVG}rect[@fill='none']")) == 0


def test_json_has_every_weight_and_when_each_step_begins() -> None:
    facts = drawn().facts()
    assert np.allclose(facts["weights"], peaks(3, 12, 20)) and facts["target"] == list(WORDS)
    assert facts["source"][:3] == [0.0, 0.04, 0.08] and facts["times"] == [list(each) for each in TIMES]


def test_what_does_not_fit_is_refused() -> None:
    for given in ({"weights": peaks(1, 2)}, {"times": TIMES[:2]}, {"stride": 0}, {"weights": -peaks(1, 2, 3)}):
        with pytest.raises(ValueError):
            drawn(**given)
    with pytest.raises(ValueError, match="do not fit into"):
        drawn(stride=9)
    with pytest.raises(ValueError, match="needs a recording"):
        sound_page([], title="x")


def test_time_in_fewer_columns_keeps_the_mean_and_levels_are_shares() -> None:
    values = np.random.default_rng(2).random((3, 60))
    assert np.allclose(spread(values, 20).mean(1), values.mean(1)) and spread(values, 90).shape == (3, 90)
    found = levels(spectrogram())
    assert found.min() == 0 and found.max() == 1
    assert ticks(1.02, 7)[:3] == [0.0, 0.2, 0.4] and ticks(3600, 7)[-1] == 3240
    marks = pitch_marks(np.geomspace(60, 3900, 40).tolist())
    assert [place for _, place in marks] == sorted(place for _, place in marks) and all(
        0 < place < 1 for _, place in marks
    )


def test_the_sound_on_the_page_is_the_sound() -> None:
    samples = np.linspace(-1, 1, 999)
    with wave.open(io.BytesIO(wav_bytes(samples, 8000))) as file:
        read = np.frombuffer(file.readframes(999), "<i2") / 32767
        assert (file.getframerate(), file.getnchannels()) == (8000, 1) and np.abs(read - samples).max() < 1e-4
    with pytest.raises(ValueError, match="one channel"):
        wav_bytes(np.zeros((2, 3)), 8000)


def test_a_browser_shows_each_word_at_its_moment_and_plays_from_there(tmp_path: Path) -> None:
    page = sound_page([heard(), heard(title="second", times=None)], title="<i>What was said")
    (tmp_path / "page.html").write_text(page, encoding="utf-8")
    with chromium() as browser, visit(browser, tmp_path / "page.html") as seen:
        seen.page.wait_for_selector("body[data-drawn]")
        assert seen.page.locator(".words button").all_text_contents() == list(WORDS)
        assert "most at 0.14 s" in seen.page.locator(".caption").inner_text()
        seen.page.locator(".head input[value='2']").check(force=True)
        seen.page.locator(".words button").nth(1).hover()
        assert "“<b>&”, 0.40 to 0.60 s" in seen.page.locator(".caption").inner_text()
        assert "most at 0.54 s" in seen.page.locator(".caption").inner_text()
        seen.page.locator(".words button").nth(2).click()
        seen.page.wait_for_function("() => document.querySelector('audio').currentTime >= 0.7")
        seen.run("() => { const audio = document.querySelector('audio'); audio.pause(); audio.currentTime = 0.5; }")
        seen.page.wait_for_selector(".words button.now:text-is('<b>&')")
        assert seen.page.locator(".spans span").all_text_contents() == list(WORDS)
        seen.page.locator(".recording select").select_option("1")
        seen.page.wait_for_function("() => document.querySelectorAll('.spans span').length === 0")
        seen.page.locator(".view input[value='1']").check(force=True)
        seen.page.locator(".words button").nth(0).hover()
        assert "CTC; most at 0.10 s" in seen.page.locator(".caption").inner_text()
        for key, word in (("ArrowRight", 1), ("ArrowRight", 2), ("ArrowRight", 2), ("ArrowLeft", 1)):
            seen.page.locator(".words [aria-pressed='true']").focus()
            seen.page.keyboard.press(key)
            assert seen.run(f"() => {VIEW}.chosen.word") == word
        assert seen.complaints == []
        assert [url for url in seen.requests if not url.startswith(("file:", "data:", "blob:"))] == []
        for width in (1280, 390):
            seen.page.set_viewport_size({"width": width, "height": 800})
            assert seen.run("() => document.documentElement.scrollWidth <= innerWidth")

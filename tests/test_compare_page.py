"""The report of a comparison in a real browser: it asks for nothing, draws every chart, and holds every number."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from io import BytesIO
from itertools import combinations
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pytest
from browser import Visit, chromium, visit
from PIL import Image
from playwright.sync_api import Browser

from regard.show.colours import CONES_TO_LAB, RGB_TO_CONES
from regard.show.picture_map import map_facts, png_text
from regard.show.report_charts import MODEL_COLOURS
from regard.show.report_page import report_page

Comparison = dict[str, Any]
SEEDS = [1, 2, 3]
HOSTILE = (
    "</script><img src=x onerror=alert(1)>",
    "<b>$x^2$</b> & \"quoted\" 'single' `back` %{x}",
    "\u202egnol قطة سوداء 猫 👩‍👩‍👧 \ud800 \x00",
    "W" * 3000,
    "«title» <model-0> <!-- <a href='javascript:alert(2)'>press</a>",
)


def value(random: np.random.Generator, mean: float, spread: float, seeds: int = 3) -> Comparison:
    each = (mean + spread * random.standard_normal(seeds)).round(4).tolist()
    mean = float(np.mean(each))
    return {"each": each, "mean": mean, "low": mean - 2 * spread, "high": mean + 2.2 * spread}


def runs(name: str, seeds: list[int]) -> list[Comparison]:
    return [
        {
            "seed": seed,
            "folder": f"report.runs/{name}-{seed}",
            "command": f"regard train recipes/{name}.toml report.runs/{name}-{seed} --set train.seed={seed}",
            "state": "finished",
            "why": "",
            "minutes": 2.9 + seed / 10,
            "tokens": 1_300_123 + seed,
            "interrupted": False,
        }
        for seed in seeds
    ]


def curves(random: np.random.Generator, end: float, flops: float, seeds: list[int]) -> list[Comparison]:
    tokens = np.arange(1, 14) * 100_000.0
    return [
        {
            "seed": seed,
            "seconds": (tokens / (6900 + 300 * random.random())).round(2).tolist(),
            "tokens": tokens.tolist(),
            "flops": (tokens * flops).tolist(),
            "loss": (end + 5 * np.exp(-tokens / 3e5) + 0.05 * random.standard_normal(13)).round(4).tolist(),
        }
        for seed in seeds
    ]


def cost(**each: list[float]) -> Comparison:
    return {name: {"each": values, "mean": float(np.mean(values))} for name, values in each.items()}


def alignment(random: np.random.Generator, rows: int, columns: int) -> list[list[float]]:
    near = np.exp(-(((np.arange(columns) - np.arange(rows)[:, None] * columns / rows) / 0.8) ** 2))
    near += 0.1 * random.random((rows, columns))
    weights: list[list[float]] = (near / near.sum(1, keepdims=True)).tolist()
    return weights


def looked(random: np.random.Generator, models: list[Comparison], source: str, target: str) -> list[Comparison]:
    words, wrote = [*source.split(), "<eos>"], [*target.split(), "<eos>"]
    return [
        {
            "name": one["name"],
            "source": words,
            "target": wrote,
            "weights": alignment(random, len(wrote), len(words)),
            "kind": "saliency (gradient), not attention" if one["name"] == "seq2seq" else "attention",
        }
        for one in models
    ]


def frame(title: str, task: str) -> Comparison:
    return {
        "title": title,
        "task": task,
        "made": {
            "date": "2026-11-16 14:30 UTC",
            "version": "0.1.0",
            "command": "regard compare seq2seq rnnsearch transformer --seeds 3 --budget 1.3Mtok",
            "machine": {
                "processor": "AMD EPYC 7763",
                "cores": 2,
                "memory_gb": 24.0,
                "torch": "2.13.0",
                "threads": 1,
                "jobs": 2,
            },
        },
        "data": {
            "text": "the built-in corpus, at most 50 words",
            "train": "20,000 pairs",
            "valid": "500 pairs",
            "test": "2,000 pairs",
            "files": ["/data/train.en", "/data/train.fr"],
        },
        "budget": {"text": "1,300,000 target tokens each", "kind": "tokens", "amount": 1300000.0},
        "seeds": SEEDS,
        "reads": "source" if task == "translation" else "text",
        "sized": "source" if task == "translation" else "text",
        "counts": {"classification": "labels"}.get(task, "tokens"),
        "weights_to_one": task == "translation",
        "judged_by": "chrF of the sentence" if task == "translation" else "",
        "summary": [],
        "warnings": [],
        "measures": [],
        "models": [],
        "gold": None,
        "mixtures": [],
        "pairs": [],
        "alignments": [],
        "mistakes": [],
    }


def model(name: str, paper: str, year: int, parameters: int, **more: Any) -> Comparison:
    empty: Comparison = {
        "name": name,
        "paper": paper,
        "year": year,
        "settings": ["model.hidden=256", "train.rate=0.001"],
        "parameters": parameters,
        "runs": runs(name.replace(" ", "-"), SEEDS),
        "values": {},
        "lengths": [],
        "attention": None,
        "curves": [],
        "cost": {},
        "reach": None,
        "samples": [],
    }
    return empty | more


def translation() -> Comparison:
    random = np.random.default_rng(0)
    found = frame("seq2seq, rnnsearch and transformer on the built-in corpus", "translation")
    found["summary"] = [
        "For the same 1,300,000 target tokens, rnnsearch translates best: 91.3 BLEU, 37.1 more than seq2seq.",
        "On sources of more than 25 words seq2seq falls to 21.0; the two that attend stay above 80.",
        "rnnsearch and transformer cannot be told apart by chrF.",
    ]
    found["warnings"] = ["rnnsearch, seed 1 was interrupted and resumed where it had stopped."]
    found["measures"] = [
        {
            "key": "bleu",
            "name": "BLEU",
            "unit": "",
            "better": "higher",
            "note": "nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|version:2.6.0",
        },
        {
            "key": "chrf",
            "name": "chrF",
            "unit": "",
            "better": "higher",
            "note": "nrefs:1|case:mixed|eff:yes|nc:6|nw:0|space:no|version:2.6.0",
        },
    ]
    papers = {
        "seq2seq": ("Sutskever et al., Sequence to Sequence Learning with Neural Networks", 2014, 54.2, -16, "n"),
        "rnnsearch": (
            "Bahdanau et al., Neural Machine Translation by Jointly Learning to Align and Translate",
            2015,
            91.3,
            -2,
            "1",
        ),
        "transformer": ("Vaswani et al., Attention Is All You Need", 2017, 88.4, -3, "1"),
    }
    for place, (name, (paper, year, bleu, slope, path)) in enumerate(papers.items()):
        gradient = [[d, 0.02 * math.exp(-d * (0.16, 0.03, 0.01)[place])] for d in range(1, 41)]
        found["models"].append(
            model(
                name,
                paper,
                year,
                1_234_567 + 250_000 * place,
                values={"bleu": value(random, bleu, 0.8), "chrf": value(random, bleu + 4, 0.5)},
                lengths=[
                    {
                        "from": 10 * at + 1,
                        "to": 10 * at + 10 if at < 4 else None,
                        "sentences": 512 - 100 * at,
                        "mean": bleu + 6 + slope * at / 1.4,
                        "low": bleu + 5 + slope * at / 1.4 - at / 2,
                        "high": bleu + 7 + slope * at / 1.4 + at / 2,
                    }
                    for at in range(5)
                ],
                attention=value(random, (0.41, 0.15, 0.22)[place], 0.01),
                curves=curves(random, (1.9, 0.42, 0.61)[place], 1e8 * (1 + place), SEEDS),
                cost=cost(
                    parameters=[1.2e6 + 1e5 * place] * 3,
                    training_flops=[3.14e14 * (1 + place)] * 3,
                    training_tokens_per_second=[6900.0 - 900 * place, 6950.0, 7000.0 + place],
                    decoding_1=[310.0 + place],
                    decoding_32=[2400.0 + place],
                    memory_mb=[612.0 + place],
                ),
                reach={
                    "path": path,
                    "gradient": gradient,
                    "time": [[n, 0.0004 * n ** (1 + 0.1 * place)] for n in (8, 16, 32, 64, 128, 256)],
                },
            )
        )
        for curve in found["models"][-1]["curves"]:  # validations took BLEU too
            curve["bleu"] = [round(bleu * (1 - math.exp(-tokens / 4e5)), 4) for tokens in curve["tokens"]]
    found["models"][1]["runs"][0]["interrupted"] = True
    baseline = {"name": "diagonal baseline", "value": 0.295}
    found["gold"] = {
        "name": "alignment error",
        "unit": "",
        "better": "lower",
        "note": "1 − 2 |A∩S|",
        "baseline": baseline,
    }
    for first, second, difference, low, high, p in (
        ("rnnsearch", "seq2seq", 37.1, 35.0, 39.2, 0.0005),
        ("transformer", "seq2seq", 34.2, 32.1, 36.6, 0.0005),
        ("transformer", "rnnsearch", -0.9, -2.4, 0.7, 0.27),
    ):
        pair = {"first": first, "second": second, "measure": "bleu", "where": "all sentences"}
        better = first if low > 0 else None
        found["pairs"].append({**pair, "difference": difference, "low": low, "high": high, "p": p, "better": better})
    long = (
        "the little black cat that we know sleeps under the old table while the children of the teacher read a book ."
    )
    for source, target in (
        ("The little black cat sleeps here .", "Le petit chat noir dort ici ."),
        (long, "le petit chat noir que nous connaissons dort sous la vieille table pendant que les enfants lisent ."),
    ):
        looks = looked(random, found["models"], source, target)
        found["alignments"].append({"source": looks[0]["source"], "reference": target, "models": looks})
    for source, reference in (
        (
            "The teacher who knows the children gives them three red apples .",
            "Le professeur qui connaît les enfants leur donne trois pommes rouges .",
        ),
        (
            "We saw seventeen white horses near the river .",
            "Nous avons vu dix-sept chevaux blancs près de la rivière .",
        ),
    ):
        outputs = [
            {
                "model": one["name"],
                "text": reference.replace("trois", ("des", "deux", "trois")[at]),
                "score": 12.3 + 40 * at,
            }
            for at, one in enumerate(found["models"])
        ]
        looks = looked(random, found["models"], source, reference)
        found["mistakes"].append({"source": source, "reference": reference, "outputs": outputs, "models": looks})
    return found


def language() -> Comparison:
    random = np.random.default_rng(1)
    found = frame("Five language models on the built-in text", "language")
    found["summary"] = ["An LSTM mixed with 5-grams predicts best: perplexity 15.5 per word."]
    unit = {"key": "perplexity", "name": "perplexity", "unit": "per word", "better": "lower", "note": ""}
    found["measures"] = [unit]
    named = {"ngram": 31.2, "neural_lm": 28.8, "rnn_lm tanh": 24.1, "rnn_lm lstm": 17.9, "gpt": 19.4}
    for place, (name, perplexity) in enumerate(named.items()):
        one = model(name, f"paper {place}", 2003 + place, 500_000 * (place + 1))
        one["values"] = {"perplexity": value(random, perplexity, 0.4)}
        one["curves"] = curves(random, math.log(perplexity), 1e7 * (1 + place), SEEDS) if place else []
        one["samples"] = ["the cat sleeps .\nthe dog reads a book .", "a teacher gives the children apples ."]
        one["cost"] = cost(
            parameters=[5e5 * (place + 1)], training_flops=[1e13 * place], training_tokens_per_second=[9000.0]
        )
        one["cost"] |= cost(memory_mb=[300.0])
        one["reach"] = {
            "path": ("5", "5", "n", "n", "1")[place],
            "gradient": [[d, math.exp(-d * 0.3 / place)] for d in range(1, 30)] if place > 1 else [],
            "time": [],
        }
        found["models"].append(one)
    for first, second in (("rnn_lm lstm", "ngram"), ("rnn_lm lstm", "rnn_lm tanh"), ("gpt", "rnn_lm lstm")):
        difference = named[first] - named[second]
        pair = {"first": first, "second": second, "measure": "perplexity", "where": "all sentences"}
        found["pairs"].append(
            {
                **pair,
                "difference": difference,
                "low": difference - 0.8,
                "high": difference + 0.9,
                "p": 0.001,
                "better": first if difference < -0.9 else second,
            }
        )
    found["mixtures"] = [
        {"name": "rnn_lm lstm + ngram", "weights": {"rnn_lm lstm": 0.81, "ngram": 0.19}, "value": 15.52},
        {"name": "gpt + ngram", "weights": {"gpt": 0.77, "ngram": 0.23}, "value": 16.94},
    ]
    return found


def labels() -> Comparison:
    """What looks at a text looks at all of it at once: a row or two, and pale."""
    random = np.random.default_rng(2)
    found = frame("birnn and attentive_birnn on reviews.tsv", "classification")
    found["measures"] = [{"key": "accuracy", "name": "accuracy", "unit": "%", "better": "higher", "note": ""}]
    for name in ("birnn", "attentive_birnn"):
        one = model(name, "paper", 2016, 2_000_000, values={"accuracy": value(random, 80.0, 1.0)})
        one["cost"] = cost(training_tokens_per_second=[1500.0, 1600.0])
        one["curves"] = curves(random, 0.4, 1e6, SEEDS)
        found["models"].append(one)
    text = "we waited in the rain for this overwhelmingly long evening , and nobody sang one song that we knew"
    words = text.split()
    looks = []
    for one, rows in zip(found["models"], (["0, saliency"], ["0, attention", "0, saliency"]), strict=True):
        weights = random.dirichlet(np.ones(len(words)), len(rows)).tolist()
        looks.append({"name": one["name"], "source": words, "target": rows, "weights": weights, "kind": "gradient"})
    found["alignments"] = [{"source": words, "reference": "0", "models": looks}]
    outputs = [
        {"model": one["name"], "text": str(at), "score": 100.0 - 100 * at} for at, one in enumerate(found["models"])
    ]
    found["mistakes"] = [{"source": text, "reference": "0", "outputs": outputs, "models": looks}]
    return found


def failed() -> Comparison:
    """The last model's runs all came to nothing."""
    found = translation()
    found["warnings"] = [f"transformer, seed {seed}, failed (the loss is not finite)." for seed in SEEDS]
    lost = model("transformer", "", 0, 0) | {
        "parameters": None,
        "cost": {},
        "reach": {"path": "", "gradient": [], "time": []},
    }
    for run in lost["runs"]:
        run |= {"state": "failed", "why": "the loss is not finite", "minutes": None, "tokens": None}
    found["models"][2] = lost
    found["pairs"] = found["pairs"][:1]
    for one in (*found["alignments"], *found["mistakes"]):
        for key in one.keys() & {"models", "outputs"}:
            one[key] = one[key][:2]
    return found


def single() -> Comparison:
    """One seed, no intervals, and a perplexity that is not finite."""
    found = language()
    found["seeds"] = [7]
    for one in found["models"]:
        one["runs"] = runs(one["name"], [7])
        one["curves"] = one["curves"][:1]
        one["values"]["perplexity"] |= {"each": one["values"]["perplexity"]["each"][:1], "low": None, "high": None}
    found["models"][0]["values"]["perplexity"] |= {"each": [math.inf], "mean": math.inf}
    for pair in found["pairs"]:
        pair |= {"low": None, "high": None, "p": None, "better": None}
    return found


def hostile() -> Comparison:
    """Everything that somebody may have typed is an attack, or too long."""
    found = translation()
    names = {one["name"]: text for one, text in zip(found["models"], HOSTILE, strict=False)}
    found["title"], found["summary"], found["warnings"] = HOSTILE[0], list(HOSTILE), list(HOSTILE)
    found["data"] |= {"text": HOSTILE[0], "files": list(HOSTILE)}
    found["made"]["command"] = found["budget"]["text"] = HOSTILE[3]
    found["measures"][0] |= {"name": HOSTILE[1], "note": HOSTILE[4]}
    found["measures"][1]["unit"] = HOSTILE[3]
    for at, one in enumerate(found["models"]):
        one |= {"name": names[one["name"]], "paper": HOSTILE[at + 2], "samples": list(HOSTILE)}
        one["runs"][0] |= {"why": HOSTILE[0], "command": HOSTILE[3]}
        one["reach"]["path"] = HOSTILE[at]
    for pair in found["pairs"]:
        pair |= {"first": names[pair["first"]], "second": names[pair["second"]], "where": HOSTILE[3]}
        pair["better"] = names.get(pair["better"])
    for one in found["alignments"]:
        one |= {"source": [*HOSTILE, *one["source"][5:]], "reference": HOSTILE[3]}
    for drawn in (drawn for one in (*found["alignments"], *found["mistakes"]) for drawn in one["models"]):
        drawn |= {key: [*HOSTILE, *drawn[key][5:]] for key in ("source", "target")}
        drawn |= {"name": names[drawn["name"]], "kind": HOSTILE[1]}
    for mistake in found["mistakes"]:
        mistake |= {"source": HOSTILE[0], "reference": HOSTILE[3]}
        for output, text in zip(mistake["outputs"], HOSTILE, strict=False):
            output |= {"model": names[output["model"]], "text": text}
    found["mixtures"] = [{"name": HOSTILE[3], "weights": dict.fromkeys(names.values(), 0.3333), "value": 15.5}]
    return found


PLACES = (3, 5)  # rows and columns
TOP_LEFT, BOTTOM_RIGHT = (0, 0), (2, 4)


def captioning() -> Comparison:
    """Two models look at opposite corners of a white picture, and one does not attend."""
    random = np.random.default_rng(5)
    found = frame("Three captioners on pictures", "captioning")
    found |= {"reads": "picture", "sized": "caption", "judged_by": "chrF of the caption"}
    found["measures"] = [{"key": "chrf", "name": "chrF", "unit": "", "better": "higher", "note": ""}]
    baseline = {"name": "the region's share of the picture", "value": 8.3}
    found["gold"] = {"name": "inside", "unit": "%", "better": "higher", "note": "share", "baseline": baseline}
    for place, name in enumerate(("none", "soft", "captioner <i>")):
        one = model(name, f"paper {place}", 2015 + place, 100_000, values={"chrf": value(random, 50 + place, 1)})
        one |= {"attention": value(random, 40 + place, 1) if place else None, "curves": curves(random, 1.0, 1e8, SEEDS)}
        one["lengths"] = [{"from": 1, "to": 10, "sentences": 30, "mean": 50.0, "low": 45.0, "high": 55.0}]
        found["models"].append(one)
    words = ["a", "red", "<b>circle</b>", "extraordinarily-long-word-of-a-caption"]
    looks = []
    for name, corner in (("soft", TOP_LEFT), ("captioner <i>", BOTTOM_RIGHT)):
        weights = np.zeros((len(words), *PLACES))
        weights[:, *corner] = 0.25
        looks.append({"name": name, **map_facts(words, "attention", weights)})
    shown = {"picture": png_text(np.full((30, 50), 255, np.uint8)), "reference": "a red circle", "models": looks}
    outputs = [{"model": one["name"], "text": "a ring", "score": 40.0} for one in found["models"]]
    found["alignments"] = [{**shown, "source": [f"picture {number}"]} for number in (3, 8)]
    found["mistakes"] = [{**shown, "source": "picture 5", "outputs": outputs}]
    return found


KINDS = {one.__name__: one for one in (translation, language, labels, failed, single, hostile, captioning)}


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with chromium() as running:
        yield running


@pytest.fixture(scope="module")
def opened(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Visit]]:
    """Each kind of comparison, as a page that is drawn once for all tests; tests leave it as they found it."""
    doors: dict[str, Any] = {}
    seen: dict[str, Visit] = {}

    def opener(kind: str) -> Visit:
        if kind not in doors:
            file = tmp_path_factory.mktemp("page") / f"{kind}.html"
            file.write_text(report_page(KINDS[kind]()), encoding="utf-8")
            doors[kind] = visit(browser, file, color_scheme="light")
            seen[kind] = doors[kind].__enter__()
            seen[kind].page.wait_for_selector("body[data-drawn]")
        return seen[kind]

    yield opener
    for door in doors.values():
        door.__exit__(None, None, None)


WHAT_IS_DRAWN = """() => {
  const drawn = (box) => {
    const edge = box.querySelector("svg").getBoundingClientRect(), text = (name) => box.querySelector(name).textContent;
    const inside = ({ left, right, top, bottom }) =>
      left > edge.left - 1 && right < edge.right + 1 && top > edge.top - 1 && bottom < edge.bottom + 1;
    const cut = [...box.querySelectorAll("svg text")].filter((text) => {
      const place = text.getBoundingClientRect();
      return place.width && !inside(place);
    });
    return { title: box.closest("figure").querySelector("figcaption span").textContent, across: text(".xtitle"),
      up: text(".ytitle"), marks: box.querySelectorAll(".trace, .hm").length, cut: cut.map((one) => one.textContent) };
  };
  return [...document.querySelectorAll(".chart > div")].filter((box) => box.checkVisibility()).map(drawn);
}"""
TOO_WIDE = """() => [...document.querySelectorAll("body *")].filter((one) => one.checkVisibility()
  && !one.closest("svg") && one.getBoundingClientRect().right > document.documentElement.clientWidth + 1
  && (MEDIA === "print" || !one.closest(".scroll"))).map((one) => one.outerHTML.slice(0, 80))"""


@pytest.mark.parametrize("kind", KINDS)
def test_it_asks_for_nothing_and_draws_everything_on_any_screen(opened: Callable[[str], Visit], kind: str) -> None:
    seen = opened(kind)
    for width in (1280, 360):
        seen.page.set_viewport_size({"width": width, "height": 800})
        seen.settle()
        seen.settle()
        assert seen.run("() => document.documentElement.scrollWidth") <= width
        assert seen.run(TOO_WIDE.replace("MEDIA", "'screen'")) == []
        charts = seen.run(WHAT_IS_DRAWN)
        assert len(charts) == seen.run(
            "() => [...document.querySelectorAll('figure')].filter((f) => f.checkVisibility()).length"
        )
        assert len(charts) >= 3
        for chart in charts:
            assert chart["title"] and chart["across"] and chart["up"] and chart["marks"], chart
            assert chart["cut"] == [], f"{chart['title']} at {width}"
    assert seen.requests == [seen.page.url]
    assert seen.complaints == []


@contextmanager
def on_paper(seen: Visit) -> Iterator[None]:
    """A4, from a screen that is dark, with a table opened."""
    seen.page.locator("#quality summary").first.click()
    seen.page.set_viewport_size({"width": 794, "height": 1123})
    seen.page.emulate_media(media="print", color_scheme="dark")
    seen.settle()
    yield
    seen.page.emulate_media(media="screen", color_scheme="light")
    seen.page.locator("#quality summary").first.click()
    seen.settle()


@pytest.mark.parametrize("kind", ["translation", "hostile"])
def test_paper_gets_all_of_it_in_dark_ink(opened: Callable[[str], Visit], kind: str) -> None:
    seen = opened(kind)
    with on_paper(seen):
        theme = seen.run("() => document.documentElement.dataset.theme")
        wide = seen.run(TOO_WIDE.replace("MEDIA", "'print'"))
        charts = seen.run("() => [...document.querySelectorAll('.chart > div')].map((box) => box.scrollWidth)")
        tables = seen.run("() => [...document.querySelectorAll('details')].map((d) => [d.open, d.checkVisibility()])")
    assert theme == "light" and wide == []
    assert max(charts) <= 17 / 2.54 * 96, "A4 less its margins"
    assert [True, True] in tables and [False, False] in tables and [False, True] not in tables
    assert seen.complaints == []


def words(seen: Visit, section: str) -> str:
    text: str = seen.run("(id) => document.getElementById(id).textContent", section)
    return text


def test_every_number_is_in_a_table(opened: Callable[[str], Visit]) -> None:
    seen, found = opened("translation"), translation()
    quality, lengths, learnt, paid, reach = (words(seen, s) for s in ("quality", "lengths", "learnt", "cost", "reach"))
    for one in found["models"]:
        for given in one["values"].values():
            assert f"{given['mean']:.1f}" in quality and f"{given['low']:.1f} to {given['high']:.1f}" in quality
            assert " · ".join(f"{each:.1f}" for each in given["each"]) in quality
        for curve in one["curves"]:
            assert all(f"{value:.3f}" in quality for value in (*curve["loss"], *curve["bleu"]))
            assert all(f"{seconds / 60:.2f}" in quality for seconds in curve["seconds"])
        for part in one["lengths"]:
            assert f"{part['mean']:.1f} ({part['low']:.1f} to {part['high']:.1f})" in lengths
            assert str(part["sentences"]) in lengths
        assert f"{one['attention']['mean']:.3f}" in learnt
        assert (
            f"{one['cost']['decoding_32']['mean']:,.0f}" in paid
            and f"{one['cost']['training_flops']['mean'] / 1e14:.2f} · 10¹⁴" in paid
        )
        speeds = one["cost"]["training_tokens_per_second"]
        assert f"{speeds['mean']:,.0f}{min(speeds['each']):,.0f} to {max(speeds['each']):,.0f}" in paid
        assert all(f"{seconds:.3g}" in reach for _, seconds in one["reach"]["time"])
        assert f"{one['parameters']:,}" in words(seen, "compared")
    assert "0.295" in learnt
    for one in found["alignments"]:
        for drawn in one["models"]:
            assert all(f"{weight:.2f}" in learnt for row in drawn["weights"] for weight in row)
    told = words(seen, "significance")
    assert all(text in told for text in ("+37.1", "+35.0 to +39.2", "0.0005", "rnnsearch is better"))
    assert "−0.9−2.4 to +0.70.27no significant difference" in told.replace("\n", "")
    assert "score 52.3" in words(seen, "mistakes")
    language_page = opened("language")
    assert "0.81 rnn_lm lstm, 0.19 ngram15.5" in words(language_page, "writing")
    assert "rnn_lm lstm is better" in words(language_page, "significance"), "lower is better"
    assert "not tested" in words(opened("single"), "significance")


def test_the_charts_show_what_was_found(opened: Callable[[str], Visit]) -> None:
    seen, found = opened("translation"), translation()
    drawn = seen.run("() => [...document.querySelectorAll('.chart > div')].map((box) => box.data ?? [])")
    dots, better, losses, lengths, *_ = drawn
    for place, one in enumerate(found["models"]):
        given, dot, seeds = one["values"]["bleu"], dots[2 * place], dots[2 * place + 1]
        error = dot["error_x"]
        ends = [dot["x"][0] - error["arrayminus"][0], dot["x"][0], dot["x"][0] + error["array"][0]]
        assert ends == pytest.approx([given["low"], given["mean"], given["high"]])
        assert seeds["x"] == given["each"]
        for curves, key in ((better, "bleu"), (losses, "loss")):
            line = next(trace for trace in curves if trace.get("name") == one["name"])
            assert line["y"] == pytest.approx(np.mean([curve[key] for curve in one["curves"]], 0))
        bins = next(trace for trace in lengths if trace.get("name") == one["name"])
        assert bins["y"] == [part["mean"] for part in one["lengths"]]
    heat = next(traces for traces in drawn if traces and traces[0].get("type") == "heatmap")
    weights = found["alignments"][0]["models"][0]["weights"]
    assert np.abs(np.array(heat[0]["z"]) - np.array(weights)).max() <= 5e-4
    for button, key in (("Tokens", "tokens"), ("FLOPs", "flops"), ("Time", "seconds")):
        seen.page.get_by_role("button", name=button, exact=True).first.click()
        x = seen.run("() => document.querySelectorAll('.chart > div')[1].data.filter((trace) => trace.name)[0].x")
        scale = 60 if key == "seconds" else 1
        assert x == pytest.approx(np.mean([curve[key] for curve in found["models"][0]["curves"]], 0) / scale)
    seen.page.select_option("#sentence", "1")
    assert seen.page.locator("#sentence-1 .chart svg.main-svg").count() >= 3
    assert seen.page.locator("#sentence-0").is_hidden()
    seen.page.select_option("#sentence", "0")
    assert seen.complaints == []


def test_labels_are_right_or_wrong_and_the_palest_look_has_colour(opened: Callable[[str], Visit]) -> None:
    seen, found = opened("labels"), labels()
    largest = max(weight for look in found["alignments"][0]["models"] for row in look["weights"] for weight in row)
    tops = seen.run("() => [...document.querySelectorAll('#learnt .chart > div')].map((box) => box.data[0].zmax)")
    assert tops == pytest.approx([largest] * 2)
    assert "birnn right" in words(seen, "mistakes") and "attentive_birnn wrong" in words(seen, "mistakes")
    assert "1,5501,500 to 1,600" in words(seen, "cost") and "training, labels/s" in words(seen, "cost")


def test_each_word_lights_up_the_part_of_the_picture_that_it_looked_at(opened: Callable[[str], Visit]) -> None:
    seen = opened("captioning")
    cards = seen.page.locator("#sentence-0 .card")
    assert cards.count() == 2 and seen.page.locator("#sentence-0 .pictured img").count() == 1
    for card, bright, dark in ((0, TOP_LEFT, BOTTOM_RIGHT), (1, BOTTOM_RIGHT, TOP_LEFT)):
        maps = cards.nth(card).locator(".places div")
        assert maps.all_inner_texts() == ["a", "red", "<b>circle</b>", "extraordinarily-long-word-of-a-caption"]
        drawn = maps.nth(1).locator("img").screenshot()
        pixels = np.asarray(Image.open(BytesIO(drawn)).convert("L"))
        at = [[int((each + 0.5) * side / count) for each, side, count in zip(place, pixels.shape, PLACES, strict=True)]
              for place in (bright, dark)]  # fmt: skip
        assert pixels[*at[0]] > 200 and pixels[*at[1]] < 90
    assert "8.3" in words(seen, "learnt") and "inside" in words(seen, "learnt")
    assert seen.page.locator("#mistakes .pictured img").count() == 1


def test_attention_maps_are_drawn_when_they_are_opened(opened: Callable[[str], Visit]) -> None:
    seen, found = opened("translation"), translation()
    first = seen.page.locator("#mistakes article").first
    assert first.locator("svg.main-svg").count() == 0
    first.get_by_text("Attention maps").click()
    seen.settle()
    shown = first.locator(".chart > div").evaluate_all("(boxes) => boxes.map((box) => box.data[0].z)")
    for heat, one in zip(shown, found["mistakes"][0]["models"], strict=True):
        assert np.abs(np.array(heat) - np.array(one["weights"])).max() <= 5e-4
    assert seen.run(TOO_WIDE.replace("MEDIA", "'screen'")) == []
    first.get_by_text("Attention maps").click()
    seen.settle()
    assert seen.complaints == []


def test_hostile_text_stays_text(opened: Callable[[str], Visit]) -> None:
    seen = opened("hostile")
    assert seen.run("() => document.title") == HOSTILE[0]
    assert seen.run("() => document.querySelectorAll('main :is(img, b, a)').length") == 0
    shown = words(seen, "summary")
    assert HOSTILE[0] in shown and HOSTILE[1] in shown and HOSTILE[3] in shown and HOSTILE[4] in shown
    assert "U+202Egnol قطة سوداء 猫 👩‍👩‍👧 U+D800 U+0000" in shown
    ticks = seen.run("() => [...document.querySelectorAll('.yaxislayer-above text')].map((text) => text.textContent)")
    assert {"</script><img s…", "<b>$x^2$</b> & …", "WWWWWWWWWWWWWWW…", "«title»␣<model-…"} <= set(ticks)
    assert seen.requests == [seen.page.url] and seen.complaints == []


def test_the_policy_stops_strange_scripts_and_requests(opened: Callable[[str], Visit]) -> None:
    seen = opened("hostile")
    policy = seen.page.locator("meta[http-equiv]").get_attribute("content") or ""
    assert "default-src 'none'; script-src 'sha256-" in policy and "unsafe-eval" not in policy
    tried = """async () => {
      document.body.append(Object.assign(document.createElement("script"), { textContent: "window.ran = 1" }));
      return [window.ran ?? "kept out", await fetch("https://example.org").catch(() => "kept in")];
    }"""
    assert seen.run(tried) == ["kept out", "kept in"]
    assert len(seen.complaints) >= 2 and all(
        "Content Security Policy" in complaint for complaint in seen.complaints[:2]
    )
    seen.complaints.clear()
    assert seen.requests == [seen.page.url]


def test_what_is_missing_is_left_out(opened: Callable[[str], Visit]) -> None:
    everything = ["summary", "compared", "quality", "lengths", "learnt", "cost", "reach", "significance", "mistakes"]
    ids = "() => [...document.querySelectorAll('main > section')].map((section) => section.id)"
    links = "() => [...document.querySelectorAll('nav a')].map((link) => link.hash.slice(1))"
    for kind, expected in (
        ("translation", everything),
        ("language", ["summary", "compared", "quality", "cost", "reach", "writing", "significance"]),
        ("hostile", [*everything[:7], "writing", *everything[7:]]),
    ):
        assert opened(kind).run(ids) == opened(kind).run(links) == expected
    assert "3 failed" in words(opened("failed"), "compared") and "–" in words(opened("failed"), "quality")
    assert "inf" not in words(opened("single"), "quality")
    bare = report_page(frame("nothing", "language"))
    assert bare.count("<section") == 1 and "<figure" not in bare


def test_the_button_changes_the_colours_of_page_and_charts(opened: Callable[[str], Visit]) -> None:
    seen = opened("language")
    colours = """() => {
      const chart = document.querySelector(".chart > div"), sign = document.querySelector("td .m1");
      return [getComputedStyle(document.body).backgroundColor, getComputedStyle(sign).color, chart.data[2].marker.color,
        chart.layout.paper_bgcolor];
    }"""
    light = seen.run(colours)
    seen.page.click("#theme")
    dark = seen.run(colours)
    assert all(one != other for one, other in zip(light, dark, strict=True))
    assert light[1] == light[2] and dark[1] == dark[2], "a model has one colour everywhere"
    seen.page.click("#theme")
    assert seen.run(colours) == light
    seen.page.emulate_media(color_scheme="light")


# of a colour's light, what is left to those who lack a kind of cone (Machado 2009)
SIGHT = {
    "all": np.eye(3),
    "no long": np.array(
        [[0.152286, 1.052583, -0.204868], [0.114503, 0.786281, 0.099216], [-0.003882, -0.048116, 1.051998]]
    ),
    "no middle": np.array(
        [[0.367322, 0.860646, -0.227968], [0.280085, 0.672501, 0.047413], [-0.01182, 0.04294, 0.968881]]
    ),
    "no short": np.array(
        [[1.255528, -0.076749, -0.178779], [-0.078411, 0.930809, 0.147602], [0.004733, 0.691367, 0.3039]]
    ),
}


def test_models_differ_to_every_eye_in_both_themes(opened: Callable[[str], Visit]) -> None:
    seen = opened("language")
    for _ in ("light", "dark"):
        found = {name: value for name, value in seen.run("colours").items() if name != "<scale>"}
        gamma = {name: np.array([int(part) for part in value[4:-1].split(",")]) / 255 for name, value in found.items()}
        linear = {n: np.where(g <= 0.04045, g / 12.92, ((g + 0.055) / 1.055) ** 2.4) for n, g in gamma.items()}
        light = {name: float(value @ (0.2126, 0.7152, 0.0722)) + 0.05 for name, value in linear.items()}
        models = [name for name in found if name.startswith("<model-")]
        assert len(models) == MODEL_COLOURS
        for name, least in [*((name, 3.0) for name in models), ("<ink>", 7.0), ("<quiet>", 4.5)]:
            low, high = sorted((light[name], light["<panel>"]))
            assert high / low >= least, name
        for eye, matrix in SIGHT.items():
            seen_as = [
                np.cbrt(np.clip(linear[name] @ matrix.T, 0, 1) @ RGB_TO_CONES.T) @ CONES_TO_LAB.T for name in models
            ]
            apart = [np.linalg.norm(one - other) for one, other in combinations(seen_as, 2)]
            assert min(apart) > 0.06, eye
        seen.page.click("#theme")


def test_a_chart_can_be_taken_away_with_its_title(opened: Callable[[str], Visit]) -> None:
    seen = opened("translation")
    with seen.page.expect_download() as waiting:
        seen.page.locator("#lengths .save").click()
    root = ElementTree.fromstring(Path(waiting.value.path()).read_bytes())
    texts = {"".join(element.itertext()) for element in root.iter("{http://www.w3.org/2000/svg}text")}
    title = "BLEU by length of the source, with 95 % confidence intervals"
    assert {title, "words in the source", "rnnsearch", "41+"} <= texts
    assert [url for url in seen.requests if not url.startswith("blob:")] == [seen.page.url] and seen.complaints == []


def test_keys_reach_everything(opened: Callable[[str], Visit]) -> None:
    seen = opened("translation")
    seen.run("() => document.activeElement.blur()")
    reached = set()
    for _ in range(70):
        seen.page.keyboard.press("Tab")
        reached.add(
            seen.run("() => [document.activeElement.tagName, document.activeElement.textContent.slice(0, 12)].join()")
        )
    assert {"BUTTON,Dark", "A,Cost", "SUMMARY,The numbers", "BUTTON,chrF", "BUTTON,FLOPs", "BUTTON,Save SVG"} <= reached
    assert seen.page.get_by_role("combobox", name="Sentence").count() == 1
    levels = seen.run("() => [...document.querySelectorAll('h1, h2, h3, h4')].map((head) => +head.tagName[1])")
    assert levels[0] == 1 and levels.count(1) == 1

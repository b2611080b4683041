"""Laws of looking: rows stay distributions, gradients are gradients, and the picture can be read."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import math
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from browser import chromium, visit
from hypothesis import given
from hypothesis import strategies as st
from made import pairs, target_of, text_fields
from rich.cells import cell_len
from rich.console import Console
from torch import Tensor, nn

from regard.interface import BOS, EOS, SPECIALS, Ids, Shapes, UserError
from regard.look.attention import look_at_translation as look
from regard.look.attention import translation_closely as look_closely
from regard.look.gates import WORDS, carried, carried_closely, most_varied
from regard.look.neighbours import nearest, neighbours
from regard.look.weights import cross_attention, forced_weights, gradient_weights, merge
from regard.models import convs2s, rnnsearch, seq2seq, transformer
from regard.models.encoder_decoder import EncoderDecoder
from regard.recipe import parse_recipe
from regard.run import Run, build_model
from regard.show.attention_page import attention_page
from regard.show.colours import LEGEND, SHADES, paper_colour, shade
from regard.show.heat_map import HeatMap, gate_map
from regard.tasks.registry import TASKS
from regard.train.session import Session

# Merging pieces into words

pieces = st.lists(st.integers(1, 3), min_size=1, max_size=5).map(
    lambda counts: [word for word, count in enumerate(counts) for _ in range(count)]
)


@given(source=pieces, target=pieces, seed=st.integers(0, 99))
def test_merged_rows_still_sum_to_1(source, target, seed):
    random = np.random.default_rng(seed)
    weights = random.dirichlet(np.ones(len(source) + 1), len(target) + 1)  # <eos> on both sides
    merged = merge(weights, source, target)
    assert merged.shape == (target[-1] + 1, source[-1] + 2)
    assert np.allclose(merged.sum(1), 1)
    for t in range(target[-1] + 1):
        of = [row for row, word in enumerate(target) if word == t]
        for s in range(source[-1] + 1):
            columns = [column for column, word in enumerate(source) if word == s]
            assert merged[t, s] == pytest.approx(weights[np.ix_(of, columns)].sum() / len(of))
        assert merged[t, -1] == pytest.approx(weights[of, len(source)].mean())


def test_one_piece_per_word_changes_nothing():
    weights = np.random.default_rng(0).random((3, 6))
    assert np.array_equal(merge(weights, [0, 1, 2, 3, 4], [0, 1, 2]), weights)
    assert np.array_equal(merge(weights, [0, 1, 2, 3, 4], [0, 1]), weights[:2])  # <eos>'s row is left out
    assert merge(weights, [0, 1, 2, 3, 4], []).shape == (0, 6)


# Weights

BATCH = pairs([[4, 5, 6, 7, EOS], [8, 9, EOS]], [[BOS, 4, 5, EOS], [BOS, 6, EOS]])
SMALL = {"embedding": 5, "hidden": 7, "dropout": 0.0}
BUILDERS = {
    "seq2seq": lambda: seq2seq.build(seq2seq.Config(**SMALL, layers=1), Shapes(Ids(11), Ids(13))),
    "seq2seq mean": lambda: seq2seq.build(seq2seq.Config(**SMALL, layers=1, context="mean"), Shapes(Ids(11), Ids(13))),
    "rnnsearch": lambda: rnnsearch.build(rnnsearch.Config(**SMALL), Shapes(Ids(11), Ids(13))),
    "transformer": lambda: transformer.build(
        transformer.Config(dim=6, heads=3, feed_forward=7, layers=2, dropout=0.0), Shapes(Ids(11), Ids(13))
    ),
}
each = pytest.mark.parametrize("name", BUILDERS)


def model_of(name: str) -> EncoderDecoder:
    torch.manual_seed(1)
    return BUILDERS[name]().double().eval()


@each
def test_gradient_weights_are_distributions_over_real_tokens(name):
    weights = gradient_weights(model_of(name), BATCH)
    assert weights.shape == (2, 3, 5)
    assert torch.allclose(weights.sum(-1), BATCH.target.after().mask.double())  # nothing is asked at padding
    assert (weights[1, :, 3:] == 0).all()
    assert (weights >= 0).all()
    assert (weights[0] > 0).all()


@each
def test_saliency_equals_finite_differences(name):
    model, step, small = model_of(name), 1, 1e-6

    def log_prob(row: int, place: int, dim: int, change: float) -> float:
        def nudge(module: nn.Module, inputs: object, output: Tensor) -> Tensor:
            moved = output.clone()
            moved[row, place, dim] += change
            return moved

        hook = model.encoder.embed.register_forward_hook(nudge)  # type: ignore[union-attr,operator]
        with torch.no_grad():
            log_probs = model.logits(BATCH).log_softmax(-1)
        hook.remove()
        return float(log_probs[row, step, target_of(BATCH)[row, step + 1]])

    weights = gradient_weights(model, BATCH)
    dims = 6 if name == "transformer" else 5
    for row, length in ((0, 5), (1, 3)):
        slopes = torch.zeros(5, dims, dtype=torch.float64)
        for place in range(length):
            for dim in range(dims):
                ahead, behind = (log_prob(row, place, dim, change) for change in (small, -small))
                slopes[place, dim] = (ahead - behind) / (2 * small)
        sizes = slopes.norm(dim=-1)
        assert torch.allclose(weights[row, step], sizes / sizes.sum(), atol=1e-6)


@pytest.mark.parametrize("design", [transformer, convs2s])
def test_gradients_are_to_the_source_where_both_sides_share_their_vectors(design):
    config = design.Config(**({"dim": 6, "heads": 2} if design is transformer else {"embedding": 6, "hidden": 6}))
    shared = design.build(config, Shapes(Ids(11), Ids(11), joint=True)).double().eval()
    assert shared.encoder.embed is shared.decoder.embed
    apart = copy.deepcopy(shared)
    apart.encoder.embed = copy.deepcopy(shared.encoder.embed)
    assert torch.allclose(gradient_weights(shared, BATCH), gradient_weights(apart, BATCH))


def test_gradients_leave_the_model_as_it_was():
    model = model_of("seq2seq")
    before = model.logits(BATCH)
    gradient_weights(model, BATCH)
    assert torch.equal(model.logits(BATCH), before)
    assert all(parameter.grad is None for parameter in model.parameters())


def test_what_is_looked_at():
    assert torch.equal(
        forced_weights(model_of("seq2seq"), BATCH), gradient_weights(model_of("seq2seq"), BATCH)
    )  # nothing attends
    model = model_of("transformer")
    every = cross_attention(model, BATCH)  # (batch, layers, heads, target, source)
    assert every.shape == (2, 2, 3, 3, 5)
    assert torch.allclose(forced_weights(model, BATCH), every.mean((1, 2)))
    for layer in (1, 2):
        assert torch.allclose(forced_weights(model, BATCH, layer=layer), every[:, layer - 1].mean(1))
    for layer in (0, 3, -1):
        with pytest.raises(UserError, match=f"Layer {layer} does not exist: choose one of the attention layers 1 to 2"):
            forced_weights(model, BATCH, layer=layer)


# Text


def word_run(model: str = "rnnsearch", kind: str = "words") -> Run:
    text = [("the cat sleeps", "le chat dort")]
    fields = text_fields(lambda: text, "source", "target", kind=kind, size=0, joint=False)
    sizes = {"dim": 6, "heads": 2, "feed_forward": 7} if model == "transformer" else SMALL
    recipe = parse_recipe(
        {"task": "translation", "data": {"name": "world"}, "model": {"name": model, **sizes}, "train": {"steps": 1}},
        tasks=TASKS,
    )
    return Run(recipe, fields, build_model(recipe, fields).eval(), torch.device("cpu"))


@pytest.mark.parametrize("kind", ["words", "characters"])
@pytest.mark.parametrize("model", ["rnnsearch", "seq2seq"])
def test_words_whatever_the_pieces(model, kind):
    seen = look(word_run(model, kind), "the cat sleeps", "le chat, dort!")
    assert seen.columns == ("the", "cat", "sleeps", "<eos>")
    assert seen.rows == ("le", "chat", ",", "dort", "!")
    assert seen.weights.shape == (5, 4)
    assert np.allclose(seen.weights.sum(1), 1, atol=1e-6)
    assert seen.kind == ("attention" if model == "rnnsearch" else "saliency (gradient), not attention")


def test_its_own_translation_by_default():
    run = word_run()
    seen, text = run.look("the cat"), run.predict(["the cat"])[0].text
    assert "".join(seen.rows) == text.replace(" ", "")
    assert str(seen).count("\n") >= len(seen.rows)


def test_an_empty_target_is_a_picture_without_rows():
    seen = look(word_run(), "the cat", "")
    assert seen.rows == ()
    assert seen.weights.shape == (0, 3)
    assert "cat" in str(seen)
    ElementTree.fromstring(seen.svg())


def test_nothing_to_look_at():
    with pytest.raises(UserError, match="empty"):
        look(word_run(), "", "le chat")


# From near


@pytest.mark.parametrize("model", ["rnnsearch", "seq2seq", "transformer"])
def test_from_near_every_head_is_there_and_their_mean_is_the_look(model):
    run = word_run(model)
    sentence = look_closely(run, "the cat sleeps", "le chat dort")
    first = sentence.views[0]
    assert (first.rows, first.columns) == (("le", "chat", "dort", "<eos>"), ("the", "cat", "sleeps", "<eos>"))
    assert sentence.output == "le chat dort"
    for view in sentence.views:
        assert np.allclose(view.weights.sum(-1), 1, atol=1e-5)
    across = [view.weights.mean(0) for view in sentence.views if view.name == first.name]
    assert np.allclose(np.mean(across, 0)[:3], look(run, "the cat sleeps", "le chat dort").weights, atol=1e-6)
    assert sentence.note == ("saliency (gradient), not attention" if model == "seq2seq" else "")
    assert len(sentence.views) == {"rnnsearch": 1, "seq2seq": 1, "transformer": 3 * 3}[model]


def test_from_near_nothing_written_is_read_before_its_time():
    views = look_closely(word_run("transformer"), "the cat sleeps", "le chat dort").views
    own = [view for view in views if view.columns[0] == "<bos>"]
    assert len(own) == 3
    for view in own:
        assert view.rows == ("le", "chat", "dort", "<eos>") and view.columns == ("<bos>", "le", "chat", "dort")
        assert np.all(np.triu(view.weights, 1) == 0)


def test_a_notebook_shows_the_page_in_a_frame():
    shown = word_run().look("the cat")._repr_html_()
    assert shown.startswith("<iframe") and "sandbox" in shown


# Pictures


def seen_of(source: list[str], target: list[str], *, seed: int = 0) -> HeatMap:
    weights = np.random.default_rng(seed).dirichlet(np.full(len(source), 0.3), len(target))
    return HeatMap(tuple(target), tuple(source), weights, "attention")


def cells(line: str) -> list[str]:
    """What stands in each cell of the terminal; the right half of a wide character is ''."""
    out = []
    for character in line:
        out += [character] + [""] * (cell_len(character) - 1)
    return out


SOURCE, TARGET = ["the", "small", "cat", "sleeps", ".", "<eos>"], ["le", "petit", "chat", "dort", "."]


def test_a_shade_shows_the_weight():
    for least, mark in SHADES:
        assert shade(least) == mark
    assert [shade(weight) for weight in (0.0, 0.049, 0.051, 0.3, 0.5, 1.0)] == ["·", "·", "░", "▒", "▓", "█"]
    assert all(mark in LEGEND for _, mark in SHADES)
    darkness = [sum(paper_colour(weight)) for weight in np.linspace(0, 1, 7)]
    assert darkness == sorted(darkness, reverse=True)


WIDE = ["猫", "は", "眠っている", "。", "<eos>"]


@pytest.mark.parametrize("source, target", [(SOURCE, TARGET), (WIDE, ["the", "猫猫", "."]), (["a"], ["b"])])
def test_without_colour_every_word_and_every_weight_is_there(source, target):
    seen = seen_of(source, target)
    plain = seen.text(80).plain
    assert "\x1b" not in plain
    header, *rows, legend = plain.split("\n")
    assert header.split() == source
    assert legend.startswith("attention: ")
    names = max(map(cell_len, target))
    starts = [names + 1 + sum(max(2, cell_len(word)) + 1 for word in source[:column]) for column in range(len(source))]
    for column, word in enumerate(source):  # each word begins where its column does
        assert "".join(cells(header)[starts[column] :]).startswith(word)
    for row, word, weights in zip(rows, target, seen.weights, strict=True):
        assert "".join(cells(row)[: names + 1]).strip() == word
        for column, weight in enumerate(weights):
            size = max(2, cell_len(source[column]))
            field = cells(row)[starts[column] : starts[column] + size]
            assert len(field) == size
            assert set(field) - {" "} == {shade(weight)}


@pytest.mark.parametrize("words", [SOURCE * 3, WIDE * 4], ids=["narrow", "wide"])
def test_a_long_sentence_stands_upright_within_the_width(words):
    seen = seen_of(words, TARGET)
    *lines, legend = seen.text(70).plain.split("\n")
    assert max(map(cell_len, lines)) <= 70
    tall = max(map(len, words))
    header, rows = lines[:tall], lines[tall:]
    names = max(map(cell_len, TARGET))
    for column, word in enumerate(words):
        at = names + 1 + 3 * column
        letters = [cells(line.ljust(200))[at] for line in header]
        assert "".join(letters).strip() == word
        for row, weights in zip(rows, seen.weights, strict=True):
            assert shade(weights[column]) in cells(row)[at : at + 2]
    assert len(rows) == len(TARGET)


def test_the_map_in_colour_has_the_same_text():
    seen, written = seen_of(SOURCE, TARGET), io.StringIO()
    Console(file=written, force_terminal=True, color_system="truecolor", width=80).print(seen.text(80))
    assert "\x1b[" in written.getvalue()
    assert "petit" in written.getvalue()


def test_the_svg_is_xml_and_holds_any_word():
    awkward = ["<b>&", '"quoted"', "it's", "猫", "bell\x07\x1b[31m"]
    seen = seen_of([*awkward, "<eos>"], awkward)
    root = ElementTree.fromstring(seen.svg())
    space = "{http://www.w3.org/2000/svg}"
    texts = [text.text or "" for text in root.iter(f"{space}text")]
    for word in awkward[:-1]:
        assert texts.count(word) == 2  # across and down
    assert len(list(root.iter(f"{space}rect"))) == 1 + 5 * 6
    titles = [title.text or "" for title in root.iter(f"{space}title")]
    assert titles[0] == f"<b>& attends to <b>&: {seen.weights[0, 0]:.2f}"
    wide, high = float(root.attrib["width"]), float(root.attrib["height"])
    for rect in root.iter(f"{space}rect"):
        assert float(rect.attrib.get("x", 0)) + float(rect.attrib["width"]) <= wide
        assert float(rect.attrib.get("y", 0)) + float(rect.attrib["height"]) <= high


# What is carried


def reader(
    cell: str = "lstm", *, kind: str = "characters", layers: int = 1, hidden: int = 7, model: str = "rnn_lm"
) -> Run:
    text = [("the cat sleeps . the dog sleeps too .",), ("a cat is near a dog .",)]
    size = 300 if kind == "bpe" else 0
    fields = text_fields(lambda: text, "target", kind=kind, size=size)
    sizes: dict[str, dict[str, object]] = {
        "rnn_lm": {"embedding": hidden, "hidden": hidden, "cell": cell, "layers": layers},
        "gpt": {"dim": 6, "heads": 2, "feed_forward": 7},
    }
    recipe = parse_recipe(
        {
            "task": "language",
            "data": {"name": "world"},
            "model": {"name": model, **sizes.get(model, {})},
            "train": {"steps": 1},
        },
        tasks=TASKS,
    )
    return Run(recipe, fields, build_model(recipe, fields).eval(), torch.device("cpu"))


@pytest.mark.parametrize("cell", ["tanh", "lstm", "gru", "mut1"])
def test_what_is_carried_is_what_the_model_makes_its_output_of(cell):
    run = reader(cell, layers=2)
    seen = carried(run, "the cat")
    assert [layer.name for layer in seen.layers] == ["layer 1", "layer 2"]
    assert seen.layers[0].tokens == ("<bos>", "t", "h", "e", "␣", "c", "a", "t")
    assert list(seen.layers[0].states) == (["h", "c"] if cell == "lstm" else ["h"])
    gates = {"tanh": [], "lstm": ["written", "kept", "revealed"]}.get(cell, ["reset", "kept"])
    assert list(seen.layers[0].gates) == gates
    tokens = torch.tensor([[BOS, *run.tokenizer("target").encode("the cat")]])
    with torch.no_grad():
        outputs, _ = run.model.body(run.model.embed(tokens))  # type: ignore[operator,union-attr]
    assert np.allclose(seen.layers[1].states["h"], outputs[0], atol=1e-6)
    means = seen.layers[1].means()
    assert list(means) == [*gates, *(["|h|", "|c|"] if cell == "lstm" else ["|h|"])]
    assert np.allclose(means["|h|"], np.abs(outputs[0].numpy()).mean(-1), atol=1e-6)
    for name in gates:
        assert np.allclose(means[name], seen.layers[1].gates[name].mean(1))
    if cell == "lstm":  # Hₜ = O ⊙ tanh(Cₜ)
        layer = seen.layers[1]
        assert np.allclose(layer.gates["revealed"] * np.tanh(layer.states["c"]), layer.states["h"], atol=1e-6)


@pytest.mark.parametrize("model", ["rnnsearch", "seq2seq"])
def test_tokens_stand_in_the_order_in_which_each_direction_read_them(model):
    seen = carried(word_run(model), "the cat sleeps", "le chat")
    read, written = ("the", "cat", "sleeps", "<eos>"), ("<bos>", "le", "chat")
    both = {"encoder 1 →": read, "encoder 1 ←": read[::-1], "decoder 1": written}
    last_first = {
        f"{side} {n}": order for side, order in (("encoder", read[::-1]), ("decoder", written)) for n in (1, 2)
    }
    assert {layer.name: layer.tokens for layer in seen.layers} == (both if model == "rnnsearch" else last_first)
    for layer in seen.layers:
        assert all(len(values) == len(layer.tokens) for values in (*layer.gates.values(), *layer.states.values()))
    assert seen.output == "le chat"


def test_a_map_of_gates_has_every_number_with_and_without_colour():
    seen = carried(reader(), "the cat")
    layer = dataclasses.replace(seen.layers[0], states={**seen.layers[0].states, "c": 4 * np.ones((8, 7))})
    drawn = gate_map(layer.name, layer.tokens, layer.means())
    title, header, *rows = drawn.plain.rstrip("\n").split("\n")
    assert title == "layer 1" and header.split() == ["written", "kept", "revealed", "|h|", "|c|"]
    for row, token, *values in zip(rows, layer.tokens, *layer.means().values(), strict=True):
        full = [*values[:-1], 1.0]  # 4 is the most that c has: it is dark, and still 4.00
        assert row.split() == [
            token, *(part for v, f in zip(values, full, strict=True) for part in (2 * shade(f), f"{v:.2f}"))
        ]  # fmt: skip
    written = io.StringIO()
    Console(file=written, force_terminal=True, color_system="truecolor", width=80).print(drawn)
    assert "\x1b[" in written.getvalue()


def test_a_page_of_units_shows_those_that_vary_most_and_signed_values_around_a_half():
    run = reader(hidden=70)
    layer, sentence = carried(run, "the cat").layers[0], carried_closely(run, "the cat")
    units = most_varied(layer.states["h"])
    assert len(units) == 64 and list(units) == sorted(set(units))
    assert layer.states["h"].std(0)[units].min() >= np.delete(layer.states["h"].std(0), units).max()
    views = {view.name: view for view in sentence.views}
    assert list(views) == ["written", "kept", "revealed", "h", "c"]
    assert all(view.rows == layer.tokens and view.columns[0] == f"u{units[0] + 1}" for view in views.values())
    assert np.allclose(views["kept"].weights[0], layer.gates["kept"][:, units])
    assert np.allclose(2 * views["h"].weights[0] - 1, layer.states["h"][:, units])
    largest = np.abs(layer.states["c"][:, units]).max()
    assert np.allclose((2 * views["c"].weights[0] - 1) * largest, layer.states["c"][:, units])
    assert sentence.note.startswith("The 64 of 70 units whose h varies most.")
    assert sentence.note.endswith(f"m is 1, but {largest:.3g} for c of layer 1.")
    relu = reader("relu", hidden=9)
    relu.model.get_parameter("body.forwards.0.weight_hh").data.copy_(2 * torch.eye(9))
    layer, sentence = carried(relu, "the cat").layers[0], carried_closely(relu, "the cat")
    largest = np.abs(layer.states["h"]).max()
    assert largest > 1 and f"but {largest:.3g} for h of layer 1" in sentence.note and "All 9 units" in sentence.note
    assert np.allclose((2 * sentence.views[0].weights[0] - 1) * largest, layer.states["h"])


def test_gates_that_are_not_there_are_refused():
    with pytest.raises(UserError, match="gpt is not recurrent"):
        carried(reader(model="gpt"), "the cat")
    with pytest.raises(UserError, match="transformer is not recurrent"):
        carried(word_run("transformer"), "the cat")
    with pytest.raises(UserError, match="empty"):
        carried(reader(), "")
    with pytest.raises(UserError, match="at most 1000"):
        carried(reader(), "a" * 1001)
    with pytest.raises(UserError, match="A target is for translators"):
        carried(reader(), "a", "b")


def test_the_page_of_gates_in_a_browser(tmp_path):
    file = tmp_path / "gates.html"
    shown = attention_page([carried_closely(reader(layers=2), "the cat")], title="gates", words=WORDS)
    file.write_text(shown, encoding="utf-8")
    with chromium() as browser:
        for width, theme in ((1280, "light"), (360, "dark")):
            with visit(browser, file, width=width, color_scheme=theme) as seen:
                seen.page.wait_for_selector("body[data-drawn]")
                seen.page.locator('.kind input[value="c"]').check(force=True)
                seen.page.locator('.layer input[value="2"]').check(force=True)
                seen.page.wait_for_function(
                    "() => document.querySelector('main').attentionMap.shown.name === 'c, layer 2'"
                )
                seen.page.hover(".rows span:nth-child(2)")
                seen.settle()
                assert seen.page.inner_text(".pair").startswith("t → u")
                assert seen.page.inner_text(".most").startswith("t is largest in u")
                assert "attends to" not in seen.page.inner_text("body")
                assert "All 7 units" in seen.page.inner_text(".note")
                assert seen.run("() => document.documentElement.scrollWidth") <= width
                assert seen.requests == [seen.page.url] and seen.complaints == []


# Neighbours


def test_the_nearest_point_the_same_way():
    table = torch.tensor([[1.0, 0.0], [3.0, 0.3], [-1.0, 0.0], [0.0, 9.0], [2.0, 2.0]])
    found = nearest(table, 0, 10)
    assert [row for row, _ in found] == [1, 4, 3, 2]
    assert [cosine for _, cosine in found] == pytest.approx([3 / math.hypot(3, 0.3), 0.5**0.5, 0, -1], abs=1e-6)


@pytest.mark.parametrize("kind, word", [("characters", "c"), ("words", "cat"), ("bpe", "cat")])
@pytest.mark.parametrize("model", ["rnn_lm", "gpt", "neural_lm"])
def test_every_model_with_vectors_has_neighbours(model, kind, word):
    run = reader(kind=kind, model=model)
    table, tokenizer = run.model.get_parameter("embed.weight"), run.tokenizer()
    own, other = tokenizer.encode(word)[0], tokenizer.encode("d" if kind == "characters" else "dog")[0]
    table.data[other] = 2 * table.data[own]
    found = neighbours(run, word, count=3)
    assert (found.word, found.nearest[0].word) == (word, tokenizer.surface([other])[0])
    assert found.nearest[0].cosine == pytest.approx(1)
    cosines = [each.cosine for each in found.nearest]
    assert len(cosines) == 3 and cosines == sorted(cosines, reverse=True)
    assert not {each.word for each in neighbours(run, word, count=10**6).nearest} & {word, *SPECIALS}


def test_neighbours_of_a_translator_are_on_the_source_side_and_mark_inner_pieces():
    assert {each.word for each in neighbours(word_run("transformer"), "cat").nearest} == {"the", "sleeps"}
    pieces = {each.word for each in neighbours(reader(kind="bpe"), "cat", count=10**6).nearest}
    assert {"dog", "…a", "a"} <= pieces
    assert neighbours(reader(kind="bpe"), "b").word == "…b"  # no word begins with it


def test_what_has_no_neighbours_is_refused():
    with pytest.raises(UserError, match="'slept' is not one token.*try one of sleeps"):
        neighbours(word_run(), "slept")
    with pytest.raises(UserError, match="'xyz' is not one token.*it has no similar spelling"):
        neighbours(word_run(), "xyz")
    with pytest.raises(UserError, match="not one token"):
        neighbours(word_run(), "the cat")
    with pytest.raises(UserError, match="count of 0"):
        neighbours(word_run(), "cat", count=0)
    with pytest.raises(UserError, match="ngram has no word embedding"):
        neighbours(reader(model="ngram"), "a")


def test_gates_and_neighbours_from_the_command_line(tmp_path, call):
    (tmp_path / "text").write_text("the cat sleeps\nthe dog sleeps\n" * 9, encoding="utf-8")
    recipe = parse_recipe(
        {
            "task": "language",
            "data": {"name": "text", "train": "text", "valid": "text"},
            "tokens": {"kind": "words", "size": 0},
            "model": {"name": "rnn_lm", "embedding": 7, "hidden": 7},
            "train": {"steps": 1, "precision": "float32"},
        },
        tasks=TASKS,
        folder=tmp_path,
    )
    list(Session(recipe, tmp_path / "run").steps())
    told = call("look", tmp_path / "run", "the cat", "--gates")
    assert told.code == 0 and "revealed" in told.out and "\x1b" not in told.out and LEGEND in told.out
    (layer,) = json.loads(call("look", tmp_path / "run", "the cat", "--gates", "--json").out)["layers"]
    assert layer["tokens"] == ["<bos>", "the", "cat"] and np.shape(layer["states"]["c"]) == (3, 7)
    assert all(f"{mean:.2f}" in told.out for means in layer["means"].values() for mean in means)
    html = tmp_path / "gates.html"
    assert call("look", tmp_path / "run", tmp_path / "text", "--gates", "--html", html).code == 0
    assert "Gates and states of rnn_lm" in html.read_text(encoding="utf-8")
    told = call("look", tmp_path / "run", "--neighbours", "cat", "--count", 2)
    found = json.loads(call("look", tmp_path / "run", "--neighbours", "cat", "--count", 2, "--json").out)
    assert [line.split() for line in told.out.splitlines()][1:] == [
        [each["word"], f"{each['cosine']:.3f}"] for each in found["nearest"]
    ]
    told = call("look", tmp_path / "run", "--neighbours", "cats")
    assert told.code == 1 and "try one of cat" in told.err

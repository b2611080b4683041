"""Laws of gradients far back: slopes are those of the matrices, batch mates change nothing, and what is shown was
found."""

from __future__ import annotations

import dataclasses
import json
import math
import random
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
import torch
from browser import chromium, visit
from command import Call
from made import pairs, target_of, text_fields
from torch import Tensor, nn

from regard import load
from regard.data.sources import examples
from regard.interface import BOS, EOS, PAD, Batch, Ids, Inside, Shapes, UserError
from regard.layers.cells import CELLS, Cell, State
from regard.layers.inside import recurrences_in
from regard.layers.recurrent import Recurrent
from regard.look.gradients import (
    FEWEST,
    ROWS,
    GradientNorms,
    batch_flow,
    gradient_flow,
    gradient_norm,
    last_loss,
    layers_of,
    reach,
    recurrent_blocks,
    spectra,
    text_windows,
    untrained,
)
from regard.models import rnn_lm, rnnsearch, seq2seq
from regard.recipe import Recipe, parse_recipe
from regard.run import Run, build_model
from regard.show.line_chart import Curve
from regard.show.text_plot import bars, text_plot, text_table
from regard.tasks.registry import TASKS
from regard.train.session import Session

VOCAB, HIDDEN, TIME, ROW_COUNT = 11, 7, 13, 3
every_cell = pytest.mark.parametrize("cell", CELLS)


def texts(rows: int = ROW_COUNT, time: int = TIME) -> Batch:
    return Batch.of_text(torch.randint(4, VOCAB, (rows, time + 1), generator=torch.Generator().manual_seed(3)))


def language_model(cell: str, *, layers: int = 1, hidden: int = HIDDEN):
    torch.manual_seed(1)
    config = rnn_lm.Config(embedding=hidden, hidden=hidden, layers=layers, cell=cell, dropout=0.0)  # type: ignore[arg-type]
    return rnn_lm.build(config, Shapes(Ids(VOCAB), Ids(VOCAB))).double().eval()


class Bare(Recurrent):
    """A recurrence that is a model by itself."""

    def inspect(self) -> Inside:
        return Inside(recurrences=recurrences_in(self, "target"))


# How far


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_a_scaled_rotation_has_the_slope_of_its_scale(factor):
    """∂h_T/∂h_t = Wᵀ…Wᵀ = (sQ)^(T − t), and Q changes no length."""
    model = language_model("identity", hidden=16)
    model.get_parameter("body.forwards.0.weight_hh").data.copy_(factor * nn.init.orthogonal_(torch.empty(16, 16)))
    (found,) = batch_flow(model, texts(5, 100)).gradient_norms
    assert len(found.norms) == 100
    assert found.slope == pytest.approx(math.log(factor), abs=1e-4)
    assert found.norms[50] / found.norms[0] == pytest.approx(factor**50, rel=1e-5)


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_so_it_has_in_a_bare_recurrence(factor):
    bare = Bare(cell=CELLS["identity"], input_dim=5, hidden=8).double()
    bare.forwards[0].weight_hh.data.mul_(factor)  # orthogonal as it begins
    x = torch.randn(4, 60, 5, dtype=torch.float64)
    flow = gradient_flow(bare, lambda: bare(x)[0][:, -1].square().sum(-1))
    assert flow.gradient_norms[0].slope == pytest.approx(math.log(factor), abs=1e-4)
    assert [flow.spectra[0].largest, flow.spectra[0].smallest] == pytest.approx([factor, factor])


@every_cell
def test_the_norm_in_a_state_is_that_of_the_gradient_to_a_state_given_from_there(cell):
    model, batch = language_model(cell), texts()
    norms = batch_flow(model, batch).gradient_norms
    assert [each.state for each in norms] == (["h", "c"] if cell == "lstm" else ["h"])
    tokens = target_of(batch)
    for time in (1, 4, TIME):
        _, state = model.body(model.embed(tokens[:, :time]))
        *_, carried = (part.detach().requires_grad_() for part in state[0])
        leaves = [carried]
        if cell == "lstm":  # h is made of c, so the gradient in c also comes through h
            shown = (state[0][0] / state[0][1].tanh()).detach()
            leaves = [shown * carried.tanh(), carried]
        if time < TIME:
            hidden, _ = model.body(model.embed(tokens[:, time:-1]), None, (tuple(leaves),))
            output = hidden[:, -1:]
        else:
            output = leaves[0][:, None]
        recent = tokens.new_empty(ROW_COUNT, 1, 0)
        loss = nn.functional.cross_entropy(model.head.logits(output, recent)[:, 0], tokens[:, -1], reduction="sum")
        for each, slope in zip(norms, torch.autograd.grad(loss, leaves), strict=True):
            assert each.norms[TIME - time] == pytest.approx(float(slope.norm(dim=-1).mean()), rel=1e-9)


def test_no_slope_without_numbers():
    assert math.isnan(GradientNorms("layer 1", "h", (0.0, 0.0)).slope)
    assert GradientNorms("layer 1", "h", (0.0, 1.0, math.e**2, math.inf)).slope == pytest.approx(2)


def test_last_loss_is_that_of_the_last_token():
    model, batch = language_model("gru", layers=2), texts()
    assert torch.allclose(last_loss(model, batch), -model.log_probs(batch)[0][:, -1])
    assert [each.layer for each in batch_flow(model, batch).gradient_norms] == ["layer 1", "layer 2"]


SMALL = {"embedding": 5, "hidden": HIDDEN, "dropout": 0.0}
TRANSLATORS = {
    "seq2seq": lambda: seq2seq.build(seq2seq.Config(**SMALL, layers=2), Shapes(Ids(VOCAB), Ids(VOCAB))),
    "rnnsearch": lambda: rnnsearch.build(rnnsearch.Config(**SMALL, layers=2), Shapes(Ids(VOCAB), Ids(VOCAB))),
}


@pytest.mark.parametrize("name", TRANSLATORS)
def test_of_pairs_each_number_is_the_mean_over_rows_whatever_their_lengths(name):
    torch.manual_seed(1)
    model = TRANSLATORS[name]().double().eval()
    source = torch.tensor([[4, 5, 6, 7, EOS], [8, 9, EOS, PAD, PAD]])
    target = torch.tensor([[BOS, 4, 5, EOS, PAD, PAD], [BOS, 6, 7, 8, 9, EOS]])
    alone = [
        batch_flow(model, pairs(source[:1, :5], target[:1, :4])),
        batch_flow(model, pairs(source[1:, :3], target[1:])),
    ]
    together = batch_flow(model, pairs(source, target))
    for both, *each in zip(together.gradient_norms, *(flow.gradient_norms for flow in alone), strict=True):
        assert len(both.norms) == 3  # <eos> of a source of 2, of a target of 2
        assert both.norms == pytest.approx([sum(one) / 2 for one in zip(*(f.norms for f in each), strict=False)])
        assert min(both.norms) > 0
    for both, *each in zip(together.gates, *(flow.gates for flow in alone), strict=True):
        assert both.means[:3] == pytest.approx(
            [sum(one) / 2 for one in zip(*(g.means for g in each), strict=False)][:3]
        )
    names = [each.layer for each in together.gradient_norms]
    ways = ["encoder 1 →", "encoder 2 →", "encoder 1 ←", "encoder 2 ←"]
    plain = [f"{side} {number}" for side in ("encoder", "decoder") for number in (1, 2) for _ in "hc"]
    assert names == (plain if name == "seq2seq" else [*ways, "decoder 1", "decoder 2"])


def test_no_further_than_asked():
    assert len(batch_flow(language_model("tanh"), texts(), length=4).gradient_norms[0].norms) == 5


# Matrices and gates


@every_cell
def test_matrices_begin_orthogonal_and_every_block_is_measured(cell):
    model = language_model(cell)
    found = list(spectra(model))
    named = {
        "lstm": ["written", "kept", "candidate", "revealed"],
        "mut1": ["reset", "candidate"],
        **dict.fromkeys(("gru", "gru-after", "mut2", "mut3"), ["reset", "kept", "candidate"]),
    }
    assert [each.block for each in found] == named.get(cell, ["state"])
    for each in found:
        assert [each.largest, each.median, each.smallest] == pytest.approx([1, 1, 1], abs=1e-5)
    blocks = recurrent_blocks(model.get_submodule("body.forwards.0"))
    blocks[-1].data.copy_(torch.diag(torch.arange(1.0, HIDDEN + 1)))
    last = list(spectra(model))[-1]
    assert [last.largest, last.median, last.smallest] == pytest.approx([7, 4, 1])


class UserDefined(Cell):
    """A cell of somebody's own, with no gates and names that say nothing."""

    def __init__(self, *, input_dim: int, hidden: int) -> None:
        super().__init__(input_dim=input_dim, hidden=hidden)
        self.a, self.b = nn.Parameter(torch.eye(hidden)), nn.Parameter(2 * torch.eye(hidden))

    def inputs(self, x: Tensor) -> Tensor:
        return x @ self.a

    def step(self, projected: Tensor, state: State) -> State:
        return (projected + state[0] @ self.b,)


def test_gradients_of_a_user_defined_cell():
    bare = Bare(cell=UserDefined, input_dim=3, hidden=3)
    flow = gradient_flow(bare, lambda: bare(torch.ones(2, 9, 3))[0][:, -1].sum(-1))
    assert [(each.block, each.largest) for each in flow.spectra] == [("block 1", 2.0)]
    assert flow.gates == () and flow.gradient_norms[0].slope == pytest.approx(math.log(2))


class Leaky(Cell):
    """Hₜ = a ⊙ Hₜ₋₁ + Xₜ: no matrix at all."""

    def __init__(self, *, input_dim: int, hidden: int) -> None:
        super().__init__(input_dim=input_dim, hidden=hidden)
        self.leak = nn.Parameter(torch.full((hidden,), 0.5))

    def inputs(self, x: Tensor) -> Tensor:
        return x

    def step(self, projected: Tensor, state: State) -> State:
        return (self.leak * state[0] + projected,)


def test_a_cell_need_not_have_matrices():
    bare = Bare(cell=Leaky, input_dim=3, hidden=3)
    flow = gradient_flow(bare, lambda: bare(torch.ones(2, 9, 3))[0][:, -1].sum(-1))
    assert flow.spectra == () and flow.gradient_norms[0].slope == pytest.approx(math.log(0.5))


def test_an_open_gate_is_reported_as_open():
    model = language_model("lstm")
    cell = model.get_submodule("body.forwards.0")
    cell.weight_ih.data.zero_(), cell.weight_hh.data.zero_()
    cell.bias_ih.data.copy_(torch.tensor([0.0, 50.0, 0.0, -50.0]).repeat_interleave(HIDDEN))
    gates = {gate.gate: gate for gate in batch_flow(model, texts()).gates}
    assert {name: gate.mean for name, gate in gates.items()} == pytest.approx(
        {"written": 0.5, "kept": 1, "revealed": 0}
    )
    assert all(len(gate.means) == TIME for gate in gates.values())


def test_the_gradient_is_that_of_training():
    model, batch = language_model("gru"), texts()
    loss = model.loss(batch)
    (loss.objective / loss.tokens).backward()
    norm = float(nn.utils.clip_grad_norm_(model.parameters(), 1.0))
    model.zero_grad()
    assert gradient_norm(model, batch) == pytest.approx(norm)
    assert all(parameter.grad is None for parameter in model.parameters())


# Runs


def recipe_of(
    folder: Path, *, unit: str = "line", model: str = "rnn_lm", lengths: range = range(5, 60), **train: object
):
    drawn = random.Random(1)
    lines = ["".join(drawn.choices("abcde ", k=length)).strip() for length in lengths]
    (folder / "train.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")
    sizes: dict[str, object] = {"dim": 6, "heads": 2, "feed_forward": 7, "context": 99}
    if model == "rnn_lm":
        sizes = {"embedding": HIDDEN, "hidden": HIDDEN, "cell": "lstm", "layers": 2, "dropout": 0.3}
    return parse_recipe(
        {
            "task": "language",
            "data": {"name": "text", "train": "train.txt", "valid": "train.txt", "unit": unit, "window": 16},
            "tokens": {"kind": "characters", "size": 0},
            "model": {"name": model, **({} if model == "ngram" else sizes)},
            "train": {"steps": 2, "validate_every": 2, "precision": "float32", **train},
        },
        tasks=TASKS,
        folder=folder,
    )


def run_of(recipe: Recipe) -> Run:
    every = list(examples(recipe.data, "train", recipe.folder))
    fields = text_fields(lambda: every, "target", kind="characters", size=0)
    return Run(recipe, fields, build_model(recipe, fields).eval(), torch.device("cpu"))


def test_a_model_of_lines_reads_the_beginnings_of_the_longest(tmp_path):
    run = run_of(recipe_of(tmp_path))
    few = target_of(text_windows(run, 50))  # 52 tokens with <bos> and <eos>: few lines have them
    assert few.shape[0] >= FEWEST and few.shape[1] <= 52
    assert (few[:, 0] == BOS).all() and not (few == PAD).any()
    many = target_of(text_windows(run, 10))
    assert many.shape == (ROWS, 12)
    lines = set((tmp_path / "train.txt").read_text().splitlines())
    for row in many.tolist():
        assert any(line.startswith(run.tokenizer("target").decode(row)) for line in lines)


def test_a_model_of_a_file_reads_windows_from_all_over_it(tmp_path):
    run = run_of(recipe_of(tmp_path, unit="file"))
    rows = target_of(text_windows(run, 30))
    text = (tmp_path / "train.txt").read_text()
    assert rows.shape == (ROWS, 32)
    found = [text.find(run.tokenizer("target").decode(row)) for row in rows[1:].tolist()]
    assert found == sorted(found) and found[0] > 0 and found[-1] > 0.9 * (len(text) - 32)
    assert target_of(text_windows(run, 10**6)).shape == (1, len(text) + 1)


def test_before_training_is_as_the_first_step_found_it_and_looking_changes_nothing(tmp_path):
    session = Session(recipe_of(tmp_path), tmp_path / "run")
    begun = {name: value.clone() for name, value in session.run.model.state_dict().items()}
    for _ in session.steps():
        pass
    run = load(tmp_path / "run")
    torch.rand(1)  # not where building a model leaves it
    random_state, trained = torch.get_rng_state(), {k: v.clone() for k, v in run.model.state_dict().items()}
    before = untrained(run).state_dict()
    assert before.keys() == begun.keys() and all(torch.equal(before[name], begun[name]) for name in begun)
    found = reach(run, length=9)
    assert torch.equal(torch.get_rng_state(), random_state)
    assert all(torch.equal(value, trained[name]) for name, value in run.model.state_dict().items())
    assert {value.dtype for value in run.model.state_dict().values()} == {torch.float32}
    assert found.before.flow.gradient_norms != found.after.flow.gradient_norms
    assert (found.rows, found.length, found.layers) == (ROWS, 9, ("layer 1", "layer 2"))

    follower = recipe_of(tmp_path, **{"from": "run"})
    session = Session(follower, tmp_path / "follower")
    begun = {name: value.clone() for name, value in session.run.model.state_dict().items()}
    before = untrained(dataclasses.replace(run, recipe=follower)).state_dict()
    assert all(torch.equal(before[name], begun[name]) for name in begun)


@pytest.mark.parametrize("clip", [0.0, 1e-3, 1e6])
def test_clipping_shortens_all_alike(tmp_path, clip):
    found = reach(run_of(recipe_of(tmp_path, clip=clip)), length=9)
    for at in (found.before, found.after):
        assert at.factor == (pytest.approx(clip / at.gradient) if clip == 1e-3 else 1)
    lines = list(found.lines("layer 2"))
    assert [line.name for line in lines if line.factor == 1] == ["h, before", "c, before", "h, after", "c, after"]
    clipped = [line for line in lines if line.factor < 1]
    assert len(clipped) == (4 if clip == 1e-3 else 0)
    for line in clipped:
        (whole,) = (each for each in lines if f"{each.name}, clipped" == line.name)
        assert line.gradient_norms.norms == pytest.approx([line.factor * norm for norm in whole.gradient_norms.norms])
        assert line.gradient_norms.slope == pytest.approx(whole.gradient_norms.slope)


@pytest.mark.parametrize("model", ["gpt", "ngram"])
def test_what_does_not_recur_is_refused(tmp_path, model):
    with pytest.raises(UserError, match=f"{model} is not recurrent"):
        reach(run_of(recipe_of(tmp_path, model=model)))


def test_too_little_to_look_back_over(tmp_path):
    with pytest.raises(UserError, match="too short"):
        reach(run_of(recipe_of(tmp_path, lengths=range(0, 2))))
    with pytest.raises(UserError, match="length of 0"):
        reach(run_of(recipe_of(tmp_path)), length=0)


# Shown


def test_a_plot_has_every_point_where_it_belongs():
    values = [10.0**-place for place in range(9)]
    lines = text_plot([Curve("o", values), Curve("x", [1.0, 0.0, math.nan], mark="x")], width=60).plain.split("\n")
    assert max(map(len, lines)) <= 60
    marks = {(line, column) for line, text in enumerate(lines[:17]) for column, sign in enumerate(text) if sign == "o"}
    columns = sorted(column for _, column in marks)
    assert [line for line, _ in sorted(marks, key=lambda mark: mark[1])] == list(range(2, 17, 2))
    assert len({b - a for a, b in zip(columns, columns[1:], strict=False)}) == 1
    assert "".join(lines).count("x") == 1 and lines[0].startswith("   1 ┤x") and lines[16].startswith("1e-8 ┤")


def test_bars_and_tables_hold_everything():
    assert bars([0.0, 0.49, 1.0]) == "▁▄█"
    assert len(bars(np.linspace(0, 1, 100).tolist())) == 32
    shown = text_table([{"name": "猫", "n": "1" * 90}, {"name": "cat", "n": "2"}]).plain.splitlines()
    assert shown == ["name  n", "猫    " + "1" * 90, "cat   2"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("flow")
    for _ in Session(recipe_of(folder, clip=1e-3), folder / "run").steps():
        pass
    return folder / "run"


def test_the_command_prints_a_summary_plots_and_tables(trained: Path, call: Call) -> None:
    told = call("look", trained, "--gradients", "--length", 20)
    assert told.code == 0 and "\x1b" not in told.out
    assert "up to 20 tokens back" in " ".join(told.out.split()) and "train.clip = 0.001" in told.out
    numbers = json.loads(call("look", trained, "--gradients", "--length", 20, "--json").out)
    for each in numbers["after"]["gradient_norms"]:
        row = next(
            line for line in told.out.splitlines() if line.startswith(f"{each['layer']}  {each['state']}, after ")
        )
        assert float(row.split()[4]) == pytest.approx(each["norms"][1], rel=0.01)
        assert f"{each['slope']:+.3f}" in row and len(each["norms"]) == 21
    assert numbers["before"]["clip_factor"] < 1
    for spectrum in numbers["after"]["singular_values"]:
        assert re.search(rf"{spectrum['layer']}  {spectrum['block']}, after +{spectrum['largest']:.3f}", told.out)
    for gate in numbers["after"]["gates"]:
        assert re.search(rf"{gate['layer']}  {gate['gate']} .*{gate['mean']:.3f}  [▁▂▃▄▅▆▇█]{{21}}", told.out)


def test_the_page_opens_anywhere_and_holds_the_numbers(trained: Path, call: Call, tmp_path: Path) -> None:
    file = tmp_path / "gradients.html"
    assert call("look", trained, "--gradients", "--length", 20, "--html", file).code == 0
    numbers = json.loads(call("look", trained, "--gradients", "--length", 20, "--json").out)
    with chromium() as browser:
        for width, theme in ((1280, "light"), (1280, "dark"), (360, "dark")):
            with visit(browser, file, width=width, color_scheme=theme) as seen:
                assert seen.run("() => document.documentElement.scrollWidth") <= width
                ink, ground = seen.run(
                    "() => [getComputedStyle(document.querySelector('svg text')).fill,"
                    "getComputedStyle(document.querySelector('figure')).backgroundColor]"
                    ".map((c) => c.match(/[\\d.]+/g).slice(0, 3).reduce((a, b) => a + +b, 0) / 3)"
                )
                assert abs(ink - ground) > 150 and (ink > ground) == (theme == "dark")
                seen.page.click("summary >> nth=0")
                cells = (
                    seen.page.locator("figure >> nth=0").locator("tbody tr >> nth=10").locator("td").all_inner_texts()
                )
                wanted = [each["norms"][10] for at in ("before", "after") for each in numbers[at]["gradient_norms"][:2]]
                assert cells[0] == "10"
                assert [float(cell) for cell in cells[1::2]] == pytest.approx(wanted, rel=0.01)
                charts = seen.run("() => [...document.querySelectorAll('svg')].map((svg) => svg.outerHTML)")
                assert len(charts) == 4  # two layers, norms and gates
                names = [
                    text.text for text in ElementTree.fromstring(charts[0]).iter("{http://www.w3.org/2000/svg}text")
                ]
                assert {"Gradient norm in layer 1", "h, before", "c, after, clipped", "0", "20"} <= set(names)
                assert seen.requests == [seen.page.url] and seen.complaints == []
                policy = seen.page.get_attribute('meta[http-equiv="Content-Security-Policy"]', "content")
                assert policy and policy.startswith("default-src 'none'") and "unsafe" not in policy


@pytest.mark.parametrize(
    "arguments, said",
    [
        (["--gradients", "--gates"], "--gates and --gradients exclude each other"),
        (["--gradients", "--neighbours", "a"], "--gradients and --neighbours exclude each other"),
        (["a b", "--gradients"], "--gradients does not take a sentence"),
        (["a b", "--neighbours", "a"], "--neighbours does not take a sentence"),
        (["--neighbours", "a", "--html", "x.html"], "--neighbours does not take --html"),
        (["a b", "--length", "3"], "it belongs to --gradients"),
        (["a b", "--count", "3"], "it belongs to --neighbours"),
        (["a b", "--gates", "--layer", "1"], "--gates does not take --layer"),
        (["a b", "--gates", "--out", "x.svg"], "--gates does not take --out"),
        (["--gates"], "no sentence to look at"),
        ([], "no sentence to look at"),
        (["--gradients", "--html", "x.html", "--json"], "--html and --json exclude each other"),
        (["a b"], "no attention to look at: try regard look --gates"),
    ],
)
def test_what_makes_no_sense_is_refused(trained: Path, call: Call, arguments: list[str], said: str) -> None:
    told = call("look", trained, *arguments)
    assert told.code == 1 and said in told.err and told.out == "" and "\n" not in told.err.strip()


def test_names_of_layers():
    assert list(layers_of(language_model("tanh", layers=2))) == ["layer 1", "layer 2"]
    assert list(layers_of(TRANSLATORS["rnnsearch"]())) == [
        *("encoder 1 →", "encoder 2 →", "encoder 1 ←", "encoder 2 ←"),
        *("decoder 1", "decoder 2"),
    ]


# What the gates are for


@pytest.mark.slow
def test_a_trained_lstm_feels_100_times_further_than_a_trained_tanh(tmp_path):
    """Characters of the built-in corpus; both learn it equally well, and only one has anything left 50 tokens back."""
    for seed in (1, 2, 3):
        far, loss = {}, {}
        for cell in ("lstm", "tanh"):
            recipe = parse_recipe(
                {
                    "task": "language",
                    "seed": seed,
                    "data": {"name": "world", "sentences": 20000, "longest": 14, "valid": 200},
                    "tokens": {"kind": "characters", "size": 0},
                    "model": {"name": "rnn_lm", "embedding": 64, "hidden": 64, "cell": cell, "dropout": 0.0},
                    "train": {
                        "steps": 600,
                        "batch_tokens": 2048,
                        "learning_rate": 0.004,
                        "schedule": "linear",
                        "warmup": 30,
                        "precision": "float32",
                        "validate_every": 600,
                    },
                },
                tasks=TASKS,
            )
            *_, last = Session(recipe, tmp_path / f"{cell}-{seed}").steps()
            loss[cell] = last.valid["loss"]
            found = reach(load(tmp_path / f"{cell}-{seed}"), length=60).after.flow.gradient_norms
            far[cell] = {each.state: each.norms[50] for each in found}
        assert loss["tanh"] < 1.1 * loss["lstm"] and loss["tanh"] < 1.6, f"both are trained: {loss}"
        assert far["lstm"]["c"] >= 100 * far["tanh"]["h"], f"seed {seed}: {far}"

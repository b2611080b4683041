"""What a model costs: counted operations are those of the equations, written out by hand from the sizes."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
import torch
from made import labelled, pairs, tagged, target_of, text
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from regard.compare import measure as timing
from regard.compare.measure import speed
from regard.data.batches import Encoded
from regard.data.fields import SPELT
from regard.interface import (
    BOS,
    EOS,
    PAD,
    Batch,
    Fits,
    Frames,
    Ids,
    Label,
    Loss,
    Padded,
    Picture,
    Shapes,
    TagIds,
    UserError,
)
from regard.layers.attention import SHORT_TO_LEARN, Attention, Scaled
from regard.layers.cells import CELLS
from regard.layers.encoders import LETTER_DIM
from regard.layers.fast.switch import plain
from regard.layers.recurrent import Recurrent
from regard.models import MODELS
from regard.models.mixture import Mixture
from regard.predict.decoding import Decoding
from regard.recipe import parse_recipe
from regard.run import Run, build_model
from regard.tasks.registry import TASKS
from regard.train.cost import flops, flops_per_token

BATCH, SOURCE, TARGET = 5, 17, 19  # before the first step is no state to have a gradient: 1 of 3 · time products
VOCAB, NAMES = 307, 31
EMBEDDING, HIDDEN, FILTERS, LETTERS = 40, 48, 36, 20
DIM, HEADS, FEED, LAYERS = 48, 3, 96, 2
HEIGHT, WIDTH, PATCH = 20, 28, 4
BANDS = 11
TOKENS = BATCH * TARGET - 3  # the targets that are no padding

# --- forward operations, written out -----------------------------------------------------------------------------


def product(rows: int, inputs: int, outputs: int) -> int:
    """(rows, inputs) @ (inputs, outputs): a multiplication and an addition for each."""
    return 2 * rows * inputs * outputs


def learnt(*forward: int) -> int:
    """Y = X W costs as much again for each of its gradients, dX = dY Wᵀ and dW = Xᵀ dY."""
    return 3 * sum(forward)


def head(dim: int) -> int:
    return product(TOKENS, dim, VOCAB)


GATES = {"tanh": (1, 1), "relu": (1, 1), "lstm": (4, 4), "gru": (3, 3), "gru-after": (3, 3), "mut1": (3, 2)}


def recurrence(cell: str, time: int, inputs: int) -> int:
    """X Wₓ and H Wₕ, for each gate that hears them."""
    hear_x, hear_h = GATES[cell]
    hear_x -= cell == "mut1" and inputs == HIDDEN  # X itself, without a product
    return product(BATCH * time, inputs, hear_x * HIDDEN) + product(BATCH * time, HIDDEN, hear_h * HIDDEN)


def both_ways(cell: str, inputs: int) -> int:
    return 2 * recurrence(cell, SOURCE, inputs)


def looking(targets: int, sources: int, dim: int = DIM) -> int:
    """Q Kᵀ and A V, all heads together."""
    return product(BATCH * targets, dim, sources) + product(BATCH * targets, sources, dim)


def block(time: int) -> int:
    """Self-attention with its four projections, and the feed-forward layer."""
    return 4 * product(BATCH * time, DIM, DIM) + looking(time, time) + 2 * product(BATCH * time, DIM, FEED)


def cross(targets: int, sources: int) -> int:
    """Queries and outputs of the target, keys and values of the source."""
    queries, keys = 2 * product(BATCH * targets, DIM, DIM), 2 * product(BATCH * sources, DIM, DIM)
    return queries + keys + looking(targets, sources)


def search(score: str) -> int:
    """Each decoder state looks at source states of twice its width."""
    wide, states = 2 * HIDDEN, BATCH * SOURCE
    pairs = BATCH * TARGET * SOURCE
    keys, query = product(states, wide, HIDDEN), product(BATCH * TARGET, HIDDEN, HIDDEN)
    match, context = product(pairs, HIDDEN, 1), product(pairs, 1, wide)
    if score == "bilinear":
        return learnt(keys, match, context)
    if score in ("additive", "mlp"):  # wᵀ tanh(…) is a product as large as q · k
        return learnt(keys, query, match, context)
    around = product(states, wide, wide) + product(BATCH * TARGET, wide, wide)  # values and outputs, projected
    if score in ("dot", "scaled"):
        return learnt(keys, query, match, around, context)
    if score == "boxcar":  # nearer than 1 or not: no gradient goes through the weights
        return keys + query + 2 * context + learnt(around)
    return learnt(keys, query, around, context)  # distances are no products of matrices


def rnnsearch(score: str, cell: str = "gru", layers: int = 1) -> int:
    wide, gates = 2 * HIDDEN, GATES[cell][0]
    return search(score) + learnt(
        both_ways(cell, EMBEDDING),
        (layers - 1) * both_ways(cell, wide),
        product(BATCH, HIDDEN, HIDDEN),  # s₀
        recurrence(cell, TARGET, EMBEDDING),
        (layers - 1) * recurrence(cell, TARGET, HIDDEN),
        product(BATCH * TARGET, wide, gates * HIDDEN),  # the context enters
        product(BATCH * TARGET, HIDDEN + wide + EMBEDDING, EMBEDDING),  # readout
        head(EMBEDDING),
    )


def gated(time: int) -> int:
    """Into the convolutions' width, twice as wide a product for each window of three, and out of it."""
    ends = product(BATCH * time, EMBEDDING, HIDDEN) + product(BATCH * time, HIDDEN, EMBEDDING)
    return ends + LAYERS * product(BATCH * time, 3 * HIDDEN, 2 * HIDDEN)


def label(dim: int) -> int:
    return product(BATCH, dim, NAMES)


def tag(dim: int) -> int:
    return product(BATCH * SOURCE, dim, NAMES)


def spelling() -> int:
    return product(BATCH * SOURCE * SPELT, 3 * LETTER_DIM, LETTERS)


def windows(inputs: int) -> int:
    return sum(product(BATCH * SOURCE, width * inputs, FILTERS) for width in (2, 3))


# --- every model -------------------------------------------------------------------------------------------------

ONE_TEXT = Shapes(None, Ids(VOCAB))
PAIRS = Shapes(Ids(VOCAB), Ids(VOCAB))
LABELS = Shapes(Ids(VOCAB), Label(NAMES))
TAGS = Shapes(Ids(VOCAB), TagIds(NAMES))
PIXELS = Shapes(Picture(HEIGHT, WIDTH, channels=1), Label(NAMES))
CAPTIONS = Shapes(Picture(HEIGHT, WIDTH, channels=1), Ids(VOCAB))
HEARD = Shapes(Frames(BANDS), Ids(VOCAB))

Case = tuple[str, Shapes, dict[str, Any], int]  # what is counted, of which settings, and what it should be


def table() -> dict[str, Case]:
    recurrent: dict[str, Any] = {"embedding": EMBEDDING, "hidden": HIDDEN}
    stack: dict[str, Any] = {"dim": DIM, "heads": HEADS, "feed_forward": FEED, "layers": LAYERS}
    windowed: dict[str, Any] = {"embedding": EMBEDDING, "filters": FILTERS, "widths": (2, 3)}
    spelt = {"letters": LETTERS, "head": "crf"}
    wide, reading = 2 * HIDDEN, 4 * EMBEDDING
    cases: dict[str, Case] = {
        "ngram": ("ngram", ONE_TEXT, {}, 0),
        "neural_lm": (
            "neural_lm",
            ONE_TEXT,
            {**recurrent, "order": 5},
            learnt(product(BATCH * TARGET, reading, HIDDEN), head(HIDDEN + reading)),
        ),
        "rnn_lm tied": (
            "rnn_lm",
            ONE_TEXT,
            {"embedding": HIDDEN, "hidden": HIDDEN},
            learnt(recurrence("lstm", TARGET, HIDDEN), head(HIDDEN)),
        ),
        "rnn_lm highway": (
            "rnn_lm",
            ONE_TEXT,
            {**recurrent, "tie": False, "layers": 2, "skip": "highway"},
            learnt(
                recurrence("lstm", TARGET, EMBEDDING),
                recurrence("lstm", TARGET, HIDDEN),
                product(BATCH * TARGET, HIDDEN, HIDDEN),
                head(HIDDEN),
            ),
        ),
        "gpt": ("gpt", ONE_TEXT, stack, learnt(LAYERS * block(TARGET), head(DIM))),
        "elmo": (
            "elmo",
            ONE_TEXT,
            recurrent,
            learnt(
                *(2 * (recurrence("lstm", TARGET, EMBEDDING) + product(BATCH * TARGET, HIDDEN, EMBEDDING)),) * 2,
                2 * head(EMBEDDING),
            ),
        ),
        "elmo labels": (
            "elmo",
            LABELS,
            {"embedding": HIDDEN, "hidden": HIDDEN, "pool": "mean"},
            learnt(2 * both_ways("lstm", HIDDEN), label(wide)),
        ),
        "seq2seq": (
            "seq2seq",
            PAIRS,
            {**recurrent, "layers": 2},
            learnt(
                *(recurrence("lstm", time, width) for time in (SOURCE, TARGET) for width in (EMBEDDING, HIDDEN)),
                head(HIDDEN),
            ),
        ),
        "seq2seq every": (
            "seq2seq",
            PAIRS,
            {**recurrent, "layers": 1, "context": "every"},
            learnt(recurrence("lstm", SOURCE, EMBEDDING), recurrence("lstm", TARGET, EMBEDDING + HIDDEN), head(HIDDEN)),
        ),
        "rnnsearch 2 layers lstm": (
            "rnnsearch",
            PAIRS,
            {**recurrent, "layers": 2, "cell": "lstm"},
            rnnsearch("additive", "lstm", 2),
        ),
        "transformer": (
            "transformer",
            PAIRS,
            stack,
            learnt(LAYERS * (block(SOURCE) + block(TARGET) + cross(TARGET, SOURCE)), head(DIM)),
        ),
        "convs2s": (
            "convs2s",
            PAIRS,
            {**recurrent, "layers": LAYERS},
            learnt(
                gated(SOURCE),
                gated(TARGET),
                LAYERS * (2 * product(BATCH * TARGET, HIDDEN, EMBEDDING) + looking(TARGET, SOURCE, EMBEDDING)),
                head(EMBEDDING),
            ),
        ),
        "birnn labels": ("birnn", LABELS, recurrent, learnt(both_ways("lstm", EMBEDDING), label(wide))),
        "birnn tags": (
            "birnn",
            TAGS,
            {**recurrent, **spelt},
            learnt(spelling(), both_ways("lstm", EMBEDDING + LETTERS), tag(wide)),
        ),
        "attentive_birnn": (
            "attentive_birnn",
            LABELS,
            recurrent,
            learnt(
                both_ways("lstm", EMBEDDING),
                product(BATCH * SOURCE, wide, wide),
                product(BATCH, wide, wide),
                2 * product(BATCH * SOURCE, wide, 1),
                label(wide),
            ),
        ),
        "encoder labels": ("encoder", LABELS, stack, learnt(LAYERS * block(SOURCE + 1), label(DIM))),
        "encoder tags": (
            "encoder",
            TAGS,
            {**stack, **spelt},
            learnt(spelling(), product(BATCH * SOURCE, DIM + LETTERS, DIM), LAYERS * block(SOURCE), tag(DIM)),
        ),
        "cnn labels": (
            "cnn",
            LABELS,
            {**windowed, "layers": 2},
            learnt(windows(EMBEDDING), windows(2 * FILTERS), label(2 * FILTERS)),
        ),
        "cnn tags": (
            "cnn",
            TAGS,
            {**windowed, **spelt},
            learnt(spelling(), windows(EMBEDDING + LETTERS), tag(2 * FILTERS)),
        ),
    }
    pooled = product(BATCH, DIM, DIM)
    entered = product(BATCH * (SOURCE + 1), EMBEDDING, DIM)
    for model, settings, more in (
        ("bert", {}, 0),
        ("roberta", {}, 0),
        ("albert", {"embedding": EMBEDDING}, entered),
        ("electra", {"embedding": EMBEDDING}, entered),
    ):
        forward = learnt(LAYERS * block(SOURCE + 1), pooled, label(DIM), more)
        cases[f"{model} labels"] = (model, LABELS, {**stack, **settings}, forward)
    cases["gpt labels"] = ("gpt", LABELS, stack, learnt(LAYERS * block(SOURCE + 1), label(DIM)))
    cases["t5 labels"] = ("t5", LABELS, stack, learnt(LAYERS * block(SOURCE), label(DIM)))
    cases["bart labels"] = ("bart", LABELS, stack, learnt(LAYERS * block(SOURCE + 1), label(DIM)))
    both = block(SOURCE) + block(TARGET) + cross(TARGET, SOURCE)
    cases["t5"] = ("t5", PAIRS, stack, learnt(LAYERS * both, head(DIM)))
    led = block(SOURCE + 1) + block(TARGET + 1) + cross(TARGET + 1, SOURCE + 1)
    cases["bart"] = ("bart", PAIRS, stack, learnt(LAYERS * led, head(DIM)))
    patches = (HEIGHT // PATCH) * (WIDTH // PATCH)
    cases["vit"] = (
        "vit",
        PIXELS,
        {**stack, "patch": PATCH},
        learnt(LAYERS * block(patches + 1), label(DIM)) + 2 * product(BATCH * patches, PATCH * PATCH, DIM),
    )  # pixels are given: no gradient to them
    places, wide = (HEIGHT // 2) * (WIDTH // 2), 2 * FILTERS  # after the first halving; channels after the second
    first = 2 * product(BATCH * places, 9 * FILTERS, FILTERS)
    second = product(BATCH * places // 4, 9 * FILTERS + 9 * wide + FILTERS, wide)  # the last term is the way around
    cases["convnet"] = (
        "convnet",
        PIXELS,
        {"width": FILTERS, "stages": 2},
        learnt(first, second, label(wide)) + 2 * product(BATCH * places, 9, FILTERS),
    )
    cases["captioner"] = (
        "captioner",
        CAPTIONS,
        {**stack, "patch": PATCH, "decoder_layers": 1},
        learnt(LAYERS * block(patches + 1), block(TARGET), cross(TARGET, patches + 1), head(DIM))
        + 2 * product(BATCH * patches, PATCH * PATCH, DIM),
    )
    seen, steps = places // 4, BATCH * TARGET  # places that are attended to
    cases["show_attend_tell"] = (
        "show_attend_tell",
        CAPTIONS,
        {**recurrent, "width": FILTERS, "stages": 2},
        learnt(
            first,
            second,
            product(BATCH * seen, wide, HIDDEN),  # keys
            product(steps, HIDDEN, HIDDEN + 1),  # queries, and the gate
            product(steps * seen, HIDDEN, 1) + product(steps * seen, 1, wide),
            product(BATCH, wide, 2 * HIDDEN),  # h₀ and c₀
            recurrence("lstm", TARGET, EMBEDDING),
            product(steps, wide, 4 * HIDDEN),  # the context enters
            product(steps, HIDDEN + wide + EMBEDDING, EMBEDDING),  # readout
            head(EMBEDDING),
        )
        + 2 * product(BATCH * places, 9, FILTERS),
    )
    shorter = 2 * product(BATCH * 2 * SOURCE, 3 * BANDS, DIM)  # frames are given: no gradient to them
    fewer, both = shorter + learnt(product(BATCH * SOURCE, 3 * DIM, DIM)), 2 * HIDDEN
    cases["ctc"] = (
        "ctc",
        HEARD,
        {"dim": DIM, "hidden": HIDDEN, "layers": 1, "halvings": 2},
        fewer + learnt(both_ways("lstm", DIM), product(BATCH * SOURCE, both, VOCAB)),
    )
    listener = 2 * learnt(recurrence("gru", 2 * SOURCE, 2 * BANDS)) + learnt(both_ways("gru", 2 * both))
    frames_given = 2 * product(BATCH * 2 * SOURCE, 2 * BANDS, 3 * HIDDEN)
    cases["las"] = (
        "las",
        HEARD,
        {**recurrent, "cell": "gru", "layers": 2, "halvings": 2},
        listener
        - frames_given
        + learnt(product(BATCH * SOURCE, both, VOCAB))
        + rnnsearch("additive")
        - learnt(both_ways("gru", EMBEDDING)),
    )
    decoder = learnt(block(TARGET), cross(TARGET, SOURCE), head(DIM))
    cases["speech_transformer"] = (
        "speech_transformer",
        HEARD,
        {**stack, "decoder_layers": 1, "halvings": 2},
        fewer + learnt(LAYERS * block(SOURCE), product(BATCH * SOURCE, DIM, VOCAB)) + decoder,
    )
    for cell in GATES:
        settings = {**recurrent, "tie": False, "cell": cell, "layers": 2}
        layers = (recurrence(cell, TARGET, width) for width in (EMBEDDING, HIDDEN))
        cases[f"rnn_lm {cell}"] = ("rnn_lm", ONE_TEXT, settings, learnt(*layers, head(HIDDEN)))
    for score in ("dot", "scaled", "bilinear", "additive", "mlp", "gaussian", "boxcar", "epanechnikov"):
        cases[f"rnnsearch {score}"] = ("rnnsearch", PAIRS, {**recurrent, "score": score}, rnnsearch(score))
    return cases


CASES = table()


def build(name: str) -> nn.Module:
    model, shapes, settings, _ = CASES[name]
    torch.manual_seed(1)
    return MODELS[model].build(MODELS[model].config(**settings), shapes)


def batch_of(name: str) -> Batch:
    """Rows of which one is three tokens shorter than the others."""
    _, shapes, _, _ = CASES[name]
    random = torch.Generator().manual_seed(2)
    source = torch.randint(4, VOCAB, (BATCH, SOURCE), generator=random)
    target = torch.randint(4, VOCAB, (BATCH, 1 + TARGET), generator=random)
    target[:, 0] = BOS
    source[:, -1] = EOS
    source[0, -4:], target[0, -3:] = torch.tensor([EOS, PAD, PAD, PAD]), PAD
    if shapes is ONE_TEXT:
        return text(target)
    if shapes in (PIXELS, CAPTIONS):
        pixels = torch.rand(BATCH, HEIGHT, WIDTH, generator=random)
        other = batch_of("cnn labels") if shapes is PIXELS else pairs(source, target)
        return replace(other, source=Padded(pixels, torch.ones(BATCH, HEIGHT, dtype=torch.bool)))
    if shapes is HEARD:
        frames = torch.rand(BATCH, 4 * SOURCE - 1, BANDS, generator=random)
        return replace(pairs(source, target), source=Padded(frames, torch.ones(frames.shape[:2], dtype=torch.bool)))
    if shapes is PAIRS:
        return pairs(source, target)
    if shapes is LABELS:
        return labelled(source, torch.randint(NAMES, (BATCH,), generator=random))
    words = source > EOS
    letters = torch.randint(1, 257, (*source.shape, SPELT), generator=random)
    tags = torch.randint(NAMES, source.shape, generator=random)
    return tagged(source, tags * words, spelling=letters * words[..., None])


@pytest.mark.parametrize("name", CASES)
def test_what_is_counted_is_what_the_equations_cost(name: str) -> None:
    assert flops(build(name), batch_of(name))[0] == pytest.approx(CASES[name][3], rel=0.02)


def test_every_model_is_among_them() -> None:
    assert {model for model, *_ in CASES.values()} == set(MODELS)


def test_per_token_is_over_all_batches_together() -> None:
    for name, tokens in (("rnn_lm lstm", TOKENS), ("cnn labels", BATCH), ("birnn tags", BATCH * (SOURCE - 1) - 3)):
        model, batch = build(name), batch_of(name)
        assert flops_per_token(model, [batch]) == flops(model, batch)[0] / tokens
    model, batch = build("gpt"), batch_of("gpt")
    short = text(target_of(batch)[1:, : TARGET // 2])
    both = flops(model, batch)[0] + flops(model, short)[0]
    assert flops_per_token(model, iter([batch, short])) == both / (TOKENS + (BATCH - 1) * (TARGET // 2 - 1))
    assert flops_per_token(build("ngram"), [batch]) == flops_per_token(model, []) == 0


# --- why kernels stand aside -------------------------------------------------------------------------------------


def counted(part: nn.Module, *given: Any) -> int:
    with FlopCounterMode(display=False) as counter:
        part(*given)
    return counter.get_total_flops()


def test_inside_a_kernel_nothing_would_be_counted() -> None:
    time = SHORT_TO_LEARN + 1  # shorter sequences learn by plain products
    x = torch.randn(BATCH, time, EMBEDDING, requires_grad=True)
    lstm = Recurrent(cell=CELLS["lstm"], input_dim=EMBEDDING, hidden=HIDDEN)
    attention, each = Attention(score=Scaled()), x[:, None]  # (batch, heads, time, embedding)
    looked = (each, attention.memory(each, each))
    assert counted(lstm, x) == counted(attention, *looked) == 0
    with plain():
        assert counted(lstm, x) == recurrence("lstm", time, EMBEDDING)
        assert counted(attention, *looked) == 2 * product(BATCH * time, EMBEDDING, time)
    assert counted(lstm, x) == 0


def test_the_plain_form_gives_what_the_kernel_gives() -> None:
    for name in ("rnn_lm lstm", "rnn_lm gru-after", "transformer"):
        model: Any = build(name).double().eval()
        fast = model.loss(batch_of(name)).objective
        with plain():
            torch.testing.assert_close(model.loss(batch_of(name)).objective, fast)


# --- what counting leaves alone ----------------------------------------------------------------------------------


@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("name", ["rnn_lm lstm", "transformer", "birnn tags"])
def test_counting_changes_nothing(name: str, training: bool) -> None:
    model, shapes, settings, _ = CASES[name]
    normalised = {"normalisation": "batch"} if model == "transformer" else {}  # whose running means training moves
    made: Any = MODELS[model].build(MODELS[model].config(**settings, **normalised), shapes).train(training)
    made.loss(batch_of(name)).objective.backward()
    first = next(made.children())
    first.train(not training)
    modes = [part.training for part in made.modules()]
    saved = copy.deepcopy(made.state_dict())
    slopes = [parameter.grad.clone() for parameter in made.parameters()]
    random = torch.get_rng_state()
    with torch.no_grad():
        counted_first = flops(made, batch_of(name))[0]
    assert counted_first == flops(made, batch_of(name))[0] > 0
    assert torch.equal(torch.get_rng_state(), random)
    assert [part.training for part in made.modules()] == modes
    torch.testing.assert_close(made.state_dict(), saved, rtol=0, atol=0)
    torch.testing.assert_close([parameter.grad for parameter in made.parameters()], slopes, rtol=0, atol=0)


class Strict(nn.Linear):
    """Computes its products in training alone."""

    def loss(self, batch: Batch) -> Loss:
        objective = self(torch.ones(BATCH, EMBEDDING)).sum() if self.training else self.bias.sum()
        return Loss(objective, objective.detach(), BATCH)


def test_what_is_counted_is_a_training_step() -> None:
    made = Strict(EMBEDDING, HIDDEN).eval()
    assert flops(made, batch_of("gpt"))[0] == 2 * product(
        BATCH, EMBEDDING, HIDDEN
    )  # the input is given: no gradient to it


def test_what_has_no_loss_is_refused() -> None:
    mixed = Mixture([build("gpt"), build("ngram")])
    with pytest.raises(UserError, match="has no loss"):
        flops(mixed, batch_of("gpt"))


# --- speed -------------------------------------------------------------------------------------------------------

LINES = ["the cat sees a dog", "a dog", "the dog sleeps", "", "a cat", "the sad cat sees the sad dog", "dogs sleep"]


def run_of(task: str, model: str, **settings: object) -> Run:
    """Never trained, which is enough to be fast or slow."""
    recipe = parse_recipe(
        {
            "task": task,
            "data": {"name": "world"},
            "tokens": {"kind": "given" if task == "tagging" else "words", "size": 0},
            "model": {"name": model, **settings},
            "train": {"steps": 1},
        },
        tasks=TASKS,
    )
    examples = {
        "translation": [(line, line) for line in LINES],
        "language": [(line,) for line in LINES],
        "classification": [(line, "xy"[len(line) % 2]) for line in LINES if line],
        "tagging": [(line, " ".join("xy"[len(word) % 2] for word in line.split())) for line in LINES if line],
    }[task]
    fields = recipe.task.learn(lambda: examples, recipe.tokens)
    built = build_model(recipe, fields)
    if isinstance(built, Fits):
        ids = fields["target"].encode(LINES)
        built.fit(Encoded(np.concatenate(ids), np.cumsum([0, *map(len, ids)])))
    return Run(recipe, fields, built.eval(), torch.device("cpu"))


@pytest.fixture
def events(monkeypatch: pytest.MonkeyPatch) -> list[str | int]:
    """The clock's readings, a second apart, and in between the rows of each batch that is read."""
    seen: list[str | int] = []
    monkeypatch.setattr(timing.time, "perf_counter", lambda: seen.append("clock") or float(seen.count("clock")))
    return seen


def note(events: list[str | int], part: nn.Module) -> None:
    part.register_forward_hook(lambda _, given, made: events.append(rows_in(given[0])))


def rows_in(given: Any) -> int:
    return len(given.mask if isinstance(given, Padded) else given)


SMALL: dict[str, dict[str, object]] = {
    "rnnsearch": {"embedding": 8, "hidden": 8},
    "transformer": {"dim": 8, "heads": 2, "feed_forward": 8, "layers": 1},
}


@pytest.mark.parametrize("model", SMALL)
def test_a_translator_writes_so_many_tokens_a_second(model: str, events: list[str | int]) -> None:
    run = run_of("translation", model, **SMALL[model])
    written = sum(len(prediction.tokens) for prediction in run.predict(LINES, Decoding()))
    assert written
    note(events, run.model.get_submodule("encoder"))
    assert speed(run, LINES, rows=3) == written  # in what the clock says was a second
    assert events == [3, "clock", 3, 3, "clock"]  # the third three hold the empty line alone
    events.clear()
    speed(run, LINES, rows=1)
    assert events == [1, "clock", *[1] * 6, "clock"]


@pytest.mark.parametrize("model, sizes", [("rnn_lm", {"embedding": 8, "hidden": 8}), ("ngram", {"order": 2})])
def test_a_language_model_writes_so_many_texts_at_a_time(model: str, sizes: Any, events: list[str | int]) -> None:
    run = run_of("language", model, **sizes)
    texts = [run.predict([line] * 4) for line in (LINES[5], LINES[1])]  # the longest of seven, and the fifth
    for part in run.model.children():
        note(events, part)
    assert speed(run, LINES, rows=4) == sum(len(text.tokens) for four in texts for text in four) > 8
    assert len({text.text for text in texts[0]}) > 1
    assert events.count("clock") == 2 and events[-1] == "clock"
    if model == "rnn_lm":
        assert events[0] == 4 and events.index("clock") > 1


@pytest.mark.parametrize("task, model", [("classification", "cnn"), ("tagging", "birnn")])
def test_what_names_reads_so_many_tokens_a_second(task: str, model: str, events: list[str | int]) -> None:
    run = run_of(task, model)
    note(events, run.model.get_submodule("encoder"))
    assert speed(run, LINES, rows=4) == sum(len(line.split()) for line in LINES)
    assert events == [4, "clock", 4, 2, "clock"]


@pytest.mark.parametrize("lines, rows", [([], 1), (LINES, 0)])
def test_speed_without_lines_or_rows_is_refused(lines: list[str], rows: int) -> None:
    with pytest.raises(UserError, match="at least 1 line and 1 row"):
        speed(run_of("translation", "rnnsearch", **SMALL["rnnsearch"]), lines, rows=rows)

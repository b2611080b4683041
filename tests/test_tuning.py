"""Fine-tuning: every head × every way × every body trains, resumes and answers; what is frozen stays as it was, bit for
bit; what is added changes nothing at first."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, get_args

import pytest
import torch
from command import Call
from made import labelled, side
from torch import Tensor, nn

import regard
from regard.data.tensors import read_tensors
from regard.exchange.hugging_face import export_folder, import_folder
from regard.interface import EOS, Ids, Inspects, Label, Shapes, UserError
from regard.layers.encoders import Embedding, extra_states
from regard.layers.lora import LowRank, is_change, merged, plain_name
from regard.loading import read_recipe
from regard.models import MODELS
from regard.models.design import READING
from regard.new.fine_tuning import training as training_of
from regard.tasks.registry import TASKS
from regard.train.api import recipe_for, training
from regard.train.session import Folder, Session
from regard.train.training import TrainConfig, Training
from regard.train.transfer import names_of
from regard.train.tuning import Tune, Tuning, adapted, depths, is_head
from regard.train.weights import Weights, load_weights, mean_weights, weights

TEXTS = ["a b c", "c", "b a", "x y c a", "c b"] * 4
TINY: dict[str, Any] = {"model.dim": 6, "model.heads": 2, "model.feed_forward": 7, "model.layers": 2}
STEPS = {"train.steps": 2, "train.validate_every": 1, "train.precision": "float32", "train.batch_tokens": 64}
BODIES = {  # the task that trains each body, and its settings
    "bert": ("masked", {**TINY, "model.longest": 64}),
    "gpt": ("language", {**TINY, "model.context": 64}),
    "elmo": ("language", {"model.embedding": 5, "model.hidden": 7, "model.context": 64}),
    "t5": ("denoising", TINY),
}
GIVEN: dict[str, Any] = {  # examples as Python gives them, where they differ from those of a file
    "multiple-choice": [("a b", ["c", "x"], "x"), ("c", ["a", "b", "x"], "a")],
    "question-answering": [("a", "b c", "c"), ("c", "a b x", "a b")],
}
FLOAT = "train.precision=float32"
WAYS: Sequence[Tune] = get_args(Tune)
ROWS = [
    (body, task, way)
    for body, task, way in product(BODIES, TASKS, WAYS)
    if body in MODELS and BODIES[body][0] in TASKS and task in READING and task in MODELS[body].tasks
]
QUICK = {(body, "classification", way) for body, way in (("bert", "gradual"), ("gpt", "prompt"), ("elmo", "lora"))}
WORD_SETTINGS = {"tokens.kind": "words", "tokens.size": 0, "tokens.at_least": 1}


@pytest.fixture(scope="module")
def bodies(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Trained bodies by name, each made when it is first asked for."""
    place, made = tmp_path_factory.mktemp("bodies"), dict[str, Path]()

    def body(name: str) -> Path:
        if name not in made:
            task, settings = BODIES[name]
            recipe = {"task": task, "model": {"name": name}}
            chosen = {"data.unit": "line", **settings, **STEPS, **WORD_SETTINGS}
            regard.train(recipe, place / name, data=TEXTS, valid=TEXTS, settings=chosen)
            made[name] = place / name
        return made[name]

    yield body


def tuned(body: Path, task: str, way: str, **settings: Any) -> dict[str, Any]:
    """The arguments of `regard.train` for the task's own two examples."""
    toy = [*GIVEN.get(task, TASKS[task].toy)] * 10
    more = {"train.from": str(body), "train.tune": way, "train.rank": 2, "train.prompt": 3, **STEPS, **settings}
    return {"recipe": {"task": task}, "data": toy, "valid": toy, "settings": more}


def opened(given: dict[str, Any], out: Path) -> Session:
    recipe = recipe_for(given["recipe"], Folder(out), given["data"], given["valid"], given["settings"])
    return Session(recipe, out)


def best(run: Path) -> Weights:
    return read_tensors(run / "model.safetensors")[0]


def last(run: Path) -> Weights:
    return {
        name.removeprefix("model."): tensor
        for name, tensor in read_tensors(Folder(run).last)[0].items()
        if name.startswith("model.")
    }


def body_of(run: Path, name: str) -> Tensor | None:
    there = best(run)
    return next((there[each] for each in names_of(plain_name(name)) if each in there), None)


@pytest.mark.parametrize(
    ("body", "task", "way"), [pytest.param(*row, marks=[pytest.mark.slow] * (row not in QUICK)) for row in ROWS]
)
def test_every_head_is_tuned_in_every_way(body: str, task: str, way: str, bodies: Any, tmp_path: Path) -> None:
    """It ends with the same weights where it was interrupted; of the body, only what may change has changed."""
    base = bodies(body)
    tokens = 96 if task in GIVEN else 32  # two epochs or more
    few = {"train.batch_tokens": tokens, "train.steps": 6, "train.average": 3, "train.smooth": 0.5}
    given = tuned(base, task, way, **few)
    run = regard.train(out=tmp_path / "straight", **given)
    for step in training(out=tmp_path / "again", **given):
        if step.step == 4:  # in the second epoch
            break
    regard.train(out=tmp_path / "again", **given)
    for read in (best, last):
        straight, again = read(tmp_path / "straight"), read(tmp_path / "again")
        assert straight.keys() == again.keys() and all(torch.equal(straight[name], again[name]) for name in straight)
        kept = {n for n in straight if (old := body_of(base, n)) is not None and torch.equal(straight[n], old)}
        others = {name for name in straight.keys() - kept if not is_head(name) and straight[name].dim() > 1}
        new = {name for name in others if body_of(base, name) is None or is_change(name)}
        if way not in ("all", "gradual"):
            assert others <= new
        elif read is last:  # the best may be from the first epoch, when nothing is unfrozen
            assert others > new
        assert any(is_head(name) for name in straight.keys() - kept)
    source = [example[0] for example in TASKS[task].toy]
    assert len(run.predict(source)) == len(source)


@pytest.mark.parametrize("body", [name for name in BODIES if (name, "classification", "lora") in ROWS])
def test_lora_changes_nothing_at_the_start(body: str, bodies: Any, tmp_path: Path) -> None:
    plain, low = (opened(tuned(bodies(body), "classification", way), tmp_path / way) for way in ("all", "lora"))
    raws = [text for text, _ in TASKS["classification"].toy]
    states = []
    for session in (plain, low):
        with torch.inference_mode():  # with gradients, what is frozen decides which kernel of attention runs
            states.append(session.run.model.eval().encode(session.run.batch(source=raws)).values)  # type: ignore[operator]
    assert torch.equal(*states)
    changed = [name for name in weights(low.run.model) if is_change(name)]
    learns = {name for name, parameter in low.run.model.named_parameters() if parameter.requires_grad}
    assert changed and learns == {*changed, *(n for n in weights(low.run.model) if is_head(n) or ".mix." in n)}


# --- the laws of each way ------------------------------------------------------------------------------------------

LABELS = Shapes(Ids(11), Label(3))
SMALL: dict[str, dict[str, Any]] = {
    "bert": {"dim": 6, "heads": 2, "feed_forward": 7, "layers": 3, "longest": 20, "dropout": 0.0},
    "encoder": {"dim": 6, "heads": 2, "feed_forward": 7, "layers": 2, "dropout": 0.0},
    "birnn": {"embedding": 5, "hidden": 7, "layers": 2, "dropout": 0.0},
    "birnn gru": {"embedding": 5, "hidden": 7, "layers": 2, "dropout": 0.0, "cell": "gru"},
    "cnn": {"embedding": 5, "dropout": 0.0},
}
BATCH = labelled([[4, 5, 6, EOS], [7, EOS]], [0, 2])


def made(name: str, shapes: Shapes = LABELS) -> nn.Module:
    torch.manual_seed(3)
    design = MODELS[name.split()[0]]
    return design.build(design.config(**SMALL[name]), shapes).eval()


def outputs(model: Any, batch: Any = BATCH) -> Tensor:
    with torch.no_grad():
        found: Tensor = model.classify(batch)
    return found


@pytest.mark.parametrize("name", SMALL)
def test_lora_adds_a_product_of_low_rank(name: str) -> None:
    """Merged, it is a plain model that computes the same; fused kernels, loops and convolutions read it alike."""
    plain, low = made(name), adapted(made(name), "lora", LABELS, rank=2, prompt=0)
    assert torch.equal(outputs(plain), outputs(low))
    for part in low.modules():
        if isinstance(part, LowRank):
            nn.init.normal_(part.b)
    assert not torch.allclose(outputs(plain), outputs(low))
    before = {plain_name(key): value for key, value in weights(low).items() if not is_change(key)}
    after = merged(weights(low))
    moved = [key for key in after if not torch.equal(before[key], after[key])]
    assert moved and all(torch.linalg.matrix_rank((after[key] - before[key]).flatten(1)) <= 2 for key in moved)
    load_weights(plain, after)
    assert torch.allclose(outputs(plain), outputs(low), atol=1e-6)


@pytest.mark.parametrize("name", ["bert", "encoder", "birnn"])
def test_a_prompt_is_read_as_tokens_are(name: str) -> None:
    """With the vectors of two tokens it is as if they stood before the text, and their states are left out."""
    plain, led = made(name), adapted(made(name), "prompt", LABELS, rank=0, prompt=2)
    assert isinstance(led, Inspects)
    vectors = led.inspect().vectors
    assert isinstance(vectors, Embedding) and vectors.prompt is not None
    with torch.no_grad():
        vectors.prompt.copy_(vectors.weight[[8, 9]])
        longer = plain.get_submodule("encoder")(side([[8, 9, 4, 5, 6, EOS], [8, 9, 7, EOS]]))
        own = led.get_submodule("encoder")(BATCH.source)
    first = extra_states(plain.get_submodule("encoder"))
    for each, whole in zip((own.states, own.mask), (longer.states, longer.mask), strict=True):
        expected = torch.cat([whole[:, :first], whole[:, first + 2 :]], 1)
        assert torch.allclose(each.float(), expected.float(), atol=1e-6)
    if name == "bert":
        assert led.longest == plain.longest - 2  # type: ignore[operator]


@pytest.mark.parametrize("name", [*SMALL, "transformer"])
def test_the_embedding_is_lowest_and_the_head_is_highest(name: str) -> None:
    if name == "transformer":
        config = MODELS[name].config(dim=6, heads=2, feed_forward=7, layers=2)
        model = MODELS[name].build(config, Shapes(Ids(11), Ids(11), joint=True))
    else:
        model = made(name)
    depth = depths(name for name, _ in model.named_parameters())
    top = max(depth.values())
    layers = {"bert": 3, "cnn": len(list(model.modules())) and top - 1, "transformer": 4}.get(name, 2)
    assert set(depth.values()) == set(range(layers + 2))
    for each, found in depth.items():
        assert (found == top) is is_head(each)
        assert (found == 0) is bool({"embed", "positions", "segments", "first", "enter"} & set(each.split(".")))
    numbers = [(int(part), found) for each, found in depth.items() for part in each.split(".")[3:4] if part.isdecimal()]
    assert all(found - number in (1, 3) for number, found in numbers if name in ("bert", "transformer"))


def test_each_layer_learns_at_a_share_of_the_rate_of_that_above() -> None:
    model = made("bert")
    state = Training(model, TrainConfig(steps=1), tuning=Tuning(layer_decay=0.5))
    depth = depths(state.parameters)
    for group in state.optimiser.param_groups:
        names = {name for name, own in state.parameters.items() for each in group["params"] if own is each}
        assert all(group["pace"] == 0.5 ** (4 - depth[name]) for name in names)


def test_gradual_unfreezing_reaches_one_layer_more_each_epoch() -> None:
    state = Training(made("bert"), TrainConfig(steps=1, from_="x", tune="gradual"), tuning=Tuning("gradual"))
    depth = depths(state.parameters)
    for state.epoch in range(6):
        state.thaw()
        learns = {depth[name] for name, parameter in state.parameters.items() if parameter.requires_grad}
        assert learns == set(range(max(0, 4 - state.epoch), 5))


def test_a_frozen_body_has_no_gradient_and_no_moments(bodies: Any, tmp_path: Path) -> None:
    session = opened(tuned(bodies("bert"), "classification", "frozen"), tmp_path / "run")
    for _ in session.steps():
        pass
    assert all((own.grad is not None) is is_head(name) for name, own in session.run.model.named_parameters())
    moments = [name for name in session.training.tensors() if name.startswith("optimiser.")]
    assert moments and all(is_head(name) for name in moments)


def test_the_mean_of_what_does_not_change_is_what_it_was() -> None:
    """Also where the mean of equal numbers is rounded."""
    frozen = torch.randn(1000)
    assert not torch.equal(torch.stack([frozen] * 7).mean(0), frozen)
    means = mean_weights([{"frozen": frozen, "learns": frozen + age} for age in range(7)])
    assert torch.equal(means["frozen"], frozen) and torch.allclose(means["learns"], frozen + 3)


def test_a_lora_run_can_be_started_from(bodies: Any, tmp_path: Path) -> None:
    """Its changes are in the weights that another run takes."""
    given = tuned(bodies("bert"), "classification", "lora", **{"train.learning_rate": 0.1})
    low = regard.train(out=tmp_path / "low", **given)
    session = opened(tuned(tmp_path / "low", "classification", "all"), tmp_path / "next")
    session.run.model.eval()
    batch = low.batch(source=["a b", "c"])
    assert session.taken is not None and not session.taken.left
    assert torch.allclose(outputs(low.model, batch), outputs(session.run.model, batch), atol=1e-6)


@pytest.mark.parametrize(
    ("a", "b"),
    [
        ((2, 9), (7, 3)),
        ((1, 2_000_000), (2_000_000, 1)),
        ((0, 9), (7, 0)),
        ((), (7, 2)),
        (None, (7, 2)),
        ((2, 9), None),
    ],
)
def test_lora_that_does_not_fit_its_matrix_is_refused_before_it_is_computed(a: Any, b: Any) -> None:
    sizes = {"original": (7, 9), "0.a": a, "0.b": b}
    saved = {f"x.parametrizations.w.{key}": torch.ones(size) for key, size in sizes.items() if size is not None}
    with pytest.raises(UserError, match="x.w and what LoRA adds to it do not fit"):
        merged(saved)


def test_a_prompt_can_be_started_from_and_learns_on(bodies: Any, tmp_path: Path) -> None:
    first = regard.train(out=tmp_path / "first", **tuned(bodies("bert"), "classification", "prompt"))
    given = tuned(tmp_path / "first", "classification", "prompt", **{"train.learning_rate": 0.1})
    session = opened(given, tmp_path / "next")
    batch = first.batch(source=["a b", "c"])
    assert torch.allclose(outputs(first.model, batch), outputs(session.run.model.eval(), batch), atol=1e-6)
    for _ in session.steps():
        pass
    (prompt,) = (name for name in best(tmp_path / "first") if name.endswith(".prompt"))
    assert not torch.equal(last(tmp_path / "next")[prompt], best(tmp_path / "first")[prompt])


@pytest.mark.parametrize("context", ["mean", "first"])
def test_a_prompt_is_left_out_of_what_is_read_backwards(context: str) -> None:
    """The states are those that the text has when the prompt is read after it."""
    shapes = Shapes(Ids(11), Ids(11))
    config = MODELS["seq2seq"].config(embedding=5, hidden=7, layers=1, dropout=0.0, context=context, lexical=True)
    led = adapted(MODELS["seq2seq"].build(config, shapes).eval(), "prompt", shapes, rank=0, prompt=2)
    encoder = led.get_submodule("encoder")
    with torch.no_grad():
        own = encoder(BATCH.source)
        encoder._forward_pre_hooks.clear()
        encoder._forward_hooks.clear()
        plain = encoder(BATCH.source)
    for each, expected in zip((own.states, own.values), (plain.states, plain.values), strict=True):
        assert torch.allclose(each[own.mask], expected[plain.mask], atol=1e-6)
    assert torch.equal(own.mask, plain.mask) and not torch.allclose(own.final[-1][0], plain.final[-1][0])


@pytest.mark.parametrize("name", ["gpt", "bert"])
def test_what_a_packed_model_reads_before_a_text_is_what_stands_before_it_under_a_head(
    name: str, tmp_path: Path
) -> None:
    """A packed language model has never read <bos>; a masked one always has."""
    task, more = BODIES[name]
    chosen = {**more, **STEPS, **WORD_SETTINGS, "data.pack": True, "data.unit": "line"}
    run = regard.train(
        {"task": task, "model": {"name": name}}, tmp_path / name, data=TEXTS, valid=TEXTS, settings=chosen
    )
    run_of = {way: opened(tuned(tmp_path / name, "classification", way), tmp_path / way).run for way in ("all", "lora")}
    ids = run.tokenizer().encode("a b c")
    for tuned_run in run_of.values():
        with torch.no_grad():
            states = tuned_run.model.eval().get_submodule("encoder")(side([[*ids, EOS]])).states
            if name == "gpt":
                read = torch.tensor([[*run.opening, *ids, EOS]])
                expected = run.model.get_submodule("body")(run.model.get_submodule("embed")(read))[0]
            else:
                expected = run.model.get_submodule("encoder")(side([[*ids, EOS]])).states
        assert torch.allclose(states, expected, atol=1e-6)


# --- new --from ----------------------------------------------------------------------------------------------------


def write(place: Path) -> None:
    (place / "labels.tsv").write_text("".join(f"{text}\t{'xy'[n % 2]}\n" for n, text in enumerate(TEXTS * 3)))


def test_a_recipe_has_the_model_and_the_tokens_of_the_run(bodies: Any, call: Call, place: Path) -> None:
    write(place)
    said = call("new", "classification", "labels.tsv", "--valid", "labels.tsv", "--from", bodies("bert"))
    assert said.code == 0 and f"train.from = {bodies('bert')}: " in said.out
    recipe, base = (read_recipe(path)[0] for path in (place / "classification.toml", bodies("bert") / "config.toml"))
    assert recipe.model == replace(base.model, pool="mean") and recipe.model_name == "bert"
    assert "model.pool = mean: masked tokens teach <cls> nothing" in said.out
    assert (recipe.tokens.kind, recipe.train.from_) == ("words", str(bodies("bert")))
    assert recipe.train.layer_decay < 1 and recipe.train.schedule == "linear"
    wide = [training_of(recipe, replace(base.model, dim=dim))[0].learning_rate for dim in (128, 256, 512, 768)]
    assert wide == sorted(wide, reverse=True) and len(set(wide)) == 4
    said = call("train", "classification.toml", "train.steps=1", FLOAT)
    assert "Fine-tuning" in said.out and "loaded: encoder (" in said.out and "; new: head (4)." in said.out


def test_a_label_is_read_from_all_states_of_a_language_model(bodies: Any, call: Call, place: Path) -> None:
    write(place)
    said = call("new", "classification", "labels.tsv", "--valid", "labels.tsv", "--from", bodies("gpt"))
    assert "model.pool = mean: the last state of a language model predicts the next token" in said.out
    assert call("train", "classification.toml", "train.steps=1", FLOAT, "model.pool=end").code == 0
    (place / "numbers.tsv").write_text("".join(f"{text}\t{n}\n" for n, text in enumerate(TEXTS)))
    again = call("new", "regression", "numbers.tsv", "--from", place / "runs" / "classification", "-o", "n.toml")
    assert again.code == 0 and "model.pool" not in again.out
    assert read_recipe(place / "n.toml")[0].model.pool == "end"  # what a classifier has learnt is kept


def test_the_longest_text_of_a_recipe_fits_the_positions_of_the_run(bodies: Any, call: Call, place: Path) -> None:
    write(place)
    made = ("new", "classification", "labels.tsv", "--valid", "labels.tsv", "--from", bodies("gpt"))
    assert call(*made).code == 0
    longest = read_recipe(place / "classification.toml")[0].tokens.longest
    assert 60 < longest < 64
    (place / "labels.tsv").write_text("".join(f"{' '.join(['a'] * longest)}\t{label}\n" for label in (0, 1)))
    assert call("train", "classification.toml", "train.steps=1", FLOAT).code == 0


def test_recurrent_layers_learn_fast_under_a_new_head(bodies: Any, call: Call, place: Path) -> None:
    write(place)
    assert call("new", "classification", "labels.tsv", "--valid", "labels.tsv", "--from", bodies("elmo")).code == 0
    recipe = read_recipe(place / "classification.toml")[0]
    known = training_of(recipe, recipe.model, new_head=False)[0]
    assert recipe.train.learning_rate > known.learning_rate


def test_pre_training_is_continued(bodies: Any, call: Call, place: Path) -> None:
    (place / "more.txt").write_text("\n".join(TEXTS))
    assert call("new", "masked", "more.txt", "--valid", "more.txt", "--from", bodies("bert")).code == 0
    said = call("train", "masked.toml", "train.steps=1", FLOAT, "train.tune=lora", "train.rank=2")
    assert said.code == 0 and "; new: " in said.out, said


def test_pictures_are_tuned_too(tmp_path: Path) -> None:
    tiny = {**TINY, "model.layers": 1, **STEPS}
    toy = [*TASKS["pictures"].toy] * 10
    first = {"recipe": {"task": "pictures"}, "data": toy, "valid": toy, "settings": tiny}
    regard.train(out=tmp_path / "base", **first)
    for way in ("frozen", "lora"):
        session = opened(tuned(tmp_path / "base", "pictures", way), tmp_path / way)
        assert session.taken is not None and all(map(is_change, session.taken.left))
        assert 0 < session.learning < session.parameters
    with pytest.raises(UserError, match="choose another way"):
        opened(tuned(tmp_path / "base", "pictures", "prompt"), tmp_path / "prompt")


def test_what_cannot_be_tuned_is_one_sentence(bodies: Any, call: Call, place: Path) -> None:
    write(place)
    (place / "more.txt").write_text("\n".join(TEXTS))
    base, data = ("--from", bodies("bert")), ("labels.tsv", "--valid", "labels.tsv")
    call("new", "classification", *data, *base)
    call("new", "masked", "more.txt", "--valid", "more.txt", *base)
    call("new", "language", "more.txt", "--valid", "more.txt", "--from", bodies("gpt"))
    for arguments, words in (
        (("new", "classification", *data, *base, "--model", "cnn", "-o", "o.toml"), "is a run of bert, not of cnn"),
        (("new", "classification", *data, *base, "--tokens", "bpe", "-o", "o.toml"), "tokens are those of"),
        (("new", "language", "more.txt", *base, "-o", "o.toml"), "is a run of bert, which is not for language"),
        (("new", "classification", *data, "--from", "nowhere", "-o", "o.toml"), "was not found"),
        (("train", "classification.toml", "train.from=", "train.tune=lora"), "name its run in from"),
        (("train", "masked.toml", "train.tune=frozen"), "trains a new head"),
        (("train", "language.toml", "train.tune=prompt"), "choose another way"),
        (("train", "classification.toml", "train.tune=prompt", "train.prompt=99"), "choose fewer vectors"),
        (("train", "classification.toml", "train.tune=lora", "train.rank=99"), "train.rank = 99 is above"),
    ):
        said = call(*arguments)
        assert said.code == 1 and words in said.err and said.err.count("\n") == 1, (arguments, said)


def test_python_takes_the_model_of_the_run(bodies: Any, tmp_path: Path) -> None:
    body = "gpt" if "classification" in MODELS["gpt"].tasks else "bert"
    session = opened(tuned(bodies(body), "classification", "all"), tmp_path / "run")
    assert session.recipe.model_name == body
    assert session.taken is not None and all(is_head(name) for name in session.taken.left)
    with pytest.raises(UserError, match="name its run in from"):
        opened({**tuned(bodies("bert"), "classification", "lora"), "settings": {"train.tune": "lora"}}, tmp_path / "o")


def test_tokens_of_another_kind_and_what_learns_are_said(bodies: Any, call: Call, place: Path) -> None:
    write(place)
    call("new", "classification", "labels.tsv", "--valid", "labels.tsv", "--from", bodies("bert"))
    said = call(
        "train",
        "classification.toml",
        "train.steps=1",
        FLOAT,
        "tokens.kind=bpe",
        "tokens.size=300",
        "train.tune=frozen",
    )
    assert "Its tokens are words, which tokens.kind does not change.\n" in said.out
    assert " labels/s" in said.out and "tokens/s" not in said.out
    assert re.search(r"\n[1-9][0-9,]* of [0-9,]+ parameters learn \(train.tune\)\.\n", said.out)
    said = call("train", "classification.toml", "train.steps=1", FLOAT, "-o", "all")
    assert "Fine-tuning" in said.out and "tokens.kind" not in said.out and "parameters learn" not in said.out


def test_a_lora_run_is_exported_as_a_plain_model(tmp_path: Path) -> None:
    pieces = {"data.unit": "line", **BODIES["bert"][1], **STEPS, "tokens.kind": "bpe", "tokens.size": 270}
    recipe = {"task": "masked", "model": {"name": "bert"}}
    regard.train(recipe, tmp_path / "base", data=TEXTS, valid=TEXTS, settings=pieces)
    quick = {"train.learning_rate": 0.1, "model.pool": "first"}
    low = regard.train(out=tmp_path / "low", **tuned(tmp_path / "base", "classification", "lora", **quick))
    remarks, _ = import_folder(export_folder(tmp_path / "low"), tmp_path / "again")
    assert not remarks  # it has a head: that of its labels
    raws = ["a b", "c", "x y c"]
    one, other = (run.predict(raws) for run in (low, regard.load(tmp_path / "again")))
    for a, b in zip(one, other, strict=True):
        assert a.probabilities == pytest.approx(b.probabilities, abs=1e-5)
    regard.train(out=tmp_path / "led", **tuned(tmp_path / "base", "classification", "prompt"))
    with pytest.raises(UserError, match="a Hugging Face folder cannot hold them"):
        export_folder(tmp_path / "led")

"""Laws of training: resumed equals straight, bit for bit; the loop does what its docstring says; nothing is lost."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from pathlib import Path

import pytest
import torch
from made import pairs, source_of, target_of
from torch import Tensor, nn

from regard.data.tensors import read_tensors
from regard.interface import BOS, EOS, PAD, Batch, Ids, Loss, Padded, Progress, Sample, Shapes, UserError
from regard.layers.heads import SoftmaxHead
from regard.loading import load, read_recipe
from regard.models import rnnsearch
from regard.recipe import Recipe
from regard.train.loop import train_steps
from regard.train.schedule import SCHEDULES, rate
from regard.train.session import Session
from regard.train.training import Batches, TrainConfig, Training
from regard.train.weights import mean_weights, weights

# A toy task: write the letters backwards.

MODELS = {
    "rnnsearch": 'name = "rnnsearch"\nembedding = 5\nhidden = 7\ndropout = 0.2',
    "rnnsearch boxcar": 'name = "rnnsearch"\nembedding = 5\nhidden = 7\nscore = "boxcar"\ndropout = 0.2',
    "transformer": 'name = "transformer"\ndim = 6\nheads = 2\nfeed_forward = 7\nlayers = 1\nnormalisation = "batch"',
}

RECIPE = """
task = "translation"
seed = 3
[data]
name = "parallel"
source = "train.source"
target = "train.target"
valid_source = "valid.source"
valid_target = "valid.target"
[tokens]
kind = "characters"
size = 0
[model]
{model}
[train]
steps = 7
batch_tokens = 32
accumulate = 2
average = 2
smooth = 0.4
learning_rate = 0.01
warmup = 3
precision = "float32"
validate_every = 3
"""


def words(count: int, *, seed: int) -> list[str]:
    random = torch.Generator().manual_seed(seed)
    lengths = torch.randint(1, 7, (count,), generator=random).tolist()
    return ["".join("abcde"[i] for i in torch.randint(5, (n,), generator=random).tolist()) for n in lengths]


def write_task(folder: Path) -> None:
    for split, count, seed in (("train", 61, 1), ("valid", 11, 2)):
        lines = words(count, seed=seed)
        (folder / f"{split}.source").write_text("".join(line + "\n" for line in lines))
        (folder / f"{split}.target").write_text("".join(line[::-1] + "\n" for line in lines))


def recipe_in(folder: Path, *settings: str, model: str = "rnnsearch") -> Recipe:
    write_task(folder)
    (folder / "toy.toml").write_text(RECIPE.format(model=MODELS[model]))
    return read_recipe(folder / "toy.toml", settings)[0]


def everything(session: Session) -> dict[str, Tensor]:
    """All that the next step would depend on."""
    facts = {name: fact for name, fact in session.training.facts().items() if name != "seconds"}
    return {
        **session.training.tensors(),
        "lately": torch.tensor(facts.pop("lately")),
        "facts": torch.tensor([float(fact) for fact in facts.values()]),
    }


def same(left: dict[str, Tensor], right: dict[str, Tensor]) -> bool:
    return left.keys() == right.keys() and all(torch.equal(left[name], right[name]) for name in left)


# Resumed equals straight


@pytest.mark.parametrize("model", ["rnnsearch boxcar", "transformer"])  # one with weights that get no gradient
def test_resumed_equals_straight(tmp_path, model):
    recipe = recipe_in(tmp_path, model=model)
    straight = Session(recipe, tmp_path / "straight")
    reports = list(straight.steps())
    expected = everything(straight)
    again = Session(recipe, tmp_path / "again")
    for stop in (1, 2, 3):  # to step 1, 3 (a validation) and 6
        list(islice(again.steps(), stop))
        again.save()
        torch.manual_seed(1234)  # whatever else happened to the random state meanwhile
        again = Session(recipe, tmp_path / "again")
        assert again.resumed
    last = list(again.steps())
    assert [report.step for report in last] == [7]
    assert same(everything(again), expected)
    assert last[-1].valid == reports[-1].valid
    assert last[-1].samples == reports[-1].samples
    best = [read_tensors(tmp_path / out / "model.safetensors") for out in ("straight", "again")]
    assert same(best[0][0], best[1][0])
    assert best[0][1] == best[1][1]


def test_it_would_differ_without_the_random_state(tmp_path):
    recipe = recipe_in(tmp_path)
    straight = Session(recipe, tmp_path / "straight")
    list(straight.steps())
    again = Session(recipe, tmp_path / "again")
    list(islice(again.steps(), 4))
    again.save()
    again = Session(recipe, tmp_path / "again")
    torch.manual_seed(1234)
    list(again.steps())
    assert not same(weights(again.run.model), weights(straight.run.model))


def test_watching_closely_changes_nothing(tmp_path):
    """Validation, however often, leaves the training as it is."""
    for every in (1, 7):
        recipe = recipe_in(tmp_path, f"train.validate_every={every}", "train.average=1")
        list(Session(recipe, tmp_path / str(every)).steps())
    ends = [read_tensors(tmp_path / every / "last" / "state.safetensors")[0] for every in ("1", "7")]
    names = [name for name in ends[0] if name.startswith("model.")]
    assert names
    assert all(torch.equal(ends[0][name], ends[1][name]) for name in names)
    assert torch.equal(ends[0]["random"], ends[1]["random"])


# A run folder

BOTH = ["train.steps", "train.patience"]  # used up by the same step


def test_a_run_learns_and_can_be_loaded(tmp_path):
    recipe = recipe_in(tmp_path, "train.steps=40", "train.validate_every=10", "train.learning_rate=0.05")
    session = Session(recipe, tmp_path / "run")
    reports = [report for report in session.steps() if report.valid]
    losses = [report.valid["loss"] for report in reports if report.valid]
    assert losses[-1] < 0.9 * losses[0]
    assert reports[-1].finished == "the budget is used"
    lines = (tmp_path / "run" / "log.jsonl").read_text().splitlines()
    entries = [json.loads(line) for line in lines]
    assert [entry["step"] for entry in entries] == [10, 20, 30, 40]
    assert [entry["valid"]["loss"] for entry in entries] == losses
    assert all(entry["attempt"] == entries[0]["attempt"] for entry in entries)
    samples = (tmp_path / "run" / "samples.txt").read_text()
    assert samples.count("step ") == 4 * 3  # one for each sample
    assert all(line in samples for line in words(11, seed=2)[:3])
    environment = json.loads((tmp_path / "run" / "environment.json").read_text())
    assert environment["precision"] == "float32"
    loaded = load(tmp_path / "run")
    assert not loaded.model.training
    kept, facts = read_tensors(tmp_path / "run" / "model.safetensors")
    assert same(weights(loaded.model), kept)
    assert facts["step"] == [report.step for report in reports if report.improved][-1]


def test_the_log_grows_over_attempts(tmp_path):
    recipe = recipe_in(tmp_path)
    list(islice(Session(recipe, tmp_path / "run").steps(), 3))
    list(Session(recipe, tmp_path / "run").steps())
    entries = [json.loads(line) for line in (tmp_path / "run" / "log.jsonl").read_text().splitlines()]
    assert [entry["step"] for entry in entries] == [3, 6, 7]


def test_a_finished_run_has_no_more_steps_until_it_is_given_some(tmp_path):
    list(Session(recipe_in(tmp_path), tmp_path / "run").steps())
    assert list(Session(recipe_in(tmp_path), tmp_path / "run").steps()) == []
    more = Session(recipe_in(tmp_path, "train.steps=9"), tmp_path / "run")
    assert [report.step for report in more.steps()] == [8, 9]
    assert read_recipe(tmp_path / "run" / "config.toml")[0].train.steps == 9


@pytest.mark.parametrize(
    "settings, named",
    [
        (["train.steps=3"], ["train.steps"]),
        (["train.steps=0", "train.epochs=1"], ["train.epochs"]),
        (["train.steps=0", "train.tokens=200"], ["train.tokens"]),
        (["train.steps=0", "train.flops=1e6"], ["train.flops"]),
        (["train.steps=0", "train.minutes=1e-6"], ["train.minutes"]),
        (["train.steps=2", "train.epochs=90", "train.tokens=9000"], ["train.steps"]),  # what did not end it is not
        (["train.steps=1", "train.tokens=30"], ["train.steps", "train.tokens"]),
        (["train.steps=0", "train.tokens=100", "train.flops=1e12"], ["train.tokens"]),
        (["train.steps=3", "train.validate_every=1", "train.learning_rate=1e-30", "train.patience=2"], BOTH),
    ],
)
def test_a_finished_run_names_what_ended_it_and_raised_that_goes_on(tmp_path, call, settings, named):
    recipe_in(tmp_path)
    command = ("train", tmp_path / "toy.toml", *settings)
    assert call(*command, "-o", tmp_path / "run").code == 0
    facts = read_tensors(tmp_path / "run" / "last" / "state.safetensors")[1]
    step = facts["step"]
    said = call(*command, "-o", tmp_path / "run")
    assert said.code == 0 and said.out.count("This run is finished") == 1
    (told,) = re.findall(r"raise (train\.\S+(?: and train\.\S+)*) to continue\.", said.out)
    assert told.split(" and ") == named
    values = {key: json.loads(value) for key, value in (setting.split("=") for setting in settings)}
    raised = {key: 3 * values[key] for key in named}
    if "train.minutes" in raised:
        raised["train.minutes"] = (facts["seconds"] + 1) / 60
    more = [f"{key}={value}" for key, value in raised.items()]
    went_on = call(*command, *more, "-o", tmp_path / "run")
    assert went_on.code == 0 and f"Resuming {tmp_path / 'run'} from step {step}" in went_on.out
    assert read_tensors(tmp_path / "run" / "last" / "state.safetensors")[1]["step"] > step


@pytest.mark.parametrize(
    "setting, key",
    [
        ("model.hidden=11", "model.hidden"),
        ("seed=4", "seed"),
        ("train.clip=2.0", "train.clip"),
        ("tokens.size=8", None),
    ],
)
def test_another_recipe_in_the_same_folder_is_refused_by_key(tmp_path, setting, key):
    list(islice(Session(recipe_in(tmp_path), tmp_path / "run").steps(), 1))
    before = (tmp_path / "run" / "config.toml").read_text()
    with pytest.raises(UserError, match=f"differs in {key or 'tokens.size'}: .*-o"):
        Session(recipe_in(tmp_path, setting), tmp_path / "run")
    assert (tmp_path / "run" / "config.toml").read_text() == before


@pytest.mark.parametrize("file", ["train.source", "train.target", "valid.source", "valid.target"])
def test_changed_data_is_refused(tmp_path, file):
    recipe = recipe_in(tmp_path)
    list(islice(Session(recipe, tmp_path / "run").steps(), 1))
    text = (tmp_path / file).read_text()
    (tmp_path / file).write_text("abcde" + text.partition("\n")[1] + text.partition("\n")[2])
    with pytest.raises(UserError, match="data has changed"):
        Session(recipe, tmp_path / "run")


def test_empty_data_is_refused(tmp_path):
    recipe = recipe_in(tmp_path)
    for side in ("source", "target"):
        (tmp_path / f"valid.{side}").write_text("")
    with pytest.raises(UserError, match="valid data is empty"):
        Session(recipe, tmp_path / "run")


def test_what_an_attempt_that_never_began_left_is_not_used(tmp_path):
    recipe = recipe_in(tmp_path)
    (tmp_path / "valid.source").write_text("")
    (tmp_path / "valid.target").write_text("")
    with pytest.raises(UserError, match="valid data is empty"):
        Session(recipe, tmp_path / "run")  # after the tokenizer was made and the training text encoded
    recipe = recipe_in(tmp_path, 'tokens.kind="words"')
    for side in ("source", "target"):
        (tmp_path / f"train.{side}").write_text("new words\nand more\n")
    session = Session(recipe, tmp_path / "run")
    assert session.fields.tokenizer("source").kind == "words"
    assert {side: len(each) for side, each in session.encoded["train"].items()} == {"source": 2, "target": 2}
    assert {side: len(each) for side, each in session.encoded["valid"].items()} == {"source": 11, "target": 11}


def test_batches_are_a_function_of_seed_epoch_and_index(tmp_path):
    batches = Session(recipe_in(tmp_path), tmp_path / "run").batches
    same_seed = Session(recipe_in(tmp_path), tmp_path / "again").batches
    other_seed = Session(recipe_in(tmp_path, "seed=4"), tmp_path / "other").batches
    count = batches.count(0)
    assert count > 5

    def epoch(of: Batches, number: int) -> list[list[list[int]]]:
        return [source_of(of.get(number, index)).tolist() for index in range(of.count(number))]

    first = epoch(batches, 0)
    assert epoch(batches, 1) != first
    assert epoch(same_seed, 1) == epoch(batches, 1)
    assert epoch(other_seed, 0) != first
    assert epoch(batches, 0) == first  # also after another epoch was asked for
    assert source_of(batches.get(1, 2)).tolist() == epoch(same_seed, 1)[2]
    rows = [[token for token in row if token != PAD] for batch in first for row in batch]
    again = [[token for token in row if token != PAD] for batch in epoch(batches, 1) for row in batch]
    assert sorted(rows) == sorted(again)
    assert len(rows) == 61


def test_bleu_may_decide(tmp_path):
    session = Session(recipe_in(tmp_path, 'train.metric="bleu"'), tmp_path / "run")
    reports = [report for report in session.steps() if report.valid]
    found = [(report.valid["bleu"], -report.valid["loss"]) for report in reports if report.valid]
    assert [report.improved for report in reports] == [
        number == 0 or each > max(found[:number]) for number, each in enumerate(found)
    ]


# The loop alone


def tiny(*, seed: int = 1) -> nn.Module:
    torch.manual_seed(seed)
    return rnnsearch.build(rnnsearch.Config(embedding=5, hidden=7, dropout=0.0, tie=False), Shapes(Ids(11), Ids(13)))


def batch_of(rows: int, *, seed: int) -> Batch:
    random = torch.Generator().manual_seed(seed)
    source = torch.randint(4, 11, (rows, 7), generator=random)
    target = torch.randint(4, 13, (rows, 5), generator=random)
    source[:, -1], target[:, 0], target[:, -1] = EOS, BOS, EOS
    target[0, -2:] = torch.tensor([EOS, PAD])
    return pairs(source, target)


@dataclass
class Listed:
    """The same batches in every epoch."""

    batches: list[Batch]
    carries: int = 0

    def count(self, epoch: int) -> int:
        return len(self.batches)

    def get(self, epoch: int, index: int) -> Batch:
        return self.batches[index]


THREE = Listed([batch_of(rows, seed=rows) for rows in (2, 3, 5)])


def says(*losses: float) -> Callable[[], tuple[dict[str, float], tuple[Sample, ...]]]:
    """A validation that finds these losses, one after another."""
    coming = iter(losses)
    return lambda: ({"loss": next(coming)}, ())


def steps(training: Training, *, batches: Listed = THREE, losses: tuple[float, ...] = (1.0,)) -> Iterator[Progress]:
    return train_steps(training, batches, validate=says(*losses), save_best=lambda: None)


def config(**settings: float | str) -> TrainConfig:
    return TrainConfig(**{"steps": 1, "precision": "float32", **settings})  # type: ignore[arg-type]


def gradients(training: Training) -> list[Tensor]:
    return [parameter.grad for parameter in training.model.parameters() if parameter.grad is not None]


def norm(tensors: list[Tensor]) -> float:
    return float(torch.stack([tensor.norm() for tensor in tensors]).norm())


def test_two_batches_accumulated_are_one_twice_as_large():
    one, other = batch_of(3, seed=1), batch_of(3, seed=2)
    both = pairs(*(torch.cat([values(one), values(other)]) for values in (source_of, target_of)))
    halves, whole = Training(tiny(), config(accumulate=2)), Training(tiny(), config())
    (report,) = steps(halves, batches=Listed([one, other]))
    (expected,) = steps(whole, batches=Listed([both]))
    assert report.gradient_norm == pytest.approx(expected.gradient_norm, rel=1e-5)
    assert report.loss == pytest.approx(expected.loss, rel=1e-5)
    for mine, its in zip(gradients(halves), gradients(whole), strict=True):
        assert torch.allclose(mine, its, atol=1e-6)


def test_the_gradient_is_of_the_mean_over_tokens():
    training, model = Training(tiny(), config(clip=0.0)), tiny()
    list(steps(training))
    loss = model.train().loss(THREE.get(0, 0))  # type: ignore[operator]
    (loss.objective / loss.tokens).backward()
    for mine, parameter in zip(gradients(training), model.parameters(), strict=True):
        assert torch.allclose(mine, parameter.grad, atol=1e-6)


def test_clipping_shortens_the_gradient_and_keeps_its_direction():
    free, bound = Training(tiny(), config(clip=0.0)), Training(tiny(), config(clip=0.01))
    (report,) = steps(free)
    (clipped,) = steps(bound)
    length = norm(gradients(free))
    assert length > 0.1
    assert report.gradient_norm == pytest.approx(length, rel=1e-5)
    assert clipped.gradient_norm == pytest.approx(length, rel=1e-5)  # what is reported is before clipping
    assert norm(gradients(bound)) == pytest.approx(0.01, rel=1e-3)
    for mine, its in zip(gradients(free), gradients(bound), strict=True):
        assert torch.allclose(mine * (0.01 / length), its, atol=1e-7)
    generous = Training(tiny(), config(clip=1e3))
    list(steps(generous))
    assert norm(gradients(generous)) == pytest.approx(length, rel=1e-5)


def test_only_matrices_decay():
    training = Training(tiny(), config(weight_decay=0.3))
    for group in training.optimiser.param_groups:
        assert {parameter.dim() > 1 for parameter in group["params"]} == {group["weight_decay"] == 0.3}


def test_a_paced_module_learns_at_so_many_times_the_rate_and_nothing_else_does():
    """AdamW's first step is as long as the rate, whatever the gradient is."""
    model = tiny()
    before = {name: tensor.clone() for name, tensor in weights(model).items()}
    paced = next(module for module in model.modules() if isinstance(module, nn.Linear))
    paced.pace = 10.0  # type: ignore[assignment]
    own = set(paced.parameters())
    (report,) = steps(Training(model, config(clip=0.0, weight_decay=0.0)))
    for name, parameter in model.named_parameters():
        longest = float((parameter.detach() - before[name]).abs().max())
        assert longest == pytest.approx((10 if parameter in own else 1) * report.learning_rate, rel=1e-2), name


@pytest.mark.parametrize(
    "name, formula",
    [
        ("constant", lambda step, done: 1.0),
        ("inverse-sqrt", lambda step, done: math.sqrt(5 / max(5, step))),
        ("linear", lambda step, done: 1 - done),
        ("cosine", lambda step, done: (1 + math.cos(math.pi * done)) / 2),
    ],
)
def test_schedules(name, formula):
    for step in range(1, 30):
        done = (step - 1) / 30
        expected = min(1.0, step / 5) * formula(step, done)
        assert rate(name, step=step, warmup=5, done=done) == pytest.approx(expected, abs=1e-12)
        assert 0 <= rate(name, step=step, warmup=0, done=done) <= 1
    training = Training(tiny(), config(steps=7, schedule=name, warmup=3, learning_rate=0.5))
    used = [report.learning_rate for report in steps(training)]
    assert used == [0.5 * rate(name, step=step, warmup=3, done=(step - 1) / 7) for step in range(1, 8)]


def test_every_schedule_is_tested():
    assert set(SCHEDULES) == {"constant", "inverse-sqrt", "linear", "cosine"}


def test_patience():
    settings = {"steps": 100, "validate_every": 2, "patience": 2}
    training = Training(tiny(), config(**settings))
    reports = list(steps(training, losses=(3.0, 2.0, 2.5, 1.9, 2.0, 1.9, 0.0)))
    assert [report.step for report in reports if report.improved] == [2, 4, 8]
    assert reports[-1].step == 12  # a loss that equals the best is no better
    assert reports[-1].finished == "early stopping, 2 validations without a better loss"
    assert training.best == 1.9
    assert training.done(THREE) == 1
    assert list(steps(training)) == []  # and it stays stopped


@pytest.mark.parametrize(
    "settings, last",
    [
        ({"steps": 5}, 5),
        ({"steps": 0, "epochs": 2}, 6),
        ({"steps": 0, "epochs": 1, "accumulate": 2}, 2),
        ({"steps": 4, "epochs": 2}, 4),
        ({"steps": 9, "minutes": 1e-9}, 1),
    ],
)
def test_steps_epochs_or_minutes_end_it(settings, last):
    reports = list(steps(Training(tiny(), config(**settings))))
    assert [report.step for report in reports] == list(range(1, last + 1))
    assert [report.finished for report in reports] == [None] * (last - 1) + ["the budget is used"]
    shares = [report.done for report in reports]
    assert shares == sorted(shares)
    assert shares[-1] == 1
    assert reports[-1].valid is not None  # however it ends, it ends with a validation


def test_a_validation_that_takes_the_rest_of_the_time_ends_it():
    training = Training(tiny(), config(steps=0, minutes=60.0, validate_every=2))

    def validate() -> tuple[dict[str, float], tuple[Sample, ...]]:
        training.seconds += 3600
        return {"loss": 1.0}, ()

    reports = list(train_steps(training, THREE, validate=validate, save_best=lambda: None))
    assert [report.finished for report in reports] == [None, "the budget is used"]
    assert reports[-1].done == 1


@pytest.mark.parametrize(
    "settings, sentence",
    [
        ({"steps": 0}, "never end"),
        ({"accumulate": 0}, "accumulate = 0 must be above 0"),
        ({"warmup": -1}, "warmup = -1 must be 0 or more"),
        ({"learning_rate": 0.0}, "learning_rate"),
        ({"average": 0}, "average"),
        ({"smooth": 1.0}, "smooth = 1.0 must be at least 0 and below 1"),
    ],
)
def test_settings_that_cannot_be_are_refused(settings, sentence):
    with pytest.raises(ValueError, match=sentence):
        config(**settings)


def test_validation_sees_the_mean_of_the_last_weights_and_training_goes_on_from_its_own():
    training = Training(tiny(), config(steps=5, validate_every=1, average=3, learning_rate=0.1, warmup=0))
    own: list[dict[str, Tensor]] = []
    seen: list[dict[str, Tensor]] = []
    kept: list[dict[str, Tensor]] = []

    def copy() -> dict[str, Tensor]:
        return {name: tensor.clone() for name, tensor in weights(training.model).items()}

    def validate() -> tuple[dict[str, float], tuple[Sample, ...]]:
        assert not training.model.training
        seen.append(copy())
        return {"loss": -float(len(seen))}, ()

    for _ in train_steps(training, THREE, validate=validate, save_best=lambda: kept.append(copy())):
        own.append(copy())
        assert training.model.training
    for number in range(5):
        latest = own[max(0, number - 2) : number + 1]
        for name, tensor in seen[number].items():
            assert torch.allclose(tensor, sum(weight[name] for weight in latest) / len(latest), atol=1e-6)  # type: ignore[arg-type]
    assert not same(seen[4], own[4])
    assert all(same(mine, its) for mine, its in zip(kept, seen, strict=True))


def test_smoothed_weights_are_a_mean_over_the_latest_share_of_the_steps():
    """mₜ = mₜ₋₁ + (wₜ − mₜ₋₁) / max(1, s t): validated and kept, while training goes on from its own."""
    share = 0.5
    training = Training(tiny(), config(steps=6, validate_every=1, smooth=share, learning_rate=0.1, warmup=0))
    seen: list[dict[str, Tensor]] = []

    def validate() -> tuple[dict[str, float], tuple[Sample, ...]]:
        seen.append({name: tensor.clone() for name, tensor in weights(training.model).items()})
        return {"loss": 1.0}, ()

    mean: dict[str, Tensor] = {}
    steps = train_steps(training, THREE, validate=validate, save_best=lambda: None)
    for progress in steps:
        for name, tensor in weights(training.model).items():
            before = mean.get(name, tensor)
            mean[name] = (before + (tensor - before) / max(1.0, share * progress.step)).clone()
            assert torch.allclose(seen[-1][name], mean[name], atol=1e-6)
    assert not same(seen[-1], weights(training.model))


def test_a_mean_of_weights_keeps_their_kind():
    ones = {"a": torch.ones(2, dtype=torch.float64), "b": torch.tensor([2, 4])}
    threes = {"a": torch.full((2,), 3.0, dtype=torch.float64), "b": torch.tensor([4, 8])}
    mean = mean_weights([ones, threes])
    assert mean["a"].tolist() == [2.0, 2.0] and mean["b"].tolist() == [3, 6]
    assert mean["a"].dtype == torch.float64 and mean["b"].dtype == torch.int64


def test_a_validation_that_draws_random_numbers_changes_no_step():
    ends = []
    for every in (1, 5):
        torch.manual_seed(1)
        model = rnnsearch.build(rnnsearch.Config(embedding=5, hidden=7, dropout=0.5), Shapes(Ids(11), Ids(13)))
        training = Training(model, config(steps=5, validate_every=every))

        def validate() -> tuple[dict[str, float], tuple[Sample, ...]]:
            return {"loss": float(torch.rand(7).sum())}, ()

        list(train_steps(training, THREE, validate=validate, save_best=lambda: None))
        ends.append(weights(model))
    assert same(ends[0], ends[1])


def test_the_best_is_kept_and_only_the_best():
    training = Training(tiny(), config(steps=5, validate_every=1))
    kept: list[int] = []
    validate = says(3.0, 4.0, 2.0, 2.0, 1.0)
    list(train_steps(training, THREE, validate=validate, save_best=lambda: kept.append(training.step)))
    assert kept == [1, 3, 5]


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_label_smoothing(smoothing):
    torch.manual_seed(0)
    head = SoftmaxHead(dim=5, vocab=13, smoothing=smoothing)
    hidden, targets = torch.randn(3, 4, 5), torch.tensor([[4, 5, 6, EOS], [7, EOS, PAD, PAD], [8, 9, EOS, PAD]])
    given = Padded.of_ids(targets)
    log_probs = head.logits(hidden).log_softmax(-1).detach()
    objective, nll = 0.0, 0.0
    for row, column in (targets != PAD).nonzero().tolist():
        of = log_probs[row, column]
        nll -= float(of[targets[row, column]])
        wanted = torch.full((13,), smoothing / 13)
        wanted[targets[row, column]] += 1 - smoothing
        objective -= float((wanted * of).sum())
    loss = head.train().loss(hidden, given)
    assert (float(loss.nll), loss.tokens) == (pytest.approx(nll, rel=1e-5), 9)
    assert loss.objective.item() == pytest.approx(objective, rel=1e-5)
    assert head.eval().loss(hidden, given).objective.item() == pytest.approx(nll, rel=1e-5)


# What goes wrong


@pytest.mark.parametrize("path", ["encoder.embed", "decoder.readout", "decoder.head"])
def test_a_loss_that_is_not_finite_names_the_module(path):
    training = Training(tiny(), config(steps=5))
    with torch.no_grad():
        training.model.get_submodule(path).weight[:, 0] = math.nan  # type: ignore[operator]
    with pytest.raises(UserError, match=rf"loss was not finite at step 1, first in the \w+ of {path}\b"):
        list(steps(training))


class Steep(nn.Module):
    """√|w| at w = 0: a finite loss whose slope is not."""

    def __init__(self) -> None:
        super().__init__()
        self.plain, self.steep = nn.Parameter(torch.ones(2, 3)), nn.Parameter(torch.zeros(2, 3))

    def loss(self, batch: Batch) -> Loss:
        total = self.plain.sum() + (self.steep * 0 + self.steep**2).sqrt().sum()
        return Loss(total, total.detach(), 1)


def test_a_gradient_that_is_not_finite_names_the_parameter():
    training = Training(Steep(), config(steps=5))
    with pytest.raises(UserError, match="gradient was not finite at step 1, first in the gradient of steep"):
        list(steps(training))
    assert training.model.get_parameter("plain").isfinite().all()
    assert training.step == 0


def test_a_model_that_does_not_learn_is_refused():
    with pytest.raises(UserError, match="does not learn"):
        list(steps(Training(nn.Linear(2, 3), config())))


def test_after_a_loss_that_is_not_finite_the_last_checkpoint_is_there(tmp_path):
    recipe = recipe_in(tmp_path)
    session = Session(recipe, tmp_path / "run")
    running = session.steps()
    list(islice(running, 4))
    with torch.no_grad():
        next(session.run.model.parameters()).fill_(math.nan)
    with pytest.raises(UserError, match="not finite at step 5"):
        list(running)
    again = Session(recipe, tmp_path / "run")
    assert again.training.step == 3
    assert [report.step for report in again.steps()] == [4, 5, 6, 7]


def test_minutes_count_over_attempts(tmp_path):
    recipe = recipe_in(tmp_path)
    session = Session(recipe, tmp_path / "run")
    list(islice(session.steps(), 2))
    session.save()
    used = session.training.seconds
    assert used > 0
    assert Session(recipe, tmp_path / "run").training.seconds == used


def test_two_models_that_differ_in_seed_alone_differ(tmp_path):
    one = Session(recipe_in(tmp_path), tmp_path / "one")
    other = Session(replace(recipe_in(tmp_path), seed=5), tmp_path / "other")
    assert not same(weights(one.run.model), weights(other.run.model))

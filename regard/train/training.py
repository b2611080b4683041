"""The state of training: everything that the next step depends on, saved and restored so that a resumed run ends with
the same weights as one that never stopped."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Annotated, Any, Literal, Protocol

import torch
from torch import Tensor, nn

from regard.config import ABOVE_0, Amount, Count, Positive, Settings, Share, between
from regard.interface import Batch, Carries, Fits, Paced, Tree, UserError, map_tensors
from regard.score.metrics import LOSS, Metric
from regard.train.group import Group, Wire
from regard.train.optimiser import ADAMW, MUON, Optimiser, OptimiserName, hidden_matrices
from regard.train.schedule import ScheduleName
from regard.train.tuning import Tune, Tuning
from regard.train.weights import Weights, learnt, leaves, load_weights, misfit, restored, taken, weights

Precision = Literal["auto", "float32", "bfloat16"]
BUDGETS = ("steps", "epochs", "minutes", "tokens", "flops")  # settings that end training; the first one reached does
Decay = Annotated[float, between(0.01, 1.0)]
SOME_TASKS = ("balance",)  # settings that only some tasks have
# the fields of a Training that are saved with its tensors
SAVED = ("step", "epoch", "index", "seconds", "tokens", "best", "best_loss", "stale", "lately")
LATELY = 20  # steps over which a reported loss is a mean


@dataclass(frozen=True)
class TrainConfig(Settings):
    steps: Count = 0  # stop after this many steps; 0: no limit
    epochs: Count = 0  # stop after this many passes over the data; 0: no limit
    minutes: Amount = 0.0  # stop after this many minutes; 0: no limit
    tokens: Count = 0  # stop after this many target tokens; 0: no limit
    flops: Amount = 0.0  # stop after about this many floating-point operations in matrix products; 0: no limit
    batch_tokens: Positive = 4096  # tokens in a batch, padding included, on the longer side
    accumulate: Positive = 1  # gradient accumulation: batches whose gradients make one step
    optimiser: OptimiserName = "adamw"  # adamw, or muon (orthogonal updates) for the matrices of hidden layers
    learning_rate: Annotated[float, ABOVE_0] = 1e-3  # the highest learning rate, reached after warm-up
    schedule: ScheduleName = "inverse-sqrt"  # learning-rate schedule: constant, inverse-sqrt, linear, cosine
    warmup: Count = 400  # steps in which the learning rate rises linearly
    weight_decay: Amount = 0.01  # weight decay of matrices, per step and learning rate
    clip: Amount = 1.0  # gradient clipping: the largest norm; 0: no limit
    precision: Precision = "auto"  # mixed precision; auto: bfloat16 where it is much faster here
    validate_every: Positive = 500  # steps between validations
    metric: str = "loss"  # what chooses the best checkpoint: loss, or a metric of the task (bleu, accuracy, f1 …)
    patience: Count = 0  # early stopping: after this many validations without improvement; 0: never
    average: Positive = 1  # checkpoint averaging: validate and keep the mean weights of this many validations
    smooth: Share = 0.0  # moving average of weights over about this share of the steps so far; 0: none
    tensorboard: bool = False  # write TensorBoard event files to the run's folder tensorboard
    balance: bool = False  # class weights: rare labels count as much as frequent ones
    vectors: str = ""  # pre-trained word vectors to start from: a text file of word2vec or GloVe; "": none
    from_: str = ""  # fine-tuning: the run whose weights, where they fit, and vocabulary to start from; "": none
    parts: tuple[str, ...] = ()  # fine-tuning: load only weights with these prefixes, such as encoder.; none: all
    tune: Tune = "all"  # fine-tuning: all, frozen (frozen body), gradual (gradual unfreezing), lora or prompt (tuning)
    layer_decay: Decay = 1.0  # layer-wise learning rates: each layer learns at this share of the rate of the one above
    rank: Positive = 8  # tune = lora: rank of the matrices that are added to those of the model
    prompt: Positive = 20  # tune = prompt: learnt vectors before the input
    shard: bool = False  # several processes: each keeps a part of weights, gradients and moments (FSDP), not all
    wire: Wire = "float32"  # several processes: precision of the gradients that they exchange, float32 or bfloat16

    def __post_init__(self) -> None:
        if not any(vars(self)[budget] for budget in BUDGETS):
            raise ValueError(f"training would never end: set {', '.join(BUDGETS[:-1])} or {BUDGETS[-1]}.")
        if self.vectors and self.from_:
            raise ValueError(
                "vectors and from exclude each other: leave one out, since a run's weights hold its vectors."
            )
        if self.tune != "all" and not self.from_:
            raise ValueError(f'tune = "{self.tune}" keeps a trained model: name its run in from, or set tune = "all".')
        if self.shard and (self.optimiser == "muon" or self.tune != "all"):
            raise ValueError(
                'shard needs whole matrices of no kind: set optimiser = "adamw" and tune = "all", or shard = false.'
            )
        super().__post_init__()


class Batches(Protocol):
    """Batches of training data, in an order that is a function of the epoch and the index."""

    @property
    def carries(self) -> int: ...  # rows of a batch that continue those of the batch before; 0: none do

    def count(self, epoch: int) -> int: ...

    def get(self, epoch: int, index: int) -> Batch: ...


@dataclass
class Training:
    """The state of training: everything that the next step depends on."""

    model: nn.Module
    config: TrainConfig
    device: torch.device = field(default_factory=lambda: torch.device("cpu"))
    step: int = 0
    epoch: int = 0
    index: int = 0  # batches of this epoch that are used
    seconds: float = 0.0
    tokens: int = 0  # target tokens trained on
    best: float | None = None  # the best validation so far, by the metric
    best_loss: float | None = None  # its validation loss, which decides a tie
    stale: int = 0  # validations since the metric was last better
    lately: list[list[float]] = field(default_factory=list)  # objective, nll and tokens of the latest steps
    snapshots: list[Weights] = field(default_factory=list)  # the weights that are averaged, oldest first
    carry: Tree = None  # the state carried from batch to batch of one long text; None: the next batch starts a text
    metric: Metric = LOSS  # what chooses the best checkpoint
    tuning: Tuning = Tuning()  # which weights learn
    rows: int = 0  # of a batch that carry a state
    group: Group = field(default_factory=Group)  # the processes that train together
    seed: int = 1  # of dropout, where there are several
    whole: nn.Module | None = None  # validates in place of a model of which processes keep parts

    def __post_init__(self) -> None:
        shares = self.tuning.shares([n for n, p in self.model.named_parameters() if p.requires_grad])
        for n, p in self.model.named_parameters():
            p.requires_grad_(n in shares)
        named = [(n, p) for n, p in self.model.named_parameters() if n in shares]
        modules = self.model.modules()
        paces = {p: m.pace for m in modules if isinstance(m, Paced) for p in m.parameters(recurse=False)}
        turned = hidden_matrices(self.model) if self.config.optimiser == "muon" else set()
        # by decay, pace and whether Muon trains them; a model that counts has none, and the optimiser needs a group
        alike: dict[tuple[float, float, bool], dict[str, nn.Parameter]] = {(0.0, 1.0, False): {}}
        for n, p in named:
            decay = self.config.weight_decay if p.dim() > 1 else 0.0
            alike.setdefault((decay, paces.get(p, 1.0) * shares[n], p in turned), {})[n] = p
        groups: list[dict[str, Any]] = [
            {"params": [*own.values()], "weight_decay": decay, "pace": pace, "muon": muon}
            for (decay, pace, muon), own in alike.items()
        ]
        self.parameters = {n: p for own in alike.values() for n, p in own.items()}
        self.moments = {n: MUON if muon else ADAMW for (*_, muon), own in alike.items() for n in own}
        self.optimiser = Optimiser(
            groups,
            lr=self.config.learning_rate,
            fused=self.device.type != "mps",
            dtype=torch.bfloat16 if self.config.precision == "bfloat16" else torch.float32,
        )
        self.smoothed = {n: p.detach().clone() for n, p in named} if self.config.smooth else {}
        self.thaw()

    def thaw(self) -> bool:
        """Let the weights learn that do in this epoch, and return whether they are others than before."""
        thawed = self.tuning.thawed(self.parameters, self.epoch)
        changed = [p.requires_grad != (name in thawed) for name, p in self.parameters.items()]
        for name, parameter in self.parameters.items():
            parameter.requires_grad_(name in thawed)
        return any(changed)

    @torch.no_grad()
    def smooth(self) -> None:
        """Update the moving average of weights, whose memory grows with training."""
        if self.smoothed:
            latest: list[Tensor] = [self.parameters[name] for name in self.smoothed]
            torch._foreach_lerp_(list(self.smoothed.values()), latest, min(1.0, 1 / (self.config.smooth * self.step)))

    def better(self, metrics: Mapping[str, float]) -> bool:
        """Record a validation and return whether it is the best so far, by the metric; the lower loss decides a tie.
        Early stopping counts the metric alone."""
        value, loss = metrics[self.metric.key], metrics[LOSS.key]
        ahead = self.metric.improves(value, self.best)
        best = ahead or (value == self.best and LOSS.improves(loss, self.best_loss))
        self.stale = 0 if ahead else self.stale + 1
        if best:
            self.best, self.best_loss = value, loss
        return best

    def spread(self, group: Group, *, rows: int) -> Training:
        """Return the same training by several processes; `rows` is how many of a batch carry a state."""
        model, settings = self.model, self.config
        learner = group.sharded(model, wire=settings.wire) if settings.shard else model
        tensors, facts = self.tensors(), self.facts()
        spread = replace(self, model=learner, group=group, whole=None if learner is model else model)
        spread.load(tensors, facts, rows=rows)
        return spread

    def judged(self) -> list[float]:
        """Return what validations have found so far, as numbers."""
        return [self.stale, *(math.nan if each is None else each for each in (self.best, self.best_loss))]

    def judge(self, numbers: Sequence[float]) -> None:
        """Take what another process's validations have found so far."""
        self.stale = int(numbers[0])
        self.best, self.best_loss = (None if math.isnan(each) else each for each in numbers[1:])

    # --- saving and loading ---

    def tensors(self) -> Weights:
        """Weights, moments, snapshots and random state, by name."""
        moments = {name: self.optimiser.state[parameter] for name, parameter in self.parameters.items()}
        carried = [self.group.whole_rows(leaf, self.rows) for leaf in leaves(self.carry)]
        return self.group.whole(self._named(moments, self.snapshots, carried))

    def _named(
        self, moments: Mapping[str, Weights], snapshots: Iterable[Weights], carried: Iterable[Tensor]
    ) -> Weights:
        """Name all tensors that are saved: these, the model's weights, their moving average and the random state."""
        groups = {"model": learnt(self.model), "smoothed": self.smoothed}
        groups |= {f"snapshot.{age}": snapshot for age, snapshot in enumerate(snapshots)}
        groups["carry"] = {str(place): tensor for place, tensor in enumerate(carried)}
        tensors = {f"{group}.{name}": tensor for group, named in groups.items() for name, tensor in named.items()}
        tensors |= {f"optimiser.{kind}.{name}": state[kind] for name, state in moments.items() for kind in state}
        return tensors | {"random": torch.get_rng_state()}

    def facts(self) -> dict[str, Any]:
        counts = {"snapshots": len(self.snapshots), "carried": len(leaves(self.carry))}
        return {name: self.__dict__[name] for name in SAVED} | counts

    def load(self, tensors: Weights, facts: dict[str, Any], *, rows: int = 0, origin: str | Path = "memory") -> None:
        """Restore a checkpoint; `rows` is how many carry a state. Refuse it, and change nothing, where a fact or a
        tensor is not what `tensors` and `facts` would have saved."""
        facts = {"best_loss": None, "lately": []} | facts  # runs of earlier versions lack them
        form = self.model.begin(rows) if rows and isinstance(self.model, Carries) else None
        odd = (
            self._odd(facts, len(leaves(form)))
            or misfit(self._expected(tensors, facts, leaves(form)), tensors)
            or not_random(tensors["random"])
        )
        if odd:
            raise UserError(f"The state in {origin} does not fit the run ({odd}): restore it, or start a new run.")
        if not isinstance(self.model, Fits):
            own, saved = weights(self.model), taken(tensors, "model.")
            load_weights(self.model, {name: self.group.placed(saved[name], own[name]) for name in own})
        for name, parameter in self.parameters.items():
            kinds = self.moments[name]
            if f"optimiser.{kinds[0]}.{name}" in tensors:
                state = {kind: tensors[f"optimiser.{kind}.{name}"] for kind in kinds}
                self.optimiser.state[parameter] = {k: self.group.placed(each, parameter) for k, each in state.items()}
        self.snapshots = [taken(tensors, f"snapshot.{age}.") for age in range(facts["snapshots"])]
        smoothed = taken(tensors, "smoothed.")
        # in the same order in all processes, which a file has not
        own = {name: parameter for name, parameter in self.parameters.items() if name in smoothed}
        self.smoothed = {name: self.group.placed(smoothed[name], parameter) for name, parameter in own.items()}
        carried = restored(form, taken(tensors, "carry.")) if facts["carried"] else None
        self.carry = map_tensors(self.group.own_rows, carried)
        for name in SAVED:
            setattr(self, name, facts[name])
        self.thaw()
        torch.set_rng_state(tensors["random"])

    def _odd(self, facts: dict[str, Any], carried: int) -> str:
        """Name the first fact that is not possible; "" if all are."""
        if facts.keys() != self.facts().keys():
            return f"{sorted(facts.keys() ^ self.facts().keys())[0]!r} is in one of them only"
        most = {"snapshots": self.config.average, "carried": carried}
        for name, fact in facts.items():
            if name in ("seconds", "best", "best_loss"):
                possible = type(fact) is float and math.isfinite(fact) or name != "seconds" and fact is None
            elif name == "lately":
                rows = fact if type(fact) is list and len(fact) <= LATELY else [None]
                possible = all(type(row) is list and len(row) == 3 and all(map(is_finite, row)) for row in rows)
            else:
                possible = type(fact) is int and 0 <= fact <= most.get(name, 1 << 53)
            if not possible:
                return f"its {name} cannot be {str(fact)[:40]}"
        return ""

    def _expected(self, tensors: Weights, facts: dict[str, Any], carried: list[Tensor]) -> Weights:
        """Return tensors of the expected names, shapes and types. Only what got a gradient has moments."""
        moments = {
            name: {kind: torch.tensor(0.0) if kind == "step" else parameter for kind in self.moments[name]}
            for name, parameter in self.parameters.items()
            if any(f"optimiser.{kind}.{name}" in tensors for kind in self.moments[name])
        }
        snapshots = [learnt(self.model)] * facts["snapshots"]
        return self._named(moments, snapshots, carried if facts["carried"] else [])

    # --- budget ---

    @property
    def stopped_early(self) -> bool:
        """Early stopping: too many validations brought no improvement."""
        return bool(self.config.patience) and self.stale >= self.config.patience

    def done(self, batches: Batches) -> float:
        """Return the share of the budget that is used; 1 after early stopping."""
        if isinstance(self.model, Fits):
            return float(self.step > 0)
        return 1.0 if self.stopped_early else min(1.0, max(self.used(batches).values()))

    def used(self, batches: Batches) -> dict[str, float]:
        """Return the share of each budget that is used, by its setting."""
        epochs = self.epoch + self.index / max(1, batches.count(self.epoch))
        amounts = {"steps": self.step, "epochs": epochs, "tokens": self.tokens, "minutes": self.seconds / 60}
        limits = {budget: vars(self.config)[budget] for budget in amounts}
        return {budget: amounts[budget] / limit for budget, limit in limits.items() if limit}


def is_finite(number: object) -> bool:
    return type(number) in (int, float) and math.isfinite(number)  # type: ignore[arg-type]


def not_random(state: Tensor) -> str:
    try:
        torch.Generator().set_state(state)
    except RuntimeError:
        return "its random state is not valid"
    return ""

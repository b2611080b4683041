"""A trained run, ready to use: `m = regard.load("runs/demo"); m.predict("They are watching .")`."""

from __future__ import annotations

import dataclasses
import shutil
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn
from torch.nn.modules.module import register_module_parameter_registration_hook

from regard.config import unknown
from regard.data.fields import Fields
from regard.data.files import reason
from regard.data.in_memory import rows_of
from regard.data.sources import BETWEEN, examples
from regard.data.tokens import Tokenizer
from regard.interface import BOS, EOS, UNK, Batch, Encodes, Fits, Padded, UserError
from regard.layers.fast.packed import Precision
from regard.layers.fast.without_values import without_values
from regard.models import design_of
from regard.models.mixture import Mixture
from regard.predict.decoding import Decoding, Prediction
from regard.predict.inputs import AT_ONCE, some_at_once
from regard.predict.search import Decoder, generate
from regard.recipe import Recipe
from regard.score.result import Options, Scored
from regard.tasks import Task, nothing
from regard.train.tuning import adapted
from regard.train.weights import TensorShapes, misshapen, unfit, weights

SAMPLING = {"temperature", "top_k", "top_p"}  # giving one of these means sampling
ROOM = 4  # a model registers a tensor that has several names (weight tying) as often
EMBEDDED = 64  # inputs that are embedded in one batch


@dataclass(frozen=True)
class Run:
    """A trained model with its recipe and fields."""

    recipe: Recipe
    fields: Fields
    model: nn.Module
    device: torch.device
    name: str = ""  # the path of its folder
    precision: Precision = "fp32"  # of matrix products
    lm: Run | None = None  # a language model beside a model of recordings
    decoder: Decoder = generate  # a server puts its own here, which decodes for several requests together

    @property
    def task(self) -> Task:
        return self.recipe.task

    @property
    def model_title(self) -> str:
        return self.recipe.model_title

    def tokenizer(self, side: str = "") -> Tokenizer:
        """Return the tokenizer of a side that is text; by default, of the input side."""
        return self.fields.tokenizer(side)

    def batch(self, *, multiple: int = 2, **raws: Sequence[Any]) -> Batch:
        """Encode raw sides, by name, as one Batch on the model's device: run.batch(source=["They are watching ."])."""
        return self.fields.batch(self.fields.encode(raws), multiple=multiple).to(self.device)

    @property
    def whole_file(self) -> bool:
        """Whether it was trained on one long text, whose line ends are tokens."""
        return self.recipe.data.unit == "file"

    @property
    def opening(self) -> list[int]:
        """Return the ids before a text: <bos>; in packed texts the <eos> of the text before; in one long text the line
        end before it, if that is a token."""
        if self.recipe.data.pack and not self.whole_file:
            return [EOS]
        line_end = self.tokenizer("target").encode_all(["\n"], continued=True)[0]
        return line_end if self.whole_file and line_end and UNK not in line_end else [BOS]

    def __repr__(self) -> str:
        parameters = sum(parameter.numel() for parameter in self.model.parameters())
        return f"Run({self.name!r}: {self.model_title} for {self.task.name}, {parameters / 1e6:.2f} M parameters)"

    @overload
    def predict(self, raws: str, how: Decoding | None = None, **settings: Any) -> Prediction: ...

    @overload
    def predict(self, raws: Iterator[Any], how: Decoding | None = None, **settings: Any) -> Iterator[Prediction]: ...

    @overload
    def predict(self, raws: Iterable[Any], how: Decoding | None = None, **settings: Any) -> list[Prediction]: ...

    def predict(self, raws: Any, how: Decoding | None = None, **settings: Any) -> Any:
        """Return one Prediction for one input (a text, a picture), a list for a list, an iterator for an iterator.

        The settings are those of `regard predict`: beam=5, n_best=3, sample=True, temperature=0.8, top_p=0.95 …
        """
        if settings:
            how = self.decoding(how, **settings)
        if self.is_one(raws):
            return self.task.answer(self, [raws], how)[0]
        answers = (answer for _, answer in self.answers(raws, how))
        return answers if isinstance(raws, Iterator) else list(answers)

    def decoding(self, how: Decoding | None = None, **settings: Any) -> Decoding:
        """Return the decoding settings: those of the task, or `how`, with these changes. A temperature, top_k or top_p
        means sampling, and the beam is as wide as n_best needs."""
        base = how or self.task.decoding
        if base is None:
            raise UserError(f"{', '.join(settings)}: {self.task.name} has no decoding settings: leave it out.")
        for name in settings:
            if name not in vars(base):
                raise unknown(name, vars(base), "The setting of decoding")
        given = settings
        if SAMPLING & given.keys() and "beam" not in given:
            given = {"sample": True, **given}
        if given.get("sample"):
            given = {"beam": 1, **given}
        elif given.get("beam", 1) > 1:
            given = {"sample": False, **given}
        if not given.get("sample", base.sample) and "n_best" in given:
            given = {"beam": max(base.beam, given["n_best"]), **given}
        return dataclasses.replace(base, **given)

    def is_one(self, raws: Any) -> bool:
        """Return whether this is one input, and not several."""
        return self.fields[next(iter(self.task.fields))].is_one(raws)

    def answers(
        self, raws: Iterable[Any], how: Decoding | None, *, at_once: int = AT_ONCE
    ) -> Iterator[tuple[Any, Prediction]]:
        """Yield each raw input with its prediction."""
        done = 0
        for some in some_at_once(raws, at_once):
            yield from zip(some, self.task.answer(self, some, how, first_line=done), strict=True)
            done += len(some)

    def texts(self, raws: Iterable[Any], how: Decoding | None, on_answer: Callable[[str], None] | None) -> list[str]:
        """Return the predicted texts; `on_answer` is called with each of them in order."""
        found: list[str] = []
        for _, answer in self.answers(raws, how):
            found.append(answer.text)
            if on_answer is not None:
                on_answer(answer.text)
        return found

    def score(self, data: Any, **options: Any) -> Scored:
        """Compute the task's metrics on these examples: a list, a DataFrame, or a file in the training data's format.

        The options are how=Decoding(…), by_length=True and gold=alignments. A language model answers with labels
        (zero-shot) if it is given template="{text} It was {label} ." and verbalize={"0": "terrible", "1": "great"},
        and with calibrate=True no label has an advantage because its words are frequent.
        """
        if not options.keys().isdisjoint(("template", "verbalize", "calibrate")):
            if self.task.prompted is nothing:
                raise UserError(f"{self.model_title} is for {self.task.name}: a template needs a language model.")
            zero_shot: Scored = self.task.prompted(self, data, **options)
            return zero_shot
        found: Scored = self.task.score([self], self.examples(data), Options(**options))
        return found

    def log_prob(self, examples: Any) -> Any:
        """Return ln p of one example (a text, or a pair of source and target), or a list for several examples."""
        if self.task.log_probs is nothing:
            raise UserError(f"{self.task.name} does not score texts: predict gives the probability of each label.")
        one = isinstance(examples, str | tuple)
        rows = [example if isinstance(example, tuple) else (example,) for example in ([examples] if one else examples)]
        found = list(self.task.log_probs([self], rows))
        return found[0] if one else found

    def embed(self, raws: Any, pool: Literal["mean", "first", "last"] = "mean") -> NDArray[np.float32]:
        """Return a vector for one input, (dim,), or a matrix for several, (inputs, dim): the mean, the first or the
        last of the model's hidden states over the real tokens of the input."""
        if not isinstance(self.model, Encodes):
            raise UserError(f"{self.model_title} has no hidden states to embed with: choose a neural model.")
        several = [raws] if self.is_one(raws) else raws
        side = next(iter(self.task.fields))
        read = (self.fields.encode({side: some}) for some in some_at_once(several, EMBEDDED))
        batches = (self.fields.batch(each).to(self.device) for each in read)
        vectors = np.concatenate([pooled(self.model.encode(batch), pool) for batch in batches])
        return vectors[0] if self.is_one(raws) else vectors

    def look(self, source: Any, target: str | None = None) -> Any:
        """Return the attention, or the saliency, of each output token while the model reads `target`, by default its
        own answer to `source`."""
        seen = self.task.look(self, source, target)
        if seen is None:
            raise UserError(f"{self.task.name} has no attention to look at: try regard look --gates.")
        return seen

    def save(self, path: str | Path) -> Run:
        """Copy the run folder with all that `regard.load` needs: no training data, nothing for resuming."""
        if not self.name or " + " in self.name:
            raise UserError("A mixture of runs has no folder: save each of its runs.")
        if Path(path).exists():
            raise UserError(f"{path} exists already: choose another folder to save to.")
        hidden = shutil.ignore_patterns("samples.txt", "lock", ".*")

        def left_out(folder: Any, names: list[str]) -> set[str]:  # also folders, and links, which lead elsewhere
            others = {name for name in names if not stat.S_ISREG((Path(folder) / name).lstat().st_mode)}
            return hidden(folder, names) | others

        shutil.copytree(self.name, path, ignore=left_out)
        return dataclasses.replace(self, name=str(path))

    def examples(self, data: Any) -> list[tuple[Any, ...]]:
        """Return raw examples in memory, or those of a file in the training data's format."""
        if isinstance(data, str | Path):
            return list(examples(self.recipe.data.reading([Path(data)]), "valid", Path.cwd(), whole=True))
        between = BETWEEN if self.recipe.data.paired else " "
        rows = [row if isinstance(row, list | tuple) else (row,) for row in rows_of(data)]
        if self.recipe.data.paired:
            rows = [(flat(row[:-1]), row[-1]) for row in rows]
        if "source" in self.fields and (target := self.fields.get("target")) is not None:
            rows = [(*row[:-1], target.gold(row[0], row[-1])) for row in rows]
        return [tuple(spaced(part, between) for part in row) for row in rows]


def flat(parts: Any) -> list[Any]:
    """Return the texts inside lists and tuples, one after another."""
    return [text for part in parts for text in (flat(part) if isinstance(part, list | tuple) else [part])]


def spaced(part: Any, between: str = " ") -> Any:
    """Return words, tags or several texts in one text, as a file would have them, numbers as texts; keep the rest."""
    if isinstance(part, int | float):
        return str(part)
    if isinstance(part, list | tuple) and all(isinstance(word, str) for word in part):
        return between.join(part)
    return part


@torch.inference_mode()
def pooled(states: Padded, pool: str) -> NDArray[np.float32]:
    values, mask = states.values.float(), states.mask[..., None]
    if pool == "mean":
        vectors = (values * mask).sum(1) / mask.sum(1)
    else:
        places = states.lengths - 1 if pool == "last" else torch.zeros_like(states.lengths)
        vectors = values[torch.arange(len(values)), places]
    found: NDArray[np.float32] = vectors.cpu().numpy()
    return found


def build_model(recipe: Recipe, fields: Fields) -> nn.Module:
    """Build a new model whose weights depend on the recipe's seed; the global random state does not change."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(recipe.seed)
        model, train = design_of(recipe.model_name).build(recipe.model, fields.shapes), recipe.train
        return adapted(model, train.tune, fields.shapes, rank=train.rank, prompt=train.prompt)


def build_saved(recipe: Recipe, fields: Fields, shapes: TensorShapes, origin: Path) -> nn.Module:
    """Build the model of a run whose weights have these shapes. They are compared first with those of a model without
    values, because a recipe may ask for more memory than there is; code that the person trusts is not restricted."""
    if not recipe.code():
        try:
            with without_values(), at_most(ROOM * len(shapes) + ROOM):
                plan = build_model(recipe, fields)
        except (RuntimeError, ValueError, TypeError, OverflowError) as problem:
            raise unfit(origin, f"its settings are not possible ({reason(problem)})") from None
        if not isinstance(plan, Fits) and (odd := misshapen(weights(plan), shapes)):
            raise unfit(origin, odd)
    return build_model(recipe, fields)


@contextmanager
def at_most(parameters: int) -> Iterator[None]:
    """Within this block, refuse to build a model of more parameters than these."""
    seen: dict[int, Any] = {}  # by id, and kept, so that no id is used again; shared weights register several times

    def note(module: nn.Module, name: str, parameter: Any) -> None:
        seen[id(parameter)] = parameter
        if len(seen) > parameters:
            raise ValueError("it would have more tensors than the file")

    hook = register_module_parameter_registration_hook(note)
    try:
        yield
    finally:
        hook.remove()


def mixture(runs: Sequence[Run], weights: Sequence[float] | None = None) -> Run:
    """Combine several runs into one by interpolation; the weights are equal unless they are given."""
    check_alike(runs)
    first = runs[0]
    if len(runs) == 1:
        return first
    model = Mixture([run.model for run in runs], weights).to(first.device).eval()
    return dataclasses.replace(first, model=model, name=" + ".join(run.name for run in runs))


def check_alike(runs: Sequence[Run]) -> None:
    """Refuse a mixture of runs that differ in task, vocabulary or unit of text."""
    first = runs[0]
    for other in runs[1:]:
        if other.task is not first.task:
            raise UserError(f"{first.name} is for {first.task.name}, {other.name} for {other.task.name}: mix one task.")
        if other.fields.to_json() != first.fields.to_json():
            raise UserError(
                f"{first.name} and {other.name} have different vocabularies: train one with train.from, or both from "
                "the same text and [tokens], so that their probabilities can be mixed."
            )
        if other.whole_file != first.whole_file:
            raise UserError(f"Only one of {first.name} and {other.name} has data.unit = file: mix runs of one unit.")
        if other.opening != first.opening:
            raise UserError(f"Only one of {first.name} and {other.name} has data.pack = true: mix runs that agree.")

"""A task is an object: what an example is, where it comes from, what a model must implement, how answers are scored.

One file each, as models have one per paper; `registry` lists them. No other module compares a task's name: it
asks the object, which every recipe and run carries.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from regard.data.fields import Field, Fields
from regard.data.in_memory import keep_pairs
from regard.data.sources import Source
from regard.data.text import encodable, one_line
from regard.predict.decoding import Decoding, Prediction
from regard.predict.inputs import text_lines, typed_text
from regard.score.metrics import Metric
from regard.show.attention_page import attention_page


@dataclass(frozen=True)
class Words:
    """What a task's examples and answers are called in output."""

    example: str  # "pair"
    file: str  # the name of a file of them, as help shows it
    line: str = "line"  # what the number of an example counts
    units: str = "words"  # what an example is made of
    reads: str = "text"  # what the model reads
    counts: str = "tokens"  # what its training budget counts
    sides: tuple[str, str] = ("text", "label")
    another: str = "other labels for an earlier text"  # what a second target for a source is called
    judged: str = ""  # how one answer is scored; "": it is right or wrong
    try_with: str = ""  # what follows `predict RUN` in a suggested command


def nothing(*_: Any) -> None:
    """A verb that a task does not have."""


def answers(run: Any, examples: Sequence[tuple[Any, str]], how: Decoding | None) -> list[str]:
    return [prediction.text for prediction in run.predict([source for source, _ in examples], how)]


def plain(raw: Any, prediction: Prediction) -> str:
    return one_line(prediction.text)


def entry(raw: Any, prediction: Prediction) -> dict[str, Any]:
    """A line of JSON. What only some tasks have, they add themselves."""
    some = ("place", "times", "probabilities")
    written: dict[str, Any] = asdict(
        prediction, dict_factory=lambda pairs: {key: value for key, value in pairs if key not in some}
    )
    return written


def file_of(raw: Any) -> str:
    """The file of an input, in characters that can be written; "" for one that has none."""
    path = getattr(raw, "path", raw)
    return encodable(str(path)) if isinstance(path, str | Path) else ""


def with_file(line: str, raw: Any) -> str:
    """A line of output, with the file of an input after it."""
    return line + (f"\t{one_line(file_of(raw))}" if file_of(raw) else "")


def entry_of(raw: Any, facts: dict[str, Any]) -> dict[str, Any]:
    """A line of JSON that begins with the file of an input, if it has one."""
    return {**({"file": file_of(raw)} if file_of(raw) else {}), **facts}


def right_or_wrong(output: str, reference: str) -> float:
    return 100.0 * (output == reference)


Examples = Callable[[], Iterable[Sequence[Any]]]


@dataclass(frozen=True)
class Task:
    name: str
    about: str  # the built-in corpus, in one line
    words: Words
    fields: Mapping[str, type[Field]]  # the sides of an example, in the order in which sources give them
    sources: Mapping[str, Callable[..., Source]]  # what [data] may be, by name
    tokens: type[Any]  # the settings in [tokens]
    promises: Mapping[str, Any]  # protocols that a model must implement, by their methods
    metrics: tuple[Metric, ...]  # the first decides between models
    model: str  # the default of `new`
    contenders: tuple[str, ...]  # the default of `compare`
    demo_model: str
    toy: tuple[tuple[Any, ...], ...]  # two examples for the smoke test of a user-defined model
    corpus: Callable[..., Any]  # (recipe) -> Corpus: training and validation examples
    new: Callable[..., Any]  # (Request) -> recipe and reasons
    check: Callable[..., Any]  # (recipe, write, on_example) -> Checked
    answer: Callable[..., Any]  # (run, raws, decoding) -> one Prediction per input
    score: Callable[..., Any]  # (runs, examples, options) -> Scored
    outcomes: Callable[..., Any] = answers  # (run, examples, decoding) -> what metrics are computed from, one each
    demo: Callable[..., Any] = nothing  # (run, or one of each stage) -> what `demo` shows after training
    stages: tuple[str, ...] = ()  # the demo trains these shipped recipes, too; those with train.from on the first run
    plain: Callable[..., str] = plain  # (raw, prediction) -> a line of output
    entry: Callable[..., dict[str, Any]] = entry  # (raw, prediction) -> a line of JSON
    right: Callable[[str, str], float] = right_or_wrong  # (output, reference) -> how much of it is correct, 0 to 100
    inputs: Callable[..., Any] = text_lines  # (file or None, errors) -> raw inputs, for `predict`
    given: Callable[[str], Any] = typed_text  # what follows `look RUN` -> raw inputs: a sentence, or those of a file
    keep: Callable[..., Any] = keep_pairs  # (rows, place) -> a file of examples that were given from Python
    decoding: Decoding | None = None  # default decoding; None: the model does not generate
    look: Callable[..., Any] = nothing  # (run, raw, target, layer) -> an attention map
    look_closely: Callable[..., Any] = nothing  # the same for every layer and head, for an HTML page
    page: Callable[..., str] = attention_page  # (what look_closely returned for each input, title) -> an HTML page
    log_probs: Callable[..., Any] = nothing  # (runs, examples, stride) -> ln p of each, as a stream, where it has one
    prompted: Callable[..., Any] = nothing  # (run, data, template, verbalize): `score` of labels put into words
    stream: Callable[..., Any] = nothing  # (run, prompt, decoding, write, first_line): `predict --prompt`
    columns: Callable[..., Any] = nothing  # (raw, prediction) -> words and tags in CoNLL's columns
    legible: Callable[[Any, str], str] = lambda raw, output: output  # an output for display
    train_settings: frozenset[str] = frozenset()  # settings of [train] that only some tasks have
    contest: Mapping[str, str] = field(default_factory=dict)  # `compare --demo`: name -> model with its settings
    gold: Callable[..., Any] = nothing  # (data, test examples) -> Gold: what attention should look at, if known
    objectives: tuple[Task, ...] = ()  # a recipe becomes one of these when it is read: the first that its model is for
    specials: tuple[str, ...] = ()  # special tokens of its tokenizers, after those that all have
    fills: bool = False  # its inputs have blanks
    checked: bool = True  # `check` can check its data
    aligned: bool = False  # source and target words can be aligned
    lm: bool = False  # a language model can stand beside its models (shallow fusion)
    mixes: bool = False  # probabilities of several models can be mixed, token by token, by weights fitted on validation

    def learn(self, examples: Examples, tokens: Any, sample: Examples | None = None) -> Fields:
        """The fields of its examples; `examples` is called once for each pass over them, `sample` for each pass over
        those that vocabularies are learnt from."""
        return Fields.learn(self.fields, examples, tokens, self.specials, sample)

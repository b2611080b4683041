"""The space of a search: for each setting a list of choices, `0.1,0.3`, or a range, `1e-4..1e-2`."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice, product
from typing import Any

from regard.config import UserError, counted, parse_value, to_toml
from regard.loading import with_settings
from regard.recipe import Recipe

MOST_TRIED = 200  # combinations in which a value is tried until one is possible
TEN_TIMES = 10  # a positive range whose ends are at least so many times apart is searched on a logarithmic scale
FIGURES = 4  # of a sampled number, so that recipes and tables are easy to read
QUOTED = re.compile(r'"(?:\\.|[^"\\])*"|\'[^\']*\'')
Value = str | int | float  # of a choice: its TOML
Params = Mapping[str, Value]  # the settings of a trial by dotted key
MODEL = ("model.name", "model.preset")  # settings that reset the others of the model


@dataclass(frozen=True)
class Choices:
    key: str
    values: tuple[str, ...]  # in TOML

    @property
    def text(self) -> str:
        return ",".join(self.values)

    @property
    def probes(self) -> tuple[str, ...]:
        """Return values that are all possible only if every value is."""
        return self.values

    def holds(self, value: object) -> bool:
        return value in self.values

    def title(self, value: Value) -> str:
        """Return a value as it is shown."""
        return str(parse_value(value)) if isinstance(value, str) and value.startswith('"') else str(value)


@dataclass(frozen=True)
class Range:
    key: str
    low: float  # or int, if whole numbers are searched
    high: float

    @property
    def whole(self) -> bool:
        return isinstance(self.low, int)

    @property
    def log(self) -> bool:
        return not self.whole and self.low > 0 and self.high / self.low >= TEN_TIMES

    @property
    def text(self) -> str:
        return f"{self.low!r}..{self.high!r}"

    @property
    def probes(self) -> tuple[str, ...]:
        return repr(self.low), repr(self.high)

    def holds(self, value: object) -> bool:
        return isinstance(value, int if self.whole else float) and self.low <= value <= self.high

    def title(self, value: Value) -> str:
        return str(value) if self.whole else f"{value:.{FIGURES}g}"

    def rounded(self, value: float) -> float:
        """Return a number of few figures near this one, unless the range is too narrow for it."""
        near = float(f"{value:.{FIGURES}g}")
        return near if self.low <= near <= self.high and abs(near - value) <= (self.high - self.low) / 1000 else value


Setting = Choices | Range


@dataclass(frozen=True)
class Space:
    settings: tuple[Setting, ...]
    fixed: tuple[str, ...] = ()  # repeated for each trial, where another model would reset them

    def texts(self) -> dict[str, str]:
        return {setting.key: setting.text for setting in self.settings}

    def holds(self, params: Params) -> bool:
        return all(setting.key in params and setting.holds(params[setting.key]) for setting in self.settings)

    def assignments(self, params: Params) -> tuple[str, ...]:
        """Return a trial's settings as `regard train` takes them."""
        own = (f"{s.key}={v if isinstance(v := params[s.key], str) else repr(v)}" for s in self.settings)
        return (*self.fixed, *own)

    def titles(self, params: Params) -> dict[str, str]:
        return {setting.key: setting.title(params[setting.key]) for setting in self.settings}

    def size(self) -> float:
        """Return the number of different trials; infinity where a number is not whole."""
        return math.prod(
            len(each.values) if isinstance(each, Choices) else each.high - each.low + 1 if each.whole else math.inf
            for each in self.settings
        )

    def every(self) -> Iterator[dict[str, Value]]:
        """Yield all combinations of a space of finite size."""
        keys = [each.key for each in self.settings]
        values: Iterator[Iterable[Value]] = (
            each.values if isinstance(each, Choices) else range(int(each.low), int(each.high) + 1)
            for each in self.settings
        )
        for combination in product(*values):
            yield dict(zip(keys, combination, strict=True))


def apart(assignments: Sequence[str]) -> tuple[list[str], list[str]]:
    """Separate settings with one value from those that are searched."""
    searched = [each for each in assignments if _range(value := each.partition("=")[2]) or len(listed(value)) > 1]
    return [each for each in assignments if each not in searched], searched


def read_space(assignments: Sequence[str], recipe: Recipe, fixed: Sequence[str] = ()) -> Space:
    """Read `key=a,b,c` and `key=low..high`. Each choice and both ends of a range must be possible, in some combination
    with the others."""
    keys = [each.partition("=")[0].strip() for each in assignments]
    if not keys:
        raise UserError(
            "There is nothing to search: give a list of choices, as in model.dropout=0.1,0.3, or a range, as in "
            "train.learning_rate=1e-4..1e-2."
        )
    if twice := {key for key in keys if keys.count(key) > 1}:
        raise UserError(f"{', '.join(sorted(twice))} is given more than once: give all of its values in one list.")
    settings = [_setting(key, each.partition("=")[2]) for key, each in zip(keys, assignments, strict=True)]
    again = tuple(fixed) if set(MODEL) & set(keys) else ()
    read = [
        Range(each.key, float(each.low), float(each.high))
        if isinstance(each, Range) and not isinstance(found, int)
        else each
        for each, found in zip(settings, _possible(settings, recipe, again), strict=True)
    ]
    return Space(tuple(read), again)


def _setting(key: str, text: str) -> Setting:
    if ends := _range(text):
        low, high = ends
        if not low < high:
            raise UserError(f"{key}={text} is not a range: write the lower end first, as in {key}={high!r}..{low!r}.")
        if not (isinstance(low, int) and isinstance(high, int)):
            low, high = float(low), float(high)
        return Range(key, low, high)
    parts = listed(text)
    if not all(parts):
        raise UserError(f"{key}={text} has an empty choice: write the choices with one comma between two of them.")
    values = tuple(_in_toml(part) for part in parts)
    if twice := sorted({value for value in values if values.count(value) > 1}):
        raise UserError(f"{key}={text} has {', '.join(twice)} more than once: give each choice once.")
    return Choices(key, values)


def _range(text: str) -> tuple[float, float] | None:
    """Return the ends of a range, if this text is one."""
    before, dots, after = text.partition("..")
    ends = [parse_value(part.strip()) for part in (before, after)] if dots else []
    if not ends or not all(type(end) in (int, float) and math.isfinite(end) for end in ends):
        return None
    return ends[0], ends[1]


def listed(text: str) -> list[str]:
    """Split at commas, but not inside quotes or brackets."""
    parts, depth, at = [""], 0, 0
    while at < len(text):
        quoted = QUOTED.match(text, at) if depth or not parts[-1].strip() else None
        token = quoted[0] if quoted else text[at]
        at += len(token)
        if token == "," and not depth:
            parts.append("")
            continue
        depth = max(0, depth + (token == "[") - (token == "]"))
        parts[-1] += token
    return [part.strip() for part in parts]


def _in_toml(text: str) -> str:
    value = parse_value(text)
    return to_toml(value) if isinstance(value, bool | int | float | str | list) else text


def _possible(settings: Sequence[Setting], recipe: Recipe, fixed: Sequence[str]) -> list[Any]:
    """Refuse a value with which no recipe can be read; return a value of each setting, as it was read."""
    found: list[Any] = []
    for setting in settings:
        others = [(other.key, other.probes) for other in settings if other is not setting]
        for probe in setting.probes:
            problem: UserError | None = None
            for combination in islice(product(*(probes for _, probes in others)), MOST_TRIED):
                around = [f"{key}={value}" for (key, _), value in zip(others, combination, strict=True)]
                try:
                    read = with_settings(recipe, [*fixed, f"{setting.key}={probe}", *around])
                except UserError as wrong:
                    problem = problem or wrong
                    continue
                problem = _not_alike(setting.key, recipe, read)
                break
            if problem:
                raise problem
        found.append(read.flat()[setting.key])
    return found


def _not_alike(key: str, recipe: Recipe, read: Recipe) -> UserError | None:
    """Return the error for trials whose values could not be compared."""
    for what, one, other in (
        ("task", recipe.task.name, read.task.name),
        ("metric", recipe.train.metric, read.train.metric),
    ):
        if one != other:
            return UserError(f"{key} cannot be searched: all trials need one {what}, and it changes {one} to {other}.")
    return None


def enough(space: Space, trials: int) -> None:
    """Refuse more trials than there are combinations."""
    if trials > space.size():
        most = counted(int(space.size()), "combination")
        raise UserError(f"The space has {most}, and --trials {trials} asks for more: give at most {int(space.size())}.")

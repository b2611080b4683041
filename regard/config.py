"""Settings: frozen dataclasses that read from and write to TOML, and say what is wrong with a key or a value.

A field's trailing comment is its help text, so a written recipe explains itself. Fields are bool, int, float, str,
Literal of str, Literal | str (one of those, or a class in a user's file), tuple of one of these, or Names (a text or
several); a default is written once, in the class.
"""

from __future__ import annotations

import ast
import dataclasses
import difflib
import inspect
import json
import math
import re
import textwrap
import tokenize
import tomllib
import typing
from collections.abc import Callable, Hashable, Iterable, Mapping
from functools import cache
from io import StringIO
from typing import Annotated, Any, NamedTuple, TypeVar

T = TypeVar("T")


class UserError(Exception):
    """Something the user can fix: one sentence, shown without a traceback."""


class AgreedError(UserError):
    """An error that all processes of a training find together; the one that leads shows it."""


INTEGERS = range(-(1 << 63), 1 << 63)  # TOML's


class Bound(NamedTuple):
    """The range of a numeric setting; infinity and not-a-number are never allowed."""

    words: str
    holds: Callable[[float], bool]


def between(least: float, most: float) -> Bound:
    return Bound(f"at least {least} and at most {most}", lambda value: least <= value <= most)


ABOVE_0 = Bound("above 0", lambda value: 0 < value < math.inf)
NOT_NEGATIVE = Bound("0 or more", lambda value: 0 <= value < math.inf)

Names = str | tuple[str, ...]  # one name, or a list of them

# Limits for models: larger ones are never built.
Width = Annotated[int, between(1, 1_000_000)]
Depth = Annotated[int, between(1, 1000)]
Length = Annotated[int, between(2, 1_000_000)]  # a token and its <eos>
Share = Annotated[float, Bound("at least 0 and below 1", lambda value: 0 <= value < 1)]

Positive = Annotated[int, ABOVE_0]
Count = Annotated[int, NOT_NEGATIVE]
Amount = Annotated[float, NOT_NEGATIVE]


class Settings:
    """The base of a config whose annotations give the range of each number (`Width`, `Share`)."""

    def __post_init__(self) -> None:
        for name, bound in _bounds(typing.cast(Hashable, type(self))):
            value = vars(self)[name]
            if not bound.holds(value):
                finite = " and finite" if value != value or abs(value) == math.inf else ""
                raise ValueError(f"{name} = {value} must be {bound.words}{finite}.")


@cache
def _bounds(config: Any) -> list[tuple[str, Bound]]:
    hints = typing.get_type_hints(config, include_extras=True)
    return [(name, part) for name, hint in hints.items() for part in typing.get_args(hint) if isinstance(part, Bound)]


def shown(value: object, most: int = 80) -> str:
    """Return a value, shortened, for an error message."""
    try:
        text = repr(value)
    except (ValueError, RecursionError):  # thousands of digits, or of sections in sections
        text = "…"
    return text if len(text) <= most else f"{text[:most]}…"


def counted(count: int, noun: str, several: str = "") -> str:
    """A count with its noun: "1 sentence", "1,200 sentences"."""
    return f"{count:,} {noun if count == 1 else several or f'{noun}s'}"


@cache  # finding a class in its source takes long
def help_texts(config: Any) -> dict[str, str]:
    """Return TOML key -> its field's trailing comment, from the class that defines it; a field on several lines has it
    on one of them. A user's class without a source file has none."""
    found: dict[str, str] = {}
    for each in reversed(config.__mro__):
        try:
            settings = {field.name for field in dataclasses.fields(each)}
            source = textwrap.dedent(inspect.getsource(each))
            parts = ast.parse(source).body
        except (OSError, TypeError, SyntaxError):  # no dataclass; or a function made it, or its file has changed
            continue
        tokens = tokenize.generate_tokens(StringIO(source).readline)
        comments = {t.start[0]: t.string.lstrip("# ") for t in tokens if t.type == tokenize.COMMENT}
        for part in next((part.body for part in parts if isinstance(part, ast.ClassDef)), []):
            if isinstance(part, ast.AnnAssign) and isinstance(part.target, ast.Name) and part.target.id in settings:
                numbers = range(part.lineno, (part.end_lineno or part.lineno) + 1)
                found[key_of(part.target.id)] = " ".join(comments[line] for line in numbers if line in comments)
    return found


def unknown(name: object, allowed: Iterable[str], what: str, also: Iterable[str] = ()) -> UserError:
    """Return the error for a name that does not exist, which suggests the nearest allowed one, or one of `also`."""
    name = name if isinstance(name, str) else shown(name)
    names = list(allowed)
    last_parts = {each.rpartition(".")[2]: each for each in (*also, *names)}  # compare keys without their section
    near = difflib.get_close_matches(name.rpartition(".")[2], last_parts, n=1)
    remedy = f"did you mean {last_parts[near[0]]!r}? " if near else ""
    return UserError(f"{what} {shown(name)} does not exist: {remedy}allowed are {', '.join(names) or 'none'}.")


def choose(table: Mapping[str, T], name: object, what: str) -> T:
    if not isinstance(name, str) or name not in table:
        raise unknown(name, table, what)
    return table[name]


def key_of(field: str) -> str:
    """Return a field's key in TOML: `from` cannot be a field's name, so its field is `from_`."""
    return field.removesuffix("_")


def fields_of(config: type) -> dict[str, Any]:
    """Return TOML key -> its type."""
    hints = typing.get_type_hints(config)
    return {key_of(field.name): hints[field.name] for field in dataclasses.fields(config)}


def values_of(config: Any) -> dict[str, Any]:
    """Return TOML key -> its value."""
    return {key_of(field.name): vars(config)[field.name] for field in dataclasses.fields(config)}


def is_setting(kind: Any) -> bool:
    """Return whether a field of this type can be read and written."""
    origin, inner = typing.get_origin(kind), typing.get_args(kind)
    if kind == Names:
        return True
    if origin is typing.Union:
        return typing.get_origin(inner[0]) is typing.Literal and is_setting(inner[0]) and inner[1:] == (str,)
    if origin is typing.Literal:
        return all(isinstance(value, str) for value in inner)
    if origin is tuple:
        return inner[1:] == (...,) and is_setting(inner[0])
    return kind in (bool, int, float, str)


def parse(config: type[T], values: Mapping[str, Any], *, where: str, also: Iterable[str] = ()) -> T:
    """Build a config from these values; `where` names the table in error messages ("model"), `also` has the dotted keys
    of other tables, one of which may be meant."""
    kinds = fields_of(config)
    fields = {key_of(field.name): field for field in dataclasses.fields(typing.cast(Any, config))}
    for key in values:
        if key not in kinds:
            raise unknown(f"{where}.{key}", [f"{where}.{name}" for name in kinds], "The key", also)
    checked = {fields[key].name: _convert(kinds[key], value, f"{where}.{key}") for key, value in values.items()}
    for key, field in fields.items():
        if field.default is dataclasses.MISSING and key not in values:
            raise UserError(f"The recipe has no {where}.{key}: {help_texts(typing.cast(Any, config))[key]}.")
    try:
        return config(**checked)
    except ValueError as problem:  # from a config's __post_init__: these fields exclude each other
        raise UserError(f"In [{where}]: {problem}") from None


PLACE = re.compile(r"\.py(:|$)")


def is_place(value: object) -> bool:
    """Return whether this value names a class in a user's file (`my_cells.py:Leaky`), even if it is written wrongly."""
    return isinstance(value, str) and PLACE.search(value) is not None


def _convert(kind: Any, value: Any, key: str) -> Any:
    if kind == Names:
        several = isinstance(value, (list, tuple))
        if several and not value:
            raise UserError(f"{key} = [] must have at least one text in quotes.")
        return _convert(tuple[str, ...] if several else str, value, key)
    if typing.get_origin(kind) is typing.Union:
        return value if is_place(value) else _convert(typing.get_args(kind)[0], value, key)
    if typing.get_origin(kind) is typing.Literal:
        if value not in typing.get_args(kind):
            raise unknown(value, map(str, typing.get_args(kind)), f"{key} =")
        return value
    if typing.get_origin(kind) is tuple:
        if not isinstance(value, (list, tuple)):
            raise UserError(f"{key} = {shown(value)} must be a list.")
        return tuple(_convert(typing.get_args(kind)[0], item, key) for item in value)
    if type(value) is int and value not in INTEGERS:
        raise UserError(f"{key} = {shown(value)} must be a number below 2⁶³.")
    if kind is float and type(value) is int:
        value = float(value)
    if type(value) is not kind:
        names = {bool: "true or false", int: "a whole number", float: "a number", str: "a text in quotes"}
        raise UserError(f"{key} = {shown(value)} must be {names[kind]}.")
    return value


NUMBER_WITHOUT_ZERO = re.compile(r"[+-]?(\.\d+|\d+\.)(e[+-]?\d+)?")  # a number to people, but not in TOML


def parse_value(text: str) -> Any:
    """Read a value from the command line: as TOML if it is valid TOML (4, 0.1, true, ["a"]), else as text."""
    if NUMBER_WITHOUT_ZERO.fullmatch(text):
        return float(text)
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except (ValueError, RecursionError):
        return text


def override(table: dict[str, Any], assignment: str) -> None:
    """Apply one `section.key=value` to a recipe's nested tables, in place."""
    path, equals, text = assignment.partition("=")
    *sections, key = path.strip().split(".")
    if not equals or not key:
        raise UserError(f"{assignment!r} is not a setting: write section.key=value, for example model.layers=4.")
    for section in sections:
        table = table.setdefault(section, {})
        if not isinstance(table, dict):
            raise UserError(f"{assignment!r} cannot be set: {section!r} is a value, not a section.")
    table[key] = parse_value(text.strip())


HALF_A_CHARACTER = re.compile("[\ud800-\udfff]")  # a surrogate, which Python uses for a file name that is not UTF-8


def to_toml(value: Any) -> str:
    """Write one TOML value; strings, numbers, booleans and arrays are as in JSON, except that U+007F is escaped."""
    if isinstance(value, tuple):
        return f"[{', '.join(map(to_toml, value))}]"
    if isinstance(value, float):
        return repr(value)
    text = json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    if HALF_A_CHARACTER.search(text):
        raise UserError(f"{shown(value)} is not UTF-8 and cannot be written to a recipe: rename the folder or file.")
    return text


def write_table(name: str, config: Any, *, tag: str = "", reasons: Mapping[str, str] | None = None) -> str:
    """Write a complete [name] table with comments; "" where there is nothing to set.

    `tag` is the name at the top of a tagged union; `reasons` explain the values of dotted keys.
    """
    helps = help_texts(config.__class__)
    values = {"name": tag} if tag else {}
    settings = {key: f"{key} = {to_toml(value)}" for key, value in (values | values_of(config)).items()}
    widest = max((len(setting) for key, setting in settings.items() if helps.get(key)), default=0)
    lines = [f"[{name}]"] if settings else []
    for key, setting in settings.items():
        if reasons and f"{name}.{key}" in reasons:
            reason = reasons[f"{name}.{key}"]  # it may quote a label, and TOML allows no control characters
            lines.append("# " + "".join(c if c.isprintable() else f"\\u{ord(c):04x}" for c in reason))
        lines.append(f"{setting:<{widest}}  # {helps[key]}" if helps.get(key) else setting)
    return "".join(f"{line}\n" for line in lines)

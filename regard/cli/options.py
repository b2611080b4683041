"""Options that explain themselves: the comment after a parameter, or after a setting, is the help of its option."""

from __future__ import annotations

import functools
import inspect
import typing
from collections.abc import Callable
from copy import copy
from typing import Annotated, Any, TypeVar

import typer

from regard.config import fields_of, help_texts

F = TypeVar("F", bound=Callable[..., Any])


def option_name(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def with_helps(function: F) -> F:
    """A parameter with a comment gets it as its help; it is an option unless its annotation says what else it is."""
    hints = typing.get_type_hints(function, include_extras=True)
    for name, comment in parameter_comments(function).items():
        annotated = typing.get_origin(hints[name]) is Annotated
        kind, info = typing.get_args(hints[name]) if annotated else (hints[name], typer.Option(option_name(name)))
        info = copy(info)  # several commands may share it
        info.help = as_sentence(comment)
        function.__annotations__[name] = Annotated[kind, info]
    return function


def parameter_comments(function: Callable[..., Any]) -> dict[str, str]:
    """Parameter -> the comment after it, which may go on in lines of its own; those that have one."""
    found: dict[str, str] = {}
    name = ""
    for line in inspect.getsource(function).partition(") -> ")[0].splitlines():
        code, _, comment = line.partition("# ")
        first = code.strip().partition(":")[0]
        name = first if first in function.__annotations__ else name
        if comment:
            found[name] = f"{found.get(name, '')} {comment}".strip()
    return found


def as_sentence(comment: str) -> str:
    return f"{comment[:1].upper()}{comment[1:]}."


def options_of(config: type, parameter: str, *, leave_out: tuple[str, ...] = ()) -> Callable[[F], F]:
    """The command gets an option for each field; what was given comes as a dictionary, in this parameter."""
    kinds = {key: kind for key, kind in fields_of(config).items() if key not in leave_out}
    helps = help_texts(config)

    def decorate(function: F) -> F:
        @functools.wraps(function)
        def command(**values: Any) -> Any:
            given = {key: value for key in kinds if (value := values.pop(key)) is not None}
            return function(**values, **{parameter: given})

        parameters = dict(inspect.signature(with_helps(function), eval_str=True).parameters)
        del parameters[parameter]
        for key, kind in kinds.items():
            name = option_name(key)
            names = f"{name}/--no-{name.removeprefix('--')}" if kind is bool else name
            annotation: Any = Annotated[kind | None, typer.Option(names, help=as_sentence(helps[key]))]
            parameters[key] = inspect.Parameter(
                key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation
            )
        every = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters.values()]
        command.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in every}
        return typing.cast(F, command)

    return decorate

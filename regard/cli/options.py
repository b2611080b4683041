"""Options that are derived from the dataclass they fill: a field's trailing comment is the option's help."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from typing import Annotated, Any, TypeVar

import typer

from regard.config import fields_of, help_texts

F = TypeVar("F", bound=Callable[..., Any])


def options_of(config: type, parameter: str, *, leave_out: tuple[str, ...] = ()) -> Callable[[F], F]:
    """The command gets an option for each field; what was given comes as a dictionary, in this parameter."""
    kinds = {key: kind for key, kind in fields_of(config).items() if key not in leave_out}
    helps = help_texts(config)

    def decorate(function: F) -> F:
        hints = typing.get_type_hints(function, include_extras=True)
        own = [
            each.replace(annotation=hints[name])
            for name, each in inspect.signature(function).parameters.items()
            if name != parameter
        ]
        more = []
        for key, kind in kinds.items():
            name = f"--{key.replace('_', '-')}"
            names = f"{name}/--no-{key.replace('_', '-')}" if kind is bool else name
            option = typer.Option(names, help=helps[key].capitalize() + ".", show_default=False)
            annotation: Any = Annotated[typing.Optional[kind], option]  # noqa: UP045 (a type at run time)
            more.append(inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))

        def command(**values: Any) -> Any:
            given = {key: value for key in kinds if (value := values.pop(key)) is not None}
            return function(**values, **{parameter: given})

        every = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in [*own, *more]]
        command.__name__, command.__doc__ = function.__name__, function.__doc__
        command.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        command.__annotations__ = {each.name: each.annotation for each in every}
        return typing.cast(F, command)

    return decorate

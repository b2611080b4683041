"""Options and their help: the comment after a parameter, or after a setting, is the help text of its option."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable
from copy import copy
from pathlib import Path
from pkgutil import iter_modules
from typing import Annotated, Any, Literal, TypeVar

import typer
from typer.models import OptionInfo

from regard.config import UserError, fields_of, help_texts

F = TypeVar("F", bound=Callable[..., Any])


def task_names() -> list[str]:
    """List the tasks by their files in tasks/, without importing them."""
    found = (module.name.replace("_", "-") for module in iter_modules([str(Path(__file__).parent.parent / "tasks")]))
    return [name for name in found if name != "registry"]


Threads = Annotated[int, typer.Option(help="CPU threads; 0: one per core.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps.")]
ProductPrecision = Annotated[
    Literal["fp32", "bf16", "int8"],
    typer.Option(
        "--precision",
        help="Precision of matrix products on a CPU; bf16 and int8 (quantization) are faster, less exact.",
    ),
]
TrustCode = Annotated[
    bool,
    typer.Option("--trust-code", help="Execute Python files that a run names, even if you never trained with them."),
]
Json = Annotated[bool, typer.Option("--json", help="Write JSON instead of text.")]
OUT = typer.Option("-o", "--out")
Output = Annotated[Path | None, OUT]
RecipeFile = Annotated[Path, typer.Argument(metavar="RECIPE.toml", help="Recipe file: data, tokens, model, training.")]
Settings = Annotated[
    list[str] | None, typer.Argument(metavar="[section.key=value …]", help="Settings that replace the recipe's.")
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, such as runs/demo.")]


def option_name(name: str) -> str:
    return f"--{name.replace('_', '-')}"


def named_place(text: str | Path) -> Path:
    """Read the file or folder of an option: an empty name, as of a shell variable that is not set, is refused."""
    if not str(text):
        raise UserError("The name of a file or folder after an option is empty: give a name, or leave the option out.")
    return Path(text)


def with_helps(function: F) -> F:
    """Make the comment after a parameter its help; it is an option unless its annotation makes it an argument."""
    hints = typing.get_type_hints(function, include_extras=True)
    for name, comment in parameter_comments(function).items():
        annotated = typing.get_origin(hints[name]) is Annotated
        kind, info = typing.get_args(hints[name]) if annotated else (hints[name], typer.Option(option_name(name)))
        info = copy(info)  # several commands may share it
        info.help = as_sentence(comment)
        if kind in (Path, Path | None, list[Path] | None) and isinstance(info, OptionInfo):
            info.parser, info.metavar = named_place, info.metavar or "PATH"
        function.__annotations__[name] = Annotated[kind, info]
    return function


def parameter_comments(function: Callable[..., Any]) -> dict[str, str]:
    """Map parameters to the comment after them, which may continue in lines of its own; some have none."""
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


def options_of(config: type, *, leave_out: tuple[str, ...] = ()) -> Callable[[F], F]:
    """Add an option for each field of a config to a command; None means that it was not given."""
    helps = help_texts(config)

    def decorate(function: F) -> F:
        signature = inspect.signature(with_helps(function), eval_str=True)
        own = [each for each in signature.parameters.values() if each.kind is not inspect.Parameter.VAR_KEYWORD]
        more = []
        for key, kind in fields_of(config).items():
            name = option_name(key)
            names = f"{name}/--no-{name.removeprefix('--')}" if kind is bool else name
            annotation: Any = Annotated[kind | None, typer.Option(names, help=as_sentence(helps[key]))]
            if key not in leave_out:
                more.append(inspect.Parameter(key, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation))
        function.__signature__ = signature.replace(parameters=[*own, *more])  # type: ignore[attr-defined]
        return function

    return decorate

"""What the commands share: the app, two consoles, options, and ways to read and write."""

from __future__ import annotations

import json
import os
import re
import resource
import sys
from codecs import getwriter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, TYPE_CHECKING, Annotated, Any

import typer

from regard.cli.options import F, with_helps
from regard.cli.streams import UNREAD
from regard.config import UserError, choose, key_of
from regard.data.text import one_line
from regard.show.terminal import Terminal, harmless

if TYPE_CHECKING:
    from regard.layers.fast.packed import Precision
    from regard.recipe import Recipe
    from regard.run import Run
    from regard.tasks import Task


LEAST_MEMORY = 1e9  # bytes of address space that torch takes

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train, use, compare and look inside every sequence model, on the machine you have.",
)
out = Terminal()
err = Terminal(stderr=True)


def print_version(wanted: bool) -> None:
    if wanted:
        from regard import __version__

        out.print(f"regard {__version__}")
        raise typer.Exit


@app.callback()
@with_helps
def options(
    version: Annotated[bool, typer.Option("--version", is_eager=True, callback=print_version)] = False,
    # print the version and exit
    debug: bool = False,  # show the traceback of an error
) -> None:
    if debug:
        os.environ["REGARD_DEBUG"] = "1"
    refuse_what_ends_torch()


def refuse_what_ends_torch() -> None:
    """Refuse to start where torch, or numpy, would end the process when it is imported."""
    try:
        os.getcwd()
    except FileNotFoundError:
        raise UserError("The current folder was removed: change to another one (cd) and try again.") from None
    most, _ = resource.getrlimit(resource.RLIMIT_AS)
    if 0 <= most < LEAST_MEMORY:
        raise UserError(
            f"The memory of a process is limited to {most / 1e6:.0f} MB, and torch needs {LEAST_MEMORY / 1e6:.0f} MB: "
            "raise the limit (ulimit -v)."
        )


def command(function: F) -> F:
    """Add a command of this function's name to the app; the comment after a parameter is its help."""
    app.command(key_of(function.__name__))(with_helps(function))
    return function


def recipe_with(path: Path, settings: list[str] | None, *, trust_code: bool = False) -> Recipe:
    """Read a recipe with these settings instead of its own, and print the remarks about them."""
    from regard.loading import read_recipe

    read, remarks = read_recipe(path, settings or [], trust_code=trust_code)
    for remark in remarks:
        err.print(remark)
    return read


def load_runs(
    folders: Sequence[Path],
    *,
    threads: int,
    device: str = "cpu",
    precision: Precision = "fp32",
    trust_code: bool = False,
    lm: Path | None = None,
) -> list[Run]:
    from regard import load, machine

    machine.use_threads(threads)
    return [load(folder, device=device, precision=precision, trust_code=trust_code, lm=lm) for folder in folders]


def the_task(name: str) -> Task:
    from regard.tasks.registry import TASKS

    return choose(TASKS, name, "The task")


def write_now(text: str, stream: IO[str]) -> None:
    """Write and flush: to a terminal as plain text, elsewhere as it is. If the reader of the output, such as `head`,
    has closed it, the command ends."""
    try:
        stream.write(harmless(text) if stream.isatty() else text)
        stream.flush()
    except BrokenPipeError:
        sys.exit(UNREAD)


def say_if_text(text: str | None) -> None:
    """Print that an argument was read as a text, where it could also be the name of a file."""
    if text and re.fullmatch(r"[\w.-]+", text, re.ASCII):
        err.print(f"There is no file {text!r}: it is taken for a text.")


@contextmanager
def written_to(path: Path | None) -> Iterator[Any]:
    """Give a function that writes a line to standard output or, atomically, to a file, and report the file."""
    from regard.data.files import replacing, writing

    if path is None or path.is_fifo() or path.is_char_device():
        raw = sys.stdout.buffer if path is None else path.open("wb")
        stream: Any = getwriter("utf-8")(raw)  # whatever the terminal's encoding is
        yield lambda line: write_now(f"{line}\n", stream)
        return
    with writing(path):
        path.parent.stat()  # its folder must exist
    replaced = "; an earlier file of that name was replaced" if path.exists() else ""
    with replacing(path) as file:  # written as it comes, moved into place when it is complete
        yield lambda line: file.write(f"{line}\n".encode())
    opens = ": open it in a browser" if path.suffix in (".html", ".svg") else ""
    err.print(f"Wrote {path}{opens}{replaced}.")


def show_table(rows: Sequence[Mapping[str, object]], *, wrapped: Sequence[str] = (), whole: bool = False) -> None:
    """Print a table; the cells of the columns that are `wrapped` may take several lines. `whole`: where there is no
    terminal, each row is one line, however long it is."""
    from rich.table import Table

    if whole and not out.is_terminal:
        lines = [list(rows[0]), *(list(map(str, row.values())) for row in rows)]
        widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
        for line in lines:
            out.print("  ".join(map(str.ljust, line, widths)).rstrip())
        return
    table = Table(box=None, pad_edge=False)
    for column in rows[0]:
        table.add_column(column, overflow="fold", no_wrap=column not in wrapped)
    for row in rows:
        table.add_row(*map(str, row.values()))
    out.print(table, soft_wrap=False)


def print_json(entry: object) -> None:
    write_now(json_line(entry) + "\n", sys.stdout)


def json_line(entry: object) -> str:
    return one_line(json.dumps(entry, ensure_ascii=False, default=str))

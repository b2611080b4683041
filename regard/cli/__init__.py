"""The command line: each command parses, calls the library and prints. Torch is imported only where it is needed."""

from __future__ import annotations

import os
import sys
from io import StringIO
from typing import Any

import typer

from regard.cli import signals
from regard.cli.shell import app, err, out
from regard.cli.streams import standard_streams
from regard.config import AgreedError, UserError
from regard.data.files import reason
from regard.data.text import one_line

# isort: off
# each adds its command; help lists them in this order
from regard.cli import new, check, encode, train, demo, predict, look, score, compare, sweep, serve  # noqa: F401
from regard.cli import export, import_, runs, models, info  # noqa: F401
# isort: on

INTERRUPTED = 130  # Typer's exit code for it
REMEDIES = {  # what the argument parser reports, its remedy, and the commands that it applies to
    "unexpected extra argument": ("Put a text of several words in quotes.", ("look", "predict", "score")),
    "No such option": (
        "Settings are given without dashes, as in train.minutes=1.",
        ("train", "check", "compare", "encode", "sweep"),
    ),
}
NO_MEMORY = ("can't allocate memory", "annot allocate memory", "failed to map segment", "can't start new thread")
UsageError: Any = typer.BadParameter.__base__  # Click's, or that of the copy inside newer versions of Typer


def main() -> None:
    """Run a command. An error is printed as one sentence, with exit code 1 (2: the command line itself is wrong)."""
    with standard_streams():
        sys.exit(run())


def run() -> int:
    """Run a command and return its exit code."""
    try:
        sys.argv[1:] = spread_valid(sys.argv[1:])
        with signals.ending_the_process():
            code = int(app(standalone_mode=False, prog_name="regard") or 0)
            if code == INTERRUPTED:  # what some versions of Typer return instead of raising it
                raise KeyboardInterrupt
            sys.stdout.flush()
        return code
    except UsageError as problem:
        shown = StringIO()
        problem.show(shown)
        err.print(shown.getvalue(), end="")
        for found, (remedy, commands) in REMEDIES.items():
            if problem.ctx and problem.ctx.info_name in commands and found in problem.format_message():
                err.print(remedy)
        return 2
    except (KeyboardInterrupt, typer.Abort):
        err.print(signals.INTERRUPTED)
        return signals.exit_code()
    except Exception as problem:
        if os.environ.get("REGARD_DEBUG"):
            raise
        if isinstance(problem, AgreedError) and out.quiet:
            return 1  # the process that leads says it
        err.print(f"regard: {one_line(sentence(problem))}")
        return 1


def spread_valid(arguments: list[str]) -> list[str]:
    """Turn `new … --valid A B` into `--valid A --valid B`, since an option cannot take one value or two."""
    found = list(arguments)
    command = next((each for each in found if not each.startswith("-")), "")
    if command == "new" and "--valid" in found:
        second = found.index("--valid") + 2
        if found[second - 1 : second] and found[second - 1].startswith("-"):
            raise UserError(
                f"--valid is followed by {found[second - 1]}: give a validation file after it, or leave it out."
            )
        if second < len(found) and not found[second].startswith("-") and found.count("--valid") == 1:
            found.insert(second, "--valid")
    return found


def sentence(problem: Exception) -> str:
    if isinstance(problem, UserError):
        return str(problem)
    if any(found in str(problem) for found in NO_MEMORY) or isinstance(problem, MemoryError):
        return (
            "This machine, or a limit (ulimit -v), leaves too little memory: raise the limit, or choose a smaller "
            "train.batch_tokens, tokens.longest or model."
        )
    if isinstance(problem, ImportError) or (isinstance(problem, OSError) and problem.errno is None):
        return f"A library cannot be loaded ({reason(problem)}): install regard and torch again, with pip."
    if isinstance(problem, OSError):
        where = f" ({problem.filename})" if problem.filename else ""
        return f"{problem.strerror or problem}{where}."
    kind = type(problem).__name__
    return (
        f"An unexpected {kind} occurred ({problem}): report it with the output of `regard --debug …` and `regard info`."
    )

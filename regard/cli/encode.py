"""encode: write the data of a recipe as tokens, in several processes."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from regard.cli.options import Output, RecipeFile, Settings, TrustCode
from regard.cli.shell import command, err, out, recipe_with, write_now
from regard.cli.signals import saying
from regard.config import UserError, counted

if TYPE_CHECKING:
    from collections.abc import Callable

    from regard.train.encoding import Encoding, Shard

STOPPED = "Interrupted; the same command continues with the shards that are missing."


@command
def encode(
    recipe: RecipeFile,
    settings: Settings = None,
    output: Output = None,  # the run folder; by default runs/<recipe's name>
    processes: int = 0,  # processes, each on one core; 0: one per core
    trust_code: TrustCode = False,
    worker: Annotated[bool, typer.Option("--worker", hidden=True)] = False,
    # encode the shards whose numbers are read from standard input
) -> None:
    """Write a recipe's data as tokens, in several processes.

    `regard train` starts from them. Each training file becomes a shard; what is complete is kept when the command is
    stopped and run again.
    """
    read = recipe_with(recipe, settings, trust_code=trust_code)
    folder = output or Path("runs") / recipe.stem
    if processes < 0:
        raise UserError(f"--processes {processes} must be 1 or more, or 0 for one per core.")
    from regard import machine
    from regard.checkpoint import Folder
    from regard.data.fields import Fields
    from regard.train import workers
    from regard.train.encoding import Encoding

    machine.end_with_parent()
    if worker:  # the process that started it holds the lock
        encoding = Encoding(Folder(folder), read.task.corpus(read))
        fields = Fields.read(encoding.folder.fields, read.task.fields)
        workers.work(encoding, fields, sys.stdin, lambda line: write_now(f"{line}\n", sys.stdout))
        return
    cores = processes or len(os.sched_getaffinity(0) if sys.platform == "linux" else range(os.cpu_count() or 1))
    os.environ.update(workers.threads(cores))  # for learning the vocabulary, and where one process encodes all
    own = ["encode", str(recipe), *(settings or []), "-o", str(folder), "--worker"]
    own += ["--trust-code"] if trust_code else []
    with Folder(folder).only_writer(), saying(STOPPED):
        with err.status("Learning the vocabulary …") as status:

            def on_read(count: int, every: int) -> None:
                status.update(f"Reading {count:,} of {counted(every, read.task.words.example)}")

            encoding, fields = workers.opened(read, folder, on_read)
            if encoding.count == 1:
                status.update("Encoding …")
                sides, left_out = encoding.encoded(fields, known=encoding.folder.config.exists())
                encoding.keep(fields)
        if encoding.count > 1:
            missing = encoding.missing(fields)
            if processes == 1 or len(missing) == 1:
                each = partial(workers.encode_here, encoding, missing, fields)
            else:
                each = partial(workers.encode_apart, missing, own, cores)
            follow(encoding, missing, each)
            sides, left_out = encoding.encoded(fields, known=True)
        encoding.corpus.forget()
    amount = encoding.corpus.amount(sides["train"])
    left = f" ({left_out['train']:,} left out: empty or too long)" if left_out["train"] else ""
    out.print(f"Encoded {amount}{left} in {folder}. Next: regard train {recipe}, with the same settings and -o")


def follow(encoding: Encoding, missing: list[Shard], write: Callable[[Callable[[int], None]], Iterator[Shard]]) -> None:
    """Write the missing shards, and print each that is complete."""
    from regard.show.progress import counting_bar

    noun, read = encoding.corpus.noun, 0
    if kept := encoding.count - len(missing):
        out.print(f"{counted(kept, 'shard')} of {encoding.count} are complete already.")
    with counting_bar("Encoding …", len(missing), out) as update:

        def on_examples(count: int) -> None:
            nonlocal read
            read += count
            update(description=f"Encoding … {counted(read, noun)}")

        for shard in write(on_examples):
            update(advance=1)
            files = " and ".join(Path(file).name for file in shard.sources)
            out.print(f"  {shard.name}  {files}", style="dim")

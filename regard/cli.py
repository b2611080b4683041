"""The command line: one command per verb; parse, call, show. Torch is imported only by the command that needs it."""

from __future__ import annotations

import dataclasses
import errno
import json
import os
import signal
import sys
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from io import TextIOWrapper
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer
from rich.console import Console

if TYPE_CHECKING:
    from regard.interface import Progress
    from regard.predict import Decoding, Prediction
    from regard.recipe import Recipe
    from regard.score import Scored
    from regard.train.session import Session

app = typer.Typer(
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    add_completion=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Train, use, compare and look inside every sequence model, on the machine you have.",
)
out = Console(highlight=False, soft_wrap=True)
err = Console(stderr=True, highlight=False, soft_wrap=True)

Threads = Annotated[int, typer.Option(help="Processor threads; 0: as many as there are cores.")]
Device = Annotated[str, typer.Option(help="cpu, cuda or mps.")]
Json = Annotated[bool, typer.Option("--json", help="Write JSON instead of text.")]
INTERRUPTED = 130
UsageError: Any = typer.BadParameter.__base__  # Click's own, or that of the copy which newer Typers carry
STOPPING = (signal.SIGINT, signal.SIGTERM)
ENOUGH_TO_JUDGE = 5.0  # seconds of training that tell how long the rest will take
RecipeFile = Annotated[Path, typer.Argument(metavar="RECIPE.toml", help="What to train on what.")]
Settings = Annotated[
    list[str] | None, typer.Argument(metavar="[section.key=value …]", help="Settings over the recipe's.")
]
RunFolder = Annotated[Path, typer.Argument(metavar="RUN", help="A run folder, such as runs/demo.")]


@app.callback()
def options(
    debug: Annotated[bool, typer.Option(help="Show the traceback of an error.")] = False,
) -> None:
    if debug:
        os.environ["REGARD_DEBUG"] = "1"


def main() -> None:
    """Run a command; what a person can mend is told in one sentence, with exit code 1 (2: the command itself)."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # a command that is asked to end says so
    if isinstance(sys.stdout, TextIOWrapper):  # a terminal may lack a character, a file's name may not be UTF-8
        sys.stdout.reconfigure(errors="backslashreplace")
    try:
        code = app(standalone_mode=False)
        if code == INTERRUPTED:  # so Typer says it, in some of its versions
            raise KeyboardInterrupt
        sys.exit(code)
    except UsageError as problem:
        problem.show()
        sys.exit(2)
    except (KeyboardInterrupt, typer.Abort):
        err.print("Interrupted.")
        sys.exit(INTERRUPTED)
    except Exception as problem:
        if os.environ.get("REGARD_DEBUG"):
            raise
        from regard.data.text import one_line

        err.print(f"regard: {one_line(sentence(problem))}", markup=False)
        sys.exit(1)


def sentence(problem: Exception) -> str:
    from regard.interface import UserError

    if isinstance(problem, UserError):
        return str(problem)
    if isinstance(problem, OSError):
        where = f" ({problem.filename})" if problem.filename else ""
        return f"{problem.strerror or problem}{where}."
    if isinstance(problem, MemoryError) or "can't allocate memory" in str(problem):
        return "The memory is full: choose a smaller train.batch_tokens, tokens.longest or model."
    kind = type(problem).__name__
    return (
        f"an unexpected {kind}: {problem}. Please report it, with the output of `regard --debug …` and `regard info`."
    )


# --- train and demo ----------------------------------------------------------------------------------------------


@app.command()
def train(
    recipe: RecipeFile,
    settings: Settings = None,
    output: Annotated[
        Path | None, typer.Option("-o", "--out", help="The run folder; by default runs/<recipe's name>.")
    ] = None,
    threads: Threads = 0,
    device: Device = "cpu",
) -> None:
    """Train a model, or go on training it: the same command resumes a run."""
    read = recipe_with(recipe, settings)
    folder = output or Path("runs") / recipe.stem
    with opened(read, folder, threads=threads, device=device) as session:
        if follow(session):
            out.print(f"The best model is in {folder}; try: regard predict {folder}")


@app.command()
def demo(
    task: Annotated[Literal["translation"], typer.Argument(help="What to show.")] = "translation",
    model: Annotated[str, typer.Option(help="rnnsearch, seq2seq or transformer.")] = "rnnsearch",
    output: Annotated[Path | None, typer.Option("-o", "--out", help="The run folder.")] = None,
    threads: Threads = 0,
) -> None:
    """Train a translator on the built-in corpus, measure it on unseen sentences, show what it looks at."""
    from regard import load
    from regard.data.world import SHOWN
    from regard.demo import demo_recipe, measure
    from regard.render import heat_map

    recipe = demo_recipe(model)
    folder = output or Path("runs") / ("demo" if model == "rnnsearch" else f"demo-{model}")
    out.print("Built-in corpus: English to French from a small grammar, its shorter half.")
    with opened(recipe, folder, threads=threads, device="cpu") as session:
        if not follow(session):
            return
    run = load(folder)
    result = measure(run)
    scored, (shortest, median, longest) = result.scored, result.lengths
    out.print(f"\n{len(scored.outputs)} unseen sentences of {shortest} to {longest} words (median {median}):")
    out.print(f"  BLEU {scored.bleu.value:.2f}   {scored.bleu.signature}")
    if scored.alignment_error is not None:
        out.print(
            f"  alignment error {scored.alignment_error:.3f}   (guessing the diagonal: {scored.diagonal_error:.3f})"
        )
    for sentence in SHOWN:
        seen = run.look(sentence)
        out.print(f"\n{sentence}\n{' '.join(seen.target)}\n", style="bold", markup=False)
        out.print(heat_map(seen, width=out.width))
    out.print("\nNext:")
    out.print(f'  regard look {folder} "The small cat does not eat the soup ."')
    out.print(f"  regard predict {folder} --beam 5 < sentences.txt")
    out.print(f"  regard train {folder}/config.toml model.hidden=512 -o runs/mine")


@app.command()
def check(
    recipe: RecipeFile,
    settings: Settings = None,
    write: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write what passes, and a recipe of it, to a new folder.")
    ] = None,
    as_json: Json = False,
) -> None:
    """Look at a recipe's data before training on it: errors (exit code 1), warnings and a summary."""
    from regard.check import check as look_over

    read = recipe_with(recipe, settings)
    with err.status("Reading the data …"):
        checked = look_over(read, write=write)
    if as_json:
        entry = {"sound": checked.sound, **dataclasses.asdict(checked)}
        print_plain(json.dumps(entry, ensure_ascii=False, default=str))
        raise typer.Exit(not checked.sound)
    for finding in checked.findings:
        out.print(finding.severity, style="red" if finding.severity == "error" else "yellow", end=": ")
        out.print(finding.text, markup=False)
    for split, facts in checked.summary.items():
        passes = int(facts.passes * 10_000) / 100  # 100 only where all do
        several = f"; {facts.several:,} with another target for an earlier source" if facts.several else ""
        out.print(f"{split}: {facts.pairs:,} pairs, {passes} % pass{several}")
        for side, name in enumerate(("source", "target")):
            out.print(
                f"  {name}: {facts.words[side]:,} words, {facts.characters[side]:,} characters, "
                f"{facts.distinct[side]:,} of them different; the median line has {facts.median[side]:,}, "
                f"the longest {facts.longest[side]:,}"
            )
        if checked.written:
            dropped = ", ".join(f"{count:,} {kind}" for kind, count in checked.dropped[split].items())
            out.print(f"  left out: {dropped or 'nothing'}")
    if checked.written:
        out.print(f"What passes was written; next: regard train {checked.written}/recipe.toml", markup=False)
    raise typer.Exit(not checked.sound)


def recipe_with(path: Path, settings: list[str] | None) -> Recipe:
    """The recipe with these settings over its own; what there is to say about them is said."""
    from regard.recipe import read_recipe

    read, remarks = read_recipe(path, settings or [])
    for remark in remarks:
        err.print(remark, markup=False)
    return read


@contextmanager
def opened(recipe: Any, folder: Path, *, threads: int, device: str) -> Iterator[Session]:
    """The session of a run folder, which nobody else may train in meanwhile."""
    from regard import machine
    from regard.checkpoint import Folder
    from regard.train.session import Session

    machine.use_threads(threads)
    with Folder(folder).only_writer():
        with leaving_when_asked("Interrupted before the first step; the same command begins again."):
            with err.status("Preparing the data …"):
                session = Session(recipe, folder, device=device)
            show_plan(session)
        yield session


@contextmanager
def leaving_when_asked(sentence: str) -> Iterator[None]:
    """While this lasts, SIGINT and SIGTERM end the process at once: what is on the disk is whole.

    A thread waits for them, since the main one may be in a library for long and would hear of them only afterwards.
    """
    ear, mouth = os.pipe()
    os.set_blocking(mouth, False)  # as the signal module wants it

    def leave() -> None:
        if number := os.read(ear, 1)[0]:
            leave_at_once(number, sentence)

    listener = threading.Thread(target=leave, daemon=True)
    listener.start()
    before = signal.set_wakeup_fd(mouth)
    handlers = {number: signal.signal(number, lambda *_: None) for number in STOPPING}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before)
        os.write(mouth, b"\0")  # no signal has this number
        listener.join()
        os.close(ear)
        os.close(mouth)


def leave_at_once(number: int, sentence: str) -> NoReturn:
    shown = "\r\x1b[2K\x1b[?25h" if err.is_terminal else ""  # clears the line and shows the cursor, which Rich hid
    os.write(sys.stderr.fileno(), f"{shown}{sentence}\n".encode())
    os._exit(128 + number)


def show_plan(session: Session) -> None:
    """What is about to be trained on what, so that a mistake is seen before it costs time."""
    plan = session.batches.stats()
    pairs = f"{len(session.train_pairs):,} pairs"
    if left_out := session.left_out["train"]:
        pairs += f" ({left_out:,} left out: one side empty, or longer than {session.recipe.tokens.longest} tokens)"
    out.print(
        f"{session.recipe.model_name}, {session.parameters / 1e6:.2f} M parameters, on {pairs}; "
        f"{plan.batches} batches an epoch, {plan.real:.0%} real tokens; {session.training.config.precision}.",
        markup=False,
    )
    if session.resumed and session.training.step:
        out.print(f"Going on in {session.folder.path} from step {session.training.step}.", markup=False)
        return
    if session.teacher:
        out.print(f"Beginning with the weights and the vocabulary of {session.teacher.path}.", markup=False)
    out.print("The first training lines, in tokens, and put together again where that differs:")
    for text, tokens, again in session.examples(3):
        out.print(f"    {shortened(' | '.join(tokens), 200)}", style="dim", markup=False)
        if again != text:
            out.print(f"      → {shortened(again, 200)}", style="dim", markup=False)


def shortened(text: str, most: int) -> str:
    return text if len(text) <= most else text[: most - 1] + "…"


def follow(session: Session) -> bool:
    """Show a session's progress until it ends; False if it was interrupted, and then it is saved."""
    from rich.live import Live
    from rich.text import Text

    if session.training.done(session.batches) >= 1:
        out.print("This run is finished; give it more train.steps to go on.")
        return True
    asked: list[int] = []

    def ask(number: int, frame: object) -> None:
        if asked:
            leave_at_once(number, "Left without saving; the same command goes on from the last checkpoint.")
        asked.append(number)

    handlers = {number: signal.signal(number, ask) for number in STOPPING}
    try:
        with Live(console=err, refresh_per_second=4, transient=True, auto_refresh=err.is_terminal) as live:
            began = session.training.seconds
            told = False
            for progress in session.steps():
                live.update(Text(live_line(progress)), refresh=False)
                if not told and progress.seconds - began > ENOUGH_TO_JUDGE:
                    out.print(f"About {clock(left(progress))} to go.")
                    told = True
                if progress.valid is not None:
                    show_validation(progress)
                if asked and not progress.finished:
                    session.save()
                    live.update(Text(""))
                    out.print(f"Stopped at step {progress.step} and saved; the same command goes on.")
                    return False
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)
    return True


def left(progress: Progress) -> float:
    """Seconds until the budget is used, at the pace so far."""
    return progress.seconds * (1 - progress.done) / max(progress.done, 1e-9)


def live_line(progress: Progress) -> str:
    return (
        f"step {progress.step}   loss {progress.loss:.3f}   perplexity {progress.perplexity:.2f}   "
        f"{progress.tokens_per_second:,.0f} tokens/s   {clock(left(progress))} left"
    )


def show_validation(progress: Progress) -> None:
    assert progress.valid is not None
    import math

    metrics = f"valid perplexity {math.exp(min(700.0, progress.valid['loss'])):.3f}"
    if "bleu" in progress.valid:
        metrics += f"   BLEU {progress.valid['bleu']:.2f}"
    best = "   best so far" if progress.improved else ""
    out.print(
        f"step {progress.step}   {clock(progress.seconds)}   loss {progress.loss:.3f}   {metrics}   "
        f"{progress.tokens_per_second:,.0f} tokens/s{best}"
    )
    for sample in progress.samples[:1]:
        out.print(f"    {sample.source}\n    → {sample.output}", style="dim", markup=False)
    if progress.finished:
        out.print(f"Finished: {progress.finished}.")


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


# --- new and runs ------------------------------------------------------------------------------------------------


@app.command()
def new(
    task: Annotated[Literal["translation"], typer.Argument(help="What the recipe is for.")],
    source: Annotated[str, typer.Option(help="Training text, source language; with --file, its field.")],
    target: Annotated[str, typer.Option(help="Training text, target language; with --file, its field.")],
    valid: Annotated[
        tuple[str, str] | None,
        typer.Option(metavar="SOURCE TARGET", help="Validation files; otherwise some training pairs are kept apart."),
    ] = None,
    file: Annotated[
        str | None, typer.Option(help="One .jsonl or .tsv file instead of two; fields are keys, columns or numbers.")
    ] = None,
    valid_file: Annotated[str | None, typer.Option(help="A validation file beside --file.")] = None,
    model: Annotated[str, typer.Option(help="Which model; `regard models` lists them.")] = "transformer",
    output: Annotated[Path, typer.Option("-o", "--out", help="The recipe to write.")] = Path("translation.toml"),
) -> None:
    """Write a complete recipe for your own files, with values chosen from their size and this machine."""
    from regard.checkpoint import write_atomically
    from regard.interface import UserError
    from regard.new import data_of
    from regard.new import new as new_recipe

    if output.exists():
        raise UserError(f"{output} exists already: choose another name with -o, or remove it.")
    folder = output.absolute().parent.resolve()
    with err.status("Reading the data …"):
        data_name, data = data_of(
            file=file, source=source, target=target, valid=valid, valid_file=valid_file, folder=folder
        )
        recipe, reasons = new_recipe(data_name, data, folder=folder, model=model)
        text = recipe.to_toml(reasons=reasons)
    write_atomically(output, text)
    values = recipe.flat()
    for key, reason in reasons.items():
        out.print(f"{key} = {values[key]}: {reason}", markup=False)
    out.print(f"\nWrote {output}. Next: regard check {output}, then regard train {output}", markup=False)


@app.command()
def runs(
    folder: Annotated[Path, typer.Argument(help="The folder that holds runs.")] = Path("runs"), as_json: Json = False
) -> None:
    """What has been trained: model, score, size, state."""
    from regard.runs import runs as every_run

    found = every_run(folder)
    if as_json:
        print_plain(json.dumps([dataclasses.asdict(run) for run in found]))
    elif not found:
        out.print(f"There is no run in {folder} yet.", markup=False)
    else:
        rows = [{**dataclasses.asdict(run), "MB": f"{run.megabytes:.1f}"} for run in found]
        show_table([{key: str(value) for key, value in row.items() if key != "megabytes"} for row in rows])


# --- predict -----------------------------------------------------------------------------------------------------


@app.command()
def predict(
    run: RunFolder,
    file: Annotated[Path | None, typer.Argument(help="Text, one sentence a line; by default standard input.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--out", help="By default standard output.")] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses kept per sentence; 1 is greedy.")] = 1,
    sample: Annotated[bool, typer.Option("--sample", help="Draw instead of taking the likeliest.")] = False,
    temperature: Annotated[float, typer.Option(help="Below 1 sharpens what is drawn from.")] = 1.0,
    top_k: Annotated[int, typer.Option(help="Draw among the k likeliest; 0: all.")] = 0,
    top_p: Annotated[float, typer.Option(help="Draw among the likeliest that hold this probability.")] = 1.0,
    n_best: Annotated[int, typer.Option(help="Outputs per line: line, rank, score and text, tab-separated.")] = 1,
    length_penalty: Annotated[float, typer.Option(help="Hypotheses compete by score / length to this power.")] = 1.0,
    min_length: Annotated[int, typer.Option(help="Fewest tokens.")] = 0,
    max_length: Annotated[int, typer.Option(help="Most tokens; 0: twice the source and ten.")] = 0,
    no_repeat: Annotated[int, typer.Option(help="Never write the same n tokens twice; 0: no limit.")] = 0,
    seed: Annotated[int, typer.Option(help="Of the sampling noise.")] = 0,
    replace_unknown: Annotated[
        bool, typer.Option("--replace-unknown", help="Write the source word that an <unk> looks at, in its place.")
    ] = False,
    errors: Annotated[
        Literal["strict", "replace"], typer.Option(help="What to do with bytes that are not UTF-8.")
    ] = "strict",
    as_json: Json = False,
    threads: Threads = 0,
    device: Device = "cpu",
) -> None:
    """Translate: one line in, one line out.

    A line ends at "\\n" and nowhere else. What an output holds of line ends, "\\r" and U+2028 among them, is written
    as JSON escapes it, so that every program counts the same lines; --json gives the text itself.
    """
    from regard import load, machine
    from regard.data.text import read_lines
    from regard.predict import Decoding, most_read

    how = Decoding(
        beam=beam,
        sample=sample,
        temperature=temperature,
        top_k=top_k,
        top_p=top_p,
        n_best=n_best,
        length_penalty=length_penalty,
        min_length=min_length,
        max_length=max_length,
        no_repeat=no_repeat,
        seed=seed,
        replace_unknown=replace_unknown,
    )
    machine.use_threads(threads)
    loaded = load(run, device=device)
    interactive = file is None and sys.stdin.isatty()
    lines = read_lines(file or sys.stdin.buffer, errors=errors)
    with written_to(output) as write:
        for number, prediction in predictions(loaded, lines, how, at_once=1 if interactive else 512):
            if prediction.cut:
                most = most_read(loaded.model, how)
                err.print(f"Line {number} is too long: only its beginning was read, at most {most} tokens.")
            write(as_text(number, prediction, n_best=n_best, as_json=as_json))


def predictions(run: Any, lines: Iterator[str], how: Decoding, *, at_once: int) -> Iterator[tuple[int, Prediction]]:
    from itertools import islice

    from regard.predict import predict

    done = 0
    while chunk := list(islice(lines, at_once)):
        yield from enumerate(predict(run, chunk, how, first_line=done), start=done + 1)
        done += len(chunk)


def as_text(number: int, prediction: Prediction, *, n_best: int, as_json: bool) -> str:
    from regard.data.text import one_line

    if as_json:
        return one_line(json.dumps({"line": number, **dataclasses.asdict(prediction)}, ensure_ascii=False))
    every = (prediction, *prediction.alternatives)
    texts = [one_line(one.text) for one in every]
    if n_best == 1:
        return texts[0]
    scores = [one.score for one in every]
    columns = [text.replace("\t", "\\t") for text in texts]
    ranked = enumerate(zip(scores, columns, strict=True), start=1)
    return "\n".join(f"{number}\t{rank}\t{score:.4f}\t{text}" for rank, (score, text) in ranked)


@contextmanager
def written_to(path: Path | None) -> Iterator[Any]:
    """A function that writes a line, to standard output or, all or nothing, to a file."""
    from regard.checkpoint import write_atomically, writing

    if path is None or path.is_fifo() or path.is_char_device():
        place = sys.stdout.fileno() if path is None else path
        stream = open(place, "w", encoding="utf-8", newline="\n", closefd=path is not None)  # noqa: SIM115

        def write(line: str) -> None:
            try:
                stream.write(line + "\n")
                stream.flush()
            except BrokenPipeError:  # the reader of our output, `head` perhaps, has seen enough
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                sys.exit(0)

        yield write
        return
    with writing(path):  # said before the work, not after it
        if path.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    lines: list[str] = []
    yield lines.append
    write_atomically(path, "".join(line + "\n" for line in lines))


# --- score -------------------------------------------------------------------------------------------------------


@app.command()
def score(
    target: Annotated[Path, typer.Option(help="The references, one a line.")],
    run: Annotated[Path | None, typer.Argument(metavar="[RUN]", help="A run folder, such as runs/demo.")] = None,
    source: Annotated[Path | None, typer.Option(help="The sources, one a line.")] = None,
    system: Annotated[
        tuple[Path, Path] | None,
        typer.Option(metavar="A B", help="Compare two files of outputs, without a run: BLEU and a paired bootstrap."),
    ] = None,
    beam: Annotated[int, typer.Option(help="Hypotheses kept per sentence; 1 is greedy.")] = 5,
    by_length: Annotated[bool, typer.Option("--by-length", help="BLEU by the number of words in the source.")] = False,
    each: Annotated[
        bool, typer.Option("--each", help="Instead: ln p(reference | source) of each line, <eos> included.")
    ] = False,
    align: Annotated[
        Path | None, typer.Option(help="Gold alignments, as in 0-0 1-2, one line a pair: alignment error.")
    ] = None,
    layer: Annotated[int | None, typer.Option(help="The attending layer that --align looks at.")] = None,
    output: Annotated[Path | None, typer.Option("-o", "--out", help="Write the outputs to a file.")] = None,
    as_json: Json = False,
    threads: Threads = 0,
    device: Device = "cpu",
) -> None:
    """How good a run's translations are: BLEU and chrF, with sacreBLEU's signatures."""
    from regard import load, machine
    from regard.data.text import one_line, read_lines
    from regard.interface import UserError
    from regard.predict import Decoding
    from regard.score import compare, log_probabilities, read_links
    from regard.score import score as score_run

    references = list(read_lines(target))
    if not references:
        raise UserError(f"{target} is empty: give at least one reference.")
    if system is not None:
        first, second = (same_count(list(read_lines(path)), references, path) for path in system)
        compared = compare(first, second, references)
        if as_json:
            print_plain(json.dumps(compared._asdict()))
        else:
            for path, value in zip(system, compared[:2], strict=True):
                print_plain(f"BLEU {value:.2f}   {path}")
            print_plain(f"p = {compared.p:.4f}   {compared.signature}")
        return
    if run is None or source is None:
        raise UserError("Give a RUN and --source FILE, or two files of outputs with --system A B.")
    machine.use_threads(threads)
    loaded = load(run, device=device)
    sources = same_count(list(read_lines(source)), references, source)
    if each:
        for value in log_probabilities(loaded, list(zip(sources, references, strict=True))):
            print_plain(f"{value:.6f}")
        return
    gold = [read_links(line) for line in read_lines(align)] if align else None
    with err.status("Translating …"):
        scored = score_run(loaded, sources, references, how=Decoding(beam=beam), gold=gold, layer=layer)
    if output is not None:
        with written_to(output) as write:
            for line in scored.outputs:
                write(one_line(line))
    if as_json:
        print_plain(json.dumps({"beam": beam, "sentences": len(sources), **without_outputs(scored)}))
        return
    for name, found in (("BLEU", scored.bleu), ("BLEU", scored.bleu_lowercase), ("chrF", scored.chrf)):
        print_plain(f"{name} {found.value:6.2f}   {found.signature}")
    if gold is not None:
        error = "does not attend" if scored.alignment_error is None else f"{scored.alignment_error:.3f}"
        print_plain(f"alignment error {error}   (guessing the diagonal: {scored.diagonal_error:.3f})")
    for bucket in scored.by_length if by_length else ():
        words = f"{bucket.shortest}-{bucket.longest}" if bucket.longest else f"{bucket.shortest} or more"
        print_plain(f"{words:>10} words   {bucket.sentences:6,} sentences   BLEU {bucket.bleu:6.2f}")


def same_count(lines: list[str], references: list[str], path: Path) -> list[str]:
    from regard.interface import UserError

    if len(lines) != len(references):
        raise UserError(f"{path} has {len(lines)} lines for {len(references)} references: give as many of each.")
    return lines


def without_outputs(scored: Scored) -> dict[str, Any]:
    named = {"bleu": scored.bleu, "bleu_lowercase": scored.bleu_lowercase, "chrf": scored.chrf}
    scores = {name: found._asdict() for name, found in named.items()}
    errors = {"alignment_error": scored.alignment_error, "diagonal_error": scored.diagonal_error}
    return {**scores, **errors, "by_length": [bucket._asdict() for bucket in scored.by_length]}


# --- look, models, info ------------------------------------------------------------------------------------------


@app.command()
def look(
    run: RunFolder,
    sentence: Annotated[str, typer.Argument(help="A source sentence; with --html also a file of them, one a line.")],
    target: Annotated[str | None, typer.Option(help="Its translation; by default the model's own.")] = None,
    layer: Annotated[
        int | None, typer.Option(help="Of several attending layers, this one; by default their mean.")
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--out", help="Write the picture as an SVG file.")] = None,
    html: Annotated[
        Path | None, typer.Option(help="Write every layer and head as one HTML file that opens anywhere.")
    ] = None,
    as_json: Json = False,
) -> None:
    """What the model looks at while it translates a sentence."""
    from regard import load
    from regard.data.text import encodable, one_line
    from regard.look import look as look_at
    from regard.look import look_closely
    from regard.page import page
    from regard.render import heat_map, svg

    loaded = load(run)
    written = target and encodable(target)
    if html is not None:
        with written_to(html) as write:
            pages = [look_closely(loaded, text, written) for text in sentences_in(sentence)]
            write(page(pages, title=f"What {loaded.recipe.model_name} looks at"))
        return
    seen = look_at(loaded, encodable(sentence), written, layer=layer)
    if output is not None:
        with written_to(output) as write:
            write(svg(seen).removesuffix("\n"))
    elif as_json:
        entry = {"source": seen.source, "target": seen.target, "kind": seen.kind}
        print_plain(one_line(json.dumps({**entry, "weights": seen.weights.round(6).tolist()}, ensure_ascii=False)))
    else:
        out.print(heat_map(seen, width=out.width))


def sentences_in(text: str) -> list[str]:
    """The sentence itself, or the lines of the file of that name, those that are not blank."""
    from regard.data.text import encodable, read_lines
    from regard.interface import UserError

    if len(text) > 255 or "\0" in text or not Path(text).is_file():
        return [encodable(text)]
    lines = [line for line in read_lines(text) if line.strip()]
    if not lines:
        raise UserError(f"{text} has no sentence: give one with text in it.")
    return lines


@app.command()
def models(as_json: Json = False) -> None:
    """The models there are: paper, year, what each can do."""
    from regard.models import MODELS, abilities

    rows = [
        {"name": d.name, "year": str(d.year), "task": d.task, "can": ", ".join(abilities(d)), "paper": d.paper}
        for d in MODELS.values()
    ]
    if as_json:
        print_plain(json.dumps(rows, ensure_ascii=False))
        return
    show_table(rows)


@app.command()
def info(as_json: Json = False) -> None:
    """Versions, threads, processor, devices: to paste into a bug report."""
    from regard import machine

    gain = machine.bf16_gain()
    facts = {
        **machine.facts(),
        "bf16": f"{gain:.2f} × float32's matmul speed" if gain else "does not run here",
    }
    if as_json:
        print_plain(json.dumps(facts))
        return
    widest = max(map(len, facts))
    for name, value in facts.items():
        print_plain(f"{name:<{widest}}  {value}")


def show_table(rows: list[dict[str, str]]) -> None:
    from rich.table import Table

    table = Table(box=None, pad_edge=False)
    for column in rows[0]:
        table.add_column(column, overflow="fold", no_wrap=column not in ("can", "paper"))
    for row in rows:
        table.add_row(*row.values())
    out.print(table, soft_wrap=False)


def print_plain(text: str) -> None:
    sys.stdout.write(text + "\n")

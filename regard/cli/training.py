"""train and demo: a session's progress on the screen, and signals that stop it."""

from __future__ import annotations

import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Annotated, Any, Literal, NoReturn

import typer

from regard.cli.shell import Device, RecipeFile, Settings, Threads, app, err, out, recipe_with

if TYPE_CHECKING:
    from regard.interface import Progress
    from regard.recipe import Recipe
    from regard.train.session import Session

LINE_END = "\n"
STOPPING = (signal.SIGINT, signal.SIGTERM)
ENOUGH_TO_JUDGE = 5.0  # seconds of training that tell how long the rest will take


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
            more = ' --prompt "…"' if read.task == "language" else ""
            out.print(f"The best model is in {folder}; try: regard predict {folder}{more}", markup=False)


@app.command()
def demo(
    task: Annotated[
        Literal["translation", "language", "classification", "tagging"], typer.Argument(help="What to show.")
    ] = "translation",
    model: Annotated[
        str | None,
        typer.Option(
            help="rnnsearch (the default), seq2seq or transformer; for language rnn_lm (the default) or gpt; for names "
            "birnn (the default), attentive_birnn, encoder or cnn."
        ),
    ] = None,
    output: Annotated[Path | None, typer.Option("-o", "--out", help="The run folder.")] = None,
    threads: Threads = 0,
) -> None:
    """Train on the built-in corpus and measure on sentences never seen: a translator, and what it looks at; a language
    model of characters, and what it writes; praise and blame told apart; parts of speech."""
    from regard.demo import DEFAULTS, demo_recipe

    chosen = model or DEFAULTS[task]
    recipe = demo_recipe(task, chosen)
    folder = output or Path("runs") / ("demo" if chosen == DEFAULTS["translation"] else f"demo-{chosen}")
    if task in ("classification", "tagging"):
        demo_names(recipe, output or Path("runs") / f"demo-{task}", threads)
    elif task == "language":
        demo_language(recipe, folder, threads)
    else:
        demo_translation(recipe, folder, threads)


def demo_language(recipe: Recipe, folder: Path, threads: int) -> None:
    from regard import load
    from regard.demo import measure_language
    from regard.predict.search import Decoding

    out.print("Built-in corpus: English sentences from a small grammar, character by character.")
    with opened(recipe, folder, threads=threads, device="cpu") as session:
        if not follow(session):
            return
    run = load(folder)
    found = measure_language(run)
    out.print(f"\n{found.ends} unseen sentences, {found.characters:,} characters:")
    out.print(f"  {found.bits_per_character:.3f} bits a character; perplexity {found.per_word:.2f} a word")
    out.print("\nIt writes:")
    for written in run.predict([""] * 5, Decoding(sample=True, temperature=0.5)):
        out.print(f"  {written.text}", markup=False)
    out.print("\nNext:")
    out.print(f'  regard predict {folder} --prompt "The small cat" --temperature 0.5')
    out.print(f"  regard score {folder} --each sentences.txt")
    out.print("  regard new language your.txt -o lm.toml")


def demo_names(recipe: Recipe, folder: Path, threads: int) -> None:
    from regard import load
    from regard.demo import measure_names

    tagging = recipe.task == "tagging"
    what = "the part of speech of each word" if tagging else "praise, blame or neither"
    out.print(f"Built-in corpus: English sentences from a small grammar, and {what}.")
    with opened(recipe, folder, threads=threads, device="cpu") as session:
        if not follow(session):
            return
    found, each = measure_names(load(folder))
    unit = "words" if tagging else "sentences"
    out.print(f"\n{len(each):,} unseen sentences: {100 * found.accuracy:.2f} % of {found.count:,} {unit} are right")
    for text, gold, said in each[:5]:
        out.print(f"  {text}\n    {said}" + ("" if said == gold else f"   (it is {gold})"), markup=False)
    out.print("\nNext:")
    out.print(f"  regard predict {folder} < sentences.txt")
    if not tagging:
        out.print(f'  regard look {folder} "{each[0][0]}"')
    out.print(f"  regard new {recipe.task} your.{'conll' if tagging else 'tsv'} -o my.toml")


def demo_translation(recipe: Recipe, folder: Path, threads: int) -> None:
    from regard import load
    from regard.data.world import SHOWN
    from regard.demo import measure
    from regard.show.terminal import heat_map

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


@contextmanager
def opened(recipe: Any, folder: Path, *, threads: int, device: str) -> Iterator[Session]:
    """The session of a run folder, which nobody else may train in meanwhile."""
    from regard import machine
    from regard.checkpoint import Folder
    from regard.train.session import Session

    machine.use_threads(threads)
    machine.end_with_parent()
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
    amount = session.corpus.amount(session.encoded["train"])
    if left_out := session.left_out["train"]:
        empty = "one side empty" if len(session.corpus.sides) > 1 else "empty"
        amount += f" ({left_out:,} left out: {empty}, or longer than {session.recipe.tokens.longest} tokens)"
    name = session.recipe.model_title
    if session.parameters:
        out.print(
            f"{name}, {session.parameters / 1e6:.2f} M parameters, on {amount}; {plan.batches} batches an epoch, "
            f"{plan.real:.0%} real tokens; {session.training.config.precision}.",
            markup=False,
        )
    else:
        out.print(f"{name}, which counts, on {amount}.", markup=False)
    for remark in session.corpus.remarks():
        out.print(remark, markup=False)
    if session.resumed and session.training.step:
        out.print(f"Going on in {session.folder.path} from step {session.training.step}.", markup=False)
        return
    if session.teacher:
        out.print(f"Beginning with the weights and the vocabulary of {session.teacher.path}.", markup=False)
    out.print("The first training text, in tokens, and put together again where that differs:")
    for text, tokens, again in session.examples(3):
        out.print(f"    {shortened(' | '.join(tokens).replace(LINE_END, '⏎'), 200)}", style="dim", markup=False)
        if again != text:
            out.print(f"      → {shortened(again.replace(LINE_END, '⏎'), 200)}", style="dim", markup=False)


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

    from regard.runs import told

    perplexity = [f"perplexity {math.exp(min(700.0, progress.valid['loss'])):.3f}"]
    metrics = "   ".join([*(perplexity if "accuracy" not in progress.valid else []), *told(progress.valid)])
    best = "   best so far" if progress.improved else ""
    out.print(
        f"step {progress.step}   {clock(progress.seconds)}   loss {progress.loss:.3f}   valid {metrics}   "
        f"{progress.tokens_per_second:,.0f} tokens/s{best}"
    )
    for sample in progress.samples[:1]:
        shown = f"{sample.source}\n→ {sample.output}" if sample.source else sample.output
        out.print(indent(shown, "    "), style="dim", markup=False)
    if progress.finished:
        out.print(f"Finished: {progress.finished}.")


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

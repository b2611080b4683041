"""train: show the progress of a training session, and save it on a signal."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, nullcontext
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING

from regard.cli.options import Device, Output, RecipeFile, Settings, Threads, TrustCode
from regard.cli.shell import command, err, out, recipe_with
from regard.cli.signals import asked_first, leave, saying
from regard.cli.streams import go_on_unread
from regard.config import counted

if TYPE_CHECKING:
    from regard.interface import Progress
    from regard.recipe import Recipe
    from regard.train.group import Group
    from regard.train.session import Session

MOST_SHOWN = 200  # characters of a text
MORE_VALID = "name a validation file (regard new … --valid FILE), or give more data."
PREPARING = "Preparing the data …"
LEFT = "Left without saving; the same command resumes from the last checkpoint."
ENOUGH_TO_JUDGE = 5.0  # seconds of training after which the remaining time can be estimated


@command
def train(
    recipe: RecipeFile,
    settings: Settings = None,
    output: Output = None,  # the run folder; by default runs/<recipe's name>
    threads: Threads = 0,
    device: Device = "cpu",
    patience: float = 60.0,  # under torchrun: seconds of silence after which a process counts as lost
    trust_code: TrustCode = False,
) -> None:
    """Train a recipe's model, or resume it, and write a run folder.

    On several processes, on one host or many: torchrun --nproc-per-node 2 -m regard train RECIPE.toml
    """
    read = recipe_with(recipe, settings, trust_code=trust_code)
    folder = output or Path("runs") / recipe.stem
    with together(device, patience) as group, opened(read, folder, threads, device, group) as session:
        if follow(session):
            more = read.task.words.try_with
            out.print(f"The best model is in {folder}; try: regard predict {folder}{more}")


@contextmanager
def together(device: str, patience: float) -> Iterator[Group]:
    """Join the processes that torchrun has started, if there are several; only the one that leads prints."""
    from regard import machine
    from regard.train.group import Group

    if machine.processes() == 1:
        yield Group()
        return
    from regard.train.processes import joined  # which takes a while to import

    def lost(sentence: str) -> None:
        leave(1, f"regard: {sentence}")

    with joined(device=device, patience=patience, on_lost=lost) as group:
        out.quiet = not group.leads
        yield group


@contextmanager
def opened(recipe: Recipe, folder: Path, threads: int, device: str, group: Group | None = None) -> Iterator[Session]:
    """Open a training session in a run folder, and lock the folder against other trainings."""
    from regard import machine
    from regard.checkpoint import Folder
    from regard.train.group import Group
    from regard.train.session import Session, described

    machine.use_threads(threads)
    machine.end_with_parent()
    go_on_unread()
    group = group or Group()
    group.agree(lambda: described(recipe, Folder(folder)))
    with ExitStack() as stack:
        with group.in_turn(), saying("Interrupted before the first step; the same command starts again."):
            if group.leads:
                stack.enter_context(Folder(folder).only_writer())
            with err.status(PREPARING) if group.leads else nullcontext() as status:

                def on_read(read: int, every: int) -> None:
                    if status is not None:
                        status.update(f"{PREPARING} {read:,} of {counted(every, recipe.task.words.example)}")

                session = Session(recipe, folder, device=device, on_read=on_read, follows=not group.leads)
            show_plan(session)
        session.join(group)
        yield session


def show_plan(session: Session) -> None:
    """Print the model and the data before training, so that a mistake is seen before it costs time."""
    if session.other_versions:
        err.print(session.other_versions)
    plan = session.batches.stats()
    amount = session.corpus.amount(session.encoded["train"])
    if left_out := session.left_out["train"]:
        empty = "one side empty" if "source" in session.fields else "empty"
        longer = "" if session.recipe.data.pack else f", or longer than {session.recipe.tokens.longest} tokens"
        amount += f" ({left_out:,} left out: {empty}{longer})"
    name = session.recipe.model_title
    if session.parameters:
        out.print(
            f"Training {name}, {session.parameters / 1e6:.2f} M parameters, on {amount}; "
            f"{counted(plan.batches, 'batch', 'batches')} per epoch, {1 - plan.real:.0%} padding; "
            f"{session.training.config.precision}."
        )
    else:
        out.print(f"Training {name} by counting, on {amount}.")
    for remark in session.corpus.remarks():
        out.print(remark)
    if session.remark:
        out.print(session.remark)
    if few := session.few_valid:
        out.print(f"The validation set has {few}, too few to measure anything: {MORE_VALID}")
    if session.resumed and session.training.step:
        out.print(f"Resuming {session.folder.path} from step {session.training.step}.")
        return
    if session.base and session.taken:
        taken, left = session.taken.loaded, session.taken.left
        out.print(
            f"Fine-tuning {session.base.path}: {len(taken)} of {len(taken) + len(left)} weights are loaded, and its "
            f"vocabulary where a side is the same; loaded: {by_part(taken)}; new: {by_part(left) or 'none'}."
        )
        if session.other_tokens:
            out.print(f"Its tokens are {session.other_tokens}, which tokens.kind does not change.")
        if session.learning < session.parameters:
            out.print(f"{session.learning:,} of {session.parameters:,} parameters learn (train.tune).")
    for place, (text, tokens, again) in enumerate(session.examples(3)):
        if not place:
            out.print("The first training texts in tokens, and decoded again where that differs:")
        out.print(f"    {shortened(' | '.join(tokens))}", style="dim")
        if again != text:
            out.print(f"      → {shortened(again)}", style="dim")


def by_part(names: Sequence[str]) -> str:
    """Count the names of weights by part: "encoder (12), head.weight"."""
    parts: dict[str, list[str]] = {}
    for name in names:
        parts.setdefault(name.split(".")[0], []).append(name)
    return ", ".join(f"{part} ({len(some)})" if len(some) > 1 else some[0] for part, some in parts.items())


def shortened(text: str) -> str:
    """Put a text on one line, and cut it if it is long."""
    text = text.replace("\n", "⏎")
    return text if len(text) <= MOST_SHOWN else text[: MOST_SHOWN - 1] + "…"


def follow(session: Session) -> bool:
    """Show a session's progress until it ends, and return True; if it is interrupted, save it and return False."""
    from regard.score.registry import METRICS
    from regard.train.progress import training_bar

    if session.training.done(session.batches) >= 1:
        out.print(how_to_continue(session))
        return True
    group = session.training.group
    counts = session.recipe.task.words.counts
    place = out if out.is_terminal else err  # the bar stays below lines that its own console prints
    shown = None if group.leads else False
    with (
        asked_first(lambda *_: group.ask(), LEFT),
        training_bar(shown, partial(show_validation, counts=counts), place, counts) as show,
    ):
        began = session.training.seconds
        estimated, best = False, dict[str, float]()
        for progress in session.steps():
            if not estimated and progress.seconds - began > ENOUGH_TO_JUDGE:
                out.print(f"About {clock(left(progress))} to go.")
                estimated = True
            show(progress)
            best = progress.valid if progress.valid and progress.improved else best
            if group.asked and not progress.finished:
                session.save()
                out.print(f"Stopped at step {progress.step} and saved; the same command resumes.")
                return False
    perfect = [
        f"{METRICS[key].name} {value:.2f}" for key, value in best.items() if key in METRICS and value in (0, 100)
    ]
    if session.few_valid and perfect:
        out.print(f"{perfect[0]} on {session.few_valid} measures nothing: {MORE_VALID}")
    return not group.asked


def how_to_continue(session: Session) -> str:
    """Name the settings that ended the run, all of which must be raised."""
    if not session.parameters:
        return "This run is finished: everything is counted."
    training, recipe = session.training, session.recipe.train
    ended = [budget for budget, share in training.used(session.batches).items() if share >= 1]
    if "tokens" in ended and training.config.tokens != recipe.tokens:  # converted from train.flops
        ended[ended.index("tokens")] = "flops"
    if training.stopped_early:
        ended.append("patience")
    why = "by early stopping" if training.stopped_early else "since its budget is used"
    return f"This run is finished, {why}: raise train.{' and train.'.join(ended)} to continue."


def left(progress: Progress) -> float:
    """Estimate the seconds until the budget is used, at the speed so far."""
    return progress.seconds * (1 - progress.done) / max(progress.done, 1e-9)


def show_validation(progress: Progress, counts: str) -> None:
    from regard.runs import shown_metrics

    valid = progress.valid or {}
    metrics = "   ".join(shown_metrics(valid)) or f"perplexity {math.exp(min(700.0, valid['loss'])):.3f}"
    best = "   best so far" if progress.improved else ""
    out.print(
        f"step {progress.step}   {clock(progress.seconds)}   loss {progress.loss:.3f}   valid {metrics}   "
        f"{progress.tokens_per_second:,.0f} {counts}/s{best}"
    )
    for sample in progress.samples[:1]:
        above = sample.source or sample.reference  # a recording cannot be shown, but its transcript can
        shown = f"{above}\n→ {sample.output}" if above else sample.output
        out.print(indent(shown, "    "), style="dim")
    if progress.finished:
        out.print(f"Finished: {progress.finished}.")


def clock(seconds: float) -> str:
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"

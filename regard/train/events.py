"""TensorBoard event files of a run: what each step and each validation reports, as scalars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from regard.checkpoint import writing
from regard.interface import Progress, UserError

STEP = ("loss", "learning_rate", "gradient_norm", "tokens_per_second")  # what is written of each step


def require_tensorboard() -> None:
    if find_spec("tensorboard") is None:
        raise UserError(
            "train.tensorboard = true needs the package tensorboard, which is not installed: "
            "install it with pip install tensorboard, or set train.tensorboard = false."
        )


def with_events(steps: Iterable[Progress], folder: Path, begun_at: int) -> Iterator[Progress]:
    """The same steps, each written down; what an earlier attempt wrote of steps after `begun_at` is superseded."""
    from torch.utils.tensorboard import SummaryWriter

    with writing(folder):
        writer = SummaryWriter(str(folder), purge_step=begun_at + 1)
    with writer:
        for progress in steps:
            scalars = {f"train/{name}": vars(progress)[name] for name in STEP}
            scalars |= {f"valid/{name}": value for name, value in (progress.valid or {}).items()}
            for name, value in scalars.items():
                writer.add_scalar(name, value, progress.step)
            if progress.valid is not None:
                writer.flush()
            yield progress

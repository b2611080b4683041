"""Write TensorBoard event files: the numbers of each step and each validation, as scalars."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from pathlib import Path

from regard.data.files import writing
from regard.interface import Progress, UserError

STEP = ("loss", "learning_rate", "gradient_norm", "tokens_per_second")  # written at each step


def require_tensorboard() -> None:
    if find_spec("tensorboard") is None:
        raise UserError(
            "train.tensorboard = true needs the package tensorboard, which is not installed: "
            "install it with pip install tensorboard, or set train.tensorboard = false."
        )


def with_events(steps: Iterable[Progress], folder: Path, start: int) -> Iterator[Progress]:
    """Yield the same steps and write each one; what an earlier attempt wrote after step `start` is replaced."""
    from torch.utils.tensorboard import SummaryWriter

    with writing(folder):
        writer = SummaryWriter(str(folder), purge_step=start + 1)
    with writer:
        for progress in steps:
            scalars = {f"train/{name}": vars(progress)[name] for name in STEP}
            scalars |= {f"valid/{name}": value for name, value in (progress.valid or {}).items()}
            for name, value in scalars.items():
                writer.add_scalar(name, value, progress.step)
            if progress.valid is not None:
                writer.flush()
            yield progress

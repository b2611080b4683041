"""Every task, by its name."""

from __future__ import annotations

from regard.tasks import (
    Task,
    classification,
    denoising,
    language,
    masked,
    pictures,
    pretraining,
    regression,
    tagging,
    translation,
)

EVERY = (translation, language, masked, denoising, pretraining, classification, regression, tagging, pictures)
TASKS: dict[str, Task] = {module.TASK.name: module.TASK for module in EVERY}

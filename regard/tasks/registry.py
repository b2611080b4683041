"""Every task, by its name."""

from __future__ import annotations

from regard.tasks import (
    Task,
    captioning,
    classification,
    denoising,
    language,
    masked,
    multiple_choice,
    pictures,
    pretraining,
    question_answering,
    regression,
    sounds,
    speech,
    tagging,
    translation,
)

WRITE = (translation, language, masked, denoising, pretraining)
READ = (classification, regression, tagging, multiple_choice, question_answering, pictures, captioning, sounds, speech)
TASKS: dict[str, Task] = {module.TASK.name: module.TASK for module in (*WRITE, *READ)}

"""Every task, by its name."""

from __future__ import annotations

from regard.tasks import Task, classification, language, pictures, tagging, translation

EVERY = (translation, language, classification, tagging, pictures)
TASKS: dict[str, Task] = {module.TASK.name: module.TASK for module in EVERY}

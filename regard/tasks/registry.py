"""Every task, by its name."""

from __future__ import annotations

from regard.tasks import Task, classification, language, masked, pictures, tagging, translation

EVERY = (translation, language, masked, classification, tagging, pictures)
TASKS: dict[str, Task] = {module.TASK.name: module.TASK for module in EVERY}

"""models: what there is to train."""

from __future__ import annotations

from regard.cli.options import Json
from regard.cli.shell import command, print_json, show_table


@command
def models(as_json: Json = False) -> None:
    """The models there are: paper, year, what each can do."""
    from regard.models import MODELS, abilities

    rows = []
    for model in MODELS.values():
        tasks, can = ", ".join(model.tasks), ", ".join(abilities(model))
        rows.append({"name": model.name, "year": str(model.year), "task": tasks, "can": can, "paper": model.paper})
    if as_json:
        print_json(rows)
    else:
        show_table(rows)

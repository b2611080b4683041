"""models: what there is."""

from __future__ import annotations

from regard.cli.options import Json
from regard.cli.shell import command, print_json, show_table


@command
def models(as_json: Json = False) -> None:
    """The models there are: paper, year, what each can do."""
    from regard.models import MODELS, abilities

    rows = [
        {
            "name": d.name,
            "year": str(d.year),
            "task": ", ".join(d.tasks),
            "can": ", ".join(abilities(d)),
            "paper": d.paper,
        }
        for d in MODELS.values()
    ]
    if as_json:
        print_json(rows)
    else:
        show_table(rows)

"""info: the machine, for a bug report."""

from __future__ import annotations

import json

from regard.cli.shell import Json, app, print_plain


@app.command()
def info(as_json: Json = False) -> None:
    """Versions, threads, processor, devices: to paste into a bug report."""
    from regard import machine

    gain = machine.bf16_gain()
    facts = {
        **machine.facts(),
        "bf16": f"{gain:.2f} × float32's matmul speed" if gain else "does not run here",
    }
    if as_json:
        print_plain(json.dumps(facts))
        return
    widest = max(map(len, facts))
    for name, value in facts.items():
        print_plain(f"{name:<{widest}}  {value}")

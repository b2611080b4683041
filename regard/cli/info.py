"""info: describe the machine for a bug report."""

from __future__ import annotations

from regard.cli.options import Json
from regard.cli.shell import command, out, print_json


@command
def info(as_json: Json = False) -> None:
    """Print this machine's versions and devices for a bug report."""
    from regard import machine

    gain = machine.bf16_gain()
    speed = f"{gain:.2f} × float32's matmul speed" if gain else "does not run here"
    facts = {**machine.facts(), "bf16": speed}
    if as_json:
        print_json(facts)
        return
    widest = max(map(len, facts))
    for name, value in facts.items():
        out.print(f"{name:<{widest}}  {value}")

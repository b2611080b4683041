"""serve: a local page to use and look into runs, and an HTTP API."""

from __future__ import annotations

import os
from functools import partial
from pathlib import Path
from typing import Annotated

import typer

from regard.cli import signals
from regard.cli.options import Device, ProductPrecision, Threads, TrustCode
from regard.cli.shell import command, err, out
from regard.config import UserError, counted

PORT = 8080
# PyTorch keeps a kernel for each shape of a product that has occurred. Requests come in many, and with its usual
# capacities of about a thousand the memory of a server grows by a quarter before it stays the same.
KERNELS_KEPT = {"ONEDNN_PRIMITIVE_CACHE_CAPACITY": "64", "LRU_CACHE_CAPACITY": "32"}


@command
def serve(
    runs_given: Annotated[list[Path] | None, typer.Argument(metavar="[RUN …]")] = None,
    # run folders, which requests name by their last part
    runs: Path | None = None,  # serve every run in this folder, too, and those that appear in it later
    host: str = "127.0.0.1",  # the address to listen at; 0.0.0.0: every address of this machine
    port: int = PORT,  # the port to listen at; 0: any free one
    allow_host: list[str] | None = None,  # another name of this server, such as that of a reverse proxy in front
    key: str = "",  # the API key that requests must send; by default that in the variable REGARD_KEY, or none
    languages: list[str] | None = None,  # translation: the codes of both languages, such as en:de, or NAME=en:de for
    # one of several runs; by default those of the recipe
    batch_size: int = 64,  # most examples that are computed together
    waiting: int = 256,  # most requests that are under way at once; others are refused with status 429
    timeout: float = 60.0,  # seconds after which a request is given up
    open_page: Annotated[bool, typer.Option("--open")] = False,  # open the page in a browser
    threads: Threads = 0,
    device: Device = "cpu",
    precision: ProductPrecision = "fp32",
    trust_code: TrustCode = False,
) -> None:
    """Serve runs with a page and an API, to use and look into them.

    The API speaks LibreTranslate's and OpenAI's protocols, so that their clients work with your models; docs/serving.md
    describes it. Only programs on this machine can reach it, unless --host says otherwise.
    """
    if not runs_given and runs is None:
        raise UserError("There is no run to serve: give run folders, or --runs with the folder that holds your runs.")
    if not 0 <= port < 1 << 16:
        raise UserError(f"--port {port} is not a port: choose 0 to 65535.")
    for name, number in (("--batch-size", batch_size), ("--waiting", waiting), ("--timeout", timeout)):
        if not number > 0:
            raise UserError(f"{name} {number:g} must be above 0.")
    for name, capacity in KERNELS_KEPT.items():
        os.environ.setdefault(name, capacity)  # before torch is loaded, which reads them
    from regard import load, machine
    from regard.serve.desk import Limits
    from regard.serve.server import Server

    machine.share_memory()
    machine.use_threads(threads)
    opened = partial(load, device=device, precision=precision, trust_code=trust_code)
    server = Server(
        runs_given or [],
        runs,
        opened=opened,
        limits=Limits(waiting=waiting, seconds=timeout),
        batch_size=batch_size,
        host=host,
        port=port,
        hosts=allow_host or (),
        key=key or os.environ.get("REGARD_KEY", ""),
        languages=languages or (),
    )
    with server.listening() as address:
        served = counted(len(server.shelf.paths()), "run")
        out.print(f"Serving {served} at {address}  (Ctrl-C ends)")
        if host not in ("127.0.0.1", "localhost", "::1") and not server.key:
            err.print(f"Everyone who can reach {host} can use it: give --key, or leave --host out.")
        if open_page:
            typer.launch(address)
        with signals.asked_first(server.end, "Interrupted a second time: requests under way were not answered."):
            server.serve()

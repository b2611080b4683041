"""What tests share."""

from __future__ import annotations

import functools
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import hypothesis
import pytest
import typer
from command import Call, Result

from regard import cli

# two processes share two cores: torch, here and in whatever these start, has one thread
os.environ["OMP_NUM_THREADS"] = "1"

# a law holds or not, however busy the machine is
hypothesis.settings.register_profile("regard", deadline=None)
hypothesis.settings.load_profile("regard")

# some virtual machines advertise AMX and fault when it is used: tests of bfloat16 then do without it
AMX = "amx_tile" in (Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").is_file() else "")
if AMX and "ONEDNN_MAX_CPU_ISA" not in os.environ:
    multiply = "import torch; half = torch.ones(64, 64).bfloat16(); half @ half"
    if subprocess.run([sys.executable, "-P", "-c", multiply], stderr=subprocess.DEVNULL).returncode < 0:
        os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"

# what is saved is flushed, which a disk takes longer over than all the rest; in memory it costs nothing
IN_MEMORY = Path("/dev/shm")
if os.access(IN_MEMORY, os.W_OK) and shutil.disk_usage(IN_MEMORY).free > 4e9:
    os.environ["TMPDIR"] = tempfile.tempdir = str(IN_MEMORY)

# the files that take longest, of which neither process should have one left in the end when the other has none
LONGEST = ["faults", "hard_input", "train", "cli", "compare", "contract", "language_cli", "language", "outputs"]
LONGEST += ["page", "transfer", "promises", "own_model", "own", "compare_page", "world", "naming"]

# whoever starts the tests in the background of a shell has them ignore it, and all that they start
signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_xdist_auto_num_workers(config: pytest.Config) -> int:
    """One file does not wait for two processes to have torch."""
    files = {argument.partition("::")[0] for argument in config.args}
    return 0 if len(files) == 1 and Path(*files).is_file() else 2


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    order = {f"test_{name}.py": place for place, name in enumerate(LONGEST)}
    items.sort(key=lambda item: order.get(item.path.name, len(order)))


@pytest.fixture(scope="session", autouse=True)
def made_once() -> Iterator[None]:
    """What a process does once, for the one command it is started for, would take half of the time here."""
    import torch  # not for the process that only gives the tests out

    from regard import machine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cli, "app", typer.main.get_command(cli.app))
        patch.setattr(machine, "package_version", functools.cache(machine.package_version))
        for absent in (torch.cuda, torch.xpu, torch.mtia):
            if not absent.is_available():  # a seed waits for it, together with a description of who gave it
                patch.setattr(absent, "manual_seed_all", lambda seed: None)
        yield


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """The command in this process, which has torch already."""

    def called(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            cli.main()
        said = capfd.readouterr()
        return Result(int(ended.value.code or 0), said.out, said.err)

    return called


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder to work in, and no other place where files of one's own are looked for."""
    monkeypatch.delenv("REGARD_DATA", raising=False)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.chdir(tmp_path)
    return tmp_path

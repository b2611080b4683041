"""What tests share."""

from __future__ import annotations

import signal
import sys
from pathlib import Path

import pytest
from command import Call, Result

from regard.cli import main

# whoever starts the tests in the background of a shell has them ignore it, and all that they start
signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture
def call(monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]) -> Call:
    """The command in this process, which has torch already."""

    def called(*arguments: object) -> Result:
        monkeypatch.setattr(sys, "argv", ["regard", *map(str, arguments)])
        capfd.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
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

"""What tests share."""

from __future__ import annotations

import sys

import pytest
from command import Call, Result

from regard.cli import main


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
